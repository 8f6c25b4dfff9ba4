# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading and waiting cost, beside what ansible-core offers for the same."""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.graceful.azure.benchmarks.common import Emulator, Line, compare, emulator, say
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTIONS, Launch

HERE = Path(os.path.abspath(__file__)).parent
WAIT_MODULE = "ansible_collections.graceful.azure.plugins.modules.scheduled_events_wait"

INFO_TO_PING = 1.35
FORKS = 5
DELAY_BEYOND_HALF_AN_INTERVAL = 0.1
CPU_MILLISECONDS_PER_POLL = 5.0
URI_LOOP_TO_WAIT = 20.0

PING, INFO, INFO_ASKING = "Ping", "Info of a given name", "Info asking for the name"
URI_EVENTS, URI_NAME = "Uri for the events", "Uri for the name"


@dataclass(frozen=True)
class Size:
    """How much is measured. Reading and delay end early on a slow machine: all is over in four minutes, or in one."""

    hosts: int
    rounds: int
    read_seconds: float
    delays: int
    delay_seconds: float
    poll_interval: float
    cpu_polls: int
    wait_seconds: int


FULL = Size(10, 6, 75, delays=12, delay_seconds=35, poll_interval=1.0, cpu_polls=100, wait_seconds=60)
QUICK = Size(3, 3, 12, delays=10, delay_seconds=10, poll_interval=0.5, cpu_polls=20, wait_seconds=8)


class Bench:
    def __init__(self, size: Size, served: Emulator, directory: Path) -> None:
        self.size = size
        self.emulator = served
        self.directory = directory
        self.host = next(iter(served.endpoints))
        self.inventory = directory / "inventory.json"
        hosts = {name: {"bench_endpoint": endpoint} for name, endpoint in served.endpoints.items()}
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self.inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": local}}))

    def read(self) -> list[Line]:
        """Reading, by what a task takes from its first host's start to its last host's result."""
        size = self.size
        say(f"reading on {size.hosts} hosts, up to {size.rounds} rounds after one to warm up")
        taken = self._time_tasks()
        rounds = min(len(seconds) for seconds in taken.values()) - 1
        best = {task: min(seconds[1:]) for task, seconds in taken.items()}
        both = best[URI_EVENTS] + best[URI_NAME]
        return [
            compare(f"info, vm_name given / ping (best of {rounds} rounds)", best[INFO], best[PING], INFO_TO_PING),
            compare("info, asking for the name too / ping", best[INFO_ASKING], best[PING], INFO_TO_PING),
            compare("info, vm_name given / uri, the same request", best[INFO], best[URI_EVENTS], 1.0),
            compare("info, asking for the name too / uri, the events only", best[INFO_ASKING], best[URI_EVENTS], 1.0),
            compare("info, asking for the name too / two uri, the same requests", best[INFO_ASKING], both, 1.0),
        ]

    def _time_tasks(self) -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {task: [] for task in (PING, INFO, INFO_ASKING, URI_EVENTS, URI_NAME)}
        limits = {"bench_rounds": self.size.rounds + 1, "bench_until": time.time() + self.size.read_seconds}
        launch = self._playbook("read.yml", self.inventory, limits)
        process = subprocess.Popen(launch.command, env=launch.environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        task, begin, answers, output = "", 0.0, 0, ""
        for line in process.stdout:
            now = time.monotonic()
            output += line
            banner = re.match(r"TASK \[(.+)\]", line)
            if banner:
                task, begin, answers = banner.group(1), now, 0
            elif line.startswith("ok: "):
                answers += 1
                if answers == self.size.hosts and task in taken:
                    taken[task].append(now - begin)
        if process.wait() or any(len(seconds) < 2 for seconds in taken.values()):
            raise SystemExit(f"read.yml did not do what it should:\n{output}")
        return taken

    def delay(self) -> list[Line]:
        """From the publishing, by the emulator's journal, to the end of the module's process: no controller."""
        size = self.size
        say(f"delay of wait, up to {size.delays} samples")
        # One random moment in each of as many parts of the poll interval: the mean settles with few samples.
        phases = [(number + random.random()) / size.delays for number in range(size.delays)]
        random.shuffle(phases)
        begin = time.monotonic()
        delays = [
            self._delay(size.poll_interval * phase) for phase in phases if time.monotonic() - begin < size.delay_seconds
        ]
        mean = statistics.mean(delays)
        most = size.poll_interval / 2 + DELAY_BEYOND_HALF_AN_INTERVAL
        return [
            Line(
                f"wait, mean delay after publishing, polling every {size.poll_interval:g} s, {len(delays)} samples",
                f"{mean:.3f} s",
                f"{mean / size.poll_interval:.2f} x",
                f"<= {most:g} s",
                mean <= most,
            )
        ]

    def _delay(self, after_a_poll: float) -> float:
        known = len(self.emulator.journal())
        waiting = self._wait_module(timeout=30, poll_interval=self.size.poll_interval)
        while len(self.emulator.journal()) == known:
            time.sleep(0.02)
        time.sleep(after_a_poll)
        event = {"EventType": "Reboot", "Resources": [self.host], "scope": self.host}
        published = json.loads(self.emulator.ask("/publish", event))
        result = waiting.result()
        ended = time.time()
        if result["outcome"] != "appeared":
            raise SystemExit(f"wait did not see the event: {result}")
        moment = self.emulator.moment("published", published["EventId"])
        self.emulator.ask("/cancel", published)
        return ended - (moment or ended)

    def cpu(self) -> list[Line]:
        """The difference between many polls and one, so that starting Python does not count."""
        interval = 0.2
        say(f"CPU of {self.size.cpu_polls} polls")
        many = self._wait_module(timeout=self.size.cpu_polls * interval, poll_interval=interval)
        polls = many.result()["polls"]
        alone = []
        for _number in range(3):
            one = self._wait_module(timeout=0, poll_interval=interval)
            one.result()
            alone.append(one.cpu)
        milliseconds = max(many.cpu - min(alone), 0.0) / (polls - 1) * 1000
        return [
            Line(
                f"wait, CPU per poll, {polls} polls without the start",
                f"{milliseconds:.2f} ms",
                f"{milliseconds / CPU_MILLISECONDS_PER_POLL:.2f} x",
                f"<= {CPU_MILLISECONDS_PER_POLL:g} ms",
                milliseconds <= CPU_MILLISECONDS_PER_POLL,
            )
        ]

    def wait(self) -> list[Line]:
        """All CPU of ansible-playbook and what it starts; side by side, so that none has the quieter machine."""
        seconds = self.size.wait_seconds
        say(f"CPU of waiting {seconds} s, in three ways")
        inventory = self.directory / "one.json"
        content = json.loads(self.inventory.read_text())
        content["all"]["hosts"] = {self.host: content["all"]["hosts"][self.host]}
        inventory.write_text(json.dumps(content))
        # What costs little is lost in the noise more easily: twice, and the better one counts.
        playbooks = ["wait_with_uri.yml", *["wait.yml", "wait_for_nothing.yml"] * 2]
        launches = {name: self._playbook(name, inventory, {"bench_seconds": seconds}) for name in playbooks}
        runs = [(name, Run(launches[name].command, launches[name].environment)) for name in playbooks]
        cpu: dict[str, float] = {}
        for name, run in runs:
            cpu[name] = min(run.finish().cpu, cpu.get(name, run.cpu))
        uri, wait, nothing = (cpu[name] for name in playbooks[:3])
        ratio, beyond = uri / wait, (uri - nothing) / max(wait - nothing, 0.001)
        target = f">= {URI_LOOP_TO_WAIT:g} x in {FULL.wait_seconds} s"
        judged = seconds == FULL.wait_seconds
        return [
            Line(
                f"uri until, delay 1 / wait, all CPU of ansible-playbook in {seconds} s",
                f"{uri:.2f} / {wait:.2f} s",
                f"{ratio:.1f} x",
                target,
                ratio >= URI_LOOP_TO_WAIT if judged else None,
            ),
            Line(
                f"the same, beyond the {nothing:.2f} s of a pause as long",
                f"{uri - nothing:.2f} / {wait - nothing:.2f} s",
                f"{beyond:.1f} x",
                target,
                beyond >= URI_LOOP_TO_WAIT if judged else None,
            ),
        ]

    def _playbook(self, name: str, inventory: Path, variables: t.Mapping[str, t.Any]) -> Launch:
        defaults = {"ANSIBLE_CONFIG": str(HERE / "ansible.cfg"), "ANSIBLE_PIPELINING": "0"}
        home = self.directory / "ansible"
        return Launch(HERE / name, inventory, home, variables=variables, forks=FORKS, settings=defaults)

    def _wait_module(self, **options: t.Any) -> Run:
        arguments = {
            "endpoint": self.emulator.endpoints[self.host],
            "vm_name": self.host,
            "on_timeout": "ok",
            **options,
        }
        environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
        return Run([sys.executable, "-m", WAIT_MODULE], environment, json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))


class Run:
    """A process whose CPU, with that of all it started, is known once it has ended."""

    def __init__(self, command: list[str], environment: t.Mapping[str, str], given: str = "") -> None:
        self.command = command
        self.cpu = 0.0
        self.output = ""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        assert self._process.stdin
        with self._process.stdin as stdin:
            stdin.write(given)

    def finish(self) -> Run:
        assert self._process.stdout
        with self._process.stdout as stdout:
            self.output = stdout.read()
        _pid, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        if status:
            raise SystemExit(f"{' '.join(self.command)} failed:\n{self.output}")
        return self

    def result(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.finish().output))


PARTS: dict[str, t.Callable[[Bench], list[Line]]] = {
    "read": Bench.read,
    "delay": Bench.delay,
    "cpu": Bench.cpu,
    "wait": Bench.wait,
}


def explain(size: Size) -> None:
    print(f"Reading: a task from its banner to its last result, on {size.hosts} hosts over a local connection.")
    print("Delay: to the end of the module's process, so without the controller.")
    print("CPU of waiting: on one host over a local connection, so with the module.")


def measure(size: Size, parts: t.Sequence[str]) -> list[Line]:
    # Every VM has a scope, and so a document, of its own.
    scopes = {f"web_{number}": f"web_{number}" for number in range(size.hosts)}
    with tempfile.TemporaryDirectory(prefix="graceful-bench-") as name, emulator(Path(name), scopes) as served:
        bench = Bench(size, served, Path(name))
        return [line for part in parts for line in PARTS[part](bench)]
