# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the real ansible-rulebook with our rulebooks, as a process of its own, and talks to its sources."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import yaml
from ansible_collections.graceful.azure.plugins.module_utils._watcher.changes import Change, Source, message
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

Json = dict[str, t.Any]
PROGRAM = Path(sys.executable).with_name("ansible-rulebook")
RULEBOOKS = COLLECTION / "extensions" / "eda" / "rulebooks"
NOOP = COLLECTION / "tests" / "eda" / "noop.yml"
TOKEN = "a-token-for-the-tests"
# A busy machine starts Java in a minute, and a playbook in half of one.
PATIENCE = 240.0
LOCAL = {"all": {"hosts": {"runner": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}}


def java_is_missing() -> str:
    """Why ansible-rulebook cannot run here; empty if it can."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not PROGRAM.exists():
        return "ansible-rulebook is not in this environment"
    if not java or not os.path.exists(java):
        return "there is no Java: install openjdk-17-jre-headless"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return "" if found and int(found[1]) >= 17 else "Java is older than 17: install openjdk-17-jre-headless"


def until(what: t.Callable[[], t.Any], patience: float = PATIENCE) -> t.Any:
    deadline = time.monotonic() + patience
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def told(change: str, event_id: str, host: str = "web1", sequence: int = 0, **more: t.Any) -> Json:
    """A message as the watcher of a host makes it. More are fields of the event; `drained` is the host's."""
    drained = more.pop("drained", False)
    event = {"event_id": event_id, "event_type": "Reboot", "event_status": "Scheduled", "resources": ["shop_0"], **more}
    made = message(Change(change, event), Source(host, "shop_0", "boot"), sequence, 0.0)
    made["data"]["record"]["drained"] = drained
    return made


class Reply(t.NamedTuple):
    status: int
    headers: t.Mapping[str, str]
    body: bytes

    @property
    def json(self) -> t.Any:
        return json.loads(self.body)


def request(
    port: int, method: str, path: str, body: bytes | None = None, headers: t.Mapping[str, str] | None = None
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Reply(response.status, dict(response.headers), response.read())


class Rulebook:
    """One ansible-rulebook. With `noop` the runs that it starts only note that they were started."""

    def __init__(self, directory: Path, name: str, noop: bool = True, **variables: t.Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.runs_directory = directory / "runs"
        self.runs_directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "rulebook.log"
        self.inventory = directory / "inventory"
        self.settings: dict[str, str] = {}
        self.arguments: list[str] = []
        self.variables = {
            "graceful_port": self.port,
            "graceful_token": TOKEN,
            "graceful_event_grid_secret": TOKEN,
            **variables,
        }
        self.rulebook = f"graceful.azure.{name}" if (RULEBOOKS / f"{name}.yml").exists() else name
        if noop:
            self.rulebook = str(directory / f"{name}.yml")
            text = (RULEBOOKS / f"{name}.yml").read_text()
            assert text.count("name: graceful.azure.maintenance\n") == 2
            text = text.replace("name: graceful.azure.maintenance\n", f"name: {NOOP}\n")
            Path(self.rulebook).write_text(text)
            self.inventory.mkdir(exist_ok=True)
            (self.inventory / "hosts.yml").write_text(json.dumps(LOCAL))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait: bool = True) -> None:
        file = self.directory / "vars.yml"
        file.write_text(json.dumps(self.variables))
        launch = Launch("", "", self.directory / "home")
        launch.home.mkdir(exist_ok=True)
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {
            **launch.environment,
            "PATH": os.pathsep.join([str(PROGRAM.parent), *os.get_exec_path()]),
            "GRACEFUL_EDA_RUNS": str(self.runs_directory),
            "TMPDIR": str(temporary),
            **self.settings,
        }
        inventory = ["-i", str(self.inventory)] if self.inventory.exists() else []
        command = [str(PROGRAM), "-r", self.rulebook, *inventory, "-e", str(file), *self.arguments]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
                cwd=self.directory,
            )  # fmt: skip
        if wait:
            until(self._listens)

    def _listens(self) -> bool:
        assert self.process
        assert self.process.poll() is None, self.log
        with socket.socket() as one:
            one.settimeout(5)
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The process alone: what becomes of its runs is its own affair."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(30)

    def close(self) -> None:
        if self.process is not None:
            self.stop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def says(self, text: str) -> None:
        until(lambda: text in self.log)

    def post(self, content: t.Any, token: str | None = TOKEN, path: str = "/") -> int:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"Content-Type": "application/cloudevents+json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return request(self.port, "POST", path, body, headers).status

    # ---- what it has started

    @property
    def _notes(self) -> list[Path]:
        notes = [file for file in self.runs_directory.iterdir() if not file.name.startswith(".")]
        return sorted(notes, key=lambda file: file.stat().st_mtime)

    @property
    def runs(self) -> list[Json]:
        """The extra variables of each run."""
        return [yaml.safe_load(file.read_text()) for file in self._notes]

    @property
    def run_times(self) -> list[float]:
        return [file.stat().st_mtime for file in self._notes]

    @property
    def events(self) -> list[str]:
        """The events that runs were started for."""
        return [run["graceful_event"]["data"]["event"]["event_id"] for run in self.runs]

    @property
    def is_busy(self) -> bool:
        """Whether runs are under way: each has a directory of its own."""
        return any((self.directory / "tmp").glob("eda*"))

    def settle(self) -> None:
        """Until no run is under way; one may have waited for the end of another."""
        for _each in range(3):
            until(lambda: not self.is_busy)
            time.sleep(0.2)

    def answers_to(self, event_id: str) -> None:
        """Tell of another event, and wait for its run and all others: what was told before is done with then."""
        assert self.post(told("appeared", event_id)) == 200
        until(lambda: event_id in self.events)
        self.settle()
