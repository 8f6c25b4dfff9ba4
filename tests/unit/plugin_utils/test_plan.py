# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import NOW, event, fleet, for_all, host, only

IGNORING = [{"action": "drain_and_approve", "unknown_names": "ignore"}]
DAYTIME_UTC = {"start": "08:00", "end": "16:00"}


def held_because(entry: dict[str, t.Any], words: str) -> bool:
    return any(words in reason for reason in entry["holds"])


# ---- who


def test_an_event_that_every_host_sees_is_one_entry() -> None:
    entry = only(fleet(event("E1", "vm3", "vm1")))
    assert entry["hosts"] == ["web3", "web1"]
    assert entry["leader"] == "vm3"
    assert entry["approvers"] == ["web3", "web1"]
    assert entry["action"] == "drain_and_approve"
    assert entry["approvable"] is True
    assert entry["holds"] == []
    assert entry["drain"] == ["web3", "web1"]
    assert entry["not_before"] == "2026-09-19T18:15:00Z"
    assert entry["wait_until"] is None
    assert entry["reason"] == (
        "Reboot of web3 and web1 in 15 min: drain, then approve (rule 'reboot or move'):"
        " a drained host loses nothing, and an approval ends the wait for NotBefore."
    )


def test_names_and_ids_are_compared_as_azure_does() -> None:
    seen = {"a": host("VM1", event("e1", "_vm1", "vm2")), "b": host("vm2", event("E1", "vm1", "VM2"))}
    entry = only(seen)
    assert entry["event_id"] == "e1"
    assert entry["hosts"] == ["a", "b"]
    assert entry["holds"] == []


def test_hosts_that_no_event_touches_are_not_in_the_plan() -> None:
    entry = only(fleet(event("E1", "vm2")))
    assert (entry["hosts"], entry["drain"], entry["approvers"]) == (["web2"], ["web2"], ["web2"])
    assert entry["actions"] == {"web2": "drain_and_approve"}


def test_an_event_is_whole_in_the_plan() -> None:
    """Every field that the modules return, under the same name: nothing has to be listed again."""
    announced = event("E1", "vm2", description="a new host", a_field_of_tomorrow="kept")
    entry = only(fleet(announced))
    kept = {key: value for key, value in announced.items() if key != "affects_me"}
    assert {key: entry[key] for key in kept} == kept


def test_nothing_announced_is_an_empty_plan() -> None:
    made = plan(fleet(), now=NOW)
    assert made["events"] == []
    assert made["summary"] == ["Events: 0. Affected hosts: 0 of 3."]


def test_only_an_affected_host_that_can_be_asked_may_approve() -> None:
    announced = event("E1", "vm1", "vm2", "vm3", "vm4")
    seen = fleet(announced, size=4)
    seen["web1"]["reachable"] = False
    seen["web2"].update(error="HTTP 500", events=None)
    entry = only(seen, targeted=["web1", "web2", "web4"])
    assert entry["approvers"] == ["web4"]


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        ({"reachable": False, "events": []}, {}, "web2 cannot be reached"),
        ({"reachable": None, "events": []}, {}, "web2 cannot be reached"),
        (
            {"events": None, "error": "HTTP \x1b[31m500"},
            {},
            "web2 could not read its metadata service: 'HTTP ?[31m500'",
        ),
        ({}, {"targeted": ["web1", "web3"]}, "web2 is outside this run (--limit or graceful_hosts)"),
        ({"events": []}, {}, "web2 is named in it, but the metadata service there does not show it"),
        ({"vm_name": None}, {}, "no inventory host has the Azure name 'vm2'"),
        ({"vm_name": None}, {}, "it may affect web2, whose Azure name is not known (set graceful_vm_name)"),
        ({"vm_name": ""}, {}, "no inventory host has the Azure name 'vm2'"),
        ({"vm_name": "vm1"}, {}, "web1 and web2 have the same Azure name 'vm1'"),
    ],
)
def test_a_host_in_doubt_holds_its_event(change: dict[str, t.Any], arguments: dict[str, t.Any], says: str) -> None:
    seen = fleet(event("E1", "vm1", "vm2"))
    seen["web2"].update(change)
    entry = only(seen, **arguments)
    assert held_because(entry, says)
    assert not held_because(only(fleet(event("E1", "vm1", "vm2"))), says)


def test_a_host_that_was_not_asked_itself_does_not_hold() -> None:
    seen = fleet(event("E1", "vm1", "vm2"))
    seen["web2"]["events"] = None
    assert only(seen)["holds"] == []


def test_a_host_outside_the_run_is_neither_drained_nor_leader() -> None:
    entry = only(fleet(event("E1", "vm1", "vm2")), targeted=["web2"])
    assert entry["hosts"] == ["web1", "web2"]
    assert entry["drain"] == ["web2"]
    assert entry["approvers"] == ["web2"]


def test_a_host_known_by_its_inventory_name_alone_holds() -> None:
    seen = fleet(event("E1", "vm1", "vm9"))
    seen["web9"] = {"reachable": False, "vm_name": "vm9"}
    entry = only(seen, targeted=["web1"])
    assert entry["hosts"] == ["web1", "web9"]
    assert entry["holds"] == ["web9 is outside this run (--limit or graceful_hosts)"]


def test_the_same_azure_name_in_another_resource_group_is_another_vm() -> None:
    seen = {**fleet(event("E1", "vm1")), "staging1": host("vm1")}
    entry = only(seen)
    assert entry["hosts"] == ["web1"]
    assert entry["holds"] == []


@pytest.mark.parametrize("unsure", [{"reachable": False}, {"error": "HTTP 500"}, {"events": None}])
def test_the_same_azure_name_is_ambiguous_if_the_other_host_was_not_asked(unsure: dict[str, t.Any]) -> None:
    seen = {**fleet(event("E1", "vm1", "vm2")), "staging1": host("vm1", **unsure)}
    entry = only(seen)
    assert entry["hosts"] == ["web2"]
    assert held_because(entry, "staging1 and web1 have the same Azure name 'vm1'")


def test_an_event_that_no_reachable_host_sees_is_held() -> None:
    seen = fleet(event("E1", "vm1"))
    for observation in seen.values():
        observation["reachable"] = False
    entry = only(seen)
    assert held_because(entry, "no host that can be reached sees it (it was seen by web1, web2 and web3)")
    assert entry["approvers"] == []
    assert entry["drain"] == []


def test_an_event_without_resources_is_held() -> None:
    entry = only(fleet(event("E1")))
    assert entry["holds"] == ["it names no VMs, so it is not known which hosts it affects"]
    assert entry["approvable"] is False
    assert entry["action"] == "notify"


@pytest.mark.parametrize(
    ("policy", "nameless", "held"),
    [
        (None, False, True),
        ([{"action": "drain_and_approve", "unknown_names": "hold"}], False, True),
        (IGNORING, False, False),
        (IGNORING, True, True),
    ],
)
def test_unknown_names_hold_unless_the_policy_ignores_them(policy: t.Any, nameless: bool, held: bool) -> None:
    seen = fleet(event("E1", "vm1", "vm9"))
    if nameless:
        seen["web3"] = {"reachable": False, "vm_name": None}
    entry = only(seen, settings=for_all(seen, policy=policy))
    assert entry["unknown_names"] == ["vm9"]
    assert bool(entry["holds"]) is held
    assert entry["drain"] == ["web1"]


def test_unknown_names_hold_if_one_host_does_not_ignore_them() -> None:
    seen = fleet(event("E1", "vm1", "vm2", "vm9"))
    settings = {"web1": {"policy": IGNORING}, "web2": {}}
    assert held_because(only(seen, settings=settings), "no inventory host has the Azure name 'vm9'")


def test_a_host_that_only_the_groups_know_may_be_the_unknown_name() -> None:
    seen = fleet(event("E1", "vm1", "vm9"))
    entry = only(seen, groups={"all": ["web1", "web9"]}, settings=for_all(seen, policy=IGNORING))
    assert held_because(entry, "'vm9' may be web9, whose Azure name is not known")


def test_an_event_of_unknown_vms_is_held_and_drains_no_host() -> None:
    entry = only(fleet(event("E1", "other1", "other2")))
    assert entry["hosts"] == []
    assert entry["approvable"] is False
    assert entry["action"] == "notify"
    assert held_because(entry, "no inventory host has the Azure name 'other1', 'other2'")


# ---- merging


def test_it_has_started_if_anybody_saw_that() -> None:
    announced = event("E1", "vm1")
    seen = fleet(announced)
    seen["web3"]["events"] = [event("E1", "vm1", event_status="Started", not_before=None, seconds_left=None)]
    entry = only(seen)
    assert entry["event_status"] == "Started"
    assert (entry["seconds_left"], entry["not_before"]) == (None, None)
    assert held_because(entry, "it has started: there is nothing left to approve")
    assert entry["drain"] == []
    assert entry["hosts"] == ["web1"]


def test_the_least_time_left_counts() -> None:
    seen = {f"web{left}": host(f"vm{left}", event("E1", "vm600", seconds_left=left)) for left in (700, 600, 800)}
    assert only(seen)["seconds_left"] == 600


@pytest.mark.parametrize(
    ("not_before", "left"),
    [("2026-09-19T18:10:00Z", 600), ("2026-09-19T17:00:00Z", 0), (None, None), ("soon", None)],
)
def test_without_the_services_clock_ours_is_used(not_before: str | None, left: int | None) -> None:
    assert only(fleet(event("E1", "vm1", seconds_left=None, not_before=not_before)))["seconds_left"] == left


def test_a_status_that_is_not_known_holds() -> None:
    seen = fleet(event("E1", "vm1"))
    seen["web2"]["events"] = [event("E1", "vm1", event_status="Paused")]
    assert held_because(only(seen), "its status 'Paused' is not known")


def test_hosts_that_see_different_types_hold() -> None:
    seen = fleet(event("E1", "vm1"))
    seen["web2"]["events"] = [event("E1", "vm1", event_type="Redeploy")]
    assert held_because(only(seen), "the hosts see different types of it: 'Reboot', 'Redeploy'")


def test_hosts_that_see_different_sources_hold() -> None:
    """A rule may approve at once what a user has asked for. That an unaffected host says so is not enough."""
    seen = fleet(event("E1", "vm2"))
    seen["web1"]["events"] = [event("E1", "vm2", event_source="User")]
    assert held_because(only(seen), "the hosts see different sources of it: 'Platform', 'User'")
    # An old version of the service does not tell it.
    seen["web1"]["events"] = [event("E1", "vm2", event_source=None)]
    assert only(seen)["holds"] == []


def test_hosts_that_see_different_resources_hold_and_all_of_them_are_affected() -> None:
    seen = fleet(event("E1", "vm1"))
    seen["web2"]["events"] = [event("E1", "vm2")]
    entry = only(seen)
    assert entry["hosts"] == ["web1", "web2"]
    assert held_because(entry, "the hosts see different Resources of it")


def test_a_duration_that_one_host_does_not_know_is_not_known() -> None:
    seen = fleet(event("E1", "vm1", event_type="Freeze", duration_seconds=5))
    assert only(seen)["action"] == "notify"
    seen["web2"]["events"] = [event("E1", "vm1", event_type="Freeze", duration_seconds=None)]
    entry = only(seen)
    assert (entry["duration_seconds"], entry["action"]) == (None, "drain_and_approve")


def test_what_an_old_version_of_the_service_leaves_out_is_taken_from_the_others() -> None:
    seen = fleet(event("E1", "vm1", event_source=None, description=None))
    seen["web2"]["events"] = [event("E1", "vm1", event_source="User", description="on request")]
    entry = only(seen)
    assert (entry["event_source"], entry["description"]) == ("User", "on request")


def test_an_event_with_nothing_but_an_id_is_held() -> None:
    told = admitted({"report": {}, "observation": {"events": [{"event_id": "E1"}], "vm_name": "vm1"}})
    entry = only({"web1": {"reachable": True, **told["observation"]}})
    assert (entry["event_type"], entry["event_status"]) == ("Unknown", "Unknown")
    assert entry["holds"]


# ---- what


@pytest.mark.parametrize(
    ("actions", "together", "approvable", "drain"),
    [
        (("drain_and_approve", "drain_and_approve"), "drain_and_approve", True, ["web1", "web2"]),
        (("approve", "drain_and_approve"), "drain_and_approve", True, ["web2"]),
        (("approve", "approve"), "approve", True, []),
        (("drain", "drain_and_approve"), "drain", False, ["web1", "web2"]),
        (("notify", "drain_and_approve"), "drain", False, ["web2"]),
        (("notify", "approve"), "notify", False, []),
        (("ignore", "approve"), "notify", False, []),
        (("ignore", "notify"), "notify", False, []),
        (("ignore", "ignore"), "ignore", False, []),
    ],
)
def test_the_hosts_policies_together(
    actions: tuple[str, str], together: str, approvable: bool, drain: list[str]
) -> None:
    settings = {f"web{number}": {"policy": [{"action": action}]} for number, action in enumerate(actions, 1)}
    entry = only(fleet(event("E1", "vm1", "vm2")), settings=settings)
    assert entry["action"] == together
    assert entry["approvable"] is approvable
    assert bool(entry["holds"]) is not approvable
    assert entry["drain"] == drain
    assert [entry["actions"][name] for name in ("web1", "web2")] == list(actions)


def test_a_refusal_names_host_action_and_rule() -> None:
    settings = {"web2": {"policy": [{"name": "a person decides", "action": "notify"}]}}
    entry = only(fleet(event("E1", "vm1", "vm2")), settings=settings)
    assert entry["holds"] == ["the policy of web2 says notify (rule 'a person decides')"]


def test_a_rule_looks_at_the_hosts_own_groups_and_name() -> None:
    policy = [{"group": "db", "action": "notify"}, {"resource": "vm2", "action": "drain"}, {"action": "approve"}]
    seen = fleet(event("E1", "vm1", "vm2", "vm3"))
    entry = only(seen, groups={"db": ["web1"]}, settings=for_all(seen, policy=policy))
    assert [entry["actions"][name] for name in ("web1", "web2", "web3")] == ["notify", "drain", "approve"]


@pytest.mark.parametrize(("resources", "approvable"), [(["vm1"], True), (["vm1", "vm2"], False)])
def test_a_vm_approves_only_its_own_deletion(resources: list[str], approvable: bool) -> None:
    entry = only(fleet(event("E1", *resources, event_type="Terminate")))
    assert entry["approvable"] is approvable
    assert held_because(entry, "a VM may only approve its own deletion") is not approvable
    assert entry["drain"] == [f"web{name[2:]}" for name in resources]


def test_an_eviction_is_drained_at_once_and_never_approved() -> None:
    seen = fleet(event("E1", "vm1", event_type="Preempt", seconds_left=30))
    settings = for_all(seen, window=DAYTIME_UTC, min_available="100%")
    entry = only(seen, groups={"web": list(seen)}, settings=settings)
    assert entry["drain"] == ["web1"]
    assert entry["approvable"] is False


def test_a_held_event_still_drains_since_azure_acts_all_the_same() -> None:
    entry = only(fleet(event("E1", "vm1", "vm9")))
    assert entry["holds"]
    assert entry["drain"] == ["web1"]


# ---- when: the window


@pytest.mark.parametrize(
    ("left", "wait_until"),
    [
        (900, None),
        (14 * 3600 + 299, None),
        (14 * 3600 + 300, "2026-09-20T08:00:00Z"),
        (5 * 86400, "2026-09-20T08:00:00Z"),
        (None, None),
    ],
)
def test_the_window_counts_only_if_it_opens_before_the_deadline(left: int | None, wait_until: str | None) -> None:
    seen = fleet(event("E1", "vm1", "vm2", seconds_left=left, not_before=None))
    entry = only(seen, settings={"web2": {"window": DAYTIME_UTC}})
    assert entry["wait_until"] == wait_until
    if wait_until is None:
        assert entry["drain"] == ["web1", "web2"]
        assert entry["holds"] == []
    else:
        assert entry["drain"] == []
        assert entry["deferral"] == f"deferred until {wait_until}: graceful_window is 08:00-16:00 UTC"
        assert entry["holds"] == [entry["deferral"]]
        assert entry["approvable"] is True


@pytest.mark.parametrize(("urgent", "drain"), [(True, ["web1"]), (False, [])])
def test_the_window_does_not_defer_urgent_events(urgent: bool, drain: list[str]) -> None:
    seen = fleet(event("E1", "vm1", seconds_left=7 * 86400))
    policy = [{"action": "drain_and_approve", "urgent": urgent}]
    settings = for_all(seen, policy=policy, window={"start": "22:00", "end": "23:00"})
    assert only(seen, settings=settings)["drain"] == drain


def test_deletions_of_one_scope_at_the_same_time_are_coupled() -> None:
    first, second = event("E1", "vm1", event_type="Terminate"), event("E2", "vm2", event_type="Terminate")
    later = event("E3", "vm3", event_type="Terminate", not_before="2026-09-19T18:16:00Z")
    made = plan(fleet(first, second, later), now=NOW)
    assert [entry["coupled"] for entry in made["events"]] == [["E2"], ["E1"], []]
    # Nobody sees both of them: they are of different scopes.
    seen = {"web1": host("vm1", first), "web2": host("vm2", second)}
    assert [entry["coupled"] for entry in plan(seen, now=NOW)["events"]] == [[], []]


def test_nothing_is_put_off_within_the_window() -> None:
    seen = fleet(event("E1", "vm1", seconds_left=5 * 86400))
    entry = only(seen, settings=for_all(seen, window={"start": "17:00", "end": "19:00"}))
    assert (entry["wait_until"], entry["drain"]) == (None, ["web1"])


def test_a_longer_drain_budget_makes_the_deadline_nearer() -> None:
    seen = fleet(event("E1", "vm1", seconds_left=14 * 3600 + 300))
    entry = only(seen, settings=for_all(seen, window=DAYTIME_UTC, drain_budget=301))
    assert entry["wait_until"] is None


# ---- when: the capacity


def capacity(seen: dict[str, t.Any], min_available: t.Any, **more: t.Any) -> dict[str, dict[str, t.Any]]:
    settings = for_all(seen, min_available=min_available, **more)
    made = plan(seen, groups={"web": sorted(seen)}, settings=settings, now=NOW)
    return {entry["event_id"]: entry for entry in made["events"]}


def test_the_nearest_deadline_goes_first_and_the_rest_waits_until_it_must() -> None:
    events = [event("E1", "vm1", seconds_left=900), event("E2", "vm2", seconds_left=800)]
    made = capacity(fleet(*events), "60%")
    assert made["E2"]["drain"] == ["web2"]
    assert made["E2"]["holds"] == []
    assert made["E1"]["drain"] == []
    assert made["E1"]["wait_until"] == "2026-09-19T18:10:00Z"
    assert made["E1"]["deferral"].split(": ")[1] == "group 'web' would have 1 of 3 hosts available, 2 are required"


def test_among_equal_deadlines_the_smaller_id_goes_first() -> None:
    made = capacity(fleet(event("e2", "vm1"), event("E1", "vm2")), 2)
    assert (made["E1"]["drain"], made["e2"]["drain"]) == (["web2"], [])


def test_what_can_wait_no_longer_is_drained_but_not_approved() -> None:
    made = capacity(fleet(event("E1", "vm1", seconds_left=300)), 3)
    assert made["E1"]["drain"] == ["web1"]
    assert made["E1"]["wait_until"] is None
    assert made["E1"]["holds"] == ["group 'web' would have 2 of 3 hosts available, 3 are required"]


def test_what_can_wait_no_longer_takes_its_place_before_what_can() -> None:
    seen = fleet(event("E1", "vm1", seconds_left=800), event("E2", "vm2", seconds_left=900))
    settings = {name: {"min_available": 2, "drain_budget": 900 if name == "web2" else 60} for name in seen}
    made = plan(seen, groups={"web": sorted(seen)}, settings=settings, now=NOW)
    early, urgent = made["events"]
    assert (urgent["drain"], urgent["holds"]) == (["web2"], [])
    assert (early["drain"], early["wait_until"]) == ([], "2026-09-19T18:12:20Z")


@pytest.mark.parametrize(
    "absent",
    [
        {"reachable": False},
        {"drained": True},
        {"events": [event("E2", "vm3", event_status="Started"), event("E1", "vm1")]},
    ],
)
def test_hosts_that_do_no_work_are_not_available(absent: dict[str, t.Any]) -> None:
    seen = fleet(event("E1", "vm1"))
    assert capacity(seen, 2)["E1"]["drain"] == ["web1"]
    seen["web3"].update(absent)
    assert capacity(seen, 2)["E1"]["drain"] == []


def test_a_host_that_is_drained_already_costs_nothing_more() -> None:
    seen = fleet(event("E1", "vm1"))
    seen["web1"]["drained"] = True
    seen["web2"]["drained"] = True
    assert capacity(seen, 2)["E1"]["drain"] == ["web1"]


def test_a_host_in_two_events_is_counted_once() -> None:
    made = capacity(fleet(event("E1", "vm1"), event("E2", "vm1", event_type="Redeploy")), 2)
    assert made["E1"]["drain"] == made["E2"]["drain"] == ["web1"]


def test_an_event_is_put_off_as_a_whole() -> None:
    made = capacity(fleet(event("E1", "vm1", "vm2")), 2)
    assert made["E1"]["drain"] == []


def test_approving_without_draining_needs_capacity_too() -> None:
    made = capacity(fleet(event("E1", "vm1"), event("E2", "vm2")), 2, policy=[{"action": "approve"}])
    assert made["E1"]["holds"] == []
    assert made["E2"]["wait_until"] == "2026-09-19T18:10:00Z"


def test_an_event_that_nothing_is_done_about_takes_no_capacity() -> None:
    seen = fleet(event("E1", "vm1", seconds_left=600), event("E2", "vm2"))
    settings = for_all(seen, min_available=2)
    settings["web1"] = {"policy": [{"action": "notify"}]}
    made = plan(seen, groups={"web": sorted(seen)}, settings=settings, now=NOW)
    assert [entry["drain"] for entry in made["events"]] == [[], ["web2"]]


def test_hosts_outside_the_run_count_as_available() -> None:
    seen = fleet(event("E1", "vm1"))
    groups = {"web": ["web1", "web2", "web3", "web4", "web5"]}
    entry = only(seen, groups=groups, targeted=["web1"], settings=for_all(seen, min_available=4))
    assert entry["drain"] == ["web1"]


def test_without_groups_the_minimum_is_that_of_all_hosts() -> None:
    seen = fleet(event("E1", "vm1"))
    assert only(seen, settings=for_all(seen, min_available=3))["drain"] == []


# ---- words


def test_a_window_that_cannot_be_kept_is_mentioned() -> None:
    seen = fleet(event("E1", "vm1"))
    reason = only(seen, settings=for_all(seen, window={"start": "02:00", "end": "02:30"}))["reason"]
    assert reason.endswith(
        " It is handled outside graceful_window (02:00-02:30 UTC), which does not open before the drain has to begin."
    )


def test_the_summary_tells_the_plan_in_words() -> None:
    seen = fleet(event("E1", "vm1", "vm9"), event("E2", "vm2"))
    seen["web3"] = {"reachable": False}
    seen["web4"] = host("vm4", error="HTTP 500")
    policy = [{"group": ["batch", "all"], "action": "drain"}]
    settings = {**for_all(seen, min_available={"wbe": 1}), "web9": {"policy": policy}}
    made = plan(seen, settings=settings, now=NOW)
    assert made["summary"] == [
        "Events: 2. Affected hosts: 2 of 4. Times are in UTC.",
        "Hosts that could not be reached, so it is not known what Azure has announced to them: web3.",
        "web4 could not be asked: 'HTTP 500'",
        "graceful_min_available names the group 'wbe', which the inventory does not have: it protects nothing.",
        "graceful_policy names the group 'batch', which the inventory does not have: no host matches it.",
    ]


@pytest.mark.parametrize(
    ("left", "status", "words"),
    [
        (0, "Scheduled", "in 0 s"),
        (59, "Scheduled", "in 59 s"),
        (3661, "Scheduled", "in 1 h 1 min"),
        (4 * 86400 + 7200, "Scheduled", "in 4 d 2 h"),
        (None, "Scheduled", "at an unknown time"),
        (None, "Started", "has started"),
    ],
)
def test_the_time_in_words(left: int | None, status: str, words: str) -> None:
    announced = event("E1", "vm1", seconds_left=left, not_before=None, event_status=status)
    assert f"Reboot of web1 {words}:" in only(fleet(announced))["reason"]


def test_many_names_are_shortened() -> None:
    announced = event("E1", *(f"vm{number}" for number in range(1, 9)))
    assert "Reboot of web1, web2, web3, web4, web5 and 3 more in" in only(fleet(announced, size=8))["reason"]


def test_text_from_outside_is_escaped_and_shortened() -> None:
    nasty = "{{ lookup('pipe', 'id') }}\x1b]0;\n\u202e'"
    entry = only({"web1": host("vm1", event("E1", nasty, "x" * 500, event_type=nasty))})
    for words in (entry["reason"], *entry["holds"]):
        assert words.isprintable()
        assert not re.search(r"\{[{%#]", words)
        assert "x" * 81 not in words
    assert entry["unknown_names"][0] == nasty


def test_hosts_without_an_answer_do_no_harm() -> None:
    seen = {**fleet(event("E1", "vm1")), "web8": None, "web9": {}}
    assert only(seen, targeted=[*seen, "web10"])["holds"] == []
