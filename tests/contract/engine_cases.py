# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine answers to which order, whatever language it is written in. A new case goes here, and nowhere else.

A case is a host of its own: its events, and turns one after the other. A turn is an order with what it comes to. The
Python engine and the PowerShell engine have to give these answers, and each other's in every field, see `normalised`.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import typing as t
from pathlib import Path

Json = dict[str, t.Any]
# Long enough for a busy machine, and never waited for in vain.
LONG = 90.0
# How many seconds ahead events are announced: nothing comes to pass by itself.
NOTICE = 100_000


class Turn(t.NamedTuple):
    order: str
    # The state of the report, and its message as a regular expression; for an error of the module the state is "error".
    state: str
    message: str = ".*"
    options: t.Mapping[str, t.Any] = {}
    # What happens before: publish (another event), start, complete or forget (an event, the first if there is no
    # number), write or remove (a file), record (what it has); alive and quiet wait until the program of a step that
    # hangs has begun, and see that it has ended; worked waits until the work has ended that a call has left running.
    first: t.Sequence[tuple[str, ...]] = ()
    # The steps of the record afterwards, with their status; None: it is not looked at.
    steps: t.Mapping[str, str] | None = None
    # Whether the result is changed; None: it is not looked at.
    changed: bool | None = None
    check: bool = False


class Case(t.NamedTuple):
    name: str
    turns: t.Sequence[Turn]
    event_type: str = "Reboot"

    def event_id(self, number: int) -> str:
        return f"{self.name}-{number}".upper()


class Host(t.Protocol):
    """A host on which the engine runs."""

    # Its directory, as its programs write it.
    work: str

    def program(self, verb: str, name: str) -> list[str]:
        """Verbs: make a file, test that it is there, remove it, fail, sleep, hang (and say so in a file).

        make_slowly (which says so, too) and remove_slowly wait until there is a file NAME.go.
        """

    def call(self, options: Json, check: bool) -> Json:
        """The module's own result."""

    def file(self, name: str) -> Path:
        """A file in the directory, as this machine sees it."""


# ---- what orders are made of


def step(name: str, do: str = "make", undo: str = "remove", timeout: float | None = None) -> Json:
    return {"name": name, "kind": "command", "timeout": timeout, "programs": (do, "test", undo)}


def by_controller(name: str, kind: str = "tasks", timeout: float | None = None) -> Json:
    return {"name": name, "kind": kind, "timeout": timeout, "options": {"do": "drain.yml"}}


def saved(name: str, verb: str = "make") -> Json:
    return {"name": name, "kind": "command", "timeout": None, "argv": verb}


def well(verb: str, name: str = "well", timeout: int = 1) -> Json:
    blank = dict.fromkeys(("port", "url", "headers", "username", "password"))
    return {**blank, "argv": (verb, name), "timeout": timeout}


def answer(name: str, mode: str, ok: bool = True, kind: str = "tasks", **more: t.Any) -> Json:
    told = {"phase": "drain", "name": name, "kind": kind, "mode": mode, "ok": ok, "message": "the tasks ran"}
    return {"controller_step": {**told, **more}, "wait": LONG}


def pending(name: str) -> Json:
    """The controller has begun the step, and it takes longer."""
    return answer(name, "do", False, message="3 sessions on lb1", late=True, pending=True)


def arguments(host: Host, turn: Turn, events: t.Sequence[Json]) -> Json:
    """The options of the module for a turn."""
    given: Json = {"order": turn.order, "record_dir": f"{host.work}records", "checkpoint_dir": f"{host.work}archives"}
    if turn.order != "look":
        given.update(run_id="first", run_name="the first run", events=list(events))
    given.update(turn.options)
    for key in ("steps", "checkpoint"):
        given[key] = [_item(host, item) for item in given.get(key, [])]
    given["health"] = [{**item, "argv": host.program(*item["argv"])} for item in given.get("health", [])]
    return given


def _item(host: Host, item: Json) -> Json:
    blank: Json = {"become_user": None, "environment": None}
    if "programs" in item:
        do, probe, undo = (host.program(verb, item["name"]) for verb in item["programs"])
        item = {**item, "options": {**blank, "do": do, "probe": probe, "undo": undo}}
    if "argv" in item:
        item = {**item, "options": {"argv": host.program(item["argv"], item["name"]), "become_user": None}}
    return {key: value for key, value in item.items() if key not in ("programs", "argv")}


# ---- what may differ between two hosts

# Its length depends on the time, too.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SECONDS = ("next_try", "seconds", "seconds_left", "clock_offset")
_ANYTHING = ("boot_id", "document", "endpoint", "not_before", "options", "time")


def normalised(value: t.Any, host: Host, key: str = "") -> t.Any:
    """A result with the times, programs and places in it replaced."""
    # Windows has no number of its boot: a host knows it when it has written one, which a look does not.
    if key in _ANYTHING and (value or key == "boot_id"):
        return key.upper()
    # On a slow machine a call more is needed, which reads again, tries again what has rested, and marks it again.
    if key in ("gone_reads", "attempts"):
        return value > 0
    if key == "timeline":
        marks = [normalised(one, host) for one in value]
        return [one for number, one in enumerate(marks) if one not in marks[:number]]
    if isinstance(value, dict):
        return {name: normalised(one, host, name) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [normalised(one, host) for one in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "SECONDS" if key in _SECONDS else "TIME" if value > 1e9 else value
    if isinstance(value, str):
        text = value.replace(host.work, "WORK/").replace("\\", "/")
        text = re.sub(r"(WORK/\S*?\.)\d+(\.damaged)", r"\1NUMBER\2", text)
        # The program and what was left for it.
        text = re.sub(r"\S+ ended with", "PROGRAM ended with", text)
        text = re.sub(r"\S+ did not end within \S+ s", "PROGRAM did not end within SECONDS s", text)
        # On a slow machine the program of a health check may not even end.
        text = re.sub(r"health check of .+? did not pass\. After .*", "health check of PROGRAM did not pass.", text)
        return _MOMENT.sub("MOMENT", text)
    return value


def steps_of(result: Json) -> dict[str, str] | None:
    record = (result.get("observation") or {}).get("record")
    return None if record is None else {one["name"]: one["status"] for one in record["steps"]}


READY = "[0-9]+ drain steps? done, [0-9]+ checkpoints? saved, all verified"
CLAIMED = "Another run has claimed the event: the first run. Run this again when that run has ended."
DONE = "everything is undone"
DONE_AND_HEALTHY = "everything is undone, and the health checks have passed"
NOT_FRESH = "The last check that this host is ready is too old.*"
BEGIN: Json = {"wait": LONG}
ONE: Json = {"steps": [step("one")], "wait": LONG}
BOTH: Json = {"steps": [step("one"), step("two")], "wait": LONG}
FAILS: Json = {"steps": [step("one"), step("bad", do="fail"), step("two")], "wait": LONG}
ASKED: Json = {"steps": [by_controller("site")], "wait": LONG}
BALANCER: Json = {"steps": [step("one"), by_controller("front", "haproxy")], "wait": LONG}
HANGS: Json = {"steps": [step("slow", do="hang")], "wait": 2}
SAVES: Json = {**ONE, "checkpoint": [saved("dump")]}
SLOW: Json = {"steps": [step("slow", do="make_slowly")], "wait": 2}
TWO_ASKED: Json = {"steps": [by_controller("site"), by_controller("other")], "fresh": 0, "wait": LONG}
# What an order of another run has.
SECOND: Json = {"run_id": "second", "run_name": "the second run", "wait": LONG}
# It passes at once, but the program may take a while to begin.
WELL: Json = {"health": [well("test", timeout=60)]}
UNHEALTHY = "The host is not healthy: The health check of .* did not pass. .*"
SERVERS: Json = {"servers": [{"host": "lb1", "socket": "/run/haproxy", "in_service": True}]}

CASES: t.Sequence[Case] = (
    Case(
        "a_look_writes_nothing",
        (
            Turn("look", "looked", ""),
            Turn("look", "looked", "", {"probe_record": True}),
            Turn("look", "looked", "", {"probe_record": True}, check=True),
        ),
    ),
    Case(
        "a_host_with_nothing_to_drain",
        (
            Turn("ready", "skipped", "Check mode: nothing was done.", check=True),
            Turn("ready", "ready", "0 drain steps done, 0 checkpoints saved, all verified", BEGIN, steps={}),
            Turn("approve", "approved", "", steps={}),
            Turn("approve", "approved", "It is approved already.", steps={}),
            Turn("put_back", "waiting", "waits until the event is over: Reboot Started", {"wait": 1}, steps={}),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("complete",)]),
        ),
    ),
    Case(
        "steps_are_undone_last_first",
        (
            Turn("ready", "ready", READY, BOTH, steps={"one": "done", "two": "done"}),
            Turn("ready", "ready", READY, {**BOTH, "wait": 0}, steps={"one": "done", "two": "done"}, changed=False),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("start",), ("complete",)]),
        ),
    ),
    Case(
        "what_was_out_of_service_is_left_so",
        (
            Turn("ready", "ready", READY, ONE, first=[("write", "one")], steps={"one": "done"}),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("forget",)]),
        ),
    ),
    Case(
        "a_failed_step_rests",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'bad' \(command\) failed: The program of do ended with 3: .*",
                FAILS,
                steps={"one": "done", "bad": "failed"},
            ),
            Turn(
                "ready",
                "failed",
                r"Drain step 'bad' \(command\) failed: .*",
                {**FAILS, "wait": 0},
                steps={"one": "done", "bad": "failed"},
            ),
            Turn("approve", "failed", NOT_FRESH, steps={"one": "done", "bad": "failed"}),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("forget",)]),
        ),
    ),
    Case(
        "a_failed_drain_is_undone_if_asked",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'bad' \(command\) failed: .* What was done is undone\.",
                {**FAILS, "undo_on_failure": True},
                steps={"one": "undone", "bad": "undone"},
            ),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("forget",)]),
        ),
    ),
    Case(
        "a_late_step",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'slow' \(command\) was not done in time: \S+ did not end within .* s and was stopped\.",
                {"steps": [step("slow", do="sleep", timeout=5)], "wait": LONG},
                steps={"slow": "failed"},
            ),
        ),
    ),
    Case(
        "a_drain_that_hangs_is_stopped_to_put_back",
        (
            Turn("ready", "working", options=HANGS),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("alive", "slow"), ("forget",)]),
            Turn("look", "looked", "", first=[("quiet", "slow")]),
        ),
    ),
    Case(
        "a_drain_that_hangs_is_stopped_for_another_run",
        (
            Turn("ready", "working", options=HANGS),
            Turn(
                "ready",
                "ready",
                READY,
                {**ONE, "run_id": "second", "force": True},
                first=[("alive", "slow")],
                steps={"slow": "doing", "one": "done"},
            ),
            Turn("look", "looked", "", first=[("quiet", "slow")]),
        ),
    ),
    Case(
        "a_drain_that_hangs_is_stopped_by_a_release",
        (
            Turn("ready", "working", options=HANGS),
            Turn("release", "released", "1 claim released", first=[("alive", "slow")], steps={"slow": "doing"}),
            Turn("look", "looked", "", first=[("quiet", "slow")]),
        ),
    ),
    Case(
        "the_work_of_another_run_for_another_event_goes_on",
        (
            Turn("ready", "working", options=HANGS),
            Turn(
                "ready",
                "working",
                "waits until another run has finished its work on this host, for another event",
                {"run_id": "second", "which": (1, 2), "wait": 1},
                first=[("alive", "slow"), ("publish",)],
                steps={"slow": "doing"},
            ),
            Turn("ready", "working", options=HANGS, steps={"slow": "doing"}),
            Turn("release", "released", "1 claim released", steps={"slow": "doing"}),
            Turn("ready", "ready", READY, {**BEGIN, "run_id": "second", "which": (1, 2)}, first=[("quiet", "slow")]),
        ),
    ),
    Case(
        "a_drain_that_has_no_time",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'one' \(command\) was not done in time: no time is left",
                {**ONE, "seconds": 0},
                steps={"one": "failed"},
            ),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("forget",)]),
        ),
    ),
    Case(
        "another_run_holds_the_claim",
        (
            Turn("ready", "ready", READY, ONE, steps={"one": "done"}),
            Turn("ready", "held_by_other_run", CLAIMED, {**ONE, "run_id": "second"}),
            Turn("put_back", "held_by_other_run", CLAIMED, {"run_id": "second"}),
            Turn("ready", "ready", READY, {**ONE, "run_id": "second", "run_name": "the second", "force": True}),
            Turn(
                "approve",
                "held_by_other_run",
                r"This run does not hold the claim of the event any more: the second \(claimed at .*\) holds it\. .*",
            ),
            Turn("release", "released", "0 claims released", steps={"one": "done"}),
            Turn("release", "released", "1 claim released", {"run_id": "second"}, steps={"one": "done"}),
            Turn("ready", "ready", READY, ONE, steps={"one": "done"}),
            Turn("put_back", "put_back", DONE, BEGIN, first=[("forget",)]),
        ),
    ),
    Case(
        "a_silent_run_is_taken_over",
        (
            Turn("ready", "ready", READY, {**BEGIN, "silent_for": 0}, steps={}),
            Turn("ready", "ready", READY, {**BEGIN, "run_id": "second"}, steps={}),
            Turn("release", "released", "1 claim released", {"run_id": "second"}),
        ),
    ),
    Case(
        "an_event_that_does_not_stand_drains_nothing",
        (
            Turn(
                "ready",
                "gone",
                "There is nothing to get ready for: the events have started or are gone.",
                ONE,
                first=[("start",)],
            ),
            Turn(
                "ready",
                "gone",
                "There is nothing to get ready for: the events have started or are gone.",
                ONE,
                first=[("complete",)],
            ),
        ),
    ),
    Case(
        "nothing_is_approved_that_is_not_ready",
        (
            Turn("approve", "held_by_other_run", r".*: the record was closed. This run does nothing more on the host."),
            Turn("ready", "ready", READY, BEGIN, steps={}),
            Turn("approve", "failed", NOT_FRESH, {"max_age": 0}, steps={}),
            Turn(
                "approve",
                "unexpected",
                r"\S+ was not approved: its type is now 'Reboot', expected: .*",
                {"event": {"event_type": "Freeze"}},
                steps={},
            ),
            Turn("approve", "started", "The event has started already.", first=[("start",)], steps={}),
        ),
    ),
    Case(
        "an_approval_by_id_alone_is_for_what_was_claimed",
        (
            Turn("ready", "ready", READY, {**BEGIN, "event": {"resources": None}}),
            Turn(
                "approve",
                "failed",
                "What the event may affect is not known: neither the order nor the claim has its resources.",
                {"event": {"resources": None}},
            ),
            Turn("ready", "ready", READY, {"event": {"resources": ["other"]}}),
            Turn(
                "approve",
                "unexpected",
                r"\S+ was not approved: it now names 'an_approval_by_id_alone_.*', which was not expected.*",
                {"event": {"event_type": None, "resources": None}},
            ),
            Turn("ready", "ready", READY),
            Turn("approve", "approved", "", {"event": {"event_type": None, "resources": None}}, changed=True),
        ),
    ),
    Case(
        "the_controller_takes_a_step",
        (
            Turn("ready", "next", "the controller takes the step 'site'", ASKED, steps={"site": "doing"}),
            Turn("ready", "ready", READY, {**ASKED, **answer("site", "do")}, steps={"site": "done"}),
            Turn("ready", "next", ".*", {**ASKED, "fresh": 0, "wait": 0}, steps={"site": "done"}),
            Turn("ready", "ready", READY, {**ASKED, "fresh": 0, **answer("site", "verify")}, steps={"site": "done"}),
            Turn(
                "ready", "next", ".*", {**ASKED, "fresh": 0, **answer("site", "verify", False)}, steps={"site": "doing"}
            ),
            Turn(
                "ready",
                "failed",
                r"Drain step 'site' \(tasks\) failed: no luck",
                {**ASKED, **answer("site", "do", False, message="no luck")},
                steps={"site": "failed"},
            ),
            Turn(
                "ready",
                "failed",
                r"Drain step 'site' \(tasks\) was not done in time: too slow",
                {**ASKED, **answer("site", "do", False, message="too slow", late=True)},
                steps={"site": "failed"},
            ),
            Turn("put_back", "next", ".*", BEGIN, first=[("forget",)], steps={"site": "doing"}),
            Turn("put_back", "put_back", DONE, answer("site", "undo")),
        ),
    ),
    Case(
        "a_step_of_the_controller_takes_longer",
        (
            Turn("ready", "next", ".*", ASKED, steps={"site": "doing"}),
            Turn(
                "ready",
                "next",
                "site: 3 sessions on lb1",
                {**ASKED, **pending("site")},
                steps={"site": "doing"},
                changed=False,
            ),
            Turn(
                "ready",
                "failed",
                r"Drain step 'site' \(tasks\) was not done in time: 3 sessions on lb1",
                {"steps": [by_controller("site", timeout=0.5)], **pending("site")},
                steps={"site": "failed"},
            ),
            # It was not begun again since it failed.
            Turn("ready", "failed", ".*", {**ASKED, **pending("site")}, steps={"site": "failed"}),
            Turn("ready", "ready", READY, {**ASKED, **answer("site", "do")}, steps={"site": "done"}),
            Turn("ready", "next", ".*", {**ASKED, "fresh": 0, **pending("no step")}, steps={"site": "done"}),
        ),
    ),
    Case(
        "a_step_that_takes_longer_does_not_begin_anew",
        (
            Turn("ready", "next", "the controller takes the step 'site'", TWO_ASKED),
            Turn("ready", "next", "the controller takes the step 'other'", {**TWO_ASKED, **answer("site", "do")}),
            Turn(
                "ready",
                "next",
                "other: 3 sessions on lb1",
                {**TWO_ASKED, **pending("other")},
                steps={"site": "done", "other": "doing"},
            ),
            # Only now what is old is verified.
            Turn(
                "ready",
                "next",
                "the controller takes the step 'site'",
                {**TWO_ASKED, **answer("other", "do")},
                steps={"site": "done", "other": "doing"},
            ),
        ),
    ),
    Case(
        "a_host_that_stays_unhealthy_is_released_with_its_record",
        (
            Turn("ready", "ready", READY, ONE, steps={"one": "done"}),
            Turn(
                "put_back",
                "failed",
                UNHEALTHY,
                {**BEGIN, "health": [well("test")]},
                first=[("forget",)],
                steps={"one": "undone"},
            ),
            # The checks take no longer than the order may.
            Turn(
                "put_back",
                "failed",
                r"The host is not healthy: The health check of .* did not pass\. After [0-4](\.\d+)? s still: .*",
                {"wait": 0, "seconds": 4, "health": [well("test", timeout=600)]},
                steps={"one": "undone"},
            ),
            Turn("release", "released", "1 claim released", steps={"one": "undone"}),
            Turn(
                "put_back",
                "put_back",
                DONE_AND_HEALTHY,
                {**SECOND, **WELL},
                first=[("write", "well")],
            ),
        ),
    ),
    Case(
        "traffic_returns_last",
        (
            Turn(
                "ready",
                "next",
                ".*",
                {**BALANCER, "looked": {"front": SERVERS}},
                steps={"one": "done", "front": "doing"},
            ),
            Turn(
                "ready",
                "ready",
                READY,
                {**BALANCER, **answer("front", "do", kind="haproxy")},
                steps={"one": "done", "front": "done"},
            ),
            Turn(
                "put_back",
                "failed",
                "The host is not healthy: The health check of .* did not pass. .*",
                {**BEGIN, "health": [well("test")]},
                first=[("forget",)],
                steps={"one": "undone", "front": "done"},
            ),
            Turn(
                "put_back",
                "failed",
                "The host is not healthy: nobody knows",
                {"health_mistake": "nobody knows"},
                steps={"one": "undone", "front": "done"},
            ),
            Turn(
                "put_back",
                "next",
                ".*",
                {"wait": 2, **WELL},
                first=[("write", "well")],
                steps={"one": "undone", "front": "doing"},
            ),
            Turn(
                "put_back",
                "put_back",
                DONE_AND_HEALTHY,
                {**answer("front", "undo", kind="haproxy"), **WELL},
            ),
        ),
    ),
    Case(
        "a_step_that_was_taken_without_the_claim_is_remembered",
        (
            Turn("ready", "next", ".*", ASKED, steps={"site": "doing"}),
            Turn("ready", "ready", READY, {**BEGIN, "run_id": "second", "force": True}, steps={"site": "doing"}),
            Turn(
                "ready",
                "held_by_other_run",
                ".*",
                {**ASKED, **answer("late site", "do")},
                steps={"site": "doing", "late site": "failed"},
            ),
        ),
    ),
    Case(
        "a_name_has_one_kind",
        (
            Turn("ready", "ready", READY, ONE, steps={"one": "done"}),
            Turn(
                "ready",
                "failed",
                r"Drain step 'one' \(tasks\) failed: its kind is tasks, but a step with the same name and the kind .*",
                {"steps": [by_controller("one")], "wait": 0},
                steps={"one": "done"},
            ),
        ),
    ),
    Case(
        "a_masked_url_cannot_be_used",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'one' \(command\) failed: the secret part of the URL in url is never recorded. .*",
                {"steps": [{"name": "one", "kind": "command", "options": {"url": "http://…@host/"}}], "wait": LONG},
                steps={"one": "failed"},
            ),
        ),
    ),
    Case(
        "what_is_saved_is_saved_once",
        (
            Turn("ready", "ready", READY, {"checkpoint": [saved("dump")], "wait": LONG}, steps={"dump": "done"}),
            Turn(
                "ready",
                "ready",
                READY,
                {"checkpoint": [saved("dump")], "wait": 0},
                first=[("remove", "dump")],
                steps={"dump": "done"},
            ),
            # It was not made again.
            Turn(
                "put_back",
                "failed",
                "The host is not healthy: .*",
                {**BEGIN, "health": [well("test", "dump", 20)]},
                first=[("forget",)],
            ),
        ),
    ),
    Case(
        "what_is_to_be_saved_in_another_way_is_saved_again",
        (
            Turn("ready", "ready", READY, {"checkpoint": [saved("dump")], "wait": LONG}, steps={"dump": "done"}),
            Turn(
                "ready",
                "failed",
                r"Checkpoint 'dump' \(command\) failed: .*",
                {"checkpoint": [saved("dump", "fail")], "wait": 0},
                steps={"dump": "failed"},
            ),
        ),
    ),
    Case(
        "what_was_in_service_meanwhile_is_saved_again",
        (
            Turn("ready", "ready", READY, SAVES, steps={"one": "done", "dump": "done"}),
            Turn(
                "ready",
                "ready",
                READY,
                {**SAVES, "wait": 0},
                first=[("remove", "one"), ("remove", "dump")],
                steps={"one": "done", "dump": "done"},
                changed=True,
            ),
            Turn(
                "put_back",
                "put_back",
                DONE_AND_HEALTHY,
                {**BEGIN, "health": [well("test", "dump", 20)]},
                first=[("forget",)],
            ),
        ),
    ),
    Case(
        "what_was_done_between_two_calls_is_a_change",
        (
            Turn("ready", "ready", READY, BEGIN, steps={}, changed=True),
            Turn("ready", "working", options=SLOW),
            Turn(
                "ready",
                "ready",
                READY,
                {**SLOW, "wait": 0},
                first=[("write", "slow.go"), ("worked",)],
                steps={"slow": "done"},
                changed=True,
            ),
            Turn("ready", "ready", READY, {**SLOW, "wait": 0}, steps={"slow": "done"}, changed=False),
        ),
    ),
    Case(
        "of_a_machine_that_is_taken_away_what_can_be_is_saved",
        (
            Turn(
                "ready",
                "failed",
                r"Drain step 'bad' \(command\) failed: .*",
                {**FAILS, "checkpoint": [saved("dump")]},
                steps={"one": "done", "bad": "failed", "dump": "done"},
            ),
        ),
        "Preempt",
    ),
    Case(
        "an_event_has_lapsed",
        (
            Turn("ready", "ready", READY, ONE, steps={"one": "done"}),
            Turn("put_back", "put_back", DONE, {**BEGIN, "lapsed": True}, steps={}),
        ),
    ),
    Case(
        "another_event_needs_the_host_drained",
        (
            Turn("ready", "ready", READY, {**ONE, "which": (1, 2)}, first=[("publish",)], steps={"one": "done"}),
            Turn(
                "put_back",
                "put_back",
                "Another event still needs the host drained.",
                BEGIN,
                first=[("forget",)],
                steps={"one": "done"},
            ),
        ),
    ),
    Case(
        "a_lapsed_event_is_given_up_although_another_needs_the_host_drained",
        (
            Turn("ready", "ready", READY, ONE, first=[("publish",)], steps={"one": "done"}),
            Turn("ready", "ready", READY, {**SECOND, "which": (2,)}, steps={"one": "done"}),
            Turn(
                "put_back",
                "put_back",
                "Another event still needs the host drained.",
                {**BEGIN, "lapsed": True},
                steps={"one": "done"},
            ),
            Turn("put_back", "put_back", DONE, {**SECOND, "which": (2,)}, first=[("forget", "2")], steps={}),
        ),
    ),
    Case(
        "a_run_that_loses_one_of_two_events",
        (
            Turn("ready", "working", options={**SLOW, "which": (1, 2)}, first=[("publish",)]),
            Turn(
                "ready",
                "working",
                "waits until another run has finished its work on this host, for another event",
                {**SECOND, "wait": 0, "force": True, "which": (2,)},
                first=[("alive", "slow")],
            ),
            # The work stops before it notes anything in the name of both.
            Turn("look", "looked", "", first=[("write", "slow.go"), ("worked",)], steps={"slow": "doing"}),
            Turn("ready", "ready", READY, {**SLOW, "wait": LONG, "which": (1, 2)}, steps={"slow": "done"}),
        ),
    ),
    Case(
        "the_result_is_told_although_another_run_holds_one_of_the_events",
        (
            Turn(
                "ready",
                "ready",
                READY,
                {"steps": [step("slow", undo="remove_slowly")], "wait": LONG},
                first=[("publish",)],
                steps={"slow": "done"},
            ),
            Turn("ready", "ready", READY, {**SECOND, "which": (2,)}),
            Turn(
                "put_back",
                "waiting",
                "waits until the event is over: Reboot Started",
                {"wait": 1, "which": (1, 2)},
                first=[("start",), ("forget", "2")],
            ),
            Turn("put_back", "working", options={"wait": 3, "which": (1, 2)}, first=[("complete",)]),
            Turn(
                "put_back",
                "put_back",
                DONE,
                {"wait": 3, "which": (1, 2)},
                first=[("write", "slow.go"), ("worked",)],
                steps={"slow": "undone"},
                changed=True,
            ),
        ),
    ),
    Case(
        "an_event_that_is_twice_in_the_order_counts_once",
        (
            Turn("ready", "ready", READY, {**ONE, "which": (1, 1)}, steps={"one": "done"}),
            Turn("release", "released", "1 claim released", {"which": (1, 1)}, steps={"one": "done"}),
            Turn("put_back", "put_back", DONE, {**BEGIN, "which": (1, 1)}, first=[("forget",)]),
        ),
    ),
    Case(
        "a_damaged_record",
        (
            Turn("look", "looked", "", first=[("record", "{}")]),
            Turn(
                "ready",
                "failed",
                ".*record.json cannot be used as a record: it is JSON, but not a record of this "
                "collection. It was left as it is. .*",
            ),
            Turn(
                "ready",
                "failed",
                ".* it is of version 9, and this collection knows version 2 only. .*",
                first=[("record", '{"version": 9}')],
            ),
            Turn(
                "ready",
                "failed",
                ".* events, steps, timeline, created, boot_id missing or of the wrong form. .*",
                first=[("record", '{"version": 2}')],
            ),
            Turn("ready", "ready", READY, {**BEGIN, "force": True}, steps={}),
        ),
    ),
    Case(
        "wrong_options",
        (
            Turn("ready", "error", "order=ready needs events and run_id.", {"events": []}),
            Turn("release", "error", "order=release needs events and run_id.", {"run_id": " "}),
            Turn("ready", "error", "events: each needs an event_id.", {"events": [{"event_id": " "}]}),
            Turn(
                "ready",
                "error",
                "seconds is -1.0; it has to be a number of seconds, from 0 to 1000000.",
                {"seconds": -1},
            ),
            Turn("look", "error", "record_dir has to be an absolute path, not 'records'.", {"record_dir": "records"}),
        ),
    ),
    Case(
        "a_file_in_the_place_of_the_directory",
        (
            Turn(
                "look",
                "failed",
                ".*records is not a directory. Move it away, or set another graceful_record_dir.",
                {"probe_record": True},
                first=[("write", "records")],
            ),
            Turn("ready", "failed", ".*records is not a directory. .*", {**ONE, "wait": 0}),
        ),
    ),
)


# ---- playing


class Azure(t.Protocol):
    """The service of all hosts."""

    def control(self, path: str, spec: Json) -> None:
        """Change what it says."""


def play(case: Case, host: Host, azure: Azure, endpoint: str) -> list[Json]:
    """The results of the turns, one after the other."""
    azure.control("publish", _published(case, 1))
    results = []
    for turn in case.turns:
        for what, *words in turn.first:
            _happen(case, host, azure, what, words)
        options = dict(turn.options)
        changed, which = options.pop("event", {}), options.pop("which", (1,))
        if options.get("lapsed"):
            options["lapsed"] = [case.event_id(1).lower()]
        events = [{**_told(case, number), **changed} for number in which]
        given = {"endpoint": endpoint, "retries": 0, **arguments(host, turn._replace(options=options), events)}
        result = host.call(given, turn.check)
        # As a task does: work that is under way is looked at again. On a slow machine it takes a call more until it is.
        unfinished = "waiting" if turn.state == "working" else "working"
        while (result.get("report") or {}).get("state") == unfinished:
            earlier, result = result, host.call(given, turn.check)
            result["changed"] = result.get("changed") or earlier.get("changed")
        results.append(result)
    return results


def judge(turn: Turn, result: Json) -> None:
    """What the table says about a turn."""
    if turn.state == "error":
        assert "report" not in result, result
        assert re.fullmatch(turn.message, result["msg"]), result["msg"]
        return
    report = result["report"]
    assert report["state"] == turn.state, report
    assert re.fullmatch(turn.message, report["message"], re.DOTALL), report
    if turn.steps is not None:
        assert steps_of(result) == turn.steps
    if turn.changed is not None:
        assert result["changed"] == turn.changed


def _published(case: Case, number: int) -> Json:
    whose = {"Resources": [case.name], "scope": case.name, "EventId": case.event_id(number)}
    return {**whose, "EventType": case.event_type, "notice": NOTICE}


def _told(case: Case, number: int) -> Json:
    return {"event_id": case.event_id(number), "event_type": case.event_type, "resources": [case.name]}


def _happen(case: Case, host: Host, azure: Azure, what: str, words: t.Sequence[str]) -> None:
    if what == "publish":
        azure.control("publish", _published(case, 2))
    elif what in ("start", "complete", "forget"):
        number = int(words[0]) if words else 1
        azure.control({"forget": "cancel"}.get(what, what), {"EventId": case.event_id(number)})
    elif what == "worked":
        _wait_for_result(host.file("records") / ".worker.json")
    elif what in ("alive", "quiet"):
        _wait_for_program(host.file(f"{words[0]}.alive"), what == "alive")
    elif what == "write":
        host.file(words[0]).write_text("")
    elif what == "remove":
        host.file(words[0]).unlink()
    elif what == "record":
        file = host.file("records") / "record.json"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_text(json.dumps(json.loads(words[0])))
    else:
        raise ValueError(what)


def _wait_for_result(file: Path) -> None:
    """The work leaves its result at its end."""
    end = time.monotonic() + LONG
    while True:
        # It is replaced now and then.
        with contextlib.suppress(OSError, ValueError):
            if "result" in json.loads(file.read_text()):
                return
        assert time.monotonic() < end, "the work does not end"
        time.sleep(0.1)


def _wait_for_program(file: Path, alive: bool) -> None:
    """The program of a step that hangs writes to the file each second."""
    end = time.monotonic() + LONG
    while alive and not file.exists():
        assert time.monotonic() < end, "the step has not begun"
        time.sleep(0.1)
    if not alive:
        size = file.stat().st_size
        time.sleep(3)
        assert file.stat().st_size == size, "the program goes on"
