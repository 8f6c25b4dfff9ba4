# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server of this host in one or several HAProxy instances. The controller takes the step, on the balancers."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._haproxy import NAME
from .._kind import Json, Kind, Options


def _name(option: str, value: str) -> str:
    return "" if NAME.fullmatch(value) else f"{option} cannot be a name in HAProxy."


class Step(Kind):
    summary = "The server is in maintenance on each balancer, after its last session has ended. Undone: it is ready."
    options: t.ClassVar = {
        "backend": {"type": "str", "required": True, "description": "The backend."},
        "server": {"type": "str", "required": True, "description": "The server as the backend calls it."},
        "sockets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "description": "The balancers.",
            "options": {
                "host": {
                    "type": "str",
                    "required": True,
                    "description": "The host in the inventory from which the socket is used.",
                },
                "socket": {
                    "type": "str",
                    "required": True,
                    "description": "The path of the runtime socket, or host:port. It needs `level admin`.",
                },
            },
        },
    }
    checks: t.ClassVar = {
        **dict.fromkeys(("backend", "server"), _name),
        "sockets": check.entries(
            "{host: inventory name, socket: path or host:port}", host=check.text, socket=check.text
        ),
    }
    carries_traffic = True
    by_controller = True
    looks_first = True

    @classmethod
    def merged(cls, options: Options, before: Json, now: Json) -> Json:
        """Each of `servers` has host, socket and in_service. A balancer may have been added since the first attempt."""
        servers = {_place(server): server for server in [*_servers(now), *_servers(before)]}
        return {**now, "servers": list(servers.values())}


def _servers(before: Json) -> list[Json]:
    servers = before.get("servers")
    return [server for server in servers if isinstance(server, dict)] if isinstance(servers, list) else []


def _place(server: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return str(server.get("host")), str(server.get("socket"))
