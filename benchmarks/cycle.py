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
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.graceful.azure.benchmarks.common import Emulator, Json, Line, at_most, compare, emulator, say
from ansible_collections.graceful.azure.plugins.module_utils._times import GONE_SECONDS
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

HERE = Path(os.path.abspath(__file__)).parent
FORKS = 20
STARTED_FOR = 1
PATIENCE = 900
# Appends a line to a file of its own for each module that the host runs.
COUNTING_PYTHON = '#!/bin/sh\necho >> "{calls}"\nexec "{python}" "$@"\n'

EXPLANATION = """
Cycle: the best of {rounds} rounds (fewer with more hosts); in each of them floor and cycle follow each other. {forks}
forks, local connections, no other settings. The floor makes only the unavoidable calls, with ping: every host once,
the affected hosts four times more, and one for the approval. Two ping tasks: every host, then the affected hosts.
Azure's event lasts {seconds} s once it is approved; the cycle waits for that, and {gone:g} s more until the hosts are
sure that it is gone. The floor waits for nothing, so each cycle is also shown without that waiting."""

MOST_CALLS = {"leader": 5, "affected": 4, "not_affected": 1}
WHO = {"leader": "the leader", "affected": "another affected host", "not_affected": "a host that is not affected"}
CYCLE_TO_FLOOR = {(10, 1): 1.5, (10, 10): 1.5, (50, 10): 1.5, (50, 50): 1.5}
APPROVAL_TO_TWO_PINGS = {(50, 50): 1.7}
NOTHING_TO_PING = 1.4
MOST_TASKS_OF_DEMO = 40


@dataclass(frozen=True)
class Sizes:
    """Hosts and how many of them an event concerns; hosts without any event; and how often ten hosts are measured."""

    maintenances: t.Sequence[tuple[int, int]]
    nothing: t.Sequence[int]
    rounds: int

    def rounds_of(self, hosts: int) -> int:
        """What many hosts take varies less."""
        return max(1, self.rounds - (hosts >= 50) - (hosts >= 200))


FULL = Sizes([(10, 1), (10, 10), (50, 1), (50, 10), (50, 50), (200, 1), (200, 10), (200, 50)], [50, 200], 3)
QUICK = Sizes([(10, 1), (10, 10)], [10], 2)


class Cost(t.NamedTuple):
    """Of ansible-playbook and all that it started, from its start to its end."""

    seconds: float
    # Depends less on what else the machine does.
    cpu: float


def best(costs: t.Sequence[Cost]) -> Json:
    return {"seconds": min(cost.seconds for cost in costs), "cpu": min(cost.cpu for cost in costs)}


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

    def play(self, playbook: str) -> Cost:
        for host in self.hosts:
            (self.directory / host / "calls").unlink(missing_ok=True)
        name = playbook if playbook.startswith("graceful.") else HERE / playbook
        settings = {"ANSIBLE_CONFIG": str(HERE / "ansible.cfg"), "ANSIBLE_PIPELINING": "0"}
        launch = Launch(name, self.inventory, self.directory / "ansible", forks=FORKS, settings=settings)
        output = self.directory / "output"
        begin = time.monotonic()
        process = launch.start(output)
        _pid, status, usage = os.wait4(process.pid, 0)
        cost = Cost(time.monotonic() - begin, usage.ru_utime + usage.ru_stime)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{playbook} ended with {process.returncode}:\n{output.read_text()[-5000:]}")
        return cost

    def calls(self, host: str) -> int:
        file = self.directory / host / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0


@contextlib.contextmanager
def fleet_of(hosts: int, affected: int) -> t.Iterator[Fleet]:
    scopes = {f"vm{number:03}": "fleet" for number in range(hosts)}
    with tempfile.TemporaryDirectory(prefix="graceful-bench-") as name, emulator(Path(name), scopes) as served:
        yield Fleet(Path(name), served, affected)


def maintenance(hosts: int, affected: int, rounds: int) -> Json:
    """The floor and the whole cycle, one after the other in each round."""
    say(f"{hosts} hosts, {affected} of them affected, {rounds} rounds")
    floor, two_pings, cycle, approvals, calls, stood = [], [], [], [], [], []
    with fleet_of(hosts, affected) as fleet:
        for _round in range(rounds):
            floor.append(fleet.play("floor.yml"))
            two_pings.append(fleet.play("two_pings.yml"))
            event_id = _publish(fleet)
            begin = time.time()
            cycle.append(fleet.play("graceful.azure.maintenance"))
            approvals.append(_approved(fleet, event_id) - begin)
            calls.append(_calls(fleet))
            stood.append(_stood(fleet, event_id))
    return {
        "hosts": hosts,
        "affected": affected,
        "floor": best(floor),
        "two_pings": best(two_pings),
        "cycle": best(cycle),
        "approval": min(approvals),
        "waiting": min(stood) + GONE_SECONDS,
        "calls": {who: max(one[who] for one in calls) for who in calls[0]},
    }


def _publish(fleet: Fleet) -> str:
    event = {"EventType": "Reboot", "Resources": fleet.affected, "notice": 7200, "started_for": STARTED_FOR}
    return str(json.loads(fleet.served.ask("/publish", event))["EventId"])


def _approved(fleet: Fleet, event_id: str) -> float:
    moment = fleet.served.moment("approved", event_id)
    if moment is None or fleet.served.moment("completed", event_id) is None:
        raise SystemExit(f"{event_id} was not approved, or is not over")
    return moment


def _stood(fleet: Fleet, event_id: str) -> float:
    """How long Azure's event stood after it was approved."""
    return (fleet.served.moment("completed", event_id) or 0.0) - (fleet.served.moment("approved", event_id) or 0.0)


def _calls(fleet: Fleet) -> dict[str, int]:
    """The most remote calls of a host, by what it is to the event."""
    leader = [line["vm"] for line in fleet.served.journal() if line.get("method") == "POST"][-1]
    followers = [fleet.calls(host) for host in fleet.affected if host != leader]
    others = [fleet.calls(host) for host in fleet.hosts if host not in fleet.affected]
    found = {"leader": [fleet.calls(leader)], "affected": followers, "not_affected": others}
    return {who: max(counts) for who, counts in found.items() if counts}


def nothing_announced(hosts: int, rounds: int) -> Json:
    """A run that finds nothing to do, and one ping task."""
    say(f"{hosts} hosts, nothing announced, {rounds} rounds")
    ping, ours = [], []
    with fleet_of(hosts, 0) as fleet:
        for _round in range(rounds):
            ping.append(fleet.play("one_ping.yml"))
            ours.append(fleet.play("graceful.azure.maintenance"))
    return {"hosts": hosts, "run": best(ours), "ping": best(ping)}


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
    return {
        "rounds": sizes.rounds,
        "maintenances": [maintenance(*size, sizes.rounds_of(size[0])) for size in sizes.maintenances],
        "nothing": [nothing_announced(hosts, sizes.rounds_of(hosts)) for hosts in sizes.nothing],
        "demo_tasks": tasks_of_demo(),
    }


def lines_of(measured: Json) -> list[Line]:
    """The table, beside the targets."""
    lines = []
    for one in measured["maintenances"]:
        size = (one["hosts"], one["affected"])
        name = f"{size[0]} hosts, {size[1]} affected"
        cycle, floor, pings = one["cycle"], one["floor"], one["two_pings"]
        lines += [
            compare(f"{name}: whole cycle / floor", cycle["seconds"], floor["seconds"], CYCLE_TO_FLOOR.get(size)),
            compare(f"{name}: without waiting", cycle["seconds"] - one["waiting"], floor["seconds"], None),
            compare(f"{name}: the same, CPU", cycle["cpu"], floor["cpu"], None),
            compare(
                f"{name}: start to approval / two ping tasks",
                one["approval"],
                pings["seconds"],
                APPROVAL_TO_TWO_PINGS.get(size),
            ),
            *(
                at_most(f"{name}: remote calls of {WHO[who]}", count, MOST_CALLS[who])
                for who, count in one["calls"].items()
            ),
        ]
    for one in measured["nothing"]:
        name = f"{one['hosts']} hosts, nothing announced / one ping task"
        target = NOTHING_TO_PING if one["hosts"] in FULL.nothing else None
        lines.append(compare(name, one["run"]["seconds"], one["ping"]["seconds"], target))
        lines.append(compare("the same, CPU", one["run"]["cpu"], one["ping"]["cpu"], None))
    return [*lines, at_most("tasks that the demo prints", measured["demo_tasks"], MOST_TASKS_OF_DEMO)]


def explain(measured: Json) -> None:
    print(EXPLANATION.format(rounds=measured["rounds"], forks=FORKS, seconds=STARTED_FOR, gone=GONE_SECONDS))


def only(sizes: Sizes, text: str) -> Sizes:
    hosts, _colon, affected = text.partition(":")
    if not (hosts.isdigit() and affected.isdigit() and 1 <= int(affected) <= int(hosts)):
        raise SystemExit(f"--size {text}: give the hosts and how many of them are affected, as 50:10")
    return Sizes([(int(hosts), int(affected))], [], sizes.rounds)
