# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.playbook.conditional import Conditional

from ..module_utils._steps import archive_name
from ..module_utils._text import clean, clean_all, duration, quoted
from ..plugin_utils import _controller_steps as controller
from ..plugin_utils import _task_files as task_files
from ..plugin_utils._archive_copy import copied
from ..plugin_utils._door import admitted
from ..plugin_utils._host_settings import (
    PLACEHOLDER,
    api_version,
    file_mistakes,
    finder,
    host_settings,
    why_not_asked,
    with_variable_names,
)
from ..plugin_utils._platform import platform_of
from ..plugin_utils._play import run_so_far
from ..plugin_utils._readiness import record_problem
from ..plugin_utils._report_dir import CHECKPOINTS, absolute
from ..plugin_utils._role_report import UNFINISHED, role_report
from ..plugin_utils._settings import (
    PREFIX,
    SETTINGS_ON,
    Items,
    Settings,
    WrongSetting,
    misspelt_for_role,
    registered,
    seconds,
)
from ..plugin_utils._slices import SlicedAction, SlicedModule, say

MODULE = "graceful.azure.host_maintenance"
SLICE = 10.0
# Short, so that one host that does not answer does not use up the notice of the others: a request with all its retries
# takes no longer than both together, and the next pass asks again.
CONNECT_TIMEOUT = 2
READ_TIMEOUT = 10
APPROVE_TIMEOUT = 30
CHANGING = ("ready", "next", "put_back", "released", "approved", "working")
FOR_THE_PLAN = ("policy", "min_available", "window", "drain_budget", "confirm", "gone_timeout", "vm_name")
FROM_VARIABLES = ("endpoint", "api_version", "vm_name", "record_dir", "checkpoint_dir")
# Options of this plugin, which are not passed to the host.
FOR_CONTROLLER = ("steps", "checkpoint", "health", "timeout", "controller_dir", "role", "continued")
# The answer to an approval if the hosts' reports are too old by now: nothing is sent.
TOO_OLD = {
    "report": {
        "state": "failed",
        "message": "The reports that the hosts are ready are too old. The hosts are verified again.",
    },
    "observation": {},
}
CONTROLLER_DIR = "~/.graceful/checkpoints"
# A role waits a little longer than the engine may take, to get the engine's own message about what is late.
GRACE = 15.0
# Variables of the roles that are not called ROLE_OPTION.
ROLE_VARIABLES = {
    ("checkpoint", "checkpoint"): "checkpoint_items",
    ("restore", "steps"): "restore_drain_steps",
}
# The states that are a success for a task of a user, by order. In check mode an order is skipped.
SUCCESS = {
    "look": ("looked",),
    "ready": ("ready", "skipped"),
    "approve": ("approved", "started", "gone", "skipped"),
    "put_back": ("put_back", "skipped"),
    "release": ("released", "skipped"),
}
FOR_TASKS = ("report", "observation", "interruptions", "changed")

Json = dict[str, t.Any]


class ActionModule(SlicedAction):
    """Calls the engine on the host. In the roles, a failure is data in the result and never a failed task."""

    def _result(self, options: Json) -> Json:
        self._task_vars = self._vars
        approval = self._task.args.get("approval")
        if approval:
            # The task is delegated to the host that approves, so the variables of that host are used.
            every = self._vars["hostvars"]
            self._vars = {**every.raw_get(approval["host"]), "hostvars": every}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        if "copy" in self._task.args:
            # ansible-core has no modules for this on Windows hosts.
            return copied(self, (self._vars.get("graceful_host") or {}).get("step"))
        if "pass" in self._task.args:
            return self._in_a_run(run_so_far(self._task_vars))
        return self._single_order()

    # ---- one order, as a task of a user or for one of the roles drain, checkpoint and restore

    def _single_order(self) -> Json:
        args = self._task.args
        role = str(args.get("role") or "")
        before = registered(self._vars, "host") if args.get("continued") else {}
        if not role:
            try:
                return self._for_a_task(dict(args))
            except WrongSetting as exc:
                return {"failed": True, "msg": clean(exc, 2000)}
        try:
            misspelt = misspelt_for_role(role, self._vars)
            if args.get("error") or misspelt:
                raise WrongSetting(args.get("error") or " ".join(misspelt))
            result = self._carried_out(dict(args.get("request") or {}), before)
        except WrongSetting as exc:
            result = {"msg": clean(exc, 2000)}
        if "reachable" not in result:
            # A role does not fail its host: the reason is in its report.
            result = {**admitted(result), "step": None, "passes": [], "changed": False}
        result = with_variable_names(result, f"{role}_")
        return {**result, "ansible_facts": {f"{role}_report": role_report(role, result)}}

    def _for_a_task(self, request: Json) -> Json:
        """A task of a user fails if its order was not carried out."""
        order, timeout = str(request.get("order") or "look"), self._seconds(request, "timeout", 0.0)
        result = self._carried_out(request, {})
        if "reachable" not in result:
            return t.cast(Json, clean_all(result, 2000))
        answer, report = {key: result[key] for key in FOR_TASKS}, result["report"]
        if report is None:
            return {**answer, "failed": True, "msg": f"The host gave no answer: {result['error']}"}
        # Without a timeout there is one call, after which the order may be unfinished.
        if report["state"] in SUCCESS.get(order, ()) or (not timeout and report["state"] in UNFINISHED):
            return answer
        if report["next"]:
            return {**answer, "failed": True, "msg": _for_roles(report["next"]["name"], report["next"]["kind"])}
        late = f"After {duration(timeout)}: " if report["state"] in UNFINISHED else ""
        return {**answer, "failed": True, "msg": f"{late}{report['message'] or report['state']}"}

    def _carried_out(self, request: Json, before: Json) -> Json:
        """Call until the order is carried out, the controller has to take a step, or the time is over."""
        values = {key: self._validated(request, key) for key in ("drain_steps", "checkpoint", "health")}
        mistakes = file_mistakes(self, self._vars, values)
        if not self._task.args.get("role"):
            items = [*values["drain_steps"].items, *values["checkpoint"].items]
            mistakes += [_for_roles(item["name"], item["kind"]) for item in items if controller.is_needed_for(item)]
        if mistakes:
            raise WrongSetting(" ".join(mistakes))
        now = time.time()
        until = before.get("until") or now + self._seconds(request, "seconds", 300.0)
        timeout = until - now + GRACE if self._task.args.get("role") else self._seconds(request, "timeout", 0.0)
        args = self._order_arguments(request, values, before)
        changed = False
        module = SlicedModule(self, MODULE, self._task_vars, "report", before.get("interruptions") or ())
        while True:
            left = now + timeout - time.time()
            args["wait"] = max(0.0, min(SLICE, left)) if timeout else request.get("wait", 0)
            if request.get("order") == "ready":
                args["seconds"] = max(0.0, until - time.time())
            called = module.run(args)
            if called.failed:
                return called.result
            answer = self._admitted(called.result)
            # An interrupted call may have changed something.
            changed = changed or bool(called.result.get("changed")) or called.interrupted
            if time.time() - now >= timeout or (answer["report"] and answer["report"]["state"] not in UNFINISHED):
                changed = changed and not self._task.check_mode and request.get("order", "look") != "look"
                return {**self._order_result(request, values, answer, until, module), "changed": changed}
            if called.interrupted:
                say(f"[{self._host}] not reachable, trying again; {duration(left)} left")
                module.reconnect(left)
            else:
                say(f"[{self._host}] {answer['report']['message']}; {duration(left)} left")

    def _validated(self, args: Json, key: str) -> Items:
        option = "steps" if key == "drain_steps" else key
        check = SETTINGS_ON[platform_of(self)][key].check
        return t.cast(Items, check(args.get(option) or [], self._name_of(option)))

    def _seconds(self, request: Json, key: str, default: float) -> float:
        return default if request.get(key) is None else seconds(request[key], self._name_of(key))

    def _name_of(self, option: str) -> str:
        """The name of the option for messages: in a role, its variable."""
        role = self._task.args.get("role")
        return ROLE_VARIABLES.get((role, option), f"{role}_{option}") if role else option

    def _order_arguments(self, request: Json, values: Json, before: Json) -> Json:
        args = {key: value for key, value in request.items() if key not in FOR_CONTROLLER}
        args.update(self._from_variables(request), **_work(values))
        if not self._seconds(request, "silent_for", 120.0):
            args["silent_for"] = self._seconds(request, "seconds", 300.0) + 300.0
        return {**args, **self._step_argument(before.get("step"), values, before.get("number", 0))}

    def _from_variables(self, request: Json) -> Json:
        """What a role was not given, from the host's variables graceful_*, as in a run."""
        if not self._task.args.get("role"):
            return {}
        settings = host_settings(self, self._vars, (request.get("events") or [PLACEHOLDER])[0])
        missing = [key for key in FROM_VARIABLES if not request.get(key)]
        wrong = [settings.mistakes[PREFIX + key] for key in missing if PREFIX + key in settings.mistakes]
        if wrong:
            raise WrongSetting(" ".join(wrong))
        # A name that is not known is asked of the service.
        return {key: settings.values[key] for key in missing if settings.values[key]}

    def _order_result(self, request: Json, values: Json, answer: Json, until: float, module: SlicedModule) -> Json:
        drains, saves = values["drain_steps"].items, values["checkpoint"].items
        number, record = time.time_ns(), (answer["observation"] or {}).get("record")
        return {
            **answer,
            "until": until,
            "number": number,
            "looks": controller.looks(drains, number),
            "step": self._step(answer, values, str(request.get("controller_dir") or CONTROLLER_DIR)),
            "passes": list(range(controller.most_passes(str(request.get("order")), drains, saves, record))),
            "event": clean_all((request.get("events") or [PLACEHOLDER])[0]),
            "interruptions": module.interruptions,
        }

    # ---- as one pass of the role maintenance

    def _in_a_run(self, run: Json) -> Json:
        if run["only"] is not None and self._host not in run["only"]:
            return {"skipped": True, "skip_reason": "The event of this run does not concern the host."}
        before = registered(self._vars, "host")
        if before.get("skipped"):
            before = {}
        order, approval = run["orders"].get(self._host, {"order": "look"}), self._task.args.get("approval")
        if approval:
            # The host writes its record a moment before it reports.
            order = {"order": "approve", "events": [approval["event"]], "max_age": approval["max_age"] + 5.0}
        event = (order.get("events") or [PLACEHOLDER])[0]
        settings, mistakes = self._settings(run, event, files=bool(before) or bool(self._task.check_mode))
        args = self._arguments(run, order, settings, before)
        module = SlicedModule(self, MODULE, self._task_vars, "report", before.get("interruptions") or (), bool(before))
        too_old = approval and time.time() - approval["reported"] > approval["max_age"]
        not_asked = why_not_asked(settings)
        if not_asked:
            answer = admitted({"failed": True, "msg": not_asked})
        else:
            answer = self._admitted(TOO_OLD if too_old else _call(module, args, float(args["wait"])))
        answer = with_variable_names(answer)
        observation = answer["observation"] or {}
        if not before and (any(e["affects_me"] for e in observation.get("events") or []) or observation.get("record")):
            settings, mistakes = self._settings(run, event, files=True)
        if self._task.check_mode and record_problem(answer):
            mistakes = [*mistakes, record_problem(answer)]
        steps = settings.values["drain_steps"].items
        self._say(answer, order, bool(args.get("controller_step", {}).get("pending")))
        place = str(run["options"]["report_dir"] or "graceful-reports")
        return {
            **answer,
            "at": time.time(),
            "pass": run["pass"] + 1,
            "order": order["order"],
            "events": [one["event_id"] for one in order.get("events") or []],
            "event": event,
            "event_id": order["events"][0]["event_id"] if approval else "",
            "settings": {
                **{key: settings.values[key] for key in FOR_THE_PLAN},
                "drain_not_set": settings.drain_not_set,
                "looks": bool(controller.looks(steps, 0)),
                "takes": _steps_in_words(steps, settings.values["checkpoint"].items),
                "health": bool(settings.values["health"].items),
                "steps": len(steps) + len(settings.values["checkpoint"].items),
            },
            "mistakes": mistakes,
            "interruptions": module.interruptions,
            "looks": controller.looks(steps, run["pass"] + 1),
            "step": self._step(answer, settings.values, os.path.join(place, CHECKPOINTS), _slice_of(order)),
            "changed": _changed(answer, before, order),
        }

    def _settings(self, run: Json, event: Json, files: bool) -> tuple[Settings, list[str]]:
        settings = host_settings(self, self._vars, event)
        drill = run["options"]["drill"]
        if drill:
            # Overrides all variables: in a drill no host asks Azure.
            settings.values.update(endpoint=drill["endpoints"][self._host], vm_name=drill["names"][self._host])
        return settings, settings.messages + (file_mistakes(self, self._vars, settings.values) if files else [])

    def _arguments(self, run: Json, order: Json, settings: Settings, before: Json) -> Json:
        values = settings.values
        args: Json = {
            **{key: values[key] for key in ("endpoint", "record_dir", "vm_name") if values[key]},
            **{key: run[key] for key in ("run_id", "run_name")},
            "api_version": api_version(values["api_version"], before),
            "connect_timeout": CONNECT_TIMEOUT,
            "read_timeout": APPROVE_TIMEOUT if order["order"] == "approve" else READ_TIMEOUT,
            "order": order["order"],
            "wait": order.get("wait", 0.0),
            "known": order.get("known", ""),
        }
        if order["order"] == "look":
            return args
        args.update(events=order["events"], seconds=order.get("seconds", 60.0), force=run["options"]["force_claim"])
        args.update(max_age=order.get("max_age", 60.0), fresh=order.get("fresh", 30.0))
        if order["order"] in ("ready", "put_back"):
            args.update(_work(values))
            if not order.get("drain", True):
                args.update(steps=[], checkpoint=[])
            args.update({key: values[key] for key in ("checkpoint_dir", "undo_on_failure")})
            args["health_mistake"] = settings.mistakes.get("graceful_health", "")
            args["silent_for"] = 300.0 if order["order"] == "put_back" else 120.0
            args["lapsed"] = order.get("lapsed") or []
            asked = run["controller_steps"].get(self._host)
            # The run asks to look at the balancers; the host asks for every other step.
            step = asked if asked and asked["mode"] == "look" else asked and before.get("step")
            args.update(self._step_argument(step, values, run["pass"]))
        return args

    def _admitted(self, raw: Json) -> Json:
        answer = admitted(raw)
        for warning in (answer["observation"] or {}).get("warnings", ()):
            self._display.warning(f"[{self._host}] {warning}")
        return answer

    # ---- steps that the controller takes

    def _step_argument(self, step: Json | None, values: Json, number: int) -> Json:
        """The results of the controller's tasks, as an argument for the next call."""
        if step is None:
            return {}
        if step["mode"] == "look":
            looked = (self._vars.get("maintenance_looked") or {}).get("results") or []
            return {"looked": controller.looked(looked, number)}
        return {"controller_step": self._answer(step, values)}

    def _step(self, answer: Json, values: Json, place: str, most: float = controller.LONGEST) -> Json | None:
        step = (answer["report"] or {}).get("next")
        if step is None:
            return None
        items, platform = _items(values, step), platform_of(self)
        described = controller.described(step, items, time.time(), finder(self, self._vars), platform, most)
        # The path on the controller must not come from the host.
        copy = os.path.join(absolute(place), self._host, archive_name(step["name"], platform))
        return {**described, "controller_copy": copy}

    def _answer(self, step: Json, values: Json) -> Json:
        answer = controller.answer(step, self._vars.get("maintenance_answer"))
        if answer["ok"] and step["kind"] == "tasks" and step["mode"] != "send":
            problem = self._probe(step, values)
            answer.update(ok=not problem, message=problem or "the tasks ran and the probe passed")
        return answer

    def _probe(self, step: Json, values: Json) -> str:
        """Why the user's probe did not pass; empty if it did."""
        if any(controller.was_unreachable(self._vars.get(name)) for name in step.get("evidence") or []):
            return "The host could not be reached by the probe."
        item = next((one for one in _items(values, step) if one["name"] == step["name"]), None)
        probe = item["options"].get(step["probe"]) if item else None
        if probe is None or task_files.is_file(probe):
            return ""
        conditions = probe if isinstance(probe, list) else [probe]
        variables = {**self._vars, "drain_step": item}
        for condition in conditions:
            try:
                passed = self._evaluate(condition, variables)
            except Exception as exc:
                return f"The {step['probe']} cannot be evaluated: {clean(exc, 300)}"
            if not passed:
                return f"The {step['probe']} {quoted(condition, 120)} is false."
        return ""

    def _evaluate(self, condition: t.Any, variables: Json) -> bool:
        if isinstance(condition, bool):
            return condition
        templar = self._templar.copy_with_new_env(available_variables=variables)
        if hasattr(templar, "evaluate_conditional"):
            return bool(templar.evaluate_conditional(condition))
        # ansible-core before 2.19.
        conditional: t.Any = Conditional(loader=self._loader)
        conditional.when = [condition]
        return bool(conditional.evaluate_conditional(templar=templar, all_vars=variables))

    def _say(self, answer: Json, order: Json, pending: bool) -> None:
        report = answer["report"]
        if order["order"] == "look":
            return
        if report is None:
            say(f"[{self._host}] {'cannot be asked' if answer['reachable'] else 'not reachable'}: {answer['error']}")
        elif report["state"] in UNFINISHED or (report["state"] == "next" and pending):
            left = order["seconds"] if order["order"] == "ready" else 0
            say(f"[{self._host}] {report['message']}" + (f"; {duration(left)} left" if left else ""))


def _slice_of(order: Json) -> float:
    """Seconds that the controller may wait within a step, while all hosts wait for it: less than a call of a host."""
    return max(1.0, 0.8 * float(order.get("wait", 0.0)))


def _changed(answer: Json, before: Json, order: Json) -> bool:
    state = (answer["report"] or {}).get("state")
    again = state == (before.get("report") or {}).get("state") and order["order"] == before.get("order")
    return state in CHANGING and not again


def _call(module: SlicedModule, args: Json, wait: float) -> Json:
    """One call, which is repeated until `wait` is over while the host cannot be reached."""
    begin = time.monotonic()
    while True:
        called = module.run(args)
        left = wait - (time.monotonic() - begin)
        if not called.interrupted:
            return called.result
        if left <= 0:
            return {**called.result, "unreachable": True}
        module.reconnect(left)
        args["wait"] = max(0.0, left)


def _work(values: Json) -> Json:
    parts: list[Items] = [values[key] for key in ("drain_steps", "checkpoint", "health")]
    masked = {name: part.masked for name, part in zip(("steps", "checkpoint", "health"), parts, strict=True)}
    # As one text: Ansible masks each value of a no_log dictionary wherever it appears in the answer, even in names.
    secrets = {key: value for part in parts for key, value in part.secrets.items()}
    # A header may be a date, or, before ansible-core 2.19, an encrypted text that is no str.
    return {**masked, "secrets": json.dumps(secrets, default=str)}


def _items(values: Json, step: Json) -> list[Json]:
    part: Items = values["checkpoint" if step["phase"] == "checkpoint" else "drain_steps"]
    return part.items


def _for_roles(name: str, kind: str) -> str:
    return f"The controller takes the step {quoted(name)} ({kind}), which a task cannot do. Use the collection's roles."


def _steps_in_words(steps: t.Sequence[Json], checkpoint: t.Sequence[Json]) -> str:
    """For the plan: `out (command), queue (tasks); saves cache`."""
    taken = ", ".join(f"{clean(step['name'], 80)} ({step['kind']})" for step in steps) or "nothing to drain"
    saved = ", ".join(clean(item["name"], 80) for item in checkpoint)
    return taken + (f"; saves {saved}" if saved else "")
