# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Updates the state of the run from the reports of the hosts, and makes a new plan. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._document import STARTED, same_id, same_name
from ..module_utils._text import clean, iso, quoted
from ._pass import BUSY, Pass, drained_steps, record_events, timestamp
from ._plan import plan
from ._settings import NO_SUCH_VARIABLE

Json = dict[str, t.Any]

# Seconds of notice where Azure does not say when it starts an event.
UNKNOWN_NOTICE = 300
# A run does not wait for an event for longer, whatever the notice: the next run continues.
LONGEST_WAIT = 86400
GONE_TIMEOUT = 1800
# Entries of a host's timeline, more than its record has. Whatever a host reports, the run does not grow without end.
MOST_MARKS = 1000
# The settings of a host that the plan depends on.
PLAN_SETTINGS = ("policy", "min_available", "window", "drain_budget")


def new_host() -> Json:
    return {
        # From its last answer. `report` has the report of this pass only.
        "reachable": False,
        "error": None,
        "document": "",
        "record": None,
        "record_error": None,
        "report": None,
        "settings": {},
        "mistakes": [],
        "interruptions": [],
        # The host's clock, and how far it is ahead of the controller's, in seconds.
        "host_time": 0.0,
        "clock_ahead": 0.0,
        # State and message of its last report; no state if it has not answered yet.
        "last_state": "",
        "last_message": "",
        # Why it was not ready when it was last asked to be.
        "not_ready": "",
        # Ids of the events that concern it, and of those after which this run has put it back.
        "events": [],
        "put_back": [],
        "put_back_failures": 0,
        "timeline": [],
        # What was printed about it last.
        "printed": "",
    }


def new_event(now: float) -> Json:
    return {
        "noticed": iso(now),
        "started": None,
        "gone": None,
        "approved": None,
        "approved_by": None,
        # Until when the run waits for it to be gone.
        "timeout_at": None,
        # The run that handles it, if that is not this one.
        "held_by": "",
        # Why it is not approved: all reasons, and those without work that is under way.
        "all_holds": [],
        "holds": [],
        # Whether a person has agreed. None: nobody was asked.
        "confirmed": None,
        # Hosts that could not approve it, why, and whether the service has refused it, so that no other host tries.
        "tried_approvers": [],
        "approval_error": "",
        "is_refused": False,
        # When a request was sent whose answer is not known.
        "approval_sent": 0.0,
        # What was printed about it last: title and state.
        "printed": ["", ""],
    }


# ---- hosts


def note_hosts(this: Pass) -> None:
    for name, result in this.given.hosts.items():
        state = this.hosts.setdefault(name, new_host())
        observation = result["observation"] or {}
        state.update(reachable=result["reachable"], error=result["error"] or observation.get("error"))
        state.update({key: result[key] for key in ("settings", "interruptions") if result[key]})
        # After the first pass, what is registered may hide a misspelled name.
        misspelled = [text for text in state["mistakes"] if NO_SUCH_VARIABLE in text]
        state["mistakes"] = list(dict.fromkeys([*misspelled, *result["mistakes"]]))
        if observation:
            state.update({key: observation[key] for key in ("record", "record_error", "document")})
            state["host_time"] = observation["time"] or 0.0
            if observation["time"] and this.is_current(name):
                state["clock_ahead"] = observation["time"] - result["at"]
            _add_marks(state, observation["record"])
        azure_name = state["settings"].get("vm_name") or observation.get("vm_name")
        if azure_name:
            this.run["names"][name] = azure_name
        report = result["report"] if this.is_current(name) else None
        state["report"] = {**report, "order": result["order"]} if report else None
        if report:
            _note_report(state, result)
    this.names = _azure_names(this)


def _note_report(state: Json, result: Json) -> None:
    report = result["report"]
    if report["state"] != "released" or not state["put_back_failures"]:
        # Otherwise the reason why it could not be put back is kept.
        state.update(last_state=report["state"], last_message=report["message"])
    _add_marks(state, report["closed"])
    if report["state"] == "put_back" and report["closed"]:
        # The record may also have events of another run.
        closed = set(map(same_id, result["events"])).intersection(report["closed"]["events"])
        state["put_back"] = sorted(closed.union(state["put_back"]))
    if report["state"] in ("ready", "put_back"):
        state["put_back_failures"] = 0
        if report["state"] == "ready":
            # After the host was put back, the report still needs the reason.
            state["not_ready"] = ""
    elif result["order"] == "put_back" and report["state"] == "failed" and report["tried"]:
        state["put_back_failures"] += 1
    elif result["order"] == "ready" and (
        report["state"] == "failed" or (report["state"] in BUSY and not state["not_ready"])
    ):
        # A failure is kept while the host is tried again.
        state["not_ready"] = report["message"]


def _add_marks(state: Json, record: Json | None) -> None:
    known = {frozenset(mark.items()) for mark in state["timeline"]}
    new = [mark for mark in (record["timeline"] if record else []) if frozenset(mark.items()) not in known]
    state["timeline"] = [*state["timeline"], *new][-MOST_MARKS:]


def _azure_names(this: Pass) -> dict[str, str]:
    """As reported in this run, by the inventory, or in earlier runs unless another host has the name now."""
    reported = {**this.given.inventory_names, **this.run["names"]}
    renamed = {host for host, name in reported.items() if _is_renamed(this, host, name)}
    taken = {same_name(name) for host, name in reported.items() if host not in renamed}
    earlier = {host: name for host, name in this.run["earlier_names"].items() if same_name(name) not in taken}
    not_confirmed = {same_name(name) for host, name in earlier.items() if host not in reported}
    this.run["doubtful_names"] = sorted(host for host in renamed if same_name(reported[host]) in not_confirmed)
    return {**earlier, **reported}


def _is_renamed(this: Pass, host: str, name: str) -> bool:
    """Whether a host reports another name than in earlier runs, which the user has not written.

    It does not take the name of a host that cannot be asked."""
    is_written = host in this.given.inventory_names or this.hosts[host]["settings"].get("vm_name")
    return not is_written and same_name(this.run["earlier_names"].get(host, name)) != same_name(name)


# ---- events


def note_events(this: Pass) -> None:
    planned = _plan(this)
    _note_approvals(this)
    for entry in planned:
        event_id = same_id(entry["event_id"])
        this.announced[event_id] = _announced_event(this, event_id, entry)
    for event_id, event in this.events.items():
        if event_id not in this.announced and _would_be_seen(this, event):
            event["gone"] = event["gone"] or iso(this.now)
    for host in this.hosts:
        _note_record(this, host)
    for event_id, event in this.announced.items():
        event["held_by"] = _holding_run(this, event_id)


def _plan(this: Pass) -> list[Json]:
    """The plan's entry for each event that is announced now."""
    observations: Json = {host: {"reachable": False, "vm_name": name} for host, name in this.names.items()}
    for host in this.given.not_asked:
        # If an event needs something of it, it is added to the run, and has to report itself.
        observations[host] = {"reachable": True, "vm_name": this.names.get(host)}
    settings = {}
    for host, result in this.given.hosts.items():
        state = this.hosts[host]
        observations[host] = {
            "reachable": state["reachable"],
            "vm_name": this.names.get(host),
            # What a host saw before it became inactive is out of date.
            "events": (result["observation"] or {}).get("events") if this.is_current(host) else None,
            "error": state["error"] if state["reachable"] else None,
            "drained": bool(state["record_error"] or drained_steps(state["record"])),
            "mistakes": state["mistakes"],
            "drain_not_set": bool(state["settings"].get("drain_not_set")),
            "claimed_for": {
                event_id: state["host_time"] - entry["noticed"]
                for event_id, entry in record_events(state["record"]).items()
                if entry["noticed"]
            },
        }
        settings[host] = {key: value for key, value in state["settings"].items() if key in PLAN_SETTINGS}
    targeted = [*this.given.hosts, *this.given.not_asked]
    found = plan(observations, this.given.groups, targeted, settings, now=iso(this.now))
    this.run.update(summary=found["summary"], missing_groups=found["missing_groups"])
    return t.cast("list[Json]", found["events"])


def _announced_event(this: Pass, event_id: str, entry: Json) -> Json:
    event: Json = this.events.setdefault(event_id, new_event(this.now))
    hosts = [this.hosts[host] for host in entry["hosts"] if host in this.hosts]
    notice = entry["seconds_left"]
    timeout = max((host["settings"].get("gone_timeout", GONE_TIMEOUT) for host in hosts), default=GONE_TIMEOUT)
    until = this.now + (UNKNOWN_NOTICE if notice is None else notice) + timeout
    until = min(until, timestamp(event["noticed"]) + LONGEST_WAIT)
    if not notice and event["timeout_at"]:
        # NotBefore is not known, or it is over.
        until = min(event["timeout_at"], until)
    # A host that is put back if nothing follows the event is waited for until then, and for one pass more.
    until = max(until, timestamp(event["noticed"]) + entry["expires_after"] + 60)
    event.update(entry=entry, timeout_at=until, gone=None)
    if entry["event_status"] == STARTED:
        event["started"] = event["started"] or iso(this.now)
    for host in hosts:
        if event_id not in host["events"]:
            host["events"].append(event_id)
    return event


def _would_be_seen(this: Pass, event: Json) -> bool:
    """Whether a host that the event concerns could read its document in this pass: only then is the event gone."""
    hosts = [host for host in event["entry"]["hosts"] if host in this.given.hosts] or this.given.hosts
    results = [this.given.hosts[host] for host in hosts if this.is_current(host)]
    return any(result["reachable"] and (result["observation"] or {}).get("events") is not None for result in results)


def _note_record(this: Pass, host: str) -> None:
    """From the host's record: events that an earlier run left, and when they started, ended and were approved."""
    state = this.hosts[host]
    closed = (state["report"] or {}).get("closed")
    for event_id, entry in {**record_events(state["record"]), **record_events(closed)}.items():
        if event_id not in state["events"]:
            state["events"].append(event_id)
        event = this.events.get(event_id)
        if event is None or host not in event["entry"]["hosts"]:
            continue
        if entry["started"]:
            event["started"] = min(filter(None, [event["started"], iso(entry["started"])]))
        if entry["gone"] and event["gone"]:
            event["gone"] = min(event["gone"], iso(entry["gone"]))
        if entry["approval"] and not event["approved"] and _was_approved(entry, event):
            event.update(approved=iso(entry["approval"]["at"]), approved_by=host)


def _was_approved(entry: Json, event: Json) -> bool:
    """Confirmed, or Azure has started the event before its time: then a request whose answer was lost has arrived."""
    if entry["approval"]["status"] in ("posting", "unconfirmed"):
        not_before = entry["event"]["not_before"]
        return bool(event["started"] and not_before and event["started"] < not_before)
    return bool(entry["approval"]["status"] == "approved")


def _note_approvals(this: Pass) -> None:
    """What came of the approvals and questions that the last pass asked for."""
    for result in this.given.approvals:
        event, host, report = this.events[same_id(result["event_id"])], result["host"], result["report"]
        if report is None:
            # A host that was lost meanwhile may have sent the request.
            state = "failed" if result["reachable"] else "unconfirmed"
            report = {"state": state, "message": result["error"], "final": False}
        if report["state"] == "approved":
            approval = report["approval"] or {"at": this.now}
            event.update(approved=iso(approval["at"]), approved_by=host, tried_approvers=[])
        elif report["state"] in ("unconfirmed", "unexpected", "failed", "held_by_other_run"):
            event["tried_approvers"].append(host)
            problem = f"{clean(host, 80)} could not approve it"
            if report["state"] == "unconfirmed":
                event["approval_sent"] = this.now
                problem = f"it is not known whether {clean(host, 80)} has approved it"
            problem = f"{problem}: {report['message'] or report['state']}"
            event.update(approval_error=problem, is_refused=report["final"])
    for event_id, is_confirmed in this.given.confirmations.items():
        this.events[same_id(event_id)]["confirmed"] = is_confirmed
        this.run["confirmed_at"] = this.now


def _holding_run(this: Pass, event_id: str) -> str:
    """Which other run handles the event. Of two runs at once, the one with the first claimed host keeps it."""
    for host in this.announced[event_id]["entry"]["hosts"]:
        for claimed_id, entry, may_act in this.claims(host):
            if claimed_id == event_id:
                by = quoted(entry["claim"]["run_name"])
                return "" if may_act else f"the run {by} is handling it on {clean(host, 80)}"
    return ""
