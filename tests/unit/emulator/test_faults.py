# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import typing as t
from urllib.parse import urlsplit

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import EVENTS, HEADERS, Emulator, until

INSTANCE = "/metadata/instance?api-version=2021-02-01"


def inject(emulator: Emulator, kind: str, **options: t.Any) -> int:
    return int(emulator.obeys("/fault", {"kind": kind, **options})["fault"])


@pytest.mark.parametrize("status", ["400", "401", "403", "404", "405", "410", "429", "500", "503"])
def test_a_status_with_an_error_and_the_wait_asked_for(emulator: Emulator, status: str) -> None:
    inject(emulator, status, count=1, retry_after=7)
    reply = emulator.ask()
    assert (reply.status, reply.headers["Retry-After"]) == (int(status), "7")
    assert reply.json["error"]
    assert emulator.ask().status == 200


def test_a_redirect(emulator: Emulator) -> None:
    inject(emulator, "redirect", location="http://127.0.0.1:1/elsewhere", count=1)
    reply = emulator.ask()
    assert (reply.status, reply.headers["Location"]) == (302, "http://127.0.0.1:1/elsewhere")


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        ({"kind": "empty"}, 200, b""),
        ({"kind": "body", "body": "so be it"}, 200, b"so be it"),
        ({"kind": "body", "body": "{}", "status": 503}, 503, b"{}"),
        ({"kind": "document", "document": {"Events": None}}, 200, b'{"Events": null}'),
        ({"kind": "document", "document": []}, 200, b"[]"),
    ],
)
def test_another_body_than_the_real_one(emulator: Emulator, fault: dict[str, t.Any], status: int, body: bytes) -> None:
    emulator.obeys("/fault", fault)
    reply = emulator.ask()
    assert (reply.status, reply.body) == (status, body)


def test_a_page_of_html(emulator: Emulator) -> None:
    inject(emulator, "html")
    reply = emulator.ask()
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html")
    assert b"<title>" in reply.body


def test_a_byte_order_mark(emulator: Emulator) -> None:
    inject(emulator, "bom")
    reply = emulator.ask()
    assert reply.body.startswith(b"\xef\xbb\xbf{")
    assert json.loads(reply.body.decode("utf-8-sig"))["Events"] == []


def test_an_oversized_document_is_valid_and_large(emulator: Emulator) -> None:
    inject(emulator, "oversized")
    reply = emulator.ask()
    assert len(reply.body) > 2_000_000
    assert reply.json["Events"] == []


def test_an_answer_cut_in_the_middle(emulator: Emulator) -> None:
    inject(emulator, "truncated", count=1)
    with pytest.raises(http.client.IncompleteRead):
        emulator.ask()


def test_valid_http_with_half_a_document(emulator: Emulator) -> None:
    inject(emulator, "truncated", cut="json")
    with pytest.raises(ValueError, match=r"."):
        json.loads(emulator.ask().body)


def test_no_date(emulator: Emulator) -> None:
    inject(emulator, "no_date")
    reply = emulator.ask()
    assert (reply.status, reply.headers["Date"]) == (200, None)


def test_a_reset(emulator: Emulator) -> None:
    inject(emulator, "reset", count=1)
    with pytest.raises(ConnectionResetError):
        emulator.ask()
    assert emulator.ask().status == 200
    assert [(line["status"], line["fault"]) for line in emulator.journal("request")[-2:]] == [
        (None, "reset"),
        (200, None),
    ]


def test_a_stall_is_silence_and_then_a_closed_connection(emulator: Emulator) -> None:
    inject(emulator, "stall", seconds=0.3, count=1)
    since = time.monotonic()
    with pytest.raises(http.client.RemoteDisconnected):
        emulator.ask()
    assert time.monotonic() - since >= 0.3
    assert emulator.ask().status == 200


def test_clearing_ends_a_stall(emulator: Emulator) -> None:
    fault = inject(emulator, "stall", count=1)
    address = urlsplit(emulator.vms["web_0"])
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", EVENTS, headers=HEADERS)
        until(lambda: emulator.journal("request")[-1]["fault"] == "stall")
        emulator.obeys("/faults/clear", {"fault": fault})
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()


def test_a_drip_comes_byte_by_byte_and_complete(emulator: Emulator) -> None:
    inject(emulator, "drip", interval=0.01)
    since = time.monotonic()
    reply = emulator.ask()
    assert reply.json["Events"] == []
    assert time.monotonic() - since >= 0.01 * len(reply.body)


def test_refused_connections_for_one_vm_until_cleared(emulator: Emulator) -> None:
    inject(emulator, "refuse", vm="web_0")
    with pytest.raises(ConnectionRefusedError):
        emulator.ask()
    assert emulator.ask(vm="web_1").status == 200
    emulator.obeys("/faults/clear", {})
    assert emulator.ask().status == 200


def test_refused_connections_for_all_for_a_while(emulator: Emulator) -> None:
    inject(emulator, "refuse", seconds=2)
    for vm in emulator.vms:
        with pytest.raises(ConnectionRefusedError):
            emulator.ask(vm=vm)

    def is_back() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            return all(emulator.ask(vm=vm).status == 200 for vm in emulator.vms)
        return False

    until(is_back)


def test_a_refusal_ends_kept_alive_connections_too(emulator: Emulator) -> None:
    address = urlsplit(emulator.vms["web_0"])
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=30) as connection:
        connection.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        inject(emulator, "refuse")
        assert connection.recv(1000) == b"", "the service hung up"


@pytest.mark.parametrize(
    ("narrowed", "hit"),
    [
        ({}, ["web_0 GET events", "web_0 POST events", "web_0 GET instance", "web_1 GET events"]),
        ({"vm": "web_1"}, ["web_1 GET events"]),
        ({"method": "POST"}, ["web_0 POST events"]),
        ({"path": "instance"}, ["web_0 GET instance"]),
        ({"path": "scheduledevents", "vm": "web_0", "method": "GET"}, ["web_0 GET events"]),
    ],
)
def test_a_fault_hits_only_what_it_is_meant_for(emulator: Emulator, narrowed: dict[str, str], hit: list[str]) -> None:
    inject(emulator, "503", **narrowed)
    statuses = {
        "web_0 GET events": emulator.ask().status,
        "web_0 POST events": emulator.approve("unknown").status,
        "web_0 GET instance": emulator.ask(INSTANCE).status,
        "web_1 GET events": emulator.ask(vm="web_1").status,
    }
    assert [name for name, status in statuses.items() if status == 503] == hit


def test_skip_lets_requests_pass_and_count_ends_the_fault(emulator: Emulator) -> None:
    inject(emulator, "500", skip=2, count=2)
    assert [emulator.ask().status for _time in range(6)] == [200, 200, 500, 500, 200, 200]
    assert emulator.control("/state").json["faults"] == []
    assert [line["what"] for line in emulator.journal("fault")[-2:]] == ["injected", "cleared"]


def test_a_fault_may_end_by_itself(emulator: Emulator) -> None:
    inject(emulator, "500", seconds=1.5)
    assert emulator.ask().status == 500
    until(lambda: emulator.ask().status == 200)


def test_an_event_that_leaves_just_before_its_approval(emulator: Emulator) -> None:
    event_id, other = emulator.publish(), emulator.publish()
    inject(emulator, "vanish", EventId=event_id)
    assert len(emulator.events()) == 2
    assert emulator.approve(event_id).status == 400
    assert [event["EventId"] for event in emulator.events()] == [other]
    assert emulator.life(event_id)[-1] == ("cancelled", "fault")
    assert emulator.approve(other).status == 200


@pytest.mark.parametrize(("kind", "status"), [("silent_post", "Started"), ("lost_post", "Scheduled")])
def test_an_approval_whose_answer_never_comes(emulator: Emulator, kind: str, status: str) -> None:
    event_id = emulator.publish()
    inject(emulator, kind, seconds=0.2, count=1)
    assert emulator.ask().status == 200, "reading is not hit"
    with pytest.raises(http.client.RemoteDisconnected):
        emulator.approve(event_id)
    assert emulator.events()[0]["EventStatus"] == status


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({}, "needs a kind"),
        ({"kind": "flood"}, "allowed: refuse"),
        ({"kind": "500", "vm": "web_9"}, "allowed: web_0"),
        ({"kind": "500", "method": "PUT"}, "allowed: GET, POST"),
        ({"kind": "500", "path": "/"}, "allowed: scheduledevents, instance"),
        ({"kind": "500", "count": 0}, "at least 1"),
        ({"kind": "500", "skip": "2"}, "whole number"),
        ({"kind": "stall", "seconds": -1}, "number of seconds"),
        ({"kind": "500", "colour": "red"}, "no field 'colour'"),
        ({"kind": "refuse", "count": 1}, "vm and seconds only"),
        ({"kind": "vanish", "EventId": "unknown"}, "an event that is there"),
        ({"kind": "document"}, "option document"),
        ({"kind": "body"}, "option body"),
        ({"kind": "truncated", "cut": "html"}, "allowed: json"),
    ],
)
def test_a_nonsensical_fault_is_refused_in_words(emulator: Emulator, fault: dict[str, t.Any], says: str) -> None:
    reply = emulator.control("/fault", fault)
    assert reply.status == 400
    assert says in reply.json["error"]
    assert emulator.control("/state").json["faults"] == []
