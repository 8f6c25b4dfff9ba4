# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t
import uuid

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.module_utils._kind import WINDOWS
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, iso
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import begun, objections, planned
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import written_platform
from ansible_collections.graceful.azure.plugins.plugin_utils._play import (
    play_hosts,
    require_all_tasks,
    require_linear,
    variables_of,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings

Json = dict[str, t.Any]
PREFIX = "graceful_drill_"


class ActionModule(ActionBase):
    """The drill's state: made at the beginning, and ended whatever happens. Runs once for all hosts."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: Json | None = None) -> Json:
        result: Json = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        does = {"begin": self._begin, "check": self._check, "announce": self._announce, "end": self._end}
        state = str(self._task.args.get("state"))
        if state not in does:
            raise AnsibleActionFail(f"state has to be one of {', '.join(does)}.")
        try:
            drill = does[state]()
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 2000)) from exc
        result.update(drill, changed=state == "announce")
        return result

    def _begin(self) -> Json:
        require_linear(self)
        require_all_tasks(self._vars, self._task.tags)
        told = self._vars.get("graceful_drill", {"announced": ""})
        if not isinstance(told, t.Mapping) or told.get("announced") != "":
            raise WrongSetting("graceful_drill is set, but the role drill writes it itself. Remove it.")
        settings = read_settings(self._vars, self._templar.template, ("drill",))
        mistakes = [text for name, text in settings.mistakes.items() if name.startswith(PREFIX)]
        if mistakes:
            raise WrongSetting(mistakes[0])
        hosts, every = play_hosts(self._vars), self._vars["hostvars"]
        windows = [host for host in hosts if written_platform(variables_of(every, host)) == WINDOWS]
        drill = planned(settings.values, hosts, uuid.uuid4().hex[:8], windows)
        if self._task.check_mode:
            raise WrongSetting(
                "In check mode there is nothing to drill: nothing would be drained. Run it without --check."
            )
        return drill

    def _check(self) -> Json:
        drill: Json = self._vars["drill_plan"]
        every = self._vars["hostvars"]
        answers = {host: variables_of(every, host).get("drill_answer") for host in drill["names"]}
        found = objections(drill, {host: one for host, one in answers.items() if one}, self._vars["groups"])
        if found:
            raise WrongSetting(
                f"The drill does not begin, nothing was drained. {' '.join(f'{text}.' for text in found)}"
            )
        return {}

    def _announce(self) -> Json:
        drill, control = begun(self._vars["drill_plan"], self._vars.get("emulator_ready"), iso(time.time()))
        for event in self._vars["drill_plan"]["announcements"]:
            self._post(f"{control}/publish", event, self._vars["drill_plan"]["emulator_host"])
        return drill

    def _post(self, url: str, body: Json, host: str) -> None:
        args = {"url": url, "method": "POST", "use_proxy": False, "body_format": "json", "body": body}
        try:
            told: Json = self._execute_module(module_name="ansible.builtin.uri", module_args=args, task_vars=self._vars)
        except AnsibleConnectionFailure as exc:
            told = {"failed": True, "msg": str(exc)}
        if told.get("failed") or told.get("unreachable"):
            said = clean(told.get("json") or told.get("msg") or "it gave no reason", 400)
            raise WrongSetting(f"The emulator on {clean(host, 80)} did not take the event: {said}")

    def _end(self) -> Json:
        """What follows in this run of Ansible is no drill any more."""
        return {"announced": ""}
