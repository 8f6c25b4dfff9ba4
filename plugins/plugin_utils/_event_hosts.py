# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The event that a run was started for, and the inventory hosts behind its Resources. Pure.

It only says whom to ask first. What is done about an event follows from what those hosts see themselves.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _checks as check
from ansible_collections.graceful.azure.plugins.module_utils._document import plain_name, same_name
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, listed, quoted, quoted_list
from ansible_collections.graceful.azure.plugins.plugin_utils._capacity import demanded_groups, groups_of

Json = dict[str, t.Any]
# No honest message comes near these.
MOST_NAMES, LARGEST_TEXT = 2000, 1_000_000
SHAPES = "the message of the watcher or of an event source, or the event in it, with event_id and resources"


class Asked(t.NamedTuple):
    # None: all hosts of the run.
    hosts: list[str] | None
    message: str


def read_event(value: t.Any, name: str) -> Json:
    """The event in a message. It is text from outside, and is not evaluated."""
    whole = _from_text(value, name) if isinstance(value, str) else value
    if not isinstance(whole, t.Mapping):
        raise check.refuse(name, SHAPES, value)
    data = whole.get("data") if "event_id" not in whole and "data" in whole else whole
    event = data.get("event") if isinstance(data, t.Mapping) and "event_id" not in data else data
    if not isinstance(event, t.Mapping):
        raise check.WrongSetting(f"{name} has no event in it. It has to be {SHAPES}.")
    event_id, resources = event.get("event_id"), event.get("resources")
    if not isinstance(event_id, str) or not event_id.strip():
        raise check.WrongSetting(f"{name} has no event_id. It has to be {SHAPES}.")
    if not isinstance(resources, (list, tuple)) or not all(isinstance(one, str) for one in resources):
        raise check.WrongSetting(f"{name}: resources of event {quoted(event_id)} has to be a list of Azure names.")
    if len(resources) > MOST_NAMES:
        raise check.WrongSetting(f"{name} names {len(resources)} VMs. More than {MOST_NAMES} are not taken.")
    told = data if isinstance(data, t.Mapping) and data is not event else {}
    return {
        "event_id": clean(event_id, 200),
        "event_type": clean(event.get("event_type") or "event", 40),
        "resources": [plain_name(clean(one, 200)) for one in resources],
        # Who sent the message, and what Azure calls it.
        "told_by": {clean(told["host"], 200): clean(told["vm_name"], 200)}
        if isinstance(told.get("host"), str) and isinstance(told.get("vm_name"), str)
        else {},
    }


def _from_text(text: str, name: str) -> t.Any:
    """On the command line and in a survey it is a text."""
    if len(text) > LARGEST_TEXT:
        raise check.WrongSetting(f"{name} has {len(text)} characters. More than {LARGEST_TEXT} are not read.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise check.WrongSetting(f"{name} is a text, but not JSON. It has to be {SHAPES}.") from None


def asked_hosts(
    event: Json,
    play: t.Collection[str],
    names: t.Sequence[t.Mapping[str, str]],
    groups: t.Mapping[str, t.Collection[str]],
    demands: t.Mapping[str, t.Any],
) -> Asked:
    """Whom to ask. Each of `names` maps hosts to Azure names; a host that any of them knows by the name is asked.

    Demands are each host's graceful_min_available: who is out of service in such a group, only its hosts know.
    """
    title = f"{event['event_type']} {quoted(event['event_id'])}"
    by_name: dict[str, set[str]] = {}
    for known in names:
        for host, name in known.items():
            by_name.setdefault(same_name(name), set()).add(host)
    if not event["resources"]:
        return Asked(None, f"{title} names no VMs: all hosts are asked.")
    unknown = [name for name in event["resources"] if same_name(name) not in by_name]
    if unknown:
        return Asked(None, f"{title}: nobody knows the Azure name {quoted_list(unknown)}, so all hosts are asked.")
    behind = {host for name in event["resources"] for host in by_name[same_name(name)]}
    named = behind.intersection(play)
    if not named:
        return Asked(None, f"{title}: {listed(sorted(behind))} not in this run, so all its hosts are asked.")
    hosts = named | _for_capacity(named, groups, demands).intersection(play)
    more = len(hosts) - len(named)
    beside = f", and {more} more because of graceful_min_available" if more else ""
    return Asked(sorted(hosts), f"{title}: of {len(play)} hosts only {listed(sorted(named))} are asked{beside}.")


def _for_capacity(
    named: set[str], groups: t.Mapping[str, t.Collection[str]], demands: t.Mapping[str, t.Any]
) -> set[str]:
    own = groups_of(groups)
    asked: set[str] = set()
    for host, demand in demands.items():
        for group in demanded_groups(demand, own.get(host, [])):
            if not named.isdisjoint(groups.get(group, ())):
                asked.update(groups[group], [host])
    return asked
