# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience, Proof
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock


def looks(clock: JumpingClock, pattern: str, takes: float = 0.0) -> t.Callable[[], Proof]:
    """One character per look, + for what holds; the last one stays."""
    left = list(pattern)

    def look() -> Proof:
        clock.now += takes
        sign = left.pop(0) if len(left) > 1 else left[0]
        return Proof(sign == "+", f"seen {sign}")

    return look


CASES = [
    ("at once", "+", 0, 0),
    ("after a while", "--+", 0, 2),
    ("only if it lasts", "+", 3, 3),
    ("a relapse starts it anew", "++-+", 3, 6),
]


@pytest.mark.parametrize(
    ("pattern", "lasting", "seconds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_it_is_proven(pattern: str, lasting: float, seconds: float) -> None:
    clock = JumpingClock()
    assert Patience(10, clock).until(looks(clock, pattern), pause=1, lasting=lasting) == "seen +"
    assert clock.now == 1000 + seconds


@pytest.mark.parametrize(
    ("pattern", "lasting", "words"),
    [("-", 0, "After 5 s still: seen -."), ("--+", 60, r"seen \+, but only for 3 s of the 60 s")],
    ids=["never", "not long enough"],
)
def test_it_is_late_at_the_end_of_the_time_and_not_later(pattern: str, lasting: float, words: str) -> None:
    clock = JumpingClock()
    with pytest.raises(Late, match=words) as caught:
        Patience(5, clock).until(looks(clock, pattern), pause=1, lasting=lasting)
    assert clock.now == 1005
    assert caught.value.fields["late"] is True


def test_the_last_pause_is_no_longer_than_what_is_left() -> None:
    clock = JumpingClock()
    with pytest.raises(Late):
        Patience(5, clock).until(looks(clock, "-"), pause=60)
    assert clock.now == 1005


def test_a_request_gets_what_is_left_but_never_nothing() -> None:
    clock = JumpingClock()
    patience = Patience(3, clock)
    assert patience.request_timeout() == 3
    assert patience.request_timeout(1) == 1
    clock.now += 10
    assert 0 < patience.request_timeout() < 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(WrongOption):
        Patience(seconds)


def test_a_part_ends_with_the_whole_and_is_never_nothing() -> None:
    clock = JumpingClock()
    patience = Patience(10, clock)
    assert patience.part(4).seconds == 4
    clock.now += 8
    assert patience.part(4).seconds == 2
    clock.now += 8
    assert 0 < patience.part(4).seconds < 1


def test_what_is_waited_for_is_told() -> None:
    clock = JumpingClock()
    told: list[str] = []
    Patience(10, clock, told.append).part(5).until(looks(clock, "--+"), pause=1)
    assert told == ["seen -", "seen -"]
