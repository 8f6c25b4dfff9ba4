# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PSScriptAnalyzer, with the rule that knows what Windows PowerShell 5.1 cannot parse."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION
from ansible_collections.graceful.azure.tests.windows import windows

HERE = Path(__file__).parent


def shipped() -> list[Path]:
    folders = (COLLECTION / "plugins" / "modules", COLLECTION / "plugins" / "module_utils")
    return sorted(file for folder in folders for kind in ("*.ps1", "*.psm1") for file in folder.glob(kind))


def findings(files: list[Path]) -> list[str]:
    (analyzer,) = windows.ANALYZER.glob("*/PSScriptAnalyzer.psd1")
    names = "|".join(windows.windows_path(file) for file in files)
    done = windows.run_script(HERE / "analyze.ps1", [windows.windows_path(analyzer), names])
    lines = done.stdout.decode().split("\n")
    assert "done" in map(str.strip, lines), done
    return [line.strip() for line in lines if line.strip() not in ("", "done")]


def test_what_is_shipped_has_no_findings() -> None:
    files = shipped()
    assert files
    assert findings(files) == []


def test_what_5_1_cannot_parse_is_found(tmp_path: Path) -> None:
    file = tmp_path / "new.ps1"
    file.write_text("$value = $null ?? 'x'\n$value\n")
    assert any("PSUseCompatibleSyntax" in line for line in findings([file]))


def test_what_is_shipped_is_ascii() -> None:
    """Windows PowerShell reads a file without a byte order mark in the code page of the host."""
    assert [file.name for file in shipped() if not file.read_bytes().isascii()] == []
