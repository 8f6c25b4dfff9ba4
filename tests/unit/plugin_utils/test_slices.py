# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import types
import typing as t

import pytest
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.plugin_utils import _slices
from ansible_collections.graceful.azure.plugins.plugin_utils._slices import (
    SILENT_FAILURE_LIMIT,
    SlicedModule,
    _answer,
    say,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

ANSWER: dict[str, t.Any] = {"outcome": "completed"}
OWN_FAILURE: dict[str, t.Any] = {"outcome": "timed_out", "failed": True, "msg": "After 5 s nothing had changed."}
WRONG_OPTION: dict[str, t.Any] = {"failed": True, "msg": "timeout is -1"}
UNREACHABLE: dict[str, t.Any] = {"unreachable": True, "msg": "Connection timed out"}
KILLED: dict[str, t.Any] = {"failed": True, "rc": 137, "module_stdout": "", "msg": "MODULE FAILURE"}
NO_PYTHON: dict[str, t.Any] = {"failed": True, "rc": 127, "module_stdout": "not found", "msg": "MODULE FAILURE"}

# As winrm and psrp let them through; neither library is needed for it.
WINRM_ERROR = type("ConnectionError", (OSError,), {"__module__": "requests.exceptions"})
PSRP_ERROR = type("WinRMTransportError", (Exception,), {"__module__": "pypsrp.exceptions"})


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


class FakeAction:
    """An action plugin whose host answers from a script, and whose connection counts its resets."""

    def __init__(self, *script: dict[str, t.Any] | Exception) -> None:
        self.script = list(script)
        self.asked: list[dict[str, t.Any]] = []
        self.resets = 0
        self._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp/x"), reset=self._reset)

    def _execute_module(self, **options: t.Any) -> dict[str, t.Any]:
        self.asked.append(options)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        return dict(step)

    def _reset(self) -> None:
        self.resets += 1


def sliced(action: FakeAction, **options: t.Any) -> tuple[SlicedModule, JumpingClock]:
    clock = JumpingClock()
    plugin = t.cast(ActionBase, action)
    return SlicedModule(plugin, "graceful.azure.any", {"x": 1}, "outcome", clock=clock, **options), clock


@pytest.mark.parametrize(
    ("result", "state"),
    [
        pytest.param(ANSWER, "answered", id="result"),
        pytest.param(OWN_FAILURE, "answered", id="failure-of-our-own"),
        pytest.param(WRONG_OPTION, "failed", id="final"),
        pytest.param(NO_PYTHON, "failed", id="never-ran"),
        pytest.param(UNREACHABLE, "interrupted", id="unreachable"),
        pytest.param(AnsibleConnectionFailure("lost"), "interrupted", id="connection-lost"),
        pytest.param(WINRM_ERROR("Connection aborted."), "interrupted", id="winrm-broken-off"),
        pytest.param(PSRP_ERROR("Code: 503"), "interrupted", id="psrp-broken-off"),
        pytest.param(AnsibleError("the connection attempt timed out"), "interrupted", id="winrm-timed-out"),
        pytest.param(caused(AnsibleError("it failed"), ConnectionResetError()), "interrupted", id="reset-beneath"),
        pytest.param(AnsibleError("no such user"), "failed", id="another-error"),
        pytest.param(KILLED, "interrupted", id="killed"),
        pytest.param({**KILLED, "rc": 1, "module_stderr": ""}, "interrupted", id="killed-on-windows"),
        pytest.param(RecursionError("too deep"), "failed", id="more-than-can-be-read"),
    ],
)
def test_a_slice_is_answered_failed_or_interrupted(result: t.Any, state: str) -> None:
    action = FakeAction(result)
    done = sliced(action)[0].run({"seen": 1})
    found = [name for name in ("failed", "interrupted") if getattr(done, name)] or ["answered"]
    assert found == [state]
    assert action.asked == [
        {"module_name": "graceful.azure.any", "module_args": {"seen": 1}, "task_vars": {"x": 1}},
    ]


@pytest.mark.parametrize(
    "warning",
    [
        pytest.param("No such type", id="2.18"),
        pytest.param({"event": {"msg": "No such type", "__ansible_type": "Event"}}, id="2.19"),
    ],
)
def test_a_warning_of_the_module_is_printed_as_its_text(warning: t.Any) -> None:
    assert json.loads(_answer(json.dumps({"warnings": [warning]}))) == {"warnings": ["No such type"]}


def test_what_has_run_before_may_run_again_later() -> None:
    assert sliced(FakeAction(NO_PYTHON), answered=True)[0].run({}).interrupted
    module, _clock = sliced(FakeAction(ANSWER, NO_PYTHON))
    module.run({})
    assert module.run({}).interrupted


def test_a_module_that_never_gives_a_result_is_given_up_after_a_while() -> None:
    module, clock = sliced(FakeAction(KILLED))
    assert module.run({}).interrupted
    clock.now += SILENT_FAILURE_LIMIT
    assert module.run({}).interrupted
    clock.now += 1
    assert module.run({}).failed


def test_a_result_in_between_counts_anew() -> None:
    module, clock = sliced(FakeAction(KILLED, ANSWER, KILLED))
    module.run({})
    clock.now += SILENT_FAILURE_LIMIT + 1
    module.run({})
    assert module.run({}).interrupted


def test_an_unreachable_host_is_never_given_up_here() -> None:
    module, clock = sliced(FakeAction(UNREACHABLE))
    for _time in range(3):
        assert module.run({}).interrupted
        clock.now += 3600


def test_interruptions_have_their_times() -> None:
    module, clock = sliced(FakeAction(UNREACHABLE, KILLED, ANSWER, ANSWER, UNREACHABLE))
    for _time in range(5):
        module.run({})
        clock.now += 10
    assert module.interruptions == [
        {"lost": "2026-09-19T18:00:00Z", "back": "2026-09-19T18:00:20Z"},
        {"lost": "2026-09-19T18:00:40Z", "back": None},
    ]


def test_interruptions_of_an_earlier_task_are_continued() -> None:
    earlier = [{"lost": "2026-09-19T17:59:00Z", "back": None}]
    module, _clock = sliced(FakeAction(ANSWER), interruptions=earlier)
    module.run({})
    assert module.interruptions == [{"lost": "2026-09-19T17:59:00Z", "back": "2026-09-19T18:00:00Z"}]
    assert earlier[0]["back"] is None


@pytest.mark.parametrize(("left", "pause"), [(100, 2.0), (0.5, 0.5), (-3, 0.0)])
def test_reconnecting_pauses_within_the_time_left_and_resets_the_connection(left: float, pause: float) -> None:
    action = FakeAction(UNREACHABLE)
    module, clock = sliced(action)
    module.reconnect(left)
    assert clock.pauses == [pause]
    assert action.resets == 1
    assert action._connection._shell.tmpdir is None


def test_a_connection_whose_reset_fails_is_closed() -> None:
    action = FakeAction(UNREACHABLE)
    closed: list[bool] = []
    action._connection.reset = lambda: 1 / 0
    action._connection.close = lambda: closed.append(True)
    sliced(action)[0].reconnect(1)
    assert closed == [True]


def test_a_connection_that_cannot_be_reset_is_used_as_it_is() -> None:
    action = FakeAction(UNREACHABLE)
    del action._connection.reset
    sliced(action)[0].reconnect(1)


@pytest.mark.parametrize(
    ("callback", "stderr"),
    [
        ("default", False),
        ("ansible.builtin.default", False),
        ("minimal", False),
        ("community.general.yaml", False),
        ("awx_display", False),
        ("json", True),
        ("ansible.posix.json", True),
        ("ansible.posix.jsonl", True),
        ("community.general.null", True),
        ("somebody.elses.callback", True),
    ],
)
def test_progress_goes_to_stdout_only_if_that_is_lines_for_people(
    monkeypatch: pytest.MonkeyPatch, callback: str, stderr: bool
) -> None:
    shown: list[tuple[str, bool]] = []
    monkeypatch.setattr(C.config, "get_config_value", lambda name: callback)
    monkeypatch.setattr(_slices.display, "display", lambda text, stderr: shown.append((text, stderr)))
    say("[web1] \x1b[31m{{ x }}\n")
    say("  because of http://me:hunter2@host/?key=hunter2")
    say("web1   yes    vm_0")
    assert shown == [
        ("[web1] ?[31m{ { x }}", stderr),
        ("  because of http://…@host/?…", stderr),
        ("web1   yes    vm_0", stderr),
    ]
