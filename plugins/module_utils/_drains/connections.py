# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Nobody is connected to some ports of this host, from what the kernel tells in /proc/net. None is closed."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _option_checks as check
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._kind import Done, Kind, Look, Noted, Options
from ansible_collections.graceful.azure.plugins.module_utils._patience import Proof
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, count, listed

ESTABLISHED = "01"
Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


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
    order = "<" if sys.byteorder == "little" else ">"
    raw = b"".join(struct.pack(f"{order}I", word) for word in words)
    if len(raw) == 4:
        return ipaddress.IPv4Address(socket.inet_ntoa(raw))
    address = ipaddress.IPv6Address(raw)
    return address.ipv4_mapped or address


def networks(texts: t.Sequence[str]) -> list[Network]:
    try:
        return [ipaddress.ip_network(text, strict=False) for text in texts]
    except ValueError as exc:
        raise WrongOption(f"ignore_from has to be a list of addresses or networks: {clean(exc, 200)}.") from exc


class Table:
    def __init__(self, ports: t.Collection[int], ignored: t.Sequence[Network] = (), folder: str = "/proc/net") -> None:
        self._ports = ports
        self._ignored = ignored
        self._folder = folder

    def open_now(self) -> list[Connection]:
        every = [connection for name in ("tcp", "tcp6") for connection in established(self._read(name))]
        return [
            each
            for each in every
            if each.port in self._ports and not any(each.peer in network for network in self._ignored)
        ]

    def none_open(self) -> Proof:
        left = self.open_now()
        ports = ", ".join(map(str, sorted(self._ports)))
        if not left:
            return Proof(True, f"no connections on {ports}")
        peers = sorted({str(each.peer) for each in left})
        return Proof(False, f"{count(len(left), 'connection')} on {ports}, from {listed(peers, 3)}")

    def _read(self, name: str) -> str:
        try:
            with open(f"{self._folder}/{name}") as file:
                return file.read()
        except FileNotFoundError as exc:
            if name == "tcp6":
                # A kernel without IPv6.
                return ""
            raise EventsError(f"{self._folder}/{name} is not there: only Linux tells its connections so.") from exc
        except OSError as exc:
            raise EventsError(f"{self._folder}/{name} cannot be read: {exc.strerror}.") from exc


class Step(Kind):
    summary = "Nobody is connected to the ports any more; no connection is closed. Undone: there is nothing to undo."
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
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

    @classmethod
    def mistake(cls, options: Options) -> str:
        try:
            networks(options["ignore_from"])
        except WrongOption as exc:
            return exc.message
        return check.ports("ports", options["ports"])

    def look(self) -> Look:
        proof = self._table.none_open()
        return Look(proof.holds, proof.message, {})

    def do(self) -> Done:
        return Done(self.tools.patience.until(self._table.none_open), {})

    def undo(self, noted: Noted) -> str:
        return "there is nothing to undo"

    @property
    def _table(self) -> Table:
        return Table(set(self.given["ports"]), networks(self.given["ignore_from"]))
