# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps that reach beyond the host: they go by what the user has written, never by the word of a record."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _checkpoints, _drains
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS
from ansible_collections.graceful.azure.plugins.plugin_utils import _controller_steps as controller
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._task_files import Unusable

Json = dict[str, t.Any]
TASKS = Path(__file__).resolve().parents[3] / "roles" / "maintenance" / "tasks" / "steps"
SOCKETS = [{"host": "lb1", "socket": "/run/a"}, {"host": "lb2", "socket": "127.0.0.1:9999"}]
BALANCED: Json = {
    "name": "lb",
    "kind": "haproxy",
    "options": {"backend": "web", "server": "web1", "sockets": SOCKETS},
}
OWN: Json = {
    "name": "queue",
    "kind": "tasks",
    "options": {"do": "do.yml", "probe": "paused", "undo": "undo.yml", "undo_probe": "back.yml"},
}
SAVED: Json = {"name": "dump", "kind": "tasks", "options": {"file": "save.yml", "probe": "saved.yml"}}


def asked(item: Json, mode: str, **more: t.Any) -> Json:
    """The step as the host asks for it."""
    step = {"phase": "drain", "name": item["name"], "kind": item["kind"], "mode": mode, "seconds": 20.0}
    return {**step, "before": {"servers": []}, "options": {}, "archive": "", **more}


def found(name: str, probe: bool) -> tuple[str, list[str]]:
    return f"/found/{name}", ["seen"] if probe else []


def missing(name: str, probe: bool) -> tuple[str, list[str]]:
    raise Unusable("which does not exist")


def described(step: Json, *items: Json, find: controller.Find = found) -> Json:
    return controller.described(step, items, 1000.0, find)


def test_each_kind_of_the_controller_has_its_tasks() -> None:
    kinds = {name for names, load in ((_drains.NAMES, _drains.load), (_checkpoints.NAMES, _checkpoints.load))
             for name in names if load(name).by_controller}  # fmt: skip
    assert kinds == set(controller.BY_CONTROLLER)
    for kind in kinds:
        for mode in ("look", "do", "verify", "undo"):
            assert (TASKS / controller.tasks_of({"kind": kind, "mode": mode})).is_file()
    for mode in ("fetch", "send"):
        for platform in (LINUX, WINDOWS):
            assert (TASKS / controller.tasks_of({"kind": "paths", "mode": mode}, platform)).is_file()
    assert controller.tasks_of({"kind": "paths", "mode": "send"}, WINDOWS) == "copy_windows.yml"


def test_a_step_has_until_its_time_is_over() -> None:
    assert described(asked(OWN, "do"), OWN)["until"] == 1020.0


@pytest.mark.parametrize(
    ("item", "mode", "phase", "file", "probe", "probe_file"),
    [
        (OWN, "do", "drain", "/found/do.yml", "probe", ""),
        (OWN, "verify", "drain", "", "probe", ""),
        (OWN, "undo", "drain", "/found/undo.yml", "undo_probe", "/found/back.yml"),
        (SAVED, "do", "checkpoint", "/found/save.yml", "probe", "/found/saved.yml"),
    ],
)
def test_task_files_are_taken_from_what_the_user_has_written(
    item: Json, mode: str, phase: str, file: str, probe: str, probe_file: str
) -> None:
    record = {"do": "/old/do.yml", "undo": "/old/undo.yml", "file": "/etc/shadow"}
    step = described(asked(item, mode, phase=phase, options=record), item)
    assert (step["file"], step["probe"], step["probe_file"], step["broken"]) == (file, probe, probe_file, "")
    assert step["evidence"] == (["seen"] if probe_file else [])


@pytest.mark.parametrize(
    ("items", "find", "words"),
    [
        ([], found, "no longer one of the host's steps"),
        ([{**BALANCED, "name": "queue"}], found, "no longer one of the host's steps"),
        ([OWN], missing, "its file which does not exist"),
    ],
)
def test_a_record_alone_never_names_files_of_the_controller(
    items: list[Json], find: controller.Find, words: str
) -> None:
    step = described(asked(OWN, "undo", options={"undo": "/old/undo.yml"}), *items, find=find)
    assert (step["file"], step["probe_file"], step["calls"]) == ("", "", [])
    assert words in step["broken"]
    assert controller.answer(step, {"until": step["until"], "result": {}})["ok"] is False


def test_a_record_alone_never_names_other_machines() -> None:
    evil = {"sockets": [{"host": "victim", "socket": "/run/x"}], "backend": "b", "server": "s"}
    before = {"servers": [{"host": "victim", "socket": "/run/x", "in_service": True}]}
    assert described(asked(BALANCED, "undo", options=evil, before=before))["calls"] == []
    calls = described(asked(BALANCED, "undo", options=evil, before=before), BALANCED)["calls"]
    assert [(call["host"], call["backend"], call["state"]) for call in calls] == [
        ("lb1", "web", "ready"),
        ("lb2", "web", "ready"),
    ]


def test_no_balancer_is_waited_for_before_all_let_nothing_new_begin() -> None:
    calls = described(asked(BALANCED, "do"), BALANCED)["calls"]
    assert [(call["host"], call["state"]) for call in calls] == [
        ("lb1", "drain"), ("lb2", "drain"), ("lb1", "maint"), ("lb2", "maint"),
    ]  # fmt: skip
    assert [call["state"] for call in described(asked(BALANCED, "verify"), BALANCED)["calls"]] == ["maint", "maint"]


@pytest.mark.parametrize(
    ("servers", "put_back"),
    [
        ([{**SOCKETS[0], "in_service": False}, {**SOCKETS[1], "in_service": True}], ["lb2"]),
        ([{**SOCKETS[0], "in_service": False}, {**SOCKETS[1], "in_service": False}], []),
        ([], ["lb1", "lb2"]),
        ("nonsense", ["lb1", "lb2"]),
        (["nonsense", {"host": "lb1"}], ["lb1", "lb2"]),
    ],
)
def test_a_balancer_where_the_server_was_out_before_is_left_alone(servers: t.Any, put_back: list[str]) -> None:
    step = asked(BALANCED, "undo", before={"servers": servers})
    answer = admitted({"report": {"state": "next", "next": step}, "observation": {}})
    calls = described(answer["report"]["next"], BALANCED)["calls"]
    assert [call["host"] for call in calls] == put_back


@pytest.mark.parametrize(
    ("to", "mode", "tasks"),
    [
        ("controller", "fetch", "fetch.yml"),
        ("host", "fetch", "nothing.yml"),
        (None, "fetch", "nothing.yml"),
        # It was fetched by an earlier run, and is the host's own.
        (None, "send", "send.yml"),
    ],
)
def test_the_controller_keeps_only_what_the_user_wants_kept_there(to: str | None, mode: str, tasks: str) -> None:
    saved = {"name": "cache", "kind": "paths", "options": {"paths": ["/cache"], "to": to}}
    step = described(asked(saved, mode, phase="checkpoint"), *([saved] if to else []))
    assert (step["tasks"], bool(step["broken"])) == (tasks, tasks == "nothing.yml")


# Looking before anything is done


def test_the_balancers_are_looked_at_in_the_pass_that_asks_for_it() -> None:
    looks = controller.looks([BALANCED, OWN], 7)
    assert [(look["host"], look["state"], look["step"], look["pass"]) for look in looks] == [
        ("lb1", "maint", "lb", 7),
        ("lb2", "maint", "lb", 7),
    ]
    answers: list[Json] = [
        {"item": looks[0], "before": {"in_service": False}},
        {"item": looks[1], "before": {"in_service": True}},
        {"item": {**looks[1], "pass": 6}, "failed": True, "msg": "of another pass"},
        {"msg": "of no pass"},
    ]
    assert controller.looked(answers, 7) == {
        "lb": {"servers": [{**SOCKETS[0], "in_service": False}, {**SOCKETS[1], "in_service": True}]}
    }


def test_a_balancer_that_could_not_be_looked_at_is_an_error_of_the_step() -> None:
    item = controller.looks([BALANCED], 1)[0]
    told = controller.looked([{"item": item, "unreachable": True, "msg": "no route\x1b[2J"}], 1)
    assert told["lb"]["error"] == "lb1: it could not be reached: no route?[2J"


# What became of it


@pytest.mark.parametrize(
    ("result", "ok", "message"),
    [
        ({"msg": "fine"}, True, "the tasks ran"),
        ({"results": [{"msg": "web1 is out"}]}, True, "web1 is out"),
        ({"failed": True, "msg": "broken"}, False, "broken"),
        ({"failed": True, "stderr": "Killed"}, False, "Killed"),
        ({"unreachable": True, "msg": "timed out"}, False, "it could not be reached: timed out"),
        ({"results": [{"msg": "fine"}, {"unreachable": True, "item": {"host": "lb2"}}]}, False,
         "lb2: it could not be reached: no reason was given"),
        ({"failed": True, "msg": "{{ 1 + 1 }}\x1b[2J"}, False, "{ { 1 + 1 }}?[2J"),
        # The host was taken out by Ansible itself, which leaves no result.
        ("", False, controller.NOT_RUN),
        (None, False, controller.NOT_RUN),
    ],
)  # fmt: skip
def test_what_the_tasks_left_is_an_answer_that_can_only_be_read(result: t.Any, ok: bool, message: str) -> None:
    step = described(asked(OWN, "do"), OWN)
    told = controller.answer(step, {"until": str(step["until"]), "result": result})
    assert (told["ok"], told["message"]) == (ok, message)
    assert (told["phase"], told["name"], told["mode"]) == ("drain", "queue", "do")


def slice_of(item: Json, seconds: float, most: float) -> Json:
    return controller.described(asked(item, "do", seconds=seconds), [item], 1000.0, found, most=most)


def test_balancers_are_waited_for_in_slices_if_there_is_time_for_more_than_one() -> None:
    step = slice_of(BALANCED, 20.0, 8.0)
    assert (step["seconds_each"], step["may_go_on"]) == (4.0, True), "one is waited for after the other"
    assert slice_of(BALANCED, 8.0, 8.0)["may_go_on"] is False
    assert described(asked(BALANCED, "do"), BALANCED)["may_go_on"] is False, "the roles have no slices"


@pytest.mark.parametrize(("most", "pending"), [(8.0, True), (20.0, False)])
def test_sessions_that_are_left_are_pending_as_long_as_there_is_time(most: float, pending: bool) -> None:
    step = slice_of(BALANCED, 20.0, most)
    drained = [{"item": call, "changed": True, "msg": "drained"} for call in step["calls"][:2]]
    waited = [{"item": call, "failed": not pending, "sessions": 3, "msg": "x"} for call in step["calls"][2:]]
    result: Json = {"failed": not pending, "msg": "One or more items failed", "results": drained + waited}
    told = controller.answer(step, {"until": step["until"], "result": result})
    assert (told["ok"], told["late"], told["pending"]) == (False, True, pending)
    assert told["message"] == "3 sessions on lb1, 3 sessions on lb2"
    waited[1] = {"item": step["calls"][3], "failed": True, "msg": "no such server"}
    told = controller.answer(step, {"until": step["until"], "result": {**result, "results": drained + waited}})
    assert (told["message"], told.get("pending")) == ("lb2: no such server", None), "a failure is more than waiting"


def test_what_a_users_tasks_call_sessions_means_nothing() -> None:
    step = described(asked(OWN, "do"), OWN)
    failed = {"item": "web1", "sessions": 3, "failed": True, "msg": "no"}
    told = controller.answer(step, {"until": step["until"], "result": {"failed": True, "results": [failed]}})
    assert (told["ok"], told["message"], told.get("pending")) == (False, "no", None)


def test_a_balancer_that_was_not_out_any_more_does_not_verify() -> None:
    step = described(asked(BALANCED, "verify"), BALANCED)
    given = {"until": step["until"], "result": {"results": [{"changed": True, "msg": "web1 was in service"}]}}
    assert controller.answer(step, given)["ok"] is False
    given["result"] = {"results": [{"changed": False, "msg": "web1 is out"}]}
    assert controller.answer(step, given)["ok"] is True


@pytest.mark.parametrize("given", [None, "x", {}, {"result": {}}, {"until": "1019.9", "result": {}}])
def test_an_answer_to_another_request_is_none(given: t.Any) -> None:
    told = controller.answer(described(asked(OWN, "do"), OWN), given)
    assert (told["ok"], told["message"]) == (False, "the controller did not take the step in time")


@pytest.mark.parametrize("result", [{"failed": True, "timedout": {"period": 5}}, {"failed": True, "late": True}])
def test_what_ran_out_of_time_is_late(result: Json) -> None:
    step = described(asked(OWN, "do"), OWN)
    assert controller.answer(step, {"until": step["until"], "result": result})["late"] is True


@pytest.mark.parametrize("probe", ["queue.stdout = 'paused'", ["ok", "a b"], "is defined"])
def test_a_condition_that_is_none_is_found_before_anything_runs(probe: t.Any) -> None:
    items = [{"name": "queue", "kind": "tasks", "options": {"do": "do.yml", "probe": probe, "undo_probe": None}}]
    (said,) = controller.mistakes(items, lambda name, _probe: (name, []), "Drain step")
    assert said.startswith("Drain step 'queue' (tasks): probe is ")
    assert "which is not a condition" in said


@pytest.mark.parametrize(
    "probe", [True, "queue.stdout == 'paused'", ["a is defined", "b in c"], "{{ x }} == 1", "p.yml"]
)
def test_a_condition_is_not_judged_by_what_it_refers_to(probe: t.Any) -> None:
    items = [{"name": "queue", "kind": "tasks", "options": {"do": "do.yml", "probe": probe}}]
    assert controller.mistakes(items, lambda name, _probe: (name, []), "Drain step") == []


# Mistakes and passes


def test_a_task_file_that_is_not_there_is_said_with_its_step() -> None:
    assert controller.mistakes([BALANCED, OWN], missing, "Drain step") == [
        "Drain step 'queue' (tasks): do is 'do.yml', which does not exist.",
        "Drain step 'queue' (tasks): undo is 'undo.yml', which does not exist.",
        "Drain step 'queue' (tasks): undo_probe is 'back.yml', which does not exist.",
    ]
    assert controller.mistakes([BALANCED, OWN], found, "Drain step") == []


@pytest.mark.parametrize(
    ("order", "drains", "record", "passes"),
    [
        ("ready", [], None, 0),
        ("ready", [OWN], None, 3),
        ("ready", [OWN, BALANCED], None, 7),
        ("put_back", [OWN], None, 0),
        ("put_back", [], {"steps": [{"kind": "tasks", "status": "done"}, {"kind": "paths", "status": "undone"}]}, 1),
        ("ready", [OWN] * 100, None, controller.MOST_PASSES),
    ],
)
def test_an_order_gets_as_many_passes_as_its_steps_may_need(
    order: str, drains: list[Json], record: Json | None, passes: int
) -> None:
    assert controller.most_passes(order, drains, [], record) == passes


@pytest.mark.parametrize(
    ("registered", "is_unreachable"),
    [
        ({"unreachable": True}, True),
        ({"results": [{}, {"unreachable": True}]}, True),
        ({"results": [{}]}, False),
        # The modules for packages return texts.
        ({"results": ["Installed: app"]}, False),
        ({"results": {"a": 1}}, False),
        (None, False),
        ("text", False),
    ],
)
def test_a_probe_knows_whether_its_tasks_have_reached_the_host(registered: t.Any, is_unreachable: bool) -> None:
    assert controller.was_unreachable(registered) is is_unreachable


def test_sessions_are_those_of_balancers_only() -> None:
    step = described(asked(OWN, "do"), OWN)
    result = {"results": [{"item": "a", "sessions": 3}]}
    assert controller.answer(step, {"until": step["until"], "result": result})["ok"] is True
