# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A wait lives through the reboot of its host, whether the connection fails or only the module is gone."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import (
    Case,
    Emulator,
    Json,
    Outcome,
    Play,
    Stage,
    Step,
    inventory_of,
)

STARTED: Json = {"EventStatus": "Started"}
FOREVER = 1_000_000
# Seconds; on a busy machine a slice of the wait may take a third of that to start.
LONG = 45
FRAIL: Json = {"ansible_connection": "frail"}
# What most users have; the temporary directory is then lost with the host, too.
WITHOUT_PIPELINING: Json = {**FRAIL, "ansible_pipelining": False}


def down(kind: str, times: int, polls: int = 4) -> Step:
    return Step("fate", {"kind": kind, "times": times}, polls)


def rebooting(name: str, outcome: str, *script: Step, **rest: t.Any) -> Case:
    options = {"until": "gone", **rest.pop("options", {})}
    rest.setdefault("variables", FRAIL)
    return Case(name, options, group="wait", script=script, result={"outcome": outcome, "changed": False}, **rest)


END = Step("complete", polls=0)
SURVIVED_CASES = [
    rebooting("started_and_dropped", "completed", down("drop", 2), END, events=[STARTED]),
    rebooting("started_and_killed", "completed", down("kill", 2), END, events=[STARTED]),
    # The start itself was not seen, but the host went down while its event stood.
    rebooting("unseen_start_dropped", "completed", down("drop", 2), END, events=[{}]),
    rebooting("unseen_start_killed", "completed", down("kill", 2), END, events=[{}]),
    rebooting(
        "unseen_start_without_pipelining",
        "completed",
        down("drop", 2),
        END,
        events=[{}],
        variables=WITHOUT_PIPELINING,
    ),
    # The event was another VM's: that this host was away says nothing about it.
    rebooting(
        "away_for_another",
        "cancelled",
        down("drop", 1),
        Step("cancel", polls=0),
        events=[{"Resources": ["another"]}],
        neighbours=["another"],
    ),
    rebooting("still_there_afterwards", "completed", down("kill", 1), Step("complete", polls=3), events=[{}]),
]
LOST_CASES = [
    rebooting(
        "lost",
        "unreachable",
        down("drop", FOREVER, polls=2),
        events=[STARTED],
        first=True,
        options={"timeout": LONG},
        words=[f"could not be reached until the timeout of {LONG} s", "Connection lost", "Look at the VM in Azure"],
    ),
    rebooting(
        "lost_ok",
        "unreachable",
        down("drop", FOREVER, polls=2),
        events=[STARTED],
        first=True,
        options={"timeout": LONG, "on_timeout": "ok"},
    ),
    rebooting(
        "killed_for_good",
        "unreachable",
        down("kill", FOREVER, polls=2),
        events=[STARTED],
        first=True,
        options={"timeout": LONG, "on_timeout": "ok"},
    ),
]
NO_PYTHON = Case(
    "no_python",
    group="wait",
    variables={**FRAIL, "ansible_python_interpreter": "/nonexistent/python"},
    words=["interpreter"],
)


@pytest.mark.quick
@pytest.mark.parametrize("case", SURVIVED_CASES, ids=str)
def test_the_wait_goes_on_after_the_host_was_away(stage: Stage, case: Case, outcome: Outcome) -> None:
    assert f"[{case.name}] not reachable, trying again" in stage.play_of(case).output
    (ended,) = [line for line in outcome.happenings if line["what"] in ("completed", "cancelled")]
    assert outcome.requests[-1]["time"] > ended["time"]


@pytest.mark.parametrize("case", LOST_CASES, ids=str)
def test_a_host_that_never_comes_back_is_told_with_what_was_last_seen(case: Case, outcome: Outcome) -> None:
    assert [(event["event_id"], event["event_status"]) for event in outcome.result["events"]] == [
        (case.event_id(), "Started")
    ]
    assert outcome.result["elapsed"] >= LONG


@pytest.mark.parametrize("case", [NO_PYTHON], ids=str)
def test_a_host_that_cannot_run_the_module_is_not_waited_for(case: Case, outcome: Outcome) -> None:
    assert outcome.status == "failed"
    assert outcome.requests == []


def test_progress_does_not_break_a_callback_that_prints_json(tmp_path: Path) -> None:
    fate = tmp_path / "fate"
    fate.write_text(json.dumps({"kind": "drop", "times": 1}))
    emulator = Emulator(tmp_path / "emulator", [Case("parsed")])
    variables = {"given": {"until": "gone"}, "service": emulator.endpoints["parsed"], "fate": str(fate), **FRAIL}
    inventory = inventory_of({"parsed": ("wait", variables)})
    play = Play("waits.yml", inventory, tmp_path / "play", more_settings={"ANSIBLE_STDOUT_CALLBACK": "as_json"})
    try:
        assert json.loads(play.stdout) == {"parsed": "none"}, play.output
        assert "[parsed] not reachable, trying again" in play.stderr
    finally:
        play.stop()
        emulator.stop()
