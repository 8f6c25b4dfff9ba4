# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work that outlives the call that began it: looked in on, stopped, killed. With real processes; all of them end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _times, _worker
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._files import try_lock
from ansible_collections.graceful.azure.plugins.module_utils._record import LostClaim
from ansible_collections.graceful.azure.plugins.module_utils._worker import Worker
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import World, step, use_fake_kinds
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import seconds_at_most

Json = dict[str, t.Any]
OWNER = {"run_id": "run-1", "order": "ready", "events": ["a"]}


class Gate:
    """A step that hangs until it is let go; it writes down each time that it is begun and ended."""

    def __init__(self, directory: Path) -> None:
        self.log, self.open = directory / "log", directory / "open"

    def __call__(self) -> Json:
        self._write("begun")
        end = time.monotonic() + 30
        while not self.open.exists() and time.monotonic() < end:
            time.sleep(0.02)
        self._write("ended")
        return {}

    def _write(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{line}\n")

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def let_go(self) -> None:
        self.open.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def worker(tmp_path: Path) -> t.Iterator[Worker]:
    worker = Worker(str(tmp_path), Clock())
    yield worker
    end(worker)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[World]:
    monkeypatch.setattr(_times, "GONE_SECONDS_SCHEDULED", 0.0)
    monkeypatch.setattr(_worker, "GRACE", 2.0)
    world = World(tmp_path, Clock())
    world.detached = True
    world.steps = [step("app")]
    use_fake_kinds(world, monkeypatch)
    yield world
    world.directory.mkdir(exist_ok=True)
    end(Worker(str(world.directory), Clock()))


def end(worker: Worker) -> None:
    pid = worker.state().get("pid")
    if worker.is_running() and isinstance(pid, int):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        assert worker.wait(5)


def call_until(world: World, state: str, order: str, event: Json, **more: t.Any) -> Json:
    for _call in range(20):
        report = world.call(order, event, **more)
        if report["state"] == state:
            return report
        assert report["state"] in ("working", "waiting"), report
    raise AssertionError(f"it is never {state}")


def pid_of(world: World) -> int:
    pid = Worker(str(world.directory), Clock()).state()["pid"]
    assert isinstance(pid, int)
    return pid


def wait_for(what: t.Callable[[], t.Any]) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


# The worker by itself


def test_work_goes_on_beside_its_caller_and_leaves_its_result(worker: Worker, gate: Gate) -> None:
    def work(progress: t.Callable[[str], None]) -> Json:
        progress("half of it")
        gate()
        return {"state": "ready", "pid": os.getpid()}

    assert not worker.is_running()
    worker.start(OWNER, work)
    wait_for(lambda: gate.lines)
    assert worker.is_running()
    busy = worker.state()
    assert {key: busy[key] for key in OWNER} == OWNER
    assert busy["progress"] == "half of it"
    assert worker.wait(0.1) is False
    gate.let_go()
    assert worker.wait(10) is True
    assert worker.state()["result"] == {"state": "ready", "pid": busy["pid"]}
    assert busy["pid"] != os.getpid()
    assert not worker.is_running()


def test_there_is_one_worker_at_a_time(worker: Worker, gate: Gate) -> None:
    worker.start(OWNER, lambda _progress: gate())
    assert not worker.start(OWNER, lambda _progress: {})
    gate.let_go()
    assert worker.wait(10)


@contextlib.contextmanager
def looked_at(directory: Path, seconds: float) -> t.Iterator[None]:
    """Another call looks whether there is a worker, and is slow."""
    lock = try_lock(str(directory / _worker.LOCK), shared=True)
    assert lock is not None
    timer = threading.Timer(seconds, os.close, [lock])
    timer.start()
    yield
    timer.join()


def test_a_look_at_the_same_moment_is_no_worker(worker: Worker, tmp_path: Path) -> None:
    with looked_at(tmp_path, 0.1):
        assert not worker.is_running()
        assert worker.start(OWNER, lambda _progress: {"state": "ready"})
    assert worker.wait(10)
    with looked_at(tmp_path, 0.1):
        worker.note_reported(worker.state())
    assert worker.state()["reported"] is True


def test_a_worker_that_has_just_begun_is_stopped_at_once(worker: Worker, gate: Gate) -> None:
    with seconds_at_most(3):
        worker.start(OWNER, lambda _progress: gate())
        worker.stop()
    assert not worker.is_running()


def test_a_process_that_has_the_number_of_a_former_worker_by_now_is_left_alone(
    worker: Worker, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_worker, "GRACE", 0.2)
    worker.start(OWNER, lambda _progress: gate())
    wait_for(lambda: gate.lines)
    true = worker.state()
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as other:
        (tmp_path / _worker.STATE).write_text(json.dumps({**true, "pid": other.pid}))
        with pytest.raises(EventsError, match="does not end"):
            worker.stop()
        assert other.poll() is None
        other.kill()
    (tmp_path / _worker.STATE).write_text(json.dumps(true))


def test_a_result_is_not_written_over_that_of_a_worker_that_has_ended_since(worker: Worker) -> None:
    worker.work(OWNER, lambda _progress: {"state": "ready"})
    first = worker.state()
    worker.work({**OWNER, "run_id": "run-2"}, lambda _progress: {"state": "failed"})
    worker.note_reported(first)
    assert (worker.state()["run_id"], worker.state().get("reported")) == ("run-2", None)


def test_that_a_result_was_reported_is_not_noted_in_the_state_of_the_next_worker(worker: Worker, gate: Gate) -> None:
    worker.work(OWNER, lambda _progress: {"state": "ready"})
    first = worker.state()
    worker.start({**OWNER, "run_id": "run-2"}, lambda _progress: gate())
    wait_for(lambda: gate.lines)
    worker.note_reported(first)
    assert worker.state()["run_id"] == "run-2"
    gate.let_go()
    assert worker.wait(10)


def test_a_worker_holds_nothing_open_that_its_caller_waits_for(worker: Worker, gate: Gate) -> None:
    reader, writer = os.pipe()
    worker.start(OWNER, lambda _progress: gate())
    os.close(writer)
    wait_for(lambda: gate.lines)
    ready, _writable, _broken = select.select([reader], [], [], 5)
    assert ready
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (EventsError("not today"), "failed", "not today"),
        (EventsError("lost", state="held_by_other_run"), "held_by_other_run", "lost"),
        (KeyError("x"), "failed", "An error in graceful.azure itself: KeyError('x')"),
    ],
)
def test_what_the_work_raises_is_its_result(worker: Worker, error: Exception, state: str, said: str) -> None:
    def work(_progress: t.Callable[[str], None]) -> Json:
        raise error

    worker.work(OWNER, work)
    assert worker.state()["result"] == {"state": state, "message": said}
    worker.start(OWNER, work)
    assert worker.wait(10)
    assert worker.state()["result"] == {"state": state, "message": said}


@pytest.mark.parametrize("deaf", [False, True], ids=["ends", "ignores the signal"])
def test_a_worker_is_stopped_whether_it_wants_or_not(
    worker: Worker, gate: Gate, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    monkeypatch.setattr(_worker, "GRACE", 0.5)

    def work(_progress: t.Callable[[str], None]) -> Json:
        if deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        gate()
        return {}

    worker.start(OWNER, work)
    wait_for(lambda: gate.lines)
    worker.stop()
    assert not worker.is_running()
    assert gate.lines == ["begun"]
    assert "result" not in worker.state()


def test_a_worker_that_is_stopped_unwinds_and_ends_what_it_has_started(
    worker: Worker, gate: Gate, tmp_path: Path
) -> None:
    def work(_progress: t.Callable[[str], None]) -> Json:
        try:
            gate()
        finally:
            (tmp_path / "unwound").touch()
        return {}

    worker.start(OWNER, work)
    wait_for(lambda: gate.lines)
    worker.stop()
    assert (tmp_path / "unwound").exists()


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
@pytest.mark.parametrize("by", ["stop", "start"])
def test_a_program_does_not_outlive_its_worker_when_the_next_one_begins(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fate: signal.Signals, by: str
) -> None:
    monkeypatch.setattr(_worker, "GRACE", 1.0)
    begun, acted = tmp_path / "begun", tmp_path / "acted"
    go_on = tmp_path / "go-on"
    program = ["sh", "-c", f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done; touch {acted}"]
    worker.start(OWNER, lambda _progress: {"code": worker.runner(program, 30).code})
    wait_for(lambda: begun.exists() and (tmp_path / _worker.PROGRAM).exists())
    os.kill(worker.state()["pid"], fate)
    if by == "stop" or fate == signal.SIGSTOP:
        worker.stop()
    else:
        wait_for(lambda: not worker.is_running())
        worker.start(OWNER, lambda _progress: {})
        assert worker.wait(10)
    go_on.touch()
    time.sleep(1)
    assert not acted.exists()


def test_a_process_that_has_the_number_of_a_former_program_by_now_is_left_alone(worker: Worker, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as other:
        noted = {"group": other.pid, "began": "another boot 1"}
        (tmp_path / _worker.PROGRAM).write_text(json.dumps(noted))
        worker.start(OWNER, lambda _progress: {})
        assert worker.wait(10)
        assert other.poll() is None
        other.kill()
    assert not (tmp_path / _worker.PROGRAM).exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"x"'])
def test_a_state_file_that_makes_no_sense_is_no_state(worker: Worker, tmp_path: Path, content: str) -> None:
    (tmp_path / _worker.STATE).write_text(content)
    assert worker.state() == {}
    assert not worker.is_running()
    worker.stop()


def test_the_state_file_is_private_and_never_written_through_a_link(worker: Worker, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / f"{_worker.STATE}.draft").symlink_to(target)
    worker.work(OWNER, lambda _progress: {})
    assert target.read_text() == "mine"
    (tmp_path / f"{_worker.STATE}.draft").unlink(missing_ok=True)
    worker.work(OWNER, lambda _progress: {})
    assert oct((tmp_path / _worker.STATE).stat().st_mode & 0o777) == "0o600"


# The engine with it


def test_a_call_returns_after_its_time_and_the_next_one_attaches_to_the_same_work(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.machine.before["do app"] = gate
    with seconds_at_most(5):
        assert world.call("ready", event, wait=1)["state"] == "working"
    # On a slow machine the work may begin after the first call.
    wait_for(lambda: gate.lines)
    report = world.call("ready", event, wait=1)
    assert report["state"] == "working"
    assert report["message"].startswith("app")
    gate.let_go()
    assert call_until(world, "ready", "ready", event, wait=1)["state"] == "ready"
    assert gate.lines == ["begun", "ended"]
    assert world.noted() == {"app": "done"}


def test_the_call_of_another_run_stops_the_work(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=1)
    wait_for(lambda: gate.lines)
    first = pid_of(world)
    report = world.call("ready", event, run="run-2", force=True, wait=1)
    assert report["state"] == "working"
    assert pid_of(world) != first
    assert world.entry()["claim"]["run_id"] == "run-2"
    gate.let_go()
    call_until(world, "ready", "ready", event, run="run-2", wait=1)
    assert gate.lines[:3] == ["begun", "begun", "ended"]


def test_the_work_of_another_run_for_another_event_goes_on_and_its_result_is_not_taken_for_ones_own(
    world: World, gate: Gate
) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.machine.before["do app"] = gate
    world.call("ready", first, wait=1)
    wait_for(lambda: gate.lines)
    at_work = pid_of(world)
    # The second event needs nothing drained.
    report = world.call("ready", second, run="run-2", steps=[], wait=1)
    assert report["state"] == "working"
    assert report["message"].startswith("waits until another run has finished its work on this host")
    assert pid_of(world) == at_work
    assert world.call("ready", first, wait=1)["state"] == "working"
    gate.let_go()
    assert call_until(world, "ready", "ready", second, run="run-2", steps=[], wait=1)["state"] == "ready"
    assert world.machine.out == set(), "the fake step acts in a process of its own"
    assert gate.lines == ["begun", "ended"]
    # What the other run's work came to is in the state file now.
    assert world.entry("a")["ready"] is not None
    assert call_until(world, "ready", "ready", first, wait=1)["state"] == "ready"


def test_a_result_of_another_runs_work_is_never_the_answer(world: World, gate: Gate) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.machine.before["do app"] = gate
    world.call("ready", first, wait=1)
    wait_for(lambda: gate.lines)
    worker = Worker(str(world.directory), Clock())
    os.kill(pid_of(world), signal.SIGKILL)
    assert worker.wait(10)
    engine = world.engine("ready", first, wait=1)
    owner = engine._owner("ready", ["a"])
    assert world.call("ready", second, run="run-2", steps=[], wait=2)["state"] == "ready"
    assert engine._result(owner)["state"] == "working"
    assert world.entry("a")["ready"] is None


def test_a_run_that_has_lost_its_claim_stops_no_work(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.machine.before["do app"] = gate
    world.call("ready", event, run="run-2", wait=1)
    wait_for(lambda: gate.lines)
    # It was suspended after it had claimed the event. Since then run-2 has it, but was silent for long.
    suspended = world.engine("ready", event, wait=1)
    world.keeper("run-2", silent_for=-1.0).renew(["a"])
    with pytest.raises(LostClaim):
        suspended._work("ready", ["a"], lambda steps: steps.get_ready())
    gate.let_go()
    assert call_until(world, "ready", "ready", event, run="run-2", wait=1)["state"] == "ready"
    assert gate.lines == ["begun", "ended"]


def test_what_the_file_system_refuses_to_the_worker_is_a_failure_with_advice(world: World) -> None:
    event = world.azure.announce()
    world.directory.mkdir(0o700)
    (world.directory / _worker.LOCK).symlink_to("/nowhere")
    report = world.call("ready", event, wait=1)
    assert report["state"] == "failed"
    assert "move it away" in report["message"]
    (world.directory / _worker.LOCK).unlink()


def test_putting_back_stops_a_drain_that_hangs(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=1)
    wait_for(lambda: gate.lines)
    world.azure.end()
    assert call_until(world, "put_back", "put_back", event, wait=2)["state"] == "put_back"
    assert gate.lines == ["begun"]
    assert world.record() is None


@pytest.mark.parametrize(("run", "lines"), [("run-1", ["begun"]), ("run-2", ["begun", "ended"])])
def test_a_release_stops_the_work_of_its_own_run_only(world: World, gate: Gate, run: str, lines: list[str]) -> None:
    event = world.azure.announce()
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=1)
    wait_for(lambda: gate.lines)
    world.call("release", event, run=run)
    gate.let_go()
    assert Worker(str(world.directory), Clock()).wait(10)
    assert gate.lines == lines


def test_work_that_was_killed_goes_on_with_the_next_call(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.steps = [step("cache"), step("app")]
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=1)
    wait_for(lambda: gate.lines)
    assert world.noted() == {"cache": "done", "app": "doing"}
    os.kill(pid_of(world), signal.SIGKILL)
    gate.let_go()
    assert call_until(world, "ready", "ready", event, wait=1)["state"] == "ready"
    assert world.noted() == {"cache": "done", "app": "done"}


def test_the_result_of_work_that_ended_between_two_calls_is_told_by_the_next_one(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.call("ready", event, wait=5)
    world.machine.before["undo app"] = gate
    world.azure.end()
    for _call in range(3):
        assert world.call("put_back", event, wait=2)["state"] in ("waiting", "working")
    gate.let_go()
    assert Worker(str(world.directory), Clock()).wait(10)
    assert world.record() is None
    report = world.call("put_back", event, wait=2)
    assert report["state"] == "put_back"
    assert [mark["what"] for mark in report["closed"]["timeline"]].count("ready") == 1
    assert world.record() is None


def test_what_the_work_did_between_two_calls_is_a_change_of_the_call_that_tells_its_result(
    world: World, gate: Gate
) -> None:
    event = world.azure.announce()
    world.steps = []
    assert world.engine("ready", event, wait=5).carry_out()["changed"], "it was claimed"
    world.steps = [step("app")]
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=0)
    wait_for(lambda: gate.lines)
    looked = world.engine("look", wait=0).carry_out()
    gate.let_go()
    assert Worker(str(world.directory), Clock()).wait(10)
    assert (looked["changed"], world.noted()) == (False, {"app": "done"})
    world.machine.put_out("app")
    told = world.engine("ready", event, wait=0).carry_out()
    assert (told["report"]["state"], told["changed"]) == ("ready", True)
    again = world.engine("ready", event, wait=0).carry_out()
    assert (again["report"]["state"], again["changed"]) == ("ready", False), "each change is told once"


def test_what_was_done_by_work_that_was_killed_is_a_change_of_the_call_that_goes_on(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.steps = []
    world.call("ready", event, wait=5)
    world.steps = [step("cache"), step("app")]
    world.machine.before["do app"] = gate
    world.call("ready", event, wait=0)
    wait_for(lambda: gate.lines)
    os.kill(pid_of(world), signal.SIGKILL)
    assert Worker(str(world.directory), Clock()).wait(10)
    world.machine.put_out("cache")
    world.steps = [step("cache")]
    told = world.engine("ready", event, wait=5).carry_out()
    assert (told["report"]["state"], told["changed"]) == ("ready", True)


def test_a_result_is_told_also_if_another_run_holds_one_of_the_events(world: World, gate: Gate) -> None:
    event, other = world.azure.announce(), world.azure.announce("B")
    world.call("ready", event, wait=5)
    world.keeper("run-2").claim([other], world.boot_id)
    world.machine.before["undo app"] = gate
    world.azure.end()
    world.azure.end("B")
    for _call in range(3):
        assert world.call("put_back", event, other, wait=2)["state"] in ("waiting", "working")
    gate.let_go()
    assert Worker(str(world.directory), Clock()).wait(10)
    report = world.call("put_back", event, other, wait=2)
    assert report["state"] == "put_back"
    assert [mark["what"] for mark in report["closed"]["timeline"]].count("ready") == 1
    assert list(world.keeper().entries()) == ["b"]


def test_a_step_is_not_handed_to_the_controller_if_the_claim_was_lost_since(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    asked = world.call("ready", event, wait=5)["next"]
    call_until(world, "ready", "ready", event, wait=5, controller_step={**asked, "ok": True})
    world.machine.before["undo app"] = gate
    world.azure.end()
    for _call in range(3):
        assert world.call("put_back", event, wait=2)["state"] in ("waiting", "working")
    gate.let_go()
    assert Worker(str(world.directory), Clock()).wait(10)
    world.take_over(event)
    assert world.call("put_back", event, wait=2)["state"] == "held_by_other_run"


def test_a_result_that_was_told_is_not_told_again(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event, wait=5)
    world.machine.fail("undo app")
    world.azure.end()
    assert call_until(world, "failed", "put_back", event, wait=3).get("tried") is None
    assert world.call("put_back", event, wait=1)["tried"] is False


def test_work_that_takes_long_keeps_its_claim_alive(world: World, gate: Gate) -> None:
    event = world.azure.announce()
    world.call("ready", event, wait=5)
    world.machine.before["undo app"] = gate
    world.azure.end()
    for _call in range(3):
        world.call("put_back", event, wait=2)
    sooner = world.entry()["claim"]["silent_until"]
    world.call("put_back", event, wait=1)
    assert world.entry()["claim"]["silent_until"] > sooner
    gate.let_go()
