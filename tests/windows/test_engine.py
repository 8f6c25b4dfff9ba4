# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PowerShell engine keeps the contract, answers as the Python engine does in every field, and reads its record."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.contract.engine_cases import CASES, Case, Json, judge, normalised, play
from ansible_collections.graceful.azure.tests.contract.linux_host import LinuxStage
from ansible_collections.graceful.azure.tests.integration.harness import Case as Vm
from ansible_collections.graceful.azure.tests.integration.harness import Emulator
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

SCRIPTS = {
    "make": "echo done> {0}",
    "test": "if exist {0} (exit 0) else (exit 1)",
    "remove": "del {0} >NUL 2>NUL & exit 0",
    "fail": "echo no>&2& exit 3",
    "sleep": "ping -n 60 127.0.0.1 >NUL",
}


class WindowsHost:
    def __init__(self, directory: Path, session: Session) -> None:
        directory.mkdir()
        self._directory = directory
        self._session = session
        self.work = windows.windows_path(directory) + "\\"

    def program(self, verb: str, name: str) -> list[str]:
        return ["C:\\windows\\system32\\cmd.exe", "/c", SCRIPTS[verb].format(f"{self.work}{name}")]

    def file(self, name: str) -> Path:
        return self._directory / name

    def call(self, options: Json, check: bool) -> Json:
        return self._session.module("win_host_maintenance", options, check)


class WindowsStage:
    """Plays the cases with the PowerShell engine, each once, when it is asked for."""

    def __init__(self, directory: Path, session: Session) -> None:
        self._directory = directory
        self._session = session
        self._emulator = Emulator(directory / "azure", [Vm(case.name) for case in CASES])
        self._played: dict[str, tuple[WindowsHost, list[Json]]] = {}

    def play(self, case: Case) -> tuple[WindowsHost, list[Json]]:
        if case.name not in self._played:
            host = WindowsHost(self._directory / case.name, self._session)
            self._played[case.name] = host, play(case, host, self._emulator, self._emulator.endpoints[case.name])
        return self._played[case.name]

    def stop(self) -> None:
        self._emulator.stop()


@pytest.fixture(scope="session")
def linux(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[LinuxStage]:
    stage = LinuxStage(tmp_path_factory.mktemp("linux"))
    yield stage
    stage.stop()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, session: Session) -> t.Iterator[WindowsStage]:
    # Wine keeps no access control lists.
    session.script("[Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')")
    running = WindowsStage(tmp_path_factory.mktemp("windows"), session)
    yield running
    running.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_order_comes_to_what_the_table_says(stage: WindowsStage, case: Case) -> None:
    _host, results = stage.play(case)
    for turn, result in zip(case.turns, results, strict=True):
        judge(turn, result)


def told(result: Json) -> Json:
    """The report without what only a call has that heard the end of the work at once, which depends on the machine."""
    report = result.get("report") or {}
    return {key: value for key, value in report.items() if key != "times" and (key != "held" or value)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_engines_say_the_same(stage: WindowsStage, linux: LinuxStage, case: Case) -> None:
    here, said = linux.play(case)
    there, answered = stage.play(case)
    for turn, one, other in zip(case.turns, said, answered, strict=True):
        expected, got = normalised(one, here), normalised(other, there)
        assert told(got) == told(expected), turn.order
        assert got.get("observation") == expected.get("observation"), turn.order
        # What fails leaves it out, with Python.
        assert bool(got.get("changed")) == bool(expected.get("changed")), turn.order
