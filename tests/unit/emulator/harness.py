# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the emulator as users do, as a process of its own, and speaks plain HTTP with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

PROGRAM = Path(__file__).resolve().parents[3] / "roles/emulator/files/azure_events_emulator.py"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
HEADERS = {"Metadata": "true"}
PATIENCE = 30.0
# Any Python the managed hosts may have.
PYTHON = os.environ.get("EMULATOR_PYTHON", sys.executable)

Json = dict[str, t.Any]


class Reply(t.NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> t.Any:
        return json.loads(self.body)


def request(
    url: str,
    method: str,
    path: str,
    headers: t.Mapping[str, str] | None = None,
    body: bytes | None = None,
    source: str | None = None,
    timeout: float = PATIENCE,
) -> Reply:
    parts = urlsplit(url)
    address = (source, 0) if source else None
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=timeout, source_address=address
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(HEADERS if headers is None else headers))
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())


def until(what: Callable[[], t.Any], patience: float = PATIENCE) -> t.Any:
    """The first true value of `what`; fails loudly instead of hanging."""
    deadline = time.monotonic() + patience
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


class Emulator:
    def __init__(self, process: subprocess.Popen[str], ready: Json) -> None:
        self.process = process
        self.ready = ready
        self.vms: dict[str, str] = ready["vms"]

    def control(self, path: str, content: t.Any = None, method: str | None = None) -> Reply:
        body = None if content is None else json.dumps(content).encode()
        return request(self.ready["control"], method or ("GET" if body is None else "POST"), path, {}, body)

    def obeys(self, path: str, content: Json) -> Json:
        reply = self.control(path, content)
        assert reply.status == 200, reply.body
        return t.cast(Json, reply.json)

    def publish(self, kind: str = "Reboot", resources: t.Any = ("web_0",), **fields: t.Any) -> str:
        return str(self.obeys("/publish", {"EventType": kind, "Resources": resources, **fields})["EventId"])

    def ask(self, path: str = EVENTS, vm: str = "web_0", method: str = "GET", **more: t.Any) -> Reply:
        return request(self.vms[vm], method, path, **more)

    def approve(self, *event_ids: str, vm: str = "web_0", version: str = "2020-07-01", **more: t.Any) -> Reply:
        content = {"StartRequests": [{"EventId": event_id} for event_id in event_ids], **more}
        path = f"/metadata/scheduledevents?api-version={version}"
        return self.ask(path, vm, "POST", body=json.dumps(content).encode())

    def document(self, vm: str = "web_0", version: str = "2020-07-01") -> Json:
        reply = self.ask(f"/metadata/scheduledevents?api-version={version}", vm)
        assert reply.status == 200, reply.body
        return t.cast(Json, reply.json)

    def events(self, vm: str = "web_0", version: str = "2020-07-01") -> list[Json]:
        return t.cast("list[Json]", self.document(vm, version)["Events"])

    def journal(self, kind: str | None = None, since: int = 0) -> list[Json]:
        lines = [json.loads(line) for line in self.control(f"/journal?since={since}").body.splitlines()]
        return [line for line in lines if kind in (None, line["kind"])]

    def life(self, event_id: str) -> list[tuple[str, str]]:
        """What happened to the event, and by whom."""
        lines = self.journal("event")
        return [(line["what"], line["by"]) for line in lines if line["EventId"] == event_id]

    def forget(self) -> None:
        """Back to a quiet fleet, for the next test."""
        self.obeys("/faults/clear", {})
        for scope in self.control("/state").json["scopes"].values():
            for event in scope["events"]:
                self.control("/complete", {"EventId": event["EventId"]})


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Emulator]:
    process = subprocess.Popen(
        [PYTHON, str(PROGRAM), "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield Emulator(process, json.loads(line))
    finally:
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", ""), "the emulator ends well, and in silence"


def run(*arguments: str, **more: t.Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **more,
    )
