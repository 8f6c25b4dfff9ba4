# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._connection import BoundedSocket
from ansible_collections.graceful.azure.plugins.module_utils._errors import NoConnection, PassingFailure, Refused
from ansible_collections.graceful.azure.plugins.module_utils._requests_transport import RequestsTransport
from ansible_collections.graceful.azure.plugins.module_utils._transport import PlainTransport, Reply, Request
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Peer

PATH = "/metadata/scheduledevents"


Transport = type[PlainTransport | RequestsTransport]


@pytest.fixture(params=[PlainTransport, RequestsTransport])
def transport(request: pytest.FixtureRequest) -> Transport:
    return t.cast(Transport, request.param)


def ask(transport: Transport, url: str, seconds: float = 5.0) -> Reply:
    return transport().send(Request("POST", url, PATH, {"api-version": "x"}, {}, b"{}", seconds, seconds))


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_where_nothing_listens_nothing_was_sent(transport: Transport) -> None:
    with pytest.raises(NoConnection, match=r"http://127\.0\.0\.1:\d+ cannot be reached .Connection refused"):
        ask(transport, f"http://127.0.0.1:{unused_port()}")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "sent only"),
        (b"nothing like HTTP\r\n\r\n", "closed the connection"),
        (b"\x1b[2J{{ x }}\r\n\r\n", "closed the connection"),
    ],
)
def test_once_there_was_a_connection_it_may_have_been_sent(transport: Transport, answer: bytes, says: str) -> None:
    with Peer(answer) as server, pytest.raises(PassingFailure, match=says) as failure:
        ask(transport, f"http://127.0.0.1:{server.port}")
    assert not isinstance(failure.value, NoConnection)
    assert failure.value.message.isprintable()
    assert "{{" not in failure.value.message


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
def test_a_network_that_fails_after_the_request_is_no_missing_connection(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    real = BoundedSocket.recv_into

    def fails_after(connection: BoundedSocket, *args: t.Any, **options: t.Any) -> int:
        size = real(connection, *args, **options)
        if not size:
            lost = OSError(errno.EHOSTUNREACH, "No route to host")
            raise connection.budget.failure(lost) from lost
        return size

    monkeypatch.setattr(BoundedSocket, "recv_into", fails_after)
    with (
        Peer(before) as server,
        pytest.raises(PassingFailure, match=r"closed the connection .No route to host.") as failure,
    ):
        ask(transport, f"http://127.0.0.1:{server.port}")
    assert not isinstance(failure.value, NoConnection)


def test_a_whole_answer_is_bounded_in_time(transport: Transport) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b" " * 100
    with Peer(answer, pause=0.05) as server, pytest.raises(PassingFailure, match=r"did not finish .* within 0\.3 s"):
        ask(transport, f"http://127.0.0.1:{server.port}", 0.3)


def test_a_whole_answer_is_bounded_in_size(transport: Transport) -> None:
    with Peer(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 21)) as server, pytest.raises(Refused, match="more than 1 MiB"):
        ask(transport, f"http://127.0.0.1:{server.port}")


class Listener:
    """A server on 127.0.0.1 that gives each connection its own answers, one for each request, and then closes it."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self._scripts = connections
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            with contextlib.suppress(OSError):
                connection, _peer = self._socket.accept()
                self.connections += 1
                with connection:
                    for answer in script:
                        self.requests.append(connection.recv(65536))
                        connection.sendall(answer)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._thread.join(5)
        self._socket.close()


def many(transport: Transport, server: Listener, times: int) -> list[Reply]:
    sender = transport()
    request = Request("GET", f"http://127.0.0.1:{server.port}", PATH, {"api-version": "x"}, {}, None, 5.0, 5.0)
    replies = []
    for _time in range(times):
        replies.append(sender.send(request))
        # What the service does after its answer has been done then.
        time.sleep(0.2)
    return replies


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: one\r\n\r\n{}"


def test_the_connection_is_kept(transport: Transport) -> None:
    with Listener([ANSWER, ANSWER, ANSWER]) as server:
        assert [reply.body for reply in many(transport, server, 3)] == [b"{}"] * 3
    assert server.connections == 1


def test_a_connection_that_the_service_has_closed_is_made_again(transport: Transport) -> None:
    closing = ANSWER.replace(b"ETag: one", b"Connection: close")
    with Listener([closing], [closing]) as server:
        assert [reply.status for reply in many(transport, server, 2)] == [200, 200]
    assert server.connections == 2
    with Listener([ANSWER], [ANSWER]) as server:
        # Closed without a word after the first answer.
        assert [reply.status for reply in many(transport, server, 2)] == [200, 200]
    assert server.connections == 2


def test_what_nobody_asked_for_is_no_answer_to_the_next_request(transport: Transport) -> None:
    with Listener([ANSWER + ANSWER.replace(b"{}", b"[]")], [ANSWER]) as server:
        assert [reply.body for reply in many(transport, server, 2)] == [b"{}", b"{}"]


def test_it_sends_what_the_service_wants_and_nothing_of_the_user(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    with Listener([ANSWER]) as server:
        (reply,) = many(transport, server, 1)
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == f"GET {PATH}?api-version=x HTTP/1.1"
    sent = {name.lower(): value for name, _colon, value in (line.partition(": ") for line in lines[1:] if line)}
    assert sent["metadata"] == "true"
    assert sent["user-agent"].startswith("graceful.azure/")
    assert sent["accept-encoding"] == "identity"
    assert sent["host"] == f"127.0.0.1:{server.port}"
    assert reply.headers.get("etag") == reply.headers.get("ETag") == "one"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: \xb2\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"Content-Type: multipart/mixed; boundary*=a; boundary*0=b\r\n",
        b"Content-Length: 2\r\nContent-Length: 4\r\n",
        b"Transfer-Encoding: chunked\r\nX: y\r\n\r\n-5\r\n",
    ],
    ids=["no digit", "more digits than a number has", "a boundary in parts", "two lengths", "a negative chunk"],
)
def test_hostile_heads_are_failures_with_a_message_or_answers(transport: Transport, head: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n{}"
    with Peer(answer) as server, contextlib.suppress(PassingFailure):
        assert ask(transport, f"http://127.0.0.1:{server.port}").status == 200


def test_chunks_of_no_size_do_not_fill_the_memory(transport: Transport) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    with Peer(head + b" " * (16 << 20)) as server, pytest.raises((PassingFailure, Refused)):
        ask(transport, f"http://127.0.0.1:{server.port}")


def test_an_answer_after_an_early_one_is_not_taken_for_the_next(transport: Transport) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    with Listener([early + ANSWER], [ANSWER.replace(b"{}", b"[]")]) as server:
        assert many(transport, server, 2)[1].body == b"[]"


def test_a_request_under_way_can_be_ended_from_another_thread() -> None:
    sender = PlainTransport()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        threading.Timer(0.5, sender.abort).start()
        begin = time.monotonic()
        with pytest.raises(PassingFailure):
            sender.send(Request("GET", url, PATH, {}, {}, None, 60.0, 60.0))
        assert time.monotonic() - begin < 30
