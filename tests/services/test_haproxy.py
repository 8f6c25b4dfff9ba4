# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._haproxy import Server
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet
from ansible_collections.graceful.azure.tests.integration.harness import Play, inventory_of
from ansible_collections.graceful.azure.tests.services.conftest import (
    Packages,
    Processes,
    free_ports,
    unpacked,
    wait_for,
)

Json = dict[str, t.Any]
CONFIGURATION = """
global
    stats socket {folder}/admin.sock level admin
    stats socket ipv4@127.0.0.1:{admin} level admin
    stats socket {folder}/reader.sock level user
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{front}
    default_backend web
backend web
    server web1 127.0.0.1:{back}
    server web2 127.0.0.1:{back}
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    names = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
    return unpacked(tmp_path_factory.mktemp("haproxy"), *names)


class Balancer(t.NamedTuple):
    folder: Path
    admin: int
    front: int

    def server(self, name: str = "web1", seconds: float = 20, address: str | None = None) -> Server:
        return Server(address or str(self.folder / "admin.sock"), "web", name, Patience(seconds))


@pytest.fixture
def balancer(packages: Packages, processes: Processes, tmp_path: Path) -> t.Iterator[Balancer]:
    admin, front = free_ports(2)
    backend = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    configuration = tmp_path / "haproxy.cfg"
    text = CONFIGURATION.format(folder=tmp_path, admin=admin, front=front, back=backend.server_address[1])
    configuration.write_text(text)
    program = packages.program("usr/sbin/haproxy")
    processes.start("haproxy", program, "-db", "-f", str(configuration), env=packages.environment)
    found = Balancer(tmp_path, admin, front)
    wait_for("HAProxy", lambda: found.server().look())
    yield found
    backend.shutdown()
    backend.server_close()


def connections_to(balancer: Balancer, name: str) -> tuple[socket.socket, ...]:
    """Two connections, of which round robin gives each server one."""
    pair = tuple(socket.create_connection(("127.0.0.1", balancer.front)) for _each in range(2))
    wait_for(f"a session of {name}", lambda: balancer.server(name).look().sessions == 1)
    return pair


def test_a_server_without_sessions_goes_to_maintenance_and_back(balancer: Balancer) -> None:
    assert balancer.server().look() == ("ready", 0)
    assert balancer.server().bring("maint") == "web/web1 is in state maint with 0 sessions"
    assert balancer.server().look().state == "maint"
    assert balancer.server("web2").look().state == "ready"
    balancer.server().bring("ready")
    assert balancer.server().look().state == "ready"


def test_maintenance_waits_for_the_last_session(balancer: Balancer) -> None:
    sessions = connections_to(balancer, "web1")
    try:
        with pytest.raises(Late, match="state drain with 1 session"):
            balancer.server(seconds=2).bring("maint")
        assert balancer.server().look() == ("drain", 1), "what is drained stays so"
    finally:
        for session in sessions:
            session.close()
    assert balancer.server().bring("maint") == "web/web1 is in state maint with 0 sessions"


def test_a_draining_server_gets_no_new_sessions(balancer: Balancer) -> None:
    balancer.server().bring("drain")
    for _each in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", balancer.front, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
    assert balancer.server().look() == ("drain", 0)


def test_the_socket_may_be_a_tcp_one(balancer: Balancer) -> None:
    server = balancer.server(address=f"127.0.0.1:{balancer.admin}")
    server.bring("maint")
    assert balancer.server().look().state == "maint"


@pytest.mark.parametrize(
    ("server", "socket_name", "words"),
    [
        ("nobody", "admin.sock", "has no server web/nobody"),
        ("web1", "nothing.sock", "cannot be used"),
        ("web1", "reader.sock", "did not set web/web1"),
    ],
)
def test_what_cannot_be_is_said(balancer: Balancer, server: str, socket_name: str, words: str) -> None:
    with pytest.raises(EventsError, match=words):
        balancer.server(server, address=str(balancer.folder / socket_name)).bring("drain")


def module(balancer: Balancer, state: str, check: bool = False, socket: str = "", timeout: int = 20) -> Json:
    """What the module returns, as Ansible runs it."""
    address = socket or str(balancer.folder / "admin.sock")
    options = {"socket": address, "backend": "web", "server": "web1", "state": state, "timeout": timeout}
    task = {"graceful.azure.haproxy_server": options, "check_mode": check, "ignore_errors": True}
    playbook = balancer.folder / "playbook.json"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    play = Play(
        str(playbook), inventory_of({"balancer": ("info", {})}), balancer.folder / f"play-{time.monotonic_ns()}"
    )
    assert len(play.records) == 1, play.output
    return {"failed": play.records[0]["status"] == "failed", **play.records[0]["result"]}


def test_the_module_takes_a_server_out_and_puts_it_back(balancer: Balancer) -> None:
    looked = module(balancer, "maint", check=True)
    assert (looked["changed"], looked["before"]) == (True, {"in_service": True, "state": "ready"})
    assert balancer.server().look().state == "ready", "check mode only looks"
    done = module(balancer, "maint")
    assert (done["changed"], done["msg"]) == (True, "web/web1 is in state maint with 0 sessions")
    again = module(balancer, "maint", socket=f"127.0.0.1:{balancer.admin}")
    assert (again["changed"], again["before"]) == (False, {"in_service": False, "state": "maint"})
    assert module(balancer, "ready")["msg"] == "web/web1 is in state ready with 0 sessions"
    assert balancer.server("web2").look().state == "ready"


def test_sessions_that_do_not_end_make_the_module_late(balancer: Balancer) -> None:
    sessions = connections_to(balancer, "web1")
    result = module(balancer, "maint", timeout=3)
    for session in sessions:
        session.close()
    assert (result["failed"], result["late"], result["sessions"]) == (True, True, 1)
    assert "with 1 session" in result["msg"]
    assert balancer.server().look().state == "drain"


def test_a_maintenance_takes_hosts_out_of_every_balancer_and_leaves_out_what_was_out_before(
    balancer: Balancer, tmp_path: Path
) -> None:
    balancer.server("web2").bring("maint")
    addresses = (str(balancer.folder / "admin.sock"), f"127.0.0.1:{balancer.admin}")
    sockets = [{"host": "localhost", "socket": address} for address in addresses]
    step = {"name": "balancers", "kind": "haproxy", "backend": "web", "server": "{{ inventory_hostname }}"}
    (tmp_path / "fleet").mkdir()
    fleet = Fleet(tmp_path / "fleet", 2)
    states: list[str] = []
    try:
        fleet.common["graceful_drain_steps"] = [
            {**step, "sockets": sockets},
            *fleet._defaults()["graceful_drain_steps"],
        ]
        fleet.announce("web1", "web2", started_for=8)
        with fleet.once(
            lambda: bool(fleet.happened("started")),
            lambda: states.extend(balancer.server(name).look().state for name in ("web1", "web2")),
        ):
            run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        assert states == ["maint", "maint"]
        assert [balancer.server(name).look().state for name in ("web1", "web2")] == ["ready", "maint"]
        fleet.check_invariant()
        fleet.check_all_back()
    finally:
        fleet.stop()


def test_a_session_that_stays_long_does_not_keep_the_other_host_waiting(balancer: Balancer, tmp_path: Path) -> None:
    sockets = [{"host": "localhost", "socket": str(balancer.folder / "admin.sock")}]
    step = {"name": "balancers", "kind": "haproxy", "backend": "web", "server": "{{ inventory_hostname }}"}
    (tmp_path / "fleet").mkdir()
    fleet = Fleet(tmp_path / "fleet", 2)
    sessions = connections_to(balancer, "web1")
    # Only web1 keeps its session, for longer than two slices after its drain has begun.
    wait_for("a session of web2", lambda: balancer.server("web2").look().sessions == 1)

    has_ended = threading.Event()

    def close_all() -> None:
        while balancer.server("web1").look().state == "ready" and not has_ended.wait(0.5):
            pass
        has_ended.wait(50)
        for one in sessions:
            one.close()

    closing = threading.Thread(target=close_all)
    closing.start()
    try:
        fleet.variables["web1"]["graceful_drain_steps"] = [
            {**step, "sockets": sockets, "timeout": 120},
            *fleet._defaults()["graceful_drain_steps"],
        ]
        fleet.announce("web1", "web2", started_for=8)
        run = fleet.run()
        assert run.status == 0, run.output[-4000:]
        lines = [line for line in run.output.splitlines() if "1 session on localhost" in line]
        assert len([line for line in lines if line.startswith("[web1] balancers: ")]) >= 2, lines
        assert "(attempt" not in run.output
        fleet.check_invariant()
        fleet.check_all_back()
    finally:
        has_ended.set()
        fleet.stop()
        closing.join()
