# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import Event, Filters, parse, seen_by
from ansible_collections.graceful.azure.plugins.module_utils._errors import (
    EventsError,
    PassingFailure,
    Refused,
    WrongOption,
)
from ansible_collections.graceful.azure.plugins.module_utils._waiter import Outcome, Seen, wait
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import event, events
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import START, JumpingClock

NOTHING: list[dict[str, t.Any]] = []
SCHEDULED, STARTED = [event("A")], [event("A", "Started")]
FAILED = PassingFailure("refused")
Step = list[dict[str, t.Any]] | Exception


def at(seconds: int) -> str:
    return f"2026-09-19T18:00:{seconds:02}Z"


class WithBudgets(JumpingClock):
    """Keeps what each read was given, too."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets: list[float] = []


def run(
    until: str, *steps: Step, timeout: float = 10, seen: Seen | None = None, **filters: t.Any
) -> tuple[Outcome, WithBudgets]:
    clock = WithBudgets()
    script = list(steps)

    def read(budget: float) -> list[Event]:
        clock.budgets.append(budget)
        step = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(step, Exception):
            raise step
        return seen_by(parse(events(*step).body), "web_0", START)

    return wait(read, until, Filters(**filters), seen or Seen(), timeout, 1.0, clock), clock


@pytest.mark.parametrize(
    ("until", "steps", "outcome", "polls"),
    [
        pytest.param("appeared", [SCHEDULED], "appeared", 1, id="there-at-first"),
        pytest.param("appeared", [NOTHING, NOTHING, SCHEDULED], "appeared", 3, id="appears"),
        pytest.param("appeared", [NOTHING], "timed_out", 11, id="never-appears"),
        pytest.param("started", [NOTHING, SCHEDULED, STARTED], "started", 3, id="starts"),
        pytest.param("started", [SCHEDULED], "timed_out", 11, id="never-starts"),
        pytest.param("gone", [NOTHING], "none", 1, id="nothing-to-leave"),
        pytest.param("gone", [SCHEDULED, STARTED, NOTHING], "completed", 3, id="completes"),
        pytest.param("gone", [STARTED, NOTHING], "completed", 2, id="was-started"),
        pytest.param("gone", [SCHEDULED, NOTHING], "cancelled", 2, id="cancelled"),
        pytest.param("gone", [SCHEDULED, [event("B")]], "cancelled", 2, id="another-takes-its-place"),
        pytest.param("gone", [[event("A"), event("B")], [event("b")], NOTHING], "cancelled", 3, id="every-one-leaves"),
        pytest.param("gone", [SCHEDULED], "timed_out", 11, id="stays"),
        pytest.param("changed", [NOTHING, NOTHING, SCHEDULED], "changed", 3, id="something-new"),
        pytest.param("changed", [SCHEDULED, STARTED], "changed", 2, id="another-status"),
        pytest.param("changed", [SCHEDULED], "timed_out", 11, id="nothing-changes"),
        pytest.param("appeared", [FAILED, FAILED, SCHEDULED], "appeared", 3, id="failure-passes"),
        pytest.param("gone", [SCHEDULED, FAILED, SCHEDULED, NOTHING], "cancelled", 4, id="failure-is-not-empty"),
        pytest.param("appeared", [FAILED], "unreachable", 11, id="never-answers"),
        pytest.param("gone", [SCHEDULED, FAILED], "unreachable", 11, id="stops-answering"),
    ],
)
def test_outcomes(until: str, steps: list[Step], outcome: str, polls: int) -> None:
    done, _clock = run(until, *steps)
    assert (done.outcome, done.seen["polls"]) == (outcome, polls)


def test_a_status_filter_does_not_make_a_started_event_gone() -> None:
    done, _clock = run("gone", SCHEDULED, STARTED, STARTED, NOTHING, event_statuses=["Scheduled"])
    assert (done.outcome, done.seen["polls"]) == ("completed", 4)


def test_what_was_last_seen_is_returned_with_every_end() -> None:
    assert run("gone", SCHEDULED, FAILED)[0].events[0]["event_id"] == "A"
    with pytest.raises(EventsError, match="refused for good") as failure:
        run("gone", SCHEDULED, Refused("refused for good", 404))
    assert failure.value.fields["events"][0]["event_id"] == "A"
    assert failure.value.fields["outcome"] == "unreachable"
    assert failure.value.fields["polls"] == 2


def test_the_pause_is_clamped_to_the_time_left_and_retry_after_is_honoured() -> None:
    _done, clock = run("appeared", NOTHING, timeout=2.5)
    assert clock.pauses == [1.0, 1.0, 0.5]
    _done, clock = run("appeared", PassingFailure("429", 429, 4.0), SCHEDULED)
    assert clock.pauses == [4.0]


def test_timeout_zero_reads_once() -> None:
    done, clock = run("appeared", NOTHING, timeout=0)
    assert clock.budgets == [30], "it has the time that a read needs"
    assert (done.outcome, done.seen["polls"], clock.pauses) == ("timed_out", 1, [])


class TestTimes:
    BOTH: t.ClassVar[Step] = [event("A", "Started"), event("B")]

    def times(self, done: Outcome) -> dict[str, tuple[str | None, str | None]]:
        return {one["event_id"]: (one["started_at"], one["gone_at"]) for one in done.result()["times"]}

    @pytest.mark.parametrize(
        ("steps", "times"),
        [
            pytest.param([SCHEDULED, STARTED, STARTED, NOTHING], {"a": (at(1), at(3))}, id="started-and-gone"),
            pytest.param([SCHEDULED, NOTHING], {"a": (None, at(1))}, id="never-started"),
            pytest.param([STARTED], {"a": (at(0), None)}, id="still-there"),
            pytest.param([SCHEDULED, FAILED, NOTHING], {"a": (None, at(2))}, id="no-answer-is-not-gone"),
            pytest.param(
                [BOTH, BOTH, [event("B", "Started")], NOTHING], {"a": (at(0), at(2)), "b": (at(2), at(3))}, id="each"
            ),
        ],
    )
    def test_each_event_has_its_own(self, steps: list[Step], times: dict[str, t.Any]) -> None:
        assert self.times(run("gone", *steps)[0]) == times

    def test_an_event_that_was_never_there_is_gone_at_the_first_read(self) -> None:
        assert self.times(run("gone", NOTHING, event_ids=["X"])[0]) == {"x": (None, at(0))}
        assert self.times(run("appeared", NOTHING, event_ids=["X"])[0]) == {}

    def test_they_travel_from_slice_to_slice_and_a_change_ends_the_slice(self) -> None:
        known = run("gone", self.BOTH, timeout=100, seen=Seen.from_option({"slice": 30}))[0]
        later = [event("A", "Started"), event("B", "Started")]
        second = run("gone", self.BOTH, later, timeout=100, seen=Seen.from_option(known.seen))[0]
        assert second.continues, "the start of the second event would be lost with the host"
        third = run("gone", NOTHING, timeout=100, seen=Seen.from_option(second.seen))[0]
        assert self.times(third)["a"][0] == at(0)
        assert self.times(third)["b"][0] == at(1)


class TestSlices:
    def test_a_slice_ends_early_and_the_next_goes_on_where_it_ended(self) -> None:
        first, _clock = run("started", NOTHING, timeout=100, seen=Seen.from_option({"slice": 3}))
        assert first.continues
        assert (first.seen["polls"], first.seen["elapsed"]) == (4, 3.0)
        second, _clock = run("started", NOTHING, STARTED, timeout=100, seen=Seen.from_option(first.seen))
        assert (second.outcome, second.continues, second.seen["polls"]) == ("started", False, 6)

    def test_a_first_read_that_does_not_count_does_not_end_the_slice(self) -> None:
        first, _clock = run("started", SCHEDULED, timeout=100, seen=Seen.from_option({"slice": 3}))
        assert (first.continues, first.seen["polls"]) == (True, 4)

    @pytest.mark.parametrize("until", ["gone", "changed"])
    def test_a_first_read_that_counts_ends_the_slice_so_that_a_reboot_cannot_lose_it(self, until: str) -> None:
        first, _clock = run(until, SCHEDULED, timeout=100, seen=Seen.from_option({"slice": 30}))
        assert (first.continues, first.seen["polls"]) == (True, 1)
        second, _clock = run(until, NOTHING, timeout=100, seen=Seen.from_option(first.seen))
        assert second.outcome == ("cancelled" if until == "gone" else "changed")

    def test_a_start_ends_the_slice_so_that_a_reboot_cannot_lose_it(self) -> None:
        known = run("gone", SCHEDULED, timeout=100, seen=Seen.from_option({"slice": 30}))[0]
        first, _clock = run("gone", SCHEDULED, STARTED, timeout=100, seen=Seen.from_option(known.seen))
        assert first.continues
        assert first.seen["polls"] == 3
        second, _clock = run("gone", NOTHING, timeout=100, seen=Seen.from_option(first.seen))
        assert second.outcome == "completed"

    def test_the_timeout_is_for_all_slices_together(self) -> None:
        seen = Seen.from_option({"answered": True, "elapsed": 9.5, "polls": 9, "slice": 30})
        done, _clock = run("appeared", NOTHING, seen=seen)
        assert (done.outcome, done.continues, done.seen["elapsed"]) == ("timed_out", False, 10.0)

    @pytest.mark.parametrize(
        "option",
        [
            {"colour": 1},
            {"event_ids": "A"},
            {"event_ids": [1]},
            {"started": "yes"},
            {"times": {"a": 1}},
            {"elapsed": "long"},
        ],
    )
    def test_a_state_that_no_wait_returned_is_refused(self, option: dict[str, t.Any]) -> None:
        with pytest.raises(WrongOption, match="leave seen out"):
            Seen.from_option(option)
