# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._role_report import role_report

Json = dict[str, t.Any]
STEPS = [{"phase": "drain", "name": "app"}, {"phase": "checkpoint", "name": "cache"}]
RECORD = {"steps": STEPS, "timeline": [{"what": "draining"}]}


def told(state: str = "ready", message: str = "2 steps done", **more: t.Any) -> Json:
    report = {"state": state, "message": message, "closed": None}
    return {"report": report, "observation": {"record": RECORD}, "error": None, **more}


def test_each_role_hears_of_its_own_steps() -> None:
    assert role_report("drain", told()) == {
        "ready": True,
        "reason": "2 steps done",
        "steps": STEPS[:1],
        "timeline": RECORD["timeline"],
    }
    assert role_report("checkpoint", told())["steps"] == STEPS[1:]


@pytest.mark.parametrize("state", ["failed", "next", "held_by_other_run", "gone", "skipped"])
@pytest.mark.parametrize(("role", "key"), [("drain", "ready"), ("checkpoint", "ready"), ("restore", "restored")])
def test_what_did_not_come_to_its_end_is_not_done(role: str, key: str, state: str) -> None:
    report = role_report(role, told(state, "why"))
    assert (report[key], report["reason"]) == (False, "why")


@pytest.mark.parametrize("state", ["working", "waiting"])
def test_what_is_not_finished_in_time_is_not_done_and_says_so(state: str) -> None:
    report = role_report("restore", told(state, "waits until it is over"))
    assert (report["restored"], report["reason"]) == (False, "Not finished in time: waits until it is over")


def test_a_host_that_did_not_answer_is_not_done_and_says_why() -> None:
    lost = {"report": None, "observation": None, "error": "no route to host"}
    assert role_report("drain", lost) == {"ready": False, "reason": "no route to host", "steps": [], "timeline": []}
    assert role_report("restore", lost) == {"restored": False, "reason": "no route to host", "record": None}


def test_a_restored_host_tells_of_the_record_that_was_closed() -> None:
    closed: Json = {"steps": [], "timeline": []}
    answer = told("put_back", "everything is undone")
    answer["report"]["closed"] = closed
    assert role_report("restore", answer) == {"restored": True, "reason": "everything is undone", "record": closed}
