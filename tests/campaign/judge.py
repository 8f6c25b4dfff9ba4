# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges a maintenance by the emulator's journal and the hosts' own logs and records, not by what it says of itself."""

from __future__ import annotations

import json
import math
from itertools import pairwise

from ansible_collections.graceful.azure.tests.campaign.draw import STRANGER, Drawn, Json
from ansible_collections.graceful.azure.tests.campaign.plan import APPROVING, Facts, decided
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Run

# After a request that was not confirmed nobody posts again sooner; the hosts count 30 seconds, from before they post.
BETWEEN_POSTS = 25


def judge(fleet: Fleet, drawn: Drawn, first_end: float) -> list[str]:
    """What was approved before every affected host was ready, or twice, or put back while it stood."""
    hosts = {name: host for host, name in fleet.names.items()}
    found = []
    for approval in fleet.happened("approved"):
        event_id, at, kind = approval["EventId"], approval["time"], approval["EventType"]
        own = [name for name in approval["Resources"] if name in hosts]
        longest = drawn.events[event_id].get("DurationInSeconds")
        rules = {name: decided(drawn.policy, Facts(kind, name, {"web"}, longest)) for name in own}
        words = [one for name in own for one in _unready(fleet, hosts[name], rules[name], event_id, at)]
        if STRANGER in approval["Resources"] and any(rule.get("unknown_names") != "ignore" for rule in rules.values()):
            words.append(f"approved although nobody knows {STRANGER}")
        if kind == "Terminate" and len(approval["Resources"]) > 1:
            words.append("one VM approved the deletion of others")
        if at < first_end:
            words += _too_few(fleet, drawn, own, at)
        found += [f"{event_id}: {one}" for one in words]
    return found + _repeated(fleet)


def _unready(fleet: Fleet, host: str, rule: Json, event_id: str, at: float) -> list[str]:
    before = [what for when, what in fleet.log(host) if when <= at]
    states = [what for what in before if what != "saved"]
    ends = [one for what in ("completed", "cancelled") for one in fleet.happened(what) if one["EventId"] == event_id]
    gone = min((one["time"] for one in ends if one["time"] > at), default=math.inf)
    drains = rule["action"] == "drain_and_approve"
    found = {
        f"the policy of {host} says {rule['action']}": rule["action"] not in APPROVING,
        f"{host} had not claimed it": not any(claimed <= at for claimed in _claims(fleet, host, event_id)),
        f"{host} was not drained": drains and states[-1:] != ["drained"],
        f"{host} had not saved": drains and "saved" not in before[_last(before, "drained") :],
        f"{host} was put back while it stood": any(
            what == "back" and at < when < gone for when, what in fleet.log(host)
        ),
    }
    return [words for words, applies in found.items() if applies]


def _last(words: list[str], word: str) -> int:
    return max((number for number, one in enumerate(words) if one == word), default=len(words))


def _claims(fleet: Fleet, host: str, event_id: str) -> list[float]:
    folder = fleet.home(host) / "records"
    records = [json.loads(file.read_text()) for file in [*folder.glob("*.json"), *folder.glob("history/*.json")]]
    marks = [mark for record in records for mark in record.get("timeline", []) if mark["what"] == "claimed"]
    return [mark["at"] for mark in marks if mark["event_id"].lower() == event_id.lower()]


def _too_few(fleet: Fleet, drawn: Drawn, leaving: list[str], at: float) -> list[str]:
    wanted = drawn.common.get("graceful_min_available", 0)
    wanted = wanted["web"] if isinstance(wanted, dict) else wanted
    needed = math.ceil(drawn.size / 2) if wanted == "50%" else int(wanted)
    working = 0
    for host, name in fleet.names.items():
        states = [what for when, what in fleet.log(host) if when <= at and what != "saved"]
        working += name not in leaving and states[-1:] != ["drained"]
    # Otherwise some leave because Azure will not wait, and those outside the limit cannot be asked.
    notices = [one["notice"] for one in drawn.happenings if "notice" in one]
    can_wait = not drawn.limit and all(notice == 900 for notice in notices)
    return [f"only {working} hosts were left, {needed} are needed"] if working < needed and can_wait else []


def _repeated(fleet: Fleet) -> list[str]:
    """An approval is posted once. One that was not confirmed may be posted again, when it is clear that it was lost."""
    posts: dict[str, list[Json]] = {}
    for post in fleet.posts():
        for request in json.loads(post["body"])["StartRequests"]:
            posts.setdefault(request["EventId"], []).append(post)
    found = []
    for event_id, sent in posts.items():
        confirmed = sum(post["status"] == 200 and not post["fault"] for post in sent)
        if confirmed > 1:
            found.append(f"{event_id}: approved {confirmed} times")
        gaps = [later["time"] - earlier["time"] for earlier, later in pairwise(sent)]
        found += [f"{event_id}: posted again after {gap:.0f} s" for gap in gaps if gap < BETWEEN_POSTS]
    return found


def untrue(fleet: Fleet, run: Run) -> list[str]:
    """What the report of an undisturbed run says and is not so."""
    result, approved = run.report.get("result"), {one["EventId"] for one in fleet.happened("approved")}
    # What starts before its time without having been approved is an invention of the campaign.
    approved |= {one["EventId"] for one in fleet.happened("started") if one["by"] == "control"}
    bad = result in ("held", "failed")
    events = {event["event_id"] for event in run.report.get("events", []) if event["approved"]}
    restored = [host for host, story in run.report.get("hosts", {}).items() if story["result"] == "restored"]
    return [
        *([f"the result is {result}, the exit status {run.status}"] if bad != (run.status == 2) else []),
        *(f"{event_id}: the report tells an approval that never was" for event_id in events - approved),
        *(f"{host} is told to be restored, and is drained" for host in restored if fleet.is_drained(host)),
    ]
