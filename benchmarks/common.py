# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all measurements use: an emulator of their own, and lines with a figure, its target and a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import typing as t
import urllib.request
from pathlib import Path

from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION

EMULATOR = COLLECTION / "roles" / "emulator" / "files" / "azure_events_emulator.py"

Json = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the table that is printed. A figure without a target is not judged."""

    what: str
    measured: str
    result: str
    target: str = ""
    reached: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "reached", False: "missed", None: ""}[self.reached]
        return self.what, self.measured, self.result, self.target, verdict


def compare(what: str, ours: float, theirs: float, most: float | None) -> Line:
    """Two times in seconds, and how long ours may take at most as a multiple of the other; 1 means: less."""
    ratio = ours / theirs
    seconds = f"{ours:.2f} / {theirs:.2f} s"
    if most is None:
        return Line(what, seconds, f"{ratio:.2f} x")
    reached = ratio < 1 if most == 1 else ratio <= most
    return Line(what, seconds, f"{ratio:.2f} x", "< 1 x" if most == 1 else f"<= {most:g} x", reached)


def at_most(what: str, count: int, most: int) -> Line:
    return Line(what, "", str(count), f"<= {most}", count <= most)


def say(text: str) -> None:
    print(f"... {text}", flush=True)


def show(lines: t.Sequence[Line]) -> None:
    rows = [("what", "measured", "result", "target", "verdict"), *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@dataclasses.dataclass(frozen=True)
class Emulator:
    control: str
    endpoints: dict[str, str]

    def ask(self, path: str, content: t.Any = None) -> bytes:
        body = None if content is None else json.dumps(content).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self.control + path, body), timeout=30) as answer:
            return t.cast(bytes, answer.read())

    def journal(self) -> list[Json]:
        return [json.loads(line) for line in self.ask("/journal").splitlines()]

    def moment(self, what: str, event_id: str) -> float | None:
        """When that happened to the event."""
        for line in self.journal():
            if line["kind"] == "event" and line["what"] == what and line["EventId"] == event_id:
                return float(line["time"])
        return None


@contextlib.contextmanager
def emulator(directory: Path, scopes: t.Mapping[str, str]) -> t.Iterator[Emulator]:
    """Serves these VMs; those of one scope see the same document."""
    fleet = directory / "fleet.json"
    fleet.write_text(json.dumps({"vms": {name: {"scope": scope} for name, scope in scopes.items()}}))
    command = [sys.executable, str(EMULATOR), "serve", "--fleet", str(fleet)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        yield Emulator(ready["control"], ready["vms"])
    finally:
        process.terminate()
        process.wait(timeout=10)
