# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record module as a playbook calls it: check mode, real run, second run, and text that is never a template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

HOSTILE = "{{ lookup('ansible.builtin.pipe', 'touch pwned') }} $(touch pwned) `touch pwned`"
MINE = {"event_id": "A-1", "run_id": "one"}
CLAIM = {**MINE, "state": "claimed", "event": {"event_id": "a-1", "description": "{{ hostile }}"}, "silent_for": 60}
STEP = {"phase": "drain", "name": "{{ hostile }}", "status": "done", "data": {"port": 80}}
UNDO = {"phase": "drain", "name": "{{ left.records[0].steps[0].name }}", "status": "undone"}
RELEASE = {**MINE, "state": "released"}
CHECK = {"check_mode": True}
# In this order, each with the module's options and the task's keywords.
TASKS: list[tuple[str, dict[str, t.Any], dict[str, t.Any]]] = [
    ("would_claim", CLAIM, CHECK),
    ("nothing_yet", {}, {}),
    ("claim", CLAIM, {}),
    ("claim_again", CLAIM, {}),
    ("other_run", {**MINE, "state": "claimed", "run_id": "two"}, {}),
    ("other_note", {**MINE, "state": "noted", "run_id": "two"}, {}),
    ("note", {**MINE, "state": "noted", "step": STEP, "mark": {"what": "drained"}}, {}),
    ("too_early", RELEASE, {}),
    ("left", {}, {}),
    ("undo", {**MINE, "state": "noted", "step": UNDO}, {}),
    ("would_release", RELEASE, CHECK),
    ("release", RELEASE, {}),
    ("release_again", RELEASE, {}),
    ("wrong_status", {**MINE, "state": "noted", "step": {"name": "x", "status": "perhaps"}}, {}),
    ("no_run", {"state": "claimed", "event_id": "A-1"}, {}),
    ("damaged", {"directory": "{{ playbook_dir }}/damaged"}, {}),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, t.Any]]:
    """Every task's result by the task's name, after one run of the playbook."""
    place = tmp_path_factory.mktemp("record")
    (place / "damaged").mkdir(0o700)
    (place / "damaged" / "b-2.json").write_text("{")
    (place / "hostile.txt").write_text(HOSTILE)
    tasks: list[dict[str, t.Any]] = [
        {"graceful.azure.maintenance_record": options, "register": name, "ignore_errors": True, **keywords}
        for name, options, keywords in TASKS
    ]
    everything = "{{ {" + ", ".join(f"'{name}': {name}" for name, _options, _keywords in TASKS) + "} | to_json }}"
    tasks.append({"ansible.builtin.copy": {"content": everything, "dest": "{{ playbook_dir }}/results.json"}})
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "hostile": "{{ lookup('ansible.builtin.file', 'hostile.txt') }}",
        },
        "module_defaults": {"graceful.azure.maintenance_record": {"directory": "{{ playbook_dir }}/records"}},
        "tasks": tasks,
    }
    (place / "play.yml").write_text(json.dumps([play]))
    ran = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "play.yml"],
        cwd=place,
        env={"ANSIBLE_COLLECTIONS_PATH": str(Path(os.path.abspath(__file__)).parents[5]), **os.environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not list(place.rglob("pwned"))
    found: dict[str, dict[str, t.Any]] = json.loads((place / "results.json").read_text())
    return found


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("would_claim", {"changed": True, "claimed": True}),
        ("nothing_yet", {"changed": False, "records": []}),
        ("claim", {"changed": True, "claimed": True, "took_over": False, "holder": None}),
        ("claim_again", {"changed": False, "claimed": True}),
        ("other_run", {"changed": False, "claimed": False, "failed": False}),
        ("other_note", {"failed": True, "claimed": False}),
        ("note", {"changed": True, "claimed": True}),
        ("too_early", {"failed": True}),
        ("would_release", {"changed": True}),
        ("release", {"changed": True}),
        ("release_again", {"changed": False, "failed": False, "record": None}),
        ("wrong_status", {"failed": True}),
        ("no_run", {"failed": True}),
        ("damaged", {"changed": False, "failed": False}),
    ],
)
def test_each_call_is_answered_as_documented(
    results: dict[str, dict[str, t.Any]], task: str, expected: dict[str, t.Any]
) -> None:
    assert {key: results[task].get(key, False) for key in expected} == expected
    assert "Traceback" not in str(results[task])


def test_failures_say_what_to_do(results: dict[str, dict[str, t.Any]]) -> None:
    assert "in those of one (" in results["other_note"]["msg"]
    assert "note them as undone" in results["too_early"]["msg"]
    assert "doing, done, failed, undone" in results["wrong_status"]["msg"]
    assert "run_id" in results["no_run"]["msg"]


def test_text_in_a_record_comes_back_as_it_was_given(results: dict[str, dict[str, t.Any]]) -> None:
    (left,) = results["left"]["records"]
    assert left["event"]["description"] == HOSTILE
    assert [(step["name"], step["data"]) for step in left["steps"]] == [(HOSTILE, {"port": 80})]
    assert [step["status"] for step in results["release"]["record"]["steps"]] == ["undone"]


def test_a_damaged_record_is_listed_with_a_warning(results: dict[str, dict[str, t.Any]]) -> None:
    (entry,) = results["damaged"]["records"]
    assert entry["damaged"] is True
    assert "b-2.json" in str(results["damaged"]["warnings"])
