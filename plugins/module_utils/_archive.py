# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Archives of paths that may be lost, and putting back what was lost and only that."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import typing as t

from . import _archive_format as tar
from ._archive_files import (
    LIST,
    NEW,
    Directories,
    InTheWay,
    Remarks,
    Stage,
    attributes_of,
    opened,
    set_metadata,
    set_metadata_by_name,
)
from ._archive_format import Entry, Reader, Unwritable, Writer
from ._errors import EventsError
from ._files import sync_directory
from ._patience import Late, Patience
from ._text import clean, quoted

PART = ".part"
# A file that is gone, or another one, by the time it is read.
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
FULL = (errno.ENOSPC, errno.EDQUOT)
TOO_LATE_TO_SAVE = "It is not saved. Give the checkpoint more time, or save less"
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
SPECIAL = {
    stat.S_IFLNK: tar.SYMLINK,
    stat.S_IFIFO: tar.FIFO,
    stat.S_IFCHR: tar.CHARACTER_DEVICE,
    stat.S_IFBLK: tar.BLOCK_DEVICE,
}


class Saved(t.NamedTuple):
    checksum: str
    size: int
    # Files and directories.
    entries: int
    # Where the paths really are: what a link leads to is saved, not the link.
    paths: list[str]
    remarks: str


class Restored(t.NamedTuple):
    paths: list[str]
    remarks: str


# ---- saving


def save(paths: t.Sequence[str], archive: str, patience: Patience) -> Saved:
    """Write the archive whole or not at all: it gets its name when it is complete on the disk and was read back."""
    roots = [_resolved(path, archive) for path in paths]
    part = archive + PART
    try:
        os.makedirs(os.path.dirname(archive), mode=0o700, exist_ok=True)
        with _new_file(part) as file:
            with Writer(file) as writer:
                saver = _Saver(writer, patience)
                checksum = saver.save(roots)
            file.flush()
            os.fsync(file.fileno())
        with _existing_file(part) as file:
            _read_back(file, checksum, roots, patience)
            size = os.fstat(file.fileno()).st_size
        os.replace(part, archive)
        sync_directory(os.path.dirname(archive))
    except tar.Damaged as exc:
        raise EventsError(
            f"What was written to {clean(archive)} cannot be read back: {exc}. Nothing was saved. Choose another disk "
            "(graceful_checkpoint_dir)."
        ) from exc
    except (OSError, Unwritable) as exc:
        cause = exc.cause if isinstance(exc, Unwritable) else exc
        raise EventsError(f"Saving to {clean(archive)} failed: {_why(cause)}. {_advice(cause)}") from exc
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    return Saved(checksum, size, saver.entries, roots, saver.remarks.message)


def _resolved(path: str, archive: str) -> str:
    root = os.path.realpath(path)
    if not os.path.exists(root):
        raise EventsError(f"{clean(path)} is not there, so it cannot be saved. Check the paths of the checkpoint.")
    if _within(os.path.realpath(archive), root):
        raise EventsError(
            f"The archive {clean(archive)} lies inside {clean(path)}, which it shall save. Choose another place for "
            "archives (graceful_checkpoint_dir)."
        )
    return root


def _read_back(file: t.BinaryIO, checksum: str, roots: t.Sequence[str], patience: Patience) -> None:
    if _checksum(file, patience) != checksum:
        raise tar.Damaged("its checksum is another one")
    structure = _Structure(roots)
    for entry in Reader(file):
        _demand_time(patience, TOO_LATE_TO_SAVE)
        structure.check(entry)


def _advice(exc: OSError) -> str:
    if exc.errno in FULL:
        return "Make room there, or choose another place (graceful_checkpoint_dir)."
    if exc.errno in FORBIDDEN:
        return "Choose a place that this user can write to (graceful_checkpoint_dir), or set become to true."
    return "Nothing was saved."


class _Saver:
    """Reads what is to be saved. A file that vanishes meanwhile is left out; one that cannot be read is an error."""

    def __init__(self, writer: Writer, patience: Patience) -> None:
        self.entries = 0
        self.remarks = Remarks()
        self._writer = writer
        self._patience = patience
        self._directories = Directories()
        self._linked: dict[tuple[int, ...], str] = {}

    def save(self, roots: t.Sequence[str]) -> str:
        outermost = {root for root in roots if not any(root != other and _within(root, other) for other in roots)}
        with self._directories:
            for path in sorted({parent for root in outermost for parent in _parents(root)}):
                self._add_parent(path)
            for root in sorted(outermost):
                self._add_all(root)
        return self._writer.close()

    def _add_parent(self, path: str) -> None:
        """Only how it is: if it is lost, too, it has to be made again before what was in it."""
        with self._reading(path):
            parent, name = os.path.split(path)
            directory = self._directories.open(parent)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            attributes = {}
            with contextlib.suppress(PermissionError), opened(name, LIST, directory) as descriptor:
                attributes = attributes_of(descriptor)
            self._writer.add(_entry(path, tar.DIRECTORY, status, attributes=attributes))

    def _add_all(self, root: str) -> None:
        pending = [root]
        while pending:
            path = pending.pop()
            before = self.entries
            pending += self._add(path)
            if path == root and self.entries == before and not os.path.lexists(root):
                raise EventsError(f"{clean(root)} vanished while it was saved. Check the paths of the checkpoint.")

    def _add(self, path: str) -> list[str]:
        """Add what lies there; what a directory holds is returned, the last name first."""
        below: list[str] = []
        with self._reading(path):
            parent, name = os.path.split(path)
            directory = self._directories.open(parent)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                below = self._add_directory(path, name, directory)
            elif stat.S_ISREG(status.st_mode):
                self._add_file(path, name, directory)
            elif stat.S_IFMT(status.st_mode) in SPECIAL:
                self._add_special(path, name, directory, status)
            else:
                self.remarks.add("left out (socket)", path)
        return below

    @contextlib.contextmanager
    def _reading(self, path: str) -> t.Iterator[None]:
        _demand_time(self._patience, TOO_LATE_TO_SAVE)
        try:
            yield
        except (InTheWay, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno not in VANISHED:
                raise EventsError(f"{clean(path)} cannot be saved: {_why(exc)}.") from exc
            self.remarks.add("left out (vanished while it was read)", path)

    def _write(self, entry: Entry) -> None:
        self._writer.add(entry)
        self.entries += 1

    def _add_directory(self, path: str, name: str, directory: int) -> list[str]:
        with opened(name, LIST, directory) as descriptor:
            names = os.listdir(descriptor)
            entry = _entry(path, tar.DIRECTORY, os.fstat(descriptor), attributes=attributes_of(descriptor))
        self._write(entry)
        return [os.path.join(path, name) for name in sorted(names, reverse=True)]

    def _add_special(self, path: str, name: str, directory: int, status: os.stat_result) -> None:
        kind = SPECIAL[stat.S_IFMT(status.st_mode)]
        link = os.readlink(name, dir_fd=directory) if kind == tar.SYMLINK else ""
        device = (os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in tar.DEVICES else (0, 0)
        self._write(_entry(path, kind, status, link=link, device=device))

    def _add_file(self, path: str, name: str, directory: int) -> None:
        # Without waiting: a fifo may have taken its place.
        with opened(name, os.O_RDONLY | os.O_NONBLOCK, directory) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "another kind of file took its place")
            # The number of a file that was removed is used again: it is the same only if nothing else differs.
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if status.st_nlink > 1 and identity in self._linked:
                self._write(_entry(path, tar.HARD_LINK, status, link=self._linked[identity]))
                return
            segments = _segments(descriptor, status)
            attributes = attributes_of(descriptor)
            entry = _entry(path, tar.FILE, status, size=status.st_size, segments=segments, attributes=attributes)
            self._write(entry)
            self._copy(descriptor, entry)
            after = os.fstat(descriptor)
        self._linked[identity] = path
        if (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            self.remarks.add("changed while it was read", path)

    def _copy(self, descriptor: int, entry: Entry) -> None:
        for offset, length in entry.segments:
            end = offset + length
            while offset < end:
                _demand_time(self._patience, TOO_LATE_TO_SAVE)
                wanted = min(tar.CHUNK, end - offset)
                # A file that became shorter is filled up: its size has been written before it.
                piece = os.pread(descriptor, wanted, offset) or bytes(wanted)
                self._writer.write(piece)
                offset += len(piece)
        self._writer.write(tar.padding(entry.stored))


def _entry(path: str, kind: bytes, status: os.stat_result, **more: t.Any) -> Entry:
    mode, times = stat.S_IMODE(status.st_mode), (status.st_mtime_ns, status.st_atime_ns)
    return Entry(path, kind, mode, status.st_uid, status.st_gid, *times, **more)


def _segments(descriptor: int, status: os.stat_result) -> tar.Segments:
    """Where the file has data. One that has as many blocks as its size needs has no holes worth the search."""
    size = status.st_size
    if status.st_blocks * 512 >= size or not hasattr(os, "SEEK_DATA"):
        return tar.whole(size)
    found = []
    position = 0
    try:
        while position < size:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            position = min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
            if start < position:
                found.append((start, position - start))
    except OSError as exc:
        # ENXIO: there is nothing but a hole up to the end.
        if exc.errno != errno.ENXIO:
            return tar.whole(size)
    return tuple(found)


# ---- putting back


def restore(
    paths: t.Sequence[str], archive: str, checksum: str, patience: Patience, only_missing_paths: bool = False
) -> Restored:
    """Put back what is in the archive and not on the disk; what is there stays as it is."""
    with Directories() as directories:
        missing = _missing(paths, directories)
        if only_missing_paths and not missing:
            return Restored([], "")
        with _opened_archive(archive) as file:
            found = _checksum(file, patience)
            if found != checksum:
                raise _damaged(archive, f"its checksum is {found}, recorded was {clean(checksum, 80)}")
            plan = _Plan(paths, missing if only_missing_paths else paths, directories)
            plan.make(file, archive, patience)
            return _Restorer(plan, directories, patience).restore(file)


def _missing(paths: t.Sequence[str], directories: Directories) -> list[str]:
    missing = []
    for path in paths:
        with _before_anything(path):
            if directories.status(path) is None:
                missing.append(path)
    return missing


@contextlib.contextmanager
def _before_anything(path: str) -> t.Iterator[None]:
    try:
        yield
    except InTheWay as exc:
        raise EventsError(f"Nothing was put back: {exc}. Move it away and run it again.") from exc
    except OSError as exc:
        raise EventsError(f"Nothing was put back: {clean(path, 200)} cannot be looked at: {_why(exc)}.") from exc


@contextlib.contextmanager
def _opened_archive(archive: str) -> t.Iterator[t.BinaryIO]:
    try:
        file = _existing_file(archive)
    except OSError as exc:
        raise EventsError(
            f"The checkpoint {clean(archive)} cannot be read: {_why(exc)}. Nothing was put back. If you have a copy of "
            "it, put it there and run it again."
        ) from exc
    with file:
        yield file


def _damaged(archive: str, why: str) -> EventsError:
    return EventsError(
        f"The checkpoint {clean(archive)} is damaged: {why}. Nothing was put back. If you have a copy of it, put it "
        "there and run it again."
    )


class _Structure:
    """Refuses what could lead out of the saved paths, entry by entry."""

    def __init__(self, roots: t.Sequence[str]) -> None:
        self._roots = roots
        self._types = {"/": tar.DIRECTORY}

    def check(self, entry: Entry) -> None:
        is_inside = any(_within(entry.path, root) for root in self._roots)
        is_parent = entry.type == tar.DIRECTORY and any(_within(root, entry.path) for root in self._roots)
        if not is_inside and not is_parent:
            raise tar.Damaged(f"it holds {quoted(entry.path)}, which is not among the paths")
        if entry.path in self._types:
            raise tar.Damaged(f"it holds {quoted(entry.path)} twice")
        if self._types.get(os.path.dirname(entry.path)) != tar.DIRECTORY:
            raise tar.Damaged(f"it holds {quoted(entry.path)}, but not as part of a directory")
        if entry.type == tar.HARD_LINK and self._types.get(entry.link) != tar.FILE:
            raise tar.Damaged(f"it holds {quoted(entry.path)} as a link to what is no file in it")
        self._types[entry.path] = entry.type


class _Plan:
    """What is to be put back. Making it reads the whole archive, so that nothing is put back from a damaged one."""

    def __init__(self, roots: t.Sequence[str], wanted: t.Sequence[str], directories: Directories) -> None:
        self.remarks = Remarks()
        self.directories: list[Entry] = []
        # Whose the directories are, by their path.
        self.owners: dict[str, int] = {}
        # By the path of an entry: where it is to be made, or which file it is a further name of.
        self.new: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.roots = roots
        self._wanted = wanted
        self._directories = directories
        self._missing: set[str] = set()
        # By the path of an entry: a file that has its content, or will have it.
        self._sources: dict[str, str] = {}

    def make(self, file: t.BinaryIO, archive: str, patience: Patience) -> None:
        structure = _Structure(self.roots)
        try:
            for entry in Reader(file):
                _demand_time(patience, "Nothing was put back. Give it more time")
                structure.check(entry)
                with _before_anything(entry.path):
                    self._decide(entry)
        except tar.Damaged as exc:
            raise _damaged(archive, exc.message) from exc

    def _decide(self, entry: Entry) -> None:
        is_wanted = self._is_wanted(entry)
        if entry.type == tar.DIRECTORY:
            self.owners[entry.path] = entry.uid
        try:
            status = self._status(entry.path)
        except (InTheWay, OSError):
            if is_wanted:
                raise
            return
        content = entry.link if entry.type == tar.HARD_LINK else entry.path
        if status is not None:
            if stat.S_ISREG(status.st_mode):
                self._sources.setdefault(content, entry.path)
        elif not is_wanted:
            return
        elif entry.type in tar.DEVICES and os.geteuid() != 0:
            self.remarks.add("not put back (device, which only root can make)", entry.path)
        elif entry.type == tar.HARD_LINK and content in self._sources:
            self.links[entry.path] = self._sources[content]
        elif entry.type == tar.DIRECTORY:
            self.directories.append(entry)
            self._missing.add(entry.path)
        else:
            # A hard link whose file is not wanted is the only one that needs its content.
            self.new[content] = entry.path
            self._sources[content] = entry.path

    def _status(self, path: str) -> os.stat_result | None:
        return None if os.path.dirname(path) in self._missing else self._directories.status(path)

    def _is_wanted(self, entry: Entry) -> bool:
        """Parents of the paths are wanted if they are missing, since then all that was in them is."""
        is_parent = entry.path not in self.roots and any(_within(root, entry.path) for root in self.roots)
        return is_parent or any(_within(entry.path, root) for root in self._wanted)


class _Made(t.NamedTuple):
    entry: Entry
    identity: tuple[int, int]


class _Restorer:
    def __init__(self, plan: _Plan, directories: Directories, patience: Patience) -> None:
        self._plan = plan
        self._remarks = plan.remarks
        self._directories = directories
        self._patience = patience
        self._restored: list[str] = []
        self._made: list[_Made] = []
        self._stage = Stage()

    def restore(self, file: t.BinaryIO) -> Restored:
        with self._stage:
            # First, since a file may come back in another directory than its entry says.
            for directory in self._plan.directories:
                with self._putting_back(directory.path):
                    self._make(directory)
            reader, structure = Reader(file), _Structure(self._plan.roots)
            with self._putting_back(self._plan.roots[0]):
                for entry in reader:
                    # It is read a second time, and may have changed.
                    structure.check(entry)
                    self._put_back(entry, reader)
        for made in reversed(self._made):
            with self._putting_back(made.entry.path):
                self._finish(made)
        if self._restored:
            # Before anybody removes the archive.
            os.sync()
        return Restored(self._restored, self._remarks.message)

    def _put_back(self, entry: Entry, reader: Reader) -> None:
        self._demand_time()
        path = self._plan.new.get(entry.path, entry.path)
        with self._putting_back(path):
            if entry.path in self._plan.new:
                self._make(entry._replace(path=path), reader)
            elif path in self._plan.links:
                self._link(self._plan.links[path], path)

    @contextlib.contextmanager
    def _putting_back(self, path: str) -> t.Iterator[None]:
        try:
            yield
        except (InTheWay, tar.Damaged, OSError) as exc:
            why = _why(exc) if isinstance(exc, OSError) else exc.message
            room = "Make room there. " if isinstance(exc, OSError) and exc.errno in FULL else ""
            done = len(self._restored)
            raise EventsError(
                f"Putting back {clean(path, 200)} failed, after {done} others: {why}. {room}Run it again."
            ) from exc

    def _demand_time(self) -> None:
        _demand_time(self._patience, f"{len(self._restored)} put back. Run it again for the rest")

    def _make(self, entry: Entry, reader: Reader | None = None) -> None:
        parent, name = os.path.split(entry.path)
        directory = self._open(parent)
        own = self._stage.within(parent, directory)
        if entry.type == tar.FILE and reader:
            self._make_file(entry, reader, own)
        elif entry.type == tar.DIRECTORY:
            self._make_directory(entry, own)
        else:
            _make_special(entry, own)
            set_metadata_by_name(NEW, own, entry, self._remarks)
        self._give_name(entry.path, name, own, directory)

    def _open(self, path: str) -> int:
        """A directory to put something into. Its owner decides who reads what is in it: it has to be the same one."""
        directory = self._directories.open(path)
        owner = os.fstat(directory).st_uid
        if os.geteuid() == 0 and owner not in (0, self._plan.owners.get(path, owner)):
            raise InTheWay(f"{clean(path, 200)} belongs to another user now than when it was saved")
        return directory

    def _make_file(self, entry: Entry, reader: Reader, own: int) -> None:
        descriptor = os.open(NEW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=own)
        try:
            os.ftruncate(descriptor, entry.size)
            for offset, length in entry.segments:
                end = offset + length
                while offset < end:
                    self._demand_time()
                    offset = _write_all(descriptor, reader.take(min(tar.CHUNK, end - offset)), offset)
            set_metadata(descriptor, entry, self._remarks)
        finally:
            os.close(descriptor)

    def _make_directory(self, entry: Entry, own: int) -> None:
        os.mkdir(NEW, 0o700, dir_fd=own)
        with opened(NEW, LIST, own) as descriptor:
            # Only root can write into any directory.
            set_metadata(descriptor, entry, self._remarks, 0 if os.geteuid() == 0 else stat.S_IRWXU)
            status = os.fstat(descriptor)
        self._made.append(_Made(entry, (status.st_dev, status.st_ino)))

    def _link(self, source: str, path: str) -> None:
        parent, name = os.path.split(path)
        directory = self._open(parent)
        own = self._stage.within(parent, directory)
        with Directories() as others:
            there = others.open(os.path.dirname(source))
            os.link(os.path.basename(source), NEW, src_dir_fd=there, dst_dir_fd=own, follow_symlinks=False)
        if not stat.S_ISREG(os.stat(NEW, dir_fd=own, follow_symlinks=False).st_mode):
            raise InTheWay(f"{clean(source, 200)} is no file any more")
        self._give_name(path, name, own, directory)

    def _give_name(self, path: str, name: str, own: int, directory: int) -> None:
        if self._directories.status(path) is not None:
            # Somebody made it meanwhile.
            return
        os.rename(NEW, name, src_dir_fd=own, dst_dir_fd=directory)
        self._restored.append(path)

    def _finish(self, made: _Made) -> None:
        """What was put into a directory changed its time; and without root it had to be writable until now."""
        parent, name = os.path.split(made.entry.path)
        with opened(name, LIST, self._directories.open(parent)) as descriptor:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != made.identity:
                raise InTheWay("somebody put another directory into its place")
            if os.geteuid() != 0:
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & (made.entry.mode | 0o077))
            os.utime(descriptor, ns=(made.entry.accessed, made.entry.modified))


def _make_special(entry: Entry, own: int) -> None:
    if entry.type == tar.SYMLINK:
        os.symlink(entry.link, NEW, dir_fd=own)
    elif entry.type == tar.FIFO:
        os.mkfifo(NEW, 0o600, dir_fd=own)
    elif entry.type in tar.DEVICES:
        kind = stat.S_IFCHR if entry.type == tar.CHARACTER_DEVICE else stat.S_IFBLK
        os.mknod(NEW, kind | 0o600, os.makedev(*entry.device), dir_fd=own)


def _write_all(descriptor: int, data: bytes, offset: int) -> int:
    """The offset behind it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
    return offset


# ---- both


def _parents(path: str) -> list[str]:
    """The directories above, but not the root of all."""
    names = path.strip("/").split("/")
    return ["/" + "/".join(names[:count]) for count in range(1, len(names))]


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _new_file(path: str) -> t.BinaryIO:
    with contextlib.suppress(FileNotFoundError):
        # Left by a run that was cut off.
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def _existing_file(path: str) -> t.BinaryIO:
    # Without waiting: it may be a fifo.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return os.fdopen(descriptor, "rb")


def _checksum(file: t.BinaryIO, patience: Patience) -> str:
    if hasattr(os, "posix_fadvise"):
        # From the disk, not from what the kernel remembers of writing it.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    digest = hashlib.sha256()
    for chunk in iter(lambda: file.read(tar.CHUNK), b""):
        _demand_time(patience, "The archive was not read to its end. Give it more time")
        digest.update(chunk)
    return digest.hexdigest()


def _demand_time(patience: Patience, message: str) -> None:
    if patience.left <= 0:
        raise Late(f"The {patience.seconds:.3g} s for it are over. {message}.")


def _why(exc: OSError) -> str:
    return clean(exc.strerror or exc, 200)
