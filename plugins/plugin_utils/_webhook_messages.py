# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The message to a webhook, in each format. All text is plain: markup in it has no effect. Pure: no I/O."""

from __future__ import annotations

import typing as t

from ..module_utils._document import same_id
from ..module_utils._text import clean, listed
from ._report import Event, Report, read, summary

Json = dict[str, t.Any]

LONGEST_TEXT = 2000
HEADLINES = {
    "noticed": "Azure maintenance noticed",
    "deferred": "Azure maintenance deferred",
    "held": "Azure maintenance held: not approved",
    "approved": "Azure maintenance approved",
    "restored": "Azure maintenance is over",
    "failed": "Azure maintenance failed: action is required",
    "finished": "Azure maintenance run finished",
}
# PagerDuty opens an alert on these occasions, with this severity, and closes it when the hosts are restored.
SEVERITIES = {"noticed": "info", "held": "warning", "failed": "critical"}


def bodies(webhook: Json, data: t.Any, occasion: str, event_ids: t.Sequence[str], page: str) -> list[Json]:
    """What to post to a webhook: one message, or for PagerDuty one for each event."""
    report = read(data)
    headline = ("DRILL: " if report.drill else "") + HEADLINES[occasion]
    lines = _lines(report, occasion, event_ids)
    if webhook["format"] == "pagerduty":
        paged = event_ids if occasion in SEVERITIES else [one for one in event_ids if one and occasion == "restored"]
        return [_pagerduty(webhook["key"], report, occasion, one, headline) for one in paged]
    if webhook["format"] == "slack":
        return [_slack(headline, lines)]
    if webhook["format"] == "teams":
        return [_teams(headline, lines)]
    about = {"version": 2, "occasion": occasion, "event_ids": [one for one in event_ids if one], "report": page}
    return [{**summary(data), **about, "text": _joined([headline, *lines])}]


def _lines(report: Report, occasion: str, event_ids: t.Sequence[str]) -> list[str]:
    if occasion in ("restored", "failed", "finished"):
        return [_plain(line) for line in report.messages] or [_plain(report.verdict)]
    wanted = {same_id(event_id) for event_id in event_ids}
    events = [event for event in report.events if same_id(event.event_id) in wanted]
    return [_plain(line) for event in events for line in (_sentence(event, occasion), *event.holds)]


def _sentence(event: Event, occasion: str) -> str:
    """The plan as long as nothing was done, afterwards the result."""
    texts = (event.reason, event.message) if occasion in ("noticed", "deferred") else (event.message, event.reason)
    return texts[0] or texts[1] or f"{event.event_type} of {listed(event.hosts)}"


def _plain(text: str) -> str:
    """Text that no chat interprets: no mention of everybody, no link, no control character."""
    text = clean(text)
    for letter, harmless in (("<", "\u2039"), (">", "\u203a"), ("@", "\uff20")):
        text = text.replace(letter, harmless)
    return text


def _joined(lines: t.Sequence[str]) -> str:
    text = "\n".join(lines)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _slack(headline: str, lines: t.Sequence[str]) -> Json:
    """Blocks of plain text. Slack uses `text` in notifications only."""
    blocks = [("header", headline), ("section", _joined(lines))]
    return {
        "text": _joined([headline, *lines]),
        "mrkdwn": False,
        "blocks": [
            {"type": kind, "text": {"type": "plain_text", "text": text, "emoji": False}} for kind, text in blocks
        ],
    }


def _teams(headline: str, lines: t.Sequence[str]) -> Json:
    """An Adaptive Card. A TextRun shows plain text, a TextBlock would interpret Markdown."""
    runs = [{"type": "TextRun", "text": headline, "weight": "Bolder", "size": "Medium"}]
    runs += [{"type": "TextRun", "text": line} for line in _joined(lines).split("\n")]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in runs],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _pagerduty(key: str, report: Report, occasion: str, event_id: str, headline: str) -> Json:
    body: Json = {"routing_key": key, "dedup_key": (event_id or report.run.run_id)[:255], "client": "graceful.azure"}
    if occasion == "restored":
        return {**body, "event_action": "resolve"}
    event = next((one for one in report.events if same_id(one.event_id) == same_id(event_id)), None)
    lines = _lines(report, occasion, [event_id]) if event is None else [_plain(_sentence(event, occasion))]
    hosts = [host.name for host in report.hosts if event_id in host.events] if event is None else event.hosts
    return {
        **body,
        "event_action": "trigger",
        "payload": {
            "summary": f"{headline}: {lines[0]}"[:1024],
            "source": _plain(listed(hosts) if hosts else report.run.run_name) or "graceful.azure",
            "severity": "info" if report.drill else SEVERITIES[occasion],
            "class": _plain(event.event_type) if event else "maintenance",
            "custom_details": {
                "event_id": event_id,
                "hosts": [_plain(name) for name in hosts],
                "reasons": [_plain(line) for line in event.holds] if event else lines,
                "run": _plain(report.run.run_name),
                "drill": report.drill,
            },
        },
    }
