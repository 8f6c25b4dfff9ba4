# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is a Windows host, and what follows for its connection."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import (
    leave_out_sudo,
    platform_of,
    written_platform,
)


class Connection:
    def __init__(self, is_windows: bool | None, become: str | None) -> None:
        self._shell = types.SimpleNamespace() if is_windows is None else types.SimpleNamespace(_IS_WINDOWS=is_windows)
        self.become = None if become is None else types.SimpleNamespace(name=become)

    def set_become_plugin(self, plugin: t.Any) -> None:
        self.become = plugin


def action(is_windows: bool | None, become: str | None = None) -> t.Any:
    return types.SimpleNamespace(_connection=Connection(is_windows, become))


@pytest.mark.parametrize(("is_windows", "platform"), [(True, WINDOWS), (False, LINUX), (None, LINUX)])
def test_the_shell_of_the_connection_says_it(is_windows: bool | None, platform: str) -> None:
    assert platform_of(action(is_windows)) == platform


@pytest.mark.parametrize(
    ("variables", "platform"),
    [
        ({}, LINUX),
        ({"ansible_connection": "ssh"}, LINUX),
        ({"ansible_connection": "winrm"}, WINDOWS),
        ({"ansible_connection": "ansible.builtin.psrp"}, WINDOWS),
        ({"ansible_connection": "ssh", "ansible_shell_type": "powershell"}, WINDOWS),
        ({"ansible_shell_type": "cmd"}, WINDOWS),
        ({"ansible_shell_type": None, "ansible_connection": 5}, LINUX),
    ],
)
def test_before_anybody_connects_the_inventory_says_it(variables: dict[str, t.Any], platform: str) -> None:
    assert written_platform(variables) == platform


@pytest.mark.parametrize(
    ("is_windows", "become", "left"),
    [
        (True, "sudo", None),
        (True, "ansible.builtin.sudo", None),
        (True, "runas", "runas"),
        (True, "ansible.builtin.runas", "ansible.builtin.runas"),
        (True, None, None),
        (False, "sudo", "sudo"),
        (False, None, None),
    ],
)
def test_what_makes_root_of_a_user_is_left_out_on_windows_hosts_only(
    is_windows: bool, become: str | None, left: str | None
) -> None:
    one = action(is_windows, become)
    leave_out_sudo(one)
    assert getattr(one._connection.become, "name", None) == left


@pytest.mark.parametrize("name", ["powershell", "cmd", "sh"])
def test_the_shells_of_ansible_say_it_as_they_do_here(name: str) -> None:
    from ansible.plugins.loader import shell_loader

    assert getattr(shell_loader.get(name), "_IS_WINDOWS", False) == (name != "sh")
