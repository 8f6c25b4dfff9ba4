# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Carries one order out on the host: look, ready, approve, put_back or release. No Ansible, so the watcher can use it.

A call may be cut off at any point and made again: the record says what was done. Each step is noted before and after it
is taken, and each note fails if this run has lost its claim.
"""

from __future__ import annotations

import contextlib
import typing as t

from ._document import SCHEDULED, STARTED, same_id
from ._errors import EventsError
from ._look import Look
from ._record import LostClaim
from ._text import clean
from ._times import UNCONFIRMED_FOR, Times
from ._worker import Worker

Json = t.Dict[str, t.Any]
# Seconds.
SHORT_CALL = 2.0
OTHER_WORK = {"state": "working", "message": "another run is at work on this host, for another event"}


class Engine(Look):
    """Carries out every order."""

    # Whether the work is done in a process of its own.
    detached = True

    @property
    def _worker(self) -> Worker:
        return Worker(self.keeper.folder.path, self.clock)

    def _report(self) -> Json:
        does = {
            "look": self._look,
            "ready": self._ready,
            "approve": self._approve,
            "put_back": self._put_back,
            "release": self._release,
        }
        try:
            return does[self.order.order]()
        except LostClaim as exc:
            held = dict.fromkeys(self.order.event_ids, exc.holder or {})
            return {"state": "held_by_other_run", "message": exc.message, "held": held}
        except EventsError as exc:
            if self.order.order in ("ready", "put_back"):
                # What cannot even begin is not asked for again at once.
                self._poll(self._changed)
            return {"state": "failed", "message": exc.message, **exc.fields}

    # ---- getting ready

    def _ready(self) -> Json:
        if not self._read():
            raise EventsError(self._error or "The metadata service cannot be read.")
        # A run that was suspended may come with an order that is long out of date.
        standing = {same_id(event["event_id"]) for event in self._events if event["event_status"] != STARTED}
        events = [event for event in self.order.events if same_id(event["event_id"]) in standing]
        held = self._claim(events, standing=True)
        ids = [same_id(event["event_id"]) for event in events]
        mine = [event_id for event_id in ids if event_id not in held]
        if not mine:
            self._note_orphan()
            state = "held_by_other_run" if held else "gone"
            return {"state": state, "message": _held_message(held) if held else "Nothing stands.", "held": held}
        return {**(self._rest_after_failure("ready", mine) or self._work("ready", mine)), "held": held}

    def _claim(self, events: t.Sequence[Json], standing: bool = False) -> Json:
        held, warnings = self.keeper.claim(events, self.boot_id, standing)
        self.warnings.extend(warnings)
        return held

    def _note_orphan(self) -> None:
        """The controller took a step after its claim was lost: it has to be undone by whoever comes next."""
        answer = self.order.controller_step
        if answer and answer.get("mode") == "do" and answer.get("phase") == "drain" and self.order.events:
            step = {key: answer[key] for key in ("phase", "name", "kind")}
            self.keeper.note_orphan(self.order.events[0], step, self.boot_id)

    def _rest_after_failure(self, order: str, mine: t.Sequence[str]) -> Json | None:
        """What failed is tried again after a growing pause; what is verified is verified again at the end of a wait."""
        from ._steps import resting, undoing_since

        record = self.keeper.read()
        if record is None or self.order.controller_step or (self.detached and self._worker.running() is not None):
            return None
        since = undoing_since(record, self.keeper.now) if order == "put_back" else 0.0
        rest = resting(record, self.keeper.now, since)
        verified = order == "ready" and all(
            record["events"][event_id]["ready"] for event_id in mine if event_id in record["events"]
        )
        last = self._worker.state()
        failed = last.get("result", {}).get("state") == "failed" and _matches(last, self._owner(order, mine))
        if rest or ((verified or failed) and self.order.wait > 0):
            end = self.clock.monotonic() + (rest["next_try"] if rest else self.order.wait)
            self._poll(lambda: self._changed() or self.clock.monotonic() >= end)
        return resting(record, self.keeper.now, since)

    def _owner(self, order: str, mine: t.Sequence[str]) -> Json:
        return {"run_id": self.keeper.run.run_id, "order": order, "events": sorted(mine)}

    def _work(self, order: str, mine: t.Sequence[str]) -> Json:
        """Have the work done, and look in on it for as long as this call may take."""
        worker, owner = self._worker, self._owner(order, mine)

        def work(progress: t.Callable[[str], None]) -> Json:
            from ._steps import Steps

            steps = Steps(self.order, self.keeper, mine, progress, worker.runner)
            return steps.get_ready() if order == "ready" else steps.put_back()

        if not self.detached:
            return worker.work(owner, work)
        busy = worker.running()
        if busy is not None and not _matches(busy, owner):
            if self._is_at_work(busy) and not worker.wait(max(self._left, 1.0)):
                return dict(OTHER_WORK)
            worker.stop()
            busy = None
        if busy is None:
            worker.start(owner, work)
        return self._look_in(owner)

    def _is_at_work(self, busy: Json) -> bool:
        """Whether it is another run's worker and that run has an event of this host. It goes on: two runs that ended
        each other's work would never get anything done."""
        run_id = busy.get("run_id")
        claims = [entry["claim"] for entry in (self.keeper.read() or {"events": {}})["events"].values()]
        return run_id != self.keeper.run.run_id and any(
            claim["run_id"] == run_id and not self.keeper.is_stale(claim) for claim in claims
        )

    def _under_way(self, order: str) -> Json | None:
        """What became of work that an earlier call began and whose result nobody has heard yet."""
        state, owner = self._worker.state(), self._owner(order, self.order.event_ids)
        if not self.detached or self.order.controller_step or not _matches(state, owner) or state.get("told"):
            return None
        if self._worker.running() is None and "result" not in state:
            return None
        with contextlib.suppress(LostClaim), self.keeper.change(self.order.event_ids):
            # The claim is renewed, in case that the work is silent for long.
            pass
        return self._look_in(owner)

    def _look_in(self, owner: Json) -> Json:
        over = self._worker.wait(max(self._left, 1.0))
        state = self._worker.state()
        if not _matches(state, owner):
            # Another run began its own work meanwhile: what came of that says nothing about this one's.
            return dict(OTHER_WORK)
        if not over:
            return {"state": "working", "message": str(state.get("progress") or "at work")}
        result = state.get("result")
        self._worker.note_told(state)
        # A worker that was killed leaves no result: the next call goes on where it was.
        return result if isinstance(result, dict) else {"state": "working", "message": "cut off, it goes on"}

    # ---- approving

    def _approve(self) -> Json:
        from ._approver import Expected, RefusedByService, approve

        event = self.order.events[0]
        event_id, ids = same_id(event["event_id"]), self.order.event_ids
        entry = self._entry_to_approve(event_id)
        posted = entry["approval"] or {}
        if posted.get("status") == "approved":
            # Azure may take its time until the event starts: nobody posts again for that.
            return {"state": "approved", "message": "It is approved already.", "approval": posted}
        if posted.get("status") in ("posting", "unconfirmed") and not self._settled(event_id, posted["at"]):
            message = "A request was sent and is not confirmed yet."
            return {"state": "unconfirmed", "message": message, "approval": posted}

        def note(status: str, message: str = "") -> Json:
            # Fenced: it fails if the claim was lost.
            approval = {"at": self.keeper.now, "status": status, "run_id": self.keeper.run.run_id, "message": message}
            self.keeper.note_event(ids, event_id, "approved" if status == "approved" else "", approval=approval)
            return approval

        expected = Expected(None, event.get("resources"), event.get("event_type"))
        try:
            done = approve(
                self._service,
                [event["event_id"]],
                expected,
                missing_ok=True,
                check_mode=False,
                before_post=lambda _ids: self._before_post(event_id, note),
                repost=False,
            )
        except LostClaim:
            raise
        except EventsError as exc:
            # What the service itself has refused, no other host needs to try.
            final = isinstance(exc, RefusedByService)
            return {"state": "failed", "message": exc.message, "approval": note("failed", exc.message), "final": final}
        outcomes = (
            ("approved", done.approved, ""),
            ("unconfirmed", done.unconfirmed, "The service did not confirm the request."),
            ("started", done.already_started, "It has started already."),
            ("gone", done.missing, "It is gone."),
            ("unexpected", done.unexpected, " ".join(done.refusals)),
        )
        status, message = next(((name, said) for name, found, said in outcomes if found), ("failed", "Not approved."))
        approval = note(status, message)
        return {"state": status, "message": " ".join([message, *done.warnings]).strip(), "approval": approval}

    def _entry_to_approve(self, event_id: str) -> Json:
        """This run's own entry, verified a moment ago; anything else is not approved."""
        record = self.keeper.read()
        entry: Json | None = record["events"].get(event_id) if record else None
        if entry is None or entry["claim"]["run_id"] != self.keeper.run.run_id:
            raise LostClaim(entry["claim"] if entry else None)
        self._demand_fresh(entry)
        return entry

    def _demand_fresh(self, entry: Json) -> None:
        age = self.keeper.now - (entry["ready"] or 0)
        if not entry["ready"] or not -5 <= age <= self.order.max_age:
            raise EventsError(
                "This host has not verified in the last moments that it is ready. It is verified again before anything "
                "is approved."
            )

    def _before_post(self, event_id: str, note: t.Callable[[str], Json]) -> None:
        """Under the lock: the claim is still ours, and the host still ready. Noted before it is posted."""
        with self.keeper.change([event_id]) as record:
            self._demand_fresh(record["events"][event_id])
        note("posting")

    def _settled(self, event_id: str, posted_at: float) -> bool:
        """After a request whose answer is not known: whether the document was read for long enough since."""

        def left_the_queue() -> bool:
            now = {same_id(event["event_id"]): event["event_status"] for event in self._events}
            return now.get(event_id, "").lower() != SCHEDULED.lower()

        return self._poll(left_the_queue) or self.keeper.now - posted_at > UNCONFIRMED_FOR

    # ---- putting back

    def _put_back(self) -> Json:
        under_way = self._under_way("put_back")
        if under_way is not None:
            return under_way
        held = self._claim(self.order.events)
        mine = [event_id for event_id in self.order.event_ids if event_id not in held]
        if not mine:
            return {"state": "held_by_other_run", "message": _held_message(held), "held": held}
        awaited = [event_id for event_id in mine if event_id not in self.order.lapsed]
        times = Times(awaited, self.keeper.read() or {"events": {}}, self.clock.monotonic(), self.keeper.now)
        if not self.order.controller_step:
            over = self._poll(lambda: self._all_gone(times), 0.5, lambda: self._nearly_gone(times))
            self._note_times(mine, times)
            if not over:
                return {"state": "waiting", "message": self._standing(mine), "held": held, "times": times.told()}
        gone = [event_id for event_id in awaited if times.gone(event_id) or self.order.controller_step]
        if self._still_needed(mine):
            # Another event needs the host drained: what is gone is closed, and the steps stay.
            self.keeper.close(mine, gone, "gone")
            return {"state": "put_back", "message": "Another event still needs the host drained.", "held": held}
        result = self._rest_after_failure("put_back", mine) or self._work("put_back", mine)
        return {**result, "held": held, "times": times.told()}

    def _all_gone(self, times: Times) -> bool:
        # A host that is about to go down is not put back, whichever of its events does it.
        times.note(self._events, self.clock.monotonic(), self.keeper.now)
        return times.all_gone() and not self._another_started()

    def _nearly_gone(self, times: Times) -> bool:
        """Then a second call would cost more than the seconds until it is sure. Where many hosts take turns, or others
        are about to join, the call is short and stays so."""
        return self.order.wait > SHORT_CALL and times.nearly_gone() and not self._another_started()

    def _another_started(self) -> bool:
        return any(event["affects_me"] and event["event_status"] == STARTED for event in self._events)

    def _note_times(self, mine: t.Sequence[str], times: Times) -> None:
        """Seen Started, or the host has booted since it was claimed: then gone will mean completed."""
        with self.keeper.change(mine) as record:
            booted = record["boot_id"] != self.boot_id
            for event_id in mine:
                entry = record["events"].get(event_id)
                if entry is None:
                    continue
                started = times.started.get(event_id) or (self.keeper.now if booted else None)
                entry["started"] = entry["started"] or started
                entry["gone"] = times.missing_since.get(event_id)
                entry["gone_reads"] = times.reads(event_id)

    def _still_needed(self, mine: t.Sequence[str]) -> bool:
        record = self.keeper.read()
        if self._reading is None:
            self._read()
        standing = {same_id(event["event_id"]) for event in self._events}
        events = record["events"].items() if record else ()
        others = [key for key, entry in events if key not in mine and not entry["lapsed"]]
        # Where the document cannot be read, what is claimed counts as standing.
        return any(key in standing or self._reading is None for key in others)

    def _standing(self, mine: t.Sequence[str]) -> str:
        seen = [event for event in self._events if same_id(event["event_id"]) in mine]
        said = [f"{event['event_type']} {event['event_status']}" for event in seen]
        return f"waits until it is over: {', '.join(said)}" if said else "waits until it is surely over"

    # ---- giving back

    def _release(self) -> Json:
        if self._worker.state().get("run_id") == self.keeper.run.run_id:
            self._worker.stop()
        released = self.keeper.release(self.order.event_ids)
        return {"state": "released", "message": f"{len(released)} claims given back"}


def _matches(state: Json, owner: Json) -> bool:
    return all(state.get(key) == value for key, value in owner.items())


def _held_message(held: Json) -> str:
    holders = [str(holder.get("run_name")) for holder in held.values() if holder]
    return f"{clean(', '.join(sorted(set(holders))) or 'Another run', 200)} holds the claim."
