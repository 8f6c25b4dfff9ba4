# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checkpoints.redis import Item
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Programs,
    mistake,
    options_of,
    tools,
)

SECONDS_OF_REDIS = 1_700_000_000


class Redis:
    """A Redis whose saves take some seconds, by its own clock."""

    def __init__(self, seconds: float = 0, status: str = "ok", busy_for: float = 0, rewrites_for: float = 0) -> None:
        self.clock = JumpingClock()
        self.programs = Programs(self.answer)
        self.seconds = seconds
        self.status = status
        self.before = "ok"
        self.busy_until = 1000 + busy_for
        self.rewrites_until = 1000 + rewrites_for
        self.ends: float | None = None
        self.instead: dict[str, Ran] = {}
        self.last_save = SECONDS_OF_REDIS - 60

    def answer(self, argv: list[str]) -> Ran:
        words = " ".join(argv[1:])
        if words in self.instead:
            return self.instead[words]
        if words == "TIME":
            return Ran(0, f"{self.now}\n123456\n", "")
        if words == "BGSAVE SCHEDULE":
            return Ran(0, self.begin() + "\n", "")
        assert words == "INFO persistence"
        return Ran(0, self.info(), "")

    @property
    def now(self) -> int:
        return int(SECONDS_OF_REDIS + self.clock.now - 1000)

    def begin(self) -> str:
        if self.clock.now < self.busy_until:
            return "ERR Background save already in progress"
        self.ends = max(self.clock.now, self.rewrites_until) + self.seconds
        return "Background saving scheduled" if self.clock.now < self.rewrites_until else "Background saving started"

    def info(self) -> str:
        ended = self.ends is not None and self.clock.now >= self.ends
        is_rewriting = self.clock.now < self.rewrites_until
        saved = SECONDS_OF_REDIS + (self.ends or 0) - 1000 if ended and self.status == "ok" else self.last_save
        fields = {
            "rdb_changes_since_last_save": 0,
            "rdb_bgsave_in_progress": int(not ended and not is_rewriting),
            "rdb_last_save_time": int(saved),
            "rdb_last_bgsave_status": self.status if ended else self.before,
            "aof_rewrite_in_progress": int(is_rewriting),
        }
        return "# Persistence\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields.items())

    def item(self, seconds: float = 60, **given: t.Any) -> Item:
        return Item(options_of(Item, **given), tools(seconds, self.clock, self.programs))


def test_a_save_of_the_same_second_is_not_taken_for_ours() -> None:
    redis = Redis(seconds=1, rewrites_for=5)
    # As after the start of Redis, which counts as a save.
    redis.last_save = SECONDS_OF_REDIS
    assert redis.item().do() == ("Redis has saved", {})
    assert redis.clock.now >= 1006


def test_redis_is_waited_for_until_it_has_saved() -> None:
    redis = Redis(seconds=3)
    work = redis.item(become_user="redis")
    assert work.do() == ("Redis has saved", {})
    assert [argv[1:] for argv in redis.programs.ran] == [
        ["INFO", "persistence"],
        ["TIME"],
        ["TIME"],
        ["BGSAVE", "SCHEDULE"],
        *[["INFO", "persistence"]] * 4,
    ]
    assert {options["user"] for options in redis.programs.with_options} == {"redis"}
    assert work.undo(StepRecord({}, {}, True)) == "there is nothing to put back"


def test_how_the_client_is_called_is_the_users_choice() -> None:
    redis = Redis()
    redis.programs = Programs(lambda argv: redis.answer(["redis-cli", *argv[3:]]))
    redis.item(argv=["/opt/redis-cli", "-p", "6380"]).do()
    assert {tuple(argv[:3]) for argv in redis.programs.ran} == {("/opt/redis-cli", "-p", "6380")}


@pytest.mark.parametrize("before", ["ok", "err"])
def test_a_save_that_waits_behind_a_rewrite_is_waited_for(before: str) -> None:
    redis = Redis(seconds=2, rewrites_for=5)
    redis.before = before
    redis.item().do()
    assert redis.clock.now == 1007


def test_a_save_that_was_under_way_does_not_count() -> None:
    redis = Redis(seconds=2, busy_for=4)
    redis.item().do()
    assert redis.clock.now == 1006


def test_a_save_that_fails_is_said() -> None:
    with pytest.raises(EventsError, match=r"Redis could not save. Its log says why."):
        Redis(seconds=1, status="err").item().do()


@pytest.mark.parametrize(
    ("redis", "words"),
    [
        (Redis(seconds=600), "After 10 s still: Redis has not ended its save"),
        (Redis(rewrites_for=600), "After 10 s still: Redis has not begun its save"),
        (Redis(busy_for=600), "After 10 s still: another save is under way in Redis"),
    ],
)
def test_a_save_that_is_late_is_said(redis: Redis, words: str) -> None:
    with pytest.raises(Late, match=words):
        redis.item(seconds=10).do()
    assert redis.clock.now == 1010


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("TIME", Ran(0, "NOAUTH Authentication required.\n", ""), "does not answer TIME: NOAUTH Authentication"),
        ("TIME", Ran(1, "", "Could not connect: Connection refused\n"), "does not answer TIME: .*Connection refused"),
        ("TIME", Ran(0, "", ""), "does not answer TIME: no output"),
        ("BGSAVE SCHEDULE", Ran(0, "NOPERM no permissions\n", ""), "did not begin to save: NOPERM no permissions"),
        ("BGSAVE SCHEDULE", Ran(1, "", "Error: Server closed the connection"), "did not begin to save: Error: Server"),
    ],
)
def test_what_redis_answers_instead_is_said(question: str, answer: Ran, words: str) -> None:
    redis = Redis()
    redis.instead[question] = answer
    with pytest.raises(EventsError, match=words):
        redis.item().do()


def test_a_redis_that_stops_answering_is_asked_until_the_time_is_over() -> None:
    redis = Redis()
    redis.instead["INFO persistence"] = Ran(1, "", "Could not connect")
    with pytest.raises(Late):
        redis.item(seconds=5).do()
    asked = [argv for argv in redis.programs.ran if argv[1] == "INFO"]
    assert len(asked) == 7


def test_a_wrong_option_is_said() -> None:
    assert mistake(Item, {}) == ""
    assert re.search("argv has to be a list", mistake(Item, {"argv": [""]}))
