# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t
import uuid

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.graceful.azure.plugins.modules import drill_plan

from ..module_utils._checks import WrongSetting
from ..module_utils._kind import WINDOWS
from ..module_utils._text import clean, iso
from ..plugin_utils import _play as play
from ..plugin_utils._drill import begun, objections, planned
from ..plugin_utils._options import documented
from ..plugin_utils._platform import written_platform
from ..plugin_utils._settings import read_settings

Json = dict[str, t.Any]
PREFIX = "graceful_drill_"


class ActionModule(play.Plugin):
    """The state of the drill, which is ended in any case. Runs once for all hosts."""

    OPTIONS = documented(drill_plan)

    def _result(self, options: Json) -> Json:
        does = {"begin": self._begin, "check": self._check, "announce": self._announce}
        try:
            # Later plays of the same run of Ansible are not part of the drill.
            return {"announced": ""} if options["state"] == "end" else does[options["state"]]()
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 2000)) from exc

    def _begin(self) -> Json:
        play.require_linear(self)
        play.require_all_tasks(self._vars, self._task.tags)
        before = self._vars.get("graceful_drill", {"announced": ""})
        if not isinstance(before, t.Mapping) or before.get("announced") != "":
            raise WrongSetting("graceful_drill is set, but only the role drill may set it. Remove it.")
        settings = read_settings(self._vars, self._templar.template, ("drill",))
        mistakes = [text for name, text in settings.mistakes.items() if name.startswith(PREFIX)]
        if mistakes:
            raise WrongSetting(mistakes[0])
        hosts, every = play.play_hosts(self._vars), self._vars["hostvars"]
        windows = [host for host in hosts if written_platform(play.variables_of(every, host)) == WINDOWS]
        drill = planned(settings.values, hosts, uuid.uuid4().hex[:8], windows)
        if self._task.check_mode:
            raise WrongSetting(
                "In check mode there is nothing to drill: nothing would be drained. Run it without --check."
            )
        return drill

    def _check(self) -> Json:
        drill: Json = self._vars["drill_plan"]
        every = self._vars["hostvars"]
        given = {host: play.variables_of(every, host).get("drill_answer") or {} for host in drill["names"]}
        # A host that is lost already, or that a condition leaves out, has no answer.
        answers = {host: one for host, one in given.items() if "reachable" in one}
        found = objections(drill, answers, self._vars["groups"])
        if found:
            raise WrongSetting(
                f"The drill does not begin, nothing was drained. {' '.join(f'{text}.' for text in found)}"
            )
        return {}

    def _announce(self) -> Json:
        drill, control = begun(self._vars["drill_plan"], self._vars.get("emulator_ready"), iso(time.time()))
        for event in self._vars["drill_plan"]["announcements"]:
            self._post(f"{control}/publish", event, self._vars["drill_plan"]["emulator_host"])
        return {**drill, "changed": True}

    def _post(self, url: str, body: Json, host: str) -> None:
        args = {"url": url, "method": "POST", "use_proxy": False, "body_format": "json", "body": body}
        try:
            answer: Json = self._execute_module(
                module_name="ansible.builtin.uri", module_args=args, task_vars=self._vars
            )
        except AnsibleConnectionFailure as exc:
            answer = {"failed": True, "msg": str(exc)}
        if answer.get("failed") or answer.get("unreachable"):
            reason = clean(answer.get("json") or answer.get("msg") or "no reason was given", 400)
            raise WrongSetting(f"The emulator on {clean(host, 80)} did not accept the event: {reason}")
