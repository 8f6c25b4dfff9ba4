# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the health URL unhealthy, so that the load balancer takes the host out."""

from __future__ import annotations

import os
import re
import typing as t

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import Done, Found, Kind, Options, StepRecord, Tools
from .._patience import Late, Proof
from .._peer import Login, Status, status_of
from .._text import clean


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
            "description": "A URL that takes the application out. It is called whatever the health URL says, so "
            "calling it twice must do no harm.",
        },
        "in_url": {
            "type": "str",
            "description": "A URL that puts the application back. As with `out_url`, calling it twice must do no harm.",
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
            "or only that there is no such page, proves nothing about the application.",
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

    def look(self) -> Found:
        health, is_out = self._health(), self._is_out()
        if is_out is None and not health.holds:
            # One bad answer is not enough, as for a load balancer.
            health, is_out = self._look_longer(health)
        out = bool(is_out)
        return Found(out and not health.holds, health.message, {"in_service": not out})

    def do(self) -> Done:
        # After an interrupted attempt, a later step may have stopped the application already.
        if self.params["must_answer"] and not self.tools.begun:
            self._demand_answer()
        return Done(self._settle(True), {})

    def undo(self, record: StepRecord) -> str:
        return self._settle(False)

    def _status(self) -> Status:
        return self._ask(self.params["url"], self.tools.patience.request_timeout())

    def _ask(self, url: str, timeout: float, method: str = "GET") -> Status:
        """As a load balancer asks: certificates are not checked, redirects are not followed."""
        login = Login(self.params["username"], self.params.get("password"))
        return status_of(url, timeout, method, headers=self.params.get("headers"), login=login, verify=False)

    def _health(self) -> Proof:
        status = self._status()
        return Proof(status.code in self.params["healthy"], status.message)

    def _look_longer(self, health: Proof) -> tuple[Proof, bool]:
        """The last answer, and whether none was healthy for as long as a load balancer needs to notice."""
        has_time = self.tools.patience.left >= self._lasting

        def recovered() -> Proof:
            nonlocal health
            health = self._health()
            return health

        try:
            self.tools.patience.part(self._lasting).until(recovered, pause=self._pause)
        except Late:
            return health, has_time
        return health, False

    def _demand_answer(self) -> None:
        status = self._status()
        if status.code not in self.params["healthy"] and (status.code or 0) < 500:
            raise EventsError(
                f"{status.message}, which is neither healthy nor out of service, so nothing could be proven with it. "
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

        def settled() -> Proof:
            health = self._health()
            return Proof(health.holds != out, health.message)

        message = self.tools.patience.until(settled, pause=self._pause, lasting=self._lasting)
        return f"{message}, for {self._lasting:g} s"

    def _is_out(self) -> bool | None:
        """By the marker; None if there is none, and only the health URL shows it."""
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
                raise EventsError(f"The marker {shown} cannot be made: its folder does not exist.") from exc
        except OSError as exc:
            raise EventsError(f"The marker {shown} cannot be changed: {exc.strerror}.") from exc

    def _call(self, url: str) -> None:
        method = self.params["method"].upper()
        status = self._ask(url, self.tools.patience.request_timeout(30), method)
        if status.code is None or not 200 <= status.code < 300:
            raise EventsError(f"{method} {status.message}, which is not a success.")
