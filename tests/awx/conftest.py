# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.awx.controller import Controller

# The last release of the package that carries awx.awx for AWX 24.
PACKAGE = "ansible==11.13.0"
MEMBERS = "ansible_collections/awx/awx/"


@pytest.fixture(scope="session")
def awx_collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collections path with the real awx.awx."""
    folder = tmp_path_factory.mktemp("awx")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder, [name for name in opened.namelist() if name.startswith(MEMBERS)])
    wheel.unlink()
    return folder


@pytest.fixture
def controller() -> t.Iterator[Controller]:
    held = Controller()
    yield held
    held.server.shutdown()
    held.server.server_close()
