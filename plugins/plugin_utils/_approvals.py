# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Which events may be approved now. Nothing is, unless every affected host has reported ready for that very event."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import STARTED, same_id
from ansible_collections.graceful.azure.plugins.module_utils._policy import action_of
from ansible_collections.graceful.azure.plugins.module_utils._text import clean

Json = dict[str, t.Any]
# What each host reported about each event, by name and EventId: whether it is ready, and a reason.
Reports = t.Mapping[str, t.Mapping[str, t.Mapping[str, t.Any]]]


def approvals(plan: Json, reports: Reports) -> dict[str, list[Json]]:
    """Sort the plan's events into what to approve, what is held, and what was never meant to be approved."""
    result: dict[str, list[Json]] = {"approve": [], "held": [], "ignored": []}
    for event in plan["events"]:
        event_id = event["event_id"]
        if ignored := _why_ignored(event):
            result["ignored"].append({"event_id": event_id, "reason": ignored})
        elif reasons := _why_held(event, reports):
            result["held"].append({"event_id": event_id, "reasons": reasons})
        else:
            result["approve"].append({key: event[key] for key in ("event_id", "hosts", "approvers")})
    return result


def _why_ignored(event: Json) -> str:
    """Why the question of approving does not come up. Without affected hosts it does: the event is held."""
    if event["event_status"] == STARTED:
        return "it has started: there is nothing left to approve"
    wanted = set((event.get("actions") or {}).values())
    if wanted and not any(action_of(name).approves for name in wanted):
        return f"the policy says {clean(', '.join(sorted(map(str, wanted))))}"
    return ""


def _why_held(event: Json, reports: Reports) -> list[str]:
    """Whatever the plan does not say clearly holds the event."""
    holds, hosts = event.get("holds"), event.get("hosts")
    reasons = list(holds) if isinstance(holds, list) else ["the plan does not clear it"]
    if event.get("approvable") is not True and not reasons:
        reasons.append("the policy does not allow it to be approved")
    if not hosts:
        return [*reasons, "no host of the inventory is known to be affected"]
    reasons.extend(why for host in hosts if (why := _why_not_ready(host, event["event_id"], reports)))
    if not event.get("approvers"):
        reasons.append("no affected host can be reached to approve it")
    return reasons


def _why_not_ready(host: str, event_id: str, reports: Reports) -> str:
    """Empty if it is ready, and only then."""
    found = [report for key, report in reports.get(host, {}).items() if same_id(key) == same_id(event_id)]
    for report in found:
        if report.get("ready") is not True:
            return f"{clean(host)} is not ready: {clean(report.get('reason') or 'it gave no reason', 300)}"
    return "" if found else f"{clean(host)} has not reported that it is ready"
