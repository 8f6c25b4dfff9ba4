# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common parts of our action plugins: options, checks of the play, and the variables of other hosts."""

from __future__ import annotations

import json
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

Json = dict[str, t.Any]
Variables = t.Mapping[str, t.Any]


class Plugin(ActionBase):
    """Validates its options, if OPTIONS describes them. `_result` returns the result of the task."""

    _supports_check_mode = True
    _supports_async = False
    OPTIONS: t.ClassVar[Json] = {}

    def run(self, tmp: t.Any = None, task_vars: Json | None = None) -> Json:
        result: Json = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        validate: t.Callable[..., t.Any] = self.validate_argument_spec
        options = validate(argument_spec=self.OPTIONS)[1] if self.OPTIONS else {}
        return {**result, "changed": False, **self._result(options)}

    def _result(self, options: Json) -> Json:
        raise NotImplementedError


def require_linear(action: ActionBase) -> None:
    strategy = str(action._task.get_play().strategy or C.config.get_config_value("DEFAULT_STRATEGY")).rpartition(".")[2]
    if strategy not in ("linear", "debug"):
        raise AnsibleActionFail(
            f"The play uses the strategy {strategy}. Maintenance needs all hosts at the same task: "
            "set strategy: ansible.builtin.linear in the play."
        )


def require_one_batch(action: ActionBase) -> None:
    sizes = [str(size) for size in action._task.get_play().serial or []]
    if any(size not in ("0", "100%") for size in sizes):
        raise AnsibleActionFail(
            f"The play has serial: {', '.join(sizes)}. The hosts of later batches would not be looked at. Remove "
            "serial from the play; how many hosts drain at a time is graceful_serial."
        )


def require_all_tasks(variables: Variables, task_tags: t.Iterable[t.Any], work: str = "maintenance") -> None:
    """`task_tags` are those that the play gave to all tasks of the role, and `always`."""
    tags = [str(tag) for tag in variables.get("ansible_run_tags") or ["all"]]
    skipped = [str(tag) for tag in variables.get("ansible_skip_tags") or []]
    given = {str(tag) for tag in task_tags} - {"always"}
    # Tags that no task of ours has leave no task out. molecule skips such tags.
    if "all" not in tags or {"all", "always", "tagged", "untagged", *given} & {*skipped}:
        raise AnsibleActionFail(
            f"--tags {','.join(tags)} and --skip-tags {','.join(skipped) or 'none'} would skip parts of the {work}. "
            "Run it without them."
        )


def run_so_far(variables: Variables) -> Json:
    """The state of the run after the last pass."""
    before = variables.get("graceful_pass")
    if not isinstance(before, t.Mapping) or "run" not in before:
        raise AnsibleActionFail("The first task of the role maintenance was skipped. Run it without --start-at-task.")
    return t.cast(Json, json.loads(before["run"]))


def play_hosts(variables: Variables) -> list[str]:
    return [str(host) for host in variables.get("ansible_play_hosts_all") or []]


def variables_of(every: t.Any, host: str) -> Variables:
    """A host's variables without evaluating any of them. `every` is hostvars."""
    return t.cast(Variables, every.raw_get(host) if hasattr(every, "raw_get") else every[host])
