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
from pathlib import Path

from ansible_collections.graceful.azure.tests.campaign.plan import APPROVING, decided
from ansible_collections.graceful.azure.tests.cycle import harness
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Json, Run

HERE = Path(os.path.abspath(__file__)).parent
PHASES = ("start", "claim", "drain", "checkpoint", "wait", "restore")
STATUSES = ("400", "404", "410", "429", "500", "503")
SPOILED = ("reset", "redirect", "html", "empty", "truncated", "oversized", "bom", "no_date")
STRANGER = "stranger_9"
# The journal and the logs are of one machine, and so of one clock.
LOG = "echo \"$(date +%s.%N) saved\" >> '{{ home }}/log'"


@dataclass
class Drawn:
    """Everything that is decided before a run begins."""

    size: int
    scopes: list[str]
    policy: list[Json] | None
    events: list[Json] = field(default_factory=list)
    common: Json = field(default_factory=dict)
    own: dict[str, Json] = field(default_factory=dict)
    faults: list[Json] = field(default_factory=list)
    drops: list[Json] = field(default_factory=list)
    limit: list[str] = field(default_factory=list)
    # How the first run is disturbed: not at all, killed in a phase, or by a second one that starts seconds later.
    killed_at: str | None = None
    second_after: float | None = None
    force: bool = False

    def __str__(self) -> str:
        words = [f"{self.size} hosts{' in two scopes' if len(self.scopes) > 1 else ''}"]
        for event in self.events:
            extra = "".join(f" {key} {event[key]}" for key in ("cancel_after", "start_delay") if key in event)
            words.append(
                f"{event['EventType']} {'+'.join(event['Resources'])} {event['notice']} s{extra} ({event['at']})"
            )
        words += [] if self.policy is None else ["policy " + ",".join(rule["action"] for rule in self.policy)]
        words += [f"{key} {value}" for key, value in self.common.items()]
        words += [f"{host} {value}" for host, own in self.own.items() for value in own.values()]
        words += [f"{fault['kind']} at {fault['at']}" for fault in self.faults]
        words += [f"{drop['host']} lost at {drop['at']}" for drop in self.drops]
        words += [f"limit {','.join(self.limit)}"] if self.limit else []
        words += [f"killed at {self.killed_at}"] if self.killed_at else []
        words += ["two runs"] if self.second_after is not None else []
        return "; ".join(words)


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

    drawn = Drawn(rng.randint(2, 4), rng.choice([["one"], ["one"], ["one", "two"]]), rng.choice(POLICIES))
    hosts = [f"web{one + 1}" for one in range(drawn.size)]
    for one in range(rng.choice([1, 1, 1, 2, 2, 3])):
        drawn.events.append(_event(rng, drawn, one, maybe))
    for host in hosts:
        if maybe(0.15):
            drawn.own[host] = rng.choice(
                [{"misbehaviour": "fail"}, {"misbehaviour": "go down"}, {"slow": 3}, {"slow": 3}, {"slow": 20}]
            )
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
        drawn.faults.append(_fault(rng, drawn))
    if maybe(0.2):
        drawn.drops.append(
            {"host": rng.choice(hosts), "at": rng.choice(["start", "drain", "wait"]), "seconds": rng.randint(1, 12)}
        )
    if maybe(0.08):
        drawn.limit = rng.sample(hosts, drawn.size - 1)
    ending = rng.choice(["", "", "", "kill", "kill", "two"])
    if ending == "kill":
        drawn.killed_at = rng.choice(PHASES[1:])
    elif ending == "two":
        drawn.second_after = rng.uniform(0, 8)
    drawn.force = maybe(0.6)
    return drawn


def _event(rng: random.Random, drawn: Drawn, number: int, maybe: t.Callable[[float], bool]) -> Json:
    scope = rng.randrange(len(drawn.scopes))
    names = [f"shop_{one}" for one in range(drawn.size) if one % len(drawn.scopes) == scope]
    event = {
        "EventId": f"EVENT-{number}",
        "at": "start" if number == 0 else rng.choice(["start", "start", "drain", "wait"]),
        "EventType": rng.choice(["Reboot"] * 5 + ["Redeploy", "Freeze", "Preempt", "Terminate"]),
        "Resources": rng.sample(names, rng.randint(1, min(2, len(names)))) + ([STRANGER] if maybe(0.1) else []),
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
    return event


def _fault(rng: random.Random, drawn: Drawn) -> Json:
    at = rng.choice(["start", "drain", "wait"])
    kind = rng.choice([*STATUSES, *SPOILED, "refuse", "stall", "drip", "vanish", "silent_post", "lost_post"])
    fault: Json = {"kind": kind, "at": at}
    if rng.random() < 0.7:
        fault["vm"] = f"shop_{rng.randrange(drawn.size)}"
    if kind == "refuse":
        return {**fault, "seconds": rng.randint(1, 5)}
    fault["count"] = rng.randint(1, 4)
    if kind in ("stall", "silent_post", "lost_post"):
        fault["seconds"] = 1
    elif kind == "drip":
        fault["interval"] = 0.005
    elif kind == "vanish":
        fault["EventId"] = rng.choice(drawn.events)["EventId"]
    elif rng.random() < 0.5:
        fault["method"] = rng.choice(["GET", "POST", "POST"])
    return {**fault, "skip": rng.randint(0, 3)}


# ---- while it is played


class Weather(threading.Thread):
    """Does what was drawn when its phase is reached. Where everybody merely waits, Azure acts and lost hosts return."""

    STILL, PATIENCE = 6.0, 45.0

    def __init__(self, fleet: Fleet, drawn: Drawn) -> None:
        super().__init__(daemon=True)
        self.fleet, self.over = fleet, threading.Event()
        self.coming = [("publish", one) for one in drawn.events]
        self.coming += [("fault", one) for one in drawn.faults] + [("drop", one) for one in drawn.drops]
        self.returning: list[tuple[float, str]] = []
        self.ids = [event["EventId"] for event in drawn.events]
        self.begin = self.moved = time.monotonic()
        self._reach("start")

    def begins(self) -> None:
        self.begin = time.monotonic()

    def run(self) -> None:
        last: list[str] = []
        while not self.over.wait(0.05):
            phases = sorted(
                str(record["claim"]["phase"]) for host in self.fleet.names for record in self.fleet.records(host)
            )
            if phases != last:
                last, self.moved = phases, time.monotonic()
            for phase in set(phases) & set(PHASES):
                self._reach(phase)
            now = time.monotonic()
            for when, host in [one for one in self.returning if one[0] <= now]:
                self.fleet.come_back(host)
                self.returning.remove((when, host))
            idle = set(phases) == {"wait"} and now - self.moved > self.STILL
            if idle or now - self.begin > self.PATIENCE:
                self.all("start")
                for host in self.fleet.names:
                    self.fleet.come_back(host)
                self.begin = self.moved = now

    def _reach(self, phase: str) -> None:
        due = [one for one in self.coming if PHASES.index(one[1]["at"]) <= PHASES.index(phase)]
        self.coming = [one for one in self.coming if one not in due]
        for verb, spec in due:
            wanted = {key: value for key, value in spec.items() if key != "at"}
            if verb == "drop":
                self.fleet.drop(wanted["host"])
                self.returning.append(
                    (time.monotonic() + (10**6 if phase == "start" else wanted["seconds"]), wanted["host"])
                )
            else:
                self.tell(verb, wanted)

    def tell(self, verb: str, spec: Json) -> None:
        # An event may be gone, or not have come.
        with contextlib.suppress(urllib.error.HTTPError):
            self.fleet.control(verb, spec)

    def all(self, verb: str) -> None:
        for event_id in self.ids:
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


def _play(fleet: Fleet, drawn: Drawn) -> Outcome:
    slow = {"name": "slow", "kind": "tasks", "timeout": 10, "do": str(HERE / "slow.yml")}
    steps = [slow, *fleet._defaults()["graceful_drain_steps"]]
    fleet.common = {
        **drawn.common,
        **({} if drawn.policy is None else {"graceful_policy": drawn.policy}),
        "graceful_gone_timeout": 30,
        "graceful_checkpoint": [{"name": "log", "kind": "command", "argv": ["sh", "-c", LOG]}],
    }
    for host, own in drawn.own.items():
        fleet.variables[host].update(own, **({"graceful_drain_steps": steps} if "slow" in own else {}))
    weather = Weather(fleet, drawn)
    weather.start()
    try:
        runs, first_end = _runs(fleet, drawn, weather)
    finally:
        weather.over.set()
        weather.join()
    held = {event["event_id"] for run in runs for event in run.report.get("events", []) if event["outcome"] == "held"}
    early = judge(fleet, drawn, first_end)
    others = [f"run {number} {words}" for number, run in enumerate(runs, 1) for words in _broken(run)]
    left = _calm(fleet, drawn, weather)
    early += [words for words in judge(fleet, drawn, first_end) if words not in early]
    drained = sum(fleet.is_drained(host) for host in fleet.names)
    events = {words.partition(":")[0] for words in early}
    return Outcome([*early, *others, *left], len(fleet.happened("approved")), len(held), drained, len(events))


def _runs(fleet: Fleet, drawn: Drawn, weather: Weather) -> tuple[list[Run], float]:
    limit = ["--limit", ",".join(drawn.limit)] if drawn.limit else []
    if drawn.second_after is not None:
        other = fleet.start(*limit)
        time.sleep(drawn.second_after)
        runs = [fleet.run(*limit)]
        try:
            other.wait(harness.PATIENCE)
        except subprocess.TimeoutExpired:
            runs.append(Run(-signal.SIGKILL, "", {}))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(other.pid, signal.SIGKILL)
        return runs, -math.inf
    if drawn.killed_at:
        wanted = drawn.killed_at
        killed = fleet.run(*limit, kill_when=lambda: any(fleet.phase(host) == wanted for host in fleet.names))
        weather.begins()
        again = fleet.run(*limit, *(["-e", "graceful_force_claim=true"] if drawn.force else []))
        # Its end is no end of its own.
        return [Run(0, killed.output, killed.report), again], -math.inf
    return [fleet.run(*limit)], time.time()


def _broken(run: Run) -> list[str]:
    found = {"did not end": run.status == -signal.SIGKILL, "broke": "Traceback (most recent" in run.output}
    found[f"ended with {run.status}"] = run.status not in (0, 2, -signal.SIGKILL)
    return [words for words, applies in found.items() if applies]


def _calm(fleet: Fleet, drawn: Drawn, weather: Weather) -> list[str]:
    """Everything is well again and nothing is announced: one more run, and nobody may be left drained."""
    weather.coming = []
    weather.all("complete")
    fleet.control("faults/clear", {})
    for host in fleet.names:
        fleet.come_back(host)
        fleet.variables[host]["misbehaviour"] = ""
    if not any(fleet.is_drained(host) or fleet.records(host) for host in fleet.names):
        return []
    run = fleet.run("-e", "graceful_force_claim=true")
    left = [f"{host} was left drained" for host in fleet.names if fleet.is_drained(host)]
    left += [f"{host} has an open record" for host in fleet.names if fleet.records(host)]
    return [*left, *([f"the calm run ended with {run.status}"] if run.status else [])]


# ---- the judge


def judge(fleet: Fleet, drawn: Drawn, first_end: float) -> list[str]:
    """What was approved before every affected host was ready, or twice, or put back while it stood."""
    hosts = {name: host for host, name in fleet.names.items()}
    drawn_as = {event["EventId"]: event for event in drawn.events}
    found = []
    for approval in fleet.happened("approved"):
        event_id, at = approval["EventId"], approval["time"]
        own = [name for name in approval["Resources"] if name in hosts]
        longest = drawn_as[event_id].get("DurationInSeconds")
        rules = {name: decided(drawn.policy, approval["EventType"], None, longest, {"web"}, name) for name in own}
        found += [
            f"{event_id}: {words}" for name in own for words in _unready(fleet, hosts[name], rules[name], event_id, at)
        ]
        if STRANGER in approval["Resources"] and any(rule.get("unknown_names") != "ignore" for rule in rules.values()):
            found.append(f"{event_id}: approved although nobody knows {STRANGER}")
        if approval["EventType"] == "Terminate" and len(approval["Resources"]) > 1:
            found.append(f"{event_id}: one VM approved the deletion of others")
        if at < first_end:
            found += [f"{event_id}: {words}" for words in _too_few(fleet, drawn, own, at)]
    for event_id, count in _confirmed(fleet).items():
        if count > 1:
            found.append(f"{event_id}: approved {count} times")
    return found


def _unready(fleet: Fleet, host: str, rule: Json, event_id: str, at: float) -> list[str]:
    before = [what for when, what in fleet.log(host) if when <= at]
    states = [what for what in before if what != "saved"]
    gone = [
        one["time"] for what in ("completed", "cancelled") for one in fleet.happened(what) if one["EventId"] == event_id
    ]
    back = [when for when, what in fleet.log(host) if what == "back" and at < when < min(gone, default=math.inf)]
    drains = rule["action"] == "drain_and_approve"
    found = {
        f"the policy of {host} says {rule['action']}": rule["action"] not in APPROVING,
        f"{host} had not claimed it": not any(created <= at for created in _claims(fleet, host, event_id)),
        f"{host} was not drained": drains and states[-1:] != ["drained"],
        f"{host} had not saved": drains and "saved" not in before[_last(before, "drained") :],
        f"{host} was put back while it stood": bool(back),
    }
    return [words for words, applies in found.items() if applies]


def _last(words: list[str], word: str) -> int:
    return max((number for number, one in enumerate(words) if one == word), default=len(words))


def _claims(fleet: Fleet, host: str, event_id: str) -> list[float]:
    files = [*(fleet.home(host) / "records").glob("*.json"), *(fleet.home(host) / "records" / "history").glob("*.json")]
    records = [json.loads(file.read_text()) for file in files]
    return [record["created"] for record in records if record["event"]["event_id"].lower() == event_id.lower()]


def _too_few(fleet: Fleet, drawn: Drawn, leaving: list[str], at: float) -> list[str]:
    wanted = drawn.common.get("graceful_min_available", 0)
    wanted = wanted["web"] if isinstance(wanted, dict) else wanted
    needed = math.ceil(drawn.size / 2) if wanted == "50%" else int(wanted)
    working = 0
    for host, name in fleet.names.items():
        states = [what for when, what in fleet.log(host) if when <= at and what != "saved"]
        working += name not in leaving and states[-1:] != ["drained"]
    # Otherwise some leave because Azure will not wait, and those outside the limit cannot be asked.
    can_wait = not drawn.limit and all(event["notice"] == 900 for event in drawn.events)
    return [f"only {working} hosts were left, {needed} are needed"] if working < needed and can_wait else []


def _confirmed(fleet: Fleet) -> dict[str, int]:
    """How often each approval was posted and answered well; what a fault hid from the client may be sent again."""
    counts: dict[str, int] = {}
    for post in fleet.posts():
        if post["status"] == 200 and not post["fault"]:
            for request in json.loads(post["body"])["StartRequests"]:
                counts[request["EventId"]] = counts.get(request["EventId"], 0) + 1
    return counts
