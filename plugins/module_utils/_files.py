# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are complete at any moment, whatever happens to the process that writes them; and locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import typing as t

LARGEST = 16 * 1024 * 1024


def read_json(path: str, largest: int = LARGEST) -> t.Any:
    """The content. Raises OSError, or ValueError with the reason. A symbolic link is not followed."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        body = file.read(largest + 1)
    if len(body) > largest:
        raise ValueError(f"it is larger than {largest} bytes")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"it is not JSON ({exc})") from exc


def _no_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not JSON")


def write_json(path: str, content: t.Any, sync: bool = True) -> None:
    write(path, json.dumps(content).encode("ascii"), sync=sync)


def write(path: str, body: bytes, mode: int = 0o600, sync: bool = True, draft: str = "") -> None:
    """Replace the file. Without `sync` a crash of the machine may leave the older content."""
    draft = draft or f"{path}.draft"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
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


def make_directory(directory: str) -> None:
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o700, exist_ok=True)
        sync_directory(os.path.dirname(directory.rstrip("/")))


def sync_directory(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as exc:
        # Some network file systems cannot sync a directory.
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(opened)


def try_lock(path: str, shared: bool = False) -> int | None:
    """The lock as an open file, None if another process has it. It ends when it is closed, or with this process."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        if isinstance(exc, BlockingIOError):
            return None
        raise
    return lock
