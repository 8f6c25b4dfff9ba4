# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection from a checkout, install it where nothing else is, and run it from there with its emulator."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.graceful.azure.tests.tools.launcher import PROGRAM, Launch

PLAYBOOK = Path(__file__).with_name("tarball.yml")

VMS = ("web_0", "web_1", "web_2")
WANTED = {
    "LICENSE",
    "README.md",
    "meta/runtime.yml",
    "plugins/modules/scheduled_events_info.py",
    "extensions/eda/plugins/event_source/event_grid.py",
    "extensions/eda/rulebooks/maintenance.yml",
}
# What has to remain for everything public to work.
NEEDED = ("meta", "plugins", "roles", "playbooks")
UNWANTED = ("tests/", "benchmarks/", "changelogs/fragments/", ".", "Makefile", "pyproject.toml")


def galaxy(*arguments: str) -> None:
    subprocess.run([str(PROGRAM.with_name("ansible-galaxy")), "collection", *arguments], check=True)


def build(checkout: Path, directory: Path) -> Path:
    galaxy("build", "--output-path", str(directory), str(checkout))
    (tarball,) = directory.glob("*.tar.gz")
    return tarball


def check_contents(tarball: Path) -> None:
    with tarfile.open(tarball) as opened:
        files = {member.name for member in opened if member.isfile()} - {"MANIFEST.json", "FILES.json"}
    copy = Path(os.environ["ANSIBLE_COLLECTIONS_PATH"], "ansible_collections", "graceful", "azure")
    unknown = {name for name in files if not (copy / name).is_file()}
    strays = unknown | {name for name in files if name.startswith(UNWANTED)}
    if strays:
        raise SystemExit(f"in the tarball, but for developers only: {', '.join(sorted(strays))}")
    if not files >= WANTED:
        raise SystemExit(f"not in the tarball: {', '.join(sorted(WANTED - files))}")
    print(f"{tarball.name}: {len(files)} files, {tarball.stat().st_size // 1024} KiB", flush=True)


@contextmanager
def emulator(program: Path, directory: Path) -> Iterator[dict[str, Any]]:
    ready = directory / "ready.json"
    vms = [option for name in VMS for option in ("--vm", name)]
    command = [sys.executable, str(program), "serve", *vms, "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as serving:
        try:
            deadline = time.monotonic() + 30
            while not ready.exists():
                if serving.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the emulator did not start")
                time.sleep(0.05)
            yield json.loads(ready.read_text())
        finally:
            serving.terminate()


def ask(url: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # No proxy: the address is always this machine's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return str(answer.read().decode())


def inventory(endpoints: dict[str, str], directory: Path) -> dict[str, Any]:
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "home": f"{directory}/{{{{ inventory_hostname }}}}",
        "graceful_endpoint": "{{ imds }}",
        "graceful_record_dir": "{{ home }}/records",
        "graceful_checkpoint_dir": "{{ home }}/checkpoints",
        "graceful_report_dir": str(directory / "reports"),
        "graceful_drain_steps": [
            {
                "name": "marker",
                "kind": "command",
                "do": ["touch", "{{ home }}/out"],
                "probe": ["test", "-e", "{{ home }}/out"],
                "undo": ["rm", "{{ home }}/out"],
            }
        ],
    }
    return {"all": {"hosts": {name: {"imds": endpoint} for name, endpoint in endpoints.items()}, "vars": common}}


def approvals(control: str) -> list[dict[str, Any]]:
    lines = map(json.loads, ask(f"{control}/journal").splitlines())
    return [line for line in lines if line["kind"] == "request" and line["method"] == "POST"]


def play(playbook: str | Path, collections: Path, directory: Path, **variables: Any) -> None:
    # Nothing but what is installed there can be found.
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    hosts, home = directory / "inventory.json", directory / "home"
    played = Launch(playbook, hosts, home, variables=variables, settings=settings).run(cwd=directory)
    print(played.stdout, flush=True)
    if played.returncode:
        raise SystemExit(f"tarball: {playbook} failed")


def strip(installed: Path) -> None:
    """What is public works without the rest."""
    for entry in installed.iterdir():
        if entry.is_dir() and entry.name not in NEEDED:
            shutil.rmtree(entry)
        elif entry.is_file():
            entry.unlink()


def run_from(collections: Path, directory: Path) -> None:
    installed = collections / "ansible_collections" / "graceful" / "azure"
    strip(installed)
    program = installed / "roles" / "emulator" / "files" / "azure_events_emulator.py"
    with emulator(program, directory) as served:
        control = served["control"]
        published = ask(f"{control}/publish", {"EventType": "Reboot", "Resources": ["web_0", "web_1"]})
        (directory / "inventory.json").write_text(json.dumps(inventory(served["vms"], directory)))
        for name in VMS:
            (directory / name).mkdir()
        play(PLAYBOOK, collections, directory, event_id=json.loads(published)["EventId"], control=control)
        play("graceful.azure.prepare", collections, directory)
        ask(f"{control}/publish", {"EventType": "Reboot", "Resources": ["web_2"], "started_for": 2})
        play("graceful.azure.maintenance", collections, directory)
        posts = approvals(control)
    if [post["vm"] for post in posts] != ["web_0", "web_2"]:
        raise SystemExit(f"each event must be approved once, by its leader; the emulator saw: {posts}")
    print("tarball: built, installed and run")


def main() -> None:
    # Ended from outside, it still ends the emulator and removes what it made.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="graceful-tarball-") as temporary:
        directory = Path(temporary)
        collections = directory / "collections"
        collections.mkdir()
        tarball = build(Path(sys.argv[1]), directory)
        check_contents(tarball)
        galaxy("install", "--offline", "--force", "--collections-path", str(collections), str(tarball))
        run_from(collections, directory)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"tarball: {Path(failed.cmd[0]).name} failed")
