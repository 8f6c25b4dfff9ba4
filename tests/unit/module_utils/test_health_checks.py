# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _health_checks as health
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Peer,
    Programs,
    no_programs,
    validated,
)

Json = dict[str, t.Any]
UP = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
DOWN = b"HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n"


def item(**given: t.Any) -> Json:
    """As it comes to the host: without the secrets that were not given."""
    options, error = validated(health.OPTIONS, health.RULES, given)
    assert not error
    assert not health.mistake(options)
    secrets = [name for name, spec in health.OPTIONS.items() if spec.get("no_log")]
    return {name: value for name, value in options.items() if name not in secrets or value is not None}


class Host:
    def __init__(self, answer: t.Callable[[list[str]], Ran] = no_programs) -> None:
        self.clock = JumpingClock()
        self.run = Programs(answer)
        self.progress: list[str] = []

    def check(self, *items: Json, **more: float) -> None:
        health.check(items, self.clock, self.run, self.progress.append, **more)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def test_all_checks_together_take_no_longer_than_they_may() -> None:
    host = Host(lambda argv: Ran(1, "", ""))
    with pytest.raises(Late, match=r"After 45 s still"):
        host.check(item(argv=["is-well"]), item(argv=["is-well"]), seconds=45)
    assert host.clock.now == 1045
    host = Host(lambda argv: Ran(0, "", ""))
    host.check(item(argv=["is-well"]), seconds=-3)


def test_a_host_that_is_well_passes_at_once() -> None:
    host = Host(lambda argv: Ran(0, "", ""))
    with Peer(UP) as server:
        host.check(item(port=server.port), item(url=server.url), item(argv=["is-well", "--now"]))
    assert host.clock.now == 1000
    assert host.run.ran == [["is-well", "--now"]]
    host.check()


def test_what_becomes_well_is_waited_for_and_asked_every_two_seconds() -> None:
    answers = [DOWN, DOWN, UP]
    with Peer(lambda heard: answers.pop(0)) as server:
        host = Host()
        host.check(item(url=f"{server.url}/health"))
    assert host.clock.pauses == [2, 2]
    assert host.progress == [f"{server.url}/health answers 503"] * 2


def test_a_port_that_takes_no_connection_is_named() -> None:
    port, host = closed_port(), Host()
    with pytest.raises(Late, match=rf"The health check of port {port} did not pass. After 120 s still: .*refused"):
        host.check(item(port=port))
    assert host.clock.now == 1120


def test_the_first_item_that_is_not_well_is_the_one_that_is_said() -> None:
    host = Host(lambda argv: Ran(3, "", f"{argv[0]} is ill\x07\n"))
    with (
        Peer(UP) as server,
        pytest.raises(EventsError, match=r"of second -x did not pass\. .*ended with 3: second is ill\?"),
    ):
        host.check(item(port=server.port, timeout=5), item(argv=["second", "-x"], timeout=7), item(argv=["third"]))
    assert host.clock.now == 1007


def test_a_program_that_cannot_be_run_yet_is_tried_again() -> None:
    codes = [None, 0]

    def answer(argv: list[str]) -> Ran:
        code = codes.pop(0)
        if code is None:
            raise EventsError("check cannot be run: there is no such program on this host.")
        return Ran(code, "", "")

    Host(answer).check(item(argv=["check"]))
    assert codes == []


@pytest.mark.parametrize(
    "answer", [DOWN, b"HTTP/1.1 204 None\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", b"x"]
)
def test_only_200_is_well(answer: bytes) -> None:
    with Peer(answer) as server, pytest.raises(Late):
        Host().check(item(url=server.url, timeout=3))


def test_secrets_are_sent_and_stay_out_of_messages() -> None:
    given = {"headers": {"X-Token": "hunter2"}, "username": "me", "password": "hunter3", "timeout": 3}
    with Peer(DOWN) as server, pytest.raises(Late) as caught:
        Host().check(item(url=f"{server.url}/health?key=hunter4", **given))
    assert "hunter" not in caught.value.message
    assert f"The health check of {server.url}/health?… did not pass" in caught.value.message
    assert b"X-Token: hunter2" in server.heard[0]
    assert b"Authorization: Basic bWU6aHVudGVyMw==" in server.heard[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"port": "80", "timeout": "5"}, ""),
        ({"url": "https://h/", "headers": {"X": "y"}, "username": "me", "password": "x"}, ""),
        ({"argv": ["true"]}, ""),
        ({}, "one of the following is required: port, url, argv"),
        ({"port": 80, "url": "http://h/"}, "mutually exclusive: port|url|argv"),
        ({"port": 0}, "port has to be a port number"),
        ({"url": "file:///etc/passwd"}, "url has to be a URL of http or https"),
        ({"url": "http://me:hunter2@h/"}, "url has a user name in it"),
        ({"argv": []}, "argv has to be a list"),
        ({"argv": ["true"], "timeout": 0}, "timeout has to be more than 0"),
        ({"argv": ["true"], "headers": {"X": "y"}}, "missing parameter(s) required by 'headers': url"),
        ({"url": "http://h/", "password": "hunter2"}, "required together: username, password"),
        ({"url": "http://h/", "headers": {"X": "hunter2\n"}}, "headers: the value of X"),
    ],
)
def test_exactly_one_thing_to_look_at_is_accepted(given: Json, words: str) -> None:
    options, error = validated(health.OPTIONS, health.RULES, given)
    said = error or health.mistake(options)
    assert bool(said) == bool(words)
    assert words in said
    assert "hunter" not in said
