# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Services that are stopped in order, and started in reverse order if they ran before."""

from __future__ import annotations

import functools
import os
import re
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _option_checks as check
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import (
    LINUX,
    WINDOWS,
    Done,
    Json,
    Kind,
    Look,
    Noted,
    Options,
    Tools,
)
from ansible_collections.graceful.azure.plugins.module_utils._patience import Proof
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, quoted

RUNNING, STARTING, STOPPING, STOPPED = "running", "starting", "stopping", "stopped"
MANAGERS = ("auto", "systemd", "service")
# What a service may take to show its new state after its manager has said that it is done.
SETTLES_WITHIN = 10.0


class Manager:
    """Whoever starts and stops services on this host."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def state(self, name: str) -> str:
        raise NotImplementedError

    def command(self, name: str, verb: str) -> t.Sequence[str]:
        raise NotImplementedError

    def change(self, name: str, verb: str) -> None:
        ran = self._tools.run(self.command(name, verb), self._tools.patience.left)
        if ran.code != 0:
            done = "stopped" if verb == "stop" else "started"
            raise EventsError(f"The service {clean(name, 80)} could not be {done}: {clean(ran.message, 300)}")


class Systemd(Manager):
    STATES: t.ClassVar[t.Mapping[str, str]] = {
        "active": RUNNING,
        "reloading": RUNNING,
        "refreshing": RUNNING,
        "activating": STARTING,
        "deactivating": STOPPING,
        "maintenance": STOPPING,
        "inactive": STOPPED,
        "failed": STOPPED,
        "unknown": STOPPED,
    }

    def command(self, name: str, verb: str) -> t.Sequence[str]:
        return ["systemctl", verb, "--", name]

    def state(self, name: str) -> str:
        seconds = self._tools.patience.request_timeout(30)
        ran = self._tools.run(self.command(name, "is-active"), seconds)
        state = self.STATES.get(ran.out.strip())
        if state is None:
            raise EventsError(
                f"systemctl does not tell the state of the service {clean(name, 80)}: {clean(ran.message, 300)}"
            )
        if state == STOPPED:
            known = self._tools.run(["systemctl", "show", "--property=LoadState", "--", name], seconds)
            if "LoadState=not-found" in known.out:
                raise EventsError(f"There is no service {clean(name, 80)} on this host. Correct the step's services.")
        return state


class InitScripts(Manager):
    UNKNOWN = re.compile(
        r"unrecogni[sz]ed service|service .*does not exist|could not be found|init\.d/.*: No such file"
    )

    def command(self, name: str, verb: str) -> t.Sequence[str]:
        return ["service", name, verb]

    def state(self, name: str) -> str:
        ran = self._tools.run(self.command(name, "status"), self._tools.patience.request_timeout(30))
        if ran.code == 0:
            return RUNNING
        said = f"{ran.out}\n{ran.err}"
        if self.UNKNOWN.search(said):
            raise EventsError(f"There is no service {clean(name, 80)} on this host. Correct the step's services.")
        # 1 to 3 are the ways of not running; 4 is "unknown". A script that knows no status prints its usage.
        if not 1 <= ran.code <= 3 or "usage:" in said.lower():
            raise EventsError(
                f"service does not tell the state of the service {clean(name, 80)}: {clean(ran.message, 300)}"
            )
        return STOPPED


class Step(Kind):
    summary = "The services are stopped in order. Undone: those that ran before are started in reverse order."
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
        "services": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "Names of services, in the order in which they are stopped. On Windows that is the name, "
            "not the display name; services that depend on them are stopped before them and started after them.",
        },
        "use": {
            "type": "str",
            "default": "auto",
            "platforms": (LINUX,),
            "description": "What manages them: `systemd` (systemctl), `service` (init scripts), or `auto`, which is "
            "systemd where it runs.",
        },
    }
    # Only there while systemd is the init system.
    systemd_runs = "/run/systemd/system"

    @classmethod
    def mistake(cls, options: Options) -> str:
        unknown = options["use"] not in MANAGERS
        return check.first(
            check.texts("services", options["services"]),
            f"use is {quoted(options['use'])}. It has to be one of: {', '.join(MANAGERS)}." if unknown else "",
        )

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        return check.first(*(_name_mistake(platform, name) for name in options["services"]))

    @classmethod
    def merged(cls, options: Options, before: Json, now: Json) -> Json:
        """Somebody may have added a service to the step since the first attempt."""
        running = {*_names(before), *_names(now)}
        wanted = options["services"]
        return {**before, "running": [*(name for name in wanted if name in running), *sorted(running - {*wanted})]}

    def look(self) -> Look:
        states = {name: self._manager.state(name) for name in self.given["services"]}
        running = [name for name, state in states.items() if state in (RUNNING, STARTING)]
        done = all(state == STOPPED for state in states.values())
        return Look(done, f"running: {_shown(running)}", {"running": running})

    def do(self) -> Done:
        names = self.given["services"]
        self._bring(names, STOPPED)
        return Done(f"stopped: {_shown(names)}", {})

    def undo(self, noted: Noted) -> str:
        running = _names(noted.before) if "running" in noted.before else list(self.given["services"])
        self._bring(running[::-1], RUNNING)
        return f"started: {_shown(running[::-1])}"

    @property
    def _manager(self) -> Manager:
        use = self.given["use"]
        systemd = use == "systemd" or (use == "auto" and os.path.isdir(self.systemd_runs))
        return Systemd(self.tools) if systemd else InitScripts(self.tools)

    def _bring(self, names: t.Sequence[str], state: str) -> None:
        for name in names:
            if self._manager.state(name) != state:
                self._manager.change(name, "stop" if state == STOPPED else "start")
        for name in names:
            self.tools.patience.part(SETTLES_WITHIN).until(functools.partial(self._is_in, name, state))

    def _is_in(self, name: str, state: str) -> Proof:
        now = self._manager.state(name)
        return Proof(now == state, f"the service {clean(name, 80)} is {now}")


# Windows takes blanks in them; a name with * or ? would be a pattern.
_NAMES = {LINUX: re.compile(r"(?!-)[^\s/]+"), WINDOWS: re.compile(r"(?=\S)[^/\\*?\[\]`\x00-\x1f]{1,256}(?<=\S)")}


def _name_mistake(platform: str, name: str) -> str:
    if _NAMES[platform].fullmatch(name):
        return ""
    return f"services has {quoted(name)}, which cannot be the name of a service."


def _names(before: Json) -> list[str]:
    running = before.get("running")
    return [str(name) for name in running] if isinstance(running, list) else []


def _shown(names: t.Sequence[str]) -> str:
    return clean(", ".join(names) or "none", 300)
