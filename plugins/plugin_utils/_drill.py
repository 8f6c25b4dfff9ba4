# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Whether a drill would have been fast enough for each kind of event. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import same_id
from ansible_collections.graceful.azure.plugins.module_utils._text import duration
from ansible_collections.graceful.azure.plugins.plugin_utils._report import Event, Report, read

# The least notice that Azure promises, in seconds.
NOTICES = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Terminate": 300, "Preempt": 30}
# Azure does not wait for an approval of these: what counts is that the hosts are drained and saved.
NOT_APPROVED = ("Preempt",)
UNKNOWN = (
    "Nothing was approved, and not every host got ready, so it is not known how long it would have taken. "
    "The report says why."
)
TIME_TO_NOTICE = (
    "Azure's notice begins when the event is announced, so the time to notice is part of it: "
    "add the time until a run begins."
)


def drill_margin(data: t.Any) -> list[str]:
    """How long it took until the hosts were ready and the event was approved, against the notice of every kind."""
    report = read(data)
    ready = _longest(_since_noticed(event, _ready(event, report)) for event in report.events)
    approved = _longest(_since_noticed(event, event.approved) for event in report.events)
    if approved is not None:
        first = f"Ready and approved {duration(approved)} after the event was noticed."
    elif ready is not None:
        first = f"Drained and saved {duration(ready)} after the event was noticed. Nothing was approved."
    else:
        return [UNKNOWN]
    lines = []
    for kind, notice in NOTICES.items():
        took = approved if ready is None or (approved is not None and kind not in NOT_APPROVED) else ready
        lines.append(_verdict(kind, notice, t.cast(float, took)))
    return [first, *lines, TIME_TO_NOTICE]


def _longest(spans: t.Iterable[float | None]) -> float | None:
    return max((span for span in spans if span is not None), default=None)


def _since_noticed(event: Event, at: float | None) -> float | None:
    return None if at is None or event.noticed is None else max(0.0, at - event.noticed)


def _ready(event: Event, report: Report) -> float | None:
    """When the last host of the event was ready; None unless all of them got ready."""
    event_id = same_id(event.event_id)
    times = {
        host.name: at
        for host in report.hosts
        for at, entry in host.in_time
        if entry.what == "ready" and entry.event_id in ("", event_id)
    }
    found = [times.get(name) for name in event.hosts]
    known = [at for at in found if at is not None]
    return max(known) if known and len(known) == len(found) else None


def _verdict(kind: str, notice: int, took: float) -> str:
    if took <= notice:
        return f"{kind} ({duration(notice)} of notice): in time, {duration(notice - took)} to spare."
    return f"{kind} ({duration(notice)} of notice): too late by {duration(took - notice)}."
