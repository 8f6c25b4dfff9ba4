# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import time
from email.utils import parsedate_to_datetime

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator

VERSIONS = (
    "2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01", "2024-07-09",
)  # fmt: skip
FIRST_FIELDS = ["EventId", "EventType", "ResourceType", "Resources", "EventStatus", "NotBefore"]


def test_a_quiet_fleet_has_a_document_without_events(emulator: Emulator) -> None:
    document = emulator.document()
    assert list(document) == ["DocumentIncarnation", "Events"]
    assert document["Events"] == []
    assert isinstance(document["DocumentIncarnation"], int)


@pytest.mark.parametrize(
    ("version", "added"),
    [
        ("2017-03-01", []),
        ("2017-08-01", []),
        ("2017-11-01", []),
        ("2019-01-01", []),
        ("2019-04-01", ["Description"]),
        ("2019-08-01", ["Description", "EventSource"]),
        ("2020-07-01", ["Description", "EventSource", "DurationInSeconds"]),
        ("2024-07-09", ["Description", "EventSource", "DurationInSeconds"]),
    ],
)
def test_each_version_has_its_fields_and_no_others(emulator: Emulator, version: str, added: list[str]) -> None:
    emulator.publish(Description="why", EventSource="User", DurationInSeconds=9)
    (event,) = emulator.events(version=version)
    assert list(event) == FIRST_FIELDS + added
    values = {"Description": "why", "EventSource": "User", "DurationInSeconds": 9}
    assert {key: event[key] for key in added} == {key: values[key] for key in added}
    assert (event["EventType"], event["ResourceType"], event["EventStatus"]) == (
        "Reboot",
        "VirtualMachine",
        "Scheduled",
    )


def test_only_the_preview_puts_an_underscore_before_names(emulator: Emulator) -> None:
    emulator.publish(resources=["web_0", "web_1"])
    shown = {version: emulator.events(version=version)[0]["Resources"] for version in VERSIONS}
    assert shown.pop("2017-03-01") == ["_web_0", "_web_1"]
    assert set(map(tuple, shown.values())) == {("web_0", "web_1")}


@pytest.mark.parametrize(
    ("kind", "since"),
    [
        ("Freeze", "2017-03-01"),
        ("Reboot", "2017-03-01"),
        ("Redeploy", "2017-03-01"),
        ("Preempt", "2017-11-01"),
        ("Terminate", "2019-01-01"),
        ("SpotRebalanceRecommendation", "2024-07-09"),
    ],
)
def test_a_version_does_not_show_types_it_does_not_know(emulator: Emulator, kind: str, since: str) -> None:
    emulator.publish(kind)
    assert [version for version in VERSIONS if emulator.events(version=version)] == [v for v in VERSIONS if v >= since]


def test_a_type_that_nobody_knows_yet_is_shown_by_every_version(emulator: Emulator) -> None:
    emulator.publish("Hibernate", foreign=True)
    assert {emulator.events(version=version)[0]["EventType"] for version in VERSIONS} == {"Hibernate"}


@pytest.mark.parametrize(
    ("kind", "notice"),
    [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600), ("Preempt", 30), ("Terminate", 300)],
)
def test_the_least_notice_is_azures(emulator: Emulator, kind: str, notice: int) -> None:
    before = time.time()
    emulator.publish(kind)
    after = time.time()
    not_before = emulator.events()[0]["NotBefore"]
    assert not_before.endswith(" GMT")
    assert not_before[3:5] == ", "
    moment = parsedate_to_datetime(not_before).timestamp()
    assert before + notice <= moment <= math.ceil(after + notice)


def test_notbefore_is_empty_once_started(emulator: Emulator) -> None:
    event_id = emulator.publish()
    emulator.obeys("/start", {"EventId": event_id})
    (event,) = emulator.events()
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


def test_the_incarnation_grows_with_every_change_and_stays_otherwise(emulator: Emulator) -> None:
    def incarnation() -> int:
        return int(emulator.document()["DocumentIncarnation"])

    seen = [incarnation(), incarnation()]
    assert seen[0] == seen[1]
    event_id = emulator.publish()
    seen.append(incarnation())
    emulator.obeys("/start", {"EventId": event_id})
    seen.append(incarnation())
    emulator.obeys("/complete", {"EventId": event_id})
    seen.append(incarnation())
    assert seen[1:] == sorted(set(seen[1:]))


def test_ids_are_guids_in_upper_case(emulator: Emulator) -> None:
    event_id = emulator.publish()
    assert event_id == event_id.upper()
    assert [len(part) for part in event_id.split("-")] == [8, 4, 4, 4, 12]


def test_raw_fields_lie_over_the_event_as_they_are(emulator: Emulator) -> None:
    raw = {"NotBefore": "2026-09-19T18:29:47Z", "Resources": [], "Extra": {"a": 1}, "EventSource": {"__absent__": True}}
    emulator.publish(raw=raw)
    (event,) = emulator.events()
    assert "EventSource" not in event
    assert {key: event[key] for key in ("NotBefore", "Resources", "Extra")} == {
        key: raw[key] for key in ("NotBefore", "Resources", "Extra")
    }


def test_a_scope_sees_the_events_of_all_its_vms_and_of_no_others(emulator: Emulator) -> None:
    ours, theirs = emulator.publish(resources=["web_1"]), emulator.publish(resources=["db"])
    seen = {vm: [event["EventId"] for event in emulator.events(vm)] for vm in emulator.vms}
    assert seen == {"web_0": [ours], "web_1": [ours], "web_2": [ours], "db": [theirs]}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("first", ["web_0"]),
        ("last", ["web_2"]),
        ("first two", ["web_0", "web_1"]),
        ("all", ["web_0", "web_1", "web_2"]),
    ],
)
def test_words_name_the_vms_of_any_fleet(emulator: Emulator, words: str, names: list[str]) -> None:
    emulator.publish(resources=words)
    assert emulator.events()[0]["Resources"] == names


def test_state_shows_vms_scopes_and_events(emulator: Emulator) -> None:
    event_id = emulator.publish()
    state = emulator.control("/state").json
    assert state["vms"]["db"] == {"scope": "db", "endpoint": emulator.vms["db"]}
    assert [event["EventId"] for event in state["scopes"]["web"]["events"]] == [event_id]
    assert state["scopes"]["web"]["incarnation"] == emulator.document()["DocumentIncarnation"]
    assert state["faults"] == []
    assert json.dumps(state)
