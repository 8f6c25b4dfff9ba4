# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits until there are no connections to some ports of this host, as /proc/net lists them. None is closed."""

from __future__ import annotations

import ipaddress
import struct
import typing as t

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import Done, Found, Kind, StepRecord
from .._patience import Proof
from .._text import count, listed

ESTABLISHED = "01"
Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Connection(t.NamedTuple):
    port: int
    peer: Address


def established(table: str) -> list[Connection]:
    """The established connections in the text of /proc/net/tcp or tcp6, by local port."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == ESTABLISHED:
            local, remote = fields[1], fields[2]
            found.append(Connection(int(local.rpartition(":")[2], 16), _address(remote.rpartition(":")[0])))
    return found


def _address(text: str) -> Address:
    """The kernel prints 32-bit words in its own byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    return getattr(address, "ipv4_mapped", None) or address


class Step(Kind):
    summary = "Nobody is connected to the ports any more; no connection is closed. Undone: there is nothing to undo."
    options: t.ClassVar = {
        "ports": {
            "type": "list",
            "elements": "int",
            "required": True,
            "description": "Local TCP ports on which nobody may be connected, over IPv4 or IPv6.",
        },
        "ignore_from": {
            "type": "list",
            "elements": "str",
            "default": [],
            "description": "Addresses or networks whose connections do not count, such as those of a monitoring "
            "system.",
        },
    }

    checks: t.ClassVar = {"ignore_from": check.networks, "ports": check.ports}
    # Where the kernel lists them.
    folder = "/proc/net"

    def look(self) -> Found:
        proof = self._none_open()
        return Found(proof.holds, proof.message, {})

    def do(self) -> Done:
        return Done(self.tools.patience.until(self._none_open), {})

    def undo(self, record: StepRecord) -> str:
        return "there is nothing to undo"

    def _none_open(self) -> Proof:
        wanted = set(self.params["ports"])
        ignored = [ipaddress.ip_network(each, strict=False) for each in self.params["ignore_from"]]
        every = [connection for name in ("tcp", "tcp6") for connection in established(self._table(name))]
        left = [each for each in every if each.port in wanted and not any(each.peer in network for network in ignored)]
        ports = ", ".join(map(str, sorted(wanted)))
        if not left:
            return Proof(True, f"no connections on {ports}")
        peers = sorted({str(each.peer) for each in left})
        return Proof(False, f"{count(len(left), 'connection')} on {ports}, from {listed(peers, 3)}")

    def _table(self, name: str) -> str:
        try:
            with open(f"{self.folder}/{name}") as file:
                return file.read()
        except FileNotFoundError as exc:
            if name == "tcp6":
                # A kernel without IPv6.
                return ""
            raise EventsError(f"{self.folder}/{name} does not exist: only Linux lists connections there.") from exc
        except OSError as exc:
            raise EventsError(f"{self.folder}/{name} cannot be read: {exc.strerror}.") from exc
