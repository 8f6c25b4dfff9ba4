# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a record, and what is also written to the Application event log."""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

from ansible_collections.graceful.azure.plugins.module_utils._record_files import _flaw
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

Json = dict[str, t.Any]

ENTRY: Json = {
    "event": {"event_id": "E-1", "event_type": "Reboot"},
    "claim": {"run_id": "one", "run_name": "the run", "since": 1.5, "renewed": 2, "silent_until": 3},
    "noticed": 1,
    "lapsed": 2.5,
    "ready": 3,
    "started": 4,
    "gone": 5,
    "gone_reads": 2,
    "gave_up": "it failed",
    "approval": {"at": 1, "status": "approved", "run_id": "one", "message": ""},
}
STEP: Json = {
    "phase": "drain",
    "name": "app",
    "kind": "command",
    "status": "done",
    "at": 1,
    "message": "",
    "attempts": 0,
    "timeout": 30,
    "options": {"a": [1]},
    "before": {},
    "data": {},
}
RECORD: Json = {
    "version": 2,
    "events": {"e-1": ENTRY},
    "steps": [STEP],
    "timeline": [{"at": 1, "what": "ready", "detail": "", "event_id": "E-1"}],
    "created": 1,
    "boot_id": "b",
}
MISSING = object()
OTHERS: tuple[t.Any, ...] = (MISSING, None, True, -1, 0.5, 1e11, "text", [], [{}], {}, {"x": 1})


def variants(value: t.Any) -> t.Iterator[t.Any]:
    """The value with one part of it replaced or left out, for every part."""
    for key in value if isinstance(value, dict) else range(len(value)):
        for other in OTHERS:
            changed = copy.copy(value)
            if other is MISSING:
                del changed[key]
            else:
                changed[key] = other
            yield changed
        if isinstance(value[key], (dict, list)):
            for part in variants(value[key]):
                changed = copy.copy(value)
                changed[key] = part
                yield changed


def test_both_languages_find_the_same_flaws_in_a_record(session: Session) -> None:
    session.load("_MaintenanceRecord")
    records = [RECORD, *variants(RECORD), *OTHERS[1:]]
    texts = [json.dumps(record) for record in records]
    block = """
        & (Get-Module _MaintenanceRecord) {
            param($texts)
            foreach ($text in $texts) { Get-Flaw (ConvertFrom-GracefulJson $text) }
        } $args[0][0]
    """
    found = dict(zip(texts, session.script(block, texts), strict=True))
    assert found == {text: _flaw(record) or "" for text, record in zip(texts, records, strict=True)}
    assert list(found.values()).count("") > 20


# Wine takes what is written there, and cannot read it.
CLAIM = """
    $source, $directory = $args[0]
    [Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')
    & (Get-Module _MaintenanceRecord) { param($source) $script:Source = $source; $script:LogIsReady = $null } $source
    $keeper = New-GracefulKeeper $directory @{ run_id = 'one'; run_name = 'the run'; silent_for = 60; force = $false }
    $null = Add-GracefulClaim $keeper @(@{ event_id = 'E-1'; event_type = 'Reboot'; resources = @('me') }) 'boot'
    $registered = Test-Path "HKLM:\\SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application\\$source"
    @{ warnings = $keeper.Warnings.ToArray(); registered = $registered }
"""


def claim(session: Session, directory: Path, source: str) -> Json:
    session.load("_MaintenanceRecord")
    found = session.script(CLAIM, source, windows.windows_path(directory))
    record = json.loads((directory / "record.json").read_text())
    assert [mark["what"] for mark in record["timeline"]] == ["claimed"]
    return t.cast(Json, found)


def test_the_source_is_created_in_the_application_log(session: Session, tmp_path: Path) -> None:
    assert claim(session, tmp_path / "records", "graceful.azure") == {"warnings": [], "registered": True}


def test_what_cannot_be_written_there_is_a_warning_and_no_more(session: Session, tmp_path: Path) -> None:
    (warning,) = claim(session, tmp_path / "records", source="")["warnings"]
    assert warning.startswith("What was done could not be written to the Application event log as ")
