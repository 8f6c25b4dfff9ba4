# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""One server of one HAProxy, over its runtime socket."""

from __future__ import annotations

import csv
import io
import re
import socket
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, Proof

NAME = re.compile(r"[A-Za-z0-9_.:-]+")
# Bits of srv_admin_state that an operator sets at run time or in the configuration; the others are inherited.
MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20
DRAIN_BITS = 0x08 | 0x10
LARGEST_ANSWER = 64 * 1024 * 1024


def exchange(address: str, command: str, timeout: float) -> str:
    """Say one thing to the socket, a path or host:port, and hear everything it answers."""
    host, colon, port = address.rpartition(":")
    is_tcp = bool(colon) and "/" not in address and port.isdigit()
    target: t.Any = (host.strip("[]"), int(port)) if is_tcp else address
    family = socket.AF_INET6 if is_tcp and ":" in host else socket.AF_INET if is_tcp else socket.AF_UNIX
    answer = b""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(target)
            connection.sendall(command.encode() + b"\n")
            while len(answer) < LARGEST_ANSWER:
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
    except (OSError, OverflowError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise EventsError(f"HAProxy's socket {address} cannot be used: {reason}.") from exc
    return answer.decode("utf-8", "replace").strip()


class Seen(t.NamedTuple):
    state: str
    sessions: int

    @property
    def words(self) -> str:
        count = "1 session" if self.sessions == 1 else f"{self.sessions} sessions"
        return f"in state {self.state} with {count}"


class Server:
    def __init__(self, address: str, backend: str, server: str, patience: Patience) -> None:
        for name in (backend, server):
            if not NAME.fullmatch(name):
                raise WrongOption(f"{name!r} cannot be a name in HAProxy.")
        self._address = address
        self._backend = backend
        self._server = server
        self._patience = patience

    @property
    def name(self) -> str:
        return f"{self._backend}/{self._server}"

    def look(self) -> Seen:
        return Seen(self._admin_state(), self._sessions())

    def set_state(self, state: str) -> None:
        """Anything but an empty answer is a complaint."""
        answer = self._say(f"set server {self.name} state {state}")
        if answer:
            raise EventsError(
                f"HAProxy at {self._address} did not set {self.name} to {state}: {answer.splitlines()[0]}"
            )

    def bring(self, state: str) -> str:
        """To `drain` or `ready` at once; to `maint` by way of drain, when the last session has ended."""
        if state == "maint":
            if self.look().state == "ready":
                self.set_state("drain")
            self._patience.until(self._is_empty)
        if self.look().state != state:
            self.set_state(state)
        return self._patience.until(lambda: self._is_in(state))

    def _is_empty(self) -> Proof:
        seen = self.look()
        return Proof(seen.state != "ready" and seen.sessions == 0, f"{self.name} is {seen.words}")

    def _is_in(self, state: str) -> Proof:
        seen = self.look()
        return Proof(seen.state == state, f"{self.name} is {seen.words}")

    def _say(self, command: str) -> str:
        return exchange(self._address, command, self._patience.request_timeout())

    def _admin_state(self) -> str:
        answer = self._say(f"show servers state {self._backend}")
        lines = [line.split() for line in answer.splitlines() if line.strip()]
        header: list[str] = next((line[1:] for line in lines if line[0] == "#"), [])
        if "srv_admin_state" not in header:
            said = answer.splitlines()[0] if answer else "nothing"
            raise EventsError(f"HAProxy at {self._address} does not show the servers of {self._backend}: {said}")
        for line in lines:
            row = dict(zip(header, line))
            if row.get("be_name") == self._backend and row.get("srv_name") == self._server:
                bits = int(row["srv_admin_state"], 0)
                return "maint" if bits & MAINT_BITS else "drain" if bits & DRAIN_BITS else "ready"
        raise EventsError(f"HAProxy at {self._address} has no server {self.name}. Mend backend and server of the step.")

    def _sessions(self) -> int:
        answer = self._say("show stat")
        for row in csv.DictReader(io.StringIO(answer.lstrip("# "))):
            if row.get("pxname") == self._backend and row.get("svname") == self._server:
                return int(row.get("scur") or 0) + int(row.get("qcur") or 0)
        raise EventsError(f"HAProxy at {self._address} has no statistics of {self.name}.")
