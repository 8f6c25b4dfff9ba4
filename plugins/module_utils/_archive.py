# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Archives of paths that may be lost, and putting back what was lost and only that."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import tarfile
import tempfile
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError

CHUNK = 1 << 20
PART = ".graceful-part"
# The archive is our own and its checksum is known: owners and modes come back as they were, whatever Python's default.
AS_SAVED: dict[str, t.Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


class Saved(t.NamedTuple):
    checksum: str
    size: int
    entries: int
    # Where the paths really are: what a link leads to is saved, not the link.
    paths: list[str]


def save(paths: t.Sequence[str], archive: str) -> Saved:
    """Write the archive whole or not at all: a temporary file that is renamed when it is safe on the disk."""
    for path in paths:
        if not os.path.exists(path):
            raise EventsError(f"{path} is not there, so it cannot be saved. Check the paths of the checkpoint.")
        if _within(os.path.realpath(archive), os.path.realpath(path)):
            raise EventsError(f"The archive {archive} lies inside {path}, which it shall save. Choose another place.")
    roots = [os.path.realpath(path) for path in paths]
    directory = os.path.dirname(archive)
    temporary = ""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".checkpoint-", dir=directory)
        with os.fdopen(handle, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
                for path in roots:
                    tar.add(path, arcname=path.lstrip("/"))
                entries = len(tar.getmembers())
            file.flush()
            os.fsync(file.fileno())
        saved = Saved(checksum_of(temporary), os.path.getsize(temporary), entries, roots)
        os.replace(temporary, archive)
        return saved
    except OSError as exc:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Make room there, or choose another place." if full else "Nothing was saved."
        raise EventsError(f"Saving to {archive} failed: {exc.strerror or exc}. {advice}") from exc


def restore(
    paths: t.Sequence[str], archive: str, checksum: str, dry_run: bool, only_missing_paths: bool = False
) -> list[str]:
    """Put back what is in the archive and not on the disk; what is there stays as it is."""
    try:
        found = checksum_of(archive)
    except OSError as exc:
        raise EventsError(
            f"The checkpoint {archive} cannot be read: {exc.strerror or exc}. Nothing was put back."
        ) from exc
    if found != checksum:
        raise EventsError(
            f"The checkpoint {archive} is damaged: its checksum is {found}, recorded was {checksum}. "
            "Nothing was put back."
        )
    roots = [os.path.realpath(path) for path in paths]
    kept = [root for root in roots if only_missing_paths and os.path.lexists(root)]
    restored = []
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            # A directory's final mode and times come last: it has to be written into before.
            directories = []
            for member in tar:
                target = "/" + os.path.normpath(member.name)
                if not any(_within(target, root) for root in roots):
                    raise EventsError(f"The checkpoint {archive} holds {member.name!r}, which is not among the paths.")
                if os.path.lexists(target) or any(_within(target, root) for root in kept):
                    continue
                restored.append(target)
                if dry_run:
                    continue
                if member.isdir():
                    _make_directory(tar, member, target)
                    directories.append((member, target))
                else:
                    _put_back(tar, member, target)
            for member, target in reversed(directories):
                tar.chmod(member, target)
                tar.utime(member, target)
    except (OSError, tarfile.TarError, EOFError) as exc:
        raise EventsError(f"Putting back {archive} failed after {len(restored)} entries: {exc}. Run it again.") from exc
    return restored


def _make_directory(tar: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    os.makedirs(target, mode=0o700)
    tar.chown(member, target, numeric_owner=True)
    os.chmod(target, member.mode | 0o700)


def _put_back(tar: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    """Under another name first: what a kill or a full disk leaves half written is not taken for what was saved."""
    part = copy.copy(member)
    part.name = member.name + PART
    if os.path.lexists(target + PART):
        os.unlink(target + PART)
    try:
        tar.extract(part, path="/", numeric_owner=True, **AS_SAVED)
        os.rename(target + PART, target)
    except OSError:
        if os.path.lexists(target + PART):
            os.unlink(target + PART)
        raise


def checksum_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
