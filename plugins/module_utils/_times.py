# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When events were seen Started, when one that is missing counts as gone, and how long a POST is waited for. Pure."""

from __future__ import annotations

import typing as t

from ._document import STARTED, Event, by_id

Json = t.Dict[str, t.Any]
# An event is gone if several reads over some seconds did not show it; longer if it was never seen Started.
GONE_READS, GONE_SECONDS, GONE_SECONDS_SCHEDULED = 3, 2.0, 5.0
# After a POST without confirmation the document is read for this long before anybody posts again.
UNCONFIRMED_FOR = 30.0


class Times:
    """When events were seen Started, and since when they are missing. `entries` has what earlier calls have seen."""

    def __init__(self, event_ids: t.Sequence[str], entries: t.Mapping[str, Json], monotonic: float, now: float) -> None:
        self._event_ids = event_ids
        self._now = monotonic
        # By event id: since when it is missing, by the monotonic clock, and in how many reads it was.
        self._missing: dict[str, tuple[float, int]] = {}
        self.started: dict[str, float] = {}
        self.missing_since: dict[str, float] = {}
        for event_id in event_ids:
            entry = entries.get(event_id) or {}
            if entry.get("started"):
                self.started[event_id] = entry["started"]
            if entry.get("gone"):
                # If the clock was set back since, it is counted from now.
                self.missing_since[event_id] = min(entry["gone"], now)
                self._missing[event_id] = (monotonic - (now - self.missing_since[event_id]), entry["gone_reads"])

    def note(self, events: t.Sequence[Event], monotonic: float, now: float) -> None:
        """What one read of the document has shown."""
        self._now = monotonic
        present = by_id(events)
        for event_id in self._event_ids:
            if event_id in present:
                self._missing.pop(event_id, None)
                self.missing_since.pop(event_id, None)
                if present[event_id]["event_status"] == STARTED:
                    self.started.setdefault(event_id, now)
            else:
                since, reads = self._missing.get(event_id, (monotonic, 0))
                self._missing[event_id] = (since, reads + 1)
                self.missing_since.setdefault(event_id, now)

    def gone(self, event_id: str) -> bool:
        since, reads = self._missing.get(event_id, (0.0, 0))
        needed = GONE_SECONDS if event_id in self.started else GONE_SECONDS_SCHEDULED
        return reads >= GONE_READS and self._now - since >= needed

    def reads(self, event_id: str) -> int:
        return self._missing.get(event_id, (0.0, 0))[1]

    def all_gone(self) -> bool:
        return all(map(self.gone, self._event_ids))

    def nearly_gone(self) -> bool:
        """Whether all of them are missing, but not for long enough: that takes some seconds at most."""
        return all(map(self.reads, self._event_ids)) and not self.all_gone()
