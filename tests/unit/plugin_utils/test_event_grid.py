# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.plugin_utils import _event_grid as grid

Json = dict[str, t.Any]
SUBSCRIPTION = "6f0b3e6e-54f3-4b7a-8d5e-0a5f8f4f2a11"
TOPIC = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.ResourceNotifications"
SECRET = "a-secret-of-the-tests"


def properties(**fields: t.Any) -> Json:
    return {
        "EventId": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
        "EventType": "Reboot",
        "EventStatus": "Scheduled",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0", "web_3"],
        "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
        "Description": "Host maintenance",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **fields,
    }


def in_event_grid_schema(number: int = 1, kind: str = grid.SCHEDULED_EVENT, **fields: t.Any) -> Json:
    data = {"resourceInfo": {"id": "/…", "name": "…", "type": "…", "properties": properties(**fields)}}
    return {"id": str(number), "topic": TOPIC, "subject": "…", "eventType": kind, "dataVersion": "1", "data": data}


def in_cloud_events_schema(number: int = 1, **fields: t.Any) -> Json:
    made = in_event_grid_schema(number, **fields)
    return {
        "specversion": "1.0",
        "id": made["id"],
        "source": TOPIC,
        "type": made["eventType"],
        "subject": "…",
        "data": made["data"],
    }


def post(receiver: grid.Receiver, content: t.Any) -> grid.Answer:
    return receiver.post(json.dumps(content).encode())


def changes(answer: grid.Answer) -> list[str]:
    return [message["data"]["change"] for message in answer.messages]


@pytest.mark.parametrize("make", [in_event_grid_schema, in_cloud_events_schema])
@pytest.mark.parametrize("listed", [True, False])
def test_both_schemas_become_the_message_of_the_watcher(make: t.Callable[..., Json], listed: bool) -> None:
    answer = post(grid.Receiver(), [make()] if listed else make())
    assert answer.status == 200
    (message,) = answer.messages
    assert message["specversion"] == "1.0"
    assert message["type"] == "graceful.azure.scheduled_event.appeared"
    assert message["source"] == "/graceful.azure/event_grid"
    assert message["subject"] == "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
    data = message["data"]
    assert (data["change"], data["host"], data["vm_name"]) == ("appeared", "", None)
    assert data["event"] == {
        **dict.fromkeys(EVENT_FIELDS),
        "event_id": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "resource_type": "VirtualMachine",
        "resources": ["web_0", "web_3"],
        "not_before": "2016-09-19T18:29:47Z",
        "seconds_left": 0,
        "description": "Host maintenance",
        "event_source": "Platform",
        "leader": "web_0",
    }


def test_the_life_of_an_event() -> None:
    receiver = grid.Receiver()
    assert changes(post(receiver, in_event_grid_schema(1))) == ["appeared"]
    assert changes(post(receiver, in_event_grid_schema(2, Resources=["web_0"]))) == ["changed"]
    assert changes(post(receiver, in_event_grid_schema(3, Resources=["web_0"], EventStatus="Started"))) == ["started"]
    over = post(receiver, in_event_grid_schema(4, EventStatus="Completed"))
    assert changes(over) == ["gone"]
    assert over.messages[0]["data"]["outcome"] == "completed"


@pytest.mark.parametrize(
    ("status", "outcome"), [("Completed", "completed"), ("Canceled", "cancelled"), ("cancelled", "cancelled")]
)
def test_what_is_over_is_gone_with_its_outcome(status: str, outcome: str) -> None:
    (message,) = post(grid.Receiver(), in_event_grid_schema(EventStatus=status)).messages
    assert (message["data"]["change"], message["data"]["outcome"]) == ("gone", outcome)


def test_an_event_that_begins_as_started_has_appeared_too() -> None:
    assert changes(post(grid.Receiver(), in_event_grid_schema(EventStatus="Started"))) == ["appeared", "started"]


def test_what_comes_late_does_not_bring_an_event_back() -> None:
    receiver = grid.Receiver()
    post(receiver, in_event_grid_schema(2, EventStatus="Completed"))
    late = post(receiver, in_event_grid_schema(1, EventId="f020ba2e-3bc0-4c40-a10b-86575a9eabd5"))
    assert (late.status, late.messages) == (200, [])


def test_a_delivery_that_comes_again_is_answered_and_told_once() -> None:
    receiver = grid.Receiver()
    first, again = (post(receiver, in_event_grid_schema(1, EventStatus="Started")) for _each in range(2))
    assert (first.status, again.status) == (200, 200)
    assert (changes(first), changes(again)) == (["appeared", "started"], [])
    # Made anew after a restart, the messages have the same ids.
    anew = post(grid.Receiver(), in_event_grid_schema(1, EventStatus="Started"))
    assert [one["id"] for one in anew.messages] == [one["id"] for one in first.messages]
    assert len({one["id"] for one in first.messages}) == 2


def test_it_forgets_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "REMEMBERED", 3)
    receiver = grid.Receiver()
    for number in range(5):
        assert changes(post(receiver, in_event_grid_schema(number, EventId=f"E{number}"))) == ["appeared"]
    assert len(receiver._ids) == len(receiver._events) == 3
    assert changes(post(receiver, in_event_grid_schema(4, EventId="E4"))) == []
    assert changes(post(receiver, in_event_grid_schema(0, EventId="E0"))) == ["appeared"]


VM = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/shop/providers/Microsoft.Compute/virtualMachines/web-1"
SET = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/shop/providers/Microsoft.Compute/virtualMachineScaleSets/web"


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("web_0", "web_0"),
        (VM, "web-1"),
        (VM.replace("virtualMachines", "VIRTUALMACHINES"), "web-1"),
        (f"{SET}/virtualMachines/12", "web_12"),
        (f"{SET}/virtualMachines/web_1a2b3c4d", "web_1a2b3c4d"),
        (SET, "web"),
        ("/", "/"),
    ],
)
def test_a_resource_id_becomes_the_name_that_the_metadata_service_uses(resource: str, name: str) -> None:
    (message,) = post(grid.Receiver(), in_event_grid_schema(Resources=[resource])).messages
    assert message["data"]["event"]["resources"] == [name]


def test_nothing_in_a_message_is_a_template() -> None:
    evil = "{{ lookup('pipe', 'id') }}"
    answer = post(grid.Receiver(), in_event_grid_schema(Description=evil, Resources=[evil], EventType=evil))
    assert "{{" not in json.dumps(answer.messages)


def broken(**fields: t.Any) -> Json:
    return {**in_event_grid_schema(), **fields}


NOT_OURS: list[t.Any] = [
    None,
    5,
    "text",
    [],
    [[]],
    {},
    broken(eventType="Microsoft.Storage.BlobCreated"),
    broken(eventType=["x"]),
    broken(id=None),
    broken(id=5),
    broken(id=""),
    broken(id="x" * 501),
    broken(data=None),
    broken(data={"resourceInfo": []}),
    broken(data={"resourceInfo": {"properties": None}}),
    in_event_grid_schema(EventId=None),
    in_event_grid_schema(EventId=""),
    in_event_grid_schema(EventId=7),
    in_event_grid_schema(Resources="web_0"),
    in_event_grid_schema(Resources=[{"a": 1}]),
    in_event_grid_schema(EventStatus={"a": 1}),
    broken(eventType=grid.VALIDATION),
    broken(eventType=grid.VALIDATION, data={"validationCode": 5}),
    broken(eventType=grid.VALIDATION, data={"validationCode": "x" * 201}),
]


@pytest.mark.parametrize("content", NOT_OURS)
def test_what_is_not_ours_is_refused_with_a_reason(content: t.Any) -> None:
    receiver = grid.Receiver()
    answer = post(receiver, content)
    assert (answer.status, answer.messages) == (400, ())
    assert answer.content["error"].startswith("Not accepted: ")
    assert answer.log
    assert changes(post(receiver, in_event_grid_schema())) == ["appeared"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nonsense"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    assert grid.Receiver().post(body).status == 400


def test_of_a_mixed_delivery_the_rest_is_taken() -> None:
    mixed = [broken(eventType="Other"), in_event_grid_schema(1), in_event_grid_schema(2, EventId="")]
    answer = post(grid.Receiver(), mixed)
    assert (answer.status, changes(answer)) == (200, ["appeared"])
    assert answer.log.startswith("Left out 2 events of a delivery: ")


def test_the_handshake_of_the_event_grid_schema() -> None:
    content = [
        {**broken(eventType=grid.VALIDATION), "data": {"validationCode": "512d38b6", "validationUrl": "https://x"}}
    ]
    answer = post(grid.Receiver(), content)
    assert (answer.status, answer.content, answer.messages) == (200, {"validationResponse": "512d38b6"}, ())
    assert "512d38b6" not in answer.log


@pytest.mark.parametrize(
    ("headers", "status", "answered"),
    [
        (
            {"WebHook-Request-Origin": "eventgrid.azure.net", "WebHook-Request-Rate": "120"},
            200,
            {"WebHook-Allowed-Origin": "eventgrid.azure.net", "WebHook-Allowed-Rate": "120"},
        ),
        ({"WebHook-Request-Origin": "eventgrid.azure.us"}, 200, {"WebHook-Allowed-Origin": "eventgrid.azure.us"}),
        (
            {"WebHook-Request-Origin": "x.example", "WebHook-Request-Rate": "many"},
            200,
            {"WebHook-Allowed-Origin": "x.example"},
        ),
        ({}, 400, {}),
        ({"WebHook-Request-Origin": "a b"}, 400, {}),
        ({"WebHook-Request-Origin": "x\r\ny"}, 400, {}),
    ],
)
def test_the_handshake_of_the_cloud_events_schema(
    headers: dict[str, str], status: int, answered: dict[str, str]
) -> None:
    assert grid.handshake(headers) == (status, answered)


@pytest.mark.parametrize("make", [in_event_grid_schema, in_cloud_events_schema])
def test_only_the_given_subscriptions_are_taken(make: t.Callable[..., Json]) -> None:
    assert post(grid.Receiver([SUBSCRIPTION]), make()).status == 200
    other = grid.Receiver(["11111111-54f3-4b7a-8d5e-0a5f8f4f2a11"])
    assert post(other, make()).status == 400
    validation = {**broken(eventType=grid.VALIDATION), "data": {"validationCode": "512d38b6"}}
    assert post(other, [validation]).status == 400


def test_the_options() -> None:
    options = grid.read_options({"secret": SECRET, "port": "8443", "subscriptions": [f" {SUBSCRIPTION.upper()} "]})
    assert options == grid.Options(SECRET, 8443, subscriptions=(SUBSCRIPTION,))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"secret": None}, "secret has to be"),
        ({"secret": "short"}, "secret has to be"),
        ({"secret": "with/a/slash/in/the/path"}, "secret has to be"),
        ({"secret": 5}, "secret has to be"),
        ({"port": None}, "port is 'None'"),
        ({"port": "many"}, "port is 'many'"),
        ({"port": 70000}, "port is '70000'"),
        ({"host": 5}, "host is '5'"),
        ({"certfile": ""}, "certfile is ''"),
        ({"keyfile": "key.pem"}, "keyfile is given without certfile"),
        ({"subscriptions": SUBSCRIPTION}, "subscriptions has to be a list"),
        ({"subscriptions": [5]}, "subscriptions has to be a list"),
        ({"sceret": "x"}, "graceful.azure.event_grid has no option 'sceret'"),
    ],
)
def test_a_wrong_option_is_said(options: Json, said: str) -> None:
    with pytest.raises(WrongOption) as caught:
        grid.read_options({"secret": SECRET, "port": 8443, **options})
    assert said in caught.value.message
    assert SECRET not in caught.value.message
