# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mistake in a user's task file would end the whole run: it is found before, and said with the file."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible_collections.graceful.azure.plugins.plugin_utils import _task_files as task_files
from ansible_collections.graceful.azure.plugins.plugin_utils._host_settings import file_mistakes, finder
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import Items

PING = "- name: Ask\n  ansible.builtin.ping:\n  register: asked\n"


@pytest.fixture
def action(plugin_loader: None) -> t.Any:
    """As much of an action plugin as reading a file needs."""
    task = types.SimpleNamespace(get_play=lambda: Play.load({"hosts": "all"}))
    return types.SimpleNamespace(_loader=DataLoader(), _task=task)


def read(action: t.Any, file: Path, text: str, probe: bool = False) -> list[str]:
    file.write_text(text)
    return task_files.read(str(file), action, probe)


@pytest.mark.parametrize(
    ("value", "file"), [("do.yml", True), ("a/b.yaml", True), ("paused", False), (["a.yml"], False), (None, False)]
)
def test_a_file_is_told_from_a_condition_by_its_name(value: t.Any, file: bool) -> None:
    assert task_files.is_file(value) is file


def test_files_are_looked_for_beside_the_inventory_above_it_and_beside_the_playbook() -> None:
    assert task_files.folders({"inventory_dir": "/p/inventory", "playbook_dir": "/p"}) == [
        "/p/inventory", "/p/inventory/tasks", "/p", "/p/tasks",
    ]  # fmt: skip
    assert task_files.folders({"inventory_dir": None, "playbook_dir": "/p"}) == ["/p", "/p/tasks"]
    assert task_files.folders({}) == []


def test_the_first_file_of_that_name_is_the_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "b" / "do.yml"
    file.touch()
    places = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert task_files.find("do.yml", places) == str(file)
    assert task_files.find(str(file), []) == str(file)
    with pytest.raises(task_files.Unusable, match=r"which does not exist. Searched: .*/a/no.yml, .*/b/no.yml"):
        task_files.find("no.yml", places)
    with pytest.raises(task_files.Unusable, match="Searched: no place"):
        task_files.find("no.yml", [])


def test_a_good_file_names_what_its_tasks_registered(action: t.Any, tmp_path: Path) -> None:
    blocks = f"{PING}- block:\n    - ansible.builtin.command: /bin/true\n      register: ran\n"
    assert read(action, tmp_path / "do.yml", blocks) == ["asked", "ran"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b\n", "which is not a list of tasks"),
        ("- name: [\n", "which cannot be read"),
        ("- nonsense.of.mine:\n    x: 1\n  no_such_keyword: 1\n", "which cannot be read"),
        ("- {1: 2}\n", "which cannot be read"),
        ("- {action: {module: 3}}\n", "which cannot be read"),
        ("- ansible.builtin.import_tasks: other.yml\n", "which imports other files or roles; include them instead"),
    ],
)
def test_what_would_end_the_run_is_refused(action: t.Any, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(task_files.Unusable, match=words):
        read(action, tmp_path / "do.yml", text)


@pytest.mark.parametrize("end", ["end_play", "end_host", "end_batch", "end_role"])
def test_a_file_does_not_take_hosts_out_of_the_run(action: t.Any, tmp_path: Path, end: str) -> None:
    # Newer versions of ansible-core refuse the last one themselves.
    with pytest.raises(task_files.Unusable, match=f"which uses meta: {end}. The host would leave the run|end_role"):
        read(action, tmp_path / "do.yml", f"- block:\n    - ansible.builtin.meta: {end}\n      when: done is defined\n")
    read(action, tmp_path / "good.yml", "- ansible.builtin.meta: reset_connection\n")


@pytest.mark.parametrize(
    "text",
    [
        f"{PING}  run_once: true\n",
        f'{PING}  run_once: "{{{{ once }}}}"\n',
        "- run_once: true\n  block:\n    - name: Ask\n      ansible.builtin.ping:\n      register: asked\n",
        "- name: Ask\n  run_once: true\n  ansible.builtin.include_tasks: other.yml\n",
    ],
)
def test_what_one_host_finds_does_not_count_for_the_others(action: t.Any, tmp_path: Path, text: str) -> None:
    with pytest.raises(task_files.Unusable, match="'Ask' has run_once: one host's result would count for all"):
        read(action, tmp_path / "do.yml", text)
    assert read(action, tmp_path / "good.yml", f"{PING}  run_once: false\n") == ["asked"]


def test_a_mistake_in_what_a_file_includes_is_found_too(action: t.Any, tmp_path: Path) -> None:
    (tmp_path / "inner.yml").write_text("a: b\n")
    with pytest.raises(task_files.Unusable, match=r"which includes 'inner.yml', which is not a list of tasks"):
        read(action, tmp_path / "do.yml", "- ansible.builtin.include_tasks: inner.yml\n")
    # What is known only when it runs is not judged now, and a circle ends.
    read(action, tmp_path / "later.yml", '- ansible.builtin.include_tasks: "{{ which }}.yml"\n')
    read(action, tmp_path / "circle.yml", "- ansible.builtin.include_tasks: circle.yml\n")


def test_a_task_of_a_probe_that_looks_at_the_host_has_to_register_what_it_saw(action: t.Any, tmp_path: Path) -> None:
    good = f"{PING}- ansible.builtin.assert:\n    that: asked is defined\n"
    assert read(action, tmp_path / "probe.yml", good, probe=True) == ["asked"]
    with pytest.raises(task_files.Unusable, match="'Ask' registers nothing"):
        read(action, tmp_path / "silent.yml", PING.replace("  register: asked\n", ""), probe=True)
    with pytest.raises(task_files.Unusable, match="which includes other files"):
        read(action, tmp_path / "including.yml", "- ansible.builtin.include_tasks: other.yml\n", probe=True)


def test_what_a_host_names_is_found_beside_its_inventory_and_mistakes_say_which_item(
    action: t.Any, tmp_path: Path
) -> None:
    (tmp_path / "do.yml").write_text(PING)
    variables = {"inventory_dir": str(tmp_path)}
    assert finder(action, variables)("do.yml", True) == (str(tmp_path / "do.yml"), ["asked"])
    own = {"name": "queue", "kind": "tasks", "options": {"do": "do.yml", "probe": "paused", "undo": "undo.yml"}}
    saved = {"name": "dump", "kind": "tasks", "options": {"file": "save.yml", "probe": "saved"}}
    found = file_mistakes(action, variables, {"drain_steps": Items([own], {}), "checkpoint": Items([saved], {})})
    assert [line.split(" is ")[0] for line in found] == [
        "Drain step 'queue' (tasks): undo",
        "Checkpoint 'dump' (tasks): file",
    ]
    assert file_mistakes(action, variables, dict.fromkeys(("drain_steps", "checkpoint"), Items([], {}))) == []
