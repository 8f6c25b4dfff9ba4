# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.module_utils._policy import Facts, decide, validate_policy

REBOOT = Facts("Reboot", "Platform", None, 900, ["all", "web"], "web_0")


def facts(**fields: t.Any) -> Facts:
    return REBOOT._replace(**fields)


@pytest.mark.parametrize(
    ("event_type", "duration", "action", "rule"),
    [
        ("Freeze", 0, "notify", "short freeze"),
        ("Freeze", 10, "notify", "short freeze"),
        ("Freeze", 11, "drain_and_approve", "freeze"),
        ("Freeze", None, "drain_and_approve", "freeze"),
        ("Reboot", None, "drain_and_approve", "reboot or move"),
        ("Redeploy", 5, "drain_and_approve", "reboot or move"),
        ("Terminate", None, "drain_and_approve", "deletion"),
        ("Preempt", None, "drain", "eviction"),
        ("SpotRebalanceRecommendation", None, "notify", "eviction is likely"),
        ("Unknown", None, "notify", "anything else"),
        ("Hibernate", 3, "notify", "anything else"),
    ],
)
def test_the_default_policy(event_type: str, duration: int | None, action: str, rule: str) -> None:
    decision = decide(validate_policy(None), facts(event_type=event_type, duration=duration))
    assert (decision.action, decision.rule) == (action, rule)


@pytest.mark.parametrize(
    ("more", "urgent"),
    [
        ({"notice": 86400}, True),
        ({"notice": 86399}, False),
        ({"notice": 604800, "event_source": "User"}, False),
        ({"notice": 604800, "event_type": "Reboot"}, False),
    ],
)
def test_hardware_that_is_expected_to_fail_is_left_early_whatever_the_window(more: t.Any, urgent: bool) -> None:
    decision = decide(validate_policy(None), facts(**{"event_type": "Redeploy", **more}))
    assert (decision.action, decision.urgent) == ("drain_and_approve", urgent)


@pytest.mark.parametrize("action", ["drain_and_approve", "approve", "notify", "ignore"])
def test_only_a_drain_that_nobody_approves_may_expire(action: str) -> None:
    with pytest.raises(WrongSetting, match="Rule 1 of the policy: expires_after goes with the action drain only"):
        validate_policy([{"action": action, "expires_after": 600}])
    assert validate_policy([{"action": "drain", "expires_after": 600}])[0].decision.expires_after == 600


@pytest.mark.parametrize(
    ("condition", "matching", "other"),
    [
        ({"event_type": "reboot"}, {}, {"event_type": "Redeploy"}),
        ({"event_type": ["Redeploy", "Reboot"]}, {}, {"event_type": "Freeze"}),
        ({"event_source": "user"}, {"event_source": "User"}, {"event_source": None}),
        ({"max_duration": 10}, {"duration": 10}, {"duration": 11}),
        ({"max_duration": 10}, {"duration": 0}, {"duration": None}),
        ({"min_duration": 10}, {"duration": 10}, {"duration": 9}),
        ({"min_duration": 0}, {"duration": 0}, {"duration": None}),
        ({"min_duration": 5, "max_duration": 6}, {"duration": 6}, {"duration": 7}),
        ({"notice": 60}, {"notice": 60}, {"notice": 61}),
        ({"notice": "60"}, {"notice": 60}, {"notice": 61}),
        ({"notice": {"min": 60}}, {"notice": 60}, {"notice": 59}),
        ({"notice": {"min": 60, "max": 90}}, {"notice": 90}, {"notice": 91}),
        ({"notice": {"max": 90}}, {"notice": 0}, {"notice": None}),
        ({"group": "web"}, {}, {"groups": ["all", "db"]}),
        ({"group": ["db", "web"]}, {}, {"groups": []}),
        ({"resource": "WEB_0"}, {}, {"resource": "web_00"}),
        ({"resource": "web_*"}, {}, {"resource": "db_0"}),
        ({"resource": ["db_?", "_web_[01]"]}, {}, {"resource": "web_2"}),
        ({"event_type": "Reboot", "group": "web"}, {}, {"groups": ["db"]}),
    ],
)
def test_a_rule_matches_only_if_all_its_conditions_do(
    condition: dict[str, t.Any], matching: dict[str, t.Any], other: dict[str, t.Any]
) -> None:
    policy = validate_policy([{**condition, "action": "approve"}, {"action": "ignore"}])
    assert decide(policy, facts(**matching)).action == "approve"
    assert decide(policy, facts(**{**matching, **other})).action == "ignore"


def test_the_first_rule_that_matches_wins() -> None:
    policy = validate_policy([{"group": "db", "action": "ignore"}, {"action": "drain"}, {"action": "approve"}])
    assert decide(policy, REBOOT).action == "drain"


def test_without_a_matching_rule_a_person_decides() -> None:
    assert decide(validate_policy([]), REBOOT).action == "notify"


def test_a_rule_without_a_name_goes_by_its_number() -> None:
    policy = validate_policy([{"group": "db", "action": "ignore"}, {"action": "drain"}])
    assert decide(policy, REBOOT).rule == "rule 2"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("drain", "Rule 2 of the policy must be a dictionary"),
        ({}, "Rule 2 of the policy has no action; allowed are ignore, notify, approve, drain, drain_and_approve"),
        ({"action": "reboot"}, "Rule 2 of the policy: action must be one of ignore, notify, approve, drain, drain_and"),
        ({"action": None}, "Rule 2 of the policy: action must be one of"),
        (
            {"action": "drain", "evnet_type": "Reboot"},
            "has the key 'evnet_type', which is not known; allowed are name,",
        ),
        ({"action": "drain", 5: "Reboot"}, "has the key '5', which is not known"),
        ({"action": "drain", "event_type": []}, "event_type must be a name or a list of names, not []"),
        ({"action": "drain", "event_type": ""}, "event_type must be a name or a list of names"),
        ({"action": "drain", "event_type": "Reboott"}, "event_type is 'Reboott'; did you mean Reboot?"),
        ({"action": "drain", "event_type": ["Freeze", "terminated"]}, "did you mean Terminate?"),
        ({"action": "drain", "group": ["web", 7]}, "group must be a name or a list of names"),
        ({"action": "drain", "resource": {"a": 1}}, "resource must be a name or a list of names"),
        ({"action": "drain", "max_duration": "long"}, "max_duration must be a whole number of seconds, not 'long'"),
        ({"action": "drain", "max_duration": -1}, "max_duration must be a whole number of seconds"),
        ({"action": "drain", "min_duration": True}, "min_duration must be a whole number of seconds"),
        ({"action": "drain", "min_duration": 9, "max_duration": 8}, "min_duration is larger than max_duration"),
        ({"action": "drain", "notice": "soon"}, "notice must be a whole number of seconds (at most), or a dictionary"),
        (
            {"action": "drain", "notice": {"least": 1}},
            "notice has the key 'least', which is not known; allowed are min,",
        ),
        ({"action": "drain", "notice": {"min": 2, "max": 1}}, "notice: min is larger than max"),
        ({"action": "drain", "notice": 10**12}, "notice must be a whole number of seconds"),
        ({"action": "drain", "unknown_names": "skip"}, "unknown_names must be one of hold, ignore, not 'skip'"),
        ({"action": "drain", "name": 3}, "name must be a string"),
        ({"action": "drain", "because": " "}, "because must be a string"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_number(rule: t.Any, says: str) -> None:
    with pytest.raises(WrongSetting) as refused:
        validate_policy([{"action": "notify"}, rule])
    assert says in str(refused.value)
    assert "Rule 2" in str(refused.value)


@pytest.mark.parametrize("name", ["reboot", "REDEPLOY", "Hibernate", "Restart", "Resize", "x"])
def test_an_event_type_that_nobody_knows_yet_can_have_a_rule(name: str) -> None:
    policy = validate_policy([{"action": "drain", "event_type": name}])
    assert decide(policy, REBOOT._replace(event_type=name)).action == "drain"


@pytest.mark.parametrize("policy", ["notify", {"action": "notify"}, 5, True])
def test_a_policy_that_is_no_list_is_refused(policy: t.Any) -> None:
    with pytest.raises(WrongSetting, match="The policy must be a list"):
        validate_policy(policy)
