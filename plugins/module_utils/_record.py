# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What a host remembers: which run has claimed which event, and which steps were taken that must be undone.

The steps belong to the host and not to an event: two events may need the same host drained, and it is put back when the
last of them is gone.
"""

from __future__ import annotations

import contextlib
import typing as t

from ._clock import Clock
from ._document import UNKNOWN, same_id
from ._errors import EventsError
from ._record_files import VERSION, Damaged, Folder, Record, explain
from ._text import clean, iso

UNDONE = "undone"
# A clock that is set back by more than this would keep a dead run's claim alive.
CLOCK_SLACK = 60.0

Step = t.Dict[str, t.Any]


class Run(t.NamedTuple):
    """Who acts: a run of the playbook, or the watcher."""

    run_id: str
    run_name: str
    silent_for: float = 120.0
    force: bool = False


class LostClaim(EventsError):
    """Another run has the event: this one must not act any more."""

    def __init__(self, claim: t.Mapping[str, t.Any] | None) -> None:
        said = holder_message(claim) if claim else "nobody: the record was closed"
        super().__init__(
            f"This run does not hold the claim any more. It is held by {said}. Nothing was done.",
            state="held_by_other_run",
        )
        self.holder = None if claim is None else holder(claim)


def to_system_log(text: str) -> None:
    try:
        import syslog
    except ImportError:
        return
    syslog.openlog("graceful.azure")
    syslog.syslog(syslog.LOG_NOTICE, text)


class Keeper:
    """Reads and changes the record on behalf of one run. Every change is made under the lock, and is fenced."""

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
        """The record as it is, without the lock: a file is always whole."""
        with self._explained():
            self.folder.inspect()
            return self.folder.read()

    def probe(self) -> None:
        """Raises if no record could be written. The directory is made."""
        with self._locked():
            self.folder.probe()

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
                    # It was missing for a moment only: the next time begins anew.
                    record["events"][event_id].update(gone=None, gone_reads=0)
            self._write(record)
        return held, warnings

    def _read_or_set_aside(self) -> tuple[Record | None, list[str]]:
        try:
            return self.folder.read(), []
        except Damaged as exc:
            if not self.run.force:
                raise
            aside = self.folder.set_aside(exc.file, self.now)
            return None, [
                f"{exc.file} could not be used as a record and was set aside as {aside}. What an earlier run did on "
                "this host is not known: look into that file, and undo by hand what it did."
            ]

    def is_stale(self, claim: Record) -> bool:
        """Also if the clock was set back since: a claim must end some day."""
        now = self.now
        if claim["renewed"] - now > CLOCK_SLACK:
            claim.update(silent_until=now + claim["silent_until"] - claim["renewed"], renewed=now)
        return bool(now > claim["silent_until"])

    def _claimed(
        self, record: Record, event: t.Mapping[str, t.Any], entry: Record | None, other: Record | None
    ) -> Record:
        blank = {"ready": None, "started": None, "gone": None, "gone_reads": 0, "gave_up": None, "approval": None}
        fresh: Record = {**blank, "noticed": self.now, "lapsed": None, **(entry or {})}
        known = entry["event"] if entry else {"event_type": UNKNOWN}
        fresh["event"] = {**known, **{key: value for key, value in event.items() if value is not None}}
        mine = entry["claim"] if entry and not other else None
        fresh["claim"] = {
            "run_id": self.run.run_id,
            "run_name": self.run.run_name,
            "since": mine["since"] if mine else self.now,
            "renewed": self.now,
            "silent_until": self.now + self.run.silent_for,
        }
        if not mine:
            # Another run's verification does not count for this one.
            fresh.update(ready=None, gave_up=None)
            by = self.run.run_name + (f", taken over from {holder_message(other)}" if other else "")
            self._mark(record, "claimed", by, event["event_id"])
        return fresh

    @contextlib.contextmanager
    def change(self, event_ids: t.Collection[str]) -> t.Iterator[Record]:
        """The record, to be changed under the lock: only while this run holds the claim of one of these events."""
        with self._locked():
            record = self.folder.read()
            entries = [] if record is None else [entry for key, entry in record["events"].items() if key in event_ids]
            mine = [entry for entry in entries if entry["claim"]["run_id"] == self.run.run_id]
            if record is None or not mine:
                raise LostClaim(entries[0]["claim"] if entries else None)
            for entry in mine:
                entry["claim"].update(renewed=self.now, silent_until=self.now + self.run.silent_for)
            yield record
            self._write(record)

    def note_step(self, event_ids: t.Collection[str], step: Step, mark: str = "", detail: str = "") -> None:
        """What is new about a step, found by its phase and name; before and after it is taken."""
        with self.change(event_ids) as record:
            self._put_step(record, step)
            if mark:
                self._mark(record, mark, detail or step["name"])

    def _put_step(self, record: Record, step: Step) -> None:
        noted = find_step(record, step["phase"], step["name"])
        if noted is None:
            noted = {"message": "", "attempts": 0, "timeout": None, "options": {}, "before": {}, "data": {}}
            record["steps"].append(noted)
        noted.update(step, at=self.now)

    def mark(self, event_ids: t.Collection[str], what: str, detail: str = "") -> None:
        with self.change(event_ids) as record:
            self._mark(record, what, detail)

    def note_event(self, event_ids: t.Collection[str], event_id: str, mark: str = "", **fields: t.Any) -> None:
        with self.change(event_ids) as record:
            entry = record["events"].get(same_id(event_id))
            if entry is not None:
                entry.update(fields)
                if mark:
                    self._mark(record, mark, "", event_id)

    def note_orphan(self, event: t.Mapping[str, t.Any], step: Step, boot_id: str) -> None:
        """A step that was taken although the claim was lost: remembered, so that the next run undoes it."""
        with self._locked():
            record = self.folder.read() or _empty(self.now, boot_id)
            noted = find_step(record, step["phase"], step["name"])
            if noted is None or noted["status"] == UNDONE:
                self._put_step(record, {**step, "status": "failed"})
            event_id = same_id(event["event_id"])
            if event_id not in record["events"]:
                record["events"][event_id] = self._claimed(record, event, None, None)
                record["events"][event_id]["claim"]["silent_until"] = self.now
            self._mark(record, "failed", f"{step['name']} was taken after the claim was lost", event["event_id"])
            self.folder.write(record)

    def close(
        self, event_ids: t.Collection[str], closed: t.Collection[str], mark: str, lapsed: t.Collection[str] = ()
    ) -> Record:
        """Move these events into the history. Returns the record as it was, for the report.

        Those that have lapsed still stand: they stay, in nobody's hands, so that no run drains for them again."""
        with self.change(event_ids) as record:
            for event_id in closed:
                entry = record["events"].get(event_id)
                if entry is not None:
                    self._mark(record, mark, "", entry["event"]["event_id"])
                    whole = {**record, "events": {event_id: entry}, "closed": self.now}
                    self.folder.archive(whole, event_id, self.now)
            before: Record = {**record, "events": dict(record["events"]), "steps": list(record["steps"])}
            for event_id in closed:
                entry = record["events"].pop(event_id, None)
                if entry is not None and event_id in lapsed:
                    claim = {**entry["claim"], "silent_until": self.now}
                    record["events"][event_id] = {**entry, "claim": claim, "ready": None, "lapsed": self.now}
            if all(entry["lapsed"] for entry in record["events"].values()):
                record["steps"] = unfinished(record)
            return before

    def release(self, event_ids: t.Collection[str]) -> list[str]:
        """Give the claims back. Where something is not undone, the record stays, for another run to take over."""
        released = []
        with self._locked():
            record = self.folder.read()
            if record is None:
                return []
            for event_id in event_ids:
                entry = record["events"].get(event_id)
                if entry is None or entry["claim"]["run_id"] != self.run.run_id:
                    continue
                released.append(event_id)
                entry["claim"]["silent_until"] = self.now
                self._mark(record, "released", self.run.run_name, entry["event"]["event_id"])
            if not unfinished(record):
                for event_id in released:
                    del record["events"][event_id]
            self._write(record)
        return released

    def _mark(self, record: Record, what: str, detail: str, event_id: str = "") -> None:
        record["timeline"].append({"at": self.now, "what": what, "detail": clean(detail), "event_id": event_id})
        self._log(clean(f"{what} {detail} {event_id}".strip(), 300))

    def _write(self, record: Record) -> None:
        self.folder.write(record if record["events"] or unfinished(record) else None)

    @contextlib.contextmanager
    def _locked(self) -> t.Iterator[None]:
        with self._explained(), self.folder.locked(self.clock):
            yield

    @contextlib.contextmanager
    def _explained(self) -> t.Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise EventsError(explain(exc, self.folder.path)) from exc


def _empty(now: float, boot_id: str) -> Record:
    return {"version": VERSION, "events": {}, "steps": [], "timeline": [], "created": now, "boot_id": boot_id}


def find_step(record: Record, phase: str, name: str) -> Step | None:
    steps: list[Step] = record["steps"]
    return next((step for step in steps if (step["phase"], step["name"]) == (phase, name)), None)


def unfinished(record: Record) -> list[Step]:
    """The steps that were begun and are not undone: one that failed half-way may have done something."""
    return [step for step in record["steps"] if step["status"] != UNDONE]


def holder(claim: t.Mapping[str, t.Any]) -> Record:
    return {key: claim[key] for key in ("run_name", "since", "silent_until")}


def holder_message(claim: t.Mapping[str, t.Any]) -> str:
    since, until = iso(claim["since"]), iso(claim["silent_until"])
    return f"{clean(claim['run_name'], 80)} (since {since}, may be silent until {until})"
