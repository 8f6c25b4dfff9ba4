# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.playbook.conditional import Conditional
from ansible_collections.graceful.azure.plugins.module_utils._steps import archive_name
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, clean_all, duration, quoted
from ansible_collections.graceful.azure.plugins.plugin_utils import _controller_steps as controller
from ansible_collections.graceful.azure.plugins.plugin_utils import _host_settings as written
from ansible_collections.graceful.azure.plugins.plugin_utils import _settings as schema
from ansible_collections.graceful.azure.plugins.plugin_utils import _task_files as task_files
from ansible_collections.graceful.azure.plugins.plugin_utils._archive_copy import copied
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import platform_of
from ansible_collections.graceful.azure.plugins.plugin_utils._play import run_so_far
from ansible_collections.graceful.azure.plugins.plugin_utils._readiness import record_problem
from ansible_collections.graceful.azure.plugins.plugin_utils._report_dir import CHECKPOINTS, absolute
from ansible_collections.graceful.azure.plugins.plugin_utils._role_report import role_report
from ansible_collections.graceful.azure.plugins.plugin_utils._slices import SlicedAction, SlicedModule, say

MODULE = "graceful.azure.host_maintenance"
SLICE = 10.0
# One host where packets are lost, or whose service says nothing, shall not cost the others their notice. With all its
# retries a request takes no longer than both together; who could not be asked is asked again in the next pass.
CONNECT_TIMEOUT = 2
READ_TIMEOUT = 10
APPROVE_TIMEOUT = 30
UNFINISHED = ("working", "waiting")
CHANGING = ("ready", "next", "put_back", "released", "approved", "working")
SHOWN = ("policy", "min_available", "window", "drain_budget", "confirm", "gone_timeout", "vm_name")
# What the roles pass to this plugin, and not on to the host.
FOR_CONTROLLER = ("steps", "checkpoint", "health", "timeout", "controller_dir", "role", "continued")
# What an approval comes to if the hosts' reports have grown old: nothing is sent, and they are verified again.
TOO_OLD = {
    "report": {
        "state": "failed",
        "message": "The reports that the hosts are ready have grown old. They are verified again.",
    },
    "observation": {},
}
CONTROLLER_DIR = "~/.graceful/checkpoints"
# A role hears the engine's own verdict about what was late, so it listens for a little longer.
GRACE = 15.0
STEP_TASKS, NOTHING = "order_step.yml", "steps/nothing.yml"
# How an order of a user's own task ends well. In check mode it is skipped.
GOOD_ENDS = {
    "look": ("looked",),
    "ready": ("ready", "skipped"),
    "approve": ("approved", "started", "gone", "skipped"),
    "put_back": ("put_back", "skipped"),
    "release": ("released", "skipped"),
}
FOR_TASKS = ("report", "observation", "interruptions", "changed")

Json = dict[str, t.Any]


class ActionModule(SlicedAction):
    """Calls the engine on the host. Whatever happens to the host is data in the result, never a failed task."""

    def _result(self, options: Json) -> Json:
        self._task_vars = self._vars
        approval = self._task.args.get("approval")
        if approval:
            # Delegated to the host that approves: its variables count, and not those of the host of the task.
            every = self._vars["hostvars"]
            self._vars = {**every.raw_get(approval["host"]), "hostvars": every}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        if "copy" in self._task.args:
            # Not by the modules of Ansible, of which ansible-core has none for Windows hosts.
            return copied(self, (self._vars.get("graceful_host") or {}).get("step"))
        if "pass" in self._task.args:
            return self._in_a_run(run_so_far(self._task_vars))
        return self._alone()

    # ---- by itself, as a task of a user or for one of the roles drain, checkpoint and restore

    def _alone(self) -> Json:
        args = self._task.args
        role = str(args.get("role") or "")
        before = schema.registered(self._vars, "host") if args.get("continued") else {}
        if not role:
            try:
                return self._as_a_task(dict(args))
            except AnsibleActionFail as exc:
                # Raised, ansible-core before 2.19 would put the traceback into the result.
                return {"failed": True, "msg": exc.message}
        try:
            if args.get("error"):
                raise AnsibleActionFail(str(args["error"]))
            result = self._carried_out(dict(args.get("request") or {}), before)
        except AnsibleActionFail as exc:
            result = {"msg": exc.message}
        if "reachable" not in result:
            # A role does not fail its host: what went wrong is in its report.
            result = {**admitted(result), "step": None, "next_tasks": NOTHING, "passes": [], "changed": False}
        return {**result, "ansible_facts": {f"{role}_report": role_report(role, result)}}

    def _as_a_task(self, given: Json) -> Json:
        """A task fails if its order was not carried out: what follows it may rely on that."""
        order, timeout = str(given.get("order") or "look"), _seconds(given, "timeout", 0.0)
        result = self._carried_out(given, {})
        if "reachable" not in result:
            return t.cast(Json, clean_all(result, 2000))
        told, report = {key: result[key] for key in FOR_TASKS}, result["report"]
        if report is None:
            return {**told, "failed": True, "msg": f"The host gave no answer: {result['error']}"}
        # One call may leave it under way.
        if report["state"] in GOOD_ENDS.get(order, ()) or (not timeout and report["state"] in UNFINISHED):
            return told
        if report["next"]:
            return {**told, "failed": True, "msg": _for_roles(report["next"]["name"], report["next"]["kind"])}
        late = f"After {duration(timeout)}: " if report["state"] in UNFINISHED else ""
        return {**told, "failed": True, "msg": f"{late}{report['message'] or report['state']}"}

    def _carried_out(self, given: Json, before: Json) -> Json:
        """Call until the order is carried out, the controller has to take a step, or the time is over."""
        values = {key: self._given(given, key) for key in ("drain_steps", "checkpoint", "health")}
        mistakes = written.file_mistakes(self, self._vars, values)
        if not self._task.args.get("role"):
            items = [*values["drain_steps"].items, *values["checkpoint"].items]
            mistakes += [_for_roles(item["name"], item["kind"]) for item in items if controller.is_needed_for(item)]
        if mistakes:
            raise AnsibleActionFail(" ".join(mistakes))
        now = time.time()
        until = before.get("until") or now + _seconds(given, "seconds", 300.0)
        timeout = until - now + GRACE if self._task.args.get("role") else _seconds(given, "timeout", 0.0)
        args = self._given_arguments(given, values, before)
        changed = False
        module = SlicedModule(self, MODULE, self._task_vars, "report", before.get("interruptions") or ())
        while True:
            left = now + timeout - time.time()
            args["wait"] = max(0.0, min(SLICE, left)) if timeout else given.get("wait", 0)
            if given.get("order") == "ready":
                args["seconds"] = max(0.0, until - time.time())
            called = module.run(args)
            if called.failed:
                return called.result
            told = self._admitted(called.result)
            # What a call did that was cut off, nobody has heard.
            changed = changed or bool(called.result.get("changed")) or called.interrupted
            if time.time() - now >= timeout or (told["report"] and told["report"]["state"] not in UNFINISHED):
                changed = changed and not self._task.check_mode and given.get("order", "look") != "look"
                return {**self._told_alone(given, values, told, until, module), "changed": changed}
            if called.interrupted:
                say(f"[{self._host}] not reachable, trying again; {duration(left)} left")
                module.reconnect(left)
            else:
                say(f"[{self._host}] {told['report']['message']}; {duration(left)} left")

    def _given(self, args: Json, key: str) -> schema.Items:
        name = "steps" if key == "drain_steps" else key
        try:
            return t.cast(schema.Items, schema.SETTINGS_ON[platform_of(self)][key].check(args.get(name) or [], name))
        except schema.WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 500)) from exc

    def _given_arguments(self, given: Json, values: Json, before: Json) -> Json:
        args = {key: value for key, value in given.items() if key not in FOR_CONTROLLER}
        args.update(written.directories(platform_of(self), given), **_work(values))
        if not _seconds(given, "silent_for", 120.0):
            args["silent_for"] = _seconds(given, "seconds", 300.0) + 300.0
        return {**args, **self._taken(before.get("step"), values, before.get("number", 0))}

    def _told_alone(self, given: Json, values: Json, told: Json, until: float, module: SlicedModule) -> Json:
        drains, saves = values["drain_steps"].items, values["checkpoint"].items
        number, record = time.time_ns(), (told["observation"] or {}).get("record")
        step = self._step(told, values, str(given.get("controller_dir") or CONTROLLER_DIR))
        return {
            **told,
            "until": until,
            "number": number,
            "looks": controller.looks(drains, number),
            "step": step,
            "next_tasks": STEP_TASKS if step else NOTHING,
            "passes": list(range(controller.most_passes(str(given.get("order")), drains, saves, record))),
            "event": clean_all((given.get("events") or [written.PLACEHOLDER])[0]),
            "interruptions": module.interruptions,
        }

    # ---- as one pass of the role maintenance

    def _in_a_run(self, run: Json) -> Json:
        if run["only"] is not None and self._host not in run["only"]:
            return {"skipped": True, "skip_reason": "The event that this run is for does not concern the host."}
        before = schema.registered(self._vars, "host")
        if before.get("skipped"):
            before = {}
        order, approval = run["orders"].get(self._host, {"order": "look"}), self._task.args.get("approval")
        if approval:
            # The host has noted it a moment before it reported it.
            order = {"order": "approve", "events": [approval["event"]], "max_age": approval["max_age"] + 5.0}
        event = (order.get("events") or [written.PLACEHOLDER])[0]
        settings, mistakes = self._settings(run, event, files=bool(before) or bool(self._task.check_mode))
        args = self._arguments(run, order, settings, before)
        module = SlicedModule(self, MODULE, self._task_vars, "report", before.get("interruptions") or (), bool(before))
        too_old = approval and time.time() - approval["reported"] > approval["max_age"]
        unasked = written.why_not_asked(settings)
        if unasked:
            told = admitted({"failed": True, "msg": unasked})
        else:
            told = self._admitted(TOO_OLD if too_old else _call(module, args, float(args["wait"])))
        told = written.with_variable_names(told)
        observation = told["observation"] or {}
        if not before and (any(e["affects_me"] for e in observation.get("events") or []) or observation.get("record")):
            settings, mistakes = self._settings(run, event, files=True)
        if self._task.check_mode and record_problem(told):
            mistakes = [*mistakes, record_problem(told)]
        steps = settings.values["drain_steps"].items
        self._say(told, order)
        place = str(run["options"]["report_dir"] or "graceful-reports")
        return {
            **told,
            "at": time.time(),
            "pass": run["pass"] + 1,
            "order": order["order"],
            "events": [one["event_id"] for one in order.get("events") or []],
            "event": event,
            "event_id": order["events"][0]["event_id"] if approval else "",
            "settings": {
                **{key: settings.values[key] for key in SHOWN},
                "drain_not_set": settings.drain_not_set,
                "looks": bool(controller.looks(steps, 0)),
                "takes": _steps_in_words(steps, settings.values["checkpoint"].items),
                "health": bool(settings.values["health"].items),
                "steps": len(steps) + len(settings.values["checkpoint"].items),
            },
            "mistakes": mistakes,
            "interruptions": module.interruptions,
            "looks": controller.looks(steps, run["pass"] + 1),
            "step": self._step(told, settings.values, os.path.join(place, CHECKPOINTS)),
            "changed": _changed(told, before, order),
        }

    def _settings(self, run: Json, event: Json, files: bool) -> tuple[schema.Settings, list[str]]:
        settings = written.host_settings(self, self._vars, event)
        drill = run["options"]["drill"]
        if drill:
            # Whatever anybody wrote: in a drill no host asks Azure.
            settings.values.update(endpoint=drill["endpoints"][self._host], vm_name=drill["names"][self._host])
        return settings, settings.messages + (written.file_mistakes(self, self._vars, settings.values) if files else [])

    def _arguments(self, run: Json, order: Json, settings: schema.Settings, before: Json) -> Json:
        values = settings.values
        args: Json = {
            **{key: values[key] for key in ("endpoint", "record_dir", "vm_name") if values[key]},
            **{key: run[key] for key in ("run_id", "run_name")},
            "api_version": written.api_version(values["api_version"], before),
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
            taken = run["controller_steps"].get(self._host)
            # To look at the balancers, the run has asked for; for every other step, the host.
            step = taken if taken and taken["mode"] == "look" else taken and before.get("step")
            args.update(self._taken(step, values, run["pass"]))
        return args

    def _admitted(self, raw: Json) -> Json:
        told = admitted(raw)
        for warning in (told["observation"] or {}).get("warnings", ()):
            self._display.warning(f"[{self._host}] {warning}")
        return told

    # ---- steps that the controller takes

    def _taken(self, step: Json | None, values: Json, number: int) -> Json:
        """What the controller has done for the host, as an argument for its next call."""
        if step is None:
            return {}
        if step["mode"] == "look":
            looked = (self._vars.get("maintenance_looked") or {}).get("results") or []
            return {"looked": controller.looked(looked, number)}
        return {"controller_step": self._answer(step, values)}

    def _step(self, told: Json, values: Json, place: str) -> Json | None:
        step = (told["report"] or {}).get("next")
        if step is None:
            return None
        items, platform = _items(values, step), platform_of(self)
        described = controller.described(step, items, time.time(), written.finder(self, self._vars), platform)
        # Where an archive lies on the controller must not be the host's word.
        copy = os.path.join(absolute(place), self._host, archive_name(step["name"], platform))
        return {**described, "controller_copy": copy}

    def _answer(self, step: Json, values: Json) -> Json:
        told = controller.answer(step, self._vars.get("maintenance_answer"))
        if told["ok"] and step["kind"] == "tasks" and step["mode"] != "send":
            problem = self._probe(step, values)
            told.update(ok=not problem, message=problem or "the tasks ran and the probe passed")
        return told

    def _probe(self, step: Json, values: Json) -> str:
        """Why the user's probe did not pass; empty if it did."""
        if any(map(self._was_lost, step.get("evidence") or [])):
            return "The host could not be reached by the probe."
        item = next((one for one in _items(values, step) if one["name"] == step["name"]), None)
        given = item["options"].get(step["probe"]) if item else None
        if given is None or task_files.is_file(given):
            return ""
        conditions = given if isinstance(given, list) else [given]
        variables = {**self._vars, "drain_step": item}
        for condition in conditions:
            try:
                held = self._evaluate(condition, variables)
            except Exception as exc:
                return f"The {step['probe']} cannot be evaluated: {clean(exc, 300)}"
            if not held:
                return f"The {step['probe']} {quoted(condition, 120)} is false."
        return ""

    def _was_lost(self, name: str) -> bool:
        seen = self._vars.get(name)
        if not isinstance(seen, t.Mapping):
            return False
        return any(one.get("unreachable") for one in [seen, *(seen.get("results") or [])])

    def _evaluate(self, condition: t.Any, variables: Json) -> bool:
        if isinstance(condition, bool):
            return condition
        templar = self._templar.copy_with_new_env(available_variables=variables)
        if hasattr(templar, "evaluate_conditional"):
            return bool(templar.evaluate_conditional(condition))
        # ansible-core before 2.19.
        asked: t.Any = Conditional(loader=self._loader)
        asked.when = [condition]
        return bool(asked.evaluate_conditional(templar=templar, all_vars=variables))

    def _say(self, told: Json, order: Json) -> None:
        report = told["report"]
        if order["order"] == "look":
            return
        if report is None:
            say(f"[{self._host}] {'cannot be asked' if told['reachable'] else 'not reachable'}: {told['error']}")
        elif report["state"] in UNFINISHED:
            left = order["seconds"] if order["order"] == "ready" else 0
            say(f"[{self._host}] {report['message']}" + (f"; {duration(left)} left" if left else ""))


def _changed(told: Json, before: Json, order: Json) -> bool:
    state = (told["report"] or {}).get("state")
    again = state == (before.get("report") or {}).get("state") and order["order"] == before.get("order")
    return state in CHANGING and not again


def _call(module: SlicedModule, args: Json, wait: float) -> Json:
    """One call; a host that does not answer is tried again as long as the call may take."""
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
    parts: list[schema.Items] = [values[key] for key in ("drain_steps", "checkpoint", "health")]
    shown = {name: part.masked for name, part in zip(("steps", "checkpoint", "health"), parts, strict=True)}
    # One text: of a dictionary, Ansible would cross out each value wherever it is in the answer, also within names.
    return {**shown, "secrets": json.dumps({key: value for part in parts for key, value in part.secrets.items()})}


def _items(values: Json, step: Json) -> list[Json]:
    part: schema.Items = values["checkpoint" if step["phase"] == "checkpoint" else "drain_steps"]
    return part.items


def _seconds(given: Json, key: str, default: float) -> float:
    try:
        return default if given.get(key) is None else schema.seconds(given[key], key)
    except schema.WrongSetting as exc:
        raise AnsibleActionFail(clean(exc, 300)) from exc


def _for_roles(name: str, kind: str) -> str:
    return f"The controller takes the step {quoted(name)} ({kind}), which a task cannot do. Use the collection's roles."


def _steps_in_words(steps: t.Sequence[Json], checkpoint: t.Sequence[Json]) -> str:
    """For the plan: `out (command), queue (tasks); saves cache`."""
    taken = ", ".join(f"{clean(step['name'], 80)} ({step['kind']})" for step in steps) or "nothing to drain"
    saved = ", ".join(clean(item["name"], 80) for item in checkpoint)
    return taken + (f"; saves {saved}" if saved else "")
