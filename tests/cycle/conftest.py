# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> t.Iterator[Fleet]:
    """Whatever a test does to it: nothing may have been approved too early."""
    fleet = Fleet(tmp_path)
    try:
        yield fleet
        fleet.check_invariant()
    finally:
        fleet.stop()
