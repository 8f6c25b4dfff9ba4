# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import (
    NOW,
    all_ready,
    approvals,
    event,
    fleet,
    for_all,
)

READY = {"ready": True, "reason": ""}


def planned(*events: dict[str, t.Any], **arguments: t.Any) -> dict[str, t.Any]:
    return plan(fleet(*events), **{"now": NOW, **arguments})


def test_an_event_is_approved_once_every_affected_host_is_ready() -> None:
    made = planned(event("E1", "vm2", "vm1"))
    assert approvals(made, all_ready(made)) == {
        "approve": [{"event_id": "E1", "hosts": ["web2", "web1"], "approvers": ["web2", "web1"]}],
        "held": [],
        "ignored": [],
    }


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({}, "web2 has not reported that it is ready"),
        ({"E2": READY}, "web2 has not reported that it is ready"),
        ({"E1": {}}, "web2 has not reported that it is ready"),
        ({"E1": {"ready": False}}, "web2 is not ready: it gave no reason"),
        ({"E1": {"ready": False, "reason": "queue is full"}}, "web2 is not ready: queue is full"),
        ({"E1": {"ready": False, "reason": "{{ 1 }}\n\x1b[2J"}}, "web2 is not ready: { { 1 }} ?[2J"),
        ({"E1": {"ready": "True", "reason": "odd"}}, "web2 is not ready: odd"),
        ({"E1": {"ready": 1, "reason": "odd"}}, "web2 is not ready: odd"),
        ({"E1": {"ready": None, "reason": "odd"}}, "web2 is not ready: odd"),
    ],
)
def test_a_host_that_is_not_ready_holds_the_event(report: t.Any, says: str) -> None:
    made = planned(event("E1", "vm1", "vm2"))
    judged = approvals(made, {"web1": {"E1": READY}, "web2": report})
    assert judged == {"approve": [], "held": [{"event_id": "E1", "reasons": [says]}], "ignored": []}


def test_one_event_that_is_held_does_not_hold_another() -> None:
    made = planned(event("E1", "vm1"), event("E2", "vm2"))
    judged = approvals(made, {"web2": {"E2": READY}})
    assert [entry["event_id"] for entry in judged["approve"]] == ["E2"]
    assert [entry["event_id"] for entry in judged["held"]] == ["E1"]


@pytest.mark.parametrize(
    ("announced", "arguments", "says"),
    [
        (event("E1", "vm1", "vm9"), {}, "no inventory host has the Azure name 'vm9'"),
        (event("E1", "vm1", "vm2"), {"targeted": ["web1"]}, "web2 is outside this run (--limit or graceful_hosts)"),
        (event("E1", "vm1", "vm2", event_type="Terminate"), {}, "it deletes 2 VMs, and a VM may only approve its own"),
        (
            event("E1", "vm1", "vm2"),
            {"settings": {"web2": {"policy": [{"action": "drain"}]}}},
            "the policy of web2 says drain (rule 'rule 1')",
        ),
        (
            event("E1", "vm1"),
            {"settings": for_all(["web1"], min_available=3), "groups": {"web": ["web1", "web2", "web3"]}},
            "deferred until 2026-09-19T18:10:00Z: group 'web' would have 2 of 3 hosts available, 3 are required",
        ),
        (
            event("E1", "vm1", seconds_left=86400),
            {"settings": {"web1": {"window": {"start": "20:00", "end": "21:00"}}}},
            "deferred until 2026-09-19T20:00:00Z: graceful_window is 20:00-21:00 UTC",
        ),
        (event("E1"), {}, "it names no VMs"),
        (event("E1", "vm9"), {}, "no host of the inventory is known to be affected"),
    ],
)
def test_what_the_plan_holds_stays_held_though_all_are_ready(
    announced: dict[str, t.Any], arguments: dict[str, t.Any], says: str
) -> None:
    made = planned(announced, **arguments)
    judged = approvals(made, all_ready(made))
    assert judged["approve"] == []
    assert any(says in reason for reason in judged["held"][0]["reasons"])


@pytest.mark.parametrize(
    "announced",
    [
        event("E1", "vm1", event_status="Started"),
        event("E1", "vm1", event_type="Freeze", duration_seconds=5),
        event("E1", "vm1", event_type="Preempt"),
    ],
)
def test_what_was_never_to_be_approved_is_ignored(announced: dict[str, t.Any]) -> None:
    made = planned(announced)
    assert approvals(made, all_ready(made)) == {"approve": [], "held": [], "ignored": [{"event_id": "E1"}]}


@pytest.mark.parametrize(
    "damage",
    [
        {"approvable": None},
        {"approvable": 1},
        {"approvable": False},
        {"holds": None},
        {"holds": ""},
        {"holds": ["wait"]},
        {"hosts": []},
        {"hosts": None},
        {"approvers": None},
        {"approvers": []},
    ],
)
def test_a_damaged_plan_approves_nothing(damage: dict[str, t.Any]) -> None:
    made = planned(event("E1", "vm1"))
    reports = all_ready(made)
    assert approvals(made, reports)["approve"]
    made["events"][0].update(damage)
    assert approvals(made, reports)["approve"] == []
    assert approvals(made, reports)["held"][0]["reasons"]


def test_an_action_that_nobody_knows_approves_nothing() -> None:
    made = planned(event("E1", "vm1"))
    made["events"][0]["actions"] = {"web1": "an action of tomorrow"}
    assert approvals(made, all_ready(made))["approve"] == []
