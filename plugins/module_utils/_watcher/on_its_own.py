# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host acts on its own if no run has claimed its event in time: it drains, saves, and puts itself back.

Every run goes first: a run takes over its claim at any time, and it does nothing while a run has claimed an event.
"""

from __future__ import annotations

import typing as t

from .._checks import WrongSetting
from .._clock import Clock
from .._document import SCHEDULED, STARTED, Event, by_id, same_id, same_name
from .._engine import Engine
from .._errors import WrongOption
from .._look import Order
from .._policy import Decision, Facts, Policy, action_of, decide, validate_policy
from .._record import CLOCK_SLACK, Keeper, Run, unfinished
from .._service import Service
from .._text import clean, duration, listed
from .config import OnItsOwn

Json = t.Dict[str, t.Any]
# With less notice than this it begins at once.
URGENT = 120.0
# Seconds, as in a run: kept back for the approval, assumed if NotBefore is not known, and the least for a drain.
MARGIN, UNKNOWN_NOTICE, LEAST = 10.0, 300.0, 5.0
UNDOING = 600.0
# The claim is stale at once, so that any run may take it over.
SILENT_FOR = -1.0
# Seconds that a call may take.
SLICE = 10.0
# After an approval that failed.
APPROVE_AGAIN = 30.0
# How the process ends: nothing is left to do, or only a controller can go on.
DONE, NEEDS_CONTROLLER = 0, 3
# How often a metadata service or a record that cannot be read is looked at again.
UNREADABLE_LOOKS = 10


class Host(t.NamedTuple):
    """What the host sees."""

    events: t.Sequence[Event]
    record: Json | None
    now: float
    vm_name: str | None


class Plan(t.NamedTuple):
    """What to do now; no order if there is nothing, with the reason in words."""

    order: Order | None
    reason: str = ""
    # What may be approved once the host is ready.
    approve: t.Sequence[Event] = ()


def run_of(host: str) -> Run:
    return Run(f"watcher on {host}", f"watcher on {host}", SILENT_FOR)


class Planner:
    """Decides for one host what a run would order. Pure, but for the policy that it has read once."""

    def __init__(self, config: OnItsOwn, run: Run) -> None:
        self._config = config
        self._run = run
        try:
            self._policy: Policy = validate_policy(config.policy)
        except WrongSetting as exc:
            raise WrongOption(f"The policy cannot be used: {exc}") from exc

    def plan(self, host: Host) -> Plan:
        record = host.record or {"events": {}, "steps": []}
        others = [entry["claim"] for entry in record["events"].values() if self._is_held(entry["claim"], host.now)]
        if others:
            # Also for its other events: the steps belong to the host, and the run takes care of them.
            return Plan(None, f"{clean(others[0]['run_name'], 80)} is handling it")
        standing = by_id(host.events)
        host = host._replace(events=[event for event in host.events if _is_current(event, standing)])
        wanted = [event for event in host.events if self._wants(event, record, host)]
        if wanted:
            return self._ready(wanted, host)
        back = {
            key: entry["event"]
            for key, entry in record["events"].items()
            if self._is_over(standing.get(key), entry, record, host)
        }
        if back:
            lapsed = [key for key in back if key in standing and self._has_lapsed(standing[key], record, host)]
            order = self._order("put_back", list(back.values()), UNDOING, drain=True)._replace(lapsed=lapsed)
            return Plan(order, "the host is put back when the event is over")
        return Plan(None, self._why_nothing(host))

    def _is_held(self, claim: Json, now: float) -> bool:
        """Whether it is the claim of a run that may be alive. If the clock was set back since, the engine decides."""
        other = claim["run_id"] != self._run.run_id
        return bool(other and claim["silent_until"] >= now and claim["renewed"] - now <= CLOCK_SLACK)

    def _decide(self, event: Event, vm_name: str | None) -> Decision:
        facts = Facts(
            event_type=event["event_type"],
            event_source=event["event_source"],
            duration=event["duration_seconds"],
            notice=event["seconds_left"],
            groups=self._config.groups,
            resource=vm_name or "",
        )
        return decide(self._policy, facts)

    def _wants(self, event: Event, record: Json, host: Host) -> bool:
        """Whether the host has to get ready for this event now, or to stay so."""
        if event["affects_me"] is not True or event["event_status"] != SCHEDULED:
            return False
        entry = record["events"].get(same_id(event["event_id"]))
        if entry is not None and (self._gave_up(entry) or _is_approved(entry)):
            return False
        if self._has_lapsed(event, record, host):
            return False
        if not self._drains(event, host) and not self._may_approve(event, host):
            return False
        begun = entry is not None and bool(unfinished(record) or entry["ready"])
        return begun or self._is_time(event)

    def _drains(self, event: Event, host: Host) -> bool:
        return action_of(self._decide(event, host.vm_name).action).drains

    def _may_approve(self, event: Event, host: Host) -> bool:
        """Only what names this VM and no other, and only if the policy lets it."""
        named = [same_name(name) for name in event["resources"]]
        alone = host.vm_name is not None and named == [same_name(host.vm_name)]
        return self._config.approve and alone and self._decide(event, host.vm_name).approves

    def _is_time(self, event: Event) -> bool:
        left = event["seconds_left"]
        return left is None or left <= max(self._config.drain_budget, URGENT)

    def _gave_up(self, entry: Json) -> bool:
        return bool(entry["gave_up"] and entry["claim"]["run_id"] == self._run.run_id)

    def _has_lapsed(self, event: Event, record: Json, host: Host) -> bool:
        """Whether nothing has followed for so long that the policy does not want it drained any more."""
        entry = record["events"].get(same_id(event["event_id"]))
        expires = self._decide(event, host.vm_name).expires_after
        if entry is None or expires is None or event["event_status"] == STARTED:
            return False
        return bool(host.now - entry["noticed"] >= expires)

    def _is_over(self, event: Event | None, entry: Json, record: Json, host: Host) -> bool:
        """Whether nothing but waiting for its end, and undoing, is left."""
        if event is None or event["event_status"] == STARTED:
            return True
        if self._has_lapsed(event, record, host):
            # Once it was put back for that, it is only remembered as long as the event is announced.
            return not entry["lapsed"]
        return bool(unfinished(record)) or _is_approved(entry) or self._gave_up(entry)

    def _ready(self, wanted: t.Sequence[Event], host: Host) -> Plan:
        approve = [event for event in wanted if self._may_approve(event, host)]
        lefts = [UNKNOWN_NOTICE if event["seconds_left"] is None else float(event["seconds_left"]) for event in wanted]
        left = min(lefts)
        usable = left - min(MARGIN, left / 4) if approve else left
        drain = any(self._drains(event, host) for event in wanted)
        names = listed([f"{event['event_type']} {event['event_id']}" for event in wanted])
        reason = f"no run has claimed {names}, and {duration(left)} {'is' if left == 1 else 'are'} left"
        return Plan(self._order("ready", wanted, max(LEAST, usable), drain), reason, approve)

    def _order(self, order: str, events: t.Sequence[t.Any], seconds: float, drain: bool) -> Order:
        config = self._config
        return Order(
            order=order,
            events=[dict(event) for event in events],
            steps=config.steps if drain else (),
            checkpoint=config.checkpoint if drain else (),
            health=config.health,
            secrets=config.secrets,
            checkpoint_dir=config.checkpoint_dir,
            seconds=seconds,
            wait=SLICE,
            undo_on_failure=config.undo_on_failure,
        )

    def _why_nothing(self, host: Host) -> str:
        affecting = [event for event in host.events if event["affects_me"] and event["event_status"] == SCHEDULED]
        if host.vm_name is None and host.events:
            return (
                "this VM's Azure name is not known, so it is not known whether the event affects this VM: "
                "set graceful_vm_name"
            )
        if any(self._drains(event, host) for event in affecting):
            before = duration(max(self._config.drain_budget, URGENT))
            return f"the drain begins {before} before NotBefore, if no run has claimed the event by then"
        return "the policy requires no drain for the announced events" if affecting else ""


def _is_current(event: Event, standing: t.Mapping[str, Event]) -> bool:
    """False for what is in the document twice, and has started by the other entry."""
    return event["event_status"] == STARTED or standing[same_id(event["event_id"])]["event_status"] != STARTED


def _is_approved(entry: Json) -> bool:
    return bool(entry["approval"] and entry["approval"]["status"] == "approved")


class HostRun:
    """The process that acts. It ends if nothing is left to do, if a run has claimed an event, and with its parent."""

    def __init__(
        self,
        config: OnItsOwn,
        keeper: Keeper,
        service: Service,
        vm_name: str | None,
        log: t.Callable[[str], None],
        is_wanted: t.Callable[[], bool],
    ) -> None:
        self._planner = Planner(config, keeper.run)
        self._keeper = keeper
        self._service = service
        self._vm_name = vm_name
        self._log = log
        self._is_wanted = is_wanted
        self._clock: Clock = keeper.clock
        self._logged_order: tuple[str, ...] = ()
        self._logged_message = ""
        self._approve_after: dict[str, float] = {}

    def run(self) -> int:
        seen = self._call(Order("look"))["observation"]
        unreadable = 0
        while self._is_wanted():
            if seen["events"] is None or seen["record_error"]:
                unreadable += 1
                if unreadable > UNREADABLE_LOOKS:
                    self._log(f"On its own, nothing can be done now: {clean(seen['error'] or seen['record_error'])}")
                    return DONE
                seen = self._call(Order("look", wait=1.0))["observation"]
                continue
            unreadable = 0
            plan = self._planner.plan(Host(seen["events"], seen["record"], seen["time"], seen["vm_name"]))
            if plan.order is None:
                self._log(f"Nothing is left to do on its own{': ' if plan.reason else ''}{plan.reason}.")
                return DONE
            self._log_order(plan)
            result = self._call(plan.order._replace(known=seen["document"]))
            seen, report = result["observation"], result["report"]
            self._log_message(report["message"] or report["state"])
            if report["state"] == "next":
                self._log("The next step needs the controller: start graceful.azure.maintenance.")
                return NEEDS_CONTROLLER
            if report["state"] == "ready":
                seen = self._approve(plan.approve, seen)
        return DONE

    def _call(self, order: Order) -> Json:
        result = Engine(order, self._service, self._vm_name, self._keeper).carry_out()
        self._vm_name = self._vm_name or result["observation"]["vm_name"]
        return result

    def _approve(self, events: t.Sequence[Event], seen: Json) -> Json:
        """What the plan allows; the engine checks again that nobody else is named and that the host is ready."""
        for event in events:
            event_id = same_id(event["event_id"])
            if self._clock.monotonic() < self._approve_after.get(event_id, 0.0):
                continue
            result = self._call(Order("approve", [dict(event)]))
            report, seen = result["report"], result["observation"]
            final = report["state"] in ("unexpected", "started", "gone") or report.get("final")
            self._approve_after[event_id] = float("inf") if final else self._clock.monotonic() + APPROVE_AGAIN
            self._log(clean(f"Approval of {event['event_id']}: {report['state']}. {report['message']}"))
        return seen

    def _log_order(self, plan: Plan) -> None:
        order = t.cast(Order, plan.order)
        key = (order.order, *order.event_ids)
        if key != self._logged_order:
            self._logged_order = key
            self._log(f"On its own: {plan.reason}.")

    def _log_message(self, message: str) -> None:
        if message != self._logged_message:
            self._logged_message = message
            self._log(f"On its own: {clean(message)}")
