# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _leases as leases

NOW = 1_789_000_000.0  # 2026-09-10 01:06:40 UTC


def lease(option: str, *lines: str) -> str:
    return "\n".join(["lease {", '  interface "eth0";', f"  {option}", *(f"  {line}" for line in lines), "}", ""])


HEX = "option unknown-245 a8:3f:81:10;"


@pytest.mark.parametrize(
    ("content", "address"),
    [
        pytest.param(lease(HEX, "expire never;"), "168.63.129.16", id="hex-pairs"),
        pytest.param(lease("option unknown-245 a:3f:81:1;"), "10.63.129.1", id="one-digit-pairs"),
        pytest.param(lease("option option-245 a8:3f:81:10;"), "168.63.129.16", id="openbsd"),
        pytest.param(lease(r'option unknown-245 "\250?\201\020";'), "168.63.129.16", id="quoted-octal"),
        pytest.param(lease('option unknown-245 "\xa8?\x81\x10";'), "168.63.129.16", id="quoted-raw"),
        pytest.param(lease(r'option unknown-245 "\012\"\\;";'), "10.34.92.59", id="quoted-escapes-and-semicolon"),
        pytest.param(lease(HEX, "expire 4 2026/09/10 00:00:00;"), None, id="expired"),
        pytest.param(lease(HEX, "expire epoch 1788999999; # comment"), None, id="expired-epoch"),
        pytest.param(lease(HEX, "expire 4 2026/09/11 00:00:00;"), "168.63.129.16", id="unexpired"),
        pytest.param(
            lease(HEX, "option domain-name-servers expired;", "expire 4 2026/09/11 00:00:00;"),
            "168.63.129.16",
            id="trap",
        ),
        pytest.param(
            lease("option unknown-245 a:0:0:1;", "expire never;")
            + lease("option unknown-245 a:0:0:2;", "expire never;")
            + lease("option unknown-245 a:0:0:3;", "expire 4 2020/01/01 00:00:00;"),
            "10.0.0.2",
            id="last-unexpired-wins",
        ),
        pytest.param(lease("option unknown-245 a8:3f:81;"), None, id="three-bytes"),
        pytest.param(lease("option unknown-245 fff:3f:81:1;"), None, id="not-a-byte"),
        pytest.param(lease("option unknown-245 0:0:0:0;"), None, id="zero"),
        pytest.param(lease("option unknown-24 a8:3f:81:10;"), None, id="another-option"),
        pytest.param("lease {\n  option unknown-245 a8:3f", None, id="cut-off"),
        pytest.param("", None, id="empty"),
    ],
)
def test_dhclient_leases(content: str, address: str | None) -> None:
    assert leases.dhclient_address(content.encode("latin-1"), NOW) == address


@pytest.mark.parametrize(
    ("content", "address"),
    [
        (b"ADDRESS=10.0.0.4\nOPTION_245=a83f8110\n", "168.63.129.16"),
        (b"OPTION_245=A83F8110", "168.63.129.16"),
        (b"OPTION_245=a83f\n", None),
        (b"#OPTION_245=a83f8110\n", None),
    ],
)
def test_key_value_leases(content: bytes, address: str | None) -> None:
    assert leases.key_value_address(content) == address


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (b"\x35\x01\x05\xf5\x04\xa8\x3f\x81\x10\xff", "168.63.129.16"),
        (b"\x00\x00\xf5\x04\xa8\x3f\x81\x10", "168.63.129.16"),
        (b"\xff\xf5\x04\xa8\x3f\x81\x10", None),
        (b"\xf5\x04\xa8", None),
        (b"\xf5", None),
        (b"", None),
    ],
)
def test_dhcpcd_leases(options: bytes, address: str | None) -> None:
    assert leases.dhcpcd_address(b"\x02" + bytes(235) + b"\x63\x82\x53\x63" + options) == address


def test_all_lease_files_are_looked_at_and_the_newest_comes_first(tmp_path: Path) -> None:
    files = {
        "var/lib/dhcp/dhclient.eth0.leases": (lease("option unknown-245 a:0:0:1;").encode(), 100),
        "var/lib/NetworkManager/dhclient-eth0.lease": (lease("option unknown-245 a:0:0:2;").encode(), 400),
        "run/systemd/netif/leases/2": (b"OPTION_245=0a000003\n", 300),
        "var/lib/dhcpcd/eth0.lease": (bytes(240) + b"\xf5\x04\x0a\x00\x00\x01", 200),
        "var/lib/dhclient/broken.leases": (b"\x00\xff garbage", 500),
    }
    for name, (content, changed) in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (changed, changed))
    assert leases.lease_endpoints(str(tmp_path), NOW) == [
        f"http://{address}{port}" for address in ("10.0.0.2", "10.0.0.3", "10.0.0.1") for port in ("", ":8080")
    ]


def test_without_lease_files_there_is_nothing_to_try(tmp_path: Path) -> None:
    assert leases.lease_endpoints(str(tmp_path), NOW) == []
