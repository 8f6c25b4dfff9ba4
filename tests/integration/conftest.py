# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, NamespaceReads, Outcome, Stage, judge


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With --dist loadgroup, one process plays all that is played at once."""
    for item in items:
        if isinstance(item, pytest.Function) and "stage" in item.fixturenames:
            own = hasattr(item.module, "stage")
            item.add_marker(pytest.mark.xdist_group(item.module.__name__ if own else "stage"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where the groups do not count, each process plays everything: right, but many times as long."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("pytest-xdist does not group tests with this pytest: use an older pytest.")


@pytest.fixture(scope="session")
def namespace_reads(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[NamespaceReads]:
    reads = NamespaceReads(tmp_path_factory.mktemp("namespace"))
    yield reads
    reads.stop()


@pytest.fixture(scope="session")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, namespace_reads: NamespaceReads
) -> t.Iterator[Stage]:
    """The cases of the selected tests, all played at once, and beside them what is read in the namespace."""
    selected = [item for item in request.session.items if isinstance(item, pytest.Function)]
    values = [item.callspec.params.get("case") for item in selected if hasattr(item, "callspec")]
    cases = {value.name: value for value in values if isinstance(value, Case)}
    playing = Stage(list(cases.values()), tmp_path_factory.mktemp("stage"))
    yield playing
    playing.stop()


@pytest.fixture
def outcome(stage: Stage, case: Case) -> Outcome:
    """What became of the test's case, which has kept what it promises."""
    found = stage.outcome(case)
    judge(case, found)
    return found
