# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._report import safe, seconds, summary


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01 00:00:10.2500000", 10.0),
        ("yesterday", None),
        ("2026-13-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        ("", None),
        (None, None),
        (True, None),
        (12.5, None),
    ],
)
def test_times_are_read_or_unknown(value: t.Any, expected: float | None) -> None:
    assert seconds(value) == expected


def test_the_summary_is_short_and_complete() -> None:
    data = {
        "result": "held",
        "drill": False,
        "messages": ["web-0 is late."],
        "run": {"run_id": "1", "run_name": "nightly", "check_mode": False},
        "events": [
            {
                "event_id": "A",
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "held",
                "message": "held: Reboot of web-0",
                "holds": ["late"],
                "description": "left out",
                "hosts": ["web-0"],
            }
        ],
        "hosts": {"web-0": {"result": "left drained", "timeline": [{"what": "left out"}]}},
    }
    assert summary(data) == {
        "result": "held",
        "drill": False,
        "verdict": "Held: not approved",
        "messages": ["web-0 is late."],
        "run": {"run_id": "1", "run_name": "nightly", "check_mode": False},
        "events": [
            {
                "event_id": "A",
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "held",
                "message": "held: Reboot of web-0",
                "holds": ["late"],
                "hosts": ["web-0"],
            }
        ],
        "hosts": {"web-0": "left drained"},
    }


def test_a_drill_is_said_with_the_verdict() -> None:
    assert summary({"result": "done", "drill": True})["verdict"] == "Drill: Maintenance done"
    assert summary({"result": "done", "drill": True})["drill"] is True


@pytest.mark.parametrize("odd", [None, 7, "x", [], {"events": 7, "hosts": [1], "run": "x", "messages": {"a": 1}}])
def test_whatever_the_data_is_there_is_a_summary(odd: t.Any) -> None:
    assert summary(odd)["events"] == []
    assert summary(odd)["verdict"] == "No result"


def test_secrets_of_urls_and_lone_surrogates_leave_the_data_wherever_they_are() -> None:
    url = "http://user:s3cret@db.example.com/health?token=s3cret"
    data = safe({"messages": [f"{url} failed"], "hosts": {url: {"timeline": ({"detail": url},)}}, "version": 2})
    assert "s3cret" not in str(data)
    assert data["messages"] == ["http://…@db.example.com/health?… failed"]
    assert data["version"] == 2
    assert safe(["\ud800"]) == ["?"]
    # Keys of different types cannot be sorted when the data is written.
    assert safe({1: {"a": 2, 3: 4}}) == {"1": {"a": 2, "3": 4}}
