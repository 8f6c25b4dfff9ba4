# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks as users write them, on hosts with Windows: the names are those for Linux, and ansible-core takes the twins."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, Emulator, Json, Step
from ansible_collections.graceful.azure.tests.integration.test_reads import HOSTILE_NAMES, HOSTILE_TEXT
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import CONSTRAINED, TOO_OLD, Session, play

HOSTILE = Case("hostile", events=[{"Description": HOSTILE_TEXT, "Resources": HOSTILE_NAMES, "foreign": True}])
DEFAULTS = {"group/graceful.azure.imds": {"vm_name": "from-the-group"}}
READY = Case("ready", events=[{}])
WAITS = Case(
    "waits",
    events=[{}],
    script=[
        Step("fate", {"kind": "kill", "times": 1}, polls=2),
        Step("fate", {"kind": "drop", "times": 2}, polls=2),
        Step("cancel", polls=2),
    ],
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Emulator]:
    running = Emulator(tmp_path_factory.mktemp("tasks") / "emulator", [HOSTILE, READY, WAITS])
    yield running
    running.stop()


def task(emulator: Emulator, case: Case, name: str, **options: t.Any) -> Json:
    return {f"graceful.azure.{name}": {"endpoint": emulator.endpoints[case.name], **options}}


def test_text_from_outside_arrives_as_it_is_and_is_never_evaluated(
    emulator: Emulator, session: Session, tmp_path: Path
) -> None:
    # What a host in Western Europe has: not all of the text can be written in it.
    assert session.script("[cultureinfo]::CurrentCulture.TextInfo.ANSICodePage") == 1252
    read = {**task(emulator, HOSTILE, "scheduled_events_info"), "module_defaults": DEFAULTS, "register": "read"}
    shown = {"ansible.builtin.debug": {"msg": "{{ read.events[0].description }}"}}
    info, debug = play(tmp_path, [read, shown])
    assert info["status"] == "ok", info
    (event,) = info["result"]["events"]
    assert (event["description"], event["resources"]) == (HOSTILE_TEXT, HOSTILE_NAMES)
    assert info["result"]["vm_name"] == "from-the-group"
    assert debug["result"]["msg"] == HOSTILE_TEXT


def test_an_event_is_approved_once_after_a_look_in_check_mode(emulator: Emulator, tmp_path: Path) -> None:
    approve = task(emulator, READY, "scheduled_event_approve", event_ids=["ready-1"], leader_only=True)
    checked, approved, again = play(tmp_path, [{**approve, "check_mode": True, "diff": True}, approve, approve])
    change = {"before": {"READY-1": "Scheduled"}, "after": {"READY-1": "Started"}}
    assert (checked["result"]["changed"], checked["result"]["diff"]) == (True, change)
    assert (approved["result"]["changed"], approved["result"]["approved"]) == (True, ["READY-1"])
    assert (again["result"]["changed"], again["result"]["already_started"]) == (False, ["READY-1"])
    posts = [line for line in emulator.journal_file.read_text().splitlines() if '"POST"' in line and '"ready"' in line]
    assert len(posts) == 1


def test_a_wait_lives_through_a_killed_module_and_a_lost_connection(emulator: Emulator, tmp_path: Path) -> None:
    wait = task(emulator, WAITS, "scheduled_events_wait", until="gone", timeout=240, event_ids=["waits-1"])
    hosts = {"windows1": {"fate": str(emulator.directory / "waits.fate")}}
    (found,) = play(tmp_path, [wait], hosts)
    assert found["status"] == "ok", found
    # The host was lost while its event was there: that it is gone counts as completed.
    assert found["result"]["outcome"] == "completed"
    assert found["result"]["interruptions"]
    assert all(gap["back"] for gap in found["result"]["interruptions"])
    assert found["result"]["times"][0]["gone_at"]
    assert not emulator.errors


def test_where_no_module_can_run_a_task_says_what_to_do(emulator: Emulator, tmp_path: Path) -> None:
    tasks = [
        task(emulator, READY, "scheduled_events_info"),
        task(emulator, READY, "scheduled_event_approve", event_ids=["ready-1"]),
        task(emulator, READY, "scheduled_events_wait", until="gone", timeout=240),
    ]
    hosts: dict[str, Json] = {"constrained": {"prelude": CONSTRAINED}, "old": {"prelude": TOO_OLD}}
    with windows.locked_down(tmp_path / "locked down") as prefix:
        hosts["locked down"] = {"prefix": prefix}
        found = play(tmp_path, [{**one, "ignore_errors": True} for one in tasks], hosts)
    assert len(found) == len(tasks) * len(hosts)
    for one in found:
        assert one["status"] == "failed", one
        expected = "Windows Management Framework 5.1" if one["host"] == "old" else "FullLanguage"
        assert expected in one["result"]["msg"]
        assert "Nothing was done on the host." in one["result"]["msg"]


def test_become_for_linux_hosts_does_not_break_windows_hosts(emulator: Emulator, tmp_path: Path) -> None:
    tasks = [
        task(emulator, HOSTILE, "scheduled_events_info"),
        task(emulator, HOSTILE, "scheduled_event_approve", event_ids=["hostile-1"]),
        task(emulator, HOSTILE, "scheduled_events_wait", until="appeared"),
        task(emulator, HOSTILE, "host_maintenance"),
    ]
    tasks[1]["check_mode"] = True
    found = play(tmp_path, [{**one, "become": True} for one in tasks], settings={"GRACEFUL_TEST_WITHOUT_ACL": "1"})
    assert [one["status"] for one in found] == ["ok"] * len(tasks), found
