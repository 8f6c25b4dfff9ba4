# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each order of the engine: what it claims, when it acts, and when it leaves everything as it is."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import fingerprint
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, Refused
from ansible_collections.graceful.azure.plugins.module_utils._look import why_not_writable
from ansible_collections.graceful.azure.plugins.module_utils._worker import Work
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import (
    Killed,
    World,
    no_answer,
    step,
    use_fake_kinds,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import reply
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

Json = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    world.steps = [step("app")]
    use_fake_kinds(world, monkeypatch)
    return world


def jump(world: World, seconds: float) -> None:
    assert isinstance(world.clock, JumpingClock)
    world.clock.now += seconds


def set_clock(world: World, seconds: float) -> None:
    """The wall clock only; the monotonic one goes on."""
    assert isinstance(world.clock, JumpingClock)
    world.clock.ahead += seconds


def took(world: World, call: t.Callable[[], Json]) -> tuple[Json, float]:
    begin = world.clock.monotonic()
    report = call()
    return report, world.clock.monotonic() - begin


def at_read(world: World, number: int, happens: t.Callable[[], t.Any]) -> None:
    """Something happens in Azure right before the read of that number, counted from now."""
    wanted = world.azure.reads + number

    def before_read(now: int) -> None:
        if now == wanted:
            happens()

    world.azure.before_read = before_read


# Looking


def test_a_look_tells_the_document_the_name_and_the_record_and_writes_nothing(world: World) -> None:
    world.azure.announce()
    answer = world.engine("look").carry_out()
    seen = answer["observation"]
    assert answer["report"] == {"state": "looked", "message": ""}
    assert (seen["vm_name"], seen["error"], seen["record"], seen["record_error"]) == ("web_0", None, None, None)
    assert [event["event_id"] for event in seen["events"]] == ["A"]
    assert seen["events"][0]["affects_me"] is True
    assert seen["document"] == fingerprint(seen["events"])
    assert seen["boot_id"] == "boot-1"
    assert not world.directory.exists()


def test_a_look_that_probes_the_record_makes_its_directory_and_keeps_nothing_else(world: World) -> None:
    world.azure.announce()
    assert world.call("look", probe_record=True)["state"] == "looked"
    assert [path.name for path in world.directory.iterdir()] == [".lock"]
    assert world.record() is None


def test_an_event_that_is_in_the_document_twice_has_started_if_one_of_them_has(world: World) -> None:
    event = world.azure.announce("A")
    assert world.call("ready", event)["state"] == "ready"
    world.azure.events.clear()
    world.azure.announce("a", "Started")
    world.azure.announce("A")
    assert world.call("put_back", event, wait=2)["state"] == "waiting"
    assert world.entry()["started"] is not None
    assert world.call("ready", event)["state"] == "gone"
    assert world.call("ready", event, event)["state"] == "gone"
    del world.azure.events["a"]
    world.call("ready", event, {**event, "event_id": "a"})
    assert world.worker.state()["events"] == ["a"]


def test_a_call_on_a_classic_vm_asks_for_the_vms_name_only_once(world: World) -> None:
    event = world.azure.announce()
    world.azure.name = None
    world.call("ready", event)
    world.azure.asked_for_name = world.azure.reads = 0
    assert world.call("put_back", event, wait=5)["state"] == "waiting"
    assert (world.azure.reads > 5, world.azure.asked_for_name) == (True, 1)


def test_a_name_that_was_missing_for_a_moment_is_asked_for_again(world: World) -> None:
    service = world.service()
    name, world.azure.name = world.azure.name, None
    assert [service.look(None)[1] for _each in range(3)] == [None] * 3
    assert world.azure.asked_for_name == 1
    world.azure.name = name
    jump(world, 100)
    assert service.look(None)[1] == "web_0"


def test_a_look_that_probes_in_vain_says_why_and_reads_the_document_all_the_same(world: World) -> None:
    world.azure.announce()
    world.directory.write_text("not a directory")
    answer = world.engine("look", probe_record=True).carry_out()
    assert answer["report"]["state"] == "failed"
    assert "is not a directory. Move it away, or set another graceful_record_dir." in answer["report"]["message"]
    assert [event["event_id"] for event in answer["observation"]["events"]] == ["A"]


def test_check_mode_sees_that_no_record_could_be_written_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / "lib" / "records"
    assert why_not_writable(str(wanted)) is None
    # For root, everything can be written.
    monkeypatch.setattr("os.access", lambda path, _mode: path != str(tmp_path))
    said = why_not_writable(str(wanted))
    assert said is not None
    assert f"this user cannot write to {tmp_path}. Set ansible_become" in said
    assert list(tmp_path.iterdir()) == []


def test_a_probe_leaves_a_record_as_it_is(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    before = (world.directory / "record.json").read_bytes()
    world.call("look", probe_record=True)
    assert (world.directory / "record.json").read_bytes() == before
    assert not (world.directory / ".draft").exists()


def test_a_look_that_waits_ends_with_the_first_change(world: World) -> None:
    world.azure.announce()
    known = world.engine("look").carry_out()["observation"]["document"]
    at_read(world, 4, world.azure.start)
    _report, seconds = took(world, lambda: world.call("look", wait=10, known=known))
    assert seconds == 3


@pytest.mark.parametrize("known", ["", "the same"])
def test_a_look_that_waits_ends_with_its_time_if_nothing_changes(world: World, known: str) -> None:
    world.azure.announce()
    document = world.engine("look").carry_out()["observation"]["document"]
    _report, seconds = took(world, lambda: world.call("look", wait=10, known=known and document))
    assert seconds == 10


def test_a_service_that_cannot_be_read_never_looks_like_an_empty_document(world: World) -> None:
    world.azure.unreadable = no_answer()
    seen = world.engine("look").carry_out()["observation"]
    assert seen["events"] is None
    assert "the connection was lost" in seen["error"]


def test_a_record_that_is_damaged_is_told_and_left_alone(world: World) -> None:
    world.directory.mkdir(0o700)
    (world.directory / "record.json").write_text("{}")
    world.azure.announce()
    seen = world.engine("look").carry_out()["observation"]
    assert seen["record"] is None
    assert "cannot be used as a record" in seen["record_error"]
    assert [event["event_id"] for event in seen["events"]] == ["A"]
    assert (world.directory / "record.json").read_text() == "{}"


def test_oddities_of_the_document_are_warnings_and_each_is_said_once(world: World) -> None:
    world.azure.announce(EventType="Nova")
    assert world.engine("look", wait=5).carry_out()["warnings"] == ["Event 'A' has the unknown type 'Nova'."]


# Getting ready


def test_ready_claims_the_event_before_anything_is_done(world: World) -> None:
    event = world.azure.announce()
    held: list[str] = []
    world.machine.before["do app"] = lambda: held.append(world.entry()["claim"]["run_id"])
    assert world.call("ready", event)["state"] == "ready"
    assert held == ["run-1"]
    assert world.entry()["event"]["event_type"] == "Reboot"


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "started"])
def test_an_order_that_is_out_of_date_claims_and_drains_nothing(world: World, gone: bool) -> None:
    event = world.azure.announce()
    if gone:
        world.azure.end()
    else:
        world.azure.start()
    assert world.call("ready", event)["state"] == "gone"
    assert world.machine.happened == []
    assert world.record() is None


def test_of_two_events_only_the_one_that_still_stands_is_claimed(world: World) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.azure.end("A")
    assert world.call("ready", first, second)["state"] == "ready"
    record = world.record()
    assert record is not None
    assert list(record["events"]) == ["b"]


def test_nothing_is_done_if_the_document_cannot_be_read(world: World) -> None:
    event = world.azure.announce()
    world.azure.unreadable = no_answer()
    report, seconds = took(world, lambda: world.call("ready", event, wait=10))
    assert report["state"] == "failed"
    assert "the connection was lost" in report["message"]
    # It is not asked again at once, either.
    assert seconds == 10
    assert (world.machine.happened, world.record()) == ([], None)


def test_nothing_is_done_while_the_record_is_damaged(world: World) -> None:
    event = world.azure.announce()
    world.directory.mkdir(0o700)
    (world.directory / "record.json").write_text("[]")
    report, seconds = took(world, lambda: world.call("ready", event, wait=10))
    assert (report["state"], seconds) == ("failed", 10)
    assert "graceful_force_claim" in report["message"]
    assert world.machine.happened == []


def test_what_another_run_holds_is_left_to_it_and_it_is_said_who_has_it(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event, run="run-2")
    world.machine.happened.clear()
    report = world.call("ready", event)
    assert report["state"] == "held_by_other_run"
    assert report["held"]["a"]["run_name"] == "name of run-2"
    assert "name of run-2" in report["message"]
    assert world.machine.happened == []
    assert world.entry()["claim"]["run_id"] == "run-2"


def test_a_run_that_is_silent_for_too_long_loses_its_claim(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event, run="run-2")
    jump(world, 121)
    report = world.call("ready", event)
    assert report["state"] == "ready"
    assert world.machine.happened == ["do app"]


def test_a_host_that_is_ready_verifies_that_again_at_the_end_of_each_wait(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    _report, seconds = took(world, lambda: world.call("ready", event, wait=10))
    assert seconds == 10
    assert world.entry()["ready"] == world.keeper().now


def test_a_host_that_waits_verifies_at_once_when_the_document_changes(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    known = world.engine("look").carry_out()["observation"]["document"]
    at_read(world, 4, lambda: world.azure.announce("B"))
    report, seconds = took(world, lambda: world.call("ready", event, wait=10, known=known))
    assert (report["state"], seconds < 4) == ("ready", True)


def test_a_drain_that_was_given_up_is_not_asked_for_again_at_once(world: World) -> None:
    event = world.azure.announce()
    world.machine.fail("do app", times=1)
    world.call("ready", event, undo_on_failure=True)
    report, seconds = took(world, lambda: world.call("ready", event, undo_on_failure=True, wait=10))
    assert (report["final"], seconds) == (True, 10)


def test_a_step_of_the_controller_that_was_taken_after_the_claim_was_lost_is_kept_for_the_next_run(
    world: World,
) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    world.azure.end()
    # Another run finds the event gone and puts the host back.
    jump(world, 200)
    undo = world.call("put_back", event, run="run-2", wait=30)["next"]
    assert world.call("put_back", event, run="run-2", controller_step={**undo, "ok": True})["state"] == "put_back"
    assert world.record() is None
    report = world.call("ready", event, controller_step={**asked, "ok": True})
    assert report["state"] == "gone"
    assert world.noted() == {"lb": "failed"}
    jump(world, 1)
    assert world.call("put_back", event, run="run-3", wait=30)["next"]["mode"] == "undo"


def test_a_step_that_was_undone_and_then_taken_too_late_is_to_be_undone_again(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote"), step("app")]
    asked = world.call("ready", event)["next"]
    world.machine.fail("do app")
    jump(world, 200)
    undo = world.call("ready", event, run="run-2", controller_step={**asked, "ok": True}, undo_on_failure=True)["next"]
    world.call("ready", event, run="run-2", controller_step={**undo, "ok": True}, undo_on_failure=True)
    assert set(world.noted().values()) == {"undone"}
    assert world.call("ready", event, controller_step={**asked, "ok": True})["state"] == "held_by_other_run"
    assert world.noted()["lb"] == "failed"


# Losing the claim


def test_a_run_that_loses_its_claim_before_its_first_step_does_nothing_more(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app"), step("lb", "traffic")]
    world.machine.before["look app"] = lambda: world.take_over(event)
    report = world.call("ready", event)
    assert report["state"] == "held_by_other_run"
    assert "name of run-2" in report["message"]
    assert world.machine.happened == []


@pytest.mark.parametrize("moment", ["do app", "do cache", "do lb", "do data"])
def test_a_run_that_loses_its_claim_in_a_step_takes_no_further_one(world: World, moment: str) -> None:
    event = world.azure.announce()
    world.steps, world.checkpoint = [step("app"), step("cache"), step("lb", "traffic")], [step("data", "save")]
    world.machine.after[moment] = lambda: world.take_over(event)
    report = world.call("ready", event)
    assert report["state"] == "held_by_other_run"
    assert world.machine.happened[-1] == moment
    assert world.entry()["ready"] is None
    assert world.entry()["claim"]["run_id"] == "run-2"


@pytest.mark.parametrize("moment", ["undo cache", "undo app", "undo lb"])
def test_a_run_that_loses_its_claim_while_it_puts_back_undoes_nothing_more(world: World, moment: str) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "traffic"), step("app"), step("cache")]
    world.call("ready", event)
    world.azure.end()
    world.machine.after[moment] = lambda: world.take_over(event)
    report = world.call("put_back", event, wait=30)
    assert report["state"] == "held_by_other_run"
    assert world.machine.happened[-1] == moment
    record = world.record()
    assert record is not None
    assert record["events"]["a"]["claim"]["run_id"] == "run-2"


def test_a_run_that_loses_its_claim_while_it_waits_for_the_end_undoes_nothing(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    at_read(world, 2, lambda: world.take_over(event))
    assert world.call("put_back", event, wait=30)["state"] == "held_by_other_run"
    assert world.machine.out == {"app"}


def test_a_run_that_loses_its_claim_before_the_request_posts_nothing(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    at_read(world, 1, lambda: world.take_over(event))
    assert world.call("approve", event)["state"] == "held_by_other_run"
    assert world.azure.posts == []
    assert world.entry()["approval"] is None


# Approving


def test_an_approval_is_noted_before_it_is_posted_and_after(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    noted: list[str] = []
    world.azure.before_post = lambda: noted.append(world.entry()["approval"]["status"])
    report = world.call("approve", event)
    assert report["state"] == "approved"
    assert report["approval"]["run_id"] == "run-1"
    assert noted == ["posting"]
    assert world.entry()["approval"]["status"] == "approved"
    assert world.azure.posts == ["A"]


def test_an_event_is_approved_once_however_often_that_is_asked_for(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    for _again in range(3):
        assert world.call("approve", event)["state"] == "approved"
        world.call("ready", event)
    world.take_over(event)
    world.call("ready", event, run="run-2")
    assert world.call("approve", event, run="run-2")["state"] == "approved"
    assert world.azure.posts == ["A"]


def not_claimed(world: World, event: Json) -> None:
    pass


def claimed_only(world: World, event: Json) -> None:
    world.keeper().claim([event], "boot-1")


def ready_long_ago(world: World, event: Json) -> None:
    world.call("ready", event)
    jump(world, 61)


def ready_in_the_future(world: World, event: Json) -> None:
    world.call("ready", event)
    jump(world, -30)


def booted_since(world: World, event: Json) -> None:
    """Ten seconds ago, which the clock that begins with the boot does not reach back to."""
    world.call("ready", event)
    clock = world.clock
    assert isinstance(clock, JumpingClock)
    set_clock(world, clock.now + 10 - 5)
    clock.now = 5.0


def failed_since(world: World, event: Json) -> None:
    world.call("ready", event)
    world.machine.fail("look app")
    world.call("ready", event)


def of_another_run(world: World, event: Json) -> None:
    world.call("ready", event, run="run-2")


def ready_for_another_event(world: World, event: Json) -> None:
    claimed_only(world, event)
    world.call("ready", world.azure.announce("B"))


@pytest.mark.parametrize(
    "happened",
    [
        not_claimed,
        claimed_only,
        ready_long_ago,
        ready_in_the_future,
        booted_since,
        failed_since,
        of_another_run,
        ready_for_another_event,
    ],
)
def test_nothing_is_approved_by_a_host_that_did_not_just_verify_that_it_is_ready(
    world: World, happened: t.Callable[[World, Json], None]
) -> None:
    event = world.azure.announce()
    happened(world, event)
    report = world.call("approve", event)
    assert report["state"] in ("failed", "held_by_other_run")
    assert world.azure.posts == []


def test_what_changed_in_the_moment_before_the_request_stops_it(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    at_read(world, 1, lambda: jump(world, 100))
    assert world.call("approve", event)["state"] == "failed"
    assert world.azure.posts == []


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda world: world.azure.start(), "started"),
        (lambda world: world.azure.end(), "gone"),
        (lambda world: world.azure.announce(resources=("web_0", "db_0")), "unexpected"),
        (lambda world: world.azure.announce(EventType="Redeploy"), "unexpected"),
        (lambda world: world.azure.announce(status="sTARTED"), "started"),
        (lambda world: world.azure.announce(status="Paused"), "unexpected"),
        (lambda world: world.azure.announce(status=""), "unexpected"),
    ],
)
def test_an_event_that_is_not_any_more_what_the_hosts_are_ready_for_is_not_approved(
    world: World, change: t.Callable[[World], None], state: str
) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    change(world)
    assert world.call("approve", event)["state"] == state
    assert world.azure.posts == []


def test_a_request_without_an_answer_is_not_repeated_for_thirty_seconds(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.refuses = no_answer()
    assert world.call("approve", event)["state"] == "unconfirmed"
    world.azure.refuses = None
    for _pass in range(3):
        jump(world, 9)
        world.call("ready", event)
        assert world.call("approve", event)["state"] == "unconfirmed"
    assert world.azure.posts == ["A"]
    jump(world, 9)
    world.call("ready", event)
    assert world.call("approve", event)["state"] == "approved"
    assert world.azure.posts == ["A", "A"]


def test_a_clock_that_was_set_back_puts_the_next_request_off_for_thirty_seconds_only(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.refuses = no_answer()
    assert world.call("approve", event)["state"] == "unconfirmed"
    world.azure.refuses = None
    set_clock(world, -3600)
    states = []
    for _pass in range(4):
        world.call("ready", event)
        states.append(world.call("approve", event)["state"])
        jump(world, 11)
    assert states == ["unconfirmed", "unconfirmed", "unconfirmed", "approved"]


def test_nobody_posts_again_after_a_run_was_killed_in_its_request(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)

    def killed() -> None:
        raise Killed

    world.azure.before_post = killed
    with pytest.raises(Killed):
        world.call("approve", event)
    assert world.entry()["approval"]["status"] == "posting"
    world.azure.before_post = lambda: None
    world.take_over(event)
    world.call("ready", event, run="run-2")
    assert world.call("approve", event, run="run-2")["state"] == "unconfirmed"
    assert world.azure.posts == []


def test_an_unconfirmed_event_that_starts_is_not_posted_again(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.refuses = no_answer()
    world.call("approve", event)
    world.azure.start()
    assert world.call("approve", event)["state"] == "started"
    assert world.azure.posts == ["A"]


@pytest.mark.parametrize("refusal", [reply(400, {"error": "no"}), Refused("It answered 400.", 400)])
def test_a_request_that_is_refused_is_a_failure_that_does_not_keep_others_waiting(world: World, refusal: t.Any) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.refuses = refusal
    assert world.call("approve", event)["state"] == "failed"
    assert world.entry()["approval"]["status"] == "failed"


def test_a_refusal_is_final_also_if_nothing_can_be_read_after_it(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.refuses = reply(400, {"error": "no"})
    world.azure.before_post = lambda: setattr(world.azure, "unreadable", no_answer())
    report = world.call("approve", event)
    assert (report["state"], report["final"]) == ("failed", True)


def test_an_approval_of_a_service_that_cannot_be_read_posts_nothing(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.unreadable = no_answer()
    assert world.call("approve", event)["state"] == "failed"
    assert world.azure.posts == []


# Gone


def test_an_event_that_stands_is_waited_for_and_nothing_is_undone(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    report, seconds = took(world, lambda: world.call("put_back", event, wait=10))
    assert (report["state"], seconds) == ("waiting", 10)
    assert report["message"] == "waits until the event is over: Reboot Scheduled"
    assert world.machine.out == {"app"}


def test_a_host_that_waits_says_why_its_service_cannot_be_read(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.unreadable = no_answer()
    report = world.call("put_back", event, wait=10)
    assert report["state"] == "waiting"
    assert report["message"].startswith("waits until the metadata service can be read: the connection was lost")
    assert world.machine.out == {"app"}


@pytest.mark.parametrize(("started", "least"), [(True, 2), (False, 5)])
def test_gone_is_said_after_several_reads_over_some_seconds(world: World, started: bool, least: float) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    if started:
        world.azure.start()
        world.call("put_back", event)
    world.azure.end()
    reads = world.azure.reads
    report, seconds = took(world, lambda: world.call("put_back", event, wait=30))
    assert report["state"] == "put_back"
    assert least <= seconds < least + 1
    assert world.azure.reads - reads >= 3


def test_what_is_nearly_gone_when_the_time_of_a_call_is_over_needs_no_second_call(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    report, seconds = took(world, lambda: world.call("put_back", event, wait=3))
    assert report["state"] == "put_back"
    assert 5 <= seconds < 6


def test_a_short_call_stays_short(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    report, seconds = took(world, lambda: world.call("put_back", event, wait=2))
    assert (report["state"], seconds) == ("waiting", 2)


def test_an_event_that_comes_back_is_not_nearly_gone(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    wire = world.azure.events.pop("A")
    at_read(world, 7, lambda: world.azure.events.update(A=wire))
    report, seconds = took(world, lambda: world.call("put_back", event, wait=2.5))
    assert report["state"] == "waiting"
    assert seconds <= 4
    assert world.machine.out == {"app"}


def test_an_empty_document_for_a_second_is_not_gone(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.start()
    world.call("put_back", event)
    wire = world.azure.events.pop("A")
    at_read(world, 3, lambda: world.azure.events.update(A=wire))
    assert world.call("put_back", event, wait=10)["state"] == "waiting"
    assert world.entry()["gone"] is None
    assert world.machine.out == {"app"}


def test_a_second_empty_document_long_after_the_first_is_not_gone_either(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    for _blip in range(3):
        wire = world.azure.events.pop("A")
        assert world.call("put_back", event)["state"] == "waiting"
        world.azure.events["A"] = wire
        # It stands again, so the host gets ready again.
        assert world.call("ready", event)["state"] == "ready"
        jump(world, 60)
    assert world.machine.out == {"app"}


def test_a_document_that_cannot_be_read_is_not_gone(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.unreadable = no_answer()
    assert world.call("put_back", event, wait=30)["state"] == "waiting"
    assert world.machine.out == {"app"}


def test_gone_is_confirmed_across_calls_that_read_once_each(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    states = []
    for _call in range(4):
        states.append(world.call("put_back", event)["state"])
        jump(world, 2)
    assert states == ["waiting", "waiting", "waiting", "put_back"]


def test_a_clock_that_was_set_back_does_not_delay_gone_also_with_short_calls(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    assert world.call("put_back", event, wait=1)["state"] == "waiting"
    set_clock(world, -3600)
    assert "put_back" in [world.call("put_back", event, wait=1)["state"] for _call in range(6)]


def test_two_reads_far_apart_are_not_enough(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    assert world.call("put_back", event)["state"] == "waiting"
    jump(world, 60)
    assert world.call("put_back", event)["state"] == "waiting"


def test_an_event_that_comes_back_between_two_calls_begins_anew(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    wire = world.azure.events.pop("A")
    for _call in range(2):
        world.call("put_back", event)
        jump(world, 3)
    world.azure.events["A"] = wire
    world.call("put_back", event)
    del world.azure.events["A"]
    assert world.call("put_back", event)["state"] == "waiting"


def test_a_host_that_booted_since_it_was_claimed_counts_as_started(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.boot_id = "boot-2"
    world.azure.end()
    report = world.call("put_back", event, wait=30)
    assert report["closed"]["events"]["a"]["started"] is not None


def test_a_host_is_not_put_back_while_another_event_that_concerns_it_has_started(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    world.azure.end()
    world.azure.announce("B", "Started")
    assert world.call("put_back", event, wait=10)["state"] == "waiting"
    world.azure.end("B")
    assert world.call("put_back", event, wait=10)["state"] == "put_back"


def test_a_host_is_put_back_for_an_event_that_has_lapsed_and_stands(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    report = world.call("put_back", event, wait=10, lapsed=["a"])
    assert (report["state"], list(report["closed"]["events"])) == ("put_back", ["a"])
    assert world.machine.happened == ["do app", "undo app"]
    assert world.entry()["lapsed"]
    # What only has to be remembered keeps no host drained.
    other = world.azure.announce("B")
    assert world.call("ready", other)["state"] == "ready"
    world.azure.end("B")
    assert world.call("put_back", other, wait=10)["state"] == "put_back"
    assert world.machine.happened == ["do app", "undo app"] * 2
    world.azure.end()
    assert world.call("put_back", event, wait=10)["state"] == "put_back"
    assert world.record() is None


def test_an_approval_by_id_alone_is_for_the_vms_that_were_claimed(world: World) -> None:
    event = world.azure.announce()
    assert world.call("ready", event)["state"] == "ready"
    world.azure.events["A"]["Resources"] = ["web_0", "web_1"]
    report = world.call("approve", {"event_id": "A"})
    assert (report["state"], world.azure.posts) == ("unexpected", [])
    assert "web_1" in report["message"]
    world.azure.events["A"]["Resources"] = ["web_0"]
    assert world.call("approve", {"event_id": "A"})["state"] == "approved"


def test_an_approval_without_any_resources_is_refused(world: World) -> None:
    world.azure.announce()
    assert world.call("ready", {"event_id": "A", "event_type": "Reboot"})["state"] == "ready"
    report = world.call("approve", {"event_id": "A"})
    assert (report["state"], world.azure.posts) == ("failed", [])
    assert "neither the order nor the claim has its resources" in report["message"]


def test_a_run_that_loses_one_of_two_events_stops_and_goes_on_with_the_other(world: World) -> None:
    event, other = world.azure.announce(), world.azure.announce("B")
    world.steps = [step("app"), step("cache")]
    world.machine.after["do app"] = lambda: world.take_over(other)
    report = world.call("ready", event, other)
    assert report["state"] == "held_by_other_run"
    assert "name of run-2" in report["message"]
    assert world.noted() == {"app": "doing"}
    world.machine.after.clear()
    report = world.call("ready", event, other)
    assert (report["state"], list(report["held"])) == ("ready", ["b"])


def test_a_lapsed_event_is_given_up_although_another_run_needs_the_host_drained(world: World) -> None:
    event, other = world.azure.announce(), world.azure.announce("B")
    world.steps = [step("app")]
    assert world.call("ready", event)["state"] == "ready"
    assert world.call("ready", other, run="run-2")["state"] == "ready"
    report = world.call("put_back", event, wait=10, lapsed=["a"])
    assert (report["state"], world.noted()) == ("put_back", {"app": "done"})
    # It is remembered, and no run drains for it again; the other run puts the host back.
    assert (bool(world.entry("a")["lapsed"]), world.entry("b")["lapsed"]) == (True, None)
    world.azure.end("B")
    assert world.call("put_back", other, run="run-2", wait=10)["state"] == "put_back"
    assert world.machine.out == set()


def test_an_event_that_has_lapsed_is_waited_for_once_it_has_started(world: World) -> None:
    event = world.azure.announce()
    world.steps = [step("app")]
    world.call("ready", event)
    world.azure.start()
    assert world.call("put_back", event, wait=10, lapsed=["a"])["state"] == "waiting"
    assert world.machine.happened == ["do app"]


# Two events on one host


def test_two_events_drain_a_host_once_and_put_it_back_when_the_last_is_gone(world: World) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    assert world.call("ready", first)["state"] == "ready"
    assert world.call("ready", first, second)["state"] == "ready"
    world.azure.end("A")
    assert world.call("put_back", first, second, wait=10)["state"] == "waiting"
    assert world.machine.happened == ["do app"]
    world.azure.end("B")
    report = world.call("put_back", first, second, wait=10)
    assert report["state"] == "put_back"
    assert set(report["closed"]["events"]) == {"a", "b"}
    assert world.machine.happened == ["do app", "undo app"]
    assert world.record() is None


def test_an_event_of_another_run_keeps_the_host_drained(world: World) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.call("ready", first)
    world.call("ready", second, run="run-2")
    world.azure.end("A")
    report = world.call("put_back", first, wait=10)
    assert (report["state"], report["message"]) == ("put_back", "Another event still needs the host drained.")
    record = world.record()
    assert record is not None
    assert list(record["events"]) == ["b"]
    assert world.machine.out == {"app"}
    world.azure.end("B")
    assert world.call("put_back", second, run="run-2", wait=10)["state"] == "put_back"
    assert world.machine.out == set()


@pytest.mark.parametrize("readable", [True, False])
def test_an_event_of_another_run_also_stops_undoing_in_the_middle(world: World, readable: bool) -> None:
    world.steps = [step("app"), step("lb", "remote")]
    first = world.azure.announce("A")
    asked = world.call("ready", first)["next"]
    world.call("ready", first, controller_step={**asked, "ok": True})
    world.azure.end("A")
    undo = world.call("put_back", first, wait=10)["next"]
    world.call("ready", world.azure.announce("B"), run="run-2")
    if not readable:
        world.azure.unreadable = no_answer()
    report = world.call("put_back", first, controller_step={**undo, "ok": True}, wait=10)
    assert report["message"] == "Another event still needs the host drained."
    assert world.machine.happened.count("undo app") <= 1


def test_an_event_that_another_run_got_ready_for_in_the_last_moment_keeps_the_host_drained(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.azure.announce("A")
    world.call("ready", first)
    world.azure.end("A")
    start = world.worker.start

    def late_start(owner: Json, work: Work) -> bool:
        monkeypatch.undo()
        second = world.azure.announce("B")
        use_fake_kinds(world, monkeypatch)
        assert world.call("ready", second, run="run-2")["state"] == "ready"
        return start(owner, work)

    monkeypatch.setattr(world.worker, "start", late_start)
    assert world.call("put_back", first, wait=10)["state"] == "waiting"
    assert world.machine.out == {"app"}
    assert world.call("put_back", first, wait=10)["message"] == "Another event still needs the host drained."
    assert world.machine.out == {"app"}


def test_an_event_that_was_missing_for_one_read_is_not_approved_while_another_run_puts_the_host_back(
    world: World,
) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    assert world.call("ready", first)["state"] == "ready"
    assert world.call("ready", second, run="run-2")["state"] == "ready"
    shown = dict(world.azure.events)
    world.azure.events.clear()

    def approve() -> None:
        world.azure.events["B"] = shown["B"]
        world.call("approve", second, run="run-2")

    world.machine.before["undo app"] = approve
    world.call("put_back", first, wait=10)
    assert world.azure.posts == []


@pytest.mark.parametrize("is_held", [True, False])
def test_a_result_that_was_not_reported_does_not_keep_a_run_from_what_it_still_has(
    world: World, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    first, second = world.azure.announce("A"), world.azure.announce("B")
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", first, second)["next"]
    world.call("ready", first, second, controller_step={**asked, "ok": True})
    world.azure.events.clear()
    with monkeypatch.context() as patched:
        # The call is cut off before the work has ended, and another run takes over one of the events.
        patched.setattr(world.worker, "note_reported", lambda _state: None)
        undo = world.call("put_back", first, second, wait=10)["next"]
    world.take_over(second)
    if not is_held:
        world.keeper("run-2").close(["b"], ["b"], "gone")
    report = world.call("put_back", first, second, wait=10)
    assert (report["state"], report["next"]["mode"]) == ("next", "undo")
    report = world.call("put_back", first, second, wait=10, controller_step={**undo, "ok": True})
    assert report["state"] == "put_back"


def test_a_step_that_the_controller_took_until_the_event_started_was_not_taken_after_the_claim_was_lost(
    world: World,
) -> None:
    event = world.azure.announce()
    world.steps = [step("lb", "remote")]
    asked = world.call("ready", event)["next"]
    world.azure.start()
    assert world.call("ready", event, controller_step={**asked, "ok": True})["state"] == "gone"
    assert world.noted() == {"lb": "doing"}
    assert [mark["what"] for mark in world.record_or_fail()["timeline"]] == ["claimed", "draining"]


# Releasing


def test_a_release_leaves_what_is_drained_to_the_next_run(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event)
    assert world.call("release", event)["state"] == "released"
    assert world.noted() == {"app": "done"}
    jump(world, 1)
    assert world.call("ready", event, run="run-2")["state"] == "ready"
    assert world.machine.happened == ["do app"]


def test_a_release_of_what_needed_no_drain_leaves_nothing(world: World) -> None:
    world.steps = []
    event = world.azure.announce()
    world.call("ready", event)
    world.call("release", event)
    assert world.record() is None


def test_a_release_of_what_another_run_has_changes_nothing(world: World) -> None:
    event = world.azure.announce()
    world.call("ready", event, run="run-2")
    before = world.record()
    assert world.call("release", event)["message"] == "0 claims released"
    assert world.record() == before


# Input that is not as expected


def test_an_order_with_an_id_only_makes_a_record_that_can_be_read_again(world: World) -> None:
    world.azure.announce()
    assert world.call("ready", {"event_id": " a "})["state"] == "ready"
    assert world.entry()["event"]["event_id"] == " a "
    assert world.entry()["event"]["event_type"]


def test_an_order_for_something_that_no_record_can_hold_writes_nothing(world: World) -> None:
    world.azure.announce()
    report = world.call("ready", {"event_id": "A", "event_type": ["Reboot"]})
    assert report["state"] == "failed"
    assert "cannot be written" in report["message"]
    assert world.record() is None


def test_an_error_of_a_step_reaches_the_report_in_words(world: World) -> None:
    event = world.azure.announce()
    world.machine.fail("look app", error=EventsError("\x1b[31m{{ x }}"))
    report = world.call("ready", event)
    assert "\x1b" not in report["message"]
    assert "{{" not in report["message"]
