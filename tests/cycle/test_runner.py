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
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, Launch

RUNNER = Path(sys.executable).with_name("ansible-runner")
# The program of the example, on a host whose directory is its own.
SHOP = """\
#!/bin/sh
cd "$(dirname "$0")" || exit 9
case $1 in
close) test ! -e broken || { echo "The till is stuck." >&2; exit 3; }
       test -e drained || { touch drained; echo "$(date +%s.%N) drained" >> log; } ;;
open)  test ! -e drained || { rm drained; echo "$(date +%s.%N) back" >> log; } ;;
state) test -e drained && echo closed || echo open ;;
check) test -d . ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A private data directory as AWX makes one for a job, from the example project."""
    private = tmp_path / "runner"
    shutil.copytree(COLLECTION / "examples" / "awx-project", private / "project")
    (private / "env").mkdir()
    (private / "inventory").mkdir()
    return private


def artifacts(private: Path, ident: str) -> dict[str, t.Any]:
    """What AWX would show as the job's artifacts."""
    for file in sorted((private / "artifacts" / ident / "job_events").glob("*.json")):
        event = json.loads(file.read_text())
        if event["event"] == "playbook_on_stats":
            return t.cast(dict[str, t.Any], event["event_data"]["artifact_data"])
    return {}


def start_job(project: Path, ident: str, left: dict[str, t.Any]) -> subprocess.CompletedProcess[str]:
    """As AWX starts it: with the answers of the survey, and with what earlier jobs of the workflow left."""
    survey = json.loads((COLLECTION / "roles" / "awx" / "files" / "maintenance.json").read_text())
    answers = {question["variable"]: question["default"] for question in survey["spec"]}
    answers["graceful_report_dir"] = str(project / "reports")
    (project / "env" / "extravars").write_text(json.dumps({**answers, **left}))
    settings = Launch("", "", project / "home").environment
    settings["PATH"] = f"{RUNNER.parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(RUNNER), "run", str(project), "-p", "maintenance.yml", "--ident", ident],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=settings,
    )


def open_shops(fleet: Fleet, project: Path) -> None:
    for host, variables in fleet.variables.items():
        variables["shop"] = str(fleet.home(host) / "shop")
        Path(variables["shop"]).write_text(SHOP)
        Path(variables["shop"]).chmod(0o755)
    common = {key: value for key, value in fleet._defaults().items() if key != "graceful_drain_steps"}
    hosts = {"web": {"hosts": fleet.variables, "vars": {**common, **fleet.common}}}
    (project / "inventory" / "hosts.yml").write_text(json.dumps(hosts))


@pytest.mark.skipif(not RUNNER.exists(), reason="ansible-runner is not in this environment")
@pytest.mark.parametrize(("broken", "result"), [(False, "done"), (True, "held")])
def test_the_example_project_runs_as_awx_would_start_it(fleet: Fleet, project: Path, broken: bool, result: str) -> None:
    """Its group_vars and its task files count, which are beside its playbook."""
    event_id = fleet.announce("web1", "web2")
    open_shops(fleet, project)
    if broken:
        (fleet.home("web1") / "broken").touch()

    def start() -> None:
        if broken:
            fleet.control("start", {"EventId": event_id})

    with fleet.once(lambda: "failed" in fleet.marks("web1"), start):
        done = start_job(project, "job", {})
    told = artifacts(project, "job")
    assert told.get("graceful_result") == result, done.stdout[-4000:]
    assert (done.returncode == 0) == (result == "done")
    assert Path(told["graceful_report"]).is_file()
    assert len(fleet.posts()) == (0 if broken else 1)
    assert ("The till is stuck." in done.stdout) == broken
    fleet.check_all_back()


@pytest.mark.skipif(not RUNNER.exists(), reason="ansible-runner is not in this environment")
def test_a_job_of_a_workflow_is_not_held_by_what_the_job_before_it_left(fleet: Fleet, project: Path) -> None:
    """AWX hands the artifacts of a job to the next ones, as extra variables."""
    open_shops(fleet, project)
    first = start_job(project, "plan", {})
    left = artifacts(project, "plan")
    assert left.get("graceful_result") == "nothing", first.stdout[-4000:]
    fleet.announce("web1", "web2")
    second = start_job(project, "maintain", left)
    assert artifacts(project, "maintain").get("graceful_result") == "done", second.stdout[-4000:]
    assert len(fleet.posts()) == 1
    fleet.check_all_back()
