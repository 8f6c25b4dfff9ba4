# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Whether a drill would have been fast enough for each kind of event. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import parse_time
from ansible_collections.graceful.azure.plugins.plugin_utils._words import in_words

# The least notice that Azure promises, in seconds.
NOTICES = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Terminate": 300, "Preempt": 30}


def drill_margin(report: t.Mapping[str, t.Any]) -> list[str]:
    """How long the fleet took from notice to approval, against the notice of every kind of event."""
    spans = [span for event in report["events"] if (span := _span(event)) is not None]
    if not spans:
        return ["Nothing was approved, so nobody knows how long it would have taken. The recap says why."]
    took = max(spans)
    return [f"Ready and approved {in_words(took)} after the notice.", *(_verdict(kind, took) for kind in NOTICES)]


def _span(event: t.Mapping[str, t.Any]) -> int | None:
    noticed, approved = parse_time(event.get("noticed") or ""), parse_time(event.get("approved") or "")
    return None if noticed is None or approved is None else max(0, int((approved - noticed).total_seconds()))


def _verdict(kind: str, took: int) -> str:
    notice = NOTICES[kind]
    if took <= notice:
        return f"{kind} ({in_words(notice)} of notice): in time, {in_words(notice - took)} to spare."
    return f"{kind} ({in_words(notice)} of notice): too late by {in_words(took - notice)}."
