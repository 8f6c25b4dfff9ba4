# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import http.client
import json
import typing as t
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import EVENTS, HEADERS, Emulator, until

UNKNOWN = "00000000-0000-0000-0000-000000000000"


def test_an_approved_event_starts_for_all_its_vms(emulator: Emulator) -> None:
    event_id = emulator.publish(resources=["web_0", "web_1"])
    reply = emulator.approve(event_id)
    assert (reply.status, reply.body) == (200, b"")
    assert [emulator.events(vm)[0]["EventStatus"] for vm in ("web_0", "web_1", "web_2")] == ["Started"] * 3
    assert emulator.life(event_id) == [("published", "control"), ("approved", "web_0"), ("started", "web_0")]


def test_any_vm_of_the_scope_may_approve(emulator: Emulator) -> None:
    event_id = emulator.publish(resources=["web_0"])
    assert emulator.approve(event_id, vm="web_2").status == 200
    assert ("approved", "web_2") in emulator.life(event_id)


def test_several_events_in_one_request_and_ids_in_any_case(emulator: Emulator) -> None:
    ids = [emulator.publish(), emulator.publish("Freeze")]
    assert emulator.approve(ids[0].lower(), ids[1]).status == 200
    assert {event["EventStatus"] for event in emulator.events()} == {"Started"}


def test_approving_again_answers_200_and_changes_nothing(emulator: Emulator) -> None:
    event_id = emulator.publish()
    assert emulator.approve(event_id).status == 200
    before = emulator.document()
    assert emulator.approve(event_id, vm="web_1").status == 200
    assert emulator.document() == before
    assert [what for what, _by in emulator.life(event_id)].count("approved") == 1


def test_many_approvals_at_once_start_the_event_once(emulator: Emulator) -> None:
    event_id = emulator.publish(resources="all")
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda n: emulator.approve(event_id, vm=f"web_{n % 3}"), range(48)))
    assert {reply.status for reply in replies} == {200}
    assert sorted(what for what, _by in emulator.life(event_id)) == ["approved", "published", "started"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"\xff",
        b"[]",
        b"{}",
        b'{"StartRequests": {}}',
        b'{"StartRequests": []}',
        b'{"StartRequests": ["%s"]}' % UNKNOWN.encode(),
        b'{"StartRequests": [{}]}',
        b'{"StartRequests": [{"EventId": 1}]}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_body_is_refused(emulator: Emulator, body: bytes) -> None:
    reply = emulator.ask(method="POST", body=body)
    assert reply.status == 400
    assert "error" in reply.json


def test_an_unknown_id_refuses_the_request_as_a_whole(emulator: Emulator) -> None:
    event_id = emulator.publish()
    assert emulator.approve(UNKNOWN).status == 400
    assert emulator.approve(event_id, UNKNOWN).status == 400
    assert emulator.events()[0]["EventStatus"] == "Scheduled"


def test_another_scopes_event_is_unknown(emulator: Emulator) -> None:
    event_id = emulator.publish(resources=["db"])
    assert emulator.approve(event_id, vm="web_0").status == 400
    assert emulator.approve(event_id, vm="db").status == 200


@pytest.mark.parametrize("status", [200, 404, 410, 500])
def test_the_answer_to_an_unknown_id_can_be_chosen(serve: Callable[..., Emulator], status: int) -> None:
    emulator = serve("--vm", "web_0", "--unknown-id", str(status))
    event_id = emulator.publish()
    assert emulator.approve(UNKNOWN, event_id).status == status
    assert emulator.events()[0]["EventStatus"] == ("Started" if status == 200 else "Scheduled")


@pytest.mark.parametrize(
    ("version", "incarnation", "status"),
    [
        ("2017-03-01", None, 400),
        ("2017-03-01", "soon", 400),
        ("2017-03-01", 5, 200),
        ("2017-03-01", "5", 200),
        ("2017-08-01", None, 200),
        ("2017-08-01", "5", 200),
    ],
)
def test_only_the_preview_wants_the_incarnation(
    emulator: Emulator, version: str, incarnation: t.Any, status: int
) -> None:
    event_id = emulator.publish()
    more = {} if incarnation is None else {"DocumentIncarnation": incarnation}
    assert emulator.approve(event_id, version=version, **more).status == status
    assert emulator.events()[0]["EventStatus"] == ("Started" if status == 200 else "Scheduled")


def test_azure_may_take_its_time_after_the_approval(emulator: Emulator) -> None:
    event_id = emulator.publish(start_delay=0.5)
    assert emulator.approve(event_id).status == 200
    assert emulator.approve(event_id).status == 200
    until(lambda: emulator.events()[0]["EventStatus"] == "Started")
    approved, started = (line for line in emulator.journal("event")[-2:])
    assert (approved["what"], started["what"], started["by"]) == ("approved", "started", "web_0")
    assert started["time"] - approved["time"] >= 0.49


def test_a_raw_id_can_be_approved_as_it_is_shown(emulator: Emulator) -> None:
    emulator.publish(raw={"EventId": "any-spelling"})
    assert emulator.approve(emulator.events()[0]["EventId"]).status == 200


def test_a_chunked_body_is_understood(emulator: Emulator) -> None:
    event_id = emulator.publish()
    address = urlsplit(emulator.vms["web_0"])
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", EVENTS, iter([body[:9], body[9:]]), HEADERS, encode_chunked=True)
        assert connection.getresponse().status == 200
    assert emulator.events()[0]["EventStatus"] == "Started"


def statuses(emulator: Emulator) -> list[str]:
    return [event["EventStatus"] for event in emulator.events(version="2024-07-09")]


class TestTerminate:
    def test_an_approved_one_waits_for_the_others_with_the_same_time(self, emulator: Emulator) -> None:
        ids = [emulator.publish("Terminate", [vm], notice=300) for vm in ("web_0", "web_1", "web_2")]
        for number, event_id in enumerate(ids):
            assert emulator.approve(event_id, vm=f"web_{number}").status == 200
            assert statuses(emulator) == (["Started"] if number == 2 else ["Scheduled"]) * 3
        assert emulator.life(ids[0])[1:] == [("approved", "web_0"), ("started", "web_2")]

    def test_they_can_be_approved_together(self, emulator: Emulator) -> None:
        ids = [emulator.publish("Terminate", [vm], notice=300) for vm in ("web_0", "web_1")]
        assert emulator.approve(*ids).status == 200
        assert statuses(emulator) == ["Started"] * 2

    def test_it_does_not_wait_for_one_that_was_cancelled(self, emulator: Emulator) -> None:
        first, second = (emulator.publish("Terminate", [vm], notice=300) for vm in ("web_0", "web_1"))
        assert emulator.approve(first).status == 200
        assert statuses(emulator) == ["Scheduled"] * 2
        emulator.obeys("/cancel", {"EventId": second})
        assert statuses(emulator) == ["Started"]

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"kind": "Terminate", "resources": ["web_1"], "notice": 900}, id="another-time"),
            pytest.param({"kind": "Terminate", "resources": ["db"], "notice": 300}, id="another-scope"),
            pytest.param({"kind": "Reboot", "resources": ["web_1"], "notice": 300}, id="another-type"),
            pytest.param(
                {"kind": "Terminate", "resources": ["web_1"], "notice": 300, "EventStatus": "Started"}, id="started"
            ),
        ],
    )
    def test_it_waits_for_no_others(self, emulator: Emulator, other: dict[str, t.Any]) -> None:
        emulator.publish(**other)
        event_id = emulator.publish("Terminate", ["web_0"], notice=300)
        assert emulator.approve(event_id).status == 200
        assert emulator.life(event_id)[-1] == ("started", "web_0")

    def test_its_time_starts_it_all_the_same(self, emulator: Emulator) -> None:
        ids = [emulator.publish("Terminate", [vm], notice=2) for vm in ("web_0", "web_1")]
        assert emulator.approve(ids[0]).status == 200
        until(lambda: statuses(emulator) == ["Started"] * 2)
        assert emulator.life(ids[0])[1:] == [("approved", "web_0"), ("started", "notbefore")]


def test_a_recommendation_never_starts_and_leaves_by_itself(emulator: Emulator) -> None:
    event_id = emulator.publish("SpotRebalanceRecommendation", notice=1)
    assert emulator.approve(event_id, version="2024-07-09").status == 200
    assert statuses(emulator) == ["Scheduled"]
    until(lambda: not emulator.events(version="2024-07-09"))
    assert [what for what, _by in emulator.life(event_id)] == ["published", "approved", "cancelled"]
