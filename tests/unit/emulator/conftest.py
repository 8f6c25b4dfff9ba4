# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, serving

FLEET = {
    "vms": {
        "web_0": {"scope": "web", "tags": {"tier": "front"}},
        "web_1": {"scope": "web"},
        "web_2": {"scope": "web", "computer_name": "web-two"},
        "db": {"address": "10.0.0.9"},
    }
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    file = tmp_path_factory.mktemp("fleet") / "fleet.json"
    file.write_text(json.dumps(FLEET), encoding="utf-8")
    with serving("--fleet", str(file)) as running:
        yield running


@pytest.fixture
def emulator(fleet: Emulator) -> Iterator[Emulator]:
    """Three VMs in a scope and one on its own, without events and faults."""
    yield fleet
    fleet.forget()


@pytest.fixture
def serve() -> Iterator[Callable[..., Emulator]]:
    """Starts emulators with options of the test's own."""
    with contextlib.ExitStack() as stack:
        yield lambda *options: stack.enter_context(serving(*options))
