# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is in extensions/eda, without ansible-rulebook: make test-eda runs it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.plugins.plugin_utils import _event_grid, _polling

ROOT = Path(__file__).resolve().parents[3]
EDA = ROOT / "extensions" / "eda"
SOURCES = {"event_grid": _event_grid, "scheduled_events": _polling}
RULEBOOKS = sorted(path.stem for path in (EDA / "rulebooks").glob("*.yml"))

Json = dict[str, t.Any]


def documented(source: str) -> dict[str, t.Any]:
    """The texts at the top of a source."""
    tree = ast.parse((EDA / "plugins" / "event_source" / f"{source}.py").read_text())
    return {
        node.targets[0].id: yaml.safe_load(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENTATION", "EXAMPLES")
    }


def rules(rulebook: str) -> list[Json]:
    (ruleset,) = yaml.safe_load((EDA / "rulebooks" / f"{rulebook}.yml").read_text())
    return t.cast("list[Json]", ruleset["rules"])


def test_every_source_is_checked_here() -> None:
    assert {path.stem for path in (EDA / "plugins" / "event_source").glob("*.py")} == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_the_options_of_a_source_are_those_that_it_documents(source: str) -> None:
    options = documented(source)["DOCUMENTATION"]["options"]
    assert set(options) == set(SOURCES[source].OPTIONS)
    for example in documented(source)["EXAMPLES"]:
        (given,) = example.values()
        values = {**(given or {}), **({"secret": "x" * 20} if source == "event_grid" else {})}
        assert SOURCES[source].read_options(values)


@pytest.mark.parametrize("source", SOURCES)
def test_the_defaults_of_a_source_are_those_that_it_documents(source: str) -> None:
    given = {"secret": "x" * 20, "port": 1} if source == "event_grid" else {}
    read = SOURCES[source].read_options(given)
    for name, option in documented(source)["DOCUMENTATION"]["options"].items():
        if "default" in option:
            assert getattr(read, name) == option["default"]


@pytest.mark.parametrize("rulebook", RULEBOOKS)
def test_all_rulebooks_start_one_run_for_an_event_in_the_same_way(rulebook: str) -> None:
    first, last = rules(rulebook)
    reference = rules("maintenance")
    assert (first["name"], first["condition"], first["throttle"]) == tuple(
        reference[0][key] for key in ("name", "condition", "throttle")
    )
    assert (last["name"], last["throttle"]) == tuple(reference[1][key] for key in ("name", "throttle"))


@pytest.mark.parametrize("rulebook", RULEBOOKS)
def test_no_rulebook_limits_a_run_to_hosts_of_a_message(rulebook: str) -> None:
    for rule in rules(rulebook):
        (arguments,) = rule["action"].values()
        text = json.dumps({key: value for key, value in arguments.items() if key != "lock"})
        assert "limit" not in text
        assert "hosts" not in text
        variables = arguments.get("extra_vars") or arguments["job_args"]["extra_vars"]
        assert variables["graceful_event"] == "{{ event.payload }}"
        # What else there is comes from the rulebook, or is true or false.
        assert set(variables) <= {"graceful_event", "graceful_run_name", "graceful_force_claim"}
        assert "event." not in variables.get("graceful_run_name", "")
        assert " == [" in variables.get("graceful_force_claim", " == [")


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_finds_the_code_of_its_collection_without_ansible_and_requests(source: str) -> None:
    """As ansible-rulebook runs it: by its path, and with nothing of ours on the path of Python."""
    program = f"""
import runpy, sys, types
sys.modules["requests"] = sys.modules["ansible"] = None
# The unit tests run where there is no aiohttp.
aiohttp = sys.modules["aiohttp"] = types.ModuleType("aiohttp")
aiohttp.web = aiohttp.ClientSession = None
module = runpy.run_path({str(EDA / "plugins" / "event_source" / f"{source}.py")!r})
assert module["main"]
assert not any("ansible_collections" in place for place in sys.path), sys.path
"""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
