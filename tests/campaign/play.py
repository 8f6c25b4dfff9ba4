# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One random maintenance on loopback hosts: drawn, played, and judged by the emulator's journal and the hosts' logs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import threading
import time
import typing as t
import urllib.error
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ansible_collections.graceful.azure.tests.campaign.plan import APPROVING, Facts, decided
from ansible_collections.graceful.azure.tests.cycle import harness
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Json, Run

SERVICE = ["sh", str(Path(os.path.abspath(__file__)).with_name("host.sh")), "{{ home }}"]
# What is drawn happens when the first host has come so far: marks in its record, and "drained" on its disk.
PHASES = ("start", "claimed", "draining", "drained", "checkpointed", "ready", "approved", "restoring")
STATUSES = ("400", "404", "410", "429", "500", "503")
SPOILED = ("reset", "redirect", "html", "empty", "truncated", "oversized", "bom", "no_date")
STRANGER = "stranger_9"
FORCE = ("-e", "graceful_force_claim=true")
# Nobody posts again sooner after a request that was not confirmed. The client counts from its own note of 30 seconds.
BETWEEN_POSTS = 25


@dataclass
class Drawn:
    """Everything that is decided before a run begins."""

    size: int
    scopes: list[str]
    policy: list[Json] | None
    kind: str
    events: dict[str, Json] = field(default_factory=dict)
    common: Json = field(default_factory=dict)
    own: dict[str, Json] = field(default_factory=dict)
    # Each with its verb, the phase that it waits for, and the seconds after that.
    happenings: list[Json] = field(default_factory=list)
    limit: list[str] = field(default_factory=list)
    # What becomes of the first run when a second one begins: it goes on, its main process is killed, its machine dies,
    # or its machine is suspended until the second one has ended. Without an ending there is no second one.
    ending: str = ""
    force: bool = False

    def __str__(self) -> str:
        words = [f"{self.size} hosts{' in two scopes' if len(self.scopes) > 1 else ''}, {self.kind}"]
        words += [] if self.policy is None else ["policy " + ",".join(rule["action"] for rule in self.policy)]
        words += [f"{key} {value}" for key, value in self.common.items()]
        words += [f"{host} {key} {value}" for host, own in self.own.items() for key, value in own.items()]
        for one in self.happenings:
            what = " ".join(f"{value}" for key, value in one.items() if key not in ("at", "after", "foreign", "scope"))
            words.append(f"{what} ({one['at']}{f' + {after:.0f} s' if (after := one['after']) else ''})")
        words += [f"limit {','.join(self.limit)}"] if self.limit else []
        words += [f"{self.ending} run{', forced' if self.force else ''}"] if self.ending else []
        return "; ".join(words)

    def happens(self, verb: str, at: str, after: float = 0, **spec: t.Any) -> None:
        self.happenings.append({"verb": verb, **spec, "at": at, "after": after})


POLICIES: list[list[Json] | None] = [
    *[None] * 4,
    [{"action": "drain_and_approve", "unknown_names": "ignore"}],
    [{"event_type": "Reboot", "action": "approve"}, {"action": "drain_and_approve"}],
    [{"resource": "shop_0", "action": "drain"}, {"action": "drain_and_approve"}],
]


def draw(seed: int, number: int) -> Drawn:
    """The same seed and number are the same run."""
    rng = random.Random(f"{seed}/{number}")

    def maybe(chance: float) -> bool:
        return rng.random() < chance

    scopes = rng.choice([["one"], ["one"], ["one", "two"]])
    drawn = Drawn(rng.randint(2, 4), scopes, rng.choice(POLICIES), rng.choice(["tasks", "command"]))
    hosts = [f"web{one + 1}" for one in range(drawn.size)]
    for one in range(rng.choice([1, 1, 1, 2, 2, 3])):
        _draw_event(rng, drawn, one, maybe)
    for host in hosts:
        if maybe(0.2):
            drawn.own[host] = rng.choice([{"broken": True}, {"broken": True}, {"slow": 3}, {"slow": 20}])
        if "broken" in drawn.own.get(host, {}) and maybe(0.7):
            drawn.happens("mend", "draining", rng.uniform(0, 25), host=host)
        if maybe(0.1):
            right = f"shop_{hosts.index(host)}"
            drawn.own.setdefault(host, {})["graceful_vm_name"] = rng.choice([right, right, f"shop_{rng.randrange(5)}"])
    if maybe(0.2):
        drawn.common["graceful_min_available"] = rng.choice([1, 2, "50%", {"web": 1}])
    if maybe(0.2):
        drawn.common["graceful_serial"] = rng.choice([1, 2])
    if maybe(0.2):
        drawn.common["graceful_undo_on_failure"] = True
    for _one in range(rng.choice([0, 0, 1, 2, 3])):
        _draw_fault(rng, drawn)
    if maybe(0.25):
        host, at, after = rng.choice(hosts), rng.choice(PHASES), rng.uniform(0, 3)
        drawn.happens("drop", at, after, host=host)
        if maybe(0.8):
            drawn.happens("return", at, after + rng.uniform(1, 25), host=host)
    if maybe(0.08):
        drawn.limit = rng.sample(hosts, drawn.size - 1)
    drawn.ending = rng.choice([*[""] * 5, "alongside", "killed", "crashed", "suspended", "suspended"])
    if drawn.ending:
        drawn.happens("strike", rng.choice(PHASES), rng.uniform(0, 4))
    drawn.force = drawn.ending == "suspended" or (drawn.ending in ("killed", "crashed") and maybe(0.6))
    return drawn


def _draw_event(rng: random.Random, drawn: Drawn, number: int, maybe: t.Callable[[float], bool]) -> None:
    scope = rng.randrange(len(drawn.scopes))
    names = [f"shop_{one}" for one in range(drawn.size) if one % len(drawn.scopes) == scope]

    def some() -> list[str]:
        return rng.sample(names, rng.randint(1, min(2, len(names)))) + ([STRANGER] if maybe(0.1) else [])

    event: Json = {
        "EventId": f"EVENT-{number}",
        "EventType": rng.choice(["Reboot"] * 5 + ["Redeploy", "Freeze", "Preempt", "Terminate"]),
        "Resources": some(),
        "scope": drawn.scopes[scope],
        "notice": rng.choice([900] * 5 + [60, 8]),
        "started_for": rng.randint(1, 3),
        "foreign": True,
    }
    if maybe(0.1):
        event["cancel_after"] = rng.randint(1, 20)
    if maybe(0.1):
        event["start_delay"] = 2
    if event["EventType"] == "Freeze" and maybe(0.5):
        event["DurationInSeconds"] = 5
    drawn.events[event["EventId"]] = event
    at = "start" if number == 0 else rng.choice(["start", "start", *PHASES])
    drawn.happens("publish", at, 0 if at == "start" else rng.uniform(0, 3), **event)
    if maybe(0.15):
        changed = {**event, "Resources": some(), "notice": rng.choice([900, event["notice"], 60])}
        drawn.happens("change", rng.choice(PHASES[1:]), rng.uniform(0, 3), **changed)


def _draw_fault(rng: random.Random, drawn: Drawn) -> None:
    kind = rng.choice([*STATUSES, *SPOILED, "refuse", "stall", "drip", "vanish", "silent_post", "lost_post"])
    fault: Json = {"kind": kind}
    if rng.random() < 0.7:
        fault["vm"] = f"shop_{rng.randrange(drawn.size)}"
    if kind == "refuse":
        fault["seconds"] = rng.randint(1, 5)
    else:
        fault.update(count=rng.randint(1, 4), skip=rng.randint(0, 3))
    if kind in ("stall", "silent_post", "lost_post"):
        fault["seconds"] = 1
    elif kind == "drip":
        fault["interval"] = 0.005
    elif kind == "vanish":
        fault["EventId"] = rng.choice([*drawn.events])
    elif kind != "refuse" and rng.random() < 0.5:
        fault["method"] = rng.choice(["GET", "POST", "POST"])
    drawn.happens("fault", rng.choice(PHASES), **fault)


# ---- while it is played


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
    others = [] if drawn.ending else _untrue(fleet, runs[0])
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


def _untrue(fleet: Fleet, run: Run) -> list[str]:
    """What the report of an undisturbed run says and is not so."""
    result, approved = run.report.get("result"), {one["EventId"] for one in fleet.happened("approved")}
    bad = result in ("held", "failed")
    events = {event["event_id"] for event in run.report.get("events", []) if event["approved"]}
    restored = [host for host, story in run.report.get("hosts", {}).items() if story["result"] == "restored"]
    return [
        *([f"the result is {result}, the exit status {run.status}"] if bad != (run.status == 2) else []),
        *(f"{event_id}: the report tells an approval that never was" for event_id in events - approved),
        *(f"{host} is told to be restored, and is drained" for host in restored if fleet.is_drained(host)),
    ]


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


# ---- the judge


def judge(fleet: Fleet, drawn: Drawn, first_end: float) -> list[str]:
    """What was approved before every affected host was ready, or twice, or put back while it stood."""
    hosts = {name: host for host, name in fleet.names.items()}
    found = []
    for approval in fleet.happened("approved"):
        event_id, at, kind = approval["EventId"], approval["time"], approval["EventType"]
        own = [name for name in approval["Resources"] if name in hosts]
        longest = drawn.events[event_id].get("DurationInSeconds")
        rules = {name: decided(drawn.policy, Facts(kind, name, {"web"}, longest)) for name in own}
        words = [one for name in own for one in _unready(fleet, hosts[name], rules[name], event_id, at)]
        if STRANGER in approval["Resources"] and any(rule.get("unknown_names") != "ignore" for rule in rules.values()):
            words.append(f"approved although nobody knows {STRANGER}")
        if kind == "Terminate" and len(approval["Resources"]) > 1:
            words.append("one VM approved the deletion of others")
        if at < first_end:
            words += _too_few(fleet, drawn, own, at)
        found += [f"{event_id}: {one}" for one in words]
    return found + _repeated(fleet)


def _unready(fleet: Fleet, host: str, rule: Json, event_id: str, at: float) -> list[str]:
    before = [what for when, what in fleet.log(host) if when <= at]
    states = [what for what in before if what != "saved"]
    ends = [one for what in ("completed", "cancelled") for one in fleet.happened(what) if one["EventId"] == event_id]
    gone = min((one["time"] for one in ends if one["time"] > at), default=math.inf)
    drains = rule["action"] == "drain_and_approve"
    found = {
        f"the policy of {host} says {rule['action']}": rule["action"] not in APPROVING,
        f"{host} had not claimed it": not any(claimed <= at for claimed in _claims(fleet, host, event_id)),
        f"{host} was not drained": drains and states[-1:] != ["drained"],
        f"{host} had not saved": drains and "saved" not in before[_last(before, "drained") :],
        f"{host} was put back while it stood": any(
            what == "back" and at < when < gone for when, what in fleet.log(host)
        ),
    }
    return [words for words, applies in found.items() if applies]


def _last(words: list[str], word: str) -> int:
    return max((number for number, one in enumerate(words) if one == word), default=len(words))


def _claims(fleet: Fleet, host: str, event_id: str) -> list[float]:
    folder = fleet.home(host) / "records"
    records = [json.loads(file.read_text()) for file in [*folder.glob("*.json"), *folder.glob("history/*.json")]]
    marks = [mark for record in records for mark in record.get("timeline", []) if mark["what"] == "claimed"]
    return [mark["at"] for mark in marks if mark["event_id"].lower() == event_id.lower()]


def _too_few(fleet: Fleet, drawn: Drawn, leaving: list[str], at: float) -> list[str]:
    wanted = drawn.common.get("graceful_min_available", 0)
    wanted = wanted["web"] if isinstance(wanted, dict) else wanted
    needed = math.ceil(drawn.size / 2) if wanted == "50%" else int(wanted)
    working = 0
    for host, name in fleet.names.items():
        states = [what for when, what in fleet.log(host) if when <= at and what != "saved"]
        working += name not in leaving and states[-1:] != ["drained"]
    # Otherwise some leave because Azure will not wait, and those outside the limit cannot be asked.
    notices = [one["notice"] for one in drawn.happenings if "notice" in one]
    can_wait = not drawn.limit and all(notice == 900 for notice in notices)
    return [f"only {working} hosts were left, {needed} are needed"] if working < needed and can_wait else []


def _repeated(fleet: Fleet) -> list[str]:
    """An approval is posted once. One that was not confirmed may be posted again, when it is clear that it was lost."""
    posts: dict[str, list[Json]] = {}
    for post in fleet.posts():
        for request in json.loads(post["body"])["StartRequests"]:
            posts.setdefault(request["EventId"], []).append(post)
    found = []
    for event_id, sent in posts.items():
        confirmed = sum(post["status"] == 200 and not post["fault"] for post in sent)
        if confirmed > 1:
            found.append(f"{event_id}: approved {confirmed} times")
        gaps = [later["time"] - earlier["time"] for earlier, later in pairwise(sent)]
        found += [f"{event_id}: posted again after {gap:.0f} s" for gap in gaps if gap < BETWEEN_POSTS]
    return found
