# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The file that holds a host's record, and how it survives whatever happens to a writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import stat
import typing as t

from ._clock import Clock
from ._errors import EventsError, PassingFailure, WrongOption
from ._text import clean, quoted

VERSION = 2
FILE = "record.json"
STATUSES = ("doing", "done", "failed", "undone")
LOCK_WAIT = 10.0
KEPT_IN_HISTORY = 100
LARGEST_RECORD = 4 * 1024 * 1024

Record = t.Dict[str, t.Any]
Check = t.Callable[[t.Any], bool]


class Damaged(EventsError):
    """Something lies in the place of the record that is none. It is never deleted, and never taken for no record."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"{file} cannot be used as a record: {why}. It was left as it is. Repair it or move it away, or run with "
            "graceful_force_claim=true, which sets it aside in history/ and begins a new record."
        )
        self.file = file


def is_time(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str)


def _is_count(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_mapping(value: t.Any) -> bool:
    return isinstance(value, dict)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _shaped(**checks: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(key in value and ok(value[key]) for key, ok in checks.items())


def _every(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_is_step = _shaped(
    phase=_is_text,
    name=_is_text,
    kind=_is_text,
    status=lambda value: value in STATUSES,
    at=is_time,
    message=_is_text,
    attempts=_is_count,
    timeout=_or_none(is_time),
    options=_is_mapping,
    before=_is_mapping,
    data=_is_mapping,
)
_is_claim = _shaped(run_id=_is_text, run_name=_is_text, since=is_time, renewed=is_time, silent_until=is_time)
_is_entry = _shaped(
    event=_shaped(event_id=_is_text, event_type=_is_text),
    claim=_is_claim,
    noticed=is_time,
    lapsed=_or_none(is_time),
    ready=_or_none(is_time),
    started=_or_none(is_time),
    gone=_or_none(is_time),
    gone_reads=_is_count,
    gave_up=_or_none(_is_text),
    approval=_or_none(_shaped(at=is_time, status=_is_text, run_id=_is_text, message=_is_text)),
)
_PARTS: dict[str, Check] = {
    "events": lambda value: isinstance(value, dict) and all(map(_is_entry, value.values())),
    "steps": _every(_is_step),
    "timeline": _every(_shaped(at=is_time, what=_is_text, detail=_is_text, event_id=_is_text)),
    "created": is_time,
    "boot_id": _is_text,
}


def _flaw(record: t.Any) -> str | None:
    """What keeps this JSON from being a record, in words."""
    version = record.get("version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return "it is JSON, but not a record of this collection"
    if version != VERSION:
        return f"it is of version {version}, and this collection knows version {VERSION} only"
    wrong = [part for part, ok in _PARTS.items() if part not in record or not ok(record[part])]
    return f"{', '.join(wrong)} missing or of the wrong form" if wrong else None


def _no_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not JSON")


class Folder:
    """The record of a host, and those that are closed. A file is whole before it gets its name."""

    def __init__(self, path: str) -> None:
        if not os.path.isabs(path):
            raise WrongOption(f"record_dir has to be an absolute path, not {quoted(path)}.")
        self.path = path
        self.file = os.path.join(path, FILE)
        self.history = os.path.join(path, "history")
        # One name is enough under the lock, and what a killed process left there does not pile up.
        self._draft = os.path.join(path, ".draft")

    def inspect(self) -> None:
        """What the record says will be undone as this user, so nobody else may write it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise WrongOption(f"{self.path} is not a directory. Move it away, or set another graceful_record_dir.")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise WrongOption(
                f"{self.path} (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}) can be written by other "
                f"users than {os.geteuid()}, who could forge records. Give the records a directory of their own, or "
                "correct its owner and set its mode to 0700."
            )

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """Alone with the files; the kernel ends the lock with the process, however that ends."""
        self.inspect()
        _make(self.path)
        give_up = clock.monotonic() + LOCK_WAIT
        while (lock := take(os.path.join(self.path, ".lock"))) is None:
            if clock.monotonic() >= give_up:
                raise PassingFailure(
                    f"Another process has kept {self.path}/.lock for {LOCK_WAIT:.0f} s, nothing was written. "
                    "Run again; if it stays so, look which process holds the file."
                )
            clock.sleep(0.05)
        try:
            yield
        finally:
            os.close(lock)

    def read(self) -> Record | None:
        """The record, None if there is none. Whatever else is there raises."""
        file = self.file
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
            raise Damaged(file, f"it is not JSON ({clean(exc, 120)})") from exc
        flaw = _flaw(record)
        if flaw:
            raise Damaged(file, flaw)
        return t.cast(Record, record)

    def write(self, record: Record | None) -> None:
        """None removes the record: nothing is left to be remembered."""
        if record is not None:
            flaw = _flaw(record)
            if flaw:
                raise WrongOption(f"The record cannot be written: {flaw}. Nothing was written.")
            self._store(record, self.file)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file)
            sync_directory(self.path)

    def archive(self, entry: Record, event_id: str, now: float) -> None:
        """Into the history first: a kill before the record is written leaves the event open, never lost."""
        name = f"{re.sub(r'[^a-z0-9-]', '_', event_id[:64])}.{int(now * 1000)}.json"
        _make(self.history)
        self._store(entry, os.path.join(self.history, name))
        self._trim(name)

    def set_aside(self, file: str, now: float) -> str:
        """Move what is no record out of the way, to a name that nothing has."""
        number = int(now)
        while os.path.lexists(os.path.join(self.history, f"{os.path.basename(file)}.{number}.damaged")):
            number += 1
        aside = os.path.join(self.history, f"{os.path.basename(file)}.{number}.damaged")
        _make(self.history)
        os.rename(file, aside)
        sync_directory(self.history)
        return aside

    def _store(self, content: Record, file: str) -> None:
        try:
            body = json.dumps(content, indent=1, allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError) as exc:
            raise WrongOption(f"The record cannot be written as JSON: {clean(exc)}. Nothing was written.") from exc
        if len(body) > LARGEST_RECORD:
            raise WrongOption(f"{file} would be larger than {LARGEST_RECORD} bytes, nothing was written.")
        write(file, body, draft=self._draft)
        sync_directory(os.path.dirname(file))

    def probe(self) -> None:
        """Write as if it were a record, and keep nothing of it."""
        file = os.path.join(self.path, ".probe")
        write(file, b"{}", draft=self._draft)
        os.unlink(file)

    def _trim(self, newest: str) -> None:
        with contextlib.suppress(OSError):
            others = [name for name in os.listdir(self.history) if name.endswith(".json") and name != newest]
            files = [os.path.join(self.history, name) for name in others]
            for file in sorted(files, key=lambda file: os.lstat(file).st_mtime)[: -(KEPT_IN_HISTORY - 1)]:
                os.unlink(file)


def explain(exc: OSError, directory: str) -> str:
    """What the system refused, and what to do about it."""
    advice = "Correct this and run again."
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"Run with become, or set a graceful_record_dir that user {_user()} may read and write."
    elif exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "Make room on that file system and run again."
    elif exc.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR):
        advice = "Something else lies in the place of a file or directory of the record: move it away."
    where = exc.filename if isinstance(exc.filename, str) else directory
    return f"{where}: {exc.strerror or exc}. If there was a record, it is still there: nothing was lost. {advice}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def take(path: str) -> int | None:
    """The lock of that name, open, if it could be taken at once. It ends when it is closed, or with this process."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        if isinstance(exc, BlockingIOError):
            return None
        raise
    return lock


def write(path: str, body: bytes, mode: int = 0o600, sync: bool = True, draft: str = "") -> None:
    """The file is whole at any moment. Without `sync` a crash of the machine may leave the older content."""
    draft = draft or f"{path}.draft"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(body)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def _make(directory: str) -> None:
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o700, exist_ok=True)
        sync_directory(os.path.dirname(directory.rstrip("/")))


def sync_directory(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as exc:
        # Some network file systems cannot sync a directory.
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(opened)
