# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The cycle's bookkeeping: what each host has to do, what it may report, and what is told at the end. Pure."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.module_utils._document import STARTED, same_id
from ansible_collections.graceful.azure.plugins.plugin_utils import _checks as check
from ansible_collections.graceful.azure.plugins.plugin_utils._fleet import SETTINGS
from ansible_collections.graceful.azure.plugins.plugin_utils._policy import APPROVING, DRAIN, DRAINING
from ansible_collections.graceful.azure.plugins.plugin_utils._words import printable
from ansible_collections.graceful.azure.plugins.plugin_utils._written import host_mistake, webhook_mistake

Mapping = t.Mapping[str, t.Any]
# What is kept back of the notice at most, for the approval itself and for clocks that differ.
MARGIN = 10
UNKNOWN_NOTICE = 300
# What was announced too late to be done in time is still better begun than not.
LEAST = 5
# A run does not wait for longer, whatever the notice: the next one takes it up.
LONGEST = 86400
# Whoever has less does not wait for whoever has more.
HURRIED = 120
NEVER_COME_BACK = ("preempt", "terminate")


def fleet(variables: Mapping, asked: t.Sequence[str], inventory: t.Sequence[str]) -> dict[str, t.Any]:
    """What the plan needs of every host's variables. Hosts that were not asked count with their Azure name only."""
    names, settings = {}, {}
    for host in inventory:
        own = variables[host]
        if own.get("graceful_vm_name"):
            names[host] = str(own["graceful_vm_name"])
        _demand_seconds(host, own, "graceful_gone_timeout")
        given = {key: own.get(f"graceful_{key}") for key in SETTINGS}
        settings[host] = {key: value for key, value in given.items() if value is not None}
    statuses = {host: variables[host].get("graceful__status") for host in asked}
    concerned = [host for host, status in statuses.items() if _has_something(status)]
    mistakes = {host: words for host in concerned if (words := host_mistake(variables[host]))}
    mute = {host: words for host in asked if (words := webhook_mistake(variables[host]))}
    return {
        "observations": observations(statuses, names),
        "statuses": statuses,
        "settings": settings,
        "mistakes": mistakes,
        "mute": list(mute),
        "words": [
            *(f"{host} cannot be drained and put back as it is written: {words}" for host, words in mistakes.items()),
            *(f"Nobody is told: {words}" for words in sorted(set(mute.values()))),
        ],
    }


def _has_something(status: t.Any) -> bool:
    return isinstance(status, t.Mapping) and bool(status.get("events") or status.get("records"))


def _demand_seconds(host: str, variables: Mapping, name: str) -> None:
    given = variables.get(name)
    try:
        fits = given is None or (not isinstance(given, bool) and 0 <= int(given) <= LONGEST)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise check.refuse(f"{name} of {printable(host)}", f"a whole number of seconds up to {LONGEST}", given)


def observations(statuses: t.Mapping[str, t.Any], names: t.Mapping[str, str]) -> dict[str, t.Any]:
    """What each host saw, in the form that the plan reads. `names` has the Azure names that the inventory tells."""
    seen = {}
    for host in {**names, **statuses}:
        status = statuses.get(host)
        answered = isinstance(status, t.Mapping) and not status.get("unreachable")
        status = status if isinstance(status, t.Mapping) else {}
        failed = bool(status.get("failed")) or (answered and "events" not in status)
        seen[host] = {
            "reachable": answered,
            "vm_name": status.get("vm_name") or names.get(host),
            "events": None if failed else status.get("events"),
            "error": str(status.get("msg") or "it was not asked") if failed and answered else None,
            # What a damaged record says nobody knows: such a host is not counted on.
            "drained": any(
                record.get("damaged") or _unfinished(record, "drain") for record in status.get("records") or []
            ),
        }
    return seen


def _unfinished(record: Mapping, phase: str) -> list[Mapping]:
    return [step for step in record.get("steps") or [] if step["phase"] == phase and step["status"] != "undone"]


def assignments(
    plan: Mapping, statuses: t.Mapping[str, t.Any], claims: t.Mapping[str, t.Any] | None = None, forced: bool = False
) -> dict[str, t.Any]:
    """What each host has to do: which events to claim, whether to drain, and what earlier runs left to be undone.

    Once the hosts have claimed, `claims` has their answers: what another run holds anywhere is left to it. Two runs
    that claim at the same time must not both give way: who has the first host that answered is to try the others
    again, those are `contested`. `hurried` are the hosts with so little time that they go first."""
    elsewhere, contested = _elsewhere(claims or {})
    work: dict[str, t.Any] = {}
    told: list[str] = []
    damaged: dict[str, str] = {}
    for host in sorted({*plan["hosts"], *statuses}):
        status = statuses.get(host)
        if not isinstance(status, t.Mapping):
            continue
        entry = _work(plan["hosts"].get(host, {}), status, elsewhere, forced)
        if entry["events"] or entry["leftovers"]:
            work[host] = entry
        told.extend(f"{host}: {words}" for words in entry.pop("words"))
        unreadable = [record["message"] for record in status.get("records") or [] if record.get("damaged")]
        if unreadable:
            damaged[host] = "; ".join(unreadable)
    return {
        "hosts": work,
        "hurried": [host for host, entry in work.items() if entry["seconds"] < HURRIED],
        "elsewhere": elsewhere,
        "contested": contested,
        "words": told,
        "damaged": damaged,
    }


def _work(planned: Mapping, status: Mapping, elsewhere: t.Mapping[str, str], forced: bool) -> dict[str, t.Any]:
    own = {same_id(event["event_id"]): event for event in status.get("events") or []}
    records = [record for record in status.get("records") or [] if not record.get("damaged")]
    recorded = {same_id(record["event"]["event_id"]): record for record in records}
    events, drain = [], False
    for awaited in planned.get("events", []):
        event_id = same_id(awaited["event_id"])
        begun = event_id in recorded
        started = awaited["event_status"] == STARTED
        wanted = awaited["action"] in APPROVING | DRAINING and not started and not awaited["wait_until"]
        if event_id in own and event_id not in elsewhere and (wanted or begun):
            demands = awaited["action"] in DRAINING and not started
            drain = drain or (demands and (awaited["drain"] or begun))
            events.append(dict(own[event_id], action=awaited["action"], demands_drain=demands))
    leftovers, words = [], []
    if not status.get("failed") and not status.get("unreachable"):
        for event_id, record in recorded.items():
            if event_id in own or event_id in elsewhere:
                continue
            if record.get("stale") or forced:
                leftovers.append({"event": record["event"], "steps": len(record["steps"])})
            else:
                words.append(_in_hand(record))
    if leftovers:
        # What is under way on the host is waited for: nobody puts a host back that is being moved.
        waited = {same_id(event["event_id"]) for event in events}
        for awaited in planned.get("events", []):
            event_id = same_id(awaited["event_id"])
            if awaited["event_status"] == STARTED and event_id in own and event_id not in {*waited, *elsewhere}:
                events.append(dict(own[event_id], action=awaited["action"], demands_drain=False))
    left = [event["seconds_left"] for event in events if event["seconds_left"] is not None]
    return {
        "events": events,
        "drain": drain,
        "seconds": _usable(min(left, default=UNKNOWN_NOTICE)),
        "leftovers": leftovers,
        "words": words,
    }


def _in_hand(record: Mapping) -> str:
    claim = record["claim"]
    return (
        f"{claim['run_name']} has what is left of {record['event']['event_id']} in hand (phase {claim['phase']}) and "
        f"may be silent until {_iso(claim['silent_until'])}"
    )


def _usable(left: float) -> float:
    return min(LONGEST, max(LEAST, left - min(MARGIN, left // 4)))


def _elsewhere(claims: t.Mapping[str, t.Any]) -> tuple[dict[str, str], list[str]]:
    """Events that another run has in hand on any host, with who that is; and which of them this run has a right to."""
    held: dict[str, str] = {}
    first: dict[str, bool] = {}
    for host in sorted(claims):
        latest = {same_id(str(answer["item"]["event_id"])): answer for answer in _answers(claims[host])}
        for event_id, answer in latest.items():
            holder, claimed = answer.get("holder"), answer.get("claimed")
            if isinstance(claimed, bool):
                first.setdefault(event_id, claimed)
            if isinstance(holder, t.Mapping) and claimed is False:
                held[event_id] = f"{holder['run_name']} has it in hand on {host} (phase {holder['phase']})"
    return held, [event_id for event_id in held if first.get(event_id)]


def _answers(looped: t.Any) -> list[Mapping]:
    results = looped.get("results") if isinstance(looped, t.Mapping) else None
    return [
        answer
        for answer in results or []
        if isinstance(answer, t.Mapping) and "item" in answer and not answer.get("skipped")
    ]


def host_reports(work: Mapping, claims: t.Any, drained: t.Any, saved: t.Any, noted: t.Any) -> dict[str, t.Any]:
    """What a host reports for each of its events: ready only if all that was demanded is done and noted on the host."""
    claimed = {same_id(str(answer["item"]["event_id"])): answer for answer in _answers(claims)}
    confirmed = {same_id(str(answer["item"]["event_id"])): answer for answer in _answers(noted)}
    reports = {}
    for event in work["events"]:
        event_id = same_id(event["event_id"])
        reason = _unless(claimed.get(event_id), "claimed")
        if not reason and event["demands_drain"]:
            reason = _not_ready(drained, "draining") or _not_ready(saved, "the checkpoint")
        reason = reason or _unless(confirmed.get(event_id), "confirmed")
        reports[event["event_id"]] = {"ready": reason is None, "reason": reason or "ready"}
    return reports


def _unless(answer: Mapping | None, what: str) -> str | None:
    if answer is None:
        return f"it was not {what}"
    if answer.get("unreachable"):
        return "it cannot be reached"
    if answer.get("failed") or answer.get("claimed") is not True:
        return f"it was not {what}: {answer.get('msg') or 'no reason was given'}"
    return None


def _not_ready(report: t.Any, what: str) -> str | None:
    if not isinstance(report, t.Mapping):
        return f"{what} did not come to an end"
    return None if report.get("ready") is True else str(report.get("reason") or f"{what} failed")


# What the phases of the playbook leave on a host, as facts.
LEFT = ("claims", "noted", "over", "restores")
BAD_ENDS = {"failed", "left drained", "unreachable"}
IN_PROGRESS = "in progress"
PLANNED = "planned"


def recap(run: Mapping, variables: Mapping, hosts: t.Sequence[str]) -> dict[str, t.Any]:
    """The whole run as the report shows it. Every host and event that had work ends in exactly one result."""
    told = {}
    for host in hosts:
        left = {name: variables[host].get(f"graceful__{name}") for name in LEFT}
        told[host] = _host_story(host, left, run)
    times = _times(variables[host].get("graceful__over") for host in hosts)
    reports = {host: variables[host].get("graceful__reports") for host in hosts}
    events = [_event_story(event, run, told, times, reports) for event in run["plan"]["events"]]
    results = {story["result"] for story in told.values()}
    outcomes = {event["outcome"] for event in events}
    blind = {**run["plan"]["blind"]}
    damaged = run["work"].get("damaged", {})
    if results & BAD_ENDS or "failed" in outcomes or (damaged and not run.get("check_mode")):
        result = "failed"
    elif "held" in outcomes:
        result = "held"
    elif IN_PROGRESS in results:
        result = IN_PROGRESS
    elif PLANNED in outcomes:
        result = PLANNED
    elif blind:
        # Whoever could not ask does not know whether something is announced, and must not say that nothing is.
        result = "failed"
    else:
        result = "done" if results - {"untouched"} else "nothing"
    words = [line for event in events for line in _event_words(event)]
    words += [f"{host}: {story['result']}{_because(story['reason'])}." for host, story in sorted(told.items())]
    words += [
        f"{host}: nobody knows what Azure has announced to it ({reason})" for host, reason in sorted(blind.items())
    ]
    words += [f"{host}: {reason}" for host, reason in sorted(damaged.items())]
    return {
        "version": 1,
        "run": {key: run.get(key) for key in ("run_id", "run_name", "started", "finished", "check_mode")},
        "result": result,
        "words": [*words, *run["work"]["words"], *run.get("remarks", [])] or ["Nothing is announced."],
        "events": events,
        "hosts": told,
    }


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _host_story(host: str, left: Mapping, run: Mapping) -> dict[str, t.Any]:
    work = run["work"]["hosts"].get(host, {"events": [], "leftovers": []})
    result, reason = _host_result(work, left, run)
    return {
        "vm_name": run["plan"]["hosts"].get(host, {}).get("vm_name"),
        "result": result,
        "reason": reason,
        "events": [event["event_id"] for event in work["events"]]
        + [old["event"]["event_id"] for old in work["leftovers"]],
        "timeline": _timeline(work, left, run),
    }


def _host_result(work: Mapping, left: Mapping, run: Mapping) -> tuple[str, str]:
    """What became of a host, from the last thing it did to the first."""
    if run.get("check_mode"):
        return "untouched", ""
    if not run.get("finished"):
        return (IN_PROGRESS if work["events"] else "untouched"), ""
    restores = [report for report in left["restores"] or [] if isinstance(report, t.Mapping)]
    failed = [str(report.get("reason")) for report in restores if report.get("restored") is not True]
    if failed:
        return "failed", "; ".join(failed)
    wait = left["over"]
    outcome = wait.get("outcome") if isinstance(wait, t.Mapping) else None
    if outcome == "unreachable":
        types = {event["event_type"].lower() for event in work["events"]}
        if types and types <= set(NEVER_COME_BACK):
            return "gone", "as announced"
        return "unreachable", "it did not come back in time"
    if outcome == "timed_out":
        return "left drained", "the event still stands; the next run restores it once the event is gone"
    if restores:
        return "restored", ""
    if isinstance(wait, t.Mapping) and (wait.get("failed") or wait.get("unreachable")):
        return "left drained", str(wait.get("msg") or "waiting for the end of the event failed")
    if work["events"]:
        return "left drained", "the run did not come to its restore"
    return "untouched", ""


def _timeline(work: Mapping, left: Mapping, run: Mapping) -> list[dict[str, t.Any]]:
    marks = []
    for event in work["events"]:
        marks.append({"at": run.get("noticed"), "what": "noticed", "detail": "", "event_id": event["event_id"]})
    for record in _records(left):
        event_id = record["event"]["event_id"]
        marks += [dict(mark, at=_iso(mark["at"]), event_id=event_id) for mark in record["timeline"]]
    wait = left["over"]
    for gap in (wait.get("interruptions") or []) if isinstance(wait, t.Mapping) else []:
        marks.append({"at": gap["lost"], "what": "down", "detail": "", "event_id": ""})
        if gap["back"]:
            marks.append({"at": gap["back"], "what": "back", "detail": "", "event_id": ""})
    for report in (approval for approval in run["approvals"] if approval.get("outcome") == "approved"):
        if any(same_id(event["event_id"]) == same_id(report["event_id"]) for event in work["events"]):
            marks.append({"at": report["at"], "what": "approved", "detail": "", "event_id": report["event_id"]})
    return sorted(marks, key=lambda mark: str(mark["at"]))


def _records(left: Mapping) -> list[Mapping]:
    """The host's records as last returned: released ones, and those that were only noted."""
    found: dict[str, Mapping] = {}
    for answer in [*_answers(left["claims"]), *_answers(left["noted"]), *(left["restores"] or [])]:
        record = answer.get("record") if isinstance(answer, t.Mapping) else None
        if isinstance(record, t.Mapping):
            found[same_id(record["event"]["event_id"])] = record
    return list(found.values())


def _iso(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _times(waits: t.Iterable[t.Any]) -> dict[str, dict[str, str]]:
    """When each event was first seen Started, and first missing, by whichever host saw it first."""
    first: dict[str, dict[str, str]] = {}
    for wait in waits:
        for entry in (wait.get("times") or []) if isinstance(wait, t.Mapping) else []:
            known = first.setdefault(same_id(entry["event_id"]), {})
            for what in ("started_at", "gone_at"):
                if entry[what]:
                    known[what] = min(entry[what], known.get(what, entry[what]))
    return first


def _event_story(
    event: Mapping,
    run: Mapping,
    told: t.Mapping[str, t.Any],
    times: t.Mapping[str, t.Mapping[str, str]],
    reports: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    event_id = same_id(event["event_id"])
    seen = times.get(event_id, {})
    had_started = event["event_status"] == STARTED
    approval: Mapping = next((one for one in run["approvals"] if same_id(one["event_id"]) == event_id), {})
    outcome, hold = _event_outcome(event, run, approval)
    if outcome in ("approved", "started", "failed") and all(
        told.get(h, {}).get("result") in ("restored", "gone") for h in event["hosts"]
    ):
        outcome = "completed"
    # Where nothing is to be approved, nothing is held; that a host was not ready is a failure all the same.
    if event["action"] == DRAIN and outcome == "notified" and run.get("finished"):
        hold = _unready(event, told, reports)
        outcome = "failed" if hold else outcome
    return {
        **{key: event[key] for key in ("event_id", "event_type", "event_status", "event_source", "description")},
        "resources": event["resources"],
        "not_before": event["deadline"],
        "action": event["action"],
        "reason": event["reason"],
        "outcome": outcome,
        "hold": hold,
        "leader": approval.get("by") or event["leader"],
        "noticed": run.get("noticed"),
        "approved": approval.get("at") if approval.get("outcome") == "approved" else None,
        "started": run.get("noticed") if had_started else seen.get("started_at"),
        "gone": seen.get("gone_at"),
        "hosts": event["hosts"],
    }


def _unready(event: Mapping, told: t.Mapping[str, t.Any], reports: t.Mapping[str, t.Any]) -> list[str]:
    event_id = same_id(event["event_id"])
    reasons = []
    for host in event["hosts"]:
        if event_id in map(same_id, told.get(host, {}).get("events", [])):
            report = {same_id(key): value for key, value in (reports.get(host) or {}).items()}.get(event_id, {})
            if report.get("ready") is not True:
                reasons.append(f"{host} is not ready: {report.get('reason') or 'it did not report'}")
    return reasons


def _event_outcome(event: Mapping, run: Mapping, approval: Mapping) -> tuple[str, list[str]]:
    event_id = same_id(event["event_id"])
    if run.get("check_mode"):
        return PLANNED, list(event["hold"])
    if event_id in run["work"]["elsewhere"]:
        return "ignored", [run["work"]["elsewhere"][event_id]]
    sent = approval.get("outcome")
    if sent in ("approved", "started"):
        return str(sent), []
    if sent == "gone":
        return "cancelled", []
    if sent in ("held", "failed"):
        return str(sent), [str(approval.get("reason"))]
    cleared = {same_id(one["event_id"]) for one in run["decision"].get("approve", [])}
    if event_id in cleared and run.get("finished"):
        return "failed", ["the run did not come to its approval"]
    for held in run["decision"].get("held", []):
        if same_id(held["event_id"]) == event_id:
            return "held", list(held["reasons"])
    if event["event_status"] == STARTED:
        return "started", []
    return ("ignored" if event["action"] == "ignore" else "notified"), []


def _event_words(event: Mapping) -> list[str]:
    return [f"{event['outcome']}: {event['reason']}", *(f"  because {reason}" for reason in event["hold"])]
