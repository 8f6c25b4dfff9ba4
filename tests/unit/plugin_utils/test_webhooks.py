# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import http.client
import io
import json
import socket
import ssl
import typing as t
import urllib.error
from datetime import datetime, timedelta, timezone
from email.message import Message

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils import _webhooks as webhooks
from ansible_collections.graceful.azure.plugins.plugin_utils._webhook_messages import LONGEST_TEXT, bodies

Data = dict[str, t.Any]
NOW = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)
URL = "https://chat.example.com/hook"
HOSTILE = "<!channel> @here [x](http://evil.example) *b* _i_ {{ 7 }}\x1b[31m\u202e"


def event(event_id: str = "A", **fields: t.Any) -> Data:
    return {
        "event_id": event_id,
        "event_type": "Reboot",
        "outcome": "completed",
        "reason": f"Reboot {event_id}: drain, then approve.",
        "message": f"completed: Reboot {event_id}",
        "holds": [],
        "approved": None,
        "hosts": ["web1"],
        **fields,
    }


def report(*events: Data, run_id: str = "run-1", hosts: Data | None = None, **fields: t.Any) -> Data:
    return {
        "version": 2,
        "drill": False,
        "result": "done",
        "run": {"run_id": run_id, "run_name": "nightly", "check_mode": False},
        "messages": ["web1: restored"],
        "events": list(events),
        "hosts": hosts or {},
        **fields,
    }


def host(result: str, *event_ids: str) -> Data:
    return {"result": result, "events": list(event_ids), "timeline": []}


# Options


@pytest.mark.parametrize(
    "item",
    [
        {"url": URL},
        {"url": "http://user:password@127.0.0.1:8080/x?token=1", "timeout": "3", "headers": {"X-Number": 7}},
        {"url": "http://[::1]:8080/"},
        {"url": URL, "format": "slack", "events": ["held", "finished"]},
        {"url": URL, "format": "teams", "events": None, "headers": None, "timeout": None, "key": None},
        {"format": "pagerduty", "key": "k"},
    ],
)
def test_a_webhook_without_mistakes(item: Data) -> None:
    assert webhooks.read_webhook(item, "webhook")["timeout"] > 0


@pytest.mark.parametrize(
    ("item", "mistake"),
    [
        ("s3cret", " must be a dictionary. Its keys can be: url, format, key, events, headers, timeout."),
        ({"ulr": "s3cret"}, " has the key 'ulr', which is not known; did you mean url?"),
        ({}, ": url has to begin with http:// or https:// and to name a host."),
        ({"url": "ftp://s3cret"}, ": url has to begin with"),
        ({"url": "https://us3cret:s3cret/@chat.example.com"}, ": url has to begin with"),
        ({"url": "http://[s3cret"}, ": url has to begin with"),
        ({"url": "https://chat.example.com/s3cret s3cret"}, ": url has to begin with"),
        ({"url": 7}, ": url has to begin with"),
        (
            {"url": URL, "format": "s3cret"},
            ": format has to be one of json, slack, teams, pagerduty.",
        ),
        (
            {"url": URL, "events": ["s3cret"]},
            ": events has to be a list in which each entry is one of noticed, deferred, held,",
        ),
        ({"url": URL, "headers": ["s3cret"]}, ": headers has to be a dictionary."),
        (
            {"url": URL, "headers": {"X-Key": "s3cret\r\nX-More: 1"}},
            ": headers: the value of X-Key has to be",
        ),
        ({"url": URL, "headers": {"X Key": "s3cret"}}, ": headers has to be"),
        ({"url": URL, "timeout": "s3cret"}, ": timeout has to be a whole number."),
        ({"url": URL, "timeout": 0}, ": timeout has to be more than 0."),
        ({"format": "pagerduty"}, ": key is missing, the routing key of the PagerDuty service."),
    ],
)
def test_a_mistake_is_said_without_the_value(item: t.Any, mistake: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        webhooks.read_webhook(item, "webhook 1")
    said = str(caught.value)
    assert said.startswith(f"webhook 1{mistake}")
    assert said.endswith(("?", "."))
    assert "s3cret" not in said


def test_what_is_not_set_has_a_default() -> None:
    assert webhooks.read_webhook({"url": URL, "timeout": None, "events": []}, "") == {
        "url": URL,
        "format": "json",
        "key": None,
        "events": ["noticed", "deferred", "held", "approved", "restored", "failed"],
        "headers": {},
        "timeout": 5,
    }
    assert webhooks.read_webhook({"format": "pagerduty", "key": "k"}, "")["url"] == webhooks.PAGERDUTY_URL
    assert webhooks.read_webhook({"format": "pagerduty", "key": "k", "url": URL}, "")["url"] == URL


# What is news


@pytest.mark.parametrize(
    ("occasion", "same_run", "next_run"),
    [
        ("noticed", False, False),
        ("deferred", False, False),
        ("held", False, True),
        ("approved", False, True),
        ("failed", False, True),
        ("restored", False, True),
        ("finished", True, True),
    ],
)
def test_an_event_is_told_once(occasion: str, same_run: bool, next_run: bool) -> None:
    outcome = {"restored": "completed", "noticed": "notified", "finished": "completed"}.get(occasion, occasion)
    one = event(outcome=outcome, approved="2026-09-19T18:00:00Z" if occasion == "approved" else None)
    first = webhooks.unsent(report(one), occasion, {}, NOW)
    assert first == ([""] if occasion == "finished" else ["A"])
    told = webhooks.with_sent({}, report(one), occasion, first, NOW)
    told = json.loads(json.dumps(told))
    # Ids are compared without case.
    again = {**one, "event_id": "a"}
    assert bool(webhooks.unsent(report(again), occasion, told, NOW)) == same_run
    assert bool(webhooks.unsent(report(again, run_id="run-2"), occasion, told, NOW)) == next_run


def test_only_the_new_event_is_news() -> None:
    told = webhooks.with_sent({}, report(event("A")), "noticed", ["A"], NOW)
    assert webhooks.unsent(report(event("A"), event("B")), "noticed", told, NOW) == ["B"]


def test_one_occasion_does_not_stand_for_another() -> None:
    told = webhooks.with_sent({}, report(event(outcome="held")), "noticed", ["A"], NOW)
    assert webhooks.unsent(report(event(outcome="held")), "held", told, NOW) == ["A"]


@pytest.mark.parametrize(
    ("occasion", "data", "expected"),
    [
        ("noticed", report(event("A", outcome="ignored"), event("B", outcome="held_by_other_run")), []),
        ("noticed", report(event("A", outcome="deferred"), event("B", outcome="notified")), ["A", "B"]),
        ("deferred", report(event("A", outcome="deferred"), event("B", outcome="held")), ["A"]),
        ("held", report(event("A"), event("B", outcome="held")), ["B"]),
        ("approved", report(event("A"), event("B", approved="2026-09-19T18:00:00Z")), ["B"]),
        ("failed", report(event("A"), event("B", outcome="failed")), ["B"]),
        # A host that could not put back what an event left, and hosts that could not be asked at all.
        ("failed", report(hosts={"web1": host("failed", "OLD"), "web2": host("restored", "A")}), ["OLD"]),
        ("failed", report(), [""]),
        ("restored", report(event("A"), event("B", outcome="held")), ["A"]),
        # The alert of an eviction ends with it, too.
        ("restored", report(event("A", outcome="drained")), ["A"]),
        ("restored", report(hosts={"web1": host("restored", "OLD")}), ["OLD"]),
        ("restored", report(hosts={"web1": host("restored", "C"), "web2": host("left drained", "C")}), [""]),
        ("finished", report(event("A")), [""]),
    ],
)
def test_which_events_an_occasion_is_about(occasion: str, data: Data, expected: list[str]) -> None:
    assert webhooks.unsent(data, occasion, {}, NOW) == expected


def test_what_was_told_long_ago_is_dropped() -> None:
    old = {"a": {"noticed": "2026-08-01T00:00:00Z"}, "b": {"noticed": "2026-09-01T00:00:00Z"}}
    assert webhooks.with_sent(old, report(), "finished", [""], NOW) == {"b": old["b"]}
    assert webhooks.recent(old, NOW - timedelta(days=20)) == old


@pytest.mark.parametrize("told", [None, [], "x", {"a": 7}, {"a": {"noticed": None}}, {"a": {"noticed": "yesterday"}}])
def test_a_broken_file_counts_as_nothing_told(told: t.Any) -> None:
    assert webhooks.unsent(report(event()), "noticed", told, NOW) == ["A"]
    assert webhooks.with_sent(told, report(event()), "noticed", ["A"], NOW) == {
        "a": {"noticed": "2026-09-19T18:00:00Z"}
    }


# Messages


def posted(form: str, data: Data, occasion: str, *event_ids: str) -> list[Data]:
    webhook = webhooks.read_webhook({"url": URL, "format": form, "key": "k"}, "")
    return bodies(webhook, data, occasion, event_ids, "/reports/x.html")


def test_the_generic_message_has_everything() -> None:
    data = report(event("A", outcome="held", holds=["web1 is late"]), event("B"), result="held")
    (body,) = posted("json", data, "held", "A")
    assert body["version"] == 2
    assert body["occasion"] == "held"
    assert body["event_ids"] == ["A"]
    assert body["text"] == "Azure maintenance held: not approved\ncompleted: Reboot A\nweb1 is late"
    assert body["result"] == "held"
    assert body["verdict"] == "Held: not approved"
    assert body["messages"] == ["web1: restored"]
    assert [one["event_id"] for one in body["events"]] == ["A", "B"]
    assert body["report"] == "/reports/x.html"
    assert body["drill"] is False


@pytest.mark.parametrize(
    ("occasion", "line"),
    [
        ("noticed", "Reboot A: drain, then approve."),
        ("deferred", "Reboot A: drain, then approve."),
        ("held", "completed: Reboot A"),
        ("approved", "completed: Reboot A"),
        ("restored", "web1: restored"),
        ("failed", "web1: restored"),
        ("finished", "web1: restored"),
    ],
)
def test_the_text_says_what_is_planned_then_what_became_of_it(occasion: str, line: str) -> None:
    (body,) = posted("json", report(event("A"), event("B")), occasion, "A")
    assert body["text"].split("\n")[1:] == [line]


def test_slack_gets_blocks_of_plain_text() -> None:
    (body,) = posted("slack", report(event(outcome="held", holds=["web1 is late"])), "held", "A")
    header, section = body["blocks"]
    assert header["type"] == "header"
    assert header["text"]["text"] == "Azure maintenance held: not approved"
    assert section["type"] == "section"
    assert section["text"]["text"] == "completed: Reboot A\nweb1 is late"
    assert {block["text"]["type"] for block in body["blocks"]} == {"plain_text"}
    assert body["mrkdwn"] is False
    assert len(json.dumps(posted("slack", report(messages=["x" * 900] * 9), "failed", "")[0]["blocks"][1])) < 3000


def test_teams_gets_an_adaptive_card_without_markdown() -> None:
    (body,) = posted("teams", report(event(outcome="held", holds=["web_1 is late"])), "held", "A")
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard"
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert [run["text"] for block in card["body"] for run in block["inlines"]] == [
        "Azure maintenance held: not approved",
        "completed: Reboot A",
        "web_1 is late",
    ]


@pytest.mark.parametrize(
    ("occasion", "action", "severity"),
    [
        ("noticed", "trigger", "info"),
        ("held", "trigger", "warning"),
        ("failed", "trigger", "critical"),
        ("restored", "resolve", None),
        ("deferred", None, None),
        ("approved", None, None),
        ("finished", None, None),
    ],
)
def test_pagerduty_gets_an_alert_for_each_event(occasion: str, action: str | None, severity: str | None) -> None:
    sent = posted("pagerduty", report(event("A"), event("B", holds=["late"])), occasion, "A", "B")
    assert [body["dedup_key"] for body in sent] == (["A", "B"] if action else [])
    for body in sent:
        assert body["routing_key"] == "k"
        assert body["event_action"] == action
        assert ("payload" in body) == (action == "trigger")
        if severity:
            assert body["payload"]["severity"] == severity
            assert body["payload"]["source"] == "web1"
            assert body["payload"]["class"] == "Reboot"
            assert body["payload"]["summary"].startswith("Azure maintenance")
    if action == "trigger":
        assert sent[1]["payload"]["custom_details"]["reasons"] == ["late"]


def test_pagerduty_gets_what_fails_without_an_event_in_the_report() -> None:
    data = report(messages=["web9: failed"], hosts={"web9": host("failed", "OLD")})
    (leftover,) = posted("pagerduty", data, "failed", "OLD")
    assert leftover["dedup_key"] == "OLD"
    assert leftover["payload"]["source"] == "web9"
    assert leftover["payload"]["summary"].endswith("web9: failed")
    (blind,) = posted("pagerduty", data, "failed", "")
    assert blind["dedup_key"] == "run-1"
    assert posted("pagerduty", data, "restored", "") == []


@pytest.mark.parametrize("form", webhooks.OPTIONS["format"]["choices"])
def test_a_drill_is_said_in_every_format(form: str) -> None:
    for body in posted(form, report(event(outcome="failed"), drill=True), "failed", "A"):
        assert "DRILL: Azure maintenance failed" in json.dumps(body)
        assert form != "pagerduty" or body["payload"]["severity"] == "info"
    for body in posted(form, report(event(outcome="failed")), "failed", "A"):
        assert "DRILL" not in json.dumps(body)


def texts(value: t.Any) -> t.Iterator[str]:
    """Every text that a receiver shows."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if key in ("text", "summary", "source", "class", "run") or isinstance(entry, (dict, list)):
                yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("form", webhooks.OPTIONS["format"]["choices"])
@pytest.mark.parametrize("occasion", ["noticed", "held", "failed"])
def test_text_of_an_event_mentions_nobody_and_does_nothing(form: str, occasion: str) -> None:
    data = report(event(reason=HOSTILE, message=HOSTILE, holds=[HOSTILE], event_type=HOSTILE), messages=[HOSTILE] * 99)
    data["events"][0]["hosts"] = [HOSTILE]
    for body in posted(form, data, occasion, "A"):
        # The generic message also has the fields as they are, for programs.
        shown = [body["text"]] if form == "json" else list(texts(body))
        assert shown
        for text in shown:
            assert not set("<>@\x1b\u202e") & set(text)
            assert "{{" not in text
            assert len(text) <= LONGEST_TEXT
    assert "channel" in json.dumps(posted(form, data, occasion, "A"))


# What went wrong


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://s3cret", code, "s3cret", Message(), io.BytesIO())


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (http_error(404), "answered HTTP 404"),
        (http_error(302), "answered HTTP 302, and redirects are not followed"),
        (urllib.error.URLError(TimeoutError("s3cret")), "gave no complete answer in time"),
        (TimeoutError("s3cret"), "gave no complete answer in time"),
        (urllib.error.URLError(ConnectionRefusedError("s3cret")), "refused the connection"),
        (urllib.error.URLError(socket.gaierror(-2, "s3cret")), "has a host name that cannot be resolved"),
        (
            urllib.error.URLError(ssl.SSLCertVerificationError("s3cret")),
            "has a certificate or TLS that was not accepted",
        ),
        (urllib.error.URLError(OSError(errno.EHOSTUNREACH, "s3cret")), "cannot be reached in the network"),
        (ConnectionResetError("s3cret"), "closed the connection"),
        (http.client.RemoteDisconnected("s3cret"), "closed the connection"),
        (http.client.BadStatusLine("s3cret"), "gave an answer that is not HTTP"),
        (http.client.InvalidURL("s3cret"), "has a URL that is not valid"),
        (urllib.error.URLError("s3cret"), "was not reached"),
        (RuntimeError("s3cret"), "was not reached"),
    ],
)
def test_a_failed_webhook_is_named_without_its_secrets(exc: Exception, reason: str) -> None:
    url = "https://user:s3cret@chat.example.com:8443/s3cret?token=s3cret"
    assert webhooks.failure(exc) == reason
    assert webhooks.name_of(2, 3, {"url": url}) == "webhook 2 of 3 (chat.example.com)"


@pytest.mark.parametrize("url", ["https://us3cret:s3cret/@chat.example.com", "s3cret", "http://[s3cret", ""])
def test_of_a_malformed_address_nothing_is_said(url: str) -> None:
    assert webhooks.name_of(1, 1, {"url": url}) == "webhook 1 of 1"
