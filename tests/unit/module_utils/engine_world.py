# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host for the tests of the engine: a metadata service that answers from a list of events, and fake kinds."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _steps
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._engine import Engine
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure
from ansible_collections.graceful.azure.plugins.module_utils._kind import Done, Found, Json, Kind, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._look import Order
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, Run
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Request
from ansible_collections.graceful.azure.plugins.module_utils._worker import Work, Worker
from ansible_collections.graceful.azure.tests.unit.module_utils import fake_service
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import ScriptedTransport
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock


def fail(error: Exception) -> t.NoReturn:
    raise error


class Azure:
    """What the service knows. `approves` is what a POST does to an event."""

    def __init__(self) -> None:
        self.events: dict[str, Json] = {}
        self.posts: list[str] = []
        self.reads = 0
        # None on a classic VM.
        self.name: str | None = "web_0"
        self.asked_for_name = 0
        # Called before each answer: something may happen between two reads.
        self.before_read: t.Callable[[int], None] = lambda _number: None
        self.before_post: t.Callable[[], None] = lambda: None
        self.refuses: Exception | Reply | None = None
        self.unreadable: Exception | None = None

    def announce(self, event_id: str = "A", status: str = "Scheduled", **fields: t.Any) -> Json:
        wire = {**fake_service.event(event_id, status, fields.pop("resources", ("web_0",))), **fields}
        self.events[event_id] = wire
        return order_event(wire)

    def start(self, event_id: str = "A") -> None:
        self.events[event_id].update(EventStatus="Started", NotBefore="")

    def end(self, event_id: str = "A") -> None:
        del self.events[event_id]

    def answer(self, request: Request) -> Reply:
        if "/instance" in request.path:
            self.asked_for_name += 1
            return fake_service.reply(200, {"compute": {"name": self.name}}) if self.name else fake_service.reply(404)
        if request.method == "POST":
            self.before_post()
            posted = [one["EventId"] for one in json.loads(request.body or b"{}")["StartRequests"]]
            self.posts.extend(posted)
            if isinstance(self.refuses, Exception):
                fail(self.refuses)
            return self.refuses or fake_service.reply(200, {})
        self.reads += 1
        self.before_read(self.reads)
        if self.unreadable:
            fail(self.unreadable)
        return fake_service.events(*self.events.values(), incarnation=self.reads)


def order_event(wire: Json) -> Json:
    """The event as the controller hands it back."""
    return {
        "event_id": wire["EventId"],
        "event_type": wire["EventType"],
        "event_status": wire["EventStatus"],
        "resources": wire["Resources"],
    }


class Killed(BaseException):
    """The process ends at this point."""


class Machine:
    """What the fake steps change. `happened` has each change once, in order."""

    def __init__(self) -> None:
        self.out: set[str] = set()
        self.happened: list[str] = []
        # What to do before an action such as "do app": fail, be killed, lose the claim.
        self.before: dict[str, t.Callable[[], object]] = {}
        self.after: dict[str, t.Callable[[], object]] = {}

    def put_out(self, name: str) -> bool:
        """Whether that was a change."""
        was_in = name not in self.out
        self.out.add(name)
        return was_in

    def put_in(self, name: str) -> bool:
        was_out = name in self.out
        self.out.discard(name)
        return was_out

    def act(self, what: str, name: str, change: t.Callable[[], bool]) -> None:
        self.before.get(f"{what} {name}", lambda: None)()
        if change():
            self.happened.append(f"{what} {name}")
        self.after.get(f"{what} {name}", lambda: None)()

    def fail(self, action: str, times: int = 1_000, error: Exception | None = None) -> None:
        left = [times]

        def step_fails() -> None:
            if left[0] > 0:
                left[0] -= 1
                raise error or EventsError(f"{action} does not work")

        self.before[action] = step_fails


class WorkerInThisProcess(Worker):
    """Has done its work when it was started, and keeps its state in memory."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("", clock)
        self._kept: Json = {}

    def is_running(self) -> bool:
        return False

    def state(self) -> Json:
        return dict(self._kept)

    def start(self, owner: Json, work: Work) -> bool:
        self.work(owner, work)
        return True

    def note_reported(self, state: Json) -> None:
        self._kept = {**state, "reported": True}

    def wait(self, seconds: float) -> bool:
        return True

    def _write(self, state: Json, path: str = "") -> None:
        self._kept = state


class EngineInOneProcess(Engine):
    def __init__(self, worker: Worker, *given: t.Any) -> None:
        super().__init__(*given)
        self._one_worker = worker

    @property
    def _worker(self) -> Worker:
        return self._one_worker


class World:
    """One host, and runs that call its engine."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self.directory = directory / "records"
        self.clock = clock or JumpingClock()
        self.azure = Azure()
        self.machine = Machine()
        self.boot_id = "boot-1"
        self.steps: list[Json] = []
        self.checkpoint: list[Json] = []
        # Whether the work is done in a process of its own, as it is on a real host.
        self.detached = False
        self.worker = WorkerInThisProcess(self.clock)

    def keeper(self, run: str = "run-1", **more: t.Any) -> Keeper:
        return Keeper(str(self.directory), Run(run, f"name of {run}", **more), self.clock, lambda _text: None)

    def service(self) -> Service:
        jumping = self.clock if isinstance(self.clock, JumpingClock) else None
        made = fake_service.client(ScriptedTransport(self.azure.answer), jumping, retries=0)
        return Service(made, "2020-07-01")

    def engine(self, order: str, *events: Json, run: str = "run-1", force: bool = False, **more: t.Any) -> Engine:
        work = {"steps": self.steps, "checkpoint": self.checkpoint} if order in ("ready", "put_back") else {}
        made = Order(order, events, **{**work, **more})
        given = (made, self.service(), None, self.keeper(run, force=force), self.boot_id)
        return Engine(*given) if self.detached else EngineInOneProcess(self.worker, *given)

    def call(self, order: str, *events: Json, **more: t.Any) -> Json:
        """The report of one call."""
        report: Json = self.engine(order, *events, **more).carry_out()["report"]
        return report

    def record(self) -> Json | None:
        return self.keeper().read()

    def record_or_fail(self) -> Json:
        record = self.record()
        assert record is not None
        return record

    def entry(self, event_id: str = "a") -> Json:
        entry: Json = self.record_or_fail()["events"][event_id]
        return entry

    def noted(self) -> dict[str, str]:
        record = self.record()
        return {step["name"]: step["status"] for step in record["steps"]} if record else {}

    def take_over(self, *events: Json, run: str = "run-2") -> None:
        """Another run takes the claim, whoever has it."""
        self.keeper(run, force=True).claim(events, self.boot_id)


def step(name: str, kind: str = "app", timeout: float | None = None, **options: t.Any) -> Json:
    return {"name": name, "kind": kind, "timeout": timeout, "options": {"what": name, **options}}


def kinds_of(machine: Machine) -> t.Callable[[str], type[Kind]]:
    """Loads fake kinds that act on the machine."""

    class App(Kind):
        def look(self) -> Found:
            machine.before.get(f"look {self.params['what']}", lambda: None)()
            out = self.params["what"] in machine.out
            return Found(out, "out" if out else "in", {"in_service": not out})

        def do(self) -> Done:
            machine.act("do", self.params["what"], lambda: machine.put_out(self.params["what"]))
            return Done("out", {})

        def undo(self, record: StepRecord) -> str:
            assert record.before["in_service"], "what was out before is not put back"
            machine.act("undo", self.params["what"], lambda: machine.put_in(self.params["what"]))
            return "in"

    class Traffic(App):
        carries_traffic = True

    class Remote(Traffic):
        by_controller = True

    class RemoteLooked(Remote):
        looks_first = True

    class Save(App):
        def do(self) -> Done:
            super().do()
            return Done("saved", {"archive": "/a.tar.gz", "fetched": bool(self.params.get("fetched"))})

        def is_saved(self, record: StepRecord) -> bool:
            return not self.params.get("gone")

        def undo(self, record: StepRecord) -> str:
            machine.happened.append(f"undo {self.params['what']}{' lost' if record.lost else ''}")
            return "back"

    kinds = {"app": App, "traffic": Traffic, "remote": Remote, "remote_looked": RemoteLooked, "save": Save}

    def load(name: str) -> type[Kind]:
        if name not in kinds:
            raise EventsError(f"no kind {name}")
        return kinds[name]

    return load


def use_fake_kinds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    load = kinds_of(world.machine)
    monkeypatch.setattr(_steps, "LOADERS", {"drain": load, "checkpoint": load})


def no_answer() -> PassingFailure:
    return PassingFailure("the connection was lost")
