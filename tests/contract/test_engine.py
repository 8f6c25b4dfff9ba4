# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python engine keeps the contract."""

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.tests.contract import linux_host
from ansible_collections.graceful.azure.tests.contract.engine_cases import CASES, Case, Json, judge


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Json]]:
    found = linux_host.results(tmp_path_factory.mktemp("linux"))
    return {name: results for name, (_host, results) in found.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_order_comes_to_what_the_table_says(played: dict[str, list[Json]], case: Case) -> None:
    for turn, result in zip(case.turns, played[case.name]):
        judge(turn, result)
