# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of a record: what is read, what is refused with which words, and what is never deleted or followed."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, PassingFailure
from ansible_collections.graceful.azure.plugins.module_utils._record_files import (
    KEPT_IN_HISTORY,
    LARGEST_RECORD,
    LOCK_WAIT,
    Damaged,
    Folder,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.records import (
    EVENT,
    EVENT_ID,
    Host,
    Json,
    any_host,
    in_child,
    step,
)

host = any_host
CLAIM = {"run_id": "a", "run_name": "a", "since": 1, "renewed": 1, "silent_until": 2}
ENTRY = {"event": EVENT, "claim": CLAIM, "noticed": 1, "lapsed": None, "ready": None, "started": None, "gone": None,
         "gone_reads": 0, "unhealthy": 0, "gave_up": None, "approval": None}  # fmt: skip
STEP = {**step(), "at": 1, "message": "", "attempts": 0, "timeout": None, "options": {}, "before": {}, "data": {}}
MARK = {"at": 1, "what": "claimed", "detail": "", "event_id": ""}
GOOD: Json = {
    "version": 2,
    "events": {EVENT_ID: ENTRY},
    "steps": [STEP],
    "timeline": [MARK],
    "created": 1,
    "boot_id": "",
}


def record_with(**parts: t.Any) -> bytes:
    return json.dumps({**GOOD, **parts}).encode()


def with_entry(**parts: t.Any) -> bytes:
    return record_with(events={EVENT_ID: {**ENTRY, **parts}})


def with_step(**parts: t.Any) -> bytes:
    return record_with(steps=[{**STEP, **parts}])


def folder(host: Host) -> Folder:
    host.directory.mkdir(0o700, exist_ok=True)
    return Folder(str(host.directory))


def test_the_record_that_the_damaged_ones_are_made_of_is_good(host: Host) -> None:
    made = folder(host)
    host.file.write_bytes(record_with())
    assert made.read() == GOOD


DAMAGE = {
    "empty": (b"", "not JSON"),
    "zeros": (b"\0" * 4096, "not JSON"),
    "truncated": (record_with()[:-20], "not JSON"),
    "not UTF-8": (b"\xff\xfe{}", "not JSON"),
    "nested too deeply": (b"[" * 200_000, "not JSON"),
    "nan": (record_with(created=float("nan")), "not JSON"),
    "too large": (b" " * (LARGEST_RECORD + 1), "larger than"),
    "list": (b"[]", "not a record"),
    "foreign": (b'{"hello": "world"}', "not a record"),
    "of the version before": (record_with(version=1), "version 1"),
    "of a newer version": (record_with(version=3), "version 3"),
    "version of the wrong type": (record_with(version=True), "not a record"),
    "events of the wrong type": (record_with(events=[]), "events missing"),
    "event without an id": (with_entry(event={"event_type": "Reboot"}), "events missing"),
    "half a claim": (with_entry(claim={"run_id": "a"}), "events missing"),
    "ready of the wrong type": (with_entry(ready=True), "events missing"),
    "started out of this world": (with_entry(started=1e300), "events missing"),
    "half an approval": (with_entry(approval={"at": 1}), "events missing"),
    "steps of the wrong type": (record_with(steps={}), "steps missing"),
    "half a step": (record_with(steps=[{"name": "x"}]), "steps missing"),
    "step of a status that is none": (with_step(status=["done"]), "steps missing"),
    "step with a template for a timeout": (with_step(timeout="{{ 1 + 1 }}"), "steps missing"),
    "step with a negative number of attempts": (with_step(attempts=-1), "steps missing"),
    "timeline of the wrong type": (record_with(timeline=["x"]), "timeline missing"),
    "created of the wrong type": (record_with(created="yesterday"), "created missing"),
    "boot id of the wrong type": (record_with(boot_id=5), "boot_id missing"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_record_is_never_taken_for_none_and_never_deleted(host: Host, damage: str) -> None:
    content, why = DAMAGE[damage]
    made = folder(host)
    host.file.write_bytes(content)
    with pytest.raises(Damaged, match=why) as damaged:
        made.read()
    assert "graceful_force_claim=true" in damaged.value.message
    assert host.file.read_bytes() == content


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(here)


SPECIAL: dict[str, tuple[t.Callable[[Path], object], str]] = {
    "symlink": (lambda path: path.symlink_to(path.parent.parent / "victim"), "symbolic link"),
    "dangling symlink": (lambda path: path.symlink_to("/nowhere"), "symbolic link"),
    "directory": (lambda path: path.mkdir(), "directory"),
    "fifo": (os.mkfifo, "special file"),
    "socket": (make_socket, "special file"),
}


@pytest.mark.parametrize("special", SPECIAL)
def test_only_a_regular_file_is_read_or_replaced(host: Host, special: str) -> None:
    make, kind = SPECIAL[special]
    victim = host.directory.parent / "victim"
    victim.write_bytes(record_with())
    made = folder(host)
    make(host.file)
    with pytest.raises(Damaged, match=kind):
        made.read()
    host.claim(force=True)
    assert host.file.is_file()
    assert not host.file.is_symlink()
    assert victim.read_bytes() == record_with()
    assert len(host.history) == 1


def test_two_damaged_records_of_one_second_are_both_kept(host: Host) -> None:
    folder(host)
    for content in ("{", "}"):
        host.file.write_text(content)
        host.claim(force=True)
    assert {path.read_text() for path in host.history} == {"{", "}"}


@pytest.mark.parametrize("name", [".draft", ".lock"])
def test_a_link_in_the_place_of_a_working_file_is_not_followed(host: Host, name: str) -> None:
    folder(host)
    victim = host.directory.parent / "victim"
    victim.write_text("precious")
    (host.directory / name).symlink_to(victim)
    if name == ".lock":
        with pytest.raises(EventsError, match="move it away"):
            host.claim()
    else:
        host.claim()
    assert victim.read_text() == "precious"


def test_only_the_user_of_the_task_can_read_the_records(host: Host) -> None:
    host.claim()
    host.run().close([EVENT_ID], [EVENT_ID], "restored")
    host.claim()
    paths = [host.directory, *host.directory.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"steps": [{**STEP, "status": "perhaps"}]}, "steps missing or of the wrong form"),
        ({"boot_id": "x" * LARGEST_RECORD}, "larger than"),
        ({"events": {EVENT_ID: {**ENTRY, "event": {**EVENT, "duration": float("inf")}}}}, "as JSON"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(host: Host, parts: Json, why: str) -> None:
    host.claim()
    before = host.everything()
    with pytest.raises(EventsError, match=why):
        folder(host).write({**GOOD, **parts})
    assert host.everything() == before


def test_what_is_nested_too_deeply_is_not_written(host: Host) -> None:
    deep: list[t.Any] = []
    for _level in range(sys.getrecursionlimit() * 200):
        deep = [deep]
    made = folder(host)
    with pytest.raises(EventsError, match="as JSON"):
        made.write({**GOOD, "steps": [{**STEP, "data": {"deep": deep}}]})
    assert not host.file.exists()


def test_the_history_keeps_the_newest_and_everything_that_was_damaged(host: Host) -> None:
    made = folder(host)
    history = host.directory / "history"
    history.mkdir()
    for number in range(KEPT_IN_HISTORY + 5):
        old = history / f"event-{number}.1.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    (history / "record.json.1.damaged").write_text("{")
    os.utime(history / "record.json.1.damaged", (1, 1))
    made.archive(GOOD, EVENT_ID, 5.0)
    left = {path.name for path in history.iterdir()}
    assert len(left) == KEPT_IN_HISTORY + 1
    assert {"record.json.1.damaged", f"event-{KEPT_IN_HISTORY + 4}.1.json", f"{EVENT_ID}.5000.json"} <= left
    assert "event-0.1.json" not in left


# The directory


@pytest.mark.parametrize("path", ["", "records", "./records"])
def test_a_directory_that_is_not_absolute_is_refused(path: str) -> None:
    with pytest.raises(EventsError, match="absolute path"):
        Folder(path)


def test_a_directory_that_is_not_there_is_not_made_by_reading(host: Host) -> None:
    assert host.run().read() is None
    assert not host.directory.exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_can_write_is_refused_and_left_alone(host: Host, mode: int) -> None:
    host.directory.mkdir()
    host.directory.chmod(mode)
    with pytest.raises(EventsError, match="forge"):
        host.claim()
    assert host.directory.stat().st_mode & 0o7777 == mode
    assert list(host.directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(host: Host) -> None:
    host.directory.mkdir(0o700)
    os.chown(host.directory, 65534, 65534)
    with pytest.raises(EventsError, match="owner 65534"):
        host.claim()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
@pytest.mark.parametrize(("owner", "refused"), [(65534, True), (0, False)])
def test_a_link_to_the_directory_is_followed_if_it_is_of_no_other_user(host: Host, owner: int, refused: bool) -> None:
    elsewhere = host.directory.parent / "elsewhere"
    elsewhere.mkdir(0o700)
    host.directory.symlink_to(elsewhere)
    os.chown(host.directory, owner, owner, follow_symlinks=False)
    if refused:
        with pytest.raises(EventsError, match="owner 0, 65534"):
            host.claim()
    else:
        host.claim()
    assert bool(list(elsewhere.iterdir())) is not refused


def test_a_link_that_leads_nowhere_is_refused(host: Host) -> None:
    host.directory.symlink_to("/nowhere/records")
    with pytest.raises(EventsError, match="move it away"):
        host.claim()
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize("work", ["read", "claim"])
def test_a_directory_that_is_out_of_reach_says_to_become(host: Host, work: str) -> None:
    host.claim()
    host.directory.chmod(0o000)

    def as_another_user() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)
        host.run().read() if work == "read" else host.claim()

    try:
        assert "become" in in_child(as_another_user)
    finally:
        host.directory.chmod(0o700)


def test_a_full_disk_loses_nothing(host: Host) -> None:
    host.claim()
    before = host.everything()

    def on_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        host.run().note_step([EVENT_ID], step(data={"text": "x" * 10_000}))

    assert "Free some space" in in_child(on_full_disk)
    assert host.everything() == before


def test_a_lock_that_is_never_given_back_ends_the_wait_with_words(host: Host) -> None:
    host.claim()
    before = host.everything()
    with open(host.directory / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PassingFailure, match=r"\.lock"):
            host.run().note_step([EVENT_ID], step())
        assert sum(host.clock.pauses) >= LOCK_WAIT
        # Reading needs no lock: a file is always whole.
        assert host.run().read()
    assert host.everything() == before
