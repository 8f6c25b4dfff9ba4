# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays the cases of the integration tests with the modules for Windows, several PowerShells at a time."""

from __future__ import annotations

import queue
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json, Outcome, RawServer
from ansible_collections.graceful.azure.tests.windows.harness import PowerShellError, Session

# Most of the time they wait for the service.
SESSIONS = 4
DEFAULTS: Json = {"connect_timeout": 5, "read_timeout": 10}
MODULES: dict[str, tuple[str, Json]] = {
    "info": ("win_scheduled_events_info", {"retries": 0}),
    "approve": ("win_scheduled_event_approve", {"retries": 0}),
    "wait": ("win_scheduled_events_wait", {"timeout": 120, "poll_interval": 0.3}),
}
SECOND_RUN = "Again"
ENVIRONMENT = """
foreach ($pair in $args[0][0].GetEnumerator()) { [Environment]::SetEnvironmentVariable($pair.Key, $pair.Value) }
"""


class WindowsStage:
    """All cases, played to their end. It has what the tests ask of the stage for Linux."""

    def __init__(self, cases: t.Sequence[Case], directory: Path) -> None:
        self._raw = {case.name: RawServer(case.raw) for case in cases if case.raw}
        self._emulators = [
            Emulator(directory / "emulator", [case for case in cases if not case.etag]),
            Emulator(directory / "etag-emulator", [case for case in cases if case.etag] or [Case("nobody")], "--etag"),
        ]
        self._results: dict[tuple[str, str], tuple[Json, float]] = {}
        self._errors: dict[str, str] = {}
        self._waiting: queue.Queue[Case] = queue.Queue()
        # What takes long begins early.
        for case in sorted(cases, key=lambda case: -case.seconds_asked - 40 * ("post_" in case.name)):
            self._waiting.put(case)
        workers = [threading.Thread(target=self._work) for _number in range(min(SESSIONS, len(cases)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self) -> None:
        session: Session | None = None
        try:
            session = Session()
            while True:
                case = self._waiting.get_nowait()
                try:
                    self._play(session, case)
                except PowerShellError as exc:
                    self._errors[case.name] = str(exc)
        except queue.Empty:
            pass
        finally:
            if session:
                session.close()

    def _play(self, session: Session, case: Case) -> None:
        emulator = self._emulators[case.etag]
        service = self._raw[case.name].url if case.raw else emulator.endpoints[case.name]
        module, defaults = MODULES[case.group]
        check, diff = (bool(case.variables.get(name)) for name in ("check", "show"))
        runs = ["", SECOND_RUN] if case.variables.get("again") else [""]
        variables = case.variables.get("variables", {})
        if variables:
            session.script(ENVIRONMENT, variables)
        for run in runs:
            begin = time.monotonic()
            result = session.module(module, {"endpoint": service, **DEFAULTS, **defaults, **case.options}, check, diff)
            self._results[case.name, run] = (result, time.monotonic() - begin)
        if variables:
            session.script(ENVIRONMENT, dict.fromkeys(variables, ""))

    def outcome(self, case: Case, task: str = "") -> Outcome:
        assert case.name not in self._errors, self._errors[case.name]
        emulator = self._emulators[case.etag]
        assert not emulator.errors, emulator.errors
        result, seconds = self._results[case.name, task]
        journal = emulator.journal
        ids = {case.event_id(number) for number in range(1, len(case.events) + 1)}
        return Outcome(
            "failed" if result.get("failed") else "ok",
            seconds,
            result,
            [line for line in journal if line["kind"] == "request" and line["vm"] == case.name],
            [line for line in journal if line["kind"] == "event" and line["EventId"] in ids],
        )

    def all_requests(self) -> list[Json]:
        journals = [line for emulator in self._emulators for line in emulator.journal]
        return [line for line in journals if line["kind"] == "request"]

    def stop(self) -> None:
        for emulator in self._emulators:
            emulator.stop()
        for server in self._raw.values():
            server.shutdown()
            server.server_close()
