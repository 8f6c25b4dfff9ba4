# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts the process that drains the host, and starts it again when it has failed. It cannot delay the watching."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import typing as t

from .config import Config, OnItsOwn
from .on_its_own import NEEDS_CONTROLLER, Host, Planner, run_of

Log = t.Callable[[str], None]
# Until it is started again after it has ended, and where only a controller could go on.
PAUSES, CONTROLLER_PAUSE = (1.0, 2.0, 5.0, 10.0, 30.0), 60.0
END_WITHIN = 3.0


class OnItsOwnProcess:
    """Starts the process that acts, when there is something to do that no run does."""

    def __init__(self, config: Config, on_its_own: OnItsOwn, log: Log, dry: bool) -> None:
        self._config = config
        self._log = log
        self._dry = dry
        self._planner = Planner(on_its_own, run_of(config.host))
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = ""
        # What it was started for last, how often, and when it may be started for that again.
        self._started_for: tuple[str, ...] = ()
        self._starts = 0
        self._not_before = 0.0

    def see(self, host: Host) -> None:
        if self._process is not None and not self._has_ended(self._process):
            return
        plan = self._planner.plan(host)
        if plan.order is None:
            self._started_for = ()
            if plan.reason and plan.reason != self._reason:
                self._log(f"On its own: {plan.reason}.")
            self._reason = plan.reason
            return
        if self._dry:
            self._log(f"On its own it would now begin ({plan.order.order}): {plan.reason}.")
            return
        wanted = (plan.order.order, *plan.order.event_ids)
        if wanted != self._started_for or time.monotonic() >= self._not_before:
            self._reason = plan.reason
            self._start(wanted)

    def _start(self, wanted: tuple[str, ...]) -> None:
        self._starts = self._starts if wanted == self._started_for else 0
        self._started_for = wanted
        self._not_before = time.monotonic() + PAUSES[min(self._starts, len(PAUSES) - 1)]
        self._starts += 1
        # Only the main process reports to the service manager.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("NOTIFY_", "WATCHDOG_"))}
        command = [sys.executable, *_flags(), sys.argv[0], "--config", self._config.path, "--act"]
        try:
            # There is no Ansible here whose run_command could be called.
            # pylint: disable-next=ansible-bad-function
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        except OSError as exc:
            self._log(f"The process that drains the host cannot be started: {exc.strerror or exc}. It is tried again.")

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        status = process.poll()
        if status is None:
            return False
        self._process = None
        if status == NEEDS_CONTROLLER:
            self._not_before = time.monotonic() + CONTROLLER_PAUSE
        elif status:
            self._log(f"The process that drains the host ended with {status}. It is started again.")
        return True

    def stop(self) -> None:
        """The worker of a step that is under way goes on; its end is noted in the record."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_WITHIN)


def _flags() -> list[str]:
    return ["-I"] if sys.flags.isolated else []
