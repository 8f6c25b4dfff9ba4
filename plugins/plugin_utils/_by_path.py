# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports the collection's own code where it cannot be imported by its name.

Event-Driven Ansible runs an event source by its path, in a process that knows nothing of Ansible's collections.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[2]
# The packages above the code, and where each of them is.
PACKAGES = {
    "ansible_collections": None,
    "ansible_collections.graceful": None,
    "ansible_collections.graceful.azure": ".",
    "ansible_collections.graceful.azure.plugins": "plugins",
    "ansible_collections.graceful.azure.plugins.module_utils": "plugins/module_utils",
    "ansible_collections.graceful.azure.plugins.plugin_utils": "plugins/plugin_utils",
}


def load(name: str) -> types.ModuleType:
    """A module of the collection that this file is part of, such as plugin_utils._polling."""
    for package, folder in PACKAGES.items():
        made = types.ModuleType(package)
        made.__path__ = [] if folder is None else [str(COLLECTION / folder)]
        sys.modules.setdefault(package, made)
    return importlib.import_module(f"ansible_collections.graceful.azure.plugins.{name}")
