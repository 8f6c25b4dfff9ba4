# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PSScriptAnalyzer, with the rules that know what Windows PowerShell 5.1 cannot parse, and what it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION
from ansible_collections.graceful.azure.tests.windows import windows

HERE = Path(__file__).parent


def shipped() -> list[Path]:
    folders = (COLLECTION / "plugins" / "modules", COLLECTION / "plugins" / "module_utils")
    return sorted(file for folder in folders for kind in ("*.ps1", "*.psm1") for file in folder.glob(kind))


# What PowerShell 7 can do and 5.1 cannot, and the rule that says so.
NEW = {
    "PSUseCompatibleSyntax": "$value = $null ?? 'x'\n$value\n",
    "PSUseCompatibleCommands": "'{}' | ConvertFrom-Json -AsHashtable\n",
    "PSUseCompatibleTypes": "[System.Text.Json.JsonDocument]::Parse('{}')\n",
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One line for each finding in what is shipped, and in what 5.1 cannot do."""
    directory = tmp_path_factory.mktemp("analyzer")
    files = shipped()
    assert files
    for rule, text in NEW.items():
        files.append(directory / f"{rule}.ps1")
        files[-1].write_text(text)
    (analyzer,) = windows.ANALYZER.glob("*/PSScriptAnalyzer.psd1")
    names = "|".join(windows.windows_path(file) for file in files)
    done = windows.run_script(HERE / "analyze.ps1", [windows.windows_path(analyzer), names])
    lines = done.stdout.decode().split("\n")
    assert "done" in map(str.strip, lines), done
    return [line.strip() for line in lines if line.strip() not in ("", "done")]


def test_what_is_shipped_has_no_findings(findings: list[str]) -> None:
    assert [line for line in findings if not line.startswith(tuple(NEW))] == []


@pytest.mark.parametrize("rule", NEW)
def test_what_5_1_cannot_do_is_found(findings: list[str], rule: str) -> None:
    assert any(line.startswith(f"{rule}.ps1:1: {rule}: ") for line in findings), findings


def test_what_is_shipped_is_ascii() -> None:
    """Windows PowerShell reads a file without a byte order mark in the code page of the host."""
    assert [file.name for file in shipped() if not file.read_bytes().isascii()] == []
