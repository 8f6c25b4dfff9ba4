# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives of paths that may be lost, and putting back what was lost and only that.

GNU tar writes them. They are read file by file, with tarfile, so that a restore that was cut off goes on where it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import tarfile
import typing as t

from ._archive_files import (
    NEW,
    OPENED,
    InTheWay,
    Remarks,
    finish_directory,
    open_directory,
    remove_new,
    set_metadata,
    staged,
    status_in,
)
from ._archive_reader import CHUNK, Damaged, Reader, Timed, parents, within
from ._errors import EventsError
from ._files import sync_directory
from ._kind import Runner
from ._patience import Late, Patience
from ._text import clean

PART = ".part"
CREATE = (
    *("tar", "--create", "--format=posix", "--sparse", "--numeric-owner", "--absolute-names", "--no-unquote"),
    # Access control lists are among them.
    "--xattrs",
    # The fastest: an eviction gives 30 seconds.
    "--use-compress-program=gzip -1",
)
# The first in which --no-recursion is for some names only.
OLDEST_TAR = (1, 28)
REMARKS = {
    "socket ignored": "left out (socket)",
    "File removed before we read it": "left out (vanished while it was read)",
    "file changed as we read it": "changed while it was read",
    "File shrank": "changed while it was read",
}
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
FORBIDDEN = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.EROFS)))


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


def save(paths: t.Sequence[str], archive: str, patience: Patience, run: Runner) -> Saved:
    """Write the archive whole or not at all: it gets its name when it is complete on the disk and was read back."""
    roots = [_resolved(path, archive) for path in paths]
    part = archive + PART
    try:
        _demand_gnu_tar(patience, run)
        os.makedirs(os.path.dirname(archive), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            # Left by a run that was cut off.
            os.unlink(part)
        with open(part, "x+b", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            remarks = _write(roots, archive, file.fileno(), patience, run)
            os.fsync(file.fileno())
            # Read back from the disk, not from what the kernel remembers of writing it.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            timed = Timed(file, patience)
            entries = sum(any(within(path, root) for root in roots) for path, _member in Reader(timed, roots))
            saved = Saved(_checksum(timed), os.fstat(file.fileno()).st_size, entries, roots, remarks)
        os.replace(part, archive)
        sync_directory(os.path.dirname(archive))
    except Late as exc:
        raise Late(f"{exc.message} It is not saved. Give the checkpoint more time, or save less.") from exc
    except Damaged as exc:
        raise EventsError(
            f"What was written to {clean(archive)} cannot be read back: {exc}. Nothing was saved. Choose another disk "
            "(graceful_checkpoint_dir)."
        ) from exc
    except OSError as exc:
        raise _not_saved(archive, _why(exc)) from exc
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    return saved


def _resolved(path: str, archive: str) -> str:
    root = os.path.realpath(path)
    if not os.path.exists(root):
        raise EventsError(f"{clean(path)} does not exist, so it cannot be saved. Check the paths of the checkpoint.")
    if within(os.path.realpath(archive), root):
        raise EventsError(
            f"The archive {clean(archive)} is inside {clean(path)}, which is to be saved. Choose another place for "
            "archives (graceful_checkpoint_dir)."
        )
    return root


def _demand_gnu_tar(patience: Patience, run: Runner) -> None:
    try:
        version = run(["tar", "--version"], patience.left).out
    except Late:
        raise
    except EventsError:
        version = ""
    found = re.search(r"GNU tar\) (\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) < OLDEST_TAR:
        raise EventsError(
            f"Paths are saved with GNU tar {'.'.join(map(str, OLDEST_TAR))} or newer, which this host does not have. "
            "Install or update the packages tar and gzip."
        )


def _write(roots: t.Sequence[str], archive: str, part: int, patience: Patience, run: Runner) -> str:
    """Have tar save the paths, and the directories above without what else is in them. Returns the remarks."""
    outermost = sorted({root for root in roots if not any(root != other and within(root, other) for other in roots)})
    above = sorted({parent for root in outermost for parent in parents(root)})
    with contextlib.ExitStack() as opened:
        # They are open here: nobody can put a link into the place of one before tar gets there.
        numbers = {path: opened.enter_context(open_directory(path)) for path in above}
        names = {path: f"{OPENED}/{number}/" for path, number in numbers.items()}
        # Only root can read every directory that it may pass through.
        readable = [path for path in above if path != "/" and os.access(path, os.R_OK)]
        argv = [*CREATE, f"--file={OPENED}/{part}"]
        argv += [f"--transform=s,^{name},{_escaped(path)},S" for path, name in names.items()]
        for option, paths in (("--no-recursion", readable), ("--recursion", outermost)):
            argv += [option, *(names[os.path.dirname(path)] + os.path.basename(path) for path in paths)]
        # A user's options must not change it.
        ran = run(argv, patience.left, environment={"TAR_OPTIONS": ""}, pass_fds=[part, *numbers.values()])
    remarks, others = _said(ran.err, names)
    # 1: something has changed or vanished meanwhile.
    if ran.code not in (0, 1):
        raise _not_saved(archive, clean(others[0] if others else ran.message, 300))
    for line in others:
        remarks.add("with a message of tar", line)
    return remarks.message


def _said(lines: str, names: t.Mapping[str, str]) -> tuple[Remarks, list[str]]:
    """What tar has left out or seen changing, and its other messages."""
    remarks, others = Remarks(), []
    for path, name in names.items():
        lines = lines.replace(name, path.rstrip("/") + "/")
    for line in filter(None, lines.splitlines()):
        found = re.match(rf"tar: (.*?)/?: ({'|'.join(REMARKS)})", line)
        if not found:
            others.append(line)
        elif found[1] not in names:
            remarks.add(REMARKS[found[2]], found[1])
    return remarks, others


def _escaped(path: str) -> str:
    """How the names of what is in the directory begin, for the substitution of tar."""
    return re.sub(r"([\\&,])", r"\\\1", path.strip("/") + "/") if path != "/" else ""


def _not_saved(archive: str, why: str) -> EventsError:
    advice = "Nothing was saved."
    if why.endswith(FULL):
        advice = "Free some space there, or choose another place (graceful_checkpoint_dir)."
    elif why in FORBIDDEN:
        advice = "Choose a place that this user can write to (graceful_checkpoint_dir), or set become to true."
    return EventsError(f"Saving to {clean(archive)} failed: {why}. {advice}")


# ---- putting back


def restore(
    paths: t.Sequence[str], archive: str, checksum: str, patience: Patience, only_missing_paths: bool = False
) -> Restored:
    """Put back what is in the archive and not on the disk; what is there stays as it is."""
    wanted = [path for path in paths if not only_missing_paths or _is_missing(path)]
    if not wanted:
        return Restored([], "")
    restorer = _Restorer(wanted)
    try:
        # Without waiting: it may be a fifo.
        with open(
            archive, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
        ) as file:
            timed = Timed(file, patience)
            found = _checksum(timed)
            if found != checksum:
                raise Damaged(f"its checksum is {found}, but {clean(checksum, 80)} was recorded")
            restorer.plan(Reader(timed, paths))
            restorer.put_back(Reader(timed, paths))
    except Late as exc:
        raise Late(f"{exc} {restorer.done}. Run it again for the rest.") from exc
    except (Damaged, OSError) as exc:
        what = f"is damaged: {exc}" if isinstance(exc, Damaged) else f"cannot be read: {_why(exc)}"
        raise EventsError(
            f"The checkpoint {clean(archive)} {what}. {restorer.done}. If you have a copy of it, put it there and run "
            "it again."
        ) from exc
    return Restored(restorer.restored, restorer.remarks.message)


def _is_missing(path: str) -> bool:
    try:
        return _status(path) is None
    except InTheWay as exc:
        raise EventsError(f"Nothing was put back: {exc}. Move it away and run it again.") from exc
    except OSError as exc:
        raise EventsError(f"Nothing was put back: {clean(path, 200)} cannot be looked at: {_why(exc)}.") from exc


def _is_file(path: str) -> bool:
    with contextlib.suppress(InTheWay, OSError):
        status = _status(path)
        return status is not None and stat.S_ISREG(status.st_mode)
    return False


def _status(path: str) -> os.stat_result | None:
    parent, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), open_directory(parent) as directory:
        return status_in(directory, name)
    return None


class _Restorer:
    """Decides about all that is in the archive before anything is put back."""

    def __init__(self, wanted: t.Sequence[str]) -> None:
        self.restored: list[str] = []
        self.remarks = Remarks()
        self._wanted = wanted
        self._above = {parent for path in wanted for parent in parents(path)}
        # The directories that are missing, and the owners of all, by their path.
        self._missing: dict[str, tarfile.TarInfo] = {}
        self._owners: dict[str, int] = {}
        # By the path of an entry: where it is to be made, or which file it is a further name of.
        self._places: dict[str, str] = {}
        self._links: dict[str, str] = {}
        # The directory into which something was put last, and the one in it, stay open: most often the next is for it.
        self._opened = contextlib.ExitStack()
        self._parent = ""
        self._directory = self._stage = -1

    @property
    def done(self) -> str:
        return f"{len(self.restored)} put back" if self.restored else "Nothing was put back"

    def plan(self, reader: Reader) -> None:
        for path, member in reader:
            if member.isdir():
                self._owners[path] = member.uid
            # Directories above are wanted, too: if one is missing, all that was in it is.
            is_wanted = path in self._above or any(within(path, root) for root in self._wanted)
            if is_wanted and (os.path.dirname(path) in self._missing or _is_missing(path)):
                self._decide(path, member)

    def _decide(self, path: str, member: tarfile.TarInfo) -> None:
        """How the missing comes back."""
        content = "/" + member.linkname
        if member.isdir():
            self._missing[path] = member
        elif (member.ischr() or member.isblk()) and os.geteuid() != 0:
            self.remarks.add("not put back (device, which only root can make)", path)
        elif not member.islnk():
            self._places[path] = path
        elif content in self._places or _is_file(content):
            self._links[path] = self._places.get(content, content)
        else:
            # The file that it is a further name of is not wanted.
            self._places[content] = path

    def put_back(self, reader: Reader) -> None:
        with self._opened:
            # First, since a file may come back in another directory than its entry says.
            for path, member in self._missing.items():
                with self._staged(path, member) as stage:
                    os.mkdir(NEW, 0o700, dir_fd=stage)
            for path, member in reader:
                if path in self._places:
                    with self._staged(self._places[path], member) as stage:
                        reader.unpack(member, f"{OPENED}/{stage}", NEW)
                elif path in self._links:
                    with self._staged(path) as stage:
                        _link(self._links[path], stage)
        for path in reversed(self.restored):
            if path in self._missing:
                with self._putting_back(path):
                    finish_directory(path, self._missing[path])
        if self.restored:
            # Before anybody removes the archive.
            os.sync()

    @contextlib.contextmanager
    def _staged(self, path: str, member: tarfile.TarInfo | None = None) -> t.Iterator[int]:
        """Where it is to be made as NEW. It gets its name when it is complete."""
        parent, name = os.path.split(path)
        with self._putting_back(path):
            if parent != self._parent:
                self._change_to(parent)
            remove_new(self._stage)
            yield self._stage
            if member is not None:
                set_metadata(f"{OPENED}/{self._stage}/{NEW}", member, path, self.remarks)
            # Somebody may have made it meanwhile.
            if status_in(self._directory, name) is None:
                os.rename(NEW, name, src_dir_fd=self._stage, dst_dir_fd=self._directory)
                self.restored.append(path)

    def _change_to(self, parent: str) -> None:
        self._parent = ""
        self._opened.close()
        self._directory = self._opened.enter_context(open_directory(parent))
        owner = os.fstat(self._directory).st_uid
        # Who owns the directory decides who can read what is in it.
        if os.geteuid() == 0 and owner not in (0, self._owners.get(parent, owner)):
            raise InTheWay(f"{clean(parent, 200)} belongs to another user now than when it was saved")
        self._stage = self._opened.enter_context(staged(self._directory))
        self._parent = parent

    @contextlib.contextmanager
    def _putting_back(self, path: str) -> t.Iterator[None]:
        try:
            yield
        except (InTheWay, OSError) as exc:
            why = _why(exc)
            room = "Free some space there. " if why.endswith(FULL) else ""
            done = len(self.restored)
            raise EventsError(
                f"Putting back {clean(path, 200)} failed, after {done} others: {why}. {room}Run it again."
            ) from exc


def _link(source: str, stage: int) -> None:
    parent, name = os.path.split(source)
    with open_directory(parent) as directory:
        os.link(name, NEW, src_dir_fd=directory, dst_dir_fd=stage, follow_symlinks=False)
    if not stat.S_ISREG(os.stat(NEW, dir_fd=stage, follow_symlinks=False).st_mode):
        raise InTheWay(f"{clean(source, 200)} is not a file any more")


# ---- both


def _checksum(file: Timed) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    for chunk in iter(lambda: file.read(CHUNK), b""):
        digest.update(chunk)
    return digest.hexdigest()


def _why(exc: Exception) -> str:
    return clean(getattr(exc, "strerror", None) or exc, 200).rstrip(".")
