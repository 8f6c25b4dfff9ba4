# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Asks the peers of a host, such as health URLs, Patroni, Redis and HAProxy. Bounded in time and in size.

The deadline is for all of it, from looking up the name to the last byte: a peer that sends one byte at a time cannot
exceed it, as it could with a plain socket's timeout.
"""

from __future__ import annotations

import base64
import http.client
import io
import os
import socket
import ssl
import threading
import time
import typing as t
import urllib.parse

from ._errors import EventsError, WrongOption
from ._text import clean

# A path is a Unix socket.
Address = t.Union[str, t.Tuple[str, int]]
# Status line and headers may be as large as this.
LARGEST_HEAD = 256 * 1024
# A socket takes no timeout that is much longer.
LONGEST_WAIT = 3600.0


class NoAnswer(EventsError):
    """There is no usable answer. The message is only the reason, for a sentence of the caller's."""


class Login(t.NamedTuple):
    username: str | None = None
    password: str | None = None


class Answer(t.NamedTuple):
    status: int
    text: str


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise NoAnswer(self.passed)
        return min(left, LONGEST_WAIT)

    @property
    def passed(self) -> str:
        return f"no complete answer within {self._seconds:.3g} s"

    def no_answer(self, exc: Exception) -> NoAnswer:
        if isinstance(exc, socket.timeout):
            return NoAnswer(self.passed)
        # The text of a certificate's error says more than its strerror.
        text = None if isinstance(exc, ssl.SSLError) else getattr(exc, "strerror", None)
        return NoAnswer(clean(text or str(exc) or type(exc).__name__, 200))


class Channel(io.RawIOBase):
    """A connection on which everything counts against one deadline, and what is read against one size."""

    def __init__(self, connection: socket.socket, deadline: _Deadline, largest: int) -> None:
        super().__init__()
        self._socket = connection
        self._deadline = deadline
        self._largest = largest
        self._size = 0
        self.reader = io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: t.Any) -> int:
        try:
            self._socket.settimeout(self._deadline.left())
            size = self._socket.recv_into(buffer)
        except OSError as exc:
            raise self._deadline.no_answer(exc) from exc
        self._size += size
        if self._size > self._largest:
            raise NoAnswer(f"the answer is larger than {self._largest / (1 << 20):.3g} MiB")
        return size

    def sendall(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._deadline.left())
            self._socket.sendall(data)
        except OSError as exc:
            raise self._deadline.no_answer(exc) from exc

    def makefile(self, mode: str) -> t.BinaryIO:
        """What http.client reads from."""
        return self.reader

    def close(self) -> None:
        self._socket.close()
        super().close()


def connect(address: Address, seconds: float, largest: int, tls: ssl.SSLContext | None = None) -> Channel:
    """A connection that is used for so many seconds, connecting included, and reads no more than so many bytes."""
    deadline = _Deadline(seconds)
    try:
        connection = _connected(address, deadline)
    except (OSError, ValueError, OverflowError) as exc:
        raise deadline.no_answer(exc) from exc
    try:
        if tls is not None:
            connection.settimeout(deadline.left())
            connection = tls.wrap_socket(connection, server_hostname=address[0])
        return Channel(connection, deadline, largest)
    except (OSError, ValueError) as exc:
        connection.close()
        raise deadline.no_answer(exc) from exc


def _connected(address: Address, deadline: _Deadline) -> socket.socket:
    if isinstance(address, str):
        places: list[t.Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", address)]
    else:
        places = _looked_up(address, deadline)
    last: OSError | None = None
    for number, (family, kind, protocol, _name, place) in enumerate(places):
        connection = socket.socket(family, kind, protocol)
        try:
            # An address where nothing answers leaves time for the others.
            connection.settimeout(deadline.left() / (len(places) - number))
            connection.connect(place)
            return connection
        except OSError as exc:
            last = exc
            connection.close()
        except BaseException:
            connection.close()
            raise
    raise last or OSError("the name has no address")


def _looked_up(address: tuple[str, int], deadline: _Deadline) -> list[t.Any]:
    """The addresses of a name. A name server may take longer than there is time, and cannot be interrupted."""
    host, port = address
    if not 0 < port < 65536:
        # What looks up addresses would take another port instead.
        raise ValueError("its port has to be 1 to 65535")
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    found: list[t.Any] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as exc:
            failed.append(exc)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if failed:
        raise failed[0]
    if not found:
        raise NoAnswer(f"the name {clean(host, 100)} could not be looked up in time")
    return found


def tls_context(verify: bool = True, ca_file: str | None = None) -> ssl.SSLContext:
    path = os.path.expanduser(os.path.expandvars(ca_file)) if ca_file else None
    try:
        context = ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as exc:
        reason = clean(getattr(exc, "strerror", None) or exc, 200)
        raise WrongOption(f"The certificates in {clean(path, 200)} cannot be used: {reason}.") from exc
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def ask(
    url: str,
    seconds: float,
    method: str = "GET",
    headers: t.Mapping[str, t.Any] | None = None,
    login: Login | None = None,
    body: bytes | None = None,
    verify: bool = True,
    ca_file: str | None = None,
    largest: int = 0,
) -> Answer:
    """Make one HTTP request. Proxies are not used and redirects are not followed. The body is read only if `largest`
    says how much of it there may be."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna").decode("ascii")
    except ValueError as exc:
        raise NoAnswer(f"it is not a URL ({clean(exc, 100)})") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise NoAnswer("it is not a URL of http or https")
    tls = tls_context(verify, ca_file) if parts.scheme == "https" else None
    place = (f"[{host}]" if ":" in host else host) + (f":{parts.port}" if parts.port else "")
    with connect((host, port), seconds, largest + LARGEST_HEAD, tls) as channel:
        return _exchanged(channel, method, parts, _headers(place, login, headers or {}), body, largest > 0)


def _headers(place: str, login: Login | None, given: t.Mapping[str, t.Any]) -> dict[str, str]:
    headers = {"Host": place, "User-Agent": "graceful.azure", "Accept": "*/*", "Connection": "close"}
    if login and login.username is not None:
        pair = f"{login.username}:{login.password or ''}".encode("utf-8", "replace")
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode("ascii")
    names = {name.lower() for name in given}
    own = {name: value for name, value in headers.items() if name.lower() not in names}
    return {**own, **{name: str(value) for name, value in given.items()}}


def _exchanged(
    channel: Channel,
    method: str,
    parts: urllib.parse.SplitResult,
    headers: t.Mapping[str, str],
    body: bytes | None,
    read_body: bool,
) -> Answer:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path = urllib.parse.quote(target, safe="%/?:@!$&'()*+,;=~-._[]", errors="replace")
    connection = http.client.HTTPConnection(parts.hostname or "")
    connection.sock = t.cast(t.Any, channel)
    try:
        connection.request(method, path, body, headers)
    except ValueError:
        # What the error says may have a secret in it.
        raise NoAnswer("its method or headers have characters that HTTP does not allow") from None
    response = http.client.HTTPResponse(t.cast(t.Any, channel), method=method)
    try:
        response.begin()
        text = response.read().decode("utf-8", "replace") if read_body else ""
    except (http.client.HTTPException, ValueError) as exc:
        raise NoAnswer(f"the answer is not HTTP ({clean(str(exc) or type(exc).__name__, 100)})") from exc
    finally:
        response.close()
    return Answer(response.status, text)
