# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`graceful_health`: checks that have to pass on the host before traffic returns."""

from __future__ import annotations

import functools
import math
import typing as t

from . import _option_checks as option_check
from ._clock import Clock
from ._connection import Budget, NoAnswer, connect
from ._kind import Options, Runner
from ._patience import Late, Patience, Proof, forgiving
from ._peer import Login, status_of
from ._text import clean

PAUSE = 2.0
OPTIONS: t.Mapping[str, t.Mapping[str, t.Any]] = {
    "port": {"type": "int", "description": "A TCP port of the host that has to take connections on 127.0.0.1."},
    "url": {
        "type": "str",
        "description": "A URL of http or https that has to answer with 200, asked from the host. Redirects are not "
        "followed and proxies are not used; the certificate has to be valid.",
    },
    "argv": {
        "type": "list",
        "elements": "str",
        "description": "A program and its arguments, without a shell, that has to end with 0.",
    },
    "timeout": {"type": "int", "default": 120, "description": "Seconds within which the check has to pass."},
    "headers": {"type": "dict", "no_log": True, "description": "HTTP headers for `url`, such as a token."},
    "username": {"type": "str", "description": "A user for `url` (HTTP basic authentication)."},
    "password": {"type": "str", "no_log": True, "description": "The user's password."},
}
RULES: t.Mapping[str, t.Any] = {
    "required_one_of": [("port", "url", "argv")],
    "mutually_exclusive": [("port", "url", "argv")],
    "required_together": [("username", "password")],
    "required_by": {"headers": ("url",), "username": ("url",)},
}


def mistake(options: Options) -> str:
    """What is wrong with options that match the argument spec; empty if nothing is."""
    return option_check.first(
        option_check.port("port", options["port"]),
        option_check.http_url("url", options["url"]),
        option_check.argv("argv", options["argv"]),
        option_check.positive("timeout", options["timeout"]),
        option_check.headers("headers", options["headers"]),
        option_check.text("username", options["username"]),
    )


def check(
    items: t.Sequence[Options],
    clock: Clock,
    run: Runner,
    progress: t.Callable[[str], None] | None = None,
    seconds: float = math.inf,
) -> None:
    """Wait until each check passes, for `seconds` at most. Raises Late for the first that does not pass.

    A secret may be missing in the options.
    """
    end = clock.monotonic() + seconds
    for item in items:
        name, look = _look_of(item, run)
        # Each is looked at once, also without any time.
        left = max(0.1, end - clock.monotonic())
        patience = Patience(min(item["timeout"], left), clock, progress)
        try:
            patience.until(forgiving(functools.partial(look, patience)), pause=PAUSE)
        except Late as exc:
            raise Late(f"The health check of {name} did not pass. {exc.message}") from None


def _look_of(item: Options, run: Runner) -> tuple[str, t.Callable[[Patience], Proof]]:
    if item["port"] is not None:
        return f"port {item['port']}", functools.partial(_port_takes_connections, item["port"])
    if item["url"] is not None:
        return clean(item["url"], 200), functools.partial(_url_answers, item)
    return clean(" ".join(item["argv"]), 200), functools.partial(_program_ends_well, item["argv"], run)


def _port_takes_connections(port: int, patience: Patience) -> Proof:
    try:
        connect(("127.0.0.1", port), Budget(0, patience.request_timeout())).close()
    except NoAnswer as exc:
        return Proof(False, f"127.0.0.1:{port} takes no connection ({exc.message})")
    return Proof(True, f"127.0.0.1:{port} takes connections")


def _url_answers(item: Options, patience: Patience) -> Proof:
    login = Login(item["username"], item.get("password"))
    status = status_of(item["url"], patience.request_timeout(), headers=item.get("headers"), login=login)
    return Proof(status.code == 200, status.message)


def _program_ends_well(argv: t.Sequence[str], run: Runner, patience: Patience) -> Proof:
    ran = run(argv, patience.request_timeout(3600))
    return Proof(ran.code == 0, f"it ended with {ran.code}: {ran.message}")
