# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The platform of a host as the controller sees it, from the shell of its connection; and Windows-specific advice."""

from __future__ import annotations

import re
import typing as t

from ansible.plugins.action import ActionBase

from ..module_utils._kind import LINUX, WINDOWS

# The connections and shells by which an inventory says that a host is a Windows host.
CONNECTIONS = ("winrm", "psrp")
SHELLS = ("powershell", "cmd")
# Messages of ansible-core if PowerShell is too old for it, or for the #Requires of our modules.
TOO_OLD = re.compile(
    r"Ansible requires PowerShell v|(internal error: )?This module cannot run as it requires a minimum Power"
)
# In messages of ansible-core and PowerShell, without blanks. The names of PowerShell's errors are not translated.
CONSTRAINED = re.compile(r"constrainedlanguage|inthislanguagemode|isnottrusted", re.IGNORECASE)
# PowerShell wraps and colours errors, or writes them as XML.
FORMAT = re.compile(r"<[^<>]*>|_x[0-9A-F]{4}_|\x1b|\[[0-9;]*m|\s")
OF_THE_WRAPPER = "failure during exec_wrapper"
TOO_OLD_ADVICE = (
    "PowerShell on this host is too old: the modules need Windows PowerShell 5.1, which Windows Server 2016 and later "
    "have. Install the Windows Management Framework 5.1, or a newer Windows. Nothing was done on the host."
)
CONSTRAINED_ADVICE = (
    "PowerShell on this host does not run the modules: it is in constrained language mode, or trusts signed scripts "
    "only. Change the policy that says so (AppLocker, App Control for Business) for the user that Ansible connects as; "
    "in a session of that user, $ExecutionContext.SessionState.LanguageMode has to be FullLanguage. Nothing was done "
    "on the host."
)


def platform_of(action: ActionBase) -> str:
    """The platform of the host that the task runs on, which is another one if the task is delegated."""
    shell: t.Any = action._connection._shell
    return WINDOWS if getattr(shell, "_IS_WINDOWS", False) else LINUX


def written_platform(variables: t.Mapping[str, t.Any]) -> str:
    """The platform according to the inventory, before there is a connection."""
    connection = str(variables.get("ansible_connection") or "").rpartition(".")[2]
    shell = str(variables.get("ansible_shell_type") or "").rpartition(".")[2]
    return WINDOWS if connection in CONNECTIONS or shell in SHELLS else LINUX


def leave_out_sudo(action: ActionBase) -> None:
    """Ignore become for Windows hosts, unless it is runas: an inventory may set it for all hosts."""
    connection: t.Any = action._connection
    become = connection.become if platform_of(action) == WINDOWS else None
    if become is not None and str(become.name).rpartition(".")[2] != "runas":
        connection.set_become_plugin(None)


def explained(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """The answer of a Windows host, with advice if no module can run there."""
    if not result.get("failed"):
        return result
    message, errors = str(result.get("msg") or ""), str(result.get("module_stderr") or "")
    never_ran = "module_stdout" in result or message.startswith(OF_THE_WRAPPER)
    advice = TOO_OLD_ADVICE if TOO_OLD.match(message) else ""
    if never_ran and CONSTRAINED.search(FORMAT.sub("", message + errors)):
        advice = CONSTRAINED_ADVICE
    if not advice:
        return result
    kept = {key: value for key, value in result.items() if key not in ("module_stdout", "module_stderr", "rc")}
    return {**kept, "msg": advice}


class HostAction(ActionBase):
    """An action plugin for a module of ours that runs on both platforms."""

    def _execute_module(self, *args: t.Any, **options: t.Any) -> dict[str, t.Any]:
        leave_out_sudo(self)
        result: dict[str, t.Any] = super()._execute_module(*args, **options)
        return explained(result) if platform_of(self) == WINDOWS else result
