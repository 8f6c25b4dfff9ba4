# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

pytest.register_assert_rewrite("ansible_collections.graceful.azure.tests.integration")

from ansible_collections.graceful.azure.tests.integration.harness import Case, Outcome, judge
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.contract import MODULES, WindowsStage
from ansible_collections.graceful.azure.tests.windows.harness import Session


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> t.Generator[None, object, object]:
    if hasattr(session.config, "workerinput"):
        return (yield)
    with windows.in_use():
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def powershell_is_here() -> None:
    try:
        windows.make()
    except windows.CannotError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def session(powershell_is_here: None) -> t.Iterator[Session]:
    """One PowerShell for all tests that ask for it."""
    running = Session()
    yield running
    running.close()


@pytest.fixture(scope="session")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, powershell_is_here: None
) -> t.Iterator[WindowsStage]:
    """The cases of the selected tests, all played."""
    selected = [item for item in request.session.items if isinstance(item, pytest.Function)]
    values = [item.callspec.params.get("case") for item in selected if hasattr(item, "callspec")]
    cases = {value.name: value for value in values if isinstance(value, Case) and value.group in MODULES}
    playing = WindowsStage(list(cases.values()), tmp_path_factory.mktemp("stage"))
    yield playing
    playing.stop()


@pytest.fixture
def outcome(stage: WindowsStage, case: Case) -> Outcome:
    """What became of the test's case, which has kept what it promises."""
    if case.group not in MODULES:
        pytest.skip("it is about a task, not about a module")
    found = stage.outcome(case)
    judge(case, found)
    return found
