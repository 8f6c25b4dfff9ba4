# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes another member of a Patroni cluster the leader by a switchover, by Patroni's REST API."""

from __future__ import annotations

import json
import typing as t

from .. import _option_checks as check
from .._connection import NoAnswer
from .._errors import EventsError
from .._kind import LINUX, Done, Found, Json, Kind, Options, StepRecord, Tools
from .._patience import Proof, forgiving
from .._peer import Answer, Login, ask
from .._text import clean

LEADERS = ("leader", "standby_leader", "master", "primary")
HEALTHY = ("running", "streaming", "in archive recovery")
LARGEST_ANSWER = 4 * 1024 * 1024


class Member(t.NamedTuple):
    name: str
    role: str
    state: str

    @property
    def leads(self) -> bool:
        return self.role in LEADERS

    @property
    def is_healthy(self) -> bool:
        return self.state in HEALTHY

    @property
    def shown(self) -> str:
        return clean(self.name, 80)

    @property
    def message(self) -> str:
        return f"{self.shown} is {clean(self.role, 40)} ({clean(self.state, 40)})"


class Step(Kind):
    summary = "Another member leads and this one follows. Undone: this one is a healthy member, in whatever role."
    options: t.ClassVar = {
        "url": {
            "type": "str",
            "default": "http://127.0.0.1:8008",
            "description": "The REST API of this host's member.",
        },
        "candidate": {
            "type": "str",
            "description": "The member to make the leader. By default Patroni chooses one.",
        },
        "username": {"type": "str", "description": "The user of the REST API, where it has one."},
        "password": {"type": "str", "no_log": True, "description": "The user's password."},
        # Not of type path: that would be expanded on the controller.
        "ca_file": {
            "type": "str",
            "description": "Certificates to check that of an `https` URL with, instead of the system's.",
        },
        "validate_certs": {
            "type": "bool",
            "default": True,
            "description": "Whether to check the certificate of an `https` URL.",
        },
    }
    checks: t.ClassVar = {
        "url": check.http_url,
        **dict.fromkeys(("candidate", "username", "password", "ca_file"), check.text),
    }
    platforms = (LINUX,)
    rules: t.ClassVar = {"required_together": [("username", "password")]}

    def __init__(self, params: Options, tools: Tools) -> None:
        super().__init__(params, tools)
        self._url: str = params["url"].rstrip("/")
        self._shown = clean(self._url, 200)
        self._name: str | None = None

    def look(self) -> Found:
        mine, others = self.members()
        led_by_other = any(member.leads and member.is_healthy for member in others)
        done = mine.is_healthy and led_by_other and not mine.leads
        return Found(done, mine.message, {"role": clean(mine.role, 40), "state": clean(mine.state, 40)})

    def do(self) -> Done:
        """Switch over if this member leads, then wait until another one leads and this one follows."""
        patience, candidate = self.tools.patience, self.params["candidate"]
        mine, others = self.members()
        if mine.leads and not others:
            raise EventsError(f"{mine.shown} leads and there is no other member to take over.")
        # Members report their state every few seconds: one that has just come back may still be shown as stopped.
        patience.until(self._can_leave, pause=1.0)
        mine, _others = self.members()
        if mine.leads:
            request = {"leader": mine.name, **({"candidate": candidate} if candidate else {})}
            # Patroni answers when the switchover has happened, so it gets all of the time.
            answer = self._ask("/switchover", patience.request_timeout(3600), request)
            if answer.status not in (200, 202):
                raise EventsError(f"Patroni refuses the switchover ({answer.status}): {clean(answer.text, 300)}")
        # While PostgreSQL restarts in its new role, Patroni may not answer.
        return Done(patience.until(forgiving(self._follows), pause=1.0), {})

    def undo(self, record: StepRecord) -> str:
        """Wait until this member is healthy, in whatever role."""
        return self.tools.patience.until(forgiving(self._is_member), pause=1.0)

    def _can_leave(self) -> Proof:
        mine, others = self.members()
        states = clean(", ".join(f"{member.shown} is {clean(member.state, 40)}" for member in others), 300)
        fit = self._name is not None and any(member.is_healthy for member in others)
        return Proof(not mine.leads or fit, f"{mine.shown} leads and no other member is fit to take over: {states}")

    def _follows(self) -> Proof:
        mine, others = self.members()
        leader = next((member for member in others if member.leads and member.is_healthy), None)
        message = f"{mine.message}, {leader.shown if leader else 'nobody else'} leads"
        return Proof(leader is not None and not mine.leads and mine.is_healthy, message)

    def _is_member(self) -> Proof:
        mine, others = self.members()
        led = any(member.leads for member in [mine, *others])
        return Proof(mine.is_healthy and led, mine.message)

    def members(self) -> tuple[Member, list[Member]]:
        """This host's member, and the others, as this one sees them."""
        # 200 means that this member has the lock of the leader, even if PostgreSQL is not promoted yet.
        locked, mine = self._read("/leader")
        _status, document = self._read("/cluster")
        entries = document.get("members", [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise EventsError(f"Patroni at {self._shown}/cluster answers with something else than a list of members.")
        members = [Member(str(each.get("name")), str(each.get("role")), str(each.get("state"))) for each in entries]
        role, state = "leader" if locked == 200 else str(mine.get("role")), str(mine.get("state"))
        patroni = mine.get("patroni")
        name = patroni.get("name") if isinstance(patroni, dict) else None
        self._name = str(name) if name else self._name
        if self._name is None and role in LEADERS:
            # Patroni before 3.1 does not say which member it is, but there is only one leader.
            self._name = next((member.name for member in members if member.leads), None)
        others = [member for member in members if member.name != self._name]
        return Member(self._name or "this member", role, state), others

    def _read(self, path: str) -> tuple[int, Json]:
        """A document and its status: the status alone answers `/leader`."""
        answer = self._ask(path, self.tools.patience.request_timeout())
        try:
            document = json.loads(answer.text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise EventsError(f"Patroni at {self._shown}{path} answers {answer.status} and no document.")
        return answer.status, document

    def _ask(self, path: str, timeout: float, request: Json | None = None) -> Answer:
        """GET, or POST if there is a request. Only a POST needs the password."""
        params, headers = self.params, {"Accept": "application/json"}
        how: Json = {"verify": params["validate_certs"], "ca_file": params["ca_file"], "largest": LARGEST_ANSWER}
        if request is not None:
            headers["Content-Type"] = "application/json"
            login = Login(params["username"], params.get("password"))
            how.update(method="POST", body=json.dumps(request).encode(), login=login)
        try:
            return ask(self._url + path, timeout, headers=headers, **how)
        except NoAnswer as exc:
            raise EventsError(f"Patroni at {self._shown} does not answer: {exc.message}.") from exc
