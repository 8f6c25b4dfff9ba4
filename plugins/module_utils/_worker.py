# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Work that takes long, in a process of its own: a lost connection does not cut it off, and calls can look in on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record_files import taken

Json = t.Dict[str, t.Any]
Work = t.Callable[[t.Callable[[str], None]], Json]
LOCK = ".worker.lock"
STATE = ".worker.json"
# What a worker may use to end by itself when it is told to.
GRACE = 5.0


class Worker:
    """At most one on a host. Its lock ends with its process; its state file says whose it is and how far it came."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._lock = os.path.join(directory, LOCK)
        self._state = os.path.join(directory, STATE)
        self._clock = clock

    def running(self) -> Json | None:
        """Whose worker is at work, None if none is."""
        lock = self._take()
        if lock is not None:
            os.close(lock)
            return None
        return self.state()

    def state(self) -> Json:
        try:
            with open(self._state, encoding="utf-8") as file:
                state = json.load(file)
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def start(self, owner: Json, work: Work) -> None:
        """Begin the work in a process that does not end with this one."""
        lock = self._take()
        if lock is None:
            raise EventsError("Another process works on this host. It is looked at again in a moment.")
        self._write(owner)
        child = os.fork()
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
            lock = self._take()
            if lock is not None:
                os.close(lock)
                return True
            left = end - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(pause, left))
            pause = min(0.2, pause * 1.5)

    def stop(self) -> None:
        """End a worker whose run has lost its claim, or whose order was replaced."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self.state().get("pid")
            if self.running() is None:
                return
            if isinstance(pid, int) and pid > 1:
                with contextlib.suppress(OSError):
                    os.killpg(pid, number)
            if self.wait(GRACE):
                return
        raise EventsError("An earlier process on this host does not end. It is tried again.")

    def _take(self) -> int | None:
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | getattr(os, "O_CLOEXEC", 0), 0o600)
        if taken(lock):
            return lock
        os.close(lock)
        return None

    def _write(self, state: Json) -> None:
        draft = f"{self._state}.draft"
        with contextlib.suppress(OSError):
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
                json.dump(state, file)
            os.replace(draft, self._state)


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
