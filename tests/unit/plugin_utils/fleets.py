# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small fleets for the tests of the plan."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS, same_id
from ansible_collections.graceful.azure.plugins.plugin_utils._approvals import is_ignored, why_held
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan

NOW = "2026-09-19T18:00:00Z"
IN_15_MINUTES = "2026-09-19T18:15:00Z"


def event(event_id: str = "E1", *resources: str, **fields: t.Any) -> dict[str, t.Any]:
    return {
        **dict.fromkeys(EVENT_FIELDS),
        "event_id": event_id,
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "resource_type": "VirtualMachine",
        "resources": list(resources),
        "not_before": IN_15_MINUTES,
        "seconds_left": 900,
        "description": "",
        "event_source": "Platform",
        "leader": resources[0] if resources else None,
        **fields,
    }


def host(vm_name: str | None, *events: dict[str, t.Any], **fields: t.Any) -> dict[str, t.Any]:
    return {"reachable": True, "vm_name": vm_name, "events": list(events), "error": None, **fields}


def fleet(*events: dict[str, t.Any], size: int = 3) -> dict[str, t.Any]:
    """web1 (which Azure calls vm1), web2, …, all in one scope."""
    return {f"web{number}": host(f"vm{number}", *events) for number in range(1, size + 1)}


def only(observations: dict[str, t.Any], **arguments: t.Any) -> dict[str, t.Any]:
    """The plan's entry for the only event there is."""
    made = plan(observations, **{"now": NOW, **arguments})
    (entry,) = made["events"]
    return t.cast(dict[str, t.Any], entry)


def for_all(observations: t.Iterable[str], **settings: t.Any) -> dict[str, t.Any]:
    return dict.fromkeys(observations, settings)


def all_ready(made: dict[str, t.Any]) -> dict[str, t.Any]:
    reports: dict[str, t.Any] = {}
    for entry in made["events"]:
        for name in entry["hosts"]:
            reports.setdefault(name, {})[entry["event_id"]] = {"ready": True, "reason": ""}
    return reports


def approvals(made: dict[str, t.Any], reports: t.Mapping[str, t.Any]) -> dict[str, list[dict[str, t.Any]]]:
    """The decision about each event of a plan. `reports` has what each host reported, by its name and the EventId."""
    result: dict[str, list[dict[str, t.Any]]] = {"approve": [], "held": [], "ignored": []}
    for entry in made["events"]:
        event_id = entry["event_id"]
        reported = {
            host: report
            for host, by_event in reports.items()
            for key, report in by_event.items()
            if same_id(key) == same_id(event_id)
        }
        if is_ignored(entry):
            result["ignored"].append({"event_id": event_id})
        elif reasons := why_held(entry, reported):
            result["held"].append({"event_id": event_id, "reasons": reasons})
        else:
            result["approve"].append({key: entry[key] for key in ("event_id", "hosts", "approvers")})
    return result
