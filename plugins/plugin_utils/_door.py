# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The one door through which data of hosts enters the controller. Behind it everything has its shape and is plain text."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._text import clean, clean_all

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
MOST_EVENTS = 2000
MOST_WARNINGS = 20
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
    events, warnings = given.get("events"), given.get("warnings")
    return {
        "time": _number(given.get("time")),
        "boot_id": _text(given.get("boot_id"), 64),
        "error": _text(given.get("error"), 400) or None,
        "events": [_event(event) for event in events[:MOST_EVENTS] if isinstance(event, t.Mapping)]
        if isinstance(events, (list, tuple))
        else None,
        "document": _text(given.get("document"), 64),
        "clock_offset": _number(given.get("clock_offset")),
        "vm_name": _text(given.get("vm_name"), 200) or None,
        "api_version": _text(given.get("api_version"), 40),
        "endpoint": _text(given.get("endpoint"), 200),
        "record": _record(given.get("record")),
        "record_error": _text(given.get("record_error"), 400) or None,
        "warnings": [_text(warning, 600) for warning in warnings[:MOST_WARNINGS]]
        if isinstance(warnings, (list, tuple))
        else [],
    }


def _event(given: t.Mapping[str, t.Any]) -> Json:
    resources = given.get("resources")
    event: Json = {"event_id": _text(given.get("event_id"), 200)}
    event.update({key: _text(given.get(key), 600) or None for key in EVENT_TEXTS})
    event.update(
        resources=[_text(name, 200) for name in resources[:MOST_EVENTS]]
        if isinstance(resources, (list, tuple))
        else [],
        seconds_left=_whole(given.get("seconds_left")),
        duration_seconds=_whole(given.get("duration_seconds")),
        affects_me=given.get("affects_me") if isinstance(given.get("affects_me"), bool) else None,
    )
    return event


def _record(given: t.Any) -> Json | None:
    """As the host's own code has checked it; here only what the controller reads."""
    if not isinstance(given, t.Mapping):
        return None
    events, steps, marks = given.get("events"), given.get("steps"), given.get("timeline")
    return {
        "boot_id": _text(given.get("boot_id"), 64),
        "events": {
            _text(key, 200): _entry(entry)
            for key, entry in (events.items() if isinstance(events, t.Mapping) else ())
            if isinstance(entry, t.Mapping)
        },
        "steps": [
            {
                **{key: _text(step.get(key), 400) for key in ("phase", "name", "kind", "status", "message")},
                "at": _number(step.get("at")) or 0.0,
                "attempts": _whole(step.get("attempts")) or 0,
            }
            for step in (steps if isinstance(steps, (list, tuple)) else ())
            if isinstance(step, t.Mapping)
        ],
        "timeline": [
            {
                **{key: _text(mark.get(key), 400) for key in ("what", "detail", "event_id")},
                "at": _number(mark.get("at")) or 0.0,
            }
            for mark in (marks[-500:] if isinstance(marks, (list, tuple)) else ())
            if isinstance(mark, t.Mapping)
        ],
    }


def _entry(given: t.Mapping[str, t.Any]) -> Json:
    claim = given.get("claim")
    claim = claim if isinstance(claim, t.Mapping) else {}
    approval = given.get("approval")
    event = given.get("event")
    return {
        "event": _event(event if isinstance(event, t.Mapping) else {}),
        "claim": {
            **{key: _text(claim.get(key), 200) for key in ("run_id", "run_name")},
            **{key: _number(claim.get(key)) or 0.0 for key in ("since", "renewed", "silent_until")},
        },
        **{key: _number(given.get(key)) for key in ("ready", "started", "gone")},
        "approval": {
            "at": _number(approval.get("at")) or 0.0,
            "status": _text(approval.get("status"), 40),
            "run_id": _text(approval.get("run_id"), 200),
            "message": _text(approval.get("message"), 400),
        }
        if isinstance(approval, t.Mapping)
        else None,
    }


def _report(given: t.Mapping[str, t.Any]) -> Json:
    state = given.get("state")
    following = given.get("next")
    held = given.get("held")
    times = given.get("times")
    return {
        "state": state if isinstance(state, str) and state in STATES else "failed",
        "message": _text(given.get("message"), 600),
        "final": given.get("final") is True,
        # False where a failed step only waits for its next try.
        "tried": given.get("tried") is not False,
        "step": _text(given.get("step"), 200),
        "attempts": _whole(given.get("attempts")) or 0,
        "next_try": _number(given.get("next_try")) or 0.0,
        "next": _next(following) if isinstance(following, t.Mapping) else None,
        "held": {_text(key, 200): clean_all(value, 200, 2) for key, value in held.items()}
        if isinstance(held, t.Mapping)
        else {},
        "times": {
            what: {_text(key, 200): _number(at) for key, at in (times.get(what) or {}).items()}
            for what in ("started", "gone")
            if isinstance(times.get(what), t.Mapping)
        }
        if isinstance(times, t.Mapping)
        else {},
        "approval": clean_all(given["approval"], 400, 2) if isinstance(given.get("approval"), t.Mapping) else None,
        "closed": _record(given.get("closed")),
    }


def _next(given: t.Mapping[str, t.Any]) -> Json | None:
    mode = given.get("mode")
    if mode not in MODES:
        return None
    before, options = given.get("before"), given.get("options")
    return {
        **{key: _text(given.get(key), 400) for key in ("phase", "name", "kind", "archive")},
        "mode": mode,
        "seconds": max(1.0, _number(given.get("seconds")) or 1.0),
        # Of what a record says about other machines, only how they were before counts.
        "before": clean_all(before, 200, 4) if isinstance(before, t.Mapping) else {},
        "options": clean_all(options, 200, 4) if isinstance(options, t.Mapping) else {},
    }


def _text(value: t.Any, limit: int) -> str:
    return "" if value is None else clean(value, limit)


def _number(value: t.Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and abs(value) < 1e12 else None


def _whole(value: t.Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
