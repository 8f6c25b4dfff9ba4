# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a maintenance costs beyond the calls that nobody can avoid, which are made with ping for comparison."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.graceful.azure.benchmarks.common import Emulator, Json, Line, at_most, compare, emulator, say
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

HERE = Path(os.path.abspath(__file__)).parent
FORKS = 20
STARTED_FOR = 1
PATIENCE = 900
# Appends a line to a file of its own for each module that the host runs.
COUNTING_PYTHON = '#!/bin/sh\necho >> "{calls}"\nexec "{python}" "$@"\n'

EXPLANATION = """
Cycle: the best of {rounds} rounds; in each of them floor and cycle follow each other. {forks} forks, local connections,
no other settings. The floor makes only the unavoidable calls, with ping: every host once, the affected hosts four times
more, and one for the approval. Two ping tasks: every host, then the affected hosts. Azure's event lasts {seconds} s
once it is approved; the cycle waits for that, and until the hosts are sure that it is gone. The floor does not."""

MOST_CALLS, MOST_CALLS_OF_LEADER = 4, 5
CYCLE_TO_FLOOR = {(10, 1): 1.5, (10, 10): 1.5, (50, 10): 1.5, (50, 50): 1.5}
APPROVAL_TO_TWO_PINGS = {(50, 50): 1.7}
NOTHING_TO_PING = 1.4
MOST_TASKS_OF_DEMO = 40


@dataclass(frozen=True)
class Sizes:
    """Hosts and how many of them an event concerns; hosts without any event; and how often each is measured."""

    maintenances: t.Sequence[tuple[int, int]]
    nothing: t.Sequence[int]
    rounds: int


FULL = Sizes([(10, 1), (10, 10), (50, 1), (50, 10), (50, 50), (200, 2)], [50, 200], 3)
QUICK = Sizes([(10, 1), (10, 10)], [10], 2)


class Fleet:
    """Hosts on this machine, in one availability set, whose interpreter counts its calls."""

    def __init__(self, directory: Path, served: Emulator, affected: int) -> None:
        self.directory = directory
        self.served = served
        self.hosts = list(served.endpoints)
        self.affected = self.hosts[:affected]
        self.inventory = directory / "inventory.json"
        every = {host: self._make_host(host) for host in self.hosts}
        groups = {"affected": {"hosts": dict.fromkeys(self.affected)}}
        variables = {"ansible_connection": "local", "graceful_report_dir": str(directory / "reports")}
        self.inventory.write_text(json.dumps({"all": {"hosts": every, "vars": variables, "children": groups}}))

    def _make_host(self, host: str) -> Json:
        home = self.directory / host
        home.mkdir()
        python = home / "python"
        python.write_text(COUNTING_PYTHON.format(calls=home / "calls", python=sys.executable))
        python.chmod(0o755)
        out = str(home / "out-of-service")
        step = {"name": "service", "kind": "command", "do": ["touch", out], "probe": ["test", "-e", out]}
        return {
            "ansible_python_interpreter": str(python),
            "graceful_endpoint": self.served.endpoints[host],
            "graceful_record_dir": str(home / "records"),
            "graceful_drain_steps": [{**step, "undo": ["rm", "-f", out]}],
        }

    def play(self, playbook: str) -> float:
        """How many seconds a playbook takes, from the start of ansible-playbook to its end."""
        for host in self.hosts:
            (self.directory / host / "calls").unlink(missing_ok=True)
        name = playbook if playbook.startswith("graceful.") else HERE / playbook
        # No setting but forks: what users have who set nothing.
        defaults = {"ANSIBLE_CONFIG": str(HERE / "ansible.cfg"), "ANSIBLE_PIPELINING": "0"}
        launch = Launch(name, self.inventory, self.directory / "ansible", forks=FORKS, settings=defaults)
        begin = time.monotonic()
        done = launch.run(PATIENCE)
        seconds = time.monotonic() - begin
        if done.returncode:
            raise SystemExit(f"{playbook} ended with {done.returncode}:\n{done.stdout[-5000:]}")
        return seconds

    def calls(self, host: str) -> int:
        file = self.directory / host / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0


@contextlib.contextmanager
def fleet_of(hosts: int, affected: int) -> t.Iterator[Fleet]:
    scopes = {f"vm{number:03}": "fleet" for number in range(hosts)}
    with tempfile.TemporaryDirectory(prefix="graceful-bench-") as name, emulator(Path(name), scopes) as served:
        yield Fleet(Path(name), served, affected)


@dataclass
class Measured:
    """The seconds of each round."""

    hosts: int
    affected: int
    floor: list[float] = field(default_factory=list)
    two_pings: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)
    approval: list[float] = field(default_factory=list)
    # Between the approval and the end of the event, Azure works and everybody waits.
    event: list[float] = field(default_factory=list)
    calls: int = 0
    calls_of_leader: int = 0
    calls_of_others: int = 0


def maintenance(hosts: int, affected: int, rounds: int) -> Measured:
    """The floor and the whole cycle, one after the other in each round."""
    say(f"{hosts} hosts, {affected} of them affected, {rounds} rounds")
    measured = Measured(hosts, affected)
    with fleet_of(hosts, affected) as fleet:
        for _round in range(rounds):
            measured.floor.append(fleet.play("floor.yml"))
            measured.two_pings.append(fleet.play("two_pings.yml"))
            _one_cycle(fleet, measured)
    return measured


def _one_cycle(fleet: Fleet, measured: Measured) -> None:
    event = {"EventType": "Reboot", "Resources": fleet.affected, "notice": 3600, "started_for": STARTED_FOR}
    event_id = json.loads(fleet.served.ask("/publish", event))["EventId"]
    begin = time.time()
    measured.cycle.append(fleet.play("graceful.azure.maintenance"))
    approved, over = fleet.served.moment("approved", event_id), fleet.served.moment("completed", event_id)
    if approved is None or over is None:
        raise SystemExit(f"{event_id} was not approved, or is not over")
    measured.approval.append(approved - begin)
    measured.event.append(over - approved)
    leader = [line["vm"] for line in fleet.served.journal() if line.get("method") == "POST"][-1]
    followers = [fleet.calls(host) for host in fleet.affected if host != leader]
    measured.calls = max([measured.calls, *followers])
    measured.calls_of_leader = max(measured.calls_of_leader, fleet.calls(leader))
    others = [fleet.calls(host) for host in fleet.hosts if host not in fleet.affected]
    measured.calls_of_others = max([measured.calls_of_others, *others])


def nothing_announced(hosts: int, rounds: int) -> tuple[float, float]:
    """The best time of a run that finds nothing to do, and of one ping task."""
    say(f"{hosts} hosts, nothing announced, {rounds} rounds")
    ping, ours = [], []
    with fleet_of(hosts, 0) as fleet:
        for _round in range(rounds):
            ping.append(fleet.play("one_ping.yml"))
            ours.append(fleet.play("graceful.azure.maintenance"))
    return min(ours), min(ping)


def tasks_of_demo() -> int:
    """How many tasks the demo prints."""
    say("tasks of the demo")
    with tempfile.TemporaryDirectory(prefix="graceful-bench-") as name:
        command = [sys.executable, str(COLLECTION / "examples" / "demo" / "run.py")]
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise SystemExit(f"The demo ended with {done.returncode}:\n{done.stdout[-5000:]}{done.stderr[-2000:]}")
    return done.stdout.count("TASK [")


def measure(sizes: Sizes) -> Json:
    """All that is measured, as it is written to a file and drawn."""
    maintenances = []
    for hosts, affected in sizes.maintenances:
        measured = maintenance(hosts, affected, sizes.rounds)
        maintenances.append(
            {
                "hosts": hosts,
                "affected": affected,
                **{key: min(getattr(measured, key)) for key in ("floor", "two_pings", "cycle", "approval", "event")},
                "calls": measured.calls if affected > 1 else None,
                "calls_of_leader": measured.calls_of_leader,
                "calls_of_others": measured.calls_of_others if affected < hosts else None,
            }
        )
    nothing = []
    for hosts in sizes.nothing:
        ours, ping = nothing_announced(hosts, sizes.rounds)
        nothing.append({"hosts": hosts, "run": ours, "ping": ping})
    return {"rounds": sizes.rounds, "maintenances": maintenances, "nothing": nothing, "demo_tasks": tasks_of_demo()}


def lines_of(measured: Json) -> list[Line]:
    """The table, beside the targets."""
    lines = []
    for one in measured["maintenances"]:
        size = (one["hosts"], one["affected"])
        name = f"{size[0]} hosts, {size[1]} affected"
        lines.append(compare(f"{name}: whole cycle / floor", one["cycle"], one["floor"], CYCLE_TO_FLOOR.get(size)))
        lines.append(
            compare(
                f"{name}: start to approval / two ping tasks",
                one["approval"],
                one["two_pings"],
                APPROVAL_TO_TWO_PINGS.get(size),
            )
        )
        lines += _call_lines(name, one)
    for one in measured["nothing"]:
        target = NOTHING_TO_PING if one["hosts"] in FULL.nothing else None
        what = f"{one['hosts']} hosts, nothing announced / one ping task"
        lines.append(compare(what, one["run"], one["ping"], target))
    lines.append(at_most("tasks that the demo prints", measured["demo_tasks"], MOST_TASKS_OF_DEMO))
    return lines


def _call_lines(name: str, one: Json) -> t.Iterator[Line]:
    for key, who, most in (
        ("calls", "an affected host", MOST_CALLS),
        ("calls_of_leader", "the leader", MOST_CALLS_OF_LEADER),
        ("calls_of_others", "a host that is not affected", 1),
    ):
        if one[key] is not None:
            yield at_most(f"{name}: remote calls of {who}", one[key], most)


def explain(measured: Json) -> None:
    print(EXPLANATION.format(rounds=measured["rounds"], forks=FORKS, seconds=STARTED_FOR))


def only(sizes: Sizes, text: str) -> Sizes:
    hosts, _colon, affected = text.partition(":")
    if not (hosts.isdigit() and affected.isdigit() and 1 <= int(affected) <= int(hosts)):
        raise SystemExit(f"--size {text}: give the hosts and how many of them are affected, as 50:10")
    return Sizes([(int(hosts), int(affected))], [], sizes.rounds)
