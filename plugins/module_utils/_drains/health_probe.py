# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The host leaves its load balancer by what its health URL answers."""

from __future__ import annotations

import os
import re
import typing as t

from .. import _option_checks as check
from .._connection import NoAnswer
from .._errors import EventsError
from .._kind import Done, Kind, Look, Options, StepRecord, Tools
from .._patience import Late, Proof
from .._peer import Login, ask
from .._text import clean


class Answer(t.NamedTuple):
    status: int | None
    message: str


def _method(option: str, value: str) -> str:
    return "" if re.fullmatch("[A-Za-z]+", value) else f"{option} has to be an HTTP method, such as POST."


def _statuses(option: str, value: t.Sequence[int]) -> str:
    if value and all(100 <= status <= 599 for status in value):
        return ""
    return f"{option} has to be a list of HTTP statuses, 100 to 599."


class Step(Kind):
    summary = (
        "The health URL is not healthy for `interval` times `threshold` seconds, by a marker file or by URLs of the "
        "application. Undone: it is healthy for as long."
    )
    options: t.ClassVar = {
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
    rules: t.ClassVar = {
        "required_one_of": [("marker", "out_url")],
        "mutually_exclusive": [("marker", "out_url")],
        "required_together": [("out_url", "in_url"), ("username", "password")],
    }
    checks: t.ClassVar = {
        **dict.fromkeys(("url", "out_url", "in_url"), check.http_url),
        **dict.fromkeys(("interval", "threshold"), check.positive),
        "method": _method,
        "healthy": _statuses,
        "headers": check.headers,
        "username": check.text,
    }
    carries_traffic = True

    def __init__(self, params: Options, tools: Tools) -> None:
        super().__init__(params, tools)
        self._lasting: float = params["interval"] * params["threshold"]
        self._pause = min(params["interval"], 1.0)

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        marker = options["marker"]
        if marker is None or check.is_absolute(platform, marker):
            return ""
        return f"marker has to be the absolute path of a file, such as {check.sample_path(platform, 'out')}."

    def look(self) -> Look:
        answer, is_out = self._answer(), self._is_out()
        if is_out is None and not self._is_healthy(answer):
            # One bad answer is not enough: a load balancer would not act on it either.
            answer, is_out = self._look_longer(answer)
        out = bool(is_out)
        return Look(out and not self._is_healthy(answer), answer.message, {"in_service": not out})

    def do(self) -> Done:
        # After an interrupted attempt, a later step may have stopped what answers here.
        if self.params["must_answer"] and not self.tools.begun:
            self._demand_answer()
        return Done(self._settle(True), {})

    def undo(self, record: StepRecord) -> str:
        return self._settle(False)

    def _answer(self) -> Answer:
        return self._ask(self.params["url"], self.tools.patience.request_timeout())

    def _ask(self, url: str, timeout: float, method: str = "GET") -> Answer:
        """The status that the URL answers with, or None and why there is no answer.

        It is asked as a load balancer does: certificates are not checked, redirects are not followed."""
        given, shown = self.params, clean(url, 200)
        login = Login(given["username"], given.get("password"))
        try:
            status = ask(url, timeout, method, headers=given.get("headers"), login=login, verify=False).status
        except NoAnswer as exc:
            return Answer(None, f"{shown} does not answer ({exc.message})")
        return Answer(status, f"{shown} answers {status}")

    def _is_healthy(self, answer: Answer) -> bool:
        return answer.status in self.params["healthy"]

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
        if self._is_out() != out:
            if self.params["marker"]:
                self._set_marker(out)
            else:
                self._call(self.params["out_url" if out else "in_url"])

        def proof() -> Proof:
            answer = self._answer()
            return Proof(self._is_healthy(answer) != out, answer.message)

        message = self.tools.patience.until(proof, pause=self._pause, lasting=self._lasting)
        return f"{message}, for {self._lasting:g} s"

    def _is_out(self) -> bool | None:
        """By the marker; None if only the health URL can tell."""
        marker = self.params["marker"]
        return os.path.lexists(marker) == self._marker_is_there_when(True) if marker else None

    def _marker_is_there_when(self, out: bool) -> bool:
        return bool(out == (self.params["marker_means"] == "out"))

    def _set_marker(self, out: bool) -> None:
        marker, wanted = self.params["marker"], self._marker_is_there_when(out)
        shown = clean(marker, 200)
        try:
            if wanted:
                os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            else:
                os.unlink(marker)
        except FileExistsError:
            pass
        except FileNotFoundError as exc:
            if wanted:
                raise EventsError(f"The marker {shown} cannot be made: its folder is not there.") from exc
        except OSError as exc:
            raise EventsError(f"The marker {shown} cannot be changed: {exc.strerror}.") from exc

    def _call(self, url: str) -> None:
        method = self.params["method"].upper()
        answer = self._ask(url, self.tools.patience.request_timeout(30), method)
        if answer.status is None or not 200 <= answer.status < 300:
            raise EventsError(f"{method} {answer.message}, which is not a success.")
