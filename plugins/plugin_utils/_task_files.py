# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the task files of users before the run: a mistake in an included file would end the whole run."""

from __future__ import annotations

import os
import re
import typing as t
from collections.abc import Iterator

from ansible.playbook.block import Block
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.action import ActionBase

from ..module_utils._text import clean, quoted

Json = dict[str, t.Any]
TASK_FILE = re.compile(r"\.ya?ml$")
# They remove hosts from the play, and drained hosts would not be put back.
ENDS = ("end_play", "end_host", "end_batch", "end_role")
ON_THE_CONTROLLER = ("assert", "debug", "fail", "include_vars", "meta", "pause", "set_fact")


class Unusable(Exception):
    """Why a task file cannot be used."""


def is_file(value: t.Any) -> bool:
    return isinstance(value, str) and TASK_FILE.search(value) is not None


def folders(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Where task files are searched: beside the inventory, above it and beside the playbook, and in tasks/ there."""
    inventory, playbook = variables.get("inventory_dir") or "", variables.get("playbook_dir") or ""
    places = [inventory, os.path.dirname(str(inventory).rstrip("/")) if inventory else "", playbook]
    return list(dict.fromkeys(f"{place}{tail}" for place in places if place for tail in ("", "/tasks")))


def find(name: str, places: t.Sequence[str]) -> str:
    """The first file of that name in these folders, as a full path."""
    paths = [name] if os.path.isabs(name) else [os.path.join(place, name) for place in places]
    for path in paths:
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise Unusable(f"which does not exist. Searched: {', '.join(paths) or 'no place'}")


def read(path: str, action: ActionBase, probe: bool, known: t.Collection[str] = ()) -> list[str]:
    """Read a file as Ansible would. Raises Unusable for what would fail or would affect other hosts. Returns the names
    of the registered variables. `known` are the files that include it."""
    loader, play = action._loader, action._task.get_play()
    try:
        given = loader.load_from_file(path)
        if not isinstance(given, list):
            raise Unusable("which is not a list of tasks")
        tasks = list(_tasks_in(load_list_of_blocks(given, play, variable_manager=_NoImports(), loader=loader)))
    except Unusable:
        raise
    except Exception as exc:
        # For some of what is not a task, ansible-core raises other errors than its own.
        raise Unusable(f"which cannot be read: {clean(getattr(exc, 'message', None) or exc, 300)}") from exc
    for task in tasks:
        _check_other_hosts(task)
        if isinstance(task, TaskInclude):
            if probe:
                raise Unusable("which includes other files. All tasks of a probe have to be in its own file")
            _check_included(task, action, {path, *known}, os.path.dirname(path))
        elif probe and not _registered(task) and _bare(task.action) not in ON_THE_CONTROLLER:
            raise Unusable(
                f"whose task {quoted(task.get_name(), 80)} registers nothing. In a probe each task that runs on "
                "the host needs a register: without it, the run cannot tell whether the task reached the host"
            )
    return [name for name in map(_registered, tasks) if name]


def _check_other_hosts(task: Task) -> None:
    """Raises Unusable for what would affect the other hosts of the run."""
    if task.run_once not in (None, False):
        raise Unusable(
            f"whose task {quoted(task.get_name(), 80)} has run_once: one host's result would count for all. "
            "Remove run_once; a task that runs elsewhere can have delegate_to"
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
    """As it is in the file: newer versions of ansible-core change it, and accept more than a name."""
    name = (task.get_ds() or {}).get("register")
    return name if isinstance(name, str) else ""


def _bare(action: str) -> str:
    return action.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")


class _NoImports:
    """Replaces the variable manager while a file is only read: ansible-core uses it for includes and imports."""

    def get_vars(self, task: Task, **_unused: t.Any) -> Json:
        # A mistake in an imported file cannot be found here, and ansible-core before 2.19 ends the run because of it.
        if "import_" in task.action:
            raise Unusable("which imports other files or roles; include them instead")
        return {}
