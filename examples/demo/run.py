# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo: an emulated availability set, a reboot for some of it, and the maintenance playbook that handles it."""

from __future__ import annotations

import contextlib
import http.server
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
AZURE_NAMES = {"web1": "shop-web_0", "web2": "shop-web_1", "web3": "shop-web_2", "db1": "shop-db_0"}
ANNOUNCED = ("web1", "web2", "db1")


class Site(http.server.ThreadingHTTPServer):
    """A web server of one host: /health is what the balancer asks, and says 503 while the marker is there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        super().__init__(("127.0.0.1", 0), SiteHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class SiteHandler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        out = self.path == "/health" and (self.server.home / "maintenance").exists()
        self.send_response(503 if out else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


def announce(control: str) -> None:
    # A quarter of an hour's notice, as Azure gives it: the demo only ends sooner because the event is approved.
    names = [AZURE_NAMES[host] for host in ANNOUNCED]
    details = ("notice=900", "started_for=6", "EventSource=User", "Description=Reboot requested by a user")
    settings = [word for detail in details for word in ("--set", detail)]
    command = [sys.executable, str(EMULATOR), "publish", "--control", control, *settings, "Reboot", *names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def play(facts: dict[str, t.Any], reports: Path) -> int:
    variables = json.dumps({"demo": facts, "graceful_report_dir": str(reports)})
    playbook = [str(Path(sys.executable).parent / "ansible-playbook"), "graceful.azure.maintenance"]
    return subprocess.run(
        [*playbook, "-i", str(HERE / "inventory.yml"), "-e", variables],
        check=False,
        env=os.environ | {"ANSIBLE_CONFIG": str(HERE / "ansible.cfg")},
    ).returncode


def tell(journal: list[dict[str, t.Any]]) -> bool:
    """The service's own account of what happened; whether it was approved exactly once and completed."""
    approvals = [line for line in journal if line["kind"] == "request" and line["method"] == "POST"]
    steps = [line for line in journal if line["kind"] == "event"]
    print("What the metadata service saw:")
    for line in steps:
        sender = f", by {line['by']}" if line["by"] in AZURE_NAMES.values() else ""
        print(f"  {line['time'] - steps[0]['time']:5.1f} s  {line['EventType']} {line['what']}{sender}")
    reads = sum(line["kind"] == "request" and line["method"] == "GET" for line in journal)
    posted = ", ".join(line["vm"] for line in approvals) or "no VM"
    print(f"  {reads} requests that read the events, {len(approvals)} that approved one (from {posted})")
    return len(approvals) == 1 and steps[-1]["what"] == "completed"


def rehearse(directory: Path, reports: Path) -> bool:
    sites = {}
    for host in AZURE_NAMES:
        (directory / host / "tables").mkdir(parents=True)
        (directory / host / "tables" / "orders").write_text("42 orders\n")
        if host.startswith("web"):
            sites[host] = Site(directory / host)
    journal_file = directory / "journal.jsonl"
    arguments = [word for name in AZURE_NAMES.values() for word in ("--vm", name)]
    serve = [sys.executable, str(EMULATOR), "serve", *arguments, "--journal", str(journal_file)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server, contextlib.ExitStack() as cleanup:
        cleanup.callback(server.terminate)
        ready = json.loads(server.stdout.readline() if server.stdout else "")
        endpoints = {host: ready["vms"][name] for host, name in AZURE_NAMES.items()}
        announce(ready["control"])
        print(f"Emulated VMs in one availability set: {', '.join(ready['vms'])}")
        print(f"Azure announces a reboot of {', '.join(AZURE_NAMES[host] for host in ANNOUNCED)}.\n", flush=True)
        urls = {host: site.url for host, site in sites.items()}
        status = play({"directory": str(directory), "endpoints": endpoints, "sites": urls}, reports)
    journal = [json.loads(line) for line in journal_file.read_text(encoding="utf-8").splitlines()]
    return tell(journal) and status == 0


def main() -> int:
    reports = Path.cwd() / "graceful-reports"
    with tempfile.TemporaryDirectory(prefix="graceful-demo-") as directory:
        good = rehearse(Path(directory).resolve(), reports)
    print(f"\nReport: {reports / 'latest.html'}")
    print("Done: noticed, drained, approved once, over, restored." if good else "The demo did not end well; see above.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
