# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The events that many hosts observed, each of them once. Pure, and the only part that reads every observation."""

from __future__ import annotations

import operator
import typing as t
from dataclasses import dataclass
from datetime import datetime

from ..module_utils._document import SCHEDULED, STARTED, UNKNOWN, parse_time, plain_name, same_id, same_name
from ..module_utils._text import iso, quoted_list

# The fields that decisions depend on. The others may differ between hosts without a consequence.
_decisive = operator.itemgetter(
    "event_status", "event_type", "not_before", "duration_seconds", "event_source", "resources"
)

Observations = t.Mapping[str, t.Mapping[str, t.Any] | None]


@dataclass
class MergedEvent:
    """One event as all hosts together observed it, with all fields that the modules return."""

    fields: dict[str, t.Any]
    not_before: datetime | None
    observed_by: set[str]
    disagreements: list[str]


class _Versions:
    """The versions of one event that hosts observed; nearly always there is only one."""

    def __init__(self) -> None:
        self.versions: list[t.Mapping[str, t.Any]] = []
        self.first: tuple[t.Any, ...] | None = None
        self.observed_by: set[str] = set()
        self.seconds_left: int | None = None

    def add(self, host: str, event: dict[str, t.Any]) -> None:
        self.observed_by.add(host)
        decisive = _decisive(event)
        if decisive != self.first:
            self.first = self.first or decisive
            # A missing type or status counts as unknown.
            known = {key: event[key] or UNKNOWN for key in ("event_type", "event_status")}
            self.versions.append({**event, **known, "resources": [plain_name(name) for name in event["resources"]]})
        left = event["seconds_left"]
        if left is not None and (self.seconds_left is None or left < self.seconds_left):
            self.seconds_left = left

    def merged(self) -> MergedEvent:
        first = self.versions[0]
        status = _status([version["event_status"] for version in self.versions])
        deadlines = [parse_time(version["not_before"] or "") for version in self.versions]
        started = status == STARTED
        not_before = None if started else min(filter(None, deadlines), default=None)
        resources = _resources(self.versions)
        fields: dict[str, t.Any] = {key: value for key, value in first.items() if key != "affects_me"}
        fields.update(
            event_status=status,
            event_source=_first_known(self.versions, "event_source"),
            description=_first_known(self.versions, "description"),
            duration_seconds=_duration(self.versions),
            resources=resources,
            leader=resources[0] if resources else None,
            not_before=None if not_before is None else iso(not_before),
            seconds_left=None if started else self.seconds_left,
        )
        return MergedEvent(fields, not_before, self.observed_by, _disagreements(self.versions))


def merge(observations: Observations) -> list[MergedEvent]:
    """One entry per EventId, the same for any order of the hosts."""
    events: dict[str, _Versions] = {}
    for host in sorted(observations):
        for event in (observations[host] or {}).get("events") or ():
            events.setdefault(same_id(event["event_id"]), _Versions()).add(host, event)
    return [versions.merged() for versions in events.values()]


def _status(statuses: t.Sequence[str]) -> str:
    """Started if any host observed that; otherwise an unknown status, if there is one, before Scheduled."""
    if STARTED in statuses:
        return STARTED
    return min((status for status in statuses if status != SCHEDULED), default=SCHEDULED)


def _first_known(versions: t.Iterable[t.Mapping[str, t.Any]], key: str) -> str | None:
    return next((version[key] for version in versions if version.get(key)), None)


def _duration(versions: t.Iterable[t.Mapping[str, t.Any]]) -> int | None:
    """The longest; unknown if it is unknown to any host."""
    durations = [version["duration_seconds"] for version in versions]
    known = [seconds for seconds in durations if seconds is not None and seconds >= 0]
    return max(known) if known and len(known) == len(durations) else None


def _resources(versions: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Every name that any host observed, once, in the document's order."""
    names: dict[str, str] = {}
    for version in versions:
        for name in version["resources"]:
            names.setdefault(same_name(name), name)
    return list(names.values())


def _disagreements(versions: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    if len(versions) == 1:
        return []
    found = []
    types = sorted({version["event_type"] for version in versions})
    if len(types) > 1:
        found.append(f"the hosts see different types of it: {quoted_list(types)}")
    # Rules may approve what a user has asked for, so one host alone must not decide that a user has.
    sources = sorted({version["event_source"] for version in versions if version["event_source"]})
    if len(sources) > 1:
        found.append(f"the hosts see different sources of it: {quoted_list(sources)}")
    if len({frozenset(map(same_name, version["resources"])) for version in versions}) > 1:
        found.append("the hosts see different Resources of it")
    return found
