# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Runs a module in slices, so that a task lives through a reboot of its host, and shows how far it is."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, iso, readable
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import HostAction
from ansible_collections.graceful.azure.plugins.plugin_utils._play import Plugin

RECONNECT_PAUSE = 2.0
# While a host goes down or comes up, its ssh may already answer and its Python not yet; after this long it is broken.
SILENT_FAILURE_LIMIT = 60.0
COMMAND_NOT_RUN = (126, 127)
# winrm and psrp let errors of these through when the host goes down in the middle of a command.
CONNECTION_LIBRARIES = ("requests", "urllib3", "winrm", "pypsrp", "psrpcore", "httpx", "httpcore")
# What winrm says where others raise AnsibleConnectionFailure.
CONNECT_TIMED_OUT = "the connection attempt timed out"
# Callbacks whose stdout is lines for people. What another one prints may be data that a further line would break.
LINE_CALLBACKS = (
    "awx_display", "counter_enabled", "debug", "default", "default_without_diff", "dense", "diy", "minimal", "oneline",
    "selective", "tasks_only", "timestamp", "unixy", "yaml",
)  # fmt: skip

display = Display()
Result = dict[str, t.Any]


def say(text: str) -> None:
    """Show a line of progress: on stdout if that is for people, else on stderr."""
    callback = str(C.config.get_config_value("DEFAULT_STDOUT_CALLBACK")).rpartition(".")[2]
    indented = " " * (len(text) - len(text.lstrip(" "))) + clean(text, 1000)
    display.display(indented, stderr=callback not in LINE_CALLBACKS)


def is_lost_connection(exc: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that the host cannot be reached."""
    for _dummy in range(8):
        if exc is None:
            return False
        if isinstance(exc, (AnsibleConnectionFailure, ConnectionError, TimeoutError)) or CONNECT_TIMED_OUT in str(exc):
            return True
        if type(exc).__module__.partition(".")[0] in CONNECTION_LIBRARIES:
            return True
        exc = exc.__cause__ or exc.__context__
    return False


class Slice(t.NamedTuple):
    """How a slice ended. Exactly one of answered, failed and interrupted is true."""

    result: Result
    # The module returned what it returns when it worked, or its own account of a failure.
    answered: bool = False
    # Running it again would not help; the result is the task's.
    failed: bool = False
    # The host was not reachable, or the module was killed: run it again after reconnect().
    interrupted: bool = False


class SlicedAction(HostAction, Plugin):
    """An action plugin for a module of ours. What the host answers is cleaned before Ansible shows anything of it."""

    def _parse_returned_data(self, res: Result, *more: t.Any) -> t.Any:
        return super()._parse_returned_data({**res, "stdout": _answer(res.get("stdout") or "")}, *more)


def _answer(stdout: str) -> str:
    """The module's answer with warnings that can be shown, and without what else was printed beside it."""
    try:
        told = json.loads(stdout[stdout.find("{") : stdout.rfind("}") + 1])
    except (RecursionError, ValueError):
        return readable(stdout)
    told.pop("deprecations", None)
    if "warnings" in told:
        warnings = told["warnings"]
        told["warnings"] = [clean(one, 1000) for one in warnings[:20]] if isinstance(warnings, list) else []
    return json.dumps(told)


class SlicedModule:
    """A module of ours on the task's host. Knows its results by a key that each of them has."""

    def __init__(
        self,
        action: ActionBase,
        module: str,
        task_vars: Result,
        key: str,
        interruptions: t.Sequence[t.Mapping[str, t.Any]] = (),
        answered: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._action = action
        self._module = module
        self._task_vars = task_vars
        self._key = key
        self._clock = clock or Clock()
        # An earlier slice has run: what does not run now may run again later.
        self._answered = answered
        self._silent_since: float | None = None
        # When the host was lost and when it answered again, which is None while it does not.
        self.interruptions = [{"lost": gap["lost"], "back": gap["back"]} for gap in interruptions]

    def run(self, args: t.Mapping[str, t.Any]) -> Slice:
        """Run the module once with these arguments."""
        try:
            result: Result = self._action._execute_module(
                module_name=self._module, module_args=dict(args), task_vars=self._task_vars
            )
        except AnsibleConnectionFailure as exc:
            result = {"unreachable": True, "msg": str(exc)}
        except Exception as exc:
            if is_lost_connection(exc):
                result = {"unreachable": True, "msg": str(exc)}
            else:
                # What a host sends may be more than Ansible can read. That must not end the task, or the run.
                result = {"failed": True, "msg": f"What the host answered cannot be used: {clean(exc, 300)}"}
        if self._key in result:
            self._note_answer()
            return Slice(result, answered=True)
        killed = "module_stdout" in result and not result.get("unreachable")
        if not (killed or result.get("unreachable")) or (killed and self._is_broken(result)):
            return Slice(result, failed=True)
        if not self.interruptions or self.interruptions[-1]["back"] is not None:
            self.interruptions.append({"lost": iso(self._clock.utc_now()), "back": None})
        return Slice(result, interrupted=True)

    def _note_answer(self) -> None:
        self._answered, self._silent_since = True, None
        if self.interruptions and self.interruptions[-1]["back"] is None:
            self.interruptions[-1]["back"] = iso(self._clock.utc_now())

    def _is_broken(self, result: Result) -> bool:
        """Whether a module that ended without a result will not run later either."""
        now = self._clock.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        never_ran = not self._answered and result.get("rc") in COMMAND_NOT_RUN
        return never_ran or now - self._silent_since > SILENT_FAILURE_LIMIT

    def reconnect(self, seconds_left: float) -> None:
        """After an interruption: pause, and have the next slice connect anew."""
        self._clock.sleep(max(0.0, min(RECONNECT_PAUSE, seconds_left)))
        self._action._connection._shell.tmpdir = None
        # Not every connection can be reset, and to reset it may be to connect; the next slice tries all the same. What
        # psrp could not open, it would use after that, unless it is closed.
        with contextlib.suppress(Exception):
            try:
                self._action._connection.reset()
            except Exception:
                self._action._connection.close()
                raise
