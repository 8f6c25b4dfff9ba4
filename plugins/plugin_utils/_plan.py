# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan: which hosts each announced event affects, what to do and why. Pure: the same input, the same plan."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..module_utils import _checks as check
from ..module_utils._document import SCHEDULED, STARTED, same_id
from ..module_utils._policy import ACTIONS, NOTIFY, Decision, Facts, action_of, decide
from ..module_utils._text import clean, duration, is_or_are, iso, listed, quoted, quoted_list
from ._capacity import Ledger
from ._fleet import Fleet, Host
from ._merge import MergedEvent, Observations, merge
from ._window import common_opening


@dataclass
class _Resolved:
    """The inventory hosts behind an event's Resources, in that order."""

    hosts: list[Host] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    ambiguous: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class _Draft:
    """One event, before it is an entry of the plan."""

    event: MergedEvent
    found: _Resolved
    decisions: dict[str, Decision]
    approvable: bool
    holds: list[str]
    seconds_left: int | None
    # When drains must begin at the latest, so that they are done when Azure may act.
    latest: datetime
    # Hosts that are drained now.
    drain: list[str] = field(default_factory=list)
    # Until when it is deferred, and the hold that says so.
    wait_until: datetime | None = None
    deferral: str = ""
    # Whether a setting of one of its hosts cannot be used, or is missing.
    mistaken: bool = False
    # Other events that Azure wants approved before it starts this one.
    coupled: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def order(self) -> tuple[int, str]:
        return (-1 if self.seconds_left is None else self.seconds_left, same_id(self.event.fields["event_id"]))

    @property
    def started(self) -> bool:
        return bool(self.event.fields["event_status"] == STARTED)

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
        """The hosts that are out of service if the event is not deferred."""
        return self.hosts if self.approvable and not self.holds else self.drainable

    @property
    def approvers(self) -> list[str]:
        return [host.name for host in self.found.hosts if host.targeted and host.reachable and not host.error]

    @property
    def action(self) -> str:
        """What is done for all its hosts together."""
        actions = [action_of(decision.action) for decision in self.decisions.values()]
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
    """One entry for each event that any host observed."""
    moment = datetime.fromisoformat(now.replace("Z", "+00:00"))
    fleet = Fleet(observations, groups or {}, frozenset(observations if targeted is None else targeted), settings or {})
    drafts = sorted((_draft(event, fleet, moment) for event in merge(observations)), key=lambda draft: draft.order)
    _couple(drafts)
    required, missing_groups = fleet.required()
    _schedule(drafts, fleet, required, moment)
    return {
        "events": [_entry(draft, moment) for draft in drafts],
        "missing_groups": missing_groups,
        "summary": _summary(drafts, fleet, missing_groups),
    }


# ---- one event: its hosts, what is done, and what speaks against approving


def _draft(event: MergedEvent, fleet: Fleet, now: datetime) -> _Draft:
    found = _resolve(event, fleet)
    left = _seconds_left(event, now)
    decisions = {host.name: _decision(event, host, fleet, left) for host in found.hosts}
    not_set = _not_set(found.hosts, decisions)
    refusals = _refusals(event, decisions)
    budget = max((fleet.settings(host).drain_budget for host in decisions), default=0)
    draft = _Draft(
        event=event,
        found=found,
        decisions=decisions,
        approvable=bool(decisions) and not refusals,
        holds=[
            *_event_holds(event, fleet),
            *_name_holds(event, found, decisions, fleet),
            *_host_holds(event, found.hosts),
            *not_set,
            *refusals,
        ],
        seconds_left=left,
        latest=now + timedelta(seconds=max(0, (left or 0) - budget)),
        mistaken=any(host.mistakes for host in found.hosts) or bool(not_set),
    )
    draft.reason = _reason(draft)
    return draft


def _resolve(event: MergedEvent, fleet: Fleet) -> _Resolved:
    found = _Resolved()
    for name in event.fields["resources"]:
        claimants = _claimants(fleet.named(name), event)
        if len(claimants) > 1:
            found.ambiguous[name] = [host.name for host in claimants]
        elif not claimants:
            found.unknown.append(name)
        else:
            found.hosts.append(claimants[0])
    return found


def _claimants(named: t.Sequence[Host], event: MergedEvent) -> t.Sequence[Host]:
    """Azure names repeat between resource groups. If a host of that name observed the event, those that did not are
    other VMs."""
    if len(named) > 1 and any(host.name in event.observed_by for host in named):
        return [host for host in named if host.name in event.observed_by or not host.asked]
    return named


def _seconds_left(event: MergedEvent, now: datetime) -> int | None:
    """By the service's clock if a host knows that, otherwise by the controller's."""
    left: int | None = event.fields["seconds_left"]
    if left is None and event.not_before is not None:
        left = int((event.not_before - now).total_seconds())
    return None if left is None else max(0, min(left, check.LONGEST_SECONDS))


def _decision(event: MergedEvent, host: Host, fleet: Fleet, left: int | None) -> Decision:
    facts = Facts(
        event_type=event.fields["event_type"],
        event_source=event.fields["event_source"],
        duration=event.fields["duration_seconds"],
        notice=left,
        groups=fleet.groups_of.get(host.name, ()),
        resource=host.vm_name or "",
    )
    decision = decide(fleet.settings(host.name).policy, facts)
    claimed_for = host.claimed_for.get(same_id(event.fields["event_id"]), 0.0)
    if (
        decision.expires_after is None
        or event.fields["event_status"] == STARTED
        or claimed_for < decision.expires_after
    ):
        return decision
    because = (
        f"no other event followed within {duration(decision.expires_after)}, so no host is drained for it any more"
    )
    return decision._replace(action=NOTIFY, because=because, lapsed=True)


def _refusals(event: MergedEvent, decisions: t.Mapping[str, Decision]) -> list[str]:
    """Why the policy does not allow approval at all."""
    by_decision: dict[Decision, list[str]] = {}
    for host, decision in decisions.items():
        if not decision.approves:
            by_decision.setdefault(decision, []).append(host)
    reasons = [
        f"the policy of {listed(hosts)} says {decision.action} (rule {quoted(decision.rule)})"
        for decision, hosts in by_decision.items()
    ]
    if event.fields["event_type"].lower() == "terminate" and len(event.fields["resources"]) > 1:
        reasons.append(f"it deletes {len(event.fields['resources'])} VMs, and a VM may only approve its own deletion")
    return reasons


def _event_holds(event: MergedEvent, fleet: Fleet) -> list[str]:
    holds = list(event.disagreements)
    if event.fields["event_status"] == STARTED:
        holds.append("it has started: there is nothing left to approve")
    elif event.fields["event_status"] != SCHEDULED:
        holds.append(f"its status {quoted(event.fields['event_status'])} is not known")
    if not event.fields["resources"]:
        holds.append("it names no VMs, so it is not known which hosts it affects")
    if not any(fleet.hosts[host].reachable for host in event.observed_by):
        holds.append(f"no host that can be reached sees it (it was seen by {listed(sorted(event.observed_by))})")
    return holds


def _name_holds(event: MergedEvent, found: _Resolved, decisions: t.Mapping[str, Decision], fleet: Fleet) -> list[str]:
    holds = [
        f"{listed(hosts)} have the same Azure name {quoted(name)}" for name, hosts in sorted(found.ambiguous.items())
    ]
    ignores_unknown = bool(decisions) and all(decision.ignores_unknown_names for decision in decisions.values())
    nameless_observers = sorted(fleet.nameless & event.observed_by)
    if found.unknown and not ignores_unknown:
        but = _not_asked_for_names(sorted(fleet.nameless.difference(nameless_observers)), fleet)
        holds.append(f"no inventory host has the Azure name {quoted_list(found.unknown)}{but}")
    elif found.unknown and fleet.nameless:
        holds.append(
            f"unknown names are to be ignored, but {quoted_list(found.unknown)} may be"
            f" {listed(sorted(fleet.nameless))}, whose Azure name is not known"
        )
    if nameless_observers and (found.unknown or found.ambiguous or not event.fields["resources"]):
        holds.append(
            f"it may affect {listed(nameless_observers)}, whose Azure name is not known (set graceful_vm_name)"
        )
    return holds


def _not_asked_for_names(hosts: t.Sequence[str], fleet: Fleet) -> str:
    """Hosts that may have an Azure name that nobody else has, and why that is not known."""
    inside = [name for name in hosts if name in fleet.hosts and fleet.hosts[name].targeted]
    outside = [name for name in hosts if name not in inside]
    text = ""
    if inside:
        text += f"; {listed(inside)} could not be asked for {_its_name(inside)}"
    if outside:
        text += f"; {listed(outside)} {is_or_are(outside)} outside this run (--limit or graceful_hosts)"
        text += f" and not asked for {_its_name(outside)}"
    return text


def _its_name(hosts: t.Sequence[str]) -> str:
    return "its Azure name" if len(hosts) == 1 else "their Azure names"


def _host_holds(event: MergedEvent, hosts: t.Iterable[Host]) -> list[str]:
    """Why an affected host holds the event. Of reasons that exclude each other, the first that applies."""
    outside, not_reached, not_observing, holds = [], [], [], []
    for host in hosts:
        if not host.targeted:
            outside.append(host.name)
        elif not host.reachable:
            not_reached.append(host.name)
        elif host.error:
            holds.append(f"{clean(host.name)} could not read its metadata service: {quoted(host.error, 200)}")
        elif host.asked and host.name not in event.observed_by:
            not_observing.append(host.name)
        # Beside the others: a mistake has to be corrected in any case.
        holds.extend(f"{clean(host.name)}: {clean(mistake, 300)}" for mistake in host.mistakes)
    if outside:
        holds.append(f"{listed(outside)} {is_or_are(outside)} outside this run (--limit or graceful_hosts)")
    if not_reached:
        holds.append(f"{listed(not_reached)} cannot be reached")
    if not_observing:
        holds.append(
            f"{listed(not_observing)} {is_or_are(not_observing)} named in it, but the metadata service there does not "
            "show it: it is too early, or another VM has the same Azure name"
        )
    return holds


def _not_set(hosts: t.Iterable[Host], decisions: t.Mapping[str, Decision]) -> list[str]:
    """To drain nothing takes an empty list, or an action that does not drain."""
    return [
        nothing_drained(host.name)
        for host in hosts
        if host.drain_not_set and host.targeted and host.reachable and decisions[host.name].drains
    ]


def nothing_drained(host: str) -> str:
    return f"nothing is drained on {clean(host, 80)}: graceful_drain_steps is not set"


# ---- all events together: when


def _couple(drafts: t.Sequence[_Draft]) -> None:
    """Azure deletes VMs of one scope that are to be deleted at the same time when all these events are approved."""
    deletions = [
        (draft, draft.event.not_before)
        for draft in drafts
        if draft.event.fields["event_type"].lower() == "terminate"
        and draft.event.not_before is not None
        and not draft.started
    ]
    for (one, at), (other, then) in itertools.permutations(deletions, 2):
        if abs((at - then).total_seconds()) <= 1 and one.event.observed_by & other.event.observed_by:
            one.coupled.append(other.event.fields["event_id"])


def _schedule(drafts: t.Sequence[_Draft], fleet: Fleet, required: t.Mapping[str, int], now: datetime) -> None:
    """Decide what begins now and what is deferred, first because of graceful_window, then because of capacity."""
    away = fleet.away().union(host for draft in drafts if draft.started for host in draft.hosts)
    ledger = Ledger(fleet.members, required, away)
    in_window = [draft for draft in drafts if draft.leaving and not _deferred_by_window(draft, fleet, now)]
    # Events that cannot wait any longer come first: their hosts leave in any case.
    for draft in sorted(in_window, key=lambda draft: draft.latest > now):
        _begin_or_defer(draft, ledger, now)


def _deferred_by_window(draft: _Draft, fleet: Fleet, now: datetime) -> bool:
    not_urgent = [host for host in draft.leaving if not draft.decisions[host].urgent]
    windows = {window for host in not_urgent if (window := fleet.settings(host).window) is not None}
    opening = common_opening(windows, now, draft.latest) if windows else now
    hours = " and ".join(sorted(clean(window.text) for window in windows))
    if opening is None:
        draft.reason += (
            f" It is handled outside graceful_window ({hours}), which does not open before the drain has to begin."
        )
    if opening is None or opening == now:
        return False
    _defer(draft, opening, f"graceful_window is {hours}")
    return True


def _begin_or_defer(draft: _Draft, ledger: Ledger, now: datetime) -> None:
    shortages = ledger.shortages(draft.leaving)
    if shortages and draft.latest > now:
        _defer(draft, draft.latest, "; ".join(shortages))
        return
    # Azure acts in any case; approving would only make the group smaller sooner.
    draft.holds.extend(shortages)
    ledger.take(draft.leaving)
    draft.drain = draft.drainable


def _defer(draft: _Draft, until: datetime, reason: str) -> None:
    draft.wait_until, draft.deferral = until, f"deferred until {iso(until)}: {reason}"
    draft.holds.append(draft.deferral)


# ---- the plan as plain data


def _entry(draft: _Draft, now: datetime) -> dict[str, t.Any]:
    return {
        **draft.event.fields,
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
        "deferral": draft.deferral,
        "mistaken": draft.mistaken,
        "mistakes": [f"{clean(host.name)}: {mistake}" for host in draft.found.hosts for mistake in host.mistakes],
        "must_begin": draft.latest <= now,
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
    affected = listed(draft.hosts) if draft.hosts else quoted_list(draft.event.fields["resources"]) or "unnamed VMs"
    if draft.started:
        when = "has started"
    elif draft.seconds_left is None:
        when = "at an unknown time"
    else:
        when = f"in {duration(draft.seconds_left)}"
    return f"{clean(draft.event.fields['event_type'])} of {affected} {when}"


def _summary(drafts: t.Sequence[_Draft], fleet: Fleet, missing_groups: t.Sequence[str]) -> list[str]:
    affected = {host for draft in drafts for host in draft.hosts}
    zone = " Times are in UTC." if drafts else ""
    lines = [f"Events: {len(drafts)}. Affected hosts: {len(affected)} of {len(fleet.hosts)}.{zone}"]
    not_reached = [host.name for host in fleet.hosts.values() if host.targeted and not host.reachable]
    if not_reached:
        lines.append(
            "Hosts that could not be reached, so it is not known what Azure has announced to them: "
            f"{listed(not_reached)}."
        )
    failed = [host for host in fleet.hosts.values() if host.targeted and host.reachable and host.error]
    lines += [f"{clean(host.name)} could not be asked: {quoted(host.error, 200)}" for host in failed]
    return [*lines, *missing_groups]
