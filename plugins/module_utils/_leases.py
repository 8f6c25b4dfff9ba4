# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metadata service's address from DHCP option 245, as the lease files of the usual DHCP clients have it."""

from __future__ import annotations

import calendar
import glob
import os
import re
import time
import typing as t

_MAX_LEASE_FILE = 1 << 20
_DHCLIENT_FILES = (
    "var/lib/dhcp/dhclient*.lease*",
    "var/lib/dhclient/*.lease*",
    "var/lib/NetworkManager/dhclient-*.lease",
    "var/db/dhclient.leases.*",
)
_KEY_VALUE_FILES = ("run/systemd/netif/leases/*", "var/lib/NetworkManager/internal-*.lease")
_DHCPCD_FILES = ("var/lib/dhcpcd/*.lease", "var/lib/dhcpcd5/*.lease")

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_DHCLIENT_LEASE = re.compile(r"^\s*lease\s*\{(.*?)^\s*\}", re.MULTILINE | re.DOTALL)
_DHCLIENT_OPTION = re.compile(
    rf"^\s*option\s+(?:unknown|option|private)-245\s+(?:([0-9a-fA-F:]+)|{_QUOTED})\s*;", re.M | re.S
)
_DHCLIENT_EXPIRE = re.compile(r"^\s*expire\s+(?:never|epoch\s+(\d+)|\d\s+(\d{4}/\d\d?/\d\d? \d\d?:\d\d:\d\d))", re.M)
_KEY_VALUE_OPTION = re.compile(r"^OPTION_245=([0-9a-fA-F]{8})\s*$", re.MULTILINE)


def lease_endpoints(root: str = "/", now: float | None = None) -> list[str]:
    """Endpoints made of DHCP option 245, from the newest lease file to the oldest."""
    moment = time.time() if now is None else now
    readers: tuple[tuple[t.Sequence[str], t.Callable[[bytes], str | None]], ...] = (
        (_DHCLIENT_FILES, lambda content: dhclient_address(content, moment)),
        (_KEY_VALUE_FILES, key_value_address),
        (_DHCPCD_FILES, dhcpcd_address),
    )
    found: list[tuple[float, str]] = []
    for patterns, reader in readers:
        for path in (path for pattern in patterns for path in glob.glob(os.path.join(root, pattern))):
            try:
                with open(path, "rb") as file:
                    address = reader(file.read(_MAX_LEASE_FILE))
                if address:
                    found.append((os.stat(path).st_mtime, address))
            except OSError:
                continue
    addresses = dict.fromkeys(address for dummy, address in sorted(found, reverse=True))
    return [f"http://{address}{port}" for address in addresses for port in ("", ":8080")]


def dhclient_address(content: bytes, now: float) -> str | None:
    """The option of the last lease that has not expired; leases are appended, so the last is the newest."""
    address = None
    for lease in _DHCLIENT_LEASE.findall(content.decode("latin-1")):
        option = _DHCLIENT_OPTION.search(lease)
        if option and not _expired(lease, now):
            pairs, quoted = option.groups()
            raw = _from_pairs(pairs) if pairs is not None else _from_quoted(quoted)
            address = _dotted(raw) or address
    return address


def _expired(lease: str, now: float) -> bool:
    expire = _DHCLIENT_EXPIRE.search(lease)
    if not expire or not any(expire.groups()):
        return False
    epoch, date = expire.groups()
    try:
        return (int(epoch) if epoch else calendar.timegm(time.strptime(date, "%Y/%m/%d %H:%M:%S"))) <= now
    except (ValueError, OverflowError):
        return False


def _from_pairs(pairs: str) -> bytes:
    values = [int(pair, 16) for pair in pairs.split(":") if pair]
    return bytes(values) if all(value < 256 for value in values) else b""


def _from_quoted(text: str) -> bytes:
    def unescape(found: t.Match[str]) -> str:
        code = found.group(1)
        return chr(int(code, 8) & 0xFF) if code.isdigit() else code

    return re.sub(r"\\([0-7]{3}|.)", unescape, text, flags=re.DOTALL).encode("latin-1")


def key_value_address(content: bytes) -> str | None:
    """What systemd-networkd and NetworkManager's own client write."""
    option = _KEY_VALUE_OPTION.search(content.decode("latin-1"))
    return _dotted(bytes.fromhex(option.group(1))) if option else None


def dhcpcd_address(content: bytes) -> str | None:
    """A raw DHCP message: the options begin at byte 240, each a code, a length and that many bytes."""
    position = 240
    while position + 1 < len(content) and content[position] != 255:
        if content[position] == 0:
            position += 1
            continue
        code, length = content[position], content[position + 1]
        if code == 245:
            return _dotted(content[position + 2 : position + 2 + length])
        position += 2 + length
    return None


def _dotted(raw: bytes) -> str | None:
    # Zero, multicast and broadcast cannot be a server's address.
    return ".".join(str(byte) for byte in raw) if len(raw) == 4 and 0 < raw[0] < 224 else None
