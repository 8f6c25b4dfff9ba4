# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._text import clean
from ansible_collections.graceful.azure.plugins.plugin_utils import _report_dir as report_dir
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._host_settings import (
    PLACEHOLDER,
    file_mistakes,
    host_settings,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import platform_of
from ansible_collections.graceful.azure.plugins.plugin_utils._play import (
    play_hosts,
    require_all_tasks,
    require_linear,
    variables_of,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._readiness import (
    library_is_missing,
    named_groups,
    readiness,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import PREFIX, drain_not_set, read_settings
from ansible_collections.graceful.azure.plugins.plugin_utils._slices import SlicedAction, SlicedModule

Json = dict[str, t.Any]
MODULE = "graceful.azure.host_maintenance"
EVERYTHING = ("host", "run", "drill")
# What the role prepare may say in place of the inventory.
OVERRIDES = ("endpoint", "vm_name", "record_dir", "drain_steps")
OPTIONS = {
    "state": {"type": "str", "choices": ["ask", "judge"], "required": True},
    "max_clock_offset": {"type": "float", "default": 30},
}


class ActionModule(SlicedAction):
    """Asks one host, or judges what all of them answered. Whatever is wrong is data: each host has to be asked."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: Json | None = None) -> Json:
        result: Json = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        _checked, options = self.validate_argument_spec(argument_spec=OPTIONS)
        if options["state"] == "ask":
            result.update(self._ask(), changed=False)
            self._remove_tmp_path(self._connection._shell.tmpdir)
        else:
            result.update(self._judge(options["max_clock_offset"]), changed=False)
        return result

    def _ask(self) -> Json:
        require_all_tasks(self._vars, self._task.tags, "preparation")
        given = {PREFIX + key: self._vars[f"prepare_{key}"] for key in OVERRIDES if self._vars.get(f"prepare_{key}")}
        variables = {**self._vars, **given}
        settings, mistakes = host_settings(self, variables, PLACEHOLDER, EVERYTHING)
        values = settings.values
        args = {"order": "look", "probe_record": True}
        args.update({key: values[key] for key in ("endpoint", "api_version", "record_dir")})
        if values["vm_name"]:
            args["vm_name"] = values["vm_name"]
        answer = admitted(SlicedModule(self, MODULE, self._vars, "report").run(args).result)
        return {
            **answer,
            "platform": platform_of(self),
            "library_is_missing": library_is_missing(answer),
            "mistakes": [*mistakes, *file_mistakes(self, variables, values)],
            "drain_not_set": drain_not_set(variables),
            "min_available": values["min_available"],
            "groups": named_groups(values),
        }

    def _judge(self, max_clock_offset: float) -> Json:
        require_linear(self)
        answers, installs = {}, {}
        for host in play_hosts(self._vars):
            known = variables_of(self._vars["hostvars"], host)
            if known.get("prepare_answer"):
                answers[host] = known["prepare_answer"]
                tried = known.get("prepare_install")
                tried = tried if isinstance(tried, t.Mapping) else {}
                failed = tried.get("failed") or tried.get("unreachable")
                installs[host] = clean(tried.get("msg") or "it gave no reason", 400) if failed else ""
        self._keep_names(answers)
        return readiness(answers, self._vars["groups"], max_clock_offset, installs)

    def _keep_names(self, answers: t.Mapping[str, Json]) -> None:
        settings = read_settings(self._vars, self._templar.template, ("run",))
        directory = settings.values["report_dir"]
        if not directory or "graceful_report_dir" in settings.mistakes or self._task.check_mode:
            return
        told = {host: (answer["observation"] or {}).get("vm_name") for host, answer in answers.items()}
        with contextlib.suppress(OSError):
            report_dir.keep_names(report_dir.absolute(directory), {host: name for host, name in told.items() if name})
