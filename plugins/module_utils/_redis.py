# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""A Redis server and the Sentinels that watch it, in the protocol that both speak."""

from __future__ import annotations

import contextlib
import socket
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience, Proof

Reply = t.Union[str, int, None, t.List[t.Any]]
LARGEST_REPLY = 1024 * 1024
# Long enough for another server to be promoted; it ends by itself if this program does.
LONGEST_PAUSE = 10.0
LONGEST_LAG = 5.0


class Refusal(EventsError):
    """An error that the server itself gave."""


class Login(t.NamedTuple):
    username: str | None = None
    password: str | None = None


class Place(t.NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def ask(place: Place, login: Login, timeout: float, *words: str) -> Reply:
    """One command on a connection of its own; passwords never become part of a message."""
    try:
        with socket.create_connection(place, timeout) as connection, connection.makefile("rb") as stream:
            if login.password:
                user = [login.username] if login.username else []
                _exchange(connection, stream, ["AUTH", *user, login.password])
            return _exchange(connection, stream, words)
    except (OSError, EOFError, ValueError) as exc:
        raise EventsError(f"{place} does not answer as Redis would: {exc}.") from exc
    except Refusal as exc:
        raise Refusal(f"{place} refuses {words[0]}: {exc.message}") from exc


def _exchange(connection: socket.socket, stream: t.BinaryIO, words: t.Sequence[str]) -> Reply:
    connection.sendall(encoded(words))
    return decoded(stream)


def encoded(words: t.Sequence[str]) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def decoded(stream: t.BinaryIO, depth: int = 0) -> Reply:
    line = stream.readline(LARGEST_REPLY)
    if not line.endswith(b"\r\n") or depth > 8:
        raise EOFError("the answer is cut off" if depth <= 8 else "the answer is nested too deeply")
    kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise Refusal(rest)
    if kind not in (b":", b"$", b"*"):
        raise ValueError("the answer is not in its protocol")
    number = int(rest)
    if kind == b":":
        return number
    if number < 0:
        return None
    if number > LARGEST_REPLY:
        raise ValueError("the answer is too large")
    if kind == b"*":
        return [decoded(stream, depth + 1) for _each in range(number)]
    body = stream.read(number + 2)
    if len(body) != number + 2:
        raise EOFError("the answer is cut off")
    return body[:-2].decode("utf-8", "replace")


class Role(t.NamedTuple):
    name: str
    link: str = ""

    @property
    def words(self) -> str:
        return "master" if self.name == "master" else f"replica, its link to the master is {self.link or 'unknown'}"


class Server:
    """This host's Redis, and the Sentinels that can move the master elsewhere."""

    def __init__(
        self,
        place: Place,
        login: Login,
        sentinels: t.Sequence[Place],
        sentinel_login: Login,
        master_name: str,
        patience: Patience,
    ) -> None:
        self._place = place
        self._login = login
        self._sentinels = sentinels
        self._sentinel_login = sentinel_login
        self._master_name = master_name
        self._patience = patience

    def _told_role(self) -> list[t.Any]:
        reply = ask(self._place, self._login, self._patience.request_timeout(), "ROLE")
        if not isinstance(reply, list) or not reply:
            raise EventsError(f"{self._place} does not tell its role.")
        return reply

    def role(self) -> Role:
        reply = self._told_role()
        if reply[0] == "master":
            return Role("master")
        return Role("replica", str(reply[3]) if len(reply) > 3 else "")

    def give_up_mastership(self) -> str:
        """Have the Sentinels fail over if this server is the master, then see it follow another."""
        if self.role().name == "master":
            self._hand_over()
        return self._patience.until(self._follows)

    def is_back(self) -> str:
        """See this server take part: the master, or a replica that is connected to it."""
        return self._patience.until(self._takes_part)

    def _hand_over(self) -> None:
        """A Sentinel tells the old master some ten seconds late, and what it acknowledges until then would be lost."""
        self._tell(["CLIENT", "PAUSE", str(int(min(LONGEST_PAUSE, self._patience.left) * 1000)), "WRITE"])
        try:
            self._let_replicas_catch_up()
            failing_over = self._fail_over()
            if failing_over:
                successor = self._successor(*failing_over)
                follow = ["REPLICAOF", successor.host, str(successor.port)]
                self._tell(follow, ["CLIENT", "KILL", "TYPE", "normal"], ["CONFIG", "REWRITE"])
        finally:
            self._tell(["CLIENT", "UNPAUSE"])

    def _let_replicas_catch_up(self) -> None:
        """All of them if they can, since the Sentinel chooses; one at least."""
        kind, written, *_rest = self._told_role()
        behind: list[bool] = []

        def have_caught_up() -> Proof:
            now, _written, replicas, *_rest = self._told_role()
            if kind != "master" or now != "master":
                return Proof(True, "another server is the master already")
            behind[:] = [int(offset) < written for _host, _port, offset in replicas]
            return Proof(not any(behind), f"{sum(behind)} of {len(behind)} replicas lag behind")

        try:
            Patience(max(0.1, min(LONGEST_LAG, self._patience.left))).until(have_caught_up, pause=0.1)
        except Late:
            if all(behind):
                raise EventsError(f"{self._place} is the master, and all of its replicas lag behind.") from None

    def _tell(self, *commands: t.Sequence[str]) -> None:
        """Where this server is too old for it or the user may not, the Sentinels do it in their time."""
        with contextlib.suppress(EventsError):
            for words in commands:
                ask(self._place, self._login, self._patience.request_timeout(), *words)

    def _fail_over(self) -> tuple[Place, Place] | None:
        """The Sentinel that does it, and what it called the master; any can, and one that already does is as good."""
        complaints = []
        for sentinel in self._sentinels:
            try:
                before = self._named_master(sentinel)
                self._ask_sentinel(sentinel, "SENTINEL", "FAILOVER", self._master_name)
            except Refusal as exc:
                if "INPROG" in exc.message:
                    return None
                complaints.append(exc.message)
            except EventsError as exc:
                complaints.append(exc.message)
            else:
                return sentinel, before
        raise EventsError(f"No Sentinel fails over {self._master_name}: {'; '.join(complaints)}")

    def _named_master(self, sentinel: Place) -> Place:
        reply = self._ask_sentinel(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master_name)
        if not isinstance(reply, list) or len(reply) != 2:
            raise EventsError(f"{sentinel} knows no master {self._master_name}.")
        return Place(str(reply[0]), int(reply[1]))

    def _successor(self, sentinel: Place, before: Place) -> Place:
        """The new master, as soon as the Sentinel names it: it has been promoted by then."""
        named = before

        def is_another() -> Proof:
            nonlocal named
            with contextlib.suppress(EventsError):
                named = self._named_master(sentinel)
            return Proof(named != before, f"the Sentinel {sentinel} calls {named} the master")

        self._patience.until(is_another, pause=0.1)
        return named

    def _ask_sentinel(self, sentinel: Place, *words: str) -> Reply:
        return ask(sentinel, self._sentinel_login, self._patience.request_timeout(), *words)

    def _follows(self) -> Proof:
        try:
            role = self.role()
        except EventsError as exc:
            return Proof(False, exc.message.rstrip("."))
        return Proof(role.name == "replica" and role.link == "connected", f"{self._place} is {role.words}")

    def _takes_part(self) -> Proof:
        try:
            role = self.role()
        except EventsError as exc:
            # Also while it still loads its data.
            return Proof(False, exc.message.rstrip("."))
        return Proof(role.name == "master" or role.link == "connected", f"{self._place} is {role.words}")
