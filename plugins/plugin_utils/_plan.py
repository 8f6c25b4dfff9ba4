# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The plan: which announced events touch which hosts, what to do and why. Pure: the same input, the same plan."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ansible_collections.graceful.azure.plugins.module_utils import _checks as check
from ansible_collections.graceful.azure.plugins.module_utils._document import SCHEDULED, STARTED, same_id
from ansible_collections.graceful.azure.plugins.module_utils._policy import (
    ACTIONS,
    NOTIFY,
    Decision,
    Facts,
    action_of,
    decide,
)
from ansible_collections.graceful.azure.plugins.module_utils._text import (
    clean,
    duration,
    is_or_are,
    iso,
    listed,
    quoted,
    quoted_list,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._capacity import Ledger
from ansible_collections.graceful.azure.plugins.plugin_utils._fleet import Fleet, Host
from ansible_collections.graceful.azure.plugins.plugin_utils._merge import Observations, Sighting, merge
from ansible_collections.graceful.azure.plugins.plugin_utils._window import common_opening


@dataclass
class _Resolved:
    """The inventory hosts behind an event's Resources, in that order."""

    hosts: list[Host] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    ambiguous: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class _Draft:
    """One event on its way to an entry of the plan."""

    seen: Sighting
    found: _Resolved
    decisions: dict[str, Decision]
    approvable: bool
    holds: list[str]
    seconds_left: int | None
    # When draining must begin at the latest, so that it is done when Azure may act.
    latest: datetime
    drain: list[str] = field(default_factory=list)
    wait_until: datetime | None = None
    wait_reason: str | None = None
    # The hold that says so.
    put_off: str = ""
    # What the user wrote for one of its hosts cannot be used.
    mistaken: bool = False
    # Other events that Azure wants approved before it starts this one.
    coupled: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def order(self) -> tuple[int, str]:
        return (-1 if self.seconds_left is None else self.seconds_left, same_id(self.seen.event["event_id"]))

    @property
    def started(self) -> bool:
        return bool(self.seen.event["event_status"] == STARTED)

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.found.hosts]

    @property
    def drainable(self) -> list[str]:
        """The hosts that this run can and should drain."""
        if self.started:
            return []
        return [
            host.name
            for host in self.found.hosts
            if host.targeted and host.reachable and not host.mistakes and self.decisions[host.name].drains
        ]

    @property
    def leaving(self) -> list[str]:
        """The hosts that stop working if the plan goes ahead with this event."""
        return self.hosts if self.approvable and not self.holds else self.drainable

    @property
    def approvers(self) -> list[str]:
        return [host.name for host in self.found.hosts if host.targeted and host.reachable and not host.error]

    @property
    def action(self) -> str:
        """What its hosts have in common, or else what is done for them together."""
        actions = [action_of(name) for name in dict.fromkeys(one.action for one in self.decisions.values())]
        if len(actions) == 1 and actions[0].approves == self.approvable:
            return actions[0].name
        drains, tells = any(one.drains for one in actions), any(one.tells for one in actions) or not actions
        wanted = (drains, self.approvable, tells)
        return next((one.name for one in ACTIONS.values() if (one.drains, one.approves, one.tells) == wanted), NOTIFY)


def plan(
    observations: Observations,
    groups: t.Mapping[str, t.Collection[str]] | None = None,
    targeted: t.Collection[str] | None = None,
    settings: t.Mapping[str, t.Any] | None = None,
    *,
    now: str,
) -> dict[str, t.Any]:
    """Merge what the hosts saw into one plan."""
    moment = datetime.fromisoformat(now.replace("Z", "+00:00"))
    fleet = Fleet(observations, groups or {}, frozenset(observations if targeted is None else targeted), settings or {})
    drafts = sorted((_draft(seen, fleet, moment) for seen in merge(observations)), key=lambda draft: draft.order)
    _couple(drafts)
    required, missing_groups = fleet.required()
    _schedule(drafts, fleet, required, moment)
    return {
        "events": [_entry(draft, moment) for draft in drafts],
        "missing_groups": missing_groups,
        "summary": _summary(drafts, fleet, missing_groups),
    }


# ---- one event: who, what, and what speaks against approving


def _draft(seen: Sighting, fleet: Fleet, now: datetime) -> _Draft:
    found = _resolve(seen, fleet)
    left = _seconds_left(seen, now)
    decisions = {host.name: _decision(seen, host, fleet, left) for host in found.hosts}
    not_set = _not_set(found.hosts, decisions)
    refusals = _refusals(seen, decisions)
    budget = max((fleet.settings(host).drain_budget for host in decisions), default=0)
    draft = _Draft(
        seen=seen,
        found=found,
        decisions=decisions,
        approvable=bool(decisions) and not refusals,
        holds=[
            *_event_holds(seen, fleet),
            *_name_holds(seen, found, decisions, fleet),
            *_host_holds(seen, found.hosts),
            *not_set,
            *refusals,
        ],
        seconds_left=left,
        latest=now + timedelta(seconds=max(0, (left or 0) - budget)),
        mistaken=any(host.mistakes for host in found.hosts) or bool(not_set),
    )
    draft.reason = _reason(draft)
    return draft


def _resolve(seen: Sighting, fleet: Fleet) -> _Resolved:
    found = _Resolved()
    for name in seen.event["resources"]:
        claimants = _claimants(fleet.named(name), seen)
        if len(claimants) > 1:
            found.ambiguous[name] = [host.name for host in claimants]
        elif not claimants:
            found.unknown.append(name)
        else:
            found.hosts.append(claimants[0])
    return found


def _claimants(named: t.Sequence[Host], seen: Sighting) -> t.Sequence[Host]:
    """Azure names repeat between resource groups: who was asked and does not see the event is another VM,
    provided that somebody of that name sees it."""
    if len(named) > 1 and any(host.name in seen.seen_by for host in named):
        return [host for host in named if host.name in seen.seen_by or not host.asked]
    return named


def _seconds_left(seen: Sighting, now: datetime) -> int | None:
    """By the service's clock where a host told it, otherwise by ours."""
    left: int | None = seen.event["seconds_left"]
    if left is None and seen.not_before is not None:
        left = int((seen.not_before - now).total_seconds())
    return None if left is None else max(0, min(left, check.LONGEST_SECONDS))


def _decision(seen: Sighting, host: Host, fleet: Fleet, left: int | None) -> Decision:
    facts = Facts(
        event_type=seen.event["event_type"],
        event_source=seen.event["event_source"],
        duration=seen.event["duration_seconds"],
        notice=left,
        groups=fleet.groups_of.get(host.name, ()),
        resource=host.vm_name or "",
    )
    decision = decide(fleet.settings(host.name).policy, facts)
    claimed_for = host.claimed_for.get(same_id(seen.event["event_id"]), 0.0)
    if decision.expires_after is None or seen.event["event_status"] == STARTED or claimed_for < decision.expires_after:
        return decision
    because = f"nothing has followed within {duration(decision.expires_after)}, so nothing is drained for it any more"
    return decision._replace(action=NOTIFY, because=because, lapsed=True)


def _refusals(seen: Sighting, decisions: t.Mapping[str, Decision]) -> list[str]:
    """Why the policy does not allow approval at all."""
    by_decision: dict[Decision, list[str]] = {}
    for host, decision in decisions.items():
        if not decision.approves:
            by_decision.setdefault(decision, []).append(host)
    reasons = [
        f"the policy of {listed(hosts)} says {decision.action} (rule {quoted(decision.rule)})"
        for decision, hosts in by_decision.items()
    ]
    if seen.event["event_type"].lower() == "terminate" and len(seen.event["resources"]) > 1:
        reasons.append(f"it deletes {len(seen.event['resources'])} VMs, and a VM may only approve its own deletion")
    return reasons


def _event_holds(seen: Sighting, fleet: Fleet) -> list[str]:
    holds = list(seen.disagreements)
    if seen.event["event_status"] == STARTED:
        holds.append("it has started: there is nothing left to approve")
    elif seen.event["event_status"] != SCHEDULED:
        holds.append(f"its status {quoted(seen.event['event_status'])} is not known")
    if not seen.event["resources"]:
        holds.append("it names no VMs, so nobody knows whom it affects")
    if not any(fleet.hosts[host].reachable for host in seen.seen_by):
        holds.append(f"no host that can be reached sees it (it was seen by {listed(sorted(seen.seen_by))})")
    return holds


def _name_holds(seen: Sighting, found: _Resolved, decisions: t.Mapping[str, Decision], fleet: Fleet) -> list[str]:
    holds = [
        f"{listed(hosts)} have the same Azure name {quoted(name)}" for name, hosts in sorted(found.ambiguous.items())
    ]
    told_to_ignore = bool(decisions) and all(decision.ignores_unknown_names for decision in decisions.values())
    unsure = sorted(fleet.nameless & seen.seen_by)
    if found.unknown and not told_to_ignore:
        unasked = sorted(fleet.nameless.difference(unsure))
        but = f"; {listed(unasked)} could not be asked what Azure calls {'it' if len(unasked) == 1 else 'them'}"
        holds.append(f"no inventory host has the Azure name {quoted_list(found.unknown)}{but if unasked else ''}")
    elif found.unknown and fleet.nameless:
        holds.append(
            f"unknown names are to be ignored, but {quoted_list(found.unknown)} may be"
            f" {listed(sorted(fleet.nameless))}, whose Azure name is not known"
        )
    if unsure and (found.unknown or found.ambiguous or not seen.event["resources"]):
        holds.append(f"it may mean {listed(unsure)}: what Azure calls them is not known (set graceful_vm_name)")
    return holds


def _host_holds(seen: Sighting, hosts: t.Iterable[Host]) -> list[str]:
    """What speaks against each affected host, in order: the first that applies is enough."""
    outside, silent, strangers, holds = [], [], [], []
    for host in hosts:
        if not host.targeted:
            outside.append(host.name)
        elif not host.reachable:
            silent.append(host.name)
        elif host.error:
            holds.append(f"{clean(host.name)} could not read its metadata service: {quoted(host.error, 200)}")
        elif host.asked and host.name not in seen.seen_by:
            strangers.append(host.name)
        # Said beside the others: it has to be mended in any case.
        holds.extend(f"{clean(host.name)}: {clean(mistake, 300)}" for mistake in host.mistakes)
    if outside:
        holds.append(f"{listed(outside)} {is_or_are(outside)} outside this run (--limit)")
    if silent:
        holds.append(f"{listed(silent)} cannot be reached")
    if strangers:
        holds.append(
            f"{listed(strangers)} {is_or_are(strangers)} named in it but did not see it when asked:"
            " asked too early, or another VM of that name"
        )
    return holds


def _not_set(hosts: t.Iterable[Host], decisions: t.Mapping[str, Decision]) -> list[str]:
    """That nothing is drained has to be a choice: an empty list, or an action that does not drain."""
    return [
        nothing_drained(host.name)
        for host in hosts
        if host.drain_not_set and host.targeted and host.reachable and decisions[host.name].drains
    ]


def nothing_drained(host: str) -> str:
    return f"nothing is drained on {clean(host, 80)}: graceful_drain_steps is not set"


# ---- all events together: when


def _couple(drafts: t.Sequence[_Draft]) -> None:
    """VMs of one scope that are to be deleted at the same time are deleted when all of it is approved."""
    deletions = [
        (draft, draft.seen.not_before)
        for draft in drafts
        if draft.seen.event["event_type"].lower() == "terminate"
        and draft.seen.not_before is not None
        and not draft.started
    ]
    for (one, at), (other, then) in itertools.permutations(deletions, 2):
        if abs((at - then).total_seconds()) <= 1 and one.seen.seen_by & other.seen.seen_by:
            one.coupled.append(other.seen.event["event_id"])


def _schedule(drafts: t.Sequence[_Draft], fleet: Fleet, required: t.Mapping[str, int], now: datetime) -> None:
    """Decide what begins now and what is put off, first by the operators' windows, then by capacity."""
    away = fleet.away().union(host for draft in drafts if draft.started for host in draft.hosts)
    ledger = Ledger(fleet.members, required, away)
    waiting = [draft for draft in drafts if draft.leaving and not _put_off_by_window(draft, fleet, now)]
    # What can no longer wait comes first: it leaves in any case.
    for draft in sorted(waiting, key=lambda draft: draft.latest > now):
        _begin_or_put_off(draft, ledger, now)


def _put_off_by_window(draft: _Draft, fleet: Fleet, now: datetime) -> bool:
    decided = {host: draft.decisions[host] for host in draft.leaving if host in draft.decisions}
    patient = [host for host, decision in decided.items() if not decision.urgent]
    windows = {window for host in patient if (window := fleet.settings(host).window) is not None}
    opening = common_opening(windows, now, draft.latest) if windows else now
    hours = " and ".join(sorted(clean(window.text) for window in windows))
    if opening is None:
        draft.reason += f" It is outside graceful_window ({hours}): NotBefore comes before it opens."
    if opening is None or opening == now:
        return False
    _put_off(draft, opening, f"the window is {hours}")
    return True


def _begin_or_put_off(draft: _Draft, ledger: Ledger, now: datetime) -> None:
    shortages = ledger.shortages(draft.leaving)
    if shortages and draft.latest > now:
        _put_off(draft, draft.latest, "; ".join(shortages))
        return
    # Azure acts in any case; approving would only make the group smaller sooner.
    draft.holds.extend(shortages)
    ledger.take(draft.leaving)
    draft.drain = draft.drainable


def _put_off(draft: _Draft, until: datetime, reason: str) -> None:
    draft.wait_until, draft.wait_reason = until, reason
    draft.put_off = f"put off until {iso(until)}: {reason}"
    draft.holds.append(draft.put_off)


# ---- the plan as plain data


def _entry(draft: _Draft, now: datetime) -> dict[str, t.Any]:
    return {
        **draft.seen.event,
        "seconds_left": draft.seconds_left,
        "hosts": draft.hosts,
        "unknown_names": draft.found.unknown,
        "approvers": draft.approvers,
        "action": draft.action,
        "actions": {host: decision.action for host, decision in draft.decisions.items()},
        "expires_after": max((decision.expires_after or 0 for decision in draft.decisions.values()), default=0),
        "coupled": draft.coupled,
        "lapsed": [host for host, decision in draft.decisions.items() if decision.lapsed],
        "approvable": draft.approvable,
        "holds": draft.holds,
        "drain": draft.drain,
        "wait_until": None if draft.wait_until is None else iso(draft.wait_until),
        "wait_reason": draft.wait_reason,
        "put_off": draft.put_off,
        "mistaken": draft.mistaken,
        "mistakes": [f"{clean(host.name)}: {mistake}" for host in draft.found.hosts for mistake in host.mistakes],
        "no_time_to_lose": draft.latest <= now,
        "reason": draft.reason,
    }


def _reason(draft: _Draft) -> str:
    """`Reboot of web1 and web2 in 14 min 32 s: drain, then approve (rule 'reboot or move'): …`"""
    if draft.started:
        return f"{_title(draft)}: wait until it is over."
    decisions = list(dict.fromkeys(draft.decisions.values()))
    text = f"{_title(draft)}: {action_of(draft.action).message}"
    if len(decisions) == 1:
        text += f" (rule {quoted(decisions[0].rule)}): {clean(decisions[0].because, 200)}"
    elif decisions:
        text += f", because {len(decisions)} different rules apply to its hosts"
    else:
        text += ", because no host of the inventory is known to be affected"
    return text + "."


def _title(draft: _Draft) -> str:
    whom = listed(draft.hosts) if draft.hosts else quoted_list(draft.seen.event["resources"]) or "unnamed VMs"
    if draft.started:
        when = "has started"
    elif draft.seconds_left is None:
        when = "at an unknown time"
    else:
        when = f"in {duration(draft.seconds_left)}"
    return f"{clean(draft.seen.event['event_type'])} of {whom} {when}"


def _summary(drafts: t.Sequence[_Draft], fleet: Fleet, missing_groups: t.Sequence[str]) -> list[str]:
    touched = {host for draft in drafts for host in draft.hosts}
    lines = [f"Events: {len(drafts)}. Hosts that they touch: {len(touched)} of {len(fleet.hosts)}."]
    unasked = [host.name for host in fleet.hosts.values() if host.targeted and not host.reachable]
    if unasked:
        lines.append(f"Not reached, so nobody knows what awaits them: {listed(unasked)}.")
    failed = [host for host in fleet.hosts.values() if host.targeted and host.reachable and host.error]
    lines += [f"{clean(host.name)} could not be asked: {quoted(host.error, 200)}" for host in failed]
    return [*lines, *missing_groups]
