# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Long work in a process of its own: a lost connection does not end it, and later calls ask for its result."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import typing as t

from ._clock import Clock
from ._errors import EventsError
from ._files import read_json, try_lock, write_json
from ._kind import Runner
from ._look import current_boot

Json = t.Dict[str, t.Any]
Work = t.Callable[[t.Callable[[str], None]], Json]
LOCK = ".worker.lock"
STATE = ".worker.json"
# The program that a worker runs. If the worker is killed, it would go on, even after the host was put back.
PROGRAM = ".worker.program"
# Seconds that a process may take to end after a signal.
GRACE = 5.0
LOOK_TAKES = 0.25


class Worker:
    """At most one on a host: it holds a lock that ends with its process. Its state file has its owner and progress."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._lock = os.path.join(directory, LOCK)
        self._state = os.path.join(directory, STATE)
        self._program = os.path.join(directory, PROGRAM)
        self._clock = clock

    @property
    def runner(self) -> Runner:
        """Runs programs for the work, and notes them, so that they can be ended if the worker is killed."""
        from ._run import run

        return functools.partial(run, note=self._note_program)

    def is_running(self) -> bool:
        # Shared: who only looks is no worker to others who look.
        lock = try_lock(self._lock, shared=True)
        if lock is not None:
            os.close(lock)
        return lock is None

    def _take_lock(self) -> int | None:
        """None if a worker has it, and not another call that only looks, which takes a moment."""
        end = self._clock.monotonic() + LOOK_TAKES
        while (lock := try_lock(self._lock)) is None and self._clock.monotonic() < end:
            self._clock.sleep(0.01)
        return lock

    def state(self) -> Json:
        """Whose work it is, by the keys of its owner, and `progress` or `result`; empty if it cannot be read."""
        return _read(self._state)

    def start(self, owner: Json, work: Work) -> bool:
        """Begin the work in a process that does not end with this one. False if another worker has begun first."""
        lock = self._take_lock()
        if lock is None:
            return False
        try:
            self._end_program()
            self._write(owner)
            child = os.fork()
        except BaseException:
            os.close(lock)
            raise
        if child:
            os.close(lock)
            return True
        # The lock stays open here until this process ends.
        status = 1
        try:
            _detach(lock)
            signal.signal(signal.SIGTERM, _stop)
            self.work({**owner, "pid": os.getpid(), "began": _began(os.getpid())}, work)
            status = 0
        finally:
            os._exit(status)

    def work(self, owner: Json, work: Work) -> None:
        """Do the work in this process. Whatever it raises is its result."""

        def progress(message: str) -> None:
            self._write({**owner, "progress": message})

        self._write(owner)
        try:
            result = work(progress)
        except EventsError as exc:
            result = {"state": exc.fields.get("state", "failed"), "message": exc.message}
        except Exception as exc:
            result = {"state": "failed", "message": f"An error in graceful.azure itself: {exc!r:.300}"}
        self._write({**owner, "result": result})

    def note_reported(self, state: Json) -> None:
        """Remember that a call has returned this result."""
        lock = self._take_lock()
        # Otherwise the next worker has begun, and the state is its own.
        if lock is not None:
            if self.state() == state:
                self._write({**state, "reported": True})
            os.close(lock)

    def wait(self, seconds: float) -> bool:
        """Wait for the worker to end, for so long at most; whether it has ended."""
        end, pause = self._clock.monotonic() + seconds, 0.01
        while True:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            if not self.is_running():
                return True
            left = end - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(pause, left))
            pause = min(0.2, pause * 1.5)

    def stop(self) -> None:
        """End the worker and the program that it runs."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self._pid()
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.killpg(pid, number)
            if self.wait(GRACE):
                break
        else:
            raise EventsError("An earlier process on this host does not end. It is tried again.")
        self._end_program()

    def _pid(self) -> int | None:
        """The process of the worker, which notes it a moment after it has begun. Its number is not that of another."""
        end = self._clock.monotonic() + GRACE
        while self.is_running() and self._clock.monotonic() < end:
            state = self.state()
            pid = state.get("pid")
            if isinstance(pid, int) and pid > 1:
                began = _began(pid)
                return pid if state.get("began", began) == began else None
            self._clock.sleep(0.02)
        return None

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

    def _write(self, state: Json, path: str = "") -> None:
        with contextlib.suppress(OSError):
            write_json(path or self._state, state, sync=False)


def _read(path: str) -> Json:
    try:
        state = read_json(path)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _began(pid: int) -> str:
    """The boot and the time at which a process began, which no later one of its number has; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program before it, in brackets, may contain any characters.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{current_boot()} {fields[19]}"


def _stop(_number: int, _frame: t.Any) -> None:
    # An exception, so that the program that the worker runs is ended, too.
    raise SystemExit(1)


def _detach(kept: int) -> None:
    """Into a session of its own, with nothing open that its caller waits for."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, 256)
