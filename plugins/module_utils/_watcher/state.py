# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watcher knows from one start to the next: the events that were reported."""

from __future__ import annotations

import typing as t

from .._document import Event
from .._files import read_json, write_json
from .._record_files import is_time
from .._text import clean

Json = t.Dict[str, t.Any]
Log = t.Callable[[str], None]
VERSION = 1


class State:
    """One file, which is complete at any moment."""

    def __init__(self, path: str, log: Log) -> None:
        self.events: dict[str, Json] = {}
        # The boot for which it was reported that the host is back.
        self.back_reported = ""
        self.sequence = 0
        self.problem = ""
        # The file is there and could not be used.
        self.damaged = False
        self._path = path
        try:
            self._load(read_json(path))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as exc:
            self.damaged = True
            log(f"{path} cannot be used ({clean(exc, 120)}): what is announced now is reported again.")

    def _load(self, content: t.Any) -> None:
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError("it is not a state of this version")
        events, back_reported, sequence = content.get("events"), content.get("back_reported"), content.get("sequence")
        if not isinstance(events, dict) or not isinstance(back_reported, str) or not isinstance(sequence, int):
            raise ValueError("it is incomplete")
        if not all(map(_is_entry, events.values())):
            raise ValueError("what it says about events is incomplete")
        self.events, self.back_reported, self.sequence = events, back_reported, sequence

    def write(self) -> None:
        content = {
            "version": VERSION,
            "events": self.events,
            "back_reported": self.back_reported,
            "sequence": self.sequence,
        }
        try:
            write_json(self._path, content)
            self.problem = ""
        except OSError as exc:
            self.problem = f"{self._path}: {exc.strerror or exc}"


def _is_entry(entry: t.Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("gone_reads"), int):
        return False
    event, times = entry.get("event"), [entry.get("started"), entry.get("gone")]
    is_event = isinstance(event, dict) and all(field in event for field in Event.__annotations__)
    return is_event and all(time is None or is_time(time) for time in times)
