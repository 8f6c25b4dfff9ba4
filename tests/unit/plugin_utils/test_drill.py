# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._drill import (
    NOTICES,
    TIME_TO_NOTICE,
    UNKNOWN,
    begun,
    drill_margin,
    margin,
    objections,
    planned,
    under_way,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import SETTINGS

Json = dict[str, t.Any]
HOSTS = ["web1", "web2", "web3"]
ANNOUNCED = "2026-09-19T18:00:00Z"
NOTICED = "2026-09-19T18:00:04Z"


def plan(hosts: t.Sequence[str] = ("web1", "web2", "web3"), windows: t.Collection[str] = (), **given: t.Any) -> Json:
    values = {key: setting.default for key, setting in SETTINGS.items() if setting.where == "drill"}
    values.update(drill_consent="yes", drill_address="10.0.0.4")
    return planned({**values, **{f"drill_{key}": value for key, value in given.items()}}, hosts, "1234", windows)


# Before it


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"consent": ""}, "run it again with -e graceful_drill_consent=yes"),
        ({"consent": "no"}, "run it again with -e graceful_drill_consent=yes"),
        (
            {"address": " "},
            "graceful_drill_address is not set. It has to be an address of web1, where the emulator runs",
        ),
        ({"address": "0.0.0.0"}, "graceful_drill_address is 0.0.0.0. It has to be one address"),
        ({"address": "::"}, "It has to be one address"),
        (
            {"targets": "web1,web9,web8"},
            "graceful_drill_targets names web9 and web8, which are not part of this drill.",
        ),
        ({"targets": ["web9"]}, "Its hosts are web1, web2 and web3."),
        ({"targets": [1]}, "has to be host names"),
        ({"targets": {"web1": 1}}, "has to be host names"),
    ],
)
def test_the_one_rule_that_is_broken_is_named(given: Json, said: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        plan(**given)
    assert said in str(caught.value)


def test_the_emulator_runs_on_the_first_host_that_is_no_windows_host_and_all_take_part() -> None:
    drill = plan(windows=["web1", "web3"])
    assert drill["emulator_host"] == "web2"
    assert drill["targets"] == HOSTS
    with pytest.raises(WrongSetting, match="an address of web2, where the emulator runs"):
        plan(windows=["web1"], address="")


def test_without_a_linux_host_the_drill_says_what_it_needs() -> None:
    with pytest.raises(WrongSetting, match=r"All hosts of this drill are Windows hosts.* Add a Linux host"):
        plan(windows=HOSTS)


def test_a_windows_host_that_the_inventory_does_not_name_as_one_runs_no_emulator() -> None:
    seen = answers(web1={**answer(), "platform": "windows"})
    found = objections(plan(), seen, {"web": HOSTS})
    assert "web1: the emulator cannot run on a Windows host" in found[0]


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        (None, HOSTS),
        ("", HOSTS),
        ([], HOSTS),
        ("web2", ["web2"]),
        (" web3 ,web1,web3", ["web3", "web1"]),
        (["web1", "web2,web3"], HOSTS),
    ],
)
def test_targets_are_a_list_or_have_commas(targets: t.Any, found: list[str]) -> None:
    drill = plan(targets=targets)
    assert drill["targets"] == found
    (event,) = drill["announcements"]
    assert event["Resources"] == found


def test_consent_and_address_are_taken_as_the_command_line_gives_them() -> None:
    assert plan(consent="Yes", address=" drill.example ")["address"] == "drill.example"
    assert plan(consent="True")["emulator_host"] == "web1"


def test_what_is_announced_looks_like_azures_own_maintenance() -> None:
    (event,) = plan(event="Redeploy", duration=7.0)["announcements"]
    assert (event["EventType"], event["EventSource"], event["started_for"]) == ("Redeploy", "Platform", 7.0)
    assert "drill" in event["Description"]
    assert "notice" not in event
    assert plan(notice=20.0)["announcements"][0]["notice"] == 20.0


def test_each_deletion_is_an_event_of_its_own() -> None:
    assert [event["Resources"] for event in plan(event="Terminate")["announcements"]] == [[host] for host in HOSTS]


def test_names_that_the_emulator_cannot_take_are_changed() -> None:
    drill = plan(["fe80::1", "Web1", "web1", "a b"])
    assert drill["names"] == {"fe80::1": "fe80--1", "Web1": "Web1", "web1": "web1-3", "a b": "a-b"}
    assert set(drill["vms"]) == set(drill["names"].values())
    assert {vm["scope"] for vm in drill["vms"].values()} == {"drill-1234"}


# What speaks against it


def answer(raw: Json | None = None, report: Json | None = None, **seen: t.Any) -> Json:
    told = raw or {"report": report or {"state": "looked"}, "observation": {"events": [], "vm_name": "x", **seen}}
    return {**admitted(told), "mistakes": [], "min_available": None}


def answers(**others: Json) -> dict[str, Json]:
    return {host: others.get(host, answer()) for host in HOSTS}


REAL = {"event_id": "E1", "event_type": "Reboot", "event_status": "Scheduled", "resources": ["x"], "affects_me": True}
LEFT = {"events": {"e0": {"event": {"event_id": "E0", "event_type": "Freeze"}, "claim": {"run_name": "run of Monday"}}}}
LOST = answer({"unreachable": True, "msg": "no route"})
BROKEN = answer({"failed": True, "msg": "no requests"})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"web1": LOST}, "web1: it cannot be reached: no route"),
        ({"web2": LOST}, "web2: it cannot be reached: no route"),
        ({"web3": LOST}, ""),
        ({"web1": BROKEN}, ""),
        ({"web2": BROKEN}, "web2: it cannot be asked: no requests"),
        ({"web2": answer(report={"state": "failed", "message": "full"})}, "web2: full"),
        ({"web2": {**answer(), "mistakes": ["wrong"]}}, "web2: wrong"),
        ({"web3": {**answer(), "mistakes": ["wrong"]}}, ""),
        ({"web3": answer(record=LEFT)}, "web3: the run run of Monday has not put it back after Freeze E0"),
        ({"web3": answer(events=[REAL])}, "web3: Azure has announced a Reboot (E1) to it"),
        ({"web3": answer(events=[{**REAL, "affects_me": None}])}, "web3: Azure has announced"),
        ({"web3": answer(events=[{**REAL, "affects_me": False}])}, ""),
        # On machines that are not in Azure there is nobody to ask.
        ({"web2": answer(events=None, error="no service here")}, ""),
    ],
)
def test_what_speaks_against_a_drill_of_web2(seen: dict[str, Json], said: str) -> None:
    found = objections(plan(targets="web2"), answers(**seen), {"web": HOSTS})
    assert said in "".join(found)
    assert len(found) == bool(said)


@pytest.mark.parametrize(
    ("least", "targets", "lost", "advice"),
    [
        ({"web": 2}, "web1,web2", (), "These can be: -e graceful_drill_targets=web1"),
        ({"web": 1}, "web3,web2,web1", (), "These can be: -e graceful_drill_targets=web3,web2"),
        ("100%", "web2", (), "None of them can be now"),
        ({"web": 2}, "web1", (), ""),
        ({"web": 2}, "web1", ("web3",), "None of them can be now"),
        ({"db": 2}, "web1,web2,web3", (), ""),
    ],
)
def test_targets_that_do_not_fit_come_with_those_that_would(
    least: t.Any, targets: str, lost: t.Sequence[str], advice: str
) -> None:
    seen = answers(**dict.fromkeys(lost, LOST))
    for one in seen.values():
        one["min_available"] = least
    found = objections(plan(targets=targets), seen, {"web": HOSTS})
    assert advice in "".join(found)
    assert len(found) == bool(advice)


# Its beginning


READY = {
    "vms": {host: f"http://10.0.0.4:880{number}" for number, host in enumerate(HOSTS, 1)},
    "control": "http://[::1]:8800",
}


def test_a_drill_is_under_way_once_it_is_announced() -> None:
    drill, control = begun(plan(), READY, ANNOUNCED)
    assert control == "http://[::1]:8800"
    assert drill["endpoints"]["web2"] == "http://10.0.0.4:8802"
    assert under_way({"graceful_drill": {**drill, "changed": True}}) == drill
    assert under_way({"graceful_drill": plan()}) == {}


@pytest.mark.parametrize("given", [None, True, "yes", [], {"announced": ""}])
def test_nothing_else_is_a_drill(given: t.Any) -> None:
    assert under_way({"graceful_drill": given}) == {}
    assert under_way({}) == {}


def test_a_host_cannot_say_that_this_is_a_drill() -> None:
    told, _control = begun(plan(), READY, ANNOUNCED)
    with pytest.raises(WrongSetting, match="A host returns a fact with the name graceful_drill"):
        under_way({"graceful_drill": told, "ansible_facts": {"graceful_drill": told}})


@pytest.mark.parametrize(
    "ready",
    [
        None,
        {},
        {**READY, "vms": []},
        {**READY, "vms": {"web1": "http://10.0.0.4:8801"}},
        {**READY, "control": "http://127.0.0.1:8800/{{ x }}"},
        {**READY, "control": "https://example.org:1"},
        {**READY, "control": 1},
    ],
)
def test_an_emulator_that_does_not_say_where_it_listens_ends_the_drill(ready: t.Any) -> None:
    with pytest.raises(WrongSetting, match="The emulator on web1 does not return its addresses"):
        begun(plan(), ready, ANNOUNCED)


# After it


def report(approved: str | None, ready: dict[str, str | None], event_id: str = "A") -> Json:
    return {
        "drill": True,
        "announced": ANNOUNCED,
        "events": [{"event_id": "A", "noticed": NOTICED, "approved": approved, "hosts": list(ready)}],
        "hosts": {
            name: {"timeline": [{"at": at, "what": "ready", "event_id": event_id}] if at else []}
            for name, at in ready.items()
        },
    }


def line_of(lines: list[str], kind: str) -> str:
    return next(line for line in lines if line.startswith(kind))


@pytest.mark.parametrize(
    ("approved", "first", "preempt", "reboot"),
    [
        ("2026-09-19T18:00:12Z", "12 s after", "in time, 18 s to spare", "in time, 14 min 48 s to spare"),
        ("2026-09-19T18:02:00Z", "2 min after", "too late by 1 min 30 s", "in time, 13 min to spare"),
        ("2026-09-19T18:20:00Z", "20 min after", "too late by 19 min 30 s", "too late by 5 min"),
    ],
)
def test_the_time_taken_is_compared_with_every_notice(approved: str, first: str, preempt: str, reboot: str) -> None:
    lines = drill_margin({"announced": ANNOUNCED, "events": [{"noticed": NOTICED, "approved": approved}]})
    assert lines[0].startswith("Ready and approved")
    assert first in lines[0]
    assert preempt in line_of(lines, "Preempt")
    assert reboot in line_of(lines, "Reboot")
    assert len(lines) == len(NOTICES) + 2
    assert lines[-1] == TIME_TO_NOTICE


def test_the_time_until_it_was_noticed_is_part_of_the_margin() -> None:
    data = report("2026-09-19T18:00:12Z", {"web1": "2026-09-19T18:00:10Z"})
    assert "12 s after the announcement (it was noticed after 4 s)" in drill_margin(data)[0]
    found = margin(data)
    assert (found["noticed"], found["ready"], found["approved"]) == (4, 10, 12)
    assert found["notices"]["Reboot"] == {"notice": 900, "needed": 12, "spare": 888}
    assert found["notices"]["Preempt"] == {"notice": 30, "needed": 10, "spare": 20}


def test_where_the_announcement_is_not_known_it_counts_from_the_first_sight() -> None:
    assert margin({**report("2026-09-19T18:00:12Z", {}), "announced": None})["approved"] == 8


@pytest.mark.parametrize("event_id", ["a", "A", ""])
def test_where_nothing_is_approved_the_last_host_that_was_ready_counts(event_id: str) -> None:
    lines = drill_margin(report(None, {"spot1": "2026-09-19T18:00:07Z", "spot2": "2026-09-19T18:00:21Z"}, event_id))
    assert lines[0].startswith("Drained and saved 21 s after the announcement")
    assert lines[0].endswith("Nothing was approved.")
    assert "in time, 9 s to spare" in line_of(lines, "Preempt")
    assert lines[-1] == TIME_TO_NOTICE


def test_preempt_needs_no_approval_so_being_ready_counts_for_it() -> None:
    lines = drill_margin(report("2026-09-19T18:00:41Z", {"web1": "2026-09-19T18:00:21Z"}))
    assert "41 s after" in lines[0]
    assert "in time, 9 s to spare" in line_of(lines, "Preempt")
    assert "in time, 4 min 19 s to spare" in line_of(lines, "Terminate")


def test_one_event_that_was_not_approved_leaves_the_margin_unknown() -> None:
    data = report("2026-09-19T18:00:12Z", {"web1": "2026-09-19T18:00:10Z"})
    data["events"].append({"event_id": "B", "noticed": NOTICED, "approved": None, "hosts": ["web2"]})
    assert drill_margin(data) == [UNKNOWN]
    assert margin(data)["notices"] == {}


@pytest.mark.parametrize(
    "data",
    [
        {"events": []},
        {"events": [{"noticed": NOTICED, "approved": None}]},
        report(None, {"spot1": "2026-09-19T18:00:07Z", "spot2": None}),
        report(None, {"spot1": "2026-09-19T18:00:07Z"}, event_id="another"),
    ],
)
def test_without_an_approval_or_all_hosts_ready_nothing_is_claimed(data: Json) -> None:
    assert drill_margin(data) == [UNKNOWN]
