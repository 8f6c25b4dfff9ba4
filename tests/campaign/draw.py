# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is drawn for one random maintenance: the fleet, what Azure announces, and what goes wrong when."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass, field

Json = dict[str, t.Any]

# What is drawn happens when the first host has come so far: marks in its record, and "drained" on its disk.
PHASES = ("start", "claimed", "draining", "drained", "checkpointed", "ready", "approved", "restoring")
STATUSES = ("400", "404", "410", "429", "500", "503")
SPOILED = ("reset", "redirect", "html", "empty", "truncated", "oversized", "bom", "no_date")
STRANGER = "stranger_9"


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
