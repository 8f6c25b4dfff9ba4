# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that nobody takes care of in time drains itself, is put back by itself, and gives way to every run."""

from __future__ import annotations

import time
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import Document, parse, seen_by
from ansible_collections.graceful.azure.plugins.module_utils._engine import Engine
from ansible_collections.graceful.azure.plugins.module_utils._look import Order
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, Run
from ansible_collections.graceful.azure.plugins.module_utils._service import service_of
from ansible_collections.graceful.azure.tests.unit.emulator.harness import EVENTS, Emulator, until
from ansible_collections.graceful.azure.tests.unit.watcher.harness import Host, Json, Server, looks_again


class Controller:
    """A run that calls the engine as the module does."""

    def __init__(self, host: Host, emulator: Emulator, run: str = "run-1") -> None:
        self._host = host
        self._emulator = emulator
        self.run = Run(run, f"{run} of an operator")

    def call(self, order: str, **more: t.Any) -> Json:
        options = {"endpoint": self._host.config["endpoint"], "api_version": "2020-07-01"}
        service = service_of({**options, "connect_timeout": 5, "read_timeout": 10, "retries": 0})
        document: Document = parse(self._emulator.ask(EVENTS).body)
        events = [dict(event) for event in seen_by(document, "web_0", service.client.clock.utc_now())]
        record = self._host.record
        if order == "put_back" and record:
            events = [entry["event"] for entry in record["events"].values()]
        steps = self._host.config["on_its_own"]["steps"]
        keeper = Keeper(self._host.config["record_dir"], self.run)
        made = Order(order, events, steps=steps, seconds=60, wait=10, **more)
        return t.cast(Json, Engine(made, service, None, keeper).carry_out()["report"])


def holder(host: Host) -> str:
    record = host.record
    return next(iter(record["events"].values()))["claim"]["run_name"] if record and record["events"] else ""


def approvals(emulator: Emulator) -> list[Json]:
    return [line for line in emulator.journal("request") if line["method"] == "POST"]


def test_it_drains_before_notbefore_and_puts_back_after_the_event(
    host: Host, emulator: Emulator, receiver: Server
) -> None:
    host.acts()
    host.tells(receiver)
    host.start()
    host.says("Watching")
    posts = len(approvals(emulator))
    event_id = emulator.publish("Preempt", ["web_0"], notice=20, started_for=2)
    begin = time.monotonic()
    until(lambda: not host.in_service, 15)
    drained_after = time.monotonic() - begin
    until(lambda: (host.record or {"events": {}})["events"].get(event_id.lower(), {}).get("ready"))
    assert [event["EventStatus"] for event in emulator.events()] == ["Scheduled"], "it is ready before Azure acts"
    assert holder(host) == "watcher on web1"
    until(lambda: host.in_service, 60)
    until(lambda: host.record is None)
    assert [entry["what"] for entry in host.history[0]["timeline"]][-1] == "restored"
    until(lambda: receiver.changes == ["appeared", "started", "gone"])
    assert len(approvals(emulator)) == posts, "it never approves"
    assert "no run has claimed Preempt" in host.log
    print(f"published to drained: {drained_after:.1f} s")


def test_a_cancelled_event_puts_it_back(host: Host, emulator: Emulator) -> None:
    host.acts()
    step = host.config["on_its_own"]["steps"][0]
    mask = host.directory / "mask"
    step["options"]["do"] = ["/bin/sh", "-c", f"umask >{mask}; exec {' '.join(step['options']['do'])}"]
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100)
    until(lambda: not host.in_service)
    assert int(mask.read_text(), 8) == 0o022, "what a step makes may be read as if a run had made it"
    figures = host.directory / "metrics.prom"
    # Sooner than the figures are written if nothing happens.
    until(lambda: "host_drained 1" in figures.read_text(), 10)
    emulator.obeys("/cancel", {"EventId": event_id})
    until(lambda: host.in_service, 60)
    until(lambda: host.record is None)
    until(lambda: "host_drained 0" in figures.read_text(), 10)


def test_it_waits_for_a_run_as_long_as_there_is_time(host: Host, emulator: Emulator) -> None:
    host.acts(drain_budget=30)
    host.start()
    emulator.publish("Reboot", ["web_0"], notice=600)
    host.says("the drain begins 2 min before NotBefore, if no run has claimed the event by then")
    looks_again(emulator)
    assert host.in_service
    assert host.record is None


@pytest.mark.parametrize(
    ("kind", "resources", "fields"),
    [
        ("Reboot", ["web_1"], {}),
        ("Freeze", ["web_0"], {"DurationInSeconds": 5}),
        ("Reboot", ["web_0"], {"EventStatus": "Started", "started_for": 60}),
    ],
    ids=["of another VM", "a short freeze, by the policy", "already started"],
)
def test_it_does_not_drain_for_what_does_not_need_it(
    host: Host, emulator: Emulator, receiver: Server, kind: str, resources: list[str], fields: Json
) -> None:
    host.acts()
    host.tells(receiver)
    host.start()
    emulator.publish(kind, resources, notice=60, **fields)
    until(lambda: receiver.changes)
    looks_again(emulator)
    assert host.in_service
    assert host.record is None


def test_it_leaves_the_host_to_a_run_that_has_claimed_it(host: Host, emulator: Emulator) -> None:
    host.acts()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100)
    controller = Controller(host, emulator)
    Keeper(host.config["record_dir"], controller.run).claim([{"event_id": event_id, "event_type": "Reboot"}], "boot")
    host.start()
    host.says("run-1 of an operator is handling it")
    looks_again(emulator)
    assert host.in_service
    assert holder(host) == "run-1 of an operator"


def test_a_run_takes_over_at_any_time_and_nothing_is_done_twice(host: Host, emulator: Emulator) -> None:
    host.acts()
    # Each time that it drains is noted.
    noted = host.directory / "noted"
    step = host.config["on_its_own"]["steps"][0]
    move = step["options"]["do"]
    step["options"]["do"] = ["/bin/sh", "-c", f"echo done >>{noted}; exec {' '.join(move)}"]
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100, started_for=3)
    until(lambda: (host.record or {"events": {}})["events"].get(event_id.lower(), {}).get("ready"))
    controller = Controller(host, emulator)
    assert controller.call("ready")["state"] == "ready"
    assert holder(host) == "run-1 of an operator"
    host.says("is handling it")
    looks_again(emulator)
    assert holder(host) == "run-1 of an operator", "the watcher does not take it back"
    assert noted.read_text() == "done\n"
    assert controller.call("approve", max_age=60)["state"] == "approved"
    until(lambda: not emulator.events())
    report = controller.call("put_back")
    while report["state"] == "waiting":
        report = controller.call("put_back")
    assert report["state"] == "put_back"
    assert host.in_service
    assert host.record is None


def test_a_run_that_comes_while_the_watcher_is_at_work_takes_over(host: Host, emulator: Emulator) -> None:
    host.acts()
    noted = host.directory / "noted"
    step = host.config["on_its_own"]["steps"][0]
    move = step["options"]["do"]
    step["options"]["do"] = ["/bin/sh", "-c", f"sleep 3; echo done >>{noted}; exec {' '.join(move)}"]
    host.start()
    emulator.publish("Reboot", ["web_0"], notice=100)
    until(lambda: host.record is not None and host.record["steps"])
    controller = Controller(host, emulator)
    # Where the watcher's process does not end at once, the run tries it again.
    until(lambda: controller.call("ready")["state"] == "ready", 60)
    assert holder(host) == "run-1 of an operator"
    assert noted.read_text() == "done\n", "the watcher's own try was ended before the run began with its own"
    host.says("is handling it")


def test_it_takes_over_what_a_dead_run_has_left(host: Host, emulator: Emulator) -> None:
    host.acts()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100, started_for=2)
    controller = Controller(host, emulator)
    controller.run = controller.run._replace(silent_for=3.0)
    assert controller.call("ready")["state"] == "ready"
    assert not host.in_service
    host.start()
    until(lambda: holder(host) == "watcher on web1", 20)
    emulator.obeys("/complete", {"EventId": event_id})
    until(lambda: host.in_service, 60)
    until(lambda: host.record is None)


def test_it_goes_on_after_it_was_killed_in_mid_drain(host: Host, emulator: Emulator) -> None:
    host.acts()
    step = host.config["on_its_own"]["steps"][0]
    move = step["options"]["do"]
    step["options"]["do"] = ["/bin/sh", "-c", f"sleep 3; exec {' '.join(move)}"]
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100)
    until(lambda: host.record is not None and host.record["steps"])
    host.stop(9)
    host.start()
    until(lambda: not host.in_service)
    emulator.obeys("/complete", {"EventId": event_id})
    until(lambda: host.in_service, 60)
    until(lambda: host.record is None)


@pytest.mark.parametrize(
    ("approve", "kind", "resources", "approves"),
    [
        (True, "Reboot", ["web_0"], True),
        (True, "Reboot", ["web_0", "web_1"], False),
        (True, "Preempt", ["web_0"], False),
        (False, "Reboot", ["web_0"], False),
    ],
    ids=["its own", "others are named", "the policy only drains", "not allowed"],
)
def test_it_approves_only_if_told_so_and_only_what_names_no_other(
    host: Host, emulator: Emulator, approve: bool, kind: str, resources: list[str], approves: bool
) -> None:
    host.acts(approve=approve)
    host.start()
    host.says("Watching")
    event_id = emulator.publish(kind, resources, notice=30, started_for=1)
    until(lambda: (host.record or {"events": {}})["events"].get(event_id.lower(), {}).get("ready"))
    if approves:
        until(lambda: ("started", "web_0") in emulator.life(event_id) or "approved" in str(emulator.life(event_id)), 10)
    else:
        looks_again(emulator)
    sent = [line for line in approvals(emulator) if event_id in (line["body"] or "")]
    assert len(sent) == int(approves)
    assert not host.in_service or approves


def test_what_only_a_controller_can_undo_is_left_for_a_run(host: Host, emulator: Emulator) -> None:
    host.acts()
    event_id = emulator.publish("Reboot", ["web_0"], notice=100, started_for=1)
    controller = Controller(host, emulator)
    controller.run = controller.run._replace(silent_for=1.0)
    assert controller.call("ready")["state"] == "ready"
    step = {"phase": "drain", "name": "balancers", "kind": "haproxy", "status": "done"}
    keeper = Keeper(host.config["record_dir"], controller.run)
    keeper.note_step([event_id.lower()], step)
    host.start()
    emulator.obeys("/complete", {"EventId": event_id})
    host.says("The next step needs the controller: start graceful.azure.maintenance", 60)
    record = host.record
    assert record is not None
    assert {one["name"]: one["status"] for one in record["steps"]} == {"application": "undone", "balancers": "doing"}
    assert host.in_service


def test_a_dry_run_says_what_it_would_do(host: Host, emulator: Emulator) -> None:
    host.acts()
    emulator.publish("Preempt", ["web_0"], notice=30)
    done = host.once("--print")
    assert "On its own it would now begin (ready): no run has claimed Preempt" in done.stderr
    assert host.in_service
    assert host.record is None


def test_a_drain_that_fails_is_said_and_tried_again(host: Host, emulator: Emulator) -> None:
    host.acts()
    step = host.config["on_its_own"]["steps"][0]
    step["options"]["do"] = ["/bin/false"]
    host.start()
    emulator.publish("Reboot", ["web_0"], notice=100)
    host.says("Drain step 'application' (command) failed: The program of do ended with 1")
    assert host.in_service
