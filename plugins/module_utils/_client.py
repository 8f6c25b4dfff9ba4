# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP without events: which answers are final, which failures are retried, and when."""

from __future__ import annotations

import json
import typing as t

from ._clock import Clock
from ._errors import NoConnection, PassingFailure, Refused, WrongOption
from ._transport import Reply, Request

GONE = 410
GONE_WITHIN = 70.0
GONE_PAUSE = 10.0

Result = t.TypeVar("Result")


class Sender(t.Protocol):
    def send(self, request: Request) -> Reply: ...


class Limits(t.NamedTuple):
    connect_timeout: float = 5.0
    read_timeout: float = 130.0
    retries: int = 3

    def checked(self) -> Limits:
        for name in ("connect_timeout", "read_timeout"):
            if not 0 < getattr(self, name) <= 3600:
                raise WrongOption(f"{name} is {getattr(self, name):g}; give seconds greater than 0, at most 3600.")
        if not 0 <= self.retries <= 100:
            raise WrongOption(f"retries is {self.retries}; give a number from 0 (none) to 100.")
        return self


class Client:
    """Uses the first of its endpoints that takes a connection."""

    def __init__(
        self,
        transport: Sender,
        endpoint: str,
        limits: Limits,
        clock: Clock | None = None,
        fallbacks: t.Callable[[], t.Sequence[str]] = tuple,
    ) -> None:
        self.transport = transport
        self.endpoint = endpoint
        self.limits = limits
        self.clock = clock or Clock()
        self._fallbacks = fallbacks

    def deadline(self) -> float:
        """Until when a request that begins now may last, with all its retries."""
        return self.clock.monotonic() + self.limits.connect_timeout + self.limits.read_timeout

    def fetch(
        self,
        path: str,
        query: t.Mapping[str, str],
        decode: t.Callable[[Reply], Result],
        headers: t.Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> Result:
        """GET, with retries after failures that may pass, until the deadline."""
        begin = self.clock.monotonic()
        deadline = self.deadline() if deadline is None else deadline
        tries = 0
        while True:
            tries += 1
            try:
                return decode(self._get(path, query, headers or {}, deadline))
            except PassingFailure as failure:
                elapsed = self.clock.monotonic() - begin
                pause = self._pause(failure, tries, elapsed)
                if pause is None or elapsed + pause >= deadline - begin:
                    failure.message += f" Tried {tries} time{'s' if tries > 1 else ''} in {elapsed:.1f} s."
                    raise
                self.clock.sleep(pause)

    def _pause(self, failure: PassingFailure, tries: int, elapsed: float) -> float | None:
        """Seconds until the next try; None if there is none."""
        backoff = 0.5 * 2.0 ** min(tries - 1, 6)
        if failure.status == GONE and self.limits.retries:
            return min(backoff, GONE_PAUSE) if elapsed < GONE_WITHIN else None
        if tries > self.limits.retries:
            return None
        return backoff if failure.retry_after is None else failure.retry_after

    def _get(self, path: str, query: t.Mapping[str, str], headers: t.Mapping[str, str], deadline: float) -> Reply:
        request = Request("GET", self.endpoint, path, query, headers)
        try:
            return self._send(request, deadline)
        except NoConnection as failure:
            attempts = [failure.message]
            for endpoint in self._fallbacks():
                try:
                    reply = self._send(request._replace(endpoint=endpoint), deadline)
                except (PassingFailure, Refused) as other:
                    attempts.append(other.message)
                else:
                    self.endpoint, self._fallbacks = endpoint, tuple
                    return reply
            failure.message = " ".join(attempts)
            raise

    def post(self, path: str, query: t.Mapping[str, str], content: t.Mapping[str, t.Any]) -> Reply:
        """POST once. The caller decides whether it is sent again, after reading the document."""
        headers, body = {"Content-Type": "application/json"}, json.dumps(content).encode()
        return self._send(Request("POST", self.endpoint, path, query, headers, body), self.deadline())

    def _send(self, request: Request, deadline: float) -> Reply:
        left = min(self.limits.read_timeout, deadline - self.clock.monotonic())
        request = request._replace(connect_timeout=self.limits.connect_timeout, total_timeout=max(left, 0.1))
        reply = self.transport.send(request)
        if reply.status != 200 and (reply.status != 304 or request.method != "GET"):
            from . import _failures

            raise _failures.of_answer(request, reply, self.clock.utc_now())
        if request.endpoint == self.endpoint:
            self._fallbacks = tuple
        return reply
