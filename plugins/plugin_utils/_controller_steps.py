# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps that the controller takes for a host: what the role's tasks need for them, and their results.

Whoever controls a host can change its record. Other machines and files of the controller are therefore taken from the
user's variables only, and never from the record.
"""

from __future__ import annotations

import typing as t

from jinja2 import Environment, TemplateSyntaxError

from ..module_utils._kind import LINUX, WINDOWS
from ..module_utils._text import clean, count, quoted
from ._task_files import Unusable, is_file

Json = dict[str, t.Any]
Find = t.Callable[[str, bool], tuple[str, list[str]]]
BY_CONTROLLER = ("haproxy", "tasks")
MOST_PASSES = 100
# Seconds, more than any step has.
LONGEST = 1e6
NOT_RUN = "its tasks did not finish; see the output of Ansible above"
# The options of a step of kind tasks that are used in each mode. A probe may also be a condition.
TASKS = {"do": ("do", "probe"), "verify": (None, "probe"), "undo": ("undo", "undo_probe")}


def mistakes(items: t.Sequence[Json], find: Find, noun: str) -> list[str]:
    """The mistakes in the task files of these steps."""
    found = []
    for item in items:
        for key, value in item["options"].items() if item["kind"] == "tasks" else ():
            where = f"{noun} {quoted(item['name'])} (tasks): {key}"
            if is_file(value):
                try:
                    find(value, "probe" in key)
                except Unusable as exc:
                    found.append(f"{where} is {quoted(value, 200)}, {exc}.")
            elif "probe" in key:
                found += [f"{where} {text}" for text in _condition_mistakes(value)]
    return found


def _condition_mistakes(value: t.Any) -> list[str]:
    """Syntax errors only. Whether it can be evaluated is not known before the tasks have run."""
    found = []
    for one in value if isinstance(value, list) else [value]:
        try:
            # A text with templates is not a condition before they are evaluated.
            if isinstance(one, str) and "{{" not in one and "{%" not in one:
                Environment(autoescape=True).parse("{{ " + one + " }}")
        except TemplateSyntaxError as exc:
            found.append(f"is {quoted(one, 200)}, which is not a condition: {clean(exc.message, 200)}.")
    return found


def described(
    step: Json, items: t.Sequence[Json], now: float, find: Find, platform: str = LINUX, most: float = LONGEST
) -> Json:
    """The step that the host asks for, with the options that the user has set for it.

    Sessions on balancers are waited for no longer than `most` seconds; if there is more time, the host asks again.
    """
    given = next((one for one in items if (one["name"], one["kind"]) == (step["name"], step["kind"])), None)
    result: Json = {**step, "until": now + step["seconds"], "broken": "", "calls": [], "file": "", "probe_file": ""}
    result.update(seconds_each=most, may_go_on=False)
    result["tasks"] = tasks_of(step, platform)
    result["options"] = given["options"] if given else {}
    if step["mode"] == "fetch" and result["options"].get("to") != "controller":
        result.update(
            broken="The checkpoint no longer has the option 'to: controller'. Nothing was fetched.", tasks="nothing.yml"
        )
    if step["kind"] not in BY_CONTROLLER:
        return result
    if given is None:
        result["broken"] = (
            "It is no longer one of the host's steps. Add it again, or undo it by hand and remove the host's record."
        )
    elif step["kind"] == "haproxy":
        # One balancer is waited for after the other.
        each = most / len(given["options"]["sockets"])
        result.update(calls=_calls(step, given["options"]), seconds_each=each, may_go_on=most < step["seconds"])
    else:
        result.update(_files(step, given["options"], find))
    return result


def is_needed_for(item: Json) -> bool:
    """Whether the controller takes this step or checkpoint, or fetches its archive."""
    return item["kind"] in BY_CONTROLLER or item["options"].get("to") == "controller"


def tasks_of(step: Json, platform: str = LINUX) -> str:
    """The task file of the role maintenance that takes the step."""
    modes = {"look": "look.yml", "fetch": "fetch.yml", "send": "send.yml"}
    if platform == WINDOWS:
        modes.update(fetch="copy_windows.yml", send="copy_windows.yml")
    kinds = {"haproxy": "balancers.yml", "tasks": "user_tasks.yml"}
    return modes.get(step["mode"]) or kinds.get(step["kind"], "nothing.yml")


def most_passes(order: str, drains: t.Sequence[Json], saves: t.Sequence[Json], record: Json | None) -> int:
    """How often an order may need the controller: to look at a step, to do it, and to verify it after later steps."""
    if order == "put_back":
        left = [step for step in (record or {"steps": []})["steps"] if step["status"] != "undone"]
        return min(MOST_PASSES, sum(step["kind"] in (*BY_CONTROLLER, "paths") for step in left))
    number = sum(is_needed_for(item) for item in (*drains, *saves))
    return min(MOST_PASSES, number * (number + 5) // 2)


def looks(items: t.Sequence[Json], number: int) -> list[Json]:
    """How to look at the balancers of a host before anything is done, in this pass."""
    return [
        {**_place(item["options"], socket), "step": item["name"], "state": "maint", "pass": number}
        for item in items
        if item["kind"] == "haproxy"
        for socket in item["options"]["sockets"]
    ]


def looked(results: t.Sequence[t.Mapping[str, t.Any]], number: int) -> Json:
    """What was seen in this pass, by the name of the step; with an error where a balancer could not be asked."""
    found: Json = {}
    for result in results:
        item = result.get("item")
        if not isinstance(item, t.Mapping) or item.get("pass") != number:
            continue
        step = found.setdefault(str(item["step"]), {"servers": []})
        if is_bad(result):
            step["error"] = f"{item['host']}: {message_of(result)}"
        before = result.get("before")
        if isinstance(before, t.Mapping):
            step["servers"].append(
                {"host": item["host"], "socket": item["socket"], "in_service": before.get("in_service") is True}
            )
    return found


def _place(options: Json, socket: Json) -> Json:
    return {**{key: socket[key] for key in ("host", "socket")}, **{key: options[key] for key in ("backend", "server")}}


def _calls(step: Json, options: Json) -> list[Json]:
    """All balancers stop new connections (drain) before the first is waited for (maint)."""
    sockets = options["sockets"]
    states = {"do": ("drain", "maint"), "verify": ("maint",), "undo": ("ready",)}.get(step["mode"], ())
    if step["mode"] == "undo":
        # A server that was out of service before the event stays out.
        out = [(one["host"], one["socket"]) for one in step["before"]["servers"] if not one["in_service"]]
        sockets = [socket for socket in sockets if (socket["host"], socket["socket"]) not in out]
    return [{**_place(options, socket), "state": state} for state in states for socket in sockets]


def _files(step: Json, options: Json, find: Find) -> Json:
    do, probe = TASKS.get(step["mode"], ("file", "probe")) if step["phase"] == "drain" else ("file", "probe")
    files: Json = {"evidence": [], "probe": probe}
    try:
        if do and options.get(do):
            files["file"] = find(options[do], False)[0]
        if is_file(options.get(probe)):
            files["probe_file"], files["evidence"] = find(options[probe], True)
    except Unusable as exc:
        files["broken"] = f"its file {exc}"
    return files


def answer(step: Json, given: t.Any) -> Json:
    """The result of the role's tasks in the format of the engine. The caller adds the result of the probe."""
    common = {key: step[key] for key in ("phase", "name", "kind", "mode")}
    if step["broken"]:
        return {**common, "ok": False, "message": step["broken"]}
    # The result of an earlier request does not count.
    if not isinstance(given, t.Mapping) or str(given.get("until")) != str(step["until"]):
        return {**common, "ok": False, "message": "the controller did not take the step in time"}
    result = given.get("result")
    if not isinstance(result, t.Mapping):
        # Ansible gives no reason: a file or role could not be included, or another host failed.
        return {**common, "ok": False, "message": NOT_RUN}
    items = _items(result)
    left = [item for item in items if step["kind"] == "haproxy" and isinstance(item.get("sessions"), int)]
    others = [item for item in items if item not in left]
    bad = next(filter(is_bad, others if left else [*others, result]), None)
    if bad is not None:
        where = (bad.get("item") or {}).get("host", "") if isinstance(bad.get("item"), t.Mapping) else ""
        message = message_of(bad)
        # Before ansible-core 2.19 only the text says that the timeout of the task was reached.
        late = bool(bad.get("timedout") or bad.get("late") or "in the expected time frame" in message)
        return {**common, "ok": False, "late": late, "message": f"{where}: {message}" if where else message}
    if left:
        message = ", ".join(f"{count(item['sessions'], 'session')} on {item['item']['host']}" for item in left)
        return {**common, "ok": False, "late": True, "pending": step["may_go_on"], "message": message}
    changed = [item for item in items if item.get("changed")]
    if step["kind"] == "haproxy" and step["mode"] == "verify" and changed:
        return {**common, "ok": False, "message": message_of(changed[0])}
    message = message_of(items[-1]) if items else ""
    return {**common, "ok": True, "message": message or "the tasks ran"}


def message_of(result: t.Mapping[str, t.Any]) -> str:
    texts = (result.get(key) for key in ("msg", "stderr", "module_stderr", "reason"))
    message = clean(next((text for text in texts if text), "no reason was given"))
    return f"it could not be reached: {message}" if result.get("unreachable") else message


def was_unreachable(registered: t.Any) -> bool:
    """Whether what a task has registered says that the host could not be reached, by the task or one of its items."""
    found = [registered, *_items(registered)] if isinstance(registered, t.Mapping) else []
    return any(one.get("unreachable") for one in found)


def is_bad(result: t.Mapping[str, t.Any]) -> bool:
    return bool(result.get("failed") or result.get("unreachable"))


def _items(result: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    items = result.get("results")
    return [item for item in items if isinstance(item, t.Mapping)] if isinstance(items, (list, tuple)) else []
