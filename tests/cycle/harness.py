# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of loopback hosts with one emulator: runs the maintenance playbook, breaks things on the way, and judges."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ansible_collections.graceful.azure.plugins.module_utils import _record as records
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

Json = dict[str, t.Any]

HERE = Path(os.path.abspath(__file__)).parent
EMULATOR = COLLECTION / "roles" / "emulator" / "files" / "azure_events_emulator.py"
PATIENCE = 200
FOREVER = 10_000


@dataclass
class Run:
    status: int
    output: str
    report: Json

    @property
    def messages(self) -> str:
        return "\n".join(self.report.get("messages", []))


class Fleet:
    """Web hosts, web1 and so on, whose Azure names are shop_0 and so on; all in one scope unless scopes are given."""

    def __init__(self, directory: Path, size: int = 3, scopes: t.Sequence[str] = ("fleet",)) -> None:
        self.directory = directory
        self.names = {f"web{number + 1}": f"shop_{number}" for number in range(size)}
        self.variables: dict[str, Json] = {}
        self.common: Json = {}
        # Further settings of Ansible, as environment variables.
        self.settings: dict[str, str] = {}
        self._journal = directory / "journal"
        fleet = directory / "fleet.json"
        vms = {name: {"scope": scopes[number % len(scopes)]} for number, name in enumerate(self.names.values())}
        fleet.write_text(json.dumps({"vms": vms}))
        serve = [sys.executable, str(EMULATOR), "serve", "--fleet", str(fleet), "--journal", str(self._journal)]
        self._emulator = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        assert self._emulator.stdout
        self.ready: Json = json.loads(self._emulator.stdout.readline())
        for host, name in self.names.items():
            self._make_host(host, self.ready["vms"][name])

    def _make_host(self, host: str, endpoint: str) -> None:
        home = self.home(host)
        (home / "ephemeral").mkdir(parents=True)
        (home / "ephemeral" / "cache").write_text(f"precious data of {host}")
        self.variables[host] = {
            "home": str(home),
            "fate": str(home / "fate"),
            "graceful_endpoint": endpoint,
            "graceful_record_dir": str(home / "records"),
            "graceful_checkpoint_dir": str(home / "checkpoints"),
        }

    def home(self, host: str) -> Path:
        return self.directory / host

    def stop(self) -> None:
        self._emulator.terminate()
        self._emulator.wait(10)

    # ---- Azure's side

    def control(self, path: str, spec: Json) -> Json:
        request = urllib.request.Request(f"{self.ready['control']}/{path}", json.dumps(spec).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as response:
            return t.cast(Json, json.load(response))

    def announce(self, *hosts: str, **more: t.Any) -> str:
        """An event that starts when it is approved and is then over after two seconds; otherwise nothing happens."""
        resources = [self.names.get(host, host) for host in hosts]
        spec = {"EventType": "Reboot", "Resources": resources, "notice": 900, "started_for": 2, **more}
        return str(self.control("publish", spec)["EventId"])

    def journal(self) -> list[Json]:
        whole, _newline, _half_written = self._journal.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, text: str) -> bool:
        """Whether a run has said so by now."""
        return any(text in output.read_text() for output in self.directory.glob("ansible-*/output"))

    def happened(self, what: str) -> list[Json]:
        return [line for line in self.journal() if line["kind"] == "event" and line["what"] == what]

    def posts(self) -> list[Json]:
        return [line for line in self.journal() if line["kind"] == "request" and line["method"] == "POST"]

    # ---- the hosts' side

    def drop(self, host: str, times: int = FOREVER) -> None:
        """From now on the connection to the host fails."""
        file = self.home(host) / "fate"
        file.with_suffix(".new").write_text(json.dumps({"kind": "drop", "times": times}))
        file.with_suffix(".new").replace(file)

    def come_back(self, host: str) -> None:
        (self.home(host) / "fate").unlink(missing_ok=True)

    def record(self, host: str) -> Json | None:
        with contextlib.suppress(OSError, ValueError):
            return t.cast(Json, json.loads((self.home(host) / "records" / "record.json").read_text()))
        return None

    def marks(self, host: str) -> list[str]:
        """What the host has noted so far."""
        return [mark["what"] for mark in (self.record(host) or {}).get("timeline", [])]

    def keeper(self, host: str, run_id: str, **more: t.Any) -> records.Keeper:
        """The record of a host in the hands of another run."""
        run = records.Run(run_id, f"the run {run_id}", **more)
        return records.Keeper(str(self.home(host) / "records"), run, log=lambda _text: None)

    def is_drained(self, host: str) -> bool:
        return (self.home(host) / "drained").exists()

    def log(self, host: str) -> list[tuple[float, str]]:
        file = self.home(host) / "log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(float(line.split()[0]), line.split()[1]) for line in lines]

    # ---- the controller's side

    def run(self, *arguments: str, playbook: str = "maintenance", kill_when: t.Callable[[], bool] | None = None) -> Run:
        reports = self.directory / "reports"
        with contextlib.suppress(FileNotFoundError):
            (reports / "latest.json").unlink()
        process, output = self._start(playbook, reports, arguments)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            if kill_when and kill_when():
                break
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        latest = reports / "latest.json"
        return Run(status, output.read_text(), json.loads(latest.read_text()) if latest.exists() else {})

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A run in the background, for two at once."""
        return self._start("maintenance", self.directory / "reports", arguments)[0]

    def _start(self, playbook: str, reports: Path, arguments: t.Sequence[str]) -> tuple[subprocess.Popen[bytes], Path]:
        launch = self.launch(playbook, reports, arguments)
        output = launch.home / "output"
        return launch.start(output), output

    def launch(self, playbook: str, reports: Path, arguments: t.Sequence[str]) -> Launch:
        web = {"hosts": self.variables, "vars": {**self._defaults(), **self.common}}
        (draft := self.directory / "inventory.draft").write_text(json.dumps({"web": web}))
        # Another run may be reading it.
        inventory = draft.replace(self.directory / "inventory.yml")
        home = self.directory / f"ansible-{time.monotonic_ns()}"
        home.mkdir()
        variables = {"graceful_report_dir": str(reports), "graceful_report_always": True}
        # A name is one of our playbooks, a path is a project's own.
        name = playbook if "/" in playbook else f"graceful.azure.{playbook}"
        return Launch(name, inventory, home, arguments, variables, settings=self.settings)

    @staticmethod
    def _defaults() -> Json:
        return {
            "ansible_connection": "frail",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "graceful_gone_timeout": 120,
            "graceful_drain_steps": [
                {
                    "name": "service",
                    "kind": "tasks",
                    "do": str(HERE / "drain.yml"),
                    "undo": str(HERE / "undrain.yml"),
                    "probe": str(HERE / "probe.yml"),
                }
            ],
            "graceful_checkpoint": [{"name": "cache", "kind": "paths", "paths": ["{{ home }}/ephemeral"]}],
        }

    @contextlib.contextmanager
    def once(self, happens: t.Callable[[], bool], then: t.Callable[[], t.Any]) -> t.Iterator[threading.Event]:
        """While a run is under way: do something as soon as something has happened."""
        over, done = threading.Event(), threading.Event()
        failures: list[Exception] = []

        def watch() -> None:
            try:
                while not over.is_set():
                    if happens():
                        then()
                        done.set()
                        return
                    time.sleep(0.05)
            except Exception as exc:
                failures.append(exc)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield done
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]

    # ---- the judge

    def check_invariant(self) -> None:
        """No event was approved while an affected host was not ready: by the emulator's journal and the hosts' logs."""
        hosts = {name: host for host, name in self.names.items()}
        for approval in self.happened("approved"):
            for name in approval["Resources"]:
                assert name in hosts, f"approved although nobody knows {name}"
                before = [what for at, what in self.log(hosts[name]) if at <= approval["time"]]
                assert before, f"{hosts[name]} was not drained when the event was approved"
                assert before[-1] == "drained", f"{hosts[name]} was back in service when the event was approved"
        approved = [line["EventId"] for line in self.happened("approved")]
        assert len(approved) == len(set(approved)), "approved more than once"

    def check_all_back(self) -> None:
        for host in self.names:
            assert not self.is_drained(host), f"{host} was left drained"
            assert self.record(host) is None, f"{host} has an open record"


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
