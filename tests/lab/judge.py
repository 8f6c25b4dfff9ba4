# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges a scenario from outside: by Azure's journal, and by what the machines' own disks say.

judge.py ROOM KEEP FIGURES   adds its figures to those of the scenario (JSON), writes KEEP/figures.json and prints them
"""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

Json = dict[str, t.Any]
# Where one of these is not 0, the scenario has failed.
NEVER = ("early approvals", "repeated approvals", "hosts left drained", "failed requests", "rows lost")


def read_journal(keep: Path) -> list[Json]:
    lines = (keep / "journal").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "event"]


class Fleet:
    def __init__(self, room: Path) -> None:
        machines: Json = json.loads((room / "fleet.json").read_text())["machines"]
        self.disks = {
            spec["azure_name"]: room / "machines" / name / "disk"
            for name, spec in machines.items()
            if spec.get("azure_name")
        }

    def witnessed(self, vm: str, until: float = float("inf")) -> str | None:
        """What the machine last said of itself: drained, back, or nothing."""
        file = self.disks[vm] / "var" / "lib" / "lab" / "witness"
        words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        said = [what for at, what in words if float(at) <= until]
        return said[-1] if said else None

    def has_open_record(self, vm: str) -> bool:
        return (self.disks[vm] / "var" / "lib" / "graceful" / "records" / "record.json").exists()


def judge(room: Path, journal: list[Json]) -> Json:
    fleet = Fleet(room)
    published = {line["EventId"]: line["time"] for line in journal if line["what"] == "published"}
    approved = [line for line in journal if line["what"] == "approved"]
    early = [
        line
        for line in approved
        if any(vm not in fleet.disks or fleet.witnessed(vm, line["time"]) != "drained" for vm in line["Resources"])
    ]
    gone = {
        vm
        for line in journal
        if line["what"] == "started" and line["EventType"] in ("Preempt", "Terminate")
        for vm in line["Resources"]
    }
    left = [
        vm for vm in fleet.disks if vm not in gone and (fleet.witnessed(vm) == "drained" or fleet.has_open_record(vm))
    ]
    waits = [round(line["time"] - published[line["EventId"]], 1) for line in approved]
    return {
        "approvals": len(approved),
        "early approvals": len(early),
        "repeated approvals": len(approved) - len({line["EventId"] for line in approved}),
        "hosts left drained": len(left),
        "seconds from event to approval": waits,
    }


def main() -> int:
    room, keep, figures = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    figures = {**figures, **judge(room, read_journal(keep))}
    (keep / "figures.json").write_text(json.dumps(figures))
    for name, value in figures.items():
        print(f"{name}: {value}")
    return 1 if any(figures.get(name) for name in NEVER) else 0


if __name__ == "__main__":
    sys.exit(main())
