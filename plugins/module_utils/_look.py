# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order look: reads the events and the host's record, which every other order does, too. No Ansible.

It is a file of its own because most calls need no more, and Python compiles what a call loads.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ._clock import Clock
from ._document import Event, fingerprint, same_id
from ._errors import EventsError
from ._record import Keeper, compared
from ._service import Reading, Service

Json = t.Dict[str, t.Any]
POLL = 1.0
# Seconds that a call may take longer if what it waits for is nearly over.
OVERTIME = 5.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Order(t.NamedTuple):
    """What to do. Steps, checkpoints and health checks have their options normalised, and secrets beside them."""

    order: str = "look"
    events: t.Sequence[Json] = ()
    steps: t.Sequence[Json] = ()
    checkpoint: t.Sequence[Json] = ()
    health: t.Sequence[Json] = ()
    # Why `health` cannot be used. If it is set, traffic does not return.
    health_mistake: str = ""
    secrets: t.Mapping[str, Json] = {}
    checkpoint_dir: str = ""
    # Seconds until the host has to be ready; for put_back, seconds that undoing may take.
    seconds: float = 300.0
    # Seconds that this call may take.
    wait: float = 0.0
    # The document that the caller knows: a wait ends when it changes.
    known: str = ""
    undo_on_failure: bool = False
    # The result of the step that the controller took, and how its balancers looked before.
    controller_step: Json | None = None
    looked: t.Mapping[str, Json] = {}
    # For approve: how old, in seconds, this host's own verification may be.
    max_age: float = 60.0
    # For ready: after so many seconds the controller verifies its steps again.
    fresh: float = 30.0
    # For put_back: events for which the host is put back although they are not over.
    lapsed: t.Sequence[str] = ()
    # For look: whether to test that a record could be written.
    probe_record: bool = False

    @property
    def event_ids(self) -> list[str]:
        return list(dict.fromkeys(same_id(event["event_id"]) for event in self.events))


class Look:
    """Carries out the order look."""

    def __init__(
        self, order: Order, service: Service, vm_name: str | None, keeper: Keeper, boot_id: str | None = None
    ) -> None:
        self.order = order
        self.keeper = keeper
        self.clock: Clock = keeper.clock
        self.boot_id = current_boot() if boot_id is None else boot_id
        self.warnings: list[str] = []
        self._service = service
        self._vm_name = vm_name
        self._begin = self.clock.monotonic()
        self._reading: Reading | None = None
        self._events: list[Event] = []
        self._error: str | None = None
        # What the record is compared with at the end.
        self._before = ""

    def carry_out(self) -> Json:
        """Do what the order says as far as it goes, and answer with a report and a fresh observation."""
        with contextlib.suppress(EventsError):
            # What is wrong with the record, the order or the observation says.
            self._before = compared(self.keeper.read())
        try:
            report = self._report()
        except EventsError as exc:
            report = self._failed(exc)
        observation = self._observation()
        # While this call has only looked, another one's work may have gone on.
        changed = self.order.order != "look" and compared(observation["record"]) != self._before
        return {"report": report, "observation": observation, "warnings": self.warnings, "changed": changed}

    def _report(self) -> Json:
        return self._look()

    def _failed(self, exc: EventsError) -> Json:
        return {"state": "failed", "message": exc.message, **exc.fields}

    def _look(self) -> Json:
        if self.order.probe_record:
            self.keeper.probe()
        if self.order.wait > 0:
            self._poll(self._has_changed)
        return {"state": "looked", "message": ""}

    def _observation(self) -> Json:
        if self._reading is None and self._error is None:
            self._read()
        record: Json | None = None
        record_error = None
        try:
            record = self.keeper.read()
        except EventsError as exc:
            record_error = exc.message
        reading = self._reading
        return {
            "time": self.keeper.now,
            "boot_id": self.boot_id,
            "error": self._error,
            "events": self._events if reading else None,
            "document": fingerprint(self._events),
            "document_incarnation": reading.document.incarnation if reading else None,
            "clock_offset": reading.clock_offset if reading else None,
            "vm_name": self._vm_name,
            "api_version": self._service.api_version,
            "endpoint": self._service.endpoint,
            "record": record,
            "record_error": record_error,
        }

    def _read(self) -> bool:
        """Read the document; whether that was possible. A failure is kept and never looks like an empty document."""
        try:
            reading, self._vm_name, events = self._service.look(self._vm_name)
        except EventsError as exc:
            self._error = exc.message
            return False
        self.warnings.extend(oddity for oddity in reading.document.oddities if oddity not in self.warnings)
        self._reading, self._events, self._error = reading, events, None
        return True

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self.order.wait - (self.clock.monotonic() - self._begin))

    def _poll(
        self, is_over: t.Callable[[], bool], pause: float = POLL, is_nearly_over: t.Callable[[], bool] | None = None
    ) -> bool:
        """Read until it is over, or the time of this call is up; returns which. A failed read does not end it."""
        limits = self._service.client.limits
        self._service.client.limits = limits._replace(read_timeout=min(10.0, limits.read_timeout), retries=0)
        try:
            while True:
                read = self._read()
                if read and is_over():
                    return True
                overtime = self.clock.monotonic() - self._begin - self.order.wait
                goes_on = read and overtime < OVERTIME and is_nearly_over is not None and is_nearly_over()
                if overtime >= 0 and not goes_on:
                    return False
                self.clock.sleep(min(pause, self._seconds_left) or pause)
        finally:
            self._service.client.limits = limits

    def _has_changed(self) -> bool:
        return bool(self.order.known) and fingerprint(self._events) != self.order.known


def why_not_writable(directory: str) -> str | None:
    """Why no record could be written there. Nothing is written to find that out."""
    place = directory
    while not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if os.access(place, os.W_OK | os.X_OK):
        return None
    return (
        f"The host cannot write the record of a maintenance (graceful_record_dir): this user cannot write to {place}. "
        "Set ansible_become: true, or another graceful_record_dir."
    )


def current_boot() -> str:
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()[:64]
    except OSError:
        return ""
