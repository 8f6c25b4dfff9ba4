# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a run, and its recap: what became of every event and host, and why the run ended. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._document import EVENT_FIELDS, parse_time
from ..module_utils._text import clean, duration, iso, quoted, sentence
from ._drill import DRILL, margin
from ._outcomes import IN_PROGRESS, NOT_READY, event_outcome, events_of, had_work, host_result
from ._pass import drained_steps, event_title, record_events
from ._progress import waits_with
from ._report import BAD_RESULTS

Json = dict[str, t.Any]


def report(run: Json) -> Json:
    """The whole run. Every host and event that had work ends in exactly one result."""
    hosts = {host: _host_report(run, host) for host in sorted(run["hosts"]) if had_work(run, host)}
    results = {host: one["result"] for host, one in hosts.items()}
    events = [_event_report(run, event_id, results) for event_id in run["events"]]
    is_drill = bool(run["options"]["drill"])
    whole: Json = {
        "version": 2,
        "drill": is_drill,
        "run": {
            **{key: run[key] for key in ("run_id", "run_name", "started", "finished")},
            "check_mode": run["options"]["check_mode"],
        },
        "result": _result(run, hosts, events),
        "messages": [*([DRILL] if is_drill else []), *_recap(run, hosts, events)],
        "events": events,
        "hosts": hosts,
    }
    if is_drill:
        whole["announced"] = run["options"]["drill"]["announced"]
        whole["margin"] = margin(whole)
        if whole["result"] == "done" and not whole["margin"]["notices"]:
            # Azure would have acted before the hosts were ready: in a drill that is what one wants to know.
            whole["result"] = "failed"
    return whole


def failure_of(whole: Json, page: str = "") -> str:
    """The error message of a run that has ended; empty if it does not fail."""
    result = whole["result"]
    where = f"the recap above and the report ({page}) say why." if page else "the recap above says why."
    if whole["drill"] and result != "done":
        return f"The drill was not completed (result: {result}); {where}"
    if whole["run"]["check_mode"] and result == "failed":
        return f"The check has found something that has to be corrected; {where}"
    guide = "See 'When something is held' in docs/maintenance.md."
    held = f"At least one event was held (not approved); {where} {guide}"
    return {"held": held, "failed": f"The maintenance failed; {where} {guide}"}.get(result, "")


def last_occasions(whole: Json) -> list[str]:
    """The webhook occasions at the end of a run. None if it found nothing to do, or nothing to do yet."""
    if whole["result"] not in ("done", "held", "failed"):
        return []
    is_over = any(event["outcome"] in ("completed", "cancelled", "drained") for event in whole["events"])
    is_restored = is_over or any(host["result"] == "restored" for host in whole["hosts"].values())
    return [*(["restored"] if is_restored else []), *(["failed"] if whole["result"] == "failed" else []), "finished"]


# ---- a host


def _host_report(run: Json, host: str) -> Json:
    result, reason = host_result(run, host)
    ids = {event_id: event["entry"]["event_id"] for event_id, event in run["events"].items()}
    return {
        "vm_name": run["names"].get(host),
        "result": result,
        "reason": reason,
        "events": [ids.get(event_id, event_id) for event_id in run["hosts"][host]["events"]],
        "timeline": _timeline(run, host),
    }


def _timeline(run: Json, host: str) -> list[Json]:
    """In order; of what happened in one second, what was noticed comes first and what was approved last."""
    state, events = run["hosts"][host], events_of(run, host)
    marks = [_mark(event["noticed"], "noticed", event) for event in events]
    marks += [dict(mark, at=iso(mark["at"])) for mark in state["timeline"]]
    approved = [event for event in events if event["approved"] and host != event["approved_by"]]
    marks += [_mark(event["approved"], "approved", event) for event in approved]
    for gap in state["interruptions"]:
        marks += [_mark(gap["lost"], "down"), *([_mark(gap["back"], "back")] if gap["back"] else [])]
    return sorted(marks, key=lambda mark: str(mark["at"]))


def _mark(at: str, what: str, event: Json | None = None) -> Json:
    return {"at": at, "what": what, "detail": "", "event_id": event["entry"]["event_id"] if event else ""}


# ---- an event


def _event_report(run: Json, event_id: str, results: t.Mapping[str, str]) -> Json:
    event = run["events"][event_id]
    entry = event["entry"]
    outcome, holds = event_outcome(run, event_id, results)
    fields = {key: entry.get(key) for key in (*EVENT_FIELDS, "action", "reason", "hosts") if key != "affects_me"}
    times = {key: event[key] for key in ("noticed", "approved", "approved_by", "started", "gone")}
    return {**fields, **times, "outcome": outcome, "holds": holds, "message": _event_message(run, event, outcome)}


def _event_message(run: Json, event: Json, outcome: str) -> str:
    """What became of it, after the fact: `completed: Reboot of web1 and web2, approved by web1, took 4 min 2 s`."""
    entry = event["entry"]
    if outcome in ("planned", "notified", "ignored"):
        word = "would be held" if outcome == "planned" and event["holds"] else outcome
        return f"{word}: {entry['reason']}"
    parts = [f"{'handled by another run' if outcome == 'held_by_other_run' else outcome}: {event_title(entry)}"]
    if event["approved_by"]:
        parts.append(f"approved by {clean(event['approved_by'], 80)}")
    if outcome == "drained" and entry["lapsed"]:
        parts.append(f"put back because nothing followed within {duration(entry['expires_after'])}")
    acted = event["approved"] or event["started"]
    begin, end = parse_time(acted or event["noticed"]), parse_time(event["gone"] or "")
    if begin and end and outcome in ("completed", "cancelled", "held", "drained"):
        seconds = duration((end - begin).total_seconds())
        parts.append(f"took {seconds}" if acted else f"this run saw it for {seconds}")
    return ", ".join(parts) + (waits_with(run, event) if outcome == "approved" else "") + "."


# ---- all together


def _result(run: Json, hosts: t.Mapping[str, Json], events: t.Sequence[Json]) -> str:
    results = {host["result"] for host in hosts.values()}
    outcomes = {event["outcome"] for event in events}
    if run["options"]["check_mode"]:
        wrong = _mistakes(run) or run["options"]["webhook_mistake"] or _record_errors(run)
        wrong = wrong or any(state["error"] or not state["reachable"] for state in run["hosts"].values())
        return "failed" if wrong else "planned" if events else "nothing"
    if results & set(BAD_RESULTS) or "failed" in outcomes or _record_errors(run):
        return "failed"
    if "held" in outcomes:
        return "held"
    if not run["finished"]:
        return IN_PROGRESS
    if _not_asked(run):
        # Nobody knows whether something is announced to these hosts.
        return "failed"
    if results - {"untouched"}:
        return "done"
    return "deferred" if "deferred" in outcomes else "done" if outcomes & {"completed", "drained"} else "nothing"


def _record_errors(run: Json) -> dict[str, str]:
    return {host: state["record_error"] for host, state in sorted(run["hosts"].items()) if state["record_error"]}


def _not_asked(run: Json) -> dict[str, str]:
    """Hosts that could not be asked what Azure has announced, and why."""
    return {
        host: state["error"] or "it could not be reached"
        for host, state in sorted(run["hosts"].items())
        if (state["error"] or not state["reachable"]) and not state["put_back"] and not state["events"]
    }


def _mistakes(run: Json) -> list[str]:
    hosts = sorted(run["hosts"].items())
    return [f"{clean(host, 80)}: {mistake}" for host, state in hosts for mistake in state["mistakes"]]


def _recap(run: Json, hosts: t.Mapping[str, Json], events: t.Sequence[Json]) -> list[str]:
    others, not_asked, record_errors = _claimed_by_others(run), _not_asked(run), _record_errors(run)
    is_quiet = not (events or hosts or others or not_asked or record_errors)
    lines = ["Nothing is announced."] if is_quiet else []
    for event in events:
        lines += [event["message"], *(f"  because {sentence(reason)}" for reason in event["holds"])]
    results = {host: _host_line(one) for host, one in hosts.items()}
    results = {host: line for host, line in results.items() if host not in others or line != "untouched."}
    unknown = {
        host: f"it is not known what Azure has announced to this host ({why})" for host, why in not_asked.items()
    }
    for by_host in (results, others, unknown if run["finished"] else {}, record_errors):
        lines += [f"{clean(host, 80)}: {text}" for host, text in by_host.items()]
    lines += [mistake for mistake in _mistakes(run) if not any(mistake in line for line in lines)]
    lines += run["missing_groups"]
    if run["options"]["webhook_mistake"]:
        lines.append(f"No webhooks are sent: {run['options']['webhook_mistake']}")
    if run["finished"]:
        lines.append(run["end_reason"])
    return list(dict.fromkeys(lines))


def _host_line(one: Json) -> str:
    if one["reason"].startswith(NOT_READY):
        return f"{one['reason']}."
    return f"{one['result']} ({one['reason'].rstrip('.')})." if one["reason"] else f"{one['result']}."


def _claimed_by_others(run: Json) -> dict[str, str]:
    """Hosts that another run has claimed, also for events that are gone."""
    lines = {}
    for host, state in sorted(run["hosts"].items()):
        for entry in record_events(state["record"]).values():
            claim = entry["claim"]
            if claim["run_id"] == run["run_id"] or entry["lapsed"]:
                continue
            done = "drained" if drained_steps(state["record"]) else "claimed"
            age = duration(state["host_time"] - claim["renewed"])
            lines[host] = f"{done} by the run {quoted(claim['run_name'])}, which was last active {age} ago."
            if claim["silent_until"] > state["host_time"]:
                until = iso(claim["silent_until"])
                lines[host] += (
                    f" If that run was killed: start another run after {until}, or at once with "
                    "-e graceful_force_claim=true."
                )
    return lines
