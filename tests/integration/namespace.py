# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in a network and mount namespace of its own, where the service's real addresses are ours to give away.

Reads without an endpoint three times: where nothing is there, where DHCP tells the address, and in a VNet.
Writes each task's record to stdout, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Play, inventory_of

VNET_ADDRESS = "169.254.169.254"
DHCP_ADDRESS = "10.24.5.6"
LEASE = 'lease {\n  interface "eth0";\n  option unknown-245 a:18:5:6;\n  expire never;\n}\n'


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def read(place: str, directory: Path) -> None:
    play = Play("auto.yml", inventory_of({place: ("info", {})}), directory / place)
    (record,) = play.records or [{"host": place, "status": "not run", "result": {"msg": play.output}}]
    print(json.dumps(record), flush=True)


def served(directory: Path, place: str, address: str, port: int) -> Emulator:
    return Emulator(
        directory / f"{place}-emulator", [Case(place, events=[{}])], "--bind", address, "--port-base", str(port)
    )


def main(outer_network: str, directory: Path) -> None:
    assert os.readlink("/proc/self/ns/net") != outer_network, "not in a network of its own: nothing may be sent"
    ip("link", "set", "lo", "up")
    ip("route", "add", "prohibit", f"{VNET_ADDRESS}/32")
    read("nothing", directory)

    leases = directory / "lib" / "dhcp"
    leases.mkdir(parents=True)
    (leases / "dhclient.eth0.leases").write_text(LEASE)
    subprocess.run(["mount", "--bind", str(directory / "lib"), "/var/lib"], check=True)
    ip("address", "add", f"{DHCP_ADDRESS}/32", "dev", "lo")
    emulator = served(directory, "dhcp", DHCP_ADDRESS, 8080)
    read("dhcp", directory)
    emulator.stop()

    ip("route", "del", "prohibit", f"{VNET_ADDRESS}/32")
    ip("address", "add", f"{VNET_ADDRESS}/32", "dev", "lo")
    emulator = served(directory, "vnet", VNET_ADDRESS, 80)
    read("vnet", directory)
    emulator.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
