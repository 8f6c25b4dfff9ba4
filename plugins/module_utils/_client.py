# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Knows HTTP and nothing of events: which answers are final, which pass, and when to ask again."""

from __future__ import annotations

import json
import math
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._document import parse_time
from ansible_collections.graceful.azure.plugins.module_utils._errors import (
    NothingThere,
    PassingFailure,
    Refused,
    WrongOption,
)
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply

GONE = 410
GONE_WITHIN = 70.0
GONE_PAUSE = 10.0
PASSING_STATUSES = (GONE, 429, 500, 502, 503, 504)
RETRY_AFTER_LEAST, RETRY_AFTER_MOST = 1.0, 30.0

Result = t.TypeVar("Result")


class Sender(t.Protocol):
    def send(
        self,
        method: str,
        url: str,
        query: t.Mapping[str, str],
        headers: t.Mapping[str, str],
        body: bytes | None,
        connect_timeout: float,
        total_timeout: float,
    ) -> Reply: ...


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
    """Asks the first of its endpoints that takes a connection, and stays with it."""

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

    def fetch(
        self,
        path: str,
        query: t.Mapping[str, str],
        decode: t.Callable[[Reply], Result],
        headers: t.Mapping[str, str] | None = None,
    ) -> Result:
        """GET, again and again while the failure may pass, the retries allow it and the time lasts."""
        begin = self.clock.monotonic()
        deadline = begin + self.limits.connect_timeout + self.limits.read_timeout
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
        """Seconds until the next try; None when there shall be none."""
        backoff = 0.5 * 2.0 ** min(tries - 1, 6)
        if failure.status == GONE and self.limits.retries:
            return min(backoff, GONE_PAUSE) if elapsed < GONE_WITHIN else None
        if tries > self.limits.retries:
            return None
        return backoff if failure.retry_after is None else failure.retry_after

    def _get(self, path: str, query: t.Mapping[str, str], headers: t.Mapping[str, str], deadline: float) -> Reply:
        try:
            return self._send("GET", self.endpoint, path, query, headers, None, deadline)
        except NothingThere as failure:
            attempts = [failure.message]
            for endpoint in self._fallbacks():
                try:
                    reply = self._send("GET", endpoint, path, query, headers, None, deadline)
                except (PassingFailure, Refused) as other:
                    attempts.append(other.message)
                else:
                    self.endpoint, self._fallbacks = endpoint, tuple
                    return reply
            failure.message = " ".join(attempts)
            raise

    def post(self, path: str, query: t.Mapping[str, str], content: t.Mapping[str, t.Any]) -> Reply:
        """POST once; whether it is sent again is for the caller to decide, after looking what became of it."""
        deadline = self.clock.monotonic() + self.limits.connect_timeout + self.limits.read_timeout
        headers = {"Content-Type": "application/json"}
        return self._send("POST", self.endpoint, path, query, headers, json.dumps(content).encode(), deadline)

    def _send(
        self,
        method: str,
        endpoint: str,
        path: str,
        query: t.Mapping[str, str],
        headers: t.Mapping[str, str],
        body: bytes | None,
        deadline: float,
    ) -> Reply:
        left = min(self.limits.read_timeout, deadline - self.clock.monotonic())
        reply = self.transport.send(
            method, endpoint + path, query, headers, body, self.limits.connect_timeout, max(left, 0.1)
        )
        if reply.status not in (200, 304):
            raise self._refusal(f"The metadata service at {endpoint} answered {method} {path} with", reply)
        if endpoint == self.endpoint:
            self._fallbacks = tuple
        return reply

    def _refusal(self, what: str, reply: Reply) -> Refused | PassingFailure:
        error, versions = _error_body(reply.body)
        said = f"{what} {reply.status}{error}."
        if reply.status in PASSING_STATUSES:
            return PassingFailure(said, reply.status, self._retry_after(reply))
        if 300 <= reply.status < 400:
            target = reply.headers.get("Location", "nowhere")
            return Refused(
                f"{said} It redirects to {target!r:.200}, which the metadata service never does and which is not "
                "followed. Check endpoint, and what answers at that address.",
                reply.status,
            )
        if versions:
            return Refused(f"{said} Set api_version to one that it offers: {', '.join(versions)}.", reply.status)
        advice = {
            400: "The request was refused as it stands; if this is not a newer api_version than the service knows, "
            "check that endpoint is Azure's metadata service.",
            404: "There is no such path: check endpoint, and that this VM has a metadata service.",
        }
        return Refused(
            f"{said} {advice.get(reply.status, 'Check that endpoint is the metadata service.')}", reply.status
        )

    def _retry_after(self, reply: Reply) -> float | None:
        value = reply.headers.get("Retry-After")
        if value is None:
            return None
        moment = parse_time(value)
        try:
            seconds = float(value) if moment is None else (moment - self.clock.utc_now()).total_seconds()
        except ValueError:
            return None
        return min(max(seconds, RETRY_AFTER_LEAST), RETRY_AFTER_MOST) if not math.isnan(seconds) else None


def _error_body(body: bytes) -> tuple[str, list[str]]:
    """What the service says about the error, quoted, and the versions that it offers instead."""
    try:
        content = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return "", []
    if not isinstance(content, dict):
        return "", []
    error, versions = content.get("error"), content.get("newest-versions")
    said = f" ({error!r:.300})" if isinstance(error, str) and error else ""
    return said, [str(version)[:40] for version in versions[:20]] if isinstance(versions, list) else []
