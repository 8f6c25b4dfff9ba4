# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of a Windows failover cluster: what may be written for it. tests/windows shows what is done with it."""

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.failover_cluster import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import WINDOWS
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Json, mistake, options_of, tools


@pytest.mark.parametrize(
    "given",
    [{}, {"node": "SQL1"}, {"node": "SQL1", "target_node": "SQL2"}, {"force_drain": True, "failback": "policy"}],
)
def test_a_step_that_can_be_carried_out_is_accepted(given: Json) -> None:
    assert not mistake(Step, given, WINDOWS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"node": " "}, "node has to be a string"),
        ({"target_node": ""}, "target_node has to be a string"),
        ({"node": "sql1", "target_node": "SQL1"}, "target_node is the node to drain"),
        ({"failback": "later"}, "value of failback must be one of: immediate, policy, none"),
        ({"force_drain": "perhaps"}, "force_drain"),
    ],
)
def test_what_would_not_work_is_said(given: Json, said: str) -> None:
    assert said in mistake(Step, given, WINDOWS)


def test_a_linux_host_that_is_asked_for_it_all_the_same_says_that_it_cannot() -> None:
    with pytest.raises(EventsError, match="its kind is for Windows hosts"):
        Step(options_of(Step), tools()).look()
