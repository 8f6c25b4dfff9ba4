# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import itertools
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.redis_sentinel import Place, Step, ask
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._peer import Login
from ansible_collections.graceful.azure.tests.services.conftest import (
    Packages,
    Processes,
    free_ports,
    unpacked,
    wait_for,
)
from ansible_collections.graceful.azure.tests.services.kinds import NOTED, drain_and_undo, step

SECRET = "correct horse"
LOGIN = Login(None, SECRET)
SENTINEL = """
port {port}
bind 127.0.0.1
dir {folder}
requirepass "{secret}"
sentinel monitor cache 127.0.0.1 {master} 1
sentinel auth-pass cache "{secret}"
sentinel down-after-milliseconds cache 2000
sentinel failover-timeout cache 3000
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    names = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")
    return unpacked(tmp_path_factory.mktemp("redis"), *names)


class Fleet(t.NamedTuple):
    places: list[Place]
    sentinel: Place

    def server(self, number: int, seconds: float = 60, login: Login = LOGIN, sentinel: Place | None = None) -> Step:
        place, sentinels = self.places[number]._asdict(), [(sentinel or self.sentinel)._asdict()]
        given = {**place, **login._asdict(), "sentinels": sentinels, "sentinel_password": SECRET}
        return t.cast(Step, step("redis_sentinel", seconds, master_name="cache", **given))


@pytest.fixture
def fleet(packages: Packages, processes: Processes, tmp_path: Path) -> Fleet:
    """A master, a replica and a Sentinel that knows both."""
    *ports, sentinel_port = free_ports(3)
    found = Fleet([Place("127.0.0.1", port) for port in ports], Place("127.0.0.1", sentinel_port))
    program = packages.program("usr/bin/redis-check-rdb")  # the server under another name
    for number, port in enumerate(ports):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", 'save ""', "repl-diskless-sync-delay 0"]
        lines += [f'requirepass "{SECRET}"', f'masterauth "{SECRET}"']
        lines += [f"replicaof 127.0.0.1 {ports[0]}"] if number else []
        (folder / "redis.conf").write_text("\n".join(lines))
        start(processes, packages, program, "redis-server", folder / "redis.conf")
    wait_for("replication", lambda: found.server(1).role().link == "connected")
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(SENTINEL.format(port=sentinel_port, folder=tmp_path, secret=SECRET, master=ports[0]))
    start(processes, packages, program, "redis-sentinel", configuration)
    wait_for("the Sentinel to know the replica", lambda: knows_a_replica(found))
    return found


def start(processes: Processes, packages: Packages, program: str, name: str, configuration: Path) -> None:
    processes.start(
        f"{name}-{configuration.parent.name}", name, str(configuration), executable=program, env=packages.environment
    )


def knows_a_replica(fleet: Fleet) -> bool:
    reply = ask(fleet.sentinel, LOGIN, 5, "SENTINEL", "REPLICAS", "cache")
    assert isinstance(reply, list)
    fields = dict(zip(reply[0][::2], reply[0][1::2], strict=True)) if reply else {}
    return fields.get("master-link-status") == "ok"


def test_the_master_becomes_a_replica_and_the_other_one_the_master(fleet: Fleet) -> None:
    assert fleet.server(0).role().name == "master"
    assert "its link to the master is connected" in fleet.server(0).do().message
    assert fleet.server(0).role()[:2] == ("replica", "connected")
    assert fleet.server(1).role().name == "master"
    assert "is replica" in fleet.server(0).undo(NOTED)


def test_nothing_that_was_acknowledged_on_the_way_is_lost(fleet: Fleet) -> None:
    acknowledged: list[str] = []
    ended = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            with contextlib.suppress(EventsError):
                ask(fleet.places[0], LOGIN, 30, "SET", f"key{number}", "1")
                acknowledged.append(f"key{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for("writes", lambda: len(acknowledged) > 10)
        fleet.server(0).do()
    finally:
        ended.set()
        writer.join()
    assert [key for key in acknowledged if ask(fleet.places[1], LOGIN, 5, "GET", key) != "1"] == []


def test_a_replica_is_left_alone(fleet: Fleet) -> None:
    fleet.server(1).do()
    assert fleet.server(0).role().name == "master"


def test_a_wrong_password_is_said_without_telling_it(fleet: Fleet) -> None:
    with pytest.raises(EventsError, match="refuses ROLE") as caught:
        fleet.server(0, login=Login(None, "wrong battery")).role()
    assert "battery" not in str(caught.value)


def test_without_a_sentinel_nothing_is_done(fleet: Fleet) -> None:
    with pytest.raises(EventsError, match="No Sentinel fails over cache"):
        fleet.server(0, sentinel=Place("127.0.0.1", free_ports(1)[0])).do()
    assert fleet.server(0).role().name == "master"


def test_a_master_without_a_fit_replica_stays_so(fleet: Fleet) -> None:
    ask(fleet.places[1], LOGIN, 5, "CONFIG", "SET", "replica-priority", "0")
    wait_for("the Sentinel to notice", lambda: priority(fleet) == "0", 30)
    with pytest.raises((EventsError, Late)):
        fleet.server(0, seconds=3).do()
    assert fleet.server(0).role().name == "master"


def priority(fleet: Fleet) -> str:
    reply = ask(fleet.sentinel, LOGIN, 5, "SENTINEL", "REPLICAS", "cache")
    assert isinstance(reply, list)
    return str(dict(zip(reply[0][::2], reply[0][1::2], strict=True))["slave-priority"])


def test_the_step_fails_over_and_sees_the_host_back(fleet: Fleet) -> None:
    drained = drain_and_undo(
        "redis_sentinel",
        master_name="cache",
        port=fleet.places[0].port,
        password=SECRET,
        sentinel_password=SECRET,
        sentinels=[{"host": "127.0.0.1", "port": port} for port in (free_ports(1)[0], fleet.sentinel.port)],
    )
    assert drained.look.before == {"role": "master"}
    assert "is replica" in drained.done
    assert "connected" in drained.undone
    assert fleet.server(1).role().name == "master"
