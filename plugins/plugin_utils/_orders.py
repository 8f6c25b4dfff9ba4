# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each host is to do in the next pass, and how long its call may take. Pure.

An order is ready, put_back, release, or look. The host carries it out by itself and can be given it again at any time.
"""

from __future__ import annotations

import math
import typing as t

from ..module_utils._document import STARTED, same_id, same_name
from ..module_utils._policy import action_of
from ..module_utils._text import quoted_list
from ._approvals import event_for_host
from ._observed import GONE_TIMEOUT, LONGEST_WAIT, UNKNOWN_NOTICE
from ._pass import BUSY, Pass, drained_steps, timestamp

Json = dict[str, t.Any]

# Seconds of the notice that are kept for the approval itself and for clocks that differ, at most.
MARGIN = 10
# An event that was announced too late for a complete drain: a part of it is better than nothing.
MIN_DRAIN_SECONDS = 5
# Hosts with less notice begin first, and the others only after them.
URGENT_NOTICE = 120
# How old the proof of a step that the controller takes may be, and how old where passes take long: each step is proven
# in a pass of its own, and its proof has to count until the others are proven.
PROOF_AGE = 30.0
MAX_PROOF_AGE = 300.0
MAX_PUT_BACK_FAILURES = 3
PUT_BACK_SECONDS = 600
# A call that others wait for, in seconds.
SHORT_CALL = 2.0


def give_orders(this: Pass) -> None:
    orders = {host: order for host in sorted(this.given.hosts) if (order := _order(this, host))}
    _limit_batch(this, orders)
    this.to_add = _hosts_to_add(this)
    involved = sorted(this.given.hosts) if this.options["wait"] else _involved(this, orders)
    for host in involved:
        orders.setdefault(host, _new_order("look", []))
        orders[host]["known"] = this.hosts[host]["document"]
    this.run.update(orders=orders, involved=involved)
    _set_waits(this, orders)
    this.run["has_worked"] = this.run["has_worked"] or any(order["order"] != "look" for order in orders.values())


# ---- one host


def _order(this: Pass, host: str) -> Json | None:
    if this.given.hosts[host].get("lost"):
        # Ansible has removed it from the play, so that it cannot be called any more.
        return None
    claimed = {event_id: entry for event_id, entry, may_act in this.claims(host) if may_act}
    lost = [
        event_id
        for event_id, entry in claimed.items()
        if _is_live(this, host, entry) and (this.held_by_other_run(event_id) or this.is_blocked(event_id))
    ]
    if lost:
        return _new_order("release", [claimed[event_id]["event"] for event_id in lost])
    wanted = [event["entry"] for event_id, event in this.announced.items() if _has_to_be_ready(this, host, event_id)]
    if wanted:
        return _ready_order(this, host, wanted)
    return _put_back_order(this, host, claimed) or _final_release(this, host, claimed)


def _final_release(this: Pass, host: str, claimed: t.Mapping[str, Json]) -> Json | None:
    """This run does no more for the host: the next run need not wait until the claims have expired."""
    state = this.hosts[host]
    live = [entry["event"] for entry in claimed.values() if _is_live(this, host, entry) and not entry["lapsed"]]
    is_left = drained_steps(state["record"]) or state["put_back_failures"]
    return _new_order("release", live) if live and state["reachable"] and is_left else None


def _is_live(this: Pass, host: str, entry: Json) -> bool:
    """Whether it is a claim of this run that was not given back."""
    return bool(this.is_ours(entry) and entry["claim"]["silent_until"] > this.hosts[host]["host_time"])


def _has_to_be_ready(this: Pass, host: str, event_id: str) -> bool:
    """Whether the host has to get ready for the event, or to stay so."""
    event = this.announced[event_id]
    entry = event["entry"]
    if host not in entry["actions"] or entry["event_status"] == STARTED or event["held_by"] or this.is_inactive(host):
        return False
    claims = {claimed_id: may_act for claimed_id, _entry, may_act in this.claims(host)}
    # A document may not show an event for a while. A host that was put back then is drained again, without a second
    # approval.
    is_back = event_id in this.hosts[host]["put_back"] and event_id not in claims
    if _is_approved(this, event) and not is_back:
        return False
    if this.hosts[host]["mistakes"] or this.is_blocked(event_id) or this.has_timed_out(event_id):
        return False
    action = action_of(entry["actions"][host])
    if action.drains:
        is_begun = claims.get(event_id, False)
        return host in entry["drain"] or is_begun or (this.cannot_be_asked(host) and not entry["wait_until"])
    return action.approves and bool(entry["approvable"]) and not entry["wait_until"]


def _is_approved(this: Pass, event: Json) -> bool:
    """Whether the event is approved, or is about to be, before the next pass."""
    approved_now = [approval["event"]["event_id"] for approval in this.run["approve"]]
    return bool(event["approved"]) or event["entry"]["event_id"] in approved_now


def _ready_order(this: Pass, host: str, wanted: t.Sequence[Json]) -> Json:
    notice = min(UNKNOWN_NOTICE if entry["seconds_left"] is None else entry["seconds_left"] for entry in wanted)
    actions = [action_of(entry["actions"][host]) for entry in wanted]
    # Nothing is kept for an approval that is never sent.
    usable = notice - min(MARGIN, notice // 4) if any(action.approves for action in actions) else notice
    return _new_order(
        "ready",
        list(map(event_for_host, wanted)),
        seconds=float(min(LONGEST_WAIT, max(MIN_DRAIN_SECONDS, usable))),
        drain=any(action.drains for action in actions),
        urgent=notice < URGENT_NOTICE,
        fresh=_proof_age(this, host),
    )


def _proof_age(this: Pass, host: str) -> float:
    """What was verified before a person was asked does not count when the person has answered."""
    if this.run["confirm"]:
        return 0.0
    passes = 1 + int(this.hosts[host]["settings"].get("steps") or 1)
    age: float = max(PROOF_AGE, min(MAX_PROOF_AGE, passes * this.last_pass_took + 10))
    return age if this.run["confirmed_at"] is None else min(age, this.now - this.run["confirmed_at"])


def _put_back_order(this: Pass, host: str, claimed: t.Mapping[str, Json]) -> Json | None:
    lapsed = [event_id for event_id, event in this.announced.items() if host in event["entry"]["lapsed"]]
    back = [
        event_id
        for event_id, entry in claimed.items()
        if not (this.held_by_other_run(event_id) or this.is_blocked(event_id) or _is_given_up(this, host, entry))
        # A host that was put back because an event has lapsed only remembers that, as long as the event stands.
        and not (event_id in lapsed and entry["lapsed"])
    ]
    if not back or this.hosts[host]["put_back_failures"] >= MAX_PUT_BACK_FAILURES:
        return None
    events = [claimed[event_id]["event"] for event_id in back]
    lapsed = [event_id for event_id in back if event_id in lapsed]
    return _new_order("put_back", events, seconds=PUT_BACK_SECONDS, lapsed=lapsed)


def _is_given_up(this: Pass, host: str, entry: Json) -> bool:
    """Whether the event, or another one that the host waits for, is not gone in time, or the host does not answer."""
    event_id = same_id(entry["event"]["event_id"])
    if event_id in this.events:
        until = this.events[event_id]["timeout_at"]
    else:
        # Of an earlier run. If it still stands, no host has shown it to this run.
        started = timestamp(this.run["started"])
        begin = max(started, timestamp(entry["event"]["not_before"] or ""))
        timeout = this.hosts[host]["settings"].get("gone_timeout", GONE_TIMEOUT)
        until = min(begin + timeout, started + LONGEST_WAIT)
    if this.now <= until:
        return False
    events = (this.given.hosts[host]["observation"] or {}).get("events") or []
    waits_for_others = any(event["affects_me"] and this.has_timed_out(same_id(event["event_id"])) for event in events)
    return event_id in this.announced or waits_for_others or this.cannot_be_asked(host)


def _new_order(order: str, events: t.Sequence[Json], **more: t.Any) -> Json:
    return {"order": order, "events": [dict(event) for event in events], **more}


# ---- which hosts begin


def _limit_batch(this: Pass, orders: dict[str, Json]) -> None:
    """Take the order from hosts that are to begin later, because of graceful_serial or of others with less notice."""
    ready = [host for host, order in orders.items() if order["order"] == "ready"]
    new = [host for host in ready if this.is_new(host)]
    begun = [host for host in ready if host not in new]
    busy = [host for host in begun if this.state_of(host) in BUSY]
    # A host that failed or cannot be asked does not stop the others: the event is held anyway, and Azure acts in the
    # end.
    stuck = [host for host in new if this.cannot_be_asked(host) or this.state_of(host) == "failed"]
    able = [host for host in new if host not in stuck]
    if any(orders[host]["urgent"] for host in (*able, *busy)):
        allowed = [host for host in new if orders[host]["urgent"]]
    else:
        # The batch under way has to be ready first.
        allowed = [] if busy else [*able, *stuck][: _batch_size(this.options["serial"], len(ready), len(begun))]
    for host in set(new).difference(allowed):
        del orders[host]


def _batch_size(serial: t.Sequence[str], hosts: int, begun: int) -> int:
    """The size of the next batch. The last size counts for all further ones."""
    sizes = [max(1, math.floor(hosts * int(text[:-1]) / 100)) if text.endswith("%") else int(text) for text in serial]
    for size in sizes[:-1]:
        if begun < size:
            return size
        begun -= size
    return sizes[-1]


# ---- which hosts take part


def _involved(this: Pass, orders: t.Collection[str]) -> list[str]:
    hosts = {*orders, *this.run["involved"]}
    hosts.update(host for entry in this.actionable() for host in entry["hosts"])
    if any(event["entry"]["unknown_names"] for event in this.announced.values()):
        # A name that no host has may be that of a host that could not be asked.
        hosts.update(host for host in this.hosts if this.cannot_be_asked(host) and host not in this.run["names"])
    return sorted(host for host in hosts if host in this.given.hosts and not this.is_inactive(host))


def _hosts_to_add(this: Pass) -> list[str]:
    """Hosts that take no part, and that an event names now or may name."""
    if not this.can_add_hosts():
        return []
    hosts = {host for entry in this.actionable() for host in entry["hosts"]}
    unknown = _unknown_names(this)
    if unknown:
        this.run["ask_all_reason"] = (
            f"None of the hosts that were asked has the Azure name {quoted_list(unknown)}: all hosts are asked."
        )
        hosts.update(this.given.not_asked)
    return sorted(filter(this.is_inactive, hosts))


def _unknown_names(this: Pass) -> list[str]:
    """Names in events that none of the hosts has that were asked, where some were not asked."""
    if not this.given.not_asked:
        return []
    asked = {same_name(name) for host, name in this.names.items() if host not in this.given.not_asked}
    names = this.options["event"]["resources"] if this.options["event"] else []
    unknown = [name for name in names if same_name(name) not in asked]
    return unknown + [name for entry in this.actionable() for name in entry["unknown_names"]]


# ---- how long they take


def _set_waits(this: Pass, orders: dict[str, Json]) -> None:
    """Let hosts wait for a change in their call, unless another host waits for the next pass."""
    slice_seconds = _slice_seconds(this)
    active = [host for host, order in orders.items() if order["order"] not in ("look", "ready")]
    active += [host for host, order in orders.items() if order["order"] == "ready" and this.state_of(host) != "ready"]
    plans_again = this.plans_again()
    for host, order in orders.items():
        may_wait = host in active if active else not plans_again
        order["wait"] = slice_seconds if may_wait and order["order"] != "release" else 0.0
        if order["order"] == "ready" and host not in active and active:
            # It is ready already, and verifies that again while it waits for the others.
            order["wait"] = min(SHORT_CALL, slice_seconds)


def _slice_seconds(this: Pass) -> float:
    """Where there are fewer forks than hosts, they are called one after the other within one slice."""
    rounds = math.ceil(max(1, len(this.run["involved"])) / max(1, this.options["forks"]))
    seconds: float = max(1.0, this.options["wait_round"] / rounds)
    # Hosts that are added are not kept waiting.
    return min(SHORT_CALL, seconds) if this.to_add else seconds
