# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventories in examples/ say what they seem to say: each host's settings are read without a mistake."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import written_platform
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import Settings, read_settings

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class Host(t.NamedTuple):
    platform: str
    settings: Settings

    def kinds(self, key: str) -> list[str]:
        return [item["kind"] for item in self.settings.values[key].items]


def hosts_of(example: str) -> dict[str, Host]:
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(EXAMPLES / example / "hosts.yml")])
    manager = VariableManager(loader=loader, inventory=inventory)
    found = {}
    for host in inventory.get_hosts():
        variables = manager.get_vars(host=host, include_hostvars=False)
        platform = written_platform(variables)
        template = Templar(loader=loader, variables=variables).template
        found[host.name] = Host(platform, read_settings(variables, template, ("host",), platform))
    return found


@pytest.mark.parametrize(("example", "number"), [("inventory", 8), ("windows-inventory", 7)])
def test_nothing_is_wrong_with_any_host(example: str, number: int) -> None:
    hosts = hosts_of(example)
    assert len(hosts) == number
    assert {name: host.settings.messages for name, host in hosts.items() if host.settings.messages} == {}


def test_the_windows_example_is_iis_behind_haproxy_and_a_cluster_of_sql_server() -> None:
    hosts = hosts_of("windows-inventory")
    assert {name for name, host in hosts.items() if host.platform == LINUX} == {"lb1", "lb2"}
    assert hosts["web1"].kinds("drain_steps") == ["haproxy", "iis"]
    assert hosts["web1"].settings.values["drain_steps"].items[0]["options"]["server"] == "web1"
    assert hosts["web1"].kinds("checkpoint") == ["paths"]
    assert hosts["sql2"].kinds("drain_steps") == ["failover_cluster"]
    assert hosts["sql2"].platform == WINDOWS
