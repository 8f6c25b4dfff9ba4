# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command and kills it, and all it has started, as soon as the maintenance is in a phase.

kill_in.py PHASE MACHINE JOURNAL COMMAND...   exits 0 if it was killed there, 1 if it ended before
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


def phases(machine: Path) -> set[str]:
    """Of the claims that the machine has on its disk."""
    found = set()
    for file in (machine / "disk" / "var" / "lib" / "graceful" / "records").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            found.add(str(json.loads(file.read_text())["claim"]["phase"]))
    return found


def approvals(journal: Path) -> int:
    return journal.read_text().count('"what": "approved"')


def main() -> int:
    phase, machine, journal, command = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    approved_before = approvals(journal)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if phase in phases(machine) or (phase == "approved" and approvals(journal) > approved_before):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"killed in phase {phase}")
            return 0
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    print(f"it never came to phase {phase}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
