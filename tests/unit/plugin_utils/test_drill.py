# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import (
    NOTICES,
    TIME_TO_NOTICE,
    UNKNOWN,
    drill_margin,
)

NOTICED = "2026-09-19T18:00:00Z"


def report(approved: str | None, ready: dict[str, str | None], event_id: str = "A") -> dict[str, t.Any]:
    return {
        "drill": True,
        "events": [{"event_id": "A", "noticed": NOTICED, "approved": approved, "hosts": list(ready)}],
        "hosts": {
            name: {"timeline": [{"at": at, "what": "ready", "event_id": event_id}] if at else []}
            for name, at in ready.items()
        },
    }


def line_of(lines: list[str], kind: str) -> str:
    return next(line for line in lines if line.startswith(kind))


@pytest.mark.parametrize(
    ("approved", "first", "preempt", "reboot"),
    [
        ("2026-09-19T18:00:12Z", "12 s after", "in time, 18 s to spare", "in time, 14 min 48 s to spare"),
        ("2026-09-19T18:02:00Z", "2 min after", "too late by 1 min 30 s", "in time, 13 min to spare"),
        ("2026-09-19T18:20:00Z", "20 min after", "too late by 19 min 30 s", "too late by 5 min"),
    ],
)
def test_the_time_taken_is_compared_with_every_notice(approved: str, first: str, preempt: str, reboot: str) -> None:
    lines = drill_margin({"events": [{"noticed": NOTICED, "approved": approved}]})
    assert lines[0].startswith("Ready and approved")
    assert first in lines[0]
    assert preempt in line_of(lines, "Preempt")
    assert reboot in line_of(lines, "Reboot")
    assert len(lines) == len(NOTICES) + 2
    assert lines[-1] == TIME_TO_NOTICE


@pytest.mark.parametrize("event_id", ["a", "A", ""])
def test_where_nothing_is_approved_the_last_host_that_was_ready_counts(event_id: str) -> None:
    lines = drill_margin(report(None, {"spot1": "2026-09-19T18:00:07Z", "spot2": "2026-09-19T18:00:21Z"}, event_id))
    assert lines[0] == "Drained and saved 21 s after the event was noticed. Nothing was approved."
    assert "in time, 9 s to spare" in line_of(lines, "Preempt")
    assert lines[-1] == TIME_TO_NOTICE


def test_preempt_needs_no_approval_so_being_ready_counts_for_it() -> None:
    lines = drill_margin(report("2026-09-19T18:00:41Z", {"web1": "2026-09-19T18:00:21Z"}))
    assert "41 s after" in lines[0]
    assert "in time, 9 s to spare" in line_of(lines, "Preempt")
    assert "in time, 4 min 19 s to spare" in line_of(lines, "Terminate")


@pytest.mark.parametrize(
    "data",
    [
        {"events": []},
        {"events": [{"noticed": NOTICED, "approved": None}]},
        report(None, {"spot1": "2026-09-19T18:00:07Z", "spot2": None}),
        report(None, {"spot1": "2026-09-19T18:00:07Z"}, event_id="another"),
    ],
)
def test_without_an_approval_or_all_hosts_ready_nothing_is_claimed(data: dict[str, t.Any]) -> None:
    assert drill_margin(data) == [UNKNOWN]
