# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._drains.command import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._run import run as real_run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Programs,
    mistake,
    options_of,
    tools,
)

NOTED = StepRecord({"in_service": True}, {}, lost=False)
GIVEN: dict[str, t.Any] = {"do": ["pause", "now"], "probe": ["is-paused"], "undo": ["resume"]}


class Queue:
    """Is paused some probes after it was told to be."""

    def __init__(self, paused: bool = False, takes: int = 0) -> None:
        self.paused = paused
        self.takes = takes
        self.codes: dict[str, int] = {}
        self.run = Programs(self.answer)

    def answer(self, argv: list[str]) -> Ran:
        code = self.codes.get(argv[0], 0)
        if argv[0] == "is-paused":
            if self.paused and self.takes:
                self.takes -= 1
                return Ran(1, "still 3 jobs\n", "")
            return Ran(0, "paused\n", "") if self.paused else Ran(code or 1, "running\n", "")
        if code == 0:
            self.paused = argv[0] == "pause"
        return Ran(code, "", f"{argv[0]} {{{{ said }}}}\n")

    def step(self, seconds: float = 60, **more: t.Any) -> Step:
        return Step(options_of(Step, **{**GIVEN, **more}), tools(seconds, JumpingClock(), self.run))


def test_it_is_done_when_the_probe_passes_and_undone_by_undo() -> None:
    queue = Queue(takes=2)
    assert queue.step().look() == (False, "the probe ends with 1: running", {"in_service": True})
    assert queue.step().do() == ("the probe passes: paused", {})
    assert queue.step().look().done
    assert queue.step().undo(NOTED) == "undo has ended: resume { { said }}"
    assert [argv[0] for argv in queue.run.ran if argv[0] != "is-paused"] == ["pause", "resume"]
    assert ["pause", "now"] in queue.run.ran
    assert not queue.paused


def test_what_passed_the_probe_before_anything_was_done_is_left_so() -> None:
    look = Queue(paused=True).step().look()
    assert (look.done, look.before) == (True, {"in_service": False})


def test_a_program_that_fails_is_said_and_the_probe_is_not_asked() -> None:
    queue = Queue()
    queue.codes["pause"] = 3
    with pytest.raises(EventsError, match=r"The program of do ended with 3: pause \{ \{ said \}\}"):
        queue.step().do()
    assert queue.run.ran == [["pause", "now"]]
    queue.codes["resume"] = 4
    with pytest.raises(EventsError, match="The program of undo ended with 4"):
        queue.step().undo(NOTED)


def test_a_probe_that_never_passes_is_late() -> None:
    queue = Queue(takes=1000)
    with pytest.raises(Late, match="After 20 s still: the probe ends with 1: still 3 jobs"):
        queue.step(seconds=20).do()


def test_without_undo_there_is_nothing_to_undo() -> None:
    queue = Queue(paused=True)
    assert queue.step(undo=None).undo(NOTED) == "there is nothing to undo"
    assert queue.run.ran == []


def test_programs_get_their_user_their_environment_and_the_time_that_is_left() -> None:
    queue = Queue()
    queue.step(become_user="worker", environment={"QUEUE": "mail", "LEVEL": 3}).do()
    assert {(options["user"], tuple(options["environment"].items())) for options in queue.run.with_options} == {
        ("worker", (("QUEUE", "mail"), ("LEVEL", "3")))
    }
    assert [options["seconds"] for options in queue.run.with_options] == [60, 30]


def test_real_programs(tmp_path: Path) -> None:
    mark = tmp_path / "paused"
    given = {
        "do": ["touch", str(mark)],
        "probe": ["test", "-e", str(mark)],
        "undo": ["/bin/sh", "-c", 'rm "$MARK"'],
        "environment": {"MARK": str(mark)},
    }
    step = Step(options_of(Step, **given), tools(20, Clock(), real_run))
    assert not step.look().done
    assert step.do().message == "the probe passes: no output"
    assert step.look().done
    step.undo(NOTED)
    assert not step.look().done


def test_a_program_that_is_not_there_is_named() -> None:
    step = Step(options_of(Step, do=["true"], probe=["/nonexistent/probe"]), tools(20, Clock(), real_run))
    with pytest.raises(EventsError, match="/nonexistent/probe cannot be run"):
        step.look()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**GIVEN, "do": ["a", ""], "environment": {"A_1": "x", "B": 1.5}, "become_user": "me"}, ""),
        ({"do": ["a"]}, "probe"),
        ({"probe": ["a"]}, "do"),
        ({**GIVEN, "do": []}, "do has to be a list: the program, then its arguments"),
        ({**GIVEN, "probe": [" ", "x"]}, "probe has to be a list"),
        ({**GIVEN, "undo": []}, "undo has to be a list"),
        ({**GIVEN, "become_user": " "}, "become_user has to be a string"),
        ({**GIVEN, "environment": {"A B": "x"}}, "cannot be that of a variable"),
        ({**GIVEN, "environment": {"A": True}}, "the value of A has to be a string. Put it into quotes."),
        ({**GIVEN, "environment": {"A": ["x"]}}, "the value of A has to be a string"),
    ],
)
def test_only_programs_are_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)
