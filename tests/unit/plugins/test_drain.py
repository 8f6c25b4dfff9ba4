# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of a drain, on a host that keeps a record and does what the test tells it."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._drain import (
    RECORD,
    Drain,
    OutOfTime,
    Result,
    said,
    seconds_left,
    secrets_of,
)
from ansible_collections.graceful.azure.tests.unit.plugins.scripted import JumpingClock

Json = dict[str, t.Any]
EVENT = {"event_id": "ABC", "event_type": "Reboot"}
RUN = {"directory": "/records", "run_id": "1", "silent_for": 60}
HEALTH: Json = {"name": "balancer", "kind": "health_probe", "url": "http://h/", "marker": "/run/out"}
USERS: Json = {"name": "users", "kind": "connections", "ports": [80]}
OWN: Json = {"name": "queue", "kind": "tasks", "do": "do.yml", "probe": "paused", "undo": "undo.yml"}
CACHE: Json = {"name": "cache", "kind": "redis_sentinel", "master_name": "m", "password": "hunter2"}
PROBE = "graceful.azure.health_probe"
CONNECTIONS = "graceful.azure.established_connections"
SERVICE = "ansible.builtin.service"


class Host:
    """Keeps the record as the real module would, as far as a drain looks at it."""

    def __init__(self, clock: JumpingClock) -> None:
        self._clock = clock
        self.steps: list[Json] = []
        self.marks: list[Json] = []
        self.ran: list[tuple[str, Json, bool]] = []
        self.answers: dict[str, t.Callable[[Json, bool], Result]] = {}
        self.takes = 1.0

    def run(self, module: str, args: Json, seconds: float, check: bool = False) -> Result:
        self.ran.append((module, json.loads(json.dumps(args)), check))
        if module == RECORD and module not in self.answers:
            return self._keep(args, check)
        answer = self.answers.get(module, self._willing)
        took = self.takes
        if took > seconds:
            self._clock.now += seconds
            raise OutOfTime
        self._clock.now += took
        return answer(args, check)

    def _willing(self, args: Json, check: bool) -> Result:
        return {"changed": check, "msg": "proven", "before": {"in_service": True}}

    def _keep(self, args: Json, check: bool) -> Result:
        if args["state"] == "noted" and not check:
            news: Json | None = args.get("step")
            old = next((step for step in self.steps if news and step["name"] == news["name"]), None)
            if old is not None and news is not None:
                old.update(news)
            elif news is not None:
                self.steps.append({"data": {}, **news})
            self.marks += [args["mark"]] if "mark" in args else []
        return {"claimed": True, "record": {"steps": json.loads(json.dumps(self.steps))}}

    @property
    def noted(self) -> dict[str, str]:
        return {step["name"]: step["status"] for step in self.steps}

    def modules(self, check: bool | None = None) -> list[str]:
        return [module for module, _args, checked in self.ran if module != RECORD and check in (None, checked)]


class Course:
    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.host = Host(self.clock)

    def begin(self, *steps: Json, seconds: float = 100, check_mode: bool = False, **more: t.Any) -> Drain:
        drain = Drain(self.host, check_mode=check_mode, clock=self.clock)
        drain.begin(list(steps), EVENT, RUN, seconds, **more)
        return drain

    def drain(self, *steps: Json, **more: t.Any) -> Drain:
        drain = self.begin(*steps, **more)
        drain.take(list(steps))
        return drain


@pytest.fixture
def course() -> Course:
    return Course()


def statuses(drain: Drain) -> dict[str, str]:
    return {step["name"]: step["status"] for step in drain.report["steps"]}


def test_each_step_is_looked_at_noted_done_and_noted(course: Course) -> None:
    drain = course.drain(HEALTH, USERS)
    assert drain.report["ready"]
    assert [(module, check) for module, _args, check in course.host.ran] == [
        (RECORD, False),
        (PROBE, True),
        (RECORD, False),
        (PROBE, False),
        (RECORD, False),
        (CONNECTIONS, True),
        (RECORD, False),
        (CONNECTIONS, False),
        (RECORD, False),
    ]
    assert course.host.noted == {"balancer": "done", "users": "done"}
    assert course.host.steps[0]["data"] == {
        "step": {"timeout": None, "options": {"url": "http://h/", "marker": "/run/out"}},
        "before": {"in_service": True},
    }


def test_it_is_not_ready_before_the_last_step_is_proven(course: Course) -> None:
    drain = course.begin(HEALTH, OWN)
    assert not drain.report["ready"]
    drain.take()
    assert not drain.report["ready"]
    assert drain.state()["next"]["name"] == "queue"
    drain.doing()
    assert not drain.report["ready"]
    assert "has not ended" in drain.report["reason"]
    drain.proven({"msg": "ran"})
    assert drain.report["ready"]
    assert drain.state()["next"] is None


def test_a_wrong_step_is_refused_before_the_host_is_asked_anything(course: Course) -> None:
    drain = course.drain(HEALTH, {"name": "x", "kind": "reboot"})
    assert not drain.report["ready"]
    assert "unknown kind 'reboot'" in drain.report["reason"]
    assert course.host.ran == []


def test_without_the_claim_nothing_is_done(course: Course) -> None:
    course.host.answers[RECORD] = lambda args, check: {"claimed": False, "msg": "in the hands of another run"}
    drain = course.drain(HEALTH)
    assert "in the hands of another run" in drain.report["reason"]
    assert course.host.modules() == []


FAILURES = [
    ({"failed": True, "msg": "no"}, "failed", "failed: no"),
    ({"failed": True, "late": True, "msg": "not yet"}, "late", "was late: not yet"),
    ({"unreachable": True, "msg": "timed out"}, "failed", "could not be reached: timed out"),
    ({"failed": True, "module_stderr": "Killed"}, "failed", "Killed"),
]


@pytest.mark.parametrize(("result", "status", "words"), FAILURES, ids=[words for _r, _s, words in FAILURES])
def test_a_step_that_goes_wrong_ends_the_drain(course: Course, result: Json, status: str, words: str) -> None:
    course.host.answers[CONNECTIONS] = lambda args, check: {"changed": True} if check else result
    drain = course.drain(HEALTH, USERS, {**HEALTH, "name": "never"})
    assert not drain.report["ready"]
    assert words in drain.report["reason"]
    assert statuses(drain) == {"balancer": "done", "users": status}
    assert course.host.noted == {"balancer": "done", "users": "failed"}
    drain.take()
    assert "never" not in statuses(drain)


def test_a_step_that_was_never_noted_is_never_done(course: Course) -> None:
    def refuse(args: Json, check: bool) -> Result:
        return {"claimed": True, "record": None} if args["state"] == "claimed" else {"failed": True, "msg": "not ours"}

    course.host.answers[RECORD] = refuse
    drain = course.drain(HEALTH)
    assert "not ours" in drain.report["reason"]
    assert course.host.modules(check=False) == []


def test_the_drain_is_over_when_its_time_is(course: Course) -> None:
    course.host.takes = 8
    drain = course.drain(HEALTH, USERS, seconds=20)
    assert statuses(drain) == {"balancer": "done", "users": "late"}
    assert course.clock.now <= 1020


def test_a_step_has_no_more_than_its_own_time(course: Course) -> None:
    course.host.takes = 8
    drain = course.drain({**HEALTH, "timeout": 10}, seconds=1000)
    assert statuses(drain) == {"balancer": "late"}
    assert course.clock.now <= 1010


def test_a_module_is_given_less_than_what_is_left(course: Course) -> None:
    course.drain({**HEALTH, "timeout": 10}, seconds=1000)
    given = [args["timeout"] for module, args, _check in course.host.ran if module == PROBE]
    assert given == [8, 7]


def test_what_is_proven_too_late_is_late(course: Course) -> None:
    drain = course.begin(OWN, seconds=10)
    drain.doing()
    course.clock.now += 11
    drain.proven({"msg": "ran"})
    assert statuses(drain) == {"queue": "late"}
    assert not drain.report["ready"]


def test_what_still_holds_is_not_done_again(course: Course) -> None:
    course.drain(HEALTH)
    course.host.ran.clear()
    course.host.answers[PROBE] = lambda args, check: {"changed": False, "before": {"in_service": False}}
    drain = course.drain(HEALTH)
    assert drain.report["ready"]
    assert course.host.modules(check=False) == []
    assert course.host.steps[0]["data"]["before"] == {"in_service": True}


def test_what_does_not_hold_any_more_is_done_again_and_how_it_was_is_kept(course: Course) -> None:
    course.drain(HEALTH)
    course.host.answers[PROBE] = lambda args, check: {"changed": True, "before": {"in_service": False}}
    assert course.drain(HEALTH).report["ready"]
    assert course.host.modules(check=False) == [PROBE, PROBE]
    assert course.host.steps[0]["data"]["before"] == {"in_service": True}


def test_after_an_interrupted_run_the_health_url_may_be_silent(course: Course) -> None:
    course.drain(HEALTH)
    course.drain(HEALTH)
    given = [args.get("must_answer") for module, args, _check in course.host.ran if module == PROBE]
    assert given == [None, None, False, False]


def test_undoing_goes_backwards_and_ends_where_it_cannot_go_on(course: Course) -> None:
    course.drain(HEALTH, USERS, {"name": "node", "kind": "pacemaker"})
    course.host.answers["graceful.azure.pacemaker_standby"] = lambda args, check: {"failed": True, "msg": "offline"}
    undo = course.begin(undo=True)
    undo.take()
    assert not undo.report["ready"]
    assert undo.report["reason"].startswith("Undoing step 'node' (pacemaker) failed")
    assert course.host.noted == {"balancer": "done", "users": "done", "node": "failed"}
    del course.host.answers["graceful.azure.pacemaker_standby"]
    undo = course.begin(undo=True)
    undo.take()
    assert undo.report["ready"]
    assert list(statuses(undo)) == ["node", "users", "balancer"]
    assert set(course.host.noted.values()) == {"undone"}


def test_only_some_kinds_can_be_undone_first(course: Course) -> None:
    course.drain(HEALTH, {"name": "node", "kind": "pacemaker"})
    undo = course.begin(undo=True, kinds=["pacemaker"])
    undo.take()
    assert undo.report["ready"]
    assert course.host.noted == {"balancer": "done", "node": "undone"}


def test_what_was_out_before_is_noted_as_undone_and_left(course: Course) -> None:
    course.host.answers[PROBE] = lambda args, check: {"changed": False, "before": {"in_service": False}}
    course.drain(HEALTH)
    course.host.ran.clear()
    undo = course.begin(undo=True)
    undo.take()
    assert undo.report["ready"]
    assert course.host.modules() == []
    assert course.host.noted == {"balancer": "undone"}


def test_a_kind_that_a_record_has_and_this_version_does_not_know_is_said(course: Course) -> None:
    course.host.steps.append({"phase": "drain", "name": "x", "kind": "future", "status": "done", "data": {}})
    undo = course.begin(undo=True)
    undo.take()
    assert not undo.report["ready"]
    assert "future" in undo.report["reason"]
    assert course.host.noted == {"x": "failed"}


def test_services_that_did_not_run_stay_stopped(course: Course) -> None:
    running = {"front", "back"}

    def manage(args: Json, check: bool) -> Result:
        wanted = args["state"] == "started"
        changed = (args["name"] in running) != wanted
        if not check:
            (running.add if wanted else running.discard)(args["name"])
        return {"changed": changed}

    course.host.answers[SERVICE] = manage
    step = {"name": "daemons", "kind": "services", "services": ["front", "middle", "back"], "use": "mine"}
    assert course.drain(step).report["ready"]
    assert running == set()
    assert course.host.steps[0]["data"]["before"] == {"running": ["front", "back"]}
    course.host.ran.clear()
    course.begin(undo=True).take()
    assert running == {"front", "back"}
    orders = [args["name"] for module, args, check in course.host.ran if module == SERVICE and not check]
    assert orders == ["back", "front"]


def test_a_service_that_does_not_stop_is_named(course: Course) -> None:
    course.host.answers[SERVICE] = lambda args, check: {"changed": True}
    drain = course.drain({"name": "daemons", "kind": "services", "services": ["front"]})
    assert "The service front is not stopped" in drain.report["reason"]


def test_passwords_reach_the_module_and_nothing_else(course: Course) -> None:
    drain = course.drain(CACHE)
    given = [args["password"] for module, args, _check in course.host.ran if module == "graceful.azure.redis_failover"]
    assert given == ["hunter2", "hunter2"]
    assert "hunter2" not in json.dumps([drain.state(), course.host.steps, course.host.marks])
    assert secrets_of("nonsense", "cache") == {}


def test_check_mode_looks_and_is_never_ready(course: Course) -> None:
    drain = course.drain(HEALTH, check_mode=True)
    assert not drain.report["ready"]
    assert statuses(drain) == {"balancer": "skipped"}
    assert course.host.modules(check=False) == []
    assert course.host.steps == []


def test_tasks_that_could_not_be_run_everywhere_are_not_proven(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing()
    drain.proven({"results": [{"msg": "fine"}, {"unreachable": True, "msg": "balancer2 is gone"}]})
    assert not drain.report["ready"]
    assert "balancer2 is gone" in drain.report["reason"]


def test_tasks_that_hold_need_not_run(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing()
    drain.proven({"msg": "ran"})
    again = course.begin(OWN)
    again.doing(holds=True)
    assert again.report["ready"]
    assert again.state()["step"] is None


def test_a_claim_that_it_holds_needs_the_record(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing(holds=True)
    assert not drain.report["ready"]
    assert drain.state()["step"]["name"] == "queue"


def test_a_drain_that_was_undone_is_not_ready_and_says_both(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing()
    drain.failed({"msg": "broken"})
    undo = course.begin(OWN, undo=True)
    undo.doing()
    undo.proven({"msg": "ran"})
    drain.merge_undo(undo.report)
    assert not drain.report["ready"]
    assert "broken" in drain.report["reason"]
    assert "is undone" in drain.report["reason"]
    assert [step["status"] for step in drain.report["steps"]] == ["failed", "undone"]


def test_what_reaches_beyond_the_host_is_not_undone_on_the_word_of_its_record(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing()
    drain.proven({"msg": "ran"})
    undo = course.begin(undo=True)
    undo.doing()
    assert undo.state()["next"] is None
    assert not undo.report["ready"]
    assert "Define it again" in undo.report["reason"]


def test_the_state_is_plain_data_and_can_go_on_from_there(course: Course) -> None:
    drain = course.begin(OWN)
    drain.doing()
    travelled = json.loads(json.dumps({**drain.state(), "changed": False, "failed": False}))
    later = Drain(course.host, travelled, clock=course.clock)
    later.proven({"msg": "ran"})
    assert later.report["ready"]
    assert not drain.report["ready"]
    assert seconds_left(travelled, course.clock) == 100


SAYINGS = [
    ({"msg": "one\n two"}, "one two"),
    ({}, "no reason was given"),
    ({"msg": "{{ evil }}"}, r"\x7b\x7b evil \x7d\x7d"),
    ({"msg": "x" * 2000}, "x" * 599 + "…"),
    ({"msg": "all", "results": [{"msg": "a"}, {"failed": True, "msg": "b"}, {"msg": "c"}]}, "b"),
    ({"msg": "all", "results": [{"msg": "a"}, {"msg": "c"}]}, "c"),
    ({"msg": "\x1b[31mred"}, r"\x1b[31mred"),
]


@pytest.mark.parametrize(("result", "words"), SAYINGS, ids=[words[:20] for _result, words in SAYINGS])
def test_what_a_task_said_can_only_be_read(result: Json, words: str) -> None:
    assert said(result) == words


def test_a_step_that_was_never_begun_is_not_undone(course: Course) -> None:
    course.host.answers[SERVICE] = lambda args, check: {"failed": True, "msg": "Could not find the service"}
    steps = [HEALTH, {"name": "app", "kind": "services", "services": ["typo"]}]
    drain = course.drain(*steps)
    assert "Could not find" in drain.report["reason"]
    assert [step["name"] for step in course.host.steps] == ["balancer"]
    assert any("Could not find" in mark["detail"] for mark in course.host.marks)
    undo = course.drain(*steps, undo=True)
    assert undo.report["ready"], undo.report["reason"]
