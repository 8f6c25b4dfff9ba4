# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory as the plan needs it: the Azure name, the state and the settings of each host. Pure."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..module_utils._document import same_name
from ..module_utils._policy import Policy, validate_policy
from ..module_utils._text import quoted
from ._capacity import MinAvailable, groups_of, requirements, validate_min_available
from ._merge import Observations
from ._window import Window, validate_window

DRAIN_BUDGET = 300


@dataclass(frozen=True)
class Settings:
    policy: Policy
    min_available: MinAvailable | None
    window: Window | None
    drain_budget: int


@dataclass(frozen=True)
class Host:
    """One inventory host. `asked` means that it has read its document."""

    name: str
    vm_name: str | None
    reachable: bool
    asked: bool
    targeted: bool
    drained: bool
    error: str | None
    mistakes: tuple[str, ...] = ()
    # graceful_drain_steps is not set: neither steps, nor an empty list.
    drain_not_set: bool = False
    # Seconds since it was first claimed for an event, by the event's id.
    claimed_for: t.Mapping[str, float] = field(default_factory=dict)


class Fleet:
    """Everything about the hosts that does not depend on an event."""

    def __init__(
        self,
        observations: Observations,
        groups: t.Mapping[str, t.Collection[str]],
        targeted: t.Collection[str],
        settings: t.Mapping[str, t.Any],
    ) -> None:
        self.hosts = {
            name: _host(name, observations.get(name) or {}, name in targeted)
            for name in sorted(set(observations).union(targeted))
        }
        self.members = {"all": frozenset(self.hosts)}
        self.members.update((group, frozenset(hosts)) for group, hosts in groups.items())
        self.groups_of = groups_of(self.members)
        self._settings = {host: _settings(json.dumps(given, sort_keys=True)) for host, given in settings.items()}
        self._default = _settings("{}")
        self._by_vm_name: dict[str, list[Host]] = {}
        for host in self.hosts.values():
            if host.vm_name:
                self._by_vm_name.setdefault(same_name(host.vm_name), []).append(host)
        # Hosts without a known Azure name, also those that are only in the groups: any of them may have a name.
        every_host = frozenset(self.hosts).union(*self.members.values())
        self.nameless = every_host.difference(host.name for host in self.hosts.values() if host.vm_name)

    def named(self, vm_name: str) -> t.Sequence[Host]:
        """The hosts that have this Azure name; more than one where two resource groups use the same names."""
        return self._by_vm_name.get(same_name(vm_name), ())

    def settings(self, host: str) -> Settings:
        return self._settings.get(host, self._default)

    def required(self) -> tuple[dict[str, int], list[str]]:
        """How many hosts each group must keep available, and messages about groups in settings that do not exist."""
        demands = (
            (self.groups_of.get(host, ()), settings.min_available)
            for host, settings in sorted(self._settings.items())
            if settings.min_available is not None
        )
        required, missing = requirements(demands, {group: len(hosts) for group, hosts in self.members.items()})
        messages = [_unknown_group("min_available", group, "it protects nothing") for group in missing]
        in_rules = {group for one in self._settings.values() for rule in one.policy for group in rule.groups}
        unknown = sorted(in_rules.difference(self.members))
        messages += [_unknown_group("policy", group, "no host matches it") for group in unknown]
        return required, messages

    def away(self) -> set[str]:
        """Hosts that are out of service now: drained, or part of the run and not reached."""
        return {host.name for host in self.hosts.values() if host.drained or (host.targeted and not host.reachable)}


def _unknown_group(setting: str, group: str, consequence: str) -> str:
    return f"graceful_{setting} names the group {quoted(group)}, which the inventory does not have: {consequence}."


@functools.lru_cache
def _settings(text: str) -> Settings:
    """The settings of a host, validated. They are given as JSON: most hosts have the same, which are validated once."""
    given = json.loads(text)
    budget = given.get("drain_budget")
    return Settings(
        validate_policy(given.get("policy")),
        validate_min_available(given.get("min_available")),
        validate_window(given.get("window")),
        DRAIN_BUDGET if budget is None else int(budget),
    )


def _host(name: str, observation: t.Mapping[str, t.Any], targeted: bool) -> Host:
    vm_name, error = observation.get("vm_name"), observation.get("error")
    reachable = observation.get("reachable") is True
    return Host(
        name=name,
        vm_name=vm_name if vm_name and vm_name.strip() else None,
        reachable=reachable,
        asked=reachable and not error and isinstance(observation.get("events"), (list, tuple)),
        targeted=targeted,
        drained=observation.get("drained") is True,
        error=error or None,
        mistakes=tuple(observation.get("mistakes") or ()),
        drain_not_set=observation.get("drain_not_set") is True,
        claimed_for=observation.get("claimed_for") or {},
    )
