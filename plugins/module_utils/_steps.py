# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Takes the steps of a drain and the checkpoints, and undoes them. Each is noted before and after, under the claim."""

from __future__ import annotations

import contextlib
import hashlib
import typing as t

from . import _checkpoints, _drains
from ._errors import EventsError
from ._kind import LINUX, Kind, Runner, StepRecord, Tools
from ._patience import Late, Patience
from ._record import Keeper, LostClaim, find_step, unfinished
from ._text import clean, count, duration, is_masked, quoted

if t.TYPE_CHECKING:
    from ._look import Order

Json = t.Dict[str, t.Any]
Progress = t.Callable[[str], None]
DRAIN, CHECKPOINT = "drain", "checkpoint"
LOADERS: t.Mapping[str, t.Callable[[str], type[Kind]]] = {DRAIN: _drains.load, CHECKPOINT: _checkpoints.load}
WORDS = {DRAIN: "Drain step", CHECKPOINT: "Checkpoint"}
# Never more often than this, and then ever more rarely.
PAUSES = (10.0, 20.0, 40.0, 60.0)
LEFT_OUT = "it was out of service before the event, and is left so"
# Of a machine that is taken away, what is saved in spite of a failed drain is better than nothing.
TAKEN_AWAY = ("preempt", "terminate")


class Failed(Exception):
    """A step failed, which was noted."""

    def __init__(self, result: Json) -> None:
        super().__init__(result["message"])
        self.result = result


class Next(Exception):
    """The controller has to take the next step."""

    def __init__(self, step: Json) -> None:
        super().__init__(step["name"])
        message = f"the controller takes the step {quoted(step['name'])}"
        self.result = {"state": "next", "message": message, "next": step}


def resting(record: Json, now: float, since: float = 0.0) -> Json | None:
    """What failed since then and may not be tried again yet; `next_try` says in how many seconds it may."""
    # If the clock was set back since, a failure in the future is not waited for.
    failed = [step for step in record["steps"] if step["status"] == "failed" and since <= step["at"] <= now]
    last = max(failed, key=lambda step: float(step["at"] + _pause(step["attempts"])), default=None)
    left = last["at"] + _pause(last["attempts"]) - now if last else 0.0
    if last is None or left <= 0:
        return None
    return {**_failure(last["phase"], last, last["message"], False, last["attempts"]), "next_try": left, "tried": False}


def undoing_since(record: Json, now: float) -> float:
    """What failed before that is no reason to wait with undoing."""
    return min((float(mark["at"]) for mark in record["timeline"] if mark["what"] == "restoring"), default=now + 1)


def _pause(attempts: int) -> float:
    return PAUSES[min(max(attempts, 1), len(PAUSES)) - 1]


def archive_name(name: str, platform: str = LINUX) -> str:
    """A file name that nothing in an item's name can change the place of."""
    ending = ".tar.gz" if platform == LINUX else ".zip"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:20] + ending


class Steps:
    def __init__(self, order: Order, keeper: Keeper, mine: t.Sequence[str], progress: Progress, run: Runner) -> None:
        self._order = order
        self._keeper = keeper
        self._mine = mine
        self._progress = progress
        self._run = run
        self._until = keeper.clock.monotonic() + order.seconds
        self._answer = order.controller_step
        self._record = keeper.read() or {"events": {}, "steps": [], "timeline": []}

    @property
    def _entries(self) -> list[Json]:
        return [self._record["events"][event_id] for event_id in self._mine if event_id in self._record["events"]]

    # ---- draining and saving

    def get_ready(self) -> Json:
        entries = self._entries
        gave_up = next((entry["gave_up"] for entry in entries if entry["gave_up"]), "")
        if gave_up:
            return self._give_up(gave_up)
        if not any(entry["ready"] for entry in entries) and not unfinished(self._record):
            self._keeper.mark(self._mine, "draining", f"{duration(self._order.seconds)} for it")
        try:
            failure = self._all(DRAIN, self._order.steps)
            if failure is None or any(entry["event"]["event_type"].lower() in TAKEN_AWAY for entry in entries):
                failure = self._all(CHECKPOINT, self._order.checkpoint) or failure
        except Next as exc:
            self._note_events(ready=None)
            return exc.result
        if failure is not None:
            self._note_events(ready=None)
            return self._give_up(failure["message"]) if self._order.undo_on_failure else failure
        return self._note_ready()

    def _all(self, phase: str, items: t.Sequence[Json]) -> Json | None:
        """Take the steps in order, up to the first that fails; None if none does."""
        try:
            for item in items:
                self._take(phase, item)
        except Failed as exc:
            return exc.result
        return None

    def _note_ready(self) -> Json:
        message = f"{count(len(self._order.steps), 'step')} done, {len(self._order.checkpoint)} saved, all verified"
        with self._claimed() as (record, entries):
            for entry in entries:
                if not entry["ready"]:
                    at = {"at": self._keeper.now, "what": "ready", "detail": message}
                    record["timeline"].append({**at, "event_id": entry["event"]["event_id"]})
                entry["ready"] = self._keeper.now
        return {"state": "ready", "message": message}

    @contextlib.contextmanager
    def _claimed(self) -> t.Iterator[tuple[Json, list[Json]]]:
        """The record, to be changed, and what it says of the events that this run still has the claim of."""
        with self._keeper.change(self._mine) as record:
            entries = [record["events"][event_id] for event_id in self._mine if event_id in record["events"]]
            yield record, [entry for entry in entries if entry["claim"]["run_id"] == self._keeper.run.run_id]

    def _note_events(self, **fields: t.Any) -> None:
        with self._claimed() as (_record, entries):
            for entry in entries:
                entry.update(fields)

    def _give_up(self, message: str) -> Json:
        """A failed drain is undone at once, if that was asked for; it is not tried again by this run."""
        # Noted first: what is undone only half must never look like a drain under way.
        self._note_events(gave_up=message)
        try:
            self._undo_all(lost=False, check=bool(unfinished(self._record)))
            then = "What was done is undone."
        except Next as exc:
            return {**exc.result, "message": message}
        except Failed as exc:
            then = f"Undoing it failed, too: {exc.result['message']}"
        return {"state": "failed", "message": f"{message} {then}", "final": True}

    def _take(self, phase: str, item: Json) -> None:
        name, kind = item["name"], LOADERS[phase](item["kind"])
        noted = self._noted(phase, name)
        if noted is not None and noted["kind"] != item["kind"]:
            message = (
                f"it is of kind {item['kind']}, but an earlier run took one of that name and of kind "
                f"{clean(noted['kind'], 40)} that is not undone. Give the new one another name"
            )
            raise Failed(_failure(phase, item, message, False, 0))
        step = {"phase": phase, "name": name, "kind": item["kind"], "timeout": item.get("timeout")}
        step["options"] = item["options"]
        with self._failure_noted(step):
            if kind.by_controller:
                self._ask_controller(kind, step, noted)
            elif phase == CHECKPOINT:
                self._save(kind, step, noted)
            else:
                self._drain(kind, step, noted)

    def _drain(self, kind: type[Kind], step: Json, noted: Json | None) -> None:
        work = kind(self._options(step), self._tools(step, noted))
        look = work.look()
        if noted and noted["status"] == "done" and look.done:
            return
        before = _before(kind, step, noted, look.before)
        self._note_doing(step, noted, before)
        done = work.do()
        self._demand_in_time(done.message)
        self._note({**step, "status": "done", "message": done.message, "data": done.data}, "draining", done.message)

    def _note_doing(self, step: Json, noted: Json | None, before: Json) -> None:
        again = noted is not None and noted["status"] == "done" and step["phase"] == DRAIN
        for saved in unfinished(self._record) if again else ():
            if saved["phase"] == CHECKPOINT and saved["status"] == "done":
                # It was in service again since, and may have written something: that has to be saved, too.
                self._note({**_key(saved), "status": "doing"})
        self._note({**step, "status": "doing", "message": "", "before": before, "data": {}})

    def _save(self, kind: type[Kind], step: Json, noted: Json | None) -> None:
        if self._answers(step, "fetch"):
            # Fetched by the controller: what is on the host only is not saved yet.
            self._demand_answer()
            self._note({**step, "status": "done", "message": noted["message"] if noted else ""}, "checkpointed")
            return
        work = kind(self._options(step), self._tools(step, noted))
        same = noted is not None and noted["status"] == "done" and noted["options"] == step["options"]
        if noted and same and work.is_saved(StepRecord(noted["before"], noted["data"], False)):
            return
        self._note({**step, "status": "doing", "message": "", "before": {}, "data": {}})
        try:
            done = work.do()
        except EventsError:
            if noted and noted["data"]:
                # What was saved before is still there, and better than nothing.
                self._note({**_key(step), "status": "doing", "data": noted["data"]})
            raise
        self._demand_in_time(done.message)
        if done.data.get("fetched"):
            self._note({**step, "status": "doing", "message": done.message, "data": done.data})
            raise Next(self._for_controller(step, "fetch", archive=done.data["archive"]))
        self._note({**step, "status": "done", "message": done.message, "data": done.data}, "checkpointed", done.message)

    # ---- steps that the controller takes

    def _ask_controller(self, kind: type[Kind], step: Json, noted: Json | None) -> None:
        done = noted is not None and noted["status"] == "done"
        if noted and step["phase"] == CHECKPOINT and noted["options"] != step["options"]:
            done = False
        if done and noted and 0 <= self._keeper.now - noted["at"] < self._order.fresh:
            return
        if self._answers(step, "verify"):
            answer, self._answer = self._answer or {}, None
            if answer.get("ok"):
                self._note({**step, "status": "done", "message": str(answer.get("message") or "")})
                return
            done = False
        if self._answers(step, "do"):
            message = self._demand_answer()
            self._note(
                {**step, "status": "done", "message": message},
                "checkpointed" if step["phase"] == CHECKPOINT else "draining",
                message,
            )
            return
        if done:
            raise Next(self._for_controller(step, "verify"))
        looked = dict(self._order.looked.get(step["name"]) or {})
        if kind.looks_first and not looked and not _begun(noted):
            raise Next(self._for_controller(step, "look"))
        if looked.get("error"):
            raise EventsError(str(looked["error"]))
        before = _before(kind, step, noted, looked)
        self._note_doing(step, noted, before)
        raise Next(self._for_controller(step, "do"))

    def _answers(self, step: Json, mode: str) -> bool:
        answer = self._answer or {}
        asked = (answer.get("phase"), answer.get("name"), answer.get("mode"))
        return asked == (step["phase"], step["name"], mode)

    def _answer_or_ask(self, step: Json, mode: str, **more: t.Any) -> str:
        if not self._answers(step, mode):
            raise Next(self._for_controller(step, mode, **more))
        return self._demand_answer()

    def _demand_answer(self) -> str:
        answer, self._answer = self._answer or {}, None
        message = clean(answer.get("message") or "")
        if not answer.get("ok"):
            raise Late(message) if answer.get("late") else EventsError(message or "the controller gave no reason")
        return message

    def _for_controller(self, step: Json, mode: str, **more: t.Any) -> Json:
        return {**_key(step), "mode": mode, "seconds": self._left(step), **more}

    # ---- putting back

    def put_back(self) -> Json:
        lost = any(entry["event"]["event_type"].lower() != "freeze" and entry["started"] for entry in self._entries)
        if not any(mark["what"] == "restoring" for mark in self._record["timeline"]):
            self._keeper.mark(self._mine, "restoring")
        try:
            self._undo_all(lost, check=bool(self._record["steps"]))
        except (Next, Failed) as exc:
            return exc.result
        self._clean_up()
        closed = self._keeper.close(self._mine, self._mine, "restored", self._order.lapsed)
        return {"state": "put_back", "message": "everything is undone and the host is well", "closed": closed}

    def _undo_all(self, lost: bool, check: bool) -> None:
        """Bring back what was lost, undo last first, check the health, and let traffic return last."""
        left = unfinished(self._record)
        drained = [step for step in reversed(left) if step["phase"] == DRAIN]
        carries = {step["name"]: self._kind_of(step).carries_traffic for step in drained}
        for step in left:
            if step["phase"] == CHECKPOINT:
                self._undo(step, lost)
        for step in drained:
            if not carries[step["name"]]:
                self._undo(step, lost)
        if check:
            self._check_health()
        for step in drained:
            if carries[step["name"]]:
                self._undo(step, lost)

    def _clean_up(self) -> None:
        # Not before all of it is noted as undone: a call that is cut off needs it again.
        for step in self._record["steps"]:
            # What cannot be cleaned up, or not in time, does not keep the host out of service.
            with contextlib.suppress(EventsError, Failed):
                work = self._kind_of(step)(self._options(step), self._tools(step, step))
                work.clean_up(StepRecord(step["before"], step["data"], False))

    def _kind_of(self, step: Json) -> type[Kind]:
        try:
            return LOADERS[step["phase"]](step["kind"])
        except (EventsError, KeyError):
            message = f"the record has a step of kind {quoted(step['kind'])}, which is not known here"
            raise Failed(_failure(step["phase"], step, message, False, 1)) from None

    def _undo(self, step: Json, lost: bool) -> None:
        kind = self._kind_of(step)
        with self._failure_noted(step):
            if not _begun(step):
                message = "it was never begun"
            elif not step["before"].get("in_service", True):
                message = LEFT_OUT
            elif kind.by_controller and step["phase"] == CHECKPOINT:
                message = "nothing to undo"
            elif kind.by_controller:
                message = self._answer_or_ask(step, "undo", before=step["before"], options=step["options"])
            else:
                message = self._undo_here(kind, step, lost)
            self._note({**_key(step), "status": "undone", "message": message}, "restoring", message)

    def _undo_here(self, kind: type[Kind], step: Json, lost: bool) -> str:
        if step["data"].get("fetched"):
            self._answer_or_ask(step, "send", archive=step["data"]["archive"])
        # Noted, which is the fence: nothing is undone by a run that has lost its claim.
        self._note({**_key(step), "status": step["status"]})
        return kind(self._options(step), self._tools(step, step)).undo(StepRecord(step["before"], step["data"], lost))

    def _check_health(self) -> None:
        from . import _health_checks

        items = [
            {**item, **self._order.secrets.get(f"health/{number}", {})}
            for number, item in enumerate(self._order.health)
        ]
        try:
            if self._order.health_mistake:
                raise EventsError(self._order.health_mistake)
            _health_checks.check(items, self._keeper.clock, self._run, self._progress)
        except EventsError as exc:
            self._keeper.mark(self._mine, "failed", exc.message)
            result = {"state": "failed", "message": f"The host is not well: {exc.message}", "attempts": 1}
            raise Failed({**result, "step": "health"}) from exc

    # ---- what all steps need

    def _options(self, step: Json) -> Json:
        secrets = self._order.secrets.get(f"{step['phase']}/{step['name']}", {})
        lost = next((key for key, value in step["options"].items() if key not in secrets and is_masked(value)), "")
        if lost:
            raise EventsError(
                f"{lost} has a URL whose secret part is never noted. Write the step down again as it was, or undo it "
                "by hand and remove the host's record"
            )
        return {**step["options"], **secrets}

    def _left(self, step: Json) -> float:
        left = self._until - self._keeper.clock.monotonic()
        left = min(left, float(step["timeout"])) if step.get("timeout") else left
        if left <= 0:
            raise Late("no time is left for it")
        return left

    def _tools(self, step: Json, noted: Json | None) -> Tools:
        def tell(message: str) -> None:
            self._progress(f"{step['name']}: {clean(message, 200)}")

        patience = Patience(self._left(step), self._keeper.clock, tell)
        self._progress(f"{step['name']} ({step['kind']})")
        directory, file_name = self._order.checkpoint_dir, archive_name(step["name"])
        return Tools(patience, self._run, _begun(noted), directory, file_name)

    def _demand_in_time(self, message: str) -> None:
        if self._keeper.clock.monotonic() > self._until:
            raise Late(f"it ended, but only after its time: {message}")

    def _note(self, step: Json, mark: str = "", detail: str = "") -> None:
        step = {**step, "message": clean(step["message"])} if "message" in step else step
        if step["status"] in ("done", "undone"):
            step = {**step, "attempts": 0}
        self._keeper.note_step(self._mine, step, mark, f"{step['name']}: {detail}" if detail else "")
        self._record = self._keeper.read() or self._record

    def _noted(self, phase: str, name: str) -> Json | None:
        """What the record says of a step that is not undone."""
        noted = find_step(self._record, phase, name)
        return None if noted is None or noted["status"] == "undone" else noted

    @contextlib.contextmanager
    def _failure_noted(self, step: Json) -> t.Iterator[None]:
        try:
            yield
        except LostClaim:
            raise
        except EventsError as exc:
            noted, message = self._noted(step["phase"], step["name"]), exc.message
            attempts = (noted["attempts"] if noted else 0) + 1
            # What was never begun must not be undone, but its next try waits like the others.
            fresh = {**step, "before": {}, "data": {"begun": False}} if noted is None else _key(step)
            self._note({**fresh, "status": "failed", "message": message, "attempts": attempts}, "failed", message)
            raise Failed(_failure(step["phase"], step, message, isinstance(exc, Late), attempts)) from exc


def _failure(phase: str, item: Json, message: str, late: bool, attempts: int) -> Json:
    how = f"{'was late' if late else 'failed'}: {clean(message)}"
    return {
        "state": "failed",
        "message": f"{WORDS.get(phase, 'Step')} {quoted(item['name'])} ({item['kind']}) {how}",
        "step": item["name"],
        "attempts": attempts,
        "next_try": _pause(attempts),
        "late": late,
    }


def _begun(noted: Json | None) -> bool:
    return noted is not None and noted["data"].get("begun", True)


def _before(kind: type[Kind], step: Json, noted: Json | None, now: Json) -> Json:
    """How it was before anything was done: as an earlier attempt has seen it, if one has begun."""
    return kind.merged(step["options"], noted["before"], now) if noted is not None and _begun(noted) else now


def _key(step: Json) -> Json:
    return {key: step[key] for key in ("phase", "name", "kind")}
