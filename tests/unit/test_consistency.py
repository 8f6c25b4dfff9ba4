# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.plugins.module_utils._transport import USER_AGENT

ROOT = Path(__file__).resolve().parents[2]
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
