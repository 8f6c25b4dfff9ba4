# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What became of each event and each host of a run, as the state of the run shows it. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._policy import action_of
from ..module_utils._text import clean, iso
from ._pass import needs_readiness
from ._plan import nothing_drained

Json = dict[str, t.Any]
IN_PROGRESS = "in progress"
NOT_READY = "NOT READY when Azure acted"
# Events after which a host does not come back. A recommendation does not affect the host: an eviction is another event.
NEVER_COME_BACK = {"preempt", "terminate"}
RECOMMENDATION = "spotrebalancerecommendation"


# ---- hosts


def events_of(run: Json, host: str) -> list[Json]:
    return [run["events"][event_id] for event_id in run["hosts"][host]["events"] if event_id in run["events"]]


def had_work(run: Json, host: str) -> bool:
    state = run["hosts"][host]
    return bool(state["put_back"] or state["timeline"] or any(concerns(e, host) for e in events_of(run, host)))


def concerns(event: Json, host: str) -> bool:
    """Whether the host has to be ready for the event."""
    return needs_readiness(event["entry"]["actions"].get(host))


def host_result(run: Json, host: str) -> tuple[str, str]:
    """The result in one word, and the reason if there is one."""
    state = run["hosts"][host]
    if run["options"]["check_mode"]:
        return "untouched", ""
    if not run["finished"]:
        return (IN_PROGRESS if state["timeline"] else "untouched"), ""
    entries = state["record"]["events"].values() if state["record"] else []
    if not state["reachable"]:
        types = {str(entry["event"]["event_type"]).lower() for entry in entries} - {RECOMMENDATION}
        if types and types <= NEVER_COME_BACK:
            return "gone", "as announced"
        return "unreachable", "it did not come back in time" if state["last_state"] else "it could not be reached"
    if state["record_error"]:
        return "failed", state["record_error"]
    if state["put_back_failures"]:
        return "failed", f"it could not be put back: {state['last_message']}"
    if any(entry["claim"]["run_id"] == run["run_id"] and not entry["lapsed"] for entry in entries):
        return (
            "left drained",
            "the event is still announced; start another run when it is over, and that run puts the host back",
        )
    return "restored" if state["put_back"] else "untouched", was_caught(run, host)


def was_caught(run: Json, host: str) -> str:
    """What to say of a host that was not ready when Azure acted; empty if it was."""
    if not any(_was_unprepared(run, event, host) for event in events_of(run, host)):
        return ""
    state = run["hosts"][host]
    checked = state["put_back"] and state["settings"].get("health")
    return f"{NOT_READY}; {'it is healthy now' if checked else 'its health was not checked'}"


def has_mark(run: Json, event: Json, host: str, what: str, until: str | None = None) -> bool:
    """Whether the host's timeline has it for this event, up to that time."""
    wanted = (what, event["entry"]["event_id"])
    state = run["hosts"].get(host)
    if state is None:
        return False
    # The marks have the time of the host, whose clock may be ahead.
    marks = [(mark, max(0.0, mark["at"] - max(0.0, state["clock_ahead"]))) for mark in state["timeline"]]
    return any((mark["what"], mark["event_id"]) == wanted and iso(at) <= (until or "9") for mark, at in marks)


# ---- events


def has_acted(event: Json) -> bool:
    """Whether Azure has started the event. One that is gone after NotBefore was short, and not observed as Started."""
    return bool(event["started"] or (event["gone"] and event["gone"] >= (event["entry"]["not_before"] or "9")))


def event_outcome(run: Json, event_id: str, results: t.Mapping[str, str]) -> tuple[str, list[str]]:
    """The outcome in one word, and the reasons if it is a bad one. `results` has the results of hosts that had work."""
    event = run["events"][event_id]
    entry, action = event["entry"], action_of(event["entry"]["action"])
    if run["options"]["check_mode"]:
        return "planned", list(event["holds"])
    put_back = [host for host in entry["hosts"] if host in run["hosts"] and event_id in run["hosts"][host]["put_back"]]
    if event["held_by"] and not put_back and not event["approved"]:
        return "held_by_other_run", [event["held_by"]]
    are_back = all(results.get(host) in ("restored", "gone") for host in entry["hosts"])
    if event["approved"]:
        return ("completed" if are_back and (event["gone"] or run["finished"]) else "approved"), []
    if event["holds"]:
        return "held", list(event["holds"])
    if entry["wait_until"] and not put_back:
        return "deferred", [entry["deferral"]]
    if entry["lapsed"] and put_back:
        return _drained(_not_drained(run, put_back))
    if action.drains and not action.approves:
        return _drained_only(run, event)
    if has_acted(event):
        return _started_by_azure(run, event, are_back)
    if event["gone"]:
        return "cancelled", []
    if are_back and run["finished"] and all(has_mark(run, event, host, "ready") for host in entry["hosts"]):
        # All were ready, and those that do not answer any more were to be taken away.
        return "completed", []
    if action.approves and run["finished"]:
        return "held", event["all_holds"] or [event["approval_error"] or "the run ended before it was approved"]
    return ("notified" if action.tells else "ignored"), []


def _started_by_azure(run: Json, event: Json, are_back: bool) -> tuple[str, list[str]]:
    """Nobody approved it. That is no success if a host was not ready."""
    unready = [host for host in event["entry"]["hosts"] if _was_unprepared(run, event, host)]
    if unready:
        text = "was not ready when Azure started it"
        return "held", [f"{clean(host, 80)} {text}: {_why_unready(run, host)}" for host in unready]
    return ("completed" if are_back and event["gone"] else "started"), []


def _was_unprepared(run: Json, event: Json, host: str) -> bool:
    """Whether Azure acted on a host that this run, or an earlier one, should have made ready and had not."""
    if event["approved"] or not has_acted(event) or not concerns(event, host):
        return False
    # An event that had started when it was noticed could not be prepared for, unless a run had begun with that.
    in_time = not event["started"] or event["noticed"] < event["started"] or has_mark(run, event, host, "claimed")
    return bool(in_time and not has_mark(run, event, host, "ready", event["started"]))


def _why_unready(run: Json, host: str) -> str:
    state = run["hosts"].get(host)
    if state is None:
        return "it is not part of this run"
    return str(state["not_ready"] or state["error"] or "it had not begun to get ready")


def _drained_only(run: Json, event: Json) -> tuple[str, list[str]]:
    """Where nothing is to be approved, nothing is held, but a host that was not ready is a failure."""
    if not run["finished"]:
        return "notified", []
    draining = [host for host, action in event["entry"]["actions"].items() if action_of(action).drains]
    unready = [host for host in draining if not has_mark(run, event, host, "ready", event["started"])]
    reasons = [f"{clean(host, 80)} is not ready: {_why_unready(run, host)}" for host in unready]
    return _drained(reasons + _not_drained(run, draining))


def _drained(problems: list[str]) -> tuple[str, list[str]]:
    return ("failed" if problems else "drained"), problems


def _not_drained(run: Json, hosts: t.Sequence[str]) -> list[str]:
    """Of hosts without drain steps. They may be gone now: their last settings count."""
    settings = {host: run["hosts"][host]["settings"] for host in hosts if host in run["hosts"]}
    return [nothing_drained(host) for host, values in settings.items() if values.get("drain_not_set")]
