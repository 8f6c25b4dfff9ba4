# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures for Prometheus, as a text file for node_exporter. The first six have the names of webdevops' manager."""

from __future__ import annotations

import typing as t

from .._document import parse_time
from .changes import is_drained

Json = t.Dict[str, t.Any]
FILE = "azure_scheduledevents.prom"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Sample(t.NamedTuple):
    value: float
    labels: t.Mapping[str, t.Any] = {}
    suffix: str = ""


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

    def samples(self) -> t.Iterator[Sample]:
        for bound, number in zip(BUCKETS, self._buckets):
            yield Sample(number, {"le": f"{bound:g}"}, "_bucket")
        yield Sample(self.count, {"le": "+Inf"}, "_bucket")
        yield Sample(self.seconds, suffix="_sum")
        yield Sample(self.count, suffix="_count")


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
    number = seen.incarnation if isinstance(seen.incarnation, int) else None
    waiting = [Sample(count, {"receiver": name}) for name, (count, _dropped) in seen.waiting.items()]
    dropped = [Sample(count, {"receiver": name}) for name, (_waiting, count) in seen.waiting.items()]
    families: t.Sequence[tuple[str, str, str, t.Iterable[Sample]]] = (
        ("document_incarnation", "gauge", "Azure ScheduledEvent document incarnation", _known(number)),
        ("event", "gauge", "Announced event, with the time of NotBefore; 1 if it has none", _events(seen.events)),
        ("event_drain", "gauge", "Time at which the drain of this host began and was finished", _drains(seen.record)),
        ("event_approval", "gauge", "Time at which this host approved the event", _approvals(seen.record)),
        ("request", "histogram", "Requests to the metadata service and their seconds", requests.samples()),
        ("request_error", "counter", "Requests to the metadata service that failed", _known(requests.errors)),
        ("last_success_timestamp_seconds", "gauge", "When the document was last read", _known(requests.last_success)),
        ("not_before_seconds", "gauge", "Seconds until NotBefore of an announced event", _seconds_left(seen.events)),
        ("host_drained", "gauge", "Whether this host is out of service, 1 or 0", _known(int(is_drained(seen.record)))),
        (
            "watcher_on_its_own",
            "gauge",
            "Whether this host drains itself if no run does, 1 or 0",
            _known(int(seen.on_its_own)),
        ),
        ("watcher_waiting_messages", "gauge", "Messages that the receiver has not taken yet", waiting),
        ("watcher_dropped_messages_total", "counter", "Messages that the receiver never got", dropped),
    )
    lines: list[str] = []
    for short, kind, help_text, samples in families:
        name = f"azure_scheduledevent_{short}"
        # One line for each set of labels: node_exporter rejects the whole file otherwise.
        found = {f"{name}{sample.suffix}{_shown(sample.labels)}": _number(sample.value) for sample in samples}
        if found:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            lines += [f"{label} {value}" for label, value in found.items()]
    return "\n".join(lines) + "\n"


def _known(value: float | None) -> list[Sample]:
    return [] if value is None else [Sample(value)]


def _events(events: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[Sample]:
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
            yield Sample(value, labels)


def _drains(record: Json | None) -> t.Iterator[Sample]:
    if record is None:
        return
    began = next((mark["at"] for mark in record["timeline"] if mark["what"] == "draining"), None)
    for entry in record["events"].values():
        for kind, moment in (("start", began), ("finish", entry["ready"] or None)):
            if moment is not None:
                yield Sample(moment, {"eventID": entry["event"]["event_id"], "type": kind})


def _approvals(record: Json | None) -> t.Iterator[Sample]:
    for entry in (record or {"events": {}})["events"].values():
        if entry["approval"] and entry["approval"]["status"] == "approved":
            yield Sample(entry["approval"]["at"], {"eventID": entry["event"]["event_id"]})


def _seconds_left(events: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[Sample]:
    for event in events:
        if event["seconds_left"] is not None:
            affects_me = {True: "true", False: "false"}.get(event["affects_me"], "unknown")
            labels = {"eventID": event["event_id"], "eventType": event["event_type"], "affectsMe": affects_me}
            yield Sample(event["seconds_left"], labels)


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(int(value))


def _shown(labels: t.Mapping[str, t.Any]) -> str:
    inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: t.Any) -> str:
    return str(value)[:300].replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
