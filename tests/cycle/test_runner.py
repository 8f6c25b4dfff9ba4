# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import PATIENCE, Fleet
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, INTEGRATION

RUNNER = Path(sys.executable).with_name("ansible-runner")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A private data directory as AWX makes one for a job, from the example project."""
    private = tmp_path / "runner"
    shutil.copytree(COLLECTION / "examples" / "awx-project", private / "project")
    (private / "env").mkdir()
    (private / "inventory").mkdir()
    return private


def artifacts(private: Path) -> dict[str, t.Any]:
    """What AWX would show as the job's artifacts."""
    for file in sorted((private / "artifacts").glob("*/job_events/*.json")):
        event = json.loads(file.read_text())
        if event["event"] == "playbook_on_stats":
            return t.cast(dict[str, t.Any], event["event_data"]["artifact_data"])
    return {}


@pytest.mark.skipif(not RUNNER.exists(), reason="ansible-runner is not in this environment")
@pytest.mark.parametrize(("misbehaviour", "result"), [("", "done"), ("fail", "held")])
def test_the_example_project_runs_as_awx_would_start_it(
    fleet: Fleet, project: Path, misbehaviour: str, result: str
) -> None:
    event_id = fleet.announce("web1", "web2")
    fleet.common["misbehaviour"] = misbehaviour
    hosts = {"web": {"hosts": fleet.variables, "vars": {**fleet._defaults(), **fleet.common}}}
    (project / "inventory" / "hosts.yml").write_text(json.dumps(hosts))
    survey = json.loads((project / "project" / "survey.json").read_text())
    answers = {question["variable"]: question["default"] for question in survey["spec"]}
    answers["graceful_report_dir"] = str(project / "reports")
    (project / "env" / "extravars").write_text(json.dumps(answers))
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTION.parents[2]),
        "ANSIBLE_CONNECTION_PLUGINS": str(INTEGRATION / "plugins" / "connection"),
        "ANSIBLE_HOME": str(project / "home"),
        "PATH": f"{RUNNER.parent}:{os.environ['PATH']}",
    }
    (project / "env" / "envvars").write_text(json.dumps(settings))

    def act() -> None:
        if misbehaviour:
            fleet.control("start", {"EventId": event_id})

    with fleet.once(lambda: all("failed" in fleet.marks(host) for host in ("web1", "web2")), act):
        done = subprocess.run(
            [str(RUNNER), "run", str(project), "-p", "maintenance.yml", "--ident", "job"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, **settings},
        )
    told = artifacts(project)
    assert told.get("graceful_result") == result, done.stdout[-4000:]
    assert (done.returncode == 0) == (result == "done")
    assert Path(told["graceful_report"]).is_file()
    assert len(fleet.posts()) == (0 if misbehaviour else 1)
    fleet.check_all_back()
