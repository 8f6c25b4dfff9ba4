# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import EVENTS, HEADERS, Emulator, until

INSTANCE = "/metadata/instance?api-version=2021-02-01"
VERSIONS = ("2024-07-09", "2020-07-01", "2019-08-01", "latest")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "says"),
    [
        ("GET", EVENTS, {}, 400, "metadata header"),
        ("GET", EVENTS, {"Metadata": "false"}, 400, "metadata header"),
        ("POST", EVENTS, {}, 400, "metadata header"),
        ("GET", INSTANCE, {}, 400, "metadata header"),
        ("GET", EVENTS, {**HEADERS, "X-Forwarded-For": "10.0.0.4"}, 400, "X-Forwarded-For"),
        ("GET", "/metadata/scheduledevents", HEADERS, 400, "api-version was not specified"),
        ("GET", "/metadata/scheduledevents?api-version=", HEADERS, 400, "api-version was not specified"),
        ("GET", "/metadata/scheduledevents?api-version=latest", HEADERS, 400, "api-version is invalid"),
        ("GET", "/metadata/scheduledevents?api-version=2021-02-01", HEADERS, 400, "api-version is invalid"),
        ("GET", EVENTS + "&api-version=2020-07-01", HEADERS, 400, "more than once"),
        ("GET", EVENTS + "&a=1&A=2", HEADERS, 400, "more than once"),
        ("GET", "/metadata/instance?api-version=2020-07-01", HEADERS, 400, "api-version is invalid"),
        ("PUT", EVENTS, HEADERS, 405, "not allowed"),
        ("DELETE", EVENTS, HEADERS, 405, "not allowed"),
        ("PATCH", EVENTS, HEADERS, 405, "not allowed"),
        ("BREW", EVENTS, HEADERS, 405, "not allowed"),
        ("POST", INSTANCE, HEADERS, 405, "not allowed"),
        ("GET", "/", HEADERS, 404, "Not found"),
        ("GET", "/state", HEADERS, 404, "Not found"),
        ("POST", "/publish", HEADERS, 404, "Not found"),
        ("GET", "/metadata/scheduledevents/x?api-version=2020-07-01", HEADERS, 404, "Not found"),
        ("GET", "/metadata/identity?api-version=2020-07-01", HEADERS, 404, "Not found"),
        ("GET", "http://169.254.169.254" + EVENTS, HEADERS, 404, "Not found"),
        ("GET", "/metadata/instance/compute/nothing?api-version=2021-02-01", HEADERS, 404, "Not found"),
        ("GET", "/metadata/instance/compute/name?api-version=2021-02-01", HEADERS, 400, "format=text"),
    ],
)
def test_what_azure_refuses_is_refused(
    emulator: Emulator, method: str, path: str, headers: dict[str, str], status: int, says: str
) -> None:
    reply = emulator.ask(path, method=method, headers=headers)
    assert reply.status == status
    assert says in reply.json["error"]


@pytest.mark.parametrize(
    ("path", "newest"),
    [
        ("/metadata/scheduledevents?api-version=latest", ["2024-07-09", "2020-07-01", "2019-08-01"]),
        ("/metadata/instance", ["2025-04-07", "2024-07-17", "2024-03-15"]),
    ],
)
def test_a_bad_version_is_told_the_newest(emulator: Emulator, path: str, newest: list[str]) -> None:
    assert emulator.ask(path).json["newest-versions"] == newest


def test_a_version_that_the_service_does_not_have_yet_is_not_found(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--newest-version", "2019-08-01")
    asked = {version: emulator.ask(f"/metadata/scheduledevents?api-version={version}", "a") for version in VERSIONS}
    assert {version: reply.status for version, reply in asked.items()} == {
        "2024-07-09": 404,
        "2020-07-01": 404,
        "2019-08-01": 200,
        "latest": 400,
    }
    assert asked["latest"].json["newest-versions"] == ["2019-08-01", "2019-04-01", "2019-01-01"]
    assert emulator.ask(INSTANCE, "a").status == 200


def test_head_is_not_allowed_and_has_no_body(emulator: Emulator) -> None:
    reply = emulator.ask(method="HEAD")
    assert (reply.status, reply.body, reply.headers["Allow"]) == (405, b"", "GET, POST")


def test_answers_are_json_with_the_services_date(emulator: Emulator) -> None:
    reply = emulator.ask()
    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert parsedate_to_datetime(reply.headers["Date"]).tzinfo is not None


def test_a_connection_is_kept_alive_across_answers_and_refusals(emulator: Emulator) -> None:
    since = emulator.journal()[-1]["n"] if emulator.journal() else 0
    address = urlsplit(emulator.vms["web_0"])
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    for headers, status in ((HEADERS, 200), ({}, 400), (HEADERS, 200)):
        connection.request("GET", EVENTS, headers=headers)
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (status, True)
    connection.close()
    lines = emulator.journal("request", since)
    assert len(lines) == 3
    assert len({line["connection"] for line in lines}) == 1


def test_the_instance_tells_the_azure_name_and_the_hostname_apart(emulator: Emulator) -> None:
    compute = emulator.ask(INSTANCE).json["compute"]
    assert (compute["name"], compute["osProfile"]["computerName"]) == ("web_0", "web000000")
    assert emulator.ask(INSTANCE, "web_2").json["compute"]["osProfile"]["computerName"] == "web-two"
    assert compute["vmId"] != emulator.ask(INSTANCE, "web_1").json["compute"]["vmId"]
    assert (compute["tags"], compute["tagsList"]) == ("tier:front", [{"name": "tier", "value": "front"}])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/metadata/instance", "compute/\nnetwork/"),
        ("/metadata/instance/compute/name", "db"),
        ("/metadata/instance/compute/osProfile/computerName", "db"),
        ("/metadata/instance/compute/tags", ""),
        ("/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress", "10.0.0.9"),
    ],
)
def test_parts_of_the_instance_come_as_text(emulator: Emulator, path: str, text: str) -> None:
    reply = emulator.ask(f"{path}?api-version=2021-02-01&format=text", "db")
    assert (reply.status, reply.body.decode()) == (200, text)


@pytest.mark.parametrize(
    ("version", "has"), [("2017-04-02", False), ("2019-08-01", False), ("2020-07-15", True), ("2025-04-07", True)]
)
def test_an_old_instance_version_lacks_the_hostname(emulator: Emulator, version: str, has: bool) -> None:
    assert ("osProfile" in emulator.ask(f"/metadata/instance?api-version={version}").json["compute"]) is has


def test_beyond_the_rate_a_vm_is_told_to_wait(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--vm", "b", "--rate-limit", "5")
    replies = [emulator.ask(vm="a") for _time in range(40)]
    refused = [reply for reply in replies if reply.status == 429]
    assert [reply.status for reply in replies[:5]] == [200] * 5
    assert refused
    assert {reply.headers["Retry-After"] for reply in refused} == {"1"}
    assert emulator.ask(vm="b").status == 200, "the rate is each VM's own"
    until(lambda: emulator.ask(vm="a").status == 200)


def test_the_first_call_enables_the_service_and_takes_its_time(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--first-call-delay", "0.7")
    assert emulator.ask(INSTANCE, "a").status == 200
    for _time in range(4):
        assert emulator.ask(vm="a").status == 200
    instance, first, *later = (line["seconds"] for line in emulator.journal("request"))
    assert first >= 0.7
    assert min(instance, *later) < 0.7


def test_after_a_silence_the_service_is_disabled_and_counts_anew(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--disable-after", "0.3")
    emulator.document("a")
    event_id = emulator.publish(resources=["a"])
    emulator.obeys("/start", {"EventId": event_id})
    state = emulator.control("/state").json["scopes"]["fleet"]
    assert state["incarnation"] > 1

    def counted_anew() -> bool:
        time.sleep(0.4)
        return bool(emulator.document("a")["DocumentIncarnation"] == 1)

    until(counted_anew)
    assert [event["EventId"] for event in emulator.events("a")] == [event_id]


def test_etags_are_honoured_if_asked_for(serve: Callable[..., Emulator], emulator: Emulator) -> None:
    assert "ETag" not in emulator.ask().headers
    tagging = serve("--vm", "a", "--etag")
    tag = tagging.ask(vm="a").headers["ETag"]
    again = tagging.ask(vm="a", headers={**HEADERS, "If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    tagging.publish(resources=["a"])
    changed = tagging.ask(vm="a", headers={**HEADERS, "If-None-Match": tag})
    assert changed.status == 200
    assert changed.headers["ETag"] != tag
