# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role awx where nothing can be made. With the modules of awx.awx it is played in tests/awx."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.tools.launcher import Launch

WHOLE = {"awx_project_url": "https://git.example.com/maintenance.git", "awx_machine_credentials": ["Azure VMs"]}


def refuse(variables: dict[str, t.Any], message: str, home: Path) -> None:
    done = Launch("graceful.azure.awx", "localhost,", home, variables=variables).run()
    assert done.returncode == 2, done.stdout
    assert message in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout


@pytest.mark.quick("role:awx")
def test_a_message_says_that_the_collection_is_missing(tmp_path: Path) -> None:
    refuse(WHOLE, "The collection awx.awx is not installed on this machine.", tmp_path)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"awx_project_url": "x"}, "missing required arguments: awx_machine_credentials"),
        ({**WHOLE, "awx_approval_timeout": "soon"}, "awx_approval_timeout"),
        ({**WHOLE, "awx_notifications": [{"name": "Operations"}]}, "configuration, type"),
    ],
    ids=["missing", "not a number", "half a notification"],
)
def test_a_message_says_what_is_wrong(variables: dict[str, t.Any], message: str, tmp_path: Path) -> None:
    refuse(variables, message, tmp_path)
