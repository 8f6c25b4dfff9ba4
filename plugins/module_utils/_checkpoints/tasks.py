# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task file of the user that saves something. The controller runs it."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._kind import Kind


class Item(Kind):
    summary = (
        "The task file has run and `probe` passes. Nothing is restored: the collection does not know what was saved."
    )
    options: t.ClassVar = {
        "file": {"type": "str", "required": True, "description": "A task file (.yml) that saves."},
        "probe": {
            "type": "raw",
            "required": True,
            "description": "How to check that it is done: a condition or a list of conditions. A task that was "
            "skipped must not look like one that was done.",
        },
    }
    checks: t.ClassVar = {"file": check.task_file, "probe": check.probe}
    by_controller = True
