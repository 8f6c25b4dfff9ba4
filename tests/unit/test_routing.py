# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file a task runs, by the kind of host that its connection goes to. ansible-core itself decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, COLLECTIONS

# What connections to Windows (winrm, psrp, ssh with PowerShell) and others prefer.
WINDOWS = [".ps1", ".exe", ""]
POSIX = [""]
MODULES = ["scheduled_events_info", "scheduled_event_approve", "scheduled_events_wait", "host_maintenance"]
# As ActionBase looks for the module of a task.
FIND = """
import json, sys
from ansible.plugins.loader import init_plugin_loader, module_loader
init_plugin_loader()
found = {}
for name in json.loads(sys.argv[1]):
    for kind in json.loads(sys.argv[2]):
        result = module_loader.find_plugin_with_context(f"graceful.azure.{name}", kind, collection_list=[])
        if result.resolved:
            found[name] = result.plugin_resolved_path
            break
print(json.dumps(found))
"""


def files_for(preferences: list[str]) -> dict[str, str]:
    """The file of each module on such a host."""
    done = subprocess.run(
        [sys.executable, "-c", FIND, json.dumps(MODULES), json.dumps(preferences)],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: Path(path).name for name, path in json.loads(done.stdout).items()}


def test_on_windows_a_task_runs_the_twin_in_powershell() -> None:
    assert files_for(WINDOWS) == {name: f"win_{name}.ps1" for name in MODULES}


def test_elsewhere_it_runs_python() -> None:
    assert files_for(POSIX) == {name: f"{name}.py" for name in MODULES}


@pytest.mark.parametrize("name", MODULES)
def test_a_twin_is_documented_and_in_the_same_action_group(name: str) -> None:
    assert (COLLECTION / "plugins" / "modules" / f"win_{name}.yml").is_file()
    runtime = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())
    assert {name, f"win_{name}"} <= set(runtime["action_groups"]["imds"])
