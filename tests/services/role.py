# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role drain with a real service: drained, drained again, and undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

Json = dict[str, t.Any]
INTEGRATION = Path(os.path.abspath(__file__)).parents[1] / "integration"
COLLECTIONS = INTEGRATION.parents[4]


def play(
    folder: Path,
    step: Json,
    environment: t.Mapping[str, str] | None = None,
    turns: int = 3,
    others: t.Sequence[str] = (),
) -> list[Json]:
    """The reports: of the drain, of the second one, of the undoing."""
    reports = folder / "reports"
    reports.mkdir()
    (folder / "event.json").write_text(json.dumps({"event_id": "F020BA2E", "event_type": "Reboot"}))
    host: Json = {"steps": [step], "turns": [{}, {}, {"undo": True}][:turns]}
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "reports": str(reports),
        "drain_record_dir": str(folder / "records"),
        "drain_seconds": 240,
    }
    hosts = {"host": host, **{name: {"turns": []} for name in others}}
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"vars": variables, "hosts": hosts}}))
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_PIPELINING": "1",
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory)]
    played = subprocess.run(
        [*command, str(INTEGRATION / "drain.yml")],
        env={**os.environ, **(environment or {}), **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    files = sorted(reports.glob("host.[0-9].json"))
    assert played.returncode == 0, played.stdout + played.stderr
    assert len(files) == turns, played.stdout + played.stderr
    return [json.loads(file.read_text()) for file in files]


def judge(reports: list[Json]) -> list[str]:
    """Every turn went well and nothing was done twice; what the step said each time."""
    assert [report["ready"] for report in reports] == [True] * len(reports), reports
    messages: list[str] = [report["steps"][0]["message"] for report in reports]
    assert messages[1] == "it was done before and still holds"
    return messages
