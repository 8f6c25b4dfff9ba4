# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""One pass of the loop: what hosts saw and reported becomes decisions on events and one order for each host. Pure."""

from __future__ import annotations

import copy
import math
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import (
    EVENT_FIELDS,
    STARTED,
    parse_time,
    same_id,
    same_name,
)
from ansible_collections.graceful.azure.plugins.module_utils._policy import action_of
from ansible_collections.graceful.azure.plugins.module_utils._record import CLOCK_SLACK
from ansible_collections.graceful.azure.plugins.module_utils._text import clean, iso, listed, quoted, quoted_list
from ansible_collections.graceful.azure.plugins.module_utils._times import UNCONFIRMED_FOR
from ansible_collections.graceful.azure.plugins.plugin_utils._approvals import approvals
from ansible_collections.graceful.azure.plugins.plugin_utils._controller_steps import tasks_of
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import NO_SUCH_VARIABLE

Json = dict[str, t.Any]

# What is kept back of the notice at most, for the approval itself and for clocks that differ.
MARGIN = 10
UNKNOWN_NOTICE = 300
# What was announced too late to be done in time is still better begun than not.
LEAST = 5
# A run does not wait for longer, whatever the notice: the next one takes it up.
LONGEST = 86400
# Whoever has less does not wait for whoever has more.
URGENT = 120
# How old a report that a host is ready may be, and a second more for each host: they do not all report at once.
FRESH = 15
# How old the proof of a step that the controller takes may be, and how old where passes take long: each step is proven
# in a pass of its own, and what is proven has to count until the others are.
STEP_FRESH = 30.0
STEP_FRESH_AT_MOST = 300.0
# How long after the host has asked the controller takes a step. Other runs take over only after a longer silence.
STEP_TAKEN_WITHIN = 60
# How often a host is tried to be put back by one run.
PUT_BACK_TRIES = 3
# How often a run can take in hosts that had nothing to do before; the role's main.yml has one part more.
MOST_JOININGS = 7
NOTHING = "steps/nothing.yml"
CONTROLLER_STEPS = "controller_steps.yml"
UNDOING = 600
IS_HANDLING = "is handling it"
NEVER_COME_BACK = ("preempt", "terminate")
SETTINGS = ("policy", "min_available", "window", "drain_budget")
BUSY = ("working", "next")
NOT_BEGUN = ("", "looked", "released")


class Seen(t.NamedTuple):
    """What one pass starts from."""

    # What the action plugin answered for each host of the play.
    hosts: t.Mapping[str, Json]
    groups: t.Mapping[str, t.Sequence[str]]
    # Azure names that the inventory tells, also of hosts outside this run.
    names: t.Mapping[str, str]
    now: float
    # What became of the approvals of the last pass, and of the question to a person.
    approvals: t.Sequence[Json] = ()
    answers: t.Mapping[str, bool] = {}
    # Hosts of the play that were not asked, because the run is for one event that does not concern them.
    unasked: t.Collection[str] = ()


def begin(run_id: str, run_name: str, options: Json, now: float) -> Json:
    """The state of a run before its first pass. What matters can be rebuilt from Azure's document and the records.

    Options are the settings of the run, and check_mode, forks, drill and webhooks."""
    return {
        "run_id": run_id,
        "run_name": run_name,
        "options": options,
        "started": iso(now),
        "check_mode": bool(options.get("check_mode")),
        "drill": bool(options.get("drill")),
        "wait_until": now + options.get("wait", 0),
        "pass": 0,
        "at": now,
        "events": {},
        "hosts": {},
        # Azure names that hosts told in this run, and those that they told to earlier ones.
        "names": {},
        "learnt": {},
        "doubtful_names": [],
        # Whom the run asks; None: all hosts of the play. And why it asks all of them after all.
        "only": None,
        "asks_all": "",
        "orders": {},
        "controller_steps": {},
        "approve": [],
        "confirm": [],
        "confirmed": {},
        "mistakes": {},
        "told": [],
        "worked": False,
        "joinings": 0,
        "joining": [],
        "done": False,
        "next": "act.yml",
    }


def advance(before: Json, seen: Seen) -> Json:
    """The run after another look at everything."""
    return _Pass(copy.deepcopy(before), seen).run


class _Pass:
    def __init__(self, run: Json, seen: Seen) -> None:
        self.run = run
        self.seen = seen
        self.now = seen.now
        self.options: Json = run["options"]
        self.hosts: dict[str, Json] = run["hosts"]
        # How long the last pass took, also where the controller was slow.
        self.took = max(0.0, self.now - run["at"])
        run.update({"pass": run["pass"] + 1, "at": self.now})
        for host in seen.hosts:
            self._remember_host(host)
        self.names = self._azure_names()
        announced = self._plan()
        self._note_approvals()
        # The events that are announced now.
        self.standing = {event_id: self._remember_event(event_id, entry) for event_id, entry in announced.items()}
        self._remember_ends()
        self.held_by = self._held_by_other_runs()
        self._decide()
        run["orders"] = {host: order for host in sorted(seen.hosts) if (order := self._order(host))}
        run["joining"] = self._joining()
        # What was put back in this pass may be what something else has waited for.
        self.again = self._was_waited_for()
        self._order_pass()
        run["worked"] = run["worked"] or any(order["order"] != "look" for order in run["orders"].values())
        self._end_or_go_on()

    # ---- what is known

    def _remember_host(self, name: str) -> None:
        seen = self.seen.hosts[name]
        observation, told = seen.get("observation") or {}, seen.get("mistakes") or []
        known = self.hosts.setdefault(
            name,
            {"record": None, "record_error": None, "reachable": False, "error": None, "document": "", "report": None,
             "timeline": [], "events": [], "failures": 0, "closed": [], "state": "", "message": "", "time": 0.0,
             "interruptions": [], "settings": {}, "saw": False, "misspelt": [], "ahead": 0.0},
        )  # fmt: skip
        known.update(reachable=seen["reachable"], error=seen.get("error") or observation.get("error"))
        known.update({key: seen[key] for key in ("settings", "interruptions") if seen.get(key)})
        if observation:
            known.update({key: observation[key] for key in ("record", "record_error", "document")})
            known.update(time=observation["time"] or 0.0, saw=True)
            if known["time"] and self._is_current(name):
                known["ahead"] = known["time"] - seen["at"]
            _add_marks(known, observation["record"])
        name_told = known["settings"].get("vm_name") or observation.get("vm_name")
        if name_told:
            self.run["names"][name] = name_told
        # After the first pass, what is registered may hide a name that is like ours.
        known["misspelt"] += [text for text in told if NO_SUCH_VARIABLE in text and text not in known["misspelt"]]
        self.run["mistakes"][name] = list(dict.fromkeys([*known["misspelt"], *told]))
        report = seen.get("report") if self._is_current(name) else None
        known["report"] = {**report, "order": seen.get("order")} if report else None
        if report:
            known.update(state=report["state"], message=report["message"])
            _add_marks(known, report["closed"])
            if report["state"] == "put_back" and report["closed"]:
                # The record may also have events of another run.
                ordered = set(map(same_id, seen.get("events") or [])).intersection(report["closed"]["events"])
                known.update(closed=sorted(ordered.union(known["closed"])), failures=0)
            if report["state"] == "failed" and report["tried"] and seen.get("order") == "put_back":
                known["failures"] += 1
            if report["state"] == "ready":
                known["failures"] = 0

    def _is_current(self, host: str) -> bool:
        return bool(self.seen.hosts[host].get("pass") == self.run["pass"])

    def _has_left(self, host: str) -> bool:
        """It had nothing to do, or was not asked, and does not take part at the moment."""
        return host in self.seen.unasked or (host in self.seen.hosts and not self._is_current(host))

    @property
    def _can_join(self) -> bool:
        return bool(self.run["joinings"] < MOST_JOININGS)

    def _plan(self) -> dict[str, Json]:
        """What is announced and what it means, by event id."""
        observations: Json = {host: {"reachable": False, "vm_name": name} for host, name in self.names.items()}
        for host in self.seen.unasked:
            # Nothing speaks against it. What an event needs of it, it has to report itself.
            observations[host] = {"reachable": True, "vm_name": self.names.get(host)}
        settings = {}
        for host, seen in self.seen.hosts.items():
            known, own = self.hosts[host], seen.get("settings") or {}
            observations[host] = {
                "reachable": known["reachable"],
                "vm_name": self.names.get(host),
                # What a host saw in an earlier pass, before it left the run, is out of date.
                "events": (seen.get("observation") or {}).get("events") if self._is_current(host) else None,
                "error": known["error"] if known["reachable"] else None,
                "drained": bool(known["record_error"]) or any(drained_steps(known["record"])),
                "mistakes": self.run["mistakes"][host],
                "drain_not_set": bool(own.get("drain_not_set")),
                "claimed_for": {
                    event_id: known["time"] - entry["noticed"]
                    for event_id, entry in _events(known["record"]).items()
                    if entry["noticed"]
                },
            }
            settings[host] = {key: own[key] for key in SETTINGS if own.get(key) is not None}
        targeted = [*self.seen.hosts, *self.seen.unasked]
        found = plan(observations, self.seen.groups, targeted, settings, now=iso(self.now))
        self.run.update(summary=found["summary"], missing_groups=found["missing_groups"])
        return {same_id(entry["event_id"]): entry for entry in found["events"]}

    def _azure_names(self) -> dict[str, str]:
        """As told by the hosts in this run, by the inventory, or in earlier runs unless another host has it now."""
        told = {**self.seen.names, **self.run["names"]}
        changed = {host for host, name in told.items() if self._says_another_name(host, name)}
        taken = {same_name(name) for host, name in told.items() if host not in changed}
        learnt = {host: name for host, name in self.run["learnt"].items() if same_name(name) not in taken}
        silent = {same_name(name) for host, name in learnt.items() if host not in told}
        self.run["doubtful_names"] = sorted(host for host in changed if same_name(told[host]) in silent)
        return {**learnt, **told}

    def _says_another_name(self, host: str, name: str) -> bool:
        """Than it told before. Unless that is written, it does not take the name from a host that cannot be asked."""
        written = host in self.seen.names or self.hosts.get(host, {}).get("settings", {}).get("vm_name")
        return not written and same_name(self.run["learnt"].get(host, name)) != same_name(name)

    def _known(self, entry: Json) -> list[Json]:
        """What is known of those hosts of an event that are part of the run."""
        return [self.hosts[host] for host in entry["hosts"] if host in self.hosts]

    def _remember_event(self, event_id: str, entry: Json) -> Json:
        blank: Json = {**dict.fromkeys(("started", "gone", "approved", "approved_by")), "noticed": iso(self.now),
                       "tried": [], "refused": "", "held": [], "ready": [], "problems": {}}  # fmt: skip
        story: Json = self.run["events"].setdefault(event_id, blank)
        left = entry["seconds_left"]
        waits = [known["settings"].get("gone_timeout", 1800) for known in self._known(entry)]
        until = self.now + min(LONGEST, (UNKNOWN_NOTICE if left is None else left) + max(waits, default=1800))
        until = min(story.get("until", until), until) if left is None else until
        # A host that is to be put back when nothing follows is waited for until then, and a pass longer.
        until = max(until, _seconds(story["noticed"]) + entry["expires_after"] + 60)
        story.update(entry=entry, until=until, gone=None)
        if entry["event_status"] == STARTED:
            story["started"] = story["started"] or iso(self.now)
        for known in self._known(entry):
            if event_id not in known["events"]:
                known["events"].append(event_id)
        return story

    def _remember_ends(self) -> None:
        for event_id, story in self.run["events"].items():
            if event_id not in self.standing and self._somebody_would_see(story):
                story["gone"] = story["gone"] or iso(self.now)
        for name, known in self.hosts.items():
            self._times_from(name, known)

    def _somebody_would_see(self, story: Json) -> bool:
        """Gone is said by a host that the event concerns and that can read its document."""
        hosts = [host for host in story["entry"]["hosts"] if host in self.seen.hosts] or self.seen.hosts
        readers = [self.seen.hosts[host] for host in hosts if self._is_current(host)]
        return any(seen["reachable"] and (seen.get("observation") or {}).get("events") is not None for seen in readers)

    def _times_from(self, name: str, known: Json) -> None:
        """What the hosts' own records tell: events that an earlier run left, and when they started and ended."""
        closed = (known["report"] or {}).get("closed")
        for event_id, entry in {**_events(known["record"]), **_events(closed)}.items():
            if event_id not in known["events"]:
                known["events"].append(event_id)
            story = self.run["events"].get(event_id)
            if story is None or name not in story["entry"]["hosts"]:
                continue
            if entry["started"]:
                story["started"] = min(filter(None, [story["started"], iso(entry["started"])]))
            if entry["gone"] and story["gone"]:
                story["gone"] = min(story["gone"], iso(entry["gone"]))
            approval = entry["approval"]
            if approval and not story["approved"] and _was_approved(approval, entry["event"], story):
                story.update(approved=iso(approval["at"]), approved_by=name)

    def _note_approvals(self) -> None:
        for answer in self.seen.approvals:
            story = self.run["events"].get(same_id(str(answer.get("event_id"))))
            if story is None:
                continue
            # A host that was lost meanwhile may have sent the request.
            state = "failed" if answer.get("reachable", True) else "unconfirmed"
            report = answer.get("report") or {"state": state, "message": answer.get("error") or ""}
            state = report["state"]
            if state == "approved":
                at = (report.get("approval") or {}).get("at")
                story.update(approved=iso(at or self.now), approved_by=answer["host"], tried=[])
            elif state in ("unconfirmed", "unexpected", "failed", "held_by_other_run"):
                story["tried"].append(answer["host"])
                if state == "unconfirmed":
                    story["posted"] = self.now
                elif report.get("final"):
                    story["refused"] = f"{answer['host']} could not approve it: {report['message'] or 'no reason'}"
        if self.seen.answers:
            self.run["answered"] = self.now
            self.run["confirmed"].update({same_id(event_id): yes for event_id, yes in self.seen.answers.items()})

    # ---- who holds what

    def _claims(self, host: str) -> t.Iterator[tuple[str, Json, bool]]:
        """The events in a host's record: id, entry, and whether this run may act on it."""
        known = self.hosts.get(host, {})
        for event_id, entry in _events(known.get("record")).items():
            claim = entry["claim"]
            # As the host has it: a clock that was set back since must not keep a dead run's claim alive.
            stale = known["time"] > claim["silent_until"] or claim["renewed"] - known["time"] > CLOCK_SLACK
            # A drill cannot know whether an event that it did not announce is over.
            foreign = self.run["drill"] and event_id not in self.run["events"]
            free = not foreign and (stale or bool(self.options.get("force_claim")))
            yield event_id, entry, self._is_ours(entry) or free

    def _is_ours(self, entry: Json) -> bool:
        return bool(entry["claim"]["run_id"] == self.run["run_id"])

    def _held_by_other_runs(self) -> dict[str, str]:
        """Events that another run has. Of two runs at once, the one that has the first claimed host keeps the event."""
        held: dict[str, str] = {}
        for event_id, story in self.standing.items():
            found = ((host, *claim) for host in story["entry"]["hosts"] for claim in self._claims(host))
            first = next((each for each in found if each[1] == event_id), None)
            if first and not first[3]:
                run_name = quoted(first[2]["claim"]["run_name"])
                held[event_id] = f"the run {run_name} {IS_HANDLING} on {clean(first[0], 80)}"
        return held

    # ---- what may be approved

    def _decide(self) -> None:
        reports: dict[str, dict[str, Json]] = {host: {} for host in self.hosts}
        for event_id, story in self.standing.items():
            entry = story["entry"]
            entry["holds"] = [*entry["holds"], *self._more_holds(event_id, story)]
            for host in entry["hosts"]:
                if host in reports:
                    reports[host][entry["event_id"]] = self._readiness(host, event_id)
        decision = approvals({"events": [story["entry"] for story in self.standing.values()]}, reports)
        self.run["approve"], self.run["confirm"] = [], []
        for cleared in decision["approve"]:
            self._clear(same_id(cleared["event_id"]))
        for held in decision["held"]:
            story = self.standing[same_id(held["event_id"])]
            story.update(waits_for=held["reasons"], held=self._lasting(story["entry"], held["reasons"]))
        for ignored in decision["ignored"]:
            story = self.standing[same_id(ignored["event_id"])]
            if not _matters(story["entry"]) and story["entry"]["event_status"] != STARTED:
                # What is written wrong may be what would have said something else about it.
                story["held"] = story["entry"]["mistakes"]
        for story in self.standing.values():
            entry = story["entry"]
            story["ready"] = [host for host in entry["hosts"] if self._state_of(host) == "ready"]
            story["waits_with"] = [one for one in entry["coupled"] if not self.standing[same_id(one)]["approved"]]
        self._note_problems()

    def _note_problems(self) -> None:
        """Why a host was not ready when it was last asked to be. What failed is kept while it is tried again."""
        for host in filter(self._is_current, self.seen.hosts):
            report = self.hosts[host]["report"]
            if not report or report["order"] != "ready" or report["state"] not in ("failed", *BUSY):
                continue
            for event_id in map(same_id, self.seen.hosts[host].get("events") or []):
                problems = self.run["events"].get(event_id, {}).get("problems", {})
                if report["state"] == "failed" or host not in problems:
                    problems[host] = report["message"]

    def _more_holds(self, event_id: str, story: Json) -> list[str]:
        left = [host for host in story["entry"]["hosts"] if self._has_left(host)]
        holds = [self.held_by.get(event_id)]
        if left and not self._can_join:
            holds.append(f"{listed(left)} cannot join this run any more: start another run")
        holds.append(story["refused"])
        if story["approved"]:
            holds.append("it is approved already")
        if self.run["confirmed"].get(event_id) is False:
            holds.append("Nobody confirmed the approval.")
        posted = [story["posted"]] if story.get("posted") else []
        # What the record of a host says about an event that does not concern it counts for nothing.
        for host in self._known(story["entry"]):
            approval = (_events(host["record"]).get(event_id) or {}).get("approval")
            if approval and approval["status"] in ("posting", "unconfirmed"):
                posted.append(self.now - max(0.0, host["time"] - approval["at"]))
        if posted and self.now - max(posted) < UNCONFIRMED_FOR:
            holds.append(
                "a request to start it was sent and is not confirmed yet; the document is read until it is clear"
            )
        return [hold for hold in holds if hold]

    def _state_of(self, host: str) -> str:
        report = self.hosts.get(host, {}).get("report")
        return str(report["state"]) if report else ""

    def _readiness(self, host: str, event_id: str) -> Json:
        """Ready only by a report of this very pass, for an order that named the event, and if its record agrees."""
        known, seen = self.hosts[host], self.seen.hosts[host]
        report, age = known["report"], self.now - seen["at"]
        if not known["reachable"]:
            before = f"; before that, {known['message']}" if known["state"] == "failed" else ""
            reason = f"it cannot be reached{before}"
        elif report is None:
            reason = known["error"] or "it has not reported yet"
        elif event_id in report["held"]:
            reason = f"{report['held'][event_id]['run_name'] or 'another run'} {IS_HANDLING}"
        elif report["state"] in NOT_BEGUN:
            reason = "nothing was begun"
        elif report["state"] != "ready":
            reason = report["message"] or report["state"]
        elif report["order"] != "ready" or event_id not in map(same_id, seen.get("events") or []):
            reason = "it got ready for another event"
        elif age > self._oldest:
            reason = f"its report is {age:.0f} s old; it is verified again"
        elif not self._is_noted_as_ready(seen, event_id):
            reason = "its record does not say that this run has verified it; it is verified again"
        else:
            return {"ready": True, "reason": report["message"]}
        return {"ready": False, "reason": reason}

    def _is_noted_as_ready(self, seen: Json, event_id: str) -> bool:
        """Whether the record that came with the report says so, and of this run."""
        entry = _events((seen.get("observation") or {}).get("record")).get(event_id)
        return bool(entry and entry["ready"] and self._is_ours(entry))

    def _lasting(self, entry: Json, reasons: t.Sequence[str]) -> list[str]:
        """The reasons without those that only say that work is under way, or that it was not begun for the others."""
        busy = [host for host in entry["hosts"] if self._is_busy(host)]
        idle = [host for host in entry["hosts"] if self.hosts.get(host, {}).get("state") in NOT_BEGUN]
        lasting = [reason for reason in reasons if reason != entry["put_off"] and not _is_of(busy, reason)]
        return [reason for reason in lasting if not _is_of(idle, reason)] or lasting

    def _is_busy(self, host: str) -> bool:
        """Whether the host is on its way to being ready, and has not failed."""
        if host not in self.hosts or self._is_blind(host) or self.run["mistakes"].get(host):
            return False
        return self._state_of(host) in ("", "looked", *BUSY)

    def _clear(self, event_id: str) -> None:
        story = self.standing[event_id]
        entry = story["entry"]
        story["held"] = []
        wants = [host for host in entry["hosts"] if self.hosts[host]["settings"].get("confirm")]
        if wants and event_id not in self.run["confirmed"]:
            self.run["confirm"].append({key: entry[key] for key in ("event_id", "reason")})
            return
        left = [host for host in entry["approvers"] if host not in story["tried"]]
        if not left:
            story["tried"], left = [], entry["approvers"]
        self.run["approve"].append(
            {
                "event": _event_of(entry),
                "host": left[0],
                # Asked again when it is approved: this run may be suspended meanwhile, and its clock with it.
                "reported": min(self.seen.hosts[host]["at"] for host in entry["hosts"]),
                "max_age": self._oldest,
            }
        )

    @property
    def _oldest(self) -> int:
        return FRESH + len(self.run["involved"])

    # ---- one order for each host

    def _order(self, host: str) -> Json | None:
        known = self.hosts[host]
        if self.seen.hosts[host].get("lost"):
            # Ansible does not come back to it in this play, so that nobody could carry the order out.
            return None
        wanted = [story["entry"] for event_id, story in self.standing.items() if self._wants(event_id, host)]
        mine = {event_id: entry for event_id, entry, may_act in self._claims(host) if may_act}
        # This run's own claims that were not given back.
        live = [key for key in mine if self._is_ours(mine[key]) and mine[key]["claim"]["silent_until"] > known["time"]]
        lost = [key for key in live if key in self.held_by or self._is_stopped(key)]
        if lost:
            return _order("release", [mine[key]["event"] for key in lost])
        if wanted:
            return self._ready_order(host, wanted)
        back = [key for key in mine if not self._expired(key) or not known["reachable"]]
        back = [key for key in back if key not in self.held_by and not self._is_stopped(key)]
        lapsed = [event_id for event_id, story in self.standing.items() if host in story["entry"]["lapsed"]]
        # It was put back for that, and only has to be remembered as long as the event stands.
        back = [key for key in back if not (key in lapsed and mine[key]["lapsed"])]
        if back and known["failures"] < PUT_BACK_TRIES and not self._lost_for_good(host, back):
            events = [mine[key]["event"] for key in back]
            return _order("put_back", events, seconds=UNDOING, lapsed=[key for key in back if key in lapsed])
        return None

    def _ready_order(self, host: str, wanted: t.Sequence[Json]) -> Json:
        lefts = [(UNKNOWN_NOTICE if entry["seconds_left"] is None else entry["seconds_left"]) for entry in wanted]
        actions = [action_of(entry["actions"][host]) for entry in wanted]
        left = min(lefts)
        # Nothing is kept back for an approval that is never sent.
        usable = left - min(MARGIN, left // 4) if any(action.approves for action in actions) else left
        seen = (self.seen.hosts[host].get("observation") or {}).get("events") or []
        own = {same_id(event["event_id"]): event for event in seen}
        return _order(
            "ready",
            [own.get(same_id(entry["event_id"])) or _event_of(entry) for entry in wanted],
            seconds=float(min(LONGEST, max(LEAST, usable))),
            drain=any(action.drains for action in actions),
            urgent=left < URGENT,
            fresh=self._fresh(host),
        )

    def _fresh(self, host: str) -> float:
        """What was verified before a person was asked does not count when the person has answered."""
        if self.run["confirm"]:
            return 0.0
        passes = 1 + int(self.hosts[host]["settings"].get("steps") or 1)
        fresh: float = max(STEP_FRESH, min(STEP_FRESH_AT_MOST, passes * self.took + 10))
        return min(fresh, self.now - self.run["answered"]) if self.run.get("answered") else fresh

    def _wants(self, event_id: str, host: str) -> bool:
        """Whether this host has to get ready for this event, or to stay so."""
        story = self.standing[event_id]
        entry = story["entry"]
        if host not in entry["actions"] or entry["event_status"] == STARTED or event_id in self.held_by:
            return False
        if self._has_left(host):
            return False
        # What is about to be approved is waited for in this very pass.
        approved = story["approved"] or any(
            one["event"]["event_id"] == entry["event_id"] for one in self.run["approve"]
        )
        claims = {key: may_act for key, _entry, may_act in self._claims(host)}
        # The document may not show an event for a while: who was put back then is drained again; nobody posts again.
        returned = event_id in self.hosts[host]["closed"] and event_id not in claims
        if approved and not returned:
            return False
        if self.run["mistakes"].get(host) or self._is_stopped(event_id) or self._expired(event_id):
            return False
        action = action_of(entry["actions"][host])
        if action.drains:
            begun = claims.get(event_id, False)
            return host in entry["drain"] or begun or (self._is_blind(host) and not entry["wait_until"])
        return action.approves and bool(entry["approvable"]) and not entry["wait_until"]

    def _is_blind(self, host: str) -> bool:
        """Whether it cannot be reached or asked now: it is tried again in each pass."""
        known = self.hosts.get(host)
        return known is not None and bool(not known["reachable"] or known["error"])

    def _is_stopped(self, event_id: str) -> bool:
        """What somebody wrote wrong has to be mended first: nothing is begun as long as there is time for that."""
        story = self.run["events"].get(event_id)
        if story is None or story["gone"] or story["entry"]["event_status"] == STARTED:
            return False
        entry = story["entry"]
        # Another run can do what this one cannot, and takes over what is drained.
        beyond = not self._can_join and any(self._has_left(host) for host in entry["hosts"])
        return bool((entry["mistaken"] or beyond) and entry["approvable"] and not entry["no_time_to_lose"])

    def _expired(self, event_id: str) -> bool:
        story = self.run["events"].get(event_id)
        return story is not None and self.now > story["until"]

    def _lost_for_good(self, host: str, event_ids: t.Sequence[str]) -> bool:
        """It does not answer, and its time is over."""
        return not self.hosts[host]["reachable"] and all(map(self._expired, event_ids))

    # ---- who goes first, and how long a call may take

    def _order_pass(self) -> None:
        orders: dict[str, Json] = self.run["orders"]
        ready = [host for host, order in orders.items() if order["order"] == "ready"]
        fresh = [host for host in ready if self._is_fresh(host)]
        begun = [host for host in ready if host not in fresh]
        urgent = [host for host in fresh if orders[host]["urgent"]]
        first = urgent or [host for host in begun if orders[host]["urgent"] and self._state_of(host) in BUSY]
        allowed = set(urgent if first else fresh[: self._batch(len(fresh) + len(begun), begun)])
        for host in fresh:
            if host not in allowed:
                del orders[host]
        self.run["involved"] = sorted(self.seen.hosts) if self.options.get("wait") else self._involved()
        slice_length = self._slice(len(self.run["involved"]))
        active = [host for host in orders if orders[host]["order"] != "ready" or self._state_of(host) != "ready"]
        for host in self.run["involved"]:
            order = orders.setdefault(host, _order("look", []))
            patient = host in active if active else not self.again
            order["wait"] = slice_length if patient and order["order"] != "release" else 0.0
            if order["order"] == "ready" and host not in active and active:
                # It is ready already, and verifies that again while it waits for the others.
                order["wait"] = min(2.0, slice_length)
            order["known"] = self.hosts[host]["document"]

    def _involved(self) -> list[str]:
        hosts = {*self.run["orders"], *(self.run.get("involved") or [])}
        hosts.update(host for entry in self._to_do() for host in entry["hosts"])
        if any(story["entry"]["unknown_names"] for story in self.standing.values()):
            # A name that nobody has may be that of a host that could not be asked.
            hosts.update(host for host in self.seen.hosts if self._is_blind(host) and host not in self.run["names"])
        return sorted(host for host in hosts if host in self.seen.hosts and not self._has_left(host))

    def _to_do(self) -> list[Json]:
        """The events that something is done about."""
        return [story["entry"] for story in self.standing.values() if _matters(story["entry"])]

    def _is_fresh(self, host: str) -> bool:
        """Whether the host has not been asked to get ready by this run yet."""
        return not any(self._is_ours(entry) for _id, entry, _may in self._claims(host))

    def _batch(self, size: int, begun: t.Sequence[str]) -> int:
        """How many more hosts may begin: the batch under way has to be ready first."""
        sizes = [
            max(1, math.floor(size * int(text[:-1]) / 100)) if text.endswith("%") else int(text)
            for text in self.options.get("serial") or ["100%"]
        ]
        # A host that failed does not stop the others: the event is held anyway, and Azure acts in the end.
        if any(self._state_of(host) in BUSY for host in begun):
            return 0
        done, number = len(begun), 0
        while number < len(sizes) - 1 and done >= sizes[number]:
            done -= sizes[number]
            number += 1
        return sizes[number]

    def _slice(self, hosts: int) -> float:
        """Where there are fewer forks than hosts, they are called one after the other within one slice."""
        rounds = math.ceil(max(1, hosts) / max(1, int(self.options.get("forks") or 5)))
        length = max(1.0, float(self.options.get("wait_round") or 10) / rounds)
        # Hosts that join are not kept waiting.
        return min(2.0, length) if self.run["joining"] else length

    # ---- the end

    def _end_or_go_on(self) -> None:
        run = self.run
        acting = [host for host, order in run["orders"].items() if order["order"] != "look"]
        waiting = self.now < run["wait_until"] and (not run["worked"] or self._time_will_come())
        run["controller_steps"] = {host: step for host in acting if (step := self._controller_step(host))}
        pending = acting or run["approve"] or run["confirm"] or run["joining"] or waiting or self.again
        if run["check_mode"] or not pending:
            run.update(done=True, next="finish.yml", finished=iso(self.now), end_reason=self._why_over())
        elif run["confirm"]:
            run["next"] = "confirm.yml"
        elif run["approve"]:
            run["next"] = "approve.yml"
        elif run["joining"]:
            # All hosts of the play look again, and those that are named now go on with the others.
            run.update(next=NOTHING, joinings=run["joinings"] + 1, involved=sorted({*self.seen.hosts, *run["joining"]}))
            if run["only"] is not None:
                run["only"] = sorted({*run["only"], *run["joining"]})
        else:
            run["next"] = CONTROLLER_STEPS if run["controller_steps"] else "act.yml"
        if run["next"] != CONTROLLER_STEPS:
            # What the controller does not come to in this pass is asked for again.
            run["controller_steps"] = {}
        self._tell()

    def _time_will_come(self) -> bool:
        """Whether something that was put off begins while this run waits."""
        times = [story["entry"]["wait_until"] for story in self.standing.values()]
        return any(_seconds(time) <= self.run["wait_until"] for time in times if time)

    def _was_waited_for(self) -> bool:
        """Whether a host was put back just now while events stand that others have not been through yet."""
        if not any(self._state_of(host) == "put_back" for host in self.seen.hosts):
            return False
        closed = {(host, event_id) for host, known in self.hosts.items() for event_id in known["closed"]}
        left = ((host, same_id(entry["event_id"])) for entry in self._to_do() for host in entry["hosts"])
        return any(pair not in closed for pair in left)

    def _joining(self) -> list[str]:
        """Hosts that had nothing to do before and that an event names now, or may name."""
        if not self._can_join:
            return []
        named = {host for entry in self._to_do() for host in entry["hosts"]}
        unknown = self._names_of_nobody()
        if unknown:
            self.run["asks_all"] = (
                f"None of the hosts that were asked has the Azure name {quoted_list(unknown)}: all hosts are asked."
            )
            named.update(self.seen.unasked)
        return sorted(host for host in named if self._has_left(host))

    def _names_of_nobody(self) -> list[str]:
        """Names in events that none of the hosts has which were asked, while there are hosts that were not."""
        if not self.seen.unasked:
            return []
        event = self.options.get("event") or {"resources": []}
        known = {same_name(name) for host, name in self.names.items() if host not in self.seen.unasked}
        lost = [name for name in event["resources"] if same_name(name) not in known]
        return lost + [name for entry in self._to_do() for name in entry["unknown_names"]]

    def _tell(self) -> None:
        """What the webhooks have not been told yet: at once, unless somebody has no time for that, and at the end."""
        run = self.run
        news = [pair for pair in self._occasions() if pair not in run["told"]]
        urgent = any(order.get("urgent") for order in run["orders"].values())
        run["tell"] = []
        if not self.options.get("webhooks") or run["check_mode"]:
            return
        if run["next"] == "act.yml" and news and not urgent:
            run["next"] = "tell.yml"
        if run["next"] in ("tell.yml", "finish.yml"):
            run["tell"] = list(dict.fromkeys(occasion for _event_id, occasion in news))
            run["told"] += news

    def _occasions(self) -> list[list[str]]:
        pairs = []
        for event_id, story in self.run["events"].items():
            entry = story["entry"]
            if event_id in self.held_by or not action_of(entry["action"]).tells:
                continue
            pairs.append([event_id, "noticed"])
            if entry["wait_until"] and not story["gone"]:
                pairs.append([event_id, "deferred"])
            elif story["held"] and not story["approved"]:
                pairs.append([event_id, "held"])
            if story["approved"]:
                pairs.append([event_id, "approved"])
        return pairs

    def _controller_step(self, host: str) -> Json | None:
        """What the controller has to do for the host before its next call: a step, or a look at its balancers."""
        known, order = self.hosts[host], self.run["orders"][host]["order"]
        step = (known["report"] or {}).get("next")
        if step and self.now - self.seen.hosts[host]["at"] > STEP_TAKEN_WITHIN:
            # Somebody else may have taken over since: the host is asked again.
            return None
        if step and order == known["report"]["order"]:
            # Which of the role's files takes it is decided where it is compared with what the user has written.
            described = self.seen.hosts[host].get("step") or {}
            return {**step, "tasks": described.get("tasks") or tasks_of(step)}
        if order == "ready" and known["settings"].get("looks") and self._is_fresh(host):
            return {"mode": "look", "kind": "haproxy", "tasks": "look.yml"}
        return None

    # ---- why it is over

    def _why_over(self) -> str:
        run = self.run
        if run["check_mode"]:
            return "The run ended after the plan: check mode does nothing."
        if not run["events"] and not run["worked"]:
            blind = [host for host in sorted(self.hosts) if self._is_blind(host)]
            if not blind:
                return "Nothing is announced."
            said = f"The run ended because {listed(blind)} could not be asked."
            answered = len(self.hosts) - len(blind)
            hosts = "the host" if answered == 1 else f"the {answered} hosts"
            return f"Nothing is announced to {hosts} that answered. {said}" if answered else said
        reasons = [self._why_left(event_id, story) for event_id, story in run["events"].items() if not story["gone"]]
        left = list(filter(self._is_left, self.hosts))
        if left:
            reasons.append(f"{listed(left)} could not be put back")
        return f"The run ended because {'; '.join(reasons) or 'nothing is pending any more'}."

    def _why_left(self, event_id: str, story: Json) -> str:
        """Why nothing more is done for an event that still stands."""
        entry, title = story["entry"], event_title(story["entry"])
        if event_id in self.held_by:
            return f"another run is handling {title}"
        if entry["wait_until"]:
            return f"{title} is deferred until {entry['wait_until']}, which another run has to look after"
        if self._is_stopped(event_id):
            return f"what holds {title} has to be corrected before anything is begun"
        if self._expired(event_id):
            return f"{title} has not gone in the time that a run waits for it"
        if story["held"]:
            return f"this run can do nothing more about {title}"
        return f"nothing is to be done about {title}"

    def _is_left(self, host: str) -> bool:
        """Whether the host is still drained by this run although its events are gone."""
        ours = [key for key, entry, _may in self._claims(host) if self._is_ours(entry)]
        over = all((self.run["events"].get(key) or {"gone": True})["gone"] for key in ours)
        return bool(ours and over and drained_steps(self.hosts[host]["record"]))


def event_title(entry: Json) -> str:
    return f"{clean(entry['event_type'], 40)} of {listed(entry['hosts'] or entry['resources'])}"


def _seconds(moment: str) -> float:
    read = parse_time(moment)
    return read.timestamp() if read else 0.0


def _add_marks(known: Json, record: Json | None) -> None:
    for mark in (record or {}).get("timeline", []):
        if mark not in known["timeline"]:
            known["timeline"].append(mark)


def _matters(entry: Json) -> bool:
    """Whether something is done about it, and not only told."""
    return any(action.drains or action.approves for action in map(action_of, entry["actions"].values()))


def _is_of(hosts: t.Sequence[str], reason: str) -> bool:
    """Whether the reason says that one of these hosts is not ready."""
    return any(reason.startswith((f"{clean(host)} is not ready", f"{clean(host)} has not reported")) for host in hosts)


def _was_approved(approval: Json, event: Json, story: Json) -> bool:
    """Confirmed, or Azure has started it before its time: then a request whose answer was lost has arrived."""
    if approval["status"] in ("posting", "unconfirmed"):
        return bool(story["started"] and event["not_before"] and story["started"] < event["not_before"])
    return bool(approval["status"] == "approved")


def _events(record: Json | None) -> dict[str, Json]:
    """The events in a host's record, by id."""
    return record["events"] if record else {}


def drained_steps(record: Json | None) -> list[Json]:
    return [step for step in (record or {}).get("steps", []) if step["phase"] == "drain" and step["status"] != "undone"]


def _order(order: str, events: t.Sequence[Json], **more: t.Any) -> Json:
    return {"order": order, "events": [dict(event) for event in events], **more}


def _event_of(entry: Json) -> Json:
    """The event of an entry of the plan, as a host that it names sees it."""
    return {**{name: entry.get(name) for name in EVENT_FIELDS}, "affects_me": True}
