# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._window import Window, common_opening, validate_window
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NIGHT = {"start": "22:00", "end": "05:00", "timezone": "Europe/Berlin"}


def window(**fields: t.Any) -> Window:
    made = validate_window({**NIGHT, **fields})
    assert made is not None
    return made


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        # Berlin is two hours ahead in summer, one in winter.
        ("2026-07-01T19:59:59", False),
        ("2026-07-01T20:00:00", True),
        ("2026-07-02T00:00:00", True),
        ("2026-07-02T02:59:59", True),
        ("2026-07-02T03:00:00", False),
        ("2026-01-10T20:59:59", False),
        ("2026-01-10T21:00:00", True),
        ("2026-01-11T04:00:00", False),
        # The night in which the clocks go forward is an hour shorter.
        ("2026-03-29T02:59:59", True),
        ("2026-03-29T03:00:00", False),
    ],
)
def test_a_window_over_midnight_in_local_time(moment: str, is_open: bool) -> None:
    assert window().is_open(at(moment)) is is_open


@pytest.mark.parametrize(
    ("moment", "opens"),
    [
        ("2026-07-01T12:00:00", "2026-07-01T20:00:00"),
        ("2026-07-01T20:00:00", "2026-07-02T20:00:00"),
        ("2026-07-02T01:00:00", "2026-07-02T20:00:00"),
        ("2026-10-24T21:00:00", "2026-10-25T21:00:00"),
    ],
)
def test_the_next_opening(moment: str, opens: str) -> None:
    assert window().next_opening(at(moment)) == at(opens)


def test_days_are_those_on_which_the_window_begins() -> None:
    friday_night = window(days="fri", timezone="UTC")
    assert friday_night.is_open(at("2026-09-18T23:00:00"))
    assert friday_night.is_open(at("2026-09-19T04:00:00"))
    assert not friday_night.is_open(at("2026-09-19T23:00:00"))
    assert friday_night.next_opening(at("2026-09-19T23:00:00")) == at("2026-09-25T22:00:00")


def test_an_unquoted_time_is_what_yaml_makes_of_it() -> None:
    assert window(start=1320).start == window(start="22:00").start


def test_a_window_in_the_hour_that_summer_time_skips_opens_a_week_later() -> None:
    skipped = window(start="02:59", end="03:01", days="sunday")
    assert skipped.next_opening(at("2026-03-28T12:00:00")) == at("2026-04-05T00:59:00")


def test_windows_of_several_hosts_open_together() -> None:
    late = window(start="23:30", timezone="UTC")
    early = window(start="20:00", end="23:45", timezone="UTC")
    assert common_opening([late, early], at("2026-09-19T12:00:00"), at("2026-09-20T12:00:00")) == at(
        "2026-09-19T23:30:00"
    )


def test_windows_that_never_open_together_have_no_opening() -> None:
    day = window(start="08:00", end="16:00", timezone="UTC")
    night = window(timezone="UTC")
    assert common_opening([day, night], at("2026-09-19T12:00:00"), at("2027-09-19T12:00:00")) is None


@pytest.mark.parametrize(
    ("given_window", "says"),
    [
        ("22:00-05:00", "The window must be a dictionary"),
        ({"start": "22:00"}, "The window has no end"),
        ({"end": "22:00"}, "The window has no start"),
        ({**NIGHT, "zone": "UTC"}, "has the key 'zone', which is not known; allowed are start, end, timezone, days"),
        ({**NIGHT, "start": "24:00"}, "start must be a time of day such as '22:00', not '24:00'"),
        ({**NIGHT, "start": "10 pm"}, "start must be a time of day"),
        ({**NIGHT, "end": 1500}, "end must be a time of day such as '22:00', not 1500. Write it in quotes: YAML reads"),
        ({**NIGHT, "end": True}, "end must be a time of day"),
        ({**NIGHT, "end": "22:00"}, "starts and ends at the same time"),
        ({**NIGHT, "timezone": "Europe/Berln"}, "timezone 'Europe/Berln' is not known on this controller"),
        ({**NIGHT, "timezone": "Europe"}, "is not known on this controller"),
        ({**NIGHT, "timezone": "../etc/passwd"}, "is not known on this controller"),
        ({**NIGHT, "timezone": "a\0b"}, "is not known on this controller"),
        ({**NIGHT, "timezone": 2}, "timezone must be a string"),
        ({**NIGHT, "days": ["mon", "someday"]}, "days must be among monday, tuesday"),
        ({**NIGHT, "days": "t"}, "days must be among monday"),
        ({**NIGHT, "days": []}, "days must be a name or a list of names"),
    ],
)
def test_a_wrong_window_is_refused(given_window: t.Any, says: str) -> None:
    with pytest.raises(WrongSetting) as refused:
        validate_window(given_window)
    assert says in str(refused.value)


def test_no_window_is_no_window() -> None:
    assert validate_window(None) is None


minutes = st.integers(0, 24 * 60 - 1)
windows = st.tuples(
    minutes, minutes, st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
).filter(lambda drawn: drawn[0] != drawn[1])


@settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    drawn=st.lists(windows, min_size=1, max_size=3),
    now=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    hours=st.integers(0, 96),
)
def test_a_common_opening_lies_within_every_window_and_before_the_deadline(
    drawn: list[tuple[int, int, str]], now: datetime, hours: int
) -> None:
    moment = now.replace(tzinfo=timezone.utc, microsecond=0)
    latest = moment + timedelta(hours=hours)
    made = [window(start=start, end=end, timezone=zone) for start, end, zone in drawn]
    opening = common_opening(made, moment, latest)
    if opening is None:
        assert not all(one.is_open(moment) for one in made)
    else:
        assert moment <= opening <= latest
        assert all(one.is_open(opening) for one in made)
