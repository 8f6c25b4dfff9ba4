# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays many cases at once: one emulated VM and one inventory host per case, one playbook for all of them."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
import time
import typing as t
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

Json = dict[str, t.Any]

HERE = Path(os.path.abspath(__file__)).parent
EMULATOR = COLLECTION / "roles" / "emulator" / "files" / "azure_events_emulator.py"
EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"
NAMESPACE = "ansible_collections.graceful.azure.tests.integration.namespace"
# What runs in the namespace ends with it, also when the tests are killed.
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
UNSHARE += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
TRACEBACK = "Traceback (most recent call last)"
UNPRINTABLE = re.compile(r"[^\x20-\x7e\n\u00a0-\uffff\U00010000-\U0010ffff]")
PATIENCE = 400


@dataclass(frozen=True)
class Step:
    """What happens to a case's VM once it has polled so often since the step before: a control command, or its fate."""

    action: str
    spec: Json = field(default_factory=dict)
    polls: int = 1


@dataclass(frozen=True)
class Raw:
    """An answer byte by byte as it is, for what the emulator does not do."""

    answer: bytes
    interval: float = 0.0


@dataclass(frozen=True)
class Case:
    name: str
    options: Json = field(default_factory=dict)
    group: str = "info"
    events: t.Sequence[Json] = ()
    faults: t.Sequence[Json] = ()
    script: t.Sequence[Step] = ()
    neighbours: t.Sequence[str] = ()
    raw: Raw | None = None
    etag: bool = False
    variables: Json = field(default_factory=dict)
    library_missing: bool = False
    first: bool = False
    # What is expected. No words for a failure: the task must be ok. Warnings are exactly as many as have words here.
    words: t.Sequence[str] = ()
    warns: t.Sequence[str] = ()
    result: Json = field(default_factory=dict)
    polls: int | None = None
    posts: t.Sequence[t.Sequence[str]] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def seconds_asked(self) -> float:
        """What the timeouts add up to; an approval may read and post."""
        given = {"connect_timeout": 5, "read_timeout": 10, "timeout": 120 if self.waits else 0, **self.options}
        asked = [
            float(given[name]) for name in ("connect_timeout", "read_timeout", "timeout") if is_number(given[name])
        ]
        return sum(asked) * (2 if self.group == "approve" else 1)

    @property
    def waits(self) -> bool:
        return self.group in ("wait", "background")

    def event_id(self, number: int = 1) -> str:
        return f"{self.name}-{number}".upper()


def is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and value >= 0


@dataclass(frozen=True)
class Outcome:
    status: str
    seconds: float
    result: Json
    requests: list[Json]
    happenings: list[Json]

    @property
    def reads(self) -> list[Json]:
        return [line for line in self.requests if line["method"] == "GET" and line["path"] == EVENTS_PATH]

    @property
    def posts(self) -> list[list[str]]:
        bodies = [json.loads(line["body"]) for line in self.requests if line["method"] == "POST"]
        return [[one["EventId"] for one in body["StartRequests"]] for body in bodies]

    def happened(self, what: str) -> int:
        """How often the journal says so."""
        return sum(line["what"] == what for line in self.happenings)


class Emulator:
    """A running emulator, with what the cases want published and broken, and what is to happen as they poll."""

    def __init__(self, directory: Path, cases: t.Sequence[Case], *arguments: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.cases = cases
        self.errors: list[str] = []
        self.journal_file = directory / "journal"
        vms = {name: {"scope": case.name} for case in cases for name in (case.name, *case.neighbours)}
        fleet = directory / "fleet.json"
        fleet.write_text(json.dumps({"vms": vms}))
        command = [sys.executable, str(EMULATOR), "serve", "--fleet", str(fleet), "--journal", str(self.journal_file)]
        self._process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        ready = json.loads(self._process.stdout.readline())
        self.endpoints: dict[str, str] = ready["vms"]
        self._control = ready["control"].removeprefix("http://")
        for case in cases:
            for number, event in enumerate(case.events, 1):
                whose = {"Resources": [case.name], "scope": case.name, "EventId": case.event_id(number)}
                self.control("publish", {"EventType": "Reboot", **whose, **event})
            for fault in case.faults:
                self.control("fault", {"vm": case.name, **fault})
        self._over = threading.Event()
        self._director = threading.Thread(target=self._direct, daemon=True)
        self._director.start()

    def control(self, path: str, spec: Json) -> None:
        connection = http.client.HTTPConnection(self._control, timeout=20)
        with contextlib.closing(connection):
            connection.request("POST", f"/{path}", json.dumps(spec))
            response = connection.getresponse()
            answer = response.read().decode()
        if response.status != 200:
            raise AssertionError(f"emulator: {path} {spec}: {answer}")

    @functools.cached_property
    def journal(self) -> list[Json]:
        """Complete once the plays are over."""
        return [json.loads(line) for line in self.journal_file.read_text().splitlines()]

    def _direct(self) -> None:
        left = {case.name: list(case.script) for case in self.cases if case.script}
        polls: Counter[str] = Counter()
        since: dict[str, float] = {}
        with self.journal_file.open() as journal:
            line = ""
            while left and not self._over.is_set():
                line += journal.readline()
                if not line.endswith("\n"):
                    time.sleep(0.02)
                    continue
                entry, line = json.loads(line), ""
                vm = entry.get("vm")
                # What was asked before a step has not seen it, and does not count for the next one.
                if vm not in left or entry.get("path") != EVENTS_PATH or entry["time"] < since.get(vm, 0):
                    continue
                polls[vm] += 1
                while vm in left and polls[vm] >= left[vm][0].polls:
                    self._do(vm, left[vm].pop(0))
                    polls[vm], since[vm] = 0, time.time()
                    if not left[vm]:
                        del left[vm]

    def _do(self, vm: str, step: Step) -> None:
        try:
            if step.action == "fate":
                file = self.directory / f"{vm}.fate"
                file.with_suffix(".new").write_text(json.dumps(step.spec))
                file.with_suffix(".new").replace(file)
                return
            default: Json = {"vm": vm} if step.action == "fault" else {"EventId": f"{vm}-1".upper()}
            if step.action == "publish":
                default |= {"EventType": "Reboot", "Resources": [vm], "scope": vm}
            self.control(step.action, {**default, **step.spec})
        except Exception as error:
            self.errors.append(f"{vm}: {step}: {error}")

    def stop(self) -> None:
        self._over.set()
        self._director.join()
        self._process.terminate()
        self._process.wait(10)


class RawServer(socketserver.ThreadingTCPServer):
    """Gives everyone who has sent a request the same bytes."""

    daemon_threads = True

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        super().__init__(("127.0.0.1", 0), RawHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class RawHandler(socketserver.StreamRequestHandler):
    server: RawServer

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        raw = self.server.raw
        pieces = [raw.answer[at : at + 1] for at in range(len(raw.answer))] if raw.interval else [raw.answer]
        with contextlib.suppress(OSError):
            for piece in pieces:
                time.sleep(raw.interval)
                self.wfile.write(piece)


def recorded(file: Path) -> dict[str, str]:
    """Settings with which what became of every task is written to that file."""
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "plugins" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "recorder",
        "GRACEFUL_RECORD": str(file),
    }


class Play:
    """A playbook running in the background, and what it recorded of every host."""

    def __init__(
        self,
        playbook: str,
        inventory: Json,
        directory: Path,
        forks: int = 8,
        more_settings: t.Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir()
        self._record = directory / "record"
        self._record.touch()
        hosts = directory / "inventory.json"
        hosts.write_text(json.dumps(inventory))
        settings = {**recorded(self._record), **(more_settings or {})}
        self._stdout, self._stderr = directory / "stdout", directory / "stderr"
        launch = Launch(HERE / playbook, hosts, directory / "ansible", forks=forks, settings=settings)
        self._process = launch.start(self._stdout, self._stderr)

    def wait(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.stop()

    @functools.cached_property
    def stdout(self) -> str:
        self.wait()
        return self._stdout.read_text()

    @functools.cached_property
    def stderr(self) -> str:
        self.wait()
        return self._stderr.read_text()

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    @functools.cached_property
    def records(self) -> list[Json]:
        self.wait()
        return [json.loads(line) for line in self._record.read_text().splitlines()]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)


def inventory_of(hosts: t.Mapping[str, tuple[str, Json]]) -> Json:
    """From each host's group and variables."""
    groups: Json = {"info": {}, "hostile": {}, "approve": {}, "defaults": {}, "wait": {}, "background": {}}
    for host, (group, _variables) in hosts.items():
        groups[group].setdefault("hosts", {})[host] = None
    here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    variables = {host: variables for host, (_group, variables) in hosts.items()}
    return {"all": {"hosts": variables, "vars": here, "children": groups}}


class Stage:
    """All cases, under way: the reads in one play, the waits, which mostly sleep, in another one beside it."""

    def __init__(self, cases: t.Sequence[Case], directory: Path) -> None:
        self._raw = {case.name: RawServer(case.raw) for case in cases if case.raw}
        self._bare = directory / "bare"
        if any(case.library_missing for case in cases):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self._bare)], check=True)
        self._emulators = [
            Emulator(directory / "emulator", [case for case in cases if not case.etag]),
            Emulator(directory / "etag-emulator", [case for case in cases if case.etag] or [Case("nobody")], "--etag"),
        ]
        # They all begin at once: they mostly sleep.
        waits = sorted((case for case in cases if case.waits), key=lambda case: not case.first)
        reads = [case for case in cases if not case.waits]
        self._waits = self._play("waits.yml", waits, directory / "waits", forks=12)
        self._reads = self._play("reads.yml", reads, directory / "reads", forks=8)

    def _play(self, playbook: str, cases: t.Sequence[Case], directory: Path, forks: int) -> Play:
        hosts = {}
        for case in cases:
            emulator = self._emulators[case.etag]
            service = self._raw[case.name].url if case.raw else emulator.endpoints[case.name]
            fate = str(emulator.directory / f"{case.name}.fate")
            variables = {"given": case.options, "service": service, "fate": fate, **case.variables}
            if case.library_missing:
                variables["ansible_python_interpreter"] = str(self._bare / "bin" / "python")
            hosts[case.name] = (case.group, variables)
        inventory = inventory_of(hosts)
        groups = inventory["all"]["children"]
        groups["info"]["hosts"] = {**groups["info"].get("hosts", {}), **groups["hostile"].get("hosts", {})}
        return Play(playbook, inventory, directory, forks)

    def play_of(self, case: Case) -> Play:
        return self._waits if case.waits else self._reads

    def outcome(self, case: Case, task: str | None = None) -> Outcome:
        """What became of the case's task, which is named like its module unless told otherwise."""
        wanted = task or {"approve": "Approve", "wait": "Wait", "background": "Wait"}.get(case.group, "Info")
        self._reads.wait()
        self._waits.wait()
        play, emulator = self.play_of(case), self._emulators[case.etag]
        found = [line for line in play.records if line["host"] == case.name and line["task"] == wanted]
        assert found, f"no task {wanted!r} ran on {case.name}:\n{play.output[-3000:]}"
        assert not emulator.errors
        journal = emulator.journal
        ids = {case.event_id(number) for number in range(1, len(case.events) + 1)}
        return Outcome(
            found[0]["status"],
            found[0]["seconds"],
            found[0]["result"],
            [line for line in journal if line["kind"] == "request" and line["vm"] == case.name],
            [line for line in journal if line["kind"] == "event" and line["EventId"] in ids],
        )

    def all_requests(self) -> list[Json]:
        """Of all cases."""
        self._reads.wait()
        self._waits.wait()
        journals = [line for emulator in self._emulators for line in emulator.journal]
        return [line for line in journals if line["kind"] == "request"]

    def stop(self) -> None:
        for play in (self._reads, self._waits):
            play.stop()
        for emulator in self._emulators:
            emulator.stop()
        for server in self._raw.values():
            server.shutdown()
            server.server_close()


class NamespaceReads:
    """Reads without an endpoint, in a network of their own; or the reason why that cannot be had here."""

    def __init__(self, directory: Path) -> None:
        self.obstacle = self._obstacle(directory)
        self._output = directory / "output"
        self._process: subprocess.Popen[bytes] | None = None
        if self.obstacle:
            return
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [*UNSHARE, sys.executable, "-m", NAMESPACE, os.readlink("/proc/self/ns/net"), str(directory)],
                env={**os.environ, "PYTHONPATH": str(COLLECTION.parents[2])},
                stdout=output,
            )

    @staticmethod
    def _obstacle(directory: Path) -> str | None:
        if not all(map(shutil.which, ("unshare", "ip", "mount"))):
            return "unshare and mount (util-linux) and ip (iproute2) are not all here"
        trial = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
        if trial.returncode:
            return f"it is not allowed here ({trial.stderr.strip()})"
        if any(Path("/var/lib") in place.parents for place in (directory, COLLECTION.resolve(), Path(sys.prefix))):
            return "it gets another /var/lib, and the tests themselves lie there"
        return None

    @functools.cached_property
    def records(self) -> dict[str, Json]:
        """By place; fails if the namespace's script did."""
        assert self._process
        assert self._process.wait(PATIENCE) == 0
        return {line["host"]: line for line in map(json.loads, self._output.read_text().splitlines())}

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)


def judge(case: Case, outcome: Outcome) -> None:
    """What the case's fields promise, and what every case has to keep."""
    result = outcome.result
    told = json.dumps(result, indent=1)
    assert outcome.status == ("failed" if case.words else "ok"), told
    assert case.library_missing or TRACEBACK not in told, told
    # The shell's word for what could not be run is all that may stand there.
    assert "rc" in result or "module_stderr" not in result, told
    for word in case.words:
        assert word in result["msg"], told
    if case.words:
        assert not UNPRINTABLE.search(result["msg"]), told
        # Starting the task may take long on a busy machine; what the module counts itself does not include that.
        assert outcome.seconds < case.seconds_asked + 120
        counted = re.search(r"Tried \d+ times? in (\d+\.\d) s", result["msg"])
        assert not counted or float(counted[1]) < case.seconds_asked + 5, told
    warnings = result.get("warnings", [])
    assert len(warnings) == len(case.warns), warnings
    for word in case.warns:
        assert any(word in warning for warning in warnings), warnings
    for name, value in case.result.items():
        assert result[name] == value, told
    if case.polls is not None:
        assert len(outcome.reads) == case.polls
    if case.posts is not None:
        assert outcome.posts == [list(ids) for ids in case.posts]
