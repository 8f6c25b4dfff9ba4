# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import socket

import pytest
import requests
import urllib3
from ansible_collections.graceful.azure.plugins.module_utils import _failures
from ansible_collections.graceful.azure.plugins.module_utils._errors import NoConnection, PassingFailure, Refused
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Transport
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Peer

PATH = "/metadata/scheduledevents"


def ask(url: str, seconds: float = 5.0) -> Reply:
    return Transport().send("POST", url + PATH, {"api-version": "x"}, {}, b"{}", seconds, seconds)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_where_nothing_listens_nothing_was_sent() -> None:
    with pytest.raises(NoConnection, match=r"http://127\.0\.0\.1:\d+ cannot be reached .Connection refused"):
        ask(f"http://127.0.0.1:{unused_port()}")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "broke off the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "broke off"),
        (b"nothing like HTTP\r\n\r\n", "broke off the connection"),
        (b"\x1b[2J{{ x }}\r\n\r\n", "broke off the connection"),
    ],
)
def test_once_there_was_a_connection_it_may_have_been_sent(answer: bytes, says: str) -> None:
    with Peer(answer) as server, pytest.raises(PassingFailure, match=says) as failure:
        ask(f"http://127.0.0.1:{server.port}")
    assert not isinstance(failure.value, NoConnection)
    assert failure.value.message.isprintable()
    assert "{{" not in failure.value.message


def test_a_network_that_fails_after_the_request_is_no_missing_connection() -> None:
    lost = OSError(errno.EHOSTUNREACH, "No route to host")
    exc = requests.exceptions.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.", lost))
    failure = _failures.of_connection("It", exc, False, 5, 5)
    assert failure.__class__ is PassingFailure
    assert "No route to host" in failure.message


def test_a_whole_answer_is_bounded_in_time() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b" " * 100
    with Peer(answer, pause=0.05) as server, pytest.raises(PassingFailure, match=r"did not finish .* within 0\.3 s"):
        ask(f"http://127.0.0.1:{server.port}", 0.3)


def test_a_whole_answer_is_bounded_in_size() -> None:
    with Peer(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 21)) as server, pytest.raises(Refused, match="more than 1 MiB"):
        ask(f"http://127.0.0.1:{server.port}")
