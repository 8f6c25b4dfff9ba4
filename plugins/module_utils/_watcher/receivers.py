# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends messages to receivers: an event stream, AWX, or any URL. Each has a thread and a spool of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import typing as t
import urllib.parse

from .. import _peer
from .._errors import EventsError
from .._text import clean, count, duration
from .changes import BACK, Change
from .config import AFFECTED, AWX, Receiver
from .spool import Spool

Json = t.Dict[str, t.Any]
Log = t.Callable[[str], None]
EXTRA_VAR = "graceful_event"
LARGEST_ANSWER = 256 * 1024
# Seconds until the next try at most: where the receiver is away, and where it refuses what it gets.
LONGEST_PAUSE, LONGEST_PAUSE_REFUSED = 60.0, 300.0
# A message that may itself be wrong keeps the others waiting for so many tries only.
TRIES_OF_BAD_MESSAGE = 5
BAD_MESSAGE = (400, 413, 415, 422, 500)
# How often the same failure is logged again, in seconds.
SAY_AGAIN = 3600.0
ADVICE = {
    401: "its token or signature is not accepted: correct it in watcher_receivers and apply the role again",
    403: "the token is not allowed to do that: give it the permission, or another token",
    404: "nothing is there: correct the url in watcher_receivers and apply the role again",
}


class Outcome(t.NamedTuple):
    taken: bool
    message: str
    # It answered, and would answer the same again.
    refused: bool = False
    bad_message: bool = False


def wants(receiver: Receiver, change: Change) -> bool:
    """What affects other VMs only is left out if it is certain that it does."""
    if change.change not in receiver.changes:
        return False
    return change.change == BACK or receiver.events != AFFECTED or change.event.get("affects_me") is not False


def host_of(url: str) -> str:
    """The part of a URL that may be logged: the rest of it may be secret."""
    try:
        return clean(urllib.parse.urlsplit(url).hostname or "", 100)
    except ValueError:
        return ""


def body_of(receiver: Receiver, message: Json) -> bytes:
    content = {"extra_vars": {EXTRA_VAR: message}} if receiver.kind == AWX else message
    # Without escapes: event streams read the body as YAML, which does not join surrogate pairs.
    return json.dumps(content, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


def headers_of(receiver: Receiver, body: bytes) -> dict[str, str]:
    headers = {"Content-Type": "application/json" if receiver.kind == AWX else "application/cloudevents+json"}
    if receiver.token:
        headers["Authorization"] = f"Bearer {receiver.token}"
    if receiver.hmac_secret:
        digest = hmac.new(receiver.hmac_secret.encode("utf-8"), body, hashlib.sha256)
        encoded = (
            base64.b64encode(digest.digest()).decode("ascii")
            if receiver.hmac_format == "base64"
            else digest.hexdigest()
        )
        headers[receiver.hmac_header] = receiver.hmac_prefix + encoded
    return {**headers, **receiver.headers}


def send(receiver: Receiver, message: Json) -> Outcome:
    """Post it once. TLS is verified always; proxies are not used and redirects are not followed."""
    body = body_of(receiver, message)
    try:
        answer = _peer.ask(
            receiver.url,
            receiver.timeout,
            "POST",
            headers_of(receiver, body),
            body=body,
            ca_file=receiver.ca_file,
            largest=LARGEST_ANSWER,
        )
    except EventsError as exc:
        return Outcome(False, exc.message)
    if 200 <= answer.status < 300:
        return Outcome(True, _launched(answer.text) if receiver.kind == AWX else "")
    refused = answer.status < 500 and answer.status not in (408, 429)
    advice = "redirects, which is not followed" if 300 <= answer.status < 400 else ADVICE.get(answer.status, "")
    reason = f"HTTP {answer.status}" + (f", {advice}" if advice else "")
    return Outcome(False, reason, refused, answer.status in BAD_MESSAGE)


def _launched(text: str) -> str:
    """The number of the job, and whether AWX has left the event out."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    ignored = answer.get("ignored_fields")
    job = answer.get("job") or answer.get("workflow_job") or answer.get("id")
    message = f"job {clean(job, 20)}" if job else ""
    if isinstance(ignored, dict) and "extra_vars" in ignored:
        message += ", but it ignored extra_vars: let the template prompt for variables on launch"
    return message


class Sender(threading.Thread):
    """Sends one receiver's messages, oldest first, and tries again until it takes them."""

    def __init__(self, receiver: Receiver, spool: Spool, log: Log) -> None:
        super().__init__(name=f"receiver {receiver.name}", daemon=True)
        self.receiver = receiver
        self.spool = spool
        self.failures = 0
        self._log = log
        self._wake = threading.Event()
        self._stopping = False
        self._logged = ("", 0.0)

    @property
    def label(self) -> str:
        host = host_of(self.receiver.url)
        return f"{clean(self.receiver.name, 60)} ({host})" if host else clean(self.receiver.name, 60)

    def wake(self) -> None:
        """There is something new: it is tried at once, also after a failure."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        while not self._stopping:
            pause = self.step()
            if pause is None or pause > 0:
                self._wake.wait(pause)
            self._wake.clear()

    def step(self) -> float | None:
        """Try the oldest message. Returns the seconds until the next try; None if nothing is left."""
        found = self.spool.oldest()
        if found is None:
            return None
        sequence, message = found
        outcome = self._outcome(message)
        if outcome.taken:
            self.spool.remove(sequence)
            self._log_sent(message, outcome)
            return 0.0
        self.failures += 1
        if outcome.bad_message and self.failures >= TRIES_OF_BAD_MESSAGE and self._takes_next(sequence):
            self.spool.remove(sequence)
            self.spool.dropped += 1
            self._log(
                f"{self.label} refuses a message, which is dropped: {_title(message)}. It answered {outcome.message}."
            )
            return 0.0
        longest = LONGEST_PAUSE_REFUSED if outcome.refused else LONGEST_PAUSE
        pause = min(longest, 2.0 ** min(self.failures - 1, 16))
        self._log_failed(outcome, pause)
        return pause

    def _takes_next(self, sequence: int) -> bool:
        """Whether it takes the message after this one: then this one is at fault, and not how it is sent."""
        found = self.spool.oldest(sequence)
        if found is None:
            return False
        outcome = self._outcome(found[1])
        if outcome.taken:
            self.spool.remove(found[0])
            self._log_sent(found[1], outcome)
        return outcome.taken

    def _outcome(self, message: Json) -> Outcome:
        try:
            return send(self.receiver, message)
        except Exception as exc:
            # If the thread ended, nothing would be sent any more.
            return Outcome(False, f"it could not be sent: {type(exc).__name__}", True)

    def _log_sent(self, message: Json, outcome: Outcome) -> None:
        again = " It takes messages again." if self.failures else ""
        self.failures = 0
        self._logged = ("", 0.0)
        details = f" ({outcome.message})" if outcome.message else ""
        self._log(f"Sent to {self.label}: {_title(message)}{details}.{again}")

    def _log_failed(self, outcome: Outcome, pause: float) -> None:
        now = time.monotonic()
        if outcome.message == self._logged[0] and now - self._logged[1] < SAY_AGAIN:
            return
        self._logged = (outcome.message, now)
        kept = f"{count(len(self.spool), 'message')} kept; the next try is in {duration(pause)}"
        self._log(f"{self.label} did not accept a message: {outcome.message}. {kept}.")


def _title(message: Json) -> str:
    event = (message.get("data") or {}).get("event") or {}
    return clean(f"{message.get('type', '').rpartition('.')[2]} {event.get('event_type')} {event.get('event_id')}", 200)
