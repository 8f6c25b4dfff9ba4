# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._capacity import (
    Ledger,
    requirements,
    validate_min_available,
)

SIZES = {"all": 10, "web": 4, "db": 3, "ungrouped": 1}


@pytest.mark.parametrize(
    ("value", "groups", "required"),
    [
        (2, ["all", "web"], {"web": 2}),
        ("2", ["all", "web"], {"web": 2}),
        (0, ["all", "web"], {"web": 0}),
        (2, ["all", "web", "db"], {"web": 2, "db": 2}),
        (2, ["all", "ungrouped"], {"all": 2}),
        ("50%", ["all", "web", "db"], {"web": 2, "db": 2}),
        ("51 %", ["all", "db"], {"db": 2}),
        ("100%", ["all", "db"], {"db": 3}),
        ("0%", ["all", "db"], {"db": 0}),
        ({"web": 3, "db": "34%"}, ["all"], {"web": 3, "db": 2}),
        ({"all": 7}, ["all", "web"], {"all": 7}),
        ({}, ["all", "web"], {}),
    ],
)
def test_what_a_group_must_keep(value: t.Any, groups: list[str], required: dict[str, int]) -> None:
    demand = validate_min_available(value)
    assert demand is not None
    assert requirements([(groups, demand)], SIZES) == (required, [])


def test_the_largest_demand_counts() -> None:
    demands = [(["web"], demand) for value in (1, 3, 2) if (demand := validate_min_available(value))]
    assert requirements(demands, SIZES) == ({"web": 3}, [])


def test_a_group_that_does_not_exist_is_returned() -> None:
    demand = validate_min_available({"wbe": 1, "web": 1})
    assert demand is not None
    assert requirements([(["web"], demand)], SIZES) == ({"web": 1}, ["wbe"])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (-1, "min_available must be a whole number of hosts or a percentage such as '50%', not -1"),
        (1.5, "min_available must be a whole number"),
        (True, "min_available must be a whole number"),
        ("half", "min_available must be a whole number"),
        ("101%", "min_available must be at most 100%"),
        ("-5%", "min_available must be a whole number"),
        ([2], "min_available must be a whole number"),
        ({"web": None}, "min_available of 'web' must be a whole number"),
        ({"web": {"db": 1}}, "min_available of 'web' must be a whole number"),
        ({3: 1}, "min_available has the key '3', which is not known"),
    ],
)
def test_a_wrong_minimum_is_refused(value: t.Any, says: str) -> None:
    with pytest.raises(WrongSetting) as refused:
        validate_min_available(value)
    assert says in str(refused.value)


def test_a_host_leaves_a_group_only_once() -> None:
    ledger = Ledger({"web": ["a", "b", "c"]}, {"web": 2}, away=[])
    assert not ledger.shortages(["a"])
    ledger.take(["a"])
    ledger.take(["a"])
    assert not ledger.shortages(["a"])
    (shortage,) = ledger.shortages(["a", "b"])
    assert shortage == "group 'web' would have 1 of 3 hosts available, 2 are required"


def test_hosts_that_are_away_are_not_available() -> None:
    assert Ledger({"web": ["a", "b", "c"]}, {"web": 2}, away=["c"]).shortages(["a"])


def test_a_minimum_above_the_size_of_the_group_says_so() -> None:
    (shortage,) = Ledger({"web": ["a"]}, {"web": 2}, away=[]).shortages(["a"])
    assert shortage == "group 'web' has only 1 host, so 2 can never be available"
