# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Files below directories that others can change meanwhile: no link is followed, no file is seen half written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import typing as t

from ._archive_format import Entry
from ._errors import EventsError
from ._text import clean, quoted_list

# To pass through a directory, the right to search it is enough.
PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# What is being put back lies in a directory of this name, under that one.
STAGE, NEW = ".graceful-part", ".graceful-new"
ACCESS_LIST, DEFAULT_LIST = "system.posix_acl_access", "system.posix_acl_default"
HAS_ATTRIBUTES = hasattr(os, "listxattr")


class InTheWay(EventsError):
    """A directory on the way is a link, or no directory."""


class Remarks:
    """What an operator should know about some of the files: how many there are of each sort, and the first names."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, remark: str, path: str) -> None:
        self._found.setdefault(remark, []).append(path)

    @property
    def message(self) -> str:
        return "; ".join(f"{len(paths)} {remark}: {quoted_list(paths, 3)}" for remark, paths in self._found.items())


class Directories(contextlib.ExitStack):
    """Opens directories from the root down, one name after the other. The last one stays open for the next call."""

    def __init__(self) -> None:
        super().__init__()
        self._path = ""
        self._opened = -1

    def open(self, path: str) -> int:
        """A directory to work in with dir_fd. It is closed here."""
        if path != self._path:
            opened = _open_from_root(path)
            self.close()
            self.callback(os.close, opened)
            self._path, self._opened = path, opened
        return self._opened

    def status(self, path: str) -> os.stat_result | None:
        """What lies there, a link itself and not what it leads to; None if nothing does."""
        parent, name = os.path.split(path)
        try:
            return os.stat(name, dir_fd=self.open(parent), follow_symlinks=False)
        except FileNotFoundError:
            return None


def _open_from_root(path: str) -> int:
    opened = os.open("/", PASS)
    passed = ""
    for name in filter(None, path.split("/")):
        passed += "/" + name
        try:
            below = os.open(name, PASS, dir_fd=opened)
        except NotADirectoryError as exc:
            raise InTheWay(f"{clean(passed, 200)} {_what_it_is(name, opened)}") from exc
        finally:
            os.close(opened)
        opened = below
    return opened


def _what_it_is(name: str, directory: int) -> str:
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return "is a symbolic link now, and was a directory when it was saved"
    return "is no directory any more"


@contextlib.contextmanager
def opened(name: str, flags: int, directory: int) -> t.Iterator[int]:
    descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Stage(contextlib.ExitStack):
    """A directory of our own in another one: nobody else can touch what is made in it before it is complete."""

    def __init__(self) -> None:
        super().__init__()
        self._path = ""
        self._descriptor = -1

    def within(self, path: str, directory: int) -> int:
        """The same one as long as the path is the same; nothing is left in it from before."""
        if path != self._path:
            self._path = ""
            self.close()
            directory = os.dup(directory)
            self.callback(os.close, directory)
            self._descriptor = self.enter_context(_staged(directory))
            self._path = path
        _remove(self._descriptor)
        return self._descriptor


@contextlib.contextmanager
def _staged(directory: int) -> t.Iterator[int]:
    with contextlib.suppress(FileExistsError):
        # What is there was left by a run that was cut off.
        os.mkdir(STAGE, 0o700, dir_fd=directory)
    with opened(STAGE, LIST, directory) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise InTheWay(f"a directory {STAGE} there is not ours and has to be removed")
        try:
            yield descriptor
        finally:
            with contextlib.suppress(OSError):
                _remove(descriptor)
                os.rmdir(STAGE, dir_fd=directory)


def _remove(directory: int) -> None:
    """Remove what is not complete; of a directory that somebody put into the place of ours, nothing else."""
    try:
        os.unlink(NEW, dir_fd=directory)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        os.rmdir(NEW, dir_fd=directory)


# ---- owner, mode, times and extended attributes


def attributes_of(descriptor: int) -> dict[str, bytes]:
    """Extended attributes, in which access control lists are kept, too."""
    if not HAS_ATTRIBUTES:
        return {}
    found = {}
    try:
        for name in os.listxattr(descriptor):
            with contextlib.suppress(OSError):
                found[name] = os.getxattr(descriptor, name)
    except OSError as exc:
        if exc.errno != errno.ENOTSUP:
            raise
    return found


def set_metadata(descriptor: int, entry: Entry, remarks: Remarks, extra_mode: int = 0) -> None:
    """Make an opened file or directory what it was. Writing its content would undo some of it."""
    mode = entry.mode | extra_mode
    if not _set_owner(entry, lambda: os.fchown(descriptor, entry.uid, entry.gid), os.fstat(descriptor)):
        # With another owner these would give rights to somebody else.
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
        remarks.add("put back without the owner", entry.path)
    refused = _set_attributes(descriptor, entry.attributes)
    if refused:
        remarks.add("put back without all extended attributes", entry.path)
    if ACCESS_LIST in refused:
        # The bits of the group are the mask of the list: without the list they would be the group's rights.
        mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode)
    os.utime(descriptor, ns=(entry.accessed, entry.modified))


def set_metadata_by_name(name: str, directory: int, entry: Entry, remarks: Remarks) -> None:
    """The same for what cannot be opened. The directory has to be our own."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    owner = (entry.uid, entry.gid)
    if not _set_owner(entry, lambda: os.chown(name, *owner, dir_fd=directory, follow_symlinks=False), status):
        remarks.add("put back without the owner", entry.path)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(name, entry.mode, dir_fd=directory)
    os.utime(name, ns=(entry.accessed, entry.modified), dir_fd=directory, follow_symlinks=False)


def _set_owner(entry: Entry, change: t.Callable[[], None], status: os.stat_result) -> bool:
    if (status.st_uid, status.st_gid) == (entry.uid, entry.gid):
        return True
    try:
        change()
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True


def _set_attributes(descriptor: int, attributes: t.Mapping[str, bytes]) -> list[str]:
    """The names of those that the file system refuses."""
    if not HAS_ATTRIBUTES:
        return list(attributes)
    for name in (ACCESS_LIST, DEFAULT_LIST):
        # A new file inherits such a list from its directory.
        with contextlib.suppress(OSError):
            os.removexattr(descriptor, name)
    refused = []
    for name, value in attributes.items():
        try:
            os.setxattr(descriptor, name, value)
        except OSError:
            refused.append(name)
    return refused
