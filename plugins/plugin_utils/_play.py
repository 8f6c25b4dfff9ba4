# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The play around a task: what it has to be like, and the variables of its other hosts."""

from __future__ import annotations

import typing as t

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

Variables = t.Mapping[str, t.Any]


def require_linear(action: ActionBase) -> None:
    strategy = str(action._task.get_play().strategy or C.config.get_config_value("DEFAULT_STRATEGY")).rpartition(".")[2]
    if strategy not in ("linear", "debug"):
        raise AnsibleActionFail(
            f"The play uses the strategy {strategy}. Maintenance needs hosts that go on together: "
            "set strategy: ansible.builtin.linear in the play."
        )


def require_all_tasks(variables: Variables, own: t.Iterable[t.Any], work: str = "maintenance") -> None:
    """`own` has the tags of the task, which are those that a play gave to all tasks of the role, and `always`."""
    tags = [str(tag) for tag in variables.get("ansible_run_tags") or ["all"]]
    skipped = [str(tag) for tag in variables.get("ansible_skip_tags") or []]
    given = {str(tag) for tag in own} - {"always"}
    # Tags that none of our tasks has leave none of them out: molecule skips some of its own.
    if "all" not in tags or {"all", "always", "tagged", "untagged", *given} & {*skipped}:
        raise AnsibleActionFail(
            f"--tags {','.join(tags)} and --skip-tags {','.join(skipped) or 'none'} would leave parts of the "
            f"{work} out, and nothing would be looked after. Run it without them."
        )


def play_hosts(variables: Variables) -> list[str]:
    return [str(host) for host in variables.get("ansible_play_hosts_all") or []]


def variables_of(every: t.Any, host: str) -> Variables:
    """A host's variables without evaluating any of them. `every` is hostvars."""
    return t.cast(Variables, every.raw_get(host) if hasattr(every, "raw_get") else every[host])
