# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.modules import readiness

from ..module_utils._text import clean
from ..plugin_utils import _play as play
from ..plugin_utils import _readiness as fleet
from ..plugin_utils import _report_dir as report_dir
from ..plugin_utils._door import admitted
from ..plugin_utils._host_settings import PLACEHOLDER, file_mistakes, host_settings, why_not_asked, with_variable_names
from ..plugin_utils._options import documented
from ..plugin_utils._platform import platform_of
from ..plugin_utils._settings import PREFIX, misspelt_for_role, read_settings
from ..plugin_utils._slices import SlicedAction, SlicedModule, say

Json = dict[str, t.Any]
MODULE = "graceful.azure.host_maintenance"
EVERYTHING = ("host", "run", "drill")
# Variables of the role prepare that override those of the inventory.
OVERRIDES = ("endpoint", "vm_name", "record_dir", "drain_steps")


class ActionModule(SlicedAction):
    """Asks one host, or judges the answers of all. A problem is data and never a failed task: each host is asked."""

    OPTIONS = documented(readiness)

    def _result(self, options: Json) -> Json:
        return self._ask() if options["state"] == "ask" else self._judge(options["max_clock_offset"])

    def _ask(self) -> Json:
        play.require_all_tasks(self._vars, self._task.tags, "preparation")
        given = {PREFIX + key: self._vars[f"prepare_{key}"] for key in OVERRIDES if self._vars.get(f"prepare_{key}")}
        variables = {**self._vars, **given}
        settings = host_settings(self, variables, PLACEHOLDER, EVERYTHING)
        values = settings.values
        args = {"order": "look", "probe_record": True}
        args.update({key: values[key] for key in ("endpoint", "api_version", "record_dir")})
        if values["vm_name"]:
            args["vm_name"] = values["vm_name"]
        not_asked = why_not_asked(settings)
        module = SlicedModule(self, MODULE, self._vars, "report")
        answer = admitted({"failed": True, "msg": not_asked} if not_asked else module.run(args).result)
        answer = with_variable_names(answer)
        mistakes = [text for text in settings.messages if text not in not_asked]
        mistakes += misspelt_for_role("prepare", self._vars)
        return {
            **answer,
            "platform": platform_of(self),
            "library_is_missing": fleet.library_is_missing(answer),
            "mistakes": [*mistakes, *file_mistakes(self, variables, values)],
            "drain_not_set": settings.drain_not_set,
            "min_available": values["min_available"],
            "groups": fleet.named_groups(values),
        }

    def _judge(self, max_clock_offset: float) -> Json:
        play.require_linear(self)
        answers, installs = {}, {}
        for host in play.play_hosts(self._vars):
            known = play.variables_of(self._vars["hostvars"], host)
            # A host that a condition leaves out has no answer.
            if "reachable" in (known.get("prepare_answer") or {}):
                answers[host] = known["prepare_answer"]
                tried = known.get("prepare_install")
                tried = tried if isinstance(tried, t.Mapping) else {}
                packages = known.get("prepare_packages") or self._vars.get("prepare_packages")
                installs[host] = self._install_message(tried, packages)
        self._keep_names(answers)
        found = fleet.readiness(answers, self._vars["groups"], max_clock_offset, installs)
        for line in found["table"]:
            say(line)
        return found

    def _install_message(self, tried: t.Mapping[str, t.Any], packages: t.Any) -> str:
        """The result of installing the missing library."""
        if tried.get("failed") or tried.get("unreachable"):
            return f"It could not be installed: {clean(tried.get('msg') or 'no reason was given', 400).rstrip('.')}."
        if self._task.check_mode:
            return "A run without --check installs it."
        names = clean(", ".join(map(str, packages)) if isinstance(packages, (list, tuple)) else packages, 100)
        return f"{names} was installed, but for another Python. Install requests for this Python."

    def _keep_names(self, answers: t.Mapping[str, Json]) -> None:
        settings = read_settings(self._vars, self._templar.template, ("run",))
        directory = settings.values["report_dir"]
        if not directory or "graceful_report_dir" in settings.mistakes or self._task.check_mode:
            return
        names = {host: (answer["observation"] or {}).get("vm_name") for host, answer in answers.items()}
        report_dir.keep_names(report_dir.absolute(directory), {host: name for host, name in names.items() if name})
