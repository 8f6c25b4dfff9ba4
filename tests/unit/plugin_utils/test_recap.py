# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator reads: what changed in a pass, what is stuck, and in the end what became of every event and host."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS
from ansible_collections.graceful.azure.plugins.plugin_utils._progress import messages, planned, status
from ansible_collections.graceful.azure.plugins.plugin_utils._recap import failure_of
from ansible_collections.graceful.azure.plugins.plugin_utils._report import VERDICTS
from ansible_collections.graceful.azure.tests.unit.module_utils.engine_world import step
from ansible_collections.graceful.azure.tests.unit.plugin_utils.simulation import Player, World

Json = dict[str, t.Any]
DRAIN_FAILS = "Drain step 'app' (app) failed: do app does not work"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def story(report: Json, event_id: str = "E1") -> Json:
    return next(event for event in report["events"] if event["event_id"] == event_id)


def marks(report: Json, host: str) -> list[str]:
    return [mark["what"] for mark in report["hosts"][host]["timeline"]]


# During the run


def test_each_line_has_its_time_and_nothing_is_printed_twice(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "web2")
    player = Player(world)
    player.play()
    lines = [line.split(" ", 1)[1] for line in player.lines]
    assert all(line[:8].replace(":", "").isdigit() for line in player.lines)
    assert len(lines) == len(set(lines))
    assert [line for line in lines if line.startswith("Reboot")] == [
        "Reboot of web1 and web2, in 5 min: drain, then approve.",
        "Reboot of web1 and web2: approved by web1 at 2026-09-19T18:00:01Z.",
        "Reboot of web1 and web2: Azure has started it.",
        "Reboot of web1 and web2: it is over.",
    ]


def test_a_pass_in_which_nothing_changed_prints_nothing(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", "web2")
    player = Player(world)
    player.play_until(lambda: player.run["pass"] == 3)
    assert messages(player.run, player.run, world.now) == []


def test_a_failure_is_printed_with_the_attempt_and_when_it_is_tried_again(world: World) -> None:
    world.add("web1")
    world.hosts["web1"].machine.fail("do app", times=2)
    world.announce("E1", "web1")
    player = Player(world)
    player.play()
    failed = [line for line in player.lines if "FAILED" in line]
    assert failed[0].endswith(f"web1: FAILED: {DRAIN_FAILS}. It is tried again in 10 s.")
    # One line for each attempt: that the time until the next one counts down is no news.
    assert len(failed) == 2
    assert "FAILED (attempt 2)" in failed[1]


def test_the_line_of_an_event_is_not_repeated_each_time_that_a_step_is_tried_again(world: World) -> None:
    world.add("web1")
    world.hosts["web1"].machine.fail("do app")
    world.announce("E1", "web1", notice=120)
    player = Player(world)
    player.play()
    states = [line.split(": ")[1] for line in player.lines if " Reboot of web1" in line]
    assert states == [
        "drain, then approve.",
        "HELD, not approved, because web1 is not ready",
        "it is over.",
    ]


def test_an_event_that_names_one_more_host_is_printed_again(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].machine.fail("do app")
    event = world.announce("E1", "web1", notice=120)
    player = Player(world)
    player.play_until(lambda: player.run["pass"] == 2)
    event.resources.append("vm-web2")
    player.one_pass()
    assert " Reboot of web1 and web2, in " in "".join(player.lines)


def test_after_azure_has_started_an_event_no_drain_is_printed(world: World) -> None:
    (web1,) = world.add("web1")
    web1.steps = [step("lb", "remote"), step("lb2", "remote")]
    world.announce("E1", "web1", notice=18, type="Freeze", lasts=60)
    player = Player(world)
    player.one_pass()
    player.play(each=lambda: setattr(world, "now", world.now + 12))
    (started,) = [number for number, line in enumerate(player.lines) if "Azure has started it." in line]
    assert [line for line in player.lines[started:] if "draining" in line or "FAILED" in line] == []
    assert player.lines[-1].endswith("web1: NOT READY when Azure acted; its health was not checked")


def test_no_drain_is_printed_for_a_ready_host_that_verifies_that_again(world: World) -> None:
    (web1,) = world.add("web1", confirm=True)
    web1.steps = [step("lb", "remote")]
    world.announce("E1", "web1", notice=120)
    player = Player(world)
    player.play()
    host_lines = [line.split(" ", 1)[1] for line in player.lines if " web1: " in line]
    ready = next(number for number, line in enumerate(host_lines) if line.startswith("web1: ready"))
    assert not any("draining" in line for line in host_lines[ready:])
    assert not any(".." in line for line in [*player.lines, *player.report()["messages"]])


def test_why_an_approval_failed_is_printed_once_and_is_the_reason_if_the_run_ends_after_it(world: World) -> None:
    (web1,) = world.add("web1", gone_timeout=30)
    world.announce("E1", "web1", notice=120, delay=10_000)
    player = Player(world)
    player.play_until(lambda: bool(player.run["approve"]))
    web1.away = lambda _now: True
    report = player.play()
    unknown = "it is not known whether web1 has approved it: no route to host"
    assert [line.split(" ", 1)[1] for line in player.lines].count(f"Reboot of web1: {unknown}.") == 1
    assert story(report)["holds"] == [unknown]


# The plan


def plan_of(world: World, run_id: str = "run-1", **options: t.Any) -> list[str]:
    player = Player(world, run_id, **options)
    player.one_pass()
    return planned(player.run)


def test_the_plan_says_what_begins_now_and_what_speaks_against_an_approval(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "vm9")
    world.announce("E2", "web2")
    assert plan_of(world) == [
        "Events: 2. Affected hosts: 2 of 2. Times are in UTC.",
        "'E1': Reboot of web1 in 5 min: drain, then approve (rule 'reboot or move'):"
        " a drained host loses nothing, and an approval ends the wait for NotBefore.",
        "  drain now: web1",
        "  not approved: no inventory host has the Azure name 'vm9'",
        "'E2': Reboot of web2 in 5 min: drain, then approve (rule 'reboot or move'):"
        " a drained host loses nothing, and an approval ends the wait for NotBefore.",
        "  drain now: web2",
    ]


def test_the_plan_lists_no_drains_if_a_mistake_blocks_them(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web1"].mistakes = ["graceful_polcy is set, but there is no such variable."]
    world.announce("E1", "web1", "web2")
    _head, _reason, *more = plan_of(world)
    assert more == [
        "  not approved: web1: graceful_polcy is set, but there is no such variable.",
        "  nothing is begun until this is corrected",
    ]


def test_the_plan_lists_no_drains_of_another_run(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    Player(world).play_until(lambda: bool(world.drained()))
    _head, _reason, *more = plan_of(world, "run-2")
    assert more == ["  not approved: the run 'name of run-1' is handling it on web1"]


def test_the_plan_of_a_started_event_says_nothing_about_approving(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", notice=0, lasts=600)
    world.now += 400
    assert plan_of(world)[1:] == ["'E1': Reboot of web1 has started: wait until it is over."]


def test_the_plan_says_which_deletions_belong_together(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", type="Terminate")
    world.announce("E2", "web2", type="Terminate")
    assert "  Azure starts it when 'E2' is approved, too" in plan_of(world)


def test_check_mode_names_the_steps_and_says_what_would_be_held(world: World) -> None:
    world.add("web1", takes="out (command), queue (tasks); saves cache")
    world.announce("E1", "web1", "vm9")
    assert "    web1: out (command), queue (tasks); saves cache" in plan_of(world, check_mode=True)
    first, second, *_more = Player(world, check_mode=True).play()["messages"]
    assert first.startswith("would be held: Reboot of web1 in 5 min: drain, then approve")
    assert second == "  because no inventory host has the Azure name 'vm9'."


def test_the_last_screen_says_what_is_announced_what_is_done_and_what_is_stuck(world: World) -> None:
    world.add("web1", "web2")
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", "web2")
    player = Player(world)
    player.play_until(lambda: player.run["pass"] == 2)
    first, *more = status(player.run)
    assert first.startswith("Reboot of web1 and web2, in 5 min: HELD, not approved, because web2 is not ready: ")
    assert DRAIN_FAILS in first
    assert more == ["  ready: web1", "  not ready yet: web2"]


def test_an_event_that_is_gone_is_not_in_the_status(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    player = Player(world)
    player.play()
    assert status(player.run) == []


# After the run


def test_every_event_and_host_that_had_work_ends_in_exactly_one_result(world: World) -> None:
    world.add("web1", "web2", "db1")
    world.announce("E1", "web1", "web2", lasts=242)
    report = Player(world).play()
    assert (report["result"], report["version"], report["drill"]) == ("done", 2, False)
    assert {name: host["result"] for name, host in report["hosts"].items()} == {"web1": "restored", "web2": "restored"}
    event = story(report)
    assert (event["outcome"], event["approved_by"], event["holds"]) == ("completed", "web1", [])
    assert event["message"].startswith("completed: Reboot of web1 and web2, approved by web1, took 4 min")
    over = "The run ended because nothing is pending any more."
    assert report["messages"] == [event["message"], "web1: restored.", "web2: restored.", over]
    json.dumps(report, allow_nan=False)


def test_an_event_is_whole_in_the_report(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    event = story(Player(world).play())
    assert set(EVENT_FIELDS) - {"affects_me"} <= set(event)
    assert (event["leader"], event["resources"], event["event_source"]) == ("vm-web1", ["vm-web1"], "Platform")


def test_the_timeline_of_a_host_is_whole_and_in_order(world: World) -> None:
    world.add("web1", "web2")
    world.announce("E1", "web1", "web2")
    report = Player(world).play()
    for host in ("web1", "web2"):
        happened = marks(report, host)
        expected = ["noticed", "claimed", "draining", "ready", "approved", "restoring", "restored"]
        assert [what for what in dict.fromkeys(happened) if what in expected] == expected
        assert happened.count("approved") == 1
        times = [mark["at"] for mark in report["hosts"][host]["timeline"]]
        assert times == sorted(times)


def test_a_time_without_connection_is_on_the_timeline(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    player = Player(world)
    player.play()
    gaps = [
        {"lost": "2026-09-19T18:01:00Z", "back": "2026-09-19T18:02:00Z"},
        {"lost": "2026-09-19T18:03:00Z", "back": None},
    ]
    player.run["hosts"]["web1"]["interruptions"] = gaps
    happened = [what for what in marks(player.report(), "web1") if what in ("down", "back")]
    assert happened == ["down", "back", "down"]


@pytest.mark.parametrize("state", ["finished", "under way"])
def test_a_run_that_is_under_way_is_in_progress(world: World, state: str) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    player = Player(world)
    player.play_until(lambda: bool(player.run["approve"]))
    if state == "finished":
        player.play()
    report = player.report()
    assert (report["result"] == "in progress") == (state == "under way")
    assert (report["hosts"]["web1"]["result"] == "in progress") == (state == "under way")


def test_a_failed_drain_without_an_approval_is_a_failure(world: World) -> None:
    world.add("web1", "web2", policy=[{"action": "drain"}])
    world.hosts["web2"].machine.fail("do app")
    world.announce("E1", "web1", "web2", notice=30)
    event = story(Player(world).play())
    assert event["outcome"] == "failed"
    assert [hold.split(":")[0] for hold in event["holds"]] == ["web2 is not ready"]


@pytest.mark.parametrize(
    ("policy", "outcome"), [([{"action": "notify"}], "notified"), ([{"action": "ignore"}], "ignored")]
)
def test_an_event_that_nothing_is_done_about_is_reported_as_planned(
    world: World, policy: list[Json], outcome: str
) -> None:
    world.add("web1", policy=policy)
    world.announce("E1", "web1")
    report = Player(world).play()
    assert (report["result"], report["hosts"], story(report)["outcome"]) == ("nothing", {}, outcome)
    assert story(report)["message"].startswith(f"{outcome}: Reboot of web1 in ")


def test_a_host_that_azure_takes_away_is_gone_as_announced(world: World) -> None:
    (web1,) = world.add("web1", gone_timeout=30)
    event = world.announce("E1", "web1", type="Preempt", notice=30, lasts=10_000)
    web1.away = lambda now: now > event.starts
    report = Player(world).play()
    assert (report["hosts"]["web1"]["result"], report["hosts"]["web1"]["reason"]) == ("gone", "as announced")
    assert report["result"] != "failed"


def test_groups_that_do_not_exist_and_mistakes_are_in_the_recap(world: World) -> None:
    world.add("web1", min_available={"wbe": 1})
    world.hosts["web1"].mistakes = ["graceful_polcy is set, but there is no such variable."]
    world.announce("E1", "web1")
    player = Player(world)
    player.play()
    player.run["options"]["webhook_mistake"] = "graceful_webhooks must be a list."
    messages = "\n".join(player.report()["messages"])
    assert "group 'wbe', which the inventory does not have" in messages
    assert "graceful_polcy is set" in messages
    assert "No webhooks are sent: graceful_webhooks must be a list." in messages


def test_check_mode_fails_if_something_is_written_wrong(world: World) -> None:
    world.add("web1")
    assert Player(world, check_mode=True).play()["result"] == "nothing"
    world.hosts["web1"].mistakes = ["graceful_polcy is set, but there is no such variable."]
    assert Player(world, check_mode=True).play()["result"] == "failed"


@pytest.mark.parametrize("trouble", ["away", "blind"])
def test_check_mode_fails_if_a_host_cannot_be_asked(world: World, trouble: str) -> None:
    world.add("web1", "web2")
    setattr(world.hosts["web1"], trouble, lambda _now: True)
    report = Player(world, check_mode=True).play()
    assert report["result"] == "failed"
    assert failure_of(report)


# Azure starts an event before all its hosts are ready


@pytest.mark.parametrize(("notice", "lasts"), [(18, 1), (18, 100), (8, 1)], ids=["short", "seen", "not begun"])
def test_a_host_that_was_not_ready_when_azure_acted_is_a_failure_of_the_run(
    world: World, notice: int, lasts: int
) -> None:
    (web1,) = world.add("web1")
    web1.steps = [step("lb", "remote"), step("lb2", "remote")]
    world.announce("E1", "web1", notice=notice, lasts=lasts)
    player = Player(world)
    player.one_pass()

    def slow() -> None:
        # The steps of the controller take their time.
        world.now += 12

    report = player.play(each=slow)
    assert (report["result"], story(report)["outcome"]) == ("held", "held")
    assert story(report)["holds"][0].startswith("web1 was not ready when Azure started it: ")
    assert failure_of(report)
    assert "web1: NOT READY when Azure acted; its health was not checked." in report["messages"]


def test_a_host_that_was_caught_and_is_healthy_is_not_called_drained(world: World) -> None:
    world.add("web1", health=True)
    world.hosts["web1"].machine.fail("do app")
    world.announce("E1", "web1", notice=30)
    player = Player(world)
    assert "web1: NOT READY when Azure acted; it is healthy now." in player.play()["messages"]


def test_an_event_that_azure_starts_when_all_hosts_are_ready_is_completed(world: World) -> None:
    world.add("web1", confirm=True)
    world.announce("E1", "web1", notice=60)
    player = Player(world)
    player.answer = lambda _event_id: "no"
    report = player.play()
    assert "NOT READY" not in "".join(report["messages"])
    assert report["hosts"]["web1"]["result"] == "restored"


def test_every_result_has_a_verdict() -> None:
    for result in ("done", "held", "failed", "deferred", "nothing", "planned", "in progress"):
        assert result in VERDICTS


# Why a run has ended


def why(world: World, run_id: str = "run-1") -> str:
    return str(Player(world, run_id).play()["messages"][-1])


def test_a_run_that_finds_nothing_says_so_once(world: World) -> None:
    world.add("web1")
    assert Player(world).play()["messages"] == ["Nothing is announced."]


@pytest.mark.parametrize(
    ("settings", "event", "reason"),
    [
        ({}, {"type": "Unheard"}, "nothing has to be done for Unheard of web1."),
        (
            {"drain_not_set": True},
            {},
            "Reboot of web1 is held, and nothing is started for it until the reason is corrected.",
        ),
        (
            {"window": {"start": "23:00", "end": "23:30"}},
            {"notice": 40_000},
            "Reboot of web1 is deferred until 2026-09-19T23:00:00Z: start another run then.",
        ),
        (
            {},
            {"lasts": 10_000},
            "Reboot of web1 was not over within the time that graceful_gone_timeout allows.",
        ),
    ],
    ids=["nothing to do", "mistake", "deferred", "expired"],
)
def test_the_recap_ends_with_why_the_run_ended(world: World, settings: Json, event: Json, reason: str) -> None:
    world.add("web1", **settings)
    world.announce("E1", "web1", **event)
    assert why(world) == f"The run ended because {reason}"


def test_a_run_that_leaves_an_event_to_another_one_says_so(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1")
    first = Player(world)
    first.play_until(lambda: bool(world.drained()))
    assert why(world, "run-2") == "The run ended because another run is handling Reboot of web1."


@pytest.mark.parametrize(("hosts", "whom"), [(2, "the host"), (4, "the 3 hosts")])
def test_a_run_that_could_not_ask_a_host_does_not_say_that_nothing_is_announced(
    world: World, hosts: int, whom: str
) -> None:
    world.add(*(f"web{number}" for number in range(hosts)))
    world.hosts["web0"].away = lambda _now: True
    ended = "The run ended because web0 could not be asked."
    assert why(world) == f"Nothing is announced to {whom} that answered. {ended}"


@pytest.mark.parametrize(
    ("result", "begins", "ends"),
    [
        ("held", "At least one event was held (not approved)", " See 'When something is held' in docs/maintenance.md."),
        ("failed", "The maintenance failed", " See 'When something is held' in docs/maintenance.md."),
        ("done", "", ""),
    ],
)
def test_the_last_error_says_what_happened_and_where_to_read_on(result: str, begins: str, ends: str) -> None:
    report = {"result": result, "drill": False, "run": {"check_mode": False}}
    more = "; the recap above and the report (/tmp/latest.html) say why."
    assert failure_of(report, "/tmp/latest.html") == (begins + more + ends if begins else "")


def test_how_long_an_event_took_counts_from_its_approval_also_by_an_earlier_run(world: World) -> None:
    world.add("web1")
    world.announce("E1", "web1", lasts=300)
    killed = Player(world)
    killed.play_until(lambda: bool(killed.run["events"].get("e1", {}).get("approved")))
    world.now += 200
    assert "took 5 min" in story(Player(world, "run-2").play())["message"]


def test_a_run_that_could_not_put_a_host_back_says_so(world: World) -> None:
    (web1,) = world.add("web1")
    web1.machine.fail("undo app")
    world.announce("E1", "web1")
    assert why(world) == "The run ended because web1 could not be put back."
