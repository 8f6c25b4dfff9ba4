# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timezone

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import NoConnection, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Request
from ansible_collections.graceful.azure.plugins.plugin_utils import _polling as polling

Json = dict[str, t.Any]


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self.now, timezone.utc)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("it does not wait itself")


class Service:
    """What answers instead of a metadata service."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.failure: t.Callable[[], Exception] | None = None
        self.status = 200
        self.asked: list[str] = []

    def send(self, request: Request) -> Reply:
        self.asked.append(request.path)
        if self.failure:
            raise self.failure()
        content: Json = {"DocumentIncarnation": 1, "Events": self.events}
        if request.path.endswith("/instance"):
            content = {"compute": {"name": "shop_0"}}
        return Reply(self.status, {}, json.dumps(content).encode())


class World:
    def __init__(self) -> None:
        self.clock, self.service, self.log = Clock(), Service(), list[str]()
        options = polling.read_options({"services": [{"host": "web1", "endpoint": "http://127.0.0.1:1"}]})
        self.polled = polling.Polled(
            options.services[0], options, self.service, self.log.append, t.cast(t.Any, self.clock)
        )

    def look(self, seconds: float = 1.0) -> list[tuple[str, str]]:
        self.clock.now += seconds
        messages, self.pause = self.polled.look()
        self.messages = messages
        return [(one["data"]["change"], one["data"]["event"]["event_id"]) for one in messages]


def event(event_id: str = "E1", **fields: t.Any) -> Json:
    return {"EventId": event_id, "EventType": "Reboot", "EventStatus": "Scheduled", "Resources": ["shop_0"], **fields}


def test_each_change_is_told_once_in_the_words_of_the_watcher() -> None:
    world = World()
    assert world.look() == []
    world.service.events = [event()]
    assert world.look() == [("appeared", "E1")]
    (message,) = world.messages
    assert message["source"] == "/graceful.azure/scheduled_events/web1"
    assert message["type"] == "graceful.azure.scheduled_event.appeared"
    assert (message["data"]["host"], message["data"]["vm_name"]) == ("web1", "shop_0")
    assert message["data"]["event"]["affects_me"] is True
    assert world.look() == []
    world.service.events = [event(EventStatus="Started"), event("E2")]
    assert world.look() == [("started", "E1"), ("appeared", "E2")]
    world.service.events = []
    assert [world.look() for _each in range(3)] == [[], [], [("gone", "E1")]]


def test_the_service_is_asked_once_for_the_name() -> None:
    world = World()
    for _each in range(3):
        world.look()
    assert sum(url.endswith("/instance") for url in world.service.asked) == 1


def test_a_service_that_cannot_be_read_is_said_once_and_asked_again() -> None:
    world = World()
    world.service.events = [event()]
    world.look()
    world.service.failure = lambda: NoConnection("Nothing answers.")
    for _each in range(10):
        assert world.look() == []
        assert world.pause == 1.0
    (said,) = [line for line in world.log if "cannot be read" in line]
    assert said.startswith("web1: the events cannot be read: Nothing answers.")
    world.service.failure = None
    assert world.look() == []
    assert "web1: the events can be read again." in world.log


def test_an_answer_that_stays_the_same_is_asked_for_less_often() -> None:
    world = World()
    world.service.status = 403
    assert world.look() == []
    assert world.pause == 30.0


def test_an_error_of_its_own_does_not_end_it() -> None:
    world = World()
    world.service.failure = lambda: KeyError("surprise")
    assert world.look() == []
    assert "KeyError" in world.log[-1]
    world.service.failure, world.service.events = None, [event()]
    assert world.look() == [("appeared", "E1")]


def test_the_options() -> None:
    options = polling.read_options({"poll_interval": 2, "eda_feedback_queue": object()})
    assert (options.poll_interval, options.api_version) == (2.0, "2020-07-01")
    assert [place.endpoint for place in options.services] == ["auto"]
    (place,) = polling.read_options({"services": [{"host": " web1 ", "vm_name": "shop_0"}]}).services
    assert place == polling.Place("web1", "auto", "shop_0")


WEB = {"host": "web1", "endpoint": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"poll_interval": 0}, "poll_interval is 0"),
        ({"poll_interval": "1"}, "poll_interval is '1'"),
        ({"poll_interval": True}, "poll_interval is 'True'"),
        ({"poll_interval": float("nan")}, "poll_interval is 'nan'"),
        ({"api_version": 5}, "api_version is '5'"),
        ({"services": []}, "services has to be a list"),
        ({"services": {"web1": "x"}}, "services has to be a list"),
        ({"services": ["web1"]}, "services has to be a list"),
        ({"services": [{"endpoint": "auto"}]}, "An entry of services needs texts"),
        ({"services": [{"host": 5}]}, "Wrong: 'host'"),
        ({"services": [{**WEB, "url": "x"}]}, "An entry of services has no option 'url'"),
        ({"services": [WEB, WEB]}, "more than once"),
        ({"services": [{"host": f"web{number}"} for number in range(201)]}, "services has 201 entries"),
        ({"interval": 1}, "graceful.azure.scheduled_events has no option 'interval'"),
    ],
)
def test_a_wrong_option_is_said(options: Json, said: str) -> None:
    with pytest.raises(WrongOption) as caught:
        polling.read_options(options)
    assert said in caught.value.message


def test_a_wrong_endpoint_is_said() -> None:
    options = polling.read_options({"services": [{"host": "web1", "endpoint": "https://x/y"}]})
    with pytest.raises(WrongOption, match="endpoint"):
        polling.Polled(options.services[0], options, Service(), print)
