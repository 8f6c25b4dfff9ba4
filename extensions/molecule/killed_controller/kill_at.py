# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command and kills it, and all it has started, as soon as the record of a machine has a mark.

kill_at.py MARK MACHINE JOURNAL COMMAND...   exits 0 if it was killed there, 1 if it ended before
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 240


def marks(machine: Path) -> set[str]:
    """What the machine has written into its record, as its disk has it."""
    with contextlib.suppress(OSError, ValueError):
        record = json.loads((machine / "disk" / "var" / "lib" / "graceful" / "records" / "record.json").read_text())
        return {mark["what"] for mark in record["timeline"]}
    return set()


def kill(pid: int) -> None:
    """With its children, which are in sessions of their own."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, signal.SIGKILL)
        for child in children:
            kill(int(child))


def approvals(journal: Path) -> int:
    return journal.read_text().count('"what": "approved"')


def main() -> int:
    mark, machine, journal, command = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    approved_before = approvals(journal)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if mark in marks(machine) or (mark == "approved" and approvals(journal) > approved_before):
            kill(process.pid)
            process.wait()
            print(f"killed when {mark}")
            return 0
        time.sleep(0.02)
    kill(process.pid)
    print(f"it was never {mark}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
