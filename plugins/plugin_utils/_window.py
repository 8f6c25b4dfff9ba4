# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""graceful_window: a daily period in a time zone. Pure, except for the database of time zones."""

from __future__ import annotations

import re
import typing as t
import zoneinfo
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from ..module_utils import _checks as check
from ..module_utils._text import quoted

KEYS = ("start", "end", "timezone", "days")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# No notice is longer than this.
HORIZON = timedelta(days=31)

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


class Window(t.NamedTuple):
    start: time
    end: time
    zone: tzinfo
    days: frozenset[int]
    text: str

    def is_open(self, moment: datetime) -> bool:
        return any(opens <= moment < closes for opens, closes in self._periods(moment, days_ahead=1))

    def next_opening(self, moment: datetime) -> datetime | None:
        # Two weeks: a weekly period can fall into the hour that summer time skips.
        return next((opens for opens, _closes in self._periods(moment, days_ahead=15) if opens > moment), None)

    def _periods(self, moment: datetime, days_ahead: int) -> t.Iterator[tuple[datetime, datetime]]:
        today = moment.astimezone(self.zone).date()
        for offset in range(-1, days_ahead + 1):
            day = today + timedelta(days=offset)
            if day.weekday() in self.days:
                opens = self._utc(day, self.start)
                closes = self._utc(day if self.end > self.start else day + timedelta(days=1), self.end)
                if opens < closes:
                    yield opens, closes

    def _utc(self, day: date, clock: time) -> datetime:
        return datetime.combine(day, clock, tzinfo=self.zone).astimezone(timezone.utc)


def common_opening(windows: t.Iterable[Window], now: datetime, latest: datetime) -> datetime | None:
    """The first moment from now to the latest at which every window is open."""
    windows = tuple(windows)
    moment, latest = now, min(latest, now + HORIZON)
    while moment <= latest:
        openings = [window.next_opening(moment) for window in windows if not window.is_open(moment)]
        if not openings:
            return moment
        known = [opening for opening in openings if opening is not None]
        if len(known) < len(openings):
            return None
        moment = max(known)
    return None


def validate_window(window: t.Any) -> Window | None:
    """The validated window; None if there is none. Raises WrongSetting."""
    if window is None:
        return None
    given = check.mapping(window, "The window", KEYS)
    for key in ("start", "end"):
        if key not in given:
            raise check.WrongSetting(f"The window has no {key}; it needs both, for example '22:00' and '05:00'.")
    start, end = _clock(given["start"], "start"), _clock(given["end"], "end")
    if start == end:
        raise check.WrongSetting("The window starts and ends at the same time; leave it out to allow every hour.")
    name = check.text(given.get("timezone", "UTC"), "The window's timezone")
    days = _days(given["days"]) if "days" in given else frozenset(range(7))
    return Window(start, end, _zone(name), days, f"{start:%H:%M}-{end:%H:%M} {name}")


def _clock(value: t.Any, key: str) -> time:
    # YAML reads an unquoted 22:00 as a number to the base of 60, that is 1320 minutes.
    if check.is_number(value) and 0 <= value < 24 * 60:
        return time(*divmod(value, 60))
    match = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        wrong = check.refuse(f"The window's {key}", "a time of day such as '22:00'", value)
        if check.is_number(value):
            raise check.WrongSetting(f"{wrong} Write it in quotes: YAML reads 25:00 as a number.")
        raise wrong
    return time(int(match[1]), int(match[2]))


def _days(value: t.Any) -> frozenset[int]:
    where = "The window's days"
    days = set()
    for name in check.names(value, where):
        found = [number for number, day in enumerate(WEEKDAYS) if len(name) >= 3 and day.startswith(name.lower())]
        if not found:
            raise check.refuse(where, f"among {', '.join(WEEKDAYS)}", value)
        days.update(found)
    return frozenset(days)


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return timezone.utc
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise check.WrongSetting(
            f"The window's timezone {quoted(name)} is not known on this controller. Use a name such as Europe/Berlin;"
            " if that is not known either, the package tzdata is missing."
        ) from exc
