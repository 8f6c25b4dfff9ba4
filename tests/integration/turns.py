# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays turns: one host and one event per case, and in each turn a role is applied to it or the module gets an order.

All hosts are this machine. Each is a VM of one emulator."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.tests.integration.harness import EMULATOR, recorded
from ansible_collections.graceful.azure.tests.tools.launcher import Launch

Json = dict[str, t.Any]
HERE = Path(os.path.abspath(__file__)).parent
HOSTILE = "{{ lookup('ansible.builtin.pipe', 'touch ' ~ reports ~ '/evil') }}"
# What happens to the event before the turn.
GONE, STARTED = "cancel", "start"
PATIENCE = 900


def health(name: str = "balancer", **more: t.Any) -> Json:
    probing = {"url": "{{ health }}", "marker": "{{ work }}/out", "interval": 0.2, "threshold": 2}
    return {"name": name, "kind": "health_probe", **probing, **more}


def switch(name: str) -> Json:
    """A program that is on or off: a file, and each change is written down."""

    def turned(verb: str, what: str) -> list[str]:
        return ["/bin/sh", "-c", f"{verb} {{{{ work }}}}/{name} && echo {what} {name} >> {{{{ work }}}}/orders"]

    on, off = turned("touch", "on"), turned("rm", "off")
    probe = ["/bin/sh", "-c", f"! test -e {{{{ work }}}}/{name}"]
    return {"name": name, "kind": "command", "do": off, "undo": on, "probe": probe}


@dataclass(frozen=True)
class Case:
    name: str
    steps: t.Any = ()
    turns: t.Sequence[Json] = ({},)
    variables: Json = field(default_factory=dict)
    files: t.Sequence[str] = ()
    saves: t.Any = ()
    # The event, as the role is told of it, and as Azure announces it.
    event: Json = field(default_factory=dict)
    announced: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def event_id(self) -> str:
        return f"{self.name}-1".upper()


class Outcome(t.NamedTuple):
    reports: list[Json]
    folder: Path
    requests: list[Json]

    @property
    def report(self) -> Json:
        return self.reports[0]

    @property
    def record(self) -> Json | None:
        file = self.folder / "records" / "record.json"
        return t.cast(Json, json.loads(file.read_text())) if file.exists() else None

    @property
    def noted(self) -> dict[str, str]:
        return {step["name"]: step["status"] for step in (self.record or {"steps": []})["steps"]}

    @property
    def did(self) -> list[str]:
        file = self.folder / "did"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def posts(self) -> int:
        return sum(line["method"] == "POST" for line in self.requests)

    def statuses(self, number: int = 0) -> dict[str, str]:
        return {step["name"]: step["status"] for step in self.reports[number]["steps"]}


class HealthServer(http.server.ThreadingHTTPServer):
    """/HOST/health is 503 if the host has a file `out`; a POST to /HOST/out or /HOST/in makes and removes that."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(("127.0.0.1", 0), HealthHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HealthHandler(http.server.BaseHTTPRequestHandler):
    server: HealthServer

    def do_GET(self) -> None:
        host, what = self.path.split("/")[1:]
        out = what == "health" and (self.server.folder / host / "out").exists()
        self._answer(503 if out else 200)

    def do_POST(self) -> None:
        host, way = self.path.split("/")[1:]
        file = self.server.folder / host / "out"
        file.touch() if way == "out" else file.unlink()
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


def needed(request: pytest.FixtureRequest, cases: t.Sequence[Case]) -> list[Case]:
    """All cases of a module; only those that its selected tests name, if all of these are marked as quick."""
    marks = [
        item.get_closest_marker("quick")
        for item in request.session.items
        if item.nodeid.startswith(request.node.nodeid)
    ]
    if not all(marks):
        return list(cases)
    names = {case.name for mark in marks if mark for case in mark.kwargs.get("cases", ())}
    return [case for case in cases if case.name in names]


class Stage:
    """All cases, played at once."""

    def __init__(
        self, cases: t.Sequence[Case], folder: Path, *arguments: str, files: t.Mapping[str, t.Any] | None = None
    ) -> None:
        self.folder = folder
        self.reports = folder / "reports"
        self.reports.mkdir()
        for name, content in (files or {}).items():
            (folder / f"{name}.yml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        emulator = self._emulator(cases)
        server = HealthServer(folder)
        inventory = folder / "inventory.json"
        hosts = {case.name: self._host(case, server) for case in cases}
        inventory.write_text(json.dumps({"all": {"vars": self._variables(), "hosts": hosts}}))
        settings = recorded(folder / "results")
        launch = Launch(HERE / "turns.yml", inventory, folder / "ansible", arguments, forks=8, settings=settings)
        try:
            done = launch.run(PATIENCE)
        finally:
            emulator.terminate()
            emulator.wait(10)
            server.shutdown()
            server.server_close()
        self.code, self.output = done.returncode, done.stdout
        self._requests = [line for line in _lines(folder / "journal") if line["kind"] == "request"]
        self._results = [line for line in _lines(folder / "results") if line["task"].startswith(("Report", "Say"))]

    def _emulator(self, cases: t.Sequence[Case]) -> subprocess.Popen[str]:
        (self.folder / "fleet.json").write_text(
            json.dumps({"vms": {case.name: {"scope": case.name} for case in cases}})
        )
        serve = ["serve", "--fleet", str(self.folder / "fleet.json"), "--journal", str(self.folder / "journal")]
        process = subprocess.Popen([sys.executable, str(EMULATOR), *serve], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        self._endpoints: dict[str, str] = ready["vms"]
        self._control = ready["control"]
        for case in cases:
            details = {"EventId": case.event_id, "started_for": 600, **case.announced}
            more = [word for key, value in details.items() for word in ("--set", f"{key}={value}")]
            subprocess.run(self._steer("publish", "Reboot", case.name, *more), check=True, stdout=subprocess.DEVNULL)
        return process

    def _steer(self, *arguments: str) -> list[str]:
        return [sys.executable, str(EMULATOR), arguments[0], "--control", self._control, *arguments[1:]]

    def _variables(self) -> Json:
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "reports": str(self.reports),
            "work": f"{self.folder}/{{{{ inventory_hostname }}}}",
            "fate": "{{ work }}.fate",
            # The role restore is given its own variables, the others take them from these.
            "graceful_record_dir": "{{ work }}/records",
            "graceful_checkpoint_dir": "{{ work }}/archives",
            "seconds": 300,
            "checkpoint_controller_directory": "{{ reports }}/archives",
            "restore_record_dir": "{{ work }}/records",
            "restore_controller_directory": "{{ reports }}/archives",
        }

    def _host(self, case: Case, server: HealthServer) -> Json:
        work = self.folder / case.name
        work.mkdir(mode=0o700)
        for name in case.files:
            (work / name).write_text(name)
        event = {"event_id": case.event_id, "event_type": "Reboot", "event_status": "Scheduled", "description": HOSTILE}
        (self.reports / f"{case.name}.event").write_text(json.dumps({**event, "resources": [case.name], **case.event}))
        endpoint = self._endpoints[case.name]
        return {
            "steps": case.steps,
            "saves": case.saves,
            "turns": [self._turn(case, turn) for turn in case.turns],
            "health": f"{server.url}/{case.name}/health",
            "service": f"{server.url}/{case.name}",
            "graceful_endpoint": endpoint,
            "restore_endpoint": endpoint,
            "approve_leaders": [case.name],
            **case.variables,
        }

    def _turn(self, case: Case, turn: Json) -> Json:
        """With the command that makes happen what happens to the event before."""
        event = turn.get("event")
        if "take" in turn:
            turn = {**turn, "first": ["rm", "-r", str(self.folder / case.name / turn["take"])]}
        return {**turn, "then": self._steer(event, case.event_id)} if event else turn

    def outcome(self, case: Case) -> Outcome:
        *reports, last = [line["result"]["msg"] for line in self._results if line["host"] == case.name] or [""]
        assert last == f"{case.name} is still there", f"{case.name} was lost:\n{self.output[-6000:]}"
        assert len(reports) == len(case.turns), self.output[-6000:]
        requests = [line for line in self._requests if line["vm"] == case.name]
        return Outcome(reports, self.folder / case.name, requests)


def _lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_text().splitlines()]
