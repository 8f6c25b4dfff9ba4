# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The inventory as the plan needs it: who has which Azure name, who can be touched, what each host's settings are."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.graceful.azure.plugins.module_utils import _checks as check
from ansible_collections.graceful.azure.plugins.module_utils._document import same_name
from ansible_collections.graceful.azure.plugins.module_utils._policy import Policy, validate_policy
from ansible_collections.graceful.azure.plugins.module_utils._text import clean
from ansible_collections.graceful.azure.plugins.plugin_utils._capacity import (
    MinAvailable,
    requirements,
    validate_min_available,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._merge import Observations
from ansible_collections.graceful.azure.plugins.plugin_utils._window import Window, validate_window

T = t.TypeVar("T")

SETTINGS = ("policy", "min_available", "window", "drain_budget")
DRAIN_BUDGET = 300


@dataclass(frozen=True)
class Settings:
    policy: Policy
    min_available: MinAvailable | None
    window: Window | None
    drain_budget: int


@dataclass(frozen=True)
class Host:
    """One inventory host. `asked` means that its own document was read."""

    name: str
    vm_name: str | None
    reachable: bool
    asked: bool
    targeted: bool
    drained: bool
    error: str | None
    mistakes: tuple[str, ...] = ()
    # Nobody wrote down how it is drained, nor that there is nothing to drain.
    drain_not_set: bool = False


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
            name: _host(name, observations.get(name), name in targeted)
            for name in sorted(set(observations).union(targeted))
        }
        self.members = {"all": frozenset(self.hosts)}
        self.members.update((group, frozenset(hosts)) for group, hosts in groups.items())
        self.groups_of = _groups_of(self.members)
        self._settings = _Reader(settings)
        self._claims: dict[str, list[Host]] = {}
        for host in self.hosts.values():
            if host.vm_name:
                self._claims.setdefault(same_name(host.vm_name), []).append(host)
        # A host that only the groups tell of may be anybody, too.
        everybody = frozenset(self.hosts).union(*self.members.values())
        self.nameless = everybody.difference(host.name for host in self.hosts.values() if host.vm_name)

    def named(self, vm_name: str) -> t.Sequence[Host]:
        """The hosts that have this Azure name; more than one where two resource groups use the same names."""
        return self._claims.get(same_name(vm_name), ())

    def settings(self, host: str) -> Settings:
        return self._settings.of(host)

    def required(self) -> tuple[dict[str, int], list[str]]:
        """How many hosts each group must keep available, and the groups that settings name but nobody has."""
        demands = (
            (self.groups_of.get(host, ()), demand)
            for host in self._settings.hosts
            if (demand := self._settings.of(host).min_available) is not None
        )
        return requirements(demands, {group: len(hosts) for group, hosts in self.members.items()})

    def away(self) -> set[str]:
        """Hosts that do no work now: already drained, or not answering though they were asked to."""
        return {host.name for host in self.hosts.values() if host.drained or (host.targeted and not host.reachable)}


class _Reader:
    """Reads the settings of every host at once, so that a mistake is found before anything is touched."""

    def __init__(self, settings: t.Mapping[str, t.Any]) -> None:
        # The objects are kept beside what they were read as: an id is only unique while its object lives.
        self._read: dict[tuple[str, int], tuple[t.Any, t.Any]] = {}
        self._default = self._settings({})
        self._of = {host: self._checked(host, given) for host, given in settings.items()}
        self.hosts = sorted(self._of)

    def of(self, host: str) -> Settings:
        return self._of.get(host, self._default)

    def _checked(self, host: str, given: t.Any) -> Settings:
        try:
            return self._once("settings", given, self._settings)
        except check.WrongSetting as exc:
            raise check.WrongSetting(f"Host {clean(host)}: {exc}") from exc

    def _settings(self, given: t.Any) -> Settings:
        given = check.mapping({} if given is None else given, "The settings", SETTINGS)
        return Settings(
            self._once("policy", given.get("policy"), validate_policy),
            self._once("min_available", given.get("min_available"), validate_min_available),
            self._once("window", given.get("window"), validate_window),
            DRAIN_BUDGET if given.get("drain_budget") is None else check.number(given["drain_budget"], "drain_budget"),
        )

    def _once(self, kind: str, given: t.Any, read: t.Callable[[t.Any], T]) -> T:
        key = (kind, id(given))
        if key not in self._read:
            self._read[key] = (given, read(given))
        return t.cast(T, self._read[key][1])


def _host(name: str, observation: t.Mapping[str, t.Any] | None, targeted: bool) -> Host:
    seen = observation or {}
    vm_name, error = seen.get("vm_name"), seen.get("error")
    reachable = seen.get("reachable") is True
    return Host(
        name=name,
        # Older ansible-core turns a none in a template into an empty text.
        vm_name=vm_name if isinstance(vm_name, str) and vm_name.strip() else None,
        reachable=reachable,
        asked=reachable and not error and isinstance(seen.get("events"), (list, tuple)),
        targeted=targeted,
        drained=seen.get("drained") is True,
        error=str(error) if error else None,
        mistakes=tuple(clean(mistake, 300) for mistake in seen.get("mistakes") or ()),
        drain_not_set=seen.get("drain_not_set") is True,
    )


def _groups_of(members: t.Mapping[str, t.Collection[str]]) -> dict[str, list[str]]:
    groups_of: dict[str, list[str]] = {}
    for group in sorted(members):
        for host in members[group]:
            groups_of.setdefault(host, []).append(group)
    return groups_of
