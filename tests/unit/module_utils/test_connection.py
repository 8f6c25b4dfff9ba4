# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _connection
from ansible_collections.graceful.azure.plugins.module_utils._connection import Budget, NoAnswer, NotConnected, connect
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Peer, seconds_at_most

# What a test of a slow service may take.
LIMIT = 3.0


def test_a_name_server_that_does_not_answer_cannot_exceed_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    real = socket.getaddrinfo

    def slow(*args: t.Any, **options: t.Any) -> t.Any:
        if not options.get("flags"):
            over.wait(20)
        return real(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with seconds_at_most(LIMIT), pytest.raises(NotConnected, match=r"db1\.example could not be looked up in time"):
        connect(("db1.example", 80), Budget(0, 0.3))
    over.set()


def test_a_unix_socket_is_spoken_to(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with connect(str(tmp_path / "s"), Budget(100, 5)) as channel:
            server, _address = listening.accept()
            channel.sendall(b"ping")
            assert server.recv(10) == b"ping"
            server.sendall(b"pong\nmore")
            server.close()
            stream = channel.makefile("rb")
            assert stream.readline() == b"pong\n"
            assert stream.read() == b"more"


@pytest.mark.parametrize("path", ["/nonexistent/socket", "x" * 500, "/tmp/\0"], ids=["missing", "too long", "no path"])
def test_a_unix_socket_that_cannot_be_used_is_said(path: str) -> None:
    with pytest.raises(NoAnswer):
        connect(path, Budget(100, 5))


def test_an_address_where_nothing_answers_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer(b"pong") as server, seconds_at_most(LIMIT), socket.socket() as full:
        # Nobody accepts here, and the queue is full: a connection attempt hangs.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _each in range(4)]
        for each in fillers:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        time.sleep(0.05)
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", place)
            for place in (full.getsockname(), ("127.0.0.1", server.port))
        ]
        monkeypatch.setattr(_connection, "_looked_up", lambda address, limit: places)
        with connect(("two.example", 80), Budget(100, 1)) as connection:
            connection.sendall(b"ping")
            assert connection.makefile("rb").read(4) == b"pong"
        for each in fillers:
            each.close()


def test_a_connection_is_bounded_on_its_own_within_the_budget() -> None:
    budget = Budget(100, 60)
    with socket.create_server(("127.0.0.1", 0)) as silent, seconds_at_most(LIMIT):
        with connect(silent.getsockname(), budget, seconds=0.2) as connection:
            budget.begin(0.3)
            with pytest.raises(NoAnswer, match=r"within 0\.3 s") as failure:
                connection.makefile("rb").read()
        assert failure.value.late
        assert not isinstance(failure.value, NotConnected)
