# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files and directories in an archive. What the maintenance loses is put back from it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .. import _option_checks as check
from .._archive import PART, restore, save
from .._errors import EventsError
from .._kind import Done, Json, Kind, Options, StepRecord
from .._text import clean, count, quoted_list


class Item(Kind):
    summary = (
        "The paths are in an archive, with mode, owner, times, access control lists, other extended attributes, hard "
        "links and holes. Put back: what is missing, and only that. Linux hosts need GNU tar 1.28 or newer, and gzip. "
        "[docs/windows.md](../../docs/windows.md) has what is kept on Windows."
    )
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
        # Not of type path: that would be expanded on the controller.
        "paths": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "Absolute paths of files and directories. For a symbolic link, its target is saved. "
            "Sockets are left out. On Windows with a drive or as UNC path.",
        },
        "to": {
            "type": "str",
            "choices": ["host", "controller"],
            "default": "host",
            "description": "Where the archive is kept: on another disk of the host, or on the controller.",
        },
    }

    @classmethod
    def mistake(cls, options: Options) -> str:
        return "" if options["paths"] else "paths has to be a list of absolute paths."

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        if all(check.is_absolute(platform, path) for path in options["paths"]):
            return ""
        return f"paths has to be a list of absolute paths, such as {check.sample_path(platform, 'cache')}."

    def do(self) -> Done:
        saved = save(self.params["paths"], self._archive, self.tools.patience, self.tools.run)
        message = (
            f"{count(saved.entries, 'file')} with directories, {count(saved.size, 'byte')} in {clean(self._archive)}"
        )
        data = {
            "paths": saved.paths,
            "archive": self._archive,
            "checksum": saved.checksum,
            "fetched": self.params["to"] == "controller",
        }
        return Done("; ".join(filter(None, [message, saved.remarks])), data)

    def undo(self, noted: StepRecord) -> str:
        archive = str(noted.data.get("archive") or self._archive)
        if not noted.data.get("checksum"):
            return "nothing was saved, so there is nothing to put back"
        restored = restore(
            _roots(noted.data),
            archive,
            str(noted.data["checksum"]),
            self.tools.patience,
            only_missing_paths=not noted.lost,
        )
        message = f"{len(restored.paths)} put back"
        if restored.paths:
            message += f": {quoted_list(restored.paths, 3)}"
        return "; ".join(filter(None, [message, restored.remarks]))

    def is_saved(self, noted: StepRecord) -> bool:
        archive = str(noted.data.get("archive") or self._archive)
        # The controller has a copy of one that it has fetched.
        return bool(noted.data.get("fetched")) or os.path.isfile(archive)

    def clean_up(self, noted: StepRecord) -> None:
        # What cannot be removed is overwritten by the next archive of that name.
        archive = str(noted.data.get("archive") or self._archive)
        for path in (archive, archive + PART):
            with contextlib.suppress(OSError):
                os.unlink(path)

    @property
    def _archive(self) -> str:
        return os.path.join(self.tools.directory, self.tools.file_name)


def _roots(data: Json) -> list[str]:
    """The record is a file, too: what it says is looked at before it is used."""
    paths = data.get("paths")
    if isinstance(paths, list) and paths and all(isinstance(path, str) and _is_resolved(path) for path in paths):
        return paths
    raise EventsError("The record does not say which paths were saved, so nothing was put back. Repair the record.")


def _is_resolved(path: str) -> bool:
    return os.path.isabs(path) and os.path.normpath(path) == path and not path.startswith("//") and "\0" not in path
