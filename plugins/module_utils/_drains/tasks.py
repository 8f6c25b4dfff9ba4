# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Task files of the user's own. The controller takes the step."""

from __future__ import annotations

import re
import typing as t

from .. import _option_checks as check
from .._kind import Kind, Options

TASK_FILE = re.compile(r"\.ya?ml$")


class Step(Kind):
    summary = (
        "The task file `do` has run and `probe` passes. Undone: the task file `undo` has run and `undo_probe` passes."
    )
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {
        "do": {"type": "str", "required": True, "description": "A task file (.yml) that drains."},
        "probe": {
            "type": "raw",
            "required": True,
            "description": "What proves it: a condition, a list of conditions, or a task file (.yml).",
        },
        "undo": {"type": "str", "description": "A task file (.yml) that puts the host back."},
        "undo_probe": {"type": "raw", "description": "What proves that, in the same ways."},
    }
    by_controller = True

    @classmethod
    def mistake(cls, options: Options) -> str:
        return check.first(
            *(_file_mistake(key, options[key]) for key in ("do", "undo")),
            *(_probe_mistake(key, options[key]) for key in ("probe", "undo_probe")),
        )


def _file_mistake(name: str, value: str | None) -> str:
    if value is None or (TASK_FILE.search(value) and value.strip() == value):
        return ""
    return f"{name} has to be a task file, whose name ends with .yml or .yaml."


def _probe_mistake(name: str, value: t.Any) -> str:
    if value is None or isinstance(value, bool):
        return ""
    wrong = check.texts(name, value) if isinstance(value, list) else check.text(name, value)
    return f"{name} has to be a condition, a list of conditions, or a task file (.yml)." if wrong else ""
