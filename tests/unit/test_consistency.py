# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.plugins.module_utils._transport import USER_AGENT
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
CONDITIONS = ("when", "that", "until", "changed_when", "failed_when")
TASK_FILES = sorted(
    [*(ROOT / "playbooks").glob("*.yml"), *(file for part in ("tasks", "vars", "defaults", "handlers")
     for file in (ROOT / "roles").glob(f"*/{part}/**/*.yml"))]
)  # fmt: skip
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


def load(path: str) -> dict[str, t.Any]:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8")) or {}


@pytest.mark.parametrize("role", ROLES)
def test_the_defaults_of_a_role_are_those_that_it_documents(role: str) -> None:
    entry_points = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"].values()
    documented = {name: option for entry in entry_points for name, option in entry.get("options", {}).items()}
    expected = {name: option["default"] for name, option in documented.items() if "default" in option}
    # A role without options has no file of defaults.
    assert (load(f"roles/{role}/defaults/main.yml") if expected else {}) == expected
    assert bool(expected) == (ROOT / "roles" / role / "defaults").is_dir()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_page(role: str) -> None:
    assert re.search(rf"^# .*{role}", (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize(("role", "places"), [("maintenance", ("host", "run")), ("drill", ("drill",))])
def test_ansible_doc_describes_every_variable(role: str, places: tuple[str, ...]) -> None:
    items = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["description"]
    described = {found[1] for item in items if (found := re.match(r"C\(graceful_(\w+)\) \(", item))}
    assert described == {name for name, one in SETTINGS.items() if one.where in places}


@pytest.mark.parametrize("file", TASK_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_expression_is_one_line(file: Path) -> None:
    """What needs more belongs into Python, where it has types and tests."""
    assert [node.start_mark.line + 1 for node in expressions(yaml.compose(file.read_text(encoding="utf-8")))
            if node.start_mark.line != node.end_mark.line] == []  # fmt: skip


def expressions(node: yaml.Node | None, condition: bool = False) -> t.Iterator[yaml.ScalarNode]:
    """The texts that Ansible evaluates."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from expressions(value, key.value in CONDITIONS)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from expressions(item, condition)
    elif isinstance(node, yaml.ScalarNode) and (condition or "{{" in node.value or "{%" in node.value):
        yield node


def test_the_client_names_the_version_that_is_released() -> None:
    assert f"graceful.azure/{load('galaxy.yml')['version']}" == USER_AGENT


def test_what_make_test_plays_touches_every_module_and_role() -> None:
    """The tests that are marked as quick name what they touch."""
    marked = [text for folder in ("integration", "cycle") for text in texts(f"tests/{folder}/test_*.py")]
    named = {name for text in marked for mark in re.findall(r"@pytest\.mark\.quick\((.*)\)", text)
             for name in re.findall(r'"([a-z_:]+)"', mark)}  # fmt: skip
    modules = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert named == modules | {f"role:{role}" for role in ROLES}


def texts(pattern: str) -> t.Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in ROOT.glob(pattern))
