# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All data that comes from hosts enters here. Afterwards every field is there, with its type, and text is harmless."""

from __future__ import annotations

import itertools
import typing as t

from ..module_utils._document import EVENT_FIELDS
from ..module_utils._text import clean

Json = dict[str, t.Any]
Read = t.Callable[[t.Any], t.Any]
STATES = ("looked", "ready", "working", "next", "failed", "waiting", "put_back", "released", "held_by_other_run",
          "gone", "skipped", "approved", "unconfirmed", "started", "unexpected")  # fmt: skip
MODES = ("look", "do", "undo", "verify", "fetch", "send")
# Limits that no real host reaches; anything beyond them is ignored.
MOST, MOST_ENTRIES = 2000, 200
LATEST = 1e11
MOST_PAUSE, MOST_SECONDS = 3600.0, 86400.0


def admitted(result: t.Mapping[str, t.Any]) -> Json:
    """The answer of the module on a host, or why there is none, as an observation and a report."""
    report, observation = result.get("report"), result.get("observation")
    if isinstance(report, t.Mapping) and isinstance(observation, t.Mapping):
        return {"reachable": True, "error": None, "report": _report(report), "observation": _observed(observation)}
    keys = ("msg", "module_stderr", "module_stdout", "stderr")
    message = clean(next((result[key] for key in keys if result.get(key)), ""), 400)
    reachable = not result.get("unreachable")
    return {"reachable": reachable, "error": message or "no reason was given", "report": None, "observation": None}


def _observed(given: t.Any) -> Json:
    observation: Json = _observation(given)
    if any(not event["event_id"] for event in observation["events"] or ()):
        observation.update(events=None, error="it reports an event without an EventId")
    return observation


# ---- functions that read a value: whatever it is, the result has the right type


def _text(limit: int) -> Read:
    return lambda value: "" if value is None else clean(value, limit)


def _text_or_none(limit: int) -> Read:
    return lambda value: None if value is None else clean(value, limit) or None


def _number(value: t.Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # No time, duration or count is larger, and nan is not smaller than anything.
    return float(value) if number and abs(value) < 1e12 else None


def _time(value: t.Any) -> float | None:
    """Seconds since 1970, within the range of dates."""
    number = _number(value)
    return number if number is not None and 0 <= number < LATEST else None


def _whole(value: t.Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _or_0(read: Read) -> Read:
    return lambda value: read(value) or 0


def _choice(allowed: t.Sequence[str], default: str) -> Read:
    return lambda value: value if isinstance(value, str) and value in allowed else default


def _shape(**fields: Read) -> Read:
    """A dictionary with exactly these fields."""

    def read(value: t.Any) -> Json:
        given = value if isinstance(value, t.Mapping) else {}
        return {name: field(given.get(name)) for name, field in fields.items()}

    return read


def _or_none(read: Read) -> Read:
    return lambda value: read(value) if isinstance(value, t.Mapping) else None


def _list(read: Read, most: int = MOST) -> Read:
    """The last ones of a list of dictionaries, None if it is no list."""
    return lambda value: (
        [read(one) for one in value[-most:] if isinstance(one, t.Mapping)] if isinstance(value, (list, tuple)) else None
    )


def _list_or_empty(read: Read, most: int = MOST) -> Read:
    return lambda value: _list(read, most)(value) or []


def _by_id(read: Read) -> Read:
    return lambda value: (
        {
            clean(key, 200): read(one)
            for key, one in itertools.islice(value.items(), MOST_ENTRIES)
            if isinstance(one, t.Mapping)
        }
        if isinstance(value, t.Mapping)
        else {}
    )


def _names(value: t.Any) -> list[str]:
    return [clean(name, 200) for name in value[:MOST]] if isinstance(value, (list, tuple)) else []


def _entries(value: t.Any) -> Json:
    """Entries of events that have an id."""
    entries = _by_id(_entry)(value)
    return {key: one for key, one in entries.items() if one["event"]["event_id"]}


# ---- the shapes

BY_TYPE = {"str": _text(200), "str | None": _text_or_none(600), "int | None": _whole, "list[str]": _names,
           "bool | None": lambda value: value if isinstance(value, bool) else None}  # fmt: skip
_event = _shape(**{name: BY_TYPE[kind] for name, kind in EVENT_FIELDS.items()})
_claim = _shape(
    run_id=_text(200), run_name=_text(200), **dict.fromkeys(("since", "renewed", "silent_until"), _or_0(_time))
)
_approval = _shape(at=_or_0(_time), status=_text(40), run_id=_text(200), message=_text(400))
_entry = _shape(
    event=_event,
    claim=_claim,
    **dict.fromkeys(("noticed", "ready", "started", "gone", "lapsed"), _time),
    approval=_or_none(_approval),
)
_step = _shape(
    **dict.fromkeys(("phase", "name", "kind", "status", "message"), _text(400)),
    at=_or_0(_time),
    attempts=_or_0(_whole),
)
_mark = _shape(**dict.fromkeys(("what", "detail", "event_id"), _text(400)), at=_or_0(_time))
# Only the fields that the controller reads.
_record = _or_none(_shape(events=_entries, steps=_list_or_empty(_step, 500), timeline=_list_or_empty(_mark, 500)))
_observation = _shape(
    time=_time,
    error=_text_or_none(400),
    events=_list(_event),
    document=_text(64),
    clock_offset=_number,
    vm_name=_text_or_none(200),
    api_version=_text(40),
    endpoint=_text(200),
    record=_record,
    record_error=_text_or_none(400),
    warnings=lambda value: [clean(one, 600) for one in value[:20]] if isinstance(value, (list, tuple)) else [],
)
_server = _shape(host=_text(200), socket=_text(200), in_service=lambda value: value is not False)
_next = _shape(
    **dict.fromkeys(("phase", "name", "kind", "archive"), _text(400)),
    mode=_choice(MODES, ""),
    seconds=lambda value: min(MOST_SECONDS, max(1.0, _number(value) or 0)),
    # Of the servers on balancers in the record, only their earlier state is used.
    before=_shape(servers=_list_or_empty(_server, MOST_ENTRIES)),
)
_report = _shape(
    state=_choice(STATES, "failed"),
    message=_text(600),
    final=lambda value: value is True,
    # False if a failed step only waits for its next attempt.
    tried=lambda value: value is not False,
    attempts=_or_0(_whole),
    next_try=lambda value: min(MOST_PAUSE, max(0.0, _number(value) or 0)),
    next=lambda value: step if (step := _or_none(_next)(value)) and step["mode"] else None,
    held=_by_id(_shape(run_name=_text(200))),
    approval=_or_none(_approval),
    closed=_record,
)
