# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs molecule scenarios in the lab, each in a room of its own, and ends with the figures they measured.

scenarios.py [NAME...]   those named; without a name the short set, with --all every one
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

Json = dict[str, t.Any]

HERE = Path(__file__).resolve().parent
COLLECTION = HERE.parents[1]
SCENARIOS = COLLECTION / "extensions" / "molecule"
CACHE = Path(os.environ.get("GRACEFUL_LAB_CACHE") or COLLECTION / ".cache" / "lab")
SHORT = ("spot", "web", "database", "default", "freeze", "cancelled", "classic")
# Its 30 seconds are real: nothing is played beside it.
ALONE = ("spot",)
PATIENCE = 600
# What the run ends with; each is a sum over the scenarios that measured it.
PROMISES = ("failed requests", "rows lost", "early approvals", "hosts left drained")


@dataclass
class Outcome:
    name: str
    passed: bool
    seconds: float
    figures: Json
    log: Path


def play(name: str) -> Outcome:
    keep = CACHE / "runs" / name
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    log = keep / "molecule.log"
    settings = {
        "GRACEFUL_LAB_KEEP": str(keep),
        "GRACEFUL_LAB_CACHE": str(CACHE),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(keep / "molecule"),
        "ANSIBLE_HOME": str(keep / "ansible"),
        "NO_COLOR": "1",
    }
    command = [sys.executable, str(HERE / "lab.py"), "enter", "molecule", "test", "--scenario-name", name]
    begun = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=COLLECTION,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            passed = process.wait(PATIENCE) == 0
        except subprocess.TimeoutExpired:
            # The room ends with the process that holds its door.
            process.terminate()
            process.wait()
            passed = False
    seconds = time.monotonic() - begun
    print(f"{'passed' if passed else 'FAILED'}  {name:<18} {seconds:4.0f} s", flush=True)
    figures = keep / "figures.json"
    return Outcome(name, passed, seconds, json.loads(figures.read_text()) if figures.exists() else {}, log)


def tell(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if not outcome.passed:
            print(f"\n== {outcome.name} failed; the end of {outcome.log}:")
            print("\n".join(outcome.log.read_text().splitlines()[-60:]))
    print("\n== figures")
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            print(f"{outcome.name}: {name}: {value}")
    waits = [wait for outcome in outcomes for wait in outcome.figures.get("seconds from event to approval", [])]
    if waits:
        middle = statistics.median(waits)
        print(f"event to approval: {min(waits)} s to {max(waits)} s, median {middle:.1f} s, {len(waits)} approvals")
    print(f"{sum(each.passed for each in outcomes)} passed, {sum(not each.passed for each in outcomes)} failed")
    for name in PROMISES:
        measured = [outcome.figures[name] for outcome in outcomes if name in outcome.figures]
        print(f"{name}: {sum(measured) if measured else 'not measured by these scenarios'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=3, help="scenarios at a time")
    args = parser.parse_args()
    known = sorted(file.parent.name for file in SCENARIOS.glob("*/molecule.yml"))
    unknown = sorted(set(args.names) - set(known))
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)} (there are: {', '.join(known)})")
    status = subprocess.run([sys.executable, str(HERE / "lab.py"), "base"], check=False).returncode
    if status:
        return status
    names = known if args.all else args.names or list(SHORT)
    print(f"playing {', '.join(names)}", flush=True)
    left = sorted(set(known) - set(names))
    if left and not args.names:
        print(f"skipped, left to `make test-lab-all`: {', '.join(left)}", flush=True)
    outcomes = [play(name) for name in names if name in ALONE]
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes += pool.map(play, [name for name in names if name not in ALONE])
    tell(outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
