# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol, and servers that answer nonsense; with the real ones: tests/services."""

from __future__ import annotations

import io
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._drains.redis_sentinel import (
    Place,
    Refusal,
    Step,
    ask,
    decoded,
    encoded,
    role_in,
)
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._peer import Login
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Peer,
    mistake,
    options_of,
    seconds_at_most,
    tools,
)

NOTED = StepRecord({}, {}, lost=False)


@pytest.mark.parametrize(
    ("raw", "reply"),
    [
        (b"+OK\r\n", "OK"),
        (b":42\r\n", 42),
        (b"$5\r\nhello\r\n", "hello"),
        (b"$0\r\n\r\n", ""),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (
            b"*3\r\n$6\r\nmaster\r\n:3129659\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
            ["master", 3129659, [["a", "b", "c"]]],
        ),
        (b"$4\r\n\r\n\r\n\r\n", "\r\n\r\n"),
    ],
)
def test_a_reply_is_understood(raw: bytes, reply: t.Any) -> None:
    assert decoded(io.BytesIO(raw)) == reply


def test_an_error_is_a_refusal() -> None:
    with pytest.raises(Refusal, match="NOGOODSLAVE"):
        decoded(io.BytesIO(b"-NOGOODSLAVE No suitable replica to promote\r\n"))


NO_REPLY = {
    "nothing": b"",
    "cut line": b"+OK",
    "cut text": b"$5\r\nhel",
    "cut list": b"*2\r\n:1\r\n",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n",
    "too large": b"$999999999999\r\n",
    "no number": b"$x\r\n",
    "too deep": b"*1\r\n" * 20,
    "too many digits": b":" + b"9" * 100 + b"\r\n",
}


@pytest.mark.parametrize("raw", NO_REPLY.values(), ids=NO_REPLY)
def test_what_is_no_reply_is_an_error(raw: bytes) -> None:
    with pytest.raises((EOFError, ValueError)):
        decoded(io.BytesIO(raw))


def test_words_travel_with_their_length() -> None:
    assert (
        encoded(["AUTH", "pass word\r\nFLUSHALL é"]) == b"*2\r\n$4\r\nAUTH\r\n$22\r\npass word\r\nFLUSHALL \xc3\xa9\r\n"
    )


@pytest.mark.parametrize(
    ("reply", "role"),
    [
        (["master", 10, []], ("master", "", 10, [])),
        (["master", 10, [["h", "1", "7"], ["h", "2", "10"]]], ("master", "", 10, [7, 10])),
        (["slave", "h", 6379, "connected", 5], ("replica", "connected", 0, ())),
        (["slave", "h", 6379, "sync"], ("replica", "sync", 0, ())),
        (["slave"], ("replica", "", 0, ())),
    ],
)
def test_a_role_is_understood(reply: t.Any, role: t.Any) -> None:
    assert role_in(reply) == role


class Redis(Peer):
    """Redis and Sentinel in one. Answers by the first word or two of the command; the last answer again and again."""

    def __init__(self, **answers: bytes | list[bytes]) -> None:
        self.answers = {name: [each] if isinstance(each, bytes) else list(each) for name, each in answers.items()}
        self.commands: list[str] = []
        super().__init__(self._reply)

    def _reply(self, heard: bytes) -> bytes:
        words = heard.decode("utf-8", "replace").split("\r\n")[2::2]
        name = "_".join(words[:2]).replace("-", "_") if words[0] in ("SENTINEL", "CLIENT", "CONFIG") else words[0]
        self.commands.append(name)
        answers = self.answers.get(name, [b"+OK\r\n"])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def step(self, seconds: float = 5, clock: Clock | None = None, **given: t.Any) -> Step:
        options = {"master_name": "cache", "port": self.port, "sentinels": [{"host": "127.0.0.1", "port": self.port}]}
        return Step(options_of(Step, **{**options, **given}), tools(seconds, clock or Clock()))


MASTER = b"*3\r\n$6\r\nmaster\r\n:5\r\n*1\r\n*3\r\n$1\r\nh\r\n$1\r\n1\r\n$1\r\n5\r\n"
REPLICA = b"*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:5\r\n"
ADDRESS = b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n%d\r\n"


def test_a_master_becomes_a_replica_and_takes_no_writes_on_the_way() -> None:
    roles = [MASTER, MASTER, MASTER, REPLICA]
    with Redis(ROLE=roles, SENTINEL_GET_MASTER_ADDR_BY_NAME=[ADDRESS % 6379, ADDRESS % 6379, ADDRESS % 6380]) as redis:
        assert redis.step().look() == (False, "master", {"role": "master"})
        redis.answers["ROLE"] = roles
        message = redis.step().do().message
        assert message == f"127.0.0.1:{redis.port} is replica, its link to the master is connected"
        assert redis.step().look().done
        assert "is replica" in redis.step().undo(NOTED)
    changes = [name for name in redis.commands if name not in ("ROLE", "SENTINEL_GET_MASTER_ADDR_BY_NAME")]
    expected = "CLIENT_PAUSE SENTINEL_FAILOVER REPLICAOF CLIENT_KILL CONFIG_REWRITE CLIENT_UNPAUSE"
    assert changes == expected.split()


def test_a_replica_is_left_alone() -> None:
    with Redis(ROLE=REPLICA) as redis:
        redis.step().do()
    assert set(redis.commands) == {"ROLE"}


def test_replicas_that_all_lag_behind_are_not_made_the_master() -> None:
    words = "is the master, and all of its replicas lag behind"
    with Redis(ROLE=MASTER.replace(b":5", b":9")) as redis, pytest.raises(EventsError, match=words):
        redis.step(60, JumpingClock()).do()
    assert "SENTINEL_FAILOVER" not in redis.commands
    assert redis.commands[-1] == "CLIENT_UNPAUSE"


def test_a_failover_that_is_under_way_is_as_good() -> None:
    with Redis(
        ROLE=[MASTER, MASTER, MASTER, REPLICA],
        SENTINEL_GET_MASTER_ADDR_BY_NAME=ADDRESS % 6379,
        SENTINEL_FAILOVER=b"-INPROG Failover already in progress\r\n",
    ) as redis:
        assert "is replica" in redis.step().do().message
    assert "REPLICAOF" not in redis.commands


def test_without_a_sentinel_that_does_it_all_complaints_are_said() -> None:
    words = r"No Sentinel fails over cache: 127\.0\.0\.1:\d+ knows no master cache"
    answers = {"ROLE": MASTER, "SENTINEL_GET_MASTER_ADDR_BY_NAME": b"*-1\r\n"}
    with Redis(**answers) as redis, pytest.raises(EventsError, match=words):
        redis.step().do()


@pytest.mark.parametrize("raw", [b"$-1\r\n", b"*0\r\n", b"+OK\r\n", b"*1\r\n$8\r\nsentinel\r\n", b"*1\r\n:5\r\n"])
def test_a_server_that_does_not_tell_its_role_is_said(raw: bytes) -> None:
    with Redis(ROLE=raw) as redis, pytest.raises(EventsError, match="does not answer ROLE as Redis would"):
        redis.step().look()


SHORT = {
    "only its name": b"*1\r\n$6\r\nmaster\r\n",
    "no replicas": b"*2\r\n$6\r\nmaster\r\n:5\r\n",
    "replicas are a number": b"*3\r\n$6\r\nmaster\r\n:5\r\n:1\r\n",
    "a short replica": b"*3\r\n$6\r\nmaster\r\n:5\r\n*1\r\n*1\r\n$1\r\nh\r\n",
    "text for an offset": b"*3\r\n$6\r\nmaster\r\n:5\r\n*1\r\n*3\r\n$1\r\nh\r\n$1\r\n1\r\n$4\r\nmuch\r\n",
    "text for what is written": b"*3\r\n$6\r\nmaster\r\n$4\r\nmuch\r\n*0\r\n",
    "null for what is written": b"*3\r\n$6\r\nmaster\r\n$-1\r\n*0\r\n",
}


@pytest.mark.parametrize("raw", SHORT.values(), ids=SHORT)
def test_a_master_that_tells_too_little_is_said(raw: bytes) -> None:
    with Redis(ROLE=raw) as redis, pytest.raises(EventsError, match="does not answer ROLE as Redis would"):
        redis.step().do()


@pytest.mark.parametrize("raw", [b"*2\r\n$1\r\nh\r\n$4\r\nport\r\n", b"*2\r\n$1\r\nh\r\n$-1\r\n"])
def test_a_sentinel_that_tells_no_port_is_said(raw: bytes) -> None:
    answers = {"ROLE": MASTER, "SENTINEL_GET_MASTER_ADDR_BY_NAME": raw}
    with Redis(**answers) as redis, pytest.raises(EventsError, match="does not name the port of the master"):
        redis.step().do()


@pytest.mark.parametrize("raw", NO_REPLY.values(), ids=NO_REPLY)
def test_what_is_not_redis_is_said(raw: bytes) -> None:
    with Redis(ROLE=raw) as redis, pytest.raises(EventsError, match="does not answer as Redis would") as caught:
        redis.step().look()
    assert caught.value.message.isprintable()


def test_a_server_that_answers_byte_by_byte_cannot_exceed_the_deadline() -> None:
    words = r"no complete answer within 0\.3 s"
    with Peer(b"+" + b"O" * 1000, pause=0.02) as slow, seconds_at_most(3), pytest.raises(EventsError, match=words):
        ask(Place("127.0.0.1", slow.port), Login(), 0.3, "ROLE")


def test_a_server_that_repeats_the_password_does_not_tell_it() -> None:
    echo = b"-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \x1b[1m\r\n"
    with Redis(AUTH=echo) as redis, pytest.raises(EventsError, match="refuses ROLE: ERR unknown command") as caught:
        redis.step(password="hunter2").look()
    assert "hunter2" not in caught.value.message
    assert "\x1b" not in caught.value.message


def test_a_server_that_is_not_there_is_waited_for_when_it_should_be_back() -> None:
    with Redis() as redis:
        pass
    with pytest.raises(Late, match=r"After 9 s still: .* does not answer as Redis would: Connection refused"):
        redis.step(9, JumpingClock()).undo(NOTED)


CACHE: dict[str, t.Any] = {"master_name": "cache"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (CACHE, ""),
        ({**CACHE, "sentinels": [{"host": "s1"}, {"host": "s2", "port": 26380}], "port": "6380"}, ""),
        ({}, "master_name"),
        ({"master_name": " "}, "master_name has to be a string"),
        ({**CACHE, "port": 70000}, "port has to be a port number"),
        ({**CACHE, "sentinels": []}, "sentinels has to be a list of {host, port}"),
        ({**CACHE, "sentinels": ["s1"]}, "sentinels"),
        ({**CACHE, "sentinels": [{"port": 1}]}, "host"),
        ({**CACHE, "sentinels": [{"host": ""}]}, "host of sentinels has to be a string"),
        ({**CACHE, "sentinels": [{"host": "s1", "port": 0}]}, "port of sentinels has to be a port number"),
    ],
)
def test_only_servers_are_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)


def test_without_sentinels_the_one_on_this_host_is_asked() -> None:
    assert options_of(Step, **CACHE)["sentinels"] == [{"host": "127.0.0.1", "port": 26379}]
    assert options_of(Step, **CACHE, sentinels=[{"host": "s1"}])["sentinels"] == [{"host": "s1", "port": 26379}]
