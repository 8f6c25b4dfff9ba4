# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's record for the tests, and the runs that keep it."""

from __future__ import annotations

import json
import multiprocessing
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, Run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

Json = dict[str, t.Any]
EVENT: Json = {"event_id": "F020BA2E", "event_type": "Reboot", "resources": ["web_0"], "seconds_left": 872}
EVENT_ID = "f020ba2e"
FORK = multiprocessing.get_context("fork")


class Host:
    """The record of one host, and what its system log was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = JumpingClock()
        self.log: list[str] = []

    def run(self, name: str = "A", silent_for: float = 300, force: bool = False) -> Keeper:
        run = Run(f"id-of-{name}", f"run {name}", silent_for, force)
        return Keeper(str(self.directory), run, self.clock, self.log.append)

    def claim(self, name: str = "A", *events: Json, **more: t.Any) -> tuple[dict[str, Json], list[str]]:
        return self.run(name, **more).claim(events or [EVENT], "boot-1")

    @property
    def file(self) -> Path:
        return self.directory / "record.json"

    @property
    def stored(self) -> Json:
        stored: Json = json.loads(self.file.read_text())
        return stored

    @property
    def history(self) -> list[Path]:
        return sorted((self.directory / "history").glob("*"))

    def everything(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.directory.rglob("*") if path.is_file()}


@pytest.fixture(name="host")
def any_host(tmp_path: Path) -> Host:
    return Host(tmp_path / "records")


def step(name: str = "stop nginx", status: str = "done", **more: t.Any) -> Json:
    return {"phase": "drain", "name": name, "kind": "services", "status": status, **more}


def in_child(work: t.Callable[[], object]) -> str:
    """Run something in a process of its own; what it refused, in words."""
    reader, writer = FORK.Pipe(duplex=False)

    def body() -> None:
        try:
            work()
            writer.send("")
        except EventsError as exc:
            writer.send(exc.message)

    child = FORK.Process(target=body)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    message: str = reader.recv()
    return message
