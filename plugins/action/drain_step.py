# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import signal
import typing as t
from collections.abc import Iterator

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.playbook.block import Block
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.graceful.azure.plugins.plugin_utils._drain import Drain, OutOfTime
from ansible_collections.graceful.azure.plugins.plugin_utils._drain_steps import (
    Find,
    Unusable,
    WrongStep,
    checked,
    task_file,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._words import printable, quoted

display = Display()
Result = dict[str, t.Any]
# These decide on the controller which module the host needs.
ACTIONS = ("ansible.builtin.service",)
ON_THE_CONTROLLER = ("assert", "debug", "fail", "include_vars", "meta", "pause", "set_fact")


class ActionModule(ActionBase):
    """Takes a step of a drain in one task: nothing but the step itself costs time, and no host is lost on the way."""

    _requires_connection = True
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: Result | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        del tmp
        args = self._task.args
        if args.get("now") == "read":
            return self._read(result, args)
        drain = Drain(TaskHost(self, task_vars or {}), args.get("progress"), bool(self._task.check_mode))
        before = len(args["progress"]["report"]["timeline"]) if args.get("progress") else 0
        happened: dict[str, t.Callable[[], None]] = {
            "begin": lambda: self._begin(drain, args),
            "take": lambda: drain.take(args.get("steps")),
            "doing": lambda: drain.doing(args.get("result"), args.get("before"), bool(args.get("holds"))),
            "proven": lambda: drain.proven(args.get("result") or {}),
            "failed": lambda: drain.failed(args.get("result") or {}),
            "undone": lambda: drain.merge_undo(args.get("result") or {}),
        }
        now = args.get("now")
        if now not in happened:
            raise AnsibleActionFail(f"drain_step: now has to be one of read, {', '.join(happened)}, not {now!r}.")
        happened[now]()
        for mark in drain.report["timeline"][before:]:
            host = (task_vars or {}).get("inventory_hostname", "host")
            display.display(f"[{host}] {mark['what']}: {printable(mark['detail'], 200)}")
        result.update(drain.state(), changed=now in ("begin", "take"))
        return result

    def _begin(self, drain: Drain, args: Result) -> None:
        folders = args.get("folders") or []
        drain.begin(
            args.get("steps"),
            args.get("event") or {},
            {key: value for key, value in (args.get("run") or {}).items() if value not in (None, "")},
            float(args.get("seconds") or 0),
            undo=bool(args.get("undo")),
            kinds=args.get("kinds") or (),
            find=self._find_in(folders),
        )

    def _find_in(self, folders: t.Sequence[str | None]) -> Find:
        return lambda name, probe: TaskFile(task_file(name, folders), self).checked(probe)

    def _read(self, result: Result, args: Result) -> Result:
        """Whether steps could be taken; and of task files where they are, and what their tasks register."""
        files, folders = [], args.get("folders") or []
        for name in args.get("files") or []:
            try:
                files.append(TaskFile(task_file(name, folders), self))
                files[-1].checked(probe=False)
            except Unusable as exc:
                raise AnsibleActionFail(f"the file is {quoted(name, 200)}, {exc}") from exc
        try:
            checked(args.get("steps") or [], self._find_in(folders))
        except WrongStep as exc:
            raise AnsibleActionFail(str(exc)) from exc
        result.update(files=[file.path for file in files], evidence=[name for file in files for name in file.evidence])
        return result


class TaskFile:
    """A user's task file. A mistake in one that is included ends the whole run, so it has to be found before."""

    def __init__(self, path: str, action: ActionBase, known: t.Collection[str] = ()) -> None:
        self.path = path
        self._action = action
        self._known = {path, *known}
        self._tasks: list[Task] = []

    def checked(self, probe: bool) -> str:
        loader = self._action._loader
        try:
            given = loader.load_from_file(self.path)
            if not isinstance(given, list):
                raise Unusable("which is not a list of tasks")
            play = self._action._task.get_play()
            blocks = load_list_of_blocks(given, play, variable_manager=NoImports(), loader=loader)
        except AnsibleError as exc:
            raise Unusable(f"which cannot be read: {exc.message}") from exc
        self._tasks = list(_tasks_in(blocks))
        for task in self._tasks:
            if isinstance(task, TaskInclude):
                self._check_included(task, probe)
            elif probe and not _registered(task) and _bare(task.action) not in ON_THE_CONTROLLER:
                raise Unusable(
                    f"whose task {quoted(task.get_name(), 80)} registers nothing. In a probe each task that looks at "
                    "the host has to: one that did not reach it could otherwise not be told from one that did"
                )
        return self.path

    def _check_included(self, task: Task, probe: bool) -> None:
        if probe:
            raise Unusable("which includes others. The tasks of a probe have to stand in its own file")
        name = str(task.args.get("_raw_params") or task.args.get("file") or "")
        path = os.path.join(os.path.dirname(self.path), name)
        if os.path.isfile(path) and path not in self._known:
            try:
                TaskFile(path, self._action, self._known).checked(probe)
            except Unusable as exc:
                raise Unusable(f"which includes {quoted(name, 200)}, {exc}") from exc

    @property
    def evidence(self) -> list[str]:
        """The variables in which its tasks say what they saw."""
        return [name for name in map(_registered, self._tasks) if name]


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


class NoImports:
    """Stands in for the variables when a file is only read: ansible-core asks for them at includes and imports."""

    def get_vars(self, task: Task, **_unused: t.Any) -> dict[str, t.Any]:
        # A mistake in what is imported cannot be found here, and ansible-core before 2.19 ends the run at it.
        if "import_" in task.action:
            raise Unusable("which imports other files or roles; include them instead")
        return {}


class TaskHost:
    """The task's host, where modules run for no longer than they may."""

    def __init__(self, action: ActionModule, task_vars: Result) -> None:
        self._action = action
        self._task_vars = task_vars
        self._manager: str | None = (task_vars.get("ansible_facts") or {}).get("service_mgr")

    def run(self, module: str, args: Result, seconds: float, check: bool = False) -> Result:
        action = self._action
        was = action._task.check_mode
        action._task.check_mode = check
        try:
            with _alarm(seconds):
                if module in ACTIONS:
                    return self._run_action(module, args)
                result: Result = action._execute_module(module_name=module, module_args=args, task_vars=self._task_vars)
                return result
        except AnsibleConnectionFailure as exc:
            return {"unreachable": True, "msg": str(exc)}
        except AnsibleError as exc:
            return {"failed": True, "msg": str(exc)}
        finally:
            action._task.check_mode = was

    def _run_action(self, name: str, args: Result) -> Result:
        action = self._action
        task = action._task.copy()
        task.args = {"use": self._service_manager(), **args}
        loader = action._shared_loader_obj
        handler = loader.action_loader.get(
            name,
            task=task,
            connection=action._connection,
            play_context=action._play_context,
            loader=action._loader,
            templar=action._templar,
            shared_loader_obj=loader,
        )
        result: Result = handler.run(task_vars=self._task_vars)
        return result

    def _service_manager(self) -> str:
        """Asked once: the action would ask the host each time, which costs as much as what it is asked for."""
        if self._manager is None:
            wanted = {"gather_subset": ["!all"], "filter": ["ansible_service_mgr"]}
            found = self._action._execute_module(
                module_name="ansible.legacy.setup", module_args=wanted, task_vars=self._task_vars
            )
            self._manager = (found.get("ansible_facts") or {}).get("ansible_service_mgr") or "auto"
        return self._manager


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(signum: int, frame: t.Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
