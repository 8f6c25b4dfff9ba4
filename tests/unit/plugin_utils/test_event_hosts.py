# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts a run for one event asks: those behind its Resources, and never too few."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.module_utils._watcher.changes import Change, Source, message
from ansible_collections.graceful.azure.plugins.plugin_utils._event_hosts import Asked, asked_hosts, read_event
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings

Json = dict[str, t.Any]
EVENT: Json = {"event_id": "E1", "event_type": "Reboot", "resources": ["shop_0", "Shop_1"]}
MESSAGE = message(Change("appeared", {**EVENT, "not_before": None}), Source("web1", "shop_0"), 1, 0.0)
PLAY = [f"web{number}" for number in range(1, 6)]
NAMES = {f"web{number}": f"shop_{number - 1}" for number in range(1, 6)}


def asked(
    event: Json | None = None,
    names: t.Sequence[t.Mapping[str, str]] = (NAMES,),
    play: t.Sequence[str] = PLAY,
    groups: t.Mapping[str, t.Sequence[str]] | None = None,
    demands: t.Mapping[str, t.Any] | None = None,
) -> Asked:
    return asked_hosts(
        read_event(event or EVENT, "graceful_event"), play, names, groups or {"all": PLAY}, demands or {}
    )


# What it may be


@pytest.mark.parametrize(
    "given", [EVENT, MESSAGE, MESSAGE["data"], json.dumps(MESSAGE), json.dumps(EVENT), {**MESSAGE, "foreign": [1]}]
)
def test_the_message_its_data_or_the_event_in_it_also_as_text(given: t.Any) -> None:
    event = read_event(given, "graceful_event")
    assert (event["event_id"], event["event_type"], event["resources"]) == ("E1", "Reboot", ["shop_0", "Shop_1"])


def test_a_message_says_who_its_sender_is() -> None:
    assert read_event(MESSAGE, "graceful_event")["sender"] == {"web1": "shop_0"}
    assert read_event(EVENT, "graceful_event")["sender"] == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "must be the message of the watcher"),
        ([EVENT], "must be the message of the watcher"),
        ("{{ secret }}", "is a string, but not JSON"),
        ("[" * 100_000, "is a string, but not JSON"),
        ("x" * 1_000_001, "has 1000001 characters"),
        ({}, "has no event in it"),
        ({"data": None}, "has no event in it"),
        ({"data": {"event": "E1"}}, "has no event in it"),
        ({"event_id": "", "resources": []}, "has no event_id"),
        ({"event_id": 7, "resources": []}, "has no event_id"),
        ({"event_id": "E1"}, "has to be a list of Azure names"),
        ({"event_id": "E1", "resources": "shop_0"}, "has to be a list of Azure names"),
        ({"event_id": "E1", "resources": ["a", 3]}, "has to be a list of Azure names"),
        ({"event_id": "{{ 1 }}", "resources": None}, "has to be a list of Azure names"),
        ({"event_id": "E1", "resources": ["a"] * 2001}, "names 2001 VMs"),
    ],
)
def test_anything_else_has_a_message(given: t.Any, words: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        read_event(given, "graceful_event")
    assert str(caught.value).startswith("graceful_event")
    assert words in str(caught.value)
    assert "{{" not in str(caught.value)


def test_it_is_never_evaluated() -> None:
    evil = {**EVENT, "resources": ["{{ lookup('pipe', 'id') }}"]}

    def template(value: t.Any) -> t.Any:
        raise AssertionError(f"evaluated: {value}")

    read = read_settings({"graceful_event": evil}, template, ("run",))
    assert read.mistakes == {}
    assert "{{" not in read.values["event"]["resources"][0]


# Whom it means


def test_the_hosts_behind_the_names_whatever_their_case() -> None:
    assert asked().hosts == ["web1", "web2"]
    assert asked().message == "Reboot 'E1': of 5 hosts, only web1 and web2 are asked."


def test_a_name_that_several_hosts_may_have_means_all_of_them() -> None:
    """Of two sources of names, either may be out of date; the hosts say themselves who they are."""
    assert asked(names=[NAMES, {"web4": "shop_0"}]).hosts == ["web1", "web2", "web4"]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (["shop_0", "stranger"], "no host is known to have the Azure name 'stranger', so all hosts are asked"),
        ([], "names no VMs: all hosts are asked"),
        (["shop_9"], "web9 is not in this run, so all hosts are asked"),
    ],
)
def test_because_of_an_unknown_name_all_hosts_are_asked(resources: list[str], words: str) -> None:
    found = asked({**EVENT, "resources": resources}, names=[{**NAMES, "web9": "shop_9"}])
    assert found.hosts is None
    assert words in found.message


def test_a_host_outside_the_run_does_not_make_it_ask_everyone() -> None:
    assert asked(names=[{**NAMES, "web9": "shop_1"}], play=PLAY[:1]).hosts == ["web1"]


# Who is out of service, only the hosts know


@pytest.mark.parametrize(
    ("demands", "hosts"),
    [
        ({"web1": 2}, ["web1", "web2", "web3"]),
        ({"web5": {"front": "50%"}}, ["web1", "web2", "web3", "web5"]),
        ({"web5": {"back": 1}}, ["web1", "web2"]),
        ({"web5": 1}, ["web1", "web2"]),
        ({"web4": {"all": 1}}, PLAY),
        ({"web3": "{{ broken"}, PLAY),
        ({"web1": None}, ["web1", "web2"]),
    ],
)
def test_the_hosts_of_a_group_that_has_to_keep_some(demands: Json, hosts: list[str]) -> None:
    groups = {"all": PLAY, "front": PLAY[:3], "back": PLAY[3:]}
    assert asked(groups=groups, demands=demands).hosts == hosts


def test_a_minimum_of_a_host_without_a_group_is_about_all_hosts() -> None:
    assert asked(groups={"all": PLAY, "ungrouped": PLAY}, demands={"web5": 4}).hosts == PLAY
