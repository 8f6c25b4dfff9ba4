# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What changed between two looks at the events, and the message about it. Pure: no I/O.

A message is a CloudEvent (version 1.0, JSON). Whoever polls for events sends the same messages.
"""

from __future__ import annotations

import hashlib
import typing as t

from .._document import STARTED, Event, by_id, parse_time, same_id
from .._text import clean_all, iso
from .._times import Times

Json = t.Dict[str, t.Any]
APPEARED, CHANGED, STARTED_NOW, GONE, BACK = CHANGES = ("appeared", "changed", "started", "gone", "back")
TYPE = "graceful.azure.scheduled_event"
# They depend on the host and the time, or follow from another field.
PASSING = ("seconds_left", "affects_me", "leader")
# Azure empties NotBefore when an event starts: that is the start, and no change of its own.
PART_OF_START = ("event_status", "not_before")


class Change(t.NamedTuple):
    change: str
    event: Json
    # Of a change: the names of the fields that differ.
    fields: t.Sequence[str] = ()
    # Of what is gone: completed or cancelled.
    outcome: str | None = None


class Source(t.NamedTuple):
    """Who sends the message."""

    host: str
    vm_name: str | None = None
    boot_id: str = ""
    kind: str = "watcher"


def compare(
    known: t.Mapping[str, Json], events: t.Sequence[Event], monotonic: float, now: float, boot_id: str = ""
) -> tuple[list[Change], dict[str, Json]]:
    """The changes since `known`, and what is known now. A missing event is gone after several reads."""
    present = by_id(events)
    times = Times(list(known), known, monotonic, now)
    times.note(list(present.values()), monotonic, now)
    changes: list[Change] = []
    after: dict[str, Json] = {}
    for event_id, entry in known.items():
        if event_id in present:
            changes += _differences(entry["event"], present[event_id])
            after[event_id] = _entry(present[event_id], times.started.get(event_id), boot_id)
        elif times.gone(event_id):
            changes.append(Change(GONE, entry["event"], outcome=_outcome(entry, boot_id)))
        else:
            missing = {"gone": times.missing_since.get(event_id), "gone_reads": times.reads(event_id)}
            after[event_id] = {**entry, **missing}
    for event_id, event in present.items():
        if event_id not in known:
            has_started = event["event_status"] == STARTED
            changes.append(Change(APPEARED, dict(event)))
            changes += [Change(STARTED_NOW, dict(event))] * has_started
            after[event_id] = _entry(event, now if has_started else None, boot_id)
    return changes, after


def _entry(event: Event, started: float | None, boot_id: str) -> Json:
    return {
        "event": {**event, "seconds_left": None},
        "started": started,
        "gone": None,
        "gone_reads": 0,
        "boot_id": boot_id,
    }


def _outcome(entry: Json, boot_id: str) -> str:
    """A host that reboots does not see the start of its own event, and a short one may pass between two looks."""
    event = entry["event"]
    not_before = parse_time(event["not_before"] or "")
    was_due = not_before is not None and entry["gone"] is not None and entry["gone"] >= not_before.timestamp()
    has_booted = event["affects_me"] is True and entry.get("boot_id", boot_id) != boot_id
    return "completed" if entry["started"] or was_due or has_booted else "cancelled"


def _differences(old: Json, new: Event) -> list[Change]:
    event = t.cast(Json, dict(new))
    has_started = event["event_status"] == STARTED and old["event_status"] != STARTED
    left_out = PASSING + PART_OF_START if has_started else PASSING
    fields = [name for name in event if name not in left_out and event[name] != old.get(name)]
    changes = [Change(CHANGED, event, fields)] if fields else []
    return changes + [Change(STARTED_NOW, event)] * has_started


def summary(record: Json | None) -> Json:
    """What the host's record says, in short."""
    entries = list(record["events"].values()) if record else []
    return {
        "claimed_by": sorted({entry["claim"]["run_name"] for entry in entries}),
        "drained": is_drained(record),
        "ready": bool(entries) and all(entry["ready"] for entry in entries),
    }


def is_drained(record: Json | None) -> bool:
    steps = record["steps"] if record else []
    return any(step["phase"] == "drain" and step["status"] != "undone" for step in steps)


def message(change: Change, source: Source, sequence: int | str, now: float, record: Json | None = None) -> Json:
    """The CloudEvent. Its id is the same if the same message has to be made again after a crash."""
    event_id = same_id(change.event["event_id"])
    identity = "\n".join([source.host, str(sequence), change.change, event_id])
    data = {
        "change": change.change,
        "host": source.host,
        "vm_name": source.vm_name,
        "boot_id": source.boot_id,
        "event": change.event,
        "changed_fields": list(change.fields),
        "outcome": change.outcome,
        "record": summary(record),
    }
    return {
        "specversion": "1.0",
        "id": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:32],
        "source": f"/graceful.azure/{source.kind}/{_uri_part(source.host)}".rstrip("/"),
        "type": f"{TYPE}.{change.change}",
        "subject": str(clean_all(change.event["event_id"], 200)),
        "time": iso(now),
        "datacontenttype": "application/json",
        # Receivers put it into variables: it must not have anything in it that a template acts on.
        "data": clean_all(data),
    }


def _uri_part(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "-._~") else "_" for char in name)
