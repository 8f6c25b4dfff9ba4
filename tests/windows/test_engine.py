# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PowerShell engine keeps the contract, answers as the Python engine does in every field, and reads its record."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.contract import linux_host
from ansible_collections.graceful.azure.tests.contract.engine_cases import CASES, Case, Json, judge, normalised, play
from ansible_collections.graceful.azure.tests.integration.harness import Case as Vm
from ansible_collections.graceful.azure.tests.integration.harness import Emulator
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import PowerShellError, Session

SCRIPTS = {
    "make": "echo done> {0}",
    "test": "if exist {0} (exit 0) else (exit 1)",
    "remove": "del {0}",
    "fail": "echo no>&2& exit 3",
    "sleep": "ping -n 60 127.0.0.1 >NUL",
}
# Only ready and put_back start a process for their work, which is what takes long here.
Played = dict[str, tuple[t.Any, list[Json]]]


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


@pytest.fixture(scope="session")
def on_linux(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return t.cast(Played, linux_host.results(tmp_path_factory.mktemp("linux")))


@pytest.fixture(scope="session")
def on_windows(tmp_path_factory: pytest.TempPathFactory, session: Session) -> Played:
    directory = tmp_path_factory.mktemp("windows")
    emulator = Emulator(directory / "azure", [Vm(case.name) for case in CASES])
    # Wine keeps no access control lists.
    session.script("[Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')")
    played: Played = {}
    try:
        for case in CASES:
            host = WindowsHost(directory / case.name, session)
            try:
                played[case.name] = host, play(case, host, emulator, emulator.endpoints[case.name])
            except PowerShellError as exc:
                played[case.name] = host, [{"msg": str(exc)}]
    finally:
        emulator.stop()
    return played


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_order_comes_to_what_the_table_says(on_windows: Played, case: Case) -> None:
    _host, results = on_windows[case.name]
    for turn, result in zip(case.turns, results):
        judge(turn, result)
    assert len(results) == len(case.turns)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_engines_say_the_same(on_windows: Played, on_linux: Played, case: Case) -> None:
    (linux, said), (host, answered) = on_linux[case.name], on_windows[case.name]
    for turn, one, other in zip(case.turns, said, answered):
        expected, got = normalised(one, linux), normalised(other, host)
        for part in ("report", "observation", "changed"):
            assert got.get(part) == expected.get(part), (turn.order, part)
