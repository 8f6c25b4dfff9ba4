# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAProxy's socket says, from a stand-in; with the real one: tests/services."""

from __future__ import annotations

import contextlib
import socket
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._haproxy import Server
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock, Peer, seconds_at_most

BITS = {"ready": 0, "maint": 1, "drain": 8}


class Balancer:
    """One server; a session ends each time that somebody looks at the statistics."""

    def __init__(self, path: Path, sessions: int = 0, obeys: bool = True, bits: t.Any = 0, **answers: t.Any) -> None:
        self.commands: list[str] = []
        self.sessions_then: list[int] = []
        self.sessions = sessions
        self.bits = bits
        self._obeys = obeys
        self._answers: dict[str, str] = answers
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _peer = self._socket.accept()
            with connection, contextlib.suppress(OSError):
                command = connection.makefile().readline().strip()
                connection.sendall(self._answer(command).encode() + b"\n\n")

    def _answer(self, command: str) -> str:
        scripted = self._answers.get(command.split()[1])
        if scripted is not None:
            return scripted
        if command.startswith("set server"):
            self.commands.append(command)
            self.sessions_then.append(self.sessions)
            if self._obeys:
                self.bits = BITS[command.split()[-1]]
            return ""
        if command.startswith("show servers state"):
            header = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight"
            return f"{header}\n3 web 1 web1 10.0.0.1 2 {self.bits} 1\n3 web 2 web2 10.0.0.2 2 1 1"
        count, self.sessions = self.sessions, max(0, self.sessions - 1)
        return f"# pxname,svname,qcur,qmax,scur,smax\nweb,web1,0,0,{count},9\nweb,web2,0,0,7,9\nweb,BACKEND,0,0,9,9"


def server(path: Path, seconds: float = 20, backend: str = "web", name: str = "web1") -> Server:
    return Server(str(path), backend, name, Patience(seconds, JumpingClock()))


@pytest.mark.parametrize(
    ("bits", "state"),
    [
        *[(0, "ready"), (1, "maint"), (8, "drain"), (9, "maint"), (32, "maint"), (16, "drain"), (64, "ready")],
        *[("0x20", "maint"), ("0x0", "ready")],
    ],
)
def test_the_administrative_state_is_understood(tmp_path: Path, bits: t.Any, state: str) -> None:
    Balancer(tmp_path / "s", bits=bits)
    assert server(tmp_path / "s").look().state == state


def test_maintenance_comes_after_drain_and_the_last_session(tmp_path: Path) -> None:
    balancer = Balancer(tmp_path / "s", sessions=6)
    assert server(tmp_path / "s").bring("maint") == "web/web1 is in state maint with 0 sessions"
    assert balancer.commands == ["set server web/web1 state drain", "set server web/web1 state maint"]
    assert balancer.sessions_then[-1] == 0


def test_what_is_so_already_is_left_alone(tmp_path: Path) -> None:
    balancer = Balancer(tmp_path / "s", bits=1)
    server(tmp_path / "s").bring("maint")
    assert balancer.commands == []


def test_a_balancer_that_does_not_do_it_is_found_out(tmp_path: Path) -> None:
    Balancer(tmp_path / "s", obeys=False)
    with pytest.raises(Late, match="state ready"):
        server(tmp_path / "s", seconds=1).bring("drain")


@pytest.mark.parametrize("name", ["web1; shutdown", "web1\nset", "", "web 1", "web/1"])
def test_a_name_cannot_be_a_command(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongOption, match="cannot be a name"):
        server(tmp_path / "s", name=name)


@pytest.mark.parametrize(("backend", "name"), [("other", "web1"), ("web", "web9")])
def test_a_server_that_is_not_there_is_said(tmp_path: Path, backend: str, name: str) -> None:
    Balancer(tmp_path / "s")
    with pytest.raises(EventsError, match=f"has no server {backend}/{name}"):
        server(tmp_path / "s", backend=backend, name=name).look()


def test_a_socket_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="cannot be used"):
        server(tmp_path / "nothing").look()


STATE = "1\n# be_name srv_name srv_admin_state\nweb web1 {}"
STAT = "# pxname,svname,qcur,scur\nweb,web1,{}"
NONSENSE: dict[str, tuple[dict[str, t.Any], str]] = {
    "text for a state": ({"servers": STATE.format("many")}, "shows 'many' where the state of web/web1 should be"),
    "no state": ({"servers": STATE.format("")}, "shows 'None' where the state"),
    "a state as long as a book": ({"servers": STATE.format("9" * 9999)}, "where the state"),
    "text for sessions": ({"stat": STAT.format("0,lots")}, "shows 'lots' where the sessions of web/web1 should be"),
    "text for a queue": ({"stat": STAT.format("-1,0")}, "shows '-1' where the queue"),
    "no sessions": ({"stat": "# pxname,svname\nweb,web1"}, "where the sessions"),
    "no statistics": ({"stat": ""}, "has no statistics of web/web1"),
    "a column as long as a book": ({"stat": STAT.format("9" * 200_000)}, "(?:where the queue|cannot be read)"),
    "another protocol": (
        {"servers": "HTTP/1.0 400 \x1b[1m{{ bad }}"},
        r"servers of web: HTTP/1\.0 400 \?\[1m\{ \{ bad",
    ),
    "nothing": ({"servers": ""}, "does not show the servers of web: nothing"),
    "a complaint": ({"server": "No such server.\x07"}, r"did not set web/web1 to drain: No such server\.\?"),
}


@pytest.mark.parametrize(("answers", "words"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_of_a_balancer_is_said(tmp_path: Path, answers: dict[str, t.Any], words: str) -> None:
    Balancer(tmp_path / "s", **answers)
    with pytest.raises(EventsError, match=words) as caught:
        server(tmp_path / "s").bring("drain")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


def test_a_balancer_that_answers_byte_by_byte_cannot_exceed_the_deadline() -> None:
    words = r"cannot be used: no complete answer within 0\.3 s"
    with Peer(b"x" * 1000, pause=0.02) as slow, seconds_at_most(3), pytest.raises(EventsError, match=words):
        Server(f"127.0.0.1:{slow.port}", "web", "web1", Patience(0.3)).look()


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "[::1", "", "nowhere", "/run/" + "x" * 200])
def test_an_address_that_cannot_be_is_said(address: str) -> None:
    with pytest.raises(EventsError, match="cannot be used"):
        Server(address, "web", "web1", Patience(2)).look()
