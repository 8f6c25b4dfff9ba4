# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs in memory: the loop of the controller with the real engine on hosts whose services and steps are fake.

Each host has a clock of its own, so that hosts work at the same time; a pass ends with the slowest of them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._errors import PassingFailure, Refused
from ansible_collections.graceful.azure.plugins.module_utils._look import Order
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, Run
from ansible_collections.graceful.azure.plugins.module_utils._record_files import Damaged, Folder
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Request
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._pass import PassInput
from ansible_collections.graceful.azure.plugins.plugin_utils._progress import messages
from ansible_collections.graceful.azure.plugins.plugin_utils._recap import report
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import advance, begin
from ansible_collections.graceful.azure.tests.unit.module_utils import fake_service
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import (
    EngineInOneProcess,
    Machine,
    WorkerInThisProcess,
    kinds_of,
    step,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import ScriptedTransport

Json = dict[str, t.Any]
# What a run has for options if nobody sets any.
OPTIONS: Json = {
    "wait": 0, "wait_round": 10, "serial": ["100%"], "forks": 50, "force_claim": False, "event": None,
    "check_mode": False, "drill": {}, "webhooks": False, "webhook_mistake": "",
}  # fmt: skip
START = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)


class HostClock(Clock):
    def __init__(self, world: World) -> None:
        self.now = world.now

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self.now, timezone.utc)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class MemoryFolder(Folder):
    """A record that is never written to a disk."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.text: str | None = None
        self.closed: list[Json] = []

    def inspect(self) -> None:
        pass

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        yield

    def read(self) -> Json | None:
        if self.text == "damaged":
            raise Damaged(self.file, "it is not JSON")
        return None if self.text is None else t.cast(Json, json.loads(self.text))

    def write(self, record: Json | None) -> None:
        self.text = None if record is None else json.dumps(record, allow_nan=False)

    def archive(self, entry: Json, event_id: str, now: float) -> None:
        self.closed.append(entry)

    def set_aside(self, now: float) -> str:
        self.text = None
        return "history/record.json.damaged"


class Event:
    """One event of Azure's, as a function of time."""

    def __init__(self, world: World, event_id: str, resources: t.Sequence[str], notice: float, **more: t.Any) -> None:
        self.event_id = event_id
        self.resources = list(resources)
        self.type: str = more.get("type", "Reboot")
        self.noticed: float = world.now + more.get("after", 0)
        self.not_before: float = self.noticed + notice
        self.lasts: float = more.get("lasts", 30)
        # How long Azure takes to act on an approval.
        self.delay: float = more.get("delay", 5)
        # How long after NotBefore Azure starts it by itself.
        self.late: float = more.get("late", 0)
        self.cancelled: float | None = None
        self.posts: list[tuple[float, str]] = []

    @property
    def starts(self) -> float:
        approved = [at + self.delay for at, _host in self.posts]
        return min([self.not_before + self.late, *approved])

    @property
    def ends(self) -> float:
        return self.starts + self.lasts

    def stands(self, now: float) -> bool:
        over = self.ends if self.cancelled is None or self.starts < self.cancelled else self.cancelled
        return self.noticed <= now < over

    def has_started(self, now: float) -> bool:
        return self.stands(now) and now >= self.starts

    def wire(self, now: float) -> Json:
        started = self.has_started(now)
        before = datetime.fromtimestamp(self.not_before, timezone.utc)
        return {
            "EventId": self.event_id,
            "EventType": self.type,
            "ResourceType": "VirtualMachine",
            "Resources": self.resources,
            "EventStatus": "Started" if started else "Scheduled",
            "NotBefore": "" if started else before.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }


class SimulatedHost:
    def __init__(self, world: World, name: str, directory: Path, **settings: t.Any) -> None:
        self.world = world
        self.name = name
        self.vm_name = f"vm-{name}"
        self.machine = Machine()
        self.load = kinds_of(self.machine)
        self.folder = MemoryFolder(str(directory))
        self.boot_id = "boot-1"
        self.steps: list[Json] = [step("app")]
        self.checkpoint: list[Json] = []
        self.mistakes: list[str] = []
        self.settings: Json = {"drain_budget": 30, "gone_timeout": 120, "confirm": False, **settings}
        # Seconds that a step takes.
        self.takes: dict[str, float] = {}
        # Whether it can be reached, and its service be read, at a given time.
        self.away: t.Callable[[float], bool] = lambda _now: False
        self.blind: t.Callable[[float], bool] = lambda _now: False
        # Whether the answer to a request for approval gets lost, and whether it is refused.
        self.loses_answer: t.Callable[[float], bool] = lambda _now: False
        self.refuses: t.Callable[[float], bool] = lambda _now: False
        self.sees: t.Callable[[Event], bool] = lambda _event: True
        self.clock = HostClock(world)
        self.worker = WorkerInThisProcess(self.clock)

    @property
    def record(self) -> Json | None:
        return self.folder.read()

    @property
    def is_drained(self) -> bool:
        return all(one["name"] in self.machine.out for one in self.steps)

    def is_down(self, now: float) -> bool:
        return any(event.type == "Reboot" and self.vm_name in event.resources and event.has_started(now)
                   and now < event.starts + event.lasts / 2 for event in self.world.events.values())  # fmt: skip

    def keeper(self, run_id: str, **more: t.Any) -> Keeper:
        keeper = Keeper(self.folder.path, Run(run_id, f"name of {run_id}", **more), self.clock, lambda _text: None)
        keeper.folder = self.folder
        return keeper

    def call(self, order: Order, run_id: str, **more: t.Any) -> Json:
        """One call of the module, which begins now; its answer as Ansible hands it over."""
        self.clock.now = self.world.now
        if self.away(self.clock.now) or self.is_down(self.clock.now):
            self.clock.now += order.wait
            return {"unreachable": True, "msg": "no route to host"}
        service = Service(fake_service.client(ScriptedTransport(self._answer), retries=0), "2020-07-01")
        service.client.clock = self.clock
        for name, seconds in self.takes.items():
            self.machine.after[f"do {name}"] = functools.partial(self.clock.sleep, seconds)
        with pytest.MonkeyPatch.context() as patch:
            loaders = {"drain": self.load, "checkpoint": self.load}
            patch.setattr("ansible_collections.graceful.azure.plugins.module_utils._steps.LOADERS", loaders)
            engine = EngineInOneProcess(self.worker, order, service, None, self.keeper(run_id, **more), self.boot_id)
            answer = engine.carry_out()
        if self.is_down(self.clock.now) or self.away(self.clock.now):
            # It went down with the call under way.
            self.boot_id = f"boot-{self.clock.now}"
            return {"unreachable": True, "msg": "the connection was lost"}
        return t.cast(Json, json.loads(json.dumps(answer)))

    def _answer(self, request: Request) -> Reply:
        now = self.clock.now
        if "/instance" in request.path:
            return fake_service.reply(200, {"compute": {"name": self.vm_name}})
        if request.method == "POST":
            return self._take_post(request, now)
        if self.blind(now):
            raise PassingFailure("HTTP 500")
        standing = [event.wire(now) for event in self.world.events.values() if event.stands(now) and self.sees(event)]
        date = (START + timedelta(seconds=now - START.timestamp())).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return fake_service.events(*standing, Date=date)

    def _take_post(self, request: Request, now: float) -> Reply:
        if self.refuses(now):
            raise Refused("It answered 400.", 400)
        for one in json.loads(request.body or b"{}")["StartRequests"]:
            self.world.posted(self.world.events[one["EventId"]], self, now)
        if self.loses_answer(now):
            raise PassingFailure("the answer was lost")
        return fake_service.reply(200, {})


class World:
    """Azure, the hosts, and the time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = START.timestamp()
        self.hosts: dict[str, SimulatedHost] = {}
        self.groups: dict[str, list[str]] = {"all": []}
        self.events: dict[str, Event] = {}
        # What must never be, and was.
        self.violations: list[str] = []

    def add(self, *names: str, groups: t.Sequence[str] = (), **settings: t.Any) -> list[SimulatedHost]:
        for name in names:
            place = self.directory / name
            place.mkdir(exist_ok=True)
            self.hosts[name] = SimulatedHost(self, name, place, **settings)
            for group in ("all", *groups):
                self.groups.setdefault(group, []).append(name)
        return [self.hosts[name] for name in names]

    def announce(self, event_id: str, *hosts: str, notice: float = 300, **more: t.Any) -> Event:
        names = [self.hosts[host].vm_name if host in self.hosts else host for host in hosts]
        event = self.events[event_id] = Event(self, event_id, names, notice, **more)
        return event

    def posted(self, event: Event, by: SimulatedHost, now: float) -> None:
        """Azure has got a request to start this event: now every host that it concerns has to be ready."""
        if event.posts and now - event.posts[-1][0] < 30:
            self.violations.append(f"{event.event_id} was posted again after {now - event.posts[-1][0]:.0f} s")
        event.posts.append((now, by.name))
        for name in event.resources:
            host = next((one for one in self.hosts.values() if one.vm_name == name), None)
            if host is None or not host.is_drained:
                self.violations.append(f"{event.event_id} was approved, but {name} is not ready")

    def drained(self) -> list[str]:
        return [name for name, host in self.hosts.items() if host.machine.out]


class Player:
    """One run of the playbook."""

    def __init__(
        self, world: World, run_id: str = "run-1", targeted: t.Sequence[str] | None = None, **options: t.Any
    ) -> None:
        self.world = world
        self.targeted = list(world.hosts if targeted is None else targeted)
        self.options: Json = {**OPTIONS, **options}
        self.run = begin(run_id, f"name of {run_id}", self.options, world.now)
        self.names: dict[str, str] = {}
        self.results: dict[str, Json] = {}
        self.lines: list[str] = []
        self.answer: t.Callable[[str], str] = lambda _event_id: ""
        self.asked: list[str] = []
        self.approved: list[tuple[str, str]] = []
        self.orders: list[tuple[int, str, str]] = []
        self.confirmations: dict[str, bool] = {}
        self.approvals: list[Json] = []

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    def one_pass(self) -> bool:
        """Whether the run goes on after it."""
        if self.run["finished"]:
            return False
        first = self.run["pass"] == 0
        if not first:
            self._confirm()
            self._approve()
        self._act((self.run["only"] or self.targeted) if first else self.run["involved"])
        before = self.run
        given = PassInput(
            hosts=self.results,
            groups=self.world.groups,
            inventory_names=self.names,
            now=self.world.now,
            approvals=self.approvals,
            confirmations=self.confirmations,
            not_asked=set(self.targeted).difference(self.run["only"] or self.targeted),
        )
        # All of it has to survive as JSON.
        self.run = json.loads(json.dumps(advance(before, given)))
        self.lines += messages(before, self.run, self.world.now)
        self._check_approvals()
        return not self.run["finished"]

    def play(self, passes: int = 400, each: t.Callable[[], t.Any] | None = None) -> Json:
        for _pass in range(passes):
            if each:
                each()
            if not self.one_pass():
                return self.report()
        raise AssertionError(f"the run does not end: {self.run['orders']}, {self.lines[-5:]}")

    def report(self) -> Json:
        return report(self.run)

    def play_until(self, over: t.Callable[[], bool], passes: int = 100) -> None:
        for _pass in range(passes):
            if over():
                return
            assert self.one_pass(), "the run ended before"
        raise AssertionError("it never came to that")

    # ---- what the playbook does

    def _confirm(self) -> None:
        self.confirmations = {}
        for one in self.run["confirm"] if self.run["next"] == "confirm.yml" else []:
            self.asked.append(one["event_id"])
            self.confirmations[one["event_id"]] = self.answer(one["event_id"]) == "yes"

    def _approve(self) -> None:
        self.approvals = []
        for one in self.run["approve"] if self.run["next"] == "approve.yml" else []:
            host = self.world.hosts[one["host"]]
            self.approved.append((one["event"]["event_id"], one["host"]))
            order = Order("approve", [one["event"]], max_age=one["max_age"])
            result = admitted(host.call(order, self.run_id))
            self.world.now = max(self.world.now, host.clock.now)
            self.approvals.append({**result, "event_id": one["event"]["event_id"], "host": one["host"]})

    def _act(self, hosts: t.Iterable[str]) -> None:
        ends = [self.world.now + 0.5]
        for name in hosts:
            host = self.world.hosts[name]
            order = self.run["orders"].get(name, {"order": "look"})
            self.orders.append((self.run["pass"] + 1, name, order["order"]))
            result = admitted(host.call(self._order(host, order), self.run_id, **self._claim(order)))
            ends.append(host.clock.now)
            self.results[name] = {
                **result,
                "host": name,
                "at": host.clock.now,
                "pass": self.run["pass"] + 1,
                "order": order["order"],
                "events": [one["event_id"] for one in order.get("events") or []],
                "settings": {**host.settings, "steps": len(host.steps) + len(host.checkpoint)},
                "mistakes": list(host.mistakes),
                "step": {"tasks": "user_tasks.yml"},
                "interruptions": [],
            }
        self.world.now = max(ends)

    def _claim(self, order: Json) -> Json:
        return {"force": self.options["force_claim"]} if order["order"] != "look" else {}

    def _order(self, host: SimulatedHost, order: Json) -> Order:
        more: Json = {"wait": order.get("wait", 0.0), "known": order.get("known", "")}
        if order["order"] in ("ready", "put_back"):
            wanted = order["order"] == "put_back" or order["drain"]
            more.update(steps=host.steps if wanted else [], checkpoint=host.checkpoint if wanted else [])
            more.update(fresh=order.get("fresh", 30.0))
            more.update(seconds=order["seconds"], undo_on_failure=bool(host.settings.get("undo_on_failure")))
            more["lapsed"] = order.get("lapsed") or []
            taken = self.run["controller_steps"].get(host.name)
            if taken and taken["mode"] != "look" and self.run["next"] == "controller_steps.yml":
                more["controller_step"] = self._take_step(host, taken)
        return Order(order["order"], order.get("events") or [], **more)

    def _take_step(self, host: SimulatedHost, taken: Json) -> Json:
        if taken["mode"] == "do":
            host.machine.act("do", taken["name"], lambda: host.machine.put_out(taken["name"]))
        elif taken["mode"] == "undo":
            host.machine.act("undo", taken["name"], lambda: host.machine.put_in(taken["name"]))
        keys = ("phase", "name", "kind", "mode")
        ok = taken["mode"] != "verify" or taken["name"] in host.machine.out
        return {**{key: taken[key] for key in keys}, "ok": ok, "message": "done"}

    # ---- what must always hold

    def _check_approvals(self) -> None:
        for one in self.run["approve"]:
            event_id = one["event"]["event_id"]
            entries = [event["entry"] for event in self.run["events"].values()]
            entry = next(entry for entry in entries if entry["event_id"] == event_id)
            for name in entry["hosts"]:
                result = self.results.get(name) or {}
                current = result.get("pass") == self.run["pass"] and result.get("order") == "ready"
                record = (result.get("observation") or {}).get("record") or {"events": {}}
                noted = record["events"].get(event_id.lower()) or {"ready": None, "claim": {}}
                if not noted["ready"] or noted["claim"]["run_id"] != self.run_id:
                    self.world.violations.append(f"{event_id} is to be approved against the record of {name}")
                if not current or (result["report"] or {}).get("state") != "ready" or event_id not in result["events"]:
                    self.world.violations.append(f"{event_id} is to be approved without a report of {name}")
            if entry["holds"] or not entry["hosts"] or entry["unknown_names"]:
                self.world.violations.append(f"{event_id} is to be approved although {entry['holds']}")
