# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._approver import Approval, Expected, approve
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, NoConnection, PassingFailure
from ansible_collections.graceful.azure.plugins.module_utils._times import UNCONFIRMED_FOR
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Request
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import (
    Answer,
    ScriptedTransport,
    event,
    events,
    reply,
    service,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

SCHEDULED, STARTED, GONE = events(event("A")), events(event("A", "Started")), events()
NOTHING_EXPECTED = Expected()
ACCEPTED, SILENCE = reply(200), PassingFailure("No answer.")


class Attempt(t.NamedTuple):
    approval: Approval
    transport: ScriptedTransport
    clock: JumpingClock


def attempt(
    *script: Answer,
    ids: t.Sequence[str] = ("a",),
    expected: Expected = NOTHING_EXPECTED,
    missing_ok: bool = False,
    check: bool = False,
    retries: int = 3,
    **hooks: t.Any,
) -> Attempt:
    clock = JumpingClock()
    asked, transport = service(*script, clock=clock, retries=retries)
    return Attempt(approve(asked, ids, expected, missing_ok, check, **hooks), transport, clock)


@pytest.mark.parametrize("after", [STARTED, SCHEDULED, GONE, reply(503)])
def test_an_accepted_approval_stays_approved_whatever_the_document_says_next(after: Answer) -> None:
    approval, transport, _clock = attempt(SCHEDULED, ACCEPTED, after)
    assert approval.lists() == {
        "approved": ["A"],
        "already_started": [],
        "missing": [],
        "not_leader": [],
        "unexpected": [],
        "changed": True,
    }
    assert transport.methods.count("POST") == 1
    assert b'"EventId": "A"' in (transport.sent[1].body or b"")


@pytest.mark.parametrize(
    ("script", "options", "found"),
    [
        pytest.param([STARTED], {}, {"already_started": ["A"]}, id="started"),
        pytest.param([GONE], {"missing_ok": True}, {"missing": ["a"]}, id="missing"),
        pytest.param([SCHEDULED], {"expected": Expected(leader="web_9")}, {"not_leader": ["A"]}, id="not-leader"),
        pytest.param([SCHEDULED], {"check": True}, {"approved": ["A"], "changed": True}, id="check-mode"),
        pytest.param([events(event("A"), event("a", "Started"))], {}, {"already_started": ["A"]}, id="duplicate"),
        pytest.param([events(event("A", "STARTED"))], {}, {"already_started": ["A"]}, id="started-in-another-case"),
        pytest.param([events(event("A", "Paused"))], {}, {"unexpected": ["A"]}, id="unknown-status"),
        pytest.param([events(event("A"), event("a", "Paused"))], {}, {"unexpected": ["A"]}, id="one-of-two-unknown"),
    ],
)
def test_nothing_is_posted_without_need(
    script: list[Answer], options: dict[str, t.Any], found: dict[str, t.Any]
) -> None:
    approval, transport, _clock = attempt(*script, **options)
    lists = {
        "approved": [],
        "already_started": [],
        "missing": [],
        "not_leader": [],
        "unexpected": [],
        "changed": False,
        **found,
    }
    assert approval.lists() == lists
    assert "POST" not in transport.methods


@pytest.mark.parametrize(
    ("resources", "expected", "words"),
    [
        (["web_0"], Expected(resources=["WEB_0", "web_1"], event_type="reboot"), ""),
        (["web_0", "web_2"], Expected(resources=["web_0"]), "names 'web_2', which was not expected"),
        ([], Expected(resources=["web_0"]), "names no VM"),
        (["web_0"], Expected(resources=[]), "names 'web_0'"),
        (["web_0"], Expected(event_type="Freeze"), "its type is now 'Reboot', expected: 'Freeze'"),
    ],
)
def test_only_what_was_expected_is_approved(resources: list[str], expected: Expected, words: str) -> None:
    now = events(event("A", resources=resources))
    approval, transport, _clock = attempt(now, ACCEPTED, now, expected=expected)
    assert ("POST" in transport.methods) == (not words)
    assert (approval.approved, approval.unexpected) == ((["A"], []) if not words else ([], ["A"]))
    assert not words or words in approval.refusals[0]


def test_why_an_unknown_status_is_not_approved_is_said() -> None:
    approval = attempt(events(event("A", "{{ Paused }}"))).approval
    assert approval.refusals == [
        "A was not approved: its status is '{ { Paused }}', which is not known; only Scheduled can be approved."
    ]


def test_a_status_is_known_in_any_case() -> None:
    approval, transport, _clock = attempt(events(event("A", "scheduled")), ACCEPTED, STARTED)
    assert (approval.approved, transport.methods) == (["A"], ["GET", "POST", "GET"])


def test_one_missing_id_keeps_all_from_being_posted() -> None:
    asked, transport = service(SCHEDULED)
    with pytest.raises(EventsError, match=r"No such event: b .nothing was posted") as failure:
        approve(asked, ["A", "b"], NOTHING_EXPECTED, False, False)
    assert failure.value.fields["missing"] == ["b"]
    assert "POST" not in transport.methods


def test_several_events_go_in_one_request_and_each_once() -> None:
    both = events(event("A"), event("B"))
    approval, transport, _clock = attempt(both, ACCEPTED, both, ids=["a", "B", " A "])
    assert approval.approved == ["A", "B"]
    assert transport.sent[1].body == b'{"StartRequests": [{"EventId": "A"}, {"EventId": "B"}]}'


@pytest.mark.parametrize("leader", ["web_0", "WEB_0", "_web_0"])
def test_the_leader_posts(leader: str) -> None:
    assert attempt(SCHEDULED, ACCEPTED, STARTED, expected=Expected(leader=leader))[0].approved == ["A"]


def test_an_event_without_resources_has_no_leader() -> None:
    assert attempt(events(event(resources=())), expected=Expected(leader="web_0"))[0].not_leader == ["A"]


class TestRefusedPost:
    """The service has answered that it does not take the POST: that is final."""

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 302])
    def test_it_is_not_sent_again(self, status: int) -> None:
        asked, transport = service(SCHEDULED, reply(status, {"error": "no"}), SCHEDULED)
        with pytest.raises(EventsError, match=rf"{status} .'no'.*Not approved: A, still Scheduled") as failure:
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert failure.value.fields["changed"] is False
        assert transport.methods == ["GET", "POST", "GET"]

    def test_somebody_else_was_faster(self) -> None:
        approval = attempt(SCHEDULED, reply(400), STARTED).approval
        assert (approval.approved, approval.already_started) == ([], ["A"])

    def test_the_others_are_not_sent_if_one_has_left(self) -> None:
        asked, transport = service(events(event("A"), event("B")), reply(400), events(event("B")))
        with pytest.raises(EventsError, match="Not approved: B, still Scheduled") as failure:
            approve(asked, ["A", "B"], NOTHING_EXPECTED, True, False)
        assert failure.value.fields["missing"] == ["A"]
        assert transport.methods.count("POST") == 1

    def test_one_that_has_left_is_an_error_if_missing_is_one(self) -> None:
        asked, _transport = service(SCHEDULED, reply(400), GONE)
        with pytest.raises(EventsError, match=r"No such event: A .its approval was refused"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)

    def test_the_document_cannot_be_read_either(self) -> None:
        asked, transport = service(SCHEDULED, reply(400), reply(503), retries=0)
        with pytest.raises(
            EventsError, match=r"400.*It is not known whether .*503.*reads the document before it posts"
        ):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert transport.methods.count("POST") == 1


class TestUnconfirmedPost:
    """The POST was not answered, or not properly: the document decides what comes next."""

    def test_it_was_taken(self) -> None:
        approval, transport, clock = attempt(SCHEDULED, SILENCE, STARTED)
        assert approval.approved == ["A"]
        assert "did not confirm" in approval.warnings[0]
        assert (transport.methods, clock.pauses) == (["GET", "POST", "GET"], [])

    def test_it_was_taken_but_azure_takes_its_time(self) -> None:
        approval, transport, clock = attempt(SCHEDULED, SILENCE, *[SCHEDULED] * 20, STARTED)
        assert approval.approved == ["A"]
        assert transport.methods.count("POST") == 1
        assert clock.pauses == [1.0] * 20, "about one read a second"

    @pytest.mark.parametrize("failure", [SILENCE, NoConnection("Refused."), reply(500), reply(503), reply(429)])
    def test_it_is_sent_again_only_after_the_document_has_shown_it_as_scheduled_for_long_enough(
        self, failure: Answer
    ) -> None:
        times: list[float] = []
        clock = JumpingClock()
        posts: list[Answer] = [failure, ACCEPTED]

        def answer(request: Request) -> Reply:
            if request.method == "GET":
                return SCHEDULED
            times.append(clock.now)
            given = posts.pop(0)
            if isinstance(given, Exception):
                raise given
            assert isinstance(given, Reply)
            return given

        asked, transport = service(answer, clock=clock)
        approval = approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert approval.approved == ["A"]
        first, second = times
        assert second - first >= UNCONFIRMED_FOR == 30
        assert 25 <= transport.methods.count("GET") <= 40

    def test_it_has_left_the_document(self) -> None:
        assert attempt(SCHEDULED, SILENCE, SCHEDULED, GONE, missing_ok=True).approval.missing == ["A"]
        asked, transport = service(SCHEDULED, SILENCE, SCHEDULED, GONE)
        with pytest.raises(EventsError, match=r"No such event: A .its approval had not been confirmed"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert transport.methods.count("POST") == 1

    def test_only_what_is_still_scheduled_is_sent_again(self) -> None:
        both, one = events(event("A"), event("B")), events(event("A", "Started"), event("B"))
        approval, transport, _clock = attempt(both, SILENCE, *[one] * 31, ACCEPTED, GONE, ids=["A", "B"])
        assert approval.approved == ["A", "B"]
        posted = [request.body for request in transport.sent if request.method == "POST"]
        assert posted[1] == b'{"StartRequests": [{"EventId": "B"}]}'

    @pytest.mark.parametrize(
        ("now", "why"),
        [
            (events(event("A", resources=["web_0", "web_1"])), "names 'web_1'"),
            (events(event("A", "Paused")), "status is 'Paused'"),
        ],
    )
    def test_what_has_changed_is_not_sent_again(self, now: Answer, why: str) -> None:
        expected = Expected(resources=["web_0"])
        approval, transport, _clock = attempt(SCHEDULED, SILENCE, SCHEDULED, now, expected=expected)
        assert transport.methods.count("POST") == 1
        assert approval.unexpected == ["A"]
        assert "is not posted again" in approval.refusals[0]
        assert why in approval.refusals[0]

    @pytest.mark.parametrize("retries", [0, 1, 3])
    def test_it_is_sent_as_often_as_the_retries_allow(self, retries: int) -> None:
        clock = JumpingClock()
        asked, transport = service(
            lambda request: SCHEDULED if request.method == "GET" else reply(500), clock=clock, retries=retries
        )
        times = f"{retries + 1} time{'s' if retries else ''}"
        with pytest.raises(EventsError, match=f"500.*A was posted {times} and not confirmed.*still shows Scheduled"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert transport.methods.count("POST") == retries + 1

    def test_a_document_that_cannot_be_read_for_a_moment_is_read_again(self) -> None:
        approval, transport, _clock = attempt(SCHEDULED, SILENCE, reply(503), SILENCE, STARTED, retries=0)
        assert approval.approved == ["A"]
        assert transport.methods == ["GET", "POST", "GET", "GET", "GET"]

    @pytest.mark.parametrize("unread", [reply(503), reply(404)])
    def test_without_the_document_nothing_is_sent_again(self, unread: Answer) -> None:
        asked, transport = service(SCHEDULED, SILENCE, unread, retries=1)
        with pytest.raises(EventsError, match=r"It is not known whether .*reads the document before it posts"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)
        assert transport.methods.count("POST") == 1

    def test_a_304_is_no_confirmation(self) -> None:
        asked, _transport = service(SCHEDULED, reply(304), SCHEDULED)
        with pytest.raises(EventsError, match=r"304.*Not approved: A"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False)


class TestHooks:
    def test_it_is_called_right_before_each_post(self) -> None:
        asked, transport = service(SCHEDULED, SILENCE, *[SCHEDULED] * 31, ACCEPTED, STARTED)
        calls: list[tuple[list[str], list[str]]] = []
        approve(asked, ["a"], NOTHING_EXPECTED, False, False, lambda ids: calls.append((ids, list(transport.methods))))
        assert [ids for ids, _methods in calls] == [["A"], ["A"]]
        assert [methods.count("POST") for _ids, methods in calls] == [0, 1]
        assert [methods[-1] for _ids, methods in calls] == ["GET", "GET"]

    def test_it_can_stop_the_post(self) -> None:
        def stop(_ids: list[str]) -> None:
            raise EventsError("The claim was lost.")

        asked, transport = service(SCHEDULED)
        with pytest.raises(EventsError, match="claim was lost"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False, before_post=stop)
        assert transport.methods == ["GET"]

    @pytest.mark.parametrize("options", [{"check": True}, {"expected": Expected(leader="web_9")}])
    def test_it_is_not_called_if_nothing_is_posted(self, options: dict[str, t.Any]) -> None:
        calls: list[list[str]] = []
        attempt(SCHEDULED, before_post=calls.append, **options)
        assert calls == []

    @pytest.mark.parametrize("failure", [SILENCE, reply(500), reply(503)])
    def test_without_repost_it_returns_at_once_what_is_not_confirmed(self, failure: Answer) -> None:
        approval, transport, clock = attempt(SCHEDULED, failure, SCHEDULED, repost=False)
        assert (approval.unconfirmed, approval.approved) == (["A"], [])
        assert (transport.methods, clock.pauses) == (["GET", "POST"], [])
        assert approval.warnings

    def test_without_repost_a_connection_that_was_never_made_is_an_error(self) -> None:
        asked, transport = service(SCHEDULED, NoConnection("Refused."))
        with pytest.raises(NoConnection, match="Refused"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False, repost=False)
        assert transport.methods == ["GET", "POST"]

    def test_without_repost_a_refusal_is_an_error_all_the_same(self) -> None:
        asked, transport = service(SCHEDULED, reply(400), SCHEDULED)
        with pytest.raises(EventsError, match=r"400.*Not approved"):
            approve(asked, ["A"], NOTHING_EXPECTED, False, False, repost=False)
        assert transport.methods.count("POST") == 1


@pytest.mark.parametrize(
    ("after", "shown"),
    [(STARTED, "Started"), (GONE, "gone"), (SCHEDULED, "Scheduled, approved"), (reply(404), "Started")],
)
def test_the_diff_shows_what_became_of_the_event(after: Answer, shown: str) -> None:
    approval, _transport, _clock = attempt(SCHEDULED, ACCEPTED, after)
    assert approval.diff() == {"before": {"A": "Scheduled"}, "after": {"A": shown}}
