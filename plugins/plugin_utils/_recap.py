# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What a run says: what changed in a pass, what is stuck and why, and in the end the report. Pure."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS, STARTED, parse_time
from ansible_collections.graceful.azure.plugins.module_utils._policy import action_of
from ansible_collections.graceful.azure.plugins.module_utils._text import (
    clean,
    duration,
    is_or_are,
    iso,
    listed,
    quoted_list,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import DRILL, margin
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import nothing_drained
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import NEVER_COME_BACK, event_title

Json = dict[str, t.Any]
Host = tuple[str, str]
IN_PROGRESS = "in progress"
RECOMMENDATION = "spotrebalancerecommendation"
BAD_ENDS = ("failed", "left drained", "unreachable")
WORK = {
    "ready": "ready",
    "working": "at work",
    "next": "at work",
    "failed": "FAILED",
    "waiting": "ready and waiting",
    "put_back": "back in service",
    "released": "released",
    "held_by_other_run": "left to another run",
    "gone": "its event is gone",
}


NEXT = {
    "approve.yml": "approve the event, wait until it is over, and put the hosts back",
    "confirm.yml": "ask a person, and verify again that all hosts are ready",
    "finish.yml": "report",
    "steps/nothing.yml": "go on with all hosts",
}
DOING = {
    "ready": "drain the hosts, save what may be lost, and verify it",
    "put_back": "wait until the event is over, and put the hosts back",
    "release": "leave the event to another run",
}


def messages(before: Json, run: Json, now: float) -> list[str]:
    """What changed in this pass, each line with its time."""
    at = datetime.fromtimestamp(now, timezone.utc).strftime("%H:%M:%S")
    lines = []
    if run["asks_all"] and not before["asks_all"]:
        lines.append(run["asks_all"])
    for event_id in run["events"]:
        said, said_before = _event_state(run, event_id), _event_state(before, event_id)
        story, known = run["events"][event_id], before["events"].get(event_id) or {}
        if story["approved"] and not known.get("approved") and said != _approved(story):
            # One pass may see more than one change.
            lines.append(_approved(story))
        if said != said_before:
            lines.append(said)
    for host, known in run["hosts"].items():
        said, said_before = _host_state(known), _host_state(before["hosts"].get(host))
        if said and said != said_before:
            lines.append(f"{clean(host, 80)}: {said}")
    return [f"{at} {line}" for line in lines]


def _event_state(run: Json, event_id: str) -> str:
    story = run["events"].get(event_id)
    if story is None:
        return ""
    entry = story["entry"]
    title = event_title(entry)
    if story["gone"]:
        return f"{title}: it is over."
    if entry["event_status"] == STARTED:
        return f"{title}: Azure has started it."
    if story["approved"]:
        return _approved(story)
    if entry["wait_until"]:
        return f"{title}: deferred until {entry['wait_until']}, because {entry['wait_reason']}."
    if story["held"]:
        return f"{title}: HELD, not approved, because {'; '.join(story['held'])}."
    return f"{title}: {action_of(entry['action']).message}."


def _approved(story: Json) -> str:
    said = f"{event_title(story['entry'])}: approved by {clean(story['approved_by'], 80)} at {story['approved']}"
    return f"{said}{_waits_with(story)}."


def _waits_with(story: Json) -> str:
    """Azure deletes VMs together: an approval alone does not start that."""
    others = story.get("waits_with") or []
    return f"; Azure starts it when {quoted_list(others)} {is_or_are(others)} approved, too" if others else ""


def _host_state(known: Json | None) -> str:
    if known is None:
        return ""
    if known["saw"] and not known["reachable"]:
        return "cannot be reached now; it is tried again"
    report = known["report"]
    if report is None:
        return f"cannot be asked: {known['error']}" if known["error"] and known["reachable"] else ""
    word = WORK.get(report["state"], "")
    if report["state"] == "next":
        word = "is put back" if report["order"] == "put_back" else "drains"
    if not word:
        return ""
    again = (
        f" It is tried again in {duration(report['next_try'])}."
        if report["state"] == "failed" and report["next_try"]
        else ""
    )
    tries = f" (attempt {report['attempts']})" if report["attempts"] > 1 else ""
    return f"{word}{tries}: {report['message']}.{again}".replace("..", ".") if report["message"] else word


def doing(run: Json) -> str:
    """What the next pass does, for the name of its task."""
    if run["next"] in NEXT:
        return NEXT[run["next"]]
    orders = {order["order"] for order in run["orders"].values()}
    return next((text for order, text in DOING.items() if order in orders), "look at the hosts again")


def standing(run: Json) -> list[str]:
    """What is announced, what is being done and what is stuck: the last screen answers a phone call."""
    lines = []
    for event_id, story in run["events"].items():
        if story["gone"]:
            continue
        lines.append(_event_state(run, event_id))
        entry = story["entry"]
        if not story["approved"] and entry["event_status"] != STARTED:
            busy = [host for host in entry["hosts"] if host in run["orders"] and host not in story["ready"]]
            if story["ready"]:
                lines.append(f"  ready: {listed(story['ready'])}")
            if busy:
                lines.append(f"  not ready yet: {listed(busy)}")
    return lines


# ---- the report


def report(run: Json) -> Json:
    """The whole run. Every host and event that had work ends in exactly one result."""
    hosts = {host: _host_story(run, host) for host in sorted(run["hosts"]) if _had_work(run, host)}
    events = [_event_story(run, event_id, hosts) for event_id in run["events"]]
    result = _result(run, hosts, events)
    told = {
        "version": 2,
        "drill": run["drill"],
        "run": {
            **{key: run.get(key) for key in ("run_id", "run_name", "started", "check_mode")},
            "finished": run.get("finished"),
        },
        "result": result,
        "messages": [*([DRILL] if run["drill"] else []), *_recap(run, hosts, events)],
        "events": events,
        "hosts": hosts,
    }
    if run["drill"]:
        told["announced"] = run["announced"]
        told["margin"] = margin(told)
        if result == "done" and not told["margin"]["notices"]:
            # Azure would have acted before the hosts were ready: in a drill that is what one wants to know.
            told["result"] = "failed"
    return told


def failure_of(told: Json) -> str:
    """Why a run that is over ends with an error; empty if it does not."""
    result = told["result"]
    if told["drill"] and result != "done":
        return f"The drill did not go through, it ended with {result}; the recap above and the report say why."
    if result in ("held", "failed"):
        return f"The maintenance is {result}; the recap above and the report say why."
    return ""


def last_occasions(told: Json) -> list[str]:
    """What webhooks are told at the end of a run. One that found nothing to do, or nothing to do yet, tells nothing."""
    if told["result"] not in ("done", "held", "failed"):
        return []
    over = any(event["outcome"] in ("completed", "cancelled", "drained") for event in told["events"])
    restored = over or any(host["result"] == "restored" for host in told["hosts"].values())
    return [*(["restored"] if restored else []), *(["failed"] if told["result"] == "failed" else []), "finished"]


def _had_work(run: Json, host: str) -> bool:
    known = run["hosts"][host]
    return bool(known["closed"] or known["timeline"] or (known["events"] and _touched(run, host)))


def _touched(run: Json, host: str) -> bool:
    stories = [run["events"][event_id] for event_id in run["hosts"][host]["events"] if event_id in run["events"]]
    actions = [action_of(story["entry"]["actions"].get(host)) for story in stories]
    return any(action.drains or action.approves for action in actions)


def _host_story(run: Json, host: str) -> Json:
    known = run["hosts"][host]
    result, reason = _host_result(run, host)
    return {
        "vm_name": run["names"].get(host),
        "result": result,
        "reason": reason,
        "events": [_spelled(run, event_id) for event_id in known["events"]],
        "timeline": _timeline(run, host),
    }


def _spelled(run: Json, event_id: str) -> str:
    story = run["events"].get(event_id)
    return str(story["entry"]["event_id"]) if story else event_id


def _host_result(run: Json, host: str) -> Host:
    known = run["hosts"][host]
    if run["check_mode"]:
        return "untouched", ""
    if not run.get("finished"):
        return (IN_PROGRESS if known["timeline"] else "untouched"), ""
    record = known["record"] or {"events": {}, "steps": []}
    events = record["events"].items()
    ours = [key for key, entry in events if entry["claim"]["run_id"] == run["run_id"] and not entry["lapsed"]]
    if not known["reachable"]:
        # A recommendation does nothing to the host: what came of it is another event.
        types = {str(entry["event"]["event_type"]).lower() for entry in record["events"].values()} - {RECOMMENDATION}
        if types and types <= set(NEVER_COME_BACK):
            return "gone", "as announced"
        return "unreachable", "it did not come back in time" if known["saw"] else "it could not be reached"
    if known["record_error"]:
        return "failed", known["record_error"]
    if known["failures"]:
        return "failed", known["message"]
    if ours:
        return "left drained", "the event still stands; the next run restores it once the event is gone"
    return ("restored" if known["closed"] else "untouched"), ""


def _timeline(run: Json, host: str) -> list[Json]:
    """In order; of what happened in one second, what was noticed comes first and what was approved last."""
    known = run["hosts"][host]
    stories = [story for event_id in known["events"] if (story := run["events"].get(event_id))]
    marks = [_mark(story["noticed"], "noticed", story) for story in stories]
    marks += [dict(mark, at=iso(mark["at"])) for mark in known["timeline"]]
    approved = [story for story in stories if story["approved"] and host != story["approved_by"]]
    marks += [_mark(story["approved"], "approved", story) for story in approved]
    for gap in known["interruptions"]:
        marks += [_mark(gap["lost"], "down"), *([_mark(gap["back"], "back")] if gap["back"] else [])]
    return sorted(marks, key=lambda mark: str(mark["at"]))


def _mark(at: str, what: str, story: Json | None = None) -> Json:
    return {"at": at, "what": what, "detail": "", "event_id": story["entry"]["event_id"] if story else ""}


def _event_story(run: Json, event_id: str, hosts: t.Mapping[str, Json]) -> Json:
    story = run["events"][event_id]
    entry = story["entry"]
    outcome, holds = _outcome(run, event_id, story, hosts)
    whole = {key: entry.get(key) for key in (*EVENT_FIELDS, "action", "reason", "hosts") if key != "affects_me"}
    times = {key: story[key] for key in ("noticed", "approved", "approved_by", "started", "gone")}
    return {**whole, **times, "outcome": outcome, "holds": holds, "message": _event_message(story, outcome)}


def _outcome(run: Json, event_id: str, story: Json, hosts: t.Mapping[str, Json]) -> tuple[str, list[str]]:
    entry = story["entry"]
    action = action_of(entry["action"])
    if run["check_mode"]:
        return "planned", list(entry["holds"])
    claimed = [host for host in entry["hosts"] if event_id in run["hosts"].get(host, {}).get("closed", [])]
    holder = next((hold for hold in entry["holds"] if "has it in hand" in hold), "")
    if holder and not claimed and not story["approved"]:
        return "held_by_other_run", [holder]
    back = all(hosts.get(host, {}).get("result") in ("restored", "gone") for host in entry["hosts"])
    if story["approved"]:
        return ("completed" if back and (story["gone"] or run.get("finished")) else "approved"), []
    if story["held"]:
        return "held", list(story["held"])
    if entry["wait_until"] and not claimed:
        return "deferred", [f"deferred until {entry['wait_until']}: {entry['wait_reason']}"]
    if entry["lapsed"] and claimed:
        reasons = _nothing_drained(run, claimed)
        return ("failed" if reasons else "drained"), reasons
    if action.drains and not action.approves:
        return _drained_only(run, story)
    if story["started"] or (story["gone"] and story["gone"] >= (entry["not_before"] or "9")):
        # Gone after its time without being seen Started: it was short.
        return _started_by_azure(run, story, back)
    if story["gone"]:
        return "cancelled", []
    if back and run.get("finished") and set(_ever_ready(run, story, entry["hosts"])) >= set(entry["hosts"]):
        # All were ready, and those that do not answer any more were to be taken away.
        return "completed", []
    if action.approves and run.get("finished"):
        return "held", list(story.get("waits_for") or entry["holds"] or ["the run ended before it was approved"])
    return ("notified" if action.tells else "ignored"), []


def _started_by_azure(run: Json, story: Json, back: bool) -> tuple[str, list[str]]:
    """Nobody approved it. A host whose drain had failed until then was not ready for it."""
    hosts = story["entry"]["hosts"]
    ready = _ever_ready(run, story, hosts)
    failed = {host: said for host, said in story["problems"].items() if host in hosts and host not in ready}
    if failed:
        return "held", [f"{clean(host, 80)} is not ready: {said}" for host, said in failed.items()]
    return ("completed" if back and story["gone"] else "started"), []


def _drained_only(run: Json, story: Json) -> tuple[str, list[str]]:
    """Where nothing is to be approved, nothing is held; that a host was not ready is a failure all the same."""
    if not run.get("finished"):
        return "notified", []
    draining = [host for host, action in story["entry"]["actions"].items() if action_of(action).drains]
    unready = [host for host in draining if host not in _ever_ready(run, story, draining)]
    reasons = []
    for host in unready:
        known = run["hosts"].get(host)
        said = story["problems"].get(host) or (known and (known["message"] or known["error"])) or "it did not report"
        reasons.append(f"{clean(host, 80)} is not ready: {said if known else 'it is not part of this run'}")
    reasons += _nothing_drained(run, draining)
    return ("failed" if reasons else "drained"), reasons


def _nothing_drained(run: Json, hosts: t.Sequence[str]) -> list[str]:
    """Of hosts that nobody wrote down how to drain. They may be gone now: what they said before counts."""
    return [
        nothing_drained(host) for host in hosts if run["hosts"].get(host, {}).get("settings", {}).get("drain_not_set")
    ]


def _ever_ready(run: Json, story: Json, hosts: t.Sequence[str]) -> list[str]:
    spelled = story["entry"]["event_id"]
    marks = {host: run["hosts"][host]["timeline"] for host in hosts if host in run["hosts"]}
    return [
        host
        for host, all_marks in marks.items()
        if any(m["what"] == "ready" and m["event_id"] == spelled for m in all_marks)
    ]


def _event_message(story: Json, outcome: str) -> str:
    """What became of it, after the fact: `completed: Reboot of web1 and web2, approved by web1, took 4 min 2 s`."""
    entry = story["entry"]
    parts = [f"{outcome}: {event_title(entry)}"]
    if outcome in ("planned", "notified", "ignored"):
        return f"{outcome}: {entry['reason']}"
    if story["approved_by"]:
        parts.append(f"approved by {clean(story['approved_by'], 80)}")
    if outcome == "drained" and entry["lapsed"]:
        parts.append(f"put back because nothing followed within {duration(entry['expires_after'])}")
    begin, end = parse_time(story["noticed"] or ""), parse_time(story["gone"] or "")
    if begin and end and outcome in ("completed", "cancelled", "held", "drained"):
        parts.append(f"took {duration((end - begin).total_seconds())}")
    return ", ".join(parts) + (_waits_with(story) if outcome == "approved" else "") + "."


def _result(run: Json, hosts: t.Mapping[str, Json], events: t.Sequence[Json]) -> str:
    results = {story["result"] for story in hosts.values()}
    outcomes = {event["outcome"] for event in events}
    if run["check_mode"]:
        wrong = _mistakes(run) or run.get("options", {}).get("webhook_mistake")
        return "failed" if wrong else "planned" if events else "nothing"
    if results & set(BAD_ENDS) or "failed" in outcomes or _unreadable(run):
        return "failed"
    if "held" in outcomes:
        return "held"
    if not run.get("finished"):
        return IN_PROGRESS
    if _blind(run):
        # Whoever could not ask does not know whether something is announced, and must not say that nothing is.
        return "failed"
    if results - {"untouched"}:
        return "done"
    return "deferred" if "deferred" in outcomes else "done" if outcomes & {"completed", "drained"} else "nothing"


def _unreadable(run: Json) -> dict[str, str]:
    return {host: known["record_error"] for host, known in run["hosts"].items() if known["record_error"]}


def _blind(run: Json) -> dict[str, str]:
    return {
        host: known["error"] or "it could not be reached"
        for host, known in run["hosts"].items()
        if (known["error"] or not known["reachable"]) and not known["closed"] and not known["events"]
    }


def _mistakes(run: Json) -> list[str]:
    return [f"{clean(host, 80)}: {text}" for host, texts in sorted(run["mistakes"].items()) for text in texts]


def _recap(run: Json, hosts: t.Mapping[str, Json], events: t.Sequence[Json]) -> list[str]:
    quiet = not (events or hosts or _blind(run) or _unreadable(run))
    lines = ["Nothing is announced."] if quiet else []
    for event in events:
        lines += [event["message"], *(f"  because {reason}" for reason in event["holds"])]
    for host, story in hosts.items():
        because = f" ({story['reason']})" if story["reason"] else ""
        lines.append(f"{clean(host, 80)}: {story['result']}{because}.")
    lines += [
        f"{clean(host, 80)}: nobody knows what Azure has announced to it ({reason})"
        for host, reason in sorted(_blind(run).items())
        if run.get("finished")
    ]
    lines += [f"{clean(host, 80)}: {reason}" for host, reason in sorted(_unreadable(run).items())]
    lines += [line for line in _mistakes(run) if not any(line in said for said in lines)]
    lines += _left_by_others(run)
    lines += run.get("plan", {}).get("missing_groups", [])
    mistake = run.get("options", {}).get("webhook_mistake")
    if mistake:
        lines.append(f"Nobody is told: {mistake}")
    if run.get("finished"):
        lines.append(run["end_reason"])
    return list(dict.fromkeys(lines))


def _left_by_others(run: Json) -> list[str]:
    """What another run has begun and not ended, although its event is gone."""
    lines = []
    for host, known in sorted(run["hosts"].items()):
        for event_id, entry in ((known["record"] or {}).get("events") or {}).items():
            claim = entry["claim"]
            if event_id not in run["events"] and claim["run_id"] != run["run_id"]:
                until = iso(claim["silent_until"])
                name = clean(claim["run_name"], 80)
                lines.append(f"{clean(host, 80)}: {name} has what is left of {event_id} in hand until {until}")
    return lines
