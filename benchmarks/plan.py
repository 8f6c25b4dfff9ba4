# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the plan of a large fleet. Nothing is asserted: a missed target is printed and no error."""

from __future__ import annotations

import json
import time
import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan

NOW = "2026-09-19T18:00:00Z"
HOSTS = 5000
SHARED_EVENTS = 200
VMS_PER_EVENT = HOSTS // SHARED_EVENTS

GROUPS = {
    "all": [f"host{number}" for number in range(HOSTS)],
    **{f"rack{rack}": [f"host{number}" for number in range(rack, HOSTS, 50)] for rack in range(50)},
}
SETTINGS: dict[str, t.Any] = {"min_available": "50%", "window": {"start": "22:00", "end": "05:00"}}


def event(number: int, resources: list[str], seen_by: str) -> dict[str, t.Any]:
    return {
        "event_id": f"00000000-0000-0000-0000-{number:012X}",
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "resource_type": "VirtualMachine",
        "resources": resources,
        "not_before": "2026-09-19T18:15:00Z",
        "seconds_left": 900,
        "description": "Virtual machine is being restarted as requested by authorized user.",
        "event_source": "Platform",
        "duration_seconds": None,
        "affects_me": seen_by in resources,
        "leader": resources[0],
    }


def everybody_sees_everything(number: int) -> list[dict[str, t.Any]]:
    return [
        event(index, [f"vm{vm}" for vm in range(index * VMS_PER_EVENT, (index + 1) * VMS_PER_EVENT)], f"vm{number}")
        for index in range(SHARED_EVENTS)
    ]


def everybody_sees_its_own(number: int) -> list[dict[str, t.Any]]:
    return [event(number, [f"vm{number}"], f"vm{number}")]


def seconds_to_plan(events_of: t.Callable[[int], list[dict[str, t.Any]]]) -> float:
    observations: dict[str, t.Any] = {}
    for number in range(HOSTS):
        # As the hosts' answers arrive: two of them share no text and no list.
        events = json.loads(json.dumps(events_of(number)))
        observations[f"host{number}"] = {"reachable": True, "vm_name": f"vm{number}", "events": events, "error": None}
    settings = dict.fromkeys(observations, SETTINGS)
    # Of the CPU: other work on the machine does not count.
    begin = time.process_time()
    plan(observations, groups=GROUPS, targeted=list(observations), settings=settings, now=NOW)
    return time.process_time() - begin


def main() -> None:
    for what, events_of, target in (
        (f"{HOSTS} hosts that each see the same {SHARED_EVENTS} events", everybody_sees_everything, 5.0),
        (f"{HOSTS} hosts that each see an event of their own", everybody_sees_its_own, 1.0),
    ):
        taken = seconds_to_plan(events_of)
        verdict = "reached" if taken < target else "missed"
        print(f"plan: {what}: {taken:.2f} s (target: less than {target:.0f} s, {verdict})", flush=True)


if __name__ == "__main__":
    main()
