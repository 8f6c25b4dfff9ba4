# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""A host's health as a load balancer sees it: one URL, whose answer decides whether traffic comes."""

from __future__ import annotations

import http.client
import os
import ssl
import typing as t
import urllib.error
import urllib.request

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, Proof


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A load balancer follows none either: a redirect is an answer of its own."""

    def redirect_request(self, *args: t.Any, **kwargs: t.Any) -> None:
        return None


class Answer(t.NamedTuple):
    status: int | None
    words: str


def ask(url: str, timeout: float, method: str = "GET") -> Answer:
    """The status that the URL answers with, or None and why there is no answer."""
    context = ssl.create_default_context()
    # A load balancer's probe does not look at certificates; what is asked here is never used as content.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
    )
    try:
        request = urllib.request.Request(
            url, method=method, headers={"User-Agent": "graceful.azure", "Connection": "close"}
        )
    except ValueError as exc:
        raise WrongOption(f"{url!r} is not a URL: {exc}.") from exc
    if method != "GET":
        request.data = b""
    try:
        with opener.open(request, timeout=timeout) as response:
            status = int(response.status)
    except urllib.error.HTTPError as exc:
        status = exc.code
    except (OSError, http.client.HTTPException, ValueError) as exc:
        reason = getattr(exc, "reason", None) or exc
        return Answer(None, f"{url} does not answer ({reason})")
    return Answer(status, f"{url} answers {status}")


class Switch:
    """What makes the health URL answer as it should."""

    # Whether is_out knows it by more than the health URL, which may be the wrong one.
    sees_itself = True

    def is_out(self, healthy: bool) -> bool:
        raise NotImplementedError

    def turn(self, out: bool, patience: Patience) -> None:
        raise NotImplementedError


class MarkerSwitch(Switch):
    """A file that the application, or the web server before it, looks at."""

    def __init__(self, path: str, means_out: bool) -> None:
        self._path = path
        self._means_out = means_out

    def is_out(self, healthy: bool) -> bool:
        return os.path.lexists(self._path) == self._means_out

    def turn(self, out: bool, patience: Patience) -> None:
        try:
            if out == self._means_out:
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            else:
                os.unlink(self._path)
        except FileExistsError:
            pass
        except FileNotFoundError as exc:
            if out == self._means_out:
                raise EventsError(f"The marker {self._path} cannot be made: its folder is not there.") from exc
        except OSError as exc:
            raise EventsError(f"The marker {self._path} cannot be changed: {exc.strerror}.") from exc


class UrlSwitch(Switch):
    """URLs of the application that take it out and put it back."""

    sees_itself = False

    def __init__(self, out_url: str, in_url: str, method: str) -> None:
        self._urls = {True: out_url, False: in_url}
        self._method = method.upper()

    def is_out(self, healthy: bool) -> bool:
        return not healthy

    def turn(self, out: bool, patience: Patience) -> None:
        answer = ask(self._urls[out], patience.request_timeout(30), self._method)
        if answer.status is None or not 200 <= answer.status < 300:
            raise EventsError(f"{self._method} {answer.words}, which is not a success.")


class Health:
    """The health URL together with what switches it."""

    def __init__(self, url: str, switch: Switch, healthy: t.Collection[int], interval: float, threshold: float) -> None:
        if not (0 < interval < 1e6 and 0 < threshold < 1e6):
            raise WrongOption("interval and threshold have to be more than 0.")
        self._url = url
        self._switch = switch
        self._healthy = healthy
        self._interval = interval
        self._lasting = interval * threshold

    def look(self, patience: Patience) -> tuple[Answer, bool, bool]:
        """The answer, whether it is a healthy one, and whether the host is switched out."""
        answer = ask(self._url, patience.request_timeout())
        healthy = answer.status in self._healthy
        return answer, healthy, self._switch.is_out(healthy)

    def settle(self, out: bool, patience: Patience, must_answer: bool = False) -> str:
        """Switch, and prove it for as long as a load balancer needs to notice."""
        answer, healthy, is_out = self.look(patience)
        if out and must_answer and not healthy and (answer.status or 0) < 500:
            raise EventsError(
                f"{answer.words}, which is neither healthy nor out of service, so nothing could be proven with it. "
                "Mend the step's url, or name what is healthy; if the application is meant to be like this, set "
                "must_answer to false."
            )
        if is_out != out or not self._switch.sees_itself:
            self._switch.turn(out, patience)

        def proof() -> Proof:
            now = ask(self._url, patience.request_timeout())
            return Proof((now.status in self._healthy) != out, now.words)

        words = patience.until(proof, pause=min(self._interval, 1.0), lasting=self._lasting)
        return f"{words}, for {self._lasting:g} s"
