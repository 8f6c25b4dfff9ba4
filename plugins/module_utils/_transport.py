# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Moves bytes: one HTTP request at a time over one kept-alive connection, bounded in time and size."""

from __future__ import annotations

import functools
import socket
import time
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._errors import PassingFailure, Refused

REQUESTS_ERROR: str | None = None
try:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection
    from urllib3.connectionpool import HTTPConnectionPool
    from urllib3.exceptions import HTTPError as Urllib3Error
except ImportError:
    import traceback

    REQUESTS_ERROR = traceback.format_exc()
    HTTPAdapter = HTTPConnection = object  # type: ignore[assignment,misc]

USER_AGENT = "graceful.azure/0.2.0"
MAX_BODY = 1 << 20


class Reply(t.NamedTuple):
    status: int
    headers: t.Mapping[str, str]
    body: bytes


class _Budget:
    """When the request under way has to be over; shared with the socket that it uses."""

    deadline = 0.0

    def left(self) -> float:
        return self.deadline - time.monotonic()


class _BoundedSocket(socket.socket):
    """Counts the whole response against one deadline: a plain socket's timeout starts anew with every byte."""

    budget: _Budget

    def recv_into(self, *args: t.Any, **kwargs: t.Any) -> int:
        left = self.budget.left()
        if left <= 0:
            raise socket.timeout("timed out")
        self.settimeout(left)
        return super().recv_into(*args, **kwargs)


class _Connection(HTTPConnection):
    def __init__(self, budget: _Budget, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self._budget = budget

    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()
        timeout = plain.gettimeout()
        bounded = _BoundedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        bounded.budget = self._budget
        bounded.settimeout(timeout)
        return bounded


class _Adapter(HTTPAdapter):
    def __init__(self, budget: _Budget) -> None:
        self._budget = budget
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": self._new_pool}

    def _new_pool(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
        pool = HTTPConnectionPool(*args, **kwargs)
        pool.ConnectionCls = functools.partial(_Connection, self._budget)  # type: ignore[assignment]
        return pool


class Transport:
    """Sends what it is told to; knows no proxy, no redirect and no retry."""

    def __init__(self) -> None:
        self._budget = _Budget()
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.mount("http://", _Adapter(self._budget))
        self._session.headers = requests.structures.CaseInsensitiveDict(
            {"Metadata": "true", "User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        )

    def send(
        self,
        method: str,
        url: str,
        query: t.Mapping[str, str],
        headers: t.Mapping[str, str],
        body: bytes | None,
        connect_timeout: float,
        total_timeout: float,
    ) -> Reply:
        """Make one request, or raise what the operator should read."""
        where = f"The metadata service at {url.partition('/metadata')[0]}"
        self._budget.deadline = time.monotonic() + total_timeout
        try:
            with self._session.request(
                method,
                url,
                params=query,
                headers=headers,
                data=body,
                timeout=(min(connect_timeout, total_timeout), total_timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = response.raw.read(MAX_BODY + 1, decode_content=False) or b""
                announced = response.headers.get("Content-Length", "")
        except (requests.exceptions.RequestException, Urllib3Error, OSError) as exc:
            from ansible_collections.graceful.azure.plugins.module_utils import _failures

            out_of_time = self._budget.left() <= 0
            raise _failures.of_connection(where, exc, out_of_time, connect_timeout, total_timeout) from exc
        if len(content) > MAX_BODY:
            raise Refused(
                f"{where} sent more than {MAX_BODY >> 20} MiB, which no Scheduled Events document needs. "
                "Check that endpoint is Azure's metadata service."
            )
        if announced.isdigit() and len(content) < int(announced) and response.status_code != 304:
            raise PassingFailure(f"{where} broke off after {len(content)} of {announced} bytes.")
        return Reply(response.status_code, response.headers, content)
