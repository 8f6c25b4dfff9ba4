#!/usr/bin/env python
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A room for a fleet: network, mount and process namespaces that nothing leaves and that leave nothing behind.

check             say what is missing on this machine
base              make the layer of packages that every machine of the fleet has, once
enter COMMAND...  run a command in the room; when it ends, everything in the room does
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("GRACEFUL_LAB_CACHE") or HERE.parents[1] / ".cache" / "lab")
TOOLS = {"ip": "iproute2", "ssh": "openssh-client", "unshare": "util-linux", "mount": "mount"}
PACKAGES = [
    *("openssh-server", "python3-requests", "iproute2", "procps", "curl", "hey"),
    *("nginx-light", "haproxy", "redis-server", "redis-sentinel"),
    *("postgresql", "python3-psycopg2", "patroni", "etcd-server", "etcd-client"),
    *("corosync", "pacemaker", "crmsh", "resource-agents"),
]
ROOM = "graceful-lab-"
NAMESPACES = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
PROBE = """
mount -t tmpfs tmpfs {0} && mkdir {0}/layer {0}/disk {0}/work {0}/root {0}/cgroup
mount -t overlay overlay -o lowerdir={0}/layer:/,upperdir={0}/disk,workdir={0}/work {0}/root
mount -t cgroup2 cgroup2 {0}/cgroup && test -e {0}/cgroup/cgroup.procs
"""

# The last processes may still be dying.
SWEEP = """
mount -t cgroup2 cgroup2 "$0"
for try in $(seq 100); do
  find "$0" -depth -type d -path "$0/$1.*" -exec rmdir {} + 2>/dev/null
  ls -d "$0/$1".* >/dev/null 2>&1 || exit 0
  sleep 0.1
done
echo "lab: control groups are left: $1.*" >&2
"""


class CannotError(Exception):
    """This machine lacks something."""


def check() -> None:
    if not sys.platform.startswith("linux"):
        raise CannotError("the lab needs Linux: its machines are namespaces of one kernel")
    if os.geteuid() != 0:
        raise CannotError("the lab needs root: it makes network, mount and process namespaces")
    if not shutil.which("apt-get"):
        raise CannotError("the lab needs a Debian or Ubuntu: its machines are made of this machine's own packages")
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        print(f"the lab installs {' '.join(missing)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            if subprocess.run(["apt-get", *words], env=environment, check=False).returncode:
                raise CannotError(f"the lab needs {', '.join(missing)}, and apt-get could not install it")
    with tempfile.TemporaryDirectory(prefix=ROOM) as directory:
        probe = [*NAMESPACES, "--net", "sh", "-euc", PROBE.format(directory)]
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["no reason given"]
        raise CannotError(f"the lab needs namespaces, overlay mounts and cgroups version 2: {words[-1]}")


def base() -> Path:
    """The layer's directory, made if it is not there or this machine's own packages have changed since."""
    status = Path("/var/lib/dpkg/status").stat()
    facts = [*PACKAGES, (HERE / "base.sh").read_text(), str(status.st_mtime_ns), str(status.st_size)]
    made = CACHE / f"base-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for old in CACHE.glob("base-*"):
                shutil.rmtree(old)
            print("the lab makes the machines' base layer: packages are downloaded once", flush=True)
            build = made.with_name("base-unfinished")
            log = CACHE / "base.log"
            with log.open("w") as output:
                command = [*NAMESPACES, "bash", str(HERE / "base.sh"), str(build), *PACKAGES]
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
            if done.returncode:
                last = "\n".join(log.read_text().splitlines()[-5:])
                raise CannotError(f"the base layer could not be made, see {log}; it ends with\n{last}")
            build.rename(made)
    return made / "layer"


def enter(command: t.Sequence[str]) -> int:
    check()
    layer = base()
    room = Path(tempfile.mkdtemp(prefix=ROOM))
    inside = [*NAMESPACES, "--net", sys.executable, str(HERE / "lab.py"), "inside", str(room), str(layer), *command]
    process = subprocess.Popen(inside)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_unused: process.kill())
    try:
        return process.wait()
    finally:
        leave(room)


def leave(room: Path) -> None:
    """The room's mounts and processes went with its namespaces; its control groups and its door are left."""
    with tempfile.TemporaryDirectory(prefix=ROOM) as view:
        sweep = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SWEEP, view, room.name]
        subprocess.run(sweep, check=False)
    room.rmdir()


def inside(room: Path, layer: Path, command: t.Sequence[str]) -> int:
    """Run as the room's first process."""

    def run(*words: str | Path) -> None:
        subprocess.run([str(word) for word in words], check=True)

    run("ip", "link", "set", "lo", "up")
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    run("mount", "-t", "tmpfs", "-o", "size=8g,mode=755", "tmpfs", room)
    (room / "cgroup").mkdir()
    run("mount", "-t", "cgroup2", "cgroup2", room / "cgroup")
    # As lower layers of one overlay, two directories of one file system may not contain each other.
    run("cp", "-a", layer, room / "base")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", room / "id")
    # Two rooms have machines of the same addresses: they may share no connection.
    settings = {"GRACEFUL_LAB": str(room), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(room / "ssh")}
    # Meant for hosts that are this machine; a user that a task becomes there could not read it.
    inherited = {key: value for key, value in os.environ.items() if key != "ANSIBLE_REMOTE_TEMP"}
    return subprocess.run(command, env={**inherited, **settings}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("check")
    actions.add_parser("base")
    actions.add_parser("enter").add_argument("command", nargs=argparse.REMAINDER)
    room = actions.add_parser("inside")
    room.add_argument("room", type=Path)
    room.add_argument("layer", type=Path)
    room.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        if args.action == "check":
            check()
        elif args.action == "base":
            check()
            print(base())
        elif args.action == "enter":
            return enter(args.command or [os.environ.get("SHELL", "/bin/sh")])
        else:
            return inside(args.room, args.layer, args.command)
    except CannotError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
