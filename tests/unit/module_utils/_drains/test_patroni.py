# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._drains.patroni import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._peer import Answer
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Peer,
    mistake,
    options_of,
    seconds_at_most,
    tools,
)

NOTED = StepRecord({}, {}, lost=False)


class TwoMembers(Step):
    """Answers for db0, as a member that does not tell its own name; what happens, happens at a time of the clock."""

    def __init__(self, states: dict[str, str], candidate: str | None) -> None:
        self.clock = JumpingClock()
        super().__init__(options_of(Step, url="http://127.0.0.1:1", candidate=candidate), tools(60, self.clock))
        self.holder = "db0"
        self.role = "master"
        self.states = states
        self.later: list[tuple[float, t.Callable[[TwoMembers], None]]] = []
        self.requests: list[t.Any] = []

    def _ask(self, path: str, timeout: float, request: t.Any = None) -> Answer:
        for when, change in self.later:
            if self.clock.monotonic() >= when:
                change(self)
        if path == "/switchover":
            self.requests.append(request)
            self.holder, self.role = "db1", "replica"
            return Answer(200, "Successfully switched over")
        if path == "/leader":
            document: dict[str, t.Any] = {"role": self.role, "state": self.states["db0"], "patroni": {"scope": "test"}}
            return Answer(200 if self.holder == "db0" else 503, json.dumps(document))
        members = [
            {"name": name, "role": "leader" if name == self.holder else "replica", "state": state}
            for name, state in self.states.items()
        ]
        return Answer(200, json.dumps({"members": members}))

    def at(self, seconds: float, change: t.Callable[[TwoMembers], None]) -> None:
        self.later.append((self.clock.monotonic() + seconds, change))


def made(candidate: str | None = None, **states: str) -> TwoMembers:
    return TwoMembers(states, candidate)


def test_a_leader_hands_over() -> None:
    api = made("db1", db0="running", db1="streaming")
    assert api.do().message == "db0 is replica (running), db1 leads"
    assert api.requests == [{"leader": "db0", "candidate": "db1"}]


def test_who_holds_the_lock_leads_though_not_promoted_yet() -> None:
    api = made(db0="running", db1="streaming")
    api.role = "replica"
    assert api.look().message == "db0 is leader (running)"
    api.do()
    assert api.requests == [{"leader": "db0"}]


def test_a_member_that_is_about_to_be_fit_is_waited_for() -> None:
    api = made(db0="running", db1="stopped")
    api.at(7, lambda api: api.states.update(db1="streaming"))
    api.do()
    assert api.clock.monotonic() == 1007
    assert len(api.requests) == 1


def test_nothing_is_asked_for_when_the_leadership_leaves_by_itself() -> None:
    api = made(db0="running", db1="stopped")

    def taken_over(api: TwoMembers) -> None:
        api.holder, api.role, api.states["db1"] = "db1", "replica", "running"

    api.at(5, taken_over)
    assert api.do().message.endswith("db1 leads")
    assert not api.requests


def test_a_leader_that_nobody_can_follow_is_said_when_the_time_is_over() -> None:
    api = made(db0="running", db1="stopped")
    with pytest.raises(Late, match="db0 leads and no other member is fit to take over: db1 is stopped"):
        api.do()
    assert not api.requests


def test_a_leader_alone_is_said_at_once() -> None:
    api = made(db0="running")
    with pytest.raises(EventsError, match="there is no other member"):
        api.do()
    assert api.clock.monotonic() == 1000


def test_a_member_is_back_when_it_is_healthy_and_somebody_leads() -> None:
    api = made(db0="starting", db1="running")
    api.holder, api.role = "nobody", "replica"
    api.at(5, lambda api: api.states.update(db0="streaming"))
    api.at(9, lambda api: setattr(api, "holder", "db1"))
    assert api.undo(NOTED) == "this member is replica (streaming)"
    assert api.clock.monotonic() == 1009


class Rest:
    """A REST API over HTTP that answers with documents of the test's."""

    def __init__(self, documents: dict[str, t.Any], statuses: dict[str, int] | None = None) -> None:
        self.documents = documents
        self.statuses = statuses or {}

    def __call__(self, request: bytes) -> bytes:
        path = request.split()[1].decode()
        document = self.documents.get(path, {})
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        status = self.statuses.get(path, 200)
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


MEMBERS = {
    "members": [
        {"name": "db0", "role": "leader", "state": "running"},
        {"name": "db1", "role": "replica", "state": "streaming"},
    ]
}
OWN = {"role": "primary", "state": "running", "patroni": {"name": "db0", "scope": "test"}}


def step(server: Peer, seconds: float = 5, clock: Clock | None = None, **given: t.Any) -> Step:
    return Step(options_of(Step, url=server.url, **given), tools(seconds, clock or Clock()))


def test_the_step_tells_how_the_member_is() -> None:
    with Peer(Rest({"/leader": OWN, "/cluster": MEMBERS})) as server:
        before = {"role": "leader", "state": "running"}
        assert step(server).look() == (False, "db0 is leader (running)", before)
    followed = {"members": [{**MEMBERS["members"][0], "name": "db1"}, {**MEMBERS["members"][1], "name": "db0"}]}
    own = {**OWN, "role": "replica", "state": "streaming"}
    with Peer(Rest({"/leader": own, "/cluster": followed}, {"/leader": 503})) as server:
        assert step(server).look().done
        assert step(server).do().message == "db0 is replica (streaming), db1 leads"
        assert step(server).undo(NOTED) == "db0 is replica (streaming)"


def test_a_refused_switchover_is_said_and_the_password_only_sent_with_it() -> None:
    documents = {"/leader": OWN, "/cluster": MEMBERS, "/switchover": b"no: \x1b[1m{{ bad }} \xff" + b"x" * 1000}
    with Peer(Rest(documents, {"/switchover": 412})) as server:
        with pytest.raises(EventsError, match=r"refuses the switchover \(412\): no: \?\[1m\{ \{ bad \}\}") as caught:
            step(server, username="me", password="hunter2").do()
        heard = server.heard
    assert len(caught.value.message) < 400
    assert "hunter2" not in caught.value.message
    assert [b"Authorization: Basic" in each for each in heard] == [b"/switchover" in each for each in heard]
    assert b'{"leader": "db0"}' in heard[-1]


NONSENSE: dict[str, tuple[t.Any, t.Any]] = {
    "no document": (b"<html>", MEMBERS),
    "a list": ([1], MEMBERS),
    "nothing": (b"", MEMBERS),
    "too deep": (b"[" * 200_000, MEMBERS),
    "members are a text": (OWN, {"members": "db0"}),
    "members are texts": (OWN, {"members": ["db0", "db1"]}),
    "members are a dictionary": (OWN, {"members": {"db0": {}}}),
    "members are null": (OWN, {"members": None}),
}


@pytest.mark.parametrize("documents", NONSENSE.values(), ids=NONSENSE)
def test_a_member_that_answers_nonsense_is_said(documents: tuple[t.Any, t.Any]) -> None:
    rest = Rest({"/leader": documents[0], "/cluster": documents[1]})
    words = r"Patroni at http://127\.0\.0\.1:\d+/\w+ answers"
    with Peer(rest) as server, pytest.raises(EventsError, match=words):
        step(server).look()


@pytest.mark.parametrize(
    ("own", "members"),
    [
        ({**OWN, "patroni": "db0"}, MEMBERS),
        ({**OWN, "patroni": {"name": ["db0"]}}, MEMBERS),
        ({"role": 5, "state": {"a": 1}}, {"members": [{}, {"name": 1, "role": None, "state": []}]}),
        ({**OWN, "state": "\ud800\x07 " * 200}, {"members": [{"name": "\ud800", "role": "{{ x }}", "state": "\n"}]}),
    ],
)
def test_a_member_of_the_wrong_shape_can_only_be_read(own: t.Any, members: t.Any) -> None:
    with Peer(Rest({"/leader": own, "/cluster": members})) as server:
        look = step(server).look()
        with pytest.raises(EventsError) as caught:
            step(server, clock=JumpingClock()).do()
    for message in (look.message, caught.value.message, *look.before.values()):
        assert message.isprintable()
        assert len(message) < 800


def test_a_member_that_answers_byte_by_byte_cannot_exceed_the_deadline() -> None:
    raw, words = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1000, "does not answer: no complete answer within"
    with Peer(raw, pause=0.02) as slow, seconds_at_most(3), pytest.raises(EventsError, match=words):
        step(slow, seconds=0.3).look()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"url": "https://db:8008", "validate_certs": False, "candidate": "db2", "ca_file": "/etc/ca.pem"}, ""),
        ({"username": "me", "password": "hunter2"}, ""),
        ({"username": "me"}, "required together"),
        ({"url": "db:8008"}, "url has to be a URL"),
        ({"url": "file:///etc/passwd"}, "url has to be a URL"),
        ({"candidate": ""}, "candidate has to be a string"),
    ],
)
def test_only_a_rest_api_is_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)
