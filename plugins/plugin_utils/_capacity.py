# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts of a group must stay available, and which may leave service without breaking that. Pure."""

from __future__ import annotations

import collections
import re
import typing as t

from ..module_utils import _checks as check
from ..module_utils._text import count, quoted

# A value without a group is about the groups of the host, but not about these, which every host is in.
CATCH_ALL_GROUPS = ("all", "ungrouped")

_PERCENTAGE = re.compile(r"([0-9]{1,3})\s*%", re.ASCII)


class Amount(t.NamedTuple):
    value: int
    percent: bool = False

    def of(self, size: int) -> int:
        # Rounded up: half of three hosts is two.
        return -(-size * self.value // 100) if self.percent else self.value


class MinAvailable(t.NamedTuple):
    """One amount for each group of the host, or amounts for groups by name."""

    each_group: Amount | None
    by_group: t.Mapping[str, Amount]

    def by_group_of(self, groups: t.Sequence[str]) -> t.Mapping[str, Amount]:
        """By group, for a host in these groups."""
        if self.each_group is None:
            return self.by_group
        named = [group for group in groups if group not in CATCH_ALL_GROUPS]
        return dict.fromkeys(named or ["all"], self.each_group)


def validate_min_available(value: t.Any) -> MinAvailable | None:
    """The validated demand; None if there is none. Raises WrongSetting."""
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
        for group, amount in demand.by_group_of(groups).items():
            if group in sizes:
                required[group] = max(required.get(group, 0), amount.of(sizes[group]))
            elif demand.each_group is None:
                missing.add(group)
    return required, sorted(missing)


def demanded_groups(value: t.Any, groups: t.Sequence[str]) -> list[str]:
    """The groups that a demand of a host in these groups is about. One that cannot be read may be about all of them."""
    try:
        demand = validate_min_available(value)
    except check.WrongSetting:
        return list(groups)
    return [] if demand is None else list(demand.by_group_of(groups))


def groups_of(members: t.Mapping[str, t.Collection[str]]) -> dict[str, list[str]]:
    """The groups of each host."""
    found: dict[str, list[str]] = {}
    for group in sorted(members):
        for host in members[group]:
            found.setdefault(host, []).append(group)
    return found


class Ledger:
    """How many hosts are available in the groups that have a minimum."""

    def __init__(
        self, members: t.Mapping[str, t.Collection[str]], required: t.Mapping[str, int], away: t.Collection[str]
    ) -> None:
        self._required = {group: number for group, number in required.items() if number}
        self._sizes = {group: len(members[group]) for group in self._required}
        self._available = {group: self._sizes[group] for group in self._required}
        self._groups_of = groups_of({group: members[group] for group in self._required})
        self.take(away)

    def shortages(self, leaving: t.Collection[str]) -> list[str]:
        """Messages about the groups that would have too few hosts if these hosts left, too."""
        going = collections.Counter(group for host in leaving for group in self._groups_of.get(host, ()))
        left = {group: self._available[group] - number for group, number in sorted(going.items())}
        return [self._shortage(group, left[group]) for group in left if left[group] < self._required[group]]

    def _shortage(self, group: str, left: int) -> str:
        required, size = self._required[group], self._sizes[group]
        if required > size:
            return f"group {quoted(group)} has only {count(size, 'host')}, so {required} can never be available"
        are = "is" if required == 1 else "are"
        return f"group {quoted(group)} would have {left} of {size} hosts available, {required} {are} required"

    def take(self, leaving: t.Collection[str]) -> None:
        for host in leaving:
            for group in self._groups_of.pop(host, ()):
                self._available[group] -= 1
