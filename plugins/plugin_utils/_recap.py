# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What a run says: what changed in a pass, what is stuck and why, and in the end the report. Pure."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.module_utils._document import (
    EVENT_FIELDS,
    STARTED,
    parse_time,
    same_id,
)
from ansible_collections.graceful.azure.plugins.module_utils._policy import action_of
from ansible_collections.graceful.azure.plugins.module_utils._text import (
    clean,
    duration,
    is_or_are,
    iso,
    listed,
    quoted,
    quoted_list,
    sentence,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import DRILL, margin
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import nothing_drained
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import (
    IS_HANDLING,
    NEVER_COME_BACK,
    NOTHING,
    drained_steps,
    event_title,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._report import BAD_RESULTS

Json = dict[str, t.Any]
IN_PROGRESS = "in progress"
RECOMMENDATION = "spotrebalancerecommendation"
NOT_READY = "NOT READY when Azure acted"
# What the JSON calls otherwise than people do.
OUTCOMES = {"held_by_other_run": "left to another run"}
WORK = {
    "ready": "ready",
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
    NOTHING: "go on with all hosts",
}
DOING = {
    "ready": "drain the hosts, save what may be lost, and verify it",
    "put_back": "wait until the event is over, and put the hosts back",
    "release": "leave the event to another run",
}


def planned(run: Json) -> list[str]:
    """The plan: each event, what is begun now, and what speaks against approving it."""
    head, *more = run["summary"]
    lines = [head]
    for event_id, story in run["events"].items():
        entry = story["entry"]
        lines.append(f"{quoted(entry['event_id'])}: {entry['reason']}")
        begun = [host for host in entry["drain"] if _is_drained_for(run["orders"].get(host), event_id)]
        if begun:
            lines.append(f"  drain now: {listed(begun)}")
        if run["check_mode"]:
            taken = {host: run["hosts"][host]["settings"].get("takes") for host in begun}
            lines += [f"    {clean(host, 80)}: {text}" for host, text in taken.items() if text]
        if entry["coupled"]:
            lines.append(f"  {_coupled(entry['coupled'])}")
        if entry["holds"] and not story["approved"] and entry["event_status"] != STARTED:
            lines.append(f"  not approved: {'; '.join(entry['holds'])}")
        if entry["mistaken"] and entry["drain"] and not begun:
            lines.append("  nothing is begun until this is corrected")
    return [*lines, *more]


def _is_drained_for(order: Json | None, event_id: str) -> bool:
    events = order["events"] if order and order.get("drain") else []
    return event_id in [same_id(event["event_id"]) for event in events]


def messages(before: Json, run: Json, now: float) -> list[str]:
    """What changed in this pass, each line with its time."""
    at = datetime.fromtimestamp(now, timezone.utc).strftime("%H:%M:%S")
    lines = []
    if run["asks_all"] and not before["asks_all"]:
        lines.append(run["asks_all"])
    for event_id, story in run["events"].items():
        known = before["events"].get(event_id)
        title, state, last = event_title(story["entry"]), _event_state(story), story.get("said") or ["", ""]
        if story["approved"] and not (known and known["approved"]) and state != _approved(story):
            # One pass may see more than one change.
            lines.append(f"{title}: {_approved(story)}")
        # While a step is tried again nothing holds the event for a moment: that is no news.
        tried_again = last[0] == title and last[1].startswith("HELD") and state == _action(story)
        if [title, state] != last and not tried_again:
            lines.append(_event_line(story))
            story["said"] = [title, state]
    for host, known in run["hosts"].items():
        said = _host_state(run, host)
        if said and said != known.get("said"):
            lines.append(f"{clean(host, 80)}: {said}{_next_try(known['report'])}")
            known["said"] = said
    return [f"{at} {line}" for line in lines]


def _event_line(story: Json) -> str:
    """With the time that is left, which changes from pass to pass and is no news by itself."""
    entry = story["entry"]
    over = story["gone"] or story["approved"] or entry["event_status"] == STARTED
    when = "" if over or entry["seconds_left"] is None else f", in {duration(entry['seconds_left'])}"
    return f"{event_title(entry)}{when}: {_event_state(story)}"


def _event_state(story: Json) -> str:
    entry = story["entry"]
    if story["gone"]:
        return "it is over."
    if entry["event_status"] == STARTED:
        return "Azure has started it."
    if story["approved"]:
        return _approved(story)
    if entry["wait_until"]:
        return f"deferred until {entry['wait_until']}, because {sentence(entry['wait_reason'])}"
    if story["held"]:
        return f"HELD, not approved, because {sentence(*story['held'])}"
    return _action(story)


def _action(story: Json) -> str:
    return f"{action_of(story['entry']['action']).message}."


def _approved(story: Json) -> str:
    return f"approved by {clean(story['approved_by'], 80)} at {story['approved']}{_waits_with(story)}."


def _waits_with(story: Json) -> str:
    """Azure deletes VMs together: an approval alone does not start that."""
    others = story.get("waits_with") or []
    return f"; {_coupled(others)}" if others else ""


def _coupled(others: t.Sequence[str]) -> str:
    return f"Azure starts it when {quoted_list(others)} {is_or_are(others)} approved, too"


def _host_state(run: Json, host: str) -> str:
    known = run["hosts"][host]
    if known["saw"] and not known["reachable"]:
        return "cannot be reached now; it is tried again"
    report = known["report"]
    if report is None:
        return f"cannot be asked: {known['error']}" if known["error"] and known["reachable"] else ""
    if report["order"] == "ready" and report["state"] != "ready" and _is_stale(run, host, report["state"]):
        return ""
    if report["state"] == "put_back" and _is_caught(run, host):
        return _not_drained(known)
    step = "is put back" if report["order"] == "put_back" else "drains"
    word = {**WORK, "next": step, "working": step}.get(report["state"], "")
    tries = f" (attempt {report['attempts']})" if report["attempts"] > 1 else ""
    return f"{word}{tries}: {sentence(report['message'])}" if word and report["message"] else word


def _is_stale(run: Json, host: str, state: str) -> bool:
    """Azure has started what the host was to be ready for, or it is ready and verifies that again."""
    stories = [story for story in _stories(run, host) if _concerns(story, host) and not _has_acted(story)]
    return not stories or (state != "failed" and all(_marked(run, story, host, "ready") for story in stories))


def _next_try(report: Json | None) -> str:
    """Not part of what is compared: it counts down."""
    if not report or report["state"] != "failed" or not report["next_try"]:
        return ""
    return f" It is tried again in {duration(report['next_try'])}."


def doing(run: Json) -> str:
    """What the next pass does, for the name of its task."""
    if run["next"] in NEXT:
        return NEXT[run["next"]]
    orders = {order["order"] for order in run["orders"].values()}
    return next((text for order, text in DOING.items() if order in orders), "look at the hosts again")


def standing(run: Json) -> list[str]:
    """What is announced, what is being done and what is stuck: the last screen answers a phone call."""
    lines = []
    for story in run["events"].values():
        if story["gone"]:
            continue
        lines.append(_event_line(story))
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
        "run": {key: run.get(key) for key in ("run_id", "run_name", "started", "check_mode", "finished")},
        "result": result,
        "messages": [*([DRILL] if run["drill"] else []), *_recap(run, hosts, events)],
        "events": events,
        "hosts": hosts,
    }
    if run["drill"]:
        told["announced"] = run["options"]["drill"]["announced"]
        told["margin"] = margin(told)
        if result == "done" and not told["margin"]["notices"]:
            # Azure would have acted before the hosts were ready: in a drill that is what one wants to know.
            told["result"] = "failed"
    return told


def failure_of(told: Json, page: str = "") -> str:
    """Why a run that is over ends with an error; empty if it does not."""
    result = told["result"]
    where = f"the recap above and the report ({page}) say why." if page else "the recap above says why."
    if told["drill"] and result != "done":
        return f"The drill did not go through, it ended with {result}; {where}"
    if told["run"]["check_mode"] and result == "failed":
        return f"The check has found something that has to be corrected; {where}"
    return {"held": f"An event was held; {where}", "failed": f"The maintenance has failed; {where}"}.get(result, "")


def last_occasions(told: Json) -> list[str]:
    """What webhooks are told at the end of a run. One that found nothing to do, or nothing to do yet, tells nothing."""
    if told["result"] not in ("done", "held", "failed"):
        return []
    over = any(event["outcome"] in ("completed", "cancelled", "drained") for event in told["events"])
    restored = over or any(host["result"] == "restored" for host in told["hosts"].values())
    return [*(["restored"] if restored else []), *(["failed"] if told["result"] == "failed" else []), "finished"]


def _had_work(run: Json, host: str) -> bool:
    known = run["hosts"][host]
    return bool(known["closed"] or known["timeline"] or any(_concerns(story, host) for story in _stories(run, host)))


def _concerns(story: Json, host: str) -> bool:
    """Whether the host has to be ready for it."""
    action = action_of(story["entry"]["actions"].get(host))
    return action.drains or action.approves


def _stories(run: Json, host: str) -> list[Json]:
    return [run["events"][event_id] for event_id in run["hosts"][host]["events"] if event_id in run["events"]]


def _host_story(run: Json, host: str) -> Json:
    result, reason = _host_result(run, host)
    spelled = {event_id: story["entry"]["event_id"] for event_id, story in run["events"].items()}
    return {
        "vm_name": run["names"].get(host),
        "result": result,
        "reason": reason,
        "events": [spelled.get(event_id, event_id) for event_id in run["hosts"][host]["events"]],
        "timeline": _timeline(run, host),
    }


def _host_result(run: Json, host: str) -> tuple[str, str]:
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
    result = "restored" if known["closed"] else "untouched"
    return result, _not_drained(known) if _is_caught(run, host) else ""


def _is_caught(run: Json, host: str) -> bool:
    return any(_was_caught(run, story, host) for story in _stories(run, host))


def _not_drained(known: Json) -> str:
    checked = known["closed"] and known["settings"].get("health")
    return f"{NOT_READY}; {'it is healthy now' if checked else 'its health was not checked'}"


def _timeline(run: Json, host: str) -> list[Json]:
    """In order; of what happened in one second, what was noticed comes first and what was approved last."""
    known = run["hosts"][host]
    stories = _stories(run, host)
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
        return "planned", list(story["held"])
    claimed = [host for host in entry["hosts"] if event_id in run["hosts"].get(host, {}).get("closed", [])]
    holder = next((hold for hold in entry["holds"] if IS_HANDLING in hold), "")
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
    if _has_acted(story):
        return _started_by_azure(run, story, back)
    if story["gone"]:
        return "cancelled", []
    if back and run.get("finished") and all(_marked(run, story, host, "ready") for host in entry["hosts"]):
        # All were ready, and those that do not answer any more were to be taken away.
        return "completed", []
    if action.approves and run.get("finished"):
        return "held", list(story.get("waits_for") or entry["holds"] or ["the run ended before it was approved"])
    return ("notified" if action.tells else "ignored"), []


def _started_by_azure(run: Json, story: Json, back: bool) -> tuple[str, list[str]]:
    """Nobody approved it. That is no success if a host was not ready."""
    unready = [host for host in story["entry"]["hosts"] if _was_caught(run, story, host)]
    if unready:
        said = "was not ready when Azure started it"
        return "held", [f"{clean(host, 80)} {said}: {_why_unready(run, story, host)}" for host in unready]
    return ("completed" if back and story["gone"] else "started"), []


def _has_acted(story: Json) -> bool:
    """Whether Azure has started it. Gone after its time without being seen Started: it was short."""
    return bool(story["started"] or (story["gone"] and story["gone"] >= (story["entry"]["not_before"] or "9")))


def _was_caught(run: Json, story: Json, host: str) -> bool:
    """Whether Azure acted on a host that this run, or an earlier one, should have made ready and had not."""
    if story["approved"] or not _has_acted(story) or not _concerns(story, host):
        return False
    # What had started when it was first seen was nobody's to prepare, unless a run had begun with it.
    in_time = not story["started"] or story["noticed"] < story["started"] or _marked(run, story, host, "claimed")
    return bool(in_time and not _marked(run, story, host, "ready", story["started"]))


def _why_unready(run: Json, story: Json, host: str) -> str:
    known = run["hosts"].get(host)
    if known is None:
        return "it is not part of this run"
    return str(story["problems"].get(host) or known["error"] or "nothing was begun")


def _drained_only(run: Json, story: Json) -> tuple[str, list[str]]:
    """Where nothing is to be approved, nothing is held; that a host was not ready is a failure all the same."""
    if not run.get("finished"):
        return "notified", []
    draining = [host for host, action in story["entry"]["actions"].items() if action_of(action).drains]
    unready = [host for host in draining if not _marked(run, story, host, "ready", story["started"])]
    reasons = [f"{clean(host, 80)} is not ready: {_why_unready(run, story, host)}" for host in unready]
    reasons += _nothing_drained(run, draining)
    return ("failed" if reasons else "drained"), reasons


def _nothing_drained(run: Json, hosts: t.Sequence[str]) -> list[str]:
    """Of hosts that nobody wrote down how to drain. They may be gone now: what they said before counts."""
    settings = {host: run["hosts"].get(host, {}).get("settings", {}) for host in hosts}
    return [nothing_drained(host) for host in hosts if settings[host].get("drain_not_set")]


def _marked(run: Json, story: Json, host: str, what: str, until: str | None = None) -> bool:
    """Whether the host's timeline has it for this event, up to that time."""
    wanted = (what, story["entry"]["event_id"])
    known = run["hosts"].get(host) or {"timeline": (), "ahead": 0.0}
    # The marks have the time of the host, whose clock may be ahead.
    marks = [(mark, max(0.0, mark["at"] - max(0.0, known["ahead"]))) for mark in known["timeline"]]
    return any((mark["what"], mark["event_id"]) == wanted and iso(at) <= (until or "9") for mark, at in marks)


def _event_message(story: Json, outcome: str) -> str:
    """What became of it, after the fact: `completed: Reboot of web1 and web2, approved by web1, took 4 min 2 s`."""
    entry = story["entry"]
    parts = [f"{OUTCOMES.get(outcome, outcome)}: {event_title(entry)}"]
    if outcome in ("planned", "notified", "ignored"):
        word = "would be held" if outcome == "planned" and story["held"] else outcome
        return f"{word}: {entry['reason']}"
    if story["approved_by"]:
        parts.append(f"approved by {clean(story['approved_by'], 80)}")
    if outcome == "drained" and entry["lapsed"]:
        parts.append(f"put back because nothing followed within {duration(entry['expires_after'])}")
    acted = story["approved"] or story["started"]
    begin, end = parse_time(acted or story["noticed"]), parse_time(story["gone"] or "")
    if begin and end and outcome in ("completed", "cancelled", "held", "drained"):
        took = duration((end - begin).total_seconds())
        parts.append(f"took {took}" if acted else f"this run saw it for {took}")
    return ", ".join(parts) + (_waits_with(story) if outcome == "approved" else "") + "."


def _result(run: Json, hosts: t.Mapping[str, Json], events: t.Sequence[Json]) -> str:
    results = {story["result"] for story in hosts.values()}
    outcomes = {event["outcome"] for event in events}
    if run["check_mode"]:
        wrong = _mistakes(run) or run["options"].get("webhook_mistake") or _unreadable(run)
        wrong = wrong or any(known["error"] or not known["reachable"] for known in run["hosts"].values())
        return "failed" if wrong else "planned" if events else "nothing"
    if results & set(BAD_RESULTS) or "failed" in outcomes or _unreadable(run):
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
    others = _in_other_hands(run)
    quiet = not (events or hosts or others or _blind(run) or _unreadable(run))
    lines = ["Nothing is announced."] if quiet else []
    for event in events:
        lines += [event["message"], *(f"  because {sentence(reason)}" for reason in event["holds"])]
    told = {
        host: story["result"] + (f" ({story['reason'].rstrip('.')})." if story["reason"] else ".")
        for host, story in hosts.items()
    }
    caught = {host: f"{story['reason']}." for host, story in hosts.items() if story["reason"].startswith(NOT_READY)}
    told = {host: said for host, said in {**told, **caught}.items() if host not in others or said != "untouched."}
    unknown = {
        host: f"nobody knows what Azure has announced to it ({why})" for host, why in sorted(_blind(run).items())
    }
    for said in (told, others, unknown if run.get("finished") else {}, dict(sorted(_unreadable(run).items()))):
        lines += [f"{clean(host, 80)}: {text}" for host, text in said.items()]
    lines += [line for line in _mistakes(run) if not any(line in said for said in lines)]
    lines += run.get("missing_groups", [])
    if run["options"].get("webhook_mistake"):
        lines.append(f"Nobody is told: {run['options']['webhook_mistake']}")
    if run.get("finished"):
        lines.append(run["end_reason"])
    return list(dict.fromkeys(lines))


def _in_other_hands(run: Json) -> dict[str, str]:
    """Hosts that another run has claimed, also for events that are gone."""
    said = {}
    for host, known in sorted(run["hosts"].items()):
        for entry in ((known["record"] or {}).get("events") or {}).values():
            claim = entry["claim"]
            if claim["run_id"] == run["run_id"] or entry["lapsed"]:
                continue
            done = "drained" if drained_steps(known["record"]) else "claimed"
            age = duration(known["time"] - claim["renewed"])
            said[host] = f"{done} by the run {quoted(claim['run_name'])}, which last gave a sign {age} ago."
            if claim["silent_until"] > known["time"]:
                until = iso(claim["silent_until"])
                said[host] += f" If it is dead: run again after {until}, or at once with -e graceful_force_claim=true."
    return said
