# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Files and directories in an archive. What the maintenance loses is put back from it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._archive import PART, restore, save
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Done, Json, Kind, Look, Noted, Options
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, count, quoted_list

# Says of which archive everything was put back, until the next one takes its place.
RESTORED = ".restored"


class Item(Kind):
    summary = (
        "The paths are in an archive, with mode, owner, times, access control lists, other extended attributes, hard "
        "links and holes. Put back: what is missing, and only that."
    )
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
        # Not of type path: that would be expanded on the controller.
        "paths": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "Absolute paths of files and directories. Of a symbolic link, what it leads to is saved. "
            "Sockets are left out.",
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
        paths = options["paths"]
        if not paths or any(not os.path.isabs(path) or "\0" in path for path in paths):
            return "paths has to be a list of absolute paths, such as /mnt/cache."
        return ""

    def look(self) -> Look:
        return Look(False, "nothing was saved for this event", {})

    def do(self) -> Done:
        saved = save(self.given["paths"], self._archive, self.tools.patience)
        message = (
            f"{count(saved.entries, 'file')} with directories, {count(saved.size, 'byte')} in {clean(self._archive)}"
        )
        data = {
            "paths": saved.paths,
            "archive": self._archive,
            "checksum": saved.checksum,
            "fetched": self.given["to"] == "controller",
        }
        return Done("; ".join(filter(None, [message, saved.remarks])), data)

    def undo(self, noted: Noted) -> str:
        archive = str(noted.data.get("archive") or self._archive)
        if not noted.data.get("checksum"):
            _remove(archive, archive + PART)
            return "nothing was saved, so there is nothing to put back"
        paths, checksum = _roots(noted.data), str(noted.data["checksum"])
        if _was_restored(archive, checksum):
            return "it was put back before"
        restored = restore(paths, archive, checksum, self.tools.patience, only_missing_paths=not noted.lost)
        message = f"{len(restored.paths)} put back"
        if restored.paths:
            message += f": {quoted_list(restored.paths, 3)}"
        # If this is cut off before it is noted, the next attempt finds no archive, but this.
        _write(archive + RESTORED, checksum)
        left = _remove(archive)
        return "; ".join(filter(None, [message, restored.remarks, left]))

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


def _was_restored(archive: str, checksum: str) -> bool:
    if os.path.lexists(archive):
        return False
    try:
        with open(archive + RESTORED, encoding="utf-8") as file:
            return file.read(len(checksum) + 1) == checksum
    except (OSError, ValueError):
        return False


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        _remove(path)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def _remove(*paths: str) -> str:
    """Empty, or what could not be removed."""
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as exc:
            return f"{clean(path)} could not be removed: {clean(exc.strerror or exc, 200)}"
    return ""
