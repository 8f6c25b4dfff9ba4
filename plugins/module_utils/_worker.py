# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Work that takes long, in a process of its own: a lost connection does not cut it off, and calls can look in on it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import typing as t

from ._clock import Clock
from ._errors import EventsError
from ._kind import Runner
from ._look import current_boot
from ._record_files import take, write

Json = t.Dict[str, t.Any]
Work = t.Callable[[t.Callable[[str], None]], Json]
LOCK = ".worker.lock"
STATE = ".worker.json"
# The program that a worker runs. It outlives a worker that is killed, and would act long after the host was put back.
PROGRAM = ".worker.program"
# What a worker may use to end by itself when it is told to.
GRACE = 5.0


class Worker:
    """At most one on a host. Its lock ends with its process; its state file says whose it is and how far it came."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._lock = os.path.join(directory, LOCK)
        self._state = os.path.join(directory, STATE)
        self._program = os.path.join(directory, PROGRAM)
        self._clock = clock

    @property
    def runner(self) -> Runner:
        """Runs programs for the work, so that what a killed worker leaves can be ended."""
        from ._run import run

        return functools.partial(run, note=self._note_program)

    def running(self) -> Json | None:
        """Whose worker is at work, None if none is."""
        return None if self._is_free() else self.state()

    def state(self) -> Json:
        return _read(self._state)

    def start(self, owner: Json, work: Work) -> None:
        """Begin the work in a process that does not end with this one."""
        lock = take(self._lock)
        if lock is None:
            raise EventsError("Another process works on this host. It is looked at again in a moment.")
        try:
            self._end_program()
            self._write(owner)
            child = os.fork()
        except BaseException:
            os.close(lock)
            raise
        if child:
            os.close(lock)
            return
        # The lock stays open here until this process ends.
        status = 1
        try:
            _detach(lock)
            signal.signal(signal.SIGTERM, _stop)
            self._write({**owner, "pid": os.getpid()})
            self.work(owner, work)
            status = 0
        finally:
            os._exit(status)

    def work(self, owner: Json, work: Work) -> Json:
        """Do the work in this process."""
        owner = {**owner, "pid": os.getpid()}

        def progress(message: str) -> None:
            self._write({**owner, "progress": message})

        try:
            result = work(progress)
        except EventsError as exc:
            result = {"state": exc.fields.get("state", "failed"), "message": exc.message}
        except Exception as exc:
            result = {"state": "failed", "message": f"The engine met an error of its own: {exc!r:.300}"}
        self._write({**owner, "result": result})
        return result

    def note_told(self, state: Json) -> None:
        """Remember that somebody has heard the result."""
        if "result" in state:
            self._write({**state, "told": True})

    def wait(self, seconds: float) -> bool:
        """Whether the work is over, after waiting for so long at most."""
        end, pause = self._clock.monotonic() + seconds, 0.01
        while True:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            if self._is_free():
                return True
            left = end - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(pause, left))
            pause = min(0.2, pause * 1.5)

    def stop(self) -> None:
        """End a worker whose run has lost its claim, or whose order was replaced, and what it runs."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self.state().get("pid")
            if self.running() is None:
                break
            if isinstance(pid, int) and pid > 1:
                with contextlib.suppress(OSError):
                    os.killpg(pid, number)
            if self.wait(GRACE):
                break
        else:
            raise EventsError("An earlier process on this host does not end. It is tried again.")
        self._end_program()

    def _note_program(self, group: int | None) -> None:
        if group is None:
            with contextlib.suppress(OSError):
                os.unlink(self._program)
        else:
            self._write({"group": group, "began": _began(group)}, self._program)

    def _end_program(self) -> None:
        """End what a worker that was killed has left running. Its number may be another process's by now."""
        noted = _read(self._program)
        group, began = noted.get("group"), noted.get("began")
        if not isinstance(group, int) or group <= 1 or not began:
            return
        end = self._clock.monotonic() + GRACE
        while _began(group) == began:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
            if self._clock.monotonic() >= end:
                raise EventsError(
                    "A program that an earlier process has left on this host does not end. It is tried again."
                )
            self._clock.sleep(0.05)
        self._note_program(None)

    def _is_free(self) -> bool:
        lock = take(self._lock)
        if lock is not None:
            os.close(lock)
        return lock is not None

    def _write(self, state: Json, path: str = "") -> None:
        with contextlib.suppress(OSError):
            write(path or self._state, json.dumps(state).encode("ascii"), sync=False)


def _read(path: str) -> Json:
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _began(pid: int) -> str:
    """What tells a process from a later one of the same number; empty if it is not there, or has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name before it, in brackets, may have anything in it.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{current_boot()} {fields[19]}"


def _stop(_number: int, _frame: t.Any) -> None:
    # Unwinds, so that what the worker has started is ended, too.
    raise SystemExit(1)


def _detach(kept: int) -> None:
    """Of a session of its own, with nothing open that its caller waits for."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number in range(3, 256):
        if number != kept:
            with contextlib.suppress(OSError):
                os.close(number)
