# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's own connection plugins for Windows, with their real libraries: what was cut off goes on after a reboot."""

from __future__ import annotations

import json
import socket
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Json, recorded
from ansible_collections.graceful.azure.tests.integration.windows_host import WindowsHost
from ansible_collections.graceful.azure.tests.tools.launcher import Launch

TASK: Json = {"graceful.azure.scheduled_events_wait": {"until": "appeared", "timeout": 60}}
RESULT: Json = {"changed": False, "outcome": "appeared", "events": [], "elapsed": 1, "polls": 1, "times": []}
ANSWERS = [json.dumps({**RESULT, "seen": {"continues": True}}), None, json.dumps({**RESULT, "seen": {}})]
TRANSPORTS: dict[str, Json] = {
    "winrm": {"ansible_winrm_scheme": "http", "ansible_winrm_transport": "basic"},
    "psrp": {
        "ansible_psrp_protocol": "http",
        "ansible_psrp_auth": "basic",
        "ansible_psrp_message_encryption": "never",
        "ansible_psrp_connection_timeout": 5,
    },
}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_wait_goes_on_when_the_host_is_back(tmp_path: Path, transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    user = {"ansible_user": "me", "ansible_password": "secret", "ansible_port": port, "ansible_host": "127.0.0.1"}
    hosts = {"windows1": {"ansible_connection": transport, **user, **TRANSPORTS[transport]}}
    record, inventory, playbook = (tmp_path / name for name in ("record", "inventory.json", "playbook.json"))
    record.touch()
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [TASK]}]))
    output = tmp_path / "output"
    settings = {**recorded(record), "PYTHONUNBUFFERED": "1"}
    task = Launch(playbook, inventory, tmp_path / "home", settings=settings).start(output)
    host, answers = None, list(ANSWERS)
    try:
        # Nothing listens when the task begins; later the connection is cut in the middle of a module.
        while "not reachable, trying again" not in output.read_text():
            assert task.poll() is None, output.read_text()
            time.sleep(0.1)
        host = WindowsHost(port, lambda _script, _data: answers.pop(0), refusals=2)
        task.wait(90)
    finally:
        task.kill()
        if host:
            host.stop()
    (found,) = [json.loads(line) for line in record.read_text().splitlines()]
    assert found["status"] == "ok", output.read_text()
    gaps: list[t.Any] = found["result"]["interruptions"]
    assert len(gaps) == 2
    assert all(gap["back"] for gap in gaps)
    assert answers == []
    assert host.shells >= 2, "it has connected anew"
