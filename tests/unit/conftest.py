# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.plugins.loader import init_plugin_loader


@pytest.fixture(scope="session")
def plugin_loader() -> None:
    """Ansible finds plugins and collections, as in a run."""
    init_plugin_loader()
