# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A metadata service whose transport answers from a script."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._client import Client, Limits
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply, Request
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

Answer = Reply | Exception | t.Callable[[Request], Reply]


class ScriptedTransport:
    """Gives the next answer of the script; the last one again and again."""

    def __init__(self, *script: Answer, clock: JumpingClock | None = None, seconds: float = 0.0) -> None:
        self.script = list(script)
        self.sent: list[Request] = []
        self.clock = clock
        self.seconds = seconds

    def send(self, request: Request) -> Reply:
        self.sent.append(request)
        if self.clock:
            self.clock.now += self.seconds
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.sent]


def reply(status: int = 200, content: t.Any = None, **headers: str) -> Reply:
    body = content if isinstance(content, bytes) else json.dumps({} if content is None else content).encode()
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def events(*entries: dict[str, t.Any], incarnation: int = 1, **headers: str) -> Reply:
    return reply(200, {"DocumentIncarnation": incarnation, "Events": list(entries)}, **headers)


def event(event_id: str = "A", status: str = "Scheduled", resources: t.Sequence[str] = ("web_0",)) -> dict[str, t.Any]:
    return {
        "EventId": event_id,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "EventStatus": status,
        "NotBefore": "" if status == "Started" else "Sat, 19 Sep 2026 18:15:00 GMT",
    }


def client(transport: ScriptedTransport, clock: JumpingClock | None = None, **options: t.Any) -> Client:
    fallbacks = options.pop("fallbacks", tuple)
    return Client(transport, "http://127.0.0.1:1", Limits(**options), clock or JumpingClock(), fallbacks)


def service(*script: Answer, api_version: str = "2020-07-01", **options: t.Any) -> tuple[Service, ScriptedTransport]:
    """Options are those of client(): clock, retries and so on."""
    transport = ScriptedTransport(*script)
    return Service(client(transport, **options), api_version), transport
