# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The figures for Prometheus, as a text file for node_exporter. The first six have the names of webdevops' manager."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import parse_time
from ansible_collections.graceful.azure.plugins.module_utils._watcher.changes import is_drained

Json = t.Dict[str, t.Any]
Labels = t.Mapping[str, t.Any]
FILE = "azure_scheduledevents.prom"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Requests:
    """How long reads of the document took, and how many failed."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.errors = 0
        self.last_success = 0.0
        self._buckets = [0] * len(BUCKETS)

    def answered(self, seconds: float, now: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.last_success = now
        for number, bound in enumerate(BUCKETS):
            self._buckets[number] += seconds <= bound

    def failed(self) -> None:
        self.errors += 1

    def samples(self) -> t.Iterator[str]:
        name = "azure_scheduledevent_request"
        for bound, number in zip(BUCKETS, self._buckets):
            yield _sample(f"{name}_bucket", number, {"le": f"{bound:g}"})
        yield _sample(f"{name}_bucket", self.count, {"le": "+Inf"})
        yield _sample(f"{name}_sum", self.seconds)
        yield _sample(f"{name}_count", self.count)


class Seen(t.NamedTuple):
    """What the figures are made of."""

    incarnation: int | str | None
    events: t.Sequence[t.Mapping[str, t.Any]]
    record: Json | None
    # By the name of the receiver: messages that wait, and that were dropped.
    waiting: t.Mapping[str, tuple[int, int]]
    on_its_own: bool


def text(requests: Requests, seen: Seen) -> str:
    """The file, without timestamps: node_exporter takes none."""
    lines: list[str] = []

    def family(name: str, kind: str, help_text: str, samples: t.Iterable[str]) -> None:
        # One line for each set of labels: node_exporter rejects the whole file otherwise.
        found = list({sample.rpartition(" ")[0]: sample for sample in samples}.values())
        if found:
            lines.extend((f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *found))

    prefix = "azure_scheduledevent"
    number = seen.incarnation if isinstance(seen.incarnation, int) else None
    incarnation = [] if number is None else [_sample(f"{prefix}_document_incarnation", number)]
    family(f"{prefix}_document_incarnation", "gauge", "Azure ScheduledEvent document incarnation", incarnation)
    events = list(_events(f"{prefix}_event", seen.events))
    family(f"{prefix}_event", "gauge", "Announced event, with the time of NotBefore; 1 if it has none", events)
    drains = list(_drains(f"{prefix}_event_drain", seen.record))
    family(f"{prefix}_event_drain", "gauge", "Time at which the drain of this host began and was finished", drains)
    approvals = list(_approvals(f"{prefix}_event_approval", seen.record))
    family(f"{prefix}_event_approval", "gauge", "Time at which this host approved the event", approvals)
    family(f"{prefix}_request", "histogram", "Requests to the metadata service and their seconds", requests.samples())
    errors = [_sample(f"{prefix}_request_error", requests.errors)]
    family(f"{prefix}_request_error", "counter", "Requests to the metadata service that failed", errors)
    last = [_sample(f"{prefix}_last_success_timestamp_seconds", requests.last_success)]
    family(f"{prefix}_last_success_timestamp_seconds", "gauge", "When the document was last read", last)
    left = list(_seconds_left(f"{prefix}_not_before_seconds", seen.events))
    family(f"{prefix}_not_before_seconds", "gauge", "Seconds until NotBefore of an announced event", left)
    drained = [_sample(f"{prefix}_host_drained", int(is_drained(seen.record)))]
    family(f"{prefix}_host_drained", "gauge", "Whether this host is out of service, 1 or 0", drained)
    own = [_sample(f"{prefix}_watcher_on_its_own", int(seen.on_its_own))]
    family(f"{prefix}_watcher_on_its_own", "gauge", "Whether this host drains itself if no run does, 1 or 0", own)
    waiting = [
        _sample(f"{prefix}_watcher_waiting_messages", n, {"receiver": name}) for name, (n, _d) in seen.waiting.items()
    ]
    family(f"{prefix}_watcher_waiting_messages", "gauge", "Messages that the receiver has not taken yet", waiting)
    dropped = [
        _sample(f"{prefix}_watcher_dropped_messages_total", n, {"receiver": name})
        for name, (_w, n) in seen.waiting.items()
    ]
    family(f"{prefix}_watcher_dropped_messages_total", "counter", "Messages that the receiver never got", dropped)
    return "\n".join(lines) + "\n"


def _events(name: str, events: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    for event in events:
        moment = parse_time(event["not_before"] or "")
        # As with webdevops' manager, which has 1 for what has started.
        value = 1.0 if moment is None else moment.timestamp()
        for resource in dict.fromkeys(event["resources"] or [""]):
            labels = {
                "eventID": event["event_id"],
                "eventType": event["event_type"],
                "resourceType": event["resource_type"] or "",
                "resource": resource,
                "eventStatus": event["event_status"],
                "notBefore": event["not_before"] or "",
                "eventSource": event["event_source"] or "",
            }
            yield _sample(name, value, labels)


def _drains(name: str, record: Json | None) -> t.Iterator[str]:
    if record is None:
        return
    began = next((mark["at"] for mark in record["timeline"] if mark["what"] == "draining"), None)
    for entry in record["events"].values():
        event_id = entry["event"]["event_id"]
        if began is not None:
            yield _sample(name, began, {"eventID": event_id, "type": "start"})
        if entry["ready"]:
            yield _sample(name, entry["ready"], {"eventID": event_id, "type": "finish"})


def _approvals(name: str, record: Json | None) -> t.Iterator[str]:
    for entry in (record or {"events": {}})["events"].values():
        if entry["approval"] and entry["approval"]["status"] == "approved":
            yield _sample(name, entry["approval"]["at"], {"eventID": entry["event"]["event_id"]})


def _seconds_left(name: str, events: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    for event in events:
        if event["seconds_left"] is not None:
            mine = {True: "true", False: "false"}.get(event["affects_me"], "unknown")
            labels = {"eventID": event["event_id"], "eventType": event["event_type"], "affectsMe": mine}
            yield _sample(name, event["seconds_left"], labels)


def _sample(name: str, value: float, labels: Labels | None = None) -> str:
    inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in (labels or {}).items())
    number = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(int(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(value: t.Any) -> str:
    return str(value)[:300].replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
