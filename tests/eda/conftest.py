# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.eda.harness import Rulebook, java_is_missing
from ansible_collections.graceful.azure.tests.tools.certificate import make_certificate

MISSING = java_is_missing()
Make = t.Callable[..., Rulebook]


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    if MISSING:
        pytest.skip(MISSING)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "certificate.pem")


@pytest.fixture
def make(tmp_path: Path) -> t.Iterator[Make]:
    """Makes rulebooks that are ended with the test."""
    with contextlib.ExitStack() as stack:

        def one(name: str, **variables: t.Any) -> Rulebook:
            rulebook = Rulebook(tmp_path, name, **variables)
            stack.callback(lambda: print(rulebook.log[-8000:]))
            stack.callback(rulebook.close)
            return rulebook

        yield one
