# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends HTTP requests as _transport.py does, with the library requests."""

from __future__ import annotations

import functools
import socket
import typing as t

from ._connection import Budget, connect
from ._transport import HEADERS, MAX_ANSWER, MAX_BODY, Reply, Request, checked

REQUESTS_ERROR: str | None = None
try:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection
    from urllib3.connectionpool import HTTPConnectionPool
except ImportError:
    import traceback

    REQUESTS_ERROR = traceback.format_exc()
    HTTPAdapter = HTTPConnection = object  # type: ignore[assignment,misc]


class _Connection(HTTPConnection):
    def __init__(self, budget: Budget, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self._budget = budget

    def _new_conn(self) -> socket.socket:
        return connect((self.host, self.port), self._budget, t.cast(float, self.timeout))


class _Adapter(HTTPAdapter):
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": self._new_pool}

    def _new_pool(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
        pool = HTTPConnectionPool(*args, **kwargs)
        pool.ConnectionCls = functools.partial(_Connection, self._budget)  # type: ignore[assignment]
        return pool


class RequestsTransport:
    """Sends requests as they are: no proxies, no redirects, no retries."""

    def __init__(self) -> None:
        self._budget = Budget(MAX_ANSWER)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.mount("http://", _Adapter(self._budget))
        self._session.headers = requests.structures.CaseInsensitiveDict(HEADERS)

    def send(self, request: Request) -> Reply:
        """Make one request. Raises PassingFailure or Refused with a message for the operator."""
        self._budget.begin(request.total_timeout)
        try:
            with self._session.request(
                request.method,
                request.endpoint + request.path,
                params=request.query,
                headers=request.headers,
                data=request.body,
                timeout=(request.connect_timeout, None),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = response.raw.read(MAX_BODY + 1, decode_content=False) or b""
        except Exception as exc:
            # Not only RequestException: broken answers can raise other errors in the libraries.
            from . import _failures

            raise _failures.of_exchange(request, exc) from exc
        if response.status_code < 200:
            # The final answer is still to come, and must not be taken for the next one.
            self._session.close()
        return checked(request.where, Reply(response.status_code, response.headers, content))
