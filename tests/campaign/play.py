# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One random maintenance on loopback hosts: played as it was drawn, and judged."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
import urllib.error
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.graceful.azure.tests.campaign.draw import PHASES, Drawn, Json
from ansible_collections.graceful.azure.tests.campaign.judge import judge, untrue
from ansible_collections.graceful.azure.tests.cycle import harness
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Run

SERVICE = ["sh", str(Path(os.path.abspath(__file__)).with_name("host.sh")), "{{ home }}"]
FORCE = ("-e", "graceful_force_claim=true")


class Weather(threading.Thread):
    """Does what was drawn when its phase is reached. Where everybody merely waits, Azure acts and lost hosts return."""

    STILL, PATIENCE = 15.0, 60.0

    def __init__(self, fleet: Fleet, drawn: Drawn) -> None:
        super().__init__(daemon=True)
        self.fleet, self.events = fleet, drawn.events
        self.over, self.strike = threading.Event(), threading.Event()
        self.coming = list(drawn.happenings)
        self.due: list[tuple[float, Json]] = []
        self.reached: set[str] = set()
        self.marks: list[str] = []
        self.begin = self.moved = time.monotonic()
        self._reach({"start"})

    def run(self) -> None:
        while not self.over.wait(0.05):
            marks = [mark for host in self.fleet.names for mark in self.fleet.marks(host)]
            marks += ["drained" for host in self.fleet.names if self.fleet.is_drained(host)]
            now = time.monotonic()
            if marks != self.marks:
                self.marks, self.moved = marks, now
            self._reach({*marks})
            still = bool(marks) and now - max(self.begin, self.moved) > self.STILL
            if not self.due and (still or now - self.begin > self.PATIENCE):
                # What waits for a phase that is never reached comes now.
                self._reach(set(PHASES))
                self.all("start")
                for host in self.fleet.names:
                    self.fleet.come_back(host)
                self.begin = now

    def _reach(self, phases: set[str]) -> None:
        now = time.monotonic()
        self.reached |= phases
        self.due += [(now + one["after"], one) for one in self.coming if one["at"] in self.reached]
        self.coming = [one for one in self.coming if one["at"] not in self.reached]
        happening = [one for one in self.due if one[0] <= now]
        self.due = [one for one in self.due if one[0] > now]
        for _when, one in happening:
            self.moved = now
            self._do(one["verb"], {key: value for key, value in one.items() if key not in ("verb", "at", "after")})

    def _do(self, verb: str, spec: Json) -> None:
        if verb == "strike":
            self.strike.set()
        elif verb == "drop":
            self.fleet.drop(spec["host"])
        elif verb == "return":
            self.fleet.come_back(spec["host"])
        elif verb == "mend":
            (self.fleet.home(spec["host"]) / "broken").unlink(missing_ok=True)
        elif verb != "change" or self.tell("cancel", {"EventId": spec["EventId"]}):
            self.tell("publish" if verb == "change" else verb, spec)

    def tell(self, verb: str, spec: Json) -> bool:
        # An event may be gone, or not have come.
        with contextlib.suppress(urllib.error.HTTPError):
            self.fleet.control(verb, spec)
            return True
        return False

    def all(self, verb: str) -> None:
        for event_id in self.events:
            self.tell(verb, {"EventId": event_id})


@dataclass
class Outcome:
    complaints: list[str]
    approved: int = 0
    held: int = 0
    left: int = 0
    early: int = 0

    def __str__(self) -> str:
        words = f"{self.approved} approved, {self.held} held"
        return words if not self.complaints else f"{words}, FAILED: {'; '.join(self.complaints)}"


def play(drawn: Drawn, directory: Path) -> Outcome:
    fleet = Fleet(directory, drawn.size, drawn.scopes)
    try:
        return _play(fleet, drawn)
    finally:
        fleet.stop()


def _prepare(fleet: Fleet, drawn: Drawn) -> None:
    steps = fleet._defaults()["graceful_drain_steps"]
    if drawn.kind == "command":
        verbs = {verb: [*SERVICE, verb] for verb in ("do", "undo", "probe")}
        steps = [{"name": "service", "kind": "command", **verbs}]
    fleet.common = {
        **drawn.common,
        **({} if drawn.policy is None else {"graceful_policy": drawn.policy}),
        "graceful_gone_timeout": 30,
        "graceful_drain_steps": steps,
        "graceful_checkpoint": [{"name": "log", "kind": "command", "argv": [*SERVICE, "save"]}],
    }
    for host, own in drawn.own.items():
        if own.get("broken"):
            (fleet.home(host) / "broken").touch()
        if "slow" in own:
            sleep = {"do": ["sleep", str(own["slow"])], "probe": ["true"], "timeout": 10}
            slow = {"name": "slow", "kind": "command", **sleep}
            fleet.variables[host]["graceful_drain_steps"] = [slow, *steps]
        if "graceful_vm_name" in own:
            fleet.variables[host]["graceful_vm_name"] = own["graceful_vm_name"]


def _play(fleet: Fleet, drawn: Drawn) -> Outcome:
    _prepare(fleet, drawn)
    weather = Weather(fleet, drawn)
    weather.start()
    try:
        runs = _runs(fleet, drawn, weather)
        first_end = -math.inf if drawn.ending else time.time()
    finally:
        weather.over.set()
        weather.join()
    others = [] if drawn.ending else untrue(fleet, runs[0])
    others += [f"run {number} {words}" for number, run in enumerate(runs, 1) for words in _broken(run)]
    others += ["a run broke"] if fleet.said("Traceback (most recent") else []
    unknown = [host for host in fleet.names if fleet.is_drained(host) and fleet.record(host) is None]
    others += [f"{host} is drained, and no record tells it" for host in unknown]
    early = judge(fleet, drawn, first_end)
    left = _calm(fleet, weather)
    early += [words for words in judge(fleet, drawn, first_end) if words not in early]
    held = {event["event_id"] for run in runs for event in run.report.get("events", []) if event["outcome"] == "held"}
    drained = sum(fleet.is_drained(host) for host in fleet.names)
    events = {words.partition(":")[0] for words in early}
    return Outcome([*early, *others, *left], len(fleet.happened("approved")), len(held), drained, len(events))


def _runs(fleet: Fleet, drawn: Drawn, weather: Weather) -> list[Run]:
    limit = ["--limit", ",".join(drawn.limit)] if drawn.limit else []
    if not drawn.ending:
        return [fleet.run(*limit)]
    first = fleet.start(*limit)
    try:
        while first.poll() is None and not weather.strike.wait(0.05):
            pass
        number = {"suspended": signal.SIGSTOP, "alongside": 0}.get(drawn.ending, signal.SIGKILL)
        _signal(first, number, alone=drawn.ending == "killed")
        weather.begin = time.monotonic()
        second = fleet.run(*limit, *(FORCE if drawn.force else ()))
        weather.begin = time.monotonic()
        _signal(first, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(harness.PATIENCE)
        status = 0 if first.poll() == -signal.SIGKILL else first.poll()
    finally:
        _signal(first, signal.SIGKILL)
    return [Run(-signal.SIGKILL if status is None else status, "", {}), second]


def _signal(process: subprocess.Popen[bytes], number: int, alone: bool = False) -> None:
    """To a controller and its forks. What they have started on hosts goes on, as it does when a machine is lost."""
    for pid in [] if process.poll() is not None else [process.pid] if alone else _forks(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _forks(pid: int) -> list[int]:
    place, found = Path(f"/proc/{pid}"), [pid]
    with contextlib.suppress(OSError):
        for child in (place / f"task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes() == (place / "cmdline").read_bytes():
                found += _forks(int(child))
    return found


def _broken(run: Run) -> list[str]:
    if run.status == -signal.SIGKILL:
        return ["did not end"]
    return [] if run.status in (0, 2) else [f"ended with {run.status}"]


def _calm(fleet: Fleet, weather: Weather) -> list[str]:
    """Everything is well again and nothing is announced: one more run, and nobody may be left drained."""
    weather.all("complete")
    fleet.control("faults/clear", {})
    for host in fleet.names:
        fleet.come_back(host)
        (fleet.home(host) / "broken").unlink(missing_ok=True)
    if not any(fleet.is_drained(host) or fleet.record(host) for host in fleet.names):
        return []
    run = fleet.run(*FORCE)
    left = [f"{host} was left drained" for host in fleet.names if fleet.is_drained(host)]
    left += [f"{host} has an open record" for host in fleet.names if fleet.record(host)]
    return [*left, *([f"the calm run ended with {run.status}"] if run.status else [])]
