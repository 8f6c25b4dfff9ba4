# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packs the watcher into one file (a zipapp) from the collection on the controller."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections/graceful/azure/plugins"
MAIN = """\
import sys

from ansible_collections.graceful.azure.plugins.module_utils._watcher.program import main

sys.exit(main())
"""
# A fixed time, so that the same content makes the same file and the role changes nothing.
MOMENT = (1980, 1, 1, 0, 0, 0)
ANSIBLE = "from ansible.module_utils"


def pack(collection: Path = COLLECTION) -> bytes:
    """The program: all module_utils that do not import Ansible."""
    sources = {"__main__.py": MAIN}
    for folder in ("", "/graceful", "/graceful/azure", "/graceful/azure/plugins"):
        sources[f"ansible_collections{folder}/__init__.py"] = ""
    utilities = collection / "plugins" / "module_utils"
    sources[f"{PACKAGE}/module_utils/__init__.py"] = ""
    for file in sorted(utilities.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if ANSIBLE not in source:
            sources[f"{PACKAGE}/module_utils/{file.relative_to(utilities).as_posix()}"] = source
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(sources.items()):
            info = zipfile.ZipInfo(name, MOMENT)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, source)
    return b"#!/usr/bin/python3 -I\n" + packed.getvalue()
