# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Files that are whole at any moment, whatever happens to the process that writes them."""

from __future__ import annotations

import json
import os
import typing as t

from .._errors import EventsError
from .._record_files import take, write

__all__ = ["lock", "read_json", "write", "write_json"]

LARGEST = 16 * 1024 * 1024


def write_json(path: str, content: t.Any) -> None:
    write(path, json.dumps(content).encode("ascii"))


def read_json(path: str) -> t.Any:
    """The content; raises OSError or ValueError."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        body = file.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise ValueError("it is too large")
    try:
        return json.loads(body.decode("utf-8"))
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def lock(path: str, message: str) -> int:
    """A lock that ends with this process; raises if another one has it."""
    opened = take(path)
    if opened is None:
        raise EventsError(message)
    return opened
