# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, until


def test_an_event_nobody_approves_starts_at_notbefore_and_leaves_by_itself(emulator: Emulator) -> None:
    before = time.time()
    event_id = emulator.publish(notice=1, started_for=0.3)
    not_before = parsedate_to_datetime(emulator.events()[0]["NotBefore"]).timestamp()
    until(lambda: not emulator.events())
    assert emulator.life(event_id) == [
        ("published", "control"),
        ("started", "notbefore"),
        ("completed", "started_for"),
    ]
    started, completed = (line["time"] for line in emulator.journal("event")[-2:])
    assert started >= not_before >= before + 1
    assert completed >= started + 0.29


def test_an_event_can_be_called_off_by_itself(emulator: Emulator) -> None:
    event_id = emulator.publish(cancel_after=0.2)
    until(lambda: not emulator.events())
    assert emulator.life(event_id) == [("published", "control"), ("cancelled", "cancel_after")]


def test_what_has_started_is_not_called_off(emulator: Emulator) -> None:
    event_id = emulator.publish(EventStatus="Started", cancel_after=0.2, started_for=0.6)
    until(lambda: not emulator.events())
    assert [what for what, _by in emulator.life(event_id)] == ["published", "started", "completed"]


def test_a_failure_is_started_at_once(emulator: Emulator) -> None:
    event_id = emulator.publish("Redeploy", EventStatus="Started")
    (event,) = emulator.events()
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")
    assert emulator.life(event_id) == [("published", "control"), ("started", "control")]


@pytest.mark.parametrize(
    ("verbs", "life"),
    [
        (["cancel"], ["cancelled"]),
        (["start", "complete"], ["started", "completed"]),
        (["complete"], ["started", "completed"]),
    ],
)
def test_events_are_led_by_hand(emulator: Emulator, verbs: list[str], life: list[str]) -> None:
    event_id = emulator.publish()
    for verb in verbs:
        emulator.obeys(f"/{verb}", {"EventId": event_id.lower()})
    assert emulator.life(event_id)[1:] == [(what, "control") for what in life]
    assert emulator.events() == []


def test_a_started_event_cannot_be_cancelled(emulator: Emulator) -> None:
    event_id = emulator.publish(EventStatus="Started")
    reply = emulator.control("/cancel", {"EventId": event_id})
    assert reply.status == 400
    assert "Started" in reply.json["error"]
    assert len(emulator.events()) == 1


def test_the_journal_tells_the_whole_story_of_a_request(emulator: Emulator) -> None:
    event_id = emulator.publish()
    since = emulator.journal()[-1]["n"]
    emulator.approve(event_id)
    lines = emulator.journal(since=since)
    assert [line["kind"] for line in lines] == ["event", "event", "request"]
    assert [line["n"] for line in lines] == [since + 1, since + 2, since + 3]
    line = lines[-1]
    assert event_id in line.pop("body")
    assert line.pop("headers")["Metadata"] == "true"
    assert line.pop("source").startswith("127.0.0.1:")
    assert line.pop("incarnation") == emulator.document()["DocumentIncarnation"]
    for key in ("n", "time", "connection", "seconds"):
        assert line.pop(key) >= 0
    assert line == {
        "kind": "request",
        "vm": "web_0",
        "method": "POST",
        "path": "/metadata/scheduledevents",
        "query": {"api-version": "2020-07-01"},
        "status": 200,
        "fault": None,
    }
