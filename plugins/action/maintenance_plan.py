# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import typing as t
import uuid

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, iso
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._recap import doing, messages, report, standing
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import NOTHING, Seen, advance, begin
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings
from ansible_collections.graceful.azure.plugins.plugin_utils._slices import say

Json = dict[str, t.Any]
NAMES_FILE = "azure-names.json"
# After so many seconds without a change, what is announced and what is waited for is said again.
QUIET = 30


class ActionModule(ActionBase):
    """The run's state: made at the beginning, and carried on by each pass. Runs on the controller, once for all."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: Json | None = None) -> Json:
        result: Json = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        state = self._task.args.get("state")
        try:
            run, told = self._begin() if state == "begin" else self._advance()
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 1000)) from exc
        result.update(msg=told, changed=False)
        facts: Json = {"graceful_run": run}
        if run["done"] or run.get("tell"):
            facts["graceful_result"] = report(run, time.time())
        if run["done"] and run["options"]["webhooks"] and not run["check_mode"]:
            last = {"done": "restored", "failed": "failed"}.get(facts["graceful_result"]["result"])
            run["tell"] = [*run["tell"], *([last] if last else []), "finished"]
        result["ansible_facts"] = {**facts, "graceful_pass": _for_tasks(run)}
        return result

    # ---- the beginning

    def _begin(self) -> tuple[Json, list[str]]:
        self._demand_linear()
        self._demand_all_tasks()
        options = self._options()
        now = time.time()
        name = options["run_name"] or f"{socket.gethostname()} {iso(now)}"
        run = begin(str(uuid.uuid4()), name, options, now)
        run.update(options=options, force=options["force_claim"], names=self._learnt_names(options))
        return run, [f"Run {name}"]

    def _demand_linear(self) -> None:
        strategy = str(self._task.get_play().strategy or C.DEFAULT_STRATEGY).rpartition(".")[2]
        if strategy not in ("linear", "debug"):
            raise AnsibleActionFail(
                f"The play uses the strategy {strategy}. Maintenance needs hosts that go on together: "
                "set strategy: ansible.builtin.linear in the play."
            )

    def _demand_all_tasks(self) -> None:
        tags = [str(tag) for tag in self._vars.get("ansible_run_tags") or ["all"]]
        skipped = [str(tag) for tag in self._vars.get("ansible_skip_tags") or []]
        if "all" not in tags or skipped:
            raise AnsibleActionFail(
                f"--tags {','.join(tags)} and --skip-tags {','.join(skipped) or 'none'} would leave parts of the "
                "maintenance out, and nothing would be looked after. Run it without them."
            )

    def _options(self) -> Json:
        settings = read_settings(self._vars, self._templar.template, ("run",))
        wrong = [text for name, text in settings.mistakes.items() if name != "graceful_webhooks"]
        ours = [text for text in wrong if "there is no such variable" not in text]
        if ours:
            raise WrongSetting(" ".join(ours))
        values = {key: value for key, value in settings.values.items() if key != "webhooks"}
        values.update(
            check_mode=bool(self._task.check_mode),
            forks=int(context.CLIARGS.get("forks") or C.DEFAULT_FORKS),
            drill=bool(self._vars.get("graceful_drill")),
            webhooks=bool(settings.values["webhooks"]) and "graceful_webhooks" not in settings.mistakes,
            webhook_mistake=settings.mistakes.get("graceful_webhooks", ""),
        )
        return values

    def _learnt_names(self, options: Json) -> dict[str, str]:
        """Azure names that earlier runs learnt: a host that cannot be reached now is still known by its name."""
        try:
            with open(os.path.join(self._report_dir(options), NAMES_FILE), encoding="utf-8") as file:
                names = json.load(file)
        except (OSError, ValueError):
            return {}
        hosts = set(self._vars.get("ansible_play_hosts_all") or [])
        named = names.items() if isinstance(names, dict) else ()
        return {host: clean(name, 200) for host, name in named if host in hosts and isinstance(name, str)}

    def _report_dir(self, options: Json) -> str:
        return os.path.realpath(os.path.expanduser(str(options["report_dir"] or "graceful-reports")))

    def _keep_names(self, run: Json) -> None:
        if not run["options"]["report_dir"] or run["drill"] or run["check_mode"]:
            return
        path = os.path.join(self._report_dir(run["options"]), NAMES_FILE)
        with contextlib.suppress(OSError, ValueError):
            known: Json = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    known = json.load(file)
            if {**known, **run["names"]} == known:
                return
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}.draft", "w", encoding="utf-8") as file:
                json.dump({**known, **run["names"]}, file, indent=1, sort_keys=True)
            os.replace(f"{path}.draft", path)

    # ---- each pass

    def _advance(self) -> tuple[Json, list[str]]:
        before: Json = self._vars["graceful_run"]
        every = self._vars["hostvars"]
        targeted = list(self._vars.get("ansible_play_hosts_all") or [])
        hosts = {host: seen for host in targeted if (seen := _raw(every, host).get("graceful_host"))}
        now = time.time()
        something = any((seen.get("observation") or {}).get("events") for seen in hosts.values())
        seen = Seen(
            hosts=hosts,
            groups={name: list(members) for name, members in self._vars["groups"].items()},
            names=self._names(every, targeted) if something else {},
            options=before["options"],
            now=now,
            approvals=self._approvals(before),
            answers=self._answers(before),
        )
        run = advance(before, seen)
        told = messages(before, run, now)
        if before["pass"] == 0:
            told = [*run["plan"]["summary"], *told]
        if not told and now - before.get("said", 0) > QUIET:
            told = standing(run)
        for line in told:
            say(line)
        run["said"] = now if told else before.get("said", 0)
        if run["done"]:
            self._keep_names(run)
        return run, told

    def _names(self, every: t.Any, targeted: t.Sequence[str]) -> dict[str, str]:
        """Azure names that the inventory tells, by graceful_vm_name or by azure.azcollection's inventory plugin."""
        names = {}
        for host in self._vars["groups"].get("all", []):
            own = _raw(every, host)
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
        results = (self._vars.get("graceful_approvals") or {}).get("results") or []
        return [dict(one, host=one["item"]["host"]) for one in results if one.get("pass") == before["pass"] + 1]

    def _answers(self, before: Json) -> dict[str, bool]:
        asked = [one["event_id"] for one in before["confirm"]]
        results = (self._vars.get("graceful_confirmation") or {}).get("results") or []
        typed = {str(one["item"]["event_id"]): str(one.get("user_input") or "") for one in results if "item" in one}
        return {event_id: typed.get(event_id, "").strip().lower() == "yes" for event_id in asked}


def _raw(every: t.Any, host: str) -> t.Mapping[str, t.Any]:
    """A host's variables without evaluating any of them."""
    return t.cast(t.Mapping[str, t.Any], every.raw_get(host) if hasattr(every, "raw_get") else every[host])


def _for_tasks(run: Json) -> Json:
    """What the role's tasks look at."""
    keys = ("run_id", "pass", "next", "involved", "approve", "confirm", "tell", "done", "check_mode")
    steps = {host: step["tasks"] for host, step in (run.get("controller_steps") or {}).items()}
    # Where hosts join, the passes that are left do nothing, and the role goes on with all hosts.
    files = {"passes": NOTHING, "hours": NOTHING} if run["next"] == NOTHING else {"passes": "passes.yml", "hours": "hours.yml"}
    return {**{key: run.get(key) for key in keys}, **files, "steps": steps, "doing": doing(run)}
