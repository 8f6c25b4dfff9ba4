# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may write the record. Wine keeps no access control lists: what reads and writes them is replaced."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session

ME = "S-1-5-21-1-2-3-500"
ADMINISTRATORS, SYSTEM, USERS, EVERYONE = "BA", "SY", "BU", "WD"
STAND_INS = """
$global:Given = $args[0][0]
$global:Written = @()
function global:Get-Acl {
    param($LiteralPath)
    $list = New-Object System.Security.AccessControl.DirectorySecurity
    $list.SetSecurityDescriptorSddlForm($global:Given)
    return $list
}
function global:Set-Acl {
    param($LiteralPath, $AclObject)
    if ($global:Given -eq 'refused') { throw 'Access is denied.' }
    $global:Written += @{ path = $LiteralPath; list = $AclObject.GetSecurityDescriptorSddlForm('Access') }
}
[Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '')
"""
END = """
Remove-Item function:Get-Acl, function:Set-Acl
[Environment]::SetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL', '1')
"""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Emulator]:
    running = Emulator(tmp_path_factory.mktemp("access") / "emulator", [Case("access")])
    yield running
    running.stop()


class Host:
    """Looks whether it can keep a record, as prepare has it do."""

    def __init__(self, session: Session, emulator: Emulator, directory: Path) -> None:
        self._session = session
        self.directory = directory
        self._options = {"endpoint": emulator.endpoints["access"], "order": "look", "probe_record": True}

    def report(self, access: str, directory: str = "") -> Json:
        self._session.script(STAND_INS, access)
        try:
            given = {**self._options, "record_dir": directory or windows.windows_path(self.directory)}
            answer = self._session.module("win_host_maintenance", given)
            return t.cast(Json, answer.get("report") or answer)
        finally:
            self.written = self._session.script(", @($global:Written)")
            self._session.script(END)


@pytest.fixture
def host(session: Session, emulator: Emulator, tmp_path: Path) -> Host:
    return Host(session, emulator, tmp_path / "above" / "records")


def access(owner: str, *rules: tuple[str, str]) -> str:
    return f"O:{owner}D:" + "".join(f"(A;OICI;{rights};;;{who})" for who, rights in rules)


@pytest.mark.parametrize(
    "given",
    [
        access(ADMINISTRATORS, (ADMINISTRATORS, "FA"), (SYSTEM, "FA")),
        access(SYSTEM, (ADMINISTRATORS, "FA"), ("CO", "GA")),
        # Others may look.
        access(ADMINISTRATORS, (ADMINISTRATORS, "FA"), (USERS, "0x1200a9")),
        # What is denied gives nobody a right.
        access(ADMINISTRATORS, (ADMINISTRATORS, "FA")) + f"(D;OICI;FA;;;{EVERYONE})",
    ],
)
def test_administrators_and_the_system_may_write_it(host: Host, given: str) -> None:
    host.directory.mkdir(parents=True)
    assert host.report(given) == {"state": "looked", "message": ""}


@pytest.mark.parametrize(
    ("given", "who"),
    [
        # As %ProgramData% is: users may make files there.
        (access(ADMINISTRATORS, (ADMINISTRATORS, "FA"), (USERS, "0x100116")), "S-1-5-32-545"),
        (access(ADMINISTRATORS, (EVERYONE, "FA")), "S-1-1-0"),
        (access(ADMINISTRATORS, (EVERYONE, "GW")), "S-1-1-0"),
        # Whoever may delete files in it, change its list or own it can put other ones there.
        (access(ADMINISTRATORS, (USERS, "DT")), "S-1-5-32-545"),
        (access(ADMINISTRATORS, (USERS, "WD")), "S-1-5-32-545"),
        (access(ADMINISTRATORS, (USERS, "WO")), "S-1-5-32-545"),
        (access(ME, (ADMINISTRATORS, "FA")), ME),
    ],
)
def test_a_directory_that_others_may_write_keeps_no_record(host: Host, given: str, who: str) -> None:
    host.directory.mkdir(parents=True)
    report = host.report(given)
    assert report["state"] == "failed"
    assert "who could forge records: " + who in report["message"]
    assert "let only Administrators and SYSTEM write to it" in report["message"]
    assert list(host.directory.iterdir()) == []


def test_what_is_made_is_for_administrators_and_the_system_only(host: Host) -> None:
    report = host.report(access(ADMINISTRATORS, (ADMINISTRATORS, "FA")))
    assert report["state"] == "looked", report
    paths = [windows.windows_path(path) for path in (host.directory.parent, host.directory)]
    assert host.written == [{"path": path, "list": "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"} for path in paths]


def test_a_directory_that_cannot_be_closed_to_others_is_not_left_behind(host: Host) -> None:
    report = host.report("refused")
    assert report["state"] == "failed"
    assert "could not be made for Administrators and SYSTEM only (Access is denied.)" in report["message"]
    assert "Connect as an administrator" in report["message"]
    assert not host.directory.parent.exists()


def test_the_record_may_lie_on_a_share_and_have_blanks_in_its_path(host: Host, tmp_path: Path) -> None:
    with windows.shared(tmp_path) as share:
        report = host.report(access(ADMINISTRATORS, (ADMINISTRATORS, "FA")), f"{share}\\all my records")
    assert report["state"] == "looked", report
    assert (tmp_path / "all my records").is_dir()


def test_a_path_that_windows_powershell_cannot_use_is_said(host: Host, tmp_path: Path) -> None:
    long = windows.windows_path(tmp_path) + "\\a directory with a long name" * 9
    report = host.report(access(ADMINISTRATORS, (ADMINISTRATORS, "FA")), long)
    assert report["failed"] is True
    assert f"record_dir has {len(long)} characters" in report["msg"]
    assert "Set a shorter graceful_record_dir." in report["msg"]
    assert not list(tmp_path.iterdir())
