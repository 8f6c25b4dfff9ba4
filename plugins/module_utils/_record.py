# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The record that a host keeps of an event: which run has it in hand, and what was done that must be undone."""

from __future__ import annotations

import os
import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._document import same_id
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._record_files import (
    STATUSES,
    VERSION,
    Damaged,
    Folder,
    Record,
    file_name,
    is_step,
    is_time,
    shown,
    words,
)

UNDONE = "undone"
SILENT_FOR = 900.0
LONGEST_SILENCE = 30 * 24 * 3600.0
LONGEST_ID = 200
# A clock that is set back by more than this would keep a dead run's claim alive.
CLOCK_SLACK = 60.0
GOES_WITH = {
    "event": ("claimed",),
    "step": ("noted",),
    "mark": ("claimed", "noted", "released"),
    "heir": ("released",),
}


class Wish(t.NamedTuple):
    """The module's options, but for the directory."""

    state: str = "listed"
    event_id: str = ""
    event: t.Mapping[str, t.Any] | None = None
    run_id: str = ""
    run_name: str | None = None
    phase: str | None = None
    silent_for: float | None = None
    force: bool = False
    step: t.Mapping[str, t.Any] | None = None
    mark: t.Mapping[str, t.Any] | None = None
    heir: str | None = None

    def checked(self) -> Wish:
        for option, states in GOES_WITH.items():
            if getattr(self, option) is not None and self.state not in states:
                raise WrongOption(f"{option} goes with state={' or '.join(states)}, not with state={self.state}.")
        for option in ("event_id", "run_id", "heir"):
            value = getattr(self, option)
            may_be_empty = self.state == "listed" or value is None
            if not may_be_empty and not 0 < len(value.strip()) <= LONGEST_ID:
                raise WrongOption(f"state={self.state} needs {option}, a text of 1 to {LONGEST_ID} characters.")
        if self.silent_for is not None and not 0 < self.silent_for <= LONGEST_SILENCE:
            raise WrongOption(f"silent_for has to be more than 0 and at most {LONGEST_SILENCE:.0f} seconds.")
        inner = self.event_id if self.event is None else self.event.get("event_id", self.event_id)
        if not isinstance(inner, str) or same_id(inner) != same_id(self.event_id):
            raise WrongOption(f"event_id is {shown(self.event_id)}, but event is about {shown(inner)}. Give one event.")
        if self.heir is not None and same_id(self.heir) == same_id(self.event_id):
            raise WrongOption("heir is the event itself. Name the event that takes its place, or undo the steps.")
        return self if self.step is None else self._replace(step=_checked_step(self.step))


def _checked_step(given: t.Mapping[str, t.Any]) -> Record:
    """What was said about a step; a name or message that a template has made a number is a text again."""
    said = {key: value for key, value in given.items() if value is not None}
    said = {key: str(value) if isinstance(value, (int, float)) else value for key, value in said.items()}
    whole = {"phase": "", "kind": "", "message": "", "data": {}, **said}
    if "at" in said or len(whole) != 6 or not is_step({**whole, "at": 0}) or not said["name"]:
        raise WrongOption(
            f"step needs a name and a status, which is one of {', '.join(STATUSES)}. It may have the texts phase, kind "
            "and message, and a dictionary data, but nothing else. Nothing was noted."
        )
    return said


class Outcome:
    def __init__(self, **result: t.Any) -> None:
        self.result: dict[str, t.Any] = {"changed": False, **result}
        self.warnings: list[str] = []
        self.journal: str | None = None


def to_system_journal(text: str) -> None:
    try:
        import syslog
    except ImportError:
        return
    syslog.openlog("graceful.azure")
    syslog.syslog(syslog.LOG_NOTICE, text)


def keep_record(
    directory: str,
    wish: Wish,
    check_mode: bool = False,
    clock: Clock | None = None,
    journal: t.Callable[[str], None] = to_system_journal,
) -> Outcome:
    """Do what the options ask for, or say why not. In check mode everything but the writing."""
    wish = wish.checked()
    clock = clock or Clock()
    folder = Folder(directory, check_mode)
    try:
        folder.inspect()
        if wish.state == "listed":
            return _list(folder, wish, clock.utc_now().timestamp())
        act = {"claimed": _claim, "noted": _note, "released": _release}[wish.state]
        with folder.locked(clock):
            outcome = act(folder, wish, clock.utc_now().timestamp())
    except OSError as exc:
        raise EventsError(words(exc, directory)) from exc
    if outcome.journal and not check_mode:
        journal(f"event {shown(wish.event_id)}: {outcome.journal}")
    return outcome


def _list(folder: Folder, wish: Wish, now: float) -> Outcome:
    records: list[Record] = []
    outcome = Outcome(records=records)
    for name in folder.names():
        if wish.event_id and name != file_name(wish.event_id):
            continue
        file = os.path.join(folder.path, name)
        try:
            record = folder.read_file(name)
        except Damaged as exc:
            outcome.warnings.append(exc.message)
            records.append({"damaged": True, "file": file, "message": exc.message})
        else:
            if record is not None and record["finished"] is None:
                records.append({**record, "file": file, "stale": _is_stale(record["claim"], now)})
    records.sort(key=lambda record: record.get("created", 0))
    return outcome


def _claim(folder: Folder, wish: Wish, now: float) -> Outcome:
    outcome = Outcome(claimed=True, took_over=False, holder=None)
    before = _read_or_set_aside(folder, wish, outcome, now)
    claim = before["claim"] if before and before["finished"] is None else None
    mine = claim if claim and claim["run_id"] == wish.run_id else None
    other = None if mine else claim
    if before and other and not wish.force and not _is_stale(other, now):
        return _held(folder, before, now)

    record = before or {"version": VERSION, "event": {}, "steps": [], "timeline": [], "created": now}
    event = {"event_id": wish.event_id, **(wish.event or record["event"])}
    record = {**record, "event": event, "claim": _renewed(mine, wish, now), "finished": None}
    who = shown(record["claim"]["run_name"])
    if other:
        who += f", taken over from {_holder_words(other)}"
        outcome.result["took_over"] = True
    mark = wish.mark
    if mine:
        outcome.journal = f"claim renewed by {who}"
    else:
        outcome.journal = f"claimed by {who}"
        given = mark if mark and mark["what"] == "claimed" else {}
        record = _marked(record, {**given, "what": "claimed", "detail": given.get("detail") or who}, now)
        mark = None if given else mark
    return _kept(folder, outcome, before, _marked(record, mark, now))


def _read_or_set_aside(folder: Folder, wish: Wish, outcome: Outcome, now: float) -> Record | None:
    try:
        return folder.read(wish.event_id)
    except Damaged as exc:
        if not wish.force:
            raise
        aside = folder.set_aside(exc.file, now)
        outcome.result["took_over"] = True
        outcome.warnings.append(
            f"{exc.file} could not be used as a record and was set aside as {aside}. What an earlier run did on this "
            "host for the event is not known: look into that file, and undo by hand what it did."
        )
        return None


def _held(folder: Folder, record: Record, now: float) -> Outcome:
    """Another run's claim stands. If the clock was set back, its silence counts from now, so that it ends some day."""
    claim = record["claim"]
    set_back = claim["renewed"] - now > CLOCK_SLACK
    if set_back:
        claim = {**claim, "renewed": now, "silent_until": now + claim["silent_until"] - claim["renewed"]}
        record = {**record, "claim": claim}
        folder.write(record)
    outcome = Outcome(claimed=False, took_over=False, holder=_holder(claim), record=record)
    outcome.result["msg"] = f"Not claimed: the event is in the hands of {_holder_words(claim)}."
    if set_back:
        outcome.warnings.append(
            "This host's clock was set back since the event was claimed, so the time that the claim may be silent "
            f"starts anew: until {_iso(claim['silent_until'])}."
        )
    return outcome


def _note(folder: Folder, wish: Wish, now: float) -> Outcome:
    before = folder.read(wish.event_id)
    if before is None:
        raise EventsError(
            f"There is no record of event {shown(wish.event_id)} in {folder.path}, nothing was noted. Claim the event "
            "first (state=claimed); if it was released meanwhile, its record is in history/.",
            claimed=False,
            holder=None,
        )
    _demand_own(before, wish)
    claim = _renewed(before["claim"], wish, now)
    record = _marked({**before, "claim": claim}, wish.mark, now)
    outcome = Outcome(claimed=True, took_over=False, holder=None)
    outcome.journal = f"{shown(claim['run_name'])}, phase {shown(claim['phase'])}"
    if wish.step is not None:
        record = _with_step(record, wish.step, now)
        outcome.journal += f"; step {shown(wish.step['name'])} is {wish.step['status']}"
    if wish.mark is not None:
        outcome.journal += f"; {shown(wish.mark['what'])} {shown(wish.mark.get('detail') or '')}"
    return _kept(folder, outcome, before, record)


def _release(folder: Folder, wish: Wish, now: float) -> Outcome:
    outcome = Outcome(claimed=False, took_over=False, holder=None, record=None)
    record = folder.read(wish.event_id)
    if record is None:
        outcome.result["msg"] = f"There is no record of event {shown(wish.event_id)} in {folder.path}, nothing to do."
        return outcome
    _demand_own(record, wish)
    record = _marked(record, wish.mark, now)
    left = [step for step in record["steps"] if step["status"] != UNDONE]
    if left:
        record = _bequeathed(folder, wish, record, left, now)
    record["finished"] = now
    folder.archive(record)
    outcome.result.update(changed=True, record=record)
    outcome.journal = f"released by {shown(record['claim']['run_name'])}"
    return outcome


def _bequeathed(folder: Folder, wish: Wish, record: Record, left: list[Record], now: float) -> Record:
    """Hand the steps on. They win over the heir's own of that name: they know how it was before anything was done."""
    names = ", ".join(f"{shown(step['phase'])}/{shown(step['name'])} ({step['status']})" for step in left)
    refusal = f"Event {shown(wish.event_id)} is not released: not undone on this host: {names}. "
    if wish.heir is None:
        advice = "Undo and note them as undone, or name the event that takes its place as heir."
        raise EventsError(refusal + advice, record=record)
    heir = folder.read(wish.heir)
    if heir is None:
        advice = f"The heir {shown(wish.heir)} has no record that could take them over: claim it first."
        raise EventsError(refusal + advice, record=record)
    inherited = {_key(step) for step in left}
    heir["steps"] = left + [step for step in heir["steps"] if _key(step) not in inherited]
    folder.write(_marked(heir, {"what": "inherited", "detail": f"from event {wish.event_id}: {names}"}, now))
    record["steps"] = [step for step in record["steps"] if step["status"] == UNDONE]
    return _marked(record, {"what": "bequeathed", "detail": f"to event {wish.heir}: {names}"}, now)


def _kept(folder: Folder, outcome: Outcome, before: Record | None, record: Record) -> Outcome:
    folder.write(record)
    outcome.result.update(record=record, changed=before is None or _substance(before) != _substance(record))
    return outcome


def _substance(record: Record) -> Record:
    """A record without what merely says that time has passed."""
    claim = {key: record["claim"][key] for key in ("run_id", "run_name", "phase")}
    event = {key: value for key, value in record["event"].items() if key != "seconds_left"}
    return {**record, "claim": claim, "event": event}


def _renewed(mine: Record | None, wish: Wish, now: float) -> Record:
    silent_for = wish.silent_for or (mine["silent_until"] - mine["renewed"] if mine else SILENT_FOR)
    return {
        "run_id": wish.run_id,
        "run_name": wish.run_name or (mine["run_name"] if mine else wish.run_id),
        "phase": wish.phase or (mine["phase"] if mine else "claimed"),
        "since": mine["since"] if mine else now,
        "renewed": now,
        "silent_until": now + silent_for,
    }


def _is_stale(claim: Record, now: float) -> bool:
    return bool(now > claim["silent_until"])


def _demand_own(record: Record, wish: Wish) -> None:
    claim = record["claim"]
    if claim["run_id"] != wish.run_id:
        raise EventsError(
            f"Event {shown(wish.event_id)} is not in this run's hands but in those of {_holder_words(claim)}; nothing "
            "was written. Leave it to that run. If that run is dead, claim the event once that time is over, or with "
            "force=true.",
            claimed=False,
            holder=_holder(claim),
        )


def _holder(claim: Record) -> Record:
    return {key: claim[key] for key in ("run_name", "phase", "since", "silent_until")}


def _holder_words(claim: Record) -> str:
    since, until = _iso(claim["since"]), _iso(claim["silent_until"])
    return f"{shown(claim['run_name'])} (phase {shown(claim['phase'])}, since {since}, may be silent until {until})"


def _key(step: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return step["phase"], step["name"]


def _with_step(record: Record, said: t.Mapping[str, t.Any], now: float) -> Record:
    """What is new about a step goes into the one of that phase and name; the same again keeps its time."""
    said = {"phase": record["claim"]["phase"], **said}
    old = next((step for step in record["steps"] if _key(step) == _key(said)), None)
    if old is None:
        new = {"kind": "", "at": now, "message": "", "data": {}, **said}
        return {**record, "steps": [*record["steps"], new]}
    new = old if {**old, **said} == old else {**old, **said, "at": now}
    return {**record, "steps": [new if step is old else step for step in record["steps"]]}


def _marked(record: Record, mark: t.Mapping[str, t.Any] | None, now: float) -> Record:
    if mark is None:
        return record
    at = now if mark.get("at") is None else mark["at"]
    if not is_time(at):
        raise WrongOption("mark.at has to be a time in seconds since 1970; leave it out to mean now.")
    entry = {"at": at, "what": mark["what"], "detail": mark.get("detail") or ""}
    return record if entry in record["timeline"] else {**record, "timeline": [*record["timeline"], entry]}


def _iso(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
