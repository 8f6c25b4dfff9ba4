# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Approving: once, what is there, as the document spells it, and honest about what became of it."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, Json, Outcome, Stage

LISTS = ("approved", "already_started", "missing", "not_leader", "unexpected")


def approving(
    name: str,
    *,
    events: t.Sequence[Json] = ({},),
    words: t.Sequence[str] = (),
    posted: int | None = None,
    ids: t.Sequence[str] | None = None,
    options: Json | None = None,
    faults: t.Sequence[Json] = (),
    **rest: t.Any,
) -> Case:
    """A case that approves its first event; in `rest`, a list that the result has by the event's number."""
    known = Case(name)
    lists = {key: [known.event_id(number) for number in rest.pop(key, ())] for key in LISTS}
    given = {"event_ids": [known.event_id()] if ids is None else ids, **(options or {})}
    return Case(
        name,
        given,
        group="approve",
        events=events,
        faults=faults,
        words=words,
        result=rest.pop("result", {**lists, "changed": bool(lists["approved"])}),
        posts=None if posted is None else [[known.event_id()]] * posted,
        **rest,
    )


def post(kind: str, **options: t.Any) -> list[Json]:
    return [{"kind": kind, "method": "POST", **options}]


STARTED: Json = {"EventStatus": "Started"}
UNKNOWN: Json = {"event_ids": ["NO-SUCH-EVENT"]}
# What does answer has to be faster than that, also on a busy machine.
HASTY: Json = {"read_timeout": 5}
CASES = [
    approving("simple", approved=[1], posted=1),
    approving("already_started", events=[STARTED], already_started=[1], posted=0),
    approving("started_in_lower_case", events=[{"raw": {"EventStatus": "started"}}], already_started=[1], posted=0),
    approving(
        "unknown_status",
        events=[{"raw": {"EventStatus": "Paused"}}],
        warns=["its status is 'Paused'"],
        unexpected=[1],
        posted=0,
    ),
    approving("still_scheduled", events=[{"start_delay": 600}], approved=[1], posted=1),
    approving("leads", options={"leader_only": True}, approved=[1], posted=1),
    approving(
        "follows",
        events=[{"Resources": ["first", "follows"]}],
        neighbours=["first"],
        options={"leader_only": True},
        not_leader=[1],
        posted=0,
    ),
    approving(
        "leader_unknown",
        options={"leader_only": True},
        faults=[{"kind": "404", "path": "instance"}],
        words=["leader_only", "Set vm_name"],
        result={},
        posted=0,
    ),
    approving(
        "unknown_id",
        options=UNKNOWN,
        words=["No such event: NO-SUCH-EVENT", "missing=ok"],
        result={"missing": ["NO-SUCH-EVENT"], "changed": False},
        posted=0,
    ),
    approving(
        "unknown_id_ok",
        options={**UNKNOWN, "missing": "ok"},
        result={"missing": ["NO-SUCH-EVENT"], "approved": [], "changed": False},
        posted=0,
    ),
    # Nothing is posted if any is missing, unless that is accepted.
    approving(
        "one_of_two",
        ids=["ONE_OF_TWO-1", "NO-SUCH-EVENT"],
        words=["No such event: NO-SUCH-EVENT", "nothing was posted"],
        result={"approved": [], "missing": ["NO-SUCH-EVENT"], "changed": False},
        posted=0,
    ),
    approving("no_ids", ids=[], words=["event_ids", "scheduled_events_info"], result={}, posted=0),
    approving("blank_id", ids=[" "], words=["event_ids", "scheduled_events_info"], result={}, posted=0),
    approving(
        "vanishes", faults=post("vanish", EventId="VANISHES-1"), words=["No such event", "missing=ok"], missing=[1]
    ),
    approving(
        "vanishes_ok", faults=post("vanish", EventId="VANISHES_OK-1"), options={"missing": "ok"}, missing=[1], posted=1
    ),
    approving(
        "post_refused",
        faults=post("400"),
        options={"retries": 3},
        words=["400", "Not approved: POST_REFUSED-1", "still Scheduled", "run the task again"],
        posted=1,
    ),
    approving(
        "post_forbidden",
        faults=post("403"),
        options={"retries": 3},
        words=["403", "Metadata Security Protocol", "ProxyAgent.Connection.log", "Not approved"],
        posted=1,
    ),
    # Each of these takes half a minute: the document is read for that long before anything is posted again.
    approving("post_fails_once", faults=post("500", count=1), options={"retries": 2}, approved=[1], posted=2),
    approving(
        "post_unanswered",
        faults=post("silent_post", seconds=10),
        options=HASTY,
        warns=["did not confirm"],
        approved=[1],
        posted=1,
    ),
    approving(
        "post_lost",
        faults=post("lost_post", seconds=10),
        options=HASTY,
        words=["POST_LOST-1 was posted 1 time and not confirmed", "still shows Scheduled", "run the task again"],
        posted=1,
    ),
    approving(
        "post_unclear",
        faults=[*post("reset"), {"kind": "503", "method": "GET", "path": "scheduledevents", "skip": 1}],
        words=[
            "closed the connection",
            "not known whether the service accepted the approval of POST_UNCLEAR-1",
            "Run the task again",
        ],
        posted=1,
    ),
    approving(
        "unverified",
        faults=[{"kind": "503", "method": "GET", "path": "scheduledevents", "skip": 1}],
        warns=["could not be read afterwards"],
        approved=[1],
        posted=1,
    ),
    approving("other_spelling", ids=["other_spelling-1", "Other_Spelling-1"], approved=[1], posted=1),
    approving("preview", options={"api_version": "2017-03-01"}, approved=[1], posted=1),
]
CHECK = approving("only_checked", approved=[1], posted=0, variables={"check": True, "show": True})
SEVERAL = approving(
    "several",
    events=[{}, STARTED, {"EventType": "Freeze"}],
    ids=["SEVERAL-1", "SEVERAL-2", "SEVERAL-3"],
    approved=[1, 3],
    already_started=[2],
)
AGAIN = approving("approved_again", approved=[1], posted=1, variables={"again": True})
DIFF = approving("shows_diff", approved=[1], posted=1, variables={"show": True})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_event_is_approved_or_it_is_said_why_not(case: Case, outcome: Outcome) -> None:
    assert outcome.happened("approved") <= 1
    if outcome.result.get("approved"):
        assert outcome.happened("approved") == 1
    if case.words:
        assert outcome.happened("approved") == 0


@pytest.mark.parametrize("case", [CASE for CASE in CASES if CASE.name == "post_fails_once"], ids=str)
def test_an_unconfirmed_approval_is_looked_after_before_it_is_posted_again(case: Case, outcome: Outcome) -> None:
    first, second = (line["time"] for line in outcome.requests if line["method"] == "POST")
    assert second - first >= 30
    between = [line for line in outcome.reads if first < line["time"] < second]
    assert 10 <= len(between) <= 32, "about one a second"


@pytest.mark.parametrize("case", [CASE for CASE in CASES if CASE.name == "preview"], ids=str)
def test_the_preview_version_is_told_the_incarnation(case: Case, outcome: Outcome) -> None:
    (body,) = [json.loads(line["body"]) for line in outcome.requests if line["method"] == "POST"]
    assert body == {"StartRequests": [{"EventId": case.event_id()}], "DocumentIncarnation": 2}


@pytest.mark.quick
@pytest.mark.parametrize("case", [CHECK], ids=str)
def test_check_mode_says_what_it_would_do_and_does_not(case: Case, outcome: Outcome) -> None:
    assert outcome.result["diff"] == {"before": {case.event_id(): "Scheduled"}, "after": {case.event_id(): "Started"}}
    assert outcome.happened("approved") == 0


@pytest.mark.quick("scheduled_event_approve")
@pytest.mark.parametrize("case", [SEVERAL], ids=str)
def test_several_events_stand_in_one_post(case: Case, outcome: Outcome) -> None:
    assert outcome.posts == [[case.event_id(1), case.event_id(3)]]
    assert outcome.happened("approved") == 2


@pytest.mark.quick
@pytest.mark.parametrize("case", [AGAIN], ids=str)
def test_a_second_run_finds_it_done(stage: Stage, case: Case, outcome: Outcome) -> None:
    second = stage.outcome(case, "Again").result
    assert outcome.result["changed"]
    assert (second["approved"], second["already_started"], second["changed"]) == ([], [case.event_id()], False)


@pytest.mark.parametrize("case", [DIFF], ids=str)
def test_diff_mode_shows_the_change(stage: Stage, case: Case, outcome: Outcome) -> None:
    assert outcome.result["diff"] == {"before": {case.event_id(): "Scheduled"}, "after": {case.event_id(): "Started"}}
    assert f'-    "{case.event_id()}": "Scheduled"' in stage.play_of(case).output
    assert f'+    "{case.event_id()}": "Started"' in stage.play_of(case).output
