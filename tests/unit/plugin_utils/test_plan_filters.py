# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.graceful.azure.plugins.filter.approvals import FilterModule as Approvals
from ansible_collections.graceful.azure.plugins.filter.plan import FilterModule as Plan
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import NOW, all_ready, event, fleet

make_plan = Plan().filters()["plan"]
judge = Approvals().filters()["approvals"]


def templated(text: str, **variables: t.Any) -> t.Any:
    try:
        from ansible.template import trust_as_template
    except ImportError:  # ansible-core before 2.19 trusts every text that is not marked
        return Templar(loader=DataLoader(), variables=variables).template(text)
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text))


def test_from_observations_to_an_approval() -> None:
    made = make_plan(fleet(event("E1", "vm1")), {"web": ["web1"]}, ["web1"], {"web1": {"min_available": 0}}, now=NOW)
    assert made["events"][0]["hosts"] == ["web1"]
    assert judge(made, all_ready(made), now=NOW)["approve"][0]["leader"] == "web1"


def test_the_current_time_is_the_default() -> None:
    made = make_plan(fleet(event("E1", "vm1", seconds_left=None, not_before="2020-01-01T00:00:00Z")))
    assert made["events"][0]["seconds_left"] == 0
    assert judge(made, all_ready(made))["approve"]


def test_a_wrong_setting_is_the_filters_error() -> None:
    with pytest.raises(AnsibleFilterError, match="Host web1: Rule 1 of the policy has no action"):
        make_plan(fleet(), settings={"web1": {"policy": [{}]}}, now=NOW)
    with pytest.raises(AnsibleFilterError, match="The reports must be a mapping"):
        judge(make_plan(fleet(), now=NOW), [], now=NOW)


def test_text_from_an_event_is_never_a_template() -> None:
    made = make_plan(fleet(event("E1", "vm1", "{{ 1 + 1 }}", description="{{ 1 + 1 }}")), now=NOW)
    entry = templated("{{ made.events[0].description }} {{ made.events[0].unknown_names[0] }}", made=made)
    assert entry == "{{ 1 + 1 }} {{ 1 + 1 }}"
