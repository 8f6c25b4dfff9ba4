# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import threading
import time
import typing as t
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import HERE, Fleet


@pytest.mark.quick("role:maintenance", "maintenance_plan")
def test_the_whole_cycle(fleet: Fleet) -> None:
    fleet.announce("web1", "web2")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert run.report["result"] == "done"
    assert run.report["events"][0]["outcome"] == "completed"
    for line in ("drain, then approve (rule", "completed: Reboot of web1 and web2, approved by web1, took"):
        assert run.output.count(line) == 1, "plan and recap are printed once, with each ansible-core"
    assert len(fleet.posts()) == 1
    assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]
    assert fleet.log("web3") == []
    fleet.check_all_back()
    seen = [line for line in run.output.splitlines() if "[web3]" in line and not line.startswith("skipping")]
    assert seen == ["ok: [web3]"], "a host that no event touches sees one task"
    page = (fleet.directory / "reports" / "latest.html").read_text()
    assert "web1" in page
    assert fleet.run().report["result"] == "nothing", "a second run finds nothing to do"


def test_check_mode_prints_the_plan_and_touches_nothing(fleet: Fleet) -> None:
    fleet.announce("web1", "web2")
    run = fleet.run("--check")
    assert run.status == 0, run.output[-4000:]
    assert "drain, then approve" in run.output
    assert fleet.posts() == []
    assert fleet.log("web1") == []
    assert fleet.record("web1") is None


def test_who_has_seconds_does_not_wait_for_who_has_minutes(fleet: Fleet) -> None:
    fleet.variables["web1"]["misbehaviour"] = "wait"
    # A machine that is taken away is saved although it could not be drained.
    fleet.variables["web2"]["misbehaviour"] = "fail"
    fleet.common["graceful_drain_steps"] = [{**fleet._defaults()["graceful_drain_steps"][0], "timeout": 90}]
    fleet.announce("web1")
    eviction = fleet.announce("web2", EventType="Preempt", notice=100)
    saved_first: list[bool] = []

    def web2_is_saved() -> bool:
        steps = (fleet.record("web2") or {"steps": []})["steps"]
        return any(step["phase"] == "checkpoint" and step["status"] == "done" for step in steps)

    def let_web1_go_on() -> None:
        saved_first.append(not fleet.is_drained("web1"))
        (fleet.home("web1") / "go-on").touch()
        # Nobody has to wait for its end.
        fleet.control("cancel", {"EventId": eviction})

    with fleet.once(web2_is_saved, let_web1_go_on):
        run = fleet.run()
    assert saved_first == [True], run.output[-4000:]
    assert len(fleet.posts()) == 1, run.output[-4000:]
    assert run.status == 2, run.output[-4000:]
    assert "web2 is not ready: Drain step 'service' (tasks) failed: The service does not stop." in run.messages, (
        run.messages
    )


class TestHeld:
    """What is held is not approved; Azure acts all the same, and afterwards everything is put back."""

    def act(self, fleet: Fleet, event_id: str) -> None:
        fleet.control("start", {"EventId": event_id})

    def settled(self, fleet: Fleet) -> bool:
        """Held, and web1 has done what it could."""
        return fleet.said("HELD") and not {"ready", "failed"}.isdisjoint(fleet.marks("web1"))

    def held(self, fleet: Fleet, *arguments: str, reason: str) -> None:
        event_id = fleet.announce("web1", "web2")
        with fleet.once(lambda: self.settled(fleet), lambda: self.act(fleet, event_id)):
            run = fleet.run(*arguments)
        assert run.status == 2, run.output[-4000:]
        assert reason in run.messages, run.messages
        assert fleet.posts() == []

    def test_by_a_host_that_is_unreachable_from_the_start(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["graceful_vm_name"] = "shop_1"
        fleet.drop("web2")
        self.held(fleet, reason="web2 cannot be reached")
        assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]

    def test_by_a_host_that_goes_down_while_it_drains(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["misbehaviour"] = "go down"
        with fleet.once(lambda: bool(fleet.happened("completed")), lambda: fleet.come_back("web2")):
            self.held(fleet, reason="web2 is not ready")
        fleet.check_all_back()

    def test_by_a_users_task_that_fails(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["misbehaviour"] = "fail"
        self.held(fleet, reason="The service does not stop")
        fleet.check_all_back()

    def test_by_a_drain_that_hangs(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["misbehaviour"] = "hang"
        steps = fleet._defaults()["graceful_drain_steps"]
        fleet.common["graceful_drain_steps"] = [{**steps[0], "timeout": 30}]
        self.held(fleet, reason="web2 is not ready")
        fleet.check_all_back()

    def test_by_a_drain_that_is_not_done_in_time(self, fleet: Fleet) -> None:
        """Nobody starts the event: its notice runs out while web2 still drains."""
        fleet.variables["web2"]["misbehaviour"] = "wait"
        fleet.announce("web1", "web2", notice=45)
        run = fleet.run()
        assert run.status == 2, run.output[-4000:]
        assert "web2 is not ready" in run.messages
        assert fleet.posts() == []
        assert [line["by"] for line in fleet.happened("started")] == ["notbefore"]
        assert [what for _at, what in fleet.log("web2")] == ["drained", "back"]
        assert run.report["events"][0]["outcome"] == "held"
        assert run.report["events"][0]["gone"]
        fleet.check_all_back()

    def test_by_all_hosts_failing_and_the_report_still_comes(self, fleet: Fleet) -> None:
        fleet.common["misbehaviour"] = "fail"
        self.held(fleet, reason="web1 is not ready")
        fleet.check_all_back()

    def test_by_a_checkpoint_that_cannot_be_written(self, fleet: Fleet) -> None:
        (fleet.home("web2") / "checkpoints").write_text("not a directory")
        self.held(fleet, reason="Checkpoint 'cache' (paths) failed")
        fleet.check_all_back()

    def test_by_a_host_outside_the_limit(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["graceful_vm_name"] = "shop_1"
        self.held(fleet, "--limit", "web1,web3", reason="outside this run")

    def test_by_a_person_who_cannot_be_asked(self, fleet: Fleet) -> None:
        self.held(fleet, "-e", "graceful_confirm=true", reason="Nobody confirmed")
        fleet.check_all_back()

    def test_by_one_host_that_wants_a_person_to_be_asked(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["graceful_confirm"] = "yes"
        self.held(fleet, reason="Nobody confirmed")

    def test_by_what_is_written_wrong_before_anything_is_drained(self, fleet: Fleet) -> None:
        wrong: dict[str, tuple[str, t.Any, str]] = {
            "web1": ("graceful_health", [{"prot": 80}], "graceful_health[0] has the key 'prot'"),
            "web2": (
                "graceful_checkpoint",
                [{"name": "x", "kind": "paths", "paths": []}],
                "Checkpoint 'x' (paths): paths has to be a list of absolute paths",
            ),
            "web3": ("graceful_drain_steps", "nginx", "graceful_drain_steps must be a list"),
        }
        for host, (name, value, _words) in wrong.items():
            fleet.variables[host][name] = value
        fleet.announce(*wrong)
        begin = time.monotonic()
        run = fleet.run()
        assert run.status == 2, run.output[-4000:]
        assert time.monotonic() - begin < 100, "a mistake does not make a run wait until NotBefore"
        assert fleet.posts() == []
        for host, (_name, _value, words) in wrong.items():
            assert words in run.messages, run.messages
            assert fleet.log(host) == []

    def test_check_mode_says_what_is_written_wrong(self, fleet: Fleet) -> None:
        fleet.variables["web1"]["graceful_health"] = [{}]
        fleet.announce("web1")
        assert "graceful_health[0]: one of the following is required: port, url, argv" in fleet.run("--check").output

    def test_by_a_checkpoint_file_with_a_mistake(self, fleet: Fleet) -> None:
        file = fleet.directory / "save.yml"
        file.write_text("- name: A slip\n  ansible.builtin.comand: sync\n")
        item = {"name": "own", "kind": "tasks", "file": str(file), "probe": "true"}
        fleet.common["graceful_checkpoint"] = [item]
        self.held(fleet, reason="which cannot be read")
        fleet.check_all_back()

    def test_by_an_azure_name_that_two_hosts_have(self, fleet: Fleet) -> None:
        fleet.variables["web3"]["graceful_vm_name"] = "shop_1"
        self.held(fleet, reason="the same Azure name")

    def test_by_a_name_that_no_host_has(self, fleet: Fleet) -> None:
        event_id = fleet.announce("web1", "stranger", foreign=True)
        with fleet.once(lambda: self.settled(fleet), lambda: self.act(fleet, event_id)):
            run = fleet.run()
        assert run.status == 2
        assert "no inventory host has the Azure name" in run.messages
        assert fleet.posts() == []
        fleet.check_all_back()

    def test_by_capacity_until_it_can_wait_no_longer(self, fleet: Fleet) -> None:
        fleet.common["graceful_min_available"] = {"web": 2}
        fleet.announce("web1", "web2")
        run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert run.report["result"] == "deferred"
        assert "deferred until" in run.messages
        assert fleet.log("web1") == []
        assert fleet.posts() == []


@pytest.mark.parametrize(("command", "result", "status"), [("cancel", "done", 0), ("start", "held", 2)])
def test_the_event_goes_its_own_way_while_the_hosts_drain(fleet: Fleet, command: str, result: str, status: int) -> None:
    """Nothing has failed; but if Azure acts before the hosts are verified, that is no success."""
    fleet.common["misbehaviour"] = "wait"
    # Long enough to be seen Started: an event that is gone when it is looked at the next time may have been cancelled.
    event_id = fleet.announce("web1", "web2", started_for=20)

    def act() -> None:
        fleet.control(command, {"EventId": event_id})
        for host in ("web1", "web2"):
            (fleet.home(host) / "go-on").touch()

    with fleet.once(lambda: fleet.is_drained("web1") and fleet.is_drained("web2"), act):
        run = fleet.run()
    assert (run.report["result"], run.status) == (result, status), run.messages
    assert ("web1 was not ready when Azure started it: " in run.messages) == (command == "start")
    assert ("web1: NOT READY when Azure acted" in run.messages) == (command == "start")
    assert fleet.happened("approved") == []
    fleet.check_all_back()


def test_the_next_host_approves_when_the_first_cannot(fleet: Fleet) -> None:
    fleet.control("fault", {"kind": "reset", "vm": "shop_0", "method": "POST"})
    fleet.announce("web1", "web2")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    first, second = fleet.posts()
    assert (first["vm"], second["vm"]) == ("shop_0", "shop_1")
    assert second["time"] - first["time"] > 25, "after a request without an answer the document is read for a while"
    assert run.report["events"][0]["approved_by"] == "web2"
    fleet.check_all_back()


def test_a_host_that_was_ready_and_is_lost_before_the_approval_holds_it(fleet: Fleet) -> None:
    fleet.announce("web1", "web2")
    with (
        # One after the other: while web2 drains, web1 has long said that it is ready.
        fleet.once(lambda: fleet.is_drained("web2"), lambda: fleet.drop("web1")),
        fleet.once(lambda: fleet.said("HELD"), lambda: fleet.come_back("web1")),
    ):
        run = fleet.run("-e", "graceful_serial=1")
    assert "web1 cannot be reached" in run.output
    assert run.status == 0, run.output[-4000:]
    assert len(fleet.posts()) == 1
    fleet.check_all_back()


@pytest.mark.parametrize("forks", [6, 1])
def test_a_host_is_back_while_the_event_of_another_still_stands(fleet: Fleet, forks: int) -> None:
    """With fewer forks than hosts, too."""
    fleet.common["graceful_gone_timeout"] = 100
    fleet.announce("web1", started_for=1)
    longer = fleet.announce("web2", started_for=3600)

    def web1_is_back_and_web2_waits() -> bool:
        started = [line["time"] for line in fleet.happened("started") if line["EventId"] == longer] or [math.inf]
        asked = [line for line in fleet.journal() if line.get("vm") == "shop_1" and line["time"] > started[0]]
        return [what for _at, what in fleet.log("web1")] == ["drained", "back"] and len(asked) > 5

    with fleet.once(web1_is_back_and_web2_waits, lambda: fleet.control("complete", {"EventId": longer})) as ended:
        run = fleet.run("-f", str(forks))
    assert ended.is_set(), "web1 waited for the event of web2"
    assert run.report["result"] == "done", run.output[-4000:]
    assert len(fleet.posts()) == 2
    fleet.check_all_back()
    story = next(event for event in run.report["events"] if event["event_id"] == longer)
    assert story["noticed"] <= story["approved"] <= story["started"] <= story["gone"] <= run.report["run"]["finished"]


def test_what_one_host_sees_ends_the_wait_of_all(tmp_path: Path) -> None:
    """The others are in a scope of their own, where nothing is announced."""
    patience = 200
    fleet = Fleet(tmp_path, scopes=("one", "another", "another"))
    try:

        def all_are_waiting() -> bool:
            asked = Counter(line.get("vm") for line in fleet.journal() if line["kind"] == "request")
            return all(asked[name] > 5 for name in fleet.names.values())

        with fleet.once(all_are_waiting, lambda: fleet.announce("web1")):
            run = fleet.run("-e", f"graceful_wait={patience}", "-e", "graceful_wait_round=5")
        assert run.report["result"] == "done", run.output[-4000:]
        (published,), (approved,) = fleet.happened("published"), fleet.happened("approved")
        assert approved["time"] - published["time"] < patience / 2
        fleet.check_invariant()
        fleet.check_all_back()
    finally:
        fleet.stop()


def test_a_wait_for_nothing_ends_well(fleet: Fleet) -> None:
    run = fleet.run("-e", "graceful_wait=3", "-e", "graceful_wait_round=1")
    assert run.status == 0, run.output[-4000:]
    assert run.report["result"] == "nothing"


def test_two_runs_at_once_do_not_collide(fleet: Fleet) -> None:
    fleet.common["misbehaviour"] = "wait"
    fleet.announce("web1", "web2")
    first = fleet.start()
    try:
        while not (fleet.is_drained("web1") and fleet.is_drained("web2")):
            assert first.poll() is None
        second = fleet.run()
        assert second.status == 0, second.output[-4000:]
        assert "is handling it on web1" in second.messages
        assert "web1: drained by the run " in second.messages
    finally:
        for host in ("web1", "web2"):
            (fleet.home(host) / "go-on").touch()
        assert first.wait(300) == 0
    assert len(fleet.posts()) == 1
    fleet.check_all_back()


def test_two_runs_for_two_events_of_one_host_do_not_end_each_others_work(fleet: Fleet) -> None:
    wait = 'while [ ! -e "$0/go-on" ]; do sleep 0.2; done; '
    drain = 'touch "$0/drained"; echo "$(date +%s.%N) drained" >> "$0/log"'
    undo = 'rm "$0/drained"; echo "$(date +%s.%N) back" >> "$0/log"'
    step = {"name": "service", "kind": "command", "probe": ["test", "-e", "{{ home }}/drained"]}
    programs = {"do": ["sh", "-c", wait + drain, "{{ home }}"], "undo": ["sh", "-c", undo, "{{ home }}"]}
    fleet.common["graceful_drain_steps"] = [{**step, **programs}]
    fleet.common["graceful_policy"] = [
        {"event_source": "User", "action": "approve"},
        {"event_type": "Reboot", "action": "drain_and_approve"},
    ]
    fleet.announce("web1", "web2", EventSource="Platform")
    first = fleet.start()
    try:
        while not (fleet.record("web1") or {}).get("steps"):
            assert first.poll() is None
        fleet.announce("web1", EventSource="User")
        second = fleet.start("-e", f"graceful_report_dir={fleet.directory / 'second'}")
        while len((fleet.record("web1") or {"events": ()})["events"]) < 2:
            assert second.poll() is None
        # Long enough for a call of each run.
        time.sleep(12)
        assert fleet.posts() == []
    finally:
        for host in ("web1", "web2"):
            (fleet.home(host) / "go-on").touch()
    assert (first.wait(300), second.wait(300)) == (0, 0)
    assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]
    assert len(fleet.posts()) == 2
    fleet.check_all_back()


def test_an_event_whose_first_claimed_host_is_anothers_is_left_alone(fleet: Fleet) -> None:
    event = {"event_id": fleet.announce("web1", "web2"), "event_type": "Reboot"}
    fleet.keeper("web2", "other", silent_for=600.0).claim([event], "")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert "the run 'the run other' is handling it on web2" in run.messages
    assert fleet.record("web1") is None
    assert fleet.log("web1") == []
    assert fleet.posts() == []


def test_what_a_dead_run_has_drained_is_taken_over_when_its_claim_has_been_silent(fleet: Fleet) -> None:
    """Without force."""
    fleet.announce("web1", "web2")
    killed = fleet.run(kill_when=lambda: "ready" in fleet.marks("web1") and "ready" in fleet.marks("web2"))
    assert killed.status == -9, killed.output[-3000:]
    for host in ("web1", "web2"):
        record = fleet.record(host)
        assert record
        (entry,) = record["events"].values()
        # As if the two minutes were over.
        entry["claim"].update(
            renewed=entry["claim"]["renewed"] - 200, silent_until=entry["claim"]["silent_until"] - 200
        )
        (fleet.home(host) / "records" / "record.json").write_text(json.dumps(record))
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert run.report["result"] == "done"
    assert len(fleet.happened("approved")) == 1
    for host in ("web1", "web2"):
        assert [what for _at, what in fleet.log(host)] == ["drained", "back"]
    fleet.check_all_back()


def test_of_two_runs_that_claim_at_the_same_moment_the_one_with_the_first_host_goes_on(fleet: Fleet) -> None:
    event = {"event_id": fleet.announce("web1", "web2"), "event_type": "Reboot"}
    other = fleet.keeper("web2", "other", silent_for=600.0)
    with (
        # One host after the other, so that the other run has its claim on web2 in between.
        fleet.once(lambda: fleet.record("web1") is not None, lambda: other.claim([event], "")),
        fleet.once(lambda: fleet.said("the run other"), lambda: other.release([event["event_id"].lower()])),
    ):
        run = fleet.run("-e", "graceful_serial=1")
    assert run.status == 0, run.output[-4000:]
    assert run.report["result"] == "done"
    assert len(fleet.posts()) == 1
    fleet.check_all_back()


class TestTheNextPass:
    """What used to need another run, or code of its own."""

    def test_a_drain_that_was_mended_is_tried_again_by_the_same_run(self, fleet: Fleet) -> None:
        broken = fleet.home("web2") / "broken"
        broken.touch()
        fleet.announce("web1", "web2")
        with fleet.once(lambda: fleet.said("HELD"), broken.unlink):
            run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert "It is tried again in 10 s" in run.output
        assert len(fleet.posts()) == 1
        assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]
        fleet.check_all_back()

    def test_a_host_that_answers_again_is_drained_and_the_event_approved(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["graceful_vm_name"] = "shop_1"
        fleet.drop("web2")
        fleet.announce("web1", "web2")
        with fleet.once(lambda: fleet.is_drained("web1"), lambda: fleet.come_back("web2")):
            run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert len(fleet.posts()) == 1
        fleet.check_all_back()

    def test_an_event_that_appears_while_the_run_is_under_way(self, fleet: Fleet) -> None:
        fleet.announce("web1", "web2", started_for=8)
        with fleet.once(lambda: bool(fleet.happened("started")), lambda: fleet.announce("web2", notice=800)):
            run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert [event["outcome"] for event in run.report["events"]] == ["completed", "completed"]
        assert len(fleet.posts()) == 2
        fleet.check_all_back()

    def test_an_event_whose_time_comes_closer_is_planned_anew(self, fleet: Fleet) -> None:
        """First it can wait for the window, then it cannot."""
        opens = datetime.now(timezone.utc) + timedelta(hours=2)
        window = {"start": f"{opens:%H:%M}", "end": f"{opens + timedelta(hours=1):%H:%M}"}
        fleet.common.update(graceful_window=window, graceful_drain_budget=900)
        event_id = fleet.announce("web1", "web2", notice=40000)

        def hasten() -> None:
            fleet.control("cancel", {"EventId": event_id})
            fleet.announce("web2", "web1", EventId=event_id, notice=600)

        with fleet.once(lambda: fleet.said("deferred until"), hasten) as hastened:
            run = fleet.run("-e", "graceful_wait=150")
        assert hastened.is_set()
        assert run.status == 0, run.output[-4000:]
        assert [event["outcome"] for event in run.report["events"]] == ["completed"]
        assert len(fleet.posts()) == 1
        fleet.check_all_back()

    def test_an_event_that_names_one_more_host_waits_for_that_host_too(self, fleet: Fleet) -> None:
        """It had nothing to do before, and joins the run."""
        fleet.common["misbehaviour"] = "wait"
        event_id = fleet.announce("web1", "web2")

        def name_another() -> None:
            fleet.control("cancel", {"EventId": event_id})
            fleet.announce("web1", "web2", "web3", EventId=event_id)
            for host in fleet.names:
                (fleet.home(host) / "go-on").touch()

        with fleet.once(lambda: fleet.is_drained("web1") and fleet.is_drained("web2"), name_another):
            run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert len(fleet.posts()) == 1
        for host in fleet.names:
            assert [what for _at, what in fleet.log(host)] == ["drained", "back"]
        fleet.check_all_back()

    def test_two_events_that_capacity_keeps_apart_are_done_one_after_the_other(self, fleet: Fleet) -> None:
        fleet.common["graceful_min_available"] = {"web": 2}
        fleet.announce("web1")
        fleet.announce("web2", notice=1000)
        run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert len(fleet.posts()) == 2
        times = {host: [at for at, _what in fleet.log(host)] for host in ("web1", "web2")}
        assert times["web1"][1] < times["web2"][0], "the second begins when the first host is back"
        fleet.check_all_back()

    def test_a_window_that_opens_while_the_run_waits(self, fleet: Fleet) -> None:
        opens = datetime.now(timezone.utc) + timedelta(seconds=75)
        closes = opens + timedelta(hours=2)
        fleet.common["graceful_window"] = {"start": f"{opens:%H:%M}", "end": f"{closes:%H:%M}"}
        fleet.announce("web1", notice=4000)
        run = fleet.run("-e", "graceful_wait=200")
        assert run.status == 0, run.output[-4000:]
        assert "deferred until" in run.output
        assert run.report["events"][0]["outcome"] == "completed"
        fleet.check_all_back()

    def test_put_off_by_the_window_is_deferred_and_no_failure(self, fleet: Fleet) -> None:
        opens = datetime.now(timezone.utc) + timedelta(hours=2)
        window = {"start": f"{opens:%H:%M}", "end": f"{opens + timedelta(hours=1):%H:%M}"}
        fleet.common["graceful_window"] = window
        fleet.announce("web1", notice=40000)
        run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert run.report["result"] == "deferred"
        assert fleet.log("web1") == []
        assert fleet.posts() == []


MARKS = ("claimed", "draining", "checkpointed", "ready", "approved", "restoring")


@pytest.mark.parametrize("mark", MARKS)
def test_a_killed_controller_is_followed_by_a_run_that_finishes(fleet: Fleet, mark: str) -> None:
    fleet.announce("web1", "web2")
    killed = fleet.run(kill_when=lambda: mark in fleet.marks("web1"))
    assert killed.status == -9, f"the run was over before {mark}:\n{killed.output[-3000:]}"
    # What stands or was left ends a wait before it begins.
    again = fleet.run("-e", "graceful_force_claim=true", "-e", "graceful_wait=3600")
    assert again.report["result"] == "done", again.output[-4000:]
    assert len(fleet.happened("approved")) == 1
    for host in ("web1", "web2"):
        assert [what for _at, what in fleet.log(host)] == ["drained", "back"], "drained twice, or not at all"
    fleet.check_all_back()


@pytest.mark.parametrize(("kept", "lost"), [("host", ""), ("controller", "archives"), ("controller", "directory")])
def test_what_the_lost_disk_held_comes_back(fleet: Fleet, kept: str, lost: str) -> None:
    saved = fleet.home("web1") / "flushed"
    fleet.common["graceful_checkpoint"] = [
        {"name": "queue", "kind": "command", "argv": ["touch", str(saved)]},
        {"name": "own", "kind": "tasks", "file": str(HERE / "save.yml"), "probe": "(home ~ '/saved') is exists"},
        {"name": "cache", "kind": "paths", "paths": ["{{ home }}/ephemeral"], "to": kept},
    ]
    fleet.announce("web1", EventType="Redeploy")
    cache, archives = fleet.home("web1") / "ephemeral" / "cache", fleet.home("web1") / "checkpoints"

    def lose() -> None:
        cache.unlink()
        cache.parent.rmdir()
        if kept == "controller":
            place = fleet.directory / "reports" / "checkpoints" / "web1"
            assert len(list(place.iterdir())) == 1
            assert place.stat().st_mode & 0o777 == 0o700
        if lost:
            shutil.rmtree(archives)
        if lost == "archives":
            archives.mkdir()
            archives.chmod(0o750)

    with fleet.once(lambda: bool(fleet.happened("started")), lose) as done:
        run = fleet.run()
        assert done.is_set()
    assert run.status == 0, run.output[-4000:]
    assert cache.read_text() == "precious data of web1"
    assert saved.exists()
    mode = 0o750 if lost == "archives" else 0o700
    assert archives.stat().st_mode & 0o777 == mode, "a directory that is there keeps its mode"
    assert list(archives.iterdir()) == [], "an archive goes when it has done its duty"


def test_a_damaged_checkpoint_is_said_and_the_host_stays_out_of_service(fleet: Fleet) -> None:
    # Long enough for the host to see it Started: then disks may have been lost.
    fleet.announce("web1", EventType="Redeploy", started_for=8)

    saved: dict[Path, bytes] = {}

    def damage() -> None:
        for archive in (fleet.home("web1") / "checkpoints").iterdir():
            saved[archive] = archive.read_bytes()
            archive.write_bytes(b"damaged")
        (fleet.home("web1") / "ephemeral" / "cache").unlink()

    with fleet.once(lambda: bool(fleet.happened("started")), damage):
        run = fleet.run()
    assert run.status == 2
    assert "is damaged" in run.messages
    assert fleet.is_drained("web1")
    assert run.report["hosts"]["web1"]["result"] == "failed"
    assert "this run does nothing more for it; another run can take over" in run.output
    # Corrected: the next run puts the host back, without force and without waiting for the claim to expire.
    for archive, content in saved.items():
        archive.write_bytes(content)
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert (fleet.home("web1") / "ephemeral" / "cache").read_text() == "precious data of web1"
    assert not fleet.is_drained("web1")


@pytest.mark.parametrize(("kind", "status", "result"), [("Reboot", 2, "unreachable"), ("Terminate", 0, "gone")])
def test_a_host_that_never_comes_back(fleet: Fleet, kind: str, status: int, result: str) -> None:
    fleet.common["graceful_gone_timeout"] = 5
    fleet.announce("web1", EventType=kind, notice=60)
    with fleet.once(lambda: bool(fleet.happened("started")), lambda: fleet.drop("web1")):
        run = fleet.run()
    assert run.report["hosts"]["web1"]["result"] == result, run.output[-4000:]
    assert run.status == status, run.output[-4000:]


def test_a_policy_with_a_mistake_is_refused_before_anything_is_touched(fleet: Fleet) -> None:
    fleet.common["graceful_policy"] = [{"event_type": "Reboot", "action": "drain_and_aprove"}]
    fleet.announce("web1", "web2")
    run = fleet.run()
    assert run.status != 0
    assert "drain_and_aprove" in run.output
    assert "Traceback" not in run.output
    assert fleet.log("web1") == []
    assert fleet.record("web1") is None


def test_a_group_that_does_not_exist_is_said(fleet: Fleet) -> None:
    fleet.announce("web1")
    run = fleet.run("-e", "graceful_hosts=nobody")
    assert run.status == 2
    assert "graceful_hosts is nobody, but the inventory has no such host or group" in run.output
    assert fleet.posts() == []


def test_webhooks_that_are_written_wrong_are_said_and_left_out(fleet: Fleet) -> None:
    fleet.common["graceful_webhooks"] = [{"ulr": "http://secret"}]
    fleet.announce("web1", notice=100)
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert "No webhooks are sent: graceful_webhooks[0] has the key 'ulr'" in run.messages
    assert "secret" not in run.output
    fleet.check_all_back()


def test_an_empty_inventory_is_no_success(fleet: Fleet) -> None:
    fleet.variables.clear()
    run = fleet.run()
    assert run.status == 2
    assert "The inventory has no hosts (graceful_hosts: all). Check the option -i." in run.output


@pytest.mark.parametrize("value", ["half", "0", "-1", "1.5"])
def test_batches_that_make_no_sense_are_refused(fleet: Fleet, value: str) -> None:
    fleet.announce("web1")
    run = fleet.run("-e", f"graceful_serial={value}")
    assert run.status == 2
    assert f"graceful_serial is {value}; it has to be" in run.output
    assert fleet.record("web1") is None


@pytest.mark.parametrize("name", ["graceful_wait", "graceful_wait_round", "graceful_gone_timeout"])
def test_a_time_that_is_no_number_is_refused_before_anything_is_touched(fleet: Fleet, name: str) -> None:
    fleet.announce("web1")
    run = fleet.run("-e", f"{name}=30m")
    assert run.status == 2
    assert re.search(rf"{name}.* seconds", run.output), run.output[-3000:]
    assert "Traceback" not in run.output
    assert fleet.record("web1") is None


def test_a_webhook_that_hangs_does_not_stop_the_cycle(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        got: list[bytes] = []

        def answer_never() -> None:
            while True:
                try:
                    connection, _address = hanging.accept()
                except OSError:
                    return
                got.append(connection.recv(65536))
                kept.append(connection)

        kept: list[socket.socket] = []
        threading.Thread(target=answer_never, daemon=True).start()
        fleet.common["graceful_webhooks"] = [{"url": f"http://127.0.0.1:{hanging.getsockname()[1]}/", "timeout": 1}]
        fleet.announce("web1")
        run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert len(got) >= 3, "noticed, approved and restored are told"
    fleet.check_all_back()


def test_hosts_drained_in_batches_are_approved_after_the_last(fleet: Fleet) -> None:
    fleet.announce("web1", "web2", "web3")
    run = fleet.run("-e", "graceful_serial=1")
    assert run.status == 0, run.output[-4000:]
    assert len(fleet.posts()) == 1
    fleet.check_all_back()
