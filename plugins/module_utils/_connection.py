# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections that are bounded in time and in size.

The deadline covers everything from looking up the name to the last byte. The timeout of a plain socket would start
again with every byte.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import typing as t

from ._errors import EventsError
from ._text import clean

# A path is a Unix socket.
Address = t.Union[str, t.Tuple[str, int]]
# In seconds; the operating system does not take much longer timeouts.
LONGEST_WAIT = 3600.0


class NoAnswer(EventsError):
    """There is no usable answer. The message is only the reason: the caller makes a sentence of it."""

    def __init__(self, message: str, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


class NotConnected(NoAnswer):
    """No connection could be made, so nothing was sent."""


class Budget:
    """Until when an answer has to be complete, and how many bytes may be received for it."""

    def __init__(self, largest: int, seconds: float = 0.0) -> None:
        self._largest = largest
        self.begin(seconds)

    def begin(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._received = 0

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._late()
        return min(left, LONGEST_WAIT)

    def received(self, size: int) -> None:
        self._received += size
        if self._received > self._largest:
            raise NoAnswer(f"the answer is larger than {self._largest / (1 << 20):.3g} MiB")

    def failure(self, exc: Exception) -> NoAnswer:
        if isinstance(exc, NoAnswer):
            return exc
        if isinstance(exc, socket.timeout):
            return self._late()
        # The text of an error about a certificate says more than its strerror.
        text = None if isinstance(exc, ssl.SSLError) else getattr(exc, "strerror", None)
        return NoAnswer(clean(text or str(exc) or type(exc).__name__, 200))

    def _late(self) -> NoAnswer:
        return NoAnswer(f"no complete answer within {self._seconds:.3g} s", late=True)


class BoundedSocket(socket.socket):
    """Raises NoAnswer instead of OSError, and when its budget is used up."""

    budget: Budget

    def recv_into(self, *args: t.Any, **kwargs: t.Any) -> int:
        try:
            self.settimeout(self.budget.left())
            size = super().recv_into(*args, **kwargs)
        except OSError as exc:
            raise self.budget.failure(exc) from exc
        self.budget.received(size)
        return size

    def sendall(self, *args: t.Any, **kwargs: t.Any) -> None:
        try:
            self.settimeout(self.budget.left())
            super().sendall(*args, **kwargs)
        except OSError as exc:
            raise self.budget.failure(exc) from exc


class BoundedTLSSocket(BoundedSocket, ssl.SSLSocket):
    """The same with TLS."""


def connect(
    address: Address, budget: Budget, seconds: float = LONGEST_WAIT, tls: ssl.SSLContext | None = None
) -> BoundedSocket:
    """A connection that has this budget; it has to be there within so many seconds. Raises NotConnected."""
    try:
        limit = Budget(0, min(seconds, budget.left()))
        connection = _connected(address, limit)
        if tls is not None:
            tls.sslsocket_class = BoundedTLSSocket
            try:
                connection.settimeout(limit.left())
                connection = t.cast(BoundedTLSSocket, tls.wrap_socket(connection, server_hostname=address[0]))
            except BaseException:
                connection.close()
                raise
    except (NoAnswer, OSError, ValueError, OverflowError) as exc:
        failure = budget.failure(exc)
        raise NotConnected(failure.message, failure.late) from exc
    connection.budget = budget
    return connection


def _connected(address: Address, limit: Budget) -> BoundedSocket:
    if isinstance(address, str):
        places: list[t.Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", address)]
    else:
        places = _looked_up(address, limit)
    last: OSError | None = None
    for number, (family, kind, protocol, _name, place) in enumerate(places):
        connection = BoundedSocket(family, kind, protocol)
        try:
            # Each address gets its part of the time, so that one where nothing answers leaves some for the others.
            connection.settimeout(limit.left() / (len(places) - number))
            connection.connect(place)
            if family != socket.AF_UNIX:
                # The body is sent after the headers, and must not wait until these are acknowledged.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as exc:
            last = exc
            connection.close()
        except BaseException:
            connection.close()
            raise
    raise last or OSError("the name has no address")


def _looked_up(address: tuple[str, int], limit: Budget) -> list[t.Any]:
    """The addresses of a name. A name server may take longer than there is time, and cannot be interrupted."""
    host, port = address
    if not 0 < port < 65536:
        # getaddrinfo would use another port instead.
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
    thread.join(limit.left())
    if failed:
        raise failed[0]
    if not found:
        raise NoAnswer(f"the name {clean(host, 100)} could not be looked up in time", late=True)
    return found
