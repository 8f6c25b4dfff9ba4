# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checkpoints.command import Item
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Programs, mistake, options_of, tools


def item(ran: Ran, **given: t.Any) -> tuple[Item, Programs]:
    programs = Programs(lambda argv: ran)
    return Item(
        options_of(Item, argv=["/usr/local/bin/queue", "flush", "s3cret"], **given), tools(30, run=programs)
    ), programs


def test_a_program_that_ends_well_has_saved() -> None:
    work, programs = item(Ran(0, "begun\n12 saved\n", ""), become_user="queue")
    assert programs.ran == []
    assert work.do() == ("the program has ended: 12 saved", {})
    assert programs.ran == [["/usr/local/bin/queue", "flush", "s3cret"]]
    assert programs.with_options == [{"seconds": 30, "user": "queue", "environment": None}]
    assert work.undo(StepRecord({}, {}, True)) == "there is nothing to put back"
    assert len(programs.ran) == 1


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        (Ran(3, "", "the queue is\nbusy\n"), "/usr/local/bin/queue ended with 3: busy"),
        (Ran(1, "out of\nluck", ""), "/usr/local/bin/queue ended with 1: luck"),
        (Ran(-9, "", ""), "/usr/local/bin/queue ended with -9: no output"),
        (Ran(1, "", "{{ lookup('pipe', 'id') }}\x1b[2J"), "ended with 1: { { lookup('pipe', 'id') }}?[2J"),
    ],
)
def test_a_program_that_fails_says_why_and_its_arguments_are_not_told(ran: Ran, words: str) -> None:
    with pytest.raises(EventsError) as caught:
        item(ran)[0].do()
    assert caught.value.message.endswith(words)
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"argv": ["sync"]}, ""),
        ({"argv": ["sync"], "become_user": "backup"}, ""),
        ({}, "argv"),
        ({"argv": []}, "argv has to be a list"),
        ({"argv": [""]}, "argv has to be a list"),
        ({"argv": ["sync"], "become_user": " "}, "become_user has to be a string"),
        ({"argv": ["sync"], "shell": True}, "shell"),
    ],
)
def test_what_a_user_can_get_wrong_is_said(given: dict[str, t.Any], words: str) -> None:
    found = mistake(Item, given)
    assert (words in found) if words else found == ""
