# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from ansible_collections.graceful.azure.tests.tools.certificate import make_certificate


@pytest.fixture(scope="session")
def plugin_loader() -> None:
    """Ansible finds plugins and collections, as in a run."""
    init_plugin_loader()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "certificate.pem")
