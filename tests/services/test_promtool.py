# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watcher and its role give to Prometheus: figures, alert rules and a dashboard, judged by promtool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.services.conftest import unpacked
from ansible_collections.graceful.azure.tests.unit.watcher.test_parts import FILES, figures

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpacked(tmp_path_factory.mktemp("prometheus"), "prometheus").program("usr/bin/promtool")


def judged(*command: str, given: str = "", where: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(command, input=given, cwd=where, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_figures(promtool: str) -> None:
    _status, output = judged(promtool, "check", "metrics", given=figures())
    # This name and the labels are those of webdevops' manager.
    known = ("azure_scheduledevent_request_error", "camelCase")
    lines = [line for line in output.splitlines() if line.strip()]
    assert [line for line in lines if not any(text in line for text in known)] == []


def test_the_alert_rules_are_right_and_fire(promtool: str) -> None:
    for command, where in ((("check", "rules", "alerts.yml"), FILES), (("test", "rules", "alerts_test.yml"), HERE)):
        status, output = judged(promtool, *command, where=where)
        assert status == 0, output


def test_the_expressions_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    expressions = [target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, output = judged(promtool, "check", "rules", str(file))
    assert status == 0, output
