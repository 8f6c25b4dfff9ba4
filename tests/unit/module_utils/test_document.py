# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _document as document

NOW = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)


def entry(**fields: t.Any) -> dict[str, t.Any]:
    whole = {
        "EventId": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0", "web_3"],
        "EventStatus": "Scheduled",
        "NotBefore": "Sat, 19 Sep 2026 18:29:47 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    return {key: value for key, value in {**whole, **fields}.items() if value is not ...}


def body(*entries: t.Any, **fields: t.Any) -> bytes:
    return json.dumps({"DocumentIncarnation": 16, "Events": list(entries), **fields}).encode()


def one(**fields: t.Any) -> tuple[document.Event, list[str]]:
    parsed = document.parse(body(entry(**fields)))
    return parsed.events[0], parsed.oddities


def test_every_field_of_an_event_is_there() -> None:
    parsed = document.parse(body(entry(DurationInSeconds=9)))
    events = document.seen_by(parsed, "WEB_3", NOW)
    assert parsed.incarnation == 16
    assert parsed.oddities == []
    assert events == [
        {
            "event_id": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
            "event_type": "Reboot",
            "event_status": "Scheduled",
            "resource_type": "VirtualMachine",
            "resources": ["web_0", "web_3"],
            "not_before": "2026-09-19T18:29:47Z",
            "seconds_left": 1787,
            "description": "",
            "event_source": "Platform",
            "duration_seconds": 9,
            "affects_me": True,
            "leader": "web_0",
        }
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Sat, 19 Sep 2026 18:29:47 GMT", "2026-09-19T18:29:47Z"),
        ("Mon, 19 Sep 2026 18:29:47 GMT", "2026-09-19T18:29:47Z"),
        ("19 Sep 2026 20:29:47 +0200", "2026-09-19T18:29:47Z"),
        ("2026-09-19T18:29:47Z", "2026-09-19T18:29:47Z"),
        ("2026-09-19T18:29:47", "2026-09-19T18:29:47Z"),
        ("2026-09-19T18:29:47.1234567Z", "2026-09-19T18:29:47Z"),
        ("2026-09-19T20:29:47+02:00", "2026-09-19T18:29:47Z"),
        (" Sat, 19 Sep 2026 18:29:47 GMT ", "2026-09-19T18:29:47Z"),
    ],
)
def test_not_before_is_read_in_every_form_that_was_met(written: str, expected: str) -> None:
    event, oddities = one(NotBefore=written)
    assert event["not_before"] == expected
    assert oddities == []


@pytest.mark.parametrize(
    ("written", "expected", "odd"),
    [
        ("Scheduled", "Scheduled", False),
        ("scheduled", "Scheduled", False),
        ("STARTED ", "Started", False),
        ("Paused", "Paused", True),
    ],
)
def test_a_known_status_is_known_in_any_case(written: str, expected: str, odd: bool) -> None:
    event, oddities = one(EventStatus=written)
    assert event["event_status"] == expected
    assert bool(oddities) == odd


@pytest.mark.parametrize("event_type", document.KNOWN_TYPES)
def test_a_known_type_is_not_odd(event_type: str) -> None:
    event, oddities = one(EventType=event_type)
    assert (event["event_type"], oddities) == (event_type, [])


def test_a_recommendation_for_spot_vms_is_a_known_type() -> None:
    assert "SpotRebalanceRecommendation" in document.KNOWN_TYPES


@pytest.mark.parametrize("written", ["soon", "2026-13-40T99:00:00Z", "Sat, 31 Feb 2026 18:29:47 GMT", "12", "\u0661"])
def test_a_not_before_that_is_no_date_is_null_with_a_warning(written: str) -> None:
    event, oddities = one(NotBefore=written)
    assert event["not_before"] is None
    assert len(oddities) == 1
    assert "NotBefore" in oddities[0]


@pytest.mark.parametrize(("status", "odd"), [("Started", False), ("Scheduled", True)])
@pytest.mark.parametrize("written", ["", ..., None])
def test_an_empty_not_before_is_odd_only_while_scheduled(status: str, odd: bool, written: t.Any) -> None:
    event, oddities = one(NotBefore=written, EventStatus=status)
    assert event["not_before"] is None
    assert bool(oddities) == odd


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"EventType": "Hibernate"}, "unknown type 'Hibernate'"),
        ({"EventType": ...}, "unknown type 'Unknown'"),
        ({"EventStatus": "Paused"}, "unknown status 'Paused'"),
        ({"Resources": []}, "names no resources"),
        ({"Resources": ...}, "names no resources"),
        ({"DurationInSeconds": "long"}, "DurationInSeconds"),
    ],
)
def test_what_is_odd_is_kept_with_a_warning(fields: dict[str, t.Any], word: str) -> None:
    event, oddities = one(**fields)
    assert event["event_id"].startswith("F020")
    assert any(word in oddity for oddity in oddities), oddities


def test_duplicate_ids_are_kept_with_a_warning_whatever_their_case() -> None:
    parsed = document.parse(body(entry(EventId="ABC"), entry(EventId="abc", EventStatus="Started")))
    assert [event["event_status"] for event in parsed.events] == ["Scheduled", "Started"]
    assert any("more than once" in oddity for oddity in parsed.oddities)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"<html></html>", "not JSON"),
        (body(entry())[:40], "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"[]", "list instead of an object"),
        (b"null", "null instead of an object"),
        (b"{}", "no list named Events"),
        (b'{"Events": null}', "no list named Events"),
        (b'{"Events": {"EventId": "1"}}', "no list named Events"),
        (body("text"), "string instead of an object"),
        (body(entry(EventId=...)), "no EventId"),
        (body(entry(EventId="")), "no EventId"),
        (body(entry(EventId=7)), "number instead of a string"),
        (body(entry(Resources="web_0")), "not a list of names"),
        (body(entry(Resources=["web_0", 3])), "not a list of names"),
        (body(entry(EventType=["Reboot"])), "list instead of a string"),
    ],
)
def test_what_is_no_document_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(document.BrokenDocument, match=reason):
        document.parse(content)


def test_a_byte_order_mark_is_accepted() -> None:
    assert document.parse(b"\xef\xbb\xbf" + body(entry())).events[0]["leader"] == "web_0"


@pytest.mark.parametrize(
    ("written", "expected"),
    [(16, 16), ("16", 16), ("A-16", "A-16"), (None, None), (True, None), ("", None), (1.5, None)],
)
def test_an_incarnation_may_be_a_number_or_a_string(written: t.Any, expected: t.Any) -> None:
    assert document.parse(body(DocumentIncarnation=written)).incarnation == expected


def test_an_old_version_lacks_fields_and_prefixes_names() -> None:
    event, oddities = one(Resources=["_web_0"], Description=..., EventSource=..., DurationInSeconds=...)
    assert event["resources"] == ["web_0"]
    assert event["leader"] == "web_0"
    assert (event["description"], event["event_source"], event["duration_seconds"]) == (None, None, None)
    assert oddities == []


@pytest.mark.parametrize(("written", "expected"), [(0, 0), (5, 5), (-1, None), (30.0, 30), (1e999, None), (True, None)])
def test_an_unknown_duration_is_null(written: t.Any, expected: int | None) -> None:
    assert one(DurationInSeconds=written)[0]["duration_seconds"] == expected


HOSTILE = "{{ 7 * 7 }} $(reboot) `id`\n\x1b[2J\x00 \u2603 \u202e '\""


def test_text_from_outside_stays_what_it_is() -> None:
    event, _oddities = one(Description=HOSTILE, Resources=[HOSTILE], EventType=HOSTILE)
    assert (event["description"], event["resources"], event["event_type"]) == (HOSTILE, [HOSTILE], HOSTILE)


def test_a_warning_about_text_from_outside_cannot_steer_a_terminal() -> None:
    _event, oddities = one(EventId=HOSTILE, EventType=HOSTILE)
    assert oddities
    assert all(oddity.isprintable() for oddity in oddities)


def test_a_lone_surrogate_can_be_written_as_utf8_afterwards() -> None:
    parsed = document.parse(body(entry()).replace(b'"Description": ""', b'"Description": "a\\ud800b"'))
    assert parsed.events[0]["description"] == "a?b"


@pytest.mark.parametrize(
    ("status", "moment", "expected"),
    [
        ("Scheduled", NOW, 1787),
        ("Scheduled", NOW + timedelta(days=1), 0),
        ("Started", NOW, None),
    ],
)
def test_seconds_left_count_against_the_given_clock(status: str, moment: datetime, expected: int | None) -> None:
    parsed = document.parse(body(entry(EventStatus=status)))
    assert document.seen_by(parsed, "web_0", moment)[0]["seconds_left"] == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("web_0", True), ("WEB_0", True), ("_web_0", True), ("web", False), (None, None)]
)
def test_whether_an_event_is_mine_is_a_question_of_the_azure_name(name: str | None, expected: bool | None) -> None:
    assert document.seen_by(document.parse(body(entry())), name, NOW)[0]["affects_me"] is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["A", "B", "C"]),
        ({"event_ids": ["b", "X"]}, ["B"]),
        ({"event_types": ["freeze", "Preempt"]}, ["B", "C"]),
        ({"event_statuses": ["Started"]}, ["C"]),
        ({"event_sources": ["user"]}, ["A"]),
        ({"only_mine": True}, ["A"]),
        ({"only_mine": True, "event_types": ["Freeze"]}, []),
    ],
)
def test_filters_let_through_what_matches_all_of_them(filters: dict[str, t.Any], expected: list[str]) -> None:
    content = body(
        entry(EventId="A", EventSource="User"),
        entry(EventId="B", EventType="Freeze", Resources=["db_0"]),
        entry(
            EventId="C", EventType="Preempt", EventStatus="Started", NotBefore="", Resources=["db_1"], EventSource=...
        ),
    )
    events = document.seen_by(document.parse(content), "web_0", NOW)
    assert [event["event_id"] for event in document.matching(events, document.Filters(**filters))] == expected


def test_a_fingerprint_tells_content_from_time_and_order() -> None:
    first, second = entry(EventId="A"), entry(EventId="B")
    parsed = document.parse(body(first, second))
    later = document.seen_by(parsed, "web_0", NOW + timedelta(seconds=30))
    assert document.fingerprint(document.seen_by(parsed, "web_0", NOW)) == document.fingerprint(later[::-1])
    started = document.parse(body(first, dict(second, EventStatus="Started")))
    assert document.fingerprint(later) != document.fingerprint(document.seen_by(started, "web_0", NOW))
