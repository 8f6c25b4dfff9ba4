# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection, install it where nothing else is, and run it from there against its own emulator."""

from __future__ import annotations

import json
import os
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

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PLAYBOOK = Path(__file__).with_name("tarball.yml")

VMS = ("web_0", "web_1", "web_2")
WANTED = {"LICENSE", "README.md", "meta/runtime.yml", "plugins/modules/scheduled_events_info.py"}
UNWANTED = ("tests/", "benchmarks/", "changelogs/fragments/", ".", "Makefile", "pyproject.toml")


def ansible(program: str, *arguments: str, collections: Path) -> None:
    variables = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections)}
    subprocess.run([str(BIN / program), *arguments], cwd=collections.parent, env=variables, check=True)


def build(directory: Path) -> Path:
    command = [str(BIN / "ansible-galaxy"), "collection", "build", "--output-path", str(directory), str(ROOT)]
    subprocess.run(command, check=True)
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


def inventory(endpoints: dict[str, str]) -> dict[str, Any]:
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {"imds": endpoint, **common} for name, endpoint in endpoints.items()}
    return {"all": {"hosts": hosts}}


def approvals(control: str) -> list[dict[str, Any]]:
    lines = map(json.loads, ask(f"{control}/journal").splitlines())
    return [line for line in lines if line["kind"] == "request" and line["method"] == "POST"]


def run_from(collections: Path, directory: Path) -> None:
    installed = collections / "ansible_collections" / "graceful" / "azure"
    program = installed / "roles" / "emulator" / "files" / "azure_events_emulator.py"
    with emulator(program, directory) as served:
        control = served["control"]
        published = ask(f"{control}/publish", {"EventType": "Reboot", "Resources": ["web_0", "web_1"]})
        hosts = directory / "inventory.json"
        hosts.write_text(json.dumps(inventory(served["vms"])))
        variables = {"event_id": json.loads(published)["EventId"], "control": control}
        playbook = [str(PLAYBOOK), "-i", str(hosts), "-e", json.dumps(variables)]
        ansible("ansible-playbook", *playbook, collections=collections)
        posts = approvals(control)
    if [post["vm"] for post in posts] != ["web_0"]:
        raise SystemExit(f"the event must be approved once, by its leader; the emulator saw: {posts}")
    print("tarball: built, installed and run")


def main() -> None:
    # Ended from outside, it still ends the emulator and removes what it made.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="graceful-tarball-") as temporary:
        directory = Path(temporary)
        collections = directory / "collections"
        collections.mkdir()
        tarball = build(directory)
        check_contents(tarball)
        install = ["collection", "install", "--offline", "--collections-path", str(collections), str(tarball)]
        ansible("ansible-galaxy", *install, collections=collections)
        run_from(collections, directory)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"tarball: {Path(failed.cmd[0]).name} failed")
