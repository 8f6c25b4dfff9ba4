# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a record, and what is also written to the Application event log."""

from __future__ import annotations

import copy
import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _record
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, LostClaim, Run
from ansible_collections.graceful.azure.plugins.module_utils._record_files import _flaw
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

Json = dict[str, t.Any]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

ENTRY: Json = {
    "event": {"event_id": "E-1", "event_type": "Reboot"},
    "claim": {"run_id": "one", "run_name": "the run", "since": 1.5, "renewed": 2, "silent_until": 3},
    "noticed": 1,
    "lapsed": 2.5,
    "ready": 3,
    "started": 4,
    "gone": 5,
    "gone_reads": 2,
    "unhealthy": 1,
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


# The same changes in both languages. The times are not compared.
CHANGES = """
    $directory, $ids, $messages = $args[0]
    [Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')
    & (Get-Module _MaintenanceRecord) { $script:MostMarks = 10 }
    $runs = foreach ($name in @('one', 'two')) {
        $run = @{ run_id = $name; run_name = "run $name"; silent_for = 60; force = $name -eq 'two' }
        , (New-GracefulKeeper $directory $run)
    }
    $events = @($ids | ForEach-Object { @{ event_id = $_; event_type = 'Reboot'; resources = @('me') } })
    $null = Add-GracefulClaim $runs[0] $events 'boot'
    $attempts = @($messages | ForEach-Object { Add-GracefulUnhealthy $runs[0] $ids $_ })
    $null = Update-GracefulRecord $runs[0] @($ids[0]) { param($record) Add-GracefulMark $runs[0] $record 'ready' }
    foreach ($number in 1..9) {
        $null = Update-GracefulRecord $runs[0] $ids { param($record) Add-GracefulMark $runs[0] $record 'draining' }
    }
    $null = Add-GracefulClaim $runs[1] @($events[1]) 'boot'
    $written = [System.IO.File]::ReadAllText($runs[0].File)
    $lost = $null
    try { Update-GracefulRecord $runs[0] $ids { throw 'it was changed' } }
    catch { $lost = Resolve-GracefulError $_ }
    $same = $written -ceq [System.IO.File]::ReadAllText($runs[0].File)
    $released = Clear-GracefulClaim $runs[0] $ids
    $held = @($lost.Fields['held'].PSBase.Keys)
    @{ attempts = $attempts; held = $held; lost = $lost.Message; same = $same; released = $released }
"""


def changed_by_python(directory: Path, ids: t.Sequence[str], messages: t.Sequence[str]) -> Json:
    one = Keeper(str(directory), Run("one", "run one", 60), log=lambda _text: None)
    two = Keeper(str(directory), Run("two", "run two", 60, True), log=lambda _text: None)
    events = [{"event_id": event_id, "event_type": "Reboot", "resources": ["me"]} for event_id in ids]
    one.claim(events, "boot")
    attempts = [one.note_unhealthy(ids, message) for message in messages]
    one.mark(ids[:1], "ready")
    for _each in range(9):
        one.mark(ids, "draining")
    two.claim(events[1:], "boot")
    with pytest.raises(LostClaim) as lost:
        one.renew(ids)
    found = {"attempts": attempts, "held": list(lost.value.held), "lost": lost.value.message, "same": True}
    return {**found, "released": one.release(ids)}


def timeless(directory: Path) -> t.Any:
    def without_times(value: t.Any) -> t.Any:
        if isinstance(value, dict):
            return {key: without_times(one) for key, one in value.items()}
        if isinstance(value, list):
            return [without_times(one) for one in value]
        return "TIME" if isinstance(value, float) else TIME.sub("TIME", value) if isinstance(value, str) else value

    return without_times(json.loads((directory / "record.json").read_text()))


def test_both_languages_note_alike_what_fails_for_days_and_what_another_run_has_taken(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_record, "MOST_MARKS", 10)
    session.load("_MaintenanceRecord")
    given = ["e-1", "e-2"], ["port 80", "port 80", *(f"port {number}" for number in range(30)), "port 29"]
    here, there = tmp_path / "here", tmp_path / "there"
    expected = changed_by_python(here, *given)
    found = session.script(CHANGES, windows.windows_path(there), *given)
    assert TIME.sub("TIME", found.pop("lost")) == TIME.sub("TIME", expected.pop("lost"))
    assert found == expected
    assert (found["attempts"][-1], found["held"], found["released"]) == (33, ["e-2"], ["e-1"])
    record = timeless(there)
    assert record == timeless(here)
    assert [record["events"][event_id]["unhealthy"] for event_id in given[0]] == [33, 33]
    marks = [mark["what"] for mark in record["timeline"]]
    assert (len(marks), marks.count("failed"), marks.count("draining")) == (10, 0, 5)


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
