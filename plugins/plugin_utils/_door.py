# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The one door through which data of hosts enters the controller. Behind it everything has its shape and is plain text."""

from __future__ import annotations

import itertools
import math
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._text import clean

Json = dict[str, t.Any]
STATES = (
    "looked",
    "ready",
    "working",
    "next",
    "failed",
    "waiting",
    "put_back",
    "released",
    "held_by_other_run",
    "gone",
    "skipped",
    "approved",
    "unconfirmed",
    "started",
    "unexpected",
)
MODES = ("look", "do", "undo", "verify", "fetch", "send")
# No honest host comes near these; more is not looked at.
MOST_EVENTS, MOST_ENTRIES, MOST_STEPS, MOST_MARKS = 2000, 200, 500, 500
LARGEST_NUMBER, LATEST = 1e12, 1e11
MOST_PAUSE, MOST_SECONDS = 3600.0, 86400.0
EVENT_TEXTS = ("event_type", "event_status", "resource_type", "not_before", "description", "event_source", "leader")


def admitted(result: t.Mapping[str, t.Any]) -> Json:
    """What the module on a host answered, or why it did not, as an observation and a report."""
    report, observation = result.get("report"), result.get("observation")
    if isinstance(report, t.Mapping) and isinstance(observation, t.Mapping):
        return {"reachable": True, "error": None, "report": _report(report), "observation": _observation(observation)}
    reachable = not result.get("unreachable")
    message = clean(_first_text(result, "msg", "module_stderr", "module_stdout", "stderr"), 400)
    return {"reachable": reachable, "error": message or "it gave no reason", "report": None, "observation": None}


def _first_text(result: t.Mapping[str, t.Any], *keys: str) -> str:
    return next((str(result[key]) for key in keys if result.get(key)), "")


def _observation(given: t.Mapping[str, t.Any]) -> Json:
    events = given.get("events")
    return {
        "time": _time(given.get("time")),
        "boot_id": _text(given.get("boot_id"), 64),
        "error": _text(given.get("error"), 400) or None,
        "events": [_event(event) for event in _list(events, MOST_EVENTS) if _is_event(event)]
        if isinstance(events, (list, tuple))
        else None,
        "document": _text(given.get("document"), 64),
        "clock_offset": _number(given.get("clock_offset")),
        "vm_name": _text(given.get("vm_name"), 200) or None,
        "api_version": _text(given.get("api_version"), 40),
        "endpoint": _text(given.get("endpoint"), 200),
        "record": _record(given.get("record")),
        "record_error": _text(given.get("record_error"), 400) or None,
    }


def _event(given: t.Mapping[str, t.Any]) -> Json:
    event: Json = {"event_id": _text(given.get("event_id"), 200)}
    event.update({key: _text(given.get(key), 600) or None for key in EVENT_TEXTS})
    event.update(
        resources=[_text(name, 200) for name in _list(given.get("resources"), MOST_EVENTS)],
        seconds_left=_whole(given.get("seconds_left")),
        duration_seconds=_whole(given.get("duration_seconds")),
        affects_me=given.get("affects_me") if isinstance(given.get("affects_me"), bool) else None,
    )
    return event


def _record(given: t.Any) -> Json | None:
    """As the host's own code has checked it; here only what the controller reads."""
    if not isinstance(given, t.Mapping):
        return None
    marks = given.get("timeline")
    return {
        "boot_id": _text(given.get("boot_id"), 64),
        "events": {
            _text(key, 200): _entry(entry)
            for key, entry in _items(given.get("events"))
            if isinstance(entry, t.Mapping) and _is_event(entry.get("event"))
        },
        "steps": [
            {
                **{key: _text(step.get(key), 400) for key in ("phase", "name", "kind", "status", "message")},
                "at": _time(step.get("at")) or 0.0,
                "attempts": _whole(step.get("attempts")) or 0,
            }
            for step in _list(given.get("steps"), MOST_STEPS)
            if isinstance(step, t.Mapping)
        ],
        "timeline": [
            {
                **{key: _text(mark.get(key), 400) for key in ("what", "detail", "event_id")},
                "at": _time(mark.get("at")) or 0.0,
            }
            for mark in (marks[-MOST_MARKS:] if isinstance(marks, (list, tuple)) else ())
            if isinstance(mark, t.Mapping)
        ],
    }


def _entry(given: t.Mapping[str, t.Any]) -> Json:
    claim = given.get("claim")
    claim = claim if isinstance(claim, t.Mapping) else {}
    return {
        "event": _event(given["event"]),
        "claim": {
            **{key: _text(claim.get(key), 200) for key in ("run_id", "run_name")},
            **{key: _time(claim.get(key)) or 0.0 for key in ("since", "renewed", "silent_until")},
        },
        **{key: _time(given.get(key)) for key in ("ready", "started", "gone")},
        "approval": _approval(given.get("approval")),
    }


def _approval(given: t.Any) -> Json | None:
    if not isinstance(given, t.Mapping):
        return None
    return {
        "at": _time(given.get("at")) or 0.0,
        "status": _text(given.get("status"), 40),
        "run_id": _text(given.get("run_id"), 200),
        "message": _text(given.get("message"), 400),
    }


def _report(given: t.Mapping[str, t.Any]) -> Json:
    state = given.get("state")
    following = given.get("next")
    times = given.get("times")
    return {
        "state": state if isinstance(state, str) and state in STATES else "failed",
        "message": _text(given.get("message"), 600),
        "final": given.get("final") is True,
        # False where a failed step only waits for its next try.
        "tried": given.get("tried") is not False,
        "step": _text(given.get("step"), 200),
        "attempts": _whole(given.get("attempts")) or 0,
        "next_try": min(MOST_PAUSE, max(0.0, _number(given.get("next_try")) or 0.0)),
        "next": _next(following) if isinstance(following, t.Mapping) else None,
        "held": {
            _text(key, 200): {"run_name": _text(holder.get("run_name"), 200) or "another run"}
            for key, holder in _items(given.get("held"))
            if isinstance(holder, t.Mapping)
        },
        "times": {
            what: {_text(key, 200): _time(at) for key, at in _items(times.get(what))} for what in ("started", "gone")
        }
        if isinstance(times, t.Mapping)
        else {},
        "approval": _approval(given.get("approval")),
        "closed": _record(given.get("closed")),
    }


def _next(given: t.Mapping[str, t.Any]) -> Json | None:
    mode = given.get("mode")
    if mode not in MODES:
        return None
    before = given.get("before")
    servers = before.get("servers") if isinstance(before, t.Mapping) else None
    return {
        **{key: _text(given.get(key), 400) for key in ("phase", "name", "kind", "archive")},
        "mode": mode,
        "seconds": min(MOST_SECONDS, max(1.0, _number(given.get("seconds")) or 1.0)),
        # Of what a record says about other machines, only how they were before counts.
        "before": {
            "servers": [
                {**{key: _text(one.get(key), 200) for key in ("host", "socket")}, "in_service": bool(one.get("in_service", True))}
                for one in _list(servers, MOST_ENTRIES)
                if isinstance(one, t.Mapping)
            ]
        },
    }


def _list(value: t.Any, most: int) -> t.Sequence[t.Any]:
    return value[:most] if isinstance(value, (list, tuple)) else ()


def _items(value: t.Any) -> t.Iterable[tuple[t.Any, t.Any]]:
    return itertools.islice(value.items(), MOST_ENTRIES) if isinstance(value, t.Mapping) else ()


def _is_event(value: t.Any) -> bool:
    """Without an id it cannot be told from others."""
    return isinstance(value, t.Mapping) and bool(_text(value.get("event_id"), 200))


def _text(value: t.Any, limit: int) -> str:
    return "" if value is None else clean(value, limit)


def _number(value: t.Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Compared first: there are whole numbers that no float can hold.
    return float(value) if number and abs(value) < LARGEST_NUMBER and math.isfinite(value) else None


def _time(value: t.Any) -> float | None:
    """Seconds since 1970, up to a year that a date can have."""
    number = _number(value)
    return number if number is not None and 0 <= number < LATEST else None


def _whole(value: t.Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
