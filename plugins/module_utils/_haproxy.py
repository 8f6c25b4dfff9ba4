# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One server of one HAProxy, over its runtime socket."""

from __future__ import annotations

import csv
import io
import re
import typing as t

from ._connection import Budget, NoAnswer, connect
from ._errors import EventsError, WrongOption
from ._patience import Late, Patience, Proof
from ._text import clean, count, quoted, sentence

NAME = re.compile(r"[A-Za-z0-9_.:-]+")
NUMBER = re.compile(r"0x[0-9A-Fa-f]{1,8}|[0-9]{1,12}")
# Bits of srv_admin_state that an operator sets at run time or in the configuration; the others are inherited.
MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20
DRAIN_BITS = 0x08 | 0x10
LARGEST_ANSWER = 64 * 1024 * 1024


def exchange(address: str, command: str, timeout: float) -> str:
    """Send one command to the socket, a path or host:port, and return the whole answer."""
    host, colon, port = address.rpartition(":")
    is_tcp = bool(colon) and "/" not in address and port.isdecimal() and len(port) <= 5
    try:
        place = (host.strip("[]"), int(port)) if is_tcp else address
        with connect(place, Budget(LARGEST_ANSWER, timeout)) as connection:
            connection.sendall(command.encode() + b"\n")
            answer = connection.makefile("rb").read()
    except NoAnswer as exc:
        raise EventsError(
            f"HAProxy's socket {clean(address, 200)} cannot be used: {exc.message}. Correct it, or start HAProxy."
        ) from exc
    return answer.decode("utf-8", "replace").strip()


class Seen(t.NamedTuple):
    state: str
    sessions: int

    @property
    def message(self) -> str:
        return f"in state {self.state} with {count(self.sessions, 'session')}"


class Server:
    def __init__(self, address: str, backend: str, server: str, patience: Patience) -> None:
        for name in (backend, server):
            if not NAME.fullmatch(name):
                raise WrongOption(f"{quoted(name)} cannot be a name in HAProxy.")
        self._address = address
        self._shown = f"HAProxy at {clean(address, 200)}"
        self._backend = backend
        self._server = server
        self._patience = patience

    @property
    def name(self) -> str:
        return f"{self._backend}/{self._server}"

    def look(self) -> Seen:
        return Seen(self._admin_state(), self._sessions())

    def set_state(self, state: str) -> None:
        """HAProxy answers only if it has not done it."""
        answer = self._command(f"set server {self.name} state {state}")
        if answer:
            refusal = sentence(f"{self._shown} did not set {self.name} to {state}: {_first_line(answer)}")
            raise EventsError(f"{refusal} The socket needs level admin.")

    def bring(self, state: str) -> str:
        """To `drain` or `ready` at once; to `maint` by way of drain, when the last session has ended."""
        if state == "maint":
            if self.look().state == "ready":
                self.set_state("drain")
            self._wait_until_empty()
        if self.look().state != state:
            self.set_state(state)
        return self._patience.until(lambda: self._is_in(state))

    def _wait_until_empty(self) -> None:
        sessions = 0

        def is_empty() -> Proof:
            nonlocal sessions
            seen = self.look()
            sessions = seen.sessions
            return Proof(seen.state != "ready" and sessions == 0, f"{self.name} is {seen.message}")

        try:
            self._patience.until(is_empty)
        except Late as exc:
            exc.fields["sessions"] = sessions
            raise

    def _is_in(self, state: str) -> Proof:
        seen = self.look()
        return Proof(seen.state == state, f"{self.name} is {seen.message}")

    def _command(self, command: str) -> str:
        return exchange(self._address, command, self._patience.request_timeout())

    def _admin_state(self) -> str:
        answer = self._command(f"show servers state {self._backend}")
        lines = [line.split() for line in answer.splitlines() if line.strip()]
        header: list[str] = next((line[1:] for line in lines if line[0] == "#"), [])
        if "srv_admin_state" not in header:
            refusal = sentence(f"{self._shown} does not show the servers of {self._backend}: {_first_line(answer)}")
            raise EventsError(f"{refusal} Correct backend, or give the socket level admin.")
        for line in lines:
            row = dict(zip(header, line))
            if row.get("be_name") == self._backend and row.get("srv_name") == self._server:
                bits = self._number(row.get("srv_admin_state"), "the state")
                return "maint" if bits & MAINT_BITS else "drain" if bits & DRAIN_BITS else "ready"
        raise EventsError(f"{self._shown} has no server {self.name}. Correct backend and server of the step.")

    def _sessions(self) -> int:
        answer = self._command("show stat")
        try:
            rows = list(csv.DictReader(io.StringIO(answer.lstrip("# "))))
        except csv.Error as exc:
            raise EventsError(f"{self._shown} prints statistics that cannot be read: {clean(exc, 200)}.") from exc
        for row in rows:
            if row.get("pxname") == self._backend and row.get("svname") == self._server:
                queued = self._number(row.get("qcur") or "0", "the queue")
                return self._number(row.get("scur"), "the sessions") + queued
        raise EventsError(f"{self._shown} has no statistics of {self.name}.")

    def _number(self, text: str | None, what: str) -> int:
        """Decimal, or hexadecimal with 0x before it."""
        if text is None or not NUMBER.fullmatch(text):
            raise EventsError(f"{self._shown} shows {quoted(text, 40)} where {what} of {self.name} should be.")
        return int(text, 16 if text.startswith("0x") else 10)


def _first_line(answer: str) -> str:
    return clean(answer.splitlines()[0], 200) if answer else "nothing"
