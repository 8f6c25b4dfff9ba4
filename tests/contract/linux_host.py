# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine as a host of the contract: the Python module in a process of its own, as Ansible runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

from ansible_collections.graceful.azure.tests.contract.engine_cases import CASES, Case, Json, play
from ansible_collections.graceful.azure.tests.integration.harness import Case as Vm
from ansible_collections.graceful.azure.tests.integration.harness import Emulator
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION

MODULE = COLLECTION / "plugins" / "modules" / "host_maintenance.py"
UNTIL_LET_GO = "for second in $(seq 450); do test -e {0}.go && break; sleep 0.2; done"
SCRIPTS = {
    "make": "echo done > {0}",
    "test": "test -e {0}",
    "remove": "rm -f {0}",
    "make_slowly": f"echo > {{0}}.alive; {UNTIL_LET_GO}; echo done > {{0}}",
    "remove_slowly": f"{UNTIL_LET_GO}; rm -f {{0}}",
    "fail": "echo no >&2; exit 3",
    "sleep": "exec sleep 60",
    "hang": "for second in $(seq 60); do echo $second >> {0}.alive; sleep 1; done",
}


class LinuxHost:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.work = f"{directory}/"

    def program(self, verb: str, name: str) -> list[str]:
        return ["/bin/sh", "-c", SCRIPTS[verb].format(f"'{self.work}{name}'")]

    def file(self, name: str) -> Path:
        return Path(self.work, name)

    def call(self, options: Json, check: bool) -> Json:
        given = {"ANSIBLE_MODULE_ARGS": {**options, "_ansible_check_mode": check}}
        done = subprocess.run(
            [sys.executable, str(MODULE)],
            input=json.dumps(given),
            env={**os.environ, "PYTHONPATH": str(COLLECTION.parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        return t.cast(Json, json.loads(done.stdout))


class LinuxStage:
    """Plays the cases with the Python engine, each once, when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._emulator = Emulator(directory / "azure", [Vm(case.name) for case in CASES])
        self._played: dict[str, tuple[LinuxHost, list[Json]]] = {}

    def play(self, case: Case) -> tuple[LinuxHost, list[Json]]:
        if case.name not in self._played:
            host = LinuxHost(self._directory / case.name)
            self._played[case.name] = host, play(case, host, self._emulator, self._emulator.endpoints[case.name])
        return self._played[case.name]

    def stop(self) -> None:
        self._emulator.stop()
