# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.windows.harness import PowerShellError, Session, play

ANSWER = """#!powershell
#AnsibleRequires -CSharpUtil Ansible.Basic
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = @{ text = @{ type = 'str' } } })
$module.Result.text = $module.Params.text
$module.ExitJson()
"""


def test_a_task_runs_through_the_wrapper_of_ansible(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "answer.ps1").write_text(ANSWER)
    (found,) = play(tmp_path, [{"answer": {"text": "grüße"}}], settings={"ANSIBLE_LIBRARY": str(library)})
    assert found["status"] == "ok", found
    assert found["result"]["text"] == "grüße"


def test_a_session_runs_scripts_and_says_what_they_threw(session: Session) -> None:
    assert session.script("$args[0][0] + 1", 41) == 42
    with pytest.raises(PowerShellError, match="no good"):
        session.script("throw 'no good'")
    assert session.script("$args[0][0]['a'][0]", {"a": ["é"]}) == "é"
