# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draining, saving and undoing: in which order, what is noted, and what happens when something fails or is cut off."""

from __future__ import annotations

import contextlib
import errno
import itertools
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _health_checks
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._record_files import Folder
from ansible_collections.graceful.azure.plugins.module_utils._steps import archive_name
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import (
    Killed,
    World,
    step,
    use_fake_kinds,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

Json = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return prepared(tmp_path, monkeypatch)


def prepared(directory: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(directory)
    use_fake_kinds(world, monkeypatch)
    monkeypatch.setattr(_health_checks, "check", lambda *_given: world.machine.act("check", "health", lambda: True))
    return world


def jump(world: World, seconds: float) -> None:
    assert isinstance(world.clock, JumpingClock)
    world.clock.now += seconds


def put_back(world: World, event: Json, **more: t.Any) -> Json:
    """From the moment at which the event is gone."""
    world.azure.events.clear()
    return world.call("put_back", event, wait=30, **more)


# The order of things


def test_a_host_is_drained_in_order_saved_and_then_ready(world: World) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("lb", "traffic"), step("app")], [step("data", "save")]
    report = world.call("ready", event)
    assert report["state"] == "ready"
    assert report["message"] == "2 drain steps done, 1 checkpoint saved, all verified"
    assert world.machine.happened == ["do lb", "do app", "do data"]
    assert world.noted() == {"lb": "done", "app": "done", "data": "done"}
    assert world.entry()["ready"] is not None


def test_a_host_is_put_back_last_first_and_traffic_returns_after_the_health_check(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app"), step("cache")]
    world.checkpoint = [step("data", "save")]
    world.call("ready", event)
    world.machine.happened.clear()
    report = put_back(world, event, health=[{"port": 80}])
    assert report["state"] == "put_back"
    assert world.machine.happened == ["undo data", "undo cache", "undo app", "check health", "undo lb"]
    assert world.record() is None
    assert [mark["what"] for mark in report["closed"]["timeline"]][-1] == "restored"


@pytest.mark.parametrize(("kind", "started", "lost"), [("Reboot", True, True), ("Freeze", True, False),
                                                       ("Redeploy", False, False)])  # fmt: skip
def test_what_was_saved_comes_back_as_lost_only_if_the_event_started_and_loses_something(
    world: World, kind: str, started: bool, lost: bool
) -> None:
    event = world.azure.announce(EventType=kind)
    world.checkpoint = [step("data", "save")]
    world.call("ready", event)
    if started:
        world.azure.start()
        assert world.call("put_back", event)["state"] == "waiting"
    put_back(world, event)
    assert world.machine.happened[-2] == ("undo data lost" if lost else "undo data")


def test_an_event_that_needs_no_drain_is_ready_at_once_and_leaves_nothing_behind(world: World) -> None:
    event = world.azure.announce()
    assert world.call("ready", event)["state"] == "ready"
    assert put_back(world, event)["state"] == "put_back"
    assert world.machine.happened == []


def test_a_host_is_ready_no_more_from_the_moment_at_which_a_step_is_taken_again(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.machine.out.clear()

    def killed_in_it() -> None:
        raise Killed

    world.machine.before["do app"] = killed_in_it
    with pytest.raises(Killed):
        world.call("ready", event)
    assert world.entry()["ready"] is None
    assert world.call("approve", event)["state"] == "failed"
    assert world.azure.posts == []


# What was there before


def test_what_was_out_of_service_before_is_left_so(world: World) -> None:
    event = world.azure.announce()
    world.machine.out.add("app")
    world.steps = [step("app"), step("lb", "traffic")]
    world.call("ready", event)
    put_back(world, event)
    assert world.machine.out == {"app"}


def test_what_this_run_took_out_itself_is_never_taken_for_out_before(world: World) -> None:
    world.steps = [step("app")]
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.call("ready", first)
    world.call("ready", first, second)
    world.azure.end("A")
    world.call("ready", second, run="run-2", force=True)
    assert world.machine.happened == ["do app"]
    report = put_back(world, second, run="run-2")
    assert report["state"] == "put_back"
    assert world.machine.out == set()


def test_what_somebody_put_back_by_hand_is_drained_again_and_still_undone_in_the_end(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.machine.out.clear()
    assert world.call("ready", event)["state"] == "ready"
    assert world.machine.out == {"app"}
    put_back(world, event)
    assert world.machine.out == set()


def test_what_was_saved_is_saved_again_when_the_host_was_in_service_meanwhile(world: World) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("app")], [step("data", "save")]
    world.call("ready", event)
    world.machine.out.clear()
    world.machine.happened.clear()
    assert world.call("ready", event)["state"] == "ready"
    assert world.machine.happened == ["do app", "do data"]
    world.machine.happened.clear()
    assert world.call("ready", event)["state"] == "ready"
    assert world.machine.happened == []


def test_what_was_saved_is_saved_again_if_it_is_not_there_any_more_or_other_paths_are_to_be_saved(
    world: World,
) -> None:
    event = world.azure.announce()
    world.checkpoint = [step("data", "save")]
    world.call("ready", event)
    for checkpoint in ([step("data", "save", fetched=False)], [step("data", "save", gone=True)]):
        world.checkpoint = checkpoint
        world.machine.out.clear()
        world.machine.happened.clear()
        assert world.call("ready", event)["state"] == "ready"
        assert world.machine.happened == ["do data"]
    world.machine.out.clear()
    world.machine.happened.clear()
    assert world.call("ready", event)["state"] == "ready"
    assert world.machine.happened == ["do data"]


def test_what_was_saved_before_is_put_back_if_it_could_not_be_saved_again(world: World) -> None:
    event = world.azure.announce()
    world.checkpoint = [step("data", "save")]
    world.call("ready", event)
    world.checkpoint = [step("data", "save", other=True)]
    world.machine.fail("do data")
    assert world.call("ready", event)["state"] == "failed"
    record = world.record()
    assert record is not None
    assert record["steps"][0]["data"]["archive"] == "/a.tar.gz"


def test_what_was_saved_before_is_put_back_if_saving_it_again_was_cut_off(world: World) -> None:
    event = world.azure.announce()
    world.checkpoint = [step("data", "save")]
    world.call("ready", event)
    world.checkpoint = [step("data", "save", other=True)]

    def killed_in_it() -> None:
        raise Killed

    world.machine.before["do data"] = killed_in_it
    with pytest.raises(Killed):
        world.call("ready", event)
    record = world.record()
    assert record is not None
    assert (record["steps"][0]["status"], record["steps"][0]["data"]["archive"]) == ("doing", "/a.tar.gz")


# Failures


def test_a_failed_step_holds_up_those_after_it_and_what_is_drained_stays_drained(world: World) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("lb", "traffic"), step("app"), step("cache")], [step("data", "save")]
    world.machine.fail("do app")
    report = world.call("ready", event)
    assert (report["state"], report["step"], report["attempts"], report["next_try"]) == ("failed", "app", 1, 10)
    assert report["message"] == "Drain step 'app' (app) failed: do app does not work"
    assert world.machine.happened == ["do lb"]
    assert world.machine.out == {"lb"}
    assert world.entry()["ready"] is None
    assert world.noted() == {"lb": "done", "app": "failed"}


def test_a_host_that_was_ready_and_fails_its_verification_is_ready_no_more(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.machine.fail("look app")
    assert world.call("ready", event)["state"] == "failed"
    assert world.entry()["ready"] is None


def test_failed_steps_are_tried_again_after_ten_twenty_forty_and_then_every_sixty_seconds(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    tries: list[float] = []

    def note_the_try() -> None:
        tries.append(world.clock.monotonic())
        raise EventsError("no")

    world.machine.before["do app"] = note_the_try
    for _pass in range(60):
        assert world.call("ready", event, wait=5, known="x" if _pass % 2 else "")["state"] == "failed"
        jump(world, 1)
    pauses = [round(later - sooner) for sooner, later in itertools.pairwise(tries)]
    assert pauses[:5] == sorted(pauses[:5])
    for pause, least in zip(pauses, (10, 20, 40, 60, 60), strict=False):
        assert least <= pause <= least + 6


def test_while_it_waits_for_the_next_try_it_says_what_failed_and_that_it_was_not_tried(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("do app", times=1)
    first = world.call("ready", event)
    again = world.call("ready", event)
    assert (again["state"], again["step"], again["attempts"], again["tried"]) == ("failed", "app", 1, False)
    assert again["message"] == first["message"]
    assert 0 < again["next_try"] <= 10
    jump(world, 11)
    assert world.call("ready", event)["state"] == "ready"


def test_a_step_that_was_mended_is_done_and_its_next_failure_is_counted_anew(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("do app", times=2)
    for _try in range(3):
        report = world.call("ready", event)
        jump(world, 61)
    assert report["state"] == "ready"
    world.machine.fail("undo app", times=1)
    world.azure.events.clear()
    assert world.call("put_back", event, wait=30)["attempts"] == 1


def test_a_step_that_ends_after_its_time_is_late(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.after["do app"] = lambda: jump(world, 61)
    report = world.call("ready", event, seconds=60)
    assert (report["state"], report["late"]) == ("failed", True)
    assert "was not done in time" in report["message"]
    # It was done although too late: it has to be undone.
    put_back(world, event)
    assert world.machine.out == set()


def test_no_step_is_begun_when_the_time_is_over(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app")]
    world.machine.after["do lb"] = lambda: jump(world, 60)
    report = world.call("ready", event, seconds=60)
    assert (report["state"], report["late"], report["step"]) == ("failed", True, "app")
    assert world.machine.happened == ["do lb"]


def test_a_step_that_is_late_by_its_own_word_is_reported_so(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app", timeout=5)]
    world.machine.fail("do app", error=Late("After 5 s still: 3 connections."))
    report = world.call("ready", event)
    assert report["late"] is True
    assert report["message"] == "Drain step 'app' (app) was not done in time: After 5 s still: 3 connections."


@pytest.mark.parametrize("kind", ["Preempt", "Terminate"])
def test_a_machine_that_is_taken_away_is_saved_although_its_drain_failed(world: World, kind: str) -> None:
    event = world.azure.announce(EventType=kind)
    world.steps, world.checkpoint = [step("app")], [step("data", "save")]
    world.machine.fail("do app")
    report = world.call("ready", event)
    assert (report["state"], report["step"]) == ("failed", "app")
    assert world.machine.happened == ["do data"]


def test_any_other_machine_is_not_saved_while_it_is_not_drained(world: World) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("app")], [step("data", "save")]
    world.machine.fail("do app")
    world.call("ready", event)
    assert world.machine.happened == []


def test_a_step_that_failed_before_it_was_begun_is_not_undone(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("look app")
    world.call("ready", event)
    del world.machine.before["look app"]
    world.machine.fail("undo app")
    jump(world, 60)
    assert put_back(world, event)["state"] == "put_back"


def test_an_error_of_the_engine_itself_is_a_failure_with_words(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("do app", error=ZeroDivisionError("x"))
    report = world.call("ready", event)
    assert report["state"] == "failed"
    assert "ZeroDivisionError" in report["message"]


def test_a_step_of_another_kind_under_the_same_name_is_refused_until_the_first_is_undone(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.steps = [step("app", "traffic")]
    report = world.call("ready", event)
    assert report["state"] == "failed"
    assert "another name" in report["message"]
    assert put_back(world, event)["state"] == "put_back"
    assert world.machine.out == set()


def test_a_failed_undo_is_noted_and_tried_again(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app")]
    world.call("ready", event)
    world.machine.fail("undo app", times=1)
    report = put_back(world, event)
    assert (report["state"], report["step"], report["next_try"]) == ("failed", "app", 10)
    assert world.machine.out == {"lb", "app"}
    assert world.noted() == {"lb": "done", "app": "failed"}
    assert put_back(world, event)["state"] == "put_back"
    assert world.machine.out == set()


def test_a_host_is_not_put_back_while_nobody_knows_what_has_to_be_well(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app")]
    world.call("ready", event)
    report = put_back(world, event, health_mistake="graceful_health cannot be evaluated")
    assert report["message"] == "The host is not healthy: graceful_health cannot be evaluated"
    assert world.noted() == {"lb": "done", "app": "undone"}
    assert world.call("put_back", event, wait=30)["state"] == "put_back"


@pytest.mark.parametrize("steps", [[step("app")], [step("app"), step("lb", "traffic")]], ids=["no traffic", "traffic"])
def test_a_host_that_is_not_well_is_not_put_back_and_checked_again_each_time(world: World, steps: list[Json]) -> None:
    event = world.azure.announce()
    world.steps = steps
    world.call("ready", event)
    world.machine.fail("check health", times=2)
    for attempt in (1, 2):
        report = put_back(world, event)
        assert (report["state"], report["step"], report["attempts"]) == ("failed", "health", attempt)
        assert "not healthy" in report["message"]
        assert "lb" in world.machine.out or len(steps) == 1
    assert put_back(world, event)["state"] == "put_back"
    assert world.machine.out == set()
    assert world.machine.happened.count("check health") == 1


def test_a_host_that_stays_unhealthy_does_not_fill_its_record(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.machine.fail("check health")
    for attempt in range(1, 8):
        assert put_back(world, event)["attempts"] == attempt
    assert [mark["what"] for mark in world.record_or_fail()["timeline"]].count("failed") == 1
    world.machine.fail("check health", error=EventsError("another reason"))
    put_back(world, event)
    assert world.record_or_fail()["timeline"][-1]["detail"] == "another reason"


def test_the_record_of_a_host_that_is_not_healthy_is_released_and_stays(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.machine.fail("check health", times=1)
    assert put_back(world, event)["state"] == "failed"
    assert world.call("release", event)["state"] == "released"
    jump(world, 1)
    # Nobody has it: another run checks at once whether the host is well, and closes the record.
    assert put_back(world, event, run="run-2")["state"] == "put_back"
    assert "check health" in world.machine.happened


def test_health_checks_take_no_longer_than_the_order_may_take(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    monkeypatch.setattr(_health_checks, "check", lambda *given: seconds.append(given[-1]))
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    assert put_back(world, event, seconds=40)["state"] == "put_back"
    assert 30 < seconds[0] <= 40


def test_a_kind_in_the_record_that_nobody_knows_any_more_is_a_failure_with_words(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    record = world.record()
    assert record is not None
    record["steps"][0]["kind"] = "forgotten"
    Folder(str(world.directory)).write(record)
    report = put_back(world, event)
    assert report["state"] == "failed"
    assert "'forgotten', which this version does not know" in report["message"]
    assert world.machine.out == {"app"}
    record["steps"][0]["status"] = "undone"
    Folder(str(world.directory)).write(record)
    assert put_back(world, event)["state"] == "put_back"


# Undoing a failed drain at once


def test_a_failed_drain_is_undone_at_once_if_that_is_wanted_and_not_tried_again(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app"), step("cache")]
    world.machine.fail("do cache", times=1)
    report = world.call("ready", event, undo_on_failure=True)
    assert (report["state"], report["final"]) == ("failed", True)
    assert report["message"].endswith("What was done is undone.")
    assert world.machine.out == set()
    for _again in range(2):
        jump(world, 100)
        report = world.call("ready", event, undo_on_failure=True)
        assert (report["state"], report["final"]) == ("failed", True)
    assert world.machine.happened == ["do lb", "do app", "undo app", "check health", "undo lb"]


def test_another_run_tries_what_the_first_gave_up(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("do app", times=1)
    world.call("ready", event, undo_on_failure=True)
    assert world.call("ready", event, run="run-2", force=True)["state"] == "ready"


def test_undoing_that_was_cut_off_is_finished_before_anything_else(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app"), step("cache")]
    world.machine.fail("do cache", times=1)

    def killed() -> None:
        del world.machine.before["undo app"]
        raise Killed

    world.machine.before["undo app"] = killed
    with pytest.raises(Killed):
        world.call("ready", event, undo_on_failure=True)
    jump(world, 60)
    report = world.call("ready", event, undo_on_failure=True)
    assert (report["state"], report["final"]) == ("failed", True)
    assert world.machine.out == set()
    assert world.machine.happened.count("do app") == 1


def test_a_failure_to_undo_is_told_beside_the_first(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app"), step("cache")]
    world.machine.fail("do cache")
    world.machine.fail("undo app", times=1)
    report = world.call("ready", event, undo_on_failure=True)
    assert "do cache does not work" in report["message"]
    assert "undo app does not work" in report["message"]
    assert put_back(world, event)["state"] == "put_back"
    assert world.machine.out == set()


def test_a_failed_drain_with_a_step_of_the_controller_is_undone_and_never_ready_in_between(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    asked = world.call("ready", event, undo_on_failure=True)["next"]
    world.machine.fail("do app", times=1)
    report = world.call("ready", event, undo_on_failure=True, controller_step={**asked, "ok": True})
    assert report["state"] == "next"
    assert report["next"]["mode"] == "undo"
    report = world.call("ready", event, undo_on_failure=True, controller_step={**report["next"], "ok": True})
    assert (report["state"], report["final"]) == ("failed", True)
    assert set(world.noted().values()) == {"undone"}


# Steps of the controller


def answered(asked: Json, ok: bool = True, message: str = "fine") -> Json:
    return {**asked, "ok": ok, "message": message}


def test_a_step_of_the_controller_is_noted_before_it_is_asked_for_and_after_it_was_taken(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    report = world.call("ready", event)
    assert report["state"] == "next"
    assert {key: report["next"][key] for key in ("phase", "name", "kind", "mode")} == {
        "phase": "drain",
        "name": "lb",
        "kind": "remote",
        "mode": "do",
    }
    assert 0 < report["next"]["seconds"] <= 300
    assert world.noted() == {"lb": "doing"}
    assert world.entry()["ready"] is None
    report = world.call("ready", event, controller_step=answered(report["next"]))
    assert report["state"] == "ready"
    assert world.noted() == {"lb": "done", "app": "done"}


@pytest.mark.parametrize(("late", "word"), [(False, "failed"), (True, "was not done in time")])
def test_a_step_that_the_controller_could_not_take_is_a_failed_step(world: World, late: bool, word: str) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    report = world.call("ready", event, controller_step={**answered(asked, False, "b1: no"), "late": late})
    assert (report["state"], report["late"], report["next_try"]) == ("failed", late, 10)
    assert report["message"] == f"Drain step 'lb' (remote) {word}: b1: no"
    # One of several balancers may have been changed: it has to be undone.
    world.azure.events.clear()
    assert world.call("put_back", event, wait=60)["next"]["mode"] == "undo"


def pending(asked: Json, message: str = "3 sessions on lb1") -> Json:
    return {**answered(asked, False, message), "late": True, "pending": True}


def test_a_step_that_takes_longer_is_asked_for_again_and_counts_as_no_attempt(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote", timeout=60)]
    asked = world.call("ready", event)["next"]
    jump(world, 20)
    report = world.call("ready", event, controller_step=pending(asked))
    assert (report["state"], report["message"]) == ("next", "lb: 3 sessions on lb1")
    assert (report["next"]["mode"], round(report["next"]["seconds"])) == ("do", 40)
    record = world.record()
    assert record is not None
    assert [(one["status"], one["attempts"]) for one in record["steps"]] == [("doing", 0)]
    assert not [mark for mark in record["timeline"] if mark["what"] == "failed"]
    assert world.call("ready", event, controller_step=answered(report["next"]))["state"] == "ready"


def test_a_step_that_takes_longer_fails_when_its_time_is_over(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote", timeout=60)]
    asked = world.call("ready", event)["next"]
    for _each in range(2):
        jump(world, 25)
        asked = world.call("ready", event, controller_step=pending(asked))["next"]
    jump(world, 10)
    report = world.call("ready", event, controller_step=pending(asked))
    assert (report["state"], report["attempts"], report["late"]) == ("failed", 1, True)
    assert report["message"] == "Drain step 'lb' (remote) was not done in time: 3 sessions on lb1"


def test_a_step_that_takes_longer_does_not_begin_anew_because_another_one_is_old(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("lb2", "remote", timeout=100)]
    asked = world.call("ready", event)["next"]
    asked = world.call("ready", event, controller_step=answered(asked))["next"]
    for left in (60, 20):
        jump(world, 40)
        asked = world.call("ready", event, controller_step=pending(asked))["next"]
        assert (asked["name"], asked["mode"], round(asked["seconds"])) == ("lb2", "do", left)
    # In the end, all that is old is verified.
    report = world.call("ready", event, controller_step=answered(asked))
    assert (report["next"]["name"], report["next"]["mode"]) == ("lb", "verify")


def test_a_pending_answer_never_makes_a_host_ready(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    world.call("ready", event, controller_step=answered(asked))
    jump(world, 40)
    # It is pending for what is no step any more, or was done before.
    report = world.call("ready", event, controller_step=pending({**asked, "name": "old"}))
    assert (report["state"], report["next"]["mode"]) == ("next", "verify")
    assert world.call("ready", event, controller_step=pending(asked))["state"] != "ready"


def test_a_pending_answer_to_what_is_done_keeps_nothing_from_being_verified(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("lb2", "remote")]
    asked = world.call("ready", event)["next"]
    first, asked = asked, world.call("ready", event, controller_step=answered(asked))["next"]
    assert world.call("ready", event, controller_step=answered(asked))["state"] == "ready"
    jump(world, 40)
    verify = world.call("ready", event)["next"]
    assert world.call("ready", event, controller_step=answered(verify))["next"]["name"] == "lb2"
    # The first is fresh, the second one is not.
    report = world.call("ready", event, controller_step=pending(first))
    assert (report["state"], report["next"]["name"], report["next"]["mode"]) == ("next", "lb2", "verify")


def test_what_can_be_saved_of_a_machine_that_is_taken_away_does_not_wait_for_sessions_to_the_end(world: World) -> None:
    event = world.azure.announce(EventType="Preempt")
    world.steps, world.checkpoint = [step("lb", "remote")], [step("data", "save")]
    asked = world.call("ready", event, seconds=20)["next"]
    jump(world, 8)
    asked = world.call("ready", event, seconds=12, controller_step=pending(asked))["next"]
    jump(world, 8)
    # An order has five seconds at least, however late it is.
    report = world.call("ready", event, seconds=5, controller_step=pending(asked))
    assert (report["state"], report["late"], world.noted()) == ("failed", True, {"lb": "failed", "data": "done"})


def test_a_host_that_is_verified_again_and_again_does_not_fill_its_record(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    for _each in range(5):
        assert world.call("ready", event, controller_step=answered(asked))["state"] == "ready"
        jump(world, 40)
        asked = world.call("ready", event)["next"]
    marks = [mark["what"] for mark in world.record_or_fail()["timeline"]]
    assert marks == ["claimed", "draining", "draining", "ready"]


def test_an_answer_to_another_step_does_not_count(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("lb2", "remote")]
    asked = world.call("ready", event)["next"]
    for wrong in ({"name": "lb2"}, {"mode": "undo"}, {"phase": "checkpoint"}):
        report = world.call("ready", event, controller_step=answered({**asked, **wrong}))
        assert (report["state"], report["next"]["name"]) == ("next", "lb")


def test_a_step_of_the_controller_is_verified_again_when_it_is_old_and_taken_again_if_it_was_undone(
    world: World,
) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    assert world.call("ready", event, controller_step=answered(asked))["state"] == "ready"
    assert world.call("ready", event)["state"] == "ready"
    jump(world, 31)
    report = world.call("ready", event)
    assert (report["state"], report["next"]["mode"]) == ("next", "verify")
    assert world.entry()["ready"] is None
    assert world.call("ready", event, controller_step=answered(report["next"]))["state"] == "ready"
    jump(world, 31)
    report = world.call("ready", event, controller_step=answered(report["next"], False, "it takes traffic"))
    assert (report["state"], report["next"]["mode"]) == ("next", "do")


def test_a_step_of_the_controller_is_verified_also_if_the_clock_was_set_back(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    assert world.call("ready", event, controller_step=answered(asked))["state"] == "ready"
    jump(world, -3600)
    assert world.call("ready", event)["next"]["mode"] == "verify"


def test_a_failed_step_does_not_wait_for_a_clock_that_was_set_back(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.machine.fail("do app")
    world.call("ready", event)
    jump(world, -3600)
    report = world.call("ready", event)
    assert (report.get("tried"), report["attempts"]) == (None, 2), "it is tried at once, and then as always"
    assert world.call("ready", event)["tried"] is False


def test_how_it_was_before_is_looked_up_by_the_controller_before_anything_is_done(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote_looked")]
    report = world.call("ready", event)
    assert report["next"]["mode"] == "look"
    assert world.noted() == {}
    report = world.call("ready", event, looked={"lb": {"in_service": False}})
    assert report["next"]["mode"] == "do"
    assert world.call("ready", event, controller_step=answered(report["next"]))["state"] == "ready"
    # It was out before, so nothing has to be undone.
    assert put_back(world, event)["state"] == "put_back"


def test_a_look_that_failed_fails_the_step_before_it_is_begun(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote_looked")]
    report = world.call("ready", event, looked={"lb": {"error": "b1: no such server"}})
    assert report["state"] == "failed"
    assert "b1: no such server" in report["message"]
    jump(world, 60)
    assert put_back(world, event)["state"] == "put_back"


def test_the_controller_undoes_its_steps_in_their_place(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    asked = world.call("ready", event)["next"]
    world.call("ready", event, controller_step=answered(asked))
    report = put_back(world, event)
    assert (report["next"]["mode"], world.noted()) == ("undo", {"lb": "doing", "app": "undone"})
    report = put_back(world, event, controller_step=answered(report["next"], False, "no"))
    assert report["state"] == "failed"
    jump(world, 60)
    report = put_back(world, event)
    assert put_back(world, event, controller_step=answered(report["next"]))["state"] == "put_back"


def test_a_step_that_the_controller_is_undoing_is_not_taken_for_done_by_another_run(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    world.call("ready", event, controller_step=answered(asked))
    assert put_back(world, event)["next"]["mode"] == "undo"
    other = world.azure.announce("B")
    assert world.call("ready", other, run="run-2")["next"]["mode"] == "do"


def test_nothing_is_undone_by_the_controller_after_the_claim_was_lost(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    asked = world.call("ready", event)["next"]
    world.call("ready", event, controller_step=answered(asked))
    world.machine.before["check health"] = lambda: world.take_over(event)
    assert put_back(world, event)["state"] == "held_by_other_run"


def test_what_the_controller_fetches_is_saved_only_when_it_is_there(world: World) -> None:
    event = world.azure.announce()
    world.checkpoint = [step("data", "save", fetched=True)]
    report = world.call("ready", event)
    assert (report["next"]["mode"], report["next"]["archive"]) == ("fetch", "/a.tar.gz")
    assert world.noted() == {"data": "doing"}
    asked = report["next"]
    assert world.call("ready", event, controller_step=answered(asked, False, "disk full"))["state"] == "failed"
    jump(world, 60)
    report = world.call("ready", event)
    assert report["next"]["mode"] == "fetch"
    assert world.call("ready", event, controller_step=answered(report["next"]))["state"] == "ready"
    report = put_back(world, event)
    assert report["next"]["mode"] == "send"
    assert put_back(world, event, controller_step=answered(report["next"]))["state"] == "put_back"


def test_the_name_of_an_archive_cannot_leave_its_directory() -> None:
    names = {archive_name(name) for name in ("../../etc/passwd", "/etc", "a/b", "a", "\udc80")}
    assert len(names) == 5
    assert all("/" not in name and ".." not in name for name in names)


# Secrets


def test_secrets_reach_the_step_and_never_the_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("app")], [step("data", "save")]
    given: list[str] = []
    health: list[Json] = []
    world.machine.before["do app"] = lambda: given.append("do")
    monkeypatch.setattr(_health_checks, "check", lambda items, *_more: health.extend(items))
    secrets = {"drain/app": {"what": "app", "password": "hunter2"}, "health/0": {"password": "hunter3"}}
    world.call("ready", event, secrets=secrets)
    put_back(world, event, secrets=secrets, health=[{"url": "http://127.0.0.1/"}])
    assert health == [{"url": "http://127.0.0.1/", "password": "hunter3"}]
    files = [path.read_text() for path in world.directory.rglob("*") if path.is_file()]
    assert given
    assert files
    assert not [text for text in files if "hunter" in text]


def test_a_step_whose_url_has_secrets_that_nobody_tells_any_more_says_so_instead_of_acting(world: World) -> None:
    event = world.azure.announce()
    world.steps = [{**step("app"), "options": {"what": "http://127.0.0.1/out?…"}}]
    secrets = {"drain/app": {"what": "http://127.0.0.1/out?token=hunter2"}}
    assert world.call("ready", event, secrets=secrets)["state"] == "ready"
    assert "hunter2" not in str(world.record())
    world.steps = []
    report = put_back(world, event)
    assert report["state"] == "failed"
    assert "the secret part of the URL in what is never recorded" in report["message"]
    assert world.machine.happened == ["do http://127.0.0.1/out?token=hunter2"]
    assert put_back(world, event, secrets=secrets)["state"] == "put_back"


# Something happens anywhere, and the order is given again

ACTIONS = ("do lb", "do app", "do data", "undo app", "undo lb", "check health")


class AtPoint:
    """Lets something happen at the n-th of a host's points, once: when it writes the record, and when it acts."""

    def __init__(self, world: World, number: int, happens: t.Callable[[World], object], before: bool) -> None:
        self.left = number
        self.happens = happens
        self.happened = False
        self.before = before
        self.world = world
        for action in ACTIONS:
            (world.machine.before if before else world.machine.after)[action] = self.reached

    def reached(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.happened = True
            self.happens(self.world)

    def at_writes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real_write = Folder.write

        def write(folder: Folder, record: Json | None) -> None:
            if self.before:
                self.reached()
            real_write(folder, record)
            if not self.before:
                self.reached()

        monkeypatch.setattr(Folder, "write", write)

    def at_locks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Instead: another run cannot write while the lock is held."""
        real_locked = Folder.locked

        @contextlib.contextmanager
        def locked(folder: Folder, clock: Clock) -> t.Iterator[None]:
            if self.before:
                self.reached()
            with real_locked(folder, clock):
                yield
            if not self.before:
                self.reached()

        monkeypatch.setattr(Folder, "locked", locked)


def at_each_point(
    directory: Path,
    happens: t.Callable[[World], object],
    before: bool = True,
    hook: t.Callable[[AtPoint, pytest.MonkeyPatch], None] = AtPoint.at_writes,
) -> t.Iterator[tuple[World, AtPoint]]:
    """A fresh host for each point at which something can happen, and a last one on which nothing does."""
    for number in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            world = prepared(directory / str(number), patch)
            point = AtPoint(world, number, happens, before)
            hook(point, patch)
            yield world, point
        if not point.happened:
            # Each note and each action is such a point.
            assert number > 20
            return
    raise AssertionError("there is no end")


def killed(_world: World) -> None:
    raise Killed


def rebooted(world: World) -> None:
    world.boot_id = "boot-2"
    jump(world, 90)
    raise Killed


def full(_world: World) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def call_until(world: World, wanted: str, order: str, event: Json) -> None:
    """Call again and again, also after a cut; the controller takes its steps."""
    answer: Json | None = None
    for _call in range(20):
        try:
            report = world.call(order, event, wait=30, controller_step=answer)
        except Killed:
            # The controller's step was taken; its answer is given again.
            continue
        if report["state"] == "failed":
            assert "Free some space on that file system and run again." in report["message"], report
            continue
        answer = None
        if report["state"] == wanted:
            return
        assert report["state"] == "next", report
        name, mode = report["next"]["name"], report["next"]["mode"]
        change = world.machine.out.add if mode == "do" else world.machine.out.discard
        if (name in world.machine.out) != (mode == "do"):
            world.machine.happened.append(f"{mode} {name}")
        change(name)
        answer = answered(report["next"])
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("happens", [killed, rebooted])
def test_a_call_that_is_cut_off_anywhere_is_made_again_and_nothing_is_done_twice(
    tmp_path: Path, happens: t.Callable[[World], object], before: bool
) -> None:
    for world, _point in at_each_point(tmp_path, happens, before):
        whole_maintenance(world)


def test_a_disk_that_is_full_at_any_write_loses_nothing_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ACTIONS", ())
    for world, _point in at_each_point(tmp_path, full):
        whole_maintenance(world)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_at_any_moment_changes_nothing(tmp_path: Path, hours: int) -> None:
    for world, _point in at_each_point(tmp_path, lambda world: set_clock(world, 3600 * hours)):
        whole_maintenance(world)


def set_clock(world: World, seconds: float) -> None:
    assert isinstance(world.clock, JumpingClock)
    world.clock.ahead += seconds


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_run_that_loses_its_claim_at_any_moment_does_nothing_more(tmp_path: Path, before: bool) -> None:
    done = 0

    def taken_over(world: World) -> None:
        nonlocal done
        world.take_over({"event_id": "A"})
        done = len(world.machine.happened)

    for world, point in at_each_point(tmp_path, taken_over, before, AtPoint.at_locks):
        event = world.azure.announce()
        world.steps = [step("balancer", "remote"), step("lb", "traffic"), step("app")]
        world.checkpoint = [step("data", "save")]
        report = orders_until_held(world, event)
        if point.happened:
            # What was taken over after all was done shows in the next order.
            report = report if report["state"] == "held_by_other_run" else world.call("put_back", event, wait=30)
            assert report["state"] == "held_by_other_run"
            # The claim was verified right before the action that was under way.
            assert len(world.machine.happened) - done <= 1
            assert world.entry()["claim"]["run_id"] == "run-2"


def orders_until_held(world: World, event: Json) -> Json:
    answer: Json | None = None
    for order, wanted in (("ready", "ready"), ("put_back", "put_back")):
        while True:
            report = world.call(order, event, wait=30, controller_step=answer)
            answer = None
            if report["state"] == "held_by_other_run":
                return report
            if report["state"] == wanted:
                break
            answer = answered(report["next"])
        world.azure.events.clear()
    return report


def whole_maintenance(world: World) -> None:
    event = world.azure.announce()
    world.machine.out.add("old")
    world.steps = [step("balancer", "remote"), step("lb", "traffic"), step("app"), step("old")]
    world.checkpoint = [step("data", "save")]
    call_until(world, "ready", "ready", event)
    assert world.machine.out == {"balancer", "lb", "app", "old", "data"}
    assert world.machine.happened == ["do balancer", "do lb", "do app", "do data"]
    world.machine.happened.clear()
    world.azure.end()
    call_until(world, "put_back", "put_back", event)
    assert world.machine.out == {"old", "data"}
    assert [one for one in world.machine.happened if "data" not in one and "health" not in one] == [
        "undo app",
        "undo lb",
        "undo balancer",
    ]
    assert world.record() is None
