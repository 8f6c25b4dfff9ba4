# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.plugins.module_utils._patroni import Answer, Api, Cluster
from ansible_collections.graceful.azure.tests.unit.plugins.scripted import JumpingClock


class TwoMembers(Api):
    """Answers for db0, as a member that does not tell its own name; what happens, happens at a time of the clock."""

    def __init__(self, clock: JumpingClock, states: dict[str, str]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.clock = clock
        self.holder = "db0"
        self.role = "master"
        self.states = states
        self.later: list[tuple[float, t.Callable[[TwoMembers], None]]] = []
        self.wishes: list[t.Any] = []

    def ask(self, path: str, timeout: float, body: t.Mapping[str, t.Any] | None = None) -> Answer:
        for when, change in self.later:
            if self.clock.monotonic() >= when:
                change(self)
        if path == "/switchover":
            self.wishes.append(body)
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


def made(**states: str) -> tuple[TwoMembers, Cluster]:
    clock = JumpingClock()
    api = TwoMembers(clock, states)
    return api, Cluster(api, Patience(60, clock))


def test_a_leader_hands_over() -> None:
    api, cluster = made(db0="running", db1="streaming")
    assert cluster.give_up_leadership("db1") == "db0 is replica (running), db1 leads"
    assert api.wishes == [{"leader": "db0", "candidate": "db1"}]


def test_who_holds_the_lock_leads_though_not_promoted_yet() -> None:
    api, cluster = made(db0="running", db1="streaming")
    api.role = "replica"
    assert cluster.look()[0].leads
    cluster.give_up_leadership(None)
    assert api.wishes == [{"leader": "db0"}]


def test_a_member_that_is_about_to_be_fit_is_waited_for() -> None:
    api, cluster = made(db0="running", db1="stopped")
    api.at(7, lambda api: api.states.update(db1="streaming"))
    cluster.give_up_leadership(None)
    assert api.clock.monotonic() == 1007
    assert len(api.wishes) == 1


def test_nothing_is_asked_for_when_the_leadership_leaves_by_itself() -> None:
    api, cluster = made(db0="running", db1="stopped")

    def taken_over(api: TwoMembers) -> None:
        api.holder, api.role, api.states["db1"] = "db1", "replica", "running"

    api.at(5, taken_over)
    assert cluster.give_up_leadership(None).endswith("db1 leads")
    assert not api.wishes


def test_a_leader_that_nobody_can_follow_is_said_when_the_time_is_over() -> None:
    api, cluster = made(db0="running", db1="stopped")
    with pytest.raises(Late, match="db0 leads and no other member is fit to take over: db1 is stopped"):
        cluster.give_up_leadership(None)
    assert not api.wishes


def test_a_leader_alone_is_said_at_once() -> None:
    api, cluster = made(db0="running")
    with pytest.raises(EventsError, match="there is no other member"):
        cluster.give_up_leadership(None)
    assert api.clock.monotonic() == 1000
