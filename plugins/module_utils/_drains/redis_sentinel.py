# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Sentinels make another Redis server the master, by the protocol of Redis.

Until that is done, this server takes no writes, for 10 seconds at most, and then follows the new master at once. A
Sentinel alone would reconfigure it some ten seconds later, and writes that it acknowledges in that time would be lost.
This needs Redis 6.2 and a user that may CLIENT, REPLICAOF and CONFIG REWRITE; without them, the Sentinel does it.
"""

from __future__ import annotations

import contextlib
import typing as t

from .. import _option_checks as check
from .._connection import Budget, NoAnswer, connect
from .._errors import EventsError
from .._kind import LINUX, Done, Found, Kind, Options, StepRecord, Tools
from .._patience import Late, Proof, forgiving
from .._peer import Login
from .._text import clean

Reply = t.Union[str, int, None, t.List[t.Any]]
LARGEST_REPLY = 1024 * 1024
# Long enough for another server to be promoted. Redis ends the pause by itself.
LONGEST_PAUSE = 10.0
LONGEST_LAG = 5.0
# More digits than any number in this protocol has.
LONGEST_NUMBER = 20
DEEPEST = 8


class Refusal(EventsError):
    """The server answered with an error."""


class Place(t.NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{clean(self.host, 100)}:{self.port}"


def ask(place: Place, login: Login, timeout: float, *words: str) -> Reply:
    """One command on a new connection; passwords never become part of a message."""
    try:
        with connect(place, Budget(LARGEST_REPLY, timeout)) as connection:
            stream = connection.makefile("rb")
            if login.password:
                user = [login.username] if login.username else []
                connection.sendall(encoded(["AUTH", *user, login.password]))
                decoded(stream)
            connection.sendall(encoded(words))
            return decoded(stream)
    except (NoAnswer, EOFError, ValueError) as exc:
        raise EventsError(f"{place} does not answer as Redis would: {clean(exc, 200)}.") from exc
    except Refusal as exc:
        # A server that does not know AUTH repeats what it was sent.
        message = exc.message.replace(login.password, "…") if login.password else exc.message
        raise Refusal(f"{place} refuses {words[0]}: {clean(message, 200)}") from None


def encoded(words: t.Sequence[str]) -> bytes:
    parts = [word.encode("utf-8", "replace") for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def decoded(stream: t.BinaryIO, depth: int = 0) -> Reply:
    line = stream.readline(LARGEST_REPLY)
    if not line.endswith(b"\r\n"):
        raise EOFError("the answer is cut off")
    kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise Refusal(rest)
    if kind not in (b":", b"$", b"*") or len(rest) > LONGEST_NUMBER or depth > DEEPEST:
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
    # For a master: how much it has written, and how much of it each replica has.
    written: int = 0
    replicas: t.Sequence[int] = ()

    @property
    def message(self) -> str:
        if self.name == "master":
            return "master"
        return f"replica, its link to the master is {clean(self.link, 40) or 'unknown'}"


def role_in(reply: t.Any) -> Role:
    """What ROLE answers. Raises ValueError or TypeError if it is something else."""
    name, *more = reply
    if name == "slave":
        return Role("replica", str(more[2]) if len(more) > 2 else "")
    if name == "master":
        written, replicas = more
        return Role("master", "", _number(written), [_number(offset) for _host, _port, offset in replicas])
    raise ValueError(name)


def _number(value: t.Any) -> int:
    if isinstance(value, int) or (isinstance(value, str) and len(value) <= LONGEST_NUMBER):
        return int(value)
    raise ValueError(value)


class Step(Kind):
    summary = (
        "This server is a replica that is connected to its master. Undone: it is the master or such a replica. Until "
        "another server is the master, this one takes no writes, for 10 seconds at most, so that none is lost; this "
        "needs Redis 6.2 and a user that may `CLIENT`, `REPLICAOF` and `CONFIG REWRITE`. TLS is not supported."
    )
    options: t.ClassVar = {
        "master_name": {"type": "str", "required": True, "description": "What the Sentinels call the master."},
        "host": {"type": "str", "default": "127.0.0.1", "description": "Where this host's Redis is."},
        "port": {"type": "int", "default": 6379, "description": "The port of Redis."},
        "username": {"type": "str", "description": "The user for Redis, where it has access control lists."},
        "password": {"type": "str", "no_log": True, "description": "The password for Redis."},
        "sentinels": {
            "type": "list",
            "elements": "dict",
            "default": [{"host": "127.0.0.1", "port": 26379}],
            "description": "The Sentinels. They are asked one after the other until one does it.",
            "options": {
                "host": {"type": "str", "required": True, "description": "The host of the Sentinel."},
                "port": {"type": "int", "default": 26379, "description": "The port of the Sentinel."},
            },
        },
        "sentinel_username": {"type": "str", "description": "The user for the Sentinels."},
        "sentinel_password": {"type": "str", "no_log": True, "description": "The password for the Sentinels."},
    }
    checks: t.ClassVar = {
        **dict.fromkeys(("master_name", "host", "username", "password"), check.text),
        **dict.fromkeys(("sentinel_username", "sentinel_password"), check.text),
        "port": check.port,
        "sentinels": check.entries("{host, port}", host=check.text, port=check.port),
    }
    platforms = (LINUX,)

    def __init__(self, params: Options, tools: Tools) -> None:
        super().__init__(params, tools)
        self._place = Place(params["host"], params["port"])
        self._login = Login(params["username"], params.get("password"))
        self._sentinel_login = Login(params["sentinel_username"], params.get("sentinel_password"))
        self._master: str = params["master_name"]

    def look(self) -> Found:
        role = self.role()
        return Found(role.link == "connected", role.message, {"role": role.name})

    def do(self) -> Done:
        """Have the Sentinels fail over if this server is the master, then wait until it follows another."""
        if self.role().name == "master":
            self._hand_over()
        return Done(self._in_role(lambda role: role.name == "replica" and role.link == "connected"), {})

    def undo(self, record: StepRecord) -> str:
        """Wait until this server is the master, or a replica that is connected to its master."""
        return self._in_role(lambda role: role.name == "master" or role.link == "connected")

    def role(self) -> Role:
        reply = ask(self._place, self._login, self.tools.patience.request_timeout(), "ROLE")
        try:
            return role_in(reply)
        except (ValueError, TypeError) as exc:
            raise EventsError(f"{self._place} does not answer ROLE as Redis would.") from exc

    def _hand_over(self) -> None:
        """Pause writes, have a Sentinel fail over, and follow the new master at once: see the top of this file."""
        self._try(["CLIENT", "PAUSE", str(int(min(LONGEST_PAUSE, self.tools.patience.left) * 1000)), "WRITE"])
        try:
            self._let_replicas_catch_up()
            failing_over = self._fail_over()
            if failing_over:
                successor = self._successor(*failing_over)
                follow = ["REPLICAOF", successor.host, str(successor.port)]
                self._try(follow, ["CLIENT", "KILL", "TYPE", "normal"], ["CONFIG", "REWRITE"])
        finally:
            self._try(["CLIENT", "UNPAUSE"])

    def _let_replicas_catch_up(self) -> None:
        """All of them if possible, since the Sentinel chooses one; at least one of them."""
        begin = self.role()
        behind: list[bool] = []

        def have_caught_up() -> Proof:
            now = self.role()
            if begin.name != "master" or now.name != "master":
                return Proof(True, "another server is the master already")
            behind[:] = [offset < begin.written for offset in now.replicas]
            return Proof(not any(behind), f"{sum(behind)} of {len(behind)} replicas lag behind")

        try:
            self.tools.patience.part(LONGEST_LAG).until(have_caught_up, pause=0.1)
        except Late:
            if all(behind):
                raise EventsError(f"{self._place} is the master, and all of its replicas lag behind.") from None

    def _try(self, *commands: t.Sequence[str]) -> None:
        """Where this server is too old for it, or the user is not allowed to, the Sentinels do it later."""
        with contextlib.suppress(EventsError):
            for words in commands:
                ask(self._place, self._login, self.tools.patience.request_timeout(), *words)

    def _fail_over(self) -> tuple[Place, Place] | None:
        """The Sentinel that fails over, and the master before; None if a failover is in progress already."""
        failures = []
        for sentinel in (Place(each["host"], each["port"]) for each in self.params["sentinels"]):
            try:
                before = self._named_master(sentinel)
                self._ask_sentinel(sentinel, "SENTINEL", "FAILOVER", self._master)
            except Refusal as exc:
                if "INPROG" in exc.message:
                    return None
                failures.append(exc.message)
            except EventsError as exc:
                failures.append(exc.message)
            else:
                return sentinel, before
        raise EventsError(f"No Sentinel fails over {clean(self._master, 80)}: {'; '.join(failures)}")

    def _named_master(self, sentinel: Place) -> Place:
        reply = self._ask_sentinel(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)
        if not isinstance(reply, list) or len(reply) != 2:
            raise EventsError(f"{sentinel} knows no master {clean(self._master, 80)}.")
        try:
            return Place(str(reply[0]), _number(reply[1]))
        except ValueError as exc:
            raise EventsError(f"{sentinel} does not name the port of the master.") from exc

    def _successor(self, sentinel: Place, before: Place) -> Place:
        """The new master, when the Sentinel names it; it has been promoted by then."""
        named = before

        def is_another() -> Proof:
            nonlocal named
            with contextlib.suppress(EventsError):
                named = self._named_master(sentinel)
            return Proof(named != before, f"the Sentinel {sentinel} calls {named} the master")

        self.tools.patience.until(is_another, pause=0.1)
        return named

    def _ask_sentinel(self, sentinel: Place, *words: str) -> Reply:
        return ask(sentinel, self._sentinel_login, self.tools.patience.request_timeout(), *words)

    def _in_role(self, fits: t.Callable[[Role], bool]) -> str:
        def proof() -> Proof:
            role = self.role()
            return Proof(fits(role), f"{self._place} is {role.message}")

        # Errors are retried: it may still be loading its data.
        return self.tools.patience.until(forgiving(proof))
