#!/usr/bin/env python
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines and their Azure, in the room that `lab.py enter` made.

up FLEET.json KEEP   start the fleet and its metadata service; journal and consoles are written to KEEP
down                 end all of it
power ACTION NAME    reboot, redeploy, freeze, off, on, cut or join a machine, by inventory name or Azure name
on-start             what Azure does when an event starts (the emulator calls this)
azure WORDS...       the emulator's own commands: publish, cancel, fault, state, ...

FLEET.json: {"metadata": ADDRESS, "outage": SECONDS, "machines": {NAME: {"address", "hostname", "azure_name", "scope"}}}
A machine without an azure_name is a neighbour of the VMs: it has no metadata service and no events.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import typing as t
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

Json = dict[str, t.Any]

HERE = Path(__file__).resolve().parent
EMULATOR = HERE.parents[1] / "roles" / "emulator" / "files" / "azure_events_emulator.py"
BRIDGE, NETWORK, GATEWAY = "lab0", "10.203.0.0/24", "10.203.0.1"
CONTROL_HERE, CONTROL_THERE, CONTROL_PORT = "10.203.1.1", "10.203.1.2", 8080
CONTROL = f"http://{CONTROL_THERE}:{CONTROL_PORT}"
BOOT_SECONDS = 60
SHUTDOWN_SECONDS = 30
SYSTEMD_POWEROFF = signal.SIGRTMIN + 4
ENDED_TO_REBOOT = (129, -signal.SIGHUP)
# A freeze whose length Azure does not tell.
UNKNOWN_FREEZE = 5


def run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)


def ip(*words: str | Path) -> None:
    run("ip", *words)


class Machine:
    def __init__(self, room: Path, keep: Path, number: int, name: str, spec: Json, fleet: Json) -> None:
        self.room, self.keep, self.name, self.spec = room, keep, name, spec
        self.azure_name: str | None = spec.get("azure_name")
        self.outage = float(fleet.get("outage", 3))
        self.metadata: str = fleet["metadata"]
        self.cable = f"lab-{number}"
        self.home = room / "machines" / name
        self.control_group = room / "cgroup" / f"{room.name}.{name}"
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def build(self, hosts: str, key: str) -> None:
        for directory in ("disk", "work", "root", "ephemeral"):
            (self.home / directory).mkdir(parents=True)
        (self.home / "hosts").write_text(hosts)
        (self.home / "authorized_keys").write_text(key)
        self.control_group.mkdir()
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.cable, "master", BRIDGE, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "addr", "add", f"{self.spec['address']}/24", "dev", "eth0")
        ip("-n", self.name, "link", "set", "eth0", "up")
        if self.azure_name:
            ip("-n", self.name, "route", "add", f"{self.metadata}/32", "dev", "eth0")

    def start(self) -> None:
        boot = ["bash", HERE / "boot.sh", self.home, self.room / "base", self.spec["hostname"]]
        namespaces = ["unshare", "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--kill-child"]
        command = ["ip", "netns", "exec", self.name, *namespaces, "--propagation", "private", *boot]
        join = f'echo $$ > {self.control_group / "cgroup.procs"} && exec "$@"'
        with (self.keep / f"{self.name}.console").open("ab") as console:
            self.process = subprocess.Popen(
                ["sh", "-c", join, "sh", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """A reboot from within: nobody asked the hypervisor for it, but it is the hypervisor that starts it again."""
        process.wait()
        with self.lock:
            if self.process is process and process.returncode in ENDED_TO_REBOOT:
                self._sweep()
                time.sleep(self.outage)
                self.start()

    def stop(self, gently: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if gently:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                for child in children:
                    os.kill(int(child), SYSTEMD_POWEROFF)
                process.wait(SHUTDOWN_SECONDS)
        (self.control_group / "cgroup.kill").write_text("1")
        process.wait()
        self._sweep()

    def _sweep(self) -> None:
        """Remove the control groups that the machine made in its own, once the last of its processes is gone."""
        while "populated 1" in (self.control_group / "cgroup.events").read_text():
            time.sleep(0.02)
        for directory, _directories, _files in os.walk(self.control_group, topdown=False):
            if Path(directory) != self.control_group:
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()

    def power(self, action: str, seconds: float | None = None) -> None:
        with self.lock:
            if action == "reboot":
                self.stop(gently=True)
            elif action in ("redeploy", "off"):
                self.stop(gently=False)
            if action == "redeploy":
                for file in (self.home / "ephemeral").iterdir():
                    shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
            if action in ("reboot", "redeploy"):
                time.sleep(self.outage)
            if action in ("reboot", "redeploy", "on"):
                self.start()
            if action == "freeze":
                self._freeze(seconds or UNKNOWN_FREEZE)
            if action in ("cut", "join"):
                ip("link", "set", self.cable, "down" if action == "cut" else "up")

    def _freeze(self, seconds: float) -> None:
        (self.control_group / "cgroup.freeze").write_text("1")
        time.sleep(seconds)
        (self.control_group / "cgroup.freeze").write_text("0")

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.spec["address"], 22), 1):
            return True
        return False


class Hypervisor:
    def __init__(self, room: Path, fleet: Json, keep: Path) -> None:
        self.room, self.fleet, self.keep = room, fleet, keep
        self.machines = {
            name: Machine(room, keep, number, name, spec, fleet)
            for number, (name, spec) in enumerate(fleet["machines"].items())
        }
        self.emulator: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        self._fabric()
        lines = ["127.0.0.1 localhost"]
        lines += [f"{each.spec['address']} {each.spec['hostname']} {name}" for name, each in self.machines.items()]
        key = (self.room / "id.pub").read_text()
        for machine in self.machines.values():
            machine.build("\n".join([*lines, ""]), key)
            machine.start()

    def _fabric(self) -> None:
        """Azure's side: it holds the metadata service's address and nothing else can be reached through it."""
        ip("netns", "add", "fabric")
        ip("link", "add", "lab-fabric", "type", "veth", "peer", "name", "eth0", "netns", "fabric")
        ip("link", "set", "lab-fabric", "master", BRIDGE, "up")
        ip("link", "add", "lab-control", "type", "veth", "peer", "name", "control", "netns", "fabric")
        ip("addr", "add", f"{CONTROL_HERE}/30", "dev", "lab-control")
        ip("link", "set", "lab-control", "up")
        ip("-n", "fabric", "addr", "add", f"{CONTROL_THERE}/30", "dev", "control")
        ip("-n", "fabric", "addr", "add", f"{self.fleet['metadata']}/32", "dev", "eth0")
        for link in ("lo", "control", "eth0"):
            ip("-n", "fabric", "link", "set", link, "up")
        ip("-n", "fabric", "route", "add", NETWORK, "dev", "eth0")
        vms = {
            machine.azure_name: {
                "scope": machine.spec.get("scope", "fleet"),
                "address": machine.spec["address"],
                "computer_name": machine.spec["hostname"],
            }
            for machine in self.machines.values()
            if machine.azure_name
        }
        (self.room / "vms.json").write_text(json.dumps({"vms": vms}))
        serve = [sys.executable, EMULATOR, "serve", "--fleet", self.room / "vms.json", "--by-address"]
        serve += ["--bind", self.fleet["metadata"], "--control-bind", CONTROL_THERE, "--control-port", CONTROL_PORT]
        serve += ["--journal", self.keep / "journal", "--ready-file", self.room / "ready.json"]
        serve += ["--on-start", f"{sys.executable} {HERE / 'hypervisor.py'} on-start"]
        with (self.keep / "emulator.log").open("wb") as log:
            self.emulator = subprocess.Popen(
                ["ip", "netns", "exec", "fabric", *map(str, serve)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def find(self, name: str) -> Machine:
        for machine in self.machines.values():
            if name in (machine.name, machine.azure_name):
                return machine
        raise KeyError(f"there is no machine {name}")

    def is_ready(self) -> bool:
        return (self.room / "ready.json").exists() and all(each.answers() for each in self.machines.values())

    def down(self) -> None:
        for machine in self.machines.values():
            with machine.lock:
                machine.stop(gently=False)
            machine.control_group.rmdir()
            ip("netns", "del", machine.name)
        if self.emulator:
            self.emulator.terminate()
            self.emulator.wait()
        ip("netns", "del", "fabric")
        ip("link", "del", BRIDGE)
        shutil.rmtree(self.room / "machines")


class Orders(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        order: Json = json.loads(self.rfile.readline())
        server = t.cast(Door, self.server)
        try:
            server.obey(order)
            answer: Json = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Door(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, room: Path, hypervisor: Hypervisor) -> None:
        super().__init__(str(room / "hypervisor"), Orders)
        self.hypervisor = hypervisor

    def obey(self, order: Json) -> None:
        if order["action"] == "down":
            self.hypervisor.down()
            threading.Thread(target=self.shutdown).start()
        else:
            self.hypervisor.find(order["machine"]).power(order["action"], order.get("seconds"))


class Room:
    """The commands' side: they speak to the hypervisor through a socket in the room."""

    @cached_property
    def path(self) -> Path:
        room = os.environ.get("GRACEFUL_LAB")
        if not room:
            sys.exit("hypervisor: this runs in the lab only; see tests/lab/README.md, `lab.py enter`")
        return Path(room)

    def order(self, **order: t.Any) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path / "hypervisor"))
            connection.sendall(json.dumps(order).encode() + b"\n")
            answer: Json = json.loads(connection.makefile().readline() or '{"error": "the hypervisor is gone"}')
        if "error" in answer:
            sys.exit(f"hypervisor: {answer['error']}")

    def up(self, fleet: Path, keep: Path) -> None:
        keep.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, str(HERE / "hypervisor.py"), "serve", str(fleet), str(keep)]
        with (keep / "hypervisor.log").open("wb") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + BOOT_SECONDS
        while not (self.path / "up").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"hypervisor: the fleet did not come up; see {keep}\n{(keep / 'hypervisor.log').read_text()}")
            time.sleep(0.1)

    def serve(self, fleet: Path, keep: Path) -> None:
        hypervisor = Hypervisor(self.path, json.loads(fleet.read_text()), keep)
        with Door(self.path, hypervisor) as door:
            hypervisor.up()
            threading.Thread(target=self._tell_when_ready, args=(hypervisor,), daemon=True).start()
            door.serve_forever()

    def _tell_when_ready(self, hypervisor: Hypervisor) -> None:
        while not hypervisor.is_ready():
            time.sleep(0.1)
        (self.path / "up").touch()

    def down(self) -> None:
        if (self.path / "hypervisor").exists():
            self.order(action="down")
            (self.path / "hypervisor").unlink()
            (self.path / "up").unlink(missing_ok=True)

    def on_start(self) -> None:
        event = json.loads(os.environ["AZURE_EVENT_JSON"])
        actions = {"Reboot": "reboot", "Redeploy": "redeploy", "Freeze": "freeze", "Preempt": "off", "Terminate": "off"}
        action, duration = actions.get(event["EventType"]), event.get("DurationInSeconds", -1)
        if action:
            with ThreadPoolExecutor(len(event["Resources"])) as pool:
                seconds = duration if duration > 0 else None
                orders = [
                    pool.submit(self.order, action=action, machine=name, seconds=seconds) for name in event["Resources"]
                ]
            for order in orders:
                order.result()
        body = json.dumps({"EventId": event["EventId"]}).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(urllib.request.Request(f"{os.environ['AZURE_EVENTS_CONTROL']}/complete", body), timeout=20).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("up", "serve"):
        start = actions.add_parser(name)
        start.add_argument("fleet", type=Path)
        start.add_argument("keep", type=Path)
    actions.add_parser("down")
    actions.add_parser("on-start")
    power = actions.add_parser("power")
    power.add_argument("what", choices=["reboot", "redeploy", "freeze", "off", "on", "cut", "join"])
    power.add_argument("machine")
    power.add_argument("--seconds", type=float)
    actions.add_parser("azure").add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    room = Room()
    if args.action == "up":
        room.up(args.fleet, args.keep)
    elif args.action == "serve":
        room.serve(args.fleet, args.keep)
    elif args.action == "down":
        room.down()
    elif args.action == "on-start":
        room.on_start()
    elif args.action == "power":
        room.order(action=args.what, machine=args.machine, seconds=args.seconds)
    else:
        os.environ["AZURE_EVENTS_CONTROL"] = CONTROL
        os.execv(sys.executable, [sys.executable, str(EMULATOR), *args.words])


if __name__ == "__main__":
    main()
