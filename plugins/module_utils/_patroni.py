# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""A member of a Patroni cluster, over its REST API."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import typing as t
import urllib.error
import urllib.request

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, Proof

LEADERS = ("leader", "standby_leader", "master", "primary")
HEALTHY = ("running", "streaming", "in archive recovery")
LARGEST_ANSWER = 4 * 1024 * 1024


class Answer(t.NamedTuple):
    status: int
    text: str


class Api:
    """The REST API of one member; proxies are never used, redirects are errors."""

    def __init__(
        self,
        url: str,
        credentials: tuple[str, str] | None = None,
        ca_file: str | None = None,
        validate_certs: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self._credentials = credentials
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as exc:
            raise WrongOption(f"ca_file {ca_file} cannot be used: {exc}.") from exc
        if not validate_certs:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def ask(self, path: str, timeout: float, body: t.Mapping[str, t.Any] | None = None) -> Answer:
        try:
            request = urllib.request.Request(self.url + path, headers={"Accept": "application/json"})
        except ValueError as exc:
            raise WrongOption(f"url is {self.url!r}, which is not a URL: {exc}.") from exc
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
            if self._credentials:
                pair = ":".join(self._credentials).encode()
                request.add_header("Authorization", "Basic " + base64.b64encode(pair).decode())
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return Answer(int(response.status), response.read(LARGEST_ANSWER).decode("utf-8", "replace"))
        except urllib.error.HTTPError as exc:
            with exc:
                return Answer(exc.code, exc.read(LARGEST_ANSWER).decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise EventsError(f"Patroni at {self.url} does not answer: {getattr(exc, 'reason', None) or exc}.") from exc

    def read(self, path: str, timeout: float) -> tuple[int, dict[str, t.Any]]:
        """A document, with its status: Patroni answers what it is asked (`/leader`: am I?) by the status."""
        answer = self.ask(path, timeout)
        try:
            document = json.loads(answer.text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise EventsError(f"Patroni at {self.url}{path} answers {answer.status} and no document.")
        return answer.status, document


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


class Cluster:
    """The cluster as this host's member sees it."""

    def __init__(self, api: Api, patience: Patience) -> None:
        self._api = api
        self._patience = patience
        self._name: str | None = None

    def look(self) -> tuple[Member, list[Member]]:
        """This host's member, and the others."""
        # 200 is the lock of the leader: who has it leads, even while PostgreSQL is not promoted yet.
        locked, own = self._api.read("/leader", self._patience.request_timeout())
        _status, document = self._api.read("/cluster", self._patience.request_timeout())
        role, state = "leader" if locked == 200 else str(own.get("role")), str(own.get("state"))
        members = [
            Member(str(each.get("name")), str(each.get("role")), str(each.get("state")))
            for each in document.get("members", [])
        ]
        self._name = (own.get("patroni") or {}).get("name") or self._name
        if self._name is None and role in LEADERS:
            # Patroni before 3.1 does not tell its own name, but there is only one leader.
            self._name = next((member.name for member in members if member.leads), None)
        others = [member for member in members if member.name != self._name]
        return Member(self._name or "this member", role, state), others

    def give_up_leadership(self, candidate: str | None) -> str:
        """Switch over if this member leads, then see another one lead and this one follow."""
        mine, others = self.look()
        if mine.leads and not others:
            raise EventsError(f"{mine.name} leads and there is no other member to take over.")
        # Members tell of themselves every few seconds: one that has just come back may still be said to be stopped.
        self._patience.until(self._can_leave, pause=1.0)
        mine, _others = self.look()
        if mine.leads:
            wish = {"leader": mine.name, **({"candidate": candidate} if candidate else {})}
            # Patroni answers when the switchover has happened, so it gets all of the time.
            answer = self._api.ask("/switchover", self._patience.request_timeout(3600), wish)
            if answer.status not in (200, 202):
                raise EventsError(f"Patroni refuses the switchover ({answer.status}): {answer.text.strip()[:300]}")
        return self._patience.until(self._follows, pause=1.0)

    def is_back(self) -> str:
        """See this member healthy, in whatever role."""
        return self._patience.until(self._is_member, pause=1.0)

    def _can_leave(self) -> Proof:
        mine, others = self.look()
        told = ", ".join(f"{member.name} is {member.state}" for member in others)
        fit = self._name is not None and any(member.is_healthy for member in others)
        return Proof(not mine.leads or fit, f"{mine.name} leads and no other member is fit to take over: {told}")

    def _follows(self) -> Proof:
        try:
            mine, others = self.look()
        except EventsError as exc:
            # While PostgreSQL restarts in its new role, Patroni may not answer.
            return Proof(False, exc.message.rstrip("."))
        leader = next((member for member in others if member.leads and member.is_healthy), None)
        words = f"{mine.name} is {mine.role} ({mine.state}), {leader.name if leader else 'nobody else'} leads"
        return Proof(leader is not None and not mine.leads and mine.is_healthy, words)

    def _is_member(self) -> Proof:
        try:
            mine, others = self.look()
        except EventsError as exc:
            return Proof(False, exc.message.rstrip("."))
        led = any(member.leads for member in [mine, *others])
        return Proof(mine.is_healthy and led, f"{mine.name} is {mine.role} ({mine.state})")
