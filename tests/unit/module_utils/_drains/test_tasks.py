# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.tasks import Step
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import mistake

OWN: dict[str, t.Any] = {"do": "do.yml", "probe": "paused"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (OWN, ""),
        ({**OWN, "probe": ["a", "b"], "undo": "undo.yaml", "undo_probe": "gone.yml"}, ""),
        ({**OWN, "probe": True, "undo_probe": False}, ""),
        ({"do": "do.yml"}, "probe"),
        ({"probe": "paused"}, "do"),
        ({**OWN, "do": "rm -rf /"}, "do has to be a task file"),
        ({**OWN, "undo": "undo.sh"}, "undo has to be a task file"),
        ({**OWN, "do": "do.yml "}, "do has to be a task file"),
        ({**OWN, "probe": " "}, "probe has to be a condition, a list of conditions, or a task file"),
        ({**OWN, "probe": []}, "probe has to be a condition"),
        ({**OWN, "probe": ["a", ""]}, "probe has to be a condition"),
        ({**OWN, "probe": ["a", None]}, "probe has to be a condition"),
        ({**OWN, "undo_probe": {"a": 1}}, "undo_probe has to be a condition"),
        ({**OWN, "undo_probe": 5}, "undo_probe has to be a condition"),
    ],
)
def test_only_task_files_and_conditions_are_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)


def test_it_is_taken_by_the_controller() -> None:
    assert (Step.by_controller, Step.carries_traffic) == (True, False)
