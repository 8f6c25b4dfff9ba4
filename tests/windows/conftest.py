# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import Session


@pytest.fixture(scope="session", autouse=True)
def powershell_is_here() -> None:
    try:
        windows.make()
    except windows.CannotError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def session(powershell_is_here: None) -> t.Iterator[Session]:
    """One PowerShell for all tests that ask for it."""
    running = Session()
    yield running
    running.close()
