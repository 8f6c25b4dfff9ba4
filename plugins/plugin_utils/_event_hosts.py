# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The event that a run was started for, and the inventory hosts behind its Resources. Pure.

This only decides which hosts are asked first. What is done about an event follows from what these hosts observe.
"""

from __future__ import annotations

import json
import typing as t

from ..module_utils import _checks as check
from ..module_utils._document import plain_name, same_name
from ..module_utils._text import clean, is_or_are, listed, quoted, quoted_list
from ._capacity import demanded_groups, groups_of

Json = dict[str, t.Any]
# Limits far beyond every real message.
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
        raise check.WrongSetting(f"{name} names {len(resources)} VMs. More than {MOST_NAMES} are not accepted.")
    sender = data if isinstance(data, t.Mapping) and data is not event else {}
    host, vm_name = sender.get("host"), sender.get("vm_name")
    return {
        "event_id": clean(event_id, 200),
        "event_type": clean(event.get("event_type") or "event", 40),
        "resources": [plain_name(clean(one, 200)) for one in resources],
        # The host that sent the message, and its Azure name.
        "sender": {clean(host, 200): clean(vm_name, 200)} if isinstance(host, str) and isinstance(vm_name, str) else {},
    }


def _from_text(text: str, name: str) -> t.Any:
    """On the command line and in a survey it is a text."""
    if len(text) > LARGEST_TEXT:
        raise check.WrongSetting(f"{name} has {len(text)} characters. More than {LARGEST_TEXT} are not read.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise check.WrongSetting(f"{name} is a string, but not JSON. It has to be {SHAPES}.") from None


def asked_hosts(
    event: Json,
    play: t.Collection[str],
    names: t.Sequence[t.Mapping[str, str]],
    groups: t.Mapping[str, t.Collection[str]],
    demands: t.Mapping[str, t.Any],
) -> Asked:
    """The hosts to ask. Each of `names` maps hosts to Azure names; a host that has the name in any of them is asked.

    `demands` has each host's graceful_min_available: only hosts of such a group know whether they are out of service.
    """
    title = f"{event['event_type']} {quoted(event['event_id'])}"
    by_name: dict[str, set[str]] = {}
    for names_of_hosts in names:
        for host, name in names_of_hosts.items():
            by_name.setdefault(same_name(name), set()).add(host)
    if not event["resources"]:
        return Asked(None, f"{title} names no VMs: all hosts are asked.")
    unknown = [name for name in event["resources"] if same_name(name) not in by_name]
    if unknown:
        return Asked(
            None, f"{title}: no host is known to have the Azure name {quoted_list(unknown)}, so all hosts are asked."
        )
    affected = sorted({host for name in event["resources"] for host in by_name[same_name(name)]})
    in_play = [host for host in affected if host in play]
    if not in_play:
        are = is_or_are(affected)
        return Asked(None, f"{title}: {listed(affected)} {are} not in this run, so all hosts are asked.")
    more = _hosts_for_capacity(set(in_play), groups, demands).intersection(play).difference(in_play)
    others = f", and {len(more)} more because of graceful_min_available" if more else ""
    only = f"only {listed(in_play)} {is_or_are(in_play)} asked"
    return Asked(sorted({*in_play, *more}), f"{title}: of {len(play)} hosts, {only}{others}.")


def _hosts_for_capacity(
    affected: set[str], groups: t.Mapping[str, t.Collection[str]], demands: t.Mapping[str, t.Any]
) -> set[str]:
    """The hosts of groups with a minimum that an affected host is in, and the hosts that set the minimum."""
    groups_by_host = groups_of(groups)
    hosts: set[str] = set()
    for host, demand in demands.items():
        for group in demanded_groups(demand, groups_by_host.get(host, [])):
            if not affected.isdisjoint(groups.get(group, ())):
                hosts.update(groups[group], [host])
    return hosts
