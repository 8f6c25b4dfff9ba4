# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What many hosts saw, as one entry per event. Pure, and the only part that looks at every observation."""

from __future__ import annotations

import operator
import typing as t
from dataclasses import dataclass
from datetime import datetime

from ansible_collections.graceful.azure.plugins.module_utils._document import (
    SCHEDULED,
    STARTED,
    UNKNOWN,
    parse_time,
    plain_name,
    same_id,
    same_name,
)
from ansible_collections.graceful.azure.plugins.module_utils._text import iso, quoted_list

# What decides; the rest of an event may differ between hosts without a consequence.
_version = operator.itemgetter(
    "event_status", "event_type", "not_before", "duration_seconds", "event_source", "resources"
)

Observations = t.Mapping[str, t.Mapping[str, t.Any] | None]


@dataclass
class Sighting:
    """One event, as all the hosts see it together: whole, with the field names that the modules return."""

    event: dict[str, t.Any]
    not_before: datetime | None
    seen_by: set[str]
    disagreements: list[str]


class _Collected:
    """The versions of one event; nearly always there is one, seen by everybody."""

    def __init__(self) -> None:
        self.versions: list[t.Mapping[str, t.Any]] = []
        self.usual: tuple[t.Any, ...] = ()
        self.seen_by: set[str] = set()
        self.seconds_left: int | None = None

    def add(self, host: str, event: dict[str, t.Any]) -> None:
        self.seen_by.add(host)
        version = _version(event)
        if version != self.usual or not self.versions:
            self.usual = self.usual or version
            # A missing type or status counts as unknown.
            known = {key: event[key] or UNKNOWN for key in ("event_type", "event_status")}
            self.versions.append({**event, **known, "resources": [plain_name(name) for name in event["resources"]]})
        left = event["seconds_left"]
        if left is not None and (self.seconds_left is None or left < self.seconds_left):
            self.seconds_left = left

    def merged(self) -> Sighting:
        first = self.versions[0]
        status = _status([version["event_status"] for version in self.versions])
        deadlines = [parse_time(version["not_before"] or "") for version in self.versions]
        started = status == STARTED
        not_before = None if started else min(filter(None, deadlines), default=None)
        resources = _resources(self.versions)
        whole: dict[str, t.Any] = {key: value for key, value in first.items() if key != "affects_me"}
        whole.update(
            event_status=status,
            event_source=_first_known(self.versions, "event_source"),
            description=_first_known(self.versions, "description"),
            duration_seconds=_duration(self.versions),
            resources=resources,
            leader=resources[0] if resources else None,
            not_before=None if not_before is None else iso(not_before),
            seconds_left=None if started else self.seconds_left,
        )
        return Sighting(whole, not_before, self.seen_by, _disagreements(self.versions))


def merge(observations: Observations) -> list[Sighting]:
    """One entry per EventId, the same for any order of the hosts."""
    collected: dict[str, _Collected] = {}
    spellings: dict[str, _Collected] = {}
    for host in sorted(observations):
        for event in (observations[host] or {}).get("events") or ():
            event_id = event["event_id"]
            entry = spellings.get(event_id)
            if entry is None:
                entry = spellings[event_id] = collected.setdefault(same_id(event_id), _Collected())
            entry.add(host, event)
    return [entry.merged() for entry in collected.values()]


def _status(statuses: t.Sequence[str]) -> str:
    """Started if anybody saw it started; after that, what is not known goes before Scheduled."""
    if STARTED in statuses:
        return STARTED
    return min((status for status in statuses if status != SCHEDULED), default=SCHEDULED)


def _first_known(versions: t.Iterable[t.Mapping[str, t.Any]], key: str) -> str | None:
    return next((version[key] for version in versions if version.get(key)), None)


def _duration(versions: t.Iterable[t.Mapping[str, t.Any]]) -> int | None:
    """The longest; unknown if it is so for anybody."""
    durations = [version["duration_seconds"] for version in versions]
    known = [seconds for seconds in durations if seconds is not None and seconds >= 0]
    return max(known) if known and len(known) == len(durations) else None


def _resources(versions: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Every name that anybody saw, once, in the document's order."""
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
    # Rules may approve what a user has asked for: one host's word is not enough for that.
    sources = sorted({version["event_source"] for version in versions if version["event_source"]})
    if len(sources) > 1:
        found.append(f"the hosts see different sources of it: {quoted_list(sources)}")
    if len({frozenset(map(same_name, version["resources"])) for version in versions}) > 1:
        found.append("the hosts see different Resources of it")
    return found
