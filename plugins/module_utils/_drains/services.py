# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stops services in order, and starts those that ran before in reverse order."""

from __future__ import annotations

import functools
import os
import re
import typing as t

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import LINUX, WINDOWS, Done, Found, Json, Kind, Options, Ran, StepRecord
from .._patience import Proof
from .._text import clean, quoted

RUNNING, STARTING, STOPPING, STOPPED = "running", "starting", "stopping", "stopped"
# How long a service may take to show its new state after systemctl or service has ended.
SETTLES_WITHIN = 10.0
# How init scripts say that there is no such service.
UNKNOWN = re.compile(r"unrecogni[sz]ed service|service .*does not exist|could not be found|init\.d/.*: No such file")
SYSTEMD_STATES: t.Mapping[str, str] = {
    "active": RUNNING,
    "reloading": RUNNING,
    "refreshing": RUNNING,
    "activating": STARTING,
    "deactivating": STOPPING,
    "maintenance": STOPPING,
    "inactive": STOPPED,
    "failed": STOPPED,
}


class Step(Kind):
    summary = "The services are stopped in order. Undone: those that ran before are started in reverse order."
    options: t.ClassVar = {
        "services": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "Names of services, in the order in which they are stopped. On Windows that is the name, "
            "not the display name; services that depend on them are stopped before them and started after them.",
        },
        "use": {
            "type": "str",
            "choices": ["auto", "systemd", "service"],
            "default": "auto",
            "platforms": (LINUX,),
            "description": "What manages them, systemd or init scripts. `auto` is systemd where it runs.",
        },
    }
    checks: t.ClassVar = {"services": check.texts}
    # This directory exists while systemd is the init system.
    systemd_runs = "/run/systemd/system"

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        return check.first(*(_name_mistake(platform, name) for name in options["services"]))

    @classmethod
    def merged(cls, options: Options, before: Json, now: Json) -> Json:
        """A service may have been added to the step since the first attempt."""
        running = {*_running(before), *_running(now)}
        wanted = options["services"]
        return {**before, "running": [*(name for name in wanted if name in running), *sorted(running - {*wanted})]}

    def look(self) -> Found:
        states = {name: self._state(name) for name in self.params["services"]}
        running = [name for name, state in states.items() if state in (RUNNING, STARTING)]
        done = all(state == STOPPED for state in states.values())
        return Found(done, f"running: {_shown(running)}", {"running": running})

    def do(self) -> Done:
        names = self.params["services"]
        self._bring(names, STOPPED)
        return Done(f"stopped: {_shown(names)}", {})

    def undo(self, record: StepRecord) -> str:
        running = _running(record.before) if "running" in record.before else list(self.params["services"])
        self._bring(running[::-1], RUNNING)
        return f"started: {_shown(running[::-1])}"

    @property
    def _by_systemd(self) -> bool:
        use = self.params["use"]
        return bool(use == "systemd" or (use == "auto" and os.path.isdir(self.systemd_runs)))

    def _run(self, name: str, verb: str, seconds: float) -> Ran:
        argv = ["systemctl", verb, "--", name] if self._by_systemd else ["service", name, verb]
        return self.tools.run(argv, seconds)

    def _state(self, name: str) -> str:
        return self._systemd_state(name) if self._by_systemd else self._script_state(name)

    def _systemd_state(self, name: str) -> str:
        argv = ["systemctl", "show", "--property=LoadState", "--property=ActiveState", "--", name]
        ran = self.tools.run(argv, self.tools.patience.request_timeout(30))
        shown = dict(line.split("=", 1) for line in ran.out.splitlines() if "=" in line)
        state = SYSTEMD_STATES.get(shown.get("ActiveState", ""))
        if state is None:
            raise _no_state("systemctl", name, ran)
        if state == STOPPED and shown.get("LoadState") == "not-found":
            raise _no_service(name)
        return state

    def _script_state(self, name: str) -> str:
        ran = self._run(name, "status", self.tools.patience.request_timeout(30))
        if ran.code == 0:
            return RUNNING
        output = f"{ran.out}\n{ran.err}"
        if UNKNOWN.search(output):
            raise _no_service(name)
        # 1 to 3 mean not running; 4 means unknown. A script without a status command prints its usage.
        if not 1 <= ran.code <= 3 or "usage:" in output.lower():
            raise _no_state("service", name, ran)
        return STOPPED

    def _bring(self, names: t.Sequence[str], state: str) -> None:
        verb = "stop" if state == STOPPED else "start"
        for name in names:
            if self._state(name) != state:
                ran = self._run(name, verb, self.tools.patience.left)
                if ran.code != 0:
                    done = "stopped" if verb == "stop" else "started"
                    raise EventsError(f"The service {clean(name, 80)} could not be {done}: {ran.message}")
        for name in names:
            self.tools.patience.part(SETTLES_WITHIN).until(functools.partial(self._is_in, name, state))

    def _is_in(self, name: str, state: str) -> Proof:
        now = self._state(name)
        return Proof(now == state, f"the service {clean(name, 80)} is {now}")


def _running(before: Json) -> list[str]:
    names = before.get("running")
    return [str(name) for name in names] if isinstance(names, list) else []


def _no_service(name: str) -> EventsError:
    return EventsError(f"There is no service {clean(name, 80)} on this host. Correct the step's services.")


def _no_state(program: str, name: str, ran: Ran) -> EventsError:
    return EventsError(f"{program} does not show the state of the service {clean(name, 80)}: {ran.message}")


# Windows allows spaces; a name with * or ? would be a pattern.
_NAMES = {LINUX: re.compile(r"(?!-)[^\s/]+"), WINDOWS: re.compile(r"(?=\S)[^/\\*?\[\]`\x00-\x1f]{1,256}(?<=\S)")}


def _name_mistake(platform: str, name: str) -> str:
    if _NAMES[platform].fullmatch(name):
        return ""
    return f"services has {quoted(name)}, which cannot be the name of a service."


def _shown(names: t.Sequence[str]) -> str:
    return clean(", ".join(names) or "none", 300)
