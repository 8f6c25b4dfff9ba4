# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""How many hosts of a group must stay available, and who may leave without breaking that. Pure."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _checks as check
from ansible_collections.graceful.azure.plugins.module_utils._text import quoted

# Every host is in one of these, so a value without a group does not mean them.
CATCH_ALL_GROUPS = ("all", "ungrouped")

_PERCENTAGE = re.compile(r"([0-9]{1,3})\s*%", re.ASCII)


class Amount(t.NamedTuple):
    value: int
    percent: bool = False

    def of(self, size: int) -> int:
        # Rounded up: half of three hosts is two.
        return -(-size * self.value // 100) if self.percent else self.value


class MinAvailable(t.NamedTuple):
    """An amount for each of the host's own groups, or amounts for groups by name."""

    own_groups: Amount | None
    by_group: t.Mapping[str, Amount]


class Shortage(t.NamedTuple):
    group: str
    required: int
    available: int
    leaving: int
    size: int

    @property
    def message(self) -> str:
        group = quoted(self.group)
        if self.required > self.size:
            return f"group {group} has only {self.size}, so {self.required} available hosts can never be kept"
        return (
            f"group {group} would have {self.available - self.leaving} of {self.size} hosts available,"
            f" {self.required} {'is' if self.required == 1 else 'are'} required"
        )


def validate_min_available(value: t.Any) -> MinAvailable | None:
    """The demand, ready for use; None where there is none. Raises WrongSetting."""
    if value is None:
        return None
    if isinstance(value, t.Mapping):
        given = check.mapping(value, "min_available")
        amounts = {group: _amount(given[group], f"min_available of {quoted(group)}") for group in given}
        return MinAvailable(None, amounts)
    return MinAvailable(_amount(value, "min_available"), {})


def _amount(value: t.Any, where: str) -> Amount:
    percentage = _PERCENTAGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if percentage is None:
        return Amount(check.number(value, where, "a whole number of hosts or a percentage such as '50%'"))
    if int(percentage[1]) > 100:
        raise check.refuse(where, "at most 100%", value)
    return Amount(int(percentage[1]), percent=True)


def requirements(
    demands: t.Iterable[tuple[t.Sequence[str], MinAvailable]], sizes: t.Mapping[str, int]
) -> tuple[dict[str, int], list[str]]:
    """How many hosts each group must keep (the largest demand counts), and the groups the inventory does not have.

    A demand comes with the groups of the host that makes it.
    """
    required: dict[str, int] = {}
    missing: set[str] = set()
    for groups, demand in demands:
        wanted = dict(demand.by_group)
        if demand.own_groups is not None:
            wanted = dict.fromkeys(_own(groups), demand.own_groups)
        for group, amount in wanted.items():
            if group in sizes:
                required[group] = max(required.get(group, 0), amount.of(sizes[group]))
            elif demand.own_groups is None:
                missing.add(group)
    return required, sorted(missing)


def demanded_groups(value: t.Any, groups: t.Sequence[str]) -> list[str]:
    """The groups that a demand of a host in these groups is about. What cannot be read may be about all of them."""
    try:
        demand = validate_min_available(value)
    except check.WrongSetting:
        return list(groups)
    if demand is None:
        return []
    return list(demand.by_group) if demand.own_groups is None else _own(groups)


def _own(groups: t.Sequence[str]) -> list[str]:
    return [group for group in groups if group not in CATCH_ALL_GROUPS] or ["all"]


class Ledger:
    """Who is available in the groups that have a minimum."""

    def __init__(
        self, members: t.Mapping[str, t.Collection[str]], required: t.Mapping[str, int], away: t.Collection[str]
    ) -> None:
        self._required = {group: count for group, count in required.items() if count}
        self._sizes = {group: len(members[group]) for group in self._required}
        self._available = {group: self._sizes[group] for group in self._required}
        self._groups_of: dict[str, list[str]] = {}
        for group in sorted(self._required):
            for host in members[group]:
                self._groups_of.setdefault(host, []).append(group)
        self.take(away)

    def shortages(self, leaving: t.Collection[str]) -> list[Shortage]:
        """The groups that would fall below their minimum if these hosts left, too."""
        going = collections.Counter(group for host in leaving for group in self._groups_of.get(host, ()))
        return [
            Shortage(group, self._required[group], self._available[group], count, self._sizes[group])
            for group, count in sorted(going.items())
            if self._available[group] - count < self._required[group]
        ]

    def take(self, leaving: t.Collection[str]) -> None:
        for host in leaving:
            for group in self._groups_of.pop(host, ()):
                self._available[group] -= 1
