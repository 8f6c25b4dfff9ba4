# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the watcher as its service does, packed into one file and as a process of its own, with real receivers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import typing as t
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ansible_collections.graceful.azure.plugins.plugin_utils._watcher_program import pack
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, until

Json = dict[str, t.Any]
# Any Python that the hosts may have.
PYTHON = os.environ.get("WATCHER_PYTHON", sys.executable)
ALL_CHANGES = ["appeared", "changed", "started", "gone", "back"]


def looks_again(emulator: Emulator, times: int = 6) -> None:
    """Until a watcher has read the events so many times more: what it does not do by then, it does not do."""
    seen = emulator.journal()[-1]["n"]

    def reads() -> int:
        return sum("scheduledevents" in line["path"] for line in emulator.journal("request", since=seen))

    until(lambda: reads() >= times, 60)


class Got(t.NamedTuple):
    method: str
    path: str
    headers: t.Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return t.cast(Json, json.loads(self.body))


class Server:
    """An HTTP server on loopback that remembers what it got. It can go away and come back at the same address."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.got: list[Got] = []
        # What it answers: a status, and JSON for the body.
        self.answer: t.Callable[[Got], tuple[int, t.Any]] = lambda _got: (200, {})
        self._certificate = certificate
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                got = Got(self.command, self.path, dict(self.headers), body)
                status, content = outer.answer(got)
                outer.got.append(got)
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET

            def log_message(self, *_args: t.Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def messages(self) -> list[Json]:
        return [got.json for got in self.got]

    @property
    def changes(self) -> list[str]:
        return [message["data"]["change"] for message in self.messages]

    def no_id_twice(self) -> bool:
        return not any(number > 1 for number in Counter(message["id"] for message in self.messages).values())


class Host:
    """One host with a watcher."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        self.directory = directory
        self.program = directory / "watcher.pyz"
        self.program.write_bytes(pack())
        self.config: Json = {
            "version": 1,
            "host": "web1",
            "state_dir": str(directory / "state"),
            "record_dir": str(directory / "records"),
            "metrics_file": str(directory / "metrics.prom"),
            "poll_interval": 0.2,
            "endpoint": endpoint,
            "secrets_file": str(directory / "secrets.json"),
            "receivers": [],
        }
        self.secrets: Json = {"receivers": {}, "steps": {}}
        self.log_file = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def tells(self, server: Server, name: str = "eda", secrets: Json | None = None, **options: t.Any) -> None:
        self.config["receivers"].append({"name": name, "changes": ALL_CHANGES, **options})
        self.secrets["receivers"][name] = {"url": server.url, **(secrets or {})}

    def acts(self, **options: t.Any) -> None:
        """It drains itself by a file that is there while it is in service."""
        service = self.service
        service.write_text("in service")
        step = {
            "name": "application",
            "kind": "command",
            "timeout": None,
            "options": {
                "do": ["/bin/mv", str(service), f"{service}.out"],
                "probe": ["/usr/bin/test", "-e", f"{service}.out"],
                "undo": ["/bin/mv", f"{service}.out", str(service)],
                "become_user": None,
                "environment": None,
            },
        }
        self.config["on_its_own"] = {"steps": [step], "checkpoint_dir": str(self.directory / "saved"), **options}

    @property
    def service(self) -> Path:
        return self.directory / "service"

    @property
    def in_service(self) -> bool:
        return self.service.exists()

    def write(self) -> Path:
        file, secrets = self.directory / "watcher.json", Path(self.config["secrets_file"])
        file.write_text(json.dumps(self.config))
        secrets.touch(0o600)
        secrets.write_text(json.dumps(self.secrets))
        return file

    def start(self) -> None:
        command = [PYTHON, "-I", str(self.program), "--config", str(self.write())]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def once(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-I", str(self.program), "--config", str(self.write()), "--once", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def says(self, text: str, patience: float = 30.0) -> None:
        until(lambda: text in self.log, patience)

    @property
    def record(self) -> Json | None:
        file = self.directory / "records" / "record.json"
        with contextlib.suppress(FileNotFoundError):
            return t.cast(Json, json.loads(file.read_text()))
        return None

    @property
    def history(self) -> list[Json]:
        folder = self.directory / "records" / "history"
        return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]

    def spooled(self, name: str = "eda") -> int:
        return len(list((self.directory / "state" / "spool" / name).glob("*.json")))
