# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read, in every version of the API, from odd documents and from a service that stumbles."""

from __future__ import annotations

import typing as t
from datetime import datetime

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import (
    INSTANCE_PATH,
    UNPRINTABLE,
    Case,
    Json,
    Outcome,
    Raw,
    Stage,
)

FIELDS = {
    "event_id", "event_type", "event_status", "resource_type", "resources", "not_before", "seconds_left",
    "description", "event_source", "duration_seconds", "affects_me", "leader",
}  # fmt: skip


def ids(outcome: Outcome) -> list[str]:
    return [event["event_id"] for event in outcome.result["events"]]


# --- versions ---

VERSIONS = (
    "2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01", "2024-07-09",
)  # fmt: skip
SINCE = {"description": "2019-04-01", "event_source": "2019-08-01", "duration_seconds": "2020-07-01"}
WHOLE_EVENT: Json = {"Description": "Host update.", "EventSource": "User", "DurationInSeconds": 9, "notice": 900}
VERSION_CASES = [
    Case(
        f"version_{version}",
        {"api_version": version},
        events=[WHOLE_EVENT],
        result={"vm_name": f"version_{version}", "api_version": version},
        polls=1,
    )
    for version in VERSIONS
]


@pytest.mark.quick("scheduled_events_info")
@pytest.mark.parametrize("case", VERSION_CASES, ids=str)
def test_every_version_gives_the_same_fields_and_null_for_what_it_lacks(case: Case, outcome: Outcome) -> None:
    (event,) = outcome.result["events"]
    assert set(event) == FIELDS
    wanted = {"description": "Host update.", "event_source": "User", "duration_seconds": 9}
    for field, value in wanted.items():
        assert event[field] == (value if case.options["api_version"] >= SINCE[field] else None)
    assert (event["event_id"], event["event_type"], event["event_status"]) == (case.event_id(), "Reboot", "Scheduled")
    assert event["resource_type"] == "VirtualMachine"
    assert (event["resources"], event["leader"], event["affects_me"]) == ([case.name], case.name, True)
    not_before = datetime.fromisoformat(event["not_before"].replace("Z", "+00:00")).timestamp()
    assert event["seconds_left"] == pytest.approx(not_before - outcome.reads[0]["time"], abs=5)
    assert isinstance(outcome.result["document_incarnation"], int)
    assert outcome.result["endpoint"].startswith("http://127.0.0.1:")
    assert not outcome.result["changed"]


def automatic(name: str, version: str, polls: int, *faults: Json) -> Case:
    refusals = [{"path": "scheduledevents", "count": 1, **fault} for fault in faults]
    return Case(
        name, {"api_version": "auto"}, events=[{}], faults=refusals, result={"api_version": version}, polls=polls
    )


AUTOMATIC_CASES = [
    automatic("auto_newest", "2024-07-09", 1),
    automatic("auto_without_the_newest", "2020-07-01", 2, {"kind": "404"}),
    automatic("auto_old_service", "2019-04-01", 4, {"kind": "400", "count": 2}, {"kind": "404"}),
]


@pytest.mark.parametrize("case", AUTOMATIC_CASES, ids=str)
def test_auto_is_the_newest_version_that_the_service_takes(case: Case, outcome: Outcome) -> None:
    assert ids(outcome) == [case.event_id()]
    tried = [line["query"]["api-version"] for line in outcome.reads]
    assert tried == sorted(VERSIONS, reverse=True)[: len(tried)]


RECOMMENDED: list[Json] = [{"EventType": "SpotRebalanceRecommendation"}]
SPOT = Case("spot", {"api_version": "auto"}, events=RECOMMENDED)
SPOT_UNSEEN = Case("spot_unseen", events=RECOMMENDED, result={"events": [], "api_version": "2020-07-01"})


@pytest.mark.parametrize("case", [SPOT], ids=str)
def test_a_recommendation_for_spot_vms_is_an_event_like_others(case: Case, outcome: Outcome) -> None:
    (event,) = outcome.result["events"]
    assert (event["event_type"], event["event_status"]) == ("SpotRebalanceRecommendation", "Scheduled")


@pytest.mark.parametrize("case", [SPOT_UNSEEN], ids=str)
def test_an_older_version_does_not_have_it(case: Case, outcome: Outcome) -> None:
    assert outcome.result["events"] == []


# --- odd, but kept ---

MOMENT = "2033-09-19T18:29:47Z"
ABSENT = {"__absent__": True}
ODDITIES: dict[str, tuple[Json, Json, str | None]] = {
    # name: (what the document says, what the event then has, what the warning says)
    "type": ({"EventType": "Levitate"}, {"event_type": "Levitate"}, "unknown type 'Levitate'"),
    "type_absent": ({"EventType": ABSENT}, {"event_type": "Unknown"}, "unknown type"),
    "status": ({"EventStatus": "Paused"}, {"event_status": "Paused", "seconds_left": None}, "unknown status 'Paused'"),
    "rfc1123": ({"NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT"}, {"not_before": MOMENT}, None),
    "weekday": ({"NotBefore": "Fri, 19 Sep 2033 18:29:47 GMT"}, {"not_before": MOMENT}, None),
    "iso": ({"NotBefore": "2033-09-19T18:29:47Z"}, {"not_before": MOMENT}, None),
    "iso_offset": ({"NotBefore": "2033-09-19T20:29:47.1234567+02:00"}, {"not_before": MOMENT}, None),
    "garbage": ({"NotBefore": "soon"}, {"not_before": None, "seconds_left": None}, "not a date: 'soon'"),
    "blank": ({"NotBefore": ""}, {"not_before": None, "seconds_left": None}, "Scheduled without a NotBefore"),
    "absent": ({"NotBefore": ABSENT}, {"not_before": None, "seconds_left": None}, "Scheduled without a NotBefore"),
    "started": ({"EventStatus": "Started", "NotBefore": ""}, {"not_before": None, "seconds_left": None}, None),
    "nobody": ({"Resources": []}, {"resources": [], "leader": None, "affects_me": False}, "names no resources"),
    "duration_unknown": ({"DurationInSeconds": -1}, {"duration_seconds": None}, None),
    "duration_none": ({"DurationInSeconds": 0}, {"duration_seconds": 0}, None),
    "duration_text": ({"DurationInSeconds": "long"}, {"duration_seconds": None}, "not a number: 'long'"),
    "resource_type": ({"ResourceType": ABSENT}, {"resource_type": None}, None),
    "duplicate": ({"EventId": "ODD-4"}, {"event_id": "ODD-4"}, "'ODD-4' is in the document more than once"),
}
ODD = Case(
    "odd",
    events=[{"raw": raw} for raw, _fields, _warning in ODDITIES.values()],
    warns=[warning for _raw, _fields, warning in ODDITIES.values() if warning],
)


@pytest.mark.parametrize("oddity", ODDITIES)
@pytest.mark.parametrize("case", [ODD], ids=str)
def test_an_odd_event_is_kept_and_warned_about(case: Case, outcome: Outcome, oddity: str) -> None:
    number = list(ODDITIES).index(oddity)
    _raw, fields, warning = ODDITIES[oddity]
    assert len(outcome.result["events"]) == len(ODDITIES)
    event = outcome.result["events"][number]
    assert set(event) == FIELDS
    assert {name: event[name] for name in fields} == fields
    about = [text for text in outcome.result["warnings"] if repr(event["event_id"]) in text and "than once" not in text]
    if oddity == "duplicate":
        assert any(warning in text for text in outcome.result["warnings"] if warning)
    else:
        assert [warning in text for text in about if warning] == [True] * bool(warning)


BOM = Case("bom", events=[{}], faults=[{"kind": "bom"}], polls=1)
NO_INCARNATION = Case(
    "no_incarnation",
    faults=[{"kind": "document", "document": {"Events": []}}],
    warns=["no DocumentIncarnation"],
    result={"document_incarnation": None, "events": []},
)
CHUNKED = Case(
    "chunked",
    {"vm_name": "me"},
    raw=Raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'9;x=y\r\n{"Events"\r\n22\r\n: [], "DocumentIncarnation": "07"}\r\n0\r\n\r\n'
    ),
    result={"document_incarnation": 7, "events": []},
)


@pytest.mark.parametrize("case", [BOM, NO_INCARNATION, CHUNKED], ids=str)
def test_an_odd_document_is_read(case: Case, outcome: Outcome) -> None:
    assert len(outcome.result["events"]) == len(case.events)


# --- text from outside ---

HOSTILE_TEXT = (
    "{{ 6 * 7 }} {% raw %}x {{ lookup('pipe', 'touch HOSTILE') }} $(touch HOSTILE) `touch HOSTILE` "
    "\u001b[31mred\u001b[0m \u0007\u0000 line\nfeed\r\ttab 'quote\" Grüße 維護 \u202e !unsafe"
)
HOSTILE_NAMES = ["{{ inventory_hostname }}", "$(id)", "naïve\nname"]
HOSTILE = Case(
    "hostile",
    group="hostile",
    events=[{"Description": HOSTILE_TEXT, "Resources": HOSTILE_NAMES, "foreign": True}],
)


@pytest.mark.quick
@pytest.mark.parametrize("case", [HOSTILE], ids=str)
@pytest.mark.parametrize("task", ["Info", "Fact", "Debug", "Template", "Names"])
def test_text_from_outside_is_never_evaluated(stage: Stage, case: Case, outcome: Outcome, task: str) -> None:
    result = stage.outcome(case, task).result
    found = {
        "Info": lambda: result["events"][0]["description"],
        "Fact": lambda: result["ansible_facts"]["text"],
        "Debug": lambda: result["msg"],
        "Template": lambda: result["msg"].rstrip("\n"),
        "Names": lambda: result["msg"].split("|"),
    }[task]()
    assert found == (HOSTILE_NAMES if task == "Names" else HOSTILE_TEXT)
    assert outcome.result["events"][0]["affects_me"] is False


def test_nothing_steers_the_terminal(stage: Stage) -> None:
    for case in (HOSTILE, ODD):
        assert not UNPRINTABLE.search(stage.play_of(case).output)


# --- a service that stumbles ---


def stumbling(name: str, *faults: Json, polls: int = 2) -> Case:
    events = [{"path": "scheduledevents", "count": 1, **fault} for fault in faults]
    return Case(name, {"retries": 3}, events=[{}], faults=events, polls=polls)


RECOVERY_CASES = [
    stumbling("recovers_503_twice", {"kind": "503", "count": 2}, polls=3),
    stumbling("recovers_410", {"kind": "410"}),
    stumbling("recovers_429", {"kind": "429", "retry_after": 2}),
    stumbling("recovers_empty", {"kind": "empty"}),
    stumbling("recovers_reset", {"kind": "reset"}),
    stumbling("recovers_html_then_shape", {"kind": "html"}, {"kind": "document", "document": []}, polls=3),
    Case("recovers_name", {"retries": 1}, events=[{}], faults=[{"kind": "503", "path": "instance", "count": 1}]),
]


@pytest.mark.parametrize("case", RECOVERY_CASES, ids=str)
def test_a_passing_failure_is_asked_again(case: Case, outcome: Outcome) -> None:
    assert ids(outcome) == [case.event_id()]
    if case.name == "recovers_429":
        first, second = outcome.reads
        assert second["time"] - first["time"] >= 2


# --- who and where ---

CLASSIC_FAULT = {"kind": "404", "path": "instance"}
CLASSIC = Case("classic", events=[{}], faults=[CLASSIC_FAULT], warns=["Set vm_name"], result={"vm_name": None})
NAMED = Case("named", {"vm_name": "named"}, events=[{}], faults=[CLASSIC_FAULT], result={"vm_name": "named"})
NAMELESS = Case(
    "nameless",
    events=[{}],
    faults=[{"kind": "document", "path": "instance", "document": {"compute": {}}}],
    warns=["Set vm_name"],
    result={"vm_name": None},
)
DEAD = "http://127.0.0.1:1"
PROXIES = {name: DEAD for word in ("http_proxy", "all_proxy", "https_proxy") for name in (word, word.upper())}
PROXIED = Case("proxied", events=[{}], variables={"variables": {**PROXIES, "no_proxy": "", "NO_PROXY": ""}})


@pytest.mark.parametrize("case", [CLASSIC, NAMELESS], ids=str)
def test_a_vm_without_a_name_does_not_know_what_affects_it(case: Case, outcome: Outcome) -> None:
    assert [event["affects_me"] for event in outcome.result["events"]] == [None]


@pytest.mark.parametrize("case", [NAMED], ids=str)
def test_a_given_name_is_not_asked_for(case: Case, outcome: Outcome) -> None:
    assert [event["affects_me"] for event in outcome.result["events"]] == [True]
    assert not [line for line in outcome.requests if line["path"].startswith(INSTANCE_PATH)]


@pytest.mark.parametrize("case", [PROXIED], ids=str)
def test_a_proxy_in_the_environment_is_ignored(case: Case, outcome: Outcome) -> None:
    assert ids(outcome) == [case.event_id()]


MIX: list[Json] = [
    {"EventType": "Freeze", "EventSource": "Platform", "Resources": ["neighbour"]},
    {"EventType": "Reboot", "EventSource": "User", "EventStatus": "Started"},
    {"EventType": "Redeploy", "EventSource": "Platform", "EventStatus": "Scheduled"},
]


def filtered(
    name: str, matches: t.Sequence[int], warns: t.Sequence[str] = (), **options: t.Any
) -> tuple[Case, t.Sequence[int]]:
    events = [
        {**event, "Resources": [f"{name}_{who}" for who in event.get("Resources", [])] or [name]} for event in MIX
    ]
    return Case(name, options, events=events, neighbours=[f"{name}_neighbour"], warns=warns), matches


FILTERED = [
    filtered("filter_none", [1, 2, 3]),
    filtered("filter_ids", [1, 3], event_ids=["filter_ids-3", "FILTER_IDS-1", "OTHER"]),
    filtered("filter_types", [1, 2], event_types=["reboot", "Freeze"], event_statuses=["Started", "Scheduled"]),
    filtered("filter_mine_from_platform", [3], only_mine=True, event_sources=["Platform"]),
    filtered(
        "filter_misspelt",
        [],
        [
            "event_types has 'Rebot', which is not known. Known are Freeze, ",
            "event_sources has 'Me', which is not known.",
        ],
        event_types=["Rebot", "SpotRebalanceRecommendation"],
        event_sources=["Me"],
    ),
]


@pytest.mark.parametrize(("case", "matches"), FILTERED, ids=[case.name for case, _matches in FILTERED])
def test_only_events_that_every_filter_lets_through(case: Case, outcome: Outcome, matches: t.Sequence[int]) -> None:
    assert ids(outcome) == [case.event_id(number) for number in matches]


SKEWED_DOCUMENT = (
    b'{"DocumentIncarnation": 1, "Events": [{"EventId": "A", "EventType": "Freeze", "Resources": ["me"], '
    b'"EventStatus": "Scheduled", "NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT"}]}'
)
SKEWED = Case(
    "other_clock",
    {"vm_name": "me"},
    raw=Raw(
        b"HTTP/1.1 200 OK\r\nDate: Mon, 19 Sep 2033 18:14:47 GMT\r\nContent-Length: %d\r\n\r\n%s"
        % (len(SKEWED_DOCUMENT), SKEWED_DOCUMENT)
    ),
)


@pytest.mark.parametrize("case", [SKEWED], ids=str)
def test_the_time_left_is_by_the_clock_of_the_service(case: Case, outcome: Outcome) -> None:
    assert [event["seconds_left"] for event in outcome.result["events"]] == [900]


# --- defaults for the whole group ---

DEFAULTS = Case(
    "defaults_of_group",
    {"event_ids": ["DEFAULTS_OF_GROUP-1"]},
    group="defaults",
    events=[{"Resources": ["from-the-group"], "foreign": True}],
    result={"vm_name": "from-the-group"},
)


@pytest.mark.parametrize("case", [DEFAULTS], ids=str)
def test_the_action_group_takes_defaults(stage: Stage, case: Case, outcome: Outcome) -> None:
    assert stage.outcome(case, "Approve").result["approved"] == [case.event_id()]
    assert [event["affects_me"] for event in stage.outcome(case, "Wait").result["events"]] == [True]
    assert not [line for line in outcome.requests if line["path"].startswith(INSTANCE_PATH)]


def test_every_request_says_what_it_is_and_nothing_else_is_asked(stage: Stage) -> None:
    requests = stage.all_requests()
    assert requests
    for line in requests:
        headers = {name.lower(): value for name, value in line["headers"].items()}
        assert headers["metadata"] == "true"
        assert headers["user-agent"].startswith("graceful.azure/")
        assert "x-forwarded-for" not in headers
        assert (line["method"], line["path"]) in (
            ("GET", "/metadata/scheduledevents"),
            ("POST", "/metadata/scheduledevents"),
            ("GET", "/metadata/instance"),
        )
        assert list(line["query"]) == ["api-version"]
