# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""A user's task files: a mistake in one that is included ends the whole run, so it has to be found before."""

from __future__ import annotations

import os
import re
import typing as t
from collections.abc import Iterator

from ansible.errors import AnsibleError
from ansible.playbook.block import Block
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, quoted

Json = dict[str, t.Any]
TASK_FILE = re.compile(r"\.ya?ml$")
# They take hosts out of the play, and what is drained would be left so.
ENDS = ("end_play", "end_host", "end_batch", "end_role")
ON_THE_CONTROLLER = ("assert", "debug", "fail", "include_vars", "meta", "pause", "set_fact")


class Unusable(Exception):
    """Why a task file cannot be used."""


def is_file(value: t.Any) -> bool:
    return isinstance(value, str) and TASK_FILE.search(value) is not None


def folders(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Where task files are looked for: beside the inventory, above it and beside the playbook, also in tasks/ there."""
    inventory, playbook = variables.get("inventory_dir") or "", variables.get("playbook_dir") or ""
    places = [inventory, os.path.dirname(str(inventory).rstrip("/")) if inventory else "", playbook]
    return list(dict.fromkeys(f"{place}{tail}" for place in places if place for tail in ("", "/tasks")))


def find(name: str, places: t.Sequence[str]) -> str:
    """The first file of that name in these folders, as a full path."""
    paths = [name] if os.path.isabs(name) else [os.path.join(place, name) for place in places]
    for path in paths:
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise Unusable(f"which is not there; it was looked for at {', '.join(paths) or 'no place'}")


def read(path: str, action: ActionBase, probe: bool, known: t.Collection[str] = ()) -> list[str]:
    """Read a file as Ansible would, and refuse what Ansible would fail at. Returns the variables in which its tasks say
    what they saw. What includes it is known already."""
    loader, play = action._loader, action._task.get_play()
    try:
        given = loader.load_from_file(path)
        if not isinstance(given, list):
            raise Unusable("which is not a list of tasks")
        tasks = list(_tasks_in(load_list_of_blocks(given, play, variable_manager=_NoImports(), loader=loader)))
    except AnsibleError as exc:
        raise Unusable(f"which cannot be read: {clean(exc.message, 300)}") from exc
    for task in tasks:
        _refuse_for_others(task)
        if isinstance(task, TaskInclude):
            if probe:
                raise Unusable("which includes others. The tasks of a probe have to stand in its own file")
            _check_included(task, action, {path, *known}, os.path.dirname(path))
        elif probe and not _registered(task) and _bare(task.action) not in ON_THE_CONTROLLER:
            raise Unusable(
                f"whose task {quoted(task.get_name(), 80)} registers nothing. In a probe each task that looks at "
                "the host has to: one that did not reach it could otherwise not be told from one that did"
            )
    return [name for name in map(_registered, tasks) if name]


def _refuse_for_others(task: Task) -> None:
    """What one host's task would do to the other hosts of the run."""
    if task.run_once not in (None, False):
        raise Unusable(
            f"whose task {quoted(task.get_name(), 80)} has run_once: one host's result would count for all. Write it "
            "without run_once; what is done elsewhere can have delegate_to"
        )
    meta = str(task.args.get("_raw_params")) if _bare(task.action) == "meta" else ""
    if meta in ENDS:
        raise Unusable(f"which uses meta: {meta}. The host would leave the run. Write a condition (when) instead")


def _check_included(task: Task, action: ActionBase, known: t.Collection[str], place: str) -> None:
    name = str(task.args.get("_raw_params") or task.args.get("file") or "")
    path = os.path.join(place, name)
    if os.path.isfile(path) and path not in known:
        try:
            read(path, action, False, known)
        except Unusable as exc:
            raise Unusable(f"which includes {quoted(name, 200)}, {exc}") from exc


def _tasks_in(blocks: t.Iterable[t.Any]) -> Iterator[Task]:
    for each in blocks:
        if isinstance(each, Block):
            yield from _tasks_in([*each.block, *each.rescue, *each.always])
        else:
            yield each


def _registered(task: Task) -> str:
    """As it is written: newer versions of ansible-core make something else of it, and take more than a name."""
    name = (task.get_ds() or {}).get("register")
    return name if isinstance(name, str) else ""


def _bare(action: str) -> str:
    return action.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")


class _NoImports:
    """Stands in for the variables when a file is only read: ansible-core asks for them at includes and imports."""

    def get_vars(self, task: Task, **_unused: t.Any) -> Json:
        # A mistake in what is imported cannot be found here, and ansible-core before 2.19 ends the run at it.
        if "import_" in task.action:
            raise Unusable("which imports other files or roles; include them instead")
        return {}
