# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages that a receiver has not taken yet. They are on disk, so that a restart does not lose them."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import typing as t

from .._files import read_json, write_json

Json = t.Dict[str, t.Any]
# Together with the number of messages: a document may be large.
MOST_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"([0-9]{12})\.json")


class Entry(t.NamedTuple):
    size: int
    # Only if it could not be written to disk.
    message: Json | None = None


class Spool:
    """One receiver's messages, oldest first. One thread adds them, another one removes them."""

    def __init__(self, directory: str, most: int, committed: int | None, most_bytes: int = MOST_BYTES) -> None:
        """What is not committed, which means from that number on, is made again and so removed here; None keeps it."""
        self.dropped = 0
        self.problem = ""
        self._directory = directory
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        os.makedirs(directory, 0o700, exist_ok=True)
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            found = _NAME.fullmatch(name)
            if found and (committed is None or int(found.group(1)) < committed):
                self._entries[int(found.group(1))] = Entry(os.lstat(path).st_size)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        self._trim()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next(self) -> int:
        """A number that is larger than each in it."""
        return max(self._entries, default=-1) + 1

    def add(self, sequence: int, message: Json) -> None:
        """It is kept in memory if the disk does not take it."""
        path = self._path(sequence)
        try:
            write_json(path, message)
            entry, self.problem = Entry(os.lstat(path).st_size), ""
        except OSError as exc:
            self.problem = f"{self._directory}: {exc.strerror or exc}"
            entry = Entry(0, message)
        with self._lock:
            self._entries[sequence] = entry
        self._trim()

    def oldest(self, after: int = -1) -> tuple[int, Json] | None:
        """The oldest, or the oldest after that number. What cannot be read any more is left out."""
        while True:
            with self._lock:
                sequence = next((number for number in self._entries if number > after), None)
                entry = None if sequence is None else self._entries[sequence]
            if sequence is None or entry is None:
                return None
            if entry.message is not None:
                return sequence, entry.message
            try:
                message = read_json(self._path(sequence))
                if not isinstance(message, dict):
                    raise ValueError("it is not a message")
            except (OSError, ValueError):
                self.dropped += 1
                self.remove(sequence)
            else:
                return sequence, message

    def remove(self, sequence: int) -> None:
        with self._lock:
            self._entries.pop(sequence, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(sequence))

    def _trim(self) -> None:
        """The oldest is dropped first: newer ones say more about how things are."""
        while True:
            with self._lock:
                size = sum(entry.size for entry in self._entries.values())
                fits = len(self._entries) <= self._most and (size <= self._most_bytes or len(self._entries) == 1)
                first = None if fits else next(iter(self._entries), None)
            if first is None:
                return
            self.dropped += 1
            self.remove(first)

    def _path(self, sequence: int) -> str:
        return os.path.join(self._directory, f"{sequence:012d}.json")
