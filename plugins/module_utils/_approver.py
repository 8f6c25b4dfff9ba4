# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Approving: which of the named events may be posted, and what became of them."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import (
    SCHEDULED,
    STARTED,
    Document,
    Event,
    same_id,
    same_name,
)
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure, Refused
from ansible_collections.graceful.azure.plugins.module_utils._service import Service


class Terms(t.NamedTuple):
    """What has to be so, or an event is left alone; None asks for nothing."""

    # The name of this VM, which has to be the event's leader.
    leader: str | None = None
    # Nobody beyond these may be affected.
    resources: t.Collection[str] | None = None
    event_type: str | None = None


class Approval:
    """The lists that the module returns; every id stands in at most one, spelled as in the document if it is there."""

    def __init__(self) -> None:
        self.approved: list[str] = []
        self.already_started: list[str] = []
        self.missing: list[str] = []
        self.not_leader: list[str] = []
        self.unexpected: list[str] = []
        self.refusals: list[str] = []
        self.warnings: list[str] = []
        self.statuses: dict[str, str] = {}

    def lists(self) -> dict[str, t.Any]:
        fields = ("approved", "already_started", "missing", "not_leader", "unexpected")
        return dict({field: getattr(self, field) for field in fields}, changed=bool(self.approved))

    def diff(self) -> dict[str, t.Any]:
        """The approved events before, and as they were seen, or in check mode would be seen, after."""
        before = dict.fromkeys(self.approved, SCHEDULED)
        return {"before": before, "after": {event_id: self.statuses.get(event_id, STARTED) for event_id in before}}


def approve(
    service: Service,
    event_ids: t.Sequence[str],
    terms: Terms,
    missing_ok: bool,
    check_mode: bool,
) -> Approval:
    """Read, decide, post once, and look what became of it."""
    approval = Approval()
    wanted = list({same_id(event_id): event_id.strip() for event_id in event_ids}.values())
    document = service.read().document
    pending = _sort(document, wanted, terms, approval)
    _check_missing(approval, missing_ok, "nothing was posted")
    if check_mode or not pending:
        approval.approved.extend(pending)
        return approval

    for tries in range(service.client.limits.retries + 1):
        try:
            service.start(pending, document)
        except (PassingFailure, Refused) as failure:
            document, still = _look_again(service, pending, terms, approval, failure)
            _check_missing(approval, missing_ok, "its approval had not been confirmed")
            if not still:
                return approval
            if (isinstance(failure, Refused) and len(still) == len(pending)) or tries == service.client.limits.retries:
                raise EventsError(
                    f"{failure.message} Not approved: {', '.join(still)}, still Scheduled after {tries + 1} "
                    f"{'try' if tries == 0 else 'tries'}. Azure acts at NotBefore anyway; "
                    "run the task again to approve sooner.",
                    **approval.lists(),
                ) from failure
            pending = still
            service.client.clock.sleep(failure.retry_after or 1.0 if isinstance(failure, PassingFailure) else 0.0)
        else:
            approval.approved.extend(pending)
            _verify(service, approval)
            return approval
    raise AssertionError("unreachable: the last try returns or raises")


def _sort(document: Document, wanted: t.Sequence[str], terms: Terms, approval: Approval) -> list[str]:
    """Put every wanted id into its list; what is left may be posted."""
    pending = []
    for event_id in wanted:
        entries = [event for event in document.events if same_id(event["event_id"]) == same_id(event_id)]
        if not entries:
            approval.missing.append(event_id)
        elif any(event["event_status"] == STARTED for event in entries):
            approval.already_started.append(entries[0]["event_id"])
        elif terms.leader is not None and not _leads(terms.leader, entries[0]):
            approval.not_leader.append(entries[0]["event_id"])
        elif why := next(filter(None, (_why_unexpected(terms, event) for event in entries)), ""):
            approval.unexpected.append(entries[0]["event_id"])
            approval.refusals.append(f"{entries[0]['event_id']} was not approved: {why}.")
        else:
            pending.append(entries[0]["event_id"])
    return pending


def _leads(name: str, event: Event) -> bool:
    return event["leader"] is not None and same_name(event["leader"]) == same_name(name)


def _why_unexpected(terms: Terms, event: Event) -> str:
    """Azure may change an event, or name more VMs in it, while the hosts get ready for what it was."""
    if terms.event_type is not None and event["event_type"].lower() != terms.event_type.strip().lower():
        return f"it is now of the type {event['event_type']!r:.80}, expected was {terms.event_type!r:.80}"
    if terms.resources is not None:
        known = {same_name(name) for name in terms.resources}
        more = [name for name in event["resources"] if same_name(name) not in known]
        if more or not event["resources"]:
            return f"it now names {', '.join(map(repr, more[:5])) or 'no VM'}, which was not expected"
    return ""


def _look_again(
    service: Service,
    posted: t.Sequence[str],
    terms: Terms,
    approval: Approval,
    failure: PassingFailure | Refused,
) -> tuple[Document, list[str]]:
    """After a POST that was not confirmed: the document knows whether it took effect."""
    try:
        document = service.read().document
    except EventsError as exc:
        raise EventsError(
            f"{failure.message} Whether the approval of {', '.join(posted)} took effect is unknown: {exc.message} "
            "Run the task again; it looks before it posts.",
            **approval.lists(),
        ) from exc
    before = len(approval.already_started)
    still = _sort(document, posted, terms, approval)
    if isinstance(failure, PassingFailure):
        # Nobody refused our POST, and the event has started: count it as ours rather than lose a change.
        confirmed = approval.already_started[before:]
        del approval.already_started[before:]
        approval.approved.extend(confirmed)
        approval.warnings.extend(
            f"The service did not confirm the approval of {event_id}, but the event has started."
            for event_id in confirmed
        )
    return document, still


def _verify(service: Service, approval: Approval) -> None:
    """What became of the approved events; Azure may take its time, so none of it takes the approval back."""
    try:
        document = service.read().document
    except EventsError as exc:
        approval.warnings.append(f"Approved, but the document could not be read afterwards: {exc.message}")
        return
    now = {same_id(event["event_id"]): event["event_status"] for event in document.events}
    for event_id in approval.approved:
        status = now.get(same_id(event_id), "gone")
        approval.statuses[event_id] = "Scheduled, approved" if status == SCHEDULED else status


def _check_missing(approval: Approval, missing_ok: bool, state: str) -> None:
    if approval.missing and not missing_ok:
        raise EventsError(
            f"No such event: {', '.join(approval.missing)} ({state}). It has completed, was cancelled, or never was; "
            "read the current ids with graceful.azure.scheduled_events_info, or set missing=ok to accept it.",
            **approval.lists(),
        )
