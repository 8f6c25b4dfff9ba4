# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._report import seconds, summary
from ansible_collections.graceful.azure.plugins.plugin_utils._webhooks import problems


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01 00:00:10.2500000", 10.25),
        (12.5, 12.5),
        ("yesterday", None),
        ("2026-13-01T00:00:00Z", None),
        ("", None),
        (None, None),
        (True, None),
        (float("nan"), None),
    ],
)
def test_times_are_read_or_unknown(value: t.Any, expected: float | None) -> None:
    assert seconds(value) == expected


def test_the_summary_is_short_and_complete() -> None:
    data = {
        "result": "held",
        "words": ["web-0 is late."],
        "run": {"run_id": "1", "run_name": "nightly", "check_mode": False},
        "events": [
            {
                "event_id": "A",
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "held",
                "hold": ["late"],
                "description": "left out",
                "hosts": ["web-0"],
            }
        ],
        "hosts": {"web-0": {"result": "left drained", "timeline": [{"what": "left out"}]}},
    }
    assert summary(data) == {
        "result": "held",
        "verdict": "Held: not approved",
        "words": ["web-0 is late."],
        "text": "web-0 is late.",
        "run": {"run_id": "1", "run_name": "nightly", "check_mode": False},
        "events": [
            {
                "event_id": "A",
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "held",
                "hold": ["late"],
                "hosts": ["web-0"],
            }
        ],
        "hosts": {"web-0": "left drained"},
    }


def test_a_chat_message_mentions_nobody() -> None:
    text = summary({"words": ["<!channel> @here\x1b[31m\u202e", "x" * 5000]})["text"]
    assert not set("<>\x1b\u202e") & set(text)
    assert "@here" not in text
    assert len(text) == 2000


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"status": 404, "msg": "Status code was 404"}, "it answered HTTP 404"),
        ({"status": 302}, "it answered HTTP 302, and redirects are not followed"),
        ({"status": -1, "msg": "Request failed: <urlopen error timed out>"}, "no complete answer in time"),
        ({"msg": "Timed out after 3 second(s).", "failed": True}, "no complete answer in time"),
        ({"status": -1, "msg": "<urlopen error [Errno 111] Connection refused>"}, "the connection was refused"),
        ({"status": -1, "msg": "[Errno -2] Name or service not known"}, "its name is not known"),
        ({"status": -1, "msg": "CERTIFICATE_VERIFY_FAILED"}, "its certificate or TLS was not accepted"),
        ({"msg": "something with s3cret in it"}, "it was not reached"),
    ],
)
def test_a_failed_webhook_is_named_without_its_secrets(result: dict[str, t.Any], reason: str) -> None:
    secret = {"url": "https://user:s3cret@chat.example.com:8443/s3cret?token=s3cret", "headers": {"X": "s3cret"}}
    results = [{"status": 204, "item": secret}, {**result, "item": secret}, {"skipped": True, "item": secret}]
    assert problems(results) == [f"webhook 2 of 3 (chat.example.com): {reason}"]


@pytest.mark.parametrize("url", ["https://us3cret:s3cret/@chat.example.com", "s3cret", "http://[s3cret", None, 7])
def test_of_a_malformed_address_nothing_is_said(url: t.Any) -> None:
    assert problems([{"status": -1, "msg": "nonnumeric port: 's3cret'", "item": {"url": url}}]) == [
        "webhook 1 of 1: its URL is not valid"
    ]
