# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._connection import NoAnswer
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._peer import Login, ask
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Peer, Secure, seconds_at_most

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# What a slow peer has, and what such a test may take.
DEADLINE, LIMIT = 0.3, 3.0


@pytest.mark.parametrize(
    ("raw", "status", "text"),
    [
        (OK, 200, "hello"),
        (b"HTTP/1.0 503 Down\r\n\r\nuntil the end", 503, "until the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, "abc"),
        (b"HTTP/1.1 204 None\r\n\r\n", 204, ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe", 200, "��"),
        (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 302, ""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, "hello"),
    ],
)
def test_an_answer_is_read_as_it_is(raw: bytes, status: int, text: str) -> None:
    with Peer(raw) as server:
        assert ask(server.url, 5, largest=1000) == (status, text)
        assert len(server.heard) == 1, "a redirect is not followed"


def test_a_body_that_nobody_wants_is_not_waited_for() -> None:
    with Peer(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\nx") as server, seconds_at_most(LIMIT):
        assert ask(server.url, 5).status == 200


DRIPPING = {
    "in its status line": b"HTTP/1.1 200 " + b"O" * 1000,
    "in its headers": b"HTTP/1.1 200 OK\r\nX-Header: " + b"x" * 1000,
    "in its body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000,
    "before its answer": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
}


@pytest.mark.parametrize("raw", DRIPPING.values(), ids=DRIPPING)
def test_a_peer_that_sends_byte_by_byte_cannot_exceed_the_deadline(raw: bytes) -> None:
    with (
        Peer(raw, pause=0.02) as server,
        seconds_at_most(LIMIT),
        pytest.raises(NoAnswer, match=r"no complete answer within 0\.3 s"),
    ):
        ask(server.url, DEADLINE, largest=10_000)


def test_a_peer_that_says_nothing_cannot_exceed_the_deadline() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        seconds_at_most(LIMIT),
        pytest.raises(NoAnswer, match="within"),
    ):
        ask(f"http://127.0.0.1:{silent.getsockname()[1]}", DEADLINE)


def test_a_peer_that_does_not_read_cannot_exceed_the_deadline() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        seconds_at_most(LIMIT),
        pytest.raises(NoAnswer, match="within"),
    ):
        ask(f"http://127.0.0.1:{deaf.getsockname()[1]}", DEADLINE, "POST", body=b"x" * 50_000_000)


def test_a_handshake_that_never_ends_cannot_exceed_the_deadline() -> None:
    raw = b"\x16\x03\x03\x40\x00" + b"\x02" * 1000
    with Peer(raw, pause=0.02) as server, seconds_at_most(LIMIT), pytest.raises(NoAnswer, match="within"):
        ask(f"https://127.0.0.1:{server.port}", DEADLINE)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000,
    ],
    ids=["body", "headers", "interim answers"],
)
def test_a_peer_that_says_too_much_is_not_listened_to(raw: bytes) -> None:
    with Peer(raw) as server, pytest.raises(NoAnswer, match=r"larger than|not HTTP"):
        ask(server.url, 5, largest=1_000_000)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\ncut off",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    ],
)
def test_what_is_not_http_is_said(raw: bytes) -> None:
    with Peer(raw) as server, pytest.raises(NoAnswer) as caught:
        ask(server.url, 5, largest=1000)
    assert caught.value.message
    assert caught.value.message.isprintable()


def test_an_address_of_ipv6_is_no_host_with_a_port() -> None:
    with Peer(OK) as server:
        assert ask(f"http://[::ffff:127.0.0.1]:{server.port}/", 5).status == 200
        assert f"Host: [::ffff:127.0.0.1]:{server.port}".encode() in server.heard[0]


def test_where_nothing_listens_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(NoAnswer, match="Connection refused"):
        ask(f"http://127.0.0.1:{port}", 5)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://127.0.0.1/", "http://", "gopher://127.0.0.1", "http://[::1", "http://h:99999/", "x"],
)
def test_only_http_and_https_are_asked(url: str) -> None:
    with pytest.raises(NoAnswer, match="not a URL"):
        ask(url, 5)


def test_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Peer(OK) as server:
        assert ask(server.url, 5).status == 200


def test_a_request_has_what_it_was_told_and_nothing_else_gets_in() -> None:
    with Peer(OK) as server:
        ask(
            f"{server.url}/pfad mit ü?a=b c&d=1\u00e9#fragment",
            5,
            "PUT",
            headers={"X-Token": "t", "user-agent": "mine", "Host": "other.example"},
            login=Login("me", "pässword"),
            body=b"{}",
        )
        lines = server.heard[0].split(b"\r\n")
    assert lines[0] == b"PUT /pfad%20mit%20%C3%BC?a=b%20c&d=1%C3%A9 HTTP/1.1"
    assert lines[-1] == b"{}"
    expected = [b"X-Token: t", b"user-agent: mine", b"Host: other.example", b"Connection: close"]
    expected.append(b"Authorization: Basic " + base64.b64encode("me:pässword".encode()))
    assert set(expected) <= set(lines)
    assert len([line for line in lines if line.lower().startswith((b"host:", b"user-agent:"))]) == 2


@pytest.mark.parametrize("value", ["secret\r\nX-Other: 1", "secret €"])
def test_a_header_that_cannot_be_is_said_without_telling_it(value: str) -> None:
    with Peer(OK) as server, pytest.raises(NoAnswer, match="does not allow") as caught:
        ask(server.url, 5, headers={"X-Token": value})
    assert "secret" not in str(caught.value)


def test_a_certificate_is_checked_unless_told_otherwise(certificate: Path) -> None:
    with Secure(OK, certificate) as server:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises(NoAnswer, match=r"(?i)certificate verify failed"):
            ask(url, 5)
        assert ask(url, 5, verify=False).status == 200
        assert ask(url, 5, ca_file=str(certificate), largest=100) == (200, "hello")


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_certificates_that_cannot_be_used_are_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(WrongOption, match=r"certificates in .* cannot be used"):
        ask("https://127.0.0.1:1", 5, ca_file=str(tmp_path / name))
