# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clock that jumps instead of waiting, peers and programs that answer from a script, and normalised options."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, Kind, Ran, Runner, Tools
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience

START = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)
Json = dict[str, t.Any]
P = t.TypeVar("P", bound="Peer")


class JumpingClock(Clock):
    def __init__(self) -> None:
        self.now = 1000.0
        # By how much the wall clock was set forward since the host has booted.
        self.ahead = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return START + timedelta(seconds=self.now - 1000.0 + self.ahead)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Peer:
    """A TCP server on 127.0.0.1 that answers each connection with some bytes, at once or one by one."""

    def __init__(self, answer: bytes | t.Callable[[bytes], bytes], pause: float = 0.0) -> None:
        self.heard: list[bytes] = []
        self._answer = answer
        self._pause = pause
        self._over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _peer = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            heard = connection.recv(65536)
            length = re.search(rb"Content-Length: (\d+)", heard)
            while length and len(heard.partition(b"\r\n\r\n")[2]) < int(length[1]):
                heard += connection.recv(65536)
            self.heard.append(heard)
            answer = self._answer(heard) if callable(self._answer) else self._answer
            if not self._pause:
                connection.sendall(answer)
            for byte in answer if self._pause else b"":
                connection.sendall(bytes([byte]))
                if self._over.wait(self._pause):
                    return

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._socket.close()


class Secure(Peer):
    """The same with TLS."""

    def __init__(self, answer: bytes, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(str(certificate))
        super().__init__(answer)

    def _talk(self, connection: socket.socket) -> None:
        try:
            super()._talk(self._context.wrap_socket(connection, server_side=True))
        except OSError:
            connection.close()


@contextlib.contextmanager
def seconds_at_most(limit: float) -> t.Iterator[None]:
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    assert took < limit, f"it took {took:.1f} s"


class Programs:
    """A runner whose programs are a function of the test's; what was run is kept."""

    def __init__(self, answer: t.Callable[[list[str]], Ran]) -> None:
        self.ran: list[list[str]] = []
        self.with_options: list[Json] = []
        self._answer = answer

    def __call__(
        self,
        argv: t.Sequence[str],
        seconds: float,
        user: str | None = None,
        environment: t.Mapping[str, str] | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Ran:
        self.ran.append(list(argv))
        self.with_options.append({"seconds": seconds, "user": user, "environment": environment})
        return self._answer(list(argv))


def no_programs(argv: list[str]) -> Ran:
    raise AssertionError(f"nothing should be run, but {argv} was")


def tools(
    seconds: float = 60, clock: Clock | None = None, run: Runner | None = None, begun: bool = False, **more: t.Any
) -> Tools:
    return Tools(Patience(seconds, clock or JumpingClock()), run or Programs(no_programs), begun, **more)


def _plain(spec: t.Mapping[str, t.Any]) -> Json:
    plain = {key: value for key, value in spec.items() if key not in ("description", "no_log", "platforms")}
    if "options" in plain:
        plain["options"] = {name: _plain(inner) for name, inner in plain["options"].items()}
    return plain


def validated(options: t.Mapping[str, t.Any], rules: t.Mapping[str, t.Any], given: Json) -> tuple[Json, str]:
    """The options as an argument spec makes them, and what it has against them."""
    validator = ArgumentSpecValidator({name: _plain(spec) for name, spec in options.items()}, **rules)
    result = validator.validate(given)
    return dict(result.validated_parameters), " ".join(result.error_messages)


def mistake(kind: type[Kind], given: Json, platform: str = LINUX) -> str:
    """What is wrong with what a user wrote for the kind; empty if nothing is."""
    options, error = validated(kind.options, kind.rules, given)
    return error or kind.mistake(options) or kind.mistake_on(platform, options)


def options_of(kind: type[Kind], **given: t.Any) -> Json:
    """As a kind gets them on the host: normalised, and of the secrets only those that were given."""
    options, error = validated(kind.options, kind.rules, given)
    assert not error
    assert not kind.mistake(options)
    assert not kind.mistake_on(LINUX, options)
    secrets = {name for name, spec in kind.options.items() if spec.get("no_log")}
    return {name: value for name, value in options.items() if name not in secrets or value is not None}
