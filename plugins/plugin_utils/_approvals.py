# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which events may be approved now. Nothing is, unless every affected host has reported ready for that very event.

The invariant is decided in this file and nowhere else. An event is approved only if nothing holds it:
the plan (settings, names, hosts that cannot be asked, capacity, window), the run (another run, a request that was sent
already, a person's answer), or a host that is not ready. What is missing or not understood holds the event, too.
"""

from __future__ import annotations

import typing as t

from ..module_utils._document import EVENT_FIELDS, STARTED, same_id
from ..module_utils._policy import action_of
from ..module_utils._text import clean, listed
from ..module_utils._times import UNCONFIRMED_FOR
from ._pass import BUSY, Pass, is_actionable, record_events

Json = dict[str, t.Any]
# What each host reported about an event: whether it is ready for it, and a reason.
Reports = t.Mapping[str, t.Mapping[str, t.Any]]

# How old a report that a host is ready may be, and a second more for each host: they do not all report at once.
MAX_REPORT_AGE = 15
NOT_BEGUN = ("", "looked", "released")


def decide_approvals(this: Pass) -> None:
    """Set what is approved before the next pass, what a person is asked about, and why every other event is held."""
    this.run.update(approve=[], confirm=[])
    for event_id, event in this.announced.items():
        entry = event["entry"]
        entry["holds"] += _holds_of_run(this, event_id)
        reports = {host: _readiness(this, host, event_id) for host in entry["hosts"] if host in this.hosts}
        if is_ignored(entry):
            if not is_actionable(entry) and entry["event_status"] != STARTED:
                # A setting that cannot be used may be the one that would have asked for more.
                event["holds"] = entry["mistakes"]
        elif reasons := why_held(entry, reports):
            event.update(all_holds=reasons, holds=_lasting_holds(this, entry, reasons, reports))
        else:
            _approve_or_ask(this, event)


# ---- is a host ready?


def _readiness(this: Pass, host: str, event_id: str) -> Json:
    """Ready only by a report of this very pass, for an order that named the event, and if its record agrees."""
    state, result = this.hosts[host], this.given.hosts[host]
    report, age = state["report"], this.now - result["at"]
    if not state["reachable"]:
        before = f"; before that, {state['last_message']}" if state["last_state"] == "failed" else ""
        reason = f"it cannot be reached{before}"
    elif report is None:
        reason = state["error"] or "it has not reported yet"
    elif event_id in report["held"]:
        reason = f"{report['held'][event_id]['run_name'] or 'another run'} is handling it"
    elif report["state"] in NOT_BEGUN:
        reason = "it has not begun to get ready"
    elif report["state"] != "ready":
        reason = report["message"] or report["state"]
    elif report["order"] != "ready" or event_id not in map(same_id, result["events"]):
        reason = "it is ready only for another event"
    elif age > _max_report_age(this):
        reason = f"its report is {age:.0f} s old; it is verified again"
    elif not _is_recorded_as_ready(this, result, event_id):
        reason = "its record has no verification by this run; the host is verified again"
    else:
        return {"ready": True, "reason": report["message"]}
    return {"ready": False, "reason": reason}


def _is_recorded_as_ready(this: Pass, result: Json, event_id: str) -> bool:
    """Whether the record that came with the report has a verification of this run."""
    entry = record_events(result["observation"]["record"]).get(event_id)
    return bool(entry and entry["ready"] and this.is_ours(entry))


def _max_report_age(this: Pass) -> int:
    return MAX_REPORT_AGE + len(this.run["involved"])


# ---- what else holds an event?


def _holds_of_run(this: Pass, event_id: str) -> list[str]:
    event = this.announced[event_id]
    missing = [host for host in event["entry"]["hosts"] if this.is_inactive(host)]
    holds = [event["held_by"]]
    if missing and not this.can_add_hosts():
        holds.append(f"{listed(missing)} cannot be added to this run any more: start another run")
    if event["is_refused"]:
        holds.append(event["approval_error"])
    if event["approved"]:
        holds.append("it is approved already")
    if event["confirmed"] is False:
        holds.append("Nobody confirmed the approval.")
    if this.now - _last_request(this, event_id) < UNCONFIRMED_FOR:
        holds.append(
            f"an approval was sent and is not confirmed yet; it is not sent again within {UNCONFIRMED_FOR:g} s"
        )
    return [hold for hold in holds if hold]


def _last_request(this: Pass, event_id: str) -> float:
    """When the last request to approve the event was sent whose answer is not known; 0 if there is none."""
    event = this.announced[event_id]
    times = [event["approval_sent"]]
    # Only the records of hosts that the event concerns are believed.
    for host in filter(this.hosts.__contains__, event["entry"]["hosts"]):
        state = this.hosts[host]
        approval = (record_events(state["record"]).get(event_id) or {}).get("approval")
        if approval and approval["status"] in ("posting", "unconfirmed"):
            times.append(this.now - max(0.0, state["host_time"] - approval["at"]))
    return float(max(times))


# ---- may an event be approved?


def is_ignored(event: Json) -> bool:
    """Whether the event is neither approved nor held. One without affected hosts is held."""
    wanted = (event.get("actions") or {}).values()
    is_unwanted = bool(wanted) and not any(action_of(name).approves for name in wanted)
    return is_unwanted or event["event_status"] == STARTED


def why_held(event: Json, reports: Reports) -> list[str]:
    """Why the event is not approved now. What is missing in the plan or has the wrong type is a reason, too."""
    holds, hosts = event.get("holds"), event.get("hosts")
    reasons = list(holds) if isinstance(holds, list) else ["the plan does not allow its approval"]
    if event.get("approvable") is not True and not reasons:
        reasons.append("the policy does not allow it to be approved")
    if not hosts:
        return [*reasons, "no host of the inventory is known to be affected"]
    reasons.extend(why for host in hosts if (why := _why_not_ready(host, reports)))
    if not event.get("approvers"):
        reasons.append("no affected host can be reached to approve it")
    return reasons


def _why_not_ready(host: str, reports: Reports) -> str:
    """Empty if it is ready, and only then."""
    report = reports.get(host)
    if not report:
        return f"{clean(host)} has not reported that it is ready"
    if report.get("ready") is not True:
        return f"{clean(host)} is not ready: {clean(report.get('reason') or 'it gave no reason', 300)}"
    return ""


# ---- what follows


def _approve_or_ask(this: Pass, event: Json) -> None:
    """Nothing holds the event: it is approved, after a person has confirmed that if one of its hosts wants it."""
    entry = event["entry"]
    event.update(holds=[], all_holds=[])
    wants_confirmation = any(this.hosts[host]["settings"].get("confirm") for host in entry["hosts"])
    if wants_confirmation and event["confirmed"] is None:
        this.run["confirm"].append({key: entry[key] for key in ("event_id", "reason")})
        return
    if all(host in event["tried_approvers"] for host in entry["approvers"]):
        event["tried_approvers"] = []
    this.run["approve"].append(
        {
            "event": event_for_host(entry),
            "host": next(host for host in entry["approvers"] if host not in event["tried_approvers"]),
            # Checked again when it is sent: this run may be suspended meanwhile, and its clock with it.
            "reported": min(this.given.hosts[host]["at"] for host in entry["hosts"]),
            "max_age": _max_report_age(this),
        }
    )


def event_for_host(entry: Json) -> Json:
    """The event of a plan's entry, as a host that it names sees it."""
    return {**{name: entry.get(name) for name in EVENT_FIELDS}, "affects_me": True}


def _lasting_holds(this: Pass, entry: Json, reasons: t.Sequence[str], reports: Reports) -> list[str]:
    """The reasons without those that only say that work is under way, or that it was not begun for the others."""
    busy = [_why_not_ready(host, reports) for host in entry["hosts"] if _is_busy(this, host)]
    lasting = [reason for reason in reasons if reason not in (*busy, entry["deferral"])]
    idle = [host for host in entry["hosts"] if host in this.hosts and this.hosts[host]["last_state"] in NOT_BEGUN]
    not_begun = [_why_not_ready(host, reports) for host in idle]
    return [reason for reason in lasting if reason not in not_begun] or lasting


def _is_busy(this: Pass, host: str) -> bool:
    """Whether the host is getting ready, or about to, and nothing is wrong with it."""
    if host not in this.hosts or this.cannot_be_asked(host) or this.hosts[host]["mistakes"]:
        return False
    return this.state_of(host) in ("", "looked", *BUSY)
