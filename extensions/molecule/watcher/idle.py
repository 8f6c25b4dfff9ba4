# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures what the watcher needs while nothing is announced: percent of a core, and megabytes.

idle.py SECONDS
"""

import json
import os
import subprocess
import sys
import time


def cpu_seconds(pid: str) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


shown = ["systemctl", "show", "--value", "--property=MainPID", "graceful-watcher"]
pid = subprocess.run(shown, check=True, stdout=subprocess.PIPE).stdout.decode().strip()
before, begin = cpu_seconds(pid), time.monotonic()
time.sleep(float(sys.argv[1]))
percent = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - begin)
with open(f"/proc/{pid}/status") as file:
    resident = next(line for line in file if line.startswith("VmRSS"))
print(json.dumps({"percent": percent, "megabytes": int(resident.split()[1]) / 1000}))
