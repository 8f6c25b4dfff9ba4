# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import time
import typing as t
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, Json, run, serving, until

SCALE = 600
NEWEST = "2024-07-09"
RECOMMENDATION = "SpotRebalanceRecommendation"
BY_ITSELF = ["published", "started", "completed"]
# name: the events as published, minutes of notice, life
BUILT_IN: dict[str, tuple[list[tuple[str, str, int, list[str]]], float, list[str]]] = {
    "live_migration": ([("Freeze", "Platform", 5, ["a"])], 15, BY_ITSELF),
    "host_maintenance": ([("Freeze", "Platform", 9, ["a"])], 15, BY_ITSELF),
    "user_reboot": ([("Reboot", "User", -1, ["a"])], 15, BY_ITSELF),
    "redeploy": ([("Redeploy", "Platform", -1, ["a"])], 15, BY_ITSELF),
    "user_redeploy": ([("Redeploy", "User", -1, ["a"])], 15, BY_ITSELF),
    "spot_eviction": ([("Preempt", "Platform", -1, ["a"])], 0.5, BY_ITSELF),
    "scale_set_deletion": ([("Terminate", "User", -1, ["a"])], 5, BY_ITSELF),
    "cancelled_maintenance": ([("Freeze", "Platform", 9, ["a"])], 15, ["published", "cancelled"]),
    "scale_in": ([("Terminate", "User", -1, ["a"]), ("Terminate", "User", -1, ["c"])], 5, BY_ITSELF),
    "hardware_failure": ([("Redeploy", "Platform", -1, ["a"])], 0, BY_ITSELF),
    "hardware_failure_reboot": ([("Reboot", "Platform", -1, ["a"])], 0, BY_ITSELF),
    "predicted_failure": ([("Redeploy", "Platform", -1, ["a"])], 7 * 24 * 60, ["published"]),
    "several_vms": ([("Reboot", "Platform", -1, ["a", "b"])], 15, BY_ITSELF),
    "two_events": ([("Reboot", "User", -1, ["a"]), ("Freeze", "Platform", -1, ["c"])], 15, BY_ITSELF),
    # The last: its later steps publish more, which would count for those after it.
    "spot_rebalance": (
        [(RECOMMENDATION, "Platform", -1, ["a"]), (RECOMMENDATION, "Platform", -1, ["c"])],
        15,
        ["published", "cancelled"],
    ),
}


def built_in_names() -> list[str]:
    return [line.split()[0] for line in run("scenarios").stdout.splitlines()]


class Played(t.NamedTuple):
    emulator: Emulator
    events: dict[str, list[Json]]
    began: dict[str, float]
    ended: dict[str, float]


def play_all(emulator: Emulator) -> Played:
    """All built-in scenarios at once, and the journal's lines of the events that each published."""
    played = Played(emulator, {}, {}, {})
    seen = 0
    for name in BUILT_IN:
        played.began[name] = time.time()
        emulator.obeys("/play", {"scenario": name})
        played.ended[name] = time.time()
        lines = emulator.journal(since=seen)
        seen = lines[-1]["n"]
        played.events[name] = [line for line in lines if line.get("what") == "published"]
    return played


@pytest.fixture(scope="module")
def at_azures_pace() -> Iterator[Played]:
    with serving("--vm", "a", "--vm", "b", "--vm", "c") as emulator:
        yield play_all(emulator)


@pytest.fixture(scope="module")
def to_the_end() -> Iterator[Played]:
    with serving("--vm", "a", "--vm", "b", "--vm", "c", "--notice-scale", str(SCALE)) as emulator:
        played = play_all(emulator)
        until(lambda: len(emulator.events("a", NEWEST)) == 1)
        yield played


def test_every_built_in_scenario_is_listed_with_an_explanation() -> None:
    assert built_in_names() == list(BUILT_IN)
    assert all(len(line.split()) > 3 for line in run("scenarios").stdout.splitlines())


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_scenario_publishes_what_azure_would(at_azures_pace: Played, name: str) -> None:
    ids = [line["EventId"] for line in at_azures_pace.events[name]]
    events = [event for event in at_azures_pace.emulator.events("a", NEWEST) if event["EventId"] in ids]
    wanted, minutes, _life = BUILT_IN[name]
    fields = ("EventType", "EventSource", "DurationInSeconds", "Resources")
    assert [tuple(event[key] for key in fields) for event in events] == wanted
    for event in events:
        if minutes:
            not_before = parsedate_to_datetime(event["NotBefore"]).timestamp()
            earliest, latest = at_azures_pace.began[name], math.ceil(at_azures_pace.ended[name])
            assert earliest <= not_before - minutes * 60 <= latest
        else:
            assert event["NotBefore"] == ""


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_scenario_in_short_takes_the_same_course(to_the_end: Played, name: str) -> None:
    _wanted, minutes, life = BUILT_IN[name]
    journal = to_the_end.emulator.journal("event")
    for event in to_the_end.events[name]:
        lines = [line for line in journal if line["EventId"] == event["EventId"]]
        assert [line["what"] for line in lines] == life
        assert lines[0]["by"] == "scenario"
        if "started" in life:
            least = max(minutes * 60 / SCALE, 1) if minutes else 0
            assert lines[1]["time"] >= to_the_end.began[name] + least


def test_most_recommendations_come_to_nothing_and_one_is_followed_by_a_preempt(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--vm", "b", "--scenario", "spot_rebalance", "--notice-scale", "300")
    until(lambda: [line["EventType"] for line in emulator.journal("event") if line["what"] == "completed"])
    until(lambda: not emulator.events("a", NEWEST))
    lives: dict[str, list[str]] = {}
    for line in emulator.journal("event"):
        lives.setdefault(line["EventId"], [line["EventType"], *line["Resources"]]).append(line["what"])
    recommended = [life for life in lives.values() if life[0] == RECOMMENDATION]
    assert sorted(life[1] for life in recommended) == ["a", "a", "b", "b"]
    assert {tuple(life[2:]) for life in recommended} == {("published", "cancelled")}
    assert [life for life in lives.values() if life[0] != RECOMMENDATION] == [["Preempt", "a", *BY_ITSELF]]
    assert not emulator.journal("scenario"), "no step was skipped"


def test_instances_that_are_removed_together_wait_for_each_other(serve: Callable[..., Emulator]) -> None:
    emulator = serve("--vm", "a", "--vm", "b", "--scenario", "scale_in")
    first, second = (event["EventId"] for event in emulator.events("a"))
    assert emulator.approve(first, vm="a").status == 200
    assert [event["EventStatus"] for event in emulator.events("a")] == ["Scheduled"] * 2
    assert emulator.approve(second, vm="b").status == 200
    assert [event["EventStatus"] for event in emulator.events("a")] == ["Started"] * 2


@pytest.mark.parametrize("name", ["cancelled_maintenance", "two_events"])
def test_a_printed_scenario_can_be_played_from_a_file(tmp_path: Path, emulator: Emulator, name: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(run("scenario", name).stdout, encoding="utf-8")
    done = run("play", str(file), "--control", emulator.ready["control"])
    assert (done.returncode, done.stderr) == (0, "")
    assert len(emulator.events()) == len(BUILT_IN[name][0])


def test_a_scenario_of_ones_own(tmp_path: Path, serve: Callable[..., Emulator]) -> None:
    steps = [
        {"at": 0, "action": "publish", "label": "one", "event": {"EventType": "Reboot", "Resources": ["b"]}},
        {"at": 0, "action": "fault", "label": "trouble", "fault": {"kind": "503"}},
        {"at": 60, "action": "start", "label": "one"},
        {"at": 120, "action": "complete", "label": "one"},
        {"at": 120, "action": "cancel", "label": "one"},
        {"at": 180, "action": "clear", "label": "trouble"},
    ]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"description": "Mine.", "steps": steps}), encoding="utf-8")
    emulator = serve("--vm", "a", "--vm", "b", "--scenario", str(file), "--notice-scale", "600")
    until(lambda: [line["what"] for line in emulator.journal("fault")] == ["injected", "cleared"])
    assert emulator.events("a") == []
    events = [(line["what"], line["by"]) for line in emulator.journal("event")]
    assert events == [("published", "scenario"), ("started", "scenario"), ("completed", "scenario")]
    assert [line["what"] for line in emulator.journal("scenario")] == ["skipped"], "it had left already"


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("doomsday", "neither a file nor one of: live_migration"),
        ([], "must be a JSON object"),
        ({}, "needs steps"),
        ({"steps": []}, "needs steps"),
        ({"steps": [{"action": "explode"}]}, "step 1 has no action that is known"),
        ({"steps": [{"action": "publish"}]}, "step 1 needs 'event'"),
        ({"steps": [{"action": "fault", "fault": 3}]}, "step 1 needs 'fault'"),
        ({"steps": [{"action": "cancel"}]}, "no earlier step is labelled"),
        ({"steps": [{"action": "clear", "label": "x"}]}, "no earlier step is labelled 'x'"),
        ({"steps": [{"action": "publish", "at": "noon", "event": {}}]}, "at must be a number of seconds"),
        ({"steps": [{"action": "publish", "who": "a", "event": {}}]}, "no field 'who'"),
        ({"steps": [{"action": "publish", "event": {"EventType": "Reboot"}}]}, "Resources must be a list"),
        (
            {"steps": [{"at": 9, "action": "publish", "event": {"EventType": "Reboot", "Resources": ["z"]}}]},
            "VM 'z' is not in the fleet",
        ),
        ("several_vms", "needs two VMs in one scope"),
    ],
)
def test_a_scenario_that_cannot_be_played_is_refused_at_once(tmp_path: Path, scenario: t.Any, says: str) -> None:
    if not isinstance(scenario, str):
        file = tmp_path / "scenario.json"
        file.write_text(json.dumps(scenario), encoding="utf-8")
        scenario = str(file)
    done = run("serve", "--vm", "a", "--scenario", scenario)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr
