# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, serving
from ansible_collections.graceful.azure.tests.unit.watcher.harness import Host, Server


@pytest.fixture(scope="module")
def fleet() -> Iterator[Emulator]:
    with serving("--vm", "web_0", "--vm", "web_1") as running:
        yield running


@pytest.fixture
def emulator(fleet: Emulator) -> Iterator[Emulator]:
    """Two VMs that see each other's events."""
    yield fleet
    fleet.forget()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def make(certificate: Path | None = None) -> Server:
            server = Server(certificate)
            stack.callback(server.stop)
            return server

        yield make


@pytest.fixture
def receiver(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def host(tmp_path: Path, emulator: Emulator) -> Iterator[Host]:
    host = Host(tmp_path, emulator.vms["web_0"])
    yield host
    host.stop()
    print(host.log)
