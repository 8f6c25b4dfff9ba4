# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kind command with a real Redis: it takes no more writes while the host is drained."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.services.conftest import Redis
from ansible_collections.graceful.azure.tests.services.kinds import drain_and_undo, step


def options(redis: Redis) -> dict[str, t.Any]:
    needed = [*redis.client, "CONFIG", "SET", "min-replicas-to-write"]
    # It ends with 0 if the write is refused.
    refused = ["/bin/sh", "-c", '! "$@" > /dev/null', "probe", *redis.client, "-e", "SET", "probe", "1"]
    libraries = {"LD_LIBRARY_PATH": redis.packages.environment["LD_LIBRARY_PATH"]}
    return {"do": [*needed, "1"], "undo": [*needed, "0"], "probe": refused, "environment": libraries}


def test_redis_refuses_writes_while_it_is_drained(redis: Redis) -> None:
    drained = drain_and_undo("command", **options(redis))
    assert drained.look.before == {"in_service": True}
    assert redis.ask("SET", "again", "1") == "OK"


def test_what_refused_writes_before_is_left_so(redis: Redis) -> None:
    redis.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    look = step("command", **options(redis)).look()
    assert look.done
    assert look.before == {"in_service": False}


def test_a_command_that_redis_refuses_fails(redis: Redis) -> None:
    wrong = {**options(redis), "do": [*redis.client, "-e", "CONFIG", "SET", "no-such-option", "1"]}
    with pytest.raises(EventsError, match="Unknown option"):
        step("command", **wrong).do()


def test_a_drain_that_does_not_take_effect_is_late(redis: Redis) -> None:
    without_effect = {**options(redis), "do": [*redis.client, "PING"]}
    with pytest.raises(Late):
        step("command", seconds=3, **without_effect).do()


def test_an_undo_that_nobody_hears_fails(redis: Redis) -> None:
    redis.process.terminate()
    redis.process.wait(20)
    with pytest.raises(EventsError, match="Connection refused"):
        step("command", **options(redis)).undo(StepRecord({"in_service": True}, {}, lost=False))
