# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sites and pools of IIS: what may be written for them. tests/windows shows what is done with it."""

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.iis import Step
from ansible_collections.graceful.azure.plugins.module_utils._kind import WINDOWS
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Json, mistake


@pytest.mark.parametrize(
    "given",
    [
        {"sites": ["Default Web Site"]},
        {"app_pools": ["shop", ".NET v4.5"], "ports": []},
        {"sites": ["shop"], "ports": [80, 443], "ignore_from": ["168.63.129.16", "10.0.0.0/8"]},
    ],
)
def test_a_step_that_can_be_carried_out_is_accepted(given: Json) -> None:
    assert not mistake(Step, given, WINDOWS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "sites or app_pools has to name something"),
        ({"sites": ["*"]}, "sites has '*', which cannot be a name in IIS"),
        ({"app_pools": ["a[b"]}, "cannot be a name in IIS"),
        ({"sites": [" shop"]}, "cannot be a name in IIS"),
        ({"sites": [""]}, "cannot be a name in IIS"),
        ({"sites": ["shop"], "ports": [0]}, "ports has to be a list of port numbers"),
        ({"sites": ["shop"], "ignore_from": ["here"]}, "ignore_from has to be a list of addresses"),
    ],
)
def test_what_would_not_work_is_said(given: Json, said: str) -> None:
    assert said in mistake(Step, given, WINDOWS)
