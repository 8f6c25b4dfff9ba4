# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends one HTTP request at a time over one kept-alive connection, with the standard library only.

The engine, the watcher and the event source use it. Loading requests would add a third of the time of ping to each call
of the engine. The other modules use requests (_requests_transport.py). Both pass the same tests.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import typing as t
from urllib.parse import urlencode, urlsplit

from ._connection import BoundedSocket, Budget, connect
from ._errors import PassingFailure, Refused

USER_AGENT = "graceful.azure/0.2.0"
HEADERS = {"Metadata": "true", "User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
MAX_BODY = 1 << 20
# Everything that is received: the body, headers, and the sizes of chunks.
MAX_ANSWER = 4 << 20


class Request(t.NamedTuple):
    method: str
    endpoint: str
    path: str
    query: t.Mapping[str, str]
    headers: t.Mapping[str, str] = {}
    body: bytes | None = None
    connect_timeout: float = 5.0
    total_timeout: float = 130.0

    @property
    def where(self) -> str:
        """The name of the service in messages."""
        return f"The metadata service at {self.endpoint}"


class Reply(t.NamedTuple):
    status: int
    headers: t.Mapping[str, str]
    body: bytes


def checked(where: str, reply: Reply) -> Reply:
    """The reply, if it is complete and not too large. One byte more than allowed has to be read for that."""
    if len(reply.body) > MAX_BODY:
        raise Refused(
            f"{where} sent more than {MAX_BODY >> 20} MiB, which no Scheduled Events document needs. "
            "Check that endpoint is Azure's metadata service."
        )
    announced = reply.headers.get("Content-Length", "")
    known = announced.isascii() and announced.isdigit() and len(announced) < 20
    if known and len(reply.body) < int(announced) and reply.status not in (204, 304):
        raise PassingFailure(f"{where} sent only {len(reply.body)} of {announced} bytes.")
    return reply


class PlainTransport:
    """Sends requests as they are: no proxies, no redirects, no retries."""

    def __init__(self) -> None:
        self._budget = Budget(MAX_ANSWER)
        self._connection: http.client.HTTPConnection | None = None
        self._socket: BoundedSocket | None = None

    def send(self, request: Request) -> Reply:
        """Make one request. Raises PassingFailure or Refused with a message for the operator."""
        self._budget.begin(request.total_timeout)
        try:
            connection = self._connected(request)
            target = f"{request.path}?{urlencode(request.query)}"
            connection.request(request.method, target, request.body, {**HEADERS, **request.headers})
            response = connection.getresponse()
            reply = Reply(response.status, t.cast("t.Mapping[str, str]", response.headers), response.read(MAX_BODY + 1))
        except BaseException as exc:
            self._close()
            if not isinstance(exc, Exception):
                raise
            # Not only HTTPException: broken answers can raise other errors in http.client.
            from . import _failures

            raise _failures.of_exchange(request, exc) from exc
        if not response.isclosed() or reply.status < 200:
            # The rest of this answer must not be taken for the next one.
            self._close()
        return checked(request.where, reply)

    def abort(self) -> None:
        """End the request under way, from another thread."""
        self._budget.begin(0.0)
        kept = self._socket
        if kept is not None:
            with contextlib.suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)

    def _connected(self, request: Request) -> http.client.HTTPConnection:
        """The connection of the last request, unless the service has closed it since."""
        parts = urlsplit(request.endpoint)
        place = (parts.hostname or "", parts.port or http.client.HTTP_PORT)
        kept = self._connection
        if kept is not None and kept.sock is not None and (kept.host, kept.port) == place and not _readable(kept.sock):
            return kept
        self._close()
        self._socket = connect(place, self._budget, request.connect_timeout)
        self._connection = http.client.HTTPConnection(*place)
        self._connection.sock = self._socket
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _readable(kept: socket.socket) -> bool:
    """Before a request nothing can be read, unless the connection is closed or has something that was not asked for."""
    poller = select.poll()
    poller.register(kept, select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poller.poll(0))
