# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Task files of the user. The controller takes the step."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._kind import Kind


class Step(Kind):
    summary = (
        "The task file `do` has run and `probe` passes. Undone: the task file `undo` has run and `undo_probe` passes."
    )
    options: t.ClassVar = {
        "do": {"type": "str", "required": True, "description": "A task file (.yml) that drains."},
        "probe": {
            "type": "raw",
            "required": True,
            "description": "How to check that it is done: a condition, a list of conditions, or a task file (.yml).",
        },
        "undo": {"type": "str", "description": "A task file (.yml) that puts the host back."},
        "undo_probe": {"type": "raw", "description": "How to check that it is undone, in the same ways."},
    }
    checks: t.ClassVar = {
        **dict.fromkeys(("do", "undo"), check.task_file),
        **dict.fromkeys(("probe", "undo_probe"), check.probe),
    }
    by_controller = True
