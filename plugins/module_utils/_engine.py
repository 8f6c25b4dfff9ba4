# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries one order out on the host: look, ready, approve, put_back or release. No Ansible, so the watcher can use it.

A call may be interrupted at any point and made again: the record says what was done. Each step is noted before and
after it is taken, and each note fails if this run has lost its claim.
"""

from __future__ import annotations

import typing as t

from ._document import SCHEDULED, STARTED, by_id, same_id
from ._errors import EventsError
from ._look import Look
from ._record import LostClaim
from ._text import clean, count
from ._times import UNCONFIRMED_FOR, Times
from ._worker import Worker

if t.TYPE_CHECKING:
    from ._steps import Steps

Json = t.Dict[str, t.Any]
# Seconds. A call with so little time is not made longer.
SHORT_CALL = 2.0
# A clock that was corrected by less makes no verification invalid.
CLOCK_CORRECTION = 5.0
OTHER_WORK = {
    "state": "working",
    "message": "waits until another run has finished its work on this host, for another event",
}


class Engine(Look):
    """Carries out every order."""

    @property
    def _worker(self) -> Worker:
        return Worker(self.keeper.folder.path, self.clock)

    def _report(self) -> Json:
        orders = {
            "look": self._look,
            "ready": self._ready,
            "approve": self._approve,
            "put_back": self._put_back,
            "release": self._release,
        }
        with self.keeper.explained():
            return orders[self.order.order]()

    def _failed(self, exc: EventsError) -> Json:
        report = super()._failed(exc)
        if isinstance(exc, LostClaim):
            return {**report, "held": exc.held}
        if self.order.order in ("ready", "put_back"):
            # The caller asks again at once, so the time of this call is used for waiting.
            self._poll(self._has_changed)
        return report

    # ---- getting ready

    def _ready(self) -> Json:
        if not self._read():
            raise EventsError(self._error or "The metadata service cannot be read.")
        # A run that was suspended may come with an order that is long out of date.
        standing = by_id(self._events)
        not_started = [event_id for event_id, event in standing.items() if event["event_status"] != STARTED]
        events = [event for event in self.order.events if same_id(event["event_id"]) in not_started]
        claimed, held = self._claim(events, standing=True)
        if not claimed:
            self._note_orphan()
            if held:
                return {"state": "held_by_other_run", "message": _held_message(held), "held": held}
            message = "There is nothing to get ready for: the events have started or are gone."
            return {"state": "gone", "message": message, "held": held}
        result = self._wait_for_retry("ready", claimed)
        if result is None:
            result = self._work("ready", claimed, lambda steps: steps.get_ready())
        return {**result, "held": held}

    def _claim(self, events: t.Sequence[Json], standing: bool = False) -> tuple[list[str], Json]:
        """The ids of the events that this run has claimed now, and who holds the others."""
        held, warnings = self.keeper.claim(events, self.boot_id, standing)
        self.warnings.extend(warnings)
        ids = dict.fromkeys(same_id(event["event_id"]) for event in events)
        return [event_id for event_id in ids if event_id not in held], held

    def _note_orphan(self) -> None:
        """If the controller took a step after its claim was lost, the next run has to undo it."""
        answer = self.order.controller_step
        if answer and answer.get("mode") == "do" and answer.get("phase") == "drain":
            step = {key: answer[key] for key in ("phase", "name", "kind")}
            self.keeper.note_orphan(self.order.events[0], step, self.boot_id)

    def _wait_for_retry(self, order: str, claimed: t.Sequence[str]) -> Json | None:
        """What failed is tried again after a growing pause; what is verified is verified again at the end of a call.

        Returns the failure if this call ends within that pause, None if it is time to work.
        """
        from ._steps import recent_failure, undoing_since

        record = self.keeper.read()
        if record is None or self.order.controller_step or self._worker.is_running():
            return None
        since = undoing_since(record, self.keeper.now) if order == "put_back" else 0.0
        failure = recent_failure(record, self.keeper.now, since)
        entries = [record["events"][event_id] for event_id in claimed if event_id in record["events"]]
        is_ready = order == "ready" and all(entry["ready"] for entry in entries)
        last = self._worker.state()
        has_failed = last.get("result", {}).get("state") == "failed" and _matches(last, self._owner(order, claimed))
        if failure or ((is_ready or has_failed) and self.order.wait > 0):
            end = self.clock.monotonic() + (failure["next_try"] if failure else self.order.wait)
            self._poll(lambda: self._has_changed() or self.clock.monotonic() >= end)
        return recent_failure(record, self.keeper.now, since)

    # ---- work, in a process of its own

    def _owner(self, order: str, claimed: t.Sequence[str]) -> Json:
        return {"run_id": self.keeper.run.run_id, "order": order, "events": sorted(claimed)}

    def _work(self, order: str, claimed: t.Sequence[str], task: t.Callable[[Steps], Json]) -> Json:
        """Have the task done, and wait for it for as long as this call may take."""
        worker, owner = self._worker, self._owner(order, claimed)

        def work(progress: t.Callable[[str], None]) -> Json:
            from ._steps import Steps

            return task(Steps(self.order, self.keeper, claimed, progress, worker.runner))

        if worker.is_running() and not _matches(worker.state(), owner):
            if self._is_of_another_run(worker.state()) and not worker.wait(max(self._seconds_left, 1.0)):
                return dict(OTHER_WORK)
            self.keeper.renew(claimed)
            worker.stop()
        if not worker.is_running() and not worker.start({**owner, "before": self._before_work(owner)}, work):
            return dict(OTHER_WORK)
        return self._result(owner)

    def _before_work(self, owner: Json) -> str:
        """What the record is compared with at the end of the work, which may end between two calls.

        Work that goes on from where earlier work of the same order was, whose result no call has returned, does so in
        this, too.
        """
        earlier = self._worker.state()
        goes_on = _matches(earlier, owner) and not earlier.get("reported")
        return str(earlier.get("before", self._before)) if goes_on else self._before

    def _is_of_another_run(self, state: Json) -> bool:
        """Whether the work is that of a run that still claims an event of this host. It is not stopped: two runs that
        stopped each other's work would never get anything done."""
        claims = [entry["claim"] for entry in self.keeper.entries().values()]
        return state.get("run_id") != self.keeper.run.run_id and any(
            claim["run_id"] == state.get("run_id") and not self.keeper.is_stale(claim) for claim in claims
        )

    def _result(self, owner: Json) -> Json:
        """The result of this run's work, or how far it is when the time of this call is over."""
        has_ended = self._worker.wait(max(self._seconds_left, 1.0))
        state = self._worker.state()
        if not _matches(state, owner):
            # Another run has begun its own work since: its result says nothing about this one's.
            return dict(OTHER_WORK)
        if not has_ended:
            return {"state": "working", "message": str(state.get("progress") or "working")}
        if not isinstance(state.get("result"), dict):
            # The worker was killed. The next call continues.
            return {"state": "working", "message": "the work was interrupted and is continued"}
        self._worker.note_reported(state)
        self._before = str(state.get("before", self._before))
        return t.cast(Json, state["result"])

    def _unreported_result(self) -> Json | None:
        """The result of put_back of an earlier call, or how far it is; None if there is none or it was reported."""
        state = self._worker.state()
        # Those that it had claimed: another run may have held the others.
        claimed = [event_id for event_id in self.order.event_ids if event_id in state.get("events", ())]
        owner = self._owner("put_back", claimed)
        if self.order.controller_step or not _matches(state, owner) or state.get("reported"):
            return None
        if not self._worker.is_running() and "result" not in state:
            return None
        try:
            # The work itself may not note anything for long.
            self.keeper.renew(claimed)
        except LostClaim as exc:
            # Without a holder it was the work that closed the record, at its end. Otherwise it has ended before that,
            # and what this run still has is put back anew.
            if any(exc.held.values()) or state.get("result", {}).get("state") == "next":
                return None
        return self._result(owner)

    # ---- approving

    def _approve(self) -> Json:
        from ._approver import Expected, RefusedByService, approve

        event = self.order.events[0]
        event_id = same_id(event["event_id"])
        with self.keeper.change([event_id]) as (_record, own):
            self._demand_ready(own[event_id])
            # An order that says less approves no more than what this run has claimed.
            event = {**own[event_id]["event"], **{key: value for key, value in event.items() if value is not None}}
            posted = own[event_id]["approval"] or {}
            is_open = posted.get("status") in ("posting", "unconfirmed")
            if is_open:
                # If the clock was set back since, it is counted from now.
                posted["at"] = min(posted["at"], self.keeper.now)
        if posted.get("status") == "approved":
            # Azure may take its time until the event starts: nobody posts again for that.
            return {"state": "approved", "message": "It is approved already.", "approval": posted}
        if is_open and not self._is_settled(event_id, posted["at"]):
            message = "The approval was sent and is not confirmed yet."
            return {"state": "unconfirmed", "message": message, "approval": posted}

        if not event.get("resources"):
            raise EventsError(
                "What the event may affect is not known: neither the order nor the claim has its resources."
            )
        expected = Expected(None, event["resources"], event.get("event_type"))
        try:
            done = approve(
                self._service,
                [event["event_id"]],
                expected,
                missing_ok=True,
                check_mode=False,
                before_post=lambda _ids: self._before_post(event_id),
                repost=False,
            )
        except LostClaim:
            raise
        except EventsError as exc:
            approval = self._approval("failed", exc.message)
            self.keeper.note_event(event_id, approval=approval)
            # What the service itself has refused, no other host needs to try.
            return {
                "state": "failed",
                "message": exc.message,
                "approval": approval,
                "final": isinstance(exc, RefusedByService),
            }
        outcomes = (
            (done.approved, "approved", ""),
            (done.unconfirmed, "unconfirmed", "The service did not confirm the request."),
            (done.already_started, "started", "The event has started already."),
            (done.missing, "gone", "The event is gone."),
            (done.unexpected, "unexpected", " ".join(done.refusals)),
        )
        status, message = next((status, message) for found, status, message in outcomes if found)
        approval = self._approval(status, message)
        self.keeper.note_event(event_id, "approved" if status == "approved" else "", approval=approval)
        return {"state": status, "message": " ".join([message, *done.warnings]).strip(), "approval": approval}

    def _approval(self, status: str, message: str = "") -> Json:
        return {"at": self.keeper.now, "status": status, "run_id": self.keeper.run.run_id, "message": message}

    def _before_post(self, event_id: str) -> None:
        """Under the lock: this run still holds the claim, the host is still ready, and the POST is noted."""
        with self.keeper.change([event_id]) as (_record, own):
            self._demand_ready(own[event_id])
            own[event_id]["approval"] = self._approval("posting")

    def _demand_ready(self, entry: Json) -> None:
        """It was verified a moment ago, and the host has not booted since: the monotonic clock begins with a boot."""
        age = self.keeper.now - (entry["ready"] or 0)
        oldest = min(self.order.max_age, self.clock.monotonic())
        if not entry["ready"] or not -CLOCK_CORRECTION <= age <= oldest:
            raise EventsError(
                "The last check that this host is ready is too old. The host is checked again before anything is "
                "approved."
            )

    def _is_settled(self, event_id: str, posted_at: float) -> bool:
        """Whether the event has left the queue, or is in it for so long after its POST that it may be posted again."""

        def has_left_the_queue() -> bool:
            event = by_id(self._events).get(event_id)
            return event is None or event["event_status"] != SCHEDULED

        return self._poll(has_left_the_queue) or self.keeper.now - posted_at > UNCONFIRMED_FOR

    # ---- putting back

    def _put_back(self) -> Json:
        earlier = self._unreported_result()
        if earlier is not None:
            return earlier
        claimed, held = self._claim(self.order.events)
        if not claimed:
            return {"state": "held_by_other_run", "message": _held_message(held), "held": held}
        if not self.order.controller_step and not self._wait_until_gone(claimed):
            return {"state": "waiting", "message": self._waiting_message(claimed), "held": held}
        others = self._others(claimed)
        if self._is_any_announced(others):
            # What is gone or has lapsed is closed, and the steps stay for the other event.
            self.keeper.close(claimed, claimed, "gone", self.order.lapsed)
            return {"state": "put_back", "message": "Another event still needs the host drained.", "held": held}

        def undo(steps: Steps) -> Json:
            # No other work goes on from here, so an event that was claimed since cannot have become ready unseen.
            if self._others(claimed) - others:
                return {"state": "waiting", "message": "another run has claimed another event of this host"}
            return steps.put_back()

        result = self._wait_for_retry("put_back", claimed)
        if result is None:
            result = self._work("put_back", claimed, undo)
        return {**result, "held": held}

    def _without_lapsed(self, claimed: t.Sequence[str]) -> list[str]:
        return [event_id for event_id in claimed if event_id not in self.order.lapsed]

    def _others(self, claimed: t.Sequence[str]) -> set[str]:
        """The other events that the host was drained for."""
        return {key for key, entry in self.keeper.entries().items() if key not in claimed and not entry["lapsed"]}

    def _is_any_announced(self, event_ids: t.Collection[str]) -> bool:
        if self._reading is None and not self._read():
            # What cannot be read counts as announced.
            return bool(event_ids)
        return any(same_id(event["event_id"]) in event_ids for event in self._events)

    def _wait_until_gone(self, claimed: t.Sequence[str]) -> bool:
        times = Times(self._without_lapsed(claimed), self.keeper.entries(), self.clock.monotonic(), self.keeper.now)

        def all_gone() -> bool:
            times.note(self._events, self.clock.monotonic(), self.keeper.now)
            # A host that is about to go down is not put back, whichever of its events does it.
            return times.all_gone() and not self._another_started()

        def nearly_gone() -> bool:
            # Another call would cost more than these seconds, unless many hosts take turns with short calls.
            return self.order.wait > SHORT_CALL and times.nearly_gone() and not self._another_started()

        is_over = self._poll(all_gone, 0.5, nearly_gone)
        with self.keeper.change(claimed) as (record, own):
            # If the host has booted since it was claimed, the event has started although nobody saw it.
            booted = self.keeper.now if record["boot_id"] != self.boot_id else None
            for event_id, entry in own.items():
                entry["started"] = entry["started"] or times.started.get(event_id) or booted
                entry["gone"] = times.missing_since.get(event_id)
                entry["gone_reads"] = times.reads(event_id)
        return is_over

    def _another_started(self) -> bool:
        return any(event["affects_me"] and event["event_status"] == STARTED for event in self._events)

    def _waiting_message(self, claimed: t.Sequence[str]) -> str:
        seen = [event for event in self._events if same_id(event["event_id"]) in claimed]
        if self._error:
            return f"waits until the metadata service can be read: {self._error.rstrip('.')}"
        if not seen:
            return "waits some seconds until it is certain that the event is gone"
        events = ", ".join(f"{event['event_type']} {event['event_status']}" for event in seen)
        return f"waits until the event is over: {events}"

    # ---- releasing

    def _release(self) -> Json:
        if self._worker.state().get("run_id") == self.keeper.run.run_id:
            self._worker.stop()
        released = self.keeper.release(self.order.event_ids)
        return {"state": "released", "message": f"{count(len(released), 'claim')} released"}


def _matches(state: Json, owner: Json) -> bool:
    return all(state.get(key) == value for key, value in owner.items())


def _held_message(held: Json) -> str:
    names = sorted({str(holder["run_name"]) for holder in held.values()})
    return f"Another run has claimed the event: {clean(', '.join(names), 200)}. Run this again when that run has ended."
