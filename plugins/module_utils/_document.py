# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# It needs the standard library only, so that it can also be loaded by its path.

"""The Scheduled Events document as pure data: parse, normalise, match, compare. No I/O, no Ansible."""

from __future__ import annotations

import email.utils
import hashlib
import json
import math
import re
import typing as t
from datetime import datetime, timedelta, timezone

KNOWN_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation")
KNOWN_SOURCES = ("Platform", "User")
SCHEDULED = "Scheduled"
STARTED = "Started"
UNKNOWN = "Unknown"

# Seven decimals and a missing time zone both occur; datetime.fromisoformat() does not accept these in old Pythons.
_ISO_8601 = r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?\s*(?:[Zz]|([+-])(\d\d):?(\d\d))?"
# "Mon, 19 Sep 2016 18:29:47 GMT". The weekday is ignored: documented examples have a wrong one.
_RFC_1123 = r"(?:[A-Za-z]+,\s*)?\d{1,2}[ -][A-Za-z]{3}[ -]\d{4} \d\d:\d\d:\d\d(?: \S+)?"


class BrokenDocument(ValueError):
    """What the service sent is not a Scheduled Events document."""


class Event(t.TypedDict):
    event_id: str
    event_type: str
    event_status: str
    resource_type: str | None
    resources: list[str]
    not_before: str | None
    seconds_left: int | None
    description: str | None
    event_source: str | None
    duration_seconds: int | None
    affects_me: bool | None
    leader: str | None


# The only list of an event's fields: modules, controller and reports use this one.
EVENT_FIELDS = {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in Event.__annotations__.items()}


class Document(t.NamedTuple):
    incarnation: int | str | None
    events: list[Event]
    oddities: list[str]


class Filters(t.NamedTuple):
    event_ids: t.Sequence[str] = ()
    event_types: t.Sequence[str] = ()
    event_statuses: t.Sequence[str] = ()
    event_sources: t.Sequence[str] = ()
    only_mine: bool = False


def load_json(body: bytes) -> t.Any:
    """Decode a JSON body; a byte order mark is accepted."""
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise BrokenDocument(f"it is not JSON ({exc})") from exc


def parse(body: bytes) -> Document:
    """Parse the service's answer. The fields that depend on the VM and the time stay empty: see `seen_by`."""
    if not body.strip():
        raise BrokenDocument("it is empty")
    content = load_json(body)
    if not isinstance(content, dict):
        raise BrokenDocument(f"it is a JSON {_kind(content)} instead of an object")
    if not isinstance(content.get("Events"), list):
        raise BrokenDocument("it has no list named Events")
    oddities: list[str] = []
    events = [_parse_event(number, entry, oddities) for number, entry in enumerate(content["Events"], 1)]
    seen: set[str] = set()
    for event in events:
        if same_id(event["event_id"]) in seen:
            oddities.append(f"Event {event['event_id']!r} is in the document more than once.")
        seen.add(same_id(event["event_id"]))
    return Document(_parse_incarnation(content.get("DocumentIncarnation"), oddities), events, oddities)


def _parse_incarnation(value: t.Any, oddities: list[str]) -> int | str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value:
        return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else _clean(value)
    oddities.append("The document has no DocumentIncarnation.")
    return None


def _parse_event(number: int, entry: t.Any, oddities: list[str]) -> Event:
    if not isinstance(entry, dict):
        raise BrokenDocument(f"entry {number} of Events is a JSON {_kind(entry)} instead of an object")
    event_id = _text(entry, "EventId")
    if not event_id:
        raise BrokenDocument(f"entry {number} of Events has no EventId")
    label = f"Event {event_id!r}"

    resources = entry.get("Resources")
    if resources is None:
        resources = []
    if not isinstance(resources, list) or not all(isinstance(name, str) for name in resources):
        raise BrokenDocument(f"the Resources of event {event_id!r} are not a list of names")
    names = [plain_name(_clean(name)) for name in resources]
    if not names:
        oddities.append(f"{label} names no resources.")

    event_type = _text(entry, "EventType") or UNKNOWN
    if event_type not in KNOWN_TYPES:
        oddities.append(f"{label} has the unknown type {event_type!r}.")
    status = _text(entry, "EventStatus") or UNKNOWN
    # Upper and lower case are the same: an event that has started has to be recognised.
    status = next((known for known in (SCHEDULED, STARTED) if known.lower() == status.strip().lower()), status)
    if status not in (SCHEDULED, STARTED):
        oddities.append(f"{label} has the unknown status {status!r}.")

    written = _text(entry, "NotBefore") or ""
    not_before = parse_time(written)
    if written.strip() and not_before is None:
        oddities.append(f"{label} has a NotBefore that is not a date: {written!r}.")
    elif not written.strip() and status == SCHEDULED:
        oddities.append(f"{label} is Scheduled without a NotBefore.")

    return Event(
        event_id=event_id,
        event_type=event_type,
        event_status=status,
        resource_type=_text(entry, "ResourceType"),
        resources=names,
        not_before=None if not_before is None else not_before.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds_left=None,
        description=_text(entry, "Description"),
        event_source=_text(entry, "EventSource"),
        duration_seconds=_duration(entry.get("DurationInSeconds"), label, oddities),
        affects_me=None,
        leader=names[0] if names else None,
    )


def _duration(value: t.Any, label: str, oddities: list[str]) -> int | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return int(value) if value >= 0 else None
    oddities.append(f"{label} has a DurationInSeconds that is not a number: {value!r:.80}.")
    return None


def _text(entry: t.Mapping[str, t.Any], field: str) -> str | None:
    value = entry.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BrokenDocument(f"{field} of an event is a JSON {_kind(value)} instead of a string")
    return _clean(value)


def _clean(text: str) -> str:
    # A lone surrogate is valid JSON but cannot be written as UTF-8 later on.
    return text.encode("utf-8", "replace").decode("utf-8")


def _kind(value: t.Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def parse_time(text: str) -> datetime | None:
    """Read RFC 1123 (any weekday) or ISO 8601; None for anything else."""
    text = text.strip()
    try:
        if re.fullmatch(_RFC_1123, text):
            moment = email.utils.parsedate_to_datetime(text)
        elif iso := re.fullmatch(_ISO_8601, text):
            sign, hours, minutes = iso.group(7, 8, 9)
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
            year, month, day, hour, minute, second = (int(part) for part in iso.group(1, 2, 3, 4, 5, 6))
            moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc) - offset
        else:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)
    except (ValueError, TypeError, OverflowError):
        return None


def same_id(event_id: str) -> str:
    """The form in which EventIds are compared: without case."""
    return event_id.strip().lower()


def plain_name(name: str) -> str:
    """An Azure name without the underscore that the preview version puts before it."""
    return name[1:] if name.startswith("_") else name


def same_name(name: str) -> str:
    """The form in which Azure names are compared: without case."""
    return plain_name(name).lower()


def seen_by(document: Document, vm_name: str | None, now: datetime) -> list[Event]:
    """The document's events as the VM of that name sees them at that time."""
    me = None if vm_name is None else same_name(vm_name)
    events = []
    for event in document.events:
        mine = None if me is None else me in (same_name(name) for name in event["resources"])
        events.append(t.cast(Event, dict(event, affects_me=mine, seconds_left=_seconds_left(event, now))))
    return events


def _seconds_left(event: Event, now: datetime) -> int | None:
    if event["not_before"] is None or event["event_status"] != SCHEDULED:
        return None
    moment = parse_time(event["not_before"])
    return None if moment is None else max(0, int((moment - now).total_seconds()))


def matching(events: t.Iterable[Event], filters: Filters) -> list[Event]:
    """The events that every given filter lets through; an empty filter lets everything through."""
    ids = {same_id(event_id) for event_id in filters.event_ids}
    types = {name.lower() for name in filters.event_types}
    statuses = {name.lower() for name in filters.event_statuses}
    sources = {name.lower() for name in filters.event_sources}
    return [
        event
        for event in events
        if (not ids or same_id(event["event_id"]) in ids)
        and (not types or event["event_type"].lower() in types)
        and (not statuses or event["event_status"].lower() in statuses)
        and (not sources or (event["event_source"] or "").lower() in sources)
        and (not filters.only_mine or event["affects_me"])
    ]


def by_id(events: t.Iterable[Event]) -> dict[str, Event]:
    """An id that is in the document twice counts once, as Started if one of them is."""
    found: dict[str, Event] = {}
    for event in events:
        event_id = same_id(event["event_id"])
        if event_id not in found or event["event_status"] == STARTED:
            found[event_id] = event
    return found


def fingerprint(events: t.Iterable[Event]) -> str:
    """Equal for equal events, whatever their order and the time."""
    lasting = sorted(json.dumps(dict(event, seconds_left=None), sort_keys=True) for event in events)
    return hashlib.sha256("\n".join(lasting).encode()).hexdigest()
