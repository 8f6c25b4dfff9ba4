# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import signal
import typing as t
from collections.abc import Iterator

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.task import Task
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.graceful.azure.plugins.plugin_utils._drain import Drain, OutOfTime
from ansible_collections.graceful.azure.plugins.plugin_utils._drain_steps import Unusable, task_file
from ansible_collections.graceful.azure.plugins.plugin_utils._words import printable

display = Display()
Result = dict[str, t.Any]
# These decide on the controller which module the host needs.
ACTIONS = ("ansible.builtin.service",)


class ActionModule(ActionBase):
    """Takes a step of a drain in one task: nothing but the step itself costs time, and no host is lost on the way."""

    _requires_connection = True
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: Result | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        del tmp
        args = self._task.args
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
            raise AnsibleActionFail(f"drain_step: now has to be one of {', '.join(happened)}, not {now!r}.")
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
            find=lambda name: self._checked_file(task_file(name, folders)),
        )

    def _checked_file(self, path: str) -> str:
        """A mistake in an included file ends the whole run, so it has to be found before."""
        try:
            tasks = self._loader.load_from_file(path)
            if not isinstance(tasks, list):
                raise Unusable("which is not a list of tasks")
            load_list_of_blocks(tasks, self._task.get_play(), variable_manager=NoImports(), loader=self._loader)
        except AnsibleError as exc:
            raise Unusable(f"which cannot be read: {exc.message}") from exc
        return path


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
        task.args = dict(args)
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
