# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module in short calls, so that a task survives a reboot of its host and can print its progress."""

from __future__ import annotations

import contextlib
import json
import re
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils._clock import Clock
from ..module_utils._text import clean, iso, readable
from ._platform import HostAction
from ._play import Plugin

RECONNECT_PAUSE = 2.0
# While a host boots, ssh may answer before Python works. If that lasts longer than this, the host is broken.
SILENT_FAILURE_LIMIT = 60.0
COMMAND_NOT_RUN = (126, 127)
# winrm and psrp raise errors of these libraries if the host goes down during a command.
CONNECTION_LIBRARIES = ("requests", "urllib3", "winrm", "pypsrp", "psrpcore", "httpx", "httpcore")
# winrm raises another error with this text where other plugins raise AnsibleConnectionFailure.
CONNECT_TIMED_OUT = "the connection attempt timed out"
# Callbacks that print lines for people. The output of others may be data, which a further line would break.
LINE_CALLBACKS = (
    "awx_display", "counter_enabled", "debug", "default", "default_without_diff", "dense", "diy", "minimal", "oneline",
    "selective", "tasks_only", "timestamp", "unixy", "yaml",
)  # fmt: skip

display = Display()
Result = dict[str, t.Any]


def say(text: str) -> None:
    """Print a line of progress: on stdout if the callback prints lines for people, else on stderr."""
    callback = str(C.config.get_config_value("DEFAULT_STDOUT_CALLBACK")).rpartition(".")[2]
    # Two blanks or more are an indent, or align the columns of a table.
    parts = [part if part.isspace() else clean(part, 1000) for part in re.split("(  +)", text)]
    display.display("".join(parts), stderr=callback not in LINE_CALLBACKS)


def is_lost_connection(exc: BaseException | None) -> bool:
    """Whether the error, or one of its causes, means that the host cannot be reached."""
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
    """The result of one call: that of the module, which may be a failure that it describes itself, or an error."""

    result: Result
    # Calling it again would not help: this is the result of the task.
    failed: bool = False
    # The host was unreachable or the module was killed: call it again after reconnect().
    interrupted: bool = False


class SlicedAction(HostAction, Plugin):
    """An action plugin for a module of ours. The answer of the host is cleaned before Ansible prints any of it."""

    def _parse_returned_data(self, res: Result, *more: t.Any) -> t.Any:
        return super()._parse_returned_data({**res, "stdout": _answer(res.get("stdout") or "")}, *more)


def _answer(stdout: str) -> str:
    """The module's answer with cleaned warnings, and without anything else that was printed."""
    try:
        answer = json.loads(stdout[stdout.find("{") : stdout.rfind("}") + 1])
    except (RecursionError, ValueError):
        return readable(stdout)
    answer.pop("deprecations", None)
    if "warnings" in answer:
        warnings = answer["warnings"]
        answer["warnings"] = [_warning(one) for one in warnings[:20]] if isinstance(warnings, list) else []
    return json.dumps(answer)


def _warning(one: t.Any) -> str:
    """The text of a warning, which ansible-core 2.19 and newer return in a dictionary."""
    event = one.get("event") if isinstance(one, dict) else None
    return clean(event.get("msg") if isinstance(event, dict) else one, 1000)


class SlicedModule:
    """A module of ours on the host of the task. Each result of the module has the given key."""

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
        # An earlier call worked, so one that does not work now may work again later.
        self._answered = answered
        self._silent_since: float | None = None
        # When the host was lost, and when it answered again (None as long as it does not).
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
                # Ansible may be unable to read the answer. That must not end the run.
                result = {"failed": True, "msg": f"The answer of the host cannot be used: {clean(exc, 300)}"}
        if self._key in result:
            self._note_answer()
            return Slice(result)
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
        """Whether a module that ended without a result would not work later either."""
        now = self._clock.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        never_ran = not self._answered and result.get("rc") in COMMAND_NOT_RUN
        return never_ran or now - self._silent_since > SILENT_FAILURE_LIMIT

    def reconnect(self, seconds_left: float) -> None:
        """After an interruption: pause, and let the next call make a new connection."""
        self._clock.sleep(max(0.0, min(RECONNECT_PAUSE, seconds_left)))
        self._action._connection._shell.tmpdir = None
        # Not every connection can be reset, and a reset may try to connect; the next call tries again in any case. psrp
        # has to be closed then, or it would use the connection that could not be opened.
        with contextlib.suppress(Exception):
            try:
                self._action._connection.reset()
            except Exception:
                self._action._connection.close()
                raise
