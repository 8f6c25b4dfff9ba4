# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file that holds a host's record, and the history of closed ones."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import typing as t

from ._clock import Clock
from ._errors import EventsError, PassingFailure, WrongOption
from ._files import make_directory, read_json, sync_directory, try_lock, write
from ._text import clean, quoted

VERSION = 2
FILE = "record.json"
DRAIN, CHECKPOINT = "drain", "checkpoint"
STATUSES = DOING, DONE, FAILED, UNDONE = "doing", "done", "failed", "undone"
LOCK_WAIT = 10.0
KEPT_IN_HISTORY = 100
LARGEST_RECORD = 4 * 1024 * 1024

Record = t.Dict[str, t.Any]


class Damaged(EventsError):
    """The file at the path of the record is not a valid record. It is never deleted, and never counts as missing."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"{file} cannot be used as a record: {why}. It was left as it is. Repair it or move it away. While an "
            "event of this host is announced, a run with graceful_force_claim=true moves it to history/ and begins a "
            "new record."
        )


def is_time(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11


def _is_count(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _fits(value: t.Any, shape: t.Any) -> bool:
    """A shape is a value, a type, a check, a tuple of choices, or a mapping or list of shapes."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(key in value and _fits(value[key], part) for key, part in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(entry, shape[0]) for entry in value)
    if isinstance(shape, tuple):
        return any(_fits(value, choice) for choice in shape)
    if isinstance(shape, type):
        return isinstance(value, shape)
    return bool(shape(value)) if callable(shape) else bool(value == shape)


_EVENT = {"event_id": str, "event_type": str}
_CLAIM = {"run_id": str, "run_name": str, "since": is_time, "renewed": is_time, "silent_until": is_time}
_APPROVAL = {"at": is_time, "status": str, "run_id": str, "message": str}
_ENTRY = {
    "event": _EVENT,
    "claim": _CLAIM,
    "noticed": is_time,
    **dict.fromkeys(("gone_reads", "unhealthy"), _is_count),
    **dict.fromkeys(("lapsed", "ready", "started", "gone"), (None, is_time)),
    "gave_up": (None, str),
    "approval": (None, _APPROVAL),
}
_STEP = {
    **dict.fromkeys(("phase", "name", "kind", "message"), str),
    "status": STATUSES,
    "at": is_time,
    "attempts": _is_count,
    "timeout": (None, is_time),
    **dict.fromkeys(("options", "before", "data"), dict),
}
_RECORD = {
    "events": lambda events: isinstance(events, dict) and all(_fits(entry, _ENTRY) for entry in events.values()),
    "steps": [_STEP],
    "timeline": [{"at": is_time, "what": str, "detail": str, "event_id": str}],
    "created": is_time,
    "boot_id": str,
}


def _flaw(record: t.Any) -> str | None:
    """What keeps this JSON from being a record, in words."""
    version = record.get("version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return "it is JSON, but not a record of this collection"
    if version != VERSION:
        return f"it is of version {version}, and this collection knows version {VERSION} only"
    wrong = [part for part, shape in _RECORD.items() if not _fits(record.get(part), shape)]
    return f"{', '.join(wrong)} missing or of the wrong form" if wrong else None


class Folder:
    """The directory with the record of a host and the history. A file is complete before it gets its name."""

    def __init__(self, path: str) -> None:
        if not os.path.isabs(path):
            raise WrongOption(f"record_dir has to be an absolute path, not {quoted(path)}.")
        self.path = path
        self.file = os.path.join(path, FILE)
        self.history = os.path.join(path, "history")
        # One name is enough under the lock, so that what killed processes leave does not pile up.
        self._draft = os.path.join(path, ".draft")

    def inspect(self) -> None:
        """What the record says will be undone as this user, so nobody else may write it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise WrongOption(f"{self.path} is not a directory. Move it away, or set another graceful_record_dir.")
        # Who owns a symbolic link decides where it leads to.
        owners = {status.st_uid, os.lstat(self.path).st_uid}
        if not owners <= {0, os.geteuid()} or status.st_mode & 0o022:
            raise WrongOption(
                f"{self.path} (owner {', '.join(map(str, sorted(owners)))}, mode {stat.S_IMODE(status.st_mode):04o}) "
                f"can be written by other users than {os.geteuid()}, who could forge records. Give the records a "
                "directory of their own, or correct its owner and set its mode to 0700."
            )

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """No other process reads and changes the record meanwhile. A process that ends loses the lock."""
        self.inspect()
        make_directory(self.path)
        give_up = clock.monotonic() + LOCK_WAIT
        while (lock := try_lock(os.path.join(self.path, ".lock"))) is None:
            if clock.monotonic() >= give_up:
                raise PassingFailure(
                    f"Another process has held the lock {self.path}/.lock for {LOCK_WAIT:.0f} s. Nothing was written. "
                    "Run again. If this is repeated, find the process that holds the file."
                )
            clock.sleep(0.05)
        try:
            yield
        finally:
            os.close(lock)

    def read(self) -> Record | None:
        """The record, None if there is none. Raises Damaged for anything else that is there."""
        try:
            mode = os.lstat(self.file).st_mode
            if not stat.S_ISREG(mode):
                kind = "symbolic link" if stat.S_ISLNK(mode) else "directory" if stat.S_ISDIR(mode) else "special file"
                raise Damaged(self.file, f"it is a {kind}")
            record = read_json(self.file, LARGEST_RECORD)
        except FileNotFoundError:
            return None
        except ValueError as exc:
            raise Damaged(self.file, clean(exc, 160)) from exc
        flaw = _flaw(record)
        if flaw:
            raise Damaged(self.file, flaw)
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
        make_directory(self.history)
        self._store(entry, os.path.join(self.history, name))
        self._trim(name)

    def set_aside(self, now: float) -> str:
        """Move what is no record into the history, under a name that nothing has."""
        make_directory(self.history)
        number = int(now)
        while os.path.lexists(aside := os.path.join(self.history, f"{FILE}.{number}.damaged")):
            number += 1
        os.rename(self.file, aside)
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
    """What the operating system refused, and what to do about it."""
    advice = "Correct this, or set another graceful_record_dir."
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "Run with become, or set a graceful_record_dir that this user may read and write."
    elif exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "Free some space on that file system and run again."
    elif exc.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR):
        advice = "Another file or directory is at this path: move it away."
    where = exc.filename if isinstance(exc.filename, str) else directory
    return (
        f"The host cannot read or write the record of a maintenance (graceful_record_dir): {where}: "
        f"{exc.strerror or exc}. If there was a record, it is still there: nothing was lost. {advice}"
    )
