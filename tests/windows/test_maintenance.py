# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance of hosts with Windows through ansible-core: a task whose connection is lost, and a whole mixed fleet."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle import harness as cycle
from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import CONNECTIONS, CONSTRAINED, TOO_OLD, WINDOWS, play

DROPPED = Case("dropped", events=[{}])
# Wine keeps no access control lists.
SETTINGS = {"GRACEFUL_TEST_WITHOUT_ACL": "1"}
CMD = "C:\\windows\\system32\\cmd.exe"
# Everything takes long here: PowerShell starts anew for each call.
PATIENCE = 1500


@pytest.fixture
def emulator(tmp_path: Path) -> t.Iterator[Emulator]:
    running = Emulator(tmp_path / "emulator", [DROPPED])
    yield running
    running.stop()


def test_a_connection_that_is_dropped_in_the_middle_of_a_drain_costs_nothing(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansible_collections.graceful.azure.tests.windows.harness.PATIENCE", PATIENCE)
    work = tmp_path / "work"
    work.mkdir()
    here = windows.windows_path(work) + "\\"
    (work / "prepared").write_text(json.dumps({"kind": "drop", "times": 2}))
    # The connection is lost as soon as the step has begun, and the step goes on for some seconds.
    do = f"copy {here}prepared {here}fate >NUL & ping -n 5 127.0.0.1 >NUL & echo once>> {here}did"
    step = {
        "name": "long",
        "kind": "command",
        "do": [CMD, "/c", do],
        "probe": [CMD, "/c", f"if exist {here}did (exit 0) else (exit 1)"],
        "undo": [CMD, "/c", f"del {here}did"],
    }
    common = {
        "endpoint": emulator.endpoints["dropped"],
        "record_dir": f"{here}records",
        "run_id": "first",
        "events": [{"event_id": "DROPPED-1", "event_type": "Reboot", "resources": ["dropped"]}],
    }
    order = {**common, "order": "ready", "steps": [step], "timeout": 600, "seconds": 600}
    ready = {"graceful.azure.host_maintenance": order}
    (found,) = play(tmp_path / "play", [ready], {"windows1": {"fate": str(work / "fate")}}, settings=SETTINGS)
    assert found["status"] == "ok", found
    assert found["result"]["report"]["message"] == "1 drain step done, 0 checkpoints saved, all verified"
    assert len(found["result"]["interruptions"]) == 1
    assert found["result"]["interruptions"][0]["back"]
    assert (work / "did").read_text().split() == ["once"], "the work has gone on without its connection"
    record = json.loads((work / "records" / "record.json").read_text())
    assert [step["status"] for step in record["steps"]] == ["done"]


def _linux_host(fleet: cycle.Fleet, host: str) -> Json:
    drained = str(fleet.home(host) / "drained")
    programs = {"do": ["touch", drained], "probe": ["test", "-e", drained], "undo": ["rm", "-f", drained]}
    return {
        "graceful_drain_steps": [{"name": "service", "kind": "command", **programs}],
        "graceful_health": [{"argv": ["true"]}],
    }


def _windows_host(fleet: cycle.Fleet, host: str) -> Json:
    home = windows.windows_path(fleet.home(host)) + "\\"
    return {
        **WINDOWS,
        "graceful_record_dir": f"{home}records",
        "graceful_checkpoint_dir": f"{home}checkpoints",
        "graceful_checkpoint": [{"name": "cache", "kind": "paths", "paths": [f"{home}ephemeral"]}],
        "graceful_drain_steps": [
            {
                "name": "service",
                "kind": "command",
                "do": [CMD, "/c", f"echo drained> {home}drained"],
                "probe": [CMD, "/c", f"if exist {home}drained (exit 0) else (exit 1)"],
                "undo": [CMD, "/c", f"del {home}drained"],
            }
        ],
        "graceful_health": [{"argv": [CMD, "/c", "exit 0"]}],
    }


def test_one_event_for_two_windows_and_two_linux_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "PATIENCE", PATIENCE)
    fleet = cycle.Fleet(tmp_path, size=4)
    try:
        for host in ("web3", "web4"):
            fleet.variables[host].update(_windows_host(fleet, host))
        for host in ("web1", "web2"):
            fleet.variables[host].update(_linux_host(fleet, host))
        fleet.settings.update(SETTINGS, ANSIBLE_CONNECTION_PLUGINS=CONNECTIONS)
        fleet.announce("web1", "web2", "web3", "web4", notice=3000)
        run = fleet.run()
        assert run.status == 0, run.output[-6000:]
        assert run.report["result"] == "done", run.messages
        assert run.report["events"][0]["outcome"] == "completed"
        assert len(fleet.posts()) == 1
        (approved,) = fleet.happened("approved")
        for host in fleet.names:
            assert not fleet.is_drained(host)
            assert fleet.record(host) is None
            assert (fleet.home(host) / "ephemeral" / "cache").read_text() == f"precious data of {host}"
            (closed,) = [json.loads(file.read_text()) for file in (fleet.home(host) / "records" / "history").iterdir()]
            marks = {mark["what"]: mark["at"] for mark in reversed(closed["timeline"])}
            assert marks["ready"] < approved["time"] < marks["restored"], host
            undone = {step["name"]: step["status"] for step in closed["steps"]}
            assert undone == {"service": "undone", "cache": "undone"}
    finally:
        fleet.stop()


def test_a_drill_of_a_mixed_fleet_with_steps_that_the_controller_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "PATIENCE", PATIENCE)
    fleet = cycle.Fleet(tmp_path, size=2)
    flag = fleet.home("web2") / "out"
    work = {"do": {"path": str(flag), "state": "touch"}, "undo": {"path": str(flag), "state": "absent"}}
    files = {name: tmp_path / f"{name}.yml" for name in (*work, "probe")}
    for name, options in work.items():
        task = {"name": name, "ansible.builtin.file": options, "delegate_to": "localhost"}
        files[name].write_text(json.dumps([task]))
    files["probe"].write_text(
        json.dumps([{"name": "probe", "ansible.builtin.assert": {"that": f"'{flag}' is exists"}}])
    )
    try:
        fleet.variables["web1"].update(_linux_host(fleet, "web1"))
        fleet.variables["web2"].update(_windows_host(fleet, "web2"))
        fleet.variables["web2"]["graceful_drain_steps"].append(
            {"name": "site", "kind": "tasks", **{name: str(file) for name, file in files.items()}}
        )
        fleet.variables["web2"]["graceful_checkpoint"][0]["to"] = "controller"
        fleet.settings.update(SETTINGS, ANSIBLE_CONNECTION_PLUGINS=CONNECTIONS)
        assert fleet.run(playbook="prepare").status == 0
        fleet.common.update(
            ansible_become=False,
            graceful_drill_address="127.0.0.1",
            graceful_drill_port=0,
            graceful_drill_control_port=0,
            graceful_drill_dir=str(tmp_path / "drill"),
            graceful_drill_run_by="process",
            graceful_drill_duration=1,
        )
        run = fleet.run("-e", "graceful_drill_consent=yes", playbook="drill")
        assert run.status == 0, run.output[-6000:]
        assert (run.report["drill"], run.report["result"]) == (True, "done")
        assert fleet.posts() == []
        assert not flag.exists()
        for host in fleet.names:
            assert not fleet.is_drained(host)
            (closed,) = [json.loads(file.read_text()) for file in (fleet.home(host) / "records" / "history").iterdir()]
            assert {step["status"] for step in closed["steps"]} == {"undone"}
        assert len(closed["steps"]) == 3
        cache = next(step for step in closed["steps"] if step["name"] == "cache")
        assert cache["data"]["fetched"] is True
    finally:
        fleet.stop()


def test_hosts_on_which_no_module_can_run_hold_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "PATIENCE", PATIENCE)
    fleet = cycle.Fleet(tmp_path, size=3)
    problems = {"web2": "it is in constrained language mode", "web3": "PowerShell on this host is too old"}
    try:
        fleet.variables["web1"].update(_linux_host(fleet, "web1"))
        for host, prelude in (("web2", CONSTRAINED), ("web3", TOO_OLD)):
            named = {"graceful_vm_name": fleet.names[host], "prelude": prelude}
            fleet.variables[host].update(_windows_host(fleet, host), **named)
        # What an inventory says for Linux hosts.
        fleet.common["ansible_become"] = True
        fleet.variables["web1"]["ansible_become"] = False
        fleet.settings.update(SETTINGS, ANSIBLE_CONNECTION_PLUGINS=CONNECTIONS)
        prepared = fleet.run(playbook="prepare")
        assert prepared.status == 2, prepared.output[-4000:]
        assert "1 of 3 hosts are ready" in prepared.output
        event = fleet.announce(*fleet.names)
        with fleet.once(lambda: fleet.said("HELD"), lambda: fleet.control("start", {"EventId": event})):
            run = fleet.run()
        assert run.status == 2, run.output[-4000:]
        assert run.report["events"][0]["outcome"] == "held"
        assert fleet.posts() == []
        for host, problem in problems.items():
            assert f"{host}: PowerShell on this host" in prepared.output
            assert problem in prepared.output
            assert problem in run.messages, run.messages
    finally:
        fleet.stop()
