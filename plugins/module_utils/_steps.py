# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
from ._record_files import CHECKPOINT, DOING, DONE, DRAIN, FAILED, UNDONE
from ._text import clean, count, duration, is_masked, quoted

if t.TYPE_CHECKING:
    from ._look import Order

Json = t.Dict[str, t.Any]
Progress = t.Callable[[str], None]
LOADERS: t.Mapping[str, t.Callable[[str], type[Kind]]] = {DRAIN: _drains.load, CHECKPOINT: _checkpoints.load}
TITLES = {DRAIN: "Drain step", CHECKPOINT: "Checkpoint"}
# The mark in the timeline for a step that was done.
MARKS = {DRAIN: "draining", CHECKPOINT: "checkpointed"}
# Seconds until a failed step is tried again, by the number of its attempts.
PAUSES = (10.0, 20.0, 40.0, 60.0)
# Seconds. With less of a step's time the controller is not asked again for what it has begun.
SHORTEST_REQUEST = 1.0
# The same for the time of the order, which is never less, however late it is: what can be saved is not kept waiting.
LEAST_TIME = 5.0
LEFT_OUT = "it was out of service before the event, and stays out of service"
# Of a machine that is taken away, what can be saved in spite of a failed drain is better than nothing.
TAKEN_AWAY = ("preempt", "terminate")


class Failed(Exception):
    """A step failed, and that is noted."""

    def __init__(self, result: Json) -> None:
        super().__init__(result["message"])
        self.result = result


class Next(Exception):
    """The controller has to take the next step."""

    def __init__(self, step: Json, message: str = "") -> None:
        super().__init__(step["name"])
        message = message or f"the controller takes the step {quoted(step['name'])}"
        self.result = {"state": "next", "message": message, "next": step}


def recent_failure(record: Json, now: float, since: float = 0.0) -> Json | None:
    """What failed since then and may not be tried again yet; `next_try` says in how many seconds it may."""
    # If the clock was set back since, a failure in the future is not waited for.
    failed = [step for step in record["steps"] if step["status"] == FAILED and since <= step["at"] <= now]
    last = max(failed, key=lambda step: float(step["at"] + _pause(step["attempts"])), default=None)
    left = last["at"] + _pause(last["attempts"]) - now if last else 0.0
    if last is None or left <= 0:
        return None
    return {**_failure(last, last["message"], False, last["attempts"]), "next_try": left, "tried": False}


def undoing_since(record: Json, now: float) -> float:
    """When undoing began. What failed before that is no reason to wait with it."""
    return min((float(mark["at"]) for mark in record["timeline"] if mark["what"] == "restoring"), default=now + 1)


def _pause(attempts: int) -> float:
    return PAUSES[min(max(attempts, 1), len(PAUSES)) - 1]


def archive_name(name: str, platform: str = LINUX) -> str:
    """A file name that nothing in an item's name can change the place of."""
    ending = ".tar.gz" if platform == LINUX else ".zip"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:20] + ending


class Steps:
    """The work of one order, for the events that this run has claimed."""

    def __init__(self, order: Order, keeper: Keeper, claimed: t.Sequence[str], progress: Progress, run: Runner) -> None:
        self._order = order
        self._keeper = keeper
        self._claimed = claimed
        self._progress = progress
        self._run = run
        self._deadline = keeper.clock.monotonic() + order.seconds
        self._answer = order.controller_step
        self._record = keeper.read() or {"events": {}, "steps": [], "timeline": []}

    @property
    def _entries(self) -> list[Json]:
        return [entry for event_id, entry in self._record["events"].items() if event_id in self._claimed]

    # ---- draining and saving

    def get_ready(self) -> Json:
        entries = self._entries
        gave_up = next((entry["gave_up"] for entry in entries if entry["gave_up"]), "")
        if gave_up:
            return self._give_up(gave_up)
        if not any(entry["ready"] for entry in entries) and not unfinished(self._record):
            self._keeper.mark(self._claimed, "draining", f"{duration(self._order.seconds)} available")
        try:
            failure = self._take_all(DRAIN, self._order.steps)
            if failure is None or any(entry["event"]["event_type"].lower() in TAKEN_AWAY for entry in entries):
                failure = self._take_all(CHECKPOINT, self._order.checkpoint) or failure
        except Next as exc:
            self._note_entries(ready=None)
            return exc.result
        if failure is not None:
            self._note_entries(ready=None)
            return self._give_up(failure["message"]) if self._order.undo_on_failure else failure
        return self._note_ready()

    def _take_all(self, phase: str, items: t.Sequence[Json]) -> Json | None:
        """Take the steps in order, up to the first that fails; None if none does."""
        try:
            for item in items:
                self._take(phase, item)
        except Failed as exc:
            return exc.result
        return None

    def _note_ready(self) -> Json:
        done, saved = count(len(self._order.steps), "drain step"), count(len(self._order.checkpoint), "checkpoint")
        message = f"{done} done, {saved} saved, all verified"
        self._keeper.note_ready(self._claimed, message)
        return {"state": "ready", "message": message}

    def _note_entries(self, **fields: t.Any) -> None:
        with self._keeper.change(self._claimed) as (_record, own):
            for entry in own.values():
                entry.update(fields)

    def _give_up(self, message: str) -> Json:
        """A failed drain is undone at once, if that was asked for; it is not tried again by this run."""
        # Noted first, so that a call that is interrupted continues to undo and does not drain again.
        self._note_entries(gave_up=message)
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
        noted = find_step(self._record, phase, name)
        if noted is not None and noted["status"] == UNDONE:
            noted = None
        step = {"phase": phase, "name": name, "kind": item["kind"], "options": item["options"]}
        step["timeout"] = item.get("timeout")
        if noted is not None and noted["kind"] != item["kind"]:
            message = (
                f"its kind is {item['kind']}, but a step with the same name and the kind "
                f"{clean(noted['kind'], 40)}, from an earlier run, is not undone. Give the new step another name"
            )
            raise Failed(_failure(step, message, False, 0))
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
        if noted and noted["status"] == DONE and look.done:
            return
        self._note_doing(step, noted, _before(kind, step, noted, look.before))
        done = work.do()
        self._demand_in_time(done.message)
        self._note_done(step, done.message, done.data)

    def _save(self, kind: type[Kind], step: Json, noted: Json | None) -> None:
        if noted and self._has_answer(step, "fetch"):
            # What the controller has to fetch is saved when it has it.
            self._answer_of(step, "fetch")
            self._note_done(step, noted["message"], noted["data"])
            return
        work = kind(self._options(step), self._tools(step, noted))
        is_same = noted is not None and noted["status"] == DONE and noted["options"] == step["options"]
        if noted and is_same and work.is_saved(StepRecord(noted["before"], noted["data"], False)):
            return
        # Until it is saved again, what was saved before is better than nothing.
        data = noted["data"] if noted and _begun(noted) else {}
        self._note({**step, "status": DOING, "message": "", "before": {}, "data": data})
        done = work.do()
        self._demand_in_time(done.message)
        if done.data.get("fetched"):
            self._note({**step, "status": DOING, "message": done.message, "data": done.data})
            raise Next(self._for_controller(step, "fetch", archive=done.data["archive"]))
        self._note_done(step, done.message, done.data)

    # ---- steps that the controller takes

    def _ask_controller(self, kind: type[Kind], step: Json, noted: Json | None) -> None:
        done = noted is not None and noted["status"] == DONE
        if noted and step["phase"] == CHECKPOINT and noted["options"] != step["options"]:
            done = False
        is_fresh = noted is not None and 0 <= self._keeper.now - noted["at"] < self._order.fresh
        if done and (is_fresh or (self._is_pending and not self._has_answer(step, "do"))):
            # A later step that is pending would begin anew if this one was verified in between.
            return
        if self._has_answer(step, "verify"):
            answer, self._answer = self._answer or {}, None
            if answer.get("ok"):
                self._note({**step, "status": DONE, "message": str(answer.get("message") or "")})
                return
            done = False
        if self._has_answer(step, "do"):
            if self._is_pending and noted:
                self._ask_again(step, noted)
            self._note_done(step, self._answer_of(step, "do"))
            return
        if done:
            raise Next(self._for_controller(step, "verify"))
        looked = dict(self._order.looked.get(step["name"]) or {})
        if kind.looks_first and not looked and not _begun(noted):
            raise Next(self._for_controller(step, "look"))
        if looked.get("error"):
            raise EventsError(str(looked["error"]))
        self._note_doing(step, noted, _before(kind, step, noted, looked))
        raise Next(self._for_controller(step, "do"))

    @property
    def _is_pending(self) -> bool:
        """Whether the controller has begun one of the steps, and it takes longer than the other hosts can wait."""
        answer = self._answer or {}
        if not answer.get("pending") or (answer.get("phase"), answer.get("mode")) != (DRAIN, "do"):
            return False
        names = [item["name"] for item in self._order.steps]
        noted = find_step(self._record, DRAIN, answer["name"]) if answer.get("name") in names else None
        return noted is not None and noted["status"] == DOING

    def _ask_again(self, step: Json, noted: Json) -> None:
        """No attempt is counted. When the time of the step is over, its answer is a failure like any other."""
        left = of_step = self._deadline - self._keeper.clock.monotonic()
        if step["timeout"]:
            of_step = float(step["timeout"]) - max(0.0, self._keeper.now - noted["at"])
        if left > LEAST_TIME and of_step >= SHORTEST_REQUEST:
            message = clean((self._answer or {}).get("message") or "it takes longer")
            raise Next({**_key(step), "mode": "do", "seconds": min(left, of_step)}, f"{step['name']}: {message}")

    def _has_answer(self, step: Json, mode: str) -> bool:
        answer = self._answer or {}
        wanted = (step["phase"], step["name"], mode)
        return (answer.get("phase"), answer.get("name"), answer.get("mode")) == wanted

    def _answer_of(self, step: Json, mode: str, **more: t.Any) -> str:
        """The controller's result of a step. If it has not taken the step, it is asked to."""
        if not self._has_answer(step, mode):
            raise Next(self._for_controller(step, mode, **more))
        answer, self._answer = self._answer or {}, None
        message = clean(answer.get("message") or "")
        if not answer.get("ok"):
            raise Late(message) if answer.get("late") else EventsError(message or "the controller gave no reason")
        return message

    def _for_controller(self, step: Json, mode: str, **more: t.Any) -> Json:
        return {**_key(step), "mode": mode, "seconds": self._seconds_left(step), **more}

    # ---- putting back

    def put_back(self) -> Json:
        lost = any(entry["event"]["event_type"].lower() != "freeze" and entry["started"] for entry in self._entries)
        if not any(mark["what"] == "restoring" for mark in self._record["timeline"]):
            self._keeper.mark(self._claimed, "restoring")
        check = bool(self._record["steps"])
        try:
            self._undo_all(lost, check)
        except (Next, Failed) as exc:
            return exc.result
        self._clean_up()
        closed = self._keeper.close(self._claimed, self._claimed, "restored", self._order.lapsed)
        health = ", and the health checks have passed" if check and self._order.health else ""
        return {"state": "put_back", "message": f"everything is undone{health}", "closed": closed}

    def _undo_all(self, lost: bool, check: bool) -> None:
        """Bring back what was lost, undo last first, check the health, and let traffic return last."""
        # What another run has verified for its own event does not hold any more either.
        self._keeper.note_not_ready(self._claimed)
        steps = unfinished(self._record)
        saved = [step for step in steps if step["phase"] == CHECKPOINT]
        drained = [step for step in reversed(steps) if step["phase"] == DRAIN]
        traffic = [step for step in drained if self._kind_of(step).carries_traffic]
        for step in [*saved, *(step for step in drained if step not in traffic)]:
            self._undo(step, lost)
        if check:
            self._check_health()
        for step in traffic:
            self._undo(step, lost)

    def _clean_up(self) -> None:
        # Not before all of it is noted as undone: a call that is interrupted needs it again.
        self._keeper.renew(self._claimed)
        for step in self._record["steps"]:
            # What cannot be cleaned up, or not in time, does not keep the host out of service.
            with contextlib.suppress(EventsError, Failed):
                work = self._kind_of(step)(self._options(step), self._tools(step, step))
                work.clean_up(StepRecord(step["before"], step["data"], False))

    def _kind_of(self, step: Json) -> type[Kind]:
        try:
            return LOADERS[step["phase"]](step["kind"])
        except (EventsError, KeyError):
            message = f"the record has a step of kind {quoted(step['kind'])}, which this version does not know"
            raise Failed(_failure(step, message, False, 1)) from None

    def _undo(self, step: Json, lost: bool) -> None:
        kind = self._kind_of(step)
        with self._failure_noted(step):
            if not _begun(step):
                message = "it was never started"
            elif not step["before"].get("in_service", True):
                message = LEFT_OUT
            elif kind.by_controller and step["phase"] == CHECKPOINT:
                message = "nothing to undo"
            elif kind.by_controller:
                message = self._undo_by_controller(step)
            else:
                message = self._undo_here(kind, step, lost)
            self._note({**_key(step), "status": UNDONE, "message": message}, "restoring", message)

    def _undo_by_controller(self, step: Json) -> str:
        if not self._has_answer(step, "undo"):
            # From now on no run takes it for done, and nothing is undone by a run that has lost its claim.
            self._note({**_key(step), "status": DOING})
        return self._answer_of(step, "undo", before=step["before"], options=step["options"])

    def _undo_here(self, kind: type[Kind], step: Json, lost: bool) -> str:
        if step["data"].get("fetched"):
            self._answer_of(step, "send", archive=step["data"]["archive"])
        # Nothing is undone by a run that has lost its claim.
        self._keeper.renew(self._claimed)
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
            left = self._deadline - self._keeper.clock.monotonic()
            _health_checks.check(items, self._keeper.clock, self._run, self._progress, left)
        except EventsError as exc:
            attempts = self._keeper.note_unhealthy(self._claimed, exc.message)
            result = {"state": "failed", "message": f"The host is not healthy: {exc.message}", "attempts": attempts}
            raise Failed({**result, "step": "health"}) from exc

    # ---- what all steps need

    def _options(self, step: Json) -> Json:
        secrets = self._order.secrets.get(f"{step['phase']}/{step['name']}", {})
        masked = next((key for key, value in step["options"].items() if key not in secrets and is_masked(value)), "")
        if masked:
            raise EventsError(
                f"the secret part of the URL in {masked} is never recorded. Put the step back into the inventory as it "
                "was, or undo it by hand and remove the host's record"
            )
        return {**step["options"], **secrets}

    def _seconds_left(self, step: Json) -> float:
        left = self._deadline - self._keeper.clock.monotonic()
        left = min(left, float(step["timeout"])) if step.get("timeout") else left
        if left <= 0:
            raise Late("no time is left")
        return left

    def _tools(self, step: Json, noted: Json | None) -> Tools:
        def progress(message: str) -> None:
            self._progress(f"{step['name']}: {clean(message, 200)}")

        patience = Patience(self._seconds_left(step), self._keeper.clock, progress)
        self._progress(f"{step['name']} ({step['kind']})")
        return Tools(patience, self._run, _begun(noted), self._order.checkpoint_dir, archive_name(step["name"]))

    def _demand_in_time(self, message: str) -> None:
        if self._keeper.clock.monotonic() > self._deadline:
            raise Late(f"it was done, but after the deadline: {message}")

    def _note_doing(self, step: Json, noted: Json | None, before: Json) -> None:
        if noted is not None and noted["status"] == DONE and step["phase"] == DRAIN:
            for saved in unfinished(self._record):
                if saved["phase"] == CHECKPOINT and saved["status"] == DONE:
                    # It was in service again since, and may have written something: that has to be saved, too.
                    self._note({**_key(saved), "status": DOING})
        self._note({**step, "status": DOING, "message": "", "before": before, "data": {}})

    def _note_done(self, step: Json, message: str, data: Json | None = None) -> None:
        fields = {"status": DONE, "message": message, **({} if data is None else {"data": data})}
        self._note({**step, **fields}, MARKS[step["phase"]], message)

    def _note(self, step: Json, mark: str = "", detail: str = "") -> None:
        step = {**step, "message": clean(step["message"])} if "message" in step else step
        if step["status"] in (DONE, UNDONE):
            step = {**step, "attempts": 0}
        detail = f"{step['name']}: {detail}" if detail else ""
        self._keeper.note_step(self._claimed, step, mark, detail)
        self._record = self._keeper.read() or self._record

    @contextlib.contextmanager
    def _failure_noted(self, step: Json) -> t.Iterator[None]:
        try:
            yield
        except LostClaim:
            raise
        except EventsError as exc:
            noted, message = find_step(self._record, step["phase"], step["name"]), exc.message
            if noted is None or noted["status"] == UNDONE:
                # What was never begun must not be undone, but its next try waits like the others.
                attempts, failed = 1, {**step, "before": {}, "data": {"begun": False}}
            else:
                attempts, failed = noted["attempts"] + 1, _key(step)
            self._note({**failed, "status": FAILED, "message": message, "attempts": attempts}, "failed", message)
            raise Failed(_failure(step, message, isinstance(exc, Late), attempts)) from exc


def _failure(step: Json, message: str, late: bool, attempts: int) -> Json:
    how = f"{'was not done in time' if late else 'failed'}: {clean(message)}"
    return {
        "state": "failed",
        "message": f"{TITLES.get(step['phase'], 'Step')} {quoted(step['name'])} ({step['kind']}) {how}",
        "step": step["name"],
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
