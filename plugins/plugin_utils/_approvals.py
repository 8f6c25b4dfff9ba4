# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Which events may be approved now. Nothing is, unless every affected host has reported ready for that very event."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ansible_collections.graceful.azure.plugins.module_utils import _checks as check
from ansible_collections.graceful.azure.plugins.module_utils._document import STARTED, same_id
from ansible_collections.graceful.azure.plugins.module_utils._policy import action_of
from ansible_collections.graceful.azure.plugins.module_utils._text import clean
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import read_now

Entry = t.Mapping[str, t.Any]


def approvals(plan: t.Any, reports: t.Any, *, now: str | datetime) -> dict[str, list[dict[str, t.Any]]]:
    """Sort the plan's events into what to approve, what is held, and what was never meant to be approved."""
    moment = read_now(now)
    planned = check.mapping(plan, "The plan")
    events = check.sequence(planned.get("events"), "The plan's events")
    ready = _Reports(reports)
    result: dict[str, list[dict[str, t.Any]]] = {"approve": [], "held": [], "ignored": []}
    for event in events:
        entry = check.mapping(event, "An event of the plan")
        event_id = check.text(entry.get("event_id"), "The event_id of an event of the plan")
        ignored = _why_ignored(entry)
        reasons = _why_held(entry, event_id, ready)
        if ignored:
            result["ignored"].append({"event_id": event_id, "reason": ignored})
        elif reasons:
            result["held"].append({"event_id": event_id, "reasons": reasons})
        else:
            result["approve"].append(_approval(entry, planned, moment))
    return result


class _Reports:
    """What the hosts reported, found by any spelling of the EventId."""

    def __init__(self, reports: t.Any) -> None:
        self._of: dict[tuple[str, str], list[t.Any]] = {}
        for host, by_event in check.mapping(reports, "The reports").items():
            for event_id, report in by_event.items() if isinstance(by_event, t.Mapping) else ():
                self._of.setdefault((host, same_id(str(event_id))), []).append(report)

    def why_not_ready(self, host: str, event_id: str) -> str | None:
        """None if ready, and only then."""
        name = clean(host)
        found = self._of.get((host, same_id(event_id)))
        if not found:
            return f"{name} has not reported that it is ready"
        for report in found:
            if not isinstance(report, t.Mapping):
                return f"{name} has not reported in a form that can be read"
            if report.get("ready") is not True:
                said = report.get("reason")
                why = clean(said, 300) if isinstance(said, str) and said else "it gave no reason"
                return f"{name} is not ready: {why}"
        return None


def _why_ignored(event: Entry) -> str | None:
    """Why the question of approving does not come up. Without affected hosts it does: the event is held."""
    if event.get("event_status") == STARTED:
        return "it has started: there is nothing left to approve"
    actions = event.get("actions")
    if not isinstance(actions, t.Mapping) or not actions:
        return None
    wanted = {decision.get("action") for decision in actions.values() if isinstance(decision, t.Mapping)}
    if not any(action_of(name).approves for name in wanted):
        return f"the policy says {clean(', '.join(sorted(map(str, wanted))))}"
    return None


def _why_held(event: Entry, event_id: str, reports: _Reports) -> list[str]:
    hold, hosts = event.get("holds"), event.get("hosts")
    reasons = [str(reason) for reason in hold] if isinstance(hold, (list, tuple)) else ["the plan does not clear it"]
    if event.get("approvable") is not True and not reasons:
        reasons.append("the policy does not allow it to be approved")
    if not isinstance(hosts, (list, tuple)) or not hosts:
        return [*reasons, "no host of the inventory is known to be affected"]
    reasons.extend(why for host in hosts if (why := reports.why_not_ready(str(host), event_id)) is not None)
    if not event.get("approvers"):
        reasons.append("no affected host can be reached to approve it")
    return reasons


def _approval(event: Entry, plan: Entry, now: datetime) -> dict[str, t.Any]:
    left = event.get("seconds_left")
    if check.is_number(left) and plan.get("now"):
        left = max(0, left - int((now - read_now(plan["now"])).total_seconds()))
    return {
        "event_id": event["event_id"],
        "event_type": event.get("event_type"),
        "approvers": list(event["approvers"]),
        "hosts": list(event["hosts"]),
        "seconds_left": left,
    }
