# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import socket
import time
import typing as t
import uuid

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.utils.vars import load_extra_vars

from ..module_utils._checks import WrongSetting
from ..module_utils._text import clean, iso
from ..plugin_utils import _next_tasks as next_tasks
from ..plugin_utils import _play as play
from ..plugin_utils import _progress as progress
from ..plugin_utils import _recap as recap
from ..plugin_utils import _reconcile as reconcile
from ..plugin_utils import _report_dir as report_dir
from ..plugin_utils import _settings as schema
from ..plugin_utils._door import admitted
from ..plugin_utils._drill import under_way
from ..plugin_utils._event_hosts import asked_hosts
from ..plugin_utils._pass import PassInput
from ..plugin_utils._slices import say

Json = dict[str, t.Any]
# A host that an earlier play has lost, or that a condition leaves out, may still have announcements.
NO_ANSWER: Json = {
    "msg": "it takes no part in this run, because an earlier play or task failed on it or could not reach it"
}
# After so many seconds without a change, what is announced and what is waited for is printed again.
QUIET = 30
# The part of the run's state that the role's tasks use.
FOR_TASKS = ("pass", "next", "involved", "approve", "confirm", "tell", "options")


class ActionModule(play.Plugin):
    """The run's state: made at the beginning, continued by each pass. It runs on the controller, once for all hosts."""

    _requires_connection = False

    def _result(self, options: Json) -> Json:
        state = self._task.args.get("state")
        if state == "recap":
            return {"msg": self._recap()}
        try:
            run, lines = {"begin": self._begin, "advance": self._advance, "end": self._end}[str(state)]()
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 1000)) from exc
        report = recap.report(run) if run["finished"] or run["tell"] else {}
        if run["finished"] and run["options"]["webhooks"] and not run["options"]["check_mode"]:
            run["tell"] += recap.last_occasions(report)
        # Registered, and no facts: those could be overwritten by facts of a host. The whole run is one text, which
        # Ansible does not search for templates each time that another part is used.
        return {**_for_tasks(run, report), "msg": lines, "run": json.dumps(run, default=str), "report": report}

    def _recap(self) -> list[str]:
        """Printed here: a callback that leaves out tasks that went well would not show it."""
        lines: list[str] = self._vars["graceful_pass"]["report"]["messages"]
        for line in ["Recap:", *(f"  {line}" for line in lines)]:
            say(line)
        return lines

    # ---- the beginning

    def _begin(self) -> tuple[Json, list[str]]:
        play.require_linear(self)
        play.require_one_batch(self)
        play.require_all_tasks(self._vars, self._task.tags)
        options = self._options()
        now = time.time()
        name = options["run_name"] or f"{socket.gethostname()} {iso(now)}"
        if options["drill"]:
            name = f"drill, {name}"
        run = reconcile.begin(str(uuid.uuid4()), name, options, now)
        lines = [f"Run {name}"]
        if options["drill"]:
            run["names"] = dict(options["drill"]["names"])
            return run, lines
        # Also of hosts that are not in this run.
        run["earlier_names"] = report_dir.read_names(_report_dir(options), self._inventory_hosts())
        if options["event"]:
            lines.append(self._limit_to_event(run, options["event"]))
            say(lines[-1])
        return run, lines

    def _options(self) -> Json:
        settings = schema.read_settings(self._vars, self._templar.template, ("run",))
        mistakes = [text for name, text in settings.mistakes.items() if name != "graceful_webhooks"]
        mistakes = [text for text in mistakes if schema.NO_SUCH_VARIABLE not in text]
        # An extra variable goes before what is registered: no pass could read the results of the hosts.
        misspelled = schema.misspelt(load_extra_vars(self._loader))
        mistakes += [text for name, text in misspelled.items() if name.removeprefix(schema.PREFIX) in schema.INTERNAL]
        if mistakes:
            raise WrongSetting(" ".join(mistakes))
        options: Json = {
            **settings.values,
            "check_mode": bool(self._task.check_mode),
            "forks": int(context.CLIARGS.get("forks") or C.config.get_config_value("DEFAULT_FORKS")),
            "drill": under_way(self._vars),
            # Their URLs may be secret, so that only whether there are any goes into the state.
            "webhooks": bool(settings.values["webhooks"]) and "graceful_webhooks" not in settings.mistakes,
            "webhook_mistake": settings.mistakes.get("graceful_webhooks", ""),
        }
        if options["drill"]:
            # The event is announced already, and the report is wanted whatever came of it.
            options.update(wait=0, report_always=True)
        return options

    def _limit_to_event(self, run: Json, event: Json) -> str:
        """Only the hosts behind the event are asked, if it is known which these are. Returns what to print."""
        hosts, names = play.play_hosts(self._vars), self._names(())
        sender = {host: name for host, name in event["sender"].items() if host in hosts}
        run["earlier_names"] = {**sender, **run["earlier_names"]}
        demands = {host: self._value(host, "graceful_min_available") for host in self._inventory_hosts()}
        asked = asked_hosts(event, hosts, [names, run["earlier_names"]], self._vars["groups"], demands)
        run.update(only=asked.hosts, inventory_names=names)
        return asked.message

    # ---- each pass

    def _advance(self) -> tuple[Json, list[str]]:
        before = play.run_so_far(self._vars)
        hosts = play.play_hosts(self._vars)
        asked = [host for host in hosts if before["only"] is None or host in before["only"]]
        results = {host: self._host_result(host, before["pass"] + 1) for host in asked}
        is_announced = any((result["observation"] or {}).get("events") for result in results.values())
        now = time.time()
        given = PassInput(
            hosts=results,
            groups={name: list(members) for name, members in self._vars["groups"].items()},
            inventory_names=self._inventory_names(before, hosts) if is_announced else {},
            now=now,
            approvals=self._approvals(before),
            confirmations=self._confirmations(before),
            not_asked=frozenset(hosts).difference(asked),
        )
        run = reconcile.advance(before, given)
        lines = progress.messages(before, run, now)
        if before["pass"] == 0:
            lines = [*progress.planned(run), *lines]
        if not lines and now - before["printed_at"] > QUIET:
            lines = progress.status(run)
        for line in lines:
            say(line)
        if lines:
            run["printed_at"] = now
        if run["finished"]:
            _keep_names(run)
        return run, lines

    def _host_result(self, host: str, number: int) -> Json:
        """The last result of host_maintenance. A host whose task failed is one that cannot be asked."""
        result = schema.registered(play.variables_of(self._vars["hostvars"], host), "host") or NO_ANSWER
        if "reachable" in result:
            return result
        why = "a condition (when) leaves it out of this run" if result.get("skipped") else "its task failed"
        error = clean(result.get("msg") or why, 400)
        blank = {"settings": {}, "mistakes": [], "interruptions": [], "order": "look", "events": [], "lost": True}
        return {**blank, **admitted({"failed": True, "msg": error}), "pass": number, "at": time.time()}

    def _inventory_names(self, before: Json, hosts: t.Sequence[str]) -> dict[str, str]:
        if before["options"]["drill"]:
            return {}
        # A run for one event has looked them up in the beginning.
        return before["inventory_names"] if before["only"] is not None else self._names(hosts)

    def _names(self, hosts: t.Collection[str]) -> dict[str, str]:
        """Azure names by the inventory: of graceful_vm_name, or of azure.azcollection's inventory plugin.

        The hosts of the run report their graceful_vm_name themselves: it is evaluated for the others only."""
        names = {}
        for host in self._inventory_hosts():
            variables = play.variables_of(self._vars["hostvars"], host)
            name = variables.get("graceful_vm_name") if host in hosts else self._value(host, "graceful_vm_name")
            if name is None and variables.get("vmid"):
                name = variables.get("name")
            if isinstance(name, str) and name.strip() and "{{" not in name:
                names[host] = name.strip()
        return names

    def _inventory_hosts(self) -> list[str]:
        return t.cast("list[str]", self._vars["groups"].get("all", []))

    def _value(self, host: str, name: str) -> t.Any:
        """A variable of a host, as it is written if it cannot be evaluated."""
        value = play.variables_of(self._vars["hostvars"], host).get(name)
        if value is not None:
            with contextlib.suppress(Exception):
                return self._vars["hostvars"][host][name]
        return value

    def _approvals(self, before: Json) -> list[Json]:
        """The results of the approvals that the last pass asked for."""
        if not before["approve"]:
            return []
        results = (self._vars.get("maintenance_approvals") or {}).get("results") or []
        return [dict(one, host=one["item"]["host"]) for one in results if one.get("pass") == before["pass"] + 1]

    def _confirmations(self, before: Json) -> dict[str, bool]:
        results = (self._vars.get("maintenance_confirmation") or {}).get("results") or []
        typed = {str(one["item"]["event_id"]): str(one.get("user_input") or "") for one in results if "item" in one}
        asked = [event["event_id"] for event in before["confirm"]]
        return {event_id: typed.get(event_id, "").strip().lower() == "yes" for event_id in asked}

    # ---- the end

    def _end(self) -> tuple[Json, list[str]]:
        run = play.run_so_far(self._vars)
        reason = "The run ended because it has used up its passes. Start another run."
        run.update(next=next_tasks.FINISH, finished=iso(time.time()), end_reason=reason, tell=[])
        return run, [reason]


def _report_dir(options: Json) -> str:
    return report_dir.absolute(str(options["report_dir"] or "graceful-reports"))


def _keep_names(run: Json) -> None:
    options = run["options"]
    if options["report_dir"] and not options["drill"] and not options["check_mode"]:
        sure = {host: name for host, name in run["names"].items() if host not in run["doubtful_names"]}
        report_dir.keep_names(_report_dir(options), sure)


def _for_tasks(run: Json, report: Json) -> Json:
    """What the role's tasks use."""
    steps = {host: step["tasks"] for host, step in run["controller_steps"].items()}
    # Where hosts are added, the passes that are left do nothing, and the role begins again with all hosts.
    restarts = run["next"] == next_tasks.NOTHING
    place = run["options"]["report_dir"]
    page = f"{report_dir.absolute(place)}/{report_dir.LATEST}.html" if place else ""
    return {
        **{key: run[key] for key in FOR_TASKS},
        **{part: next_tasks.NOTHING if restarts else f"{part}.yml" for part in ("passes_24", "passes_576")},
        "done": bool(run["finished"]),
        "steps": steps,
        "steps_until": time.time() + next_tasks.CONTROLLER_STEP_SECONDS,
        "doing": progress.next_work(run),
        "failure": recap.failure_of(report, page) if run["finished"] else "",
    }
