# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run prints while it is under way: the plan, what changed in a pass, and what is stuck and why. Pure."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ..module_utils._document import STARTED, same_id
from ..module_utils._policy import action_of
from ..module_utils._text import clean, duration, is_or_are, listed, quoted, quoted_list, sentence
from ._next_tasks import APPROVE, CONFIRM, FINISH, NOTHING
from ._observed import new_event
from ._orders import MAX_PUT_BACK_FAILURES
from ._outcomes import concerns, events_of, has_acted, has_mark, was_caught
from ._pass import event_title

Json = dict[str, t.Any]
HOST_STATES = {
    "ready": "ready",
    "failed": "FAILED",
    "waiting": "ready",
    "put_back": "back in service",
    "held_by_other_run": "handled by another run",
    "gone": "its event is gone",
}
NEXT = {
    APPROVE: "approve the event, wait until it is over, and put the hosts back",
    CONFIRM: "ask a person, and verify again that all hosts are ready",
    FINISH: "write the report",
    NOTHING: "look at all hosts again",
}
NEXT_BY_ORDER = {
    "ready": "drain the hosts, save what may be lost, and verify it",
    "put_back": "wait until the event is over, and put the hosts back",
    "release": "release the claims, for another run",
}


def planned(run: Json) -> list[str]:
    """The plan: each event, what is begun now, and what speaks against approving it."""
    head, *more = run["summary"]
    lines = [head]
    for event_id, event in run["events"].items():
        entry = event["entry"]
        lines.append(f"{quoted(entry['event_id'])}: {entry['reason']}")
        begun = [host for host in entry["drain"] if _is_drained_for(run["orders"].get(host), event_id)]
        if begun:
            lines.append(f"  drain now: {listed(begun)}")
        if run["options"]["check_mode"]:
            steps = {host: run["hosts"][host]["settings"].get("takes") for host in begun}
            lines += [f"    {clean(host, 80)}: {text}" for host, text in steps.items() if text]
        if entry["coupled"]:
            lines.append(f"  {_coupled(entry['coupled'])}")
        if entry["holds"] and not event["approved"] and entry["event_status"] != STARTED:
            lines.append(f"  not approved: {'; '.join(entry['holds'])}")
        if entry["mistaken"] and entry["drain"] and not begun:
            lines.append("  nothing is begun until this is corrected")
    return [*lines, *more]


def _is_drained_for(order: Json | None, event_id: str) -> bool:
    events = order["events"] if order and order.get("drain") else []
    return event_id in [same_id(event["event_id"]) for event in events]


def messages(before: Json, run: Json, now: float) -> list[str]:
    """What changed in this pass, each line with its time. What is printed is noted in the run."""
    at = datetime.fromtimestamp(now, timezone.utc).strftime("%H:%M:%S")
    lines = []
    if run["ask_all_reason"] and not before["ask_all_reason"]:
        lines.append(run["ask_all_reason"])
    for event_id, event in run["events"].items():
        known = before["events"].get(event_id) or new_event(now)
        title, state, last = event_title(event["entry"]), _event_state(run, event), event["printed"]
        if event["approval_error"] != known["approval_error"] and not event["is_refused"]:
            lines.append(f"{title}: {sentence(event['approval_error'])}")
        if event["approved"] and not known["approved"] and state != _approved(run, event):
            # One pass may see more than one change.
            lines.append(f"{title}: {_approved(run, event)}")
        # While a step is tried again nothing holds the event for a moment: that is not printed.
        is_tried_again = last[0] == title and last[1].startswith("HELD") and state == _action(event)
        if [title, state] != last and not is_tried_again:
            lines.append(_event_line(run, event))
            event["printed"] = [title, state]
    for host, known in run["hosts"].items():
        state = _host_state(run, host)
        if state and state != known["printed"]:
            lines.append(f"{clean(host, 80)}: {state}{_next_try(known)}")
            known["printed"] = state
    return [f"{at} {line}" for line in lines]


def status(run: Json) -> list[str]:
    """What is announced, being done and stuck, so that the end of the output shows the current state."""
    lines = []
    for event in run["events"].values():
        if event["gone"]:
            continue
        lines.append(_event_line(run, event))
        entry = event["entry"]
        if not event["approved"] and entry["event_status"] != STARTED:
            reports = {host: run["hosts"][host]["report"] for host in entry["hosts"] if host in run["hosts"]}
            ready = [host for host, report in reports.items() if report and report["state"] == "ready"]
            orders = {host: run["orders"][host]["order"] for host in entry["hosts"] if host in run["orders"]}
            busy = [host for host, order in orders.items() if order in ("look", "ready") and host not in ready]
            if ready:
                lines.append(f"  ready: {listed(ready)}")
            if busy:
                lines.append(f"  not ready yet: {listed(busy)}")
    return lines


def next_work(run: Json) -> str:
    """What the next pass does, for the name of its task."""
    if run["next"] in NEXT:
        return NEXT[run["next"]]
    orders = {order["order"] for order in run["orders"].values()}
    return next((text for order, text in NEXT_BY_ORDER.items() if order in orders), "look at the hosts again")


# ---- an event


def _event_line(run: Json, event: Json) -> str:
    """With the time that is left, which is not compared: it changes from pass to pass."""
    entry = event["entry"]
    is_late = event["gone"] or event["approved"] or entry["event_status"] == STARTED
    when = "" if is_late or entry["seconds_left"] is None else f", in {duration(entry['seconds_left'])}"
    return f"{event_title(entry)}{when}: {_event_state(run, event)}"


def _event_state(run: Json, event: Json) -> str:
    entry = event["entry"]
    if event["gone"]:
        return "it is over."
    if entry["event_status"] == STARTED:
        return "Azure has started it."
    if event["approved"]:
        return _approved(run, event)
    if entry["wait_until"]:
        return sentence(entry["deferral"])
    if event["holds"]:
        return f"HELD, not approved, because {sentence(*event['holds'])}"
    return _action(event)


def _action(event: Json) -> str:
    return f"{action_of(event['entry']['action']).message}."


def _approved(run: Json, event: Json) -> str:
    return f"approved by {clean(event['approved_by'], 80)} at {event['approved']}{waits_with(run, event)}."


def waits_with(run: Json, event: Json) -> str:
    """Azure deletes VMs together: an approval alone does not start that."""
    others = [run["events"][same_id(event_id)] for event_id in event["entry"]["coupled"]]
    not_approved = [other["entry"]["event_id"] for other in others if not other["approved"]]
    return f"; {_coupled(not_approved)}" if not_approved else ""


def _coupled(others: t.Sequence[str]) -> str:
    return f"Azure starts it when {quoted_list(others)} {is_or_are(others)} approved, too"


# ---- a host


def _host_state(run: Json, host: str) -> str:
    state = run["hosts"][host]
    if state["last_state"] and not state["reachable"]:
        return "cannot be reached now; it is tried again"
    report = state["report"]
    if report is None:
        return f"cannot be asked: {state['error']}" if state["error"] and state["reachable"] else ""
    if report["order"] == "ready" and report["state"] != "ready" and _is_stale(run, host, report["state"]):
        return ""
    if report["state"] == "released":
        return "this run does nothing more for it; another run can take over"
    if report["state"] == "put_back" and (caught := was_caught(run, host)):
        return caught
    step = "being put back" if report["order"] == "put_back" else "draining"
    word = {**HOST_STATES, "next": step, "working": step}.get(report["state"], "")
    tries = f" (attempt {report['attempts']})" if report["attempts"] > 1 else ""
    return f"{word}{tries}: {sentence(report['message'])}" if word and report["message"] else word


def _is_stale(run: Json, host: str, state: str) -> bool:
    """Whether Azure has started what the host was to be ready for, or the host is ready and verifies that again."""
    events = [event for event in events_of(run, host) if concerns(event, host) and not has_acted(event)]
    return not events or (state != "failed" and all(has_mark(run, event, host, "ready") for event in events))


def _next_try(state: Json) -> str:
    """Not part of what is compared: it counts down."""
    report = state["report"]
    is_last = state["put_back_failures"] >= MAX_PUT_BACK_FAILURES
    if not report or report["state"] != "failed" or not report["next_try"] or is_last:
        return ""
    return f" It is tried again in {duration(report['next_try'])}."
