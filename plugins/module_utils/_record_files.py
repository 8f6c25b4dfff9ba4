# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The files that hold a host's records: their names, their form, and how they survive whatever happens to a writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._document import same_id
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure, WrongOption

VERSION = 1
STATUSES = ("doing", "done", "failed", "undone")
LOCK_WAIT = 10.0
KEPT_IN_HISTORY = 100
LARGEST_RECORD = 4 * 1024 * 1024

Record = t.Dict[str, t.Any]
Check = t.Callable[[t.Any], bool]


class Damaged(EventsError):
    """Something lies in the place of a record that is none. It is never deleted, and never taken for no record."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"{file} cannot be used as a record: {why}. It was left as it is. Repair it or move it away, or claim the "
            "event with force=true, which sets it aside in history/ and begins a new record."
        )
        self.file = file


def shown(text: t.Any) -> str:
    """Text from outside, fit for one line of a message: no control characters, not endless."""
    plain = "".join(char if char.isprintable() else "?" for char in str(text)[:120])
    return plain + "..." if len(str(text)) > 120 else plain


def file_name(event_id: str) -> str:
    """A name that no id can use to leave the directory; two ids never share one."""
    wanted = same_id(event_id)
    if re.fullmatch(r"[a-z0-9-]{1,64}", wanted):
        return wanted + ".json"
    # The underscore keeps an id that looks like such a name from sharing it.
    digest = hashlib.sha256(wanted.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return re.sub(r"[^a-z0-9-]", "_", wanted[:64]) + f"_{digest}.json"


def is_time(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str)


def _shaped(**checks: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(key in value and ok(value[key]) for key, ok in checks.items())


def _every(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


is_step = _shaped(
    phase=_is_text,
    name=_is_text,
    kind=_is_text,
    status=lambda value: value in STATUSES,
    at=is_time,
    message=_is_text,
    data=lambda value: isinstance(value, dict),
)
_PARTS: dict[str, Check] = {
    "event": _shaped(event_id=_is_text),
    "claim": _shaped(
        run_id=_is_text, run_name=_is_text, phase=_is_text, since=is_time, renewed=is_time, silent_until=is_time
    ),
    "steps": _every(is_step),
    "timeline": _every(_shaped(at=is_time, what=_is_text, detail=_is_text)),
    "created": is_time,
    "finished": lambda value: value is None or is_time(value),
}


def _flaw(record: t.Any, name: str) -> str | None:
    """What keeps this JSON from being the record that a file of this name holds, in words."""
    version = record.get("version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return "it is JSON, but not a record of this collection"
    if version != VERSION:
        return f"it is of version {version}, and this collection knows version {VERSION} only"
    wrong = [part for part, ok in _PARTS.items() if part not in record or not ok(record[part])]
    if wrong:
        return f"{', '.join(wrong)} missing or of the wrong form"
    event_id = record["event"]["event_id"]
    return None if file_name(event_id) == name else f"it is about event {shown(event_id)}, whose file has another name"


def _no_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not JSON")


class Folder:
    """The record files of a host. A file is whole before it gets its name, so a kill leaves the old one or the new."""

    def __init__(self, path: str, check_mode: bool) -> None:
        if not os.path.isabs(path):
            raise WrongOption(f"directory has to be an absolute path, not '{shown(path)}'.")
        self.path = path
        self.history = os.path.join(path, "history")
        self.check_mode = check_mode

    def inspect(self) -> None:
        """What the records say will be undone as this user, so nobody else may write them."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise WrongOption(f"{self.path} is not a directory. Move it away, or set another directory.")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise WrongOption(
                f"{self.path} (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}) can be written by other "
                f"users than {os.geteuid()}, who could forge records. Give the records a directory of their own, or "
                "correct its owner and set its mode to 0700."
            )

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """Alone with the files; the kernel ends the lock with the process, however that ends."""
        if self.check_mode:
            yield
            return
        _make(self.path)
        lock = os.open(os.path.join(self.path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            give_up = clock.monotonic() + LOCK_WAIT
            while not _taken(lock):
                if clock.monotonic() >= give_up:
                    raise PassingFailure(
                        f"Another task has kept {self.path}/.lock for {LOCK_WAIT:.0f} s, nothing was written. "
                        "Run again; if it stays so, look which process holds the file."
                    )
                clock.sleep(0.05)
            yield
        finally:
            os.close(lock)

    def names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.path) if name.endswith(".json") and name[0] != ".")
        except FileNotFoundError:
            return []

    def read(self, event_id: str) -> Record | None:
        return self.read_file(file_name(event_id))

    def read_file(self, name: str) -> Record | None:
        """The record in a file, None if there is no such file. Whatever else is there raises."""
        file = os.path.join(self.path, name)
        try:
            mode = os.lstat(file).st_mode
            if not stat.S_ISREG(mode):
                kind = "symbolic link" if stat.S_ISLNK(mode) else "directory" if stat.S_ISDIR(mode) else "special file"
                raise Damaged(file, f"it is a {kind}")
            with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
                body = opened.read(LARGEST_RECORD + 1)
        except FileNotFoundError:
            return None
        if len(body) > LARGEST_RECORD:
            raise Damaged(file, f"it is larger than {LARGEST_RECORD} bytes")
        try:
            record = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as exc:
            raise Damaged(file, f"it is not JSON ({shown(exc)})") from exc
        flaw = _flaw(record, name)
        if flaw:
            raise Damaged(file, flaw)
        return t.cast(Record, record)

    def write(self, record: Record) -> None:
        self._store(record, os.path.join(self.path, file_name(record["event"]["event_id"])))

    def archive(self, record: Record) -> None:
        """Into the history first: a kill before the second step leaves the record unfinished, never lost."""
        if self.check_mode:
            return
        name = file_name(record["event"]["event_id"])
        archived = f"{name[: -len('.json')]}.{int(record['created'] * 1000)}.json"
        _make(self.history)
        self._store(record, os.path.join(self.history, archived))
        os.unlink(os.path.join(self.path, name))
        _sync(self.path)
        self._trim(archived)

    def set_aside(self, file: str, now: float) -> str:
        """Move what is no record out of the way, to a name that nothing has."""
        number = int(now)
        while os.path.lexists(aside := os.path.join(self.history, f"{os.path.basename(file)}.{number}.damaged")):
            number += 1
        if not self.check_mode:
            _make(self.history)
            os.rename(file, aside)
            _sync(self.history)
        return aside

    def _store(self, record: Record, file: str) -> None:
        try:
            body = json.dumps(record, indent=1, allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError) as exc:
            raise WrongOption(f"What was given cannot be written as JSON: {shown(exc)}. Nothing was written.") from exc
        if len(body) > LARGEST_RECORD:
            raise WrongOption(
                f"{file} would be larger than {LARGEST_RECORD} bytes, nothing was written. Give less message and data."
            )
        if self.check_mode:
            return
        # One name is enough under the lock, and what a killed process left there does not pile up.
        draft = os.path.join(self.path, ".draft")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(body)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(draft, file)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        _sync(os.path.dirname(file))

    def _trim(self, newest: str) -> None:
        with contextlib.suppress(OSError):
            others = [name for name in os.listdir(self.history) if name.endswith(".json") and name != newest]
            files = [os.path.join(self.history, name) for name in others]
            for file in sorted(files, key=lambda file: os.lstat(file).st_mtime)[: -(KEPT_IN_HISTORY - 1)]:
                os.unlink(file)


def words(exc: OSError, directory: str) -> str:
    """What the system refused, and what to do about it."""
    advice = "Correct this and run again."
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"Run the task with become, or set a directory that user {os.geteuid()} may read and write."
    elif exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "Make room on that file system and run again."
    elif exc.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR):
        advice = "Something else lies in the place of a file or directory of the records: move it away."
    where = exc.filename if isinstance(exc.filename, str) else directory
    return f"{where}: {exc.strerror or exc}. What was recorded before is still there, nothing was lost. {advice}"


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(directory: str) -> None:
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o700, exist_ok=True)
        _sync(os.path.dirname(directory.rstrip("/")))


def _sync(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as exc:
        # Some network file systems cannot sync a directory.
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(opened)
