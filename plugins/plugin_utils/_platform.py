# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Which platform a host has, as far as the controller needs it: that of the shell that its connection speaks to."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS

# How the connection of a Windows host is written into an inventory.
CONNECTIONS = ("winrm", "psrp")
SHELLS = ("powershell", "cmd")


def platform_of(action: ActionBase) -> str:
    """That of the host that the task runs on, which is another one if it is delegated."""
    shell: t.Any = action._connection._shell
    return WINDOWS if getattr(shell, "_IS_WINDOWS", False) else LINUX


def written_platform(variables: t.Mapping[str, t.Any]) -> str:
    """What the inventory says about a host that nobody has connected to yet."""
    connection = str(variables.get("ansible_connection") or "").rpartition(".")[2]
    shell = str(variables.get("ansible_shell_type") or "").rpartition(".")[2]
    return WINDOWS if connection in CONNECTIONS or shell in SHELLS else LINUX


def leave_out_sudo(action: ActionBase) -> None:
    """An inventory may say become for all hosts, which Windows has another way for."""
    connection: t.Any = action._connection
    become = connection.become if platform_of(action) == WINDOWS else None
    if become is not None and str(become.name).rpartition(".")[2] != "runas":
        connection.set_become_plugin(None)
