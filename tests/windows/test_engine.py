# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PowerShell engine keeps the contract, answers as the Python engine does in every field, and reads its record."""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.contract.engine_cases import (
    CASES,
    LONG,
    Case,
    Json,
    judge,
    normalised,
    play,
)
from ansible_collections.graceful.azure.tests.contract.linux_host import LinuxHost, LinuxStage
from ansible_collections.graceful.azure.tests.integration.harness import Case as Vm
from ansible_collections.graceful.azure.tests.integration.harness import Emulator
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

SESSIONS = 3
# Wine keeps no access control lists.
WITHOUT_ACL = "[Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')"
UNTIL_LET_GO = "(for /l %i in (1,1,90) do if not exist {0}.go ping -n 2 127.0.0.1 >NUL)"
SCRIPTS = {
    "make": "echo done> {0}",
    "test": "if exist {0} (exit 0) else (exit 1)",
    "remove": "del {0} >NUL 2>NUL & exit 0",
    "make_slowly": f"echo begun> {{0}}.alive & {UNTIL_LET_GO} & echo done> {{0}}",
    "remove_slowly": f"{UNTIL_LET_GO} & del {{0}} >NUL 2>NUL & exit 0",
    "fail": "echo no>&2& exit 3",
    "sleep": "ping -n 60 127.0.0.1 >NUL",
    "hang": "for /l %i in (1,1,60) do (echo %i>> {0}.alive & ping -n 2 127.0.0.1 >NUL)",
}


class WindowsHost:
    def __init__(self, directory: Path, session: Session) -> None:
        directory.mkdir(exist_ok=True)
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
    """Plays the cases with the PowerShell engine, several at a time: they mostly wait."""

    def __init__(self, directory: Path, cases: t.Sequence[Case]) -> None:
        self._directory = directory
        self._sessions: list[Session] = []
        self._here = threading.local()
        self._emulator = Emulator(directory / "azure", [Vm(case.name) for case in CASES])
        self._pool = ThreadPoolExecutor(SESSIONS)
        self._played = {case.name: self._pool.submit(self._play, case) for case in cases}

    def _session(self) -> Session:
        """That of this thread."""
        if not hasattr(self._here, "session"):
            self._here.session = Session()
            self._here.session.script(WITHOUT_ACL)
            self._sessions.append(self._here.session)
        return t.cast(Session, self._here.session)

    def _play(self, case: Case) -> tuple[WindowsHost, list[Json]]:
        host = WindowsHost(self._directory / case.name, self._session())
        return host, play(case, host, self._emulator, self._emulator.endpoints[case.name])

    def play(self, case: Case) -> tuple[WindowsHost, list[Json]]:
        return self._played[case.name].result()

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for session in self._sessions:
            session.close()
        self._emulator.stop()


Linux = dict[str, Future[tuple[LinuxHost, list[Json]]]]


def selected(request: pytest.FixtureRequest, fixture: str) -> list[Case]:
    """The cases of the selected tests that use the fixture."""
    items = [one for one in request.session.items if isinstance(one, pytest.Function) and fixture in one.fixturenames]
    cases = [one.callspec.params.get("case") for one in items if hasattr(one, "callspec")]
    return [case for case in CASES if case in cases]


@pytest.fixture(scope="module")
def linux(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Linux]:
    stage = LinuxStage(tmp_path_factory.mktemp("linux"))
    pool = ThreadPoolExecutor(2)
    yield {case.name: pool.submit(stage.play, case) for case in selected(request, "linux")}
    pool.shutdown(cancel_futures=True)
    stage.stop()


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, powershell_is_here: None
) -> t.Iterator[WindowsStage]:
    if selected(request, "linux"):
        # Both at a time.
        request.getfixturevalue("linux")
    running = WindowsStage(tmp_path_factory.mktemp("windows"), selected(request, "stage"))
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
    return {key: value for key, value in report.items() if key != "held" or value}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_engines_say_the_same(stage: WindowsStage, linux: Linux, case: Case) -> None:
    here, said = linux[case.name].result()
    there, answered = stage.play(case)
    for turn, one, other in zip(case.turns, said, answered, strict=True):
        if turn.state == "working":
            # How far it has come depends on the machine.
            continue
        expected, got = normalised(one, here), normalised(other, there)
        assert told(got) == told(expected), turn.order
        assert got.get("observation") == expected.get("observation"), turn.order
        # How often a step that fails was tried depends on the machine. An error leaves it out, with Python.
        if turn.state != "failed":
            assert bool(got.get("changed")) == bool(expected.get("changed")), turn.order


class Handover:
    """One directory for records, which both engines see, and a step whose programs are each for one of them."""

    def __init__(self, directory: Path, session: Session, endpoint: str) -> None:
        self.linux = LinuxHost(directory / "host")
        self.windows = WindowsHost(directory / "host", session)
        self.drained = self.linux.file("one")
        self._common = {"endpoint": endpoint, "retries": 0, "run_name": "a run"}

    def order(self, host: LinuxHost | WindowsHost, order: str, event: str, **more: t.Any) -> Json:
        given = {**self._common, "order": order, "record_dir": f"{host.work}records", "wait": LONG, **more}
        if order != "look":
            given["events"] = [{"event_id": event, "event_type": "Reboot", "resources": ["handover"]}]
            given["run_id"] = type(host).__name__
        return host.call(given, False)

    def step(self, does: LinuxHost | WindowsHost, undoes: LinuxHost | WindowsHost) -> Json:
        programs = {"do": does.program("make", "one"), "probe": does.program("test", "one")}
        options = {**programs, "undo": undoes.program("remove", "one"), "become_user": None, "environment": {"A": "ä"}}
        return {"name": "Größe 維護", "kind": "command", "timeout": 30, "options": options}


@pytest.mark.parametrize("order", ["python first", "powershell first"])
def test_each_engine_reads_the_record_of_the_other_and_puts_back(session: Session, tmp_path: Path, order: str) -> None:
    session.script(WITHOUT_ACL)
    emulator = Emulator(tmp_path / "azure", [Vm("handover", events=[{"notice": 100_000}])])
    try:
        shared = Handover(tmp_path, session, emulator.endpoints["handover"])
        hosts: list[LinuxHost | WindowsHost] = [shared.linux, shared.windows]
        first, second = hosts if order == "python first" else reversed(hosts)
        drained = shared.order(first, "ready", "HANDOVER-1", steps=[shared.step(first, second)])
        assert drained["report"]["state"] == "ready", drained
        assert shared.drained.exists()
        # Field by field, as it was written.
        written = drained["observation"]["record"]
        assert [step["status"] for step in written["steps"]] == ["done"]
        read = shared.order(second, "look", "HANDOVER-1", wait=0)
        assert read["observation"]["record_error"] is None
        assert read["observation"]["record"] == written
        held = shared.order(second, "put_back", "HANDOVER-1", wait=0)
        assert held["report"]["state"] == "held_by_other_run", held
        emulator.control("cancel", {"EventId": "HANDOVER-1"})
        back = shared.order(second, "put_back", "HANDOVER-1", force=True)
        assert back["report"]["state"] == "put_back", back
        assert not shared.drained.exists()
        # The one that began finds that it is over.
        assert shared.order(first, "look", "HANDOVER-1", wait=0)["observation"]["record"] is None
    finally:
        emulator.stop()
