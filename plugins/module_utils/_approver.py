# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Approving: which of the events may be posted, and what became of them."""

from __future__ import annotations

import typing as t

from ._document import SCHEDULED, STARTED, Document, Event, by_id, same_id, same_name
from ._errors import EventsError, NoConnection, PassingFailure, Refused
from ._service import Service
from ._text import clean, count, listed, quoted, quoted_list
from ._times import UNCONFIRMED_FOR

READ_EVERY = 1.0


class RefusedByService(EventsError):
    """The service has refused the request. It would refuse it from every VM."""


BeforePost = t.Callable[[t.List[str]], None]


class Expected(t.NamedTuple):
    """What an event has to be to be approved. None means anything."""

    # The name of the event's leader.
    leader: str | None = None
    # The event may affect no other VMs than these.
    resources: t.Collection[str] | None = None
    event_type: str | None = None


class Approval:
    """What became of each id. Each is in at most one of the lists, spelled as in the document."""

    def __init__(self) -> None:
        self.approved: list[str] = []
        self.already_started: list[str] = []
        self.missing: list[str] = []
        self.not_leader: list[str] = []
        self.unexpected: list[str] = []
        # Posted once, and not confirmed yet; only with repost=False.
        self.unconfirmed: list[str] = []
        # Why each of the unexpected was not approved.
        self.refusals: list[str] = []
        self.warnings: list[str] = []
        self.statuses: dict[str, str] = {}

    def lists(self) -> dict[str, t.Any]:
        """What the module returns."""
        fields = ("approved", "already_started", "missing", "not_leader", "unexpected")
        return dict({field: getattr(self, field) for field in fields}, changed=bool(self.approved))

    def diff(self) -> dict[str, t.Any]:
        """The approved events before and after. In check mode they are taken for Started after."""
        before = dict.fromkeys(self.approved, SCHEDULED)
        return {"before": before, "after": {event_id: self.statuses.get(event_id, STARTED) for event_id in before}}


def approve(
    service: Service,
    event_ids: t.Sequence[str],
    expected: Expected,
    missing_ok: bool,
    check_mode: bool,
    before_post: BeforePost | None = None,
    repost: bool = True,
) -> Approval:
    """Read, decide, post, and read what became of it.

    `before_post` is called with the ids right before each POST; an EventsError that it raises stops it. With
    `repost=False` there is one POST at most, and what it leaves open is returned at once as `unconfirmed`; if there was
    no connection, so that nothing was sent, that is an error.
    """
    wanted = list({same_id(event_id): event_id.strip() for event_id in event_ids}.values())
    return _Attempt(service, expected, missing_ok).run(wanted, check_mode, before_post, repost)


class _Attempt:
    def __init__(self, service: Service, expected: Expected, missing_ok: bool) -> None:
        self.service = service
        self.expected = expected
        self.missing_ok = missing_ok
        self.approval = Approval()

    def run(self, wanted: t.Sequence[str], check_mode: bool, before_post: BeforePost | None, repost: bool) -> Approval:
        document = self.service.read().document
        pending = self._sort(document, wanted)
        self._check_missing("nothing was posted")
        if check_mode:
            self.approval.approved.extend(pending)
            return self.approval
        posts = 0
        while pending:
            if before_post:
                before_post(list(pending))
            posts += 1
            try:
                self.service.start(pending, document)
            except Refused as refusal:
                self._after_refusal(pending, refusal)
                break
            except PassingFailure as failure:
                if isinstance(failure, NoConnection) and not repost:
                    # There was no connection, so nothing was sent.
                    raise
                if not repost:
                    self.approval.unconfirmed.extend(pending)
                    self.approval.warnings.append(failure.message)
                    break
                document, pending = self._watch(pending, failure)
                if pending and posts > self.service.client.limits.retries:
                    raise self._not_confirmed(pending, posts, failure) from failure
            else:
                self.approval.approved.extend(pending)
                self._verify()
                break
        return self.approval

    def _sort(self, document: Document, wanted: t.Sequence[str], refused: str = "was not approved") -> list[str]:
        """Put each id into its list. Returns those that may be posted."""
        approval, pending = self.approval, []
        for event_id in wanted:
            entries = [event for event in document.events if same_id(event["event_id"]) == same_id(event_id)]
            spelled = entries[0]["event_id"] if entries else event_id
            if not entries:
                approval.missing.append(spelled)
            elif any(event["event_status"] == STARTED for event in entries):
                approval.already_started.append(spelled)
            elif self.expected.leader is not None and not _leads(self.expected.leader, entries[0]):
                approval.not_leader.append(spelled)
            elif why := next(filter(None, (_why_unexpected(self.expected, event) for event in entries)), ""):
                approval.unexpected.append(spelled)
                approval.refusals.append(f"{clean(spelled)} {refused}: {why}.")
            else:
                pending.append(spelled)
        return pending

    def _after_refusal(self, posted: t.Sequence[str], refusal: Refused) -> None:
        """The service has refused the POST, so it is not sent again, whatever the document shows."""
        try:
            document = self.service.read().document
        except EventsError as exc:
            unknown = self._unknown(posted, refusal, exc)
            raise RefusedByService(unknown.message, **unknown.fields) from exc
        still = self._sort(document, posted)
        self._check_missing("its approval was refused")
        if still:
            raise RefusedByService(
                f"{refusal.message} Not approved: {listed(still)}, still Scheduled. Azure acts at NotBefore anyway; "
                "run the task again to approve sooner.",
                **self.approval.lists(),
            ) from refusal

    def _watch(self, posted: t.Sequence[str], failure: PassingFailure) -> tuple[Document, list[str]]:
        """Read until the document shows that the POST was accepted, or UNCONFIRMED_FOR is over."""
        clock = self.service.client.clock
        end = clock.monotonic() + UNCONFIRMED_FOR
        still = list(posted)
        while True:
            last = clock.monotonic() >= end
            try:
                document = self.service.read().document
            except EventsError as exc:
                if last or not isinstance(exc, PassingFailure):
                    raise self._unknown(still, failure, exc) from exc
            else:
                still = self._sort_unconfirmed(document, still)
                if last or not still:
                    return document, still
            clock.sleep(READ_EVERY)

    def _sort_unconfirmed(self, document: Document, posted: t.Sequence[str]) -> list[str]:
        approval, before = self.approval, len(self.approval.already_started)
        still = self._sort(document, posted, "was posted without an answer and is not posted again")
        # The POST was not refused and the event has started, so it counts as approved by this task.
        confirmed = approval.already_started[before:]
        del approval.already_started[before:]
        approval.approved.extend(confirmed)
        approval.warnings.extend(
            f"The service did not confirm the approval of {clean(event_id)}, but the event has started."
            for event_id in confirmed
        )
        self._check_missing("its approval had not been confirmed")
        return still

    def _unknown(self, posted: t.Sequence[str], failure: EventsError, unread: EventsError) -> EventsError:
        return EventsError(
            f"{failure.message} It is not known whether the service accepted the approval of {listed(posted)}: "
            f"{unread.message} Run the task again; it reads the document before it posts.",
            **self.approval.lists(),
        )

    def _not_confirmed(self, still: t.Sequence[str], posts: int, failure: PassingFailure) -> EventsError:
        return EventsError(
            f"{failure.message} The approval of {listed(still)} was posted {count(posts, 'time')} and not "
            f"confirmed, and after {UNCONFIRMED_FOR:g} s the document still shows Scheduled. It is probably not "
            "approved. Azure acts at NotBefore anyway; run the task again to approve sooner.",
            **self.approval.lists(),
        )

    def _verify(self) -> None:
        """Note the status of the approved events. They stay approved: Azure may not start them at once."""
        try:
            document = self.service.read().document
        except EventsError as exc:
            self.approval.warnings.append(f"Approved, but the document could not be read afterwards: {exc.message}")
            return
        present = by_id(document.events)
        for event_id in self.approval.approved:
            event = present.get(same_id(event_id))
            status = event["event_status"] if event else "gone"
            self.approval.statuses[event_id] = "Scheduled, approved" if status == SCHEDULED else status

    def _check_missing(self, state: str) -> None:
        missing = self.approval.missing
        if missing and not self.missing_ok:
            raise EventsError(
                f"No such event: {listed(missing)} ({state}). It has completed, was cancelled, or never existed; "
                "read the current ids with graceful.azure.scheduled_events_info, or set missing=ok to accept it.",
                **self.approval.lists(),
            )


def _leads(name: str, event: Event) -> bool:
    return event["leader"] is not None and same_name(event["leader"]) == same_name(name)


def _why_unexpected(expected: Expected, event: Event) -> str:
    """Azure may change an event, or add VMs to it, while the hosts get ready."""
    if event["event_status"] != SCHEDULED:
        return f"its status is {quoted(event['event_status'])}, which is not known; only Scheduled can be approved"
    if expected.event_type is not None and event["event_type"].lower() != expected.event_type.strip().lower():
        return f"its type is now {quoted(event['event_type'])}, expected: {quoted(expected.event_type)}"
    if expected.resources is not None:
        known = {same_name(name) for name in expected.resources}
        more = [name for name in event["resources"] if same_name(name) not in known]
        if more or not event["resources"]:
            return f"it now names {quoted_list(more) or 'no VM'}, which was not expected"
    return ""
