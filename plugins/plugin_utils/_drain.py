# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Draining a host and undoing it: what is run on the host, what is noted, and the report of how far it came.

All of the state is plain data, so that it can travel from one task to the next. What runs modules is handed in.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.plugin_utils._drain_steps import (
    DONE_BY_TASKS,
    PHASE,
    Find,
    Step,
    WrongStep,
    before_all,
    checked,
    to_undo,
    with_record,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._words import in_words, iso, printable, quoted

Result = t.Mapping[str, t.Any]
Progress = dict[str, t.Any]
RECORD = "graceful.azure.maintenance_record"
LONGEST_MESSAGE = 600
# A module ends by itself this long before it would be stopped: it then can say how far it came.
RESERVE = 2.0
# What may be used beyond the time, only to write down that it is over.
NOTING = 10.0
LEFT_OUT = "it was out of service before the event, and is left so"


class OutOfTime(BaseException):
    """Raised by whoever runs modules, when the time that it was given is over."""


class Host(t.Protocol):
    """Where modules run. An unreachable host is a result, not an exception."""

    def run(self, module: str, args: dict[str, t.Any], seconds: float, check: bool = False) -> Result: ...


class Trouble(Exception):
    """A task on the host went wrong: what it returned."""

    def __init__(self, result: Result) -> None:
        super().__init__(said(result))
        self.result = result


class Drain:
    def __init__(
        self, host: Host, progress: Progress | None = None, check_mode: bool = False, clock: Clock | None = None
    ):
        self._host = host
        self._check_mode = check_mode
        self._clock = clock or Clock()
        self.progress: Progress = copy.deepcopy(progress or {})

    @property
    def report(self) -> dict[str, t.Any]:
        report: dict[str, t.Any] = self.progress["report"]
        return report

    # The whole

    def begin(
        self,
        steps: t.Any,
        event: t.Mapping[str, t.Any],
        run: t.Mapping[str, t.Any],
        seconds: float,
        undo: bool = False,
        kinds: t.Collection[str] = (),
        find: Find = lambda name, probe: name,
    ) -> None:
        """Check the steps before anything is touched, claim the event, and see what an earlier run has done."""
        self.progress = {
            "report": {"ready": False, "reason": "It has not ended.", "steps": [], "timeline": []},
            "event_id": str(event.get("event_id", "")),
            "run": dict(run),
            "undo": undo,
            "going": True,
            "until": self._clock.monotonic() + seconds,
            "step": None,
            "plan": [],
        }
        self._mark("restoring" if undo else "draining", f"{in_words(max(0, int(seconds)))} for it")
        try:
            wanted = [] if undo else checked(steps, find)
            record = self._claim(event) if undo or wanted else None
            plan = to_undo(record, steps, find) if undo else with_record(wanted, record)
            self.progress["plan"] = [step for step in plan if not (undo and kinds) or step["kind"] in kinds]
        except (WrongStep, Trouble) as exc:
            self._stop(str(exc))
        except OutOfTime:
            self._stop("The time was over before the event could be claimed.")
        self._finish_if_over()

    def _claim(self, event: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any] | None:
        result = self._run(RECORD, {**self._record_args(), "state": "claimed", "event": dict(event)})
        if not result.get("claimed"):
            raise Trouble(result)
        record: t.Mapping[str, t.Any] | None = result.get("record")
        return record

    # One step

    def take(self, steps: t.Any = ()) -> None:
        """All that comes next and that modules do; it ends before a step that tasks do."""
        while True:
            step = self._next()
            if step is None or step["kind"] in DONE_BY_TASKS:
                return
            self._take(step, secrets_of(steps, step["name"]))

    def _take(self, step: Step, secrets: t.Mapping[str, t.Any]) -> None:
        """The whole of a step: look, note, do and verify, note. Or its undoing."""
        self._start(step)
        try:
            if self.progress["undo"]:
                self._undo(step, secrets)
            else:
                self._do(step, secrets)
        except Trouble as exc:
            self.failed(exc.result)
        except OutOfTime:
            self.failed({"timedout": True, "msg": "It did not end in time and was left."})

    def _do(self, step: Step, secrets: t.Mapping[str, t.Any]) -> None:
        work = work_of(step, secrets, self)
        look = work.look()
        if step["recorded"] == "done" and not look["changed"]:
            self._step_over("done", "it was done before and still holds")
        elif self._check_mode:
            self._step_over("skipped", said(look))
        else:
            self._note_doing(step, look.get("before") or {})
            self._proven(step, work.do())

    def _undo(self, step: Step, secrets: t.Mapping[str, t.Any]) -> None:
        if not (step["before"] or {}).get("in_service", True):
            self._proven(step, {"msg": LEFT_OUT})
        elif self._check_mode:
            self._step_over("skipped", "check mode")
        else:
            self._proven(step, work_of(step, secrets, self).undo())

    # The same in parts, for steps that tasks do

    def doing(
        self, look: Result | None = None, before: t.Mapping[str, t.Any] | None = None, holds: bool = False
    ) -> None:
        """The next step's tasks are about to run, or need not; unless looking has already failed."""
        step = self._next()
        if step is None:
            return
        self._start(step)
        try:
            _demand_good(look or {})
            if step.get("broken"):
                raise Trouble({"msg": step["broken"]})
            if holds and step["recorded"] == "done":
                self._step_over("done", "it was done before and still holds")
            elif self._check_mode:
                self._step_over("skipped", "check mode")
            elif not self.progress["undo"]:
                self._note_doing(step, before or {})
            elif step["options"].get("sockets") == []:
                self._proven(step, {"msg": LEFT_OUT})
        except Trouble as exc:
            self.failed(exc.result)
        except OutOfTime:
            self.failed({"timedout": True, "msg": "There was no time to note it."})

    def proven(self, result: Result) -> None:
        """The step's tasks ran, and its probe passed, unless their result says otherwise."""
        step = self._next()
        if step is None:
            return
        try:
            _demand_good(result)
            self._proven(step, result)
        except Trouble as exc:
            self.failed(exc.result)
        except OutOfTime:
            self.failed({"timedout": True, "msg": "There was no time to note that it was done."})

    def failed(self, result: Result) -> None:
        """Nothing more is begun; what is drained stays so."""
        step = self._next()
        if step is None:
            return
        current = self._start(step)
        late = any(each.get("timedout") or each.get("late") for each in [result, *_items(result)])
        late = late or self._clock.monotonic() >= current["until"]
        message = said(result)
        how = f"{'was late' if late else 'failed'}: {message}"
        doing = "Undoing step" if self.progress["undo"] else "Step"
        self._step_over("late" if late else "failed", message)
        self._stop(f"{doing} {quoted(current['name'])} ({current['kind']}) {how}")
        if not self._check_mode:
            self._note_failed(step, message, begun=bool(step["recorded"] or current.get("begun")))

    def merge_undo(self, report: t.Mapping[str, t.Any]) -> None:
        """A failed drain that was undone at once: still not ready, and the report says both."""
        then = "what was done is undone" if report["ready"] else f"undoing it did not succeed: {report['reason']}"
        self.report.update(
            ready=False,
            reason=f"{self.report['reason']} (Then {then}.)",
            steps=[*self.report["steps"], *report["steps"]],
            timeline=[*self.report["timeline"], *report["timeline"]],
        )

    # What the kinds of work use

    def run_with(self, module: str, args: dict[str, t.Any], check: bool = False, own_timeout: bool = True) -> Result:
        """Run a module that ends in time by itself, if it can."""
        if own_timeout:
            left = self._left()
            args = {**args, "timeout": round(max(left - RESERVE, left / 2), 2)}
        return self._run(module, args, check)

    def _run(self, module: str, args: dict[str, t.Any], check: bool = False) -> Result:
        result = self._host.run(module, args, self._left(), check or self._check_mode)
        if is_bad(result):
            raise Trouble(result)
        return result

    def _left(self) -> float:
        left: float = (self.progress["step"] or self.progress)["until"] - self._clock.monotonic()
        if left <= 0:
            raise OutOfTime
        return left

    # Notes

    def _record_args(self) -> dict[str, t.Any]:
        return {
            **self.progress["run"],
            "event_id": self.progress["event_id"],
            "phase": "restore" if self.progress["undo"] else PHASE,
        }

    def _note(self, step: Step, status: str, mark: str | None = None, **more: t.Any) -> None:
        entry = {"phase": PHASE, "name": step["name"], "kind": step["kind"], "status": status, **more}
        args = {**self._record_args(), "state": "noted", "step": entry}
        if mark:
            args["mark"] = {"what": mark, "detail": f"{step['name']}: {more.get('message', '')}"}
        self._run(RECORD, args)

    def _note_doing(self, step: Step, before: t.Mapping[str, t.Any]) -> None:
        definition = {"timeout": step["timeout"], "options": step["options"]}
        data = {"step": definition, "before": before_all(step, before)}
        self._note(step, "doing", message="", data=data)
        self.progress["step"]["begun"] = True

    def _proven(self, step: Step, result: Result) -> None:
        message = "; ".join(filter(None, [said(result), step.get("left")]))
        current = self.progress["step"]
        if self._clock.monotonic() > current["until"]:
            raise Trouble({"late": True, "msg": f"it ended, but only after its time: {message}"})
        if self.progress["undo"]:
            self._note(step, "undone", "restoring", message=message)
            self._step_over("undone", message)
        else:
            self._note(step, "done", "draining", message=message)
            self._step_over("done", message)

    def _note_failed(self, step: Step, message: str, begun: bool) -> None:
        """As well as it can be done: the host may be gone."""
        self.progress["step"] = {"until": self._clock.monotonic() + NOTING}
        try:
            # What was never begun must not be undone.
            if begun:
                self._note(step, "failed", "failed", message=message)
            else:
                mark = {"what": "failed", "detail": f"{step['name']}: {message}"}
                self._run(RECORD, {**self._record_args(), "state": "noted", "mark": mark})
        except (Trouble, OutOfTime):
            self._mark("failed", "The failure could not be noted on the host.")
        self.progress["step"] = None

    # The report

    def state(self) -> Progress:
        """The progress, with what the tasks need to know of it."""
        own = sum(step["kind"] in DONE_BY_TASKS for step in self.progress["plan"])
        return {**self.progress, "next": self._next(), "own": own}

    def _next(self) -> Step | None:
        plan: list[Step] = self.progress["plan"]
        over = len(self.report["steps"])
        return plan[over] if self.progress["going"] and over < len(plan) else None

    def _start(self, step: Step) -> Step:
        """The step's clock, started unless it runs already."""
        current: Step | None = self.progress["step"]
        if current is None:
            until = self.progress["until"]
            if step["timeout"] is not None:
                until = min(until, self._clock.monotonic() + float(step["timeout"]))
            current = {
                "name": step["name"],
                "kind": step["kind"],
                "started": iso(self._clock.utc_now()),
                "until": until,
            }
            self.progress["step"] = current
            # If nobody comes back to say more, this is what the report keeps saying.
            self.report["reason"] = f"Step {quoted(step['name'])} ({step['kind']}) has not ended."
        return current

    def _step_over(self, status: str, message: str) -> None:
        current = self.progress["step"]
        self.report["steps"].append(
            {
                "name": printable(current["name"]),
                "kind": current["kind"],
                "status": status,
                "message": message,
                "started": current["started"],
                "finished": iso(self._clock.utc_now()),
            }
        )
        self.progress["step"] = None
        if status in ("done", "undone"):
            self._mark("restoring" if self.progress["undo"] else "draining", f"{printable(current['name'])}: {message}")
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        """Ready at the moment when the last step is proven, and never before."""
        steps = self.report["steps"]
        if not self.progress["going"] or len(steps) < len(self.progress["plan"]):
            return
        undo = self.progress["undo"]
        if any(step["status"] not in ("done", "undone") for step in steps):
            self.report["reason"] = "Check mode: nothing was done."
            return
        count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
        if undo:
            reason = f"{count} undone." if steps else "There was nothing to undo."
        else:
            reason = f"{count} done and verified." if steps else "There are no steps to take."
        self.report.update(ready=True, reason=reason)
        self.progress["going"] = False
        self._mark("restored" if undo else "drained", reason)

    def _stop(self, reason: str) -> None:
        self.progress["going"] = False
        self.report.update(ready=False, reason=reason)
        self._mark("failed", reason)

    def _mark(self, what: str, detail: str) -> None:
        at = iso(self._clock.utc_now())
        self.report["timeline"].append(
            {"at": at, "what": what, "detail": detail, "event_id": self.progress["event_id"]}
        )


class Work:
    """What one kind of step does, through one module that does and verifies in one go."""

    module = ""
    states = ("", "")

    def __init__(self, step: Step, secrets: t.Mapping[str, t.Any], drain: Drain) -> None:
        self.step = step
        self.drain = drain
        self.options = {**step["options"], **secrets}

    def look(self) -> Result:
        return self.drain.run_with(self.module, self.args(self.states[0]), check=True)

    def do(self) -> Result:
        return self.drain.run_with(self.module, self.args(self.states[0]))

    def undo(self) -> Result:
        return self.drain.run_with(self.module, self.args(self.states[1]))

    def args(self, state: str) -> dict[str, t.Any]:
        return {**self.options, "state": state}


class HealthProbe(Work):
    module = "graceful.azure.health_probe"
    states = ("out", "in")

    def args(self, state: str) -> dict[str, t.Any]:
        # After an interrupted run, a later step may have stopped what answers here.
        silent_is_fine = {"must_answer": False} if self.step["recorded"] else {}
        return {**super().args(state), **silent_is_fine}


class Connections(Work):
    module = "graceful.azure.established_connections"

    def args(self, state: str) -> dict[str, t.Any]:
        return dict(self.options)

    def undo(self) -> Result:
        return {"msg": "there is nothing to undo"}


class Patroni(Work):
    module = "graceful.azure.patroni_switchover"
    states = ("follower", "member")


class RedisSentinel(Work):
    module = "graceful.azure.redis_failover"
    states = ("replica", "member")


class Pacemaker(Work):
    module = "graceful.azure.pacemaker_standby"
    states = ("standby", "active")


class Services(Work):
    """In order down, in reverse order up, and only what was up before."""

    module = "ansible.builtin.service"

    def look(self) -> Result:
        running = [name for name in self.options["services"] if self._differs(name, "stopped")]
        return {"changed": bool(running), "before": {"running": running}, "msg": f"running: {', '.join(running)}"}

    def do(self) -> Result:
        names = self.options["services"]
        self._bring(names, "stopped")
        return {"changed": True, "msg": f"stopped: {', '.join(names)}"}

    def undo(self) -> Result:
        running = (self.step["before"] or {}).get("running", self.options["services"])
        self._bring(running[::-1], "started")
        return {"changed": True, "msg": f"started: {', '.join(running[::-1]) or 'none'}"}

    def _bring(self, names: t.Sequence[str], state: str) -> None:
        for name in names:
            self._service(name, state)
        for name in names:
            if self._differs(name, state):
                raise Trouble({"msg": f"The service {name} is not {state}, although the service manager said so."})

    def _differs(self, name: str, state: str) -> bool:
        return bool(self._service(name, state, check=True).get("changed"))

    def _service(self, name: str, state: str, check: bool = False) -> Result:
        use = {"use": self.options["use"]} if "use" in self.options else {}
        try:
            return self.drain.run_with(
                self.module, {"name": name, "state": state, **use}, check=check, own_timeout=False
            )
        except Trouble as exc:
            raise Trouble({**exc.result, "results": None, "msg": f"Service {name}: {exc}"}) from exc


WORKS: t.Mapping[str, type[Work]] = {
    "health_probe": HealthProbe,
    "connections": Connections,
    "patroni": Patroni,
    "redis_sentinel": RedisSentinel,
    "pacemaker": Pacemaker,
    "services": Services,
}


def work_of(step: Step, secrets: t.Mapping[str, t.Any], drain: Drain) -> Work:
    if step["kind"] not in WORKS:
        raise Trouble({"msg": f"The record has a step of kind {printable(step['kind'])}, which is not known here."})
    return WORKS[step["kind"]](step, secrets, drain)


def secrets_of(steps: t.Any, name: str) -> dict[str, t.Any]:
    """Passwords are only ever where the user has written them."""
    if not isinstance(steps, t.Sequence) or isinstance(steps, str):
        return {}
    mine = next((step for step in steps if isinstance(step, t.Mapping) and step.get("name") == name), {})
    return {key: value for key, value in mine.items() if key in ("password", "sentinel_password")}


def seconds_left(progress: Progress, clock: Clock | None = None) -> float:
    """What the step under way may still use, or the whole if none is."""
    until: float = (progress.get("step") or progress)["until"]
    return until - (clock or Clock()).monotonic()


def said(result: Result) -> str:
    """What a task says, in words that can only be read; of a loop, what failed or else what came last."""
    items = _items(result)
    if items:
        return said(next(filter(is_bad, items), items[-1]))
    texts = (result.get(key) for key in ("msg", "stderr", "module_stderr", "reason"))
    words = next((" ".join(str(text).split()) for text in texts if text), "no reason was given")
    prefix = "The host could not be reached: " if result.get("unreachable") else ""
    return printable(prefix + words, LONGEST_MESSAGE)


def _demand_good(result: Result) -> None:
    if any(map(is_bad, [result, *_items(result)])):
        raise Trouble(result)


def is_bad(result: Result) -> bool:
    return bool(result.get("failed") or result.get("unreachable"))


def _items(result: Result) -> list[Result]:
    items = result.get("results")
    if not isinstance(items, t.Sequence) or isinstance(items, str):
        return []
    return [item for item in items if isinstance(item, t.Mapping)]
