# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import time
import typing as t

from ..module_utils._text import clean, duration, listed
from ..module_utils._waiter import times_of
from ..plugin_utils._slices import SlicedAction, SlicedModule, say

MODULE = "graceful.azure.scheduled_events_wait"
SLICE = 30.0

Result = dict[str, t.Any]


class ActionModule(SlicedAction):
    """Runs the module in short calls, so that the task survives a reboot of its host and prints its progress."""

    def _result(self, options: Result) -> Result:
        variables = self._vars
        try:
            timeout = float(self._task.args.get("timeout", 900))
            seen = dict(self._task.args.get("seen") or {})
            waited = float(seen.get("elapsed") or 0)
            # These are about the connection, so they are not passed to the module.
            interruptions, affected = seen.pop("interruptions", []), bool(seen.pop("affected", False))
            module = SlicedModule(self, MODULE, variables, "outcome", interruptions, bool(seen.get("answered")))
            if not math.isfinite(timeout + waited):
                raise ValueError(timeout)
        except (AttributeError, KeyError, TypeError, ValueError):
            # The module reports the mistake in its options.
            return self._execute_module(module_name=MODULE, task_vars=variables)
        return self._wait(module, str(variables.get("inventory_hostname", "host")), timeout, seen, waited, affected)

    def _wait(
        self, module: SlicedModule, host: str, timeout: float, seen: Result, waited: float, affected: bool
    ) -> Result:
        begin = time.monotonic() - waited
        last_events: list[Result] = []
        next_remark = 0.0
        while True:
            done = module.run(dict(self._task.args, seen=dict(seen, slice=SLICE)))
            elapsed = time.monotonic() - begin
            if done.failed:
                return done.result
            if not done.interrupted:
                seen = done.result["seen"]
                last_events = done.result["events"] or last_events
                affected = any(event.get("affects_me") for event in last_events) or (affected and not last_events)
                if not seen.get("continues"):
                    seen.update(interruptions=module.interruptions, affected=affected)
                    return dict(done.result, interruptions=module.interruptions)
                # The module does not know the time between its calls.
                seen["elapsed"] = elapsed
                say(f"[{host}] {progress(done.result['events'], elapsed, timeout)}")
                continue
            if affected:
                # The host went down while its event was announced, so the event has started and was not cancelled.
                seen["started"] = True
            if elapsed >= timeout:
                seen.update(interruptions=module.interruptions, affected=affected)
                return self._unreachable(seen, last_events, elapsed, timeout, done.result)
            seen["elapsed"] = elapsed
            if elapsed >= next_remark:
                next_remark = elapsed + SLICE
                say(f"[{host}] not reachable, trying again; {_waited(elapsed, timeout)}")
            module.reconnect(timeout - elapsed)

    def _unreachable(
        self, seen: Result, events: list[Result], elapsed: float, timeout: float, slice_result: Result
    ) -> Result:
        """The host did not come back in time: the events that were last seen, and a failure unless on_timeout is ok."""
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
            reason = clean(slice_result.get("msg") or "no reason was given", 200)
            result["failed"] = True
            result["msg"] = (
                f"The host could not be reached until the timeout of {timeout:g} s ({reason}). "
                "Look at the VM in Azure; run the task again once it answers."
            )
        return result


def progress(events: t.Sequence[Result], elapsed: float, timeout: float) -> str:
    """The events and the time that has passed, as one line."""
    parts = []
    for event in events:
        left = event.get("seconds_left")
        when = f", {duration(left)} left" if left is not None else ""
        what = f"{event['event_type']} {event['event_status']}{when}"
        parts.append(f"{what} ({event['event_id']} for {listed(event['resources'])})")
    return f"{clean('; '.join(parts), 600) or 'no matching event yet'}; {_waited(elapsed, timeout)}"


def _waited(elapsed: float, timeout: float) -> str:
    return f"waited {duration(elapsed)} of {duration(timeout)}"
