# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules in a real PowerShell, by Ansible's own connection plugins and their real libraries.

Stand-ins are what answers WinRM and PSRP on the host, and the program ssh.
"""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json
from ansible_collections.graceful.azure.tests.integration.test_windows_transports import TRANSPORTS
from ansible_collections.graceful.azure.tests.integration.windows_host import WindowsHost
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import play

USER = {"ansible_user": "me", "ansible_password": "secret"}
# Runs the command that it is given last, as the OpenSSH server of Windows does.
SSH = """#!{python}
import sys
sys.path.insert(0, {folder!r})
import windows
if "-EncodedCommand" not in sys.argv[-1]:
    sys.exit(255)
done = windows.run([*windows.POWERSHELL_COMMAND, "-EncodedCommand", sys.argv[-1].split()[-1]], sys.stdin.buffer.read())
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""


def run(encoded: str, data: bytes) -> str:
    """What a script puts out. The input ends with a line end, as that of Ansible does."""
    return windows.run([*windows.POWERSHELL_COMMAND, "-EncodedCommand", encoded], data + b"\n").stdout.decode()


@pytest.fixture(params=[*TRANSPORTS, "ssh"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> t.Iterator[Json]:
    """The variables of a host that is reached so."""
    if request.param == "ssh":
        program = tmp_path / "ssh"
        program.write_text(SSH.format(python=sys.executable, folder=str(Path(windows.__file__).parent)))
        program.chmod(0o755)
        yield {"ansible_connection": "ssh", "ansible_ssh_executable": str(program), "ansible_user": "me"}
        return
    running = WindowsHost(0, run)
    where = {
        "ansible_host": "127.0.0.1",
        "ansible_port": running.server_address[1],
        "ansible_connection": request.param,
    }
    yield {**USER, **where, **TRANSPORTS[request.param]}
    running.stop()


def test_an_event_is_read_and_a_host_is_drained(host: Json, tmp_path: Path) -> None:
    emulator = Emulator(tmp_path / "azure", [Case("reached", events=[{"notice": 100_000}])])
    work = tmp_path / "work"
    work.mkdir()
    here = windows.windows_path(work) + "\\"
    command = "C:\\windows\\system32\\cmd.exe"
    step = {
        "name": "flag",
        "kind": "command",
        "do": [command, "/c", f"echo done> {here}flag"],
        "probe": [command, "/c", f"if exist {here}flag (exit 0) else (exit 1)"],
        "undo": [command, "/c", f"del {here}flag"],
    }
    common = {"endpoint": emulator.endpoints["reached"], "record_dir": f"{here}records", "run_id": "a run"}
    event = {"event_id": "REACHED-1", "event_type": "Reboot", "resources": ["reached"]}
    order = {**common, "events": [event], "timeout": 300, "seconds": 300}
    tasks: list[Json] = [
        {"graceful.azure.scheduled_events_info": {"endpoint": common["endpoint"]}},
        {"graceful.azure.host_maintenance": {**order, "order": "ready", "steps": [step]}},
    ]
    try:
        read, ready = play(tmp_path / "play", tasks, {"windows1": host}, settings={"GRACEFUL_TEST_WITHOUT_ACL": "1"})
    finally:
        emulator.stop()
    assert read["status"] == "ok", read
    assert [one["event_id"] for one in read["result"]["events"]] == ["REACHED-1"]
    assert ready["status"] == "ok", ready
    assert ready["result"]["report"]["message"] == "1 drain step done, 0 checkpoints saved, all verified"
    assert (work / "flag").exists()
