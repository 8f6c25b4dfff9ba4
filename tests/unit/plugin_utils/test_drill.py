# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import drill_margin


@pytest.mark.parametrize(
    ("approved", "first", "preempt", "reboot"),
    [
        ("2026-09-19T18:00:12Z", "12 s after", "in time, 18 s to spare", "in time, 14 min 48 s to spare"),
        ("2026-09-19T18:02:00Z", "2 min after", "too late by 1 min 30 s", "in time, 13 min to spare"),
        ("2026-09-19T18:20:00Z", "20 min after", "too late by 19 min 30 s", "too late by 5 min"),
    ],
)
def test_the_time_taken_is_compared_with_every_notice(approved: str, first: str, preempt: str, reboot: str) -> None:
    lines = drill_margin({"events": [{"noticed": "2026-09-19T18:00:00Z", "approved": approved}]})
    assert first in lines[0]
    assert preempt in next(line for line in lines if line.startswith("Preempt"))
    assert reboot in next(line for line in lines if line.startswith("Reboot"))


@pytest.mark.parametrize("events", [[], [{"noticed": "2026-09-19T18:00:00Z", "approved": None}]])
def test_without_an_approval_nothing_is_claimed(events: list[dict[str, str | None]]) -> None:
    assert drill_margin({"events": events}) == [
        "Nothing was approved, so nobody knows how long it would have taken. The recap says why."
    ]
