# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checkpoints.tasks import Item
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import mistake


def test_the_controller_takes_it() -> None:
    assert Item.by_controller


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"file": "save.yml", "probe": "saved is success"}, ""),
        ({"file": "tasks/save.yaml", "probe": ["saved is success", "saved.stdout == 'ok'"]}, ""),
        ({"file": "save.yml", "probe": True}, ""),
        ({"file": "save.yml"}, "probe"),
        ({"probe": "true"}, "file"),
        ({"file": "save", "probe": "true"}, "file has to be a task file"),
        ({"file": ".yml", "probe": "true"}, "file has to be a task file"),
        ({"file": "save.yml ", "probe": "true"}, "file has to be a task file"),
        ({"file": "save.yml", "probe": " "}, "probe has to be a condition"),
        ({"file": "save.yml", "probe": []}, "probe has to be a condition"),
        ({"file": "save.yml", "probe": ["x", 1]}, "probe has to be a condition"),
        ({"file": "save.yml", "probe": {"x": 1}}, "probe has to be a condition"),
    ],
)
def test_what_a_user_can_get_wrong_is_said(given: dict[str, t.Any], words: str) -> None:
    found = mistake(Item, given)
    assert (words in found) if words else found == ""
