# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host's record of an event: who has it in hand, what survives a kill, and what is refused with which words."""

from __future__ import annotations

import copy
import fcntl
import json
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure
from ansible_collections.graceful.azure.plugins.module_utils._record import (
    LONGEST_SILENCE,
    SILENT_FOR,
    Outcome,
    Wish,
    keep_record,
    to_system_journal,
)
from ansible_collections.graceful.azure.plugins.module_utils._record_files import (
    KEPT_IN_HISTORY,
    LARGEST_RECORD,
    LOCK_WAIT,
    file_name,
    shown,
)

EVENT_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
FILE = "f020ba2e-3bc0-4c40-a10b-86575a9eabd5.json"
EVENT = {"event_id": EVENT_ID, "event_type": "Reboot", "resources": ["web_0"], "seconds_left": 872}
START = 1_789_842_587.0
FORK = multiprocessing.get_context("fork")


class SetClock(Clock):
    """Stands still until it is told to go on, or back."""

    def __init__(self) -> None:
        self.now = START
        self.slept = 0.0

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self.now, timezone.utc)

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


class Host:
    """The record of one host, as two runs would call it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = SetClock()
        self.journal: list[str] = []

    def do(self, state: str, run: str = "A", check_mode: bool = False, **options: t.Any) -> Outcome:
        if state != "listed":
            options = {"event_id": EVENT_ID, "run_id": f"id-of-{run}", "run_name": f"run {run}", **options}
        wish = Wish(state=state, **options)
        return keep_record(str(self.directory), wish, check_mode, self.clock, self.journal.append)

    def refused(self, state: str, run: str = "A", **options: t.Any) -> EventsError:
        with pytest.raises(EventsError) as caught:
            self.do(state, run, **options)
        return caught.value

    def listed(self) -> list[dict[str, t.Any]]:
        records: list[dict[str, t.Any]] = self.do("listed").result["records"]
        return records

    @property
    def file(self) -> Path:
        return self.directory / FILE

    @property
    def stored(self) -> dict[str, t.Any]:
        stored: dict[str, t.Any] = json.loads(self.file.read_text())
        return stored

    def everything(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.directory.rglob("*") if path.is_file()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "records")


def step(name: str = "stop nginx", status: str = "done", phase: str = "drain", **more: t.Any) -> dict[str, t.Any]:
    return {"phase": phase, "name": name, "status": status, **more}


def what_happened(record: dict[str, t.Any]) -> list[str]:
    return [mark["what"] for mark in record["timeline"]]


# Claiming


def test_a_claim_stores_the_event_and_who_has_it_in_hand_for_how_long(host: Host) -> None:
    result = host.do("claimed", event=EVENT, phase="drain", silent_for=300).result
    assert (result["claimed"], result["took_over"], result["holder"], result["changed"]) == (True, False, None, True)
    assert result["record"] == host.stored
    assert host.stored == {
        "version": 1,
        "event": EVENT,
        "claim": {
            "run_id": "id-of-A",
            "run_name": "run A",
            "phase": "drain",
            "since": START,
            "renewed": START,
            "silent_until": START + 300,
        },
        "steps": [],
        "timeline": [{"at": START, "what": "claimed", "detail": "run A"}],
        "created": START,
        "finished": None,
    }


def test_only_the_user_of_the_task_can_read_the_records(host: Host) -> None:
    host.do("claimed")
    host.do("released")
    host.do("claimed")
    paths = [host.directory, *host.directory.rglob("*")]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {
        "records": "0o700",
        "history": "0o700",
    }
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}


def test_another_run_is_told_who_has_the_event_and_changes_nothing(host: Host) -> None:
    host.do("claimed", phase="drain", silent_for=300)
    before = host.everything()
    host.clock.now += 300
    result = host.do("claimed", "B").result
    assert (result["claimed"], result["changed"], result["took_over"]) == (False, False, False)
    assert result["holder"] == {
        "run_name": "run A",
        "phase": "drain",
        "since": START,
        "silent_until": START + 300,
    }
    assert "run A" in result["msg"]
    assert host.everything() == before


@pytest.mark.parametrize(
    ("later", "options"), [pytest.param(301, {}, id="stale"), pytest.param(1, {"force": True}, id="forced")]
)
def test_a_claim_that_is_taken_over_keeps_steps_and_timeline(host: Host, later: float, options: t.Any) -> None:
    host.do("claimed", event=EVENT, silent_for=300)
    host.do("noted", step=step(), mark={"what": "drained"})
    host.clock.now += later
    result = host.do("claimed", "B", **options).result
    assert (result["claimed"], result["took_over"], result["changed"]) == (True, True, True)
    assert host.stored["claim"]["run_id"] == "id-of-B"
    assert host.stored["claim"]["since"] == host.clock.now
    assert host.stored["claim"]["silent_until"] == host.clock.now + SILENT_FOR
    assert [each["name"] for each in host.stored["steps"]] == ["stop nginx"]
    assert what_happened(host.stored) == ["claimed", "drained", "claimed"]
    assert "taken over from run A" in host.stored["timeline"][-1]["detail"]
    assert host.stored["event"] == EVENT


def test_the_same_run_renews_its_claim_and_that_is_no_change(host: Host) -> None:
    host.do("claimed", event=EVENT, phase="drain", silent_for=300)
    host.clock.now += 1000
    result = host.do("claimed", event={**EVENT, "seconds_left": 3}).result
    assert (result["claimed"], result["took_over"], result["changed"]) == (True, False, False)
    assert host.stored["claim"] == {
        "run_id": "id-of-A",
        "run_name": "run A",
        "phase": "drain",
        "since": START,
        "renewed": START + 1000,
        "silent_until": START + 1300,
    }
    assert what_happened(host.stored) == ["claimed"]


@pytest.mark.parametrize(("detail", "told"), [("", "run A"), ("for a reason", "for a reason")])
def test_a_mark_of_the_claim_is_not_doubled(host: Host, detail: str, told: str) -> None:
    host.do("claimed", mark={"what": "claimed", "detail": detail})
    assert host.stored["timeline"] == [{"at": START, "what": "claimed", "detail": told}]


def test_an_id_is_the_same_event_however_it_is_spelled(host: Host) -> None:
    host.do("claimed")
    assert host.do("claimed", "B", event_id=f" {EVENT_ID.lower()} ").result["claimed"] is False


def test_a_record_that_was_put_back_from_the_history_is_in_nobodys_hands(host: Host) -> None:
    host.do("claimed", event=EVENT)
    host.do("released")
    (archived,) = (host.directory / "history").iterdir()
    archived.rename(host.file)
    assert host.listed() == []
    result = host.do("claimed", "B").result
    assert (result["claimed"], result["took_over"]) == (True, False)
    assert [record["event"] for record in host.listed()] == [EVENT]


# The clock


def test_a_clock_that_was_set_back_does_not_keep_a_claim_alive_for_ever(host: Host) -> None:
    host.do("claimed", silent_for=300)
    host.clock.now -= 86400
    outcome = host.do("claimed", "B")
    assert (outcome.result["claimed"], outcome.result["changed"]) == (False, False)
    assert "clock was set back" in outcome.warnings[0]
    assert outcome.result["holder"]["silent_until"] == host.clock.now + 300
    host.clock.now += 301
    assert host.do("claimed", "B").result["took_over"] is True


def test_a_clock_that_was_set_back_does_not_hurt_a_run_that_is_alive(host: Host) -> None:
    host.do("claimed", silent_for=300)
    host.clock.now -= 86400
    host.do("noted", step=step())
    assert host.stored["claim"]["silent_until"] == host.clock.now + 300
    assert host.do("claimed", "B").result["claimed"] is False


def test_a_clock_that_was_set_back_a_little_is_no_reason_to_write(host: Host) -> None:
    host.do("claimed", silent_for=300)
    before = host.everything()
    host.clock.now -= 5
    assert host.do("claimed", "B").warnings == []
    assert host.everything() == before


# Noting


def test_a_step_is_merged_into_the_one_of_its_phase_and_name(host: Host) -> None:
    host.do("claimed", phase="drain")
    host.do("noted", step={"name": "stop nginx", "status": "doing", "kind": "service", "data": {"was": "running"}})
    host.do("noted", step=step("save", phase="checkpoint"))
    host.clock.now += 5
    result = host.do("noted", step={"name": "stop nginx", "status": "done", "message": "stopped", "kind": None}).result
    assert result["changed"] is True
    assert host.stored["steps"] == [
        {
            "phase": "drain",
            "name": "stop nginx",
            "kind": "service",
            "status": "done",
            "at": START + 5,
            "message": "stopped",
            "data": {"was": "running"},
        },
        {
            "phase": "checkpoint",
            "name": "save",
            "kind": "",
            "status": "done",
            "at": START,
            "message": "",
            "data": {},
        },
    ]


def test_the_same_step_again_is_no_change_and_keeps_its_time(host: Host) -> None:
    host.do("claimed")
    host.do("noted", step=step())
    host.clock.now += 5
    assert host.do("noted", step=step()).result["changed"] is False
    assert host.stored["steps"][0]["at"] == START
    assert host.stored["claim"]["renewed"] == START + 5


def test_a_note_renews_the_claim_with_its_phase_and_bound(host: Host) -> None:
    host.do("claimed", phase="drain", silent_for=300)
    host.do("noted", phase="wait", silent_for=7200)
    assert host.stored["claim"]["phase"] == "wait"
    assert host.stored["claim"]["silent_until"] == START + 7200


def test_marks_are_appended_in_order_and_one_of_a_given_time_only_once(host: Host) -> None:
    host.do("claimed", mark={"what": "noticed", "at": START - 9})
    for _again in range(2):
        host.do("noted", mark={"what": "down", "detail": "no answer", "at": START + 60})
    assert what_happened(host.stored) == ["claimed", "noticed", "down"]
    assert host.stored["timeline"][-1] == {"at": START + 60, "what": "down", "detail": "no answer"}


def test_a_note_of_a_stale_claim_that_nobody_took_is_accepted(host: Host) -> None:
    host.do("claimed", silent_for=300)
    host.clock.now += 100_000
    assert host.do("noted", step=step()).result["claimed"] is True


@pytest.mark.parametrize("state", ["noted", "released"])
def test_a_run_whose_claim_was_taken_over_is_told_so_and_writes_nothing(host: Host, state: str) -> None:
    host.do("claimed")
    host.do("claimed", "B", force=True)
    before = host.everything()
    error = host.refused(state, "A", mark={"what": "drained"})
    assert "run B" in error.message
    assert error.fields["holder"]["run_name"] == "run B"
    assert host.everything() == before


def test_a_note_without_a_record_says_to_claim_first(host: Host) -> None:
    assert "Claim the event first" in host.refused("noted", step=step()).message


# Releasing


def test_a_released_record_is_finished_and_kept_in_the_history(host: Host) -> None:
    host.do("claimed", event=EVENT)
    host.do("noted", step=step(status="done"))
    host.do("noted", step=step(status="undone"))
    host.clock.now += 60
    result = host.do("released", mark={"what": "restored"}).result
    assert (result["changed"], result["record"]["finished"]) == (True, START + 60)
    assert not host.file.exists()
    (archived,) = (host.directory / "history").iterdir()
    assert json.loads(archived.read_text()) == result["record"]
    assert what_happened(result["record"]) == ["claimed", "restored"]
    assert host.listed() == []


def test_releasing_again_or_what_never_was_is_no_change(host: Host) -> None:
    assert host.do("released").result["changed"] is False
    host.do("claimed")
    assert host.do("released").result["changed"] is True
    result = host.do("released").result
    assert (result["changed"], result["record"], result["claimed"]) == (False, None, False)


@pytest.mark.parametrize("status", ["doing", "done", "failed"])
def test_nothing_that_is_not_undone_is_left_behind_silently(host: Host, status: str) -> None:
    host.do("claimed")
    host.do("noted", step=step(status=status))
    before = host.everything()
    message = host.refused("released").message
    assert f"drain/stop nginx ({status})" in message
    assert host.everything() == before


def test_an_heir_takes_over_the_steps_that_are_not_undone(host: Host) -> None:
    host.do("claimed")
    host.do("noted", step=step("stop nginx", "done", data={"was": "running"}))
    host.do("noted", step=step("leave the pool", "undone"))
    # The heir found nginx stopped already: only the elder knows that it was running.
    host.do("claimed", "B", event_id="heir")
    host.do("noted", "B", event_id="heir", step=step("stop nginx", "done", data={"was": "stopped"}))
    host.do("noted", "B", event_id="heir", step=step("pause jobs"))
    result = host.do("released", heir="HEIR").result
    assert [each["name"] for each in result["record"]["steps"]] == ["leave the pool"]
    (heir,) = host.listed()
    assert [(each["name"], each["status"], each["data"]) for each in heir["steps"]] == [
        ("stop nginx", "done", {"was": "running"}),
        ("pause jobs", "done", {}),
    ]
    assert heir["claim"]["run_id"] == "id-of-B"
    assert what_happened(heir) == ["claimed", "inherited"]


def test_an_heir_without_a_record_takes_nothing(host: Host) -> None:
    host.do("claimed")
    host.do("noted", step=step())
    assert "claim it first" in host.refused("released", heir="heir").message
    assert host.stored["steps"]


def test_an_heir_with_a_damaged_record_takes_nothing(host: Host) -> None:
    host.do("claimed")
    host.do("noted", step=step())
    (host.directory / "heir.json").write_text("{")
    assert "heir.json cannot be used" in host.refused("released", heir="heir").message
    assert host.stored["steps"]


def test_the_history_keeps_the_newest_and_everything_that_was_damaged(host: Host) -> None:
    history = host.directory / "history"
    host.do("claimed")
    host.do("released")
    for number in range(KEPT_IN_HISTORY + 5):
        old = history / f"event-{number}.1.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    (history / "old.json.1.damaged").write_text("{")
    os.utime(history / "old.json.1.damaged", (1, 1))
    host.do("claimed")
    os.utime(history / f"{FILE[:-5]}.{int(START * 1000)}.json", (1, 1))
    host.clock.now += 1
    host.do("released")
    left = {path.name for path in history.iterdir()}
    assert len(left) == KEPT_IN_HISTORY + 1
    assert {"old.json.1.damaged", f"event-{KEPT_IN_HISTORY + 4}.1.json"} <= left
    assert f"{FILE[:-5]}.{int(START * 1000)}.json" in left
    assert "event-0.1.json" not in left


def test_an_event_that_is_claimed_and_released_twice_is_twice_in_the_history(host: Host) -> None:
    for _again in range(2):
        host.do("claimed")
        host.do("released")
        host.clock.now += 1
    assert len(list((host.directory / "history").iterdir())) == 2


# Listing


def test_listing_where_nothing_was_ever_recorded_makes_nothing(host: Host) -> None:
    assert host.listed() == []
    assert not host.directory.exists()


def test_listing_says_which_claims_are_stale_the_oldest_first(host: Host) -> None:
    host.do("claimed", event_id="z", silent_for=10)
    host.clock.now += 11
    host.do("claimed", event_id="a")
    (host.directory / "README.txt").write_text("not ours")
    assert [(record["event"]["event_id"], record["stale"]) for record in host.listed()] == [("z", True), ("a", False)]
    assert host.listed()[0]["file"] == str(host.directory / "z.json")


def test_listing_one_event_leaves_the_others_out(host: Host) -> None:
    for event_id in ("a", "b"):
        host.do("claimed", event_id=event_id)
    (record,) = host.do("listed", event_id="B").result["records"]
    assert record["event"]["event_id"] == "b"


# Damage


def record_with(**parts: t.Any) -> bytes:
    good = {
        "version": 1,
        "event": EVENT,
        "claim": {"run_id": "a", "run_name": "a", "phase": "a", "since": 1, "renewed": 1, "silent_until": 2},
        "steps": [],
        "timeline": [],
        "created": 1,
        "finished": None,
    }
    return json.dumps({**good, **parts}).encode()


def test_the_record_that_the_damaged_ones_are_made_of_is_good(host: Host) -> None:
    host.directory.mkdir(0o700)
    host.file.write_bytes(record_with())
    assert "damaged" not in host.listed()[0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"\0" * 4096, "not JSON", id="zeros"),
        pytest.param(record_with()[:-20], "not JSON", id="truncated"),
        pytest.param(b"\xff\xfe{}", "not JSON", id="not-utf-8"),
        pytest.param(b"[" * 200_000, "not JSON", id="nested-too-deeply"),
        pytest.param(record_with(created=float("nan")), "not JSON", id="nan"),
        pytest.param(b" " * (LARGEST_RECORD + 1), "larger than", id="too-large"),
        pytest.param(b"[]", "not a record", id="list"),
        pytest.param(b"null", "not a record", id="null"),
        pytest.param(b'{"hello": "world"}', "not a record", id="foreign"),
        pytest.param(record_with(version=2), "version 2", id="newer-version"),
        pytest.param(record_with(version=True), "not a record", id="version-of-wrong-type"),
        pytest.param(record_with(event={}), "event missing or of the wrong form", id="event-without-id"),
        pytest.param(record_with(event={"event_id": "other"}), "about event other", id="another-event"),
        pytest.param(record_with(claim=None), "claim missing", id="no-claim"),
        pytest.param(record_with(claim={"run_id": "a"}), "claim missing", id="half-a-claim"),
        pytest.param(record_with(steps={}), "steps missing", id="steps-of-wrong-type"),
        pytest.param(record_with(steps=[{"name": "x"}]), "steps missing", id="half-a-step"),
        pytest.param(record_with(steps=[{**step(), "status": ["done"]}]), "steps missing", id="step-of-wrong-status"),
        pytest.param(record_with(timeline=["x"]), "timeline missing", id="timeline-of-wrong-type"),
        pytest.param(record_with(created="yesterday"), "created missing", id="created-of-wrong-type"),
        pytest.param(record_with(created=1e300), "created missing", id="created-out-of-this-world"),
        pytest.param(record_with(finished=True), "finished missing", id="finished-of-wrong-type"),
    ],
)
def test_what_is_no_record_is_never_taken_for_none_and_never_deleted(host: Host, content: bytes, why: str) -> None:
    host.directory.mkdir(0o700)
    host.file.write_bytes(content)
    listing = host.do("listed")
    (entry,) = listing.result["records"]
    assert (entry["damaged"], entry["file"]) == (True, str(host.file))
    assert listing.warnings == [entry["message"]]
    for state in ("claimed", "noted", "released"):
        message = host.refused(state).message
        assert why in message
        assert "force=true" in message
    assert host.file.read_bytes() == content

    outcome = host.do("claimed", force=True)
    assert (outcome.result["claimed"], outcome.result["took_over"]) == (True, True)
    (aside,) = (host.directory / "history").iterdir()
    assert aside.read_bytes() == content
    assert str(aside) in outcome.warnings[0]
    assert host.stored["claim"]["run_id"] == "id-of-A"


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda path: path.symlink_to(path.parent.parent / "victim"), "symbolic link", id="symlink"),
        pytest.param(lambda path: path.symlink_to("/nowhere"), "symbolic link", id="dangling-symlink"),
        pytest.param(lambda path: path.mkdir(), "directory", id="directory"),
        pytest.param(os.mkfifo, "special file", id="fifo"),
        pytest.param(make_socket, "special file", id="socket"),
    ],
)
def test_only_a_regular_file_is_read_or_replaced(host: Host, make: t.Callable[[Path], None], kind: str) -> None:
    victim = host.directory.parent / "victim"
    victim.write_bytes(record_with())
    host.directory.mkdir(0o700)
    make(host.file)
    assert kind in host.listed()[0]["message"]
    for state in ("claimed", "noted", "released"):
        assert kind in host.refused(state).message
    host.do("claimed", force=True)
    assert host.file.is_file()
    assert not host.file.is_symlink()
    assert victim.read_bytes() == record_with()
    assert len(list((host.directory / "history").iterdir())) == 1


def test_two_damaged_records_of_one_second_are_both_kept(host: Host) -> None:
    host.directory.mkdir(0o700)
    for content in ("{", "}"):
        host.file.write_text(content)
        host.do("claimed", force=True)
    assert {path.read_text() for path in (host.directory / "history").iterdir()} == {"{", "}"}


@pytest.mark.parametrize("name", [".draft", ".lock"])
def test_a_link_in_the_place_of_a_working_file_is_not_followed(host: Host, name: str) -> None:
    host.directory.mkdir(0o700)
    victim = host.directory.parent / "victim"
    victim.write_text("precious")
    (host.directory / name).symlink_to(victim)
    if name == ".lock":
        assert "move it away" in host.refused("claimed").message
    else:
        host.do("claimed")
    assert victim.read_text() == "precious"


# Hostile or wrong input


@pytest.mark.parametrize(
    "event_id",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        ".lock",
        "history",
        "a/b",
        "a b",
        "a_b",
        "a\0b",
        "a\nb",
        "é",
        "\ud800",
        "$(reboot)",
        "{{ lookup('pipe', 'reboot') }}",
        "x" * 200,
    ],
)
def test_no_id_leaves_the_directory_or_meets_another(host: Host, event_id: str) -> None:
    host.do("claimed", event_id="a-b")
    host.do("claimed", event_id=event_id)
    host.do("noted", event_id=event_id, step=step(event_id), mark={"what": event_id, "detail": event_id})
    assert {path.name for path in host.directory.parent.iterdir()} == {"records"}
    assert sorted(record["event"]["event_id"] for record in host.listed()) == sorted(["a-b", event_id])
    host.refused("released", event_id=event_id)
    host.do("noted", event_id=event_id, step=step(event_id, "undone"))
    host.do("released", event_id=event_id)
    assert len(host.listed()) == 1


def test_names_are_readable_for_a_plain_id_and_never_shared() -> None:
    assert file_name(EVENT_ID) == FILE
    ids = ["a/b", "a_b", "a b", "a-b", "x" * 64, "x" * 65, "x" * 66, file_name("a/b")[:-5], file_name("x" * 65)[:-5]]
    assert len({file_name(event_id) for event_id in ids}) == len(ids)


def test_hostile_text_cannot_forge_lines_in_messages_or_the_journal(host: Host) -> None:
    host.do("claimed", run_name="x\nNov 1 root: all is well\x1b[2J\0", phase="\u202eevil")
    message = host.do("claimed", "B").result["msg"]
    assert message.isprintable()
    assert all(line.isprintable() for line in host.journal)
    assert shown("x" * 1000) == "x" * 120 + "..."


@pytest.mark.parametrize(
    ("state", "options", "word"),
    [
        ("claimed", {"event_id": ""}, "needs event_id"),
        ("claimed", {"event_id": " \n"}, "needs event_id"),
        ("claimed", {"event_id": "x" * 201}, "needs event_id"),
        ("noted", {"run_id": ""}, "needs run_id"),
        ("released", {"heir": ""}, "needs heir"),
        ("released", {"heir": EVENT_ID.lower()}, "heir is the event itself"),
        ("claimed", {"event": {"event_id": "other"}}, "about other"),
        ("claimed", {"event": {"event_id": 5}, "event_id": "5"}, "about 5"),
        ("claimed", {"event": {"event_id": None}}, "about None"),
        ("claimed", {"event": {"duration": float("inf")}}, "as JSON"),
        ("claimed", {"event": {"text": "x" * LARGEST_RECORD}}, "larger than"),
        ("claimed", {"silent_for": 0.0}, "silent_for"),
        ("claimed", {"silent_for": -1.0}, "silent_for"),
        ("claimed", {"silent_for": float("nan")}, "silent_for"),
        ("claimed", {"silent_for": LONGEST_SILENCE + 1}, "silent_for"),
        ("claimed", {"mark": {"what": "x", "at": float("nan")}}, "mark.at"),
        ("claimed", {"mark": {"what": "x", "at": -1}}, "mark.at"),
        ("claimed", {"step": step()}, "step goes with state=noted"),
        ("claimed", {"heir": "x"}, "heir goes with state=released"),
        ("noted", {"event": EVENT}, "event goes with state=claimed"),
        ("listed", {"mark": {"what": "x"}}, "mark goes with"),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_what_cannot_be_is_refused_before_anything_is_written(
    host: Host, state: str, options: dict[str, t.Any], word: str, check_mode: bool
) -> None:
    host.do("claimed", event_id="another")
    before = host.everything()
    assert word in host.refused(state, check_mode=check_mode, **options).message
    assert host.everything() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "perhaps"},
        {"status": None},
        {"status": ["done"]},
        {"name": None},
        {"name": ""},
        {"name": ["stop"]},
        {"phase": {}},
        {"data": []},
        {"kind": []},
        {"message": {}},
        {"at": 5},
        {"surprise": "x"},
    ],
    ids=str,
)
def test_a_step_that_could_not_be_read_again_is_not_written(host: Host, wrong: dict[str, t.Any]) -> None:
    host.do("claimed")
    host.do("noted", step=step())
    before = host.everything()
    assert "step needs a name and a status" in host.refused("noted", step={**step(), **wrong}).message
    assert host.everything() == before


def test_a_name_that_a_template_made_a_number_is_a_name(host: Host) -> None:
    host.do("claimed")
    for status in ("doing", "done"):
        host.do("noted", step={"name": 80, "status": status, "message": 5})
    assert [(each["name"], each["status"], each["message"]) for each in host.stored["steps"]] == [("80", "done", "5")]


def test_what_is_nested_too_deeply_is_not_written(host: Host) -> None:
    deep: list[t.Any] = []
    for _level in range(sys.getrecursionlimit() * 200):
        deep = [deep]
    host.do("claimed")
    before = host.everything()
    assert "as JSON" in host.refused("noted", step=step(data={"deep": deep})).message
    assert host.everything() == before


# The directory


@pytest.mark.parametrize("path", ["", "records", "./records"])
def test_a_directory_that_is_not_absolute_is_refused(path: str) -> None:
    with pytest.raises(EventsError, match="absolute path"):
        keep_record(path, Wish())


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("state", ["listed", "claimed"])
def test_a_file_in_the_place_of_the_directory_is_refused(host: Host, state: str, check_mode: bool) -> None:
    host.directory.write_text("precious")
    assert "is not a directory" in host.refused(state, check_mode=check_mode).message
    host.directory = host.directory / "below"
    assert "move it away" in host.refused(state, check_mode=check_mode).message
    assert host.directory.parent.read_text() == "precious"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_can_write_is_refused_and_left_alone(host: Host, mode: int) -> None:
    host.directory.mkdir()
    host.directory.chmod(mode)
    assert "forge" in host.refused("claimed").message
    assert host.directory.stat().st_mode & 0o7777 == mode
    assert list(host.directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(host: Host) -> None:
    host.directory.mkdir(0o700)
    os.chown(host.directory, 65534, 65534)
    assert "owner 65534" in host.refused("claimed").message


def in_child(work: t.Callable[[], None]) -> str:
    """Run something in a process of its own; what it refused, in words."""
    reader, writer = FORK.Pipe(duplex=False)

    def body() -> None:
        try:
            work()
            writer.send("")
        except EventsError as exc:
            writer.send(exc.message)

    child = FORK.Process(target=body)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    message: str = reader.recv()
    return message


@pytest.mark.parametrize("state", ["listed", "claimed"])
def test_a_directory_that_is_out_of_reach_says_to_become(host: Host, state: str) -> None:
    host.do("claimed")
    host.directory.chmod(0o000)

    def as_another_user() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)
        host.do(state)

    try:
        assert "become" in in_child(as_another_user)
    finally:
        host.directory.chmod(0o700)


@pytest.mark.parametrize(
    "operation",
    [
        {"state": "claimed", "event_id": "new", "event": {"text": "x" * 10_000}},
        {"state": "noted", "mark": {"what": "x", "detail": "x" * 10_000}},
        {"state": "released", "mark": {"what": "x", "detail": "x" * 10_000}},
    ],
    ids=lambda operation: operation["state"],
)
def test_a_full_disk_loses_nothing(host: Host, operation: dict[str, t.Any]) -> None:
    host.do("claimed", event=EVENT)
    before = host.everything()

    def on_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        host.do(**operation)

    assert "Make room" in in_child(on_full_disk)
    assert host.everything() == before


# Check mode


@pytest.mark.parametrize(
    ("state", "options", "expected"),
    [
        ("claimed", {"event_id": "new"}, {"changed": True, "claimed": True}),
        ("claimed", {}, {"changed": False, "claimed": True}),
        ("claimed", {"run": "B"}, {"changed": False, "claimed": False}),
        ("claimed", {"run": "B", "force": True}, {"changed": True, "claimed": True, "took_over": True}),
        ("claimed", {"event_id": "damaged", "force": True}, {"changed": True, "took_over": True}),
        ("noted", {"step": step("more")}, {"changed": True, "claimed": True}),
        ("released", {"heir": "heir"}, {"changed": True}),
        ("released", {"event_id": "never"}, {"changed": False}),
    ],
)
def test_check_mode_decides_as_the_real_run_and_writes_nothing(
    host: Host, state: str, options: dict[str, t.Any], expected: dict[str, t.Any]
) -> None:
    host.do("claimed")
    host.do("noted", step=step())
    host.do("claimed", event_id="heir")
    (host.directory / "damaged.json").write_text("{")
    before, told = host.everything(), list(host.journal)
    dry = host.do(state, check_mode=True, **options)
    assert host.everything() == before
    assert host.journal == told
    real = host.do(state, **options)
    assert dry.result == real.result
    assert dry.warnings == real.warnings
    assert {key: real.result[key] for key in expected} == expected


def test_check_mode_makes_no_directory(host: Host) -> None:
    assert host.do("claimed", check_mode=True).result["changed"] is True
    assert not host.directory.exists()


# The journal


def test_every_claim_note_and_release_is_told_to_the_journal(host: Host) -> None:
    host.do("claimed")
    host.do("noted", step=step(status="undone"), mark={"what": "restored", "detail": "well"})
    host.do("claimed", "B", force=True)
    host.do("released", "B")
    host.do("listed")
    assert len(host.journal) == 4
    assert all(EVENT_ID in line for line in host.journal)
    for line, word in zip(
        host.journal, ("claimed by run A", "stop nginx is undone", "taken over", "released by run B"), strict=True
    ):
        assert word in line


def test_the_system_journal_takes_any_line_or_is_not_there() -> None:
    to_system_journal(f"event {shown(chr(0) + chr(0xD800))}: %s %n, written by a test")


# Two at a time


def claim_all(directory: Path, run: int, events: int, start: t.Any, results: t.Any) -> None:
    start.wait(60)
    won = []
    for number in range(events):
        wish = Wish("claimed", event_id=f"event-{number}", run_id=f"run-{run}")
        if keep_record(str(directory), wish, journal=lambda line: None).result["claimed"]:
            won.append(number)
    results.put(won)


def test_of_many_runs_that_claim_at_once_exactly_one_wins(tmp_path: Path) -> None:
    runs, events = 6, 5
    start, results = FORK.Barrier(runs), FORK.Queue()
    # The directory does not exist yet: making it is part of the race.
    arguments = [(tmp_path / "records", run, events, start, results) for run in range(runs)]
    children = [FORK.Process(target=claim_all, args=each) for each in arguments]
    for child in children:
        child.start()
    won = [number for _child in children for number in results.get(timeout=60)]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * runs
    assert sorted(won) == list(range(events))


def test_a_lock_that_is_never_given_back_ends_the_wait_with_words(host: Host) -> None:
    host.do("claimed")
    before = host.everything()
    with open(host.directory / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = host.refused("noted", step=step())
        assert isinstance(error, PassingFailure)
        assert ".lock" in error.message
        assert host.clock.slept >= LOCK_WAIT
        assert len(host.listed()) == 1
    assert host.everything() == before


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


@pytest.mark.parametrize(
    ("state", "options", "after"),
    [
        pytest.param("claimed", {"event_id": "new", "event": {"x": 1}}, {EVENT_ID: 1, "heir": 0, "new": 0}, id="claim"),
        pytest.param("claimed", {"run": "B", "force": True}, {EVENT_ID: 1, "heir": 0}, id="take-over"),
        pytest.param("noted", {"step": step("more")}, {EVENT_ID: 2, "heir": 0}, id="note"),
        pytest.param("released", {"heir": "heir"}, {"heir": 1}, id="release-with-heir"),
    ],
)
def test_whichever_call_a_kill_comes_before_the_records_are_whole_and_the_next_run_finishes(
    tmp_path: Path, state: str, options: dict[str, t.Any], after: dict[str, int]
) -> None:
    for number in range(100):
        host = Host(tmp_path / str(number))
        host.do("claimed", event=EVENT)
        host.do("noted", step=step())
        host.do("claimed", event_id="heir")
        before = {record["event"]["event_id"]: record for record in copy.deepcopy(host.listed())}
        died = dies_before_call(number, lambda host=host: host.do(state, **options))  # type: ignore[misc]
        left = {record["event"]["event_id"]: record for record in host.listed()}
        assert all("damaged" not in record for record in left.values())
        # A step that was done is known to some record at every moment.
        assert any(step()["name"] in str(record["steps"]) for record in left.values())
        assert set(left) in (set(before), set(after))
        host.do(state, **options)
        found = {record["event"]["event_id"]: len(record["steps"]) for record in host.listed()}
        assert found == after
        assert not (host.directory / ".draft").exists()
        if not died:
            assert number > 2
            return
    pytest.fail("it never got to the end")


def note_until_killed(directory: Path, begun: t.Any) -> None:
    while True:
        begun.value += 1
        mark = {"what": f"mark-{begun.value}", "detail": "x" * 5000}
        keep_record(str(directory), Wish("noted", EVENT_ID, run_id="a", mark=mark), journal=lambda line: None)


def test_a_writer_killed_again_and_again_leaves_a_whole_record_with_all_it_was_told(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    keep_record(str(directory), Wish("claimed", EVENT_ID, run_id="a"), journal=lambda line: None)
    begun = FORK.RawValue("i", 0)  # one with a lock would stay locked by the killed
    for kill in range(8):
        child = FORK.Process(target=note_until_killed, args=(directory, begun))
        before = begun.value
        child.start()
        while begun.value < before + 3 and child.is_alive():
            time.sleep(0.001)
        time.sleep(kill * 0.0007)
        assert child.is_alive()
        child.kill()
        child.join(60)
        record = json.loads((directory / FILE).read_bytes())
        marks = [entry["what"] for entry in record["timeline"][1:]]
        # The last one of each child may or may not have been written, no other may be missing.
        missing = {f"mark-{number}" for number in range(1, begun.value + 1)} - set(marks)
        assert len(missing) <= kill + 1
        assert f"mark-{begun.value - 1}" in marks
