# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo: an emulated availability set, a reboot for two of its three VMs, and a playbook that handles it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
EMULATOR = HERE.parents[1] / "roles" / "emulator" / "files" / "azure_events_emulator.py"
VMS = ("shop-web_0", "shop-web_1", "shop-web_2")
SECONDS_UNTIL_ANNOUNCED = 4.0


def emulator(*command: str) -> str:
    return subprocess.run([sys.executable, str(EMULATOR), *command], check=True, capture_output=True, text=True).stdout


def announce(control: str) -> None:
    # Two minutes' notice: the demo only ends sooner because the event is approved.
    details = ("notice=120", "started_for=6", "EventSource=User", "Description=Reboot requested by a user")
    settings = [word for detail in details for word in ("--set", detail)]
    emulator("publish", "--control", control, *settings, "Reboot", VMS[0], VMS[1])


def play(endpoints: dict[str, str]) -> int:
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            str(HERE / "inventory.yml"),
            "-e",
            json.dumps({"endpoints": endpoints}),
            str(HERE / "maintenance.yml"),
        ],
        check=False,
        env=os.environ | {"ANSIBLE_CONFIG": str(HERE / "ansible.cfg")},
    ).returncode


def tell(journal: list[dict[str, t.Any]]) -> bool:
    """The service's own account of what happened; whether it was approved exactly once and completed."""
    approvals = [line for line in journal if line["kind"] == "request" and line["method"] == "POST"]
    steps = [line for line in journal if line["kind"] == "event"]
    print("What the metadata service saw:")
    for line in steps:
        print(f"  {line['time'] - steps[0]['time']:5.1f} s  {line['EventType']} {line['what']}, by {line['by']}")
    reads = sum(line["kind"] == "request" and line["method"] == "GET" for line in journal)
    print(f"  {reads} reads, {len(approvals)} POST, sent by {', '.join(line['vm'] for line in approvals) or 'nobody'}")
    return len(approvals) == 1 and steps[-1]["what"] == "completed"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="graceful-demo-") as directory:
        journal_file = Path(directory) / "journal.jsonl"
        arguments = [word for name in VMS for word in ("--vm", name)]
        serve = [sys.executable, str(EMULATOR), "serve", *arguments, "--journal", str(journal_file)]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
            try:
                ready = json.loads(server.stdout.readline() if server.stdout else "")
                print(f"Three emulated VMs in one availability set: {', '.join(ready['vms'])}")
                print(f"In {SECONDS_UNTIL_ANNOUNCED:.0f} s a reboot of the first two will be announced.\n", flush=True)
                announcer = threading.Timer(SECONDS_UNTIL_ANNOUNCED, announce, [ready["control"]])
                announcer.start()
                status = play(ready["vms"])
                announcer.cancel()
            finally:
                server.terminate()
        journal = [json.loads(line) for line in journal_file.read_text(encoding="utf-8").splitlines()]
    good = tell(journal) and status == 0
    print("\nDone: noticed, approved exactly once, completed." if good else "\nThe demo did not end well; see above.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
