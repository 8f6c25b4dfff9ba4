# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The host leaves its load balancer by what its health URL answers."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _option_checks as check
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Done, Kind, Look, Noted, Options, Tools
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience, Proof
from ansible_collections.graceful.azure.plugins.module_utils._peer import Login, NoAnswer, ask
from ansible_collections.graceful.azure.plugins.module_utils._text import clean


class Answer(t.NamedTuple):
    status: int | None
    message: str


class Caller:
    """Asks the application as a load balancer does: certificates are not checked, redirects are not followed."""

    def __init__(self, headers: t.Mapping[str, t.Any] | None = None, login: Login | None = None) -> None:
        self._headers = headers or {}
        self._login = login

    def ask(self, url: str, timeout: float, method: str = "GET") -> Answer:
        """The status that the URL answers with, or None and why there is no answer."""
        shown = clean(url, 200)
        try:
            status = ask(url, timeout, method, headers=self._headers, login=self._login, verify=False).status
        except NoAnswer as exc:
            return Answer(None, f"{shown} does not answer ({exc.message})")
        return Answer(status, f"{shown} answers {status}")


class Switch:
    """What makes the health URL answer as it should."""

    def is_out(self) -> bool | None:
        """None if only the health URL can tell."""
        raise NotImplementedError

    def set_out(self, out: bool, patience: Patience) -> None:
        raise NotImplementedError


class MarkerSwitch(Switch):
    """A file that the application, or the web server before it, looks at."""

    def __init__(self, path: str, means_out: bool) -> None:
        self._path = path
        self._means_out = means_out

    def is_out(self) -> bool | None:
        return os.path.lexists(self._path) == self._means_out

    def set_out(self, out: bool, patience: Patience) -> None:
        shown = clean(self._path, 200)
        try:
            if out == self._means_out:
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            else:
                os.unlink(self._path)
        except FileExistsError:
            pass
        except FileNotFoundError as exc:
            if out == self._means_out:
                raise EventsError(f"The marker {shown} cannot be made: its folder is not there.") from exc
        except OSError as exc:
            raise EventsError(f"The marker {shown} cannot be changed: {exc.strerror}.") from exc


class UrlSwitch(Switch):
    """URLs of the application that take it out and put it back."""

    def __init__(self, caller: Caller, out_url: str, in_url: str, method: str) -> None:
        self._caller = caller
        self._urls = {True: out_url, False: in_url}
        self._method = method.upper()

    def is_out(self) -> bool | None:
        return None

    def set_out(self, out: bool, patience: Patience) -> None:
        answer = self._caller.ask(self._urls[out], patience.request_timeout(30), self._method)
        if answer.status is None or not 200 <= answer.status < 300:
            raise EventsError(f"{self._method} {answer.message}, which is not a success.")


class Step(Kind):
    summary = (
        "The health URL is not healthy for `interval` times `threshold` seconds, by a marker file or by URLs of the "
        "application. Undone: it is healthy for as long."
    )
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
        "url": {
            "type": "str",
            "required": True,
            "description": "The health URL, asked from the host itself as the load balancer would. Redirects are not "
            "followed, certificates are not checked, proxies are not used.",
        },
        # Not of type path: that would be expanded on the controller.
        "marker": {
            "type": "str",
            "description": "The absolute path of a file that decides what the health URL answers. Its folder has to "
            "be there.",
        },
        "marker_means": {
            "type": "str",
            "choices": ["out", "in"],
            "default": "out",
            "description": "Whether the host is out or in while the marker is there.",
        },
        "out_url": {
            "type": "str",
            "description": "A URL that takes the application out. It is called whatever the health URL says, so it "
            "has to bear being called twice.",
        },
        "in_url": {
            "type": "str",
            "description": "A URL that puts the application back. As `out_url`, it has to bear being called twice.",
        },
        "method": {"type": "str", "default": "POST", "description": "The HTTP method for `out_url` and `in_url`."},
        "interval": {
            "type": "float",
            "default": 5.0,
            "description": "Seconds between two probes of the load balancer.",
        },
        "threshold": {
            "type": "float",
            "default": 2.0,
            "description": "Number of probes in a row after which the load balancer acts.",
        },
        "healthy": {
            "type": "list",
            "elements": "int",
            "default": [200],
            "description": "The HTTP statuses that the load balancer takes for healthy.",
        },
        "must_answer": {
            "type": "bool",
            "default": True,
            "description": "Whether the health URL has to say something about the application before the host is taken "
            "out: an answer that is healthy, or an error of the server (500 and above). A URL where nothing answers, "
            "or only that there is no such page, would prove nothing.",
        },
        "headers": {
            "type": "dict",
            "no_log": True,
            "description": "HTTP headers for all of these URLs, such as a token.",
        },
        "username": {"type": "str", "description": "A user for all of these URLs (HTTP basic authentication)."},
        "password": {"type": "str", "no_log": True, "description": "The user's password."},
    }
    rules: t.ClassVar[t.Mapping[str, t.Any]] = {
        "required_one_of": [("marker", "out_url")],
        "mutually_exclusive": [("marker", "out_url")],
        "required_together": [("out_url", "in_url"), ("username", "password")],
    }
    carries_traffic = True

    def __init__(self, options: Options, tools: Tools) -> None:
        super().__init__(options, tools)
        self._interval: float = options["interval"]
        self._lasting: float = self._interval * options["threshold"]
        login = Login(options["username"], options.get("password")) if options["username"] else None
        self._caller = Caller(options.get("headers"), login)

    @classmethod
    def mistake(cls, options: Options) -> str:
        healthy = options["healthy"]
        return check.first(
            check.http_url("url", options["url"]),
            check.http_url("out_url", options["out_url"]),
            check.http_url("in_url", options["in_url"]),
            "" if re.fullmatch("[A-Za-z]+", options["method"]) else "method has to be an HTTP method, such as POST.",
            check.positive("interval", options["interval"], 1e6),
            check.positive("threshold", options["threshold"], 1e6),
            ""
            if healthy and all(100 <= status <= 599 for status in healthy)
            else "healthy has to be a list of HTTP statuses, 100 to 599.",
            check.headers("headers", options["headers"]),
            check.text("username", options["username"]),
        )

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        marker = options["marker"]
        if marker is None or check.is_absolute(platform, marker):
            return ""
        return f"marker has to be the absolute path of a file, such as {check.sample_path(platform, 'out')}."

    def look(self) -> Look:
        answer, is_out = self._answer(), self._switch.is_out()
        if is_out is None and not self._is_healthy(answer):
            # One bad answer is not enough: a load balancer would not act on it either.
            answer, is_out = self._look_longer(answer)
        out = bool(is_out)
        return Look(out and not self._is_healthy(answer), answer.message, {"in_service": not out})

    def do(self) -> Done:
        # After an interrupted attempt, a later step may have stopped what answers here.
        if self.given["must_answer"] and not self.tools.begun:
            self._demand_answer()
        return Done(self._settle(True), {})

    def undo(self, noted: Noted) -> str:
        return self._settle(False)

    @property
    def _switch(self) -> Switch:
        given = self.given
        if given["marker"]:
            return MarkerSwitch(given["marker"], given["marker_means"] == "out")
        return UrlSwitch(self._caller, given["out_url"], given["in_url"], given["method"])

    def _answer(self) -> Answer:
        return self._caller.ask(self.given["url"], self.tools.patience.request_timeout())

    def _is_healthy(self, answer: Answer) -> bool:
        return answer.status in self.given["healthy"]

    def _look_longer(self, answer: Answer) -> tuple[Answer, bool]:
        """The last answer, and whether none was healthy for as long as a load balancer needs to notice."""
        seen = [answer]
        has_time = self.tools.patience.left >= self._lasting

        def has_recovered() -> Proof:
            seen.append(self._answer())
            return Proof(self._is_healthy(seen[-1]), seen[-1].message)

        try:
            self.tools.patience.part(self._lasting).until(has_recovered, pause=self._pause)
        except Late:
            return seen[-1], has_time
        return seen[-1], False

    def _demand_answer(self) -> None:
        answer = self._answer()
        if not self._is_healthy(answer) and (answer.status or 0) < 500:
            raise EventsError(
                f"{answer.message}, which is neither healthy nor out of service, so nothing could be proven with it. "
                "Correct the step's url, or name what is healthy; if the application is meant to be like this, set "
                "must_answer to false."
            )

    def _settle(self, out: bool) -> str:
        """Switch, and verify it for as long as a load balancer needs to notice."""
        patience = self.tools.patience
        if self._switch.is_out() != out:
            self._switch.set_out(out, patience)

        def proof() -> Proof:
            answer = self._answer()
            return Proof(self._is_healthy(answer) != out, answer.message)

        message = patience.until(proof, pause=self._pause, lasting=self._lasting)
        return f"{message}, for {self._lasting:g} s"

    @property
    def _pause(self) -> float:
        return min(self._interval, 1.0)
