# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting: the conditions that end a wait, and the loop that polls."""

from __future__ import annotations

import typing as t

from ._clock import Clock
from ._document import STARTED, Event, Filters, by_id, fingerprint, matching, same_id
from ._errors import EventsError, PassingFailure, WrongOption
from ._text import clean, iso

TIMES = ("started_at", "gone_at")
# Conditions that compare with the first read: the controller needs it before the host goes down.
FIRST_READ_COUNTS = ("gone", "changed")
# Seconds that a read may take even if the timeout is over: a slow answer is not a failure.
LEAST_FOR_A_READ = 3.0
# The same with timeout=0, which reads once.
FOR_A_SINGLE_READ = 30.0


class Seen:
    """What a wait keeps from one slice to the next."""

    def __init__(self) -> None:
        self.answered = False
        self.event_ids: list[str] = []
        self.fingerprint = ""
        self.started = False
        self.times: dict[str, dict[str, str | None]] = {}
        self.vm_name: str | None = None
        self.api_version: str | None = None
        self.polls = 0
        self.elapsed = 0.0
        self.slice: float | None = None

    @classmethod
    def from_option(cls, option: t.Mapping[str, t.Any] | None) -> Seen:
        seen = cls()
        kinds: dict[str, tuple[type, ...]] = {
            "answered": (bool,),
            "event_ids": (list,),
            "fingerprint": (str,),
            "started": (bool,),
            "times": (dict,),
            "vm_name": (str, type(None)),
            "api_version": (str, type(None)),
            "polls": (int,),
            "elapsed": (int, float),
            "slice": (int, float, type(None)),
            "continues": (bool,),
        }
        for key, value in (option or {}).items():
            if key not in kinds or not isinstance(value, kinds[key]):
                raise WrongOption(f"seen.{clean(key, 80)} is not what an earlier wait returned; leave seen out.")
            if key != "continues":
                setattr(seen, key, value)
        if not all(isinstance(event_id, str) for event_id in seen.event_ids):
            raise WrongOption("seen.event_ids is not a list of event ids; leave seen out.")
        if not all(_are_times(entry) for entry in seen.times.values()):
            raise WrongOption("seen.times does not hold the times of events; leave seen out.")
        return seen

    def as_option(self, continues: bool) -> dict[str, t.Any]:
        return dict(vars(self), elapsed=round(self.elapsed, 3), continues=continues)

    def note(self, events: t.Sequence[Event], matches: t.Sequence[Event], asked: t.Sequence[str], now: str) -> None:
        """`asked` are the ids that have to leave. One that was never there counts as gone."""
        self._note_times(events, [event["event_id"] for event in matches] + list(asked), now)
        if not self.answered:
            self.answered = True
            self.event_ids = [same_id(event["event_id"]) for event in matches]
            self.fingerprint = fingerprint(matches)
        self.started = self.started or any(
            event["event_status"] == STARTED and same_id(event["event_id"]) in self.event_ids for event in events
        )

    def _note_times(self, events: t.Sequence[Event], known: t.Sequence[str], now: str) -> None:
        present = by_id(events)
        # New objects, so that they can be compared with those before.
        blank: dict[str, dict[str, str | None]] = {same_id(event_id): dict.fromkeys(TIMES) for event_id in known}
        times = {event_id: dict(entry) for event_id, entry in {**blank, **self.times}.items()}
        for event_id, entry in times.items():
            if event_id in present and present[event_id]["event_status"] == STARTED:
                entry["started_at"] = entry["started_at"] or now
            entry["gone_at"] = None if event_id in present else entry["gone_at"] or now
        self.times = times

    def progress(self, until: str) -> tuple[t.Any, ...]:
        """What the controller needs before the host goes down: a slice ends when it changes."""
        times = {event_id: entry for event_id, entry in self.times.items() if any(entry.values())}
        return (self.answered and until in FIRST_READ_COUNTS, self.started, times)


def _are_times(entry: t.Any) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == set(TIMES)
        and all(value is None or isinstance(value, str) for value in entry.values())
    )


def times_of(seen: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The times as they are returned."""
    return [dict(entry, event_id=event_id) for event_id, entry in (seen.get("times") or {}).items()]


def _gone(seen: Seen, events: t.Sequence[Event], matches: t.Sequence[Event]) -> str | None:
    if not seen.event_ids:
        return "none"
    if any(same_id(event["event_id"]) in seen.event_ids for event in events):
        return None
    return "completed" if seen.started else "cancelled"


Condition = t.Callable[[Seen, t.Sequence[Event], t.Sequence[Event]], t.Optional[str]]
CONDITIONS: dict[str, Condition] = {
    "appeared": lambda seen, events, matches: "appeared" if matches else None,
    "started": lambda seen, events, matches: (
        "started" if any(event["event_status"] == STARTED for event in matches) else None
    ),
    "gone": _gone,
    "changed": lambda seen, events, matches: "changed" if fingerprint(matches) != seen.fingerprint else None,
}


class Outcome(t.NamedTuple):
    outcome: str
    events: list[Event]
    seen: dict[str, t.Any]
    failure: EventsError | None = None

    @property
    def continues(self) -> bool:
        return bool(self.seen["continues"])

    def result(self) -> dict[str, t.Any]:
        return {
            "outcome": self.outcome,
            "events": self.events,
            "polls": self.seen["polls"],
            "elapsed": self.seen["elapsed"],
            "times": times_of(self.seen),
            "seen": self.seen,
        }

    def failure_message(self, until: str, timeout: float) -> str:
        """Why the wait failed, and what to do."""
        if self.failure is not None:
            return f"The metadata service could not be read within the timeout of {timeout:g} s: {self.failure.message}"
        left = clean(", ".join(f"{event['event_type']} {event['event_id']}" for event in self.events), 300)
        happened = {
            "appeared": "no matching event had appeared",
            "started": "no matching event had started",
            "gone": f"these events had not left the document: {left}",
            "changed": "nothing had changed",
        }
        return (
            f"After {timeout:g} s {happened[until]}. Give a longer timeout, or set on_timeout=ok and look at outcome."
        )


def wait(
    read: t.Callable[[float], list[Event]],
    until: str,
    filters: Filters,
    seen: Seen,
    timeout: float,
    poll_interval: float,
    clock: Clock,
) -> Outcome:
    """Read until the condition holds or the time is over. A failure that may pass does not end the wait."""
    slice_begin = clock.monotonic()
    begin = slice_begin - seen.elapsed
    matches: list[Event] = []
    asked = filters.event_ids if until == "gone" else ()
    while True:
        poll_begin = clock.monotonic()
        before = seen.progress(until)
        failure: PassingFailure | None = None
        outcome = None
        seen.polls += 1
        try:
            least = LEAST_FOR_A_READ if timeout else FOR_A_SINGLE_READ
            events = read(max(begin + timeout - poll_begin, least))
        except PassingFailure as exc:
            failure = exc
        except EventsError as exc:
            seen.elapsed = clock.monotonic() - begin
            raise EventsError(exc.message, **Outcome("unreachable", matches, seen.as_option(False)).result()) from exc
        else:
            matches = matching(events, filters)
            seen.note(events, matches, asked, iso(clock.utc_now()))
            outcome = CONDITIONS[until](seen, events, matches)

        now = clock.monotonic()
        seen.elapsed = now - begin
        left = timeout - seen.elapsed
        if outcome is None and left <= 0:
            outcome = "timed_out" if failure is None else "unreachable"
        slice_over = seen.slice is not None and (now - slice_begin >= seen.slice or seen.progress(until) != before)
        if outcome is not None or slice_over:
            return Outcome(outcome or "timed_out", matches, seen.as_option(outcome is None), failure)
        pause = poll_interval - (now - poll_begin)
        if failure is not None and failure.retry_after is not None:
            pause = failure.retry_after
        clock.sleep(min(max(pause, 0.0), left))
