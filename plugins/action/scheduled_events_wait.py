# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import math
import time
import typing as t
from datetime import datetime, timezone

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.graceful.azure.plugins.module_utils._waiter import times_of

MODULE = "graceful.azure.scheduled_events_wait"
SLICE = 30.0
RECONNECT_PAUSE = 2.0
# While a host goes down or comes up, its ssh may already answer and its Python not yet; after this long it is broken.
SILENT_FAILURE_PATIENCE = 60.0
COMMAND_NOT_RUN = (126, 127)

display = Display()
Result = dict[str, t.Any]


class ActionModule(ActionBase):
    """Runs the module in slices, so that the task lives through a reboot of its host and shows how far it is."""

    def run(self, tmp: t.Any = None, task_vars: Result | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        del tmp
        variables = task_vars or {}
        try:
            timeout = float(self._task.args.get("timeout", 900))
            seen = dict(self._task.args.get("seen") or {})
            waited = float(seen.get("elapsed") or 0)
            # Of the connection, only the controller knows; the module is not told.
            interruptions = [{"lost": gap["lost"], "back": gap["back"]} for gap in seen.pop("interruptions", [])]
            affected = bool(seen.pop("affected", False))
            if not math.isfinite(timeout + waited):
                raise ValueError(timeout)
        except (AttributeError, KeyError, TypeError, ValueError):
            # The module itself says best what is wrong with its options.
            return dict(result, **self._execute_module(module_name=MODULE, task_vars=variables))
        result.update(self._wait(timeout, seen, waited, interruptions, affected, variables))
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _wait(
        self,
        timeout: float,
        seen: Result,
        waited: float,
        interruptions: list[Result],
        affected: bool,
        variables: Result,
    ) -> Result:
        host = variables.get("inventory_hostname", "host")
        begin = time.monotonic() - waited
        last_events: list[Result] = []
        silent_since: float | None = None
        next_remark = 0.0
        while True:
            slice_result = self._run_slice(seen, variables)
            elapsed = time.monotonic() - begin
            if "outcome" in slice_result:
                silent_since = None
                if interruptions and interruptions[-1]["back"] is None:
                    interruptions[-1]["back"] = _utc_now()
                slice_result["interruptions"] = interruptions
                last_events = slice_result["events"] or last_events
                seen = slice_result["seen"]
                affected = any(event.get("affects_me") for event in last_events) or (affected and not last_events)
                if not seen.get("continues"):
                    seen.update(interruptions=interruptions, affected=affected)
                    return slice_result
                # The module does not know of the time between its slices.
                seen["elapsed"] = elapsed
                display.display(f"[{host}] {progress(slice_result['events'], elapsed, timeout)}")
                continue

            if not slice_result.get("unreachable") and "module_stdout" not in slice_result:
                return slice_result
            if not slice_result.get("unreachable"):
                silent_since = silent_since or time.monotonic()
                hopeless = not seen.get("answered") and slice_result.get("rc") in COMMAND_NOT_RUN
                if hopeless or time.monotonic() - silent_since > SILENT_FAILURE_PATIENCE:
                    return slice_result
            if not interruptions or interruptions[-1]["back"] is not None:
                interruptions.append({"lost": _utc_now(), "back": None})
            if affected:
                # The host went down while its event stood: gone will then mean completed, not cancelled.
                seen["started"] = True
            if elapsed >= timeout:
                seen.update(interruptions=interruptions, affected=affected)
                return self._unreachable(seen, last_events, elapsed, timeout, slice_result)
            seen["elapsed"] = elapsed
            if elapsed >= next_remark:
                next_remark = elapsed + SLICE
                display.display(f"[{host}] not reachable, trying again; {_waited(elapsed, timeout)}")
            time.sleep(max(0.0, min(RECONNECT_PAUSE, timeout - elapsed)))
            self._reset_connection()

    def _run_slice(self, seen: Result, variables: Result) -> Result:
        args = dict(self._task.args, seen=dict(seen, slice=SLICE))
        try:
            slice_result: Result = self._execute_module(module_name=MODULE, module_args=args, task_vars=variables)
        except AnsibleConnectionFailure as exc:
            return {"unreachable": True, "msg": str(exc)}
        return slice_result

    def _reset_connection(self) -> None:
        self._connection._shell.tmpdir = None
        # Not every connection can be reset; the next slice tries all the same.
        with contextlib.suppress(AnsibleConnectionFailure, AttributeError, NotImplementedError):
            self._connection.reset()

    def _unreachable(
        self, seen: Result, events: list[Result], elapsed: float, timeout: float, slice_result: Result
    ) -> Result:
        """The host did not come back in time: what was last seen, and a failure unless that was to be expected."""
        result = {
            "outcome": "unreachable",
            "events": events,
            "elapsed": round(elapsed, 3),
            "polls": seen.get("polls", 0),
            "times": times_of(seen),
            "interruptions": seen["interruptions"],
            "seen": dict(seen, continues=False),
            "changed": False,
        }
        if self._task.args.get("on_timeout", "fail") != "ok":
            reason = (str(slice_result.get("msg") or "").strip().splitlines() or ["no reason given"])[0]
            result["failed"] = True
            result["msg"] = (
                f"The host could not be reached until the timeout of {timeout:g} s ({reason}). "
                "Look at the VM in Azure; run the task again once it answers."
            )
        return result


def progress(events: t.Sequence[Result], elapsed: float, timeout: float) -> str:
    """A line that says which events stand and how long it has been."""
    parts = []
    for event in events:
        left = event.get("seconds_left")
        names = ", ".join(event["resources"]) or "nobody"
        when = f", {_span(left)} left" if left is not None else ""
        parts.append(f"{event['event_type']} {event['event_status']}{when} ({event['event_id']} for {names})")
    return printable(f"{'; '.join(parts) or 'no matching event yet'}; {_waited(elapsed, timeout)}")


def printable(text: str) -> str:
    """Event text comes from outside: nothing in it may steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _utc_now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _waited(elapsed: float, timeout: float) -> str:
    return f"waited {_span(elapsed)} of {_span(timeout)}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
