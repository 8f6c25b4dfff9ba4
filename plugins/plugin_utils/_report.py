# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What a run did, read leniently from the report data. Pure: standard library only, no I/O, no Ansible.

A report is most needed when something went wrong, so nothing in the data can make reading it fail: what is missing
or of the wrong type is left out.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t
from datetime import datetime, timezone

VERDICTS = {
    "nothing": "Nothing to do",
    "done": "Maintenance done",
    "held": "Held: not approved",
    "failed": "Failed: a person is needed",
}
# What begins a span of a host's life, and what ends it.
SPANS: dict[str, frozenset[str]] = {
    "draining": frozenset(
        {"drained", "checkpointed", "ready", "not_ready", "failed", "held", "down", "restoring", "restored"}
    ),
    "down": frozenset({"back", "restoring", "restored", "failed"}),
    "restoring": frozenset({"restored", "failed", "down"}),
}
ENDS = {"draining": "drained", "down": "back", "restoring": "restored"}
OUT_OF_SERVICE = "out of service"
LONGEST_MESSAGE = 2000

_ISO_8601 = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d{1,6})?\d*\s*(?:Z|([+-]\d\d):?(\d\d))?", re.IGNORECASE | re.ASCII
)


@dataclasses.dataclass(frozen=True)
class Moment:
    at: float | None
    what: str
    detail: str
    event_id: str


@dataclasses.dataclass(frozen=True)
class Span:
    kind: str
    start: float
    end: float
    # Nothing in the data ends it: it lasted at least as long as the report looks.
    is_open: bool = False


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    vm_name: str
    result: str
    event_ids: tuple[str, ...]
    moments: tuple[Moment, ...]

    def during(self, event_id: str) -> Host:
        """The host with what it did for one event; what names no event belongs to every event of the host."""
        return dataclasses.replace(self, moments=tuple(m for m in self.moments if m.event_id in ("", event_id)))

    @property
    def in_time(self) -> list[tuple[float, Moment]]:
        return sorted(((m.at, m) for m in self.moments if m.at is not None), key=lambda pair: pair[0])


@dataclasses.dataclass(frozen=True)
class Event:
    event_id: str
    event_type: str
    event_status: str
    event_source: str
    description: str
    resources: tuple[str, ...]
    action: str
    reason: str
    outcome: str
    hold: tuple[str, ...]
    leader: str
    not_before: float | None
    noticed: float | None
    approved: float | None
    started: float | None
    gone: float | None
    hosts: tuple[Host, ...]

    @property
    def strangers(self) -> list[str]:
        """Azure names for which the inventory has no host; empty while a host's Azure name is unknown."""
        if not all(host.vm_name for host in self.hosts):
            return []
        known = {plain(name) for host in self.hosts for name in (host.vm_name, host.name)}
        return [name for name in self.resources if plain(name) not in known]


@dataclasses.dataclass(frozen=True)
class Report:
    run_id: str
    run_name: str
    started: float | None
    finished: float | None
    check_mode: bool
    result: str
    words: tuple[str, ...]
    events: tuple[Event, ...]
    # Every host, and those of them that have something to tell which is part of no event above.
    hosts: tuple[Host, ...]
    others: tuple[Host, ...]

    @property
    def verdict(self) -> str:
        return VERDICTS.get(self.result, self.result or "No result")


def read(data: t.Any) -> Report:
    """Read the report data."""
    whole = _mapping(data)
    run = _mapping(whole.get("run"))
    hosts = {text(name): _host(text(name), _mapping(entry)) for name, entry in _mapping(whole.get("hosts")).items()}
    events = tuple(_event(_mapping(entry), hosts) for entry in _list(whole.get("events")))
    return Report(
        run_id=text(run.get("run_id")),
        run_name=text(run.get("run_name")),
        started=seconds(run.get("started")),
        finished=seconds(run.get("finished")),
        check_mode=run.get("check_mode") is True,
        result=text(whole.get("result")),
        words=_texts(whole.get("words")),
        events=events,
        hosts=tuple(hosts.values()),
        others=tuple(_rest(host, events) for host in hosts.values() if _rest(host, events).moments),
    )


def summary(data: t.Any) -> dict[str, t.Any]:
    """The outcome in a few short fields, for a job's artifacts and for messages to people."""
    report = read(data)
    return {
        "result": report.result,
        "verdict": report.verdict,
        "words": list(report.words),
        "text": for_chat("\n".join(report.words) or report.verdict),
        "run": {"run_id": report.run_id, "run_name": report.run_name, "check_mode": report.check_mode},
        "events": [
            {
                "event_id": event.event_id,
                "event_type": event.event_type,
                "action": event.action,
                "outcome": event.outcome,
                "hold": list(event.hold),
                "hosts": [host.name for host in event.hosts],
            }
            for event in report.events
        ],
        "hosts": {host.name: host.result for host in report.hosts},
    }


def for_chat(words: str) -> str:
    """Text that a chat shows as it is: no mention of everybody, no link, no control character."""
    for letter, harmless in (("<", "\u2039"), (">", "\u203a"), ("@", "@\u200b")):
        words = words.replace(letter, harmless)
    words = "".join(letter if letter == "\n" or letter.isprintable() or letter == "\u200b" else " " for letter in words)
    return words if len(words) <= LONGEST_MESSAGE else words[: LONGEST_MESSAGE - 1] + "…"


def spans(host: Host, until: float) -> list[Span]:
    """When the host was draining, down and restoring. What never ended lasts until the given time."""
    found: list[Span] = []
    running: dict[str, float] = {}
    for at, moment in host.in_time:
        for kind, start in list(running.items()):
            if moment.what in SPANS[kind]:
                found.append(Span(kind, start, at))
                del running[kind]
        if moment.what not in SPANS or moment.what in running:
            continue
        if _clock_was_set_back(host, moment, at):
            found.append(Span(moment.what, at, at))
        else:
            running[moment.what] = at
    found += (Span(kind, start, max(start, until), is_open=True) for kind, start in running.items())
    return sorted(found, key=lambda span: span.start)


def _clock_was_set_back(host: Host, opening: Moment, start: float) -> bool:
    """Whether the span's end was noted after its begin but with an earlier time: nobody knows how long it took."""
    noted_later = host.moments[host.moments.index(opening) + 1 :]
    end = next((m.at for m in noted_later if m.what == ENDS[opening.what] and m.at is not None), start)
    return end < start


def out_of_service(host: Host, until: float) -> list[Span]:
    """When the host carried no load: from the first drain step until it was restored."""
    found: list[Span] = []
    start: float | None = None
    ends: frozenset[str] = frozenset()
    for at, moment in host.in_time:
        if start is None and moment.what in ("draining", "drained"):
            start, ends = at, frozenset({"restored"})
        elif start is None and moment.what == "down":
            # It was never drained, so it is in service again as soon as it is back.
            start, ends = at, frozenset({"back", "restored"})
        elif start is not None and moment.what in ends:
            found.append(Span(OUT_OF_SERVICE, start, at))
            start = None
    if start is not None:
        if host.result == "restored":
            found.append(Span(OUT_OF_SERVICE, start, start))
        else:
            found.append(Span(OUT_OF_SERVICE, start, max(start, until), is_open=True))
    return found


def seconds(value: t.Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) and abs(value) < 2.5e11 else None
    found = _ISO_8601.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    date, time, fraction, hours, minutes = found.groups()
    offset = f"{hours}:{minutes}" if hours else "+00:00"
    try:
        return datetime.fromisoformat(f"{date}T{time}{offset}").timestamp() + float(fraction or 0)
    except (ValueError, OverflowError):
        return None


def moment_of(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, -62135596800.0), 253402300799.0), tz=timezone.utc)


def plain(name: str) -> str:
    """The form in which two spellings of an Azure name compare equal."""
    return name.removeprefix("_").lower()


def text(value: t.Any) -> str:
    """A plain str of anything. A lone surrogate, valid in JSON, cannot be written as UTF-8 later on."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _mapping(value: t.Any) -> t.Mapping[t.Any, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def _list(value: t.Any) -> list[t.Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _texts(value: t.Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (text(value),)
    return tuple(text(item) for item in _list(value))


def _id(value: t.Any) -> str:
    return text(value).strip().lower()


def _host(name: str, entry: t.Mapping[t.Any, t.Any]) -> Host:
    timeline = (_mapping(item) for item in _list(entry.get("timeline")))
    return Host(
        name=name,
        vm_name=text(entry.get("vm_name")),
        result=text(entry.get("result")),
        event_ids=tuple(_id(event_id) for event_id in _list(entry.get("events"))),
        moments=tuple(
            Moment(
                at=seconds(item.get("at")),
                what=text(item.get("what")),
                detail=text(item.get("detail")),
                event_id=_id(item.get("event_id")),
            )
            for item in timeline
            if item
        ),
    )


def _event(entry: t.Mapping[t.Any, t.Any], hosts: t.Mapping[str, Host]) -> Event:
    event_id = _id(entry.get("event_id"))
    names = dict.fromkeys(_texts(entry.get("hosts")))
    names |= dict.fromkeys(
        name
        for name, host in hosts.items()
        if event_id and (event_id in host.event_ids or any(moment.event_id == event_id for moment in host.moments))
    )
    nobody = Host("", "", "", (), ())
    return Event(
        event_id=text(entry.get("event_id")),
        event_type=text(entry.get("event_type")),
        event_status=text(entry.get("event_status")),
        event_source=text(entry.get("event_source")),
        description=text(entry.get("description")),
        resources=_texts(entry.get("resources")),
        action=text(entry.get("action")),
        reason=text(entry.get("reason")),
        outcome=text(entry.get("outcome")),
        hold=_texts(entry.get("hold")),
        leader=text(entry.get("leader")),
        not_before=seconds(entry.get("not_before")),
        noticed=seconds(entry.get("noticed")),
        approved=seconds(entry.get("approved")),
        started=seconds(entry.get("started")),
        gone=seconds(entry.get("gone")),
        hosts=tuple(dataclasses.replace(hosts.get(name, nobody), name=name).during(event_id) for name in names),
    )


def _rest(host: Host, events: t.Iterable[Event]) -> Host:
    """The host with what no event of the report tells about it."""
    told = {_id(event.event_id) for event in events if any(host.name == one.name for one in event.hosts)}
    if told:
        told.add("")
    return dataclasses.replace(host, moments=tuple(m for m in host.moments if m.event_id not in told))
