# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the report data of a run, and summarises it. Pure: no I/O.

A report is most needed when something went wrong, so reading never fails: what is missing or has the wrong type is left
out.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..module_utils._document import parse_time, same_id
from ..module_utils._text import masked

VERDICTS = {
    "done": "Maintenance done",
    "held": "Held: not approved",
    "failed": "Failed: action is required",
    "deferred": "Deferred: it is not time yet",
    "nothing": "Nothing to do",
    "planned": "Planned: nothing was changed",
    "in progress": "In progress",
}
# Results of a host for which action is required.
BAD_RESULTS = ("failed", "left drained", "unreachable")
T = t.TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Moment:
    at: float | None
    what: str
    detail: str
    event_id: str


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    vm_name: str
    result: str
    reason: str
    events: tuple[str, ...]
    timeline: tuple[Moment, ...]

    @property
    def in_time(self) -> list[tuple[float, Moment]]:
        return sorted(((m.at, m) for m in self.timeline if m.at is not None), key=lambda pair: pair[0])


@dataclasses.dataclass(frozen=True)
class Event:
    event_id: str
    event_type: str
    event_status: str
    event_source: str
    description: str
    duration_seconds: str
    resources: tuple[str, ...]
    action: str
    reason: str
    outcome: str
    message: str
    holds: tuple[str, ...]
    approved_by: str
    not_before: float | None
    noticed: float | None
    approved: float | None
    started: float | None
    gone: float | None
    hosts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Run:
    run_id: str
    run_name: str
    started: float | None
    finished: float | None
    check_mode: bool


@dataclasses.dataclass(frozen=True)
class Report:
    drill: bool
    # When the events of a drill were announced.
    announced: float | None
    result: str
    messages: tuple[str, ...]
    run: Run
    events: tuple[Event, ...]
    hosts: tuple[Host, ...]

    @property
    def verdict(self) -> str:
        return ("Drill: " if self.drill else "") + VERDICTS.get(self.result, self.result or "No result")


def read(data: t.Any) -> Report:
    """Read the report data."""
    whole = _mapping(data)
    hosts = _mapping(whole.get("hosts"))
    return _shape(
        Report,
        whole,
        run=_shape(Run, whole.get("run")),
        events=tuple(_shape(Event, entry) for entry in _list(whole.get("events"))),
        hosts=tuple(_shape(Host, entry, name=_text(name), timeline=_timeline(entry)) for name, entry in hosts.items()),
    )


def summary(data: t.Any) -> dict[str, t.Any]:
    """The outcome in a few short fields, for a job's statistics and for messages to people."""
    report = read(data)
    fields = ("event_id", "event_type", "action", "outcome", "message")
    return {
        "drill": report.drill,
        "result": report.result,
        "verdict": report.verdict,
        "messages": list(report.messages),
        "run": {"run_id": report.run.run_id, "run_name": report.run.run_name, "check_mode": report.run.check_mode},
        "events": [
            {**{name: getattr(event, name) for name in fields}, "holds": list(event.holds), "hosts": list(event.hosts)}
            for event in report.events
        ],
        "hosts": {host.name: host.result for host in report.hosts},
    }


def safe(value: t.Any) -> t.Any:
    """The data without secrets in URLs, and without lone surrogates, which UTF-8 does not have."""
    if isinstance(value, str):
        return masked(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, t.Mapping):
        return {safe(str(key)): safe(entry) for key, entry in value.items()}
    return [safe(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def seconds(value: t.Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time; None for anything else and for impossible years."""
    moment = parse_time(value) if isinstance(value, str) else None
    return moment.timestamp() if moment is not None and 1970 <= moment.year < 9000 else None


def _shape(shape: type[T], entry: t.Any, **more: t.Any) -> T:
    """The entry as a dataclass; each field is read according to its type."""
    given = _mapping(entry)
    fields = [field for field in dataclasses.fields(t.cast(t.Any, shape)) if field.name not in more]
    return shape(**{field.name: READERS[str(field.type)](given.get(field.name)) for field in fields}, **more)


def _timeline(host: t.Any) -> tuple[Moment, ...]:
    entries = _list(_mapping(host).get("timeline"))
    return tuple(
        _shape(Moment, entry, event_id=same_id(_text(_mapping(entry).get("event_id"))))
        for entry in entries
        if _mapping(entry)
    )


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)


def _texts(value: t.Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(_text, _list(value)))


def _mapping(value: t.Any) -> t.Mapping[t.Any, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def _list(value: t.Any) -> list[t.Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


READERS: dict[str, t.Callable[[t.Any], t.Any]] = {
    "str": _text,
    "bool": lambda value: value is True,
    "float | None": seconds,
    "tuple[str, ...]": _texts,
}
