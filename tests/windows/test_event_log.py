# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was done is also written to the Application event log. Wine takes it and cannot read it back."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

CLAIM = """
    $source, $directory = $args[0]
    [Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')
    & (Get-Module _MaintenanceRecord) { param($source) $script:Source = $source; $script:LogIsReady = $null } $source
    $keeper = New-GracefulKeeper $directory @{ run_id = 'one'; run_name = 'the run'; silent_for = 60; force = $false }
    $null = Add-GracefulClaim $keeper @(@{ event_id = 'E-1'; event_type = 'Reboot'; resources = @('me') }) 'boot'
    $registered = Test-Path "HKLM:\\SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application\\$source"
    @{ warnings = $keeper.Warnings.ToArray(); registered = $registered }
"""


def claim(session: Session, directory: Path, source: str) -> dict[str, t.Any]:
    session.load("_MaintenanceRecord")
    found = session.script(CLAIM, source, windows.windows_path(directory))
    record = json.loads((directory / "record.json").read_text())
    assert [mark["what"] for mark in record["timeline"]] == ["claimed"]
    return t.cast("dict[str, t.Any]", found)


def test_the_source_is_made_in_the_application_log(session: Session, tmp_path: Path) -> None:
    assert claim(session, tmp_path / "records", "graceful.azure") == {"warnings": [], "registered": True}


def test_what_cannot_be_written_there_is_a_warning_and_no_more(session: Session, tmp_path: Path) -> None:
    (warning,) = claim(session, tmp_path / "records", source="")["warnings"]
    assert warning.startswith("What was done could not be written to the Application event log as ")
