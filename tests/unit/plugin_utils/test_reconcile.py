# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs, pass by pass: what is ordered, what is approved and when, and how a run ends."""

from __future__ import annotations

import copy
import itertools
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _health_checks
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.plugin_utils._pass import MAX_RESTARTS, PassInput
from ansible_collections.graceful.azure.plugins.plugin_utils._recap import last_occasions
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import advance
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import step
from ansible_collections.graceful.azure.tests.unit.plugin_utils.simulation import Player, World

Json = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: Path) -> t.Iterator[World]:
    world = World(tmp_path)
    yield world
    assert world.violations == []


def outcome(report: Json, event_id: str = "E1") -> str:
    return str(next(event["outcome"] for event in report["events"] if event["event_id"] == event_id))


def holds(report: Json, event_id: str = "E1") -> str:
    return "; ".join(next(event["holds"] for event in report["events"] if event["event_id"] == event_id))


def results(report: Json) -> dict[str, str]:
    return {name: story["result"] for name, story in report["hosts"].items()}


def orders_of(player: Player, host: str) -> list[str]:
    """The orders that a host got, each once in a row."""
    found: list[str] = []
    for _pass, name, order in player.orders:
        if name == host and (not found or found[-1] != order):
            found.append(order)
    return found


# The whole cycle


def test_a_whole_maintenance_drains_approves_waits_and_puts_back(world: World) -> None:
    world.add("web1", "web2", "db1")
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    report = player.play()
    assert report["result"] == "done"
    assert outcome(report) == "completed"
    assert results(report) == {"web1": "restored", "web2": "restored"}
    assert player.approved == [("E1", "web1")]
    assert len(event.posts) == 1
    assert world.drained() == []
    assert orders_of(player, "web1") == ["look", "ready", "put_back"]
    assert orders_of(player, "db1") == ["look"]
    assert all(host.record is None for host in world.hosts.values())


def test_nothing_announced_ends_the_run_after_one_look(world: World) -> None:
    world.add("web1")
    player = Player(world)
    report = player.play()
    assert (report["result"], player.run["pass"], report["messages"]) == ("nothing", 1, ["Nothing is announced."])


def test_a_run_that_waits_takes_up_what_is_announced_later(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web2", after=35)
    player = Player(world, wait=120)
    assert player.play()["result"] == "done"
    assert orders_of(player, "web2") == ["look", "ready", "put_back"]


def test_an_event_that_needs_nothing_does_not_end_the_wait_for_the_rest_of_the_fleet(world: World) -> None:
    world.add("web1", "web2", "web3")
    world.hosts["web3"].settings["window"] = {"start": "22:00", "end": "23:00"}
    world.announce("E1", "web1", type="SomethingNew", notice=3600)
    world.announce("E2", "web3", notice=8 * 3600)
    world.announce("E3", "web2", after=65)
    player = Player(world, wait=300)
    report = player.play()
    assert [outcome(report, event_id) for event_id in ("E1", "E2", "E3")] == ["notified", "deferred", "completed"]
    assert report["result"] == "done"


def test_a_run_that_waits_wakes_when_the_time_of_a_deferred_event_comes_also_after_other_work(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].settings["window"] = {"start": "18:10", "end": "20:00"}
    opens = world.now + 600
    deferred = world.announce("E1", "web1", notice=3 * 3600)
    world.announce("E2", "web2")
    report = Player(world, wait=900).play()
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")
    assert opens <= deferred.posts[0][0] < opens + 60


def test_a_run_that_has_worked_does_not_wait_for_a_time_that_comes_after_its_own(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].settings["window"] = {"start": "19:00", "end": "20:00"}
    world.announce("E1", "web1", notice=3 * 3600)
    world.announce("E2", "web2")
    begin = world.now
    report = Player(world, wait=900).play()
    assert (outcome(report), outcome(report, "E2")) == ("deferred", "completed")
    assert world.now - begin < 600


def test_a_run_that_waits_in_vain_ends_with_its_time(world: World) -> None:
    world.add("web1")
    begin = world.now
    assert Player(world, wait=60).play()["result"] == "nothing"
    assert 60 <= world.now - begin < 75


def test_check_mode_says_what_would_be_done_and_does_nothing(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    player = Player(world, check_mode=True)
    report = player.play()
    assert (report["result"], outcome(report), results(report)) == ("planned", "planned", {"web1": "untouched"})
    assert player.run["pass"] == 1
    assert world.drained() == []


def test_an_event_that_is_cancelled_is_put_back_and_never_approved(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    event = world.announce("E1", "web1", "web2")
    event.cancelled = world.now + 40
    report = Player(world).play()
    assert event.posts == []
    assert world.drained() == []
    assert results(report)["web1"] == "restored"


@pytest.mark.parametrize("hidden", [(10, 11), (10, 14), (10, 60)])
@pytest.mark.parametrize("approves", [True, False])
def test_an_event_that_the_document_does_not_show_for_a_while_is_drained_for_again(
    world: World, hidden: tuple[float, float], approves: bool
) -> None:
    host, _other = world.add("web1", "web2")
    begin = world.now
    host.sees = lambda event: event.event_id != "E1" or not hidden[0] <= host.clock.now - begin < hidden[1]
    world.hosts["web2"].sees = lambda event: event.event_id != "E1"
    if not approves:
        host.settings["policy"] = [{"name": "only drain", "event_type": "Reboot", "action": "drain"}]
    # The other event keeps the run going.
    event, _lasting = world.announce("E1", "web1", notice=200, delay=120), world.announce("E2", "web2", lasts=400)
    player = Player(world)
    player.play_until(lambda: event.has_started(world.now))
    assert host.is_drained, player.lines
    assert len(event.posts) == approves
    assert player.play()["result"] == "done", player.lines
    assert world.drained() == []


def test_an_event_that_appears_during_a_run_is_taken_up_by_it(world: World) -> None:
    world.add("web1", "web2", wait=0)
    world.announce("E1", "web1", "web2")
    world.announce("E2", "web2", after=15)
    report = Player(world).play()
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")
    assert world.hosts["web2"].machine.happened.count("do app") <= 2
    assert world.drained() == []


def test_two_events_on_one_host_drain_it_once(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", lasts=20, type="Freeze")
    world.announce("E2", "web1", lasts=60, type="Freeze")
    report = Player(world).play()
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")
    assert world.hosts["web1"].machine.happened == ["do app", "undo app"]


def test_a_host_whose_event_is_only_reported_is_never_touched(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", type="SomethingNew")
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("nothing", "notified")
    assert world.hosts["web1"].machine.happened == []


def test_an_event_that_is_approved_without_a_drain_needs_no_steps(world: World) -> None:
    policy = [{"action": "approve"}]
    (web1,) = world.add("web1", policy=policy)
    web1.steps = []
    event = world.announce("E1", "web1")
    assert outcome(Player(world).play()) == "completed"
    assert len(event.posts) == 1


def test_a_preempt_is_drained_and_left_to_azure(world: World) -> None:
    (web1,) = world.add("web1")
    event = world.announce("E1", "web1", type="Preempt", notice=30)
    web1.away = lambda now: now >= event.not_before
    report = Player(world).play()
    assert (outcome(report), results(report)) == ("drained", {"web1": "gone"})
    assert report["result"] == "done"
    assert event.posts == []


def test_a_preempt_uses_its_whole_notice(world: World) -> None:
    """Nothing is kept back for an approval, and what is saved late is saved as long as Azure has not acted."""
    (web1,) = world.add("web1")
    web1.checkpoint = [step("data", "save")]
    web1.takes = {"app": 17, "data": 10}
    event = world.announce("E1", "web1", type="Preempt", notice=30)
    web1.away = lambda now: now >= event.not_before
    report = Player(world).play()
    assert (outcome(report), results(report)) == ("drained", {"web1": "gone"})
    assert web1.machine.happened == ["do app", "do data"]


def test_a_preempt_whose_drain_failed_is_a_failure(world: World) -> None:
    (web1,) = world.add("web1")
    web1.machine.fail("do app")
    event = world.announce("E1", "web1", type="Preempt", notice=30)
    web1.away = lambda now: now >= event.not_before
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("failed", "failed")
    assert "do app does not work" in holds(report)


def test_a_preempt_of_a_host_without_drain_steps_is_a_failure(world: World) -> None:
    """What it has is saved all the same."""
    (web1,) = world.add("web1", drain_not_set=True)
    web1.steps, web1.checkpoint = [], [step("data", "save")]
    event = world.announce("E1", "web1", type="Preempt", notice=30)
    web1.away = lambda now: now >= event.not_before
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("failed", "failed")
    assert "nothing is drained on web1: graceful_drain_steps is not set" in holds(report)
    assert web1.machine.happened == ["do data"]


def test_a_deletion_that_waits_for_another_says_so(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", type="Terminate", delay=10_000)
    world.announce("E2", "web2", type="Terminate", delay=10_000)
    player = Player(world)
    player.play_until(lambda: bool(player.approved))
    player.one_pass()
    assert any(
        "approved by web1" in line and "Azure starts it when 'E2' is approved, too" in line for line in player.lines
    )


@pytest.mark.parametrize("kind", ["Reboot", "Redeploy"])
def test_a_failure_of_hardware_is_reported_although_nothing_can_be_done(world: World, kind: str) -> None:
    (web1,) = world.add("web1")
    world.announce("E1", "web1", type=kind, notice=0, lasts=600)
    # The host is up again, and the event stands for a while.
    world.now += 400
    player = Player(world, webhooks=True)
    report = player.play()
    assert (report["result"], outcome(report)) == ("nothing", "started")
    assert player.run["tell"] == ["noticed"]
    assert report["events"][0]["reason"] == f"{kind} of web1 has started: wait until it is over."
    assert web1.machine.happened == []


# What is drained for a while only

RECOMMENDED = "SpotRebalanceRecommendation"
FOR_TEN_MINUTES = [
    {"event_type": RECOMMENDED, "action": "drain", "expires_after": 600},
    {"event_type": "Preempt", "action": "drain"},
    {"action": "drain_and_approve"},
]


def test_a_host_is_put_back_if_nothing_follows_a_recommendation_in_time_and_not_drained_for_it_again(
    world: World,
) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES)
    world.announce("E1", "web1", type=RECOMMENDED, notice=3600)
    begin = world.now
    report = Player(world).play()
    assert (report["result"], outcome(report), results(report)) == ("done", "drained", {"web1": "restored"})
    assert report["events"][0]["message"] == (
        f"drained: {RECOMMENDED} of web1, put back because nothing followed within 10 min."
    )
    assert 600 <= world.now - begin < 660
    assert web1.machine.happened == ["do app", "undo app"]
    world.now += 60
    second = Player(world, "run-2").play()
    assert (second["result"], outcome(second)) == ("nothing", "notified")
    assert "no other event followed within 10 min" in second["events"][0]["message"]
    # When it is gone, nothing is left of it.
    world.now = begin + 4000
    assert Player(world, "run-3").play()["result"] == "done"
    assert web1.record is None
    assert web1.machine.happened == ["do app", "undo app"]


def test_a_host_without_steps_is_not_called_drained_when_a_recommendation_has_lapsed(world: World) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES, drain_not_set=True)
    web1.steps = []
    world.announce("E1", "web1", type=RECOMMENDED, notice=3600)
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("failed", "failed")
    assert "nothing is drained on web1: graceful_drain_steps is not set" in holds(report)


def test_a_host_whose_recommendation_is_taken_back_is_put_back_at_once(world: World) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES)
    event = world.announce("E1", "web1", type=RECOMMENDED, notice=3600)
    event.cancelled = world.now + 100
    begin = world.now
    report = Player(world).play()
    assert results(report) == {"web1": "restored"}
    assert world.now - begin < 150
    assert web1.record is None


def test_a_host_stays_drained_if_an_eviction_follows_the_recommendation(world: World) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES)
    world.announce("E1", "web1", type=RECOMMENDED, notice=3600)
    eviction = world.announce("E2", "web1", type="Preempt", notice=60, after=580)
    web1.away = lambda now: now >= eviction.not_before
    report = Player(world).play()
    assert web1.machine.happened == ["do app"]
    assert (outcome(report, "E2"), results(report)) == ("drained", {"web1": "gone"})


def test_a_run_that_follows_another_counts_the_time_from_the_first_drain(world: World) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES)
    world.announce("E1", "web1", type=RECOMMENDED, notice=3600)
    killed = Player(world)
    killed.play_until(lambda: web1.machine.happened == ["do app"])
    begin = world.now
    world.now += 400
    Player(world, "run-2").play()
    assert web1.machine.happened == ["do app", "undo app"]
    assert 590 <= world.now - begin < 660


def test_what_has_lapsed_does_not_keep_a_host_drained_that_another_event_has_gone_by(world: World) -> None:
    (web1,) = world.add("web1", policy=FOR_TEN_MINUTES)
    world.announce("E1", "web1", type=RECOMMENDED, notice=7200)
    Player(world).play()
    world.announce("E2", "web1", notice=600)
    world.now += 30
    report = Player(world, "run-2").play()
    assert outcome(report, "E2") == "completed"
    assert web1.machine.happened == ["do app", "undo app"] * 2


# Held


def test_one_host_that_cannot_be_drained_holds_the_event_of_all(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("held", "held")
    assert "web2 is not ready" in holds(report)
    assert event.posts == []
    assert results(report) == {"web1": "restored", "web2": "restored"}


def test_a_host_that_is_mended_in_time_lets_the_same_run_approve(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app", times=3)
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("done", "completed")
    assert len(event.posts) == 1


@pytest.mark.parametrize(("name", "word"), [("vm-stranger", "no inventory host has the Azure name")])
def test_a_name_that_nobody_knows_holds_the_event(world: World, name: str, word: str) -> None:
    world.add("web1")
    event = world.announce("E1", "web1", name)
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("held", "held")
    assert word in holds(report)
    assert event.posts == []


def test_an_event_of_strangers_only_is_held(world: World) -> None:
    world.add("web1")
    event = world.announce("E1", "vm-stranger")
    report = Player(world).play()
    assert (report["result"], outcome(report), event.posts) == ("held", "held", [])
    assert "no inventory host has the Azure name" in holds(report)


def test_an_event_that_one_host_does_not_let_be_approved_is_held(world: World) -> None:
    world.add("web1")
    world.add("web2", policy=[{"action": "drain"}])
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert (report["result"], outcome(report), event.posts) == ("held", "held", [])
    assert "the policy of web2 says drain" in holds(report)


def test_a_host_outside_the_run_holds_the_event(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2")
    player = Player(world, targeted=["web1"])
    player.names = {"web2": "vm-web2"}
    report = player.play()
    assert "outside this run" in holds(report)
    assert event.posts == []


@pytest.mark.parametrize(
    ("targeted", "word"), [(["web1"], "web2 is outside this run"), (None, "web2 cannot be reached")]
)
def test_the_azure_name_of_a_host_is_known_from_an_earlier_run(
    world: World, targeted: list[str] | None, word: str
) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    event = world.announce("E1", "web1", "web2")
    player = Player(world, targeted=targeted)
    player.run["earlier_names"] = {"web2": "VM-web2"}
    report = player.play()
    assert word in holds(report)
    assert "no inventory host" not in holds(report)
    assert event.posts == []


def test_a_name_from_an_earlier_run_does_not_count_if_another_host_has_it_now(world: World) -> None:
    world.add("web1", "old")
    world.hosts["old"].away = lambda _now: True
    event = world.announce("E1", "web1")
    player = Player(world)
    player.run["earlier_names"] = {"old": "vm-web1"}
    assert outcome(player.play()) == "completed"
    assert len(event.posts) == 1


def test_a_host_cannot_pass_for_another_one_that_cannot_be_asked(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    world.hosts["web1"].vm_name = "vm-web2"
    event = world.announce("E1", "web2")
    player = Player(world)
    player.run["earlier_names"] = {"web1": "vm-web1", "web2": "vm-web2"}
    assert "web1 and web2 have the same Azure name 'vm-web2'" in holds(player.play())
    assert event.posts == []
    # The next run is not to believe it either.
    assert player.run["doubtful_names"] == ["web1"]


@pytest.mark.parametrize("status", ["approved", "posting"])
def test_the_record_of_a_host_says_nothing_about_events_of_others(world: World, status: str) -> None:
    world.add("web1", "liar")
    event = world.announce("E1", "web1")
    keeper = world.hosts["liar"].keeper("nobody", silent_for=10_000.0)
    keeper.claim([{"event_id": "E1", "event_type": "Reboot"}], "")
    approval = {"at": world.now + 10_000, "status": status, "run_id": "nobody", "message": ""}
    keeper.note_event("e1", approval=approval)
    assert outcome(Player(world).play()) == "completed"
    assert [by for _at, by in event.posts] == ["web1"]


def test_a_host_that_the_inventory_gives_another_name_has_it(world: World) -> None:
    world.add("web1", "old")
    world.hosts["old"].away = lambda _now: True
    event = world.announce("E1", "web1")
    player = Player(world)
    player.names = {"web1": "vm-web1"}
    player.run["earlier_names"] = {"web1": "vm-before", "old": "vm-web1"}
    assert outcome(player.play()) == "completed"
    assert (len(event.posts), player.run["doubtful_names"]) == (1, [])


def test_a_hold_because_of_an_unknown_name_lists_the_hosts_that_could_not_be_asked(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    world.announce("E1", "web1", "web2")
    reason = holds(Player(world).play())
    assert "no inventory host has the Azure name 'vm-web2'; web2 could not be asked for its Azure name" in reason


def test_a_hold_because_of_an_unknown_name_lists_the_hosts_that_the_run_leaves_out(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "web2")
    player = Player(world, targeted=["web1"])
    reason = holds(player.play())
    assert reason.endswith("; web2 is outside this run (--limit or graceful_hosts) and not asked for its Azure name")


def test_a_host_that_does_not_see_the_event_holds_it(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].sees = lambda _event: False
    event = world.announce("E1", "web1", "web2")
    assert "does not show it" in holds(Player(world).play())
    assert event.posts == []


def test_a_host_whose_service_cannot_be_read_holds_the_event_until_it_can(world: World) -> None:
    world.add("web1", "web2")
    mended = world.now + 60
    world.hosts["web2"].blind = lambda now: now < mended
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert outcome(report) == "completed"
    assert event.posts[0][0] >= mended


def test_a_damaged_record_holds_the_event_and_fails_the_run(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].folder.text = "damaged"
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert report["result"] == "failed"
    assert event.posts == []
    assert results(report)["web2"] == "failed"
    assert "cannot be used as a record" in "\n".join(report["messages"])


def test_a_host_that_gave_up_its_drain_holds_the_event_and_is_back_in_service(world: World) -> None:
    world.add("web1", "web2", undo_on_failure=True)
    world.hosts["web2"].machine.fail("do app", times=1)
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert outcome(report) == "held"
    assert event.posts == []
    assert world.hosts["web2"].machine.happened == []


# Hosts that cannot be reached


def test_a_host_that_answers_again_is_drained_and_the_event_approved_by_the_same_run(world: World) -> None:
    world.add("web1", "web2")
    back = world.now + 60
    world.hosts["web2"].away = lambda now: now < back
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    player.names = {"web2": "vm-web2"}
    report = player.play()
    assert outcome(report) == "completed"
    assert event.posts[0][0] >= back


def test_a_host_that_never_answers_holds_the_event_and_the_run_ends(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    player.names = {"web2": "vm-web2"}
    report = player.play()
    assert (report["result"], outcome(report)) == ("failed", "held")
    assert "web2 cannot be reached" in holds(report)
    assert event.posts == []
    assert results(report)["web1"] == "restored"


def test_a_host_that_is_lost_after_it_was_ready_takes_the_approval_back(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].takes["app"] = 25
    lost = world.now + 5
    world.hosts["web2"].away = lambda now: now > lost
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    report = player.play()
    assert event.posts == []
    assert results(report)["web2"] == "unreachable"
    assert report["result"] == "failed"


def test_a_host_that_ansible_does_not_come_back_to_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    event = world.announce("E1", "web2")
    player = Player(world)
    player.names = {"web2": "web2"}
    act = player._act

    def act_and_lose(hosts: t.Sequence[str]) -> None:
        act(hosts)
        player.results["web2"]["lost"] = True

    monkeypatch.setattr(player, "_act", act_and_lose)
    report = player.play(passes=3)
    assert (report["result"], outcome(report)) == ("held", "held")
    assert event.posts == []


def test_a_host_that_does_not_come_back_ends_the_run_as_unreachable(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2")
    world.hosts["web2"].away = lambda now: bool(event.posts) and now > event.starts
    begin = world.now
    report = Player(world).play()
    assert results(report) == {"web1": "restored", "web2": "unreachable"}
    assert (report["result"], outcome(report)) == ("failed", "approved")
    # The notice, and then graceful_gone_timeout.
    assert world.now - begin < 300 + 120 + 60


def test_a_host_that_comes_back_late_is_still_put_back(world: World) -> None:
    world.add("web1")
    event = world.announce("E1", "web1", lasts=30)
    world.hosts["web1"].away = lambda now: bool(event.posts) and event.starts < now < event.starts + 100
    assert results(Player(world).play()) == {"web1": "restored"}


def test_a_host_that_comes_back_after_the_timeout_is_put_back_by_a_run_that_still_goes_on(world: World) -> None:
    (web1, _web2) = world.add("web1", "web2", gone_timeout=30)
    event = world.announce("E1", "web1", notice=60)
    world.announce("E2", "web2", lasts=300)
    world.hosts["web2"].settings["gone_timeout"] = 600
    web1.away = lambda now: bool(event.posts) and event.starts < now < event.not_before + 100
    report = Player(world).play()
    assert results(report) == {"web1": "restored", "web2": "restored"}
    assert report["result"] == "done"


def test_a_run_that_could_not_ask_a_host_fails(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].away = lambda _now: True
    report = Player(world).play()
    assert report["result"] == "failed"
    assert "it is not known what Azure has announced to this host" in "\n".join(report["messages"])


# Approving


def test_an_approver_that_fails_is_followed_by_the_next_one(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    player.play_until(lambda: bool(player.run["approve"]))
    # It cannot be reached in the very moment.
    until = world.now + 1
    world.hosts["web1"].away = lambda now: now < until
    player.play()
    assert [host for _id, host in player.approved][:2] == ["web1", "web2"]
    assert [host for _at, host in event.posts] == ["web2"]


def test_an_event_that_the_service_refuses_to_start_is_held(world: World) -> None:
    world.add("web1", "web2")
    for host in world.hosts.values():
        host.refuses = lambda _now: True
    event = world.announce("E1", "web1", "web2")
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("held", "held")
    assert "could not approve it" in holds(report)
    assert event.posts == []


def test_an_answer_that_got_lost_is_not_followed_by_another_request_of_anybody(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].loses_answer = lambda _now: True
    event = world.announce("E1", "web1", "web2", delay=20)
    report = Player(world).play()
    assert len(event.posts) == 1
    assert outcome(report) == "completed"


def test_a_request_that_got_lost_is_sent_again_when_that_is_clear(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].loses_answer = lambda _now: True
    event = world.announce("E1", "web1", "web2", delay=10_000)
    player = Player(world)
    player.play_until(lambda: len(event.posts) == 2)
    assert event.posts[1][0] - event.posts[0][0] >= 30


def test_an_event_is_approved_once_though_azure_takes_long_to_start_it(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2", notice=300, delay=10_000)
    report = Player(world).play()
    assert len(event.posts) == 1
    assert outcome(report) == "completed"


# Time


@pytest.mark.parametrize(
    ("notice", "late", "most"),
    [
        # Azure does not start it at NotBefore: graceful_gone_timeout counts from then.
        (60, 90000, 60 + 120),
        # No run waits for more than a day.
        (3 * 86400, 0, 86400),
    ],
)
def test_a_run_ends_when_its_event_does_not(world: World, notice: float, late: float, most: float) -> None:
    world.add("web1", policy=[{"name": "only drain", "action": "drain"}], gone_timeout=120)
    world.announce("E1", "web1", notice=notice, late=late)
    begin = world.now
    Player(world, wait_round=600).play()
    assert world.now - begin < most + 1300


@pytest.mark.parametrize("trouble", ["away", "blind"])
def test_a_run_ends_when_a_host_with_leftovers_of_an_earlier_run_cannot_be_asked_any_more(
    world: World, trouble: str
) -> None:
    (web1,) = world.add("web1", gone_timeout=120)
    world.announce("E1", "web1", notice=60)
    earlier = Player(world, "run-0")
    earlier.play_until(lambda: web1.is_drained)
    world.now += 3600
    begin = world.now
    setattr(web1, trouble, lambda now: now > begin + 1)
    report = Player(world).play()
    assert world.now - begin < 900
    assert report["result"] == "failed"


# Confirming


@pytest.mark.parametrize(("answer", "posts", "wanted"), [("yes", 1, "completed"), ("no", 0, "held"), ("", 0, "held")])
def test_a_person_is_asked_once_and_only_a_yes_approves(world: World, answer: str, posts: int, wanted: str) -> None:
    world.add("web1", confirm=True)
    world.add("web2")
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    player.answer = lambda _event_id: answer
    report = player.play()
    assert player.asked == ["E1"]
    assert len(event.posts) == posts
    assert outcome(report) == wanted
    if wanted == "held":
        assert "Nobody confirmed" in holds(report)


def test_what_needs_no_person_is_approved_before_a_person_is_asked(world: World) -> None:
    world.add("web1", confirm=True)
    world.add("web2")
    world.announce("E1", "web1")
    other = world.announce("E2", "web2")
    player = Player(world)
    posts_before: list[int] = []

    def answer(_event_id: str) -> str:
        posts_before.append(len(other.posts))
        return "yes"

    player.answer = answer
    report = player.play()
    assert posts_before == [1]
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")


def test_a_host_that_is_not_ready_any_more_when_the_person_has_answered_holds_the_event(world: World) -> None:
    world.add("web1", confirm=True)
    (web2,) = world.add("web2")
    event = world.announce("E1", "web1", "web2")
    player = Player(world)

    def answer(_event_id: str) -> str:
        world.now += 60
        web2.machine.out.clear()
        web2.machine.fail("do app")
        return "yes"

    player.answer = answer
    player.play()
    assert event.posts == []


def test_a_run_that_was_suspended_before_its_approval_verifies_all_hosts_again(world: World) -> None:
    _web1, web2 = world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2", notice=3600)
    player = Player(world)
    player.play_until(lambda: bool(player.run["approve"]))
    # Meanwhile somebody puts web2 back, and the one that approves does not know.
    world.now += 25
    web2.machine.out.clear()
    player.one_pass()
    assert event.posts == []
    assert player.play()["result"] == "done"
    assert len(event.posts) == 1


@pytest.mark.parametrize("seconds", [10, 40])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_hosts_agree_that_they_are_ready_although_passes_take_long(world: World, seconds: float, steps: int) -> None:
    web1, web2 = world.add("web1", "web2")
    web1.steps = [step("lb", "remote")]
    # Each of them is proven in a pass of its own.
    web2.steps = [step(f"lb{number}", "remote") for number in range(steps)]
    event = world.announce("E1", "web1", "web2", notice=3600)
    player = Player(world)

    def slow() -> None:
        # The steps of the controller are what takes long, not the approval.
        world.now += 0 if player.run["approve"] else seconds

    assert player.play(each=slow)["result"] == "done"
    assert event.posts[0][0] < event.not_before


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["events"]["e1"].update(ready=None),
        lambda record: record["events"]["e1"]["claim"].update(run_id="run-9", silent_until=0.0),
        lambda record: record["events"].clear(),
        None,
    ],
)
def test_a_report_that_a_host_is_ready_does_not_count_if_its_record_says_otherwise(
    world: World, change: t.Callable[[Json], t.Any] | None
) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "web2", notice=3600)
    player = Player(world)
    player.play_until(lambda: bool(player.run["approve"]))
    results = {host: {**one, "pass": player.run["pass"] + 1} for host, one in player.results.items()}
    given = PassInput(results, world.groups, {}, world.now)
    assert [one["event"]["event_id"] for one in advance(player.run, given)["approve"]] == ["E1"]
    changed = copy.deepcopy(results)
    if change is None:
        changed["web2"]["observation"]["record"] = None
    else:
        change(changed["web2"]["observation"]["record"])
    run = advance(player.run, given._replace(hosts=changed))
    assert run["approve"] == []
    assert "web2 is not ready: its record has no verification by this run" in " ".join(run["events"]["e1"]["all_holds"])
    assert run["orders"]["web2"]["order"] == "ready"


def test_a_step_that_a_host_has_asked_for_long_ago_is_not_taken_before_it_is_asked_again(world: World) -> None:
    (host,) = world.add("web1")
    host.steps = [step("lb", "remote")]
    world.announce("E1", "web1", notice=3600)
    player = Player(world)
    player.play_until(lambda: bool(player.run.get("controller_steps")))
    result, before = player.results["web1"], player.run
    late = {"web1": {**result, "pass": before["pass"] + 1}}
    given = PassInput(late, world.groups, {}, result["at"] + 61)
    assert advance(before, given)["controller_steps"] == {}
    assert advance(before, given._replace(now=result["at"] + 30))["controller_steps"]["web1"]["name"] == "lb"


def test_a_step_of_the_controller_that_somebody_undid_while_the_person_was_asked_is_taken_again(world: World) -> None:
    (web1,) = world.add("web1", confirm=True)
    web1.steps = [step("lb", "remote"), step("second", "remote")]
    event = world.announce("E1", "web1", notice=600)
    player = Player(world)

    def answer(_event_id: str) -> str:
        world.now += 5
        web1.machine.out.clear()
        return "yes"

    player.answer = answer
    assert player.play()["result"] == "done"
    assert len(event.posts) == 1
    assert web1.machine.happened[:4] == ["do lb", "do second", "do lb", "do second"]


def test_no_person_is_asked_about_an_event_that_is_held_anyway(world: World) -> None:
    world.add("web1", "web2", confirm=True)
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", "web2")
    player = Player(world)
    player.play()
    assert player.asked == []


# Mistakes


def test_a_mistake_ends_the_run_at_once_and_nothing_is_drained(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].mistakes = ["graceful_policy: Rule 1 has no action"]
    event = world.announce("E1", "web1", "web2")
    player = Player(world)
    report = player.play()
    assert (report["result"], outcome(report)) == ("held", "held")
    assert "Rule 1 has no action" in holds(report)
    assert player.run["pass"] <= 2
    assert world.drained() == []
    assert event.posts == []


def test_a_mistake_does_not_keep_the_others_from_draining_when_there_is_no_time_to_lose(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].mistakes = ["graceful_policy: Rule 1 has no action"]
    event = world.announce("E1", "web1", "web2", notice=25)
    report = Player(world).play()
    assert world.hosts["web1"].machine.happened == ["do app", "undo app"]
    assert world.hosts["web2"].machine.happened == []
    assert event.posts == []
    assert outcome(report) == "held"


def test_a_mistake_in_one_group_holds_its_events_and_lets_everything_else_go_on(world: World) -> None:
    world.add("web1", groups=["web"])
    (db1,) = world.add("db1", groups=["db"])
    db1.mistakes = ["graceful_window: The window has no end"]
    world.announce("E1", "web1")
    reboot = world.announce("E2", "db1")
    # What nobody drains for by default, the policy that cannot be read may have been about.
    world.announce("E3", "db1", type="SomethingNew")
    player = Player(world, webhooks=True)
    occasions: list[str] = []
    report = player.play(each=lambda: occasions.extend(player.run["tell"]))
    occasions += player.run["tell"]
    assert [outcome(report, event_id) for event_id in ("E1", "E2", "E3")] == ["completed", "held", "held"]
    assert report["result"] == "held"
    assert "db1: graceful_window: The window has no end" in holds(report, "E3")
    assert reboot.posts == []
    assert db1.machine.happened == []
    assert occasions.count("held") == 1


@pytest.mark.parametrize("announced", [True, False])
def test_check_mode_fails_if_something_is_written_wrong(world: World, announced: bool) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].mistakes = [
        "graceful_polcy is set, but there is no such variable. Did you mean graceful_policy?"
    ]
    if announced:
        world.announce("E1", "web1")
    report = Player(world, check_mode=True).play()
    assert report["result"] == "failed"
    assert (
        "web2: graceful_polcy is set, but there is no such variable. Did you mean graceful_policy?"
        in report["messages"]
    )


def test_check_mode_fails_if_the_webhooks_are_written_wrong(world: World) -> None:
    world.add("web1")
    player = Player(world, check_mode=True)
    player.run["options"]["webhook_mistake"] = "graceful_webhooks[0] needs a url"
    report = player.play()
    assert report["result"] == "failed"
    assert "No webhooks are sent: graceful_webhooks[0] needs a url" in report["messages"]


def test_a_name_that_was_wrong_in_the_beginning_holds_to_the_end(world: World) -> None:
    """What is registered after the first pass may hide it."""
    (web1,) = world.add("web1")
    event = world.announce("E1", "web1")
    web1.mistakes = ["graceful_host is set, but there is no such variable."]
    player = Player(world, wait=60)
    player.one_pass()
    web1.mistakes = []
    assert "graceful_host is set" in holds(player.play())
    assert event.posts == []


def test_an_event_of_a_host_without_drain_steps_is_held(world: World) -> None:
    (web1,) = world.add("web1", drain_not_set=True)
    web1.steps = []
    event = world.announce("E1", "web1")
    report = Player(world).play()
    assert "graceful_drain_steps is not set" in holds(report)
    assert event.posts == []


def test_a_group_that_does_not_exist_is_reported_also_if_nothing_is_announced(world: World) -> None:
    world.add("web1", policy=[{"group": "wbe", "action": "notify"}], min_available={"wbe": 1})
    report = Player(world).play()
    assert report["result"] == "nothing"
    assert report["messages"] == [
        "Nothing is announced.",
        "graceful_min_available names the group 'wbe', which the inventory does not have: it protects nothing.",
        "graceful_policy names the group 'wbe', which the inventory does not have: no host matches it.",
    ]


# Capacity, window, batches


def test_what_the_capacity_allows_one_by_one_is_done_one_after_the_other(world: World) -> None:
    world.add("web1", "web2", groups=["web"], min_available=1)
    world.announce("E1", "web1")
    world.announce("E2", "web2", notice=300)
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, len(world.drained()))

    report = Player(world).play(each=count)
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")
    assert most == 1


def test_an_event_outside_its_window_is_deferred_and_the_run_ends(world: World) -> None:
    world.add("web1", window={"start": "20:00", "end": "22:00"})
    event = world.announce("E1", "web1", notice=3 * 3600)
    report = Player(world).play()
    assert (report["result"], outcome(report)) == ("deferred", "deferred")
    assert "20:00" in holds(report)
    assert (event.posts, world.drained()) == ([], [])


def test_a_window_that_opens_too_late_does_not_count(world: World) -> None:
    world.add("web1", window={"start": "20:00", "end": "22:00"})
    world.announce("E1", "web1", notice=300)
    assert outcome(Player(world).play()) == "completed"


@pytest.mark.parametrize(("serial", "batches"), [(["1"], [1, 1, 1]), (["2"], [2, 1]), (["50%"], [1, 1, 1]),
                                                 (["1", "2"], [1, 2]), (["100%"], [3])])  # fmt: skip
def test_hosts_drain_in_batches_and_the_approval_comes_after_the_last(
    world: World, serial: list[str], batches: list[int]
) -> None:
    world.add("web1", "web2", "web3")
    event = world.announce("E1", "web1", "web2", "web3")
    sizes = [0]

    def count() -> None:
        if not event.posts and len(world.drained()) > sizes[-1]:
            sizes.append(len(world.drained()))

    report = Player(world, serial=serial).play(each=count)
    assert outcome(report) == "completed"
    assert [later - sooner for sooner, later in itertools.pairwise(sizes)] == batches


def test_a_host_that_fails_does_not_stop_the_batches_after_it(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].machine.fail("do app")
    world.announce("E1", "web1", "web2")
    Player(world, serial=["1"]).play()
    assert "do app" in world.hosts["web2"].machine.happened


@pytest.mark.parametrize("trouble", ["it cannot be reached", "its service cannot be read", "its record is damaged"])
def test_a_host_that_cannot_begin_does_not_stop_the_batches_after_it(world: World, trouble: str) -> None:
    (web1, *_others) = world.add("web1", "web2", "web3")
    if trouble == "it cannot be reached":
        web1.away = lambda _now: True
    elif trouble == "its service cannot be read":
        web1.blind = lambda _now: True
    else:
        web1.folder.text = "damaged"
    event = world.announce("E1", "web1", "web2", "web3")
    player = Player(world, serial=["1"])
    player.names = {"web1": "vm-web1"}
    player.play_until(lambda: world.hosts["web2"].is_drained and world.hosts["web3"].is_drained)
    # With less than two minutes left, all begin at once.
    assert event.not_before - world.now > 150


def test_an_urgent_host_that_cannot_be_reached_does_not_keep_the_others_waiting(world: World) -> None:
    (web1, web2) = world.add("web1", "web2")
    web1.away = lambda _now: True
    world.announce("E1", "web1", notice=100)
    other = world.announce("E2", "web2", notice=900)
    player = Player(world)
    player.names = {"web1": "vm-web1"}
    player.play_until(lambda: web2.is_drained)
    assert other.not_before - world.now > 800


def test_what_is_urgent_begins_before_everything_else(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].takes["app"] = 5
    world.announce("E1", "web1", notice=900)
    world.announce("E2", "web2", notice=30, type="Preempt")
    player = Player(world)
    player.one_pass()
    assert {host: order["order"] for host, order in player.run["orders"].items()}["web2"] == "ready"
    assert player.run["orders"]["web1"]["order"] == "look"
    report = player.play()
    assert outcome(report) == "completed"


@pytest.mark.parametrize(
    ("left", "approves", "seconds", "urgent"),
    [
        (900, True, 890, False),
        (40, True, 30, True),
        (30, True, 23, True),
        (8, True, 6, True),
        (2, True, 5, True),
        (119, True, 109, True),
        (120, True, 110, False),
        # Nothing is kept back for an approval that is never sent.
        (30, False, 30, True),
    ],
)
def test_a_part_of_the_notice_is_kept_for_the_approval(
    world: World, left: int, approves: bool, seconds: float, urgent: bool
) -> None:
    world.add("web1", policy=[{"action": "drain_and_approve" if approves else "drain"}])
    # The look takes half a second, and the service tells whole seconds.
    world.announce("E1", "web1", notice=left + 0.5)
    player = Player(world)
    player.one_pass()
    order = player.run["orders"]["web1"]
    assert (order["order"], order["seconds"], order["urgent"]) == ("ready", seconds, urgent)


def test_a_slice_is_divided_where_there_are_fewer_forks_than_hosts(world: World) -> None:
    world.add(*[f"web{number}" for number in range(10)])
    world.announce("E1", *world.hosts)
    player = Player(world, forks=5)
    player.one_pass()
    assert {order["wait"] for order in player.run["orders"].values()} == {5.0}


# Several runs


def claim(world: World, host: str, event_id: str, run_id: str, drain: bool = True) -> None:
    """Another run has claimed the event on that host, and drained it."""
    one = world.hosts[host]
    one.clock.now = world.now
    event = {"event_id": event_id, "event_type": "Reboot", "event_status": "Scheduled", "resources": [one.vm_name]}
    keeper = one.keeper(run_id)
    keeper.claim([event], one.boot_id)
    if drain:
        noted = {"phase": "drain", "name": "app", "kind": "app", "status": "done", "before": {"in_service": True}}
        keeper.note_step([event_id.lower()], {**noted, "options": {"what": "app"}})
        one.machine.out.add("app")


def test_an_event_that_a_live_run_has_claimed_is_left_to_that_run(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2")
    claim(world, "web1", "E1", "run-9")
    report = Player(world).play()
    assert (outcome(report), report["result"]) == ("held_by_other_run", "nothing")
    drained = [line for line in report["messages"] if line.startswith("web1: ")]
    assert [line.split(",")[0] for line in drained] == ["web1: drained by the run 'name of run-9'"]
    assert drained[0].endswith("or at once with -e graceful_force_claim=true.")
    assert "the run 'name of run-9' is handling it on web1" in holds(report)
    assert event.posts == []
    assert world.hosts["web2"].machine.happened == []
    record = world.hosts["web1"].record
    assert record is not None
    assert record["events"]["e1"]["claim"]["run_id"] == "run-9"


def test_a_contested_event_goes_to_the_run_that_has_its_first_claimed_host(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "web2", notice=600)
    claim(world, "web2", "E1", "run-9", drain=False)
    player = Player(world)
    report = player.play(each=lambda: claim(world, "web2", "E1", "run-9", drain=False))
    assert outcome(report) in ("held_by_other_run", "held")
    assert world.hosts["web1"].record is None or world.hosts["web1"].record["steps"]


def test_of_two_runs_at_once_one_does_it_all_and_the_other_leaves_it(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2", notice=600)
    first, second = Player(world, "run-1"), Player(world, "run-2")
    for _pass in range(200):
        going = [player.one_pass() for player in (first, second)]
        if not any(going):
            break
    outcomes = sorted([outcome(first.report()), outcome(second.report())])
    assert outcomes == ["completed", "held_by_other_run"]
    assert len(event.posts) == 1
    assert world.drained() == []


def test_a_host_that_a_dead_run_has_drained_is_put_back_when_its_event_is_gone(world: World) -> None:
    world.add("web1", "web2")
    claim(world, "web1", "E0", "run-9")
    world.now += 1000
    report = Player(world).play()
    assert results(report) == {"web1": "restored"}
    assert report["result"] == "done"
    assert world.drained() == []


@pytest.mark.parametrize("stands", [False, True])
def test_a_claim_from_a_time_that_has_not_come_yet_does_not_keep_others_away_for_ever(
    world: World, stands: bool
) -> None:
    """The host's clock was a day ahead when a run claimed it, and that run is dead."""
    world.add("web1")
    event = world.announce("E1", "web1", notice=3600)
    world.now += 86400
    claim(world, "web1", "E1", "run-9")
    world.now -= 86400
    if not stands:
        event.cancelled = world.now
    # The host sets the claim right when it is asked, and lets the other run be silent for its time once more.
    asked = Player(world)
    asked.play()
    assert orders_of(asked, "web1")[1:] != []
    world.now += 200
    assert Player(world, "run-2").play()["result"] == "done"
    assert world.drained() == []


@pytest.mark.parametrize("force", [False, True])
def test_a_drill_does_not_put_back_what_it_did_not_announce(world: World, force: bool) -> None:
    """Its hosts do not ask Azure, so it cannot know whether that event is over."""
    world.add("web1", "web2")
    claim(world, "web1", "E0", "run-9")
    world.now += 1000
    world.announce("E1", "web2")
    player = Player(world, force_claim=force, drill={"announced": "2026-09-19T18:16:00Z"})
    report = player.play()
    assert (report["drill"], report["announced"]) == (True, "2026-09-19T18:16:00Z")
    assert results(report)["web2"] == "restored"
    assert "put_back" not in orders_of(player, "web1")
    assert world.drained() == ["web1"]


def test_a_host_that_a_live_run_has_drained_is_reported_and_left_alone(world: World) -> None:
    world.add("web1")
    claim(world, "web1", "E0", "run-9")
    report = Player(world).play()
    line = report["messages"][0]
    assert line.startswith(
        "web1: drained by the run 'name of run-9', which was last active 0 s ago. If that run was killed: "
    )
    assert world.drained() == ["web1"]


def test_an_event_of_another_run_on_the_same_host_does_not_count_as_put_back_by_this_one(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    player = Player(world)
    player.play()
    result, closed = player.results["web1"], player.results["web1"]["report"]["closed"]
    # The host tells its whole record as it was.
    closed["events"]["e2"] = {**closed["events"]["e1"], "claim": {**closed["events"]["e1"]["claim"], "run_id": "run-9"}}
    before = {**player.run, "pass": result["pass"] - 1}
    before["hosts"]["web1"]["put_back"] = []
    after = advance(before, PassInput(player.results, world.groups, {}, world.now))
    assert after["hosts"]["web1"]["put_back"] == ["e1"]


def test_an_event_that_a_dead_run_began_is_taken_over(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2", notice=900)
    claim(world, "web1", "E1", "run-9")
    world.now += 200
    report = Player(world).play()
    assert outcome(report) == "completed"
    assert len(event.posts) == 1
    assert world.drained() == []


def test_force_takes_over_from_a_live_run(world: World) -> None:
    world.add("web1")
    event = world.announce("E1", "web1")
    claim(world, "web1", "E1", "run-9")
    assert outcome(Player(world, force_claim=True).play()) == "completed"
    assert len(event.posts) == 1


def test_a_run_that_lost_its_claim_stops_and_says_who_has_it(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", "web2", notice=600)
    world.hosts["web2"].takes["app"] = 30
    player = Player(world)
    player.one_pass()

    def taken() -> None:
        for name, host in world.hosts.items():
            host.clock.now = world.now
            one = {"event_id": "E1", "event_type": "Reboot", "resources": []}
            host.keeper("run-9", force=True, silent_for=10_000).claim([one], host.boot_id)
            assert name

    player.one_pass()
    taken()
    report = player.play()
    assert outcome(report) == "held_by_other_run"
    assert event.posts == []


# Hosts that are added


def test_an_event_that_comes_to_name_one_more_host_is_approved_when_that_host_is_ready_too(world: World) -> None:
    world.add("web1", "web2", "web3")
    event = world.announce("E1", "web1", notice=600)
    world.hosts["web1"].takes["app"] = 15
    player = Player(world)
    player.one_pass()
    assert player.run["involved"] == ["web1"]
    event.resources.append("vm-web2")
    report = player.play()
    assert len(event.posts) == 1
    assert outcome(report) == "completed"
    assert world.drained() == []


def test_a_run_that_cannot_add_any_more_hosts_leaves_the_event_to_another(world: World) -> None:
    world.add("web1", "web2")
    event = world.announce("E1", "web1", notice=600)
    world.hosts["web1"].takes["app"] = 15
    player = Player(world)
    player.one_pass()
    player.run["restarts"] = MAX_RESTARTS
    event.resources.append("vm-web2")
    report = player.play()
    assert event.posts == []
    assert "web2 cannot be added to this run any more: start another run" in holds(report)
    # The next run does it all.
    world.now += 1
    assert outcome(Player(world, "run-2").play()) == "completed"
    assert world.drained() == []


# Webhooks


def occasions_of(player: Player) -> list[str]:
    """What a whole run hands to the webhooks, in order; whether an event is news to them is decided there."""
    occasions: list[str] = []
    report = player.play(each=lambda: occasions.extend(player.run["tell"]))
    return [*occasions, *player.run["tell"], *last_occasions(report)]


@pytest.mark.parametrize(
    ("kind", "occasions"),
    [
        ("Reboot", ["noticed", "approved", "restored", "finished"]),
        ("Preempt", ["noticed", "restored", "finished"]),
        # Nothing is done about these.
        ("Freeze", ["noticed"]),
        ("SpotRebalanceRecommendation", ["noticed"]),
        ("SomethingNew", ["noticed"]),
    ],
)
def test_the_webhook_occasions_of_an_event(world: World, kind: str, occasions: list[str]) -> None:
    world.add("web1")
    event = world.announce("E1", "web1", type=kind)
    wire = event.wire
    event.wire = lambda now: {**wire(now), "DurationInSeconds": 5}  # type: ignore[method-assign]
    assert occasions_of(Player(world, webhooks=True)) == occasions


def test_the_webhook_occasions_of_a_deferred_event(world: World) -> None:
    world.add("web1", window={"start": "20:00", "end": "22:00"})
    world.announce("E1", "web1", notice=3 * 3600)
    assert occasions_of(Player(world, webhooks=True)) == ["noticed", "deferred"]


def test_the_webhook_occasions_of_a_held_event(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", "web2")
    assert occasions_of(Player(world, webhooks=True)) == ["noticed", "held", "restored", "finished"]


def test_an_event_of_another_run_has_no_webhook_occasions(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    claim(world, "web1", "E1", "run-9")
    assert occasions_of(Player(world, webhooks=True)) == []


def test_a_run_that_waits_sends_the_webhooks_of_an_event_that_needs_nothing_at_once(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", type="SomethingNew", after=20, notice=3600)
    player = Player(world, webhooks=True, wait=600)
    player.play_until(lambda: player.run.get("tell") == ["noticed"], passes=10)
    assert player.run["next"] == "tell.yml"


def test_webhooks_have_to_wait_when_there_are_only_seconds_left(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", type="Preempt", notice=30)
    player = Player(world, webhooks=True)
    player.one_pass()
    assert (player.run["next"], player.run["tell"]) == ("act.yml", [])


# The end


def test_a_host_that_cannot_be_put_back_is_tried_three_times(world: World) -> None:
    (web1,) = world.add("web1")
    tries = [0]

    def fails() -> None:
        tries[0] += 1
        raise OSError("never")

    web1.machine.before["undo app"] = fails
    world.announce("E1", "web1")
    report = Player(world).play()
    assert tries == [3]
    assert results(report) == {"web1": "failed"}
    assert report["result"] == "failed"
    record = web1.record
    assert record is not None
    assert record["steps"][0]["status"] != "undone"
    assert "never" in report["hosts"]["web1"]["reason"]
    # The reason is corrected. The next run need not wait until the claim has expired.
    del web1.machine.before["undo app"]
    Player(world).play()
    assert world.drained() == []


def test_a_host_that_stays_unhealthy_with_nothing_left_to_undo_is_released_for_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (web1,) = world.add("web1")
    tries: list[float] = []

    def fails(*_given: t.Any) -> None:
        tries.append(world.now)
        raise EventsError("port 80 takes no connection")

    monkeypatch.setattr(_health_checks, "check", fails)
    world.announce("E1", "web1")
    report = Player(world).play()
    assert (len(tries), results(report), world.drained()) == (3, {"web1": "failed"}, [])
    assert "port 80 takes no connection" in report["hosts"]["web1"]["reason"]
    record = web1.record
    assert record is not None
    assert record["events"]["e1"]["claim"]["silent_until"] <= world.now
    monkeypatch.setattr(_health_checks, "check", lambda *_given: tries.append(world.now))
    Player(world).play()
    assert (web1.record, len(tries)) == (None, 4)


def test_a_host_that_reports_another_past_in_each_pass_does_not_make_the_run_grow(world: World) -> None:
    (web1,) = world.add("web1")
    world.announce("E1", "web1", notice=3000)
    numbers = itertools.count()
    call = web1.call

    def lies(*given: t.Any, **more: t.Any) -> Json:
        answer = call(*given, **more)
        if record := answer["observation"]["record"]:
            mark = {"what": "failed", "detail": "x", "event_id": ""}
            record["timeline"] = [{**mark, "at": next(numbers)} for _each in range(500)]
        return answer

    web1.call = lies  # type: ignore[method-assign]
    web1.machine.fail("do app")
    player = Player(world)
    for _pass in range(8):
        player.one_pass()
    timeline = player.run["hosts"]["web1"]["timeline"]
    assert (len(timeline), timeline[-1]["at"]) == (1000, next(numbers) - 1)


def test_a_host_that_cannot_be_put_back_at_first_is_put_back_in_the_end(world: World) -> None:
    (web1,) = world.add("web1")
    web1.machine.fail("undo app", times=2)
    world.announce("E1", "web1")
    report = Player(world).play()
    assert (results(report), report["result"]) == ({"web1": "restored"}, "done")


def test_an_event_that_never_ends_is_left_drained_for_the_next_run(world: World) -> None:
    world.add("web1", gone_timeout=60)
    world.announce("E1", "web1", type="Freeze", notice=60, lasts=100_000)
    begin = world.now
    report = Player(world).play()
    assert results(report) == {"web1": "left drained"}
    assert report["result"] == "failed"
    assert world.now - begin < 60 + 60 + 60
    assert world.drained() == ["web1"]
    record = world.hosts["web1"].record
    assert record is not None
    assert record["events"]["e1"]["claim"]["silent_until"] <= world.now, "the next run need not wait"


def test_an_event_without_a_time_is_not_waited_for_for_ever(world: World) -> None:
    world.add("web1", "web2", gone_timeout=60)
    world.hosts["web2"].machine.fail("do app")
    event = world.announce("E1", "web1", "web2", notice=1e7)
    event.not_before = world.now + 1e7
    wire = event.wire
    event.wire = lambda now: {**wire(now), "NotBefore": ""}  # type: ignore[method-assign]
    begin = world.now
    report = Player(world).play()
    assert outcome(report) == "held"
    assert world.now - begin < 600


# Steps of the controller


def test_a_step_of_the_controller_is_taken_and_undone_in_its_turn(world: World) -> None:
    (web1,) = world.add("web1")
    web1.steps = [step("lb", "remote"), step("app")]
    world.announce("E1", "web1")
    report = Player(world).play()
    assert outcome(report) == "completed"
    assert web1.machine.happened == ["do lb", "do app", "undo app", "undo lb"]


def test_a_failed_drain_with_a_step_of_the_controller_is_undone_by_it(world: World) -> None:
    (web1,) = world.add("web1", undo_on_failure=True)
    web1.steps = [step("lb", "remote"), step("app")]
    web1.machine.fail("do app", times=1)
    event = world.announce("E1", "web1", notice=120)
    player = Player(world)
    player.play_until(lambda: web1.machine.happened == ["do lb", "undo lb"], passes=12)
    assert outcome(player.play()) == "held"
    assert event.posts == []
    assert web1.machine.happened == ["do lb", "undo lb"]


# A run for one event


def run_for(world: World, *asked: str, resources: t.Sequence[str] = (), **options: t.Any) -> Player:
    """A run that asks these hosts only, because they are thought to have the names."""
    names = list(resources) or [world.hosts[host].vm_name for host in asked]
    player = Player(world, event={"event_id": "E1", "resources": names}, **options)
    player.run["only"] = list(asked)
    return player


def called(player: Player) -> list[str]:
    return sorted({host for _pass, host, _order in player.orders})


def test_a_run_for_one_event_asks_its_hosts_only(world: World) -> None:
    world.add(*(f"web{number}" for number in range(20)))
    world.announce("E1", "web3", "web7")
    player = run_for(world, "web3", "web7")
    assert outcome(player.play()) == "completed"
    assert called(player) == ["web3", "web7"]
    assert not player.run["ask_all_reason"]


def test_a_run_for_one_event_that_is_over_asks_its_hosts_only_and_ends(world: World) -> None:
    world.add("web1", "web2", "web3")
    player = run_for(world, "web1", "web2")
    assert player.play()["result"] == "nothing"
    assert (called(player), player.run["pass"]) == (["web1", "web2"], 1)


def test_a_host_that_another_event_names_is_added_to_a_run_for_one_event(world: World) -> None:
    world.add("web1", "web2", "web3", "web4")
    world.announce("E1", "web1")
    world.announce("E2", "web1", "web3", after=3)
    player = run_for(world, "web1")
    player.names = {host: f"vm-{host}" for host in world.hosts}
    report = player.play()
    assert (outcome(report), outcome(report, "E2")) == ("completed", "completed")
    assert called(player) == ["web1", "web3"]


def test_an_event_of_others_does_not_widen_a_run_for_one_event(world: World) -> None:
    world.add("web1", "web2", "web3")
    world.announce("E1", "web1")
    world.announce("E2", "stranger")
    player = run_for(world, "web1")
    assert outcome(player.play()) == "completed"
    assert called(player) == ["web1"]


def test_names_that_are_out_of_date_make_a_run_for_one_event_ask_everyone(world: World) -> None:
    world.add("web1", "web2", "web3")
    world.announce("E1", "web3")
    player = run_for(world, "web1", resources=["vm-web3"])
    report = player.play()
    assert outcome(report) == "completed"
    assert called(player) == ["web1", "web2", "web3"]
    reason = "None of the hosts that were asked has the Azure name 'vm-web3': all hosts are asked."
    assert [line for line in player.lines if reason in line]


def test_more_names_in_the_document_than_in_the_message_make_it_ask_everyone(world: World) -> None:
    world.add("web1", "web2", "web3")
    world.announce("E1", "web1", "web3")
    player = run_for(world, "web1")
    report = player.play()
    assert outcome(report) == "completed"
    assert called(player) == ["web1", "web2", "web3"]


def test_a_run_for_one_event_holds_as_any_other(world: World) -> None:
    world.add("web1", "web2", "web3")
    world.announce("E1", "web1", "web2", notice=100)
    world.hosts["web2"].away = lambda _now: True
    player = run_for(world, "web1", "web2")
    player.run["earlier_names"] = {"web2": "vm-web2"}
    report = player.play()
    assert outcome(report) == "held"
    assert "web2 cannot be reached" in holds(report)
    assert called(player) == ["web1", "web2"]
