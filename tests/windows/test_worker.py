# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock and the state of the process that does the work, as far as no case of the contract can show it."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

# Runs inside of the file, where what is not exported is seen, too.
INSIDE = """
    $directory = $args[0][0]
    & (Get-Module _MaintenanceWorker) {
        param($directory)
        $script:Grace = 0.5
        $run = @{ run_id = 'one'; run_name = 'the run'; silent_for = 60; force = $false }
        $keeper = New-GracefulKeeper $directory $run
        $file = [System.IO.Path]::Combine($directory, '.worker.lock')
        BLOCK
    } $directory
"""
LOOK = "New-Object System.IO.FileStream ($file, 'OpenOrCreate', 'Read', 'ReadWrite')"


@pytest.fixture(scope="module")
def loaded(session: Session) -> Session:
    session.load("_MaintenanceWorker")
    return session


def inside(session: Session, directory: Path, block: str) -> t.Any:
    return session.script(INSIDE.replace("BLOCK", block), windows.windows_path(directory))


def test_who_only_looks_is_no_worker_to_others_who_look(loaded: Session, tmp_path: Path) -> None:
    block = f"""
        $look = {LOOK}
        $found = @((Test-GracefulWorker $keeper), ($null -eq (Open-WorkerLock $keeper 0.1)))
        $look.Dispose()
        $lock = Open-WorkerLock $keeper 0.1
        $found += @(($null -ne $lock), (Test-GracefulWorker $keeper), ($null -eq (Open-WorkerLock $keeper 0.1)))
        $lock.Dispose()
        $found + (Test-GracefulWorker $keeper)
    """
    assert inside(loaded, tmp_path, block) == [False, True, True, True, True, False]


def test_no_second_worker_is_begun(loaded: Session, tmp_path: Path) -> None:
    (tmp_path / ".worker.json").write_text('{"run_id": "other"}')
    block = """
        $lock = Open-WorkerLock $keeper 0.1
        try { Start-GracefulWorker $keeper (New-GracefulMap @{ run_id = 'one' }) @{} } finally { $lock.Dispose() }
    """
    assert inside(loaded, tmp_path, block) is False
    assert json.loads((tmp_path / ".worker.json").read_text()) == {"run_id": "other"}


def test_a_result_is_not_written_over_that_of_a_worker_that_has_ended_since(loaded: Session, tmp_path: Path) -> None:
    block = """
        $first = New-GracefulMap @{ run_id = 'one'; result = (New-GracefulMap @{ state = 'ready' }) }
        Save-State $keeper $first
        $state = Get-GracefulWorkerState $keeper
        Set-GracefulReported $keeper $state
        $found = @((Get-GracefulWorkerState $keeper)['reported'])
        Save-State $keeper (New-GracefulMap $first @{ run_id = 'two' })
        Set-GracefulReported $keeper $state
        $found += (Get-GracefulWorkerState $keeper)['run_id']
        $found + (Get-GracefulWorkerState $keeper).Contains('reported')
    """
    assert inside(loaded, tmp_path, block) == [True, "two", False]


def test_a_process_that_has_the_id_of_a_former_worker_by_now_is_left_alone(loaded: Session, tmp_path: Path) -> None:
    block = """
        $began = [string]([System.Diagnostics.Process]::GetCurrentProcess().StartTime.ToUniversalTime().Ticks + 1)
        Save-State $keeper (New-GracefulMap @{ pid = $PID; began = $began })
        $lock = Open-WorkerLock $keeper 0.1
        try { Stop-GracefulWorker $keeper } catch { (Resolve-GracefulError $_).Message } finally { $lock.Dispose() }
    """
    assert inside(loaded, tmp_path, block) == "An earlier process on this host does not end. It is tried again."
