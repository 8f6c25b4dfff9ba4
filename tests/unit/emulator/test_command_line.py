# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import stat
import sys
import typing as t
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import (
    PROGRAM,
    Emulator,
    request,
    run,
    serving,
    until,
)


def written(file: Path, content: t.Any) -> str:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def test_the_program_is_one_file_for_any_host() -> None:
    source = PROGRAM.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    imports = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imports} <= set(sys.stdlib_module_names) | {"__future__"}
    assert PROGRAM.stat().st_mode & stat.S_IXUSR


def test_it_listens_on_loopback_only_and_control_has_a_port_of_its_own(emulator: Emulator) -> None:
    urls = [emulator.ready["control"], *emulator.vms.values()]
    assert {urlsplit(url).hostname for url in urls} == {"127.0.0.1"}
    assert len({urlsplit(url).port for url in urls}) == len(urls)
    assert emulator.ready["pid"] == emulator.process.pid
    assert request(emulator.ready["control"], "GET", "/metadata/scheduledevents?api-version=2020-07-01").status == 400


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(number: signal.Signals) -> None:
    with serving("--vm", "a") as emulator:
        emulator.process.send_signal(number)
        assert emulator.process.wait(30) == 0


def test_the_ready_file_is_there_while_it_runs_and_holds_the_ready_line(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with serving("--vm", "a", "--ready-file", str(file)) as emulator:
        assert json.loads(file.read_text(encoding="utf-8")) == emulator.ready
        assert run("stop", "--ready-file", str(file)).returncode == 0
        assert emulator.process.wait(30) == 0
        assert list(tmp_path.iterdir()) == []


def test_the_journal_file_and_the_control_api_tell_the_same(tmp_path: Path, serve: Callable[..., Emulator]) -> None:
    file = tmp_path / "journal.jsonl"
    emulator = serve("--vm", "web_0", "--journal", str(file))
    emulator.approve(emulator.publish())
    assert emulator.ready["journal"] == str(file)
    assert [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] == emulator.journal()


def test_ports_can_be_chosen(tmp_path: Path, serve: Callable[..., Emulator]) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _time in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    vms = {"a": {"port": ports[0]}, "b": {}}
    fleet = written(tmp_path / "fleet.json", {"vms": vms})
    emulator = serve("--fleet", fleet, "--control-port", str(ports[1]))
    assert emulator.vms["a"] == f"http://127.0.0.1:{ports[0]}"
    assert emulator.ready["control"] == f"http://127.0.0.1:{ports[1]}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has all of 127.0.0.0/8 on loopback")
class TestByAddress:
    @pytest.fixture
    def emulator(self, tmp_path: Path, serve: Callable[..., Emulator]) -> Emulator:
        vms = {"a": {"scope": "s", "address": "127.0.0.2"}, "b": {"scope": "s", "address": "127.0.0.3"}}
        return serve("--fleet", written(tmp_path / "fleet.json", {"vms": vms}), "--by-address", "--port", "0")

    @staticmethod
    def name(emulator: Emulator, source: str) -> str:
        path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
        return emulator.ask(path, "a", source=source).body.decode()

    def test_a_vm_is_told_by_its_source_address(self, emulator: Emulator) -> None:
        assert emulator.vms["a"] == emulator.vms["b"]
        assert [self.name(emulator, source) for source in ("127.0.0.2", "127.0.0.3")] == ["a", "b"]
        assert emulator.ask(vm="a", source="127.0.0.4").status == 404
        assert [line["vm"] for line in emulator.journal("request")] == ["a", "b", None]

    def test_one_vm_can_be_refused(self, emulator: Emulator) -> None:
        emulator.obeys("/fault", {"kind": "refuse", "vm": "a"})
        with pytest.raises(ConnectionError):
            self.name(emulator, "127.0.0.2")
        assert self.name(emulator, "127.0.0.3") == "b"
        emulator.obeys("/faults/clear", {})
        assert self.name(emulator, "127.0.0.2") == "a"

    def test_all_can_be_refused(self, emulator: Emulator) -> None:
        emulator.obeys("/fault", {"kind": "refuse"})
        with pytest.raises(ConnectionRefusedError):
            self.name(emulator, "127.0.0.3")
        emulator.obeys("/faults/clear", {})
        assert self.name(emulator, "127.0.0.3") == "b"


def test_the_hook_gets_the_event_in_its_environment_and_no_shell(
    tmp_path: Path, serve: Callable[..., Emulator]
) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(
        "import json, os, sys\n"
        "event = {key: value for key, value in os.environ.items() if key.startswith('AZURE_EVENT')}\n"
        "open(sys.argv[1], 'w').write(json.dumps([sys.argv[2:], event]))\n",
        encoding="utf-8",
    )
    seen, trap = tmp_path / "seen.json", tmp_path / "trap"
    emulator = serve("--vm", "a", "--vm", "b", "--on-start", f"{sys.executable} {hook} {seen} '$(x) y'")
    nasty = f"$(touch {trap}); `touch {trap}` '\"\n"
    event_id = emulator.publish("Redeploy", ["a", "b"], Description=nasty, DurationInSeconds=3)
    assert not emulator.journal("hook")
    emulator.approve(event_id, vm="b")
    (line,) = until(lambda: emulator.journal("hook"))
    assert (line["EventId"], line["rc"]) == (event_id, 0)
    arguments, event = json.loads(seen.read_text(encoding="utf-8"))
    assert arguments == ["$(x) y"]
    document = json.loads(event.pop("AZURE_EVENT_JSON"))
    assert (document["EventId"], document["Description"], document["EventStatus"]) == (event_id, nasty, "Started")
    assert event == {
        "AZURE_EVENT_ID": event_id,
        "AZURE_EVENT_TYPE": "Redeploy",
        "AZURE_EVENT_RESOURCES": "a b",
        "AZURE_EVENT_SCOPE": "fleet",
        "AZURE_EVENT_SOURCE": "Platform",
        "AZURE_EVENT_DURATION": "3",
        "AZURE_EVENT_DESCRIPTION": nasty,
        "AZURE_EVENTS_CONTROL": emulator.ready["control"],
    }
    assert not trap.exists()


def test_the_hook_can_complete_its_event(serve: Callable[..., Emulator], tmp_path: Path) -> None:
    hook = tmp_path / "hook.sh"
    hook.write_text(
        f'#!/bin/sh\nexec {sys.executable} {PROGRAM} complete "$AZURE_EVENT_ID" >/dev/null\n', encoding="utf-8"
    )
    hook.chmod(0o755)
    emulator = serve("--vm", "web_0", "--on-start", str(hook))
    event_id = emulator.publish()
    emulator.approve(event_id)
    until(lambda: not emulator.events())
    assert emulator.life(event_id)[-1] == ("completed", "control")


def test_everything_can_be_steered_from_the_command_line(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--vm", "b")
    environment = {**os.environ, "AZURE_EVENTS_CONTROL": emulator.ready["control"]}

    def steer(*arguments: str) -> str:
        done = run(*arguments, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    ids = [
        json.loads(steer("publish", "Freeze", "a", "b", "--set", "DurationInSeconds=5", "--set", "Description=to a"))
        for _time in range(2)
    ]
    first, second = (one["EventId"] for one in ids)
    events = json.loads(steer("state"))["scopes"]["fleet"]["events"]
    assert [(event["Resources"], event["DurationInSeconds"], event["Description"]) for event in events] == [
        (["a", "b"], 5, "to a")
    ] * 2
    steer("start", first)
    steer("complete", first)
    steer("cancel", second)
    fault = json.loads(steer("fault", "503", "--set", "vm=a"))["fault"]
    assert emulator.ask(vm="a").status == 503
    steer("clear", str(fault))
    assert emulator.ask(vm="a").status == 200
    steer("play", "two_events")
    assert len(emulator.events("a")) == 2
    lines = [json.loads(line) for line in steer("journal").splitlines()]
    assert [json.loads(line)["n"] for line in steer("journal", "--since", "3").splitlines()] == [
        line["n"] for line in lines[3:]
    ]
    steer("clear")
    steer("stop")
    assert emulator.process.wait(30) == 0


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/publish", [], "must be a JSON object"),
        ("/publish", {}, "allowed: Freeze, Reboot, Redeploy, Preempt, Terminate, SpotRebalanceRecommendation"),
        ("/publish", {"EventType": "Nap", "Resources": ["web_0"]}, 'any other with "foreign": true'),
        ("/publish", {"EventType": "Reboot"}, "list of VM names"),
        ("/publish", {"EventType": "Reboot", "Resources": "some"}, "first, last, first two, all"),
        ("/publish", {"EventType": "Reboot", "Resources": ["web_9"]}, "allowed: web_0, web_1, web_2, db"),
        ("/publish", {"EventType": "Reboot", "Resources": ["web_0", "db"]}, "which scope"),
        ("/publish", {"EventType": "Reboot", "Resources": ["web_0", "db"], "scope": "db"}, "another scope"),
        ("/publish", {"EventType": "Reboot", "Resources": []}, "allowed: web, db"),
        ("/publish", {"EventType": "Reboot", "Resources": [], "scope": "x"}, "allowed: web, db"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "notice": "soon"}, "number of seconds"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "notice": 1e300}, "number of seconds"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "started_for": -1}, "number of seconds"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "EventStatus": "Completed"}, "Scheduled, Started"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "EventSource": "Me"}, "Platform, User"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "DurationInSeconds": -2}, "at least -1"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "EventId": ""}, "must be text"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "raw": 1}, "raw must be"),
        ("/publish", {"EventType": "Reboot", "Resources": ["db"], "Notice": 1}, "no field 'Notice'"),
        ("/start", {"EventId": "x"}, "no event 'x'"),
        ("/complete", {}, "no event None"),
        ("/cancel", {"id": "x"}, "allowed: EventId"),
        ("/faults/clear", {"fault": 99}, "no fault 99"),
        ("/play", {"scenario": "doomsday"}, "must be a JSON object"),
        ("/nothing", {}, "POST: publish, start, complete"),
    ],
)
def test_the_control_api_refuses_nonsense_in_words(emulator: Emulator, path: str, content: t.Any, says: str) -> None:
    reply = emulator.control(path, content)
    assert reply.status == 400
    assert says in reply.json["error"]
    assert emulator.events() == emulator.events("db") == []


def test_an_id_is_not_given_twice(emulator: Emulator) -> None:
    event_id = emulator.publish()
    reply = emulator.control("/publish", {"EventType": "Reboot", "Resources": ["db"], "EventId": event_id.lower()})
    assert reply.status == 400
    assert "already" in reply.json["error"]


def test_foreign_names_are_allowed_if_asked_for(emulator: Emulator) -> None:
    emulator.publish(resources=["web_0", "stranger"], foreign=True)
    assert emulator.events()[0]["Resources"] == ["web_0", "stranger"]
    emulator.publish(resources=["stranger"], foreign=True, scope="db")
    assert emulator.events("db")[0]["Resources"] == ["stranger"]


FLEETS: list[tuple[t.Any, str]] = [
    ("no json", "cannot read fleet"),
    ([], "must be a JSON object"),
    ({"vm": {}}, "no field 'vm'"),
    ({"vms": {}}, "at least one VM"),
    ({"vms": {"a b": {}}}, "letters, digits"),
    ({"vms": {"a": []}}, "must be a JSON object"),
    ({"vms": {"a": {"adress": "10.0.0.4"}}}, "no field 'adress'"),
    ({"vms": {"a": {"address": "somewhere"}}}, "is not an address"),
    ({"vms": {"a": {"port": "80"}}}, "whole number"),
    ({"vms": {"a": {"port": 70000}}}, "no port 70000"),
    ({"vms": {"a": {"scope": 1}}}, "scope must be text"),
    ({"vms": {"a": {"tags": {"k": 1}}}}, "tags must be"),
]


@pytest.mark.parametrize(("fleet", "says"), FLEETS)
def test_a_bad_fleet_is_refused_in_one_line(tmp_path: Path, fleet: t.Any, says: str) -> None:
    done = run("serve", "--fleet", written(tmp_path / "fleet.json", fleet))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["dance"], "invalid choice"),
        (["serve"], "--fleet --vm"),
        (["serve", "--fleet", "/nowhere/fleet.json"], "cannot read fleet"),
        (["serve", "--vm", "a", "--vm", "a"], "named twice"),
        (["serve", "--vm", "a", "--notice-scale", "0"], "less than"),
        (["serve", "--vm", "a", "--notice-scale", "fast"], "not a number"),
        (["serve", "--vm", "a", "--rate-limit", "-1"], "less than"),
        (["serve", "--vm", "a", "--unknown-id", "99"], "less than"),
        (["serve", "--vm", "a", "--newest-version", "latest"], "2024-07-09"),
        (["serve", "--vm", "a", "--bind", "192.0.2.1"], "cannot listen"),
        (["serve", "--vm", "a", "--port-base", "70000"], "cannot listen"),
        (["serve", "--vm", "a", "--by-address", "--port", "0"], "has no address"),
        (["serve", "--vm", "a", "--journal", "/nowhere/journal"], "cannot write journal"),
        (["serve", "--vm", "a", "--ready-file", "/nowhere/ready"], "cannot write ready file"),
        (["serve", "--vm", "a", "--on-start", "/nowhere/hook"], "no command '/nowhere/hook'"),
        (["serve", "--vm", "a", "--on-start", "'"], "--on-start"),
        (["scenario", "doomsday"], "neither a file nor one of"),
        (["state"], "--control URL"),
        (["state", "--ready-file", "/nowhere/ready"], "cannot read ready file"),
        (["publish", "Reboot", "--control", "http://127.0.0.1:1", "--set", "x"], "KEY=VALUE"),
    ],
)
def test_nonsense_on_the_command_line_is_refused_in_one_line(arguments: list[str], says: str) -> None:
    done = run(*arguments, env={key: value for key, value in os.environ.items() if key != "AZURE_EVENTS_CONTROL"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


@pytest.mark.parametrize(
    ("path", "command", "known"), [("/publish", "publish", "EventType, Resources, "), ("/fault", "fault", "kind, ")]
)
def test_the_help_explains_every_key_that_can_be_set(emulator: Emulator, path: str, command: str, known: str) -> None:
    error = emulator.control(path, {"no such key": 1}).json["error"]
    keys = error.partition("allowed: " + known)[2].rstrip(")").split(", ")
    shown = run(command, "--help").stdout.partition("keys of --set:")[2]
    explained = [line.split(maxsplit=1) for line in shown.splitlines() if line.strip()]
    assert [line[0] for line in explained if line[0] != "--set"] == keys
    assert len(keys) > 10
    assert all(len(line) == 2 for line in explained if line[0] in keys)


def test_an_emulator_that_does_not_answer_is_told_apart_from_a_refusal(emulator: Emulator) -> None:
    done = run("state", "--control", "http://127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = run("start", "unknown", "--control", emulator.ready["control"])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no event 'unknown'" in done.stderr
