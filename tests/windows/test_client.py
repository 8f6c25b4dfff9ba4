# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no case of the contract can show: where the service is looked for, and what Python and PowerShell agree on."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import (
    by_id,
    fingerprint,
    parse,
    parse_time,
    seen_by,
)
from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json
from ansible_collections.graceful.azure.tests.integration.test_reads import CLASSIC_FAULT
from ansible_collections.graceful.azure.tests.windows.harness import Session
from ansible_collections.graceful.azure.tests.windows.windows import windows_path

NOW = "2033-09-19T18:14:47Z"
WHOLE: Json = {
    "EventId": "A-1",
    "EventType": "Reboot",
    "EventStatus": "Scheduled",
    "ResourceType": "VirtualMachine",
    "Resources": ["_web_0", "Web_1"],
    "NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT",
    "Description": 'Grüße 維護 \U0001f600 "quoted" \\ \u007f\n',
    "EventSource": "Platform",
    "DurationInSeconds": 9,
}
DOCUMENTS: dict[str, list[Json]] = {
    "none": [],
    "one": [WHOLE],
    "two, the later first": [{**WHOLE, "EventId": "b"}, {**WHOLE, "EventId": "a", "DurationInSeconds": 1.5}],
    "bare": [{"EventId": "x"}],
}
PRIVATE = "& (Get-Module _EventsClient) ([scriptblock]::Create($args[0][0])) $args[0][1]"
DATES = (
    *("Mon, 19 Sep 2033 18:29:47 GMT", "19 sep 2033 18:29:47 +0200", "Mon, 19-Sep-2033 18:29:47 EST"),
    *("2033-09-19T18:29:47Z", "2033-09-19 18:29:47", "2033-09-19T20:29:47.1234567+02:00", "2033-09-19t18:29:47-0130"),
    *("", "soon", "2033-13-19T18:29:47Z", "2033-02-30T00:00:00Z", "Mon, 19 Foo 2033 18:29:47 GMT", "2033-09-19"),
    *("Mon, 19 Sep 2033 25:29:47 GMT", "Mon, 19 Sep 2033 18:29:47 XYZ", " 2033-09-19T18:29:47Z\n"),
)


@pytest.fixture(scope="module")
def client(session: Session) -> Session:
    session.load("_EventsClient")
    return session


def private(client: Session, block: str, argument: t.Any = None) -> t.Any:
    """What a block puts out that runs inside of the file, where it also sees what is not exported."""
    return client.script(PRIVATE, block, argument)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_events_and_their_fingerprint_are_the_same_in_both_languages(client: Session, name: str) -> None:
    text = json.dumps({"DocumentIncarnation": 1, "Events": DOCUMENTS[name]})
    now = parse_time(NOW)
    assert now
    expected = seen_by(parse(text.encode()), "WEB_0", now)
    block = """
        $document = ConvertFrom-GracefulDocument ([Text.Encoding]::UTF8.GetBytes($args[0][0]))
        $events = Get-GracefulSeenBy $document 'WEB_0' (ConvertFrom-GracefulTime $args[0][1])
        @{ events = $events; fingerprint = (Get-GracefulFingerprint $events); oddities = $document['Oddities'] }
    """
    found = private(client, block, [text, NOW])
    assert found["events"] == expected
    assert found["fingerprint"] == fingerprint(expected)
    assert found["oddities"] == parse(text.encode()).oddities


def test_an_id_that_is_in_the_document_twice_counts_once_in_both_languages(client: Session) -> None:
    statuses = {"A": "Scheduled", "b": "Started", "a ": "Started", "B": "Scheduled", "c": "Scheduled", "C": "Scheduled"}
    events = [{"EventId": event_id, "EventStatus": status} for event_id, status in statuses.items()]
    text = json.dumps({"DocumentIncarnation": 1, "Events": events})
    block = """
        $present = Get-GracefulById (ConvertFrom-GracefulDocument ([Text.Encoding]::UTF8.GetBytes($args[0])))['Events']
        @{ ids = @($present.PSBase.Keys); events = @($present.PSBase.Values) }
    """
    found, expected = private(client, block, text), by_id(parse(text.encode()).events)
    assert dict(zip(found["ids"], found["events"], strict=True)) == expected
    assert {key: one["event_id"] for key, one in expected.items()} == {"a": "a ", "b": "b", "c": "c"}


def test_a_call_on_a_classic_vm_asks_for_the_vms_name_only_once(
    session: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("classic")
    emulator = Emulator(directory / "emulator", [Case("classic", events=[{}], faults=[CLASSIC_FAULT])])
    given = {"endpoint": emulator.endpoints["classic"], "retries": 0, "wait": 5, "known": "another"}
    try:
        first = session.module("win_host_maintenance", {**given, "record_dir": f"{windows_path(directory)}\\records"})
        known = first["observation"]["document"]
        session.module(
            "win_host_maintenance", {**given, "known": known, "record_dir": f"{windows_path(directory)}\\records"}
        )
    finally:
        emulator.stop()
    assert (first["report"]["state"], first["observation"]["vm_name"]) == ("looked", None)
    requests = [line["path"] for line in emulator.journal if line["kind"] == "request"]
    names = [path for path in requests if "/instance" in path]
    assert (len(names), len(requests) - len(names) > 4) == (2, True), "once in each of the two calls"


def test_dates_are_read_alike(client: Session) -> None:
    block = """
        foreach ($text in $args[0]) {
            $moment = ConvertFrom-GracefulTime $text
            if ($null -eq $moment) { 'none' } else { $moment.ToString('yyyy-MM-ddTHH:mm:ssZ') }
        }
    """
    moments = [parse_time(text) for text in DATES]
    expected = ["none" if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in moments]
    assert dict(zip(DATES, private(client, block, list(DATES)), strict=True)) == dict(zip(DATES, expected, strict=True))


LEASES = """
    [Environment]::SetEnvironmentVariable('SCHEDULEDEVENTSIP', $args[0][0])
    $key = 'HKLM:\\Software\\ScheduledEvents'
    if ($args[0][1]) {
        $null = New-Item -Path $key -Force
        $null = New-ItemProperty -Path $key -Name 'ScheduledEventsIp' -Value $args[0][1] -Force
    }
    try { , @(Get-LeaseEndpoint) }
    finally {
        if ($args[0][1]) { Remove-Item -Path $key -Recurse }
        [Environment]::SetEnvironmentVariable('SCHEDULEDEVENTSIP', '')
    }
"""


@pytest.mark.parametrize(
    ("variable", "value", "addresses"),
    [
        ("", "", []),
        ("168.63.129.16", "", ["168.63.129.16"]),
        ("", "168.63.129.16", ["168.63.129.16"]),
        ("168.63.129.16", "168.63.129.17", ["168.63.129.16", "168.63.129.17"]),
        ("168.63.129.16", "168.63.129.16", ["168.63.129.16"]),
        ("not an address", "224.0.0.1", []),
        ("0.0.0.0", "::1", []),
    ],
)
def test_addresses_of_the_environment_and_the_registry_are_tried_on_both_ports(
    client: Session, variable: str, value: str, addresses: list[str]
) -> None:
    found = private(client, LEASES, [variable, value]) or []
    expected = [f"http://{address}{port}" for address in addresses for port in ("", ":8080")]
    # DHCP is asked, too; nobody gives option 245 here.
    assert ([found] if isinstance(found, str) else found) == expected


def test_where_nothing_takes_the_connection_the_other_addresses_are_asked(
    client: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    emulator = Emulator(tmp_path_factory.mktemp("client") / "emulator", [Case("elsewhere", events=[{}])])
    block = """
        $options = @{ endpoint = 'http://127.0.0.1:1'; api_version = 'auto'; retries = 0 }
        $service = New-GracefulService ($options + @{ connect_timeout = 5; read_timeout = 5 })
        $service.Fallbacks = [scriptblock]::Create("'http://127.0.0.1:1', '" + $args[0] + "'")
        $reading = Read-GracefulEvents $service
        @($service.Endpoint, @($reading['Document']['Events']).Count, (Get-GracefulVmName $service))
    """
    try:
        found = private(client, block, emulator.endpoints["elsewhere"])
    finally:
        emulator.stop()
    assert found == [emulator.endpoints["elsewhere"], 1, "elsewhere"]
