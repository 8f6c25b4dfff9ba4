# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the real modules of awx.awx send to a controller, and what ansible-builder makes of our files."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml
from ansible_collections.graceful.azure.tests.awx.controller import Controller
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, COLLECTIONS, Launch

PROJECT = COLLECTION / "examples" / "awx-project"
BUILDER = Path(sys.executable).with_name("ansible-builder")


def play(controller: Controller, awx: Path, home: Path, *arguments: str, **variables: t.Any) -> str:
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS}:{awx}",
        "CONTROLLER_HOST": controller.url,
        "CONTROLLER_OAUTH_TOKEN": "a token",
    }
    values = {**yaml.safe_load((PROJECT / "awx.yml").read_text()), "awx_token_file": str(home / "token"), **variables}
    done = Launch("graceful.azure.awx", "localhost,", home, arguments, values, settings=settings).run()
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_example_file_makes_everything_once(controller: Controller, awx_collection: Path, tmp_path: Path) -> None:
    play(controller, awx_collection, tmp_path, awx_image="registry.example.com/graceful:0.2.0")
    templates = controller.named("job_templates")
    assert set(templates) == {f"Graceful {name}" for name in ("prepare", "maintenance", "status", "drill")}
    assert all((PROJECT / template["playbook"]).is_file() for template in templates.values())
    assert templates["Graceful status"]["job_type"] == "check"
    assert [name for name, template in templates.items() if template["allow_simultaneous"]] == [
        "Graceful maintenance",
        "Graceful status",
    ]
    for name, template in templates.items():
        assert template["ask_variables_on_launch"], name
        assert controller.related_names(template, "credentials") == ["Azure VMs"]
        assert controller.related_names(template, "notification_templates_error") == ["Operations"]
    surveys = [survey["spec"] for survey in controller.surveys.values()]
    assert len(surveys) == 2
    (source,) = controller.named("inventory_sources").values()
    assert (source["source"], json.loads(source["source_vars"])["plugin"]) == (
        "azure_rm",
        "azure.azcollection.azure_rm",
    )
    schedules = controller.named("schedules")
    assert {name: schedule["unified_job_template"] for name, schedule in schedules.items()} == {
        "Graceful prepare": templates["Graceful prepare"]["id"],
        "Graceful Azure": source["id"],
    }
    assert "FREQ=DAILY" in schedules["Graceful prepare"]["rrule"]
    assert "FREQ=MINUTELY" in schedules["Graceful Azure"]["rrule"]
    nodes = controller.named("workflow_job_template_nodes")
    assert controller.related_names(nodes["plan"], "success_nodes") == ["ask"]
    assert controller.related_names(nodes["ask"], "success_nodes") == ["maintain"]
    assert controller.related_names(nodes["ask"], "failure_nodes") == ["drain"]
    (approval,) = controller.named("workflow_approval_templates").values()
    assert 0 < approval["timeout"] < 900
    token = tmp_path / "token"
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("the watcher's token", 0o600)

    before = len(controller.changes)
    again = play(controller, awx_collection, tmp_path, awx_image="registry.example.com/graceful:0.2.0")
    # A notification's secrets cannot be compared: the module sends them again.
    assert [change for change in controller.changes[before:] if "notification_templates" not in change] == []
    assert "the watcher's token" not in again


def test_check_mode_changes_nothing(controller: Controller, awx_collection: Path, tmp_path: Path) -> None:
    settings: dict[str, t.Any] = {"awx_notifications": []}
    play(controller, awx_collection, tmp_path, **settings)
    before = list(controller.changes)
    (tmp_path / "token").unlink()
    play(controller, awx_collection, tmp_path, "--check", awx_forks=7, **settings)
    assert controller.changes == before
    assert not (tmp_path / "token").exists()


def test_the_build_context_of_the_image(tmp_path: Path) -> None:
    context = tmp_path / "context"
    command = [str(BUILDER), "create", "-f", str(COLLECTION / "execution-environment.yml"), "-c", str(context)]
    done = subprocess.run([*command, "--output-filename", "Containerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FROM" in (context / "Containerfile").read_text()
    wanted = yaml.safe_load((context / "_build" / "requirements.yml").read_text())
    assert "graceful.azure" in {one["name"] for one in wanted["collections"]}


def test_ansible_builder_finds_what_the_collection_needs(tmp_path: Path) -> None:
    """As it looks through the collections of an image."""
    command = [str(BUILDER), "introspect", str(COLLECTIONS), "--write-pip", str(tmp_path / "pip")]
    done = subprocess.run(
        [*command, "--write-bindep", str(tmp_path / "bindep")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "requests" in (tmp_path / "pip").read_text()
    assert "openssh" in (tmp_path / "bindep").read_text()
