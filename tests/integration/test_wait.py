# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting: every way in which it ends, and that nothing but the event's end ends a wait for it."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import (
    UNPRINTABLE,
    Case,
    Json,
    Outcome,
    Stage,
    Step,
)

STARTED: Json = {"EventStatus": "Started"}
PROGRESS = Case(
    "progress",
    {"until": "gone", "timeout": 31, "on_timeout": "ok", "poll_interval": 2},
    group="wait",
    events=[
        {
            "raw": {"EventType": "Re\u001b[31mboot\r\n"},
            "Resources": ["{{ 6 * 7 }}\u0007", "\u202etxt"],
            "foreign": True,
        },
    ],
    first=True,  # it takes longest
    warns=["unknown type"],
    result={"outcome": "timed_out"},
)


def waiting(name: str, until: str, outcome: str, *script: Step, **rest: t.Any) -> Case:
    options = {"until": until, **rest.pop("options", {})}
    return Case(name, options, group="wait", script=script, result={"outcome": outcome, "changed": False}, **rest)


def never(name: str, until: str, outcome: str = "timed_out", **rest: t.Any) -> Case:
    options = {"timeout": 2, **rest.pop("options", {})}
    return waiting(name, until, outcome, options=options, **rest)


OK: Json = {"on_timeout": "ok"}
FOREVER_503: list[Json] = [{"kind": "503"}]
OUTCOME_CASES = [
    waiting("appeared_at_first", "appeared", "appeared", events=[{}]),
    waiting("appeared_later", "appeared", "appeared", Step("publish", polls=3)),
    waiting("started_at_first", "started", "started", events=[STARTED]),
    waiting("started_later", "started", "started", Step("start", polls=2), events=[{}]),
    waiting("started_at_not_before", "started", "started", Step("publish", {"notice": 2})),
    waiting("completed", "gone", "completed", Step("start"), Step("complete"), events=[{}]),
    waiting(
        "completed_by_itself",
        "gone",
        "completed",
        Step("start"),
        events=[{"started_for": 45}],
        options={"timeout": 240},  # a busy machine may need half of it to begin
    ),
    waiting("completed_started_at_first", "gone", "completed", Step("complete", polls=2), events=[STARTED]),
    waiting("cancelled", "gone", "cancelled", Step("cancel", polls=3), events=[{}]),
    waiting(
        "gone_when_all_are",
        "gone",
        "cancelled",
        Step("cancel"),
        Step("cancel", {"EventId": "GONE_WHEN_ALL_ARE-2"}, polls=3),
        events=[{}, {}],
    ),
    waiting("replaced", "gone", "cancelled", Step("publish", {"EventId": "ANOTHER"}), Step("cancel"), events=[{}]),
    waiting("none", "gone", "none", polls=1),
    waiting("changed_by_new", "changed", "changed", Step("publish", polls=2)),
    waiting("changed_by_start", "changed", "changed", Step("start"), events=[{}]),
    never("never_appeared", "appeared", words=["2 s", "no matching event had appeared", "on_timeout=ok"]),
    never("never_started", "started", words=["no matching event had started"], events=[{}]),
    never(
        "never_gone", "gone", words=["these events had not left the document: Reboot ", "longer timeout"], events=[{}]
    ),
    never("never_gone_ok", "gone", options=OK, events=[{}]),
    never("reads_once", "appeared", options={**OK, "timeout": 0}, polls=1),
    never(
        "unreachable",
        "gone",
        "unreachable",
        faults=FOREVER_503,
        words=["503", "could not be read within the timeout of", "2 s"],
    ),
    never("unreachable_ok", "gone", "unreachable", faults=FOREVER_503, options=OK),
    never(
        "neighbours_only",
        "appeared",
        options={**OK, "only_mine": True},
        events=[{"Resources": ["next_door"]}],
        neighbours=["next_door"],
    ),
    never(
        "other_type",
        "appeared",
        options={**OK, "event_types": ["Redeploy"], "event_statuses": ["Started"]},
        events=[{}],
    ),
    waiting(
        "only_the_named",
        "gone",
        "cancelled",
        Step("cancel", {"EventId": "ONLY_THE_NAMED-2"}),
        events=[{}, {}],
        options={"event_ids": ["only_the_named-2"]},
    ),
    never(
        "mine_on_classic",
        "appeared",
        "unreachable",
        options={"only_mine": True},
        faults=[{"kind": "404", "path": "instance"}],
        words=["only_mine", "Set vm_name"],
    ),
    never(
        "guarded",
        "gone",
        "unreachable",
        faults=[{"kind": "403", "path": "scheduledevents"}],
        words=["403", "Metadata Security Protocol"],
        polls=1,
    ),
    never("not_the_service", "appeared", "unreachable", faults=[{"kind": "404"}], words=["404", "check endpoint"]),
]
LAST_SEEN = {"never_gone", "never_gone_ok", "never_started", "appeared_at_first", "changed_by_start"}


@pytest.mark.quick("scheduled_events_wait")
@pytest.mark.parametrize("case", OUTCOME_CASES, ids=str)
def test_a_wait_ends_with_what_happened(case: Case, outcome: Outcome) -> None:
    assert outcome.result["polls"] >= 1
    assert outcome.result["elapsed"] >= 0
    if case.name in LAST_SEEN:
        assert [event["event_id"] for event in outcome.result["events"]] == [case.event_id()]
    if outcome.result["outcome"] in ("timed_out", "unreachable") and case.name not in (
        "mine_on_classic",
        "guarded",
        "not_the_service",
    ):
        assert outcome.result["elapsed"] >= case.options["timeout"]


def interrupted(name: str, kind: str, count: int = 3, **fault: t.Any) -> Case:
    """The service fails for some polls after the first; the event stands until well after that."""
    return waiting(
        f"gone_through_{name}",
        "gone",
        "cancelled",
        Step("cancel", polls=count + 3),
        events=[{}],
        options={"read_timeout": 1},
        faults=[{"kind": kind, "path": "scheduledevents", "skip": 1, "count": count, **fault}],
    )


FAULT_CASES = [
    interrupted("503", "503"),
    interrupted("429", "429", count=1, retry_after=1),
    interrupted("empty", "empty"),
    interrupted("truncated", "truncated"),
    interrupted("html", "html"),
    interrupted("wrong_shape", "document", document={"DocumentIncarnation": 9}),
    interrupted("reset", "reset"),
    interrupted("stall", "stall", count=2, seconds=4),
    waiting(
        "gone_through_refuse",
        "gone",
        "cancelled",
        Step("fault", {"kind": "refuse", "seconds": 3}, polls=2),
        Step("cancel", polls=2),
        events=[{}],
    ),
]


@pytest.mark.parametrize("case", FAULT_CASES, ids=str)
def test_a_failing_service_is_never_taken_for_the_end(case: Case, outcome: Outcome) -> None:
    (cancelled,) = [line for line in outcome.happenings if line["what"] == "cancelled"]
    assert outcome.requests[-1]["time"] > cancelled["time"]
    # A poll that finds the door closed is not in the journal.
    assert outcome.result["polls"] >= len(outcome.reads)


WRONG_CASES = [
    Case("timeout_negative", {"timeout": -1}, group="wait", words=["timeout is -1", "from 0"]),
    Case("timeout_text", {"timeout": "soon"}, group="wait", words=["timeout", "float"]),
    Case("timeout_nan", {"timeout": "nan"}, group="wait", words=["timeout is nan"]),
    Case("poll_interval_zero", {"poll_interval": 0}, group="wait", words=["poll_interval is 0", "greater than 0"]),
    Case("poll_interval_nan", {"poll_interval": "nan", "timeout": 5}, group="wait", words=["poll_interval is nan"]),
    Case("until_unknown", {"until": "over"}, group="wait", words=["until", "appeared", "gone", "over"]),
    Case("seen_foreign", {"seen": {"ghost": True}}, group="wait", words=["seen.ghost", "leave seen out"]),
    Case("seen_wrong_type", {"seen": {"elapsed": "long"}}, group="wait", words=["seen"]),
    Case("background", group="background", words=["async"]),
]


@pytest.mark.parametrize("case", WRONG_CASES, ids=str)
def test_a_wrong_option_is_named_before_anything_is_asked(case: Case, outcome: Outcome) -> None:
    assert case.words
    assert outcome.requests == []


POLITE = Case(
    "polite",
    {"until": "started", "timeout": 20, "on_timeout": "ok", "poll_interval": 0.5},
    group="wait",
    events=[{}],
    etag=True,
    result={"outcome": "timed_out"},
)
NOTICES = Case(
    "notices_through_etag",
    {"until": "changed"},
    group="wait",
    script=[Step("start", polls=3)],
    events=[{}],
    etag=True,
    result={"outcome": "changed"},
)


@pytest.mark.parametrize("case", [POLITE], ids=str)
def test_polling_keeps_its_connection_and_asks_for_changes_only(case: Case, outcome: Outcome) -> None:
    assert len(outcome.reads) >= 3
    assert len({line["connection"] for line in outcome.requests}) == 1
    assert [line["status"] for line in outcome.reads] == [200] + [304] * (len(outcome.reads) - 1)
    assert [event["event_id"] for event in outcome.result["events"]] == [case.event_id()]


@pytest.mark.parametrize("case", [NOTICES], ids=str)
def test_a_change_is_noticed_in_spite_of_the_etag(case: Case, outcome: Outcome) -> None:
    assert [event["event_status"] for event in outcome.result["events"]] == ["Started"]
    assert 304 in [line["status"] for line in outcome.reads]


@pytest.mark.parametrize("case", [PROGRESS], ids=str)
def test_progress_is_shown_and_cannot_steer_the_terminal(stage: Stage, case: Case, outcome: Outcome) -> None:
    output = stage.play_of(case).output
    assert re.search(r"^\[progress\] Re.*boot.* Scheduled, .*PROGRESS-1.*; waited .* of 31 s$", output, re.MULTILINE)
    assert not UNPRINTABLE.search(output)
    # One connection per slice.
    assert len({line["connection"] for line in outcome.requests}) >= 2
