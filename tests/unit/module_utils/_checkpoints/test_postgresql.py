# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checkpoints.postgresql import Item
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Programs,
    mistake,
    options_of,
    tools,
)

STATEMENT = ["-X", "-w", "-v", "ON_ERROR_STOP=1", "-c", "CHECKPOINT"]
DOWN = Ran(2, "", "psql: error: connection failed: No such file\n\tIs the server running locally?\n")


def item(*script: Ran, seconds: float = 60, **given: t.Any) -> tuple[Item, Programs, JumpingClock]:
    """The last answer is given again and again."""
    answers, clock = list(script), JumpingClock()
    programs = Programs(lambda argv: answers.pop(0) if len(answers) > 1 else answers[0])
    return Item(options_of(Item, **given), tools(seconds, clock, programs)), programs, clock


def test_a_checkpoint_is_made_once() -> None:
    work, programs, _clock = item(Ran(0, "CHECKPOINT\n", ""), argv=["psql", "-p", "5433"], become_user="postgres")
    assert work.do() == ("PostgreSQL has made a CHECKPOINT", {})
    assert programs.ran == [["psql", "-p", "5433", *STATEMENT]]
    assert programs.with_options == [{"seconds": 60, "user": "postgres", "environment": None}]
    assert work.undo(StepRecord({}, {}, True)) == "there is nothing to put back"


def test_a_server_that_restarts_is_asked_again() -> None:
    work, programs, clock = item(DOWN, DOWN, DOWN, Ran(0, "", ""))
    work.do()
    assert programs.ran == [["psql", *STATEMENT]] * 4
    assert clock.pauses == [1.0] * 3


def test_a_server_that_stays_away_is_said_after_20_seconds() -> None:
    work, _programs, clock = item(DOWN, seconds=600)
    with pytest.raises(Late, match=r"After 20 s still: PostgreSQL takes no connection: Is the server running locally"):
        work.do()
    assert clock.now == 1020


def test_a_server_that_stays_away_costs_no_more_than_there_is() -> None:
    work, _programs, clock = item(DOWN, seconds=5)
    with pytest.raises(Late, match="After 5 s still"):
        work.do()
    assert clock.now == 1005


def test_a_long_checkpoint_may_take_all_the_time_there_is() -> None:
    work, programs, _clock = item(DOWN, Ran(0, "", ""), seconds=600)
    work.do()
    assert [options["seconds"] for options in programs.with_options] == [600, 599]


@pytest.mark.parametrize("code", [1, 3, 127, -9])
def test_what_else_goes_wrong_is_said_at_once(code: int) -> None:
    work, programs, _clock = item(Ran(code, "", 'ERROR:  refused\nDETAIL:  Only "pg_checkpoint" may.\n'))
    with pytest.raises(EventsError, match='PostgreSQL made no CHECKPOINT: DETAIL: Only "pg_checkpoint" may'):
        work.do()
    assert len(programs.ran) == 1


def test_a_wrong_option_is_said() -> None:
    assert mistake(Item, {}) == ""
    assert "argv has to be a list" in mistake(Item, {"argv": []})
