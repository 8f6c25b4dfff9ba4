# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module for Windows has the options of its twin in Python, whose documentation is that of both."""

from __future__ import annotations

import importlib
import typing as t

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Json
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import MODULES, Session, needed

TWINS = ("scheduled_events_info", "scheduled_event_approve", "scheduled_events_wait", "host_maintenance")
BLANK: Json = {"type": "str", "default": None, "required": False, "no_log": False}
# As ansible-test asks for them.
ASK = """
    foreach ($file in $args[0]) {
        if ($file.EndsWith('.psm1')) { Import-Module $file -Force -DisableNameChecking -Scope Global; continue }
        [Ansible.Basic.AnsibleModule]::_DebugArgSpec = $true
        try { $null = & ([scriptblock]::Create([System.IO.File]::ReadAllText($file))) } catch { $null = $_ }
        finally { [Ansible.Basic.AnsibleModule]::_DebugArgSpec = $false }
        $global:ansibleTestArgSpec
    }
"""


class AskedError(Exception):
    """Has the options that a module wants."""


def in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> Json:
    def asked(options: Json, **more: t.Any) -> t.NoReturn:
        raise AskedError({"options": options, **more})

    module = importlib.import_module(f"ansible_collections.graceful.azure.plugins.modules.{name}")
    monkeypatch.setattr(module, "AnsibleModule", asked)
    with pytest.raises(AskedError) as caught:
        module.main()
    return t.cast(Json, caught.value.args[0])


def whole(spec: Json) -> Json:
    return {**spec, "options": {name: {**BLANK, **option} for name, option in spec["options"].items()}}


@pytest.mark.parametrize("name", TWINS)
def test_the_options_are_those_of_the_twin(session: Session, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MODULES / f"win_{name}.ps1"
    found = session.script(ASK, *(windows.windows_path(one) for one in [*needed(file), file]))
    expected = in_python(name, monkeypatch)
    if name == "host_maintenance":
        for kind in ("record", "checkpoint"):
            expected["options"][f"{kind}_dir"]["default"] = f"%ProgramData%\\graceful\\{kind}s"
    assert whole(found) == whole(expected)
