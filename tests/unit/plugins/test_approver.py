# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._approver import Approval, Terms, approve
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure
from ansible_collections.graceful.azure.tests.unit.plugins.scripted import (
    Answer,
    ScriptedTransport,
    event,
    events,
    reply,
    service,
)

SCHEDULED, STARTED, GONE = events(event("A")), events(event("A", "Started")), events()
NO_TERMS = Terms()
ACCEPTED, SILENCE = reply(200), PassingFailure("No answer.")


def attempt(
    *script: Answer,
    ids: t.Sequence[str] = ("a",),
    terms: Terms = NO_TERMS,
    missing_ok: bool = False,
    check: bool = False,
) -> tuple[Approval, ScriptedTransport]:
    asked, transport = service(*script)
    return approve(asked, ids, terms, missing_ok, check), transport


@pytest.mark.parametrize("after", [STARTED, SCHEDULED, GONE, reply(503)])
def test_an_accepted_approval_stays_approved_whatever_the_document_says_next(after: Answer) -> None:
    approval, transport = attempt(SCHEDULED, ACCEPTED, after)
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
        pytest.param([SCHEDULED], {"terms": Terms(leader="web_9")}, {"not_leader": ["A"]}, id="not-leader"),
        pytest.param([SCHEDULED], {"check": True}, {"approved": ["A"], "changed": True}, id="check-mode"),
        pytest.param([events(event("A"), event("a", "Started"))], {}, {"already_started": ["A"]}, id="duplicate"),
    ],
)
def test_nothing_is_posted_without_need(
    script: list[Answer], options: dict[str, t.Any], found: dict[str, t.Any]
) -> None:
    approval, transport = attempt(*script, **options)
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
    ("resources", "terms", "words"),
    [
        (["web_0"], Terms(resources=["WEB_0", "web_1"], event_type="reboot"), ""),
        (["web_0", "web_2"], Terms(resources=["web_0"]), "names 'web_2', which was not expected"),
        ([], Terms(resources=["web_0"]), "names no VM"),
        (["web_0"], Terms(resources=[]), "names 'web_0'"),
        (["web_0"], Terms(event_type="Freeze"), "of the type 'Reboot', expected was 'Freeze'"),
    ],
)
def test_only_what_was_expected_is_approved(resources: list[str], terms: Terms, words: str) -> None:
    now = events(event("A", resources=resources))
    approval, transport = attempt(now, ACCEPTED, now, terms=terms)
    assert ("POST" in transport.methods) == (not words)
    assert (approval.approved, approval.unexpected) == ((["A"], []) if not words else ([], ["A"]))
    assert not words or words in approval.refusals[0]


def test_what_has_changed_after_an_unconfirmed_post_is_not_posted_again() -> None:
    more = events(event("A", resources=["web_0", "web_1"]))
    approval, transport = attempt(SCHEDULED, SILENCE, more, ACCEPTED, terms=Terms(resources=["web_0"]))
    assert transport.methods.count("POST") == 1
    assert approval.unexpected == ["A"]


def test_one_missing_id_keeps_all_from_being_posted() -> None:
    asked, transport = service(SCHEDULED)
    with pytest.raises(EventsError, match=r"No such event: b .nothing was posted") as failure:
        approve(asked, ["A", "b"], NO_TERMS, False, False)
    assert failure.value.fields["missing"] == ["b"]
    assert "POST" not in transport.methods


def test_several_events_go_in_one_request_and_each_once() -> None:
    both = events(event("A"), event("B"))
    approval, transport = attempt(both, ACCEPTED, both, ids=["a", "B", " A "])
    assert approval.approved == ["A", "B"]
    assert transport.sent[1].body == b'{"StartRequests": [{"EventId": "A"}, {"EventId": "B"}]}'


@pytest.mark.parametrize("leader", ["web_0", "WEB_0", "_web_0"])
def test_the_leader_posts(leader: str) -> None:
    assert attempt(SCHEDULED, ACCEPTED, STARTED, terms=Terms(leader=leader))[0].approved == ["A"]


def test_an_event_without_resources_has_no_leader() -> None:
    assert attempt(events(event(resources=())), terms=Terms(leader="web_0"))[0].not_leader == ["A"]


class TestUnconfirmedPost:
    """The POST was refused or not answered: the document decides what comes next."""

    def test_it_had_taken_effect(self) -> None:
        approval, transport = attempt(SCHEDULED, SILENCE, STARTED)
        assert approval.approved == ["A"]
        assert "did not confirm" in approval.warnings[0]
        assert transport.methods == ["GET", "POST", "GET"]

    @pytest.mark.parametrize("failure", [SILENCE, reply(500), reply(503)])
    def test_it_had_no_effect_and_is_sent_again(self, failure: Answer) -> None:
        approval, transport = attempt(SCHEDULED, failure, SCHEDULED, ACCEPTED, STARTED)
        assert approval.approved == ["A"]
        assert transport.methods == ["GET", "POST", "GET", "POST", "GET"]

    def test_a_refusal_is_not_sent_again(self) -> None:
        asked, transport = service(SCHEDULED, reply(400, {"error": "no"}), SCHEDULED)
        with pytest.raises(EventsError, match=r"400 .'no'.*Not approved: A, still Scheduled after 1 try") as failure:
            approve(asked, ["A"], NO_TERMS, False, False)
        assert failure.value.fields["changed"] is False
        assert transport.methods == ["GET", "POST", "GET"]

    def test_a_refusal_because_somebody_else_was_faster(self) -> None:
        approval, _transport = attempt(SCHEDULED, reply(400), STARTED)
        assert (approval.approved, approval.already_started) == ([], ["A"])

    def test_one_that_vanished_is_dropped_and_the_others_are_sent(self) -> None:
        both = events(event("A"), event("B"))
        approval, transport = attempt(
            both, reply(400), events(event("B")), ACCEPTED, GONE, ids=["A", "B"], missing_ok=True
        )
        assert (approval.approved, approval.missing) == (["B"], ["A"])
        assert b'"A"' not in (transport.sent[3].body or b"")

    def test_one_that_vanished_is_an_error_if_missing_is_one(self) -> None:
        asked, _transport = service(SCHEDULED, reply(400), GONE)
        with pytest.raises(EventsError, match="had not been confirmed"):
            approve(asked, ["A"], NO_TERMS, False, False)

    def test_it_fails_after_the_last_retry(self) -> None:
        asked, transport = service(SCHEDULED, *[reply(500), SCHEDULED] * 4)
        with pytest.raises(EventsError, match=r"500.*still Scheduled after 4 tries"):
            approve(asked, ["A"], NO_TERMS, False, False)
        assert transport.methods.count("POST") == 4

    def test_the_document_cannot_be_read_either(self) -> None:
        asked, transport = service(SCHEDULED, SILENCE, reply(404))
        with pytest.raises(EventsError, match=r"is unknown.*404.*looks before it posts"):
            approve(asked, ["A"], NO_TERMS, False, False)
        assert transport.methods.count("POST") == 1


@pytest.mark.parametrize(
    ("after", "shown"),
    [(STARTED, "Started"), (GONE, "gone"), (SCHEDULED, "Scheduled, approved"), (reply(404), "Started")],
)
def test_the_diff_shows_what_became_of_the_event(after: Answer, shown: str) -> None:
    approval, _transport = attempt(SCHEDULED, ACCEPTED, after)
    assert approval.diff() == {"before": {"A": "Scheduled"}, "after": {"A": shown}}
