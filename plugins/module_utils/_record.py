# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host remembers: which run has claimed which event, and which steps were taken that have to be undone.

The steps belong to the host and not to an event: two events may need the same host drained, and it is put back when the
last of them is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import syslog
import typing as t

from ._clock import Clock
from ._document import UNKNOWN, same_id
from ._errors import EventsError
from ._record_files import DOING, FAILED, UNDONE, VERSION, Damaged, Folder, Record, explain
from ._text import clean, iso

# A clock that is set back by more than this would keep a dead run's claim alive.
CLOCK_SLACK = 60.0
# An event may stand for days, and a step may fail every minute.
MOST_MARKS = 400

Step = t.Dict[str, t.Any]
Entry = t.Dict[str, t.Any]


class Run(t.NamedTuple):
    """Who acts: a run of the playbook, or the watcher."""

    run_id: str
    run_name: str
    silent_for: float = 120.0
    force: bool = False


class LostClaim(EventsError):
    """Another run has claimed one of the events, or it was closed: this run must not act any more.

    `claims` has those events with the claim of the other run, or None.
    """

    def __init__(self, claims: t.Mapping[str, t.Mapping[str, t.Any] | None]) -> None:
        claim = next(filter(None, claims.values()), None)
        now = f"{holder_message(claim)} holds it" if claim else "the record was closed"
        super().__init__(
            f"This run does not hold the claim of the event any more: {now}. This run does nothing more on the host.",
            state="held_by_other_run",
        )
        self.held = {event_id: holder(claim) if claim else {} for event_id, claim in claims.items()}


def to_system_log(text: str) -> None:
    syslog.openlog("graceful.azure")
    syslog.syslog(syslog.LOG_NOTICE, text)


class Keeper:
    """Reads and changes the record on behalf of one run.

    Every change is made under the lock. Apart from claiming and releasing, a change is fenced: it raises LostClaim and
    writes nothing if this run does not hold the claims of all its events.
    """

    def __init__(
        self, directory: str, run: Run, clock: Clock | None = None, log: t.Callable[[str], None] = to_system_log
    ) -> None:
        self.folder = Folder(directory)
        self.run = run
        self.clock = clock or Clock()
        self._log = log

    @property
    def now(self) -> float:
        return self.clock.utc_now().timestamp()

    def read(self) -> Record | None:
        """The record as it is. No lock is needed: the file is always complete."""
        with self.explained():
            self.folder.inspect()
            return self.folder.read()

    def entries(self) -> dict[str, Entry]:
        """What the record says of events, by id."""
        record = self.read()
        return record["events"] if record else {}

    def probe(self) -> None:
        """Raises if no record could be written. The directory is made."""
        with self._locked():
            self.folder.probe()

    # ---- claims

    def claim(
        self, events: t.Sequence[t.Mapping[str, t.Any]], boot_id: str, standing: bool = False
    ) -> tuple[dict[str, Record], list[str]]:
        """Claim these events for this run. Returns who holds what could not be claimed, by id, and warnings."""
        held: dict[str, Record] = {}
        with self._locked():
            record, warnings = self._read_or_set_aside()
            record = record or _empty(self.now, boot_id)
            for event in events:
                event_id = same_id(event["event_id"])
                entry = record["events"].get(event_id)
                other = entry["claim"] if entry and entry["claim"]["run_id"] != self.run.run_id else None
                if other and not self.run.force and not self.is_stale(other):
                    held[event_id] = holder(other)
                    continue
                record["events"][event_id] = self._claimed(record, event, entry, other)
                if standing:
                    # If it was missing for a moment, it was not gone.
                    record["events"][event_id].update(gone=None, gone_reads=0)
            self._write(record)
        return held, warnings

    def _read_or_set_aside(self) -> tuple[Record | None, list[str]]:
        try:
            return self.folder.read(), []
        except Damaged:
            if not self.run.force:
                raise
            aside = self.folder.set_aside(self.now)
            return None, [
                f"{self.folder.file} could not be used as a record and was set aside as {aside}. What an earlier run "
                "did on this host is not known: look into that file, and undo by hand what it did."
            ]

    def is_stale(self, claim: Record) -> bool:
        """Whether its run has been silent for too long. If the clock was set back since, that is counted from now."""
        now = self.now
        if claim["renewed"] - now > CLOCK_SLACK:
            claim.update(silent_until=now + claim["silent_until"] - claim["renewed"], renewed=now)
        return bool(now > claim["silent_until"])

    def _claimed(
        self, record: Record, event: t.Mapping[str, t.Any], entry: Entry | None, other: Record | None
    ) -> Entry:
        """The entry of an event with a claim of this run; `other` is the claim that it replaces."""
        blank = dict.fromkeys(("ready", "started", "gone", "gave_up", "approval", "lapsed"))
        claimed: Entry = {**blank, "gone_reads": 0, "unhealthy": 0, "noticed": self.now, **(entry or {})}
        known = entry["event"] if entry else {"event_type": UNKNOWN}
        claimed["event"] = {**known, **{key: value for key, value in event.items() if value is not None}}
        renewed = entry is not None and other is None
        claimed["claim"] = {
            "run_id": self.run.run_id,
            "run_name": self.run.run_name,
            "since": claimed["claim"]["since"] if renewed else self.now,
            "renewed": self.now,
            "silent_until": self.now + self.run.silent_for,
        }
        if not renewed:
            # What another run has verified does not count for this one.
            claimed.update(ready=None, gave_up=None)
            by = self.run.run_name + (f", taken over from {holder_message(other)}" if other else "")
            self._mark(record, "claimed", by, event["event_id"])
        return claimed

    def release(self, event_ids: t.Collection[str]) -> list[str]:
        """Give the claims back. If something is not undone, or the host is not healthy, the record stays."""
        released = []
        with self._locked():
            record = self.folder.read()
            if record is None:
                return []
            for event_id, entry in self._own(record, event_ids).items():
                released.append(event_id)
                entry["claim"]["silent_until"] = self.now
                self._mark(record, "released", self.run.run_name, entry["event"]["event_id"])
            if not unfinished(record):
                for event_id in released:
                    if not record["events"][event_id]["unhealthy"]:
                        del record["events"][event_id]
            self._write(record)
        return released

    # ---- changes, each of them fenced

    @contextlib.contextmanager
    def change(self, event_ids: t.Collection[str]) -> t.Iterator[tuple[Record, dict[str, Entry]]]:
        """The record, and in it these events, all of which this run has to hold. What is changed is written."""
        with self._locked():
            record = self.folder.read() or _empty(self.now, "")
            own = self._own(record, event_ids)
            lost = [event_id for event_id in event_ids if event_id not in own]
            if lost or not own:
                raise LostClaim({key: record["events"].get(key, {}).get("claim") for key in lost})
            for entry in own.values():
                entry["claim"].update(renewed=self.now, silent_until=self.now + self.run.silent_for)
            yield record, own
            self._write(record)

    def _own(self, record: Record, event_ids: t.Collection[str]) -> dict[str, Entry]:
        entries = {key: entry for key, entry in record["events"].items() if key in event_ids}
        return {key: entry for key, entry in entries.items() if entry["claim"]["run_id"] == self.run.run_id}

    def renew(self, event_ids: t.Collection[str]) -> None:
        """Only the claim: to be called before something is done that the record does not note."""
        with self.change(event_ids):
            pass

    def note_step(self, event_ids: t.Collection[str], step: Step, mark: str = "", detail: str = "") -> None:
        """What is new about a step, found by its phase and name; before and after it is taken."""
        with self.change(event_ids) as (record, _own):
            self._put_step(record, step)
            if step["status"] in (DOING, FAILED):
                _forget_ready(record)
            if mark:
                self._mark(record, mark, detail or step["name"])

    def _put_step(self, record: Record, step: Step) -> None:
        noted = find_step(record, step["phase"], step["name"])
        if noted is None:
            noted = {"message": "", "attempts": 0, "timeout": None, "options": {}, "before": {}, "data": {}}
            record["steps"].append(noted)
        noted.update(step, at=self.now)

    def mark(self, event_ids: t.Collection[str], what: str, detail: str = "") -> None:
        with self.change(event_ids) as (record, _own):
            self._mark(record, what, detail)

    def note_ready(self, event_ids: t.Collection[str], message: str) -> None:
        """Everything was verified. That is marked once, until something else happens on the host."""
        with self.change(event_ids) as (record, own):
            last = itertools.takewhile(lambda mark: mark["what"] == "ready", reversed(record["timeline"]))
            marked = [mark["event_id"] for mark in last]
            for entry in own.values():
                if not entry["ready"] and entry["event"]["event_id"] not in marked:
                    self._mark(record, "ready", message, entry["event"]["event_id"])
                entry["ready"] = self.now

    def note_not_ready(self, event_ids: t.Collection[str]) -> None:
        with self.change(event_ids) as (record, _own):
            _forget_ready(record)

    def note_unhealthy(self, event_ids: t.Collection[str], message: str) -> int:
        """The health checks did not pass. Returns how often that was so; the same reason is marked only once."""
        with self.change(event_ids) as (record, own):
            attempts: int = 1 + max(entry["unhealthy"] for entry in own.values())
            for entry in own.values():
                entry["unhealthy"] = attempts
            last = record["timeline"][-1] if record["timeline"] else {}
            if (last.get("what"), last.get("detail")) != ("failed", clean(message)):
                self._mark(record, "failed", message)
        return attempts

    def note_event(self, event_id: str, mark: str = "", **fields: t.Any) -> None:
        with self.change([event_id]) as (record, own):
            own[event_id].update(fields)
            if mark:
                self._mark(record, mark, "", event_id)

    def close(
        self, event_ids: t.Collection[str], closed: t.Collection[str], mark: str, lapsed: t.Collection[str] = ()
    ) -> Record:
        """Move these events into the history. Returns the record as it was, for the report.

        Events that have lapsed are still announced: they stay, claimed by no run, so that no run drains for them again.
        """
        with self.change(event_ids) as (record, own):
            closing = {event_id: own[event_id] for event_id in closed if event_id in own}
            for event_id, entry in closing.items():
                self._mark(record, mark, "", entry["event"]["event_id"])
                closed_record = {**record, "events": {event_id: entry}, "closed": self.now}
                self.folder.archive(closed_record, event_id, self.now)
            before: Record = {**record, "events": dict(record["events"]), "steps": list(record["steps"])}
            for event_id, entry in closing.items():
                del record["events"][event_id]
                if event_id in lapsed:
                    claim = {**entry["claim"], "silent_until": self.now}
                    record["events"][event_id] = {**entry, "claim": claim, "ready": None, "lapsed": self.now}
            if all(entry["lapsed"] for entry in record["events"].values()):
                record["steps"] = unfinished(record)
            return before

    # ---- what needs no claim

    def note_orphan(self, event: t.Mapping[str, t.Any], step: Step, boot_id: str) -> None:
        """A step that was taken although the claim was lost: remembered, so that the next run undoes it."""
        with self._locked():
            record = self.folder.read() or _empty(self.now, boot_id)
            event_id = same_id(event["event_id"])
            noted = find_step(record, step["phase"], step["name"])
            if noted is None or noted["status"] == UNDONE:
                self._put_step(record, {**step, "status": FAILED})
            elif self._own(record, [event_id]):
                # It is not lost: the event has started.
                return
            if event_id not in record["events"]:
                record["events"][event_id] = self._claimed(record, event, None, None)
                record["events"][event_id]["claim"]["silent_until"] = self.now
            self._mark(record, "failed", f"{step['name']} was taken after the claim was lost", event["event_id"])
            self.folder.write(record)

    def _mark(self, record: Record, what: str, detail: str, event_id: str = "") -> None:
        marks = record["timeline"]
        while len(marks) >= MOST_MARKS:
            # What fails again and again was said often enough.
            failed = (number for number, mark in enumerate(marks) if mark["what"] == "failed")
            del marks[next(failed, MOST_MARKS // 2)]
        marks.append({"at": self.now, "what": what, "detail": clean(detail), "event_id": event_id})
        self._log(clean(f"{what} {detail} {event_id}".strip(), 300))

    def _write(self, record: Record) -> None:
        self.folder.write(record if record["events"] or unfinished(record) else None)

    @contextlib.contextmanager
    def _locked(self) -> t.Iterator[None]:
        with self.explained(), self.folder.locked(self.clock):
            yield

    @contextlib.contextmanager
    def explained(self) -> t.Iterator[None]:
        """An error of the file system is raised with advice."""
        try:
            yield
        except OSError as exc:
            raise EventsError(explain(exc, self.folder.path)) from exc


def _empty(now: float, boot_id: str) -> Record:
    return {"version": VERSION, "events": {}, "steps": [], "timeline": [], "created": now, "boot_id": boot_id}


def _forget_ready(record: Record) -> None:
    """Whichever run has verified that the host is ready: it is not any more."""
    for entry in record["events"].values():
        entry["ready"] = None


def find_step(record: Record, phase: str, name: str) -> Step | None:
    steps: list[Step] = record["steps"]
    return next((step for step in steps if (step["phase"], step["name"]) == (phase, name)), None)


def unfinished(record: Record) -> list[Step]:
    """The steps that were begun and are not undone: one that failed half-way may have done something."""
    return [step for step in record["steps"] if step["status"] != UNDONE]


def compared(record: Record | None) -> str:
    """Equal for records between which nothing was changed on the host.

    To renew a claim or to verify again is no change.
    """
    if record is None:
        return ""
    events = {
        key: (one["claim"]["run_id"], (one["approval"] or {}).get("status")) for key, one in record["events"].items()
    }
    # A step that was done again differs in its mark only.
    marks = [mark["at"] for mark in record["timeline"] if mark["what"] in ("draining", "checkpointed")]
    # From being begun to being done is one change, whichever call sees the end of it.
    steps = [
        (step["phase"], step["name"], "done" if step["status"] == DOING else step["status"]) for step in record["steps"]
    ]
    return hashlib.sha256(json.dumps([events, steps, marks], sort_keys=True).encode()).hexdigest()


def holder(claim: t.Mapping[str, t.Any]) -> Record:
    return {key: claim[key] for key in ("run_name", "since", "silent_until")}


def holder_message(claim: t.Mapping[str, t.Any]) -> str:
    since, until = iso(claim["since"]), iso(claim["silent_until"])
    return f"{clean(claim['run_name'], 80)} (claimed at {since}, claim valid until {until})"
