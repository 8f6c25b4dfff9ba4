# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Polls the host's own metadata service, reports what changed, and starts the host's own drain if no run does it."""

from __future__ import annotations

import os
import shutil
import time
import typing as t

from .._client import Limits
from .._clock import Clock
from .._document import Event
from .._errors import EventsError, PassingFailure
from .._files import write
from .._look import current_boot
from .._record import Keeper
from .._service import Reading
from .._text import clean, duration, listed
from . import metrics, systemd
from .changes import BACK, Change, Source, compare, is_drained, message
from .config import Config
from .on_its_own import Host, run_of
from .process import OnItsOwnProcess
from .receivers import Sender, wants
from .spool import Spool
from .state import State

Json = t.Dict[str, t.Any]
Log = t.Callable[[str], None]
# The first answer of a VM may take two minutes, any later one may not.
FIRST_LIMITS, LIMITS = Limits(5.0, 130.0, 0), Limits(2.0, 10.0, 0)
WATCHDOG_USEC = 60_000_000
# After an answer that does not change by asking again.
REFUSED_PAUSE = 30.0
OWN_ERROR_PAUSE = 5.0
SAY_AGAIN = 3600.0
METRICS_EVERY = 15.0
# What the senders may take to end what they have begun.
SENDERS_END = 3.0


class Watcher:
    """Looks again and again. With `printed` it is a dry run: nothing is sent and nothing is written."""

    def __init__(self, config: Config, log: Log, clock: Clock | None = None, printed: t.Any = None) -> None:
        self.config = config
        self.clock = clock or Clock()
        self.senders: list[Sender] = []
        self._log = log
        self._printed = printed
        self._boot_id = current_boot()
        self._vm_name = config.vm_name
        self._service = config.service(FIRST_LIMITS)
        self._keeper = Keeper(config.record_dir, run_of(config.host), self.clock)
        self._state = State(os.path.join(config.state_dir, "state.json"), log)
        self._requests = metrics.Requests()
        self._last: tuple[t.Sequence[Event], int | str | None] | None = None
        self._written, self._written_drained = 0.0, False
        self._logged: dict[str, tuple[str, float]] = {}
        self._on_its_own: OnItsOwnProcess | None = None
        if config.on_its_own:
            self._on_its_own = OnItsOwnProcess(config, config.on_its_own, log, dry=printed is not None)
        if printed is None:
            spools = os.path.join(config.state_dir, "spool")
            _remove_others(spools, [receiver.name for receiver in config.receivers])
            for receiver in config.receivers:
                directory = os.path.join(spools, receiver.name)
                # Without a state, messages are rather sent twice than lost.
                committed = None if self._state.damaged else self._state.sequence
                spool = Spool(directory, config.spool_max, committed)
                self._state.sequence = max(self._state.sequence, spool.next)
                self.senders.append(Sender(receiver, spool, log))

    # ---- the service

    def run(self) -> None:
        """Until the process gets a signal to end."""
        systemd.notify("READY=1", "STATUS=Reading the metadata service")
        self._log(self._greeting())
        try:
            for sender in self.senders:
                sender.start()
            while True:
                begin = self.clock.monotonic()
                pause = self._guarded_poll()
                systemd.notify(f"STATUS={self._status()}")
                self._sleep_until(begin + pause)
        finally:
            self.stop()

    def _sleep_until(self, end: float) -> None:
        while True:
            systemd.notify("WATCHDOG=1")
            left = end - self.clock.monotonic()
            if left <= 0:
                return
            self.clock.sleep(min(left, WATCHDOG_USEC / 4e6))

    def _guarded_poll(self) -> float:
        try:
            return self.poll()
        except Exception as exc:
            # It must go on watching.
            self._log_once("own", f"An error in the watcher itself: {exc!r:.300}")
            return max(OWN_ERROR_PAUSE, self.config.poll_interval)

    def stop(self) -> None:
        for sender in self.senders:
            sender.stop()
        end = time.monotonic() + SENDERS_END
        for sender in self.senders:
            if sender.is_alive():
                sender.join(max(0.0, end - time.monotonic()))
        if self._on_its_own:
            self._on_its_own.stop()

    def once(self) -> bool:
        """One look, and one try for each message; whether all of it worked."""
        self.poll()
        for sender in self.senders:
            while sender.step() == 0.0:
                pass
        if self._last is not None and self._printed is not None:
            self._log(self._status())
        return self._last is not None and not any(len(sender.spool) for sender in self.senders)

    # ---- one look

    def poll(self) -> float:
        """Look once; returns the seconds until the next look."""
        record = self._record()
        self._report_back(record)
        begin = self.clock.monotonic()
        try:
            reading, events = self._read()
        except EventsError as exc:
            self._requests.failed()
            self._log_once("read", f"The events cannot be read: {exc.message}")
            self._write_metrics(record)
            return self._pause_after(exc)
        self._requests.answered(self.clock.monotonic() - begin, self._now)
        if self._last is None:
            self._service.client.limits = LIMITS
            systemd.notify(f"WATCHDOG_USEC={WATCHDOG_USEC}")
        if self._logged.pop("read", None):
            self._log("The events can be read again.")
        self._last = (events, reading.document.incarnation)
        for oddity in reading.document.oddities:
            self._log_once(f"oddity {oddity}", oddity)
        changed = self._compare(events, record)
        if self._on_its_own:
            self._on_its_own.see(Host(events, record, self._now, self._vm_name))
        self._write_metrics(record, changed)
        return self.config.poll_interval

    @property
    def _now(self) -> float:
        return self.clock.utc_now().timestamp()

    def _read(self) -> tuple[Reading, list[Event]]:
        reading, self._vm_name, events = self._service.look(self._vm_name)
        if self._vm_name is None and self._last is None:
            self._log("The service does not return this VM's Azure name (a classic VM?). Set graceful_vm_name.")
        return reading, events

    def _pause_after(self, exc: EventsError) -> float:
        if not isinstance(exc, PassingFailure):
            return max(REFUSED_PAUSE, self.config.poll_interval)
        return max(exc.retry_after or 0.0, self.config.poll_interval)

    def _record(self) -> Json | None:
        try:
            record = self._keeper.read()
        except EventsError as exc:
            self._log_once("record", exc.message)
            return None
        self._logged.pop("record", None)
        return record

    # ---- reporting

    def _report_back(self, record: Json | None) -> None:
        """Once for each boot, if the record is open since before it: somebody has to put the host back."""
        if self._state.back_reported == self._boot_id:
            return
        if record is None or record["boot_id"] == self._boot_id:
            return
        events = [entry["event"] for entry in record["events"].values()]
        self._state.back_reported = self._boot_id
        blank = dict.fromkeys(Event.__annotations__)
        self._report([Change(BACK, {**blank, **event}) for event in events], record)

    def _compare(self, events: t.Sequence[Event], record: Json | None) -> bool:
        if not events and not self._state.events:
            return False
        changes, known = compare(self._state.events, events, self.clock.monotonic(), self._now, self._boot_id)
        self._state.events = known
        self._report(changes, record)
        return bool(changes)

    def _report(self, changes: t.Sequence[Change], record: Json | None) -> None:
        """Into the spools first, then the state is written, then it is sent: nothing is lost and nothing sent twice."""
        if not changes:
            return
        source = Source(self.config.host, self._vm_name, self._boot_id)
        for change in changes:
            made = message(change, source, self._state.sequence, self._now, record)
            self._log(_in_words(change))
            if self._printed is not None:
                self._printed(made)
            for sender in self.senders:
                if wants(sender.receiver, change):
                    sender.spool.add(self._state.sequence, made)
            self._state.sequence += 1
        if self._printed is None:
            self._state.write()
        for problem in filter(None, [self._state.problem, *(sender.spool.problem for sender in self.senders)]):
            self._log_once(problem, f"{problem}. Messages are sent, but a restart may lose or repeat them.")
        for sender in self.senders:
            sender.wake()

    # ---- for operators

    def _log_once(self, subject: str, text: str) -> None:
        """The same again only after an hour."""
        last, at = self._logged.get(subject, ("", 0.0))
        now = self.clock.monotonic()
        if last != text or now - at > SAY_AGAIN:
            self._logged[subject] = (text, now)
            self._log(clean(text))

    def _greeting(self) -> str:
        names = [sender.label for sender in self.senders]
        acting = "It drains itself if no run does." if self._on_its_own else "It does not act on its own."
        watching = f"Watching {self._service.endpoint} for {self.config.host}, every {self.config.poll_interval:g} s."
        return f"{watching} Sends messages to {listed(names)}. {acting}"

    def _status(self) -> str:
        if self._last is None:
            return "The metadata service has not answered yet"
        events = [f"{event['event_type']} {event['event_status']}" for event in self._last[0]]
        waiting = sum(len(sender.spool) for sender in self.senders)
        announced = f"Announced: {listed(events)}" if events else "Nothing is announced"
        return announced + (f"; {waiting} messages wait for a receiver" if waiting else "")

    def _write_metrics(self, record: Json | None, at_once: bool = False) -> None:
        path, now = self.config.metrics_file, self.clock.monotonic()
        # If the record cannot be read, the last figure stays.
        drained = self._written_drained if "record" in self._logged else is_drained(record)
        due = at_once or not self._written or now - self._written >= METRICS_EVERY or drained != self._written_drained
        if not path or self._printed is not None or not due:
            return
        self._written = now
        events, incarnation = self._last or ((), None)
        waiting = {one.receiver.name: (len(one.spool), one.spool.dropped) for one in self.senders}
        seen = metrics.Seen(incarnation, events, record, waiting, self.config.on_its_own is not None)
        try:
            write(path, metrics.text(self._requests, seen).encode("utf-8", "replace"), 0o644, sync=False)
            self._written_drained = drained
        except OSError as exc:
            self._log_once("metrics", f"{path}: {exc.strerror or exc}. The metrics are not written.")


def _remove_others(spools: str, names: t.Sequence[str]) -> None:
    """The spools of receivers that are not configured any more."""
    for name in os.listdir(spools) if os.path.isdir(spools) else ():
        if name not in names:
            shutil.rmtree(os.path.join(spools, name), ignore_errors=True)


def _in_words(change: Change) -> str:
    event = change.event
    name = f"{event['event_type']} {clean(event['event_id'], 80)} of {listed(event['resources'] or [])}"
    if change.change == "appeared":
        left = event["seconds_left"]
        when = f"not before {event['not_before']}, in {duration(left)}" if left is not None else "no time is known"
        affected = {True: "It affects this VM.", False: "It does not affect this VM."}.get(
            event["affects_me"], "Whether it affects this VM is not known."
        )
        return clean(f"Announced: {name}, {when}. {affected} {event['description'] or ''}".strip())
    words = {
        "changed": f"Changed: {name}: {', '.join(change.fields)}",
        "started": f"Started: {name}",
        "gone": f"Over ({change.outcome}): {name}",
        "back": f"This host has booted and was not put back yet after {name}",
    }
    return clean(f"{words[change.change]}.")
