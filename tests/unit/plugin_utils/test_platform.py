# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is a Windows host, and what follows for its connection."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import (
    CONSTRAINED_ADVICE,
    TOO_OLD_ADVICE,
    HostAction,
    explained,
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


# What ansible-core 2.16, 2.19 and 2.21 return, seen with PowerShell 7. Windows PowerShell 5.1 adds the name of the
# error, and its other words are of the host's language.
NO_JSON = {"failed": True, "changed": False, "rc": 0, "module_stdout": "", "msg": "MODULE FAILURE\nSee stdout/stderr"}
AS_XML = """#< CLIXML\r
<Objs Version="1.1.0.1" xmlns="http://schemas.microsoft.com/powershell/2004/04"><S S="Error">_x001B_[31;1mCannot \
invoke method. Method invocation is supported only on core types in this_x000D__x000A_</S><S S="Error">language \
mode._x001B_[0m</S></Objs>"""
AS_LINES = """exec_wrapper-3c3af085-fdd9-4eea-82f9-1879331a7dcf.ps1: \r
     | Cannot invoke method. Method invocation is supported only on core types in this language mode.\r
"""
IN_GERMAN = """Die Methode kann nicht aufgerufen werden.
    + FullyQualifiedErrorId : MethodInvocationNotSupportedInConstrainedLangua
   ge
"""
WRAPPER = "failure during exec_wrapper: "
UNTRUSTED = f"{WRAPPER}Cannot run untrusted PowerShell script 'x' in ConstrainedLanguage mode with module util imports."
UTIL = f"{WRAPPER}C# module util 'Ansible.Basic' is not trusted and cannot be loaded."
MINIMUM = "This module cannot run as it requires a minimum PowerShell version of 5.1, actual was "


@pytest.mark.parametrize(
    ("result", "advice"),
    [
        ({"failed": True, "msg": "Ansible requires PowerShell v3.0 or newer"}, TOO_OLD_ADVICE),
        ({"failed": True, "msg": "Ansible requires PowerShell v5.1"}, TOO_OLD_ADVICE),
        ({"failed": True, "msg": f"internal error: {MINIMUM}4.0"}, TOO_OLD_ADVICE),
        ({"failed": True, "msg": f'{MINIMUM}"5.0"'}, TOO_OLD_ADVICE),
        ({**NO_JSON, "module_stderr": AS_XML}, CONSTRAINED_ADVICE),
        ({**NO_JSON, "module_stderr": AS_LINES}, CONSTRAINED_ADVICE),
        ({**NO_JSON, "module_stderr": IN_GERMAN}, CONSTRAINED_ADVICE),
        ({"failed": True, "msg": UNTRUSTED}, CONSTRAINED_ADVICE),
        ({"failed": True, "msg": UTIL}, CONSTRAINED_ADVICE),
    ],
)
def test_a_windows_host_on_which_no_module_can_run_is_told_what_to_do(result: dict[str, t.Any], advice: str) -> None:
    told = explained(result)
    assert told["msg"] == advice
    assert told["failed"] is True
    # It is not taken for a module that was killed, which is run again.
    assert "module_stdout" not in told


@pytest.mark.parametrize(
    "result",
    [
        {"msg": UNTRUSTED},
        {**NO_JSON, "module_stderr": ""},
        {"failed": True, "msg": "The service says: not in this language mode, Ansible requires PowerShell v5.1"},
        {"failed": True, "unreachable": True, "msg": "Connection lost"},
    ],
)
def test_other_answers_are_left_as_they_are(result: dict[str, t.Any]) -> None:
    assert explained(result) == result


@pytest.mark.parametrize(("is_windows", "advised"), [(True, True), (False, False)])
def test_only_windows_hosts_are_asked_so(monkeypatch: pytest.MonkeyPatch, is_windows: bool, advised: bool) -> None:
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *args, **options: {"failed": True, "msg": UNTRUSTED})
    one = action(is_windows, "sudo")
    host: t.Any = object.__new__(type("Concrete", (HostAction,), {"run": None}))
    host._connection = one._connection
    assert (host._execute_module()["msg"] == CONSTRAINED_ADVICE) is advised
    assert (host._connection.become is None) is is_windows
