# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP to other services of a host, such as health URLs, Patroni and receivers. Bounded in time and in size."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import typing as t
import urllib.parse

from ._connection import Budget, NoAnswer, connect
from ._errors import WrongOption
from ._text import clean

# The largest status line and headers.
LARGEST_HEAD = 256 * 1024


class Login(t.NamedTuple):
    username: str | None = None
    password: str | None = None


class Answer(t.NamedTuple):
    status: int
    text: str


class Status(t.NamedTuple):
    """What a URL answers with; None if it does not answer."""

    code: int | None
    message: str


def tls_context(verify: bool = True, ca_file: str | None = None) -> ssl.SSLContext:
    path = os.path.expanduser(os.path.expandvars(ca_file)) if ca_file else None
    try:
        context = ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as exc:
        reason = clean(getattr(exc, "strerror", None) or exc, 200)
        raise WrongOption(f"The certificates in {clean(path, 200)} cannot be used: {reason}.") from exc
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def ask(
    url: str,
    seconds: float,
    method: str = "GET",
    headers: t.Mapping[str, t.Any] | None = None,
    login: Login | None = None,
    body: bytes | None = None,
    verify: bool = True,
    ca_file: str | None = None,
    largest: int = 0,
) -> Answer:
    """Make one HTTP request. Proxies are not used and redirects are not followed.

    The body is read only if `largest` is not 0: the bytes that it may have.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna").decode("ascii")
    except ValueError as exc:
        raise NoAnswer(f"it is not a URL ({clean(exc, 100)})") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise NoAnswer("it is not a URL of http or https")
    tls = tls_context(verify, ca_file) if parts.scheme == "https" else None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path = urllib.parse.quote(target, safe="%/?:@!$&'()*+,;=~-._[]", errors="replace")
    place = (f"[{host}]" if ":" in host else host) + (f":{parts.port}" if parts.port else "")
    connection = http.client.HTTPConnection(host, port)
    with connect((host, port), Budget(largest + LARGEST_HEAD, seconds), tls=tls) as connection.sock:
        try:
            connection.request(method, path, body, _headers(place, login, headers or {}))
        except ValueError:
            # The text of the error may contain a secret.
            raise NoAnswer("its method or headers have characters that HTTP does not allow") from None
        try:
            with connection.getresponse() as response:
                return Answer(response.status, response.read().decode("utf-8", "replace") if largest else "")
        except (http.client.HTTPException, ValueError) as exc:
            raise NoAnswer(f"the answer is not HTTP ({clean(str(exc) or type(exc).__name__, 100)})") from exc


def status_of(url: str, seconds: float, method: str = "GET", **options: t.Any) -> Status:
    """The status that a URL answers with; the options are those of `ask`."""
    shown = clean(url, 200)
    try:
        code = ask(url, seconds, method, **options).status
    except NoAnswer as exc:
        return Status(None, f"{shown} does not answer ({exc.message})")
    return Status(code, f"{shown} answers {code}")


def _headers(place: str, login: Login | None, headers: t.Mapping[str, t.Any]) -> dict[str, str]:
    usual = {"Host": place, "User-Agent": "graceful.azure", "Accept": "*/*", "Connection": "close"}
    if login and login.username is not None:
        pair = f"{login.username}:{login.password or ''}".encode("utf-8", "replace")
        usual["Authorization"] = "Basic " + base64.b64encode(pair).decode("ascii")
    names = {name.lower() for name in headers}
    usual = {name: value for name, value in usual.items() if name.lower() not in names}
    return {**usual, **{name: str(value) for name, value in headers.items()}}
