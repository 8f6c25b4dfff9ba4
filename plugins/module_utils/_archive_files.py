# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files below directories that others can change meanwhile: no link is followed, no file is seen half written."""

from __future__ import annotations

import contextlib
import decimal
import errno
import os
import stat
import tarfile
import typing as t

from ._errors import EventsError
from ._text import clean, quoted_list

# To pass through a directory, the right to search it is enough.
PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# What is being put back lies in a directory of this name, under that one.
STAGE, NEW = ".graceful-part", ".graceful-new"
# How tar names extended attributes. Access control lists are among them.
ATTRIBUTE = "SCHILY.xattr."
ACCESS_LIST, DEFAULT_LIST = "system.posix_acl_access", "system.posix_acl_default"
# Where this process, or a program to which it is passed, finds what is open here.
OPENED = "/proc/self/fd"


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


@contextlib.contextmanager
def open_directory(path: str) -> t.Iterator[int]:
    """Opened from the root down, one name after the other."""
    directory = os.open("/", PASS)
    try:
        passed = ""
        for name in filter(None, path.split("/")):
            passed += "/" + name
            try:
                below = os.open(name, PASS, dir_fd=directory)
            except NotADirectoryError as exc:
                raise InTheWay(
                    f"{clean(passed, 200)} is a link or a file now, and was a directory when it was saved"
                ) from exc
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)


def status_in(directory: int, name: str) -> os.stat_result | None:
    """What lies there, a link itself and not what it leads to; None if nothing does."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    return None


@contextlib.contextmanager
def opened(name: str, flags: int, directory: int) -> t.Iterator[int]:
    descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staged(directory: int) -> t.Iterator[int]:
    """A directory of our own in another one: nobody else can touch what is made in it before it is complete."""
    with contextlib.suppress(FileExistsError):
        # What is there was left by a run that was cut off.
        os.mkdir(STAGE, 0o700, dir_fd=directory)
    with opened(STAGE, LIST, directory) as stage:
        status = os.fstat(stage)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise InTheWay(f"a directory {STAGE} there is not ours and has to be removed")
        with contextlib.suppress(OSError):
            # What is made in it would inherit the list.
            os.removexattr(stage, DEFAULT_LIST)
        try:
            yield stage
        finally:
            with contextlib.suppress(OSError):
                remove_new(stage)
                os.rmdir(STAGE, dir_fd=directory)


def remove_new(stage: int) -> None:
    """Remove what is not complete; of a directory that somebody put into the place of ours, nothing else."""
    try:
        os.unlink(NEW, dir_fd=stage)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        os.rmdir(NEW, dir_fd=stage)


# ---- owner, mode, times and extended attributes


def set_metadata(path: str, member: tarfile.TarInfo, name: str, remarks: Remarks) -> None:
    """Make a file or directory what it was. The path leads into a directory of our own."""
    mode = member.mode & 0o7777
    if member.isdir() and os.geteuid() != 0:
        # Only root can write into any directory.
        mode |= stat.S_IRWXU
    status = os.lstat(path)
    if (status.st_uid, status.st_gid) != (member.uid, member.gid):
        try:
            os.lchown(path, member.uid, member.gid)
        except OSError as exc:
            if exc.errno not in (errno.EPERM, errno.EINVAL):
                raise
            # With another owner these would give rights to somebody else.
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
            remarks.add("put back without the owner", name)
    refused = []
    for key, value in member.pax_headers.items():
        if key.startswith(ATTRIBUTE):
            attribute = key[len(ATTRIBUTE) :].replace("%3D", "=").replace("%25", "%")
            try:
                os.setxattr(path, attribute, value.encode("utf-8", "surrogateescape"), follow_symlinks=False)
            except OSError:
                refused.append(attribute)
    if refused:
        remarks.add("put back without all extended attributes", name)
    if ACCESS_LIST in refused:
        # The bits of the group are the mask of the list: without the list they would be the group's rights.
        mode &= ~stat.S_IRWXG
    if not member.issym():
        os.chmod(path, mode)
    os.utime(path, ns=_times(member), follow_symlinks=False)


def finish_directory(path: str, member: tarfile.TarInfo) -> None:
    """What was put into it changed its time; and without root it had to be writable until now."""
    parent, name = os.path.split(path)
    with open_directory(parent) as above, opened(name, LIST, above) as directory:
        if os.geteuid() != 0:
            os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) & (member.mode | 0o077))
        os.utime(directory, ns=_times(member))


def _times(member: tarfile.TarInfo) -> tuple[int, int]:
    """Of the last access and the last change, in nanoseconds, for which the number that tarfile has is too short."""
    modified = member.pax_headers.get("mtime", member.mtime)
    accessed = member.pax_headers.get("atime", modified)
    return int(decimal.Decimal(accessed).scaleb(9)), int(decimal.Decimal(modified).scaleb(9))
