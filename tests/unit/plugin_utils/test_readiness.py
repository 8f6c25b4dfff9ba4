# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._readiness import (
    RESTARTS,
    library_is_missing,
    named_groups,
    readiness,
)

Json = dict[str, t.Any]
SEEN: Json = {"endpoint": "http://127.0.0.1", "vm_name": "web_0", "clock_offset": -0.4,
              "events": [{"event_id": "E1", "affects_me": True}, {"event_id": "E2", "affects_me": False}]}  # fmt: skip
MISSING = "The Python library (requests) is missing for /usr/bin/python3."


def answer(raw: Json | None = None, report: Json | None = None, seen: Json | None = None, **written: t.Any) -> Json:
    """What a host answered, by way of the door, and what is written for it."""
    told = raw or {"report": report or {"state": "looked"}, "observation": {**SEEN, **(seen or {})}}
    groups: Json = {"policy": [], "min_available": []}
    given = {"mistakes": [], "drain_not_set": False, "min_available": None, "groups": groups, **written}
    return {**admitted(told), **given}


def judged(answers: t.Mapping[str, Json], groups: t.Collection[str] = (), **installs: str) -> Json:
    return readiness(answers, groups, 30, installs)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (answer(), ""),
        (answer({"unreachable": True, "msg": "no route."}), "The host cannot be reached: no route. Check"),
        (answer({"failed": True, "msg": "Connection refused."}), "Connection refused."),
        (answer(seen={"error": "The service says no.", "events": None}), "The service says no."),
        (answer(seen={"vm_name": None}), "Set graceful_vm_name"),
        (answer(seen={"clock_offset": None}), "does not return its time"),
        (answer(seen={"clock_offset": 31.0}), "31 s behind"),
        (answer(seen={"clock_offset": -90.0}), "90 s ahead"),
        (answer(report={"state": "failed", "message": "Run it with become."}), "Run it with become."),
        (answer(seen={"record_error": "It is damaged."}), "It is damaged."),
        (answer(mistakes=["graceful_wat is set."]), "graceful_wat is set."),
    ],
)
def test_what_stands_in_the_way(given: Json, problem: str) -> None:
    found = judged({"web1": given})["problems"]
    assert problem in " ".join(found.get("web1", []))
    assert bool(found) == bool(problem)


def test_all_that_is_wrong_with_a_host_is_said_at_once() -> None:
    wrong = answer(
        seen={"error": "The service says no."}, report={"state": "failed", "message": "full"}, mistakes=["a", "b"]
    )
    assert len(judged({"web1": wrong})["problems"]["web1"]) == 4


def test_what_hosts_have_in_common_is_said_once() -> None:
    answers = {f"web{number}": answer(seen={"vm_name": f"web_{number}"}, mistakes=["wrong."]) for number in (1, 2)}
    found = judged(answers)
    assert found["problems"] == {"web1": ["wrong."], "web2": ["wrong."]}
    assert [line for line in found["table"] if "wrong." in line] == ["web1 and web2: wrong."]


def test_a_host_without_the_library_is_ready_and_told_what_to_do_about_it() -> None:
    without = answer(seen={"warnings": [MISSING]})
    assert library_is_missing(without)
    assert not library_is_missing(answer())
    assert not library_is_missing(answer({"unreachable": True}))
    seen = "python3-requests was installed, but for another Python. Install requests for this Python."
    found = judged({"web1": without, "web2": answer(seen={"vm_name": "web_2"})}, web1=seen, web2="not needed")
    assert found["problems"] == {}
    said = f"Warning: web1: {MISSING} {seen} Only the three modules scheduled_… need it."
    assert [line for line in found["table"] if line.startswith("Warning")] == [said]


def test_hosts_that_share_an_azure_name_are_told_so() -> None:
    found = judged(
        {"web1": answer(), "web2": answer(seen={"vm_name": "WEB_0"}), "web3": answer(seen={"vm_name": None})}
    )
    assert "the same Azure name as web2" in found["problems"]["web1"][0]
    assert "the same Azure name as web1" in found["problems"]["web2"][0]
    assert len(found["problems"]["web3"]) == 1


def test_the_table_shows_every_host_and_what_must_be_repeated() -> None:
    answers = {"web2": answer({"unreachable": True}), "web1": answer(seen={"vm_name": "web\x1b_0"})}
    table = judged(answers)["table"]
    assert table[1].split() == ["web1", "yes", "web?_0", "http://127.0.0.1", "-0.4", "s", "1"]
    assert table[2].split()[:2] == ["web2", "no"]
    assert table[3].startswith("web2: The host cannot be reached")
    assert table[4] == RESTARTS
    assert table[-1].startswith("1 of 2 hosts are ready. Repeat this within 24 hours")


def test_nobody_is_told_about_restarts_where_no_service_was_enabled() -> None:
    assert RESTARTS not in judged({"web1": answer({"unreachable": True})})["table"]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (
            ["web1"],
            "nothing is drained on web1: graceful_drain_steps is not set; its events are held unless the policy's",
        ),
        (
            ["web1", "web2"],
            "nothing is drained on web1 and web2: graceful_drain_steps is not set; their events are held",
        ),
    ],
)
def test_that_nothing_is_drained_is_a_warning_and_no_problem(hosts: list[str], said: str) -> None:
    found = judged({host: answer(seen={"vm_name": host}, drain_not_set=True) for host in hosts})
    assert found["problems"] == {}
    assert any(said in line for line in found["table"])


def test_groups_that_nobody_has_are_a_warning() -> None:
    named = {"policy": ["web", "wbe"], "min_available": ["db", "bd", "dd"]}
    table = "\n".join(judged({"web1": answer(groups=named)}, ["all", "web", "db"])["table"])
    assert "graceful_policy names 'wbe', which the inventory does not have: the rule never matches." in table
    assert "graceful_min_available names 'bd', 'dd', which the inventory does not have: it protects nothing." in table


@pytest.mark.parametrize(
    ("policy", "least", "groups"),
    [
        (None, None, {"policy": [], "min_available": []}),
        (None, "50%", {"policy": [], "min_available": []}),
        ([{"action": "notify", "group": ["b", "a"]}, {"action": "drain", "group": "a"}], {"c": 1},
         {"policy": ["a", "b"], "min_available": ["c"]}),
    ],
)  # fmt: skip
def test_the_groups_that_settings_name(policy: t.Any, least: t.Any, groups: Json) -> None:
    assert named_groups({"policy": policy, "min_available": least}) == groups


def test_what_a_host_says_cannot_be_a_template() -> None:
    hostile = answer(seen={"vm_name": "{{ lookup('pipe', 'id') }}", "error": "{% evil %}", "endpoint": "{{ x }}"})
    assert "{{" not in "\n".join(judged({"web1": hostile})["table"])
    assert "{%" not in "\n".join(judged({"web1": hostile})["table"])
