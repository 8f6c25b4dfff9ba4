# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has which event in hand, what was done that must be undone, and that no run acts after it lost its claim."""

from __future__ import annotations

import os
import signal
import sys
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _record
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record import (
    CLOCK_SLACK,
    Keeper,
    LostClaim,
    Run,
    find_step,
    to_system_log,
    unfinished,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.records import (
    EVENT,
    EVENT_ID,
    FORK,
    Host,
    any_host,
    step,
)

host = any_host
OTHER = {"event_id": "B", "event_type": "Freeze"}
# What a run does to a record; each of them is fenced.
CHANGES: dict[str, t.Callable[[Keeper], object]] = {
    "note_step": lambda keeper: keeper.note_step([EVENT_ID], step()),
    "mark": lambda keeper: keeper.mark([EVENT_ID], "draining"),
    "note_event": lambda keeper: keeper.note_event(EVENT_ID, ready=1.0),
    "close": lambda keeper: keeper.close([EVENT_ID], [EVENT_ID], "restored"),
}


def marks(host: Host) -> list[str]:
    return [mark["what"] for mark in host.stored["timeline"]]


# Claiming


def test_a_claim_stores_the_whole_event_and_who_has_it_in_hand_for_how_long(host: Host) -> None:
    assert host.claim() == ({}, [])
    now = host.run().now
    entry = host.stored["events"][EVENT_ID]
    assert entry["event"] == EVENT
    assert entry["claim"] == {
        "run_id": "id-of-A",
        "run_name": "run A",
        "since": now,
        "renewed": now,
        "silent_until": now + 300,
    }
    assert (entry["ready"], entry["approval"], host.stored["boot_id"]) == (None, None, "boot-1")
    assert marks(host) == ["claimed"]


def test_another_run_is_told_who_has_the_event_and_changes_nothing(host: Host) -> None:
    host.claim()
    since, before = host.run().now, host.everything()
    host.clock.now += 300
    held, _warnings = host.claim("B")
    assert held == {EVENT_ID: {"run_name": "run A", "since": since, "silent_until": since + 300}}
    assert host.everything() == before


def test_of_two_events_the_one_that_is_free_is_claimed(host: Host) -> None:
    host.claim()
    held, _warnings = host.claim("B", EVENT, OTHER)
    assert list(held) == [EVENT_ID]
    assert {key: entry["claim"]["run_name"] for key, entry in host.stored["events"].items()} == {
        EVENT_ID: "run A",
        "b": "run B",
    }


@pytest.mark.parametrize(("later", "force"), [(301, False), (1, True)], ids=["stale", "forced"])
def test_a_claim_that_is_taken_over_keeps_steps_and_timeline_and_has_to_be_verified_anew(
    host: Host, later: float, force: bool
) -> None:
    host.claim()
    host.run().note_step([EVENT_ID], step())
    host.run().note_event(EVENT_ID, ready=host.run().now, gave_up="it hangs")
    host.clock.now += later
    assert host.claim("B", force=force)[0] == {}
    entry = host.stored["events"][EVENT_ID]
    assert (entry["claim"]["run_id"], entry["claim"]["since"]) == ("id-of-B", host.run().now)
    assert (entry["ready"], entry["gave_up"]) == (None, None)
    assert [one["name"] for one in host.stored["steps"]] == ["stop nginx"]
    assert marks(host) == ["claimed", "claimed"]
    assert "taken over from run A" in host.stored["timeline"][-1]["detail"]


def test_the_same_run_renews_its_claim_and_keeps_what_it_verified(host: Host) -> None:
    host.claim()
    begin = host.run().now
    host.run().note_event(EVENT_ID, ready=begin)
    host.clock.now += 1000
    host.claim("A", {**EVENT, "seconds_left": 3, "resources": None})
    entry = host.stored["events"][EVENT_ID]
    assert (entry["claim"]["since"], entry["claim"]["silent_until"]) == (begin, begin + 1300)
    assert (entry["ready"], entry["event"]) == (begin, {**EVENT, "seconds_left": 3})
    assert marks(host) == ["claimed"]


def test_an_id_is_the_same_event_however_it_is_spelled(host: Host) -> None:
    host.claim()
    assert list(host.claim("B", {**EVENT, "event_id": f" {EVENT_ID.upper()} "})[0]) == [EVENT_ID]


def test_of_many_runs_that_claim_at_once_exactly_one_wins_each_event(tmp_path: Path) -> None:
    runs, events = 6, 5
    start, results = FORK.Barrier(runs), FORK.Queue()
    directory = tmp_path / "records"

    def claim_all(run: int) -> None:
        start.wait(60)
        keeper = Keeper(str(directory), Run(f"run-{run}", "a run"), log=lambda _line: None)
        each = [{"event_id": f"event-{number}", "event_type": "Reboot"} for number in range(events)]
        results.put([event["event_id"] for event in each if not keeper.claim([event], "boot-1")[0]])

    # The directory does not exist yet: making it is part of the race.
    children = [FORK.Process(target=claim_all, args=(run,)) for run in range(runs)]
    for child in children:
        child.start()
    won = [event_id for _child in children for event_id in results.get(timeout=60)]
    for child in children:
        child.join(60)
    assert sorted(won) == [f"event-{number}" for number in range(events)]


# The clock


def test_a_clock_that_was_set_back_does_not_keep_a_claim_alive_for_ever(host: Host) -> None:
    host.claim()
    host.clock.now -= 86400
    held, _warnings = host.claim("B")
    assert held[EVENT_ID]["silent_until"] == host.run().now + 300
    host.clock.now += 301
    assert host.claim("B")[0] == {}


def test_a_clock_that_was_set_back_a_little_is_no_reason_to_write(host: Host) -> None:
    host.claim()
    before = host.everything()
    host.clock.now -= CLOCK_SLACK
    host.claim("B")
    assert host.everything() == before


def test_a_clock_that_was_set_back_does_not_hurt_a_run_that_is_alive(host: Host) -> None:
    host.claim()
    host.clock.now -= 86400
    host.run().note_step([EVENT_ID], step())
    assert host.stored["events"][EVENT_ID]["claim"]["silent_until"] == host.run().now + 300
    assert list(host.claim("B")[0]) == [EVENT_ID]


# Noting


def test_a_step_is_merged_into_the_one_of_its_phase_and_name(host: Host) -> None:
    host.claim()
    keeper = host.run()
    keeper.note_step([EVENT_ID], step(status="doing", before={"running": ["nginx"]}, options={"services": ["nginx"]}))
    keeper.note_step([EVENT_ID], {**step("stop nginx"), "phase": "checkpoint"})
    host.clock.now += 5
    keeper.note_step([EVENT_ID], step(message="stopped"), "draining", "stopped")
    first, second = host.stored["steps"]
    assert (first["status"], first["message"], first["at"]) == ("done", "stopped", keeper.now)
    assert (first["before"], first["options"], first["attempts"]) == (
        {"running": ["nginx"]},
        {"services": ["nginx"]},
        0,
    )
    assert (second["phase"], second["data"], second["timeout"]) == ("checkpoint", {}, None)
    assert host.stored["timeline"][-1]["detail"] == "stopped"
    assert find_step(host.stored, "drain", "stop nginx") == first
    assert find_step(host.stored, "drain", "no such step") is None


@pytest.mark.parametrize("status", ["doing", "done", "failed"])
def test_what_is_not_undone_is_unfinished(host: Host, status: str) -> None:
    host.claim()
    host.run().note_step([EVENT_ID], step("other", "undone"))
    host.run().note_step([EVENT_ID], step(status=status))
    assert [one["name"] for one in unfinished(host.stored)] == ["stop nginx"]


def test_a_stale_claim_that_nobody_took_is_still_its_runs_own(host: Host) -> None:
    host.claim()
    host.clock.now += 100_000
    host.run().note_step([EVENT_ID], step())
    assert host.stored["events"][EVENT_ID]["claim"]["silent_until"] == host.run().now + 300


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_whose_claim_was_taken_over_changes_nothing(host: Host, change: str) -> None:
    host.claim()
    host.claim("B", force=True)
    before = host.everything()
    with pytest.raises(LostClaim, match=r"run B .* holds it") as lost:
        CHANGES[change](host.run("A"))
    assert {event_id: held["run_name"] for event_id, held in lost.value.held.items()} == {EVENT_ID: "run B"}
    assert lost.value.fields == {"state": "held_by_other_run"}
    assert host.everything() == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_without_a_record_changes_nothing(host: Host, change: str) -> None:
    with pytest.raises(LostClaim, match="the record was closed"):
        CHANGES[change](host.run())
    assert not host.file.exists()


def test_a_run_that_has_lost_one_of_its_events_changes_nothing_in_the_name_of_both(host: Host) -> None:
    host.claim("A", EVENT, OTHER)
    host.claim("B", OTHER, force=True)
    before = host.everything()
    changes: list[t.Callable[[Keeper], object]] = [
        lambda keeper: keeper.note_step([EVENT_ID, "b"], step()),
        lambda keeper: keeper.renew([EVENT_ID, "b"]),
        lambda keeper: keeper.close([EVENT_ID, "b"], [EVENT_ID], "restored"),
    ]
    for change in changes:
        with pytest.raises(LostClaim, match=r"run B .* holds it") as lost:
            change(host.run("A"))
        assert list(lost.value.held) == ["b"]
    assert host.everything() == before
    host.run("A").note_step([EVENT_ID], step())


def test_what_a_run_does_not_hold_it_cannot_close_for_others(host: Host) -> None:
    host.claim()
    host.claim("B", OTHER)
    with pytest.raises(LostClaim):
        host.run("B").note_step([EVENT_ID], step())
    host.run("B").note_step(["b"], step())
    assert host.stored["steps"]


def test_a_step_taken_after_the_claim_was_lost_is_kept_for_the_next_run(host: Host) -> None:
    key = {"phase": "drain", "name": "lb", "kind": "haproxy"}
    host.run("A").note_orphan(EVENT, key, "boot-1")
    assert (host.stored["steps"][0]["name"], host.stored["steps"][0]["status"]) == ("lb", "failed")
    # In nobody's hands: whoever comes next may take it at once.
    host.clock.now += 1
    assert host.claim("B")[0] == {}


# Closing and releasing


def test_a_closed_event_is_in_the_history_and_a_record_without_events_is_gone(host: Host) -> None:
    host.claim()
    host.run().note_step([EVENT_ID], step(status="undone"))
    closed = host.run().close([EVENT_ID], [EVENT_ID], "restored")
    assert list(closed["events"]) == [EVENT_ID]
    assert closed["timeline"][-1]["what"] == "restored"
    assert not host.file.exists()
    (archived,) = host.history
    assert archived.name.startswith(EVENT_ID)


def test_closing_one_of_two_events_keeps_the_steps_for_the_other(host: Host) -> None:
    host.claim("A", EVENT, OTHER)
    host.run().note_step([EVENT_ID], step())
    host.run().close([EVENT_ID, "b"], [EVENT_ID], "gone")
    assert (list(host.stored["events"]), len(host.stored["steps"])) == (["b"], 1)


def test_an_event_that_has_lapsed_is_remembered_in_nobodys_hands(host: Host) -> None:
    host.claim("A", EVENT, OTHER)
    host.run().note_step([EVENT_ID], step(status="undone"))
    noticed = host.stored["events"][EVENT_ID]["noticed"]
    closed = host.run().close([EVENT_ID, "b"], [EVENT_ID, "b"], "restored", [EVENT_ID])
    assert set(closed["events"]) == {EVENT_ID, "b"}
    entry = host.stored["events"][EVENT_ID]
    assert (list(host.stored["events"]), host.stored["steps"]) == ([EVENT_ID], [])
    assert (entry["lapsed"], entry["noticed"]) == (host.run().now, noticed)
    host.clock.now += 1
    # Another run may take it at once, and does not forget since when it is there.
    host.claim("B")
    entry = host.stored["events"][EVENT_ID]
    assert (entry["claim"]["run_id"], entry["noticed"]) == ("id-of-B", noticed)


def test_what_is_not_undone_outlives_its_event(host: Host) -> None:
    host.claim()
    host.run().note_step([EVENT_ID], step(status="failed"))
    host.run().note_step([EVENT_ID], step("jobs", "undone"))
    host.run().close([EVENT_ID], [EVENT_ID], "restored")
    assert [one["name"] for one in host.stored["steps"]] == ["stop nginx"]


def test_a_released_claim_is_free_at_once_and_what_is_drained_is_kept(host: Host) -> None:
    host.claim()
    host.run().note_step([EVENT_ID], step())
    assert host.run().release([EVENT_ID]) == [EVENT_ID]
    host.clock.now += 1
    assert host.claim("B")[0] == {}
    assert unfinished(host.stored)


def test_a_release_of_what_was_never_drained_leaves_nothing(host: Host) -> None:
    host.claim()
    host.run().release([EVENT_ID])
    assert not host.file.exists()


def test_a_release_of_what_another_run_has_or_nobody_has_changes_nothing(host: Host) -> None:
    assert host.run().release([EVENT_ID]) == []
    host.claim()
    before = host.stored
    assert host.run("B").release([EVENT_ID]) == []
    assert host.stored == before


def test_what_fails_for_days_does_not_push_out_what_happened(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_record, "MOST_MARKS", 10)
    host.claim()
    for number in range(30):
        host.run().mark([EVENT_ID], "failed", str(number))
    host.run().mark([EVENT_ID], "ready")
    assert marks(host) == ["claimed", *["failed"] * 8, "ready"]
    assert host.stored["timeline"][-2]["detail"] == "29"
    for _each in range(30):
        host.run().mark([EVENT_ID], "draining")
    assert len(marks(host)) == 10


# Damage, hostile text, the log


def test_a_damaged_record_is_set_aside_only_by_force(host: Host) -> None:
    host.directory.mkdir(0o700)
    host.file.write_text("{")
    with pytest.raises(EventsError, match="graceful_force_claim=true"):
        host.claim()
    held, warnings = host.claim(force=True)
    assert held == {}
    assert [path.read_text() for path in host.history] == ["{"]
    assert str(host.history[0]) in warnings[0]
    assert host.stored["events"][EVENT_ID]["claim"]["run_id"] == "id-of-A"


@pytest.mark.parametrize("event_id", ["../../etc/passwd", "..", ".lock", "a/b", "a\0b", "é", "\ud800", "x" * 200])
def test_no_id_leaves_the_directory(host: Host, event_id: str) -> None:
    event = {"event_id": event_id, "event_type": "Reboot"}
    host.claim("A", event)
    key = event_id.strip().lower()
    host.run().close([key], [key], "restored")
    assert [path.name for path in host.directory.parent.iterdir()] == ["records"]
    assert len(host.history) == 1


def test_hostile_text_cannot_forge_lines_in_messages_or_the_log(host: Host) -> None:
    nasty = "x\nNov 1 root: all is well\x1b[2J\0\u202e{{ 1 + 1 }}"
    Keeper(str(host.directory), Run("id", nasty), host.clock, host.log.append).claim([EVENT], nasty)
    with pytest.raises(LostClaim) as lost:
        host.run("B").mark([EVENT_ID], "draining", nasty)
    for text in (*host.log, lost.value.message):
        assert text.isprintable()
        assert "{{" not in text


def test_the_system_log_takes_any_line_or_is_not_there() -> None:
    to_system_log("event ?: %s %n, written by a test")


def test_a_directory_that_cannot_be_used_is_explained(host: Host) -> None:
    host.directory.write_text("precious")
    with pytest.raises(EventsError, match="is not a directory"):
        host.claim()
    assert host.directory.read_text() == "precious"


# A kill at any point

CHANGING = ("open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock")


def dies_before_call(number: int, work: t.Callable[[], object]) -> bool:
    """Run in a child that kills itself before its number-th call to the system; False if it got to the end."""

    def body() -> None:
        calls = 0

        def count(name: str, _arguments: object) -> None:
            nonlocal calls
            if name in CHANGING:
                calls += 1
                if calls > number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()
        os._exit(0)

    child = FORK.Process(target=body)
    child.start()
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


KILLED: dict[str, t.Callable[[Host], object]] = {
    "claim": lambda host: host.claim("A", OTHER),
    "take-over": lambda host: host.claim("B", force=True),
    "note": lambda host: host.run().note_step([EVENT_ID], step("more")),
    "close": lambda host: host.run().close([EVENT_ID], [EVENT_ID], "restored"),
}


@pytest.mark.parametrize("change", KILLED)
def test_whichever_call_a_kill_comes_before_the_record_is_whole_and_the_next_run_finishes(
    tmp_path: Path, change: str
) -> None:
    for number in range(100):
        host = Host(tmp_path / str(number))
        host.claim()
        host.run().note_step([EVENT_ID], step())
        died = dies_before_call(number, lambda host=host: KILLED[change](host))  # type: ignore[misc]
        record = host.run().read()
        # A step that was done is known at every moment.
        assert record is not None
        assert find_step(record, "drain", "stop nginx") is not None
        if change != "close" or EVENT_ID in record["events"]:
            KILLED[change](host)
        assert not (host.directory / ".draft").exists()
        if not died:
            assert number > 2
            return
    pytest.fail("it never got to the end")


def test_a_writer_killed_again_and_again_leaves_a_whole_record_with_all_it_was_told(tmp_path: Path) -> None:
    directory = tmp_path / "records"

    def keeper() -> Keeper:
        return Keeper(str(directory), Run("a", "a"), log=lambda _line: None)

    def note_until_killed() -> None:
        while True:
            begun.value += 1
            keeper().mark([EVENT_ID], f"mark-{begun.value}", "x" * 500)

    keeper().claim([EVENT], "boot-1")
    begun = FORK.RawValue("i", 0)  # one with a lock would stay locked by the killed
    for kill in range(8):
        child = FORK.Process(target=note_until_killed)
        before = begun.value
        child.start()
        while begun.value < before + 3 and child.is_alive():
            time.sleep(0.001)
        time.sleep(kill * 0.0007)
        assert child.is_alive()
        child.kill()
        child.join(60)
        record = keeper().read()
        assert record is not None
        found = {mark["what"] for mark in record["timeline"][1:]}
        # The last one of each child may or may not have been written, no other may be missing.
        missing = {f"mark-{number}" for number in range(1, begun.value + 1)} - found
        assert len(missing) <= kill + 1
        assert f"mark-{begun.value - 1}" in found
