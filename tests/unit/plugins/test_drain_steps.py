# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._drain_steps import (
    KINDS,
    Find,
    Unusable,
    WrongStep,
    before_all,
    checked,
    task_file,
    to_undo,
    with_record,
)

Json = dict[str, t.Any]
HEALTH: Json = {"name": "balancer", "kind": "health_probe", "url": "http://127.0.0.1/", "marker": "/run/out"}
OWN: Json = {"name": "queue", "kind": "tasks", "do": "do.yml", "probe": "paused"}
SOCKETS = [{"host": "lb1", "socket": "/run/a"}, {"host": "lb2", "socket": "127.0.0.1:9999"}]
BALANCED: Json = {"name": "lb", "kind": "haproxy", "backend": "web", "server": "web1", "sockets": SOCKETS}
CACHE: Json = {"name": "cache", "kind": "redis_sentinel", "master_name": "cache"}


def entry(name: str, kind: str, status: str, before: Json | None = None, **options: t.Any) -> Json:
    step = {"timeout": None, "options": options}
    return {"phase": "drain", "name": name, "kind": kind, "status": status, "data": {"step": step, "before": before}}


def record(*steps: Json) -> Json:
    return {"steps": list(steps)}


RIGHT = [
    HEALTH,
    {**HEALTH, "interval": "2", "threshold": 3, "healthy": [200, 204], "must_answer": "false", "timeout": "30"},
    {"name": "x", "kind": "health_probe", "url": "https://h:1/", "out_url": "http://h/o", "in_url": "http://h/i"},
    BALANCED,
    {"name": "x", "kind": "connections", "ports": [80, "443"], "ignore_from": ["168.63.129.16", "10.0.0.0/8", "::1"]},
    {"name": "x", "kind": "services", "services": ["a"], "use": "systemd"},
    {"name": "x", "kind": "patroni"},
    {"name": "x", "kind": "patroni", "url": "https://db:8008", "validate_certs": False, "candidate": "db2"},
    {**CACHE, "sentinels": [{"host": "s1"}, {"host": "s2", "port": 26380}]},
    {"name": "x", "kind": "pacemaker", "node": "db1"},
    OWN,
    {**OWN, "probe": ["a", "b"], "undo": "undo.yaml", "undo_probe": "gone.yml"},
]


@pytest.mark.parametrize("step", RIGHT, ids=lambda step: f"{step['kind']} {len(step)}")
def test_what_can_be_carried_out_is_accepted(step: Json) -> None:
    (found,) = checked([step])
    assert (found["name"], found["kind"]) == (step["name"], step["kind"])


WRONG = [
    ("health_probe", ["have to be a list", "text"]),
    (None, ["have to be a list", "nothing"]),
    ({"name": "x"}, ["have to be a list", "a dictionary"]),
    ([HEALTH, "x"], ["Drain step 2", "a name and a kind", "text"]),
    ([{"kind": "tasks"}], ["Drain step 1", "no name"]),
    ([{"name": " ", "kind": "tasks"}], ["Drain step 1", "no name"]),
    ([{"name": "x"}], ["'x'", "no kind", *KINDS]),
    ([{"name": "x", "kind": "reboot"}], ["'x'", "unknown kind 'reboot'", *KINDS]),
    ([{"name": "x", "kind": ["tasks"]}], ["'x'", "unknown kind"]),
    ([HEALTH, {**HEALTH, "name": "x", "colour": "red"}], ["'x'", "unknown key 'colour'", "marker_means", "timeout"]),
    ([{"name": "x", "kind": "haproxy", "backend": "b"}], ["'x'", "lacks the key server"]),
    ([HEALTH, HEALTH], ["Two drain steps have the name 'balancer'"]),
    ([{**HEALTH, "url": "ftp://h/"}], ["url has to be a URL"]),
    ([{**HEALTH, "marker": "out"}], ["marker has to be the absolute path"]),
    ([{**HEALTH, "interval": -1}], ["interval has to be a number above 0"]),
    ([{**HEALTH, "interval": True}], ["interval has to be a number above 0"]),
    ([{**HEALTH, "timeout": "soon"}], ["timeout has to be a number above 0"]),
    ([{**HEALTH, "timeout": "nan"}], ["timeout has to be a number above 0"]),
    ([{**HEALTH, "healthy": [2000]}], ["healthy has to be a list of HTTP statuses"]),
    ([{key: HEALTH[key] for key in ("name", "kind", "url")}], ["exactly one of: marker, out_url"]),
    ([{**HEALTH, "out_url": "http://h/", "in_url": "http://h/"}], ["exactly one of: marker, out_url"]),
    ([{**HEALTH, "in_url": "http://h/"}], ["both out_url and in_url"]),
    ([{**BALANCED, "sockets": ["/run/a"]}], ["sockets has to be a list of {host"]),
    ([{**BALANCED, "sockets": []}], ["sockets has to be a list of {host"]),
    ([{"name": "x", "kind": "connections", "ports": [0]}], ["ports has to be a list of port numbers"]),
    ([{"name": "x", "kind": "connections", "ports": 80}], ["ports has to be a list of port numbers"]),
    ([{"name": "x", "kind": "connections", "ports": [80], "ignore_from": ["here"]}], ["ignore_from has to be"]),
    ([{"name": "x", "kind": "services", "services": "web"}], ["services has to be a list"]),
    ([{**OWN, "do": "rm -rf /"}], ["do has to be a task file"]),
    ([{"name": "x", "kind": "tasks", "do": "do.yml"}], ["lacks the key probe"]),
]


@pytest.mark.parametrize(("steps", "words"), WRONG, ids=[" ".join(words)[:60] for _steps, words in WRONG])
def test_what_cannot_be_carried_out_is_refused_with_what_is_allowed(steps: t.Any, words: list[str]) -> None:
    with pytest.raises(WrongStep) as caught:
        checked(steps)
    for word in words:
        assert word in str(caught.value)


def test_a_name_in_a_message_cannot_be_a_template() -> None:
    with pytest.raises(WrongStep) as caught:
        checked([{"name": "{{ 1 / 0 }}", "kind": "reboot"}])
    assert "{" not in str(caught.value).split("Kinds", maxsplit=1)[0]


def test_passwords_leave_the_steps() -> None:
    (step,) = checked([{**CACHE, "password": "hunter2", "sentinel_password": "hunter3"}])
    assert "hunter" not in str(step)


def test_task_files_get_their_full_path_and_conditions_stay() -> None:
    (step,) = checked([{**OWN, "undo": "undo.yml"}], find=lambda name, _probe: f"/found/{name}")
    assert step["options"] == {"do": "/found/do.yml", "undo": "/found/undo.yml", "probe": "paused"}


def test_a_task_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(WrongStep, match=r"'queue' \(tasks\): do is 'do.yml', which is not there"):
        checked([OWN], find=lambda name, _probe: task_file(name, [None, "/nonexistent"]))


def test_a_task_file_is_the_first_one_in_the_folders(tmp_path: t.Any) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "b" / "do.yml").touch()
    found = str(tmp_path / "b" / "do.yml")
    assert task_file("do.yml", ["", str(tmp_path / "a"), str(tmp_path / "b")]) == found
    assert task_file(found, []) == found
    with pytest.raises(Unusable):
        task_file("do.yml", [str(tmp_path / "a")])


def test_how_it_was_before_comes_from_the_first_attempt() -> None:
    steps = checked([HEALTH, OWN])
    first, second = with_record(steps, record(entry("balancer", "health_probe", "doing", {"in_service": True})))
    assert (first["recorded"], first["before"]) == ("doing", {"in_service": True})
    assert (second["recorded"], second["before"]) == ("", None)


def test_an_undone_step_is_a_new_one() -> None:
    (step,) = with_record(checked([HEALTH]), record(entry("balancer", "health_probe", "undone", {"in_service": False})))
    assert (step["recorded"], step["before"]) == ("", None)


def test_another_step_of_that_name_does_not_overwrite_what_must_be_undone() -> None:
    with pytest.raises(WrongStep, match="not undone"):
        with_record(checked([HEALTH]), record(entry("balancer", "haproxy", "done")))


def test_undone_is_what_was_begun_last_first() -> None:
    found = to_undo(
        record(
            entry("a", "health_probe", "done"),
            entry("b", "services", "undone"),
            entry("c", "connections", "failed"),
            {**entry("d", "paths", "done"), "phase": "checkpoint"},
            entry("e", "pacemaker", "doing", node="db1"),
        )
    )
    assert [step["name"] for step in found] == ["e", "c", "a"]
    assert found[0]["options"] == {"node": "db1"}
    assert to_undo(None) == []


def elsewhere(name: str, probe: bool) -> str:
    return f"/new/{name}"


def test_task_files_are_taken_from_what_the_user_has_written() -> None:
    kept = entry("queue", "tasks", "done", do="/old/do.yml", probe="paused", undo="/old/undo.yml")
    (step,) = to_undo(record(kept), [HEALTH, {**OWN, "undo": "undo.yml"}], elsewhere)
    assert step["options"]["undo"] == "/new/undo.yml"


def missing(name: str, probe: bool) -> str:
    raise Unusable("which is not there")


@pytest.mark.parametrize(
    ("steps", "find", "words"),
    [
        ([], elsewhere, "not among the drain steps any more"),
        ([{**HEALTH, "name": "queue"}], elsewhere, "not among the drain steps any more"),
        ([{**OWN, "typo": 1}], elsewhere, "unknown key 'typo'"),
        ([OWN], missing, "which is not there"),
        ("nonsense", elsewhere, "not among the drain steps any more"),
        ([OWN, OWN], elsewhere, "Two drain steps"),
    ],
)
def test_a_record_alone_never_names_files_of_the_controller(steps: t.Any, find: Find, words: str) -> None:
    kept = entry("queue", "tasks", "done", do="/old/do.yml", probe="paused", undo="/old/undo.yml")
    (step,) = to_undo(record(kept), steps, find)
    assert step["options"] == {}
    assert words in step["broken"]
    assert "by hand" in step["broken"]


def test_a_record_alone_never_names_other_machines() -> None:
    kept = entry("lb", "haproxy", "done", sockets=[{"host": "victim", "socket": "/run/x"}], backend="b", server="s")
    (step,) = to_undo(record(kept))
    assert step["options"] == {}
    assert "by hand" in step["broken"]
    (step,) = to_undo(record(kept), [BALANCED])
    assert step["options"] == {"backend": "web", "server": "web1", "sockets": SOCKETS}
    assert step["left"] == "no longer among its sockets and left as they are: victim /run/x"


def test_other_options_are_those_that_were_used() -> None:
    kept = entry("balancer", "health_probe", "done", url="http://old/", marker="/old")
    (step,) = to_undo(record(kept), checked([HEALTH]))
    assert step["options"] == {"url": "http://old/", "marker": "/old"}


def test_a_balancer_where_the_server_was_out_before_is_left_alone() -> None:
    before = before_all(
        with_record(checked([BALANCED]), None)[0], {"servers": [{"in_service": False}, {"in_service": True}]}
    )
    (step,) = to_undo(record(entry("lb", "haproxy", "done", dict(before), sockets=SOCKETS)), [BALANCED])
    assert not step["left"]
    assert step["options"]["sockets"] == SOCKETS[1:]


def test_a_balancer_that_was_added_between_two_runs_is_remembered_as_it_was_then() -> None:
    first = with_record(checked([{**BALANCED, "sockets": SOCKETS[1:]}]), None)[0]
    known = entry("lb", "haproxy", "done", dict(before_all(first, {"servers": [{"in_service": True}]})))
    second = with_record(checked([BALANCED]), record(known))[0]
    seen = [{"in_service": False}, {"in_service": False}]
    servers = before_all(second, {"servers": seen})["servers"]
    assert {server["host"]: server["in_service"] for server in servers} == {"lb1": False, "lb2": True}


def test_a_service_that_was_added_between_two_runs_is_started_again() -> None:
    known = entry("app", "services", "done", {"running": ["nginx", "old"]}, services=["nginx", "old"])
    step = {"name": "app", "kind": "services", "services": ["app", "nginx", "idle"]}
    (again,) = with_record(checked([step]), record(known))
    assert before_all(again, {"running": ["app"]}) == {"running": ["app", "nginx", "old"]}
