# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role, run on this machine as a plain process, in a directory of its own."""

from __future__ import annotations

import json
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.tools.launcher import PROGRAM, Launch
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Json, run

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="there is no ansible-playbook beside this Python")

ROLE = "ansible.builtin.include_role"
STARTED = 5  # directory, program, fleet, how it is started, process
RESTARTED = 3  # how it is started, the old process, the new one
STOPPED = 1


def role(**variables: t.Any) -> Json:
    return {ROLE: {"name": "graceful.azure.emulator"}, "vars": variables}


def holds(*conditions: str) -> Json:
    return {"ansible.builtin.assert": {"that": list(conditions)}}


class Machine:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "emu lator"

    def play(self, tasks: list[Json], *options: str, returns: int = 0) -> Json:
        """The host's counts in the recap, and the output."""
        variables = {
            "emulator_dir": str(self.home),
            "emulator_python": sys.executable,
            "emulator_run_by": "process",
            "emulator_port_base": 0,
            "emulator_control_port": 0,
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
        }
        file = self.directory / "play.yml"
        play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}
        file.write_text(json.dumps([play]), encoding="utf-8")
        done = Launch(file, "localhost,", self.directory / "home", options).run(cwd=self.directory)
        assert done.returncode == returns, done.stdout
        recap = done.stdout.rstrip().splitlines()[-1].partition(":")[2]
        return {
            "output": done.stdout,
            **{key: int(value) for key, value in (pair.split("=") for pair in recap.split())},
        }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    run("stop", "--ready-file", str(machine.home / "ready.json"))


VMS = {"web_1": {"scope": "web"}, "web_0": {"scope": "web"}}


def test_check_mode_says_what_would_change_and_changes_nothing(machine: Machine) -> None:
    assert machine.play([role(emulator_vms=VMS)], "--check", "--diff")["changed"] == STARTED
    assert not machine.home.exists()


def test_it_starts_once_restarts_when_changed_and_stops_once(machine: Machine) -> None:
    url = "{{ emulator_ready.vms.web_0 }}/metadata/scheduledevents?api-version=2020-07-01"
    recap = machine.play(
        [
            role(emulator_vms=VMS),
            {"ansible.builtin.set_fact": {"first": "{{ emulator_ready }}"}},
            holds("first.vms.keys() | list == ['web_1', 'web_0']"),
            role(emulator_vms=VMS),
            holds("emulator_ready == first"),
            role(emulator_vms=VMS, emulator_scenario="several_vms"),
            holds("emulator_ready.pid != first.pid"),
            {"ansible.builtin.uri": {"url": url, "headers": {"Metadata": "true"}}, "register": "answer"},
            holds("answer.json.Events[0].Resources == ['web_1', 'web_0']"),
            role(emulator_state="stopped"),
            role(emulator_state="stopped"),
        ]
    )
    assert recap["changed"] == STARTED + RESTARTED + STOPPED
    assert not (machine.home / "ready.json").exists()
    assert (machine.home / "journal.jsonl").exists()


def test_it_refuses_to_play_no_vm_before_anything_changes(machine: Machine) -> None:
    recap = machine.play([role()], returns=2)
    assert (recap["failed"], recap["changed"]) == (1, 0)
    assert "name at least one VM" in recap["output"]
    assert not machine.home.exists()
