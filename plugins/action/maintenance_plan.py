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
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, iso
from ansible_collections.graceful.azure.plugins.plugin_utils import _play as play
from ansible_collections.graceful.azure.plugins.plugin_utils import _recap as recap
from ansible_collections.graceful.azure.plugins.plugin_utils import _reconcile as reconcile
from ansible_collections.graceful.azure.plugins.plugin_utils import _report_dir as report_dir
from ansible_collections.graceful.azure.plugins.plugin_utils import _settings as schema
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import under_way
from ansible_collections.graceful.azure.plugins.plugin_utils._event_hosts import asked_hosts
from ansible_collections.graceful.azure.plugins.plugin_utils._slices import say

Json = dict[str, t.Any]
# A host that an earlier play has lost, or that a condition leaves out, may have announcements all the same.
NO_ANSWER: Json = {"msg": "it took no part in this run: an earlier play or task has lost it"}
# After so many seconds without a change, what is announced and what is waited for is said again.
QUIET = 30


class ActionModule(play.Plugin):
    """The run's state: made at the beginning, and carried on by each pass. Runs on the controller, once for all."""

    _requires_connection = False

    def _result(self, options: Json) -> Json:
        state = self._task.args.get("state")
        if state == "recap":
            return {"msg": self._recap()}
        try:
            run, told = {"begin": self._begin, "advance": self._advance, "end": self._end}[str(state)]()
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 1000)) from exc
        told_of = recap.report(run) if run["done"] or run.get("tell") else {}
        if run["done"] and run["options"]["webhooks"] and not run["check_mode"]:
            run["tell"] += recap.last_occasions(told_of)
        # Registered, and no facts: those could be overwritten by the facts that a host tells. The whole run is one
        # text, which Ansible does not look into each time that something else is asked for.
        whole = json.dumps(run, default=str)
        place = run["options"]["report_dir"]
        page = f"{report_dir.absolute(place)}/{report_dir.LATEST}.html" if place else ""
        return {**_for_tasks(run, told_of, page), "msg": told, "run": whole, "report": told_of}

    def _recap(self) -> list[str]:
        """Shown by itself: a callback that leaves out tasks that went well would not show it."""
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
        run.update(self._known_names(options))
        told = [f"Run {name}"]
        if options["event"] and not options["drill"]:
            told.append(self._limit_to_event(run, options["event"]))
            say(told[-1])
        return run, told

    def _limit_to_event(self, run: Json, event: Json) -> str:
        """Only the hosts behind the event are asked, if it is known who they are. Returns what to say."""
        hosts, known = play.play_hosts(self._vars), self._names(())
        run["learnt"] = {**{host: name for host, name in event["told_by"].items() if host in hosts}, **run["learnt"]}
        asked = asked_hosts(event, hosts, [known, run["learnt"]], self._vars["groups"], self._demands())
        run.update(only=asked.hosts, inventory_names=known)
        return asked.message

    def _demands(self) -> Json:
        """Each host's graceful_min_available, where it is set; what cannot be evaluated as it is written."""
        every, found = self._vars["hostvars"], {}
        for host in self._vars["groups"].get("all", []):
            written = play.variables_of(every, host).get("graceful_min_available")
            if written is not None:
                found[host] = written
                with contextlib.suppress(Exception):
                    found[host] = every[host]["graceful_min_available"]
        return found

    def _options(self) -> Json:
        settings = schema.read_settings(self._vars, self._templar.template, ("run",))
        wrong = [text for name, text in settings.mistakes.items() if name != "graceful_webhooks"]
        ours = [text for text in wrong if schema.NO_SUCH_VARIABLE not in text]
        # An extra variable goes before what is registered: no pass could read what the hosts say.
        given = schema.misspelt(load_extra_vars(self._loader))
        ours += [text for name, text in given.items() if name.removeprefix(schema.PREFIX) in schema.INTERNAL]
        if ours:
            raise WrongSetting(" ".join(ours))
        values = {key: value for key, value in settings.values.items() if key != "webhooks"}
        values.update(
            check_mode=bool(self._task.check_mode),
            forks=int(context.CLIARGS.get("forks") or C.config.get_config_value("DEFAULT_FORKS")),
            drill=under_way(self._vars),
            webhooks=bool(settings.values["webhooks"]) and "graceful_webhooks" not in settings.mistakes,
            webhook_mistake=settings.mistakes.get("graceful_webhooks", ""),
        )
        if values["drill"]:
            # The event is announced already, and what was learnt is to be kept whatever it is.
            values.update(wait=0, report_always=True)
        return values

    def _known_names(self, options: Json) -> dict[str, dict[str, str]]:
        if options["drill"]:
            return {"names": dict(options["drill"]["names"])}
        # Also of hosts that are not in this run.
        return {"learnt": report_dir.read_names(self._report_dir(options), self._vars["groups"].get("all", []))}

    def _report_dir(self, options: Json) -> str:
        return report_dir.absolute(str(options["report_dir"] or "graceful-reports"))

    def _keep_names(self, run: Json) -> None:
        if run["options"]["report_dir"] and not run["drill"] and not run["check_mode"]:
            sure = {host: name for host, name in run["names"].items() if host not in run["doubtful_names"]}
            report_dir.keep_names(self._report_dir(run["options"]), sure)

    # ---- each pass

    def _advance(self) -> tuple[Json, list[str]]:
        before = play.run_so_far(self._vars)
        every = self._vars["hostvars"]
        targeted = play.play_hosts(self._vars)
        asked = [host for host in targeted if before["only"] is None or host in before["only"]]
        answers = {host: play.variables_of(every, host).get("graceful_host") or NO_ANSWER for host in asked}
        hosts = {host: _seen(answer, before["pass"] + 1) for host, answer in answers.items()}
        now = time.time()
        something = any((seen.get("observation") or {}).get("events") for seen in hosts.values())
        seen = reconcile.Seen(
            hosts=hosts,
            groups={name: list(members) for name, members in self._vars["groups"].items()},
            names=self._inventory_names(before, targeted) if something and not before["drill"] else {},
            now=now,
            approvals=self._approvals(before),
            answers=self._answers(before),
            unasked=frozenset(targeted).difference(before["only"] or targeted),
        )
        run = reconcile.advance(before, seen)
        told = recap.messages(before, run, now)
        if before["pass"] == 0:
            told = [*recap.planned(run), *told]
        if not told and now - before.get("said", 0) > QUIET:
            told = recap.standing(run)
        for line in told:
            say(line)
        run["said"] = now if told else before.get("said", 0)
        if run["done"]:
            self._keep_names(run)
        return run, told

    def _end(self) -> tuple[Json, list[str]]:
        run = play.run_so_far(self._vars)
        reason = "The run ended because it has used up its passes. Start another run."
        run.update(done=True, next="finish.yml", finished=iso(time.time()), end_reason=reason, tell=[])
        return run, [reason]

    def _inventory_names(self, before: Json, targeted: t.Sequence[str]) -> dict[str, str]:
        # A run for one event has looked them up in the beginning.
        return before["inventory_names"] if before["only"] is not None else self._names(targeted)

    def _names(self, targeted: t.Collection[str]) -> dict[str, str]:
        """Azure names that the inventory tells, by graceful_vm_name or by azure.azcollection's inventory plugin."""
        every, names = self._vars["hostvars"], {}
        for host in self._vars["groups"].get("all", []):
            own = play.variables_of(every, host)
            given = own.get("graceful_vm_name")
            if given is not None and host not in targeted:
                with contextlib.suppress(Exception):
                    given = every[host]["graceful_vm_name"]
            elif given is None and own.get("vmid") and isinstance(own.get("name"), str):
                given = own["name"]
            if isinstance(given, str) and given.strip() and "{{" not in given:
                names[host] = given.strip()
        return names

    def _approvals(self, before: Json) -> list[Json]:
        """The answers to the approvals that the last pass asked for."""
        if not before["approve"]:
            return []
        results = (self._vars.get("maintenance_approvals") or {}).get("results") or []
        return [dict(one, host=one["item"]["host"]) for one in results if one.get("pass") == before["pass"] + 1]

    def _answers(self, before: Json) -> dict[str, bool]:
        asked = [one["event_id"] for one in before["confirm"]]
        results = (self._vars.get("maintenance_confirmation") or {}).get("results") or []
        typed = {str(one["item"]["event_id"]): str(one.get("user_input") or "") for one in results if "item" in one}
        return {event_id: typed.get(event_id, "").strip().lower() == "yes" for event_id in asked}


def _seen(told: Json, number: int) -> Json:
    """What a host has told. One whose task failed is one that cannot be asked."""
    if "reachable" in told:
        return told
    why = "a condition (when) leaves it out of this run" if told.get("skipped") else "its task failed"
    error = clean(told.get("msg") or why, 400)
    blank = {"settings": {}, "mistakes": [], "interruptions": [], "order": "look", "events": [], "lost": True}
    return {**blank, **admitted({"failed": True, "msg": error}), "pass": number, "at": time.time()}


def _for_tasks(run: Json, result: Json | None, page: str) -> Json:
    """What the role's tasks look at."""
    keys = ("run_id", "pass", "next", "involved", "approve", "confirm", "tell", "done", "check_mode", "options")
    steps = {host: step["tasks"] for host, step in run["controller_steps"].items()}
    # Where hosts join, the passes that are left do nothing, and the role goes on with all hosts.
    joining = run["next"] == reconcile.NOTHING
    return {
        **{key: run.get(key) for key in keys},
        **{part: reconcile.NOTHING if joining else f"{part}.yml" for part in ("passes_24", "passes_576")},
        "steps": steps,
        "steps_until": time.time() + reconcile.STEP_TAKEN_WITHIN,
        "doing": recap.doing(run),
        "failure": recap.failure_of(result, page) if run["done"] and result else "",
    }
