# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Files that are whole at any moment, whatever happens to the process that writes them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record_files import taken

LARGEST = 16 * 1024 * 1024


def write(path: str, body: bytes, mode: int = 0o600, sync: bool = True) -> None:
    """Under another name first. Without `sync` a crash of the machine may leave the older content."""
    # Of the process, so that two of them do not write into the same one.
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "wb") as file:
            file.write(body)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


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
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    fcntl.fcntl(opened, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    if not taken(opened):
        os.close(opened)
        raise EventsError(message)
    return opened
