# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One pass of a run: what it starts from, and the questions about hosts and events that its parts ask. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._document import STARTED, parse_time, same_id
from ..module_utils._policy import action_of
from ..module_utils._record import CLOCK_SLACK, unfinished
from ..module_utils._text import clean, listed

Json = dict[str, t.Any]

# How often a run can begin again with all hosts; the role's main.yml has one part more.
MAX_RESTARTS = 7
# States of a host that is getting ready.
BUSY = ("working", "next")


class PassInput(t.NamedTuple):
    """What a pass starts from, beside the state of the run."""

    # The last result of the action plugin host_maintenance for each host that is asked.
    hosts: t.Mapping[str, Json]
    groups: t.Mapping[str, t.Sequence[str]]
    # Azure names by the inventory, also of hosts outside this run.
    inventory_names: t.Mapping[str, str]
    now: float
    # The results of the approvals and the answers to the questions that the last pass asked for.
    approvals: t.Sequence[Json] = ()
    confirmations: t.Mapping[str, bool] = {}
    # Hosts of the play that are not asked, because the run is for one event that does not concern them.
    not_asked: t.Collection[str] = ()


class Pass:
    def __init__(self, run: Json, given: PassInput) -> None:
        self.run = run
        self.given = given
        self.now = given.now
        self.options: Json = run["options"]
        self.hosts: dict[str, Json] = run["hosts"]
        self.events: dict[str, Json] = run["events"]
        # Azure names of hosts, from all sources, and the events that are announced now: see _observed.py.
        self.names: dict[str, str] = {}
        self.announced: dict[str, Json] = {}
        # Hosts that take part from the next pass on: see _orders.py.
        self.to_add: list[str] = []
        # How long the last pass took, also where the controller was slow.
        self.last_pass_took = max(0.0, self.now - run["at"])
        run.update({"pass": run["pass"] + 1, "at": self.now})

    # ---- hosts

    def is_current(self, host: str) -> bool:
        """Whether the host was called in this pass."""
        return bool(self.given.hosts[host].get("pass") == self.run["pass"])

    def is_inactive(self, host: str) -> bool:
        """Whether a host of the play takes no part in this pass, because it had nothing to do or was not asked."""
        return host in self.given.not_asked or (host in self.given.hosts and not self.is_current(host))

    def can_add_hosts(self) -> bool:
        return bool(self.run["restarts"] < MAX_RESTARTS)

    def cannot_be_asked(self, host: str) -> bool:
        """Whether the host cannot be reached, or cannot read its metadata service: it is tried again in each pass."""
        state = self.hosts.get(host)
        return state is not None and bool(not state["reachable"] or state["error"])

    def state_of(self, host: str) -> str:
        """What the host reported in this pass."""
        report = self.hosts.get(host, {}).get("report")
        return str(report["state"]) if report else ""

    def claims(self, host: str) -> t.Iterator[tuple[str, Json, bool]]:
        """The events in the host's record: id, entry, and whether this run may act on it."""
        state = self.hosts.get(host, {})
        for event_id, entry in record_events(state.get("record")).items():
            claim, host_time = entry["claim"], state["host_time"]
            # As the host has it: a clock that was set back since must not keep a dead run's claim alive.
            is_stale = host_time > claim["silent_until"] or claim["renewed"] - host_time > CLOCK_SLACK
            # A drill cannot know whether an event that it did not announce is gone.
            is_foreign = self.options["drill"] and event_id not in self.events
            is_free = not is_foreign and (is_stale or self.options["force_claim"])
            yield event_id, entry, bool(self.is_ours(entry) or is_free)

    def is_ours(self, entry: Json) -> bool:
        return bool(entry["claim"]["run_id"] == self.run["run_id"])

    def is_new(self, host: str) -> bool:
        """Whether this run has not asked the host to get ready yet."""
        return not any(self.is_ours(entry) for _id, entry, _may_act in self.claims(host))

    # ---- events

    def actionable(self) -> list[Json]:
        """The plan's entries for the announced events that something is done about."""
        return [event["entry"] for event in self.announced.values() if is_actionable(event["entry"])]

    def plans_again(self) -> bool:
        """Whether a host was put back in this pass, so that another event may begin that had to wait for that."""
        if not any(self.state_of(host) == "put_back" for host in self.given.hosts):
            return False
        put_back = {(host, event_id) for host, state in self.hosts.items() for event_id in state["put_back"]}
        return any(
            (host, same_id(entry["event_id"])) not in put_back for entry in self.actionable() for host in entry["hosts"]
        )

    def held_by_other_run(self, event_id: str) -> bool:
        return event_id in self.announced and bool(self.announced[event_id]["held_by"])

    def is_blocked(self, event_id: str) -> bool:
        """Whether nothing is begun for the event until its settings are corrected, or another run takes over.

        Only as long as there is time for that."""
        event = self.events.get(event_id)
        if event is None or event["gone"] or event["entry"]["event_status"] == STARTED:
            return False
        entry = event["entry"]
        lacks_hosts = not self.can_add_hosts() and any(map(self.is_inactive, entry["hosts"]))
        return bool((entry["mistaken"] or lacks_hosts) and entry["approvable"] and not entry["must_begin"])

    def has_timed_out(self, event_id: str) -> bool:
        """Whether the run does not wait for the event to be gone any more."""
        return event_id in self.events and self.now > self.events[event_id]["timeout_at"]


def is_actionable(entry: Json) -> bool:
    """Whether a host has to be ready for the event."""
    return any(map(needs_readiness, entry["actions"].values()))


def needs_readiness(action_name: str | None) -> bool:
    action = action_of(action_name)
    return action.drains or action.approves


def event_title(entry: Json) -> str:
    return f"{clean(entry['event_type'], 40)} of {listed(entry['hosts'] or entry['resources'] or ['unnamed VMs'])}"


def record_events(record: Json | None) -> dict[str, Json]:
    """The events in a host's record, by id."""
    return record["events"] if record else {}


def drained_steps(record: Json | None) -> list[Json]:
    return [step for step in unfinished(record) if step["phase"] == "drain"] if record else []


def timestamp(moment: str) -> float:
    parsed = parse_time(moment)
    return parsed.timestamp() if parsed else 0.0
