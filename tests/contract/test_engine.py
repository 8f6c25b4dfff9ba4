# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python engine keeps the contract."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.tests.contract.engine_cases import CASES, Case, judge
from ansible_collections.graceful.azure.tests.contract.linux_host import LinuxStage


@pytest.fixture(scope="session")
def linux(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[LinuxStage]:
    stage = LinuxStage(tmp_path_factory.mktemp("linux"))
    yield stage
    stage.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_order_comes_to_what_the_table_says(linux: LinuxStage, case: Case) -> None:
    _host, results = linux.play(case)
    for turn, result in zip(case.turns, results, strict=True):
        judge(turn, result)
