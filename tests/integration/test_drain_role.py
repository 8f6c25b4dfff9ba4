# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles drain, checkpoint, restore and approve from outside: what they leave on the host and what they report."""

from __future__ import annotations

import json
import socket
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.integration.turns import GONE, Case, Json, Stage, health, needed, switch

UNDO = {"undo": True, "event": GONE}
RESTORE = {"role": "restore", "event": GONE}
SAVE = {"role": "checkpoint"}

TASK_FILES: dict[str, t.Any] = {
    "do": [
        {
            "name": "Do",
            "ansible.builtin.shell": "echo {{ drain_event.event_id }} {{ drain_step.name }} >> {{ work }}/did",
            "changed_when": True,
        },
        {"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}, "register": "did"},
    ],
    "including": [{"name": "Include", "ansible.builtin.include_tasks": "do.yml"}],
    "import": [{"name": "Import", "ansible.builtin.import_tasks": "do.yml"}],
    "no_module": [{"name": "No module", "ansible.builtin.no_such_module": {}}],
    "undo": [{"name": "Undo", "ansible.builtin.file": {"path": "{{ work }}/did", "state": "absent"}}],
    "probe": [
        {"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}, "register": "seen"},
        {"name": "Judge", "ansible.builtin.assert": {"that": "seen.stat.exists"}},
    ],
    "gone": [
        {"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}, "register": "seen"},
        {"name": "Judge", "ansible.builtin.assert": {"that": "not seen.stat.exists"}},
    ],
    "nothing": [{"name": "Nothing", "ansible.builtin.debug": {"msg": "nothing"}}],
    "fail": [{"name": "Fail", "ansible.builtin.fail": {"msg": "It is broken: {{ drain_event.description }}"}}],
    "sleep": [
        {"name": "Sleep", "ansible.builtin.command": "sleep 60", "changed_when": False},
        {"name": "Mark", "ansible.builtin.file": {"path": "{{ work }}/woke", "state": "touch", "mode": "0600"}},
    ],
    "naps": [
        {"name": "Sleep a little", "ansible.builtin.command": "sleep 2", "changed_when": False},
    ]
    * 5,
    "lost": [
        {
            "name": "Lose the next connection",
            "ansible.builtin.copy": {"content": '{"kind": "drop", "times": 1}', "dest": "{{ fate }}", "mode": "0600"},
            "delegate_to": "localhost",
            "register": "fated",
        },
        {"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}, "register": "seen"},
    ],
    "save": [
        {
            "name": "Save",
            "ansible.builtin.copy": {
                "content": "{{ checkpoint_event.event_id }}",
                "dest": "{{ work }}/saved",
                "mode": "0600",
            },
            "register": "saved",
        }
    ],
    "unregistered": [{"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}}],
    "go_down": [
        {
            "name": "Go down",
            "ansible.builtin.copy": {"content": '{"kind": "drop", "times": 99}', "dest": "{{ fate }}", "mode": "0600"},
            "delegate_to": "localhost",
        },
        {"name": "Be gone", "ansible.builtin.stat": {"path": "/"}, "register": "gone"},
    ],
    "broken": "- name: [",
}


def tasks(name: str, do: str = "do", probe: t.Any = "did.stat.exists", **more: t.Any) -> Json:
    return {"name": name, "kind": "tasks", "do": f"{do}.yml", "undo": "undo.yml", "probe": probe, **more}


def cache(**more: t.Any) -> Json:
    return {"name": "cache", "kind": "paths", "paths": ["{{ work }}/cache"], **more}


EVERYTHING = Case(
    "everything",
    [health(), {"name": "users", "kind": "connections", "ports": [1]}, tasks("queue"), switch("front"), switch("back")],
    turns=({}, {}, UNDO),
    files=("front", "back"),
)
TAKEN_OVER = Case(
    "taken-over",
    [health(), tasks("queue", undo_probe="gone.yml", probe="probe.yml")],
    turns=({}, {"run": "second", "after": 3}, {"run": "second", **UNDO}),
    variables={"drain_silent_for": 1},
)
LOST_STEP = Case(
    "lost-step",
    [tasks("queue", do="including", probe="probe.yml")],
    turns=({}, {"steps": []}, {**UNDO, "steps": []}, {"undo": True}),
)
PROBE_LOST = Case("probe-lost", [tasks("queue", do="do", probe="lost.yml")], variables={"ansible_connection": "frail"})
PROBE_BLIND = Case("probe-blind", [tasks("queue", probe="unregistered.yml")])
HELD = Case("held", [health()], turns=({}, {"run": "second"}))
FAILED = Case("failed", [health(), tasks("queue", do="fail"), tasks("never")])
PROBE_FAILED = Case("probe-failed", [tasks("queue", do="nothing", probe="1 == 2")])
UNDONE = Case(
    "undone",
    [health(), tasks("queue", do="fail"), tasks("never")],
    turns=({}, {}),
    variables={"drain_undo_on_failure": True},
)
LATE_STEP = Case("late-step", [tasks("slow", do="sleep", timeout=3)])
LATE_MODULE = Case(
    "late-module",
    [health(), {"name": "users", "kind": "connections", "ports": ["{{ busy }}"], "timeout": 15}],
)
SLOW_SUM = Case("slow-sum", [tasks("naps", do="naps", timeout=5)])
NO_TIME = Case("no-time", [tasks("slow", do="sleep")], variables={"seconds": 20})
UNREACHABLE = Case(
    "unreachable",
    [health(), tasks("queue", do="go_down", probe="gone is success"), tasks("never")],
    variables={"ansible_connection": "frail", "seconds": 60},
)
LOST = Case(
    "lost",
    [health()],
    variables={"ansible_connection": "frail", "fate": "{{ reports }}/../always.fate", "seconds": 5},
)
LOST_BALANCER = Case(
    "lost-balancer",
    [
        health(),
        {
            "name": "balancers",
            "kind": "haproxy",
            "backend": "web",
            "server": "web1",
            "sockets": [{"host": "lost", "socket": "/run/haproxy.sock"}],
        },
    ],
)
OUT_BEFORE = Case("out-before", [health()], turns=({}, UNDO), files=("out",))
BY_URL = Case(
    "by-url",
    [
        {
            "name": "balancer",
            "kind": "health_probe",
            "url": "{{ health }}",
            "out_url": "{{ service }}/out",
            "in_url": "{{ service }}/in",
            "interval": 0.2,
        }
    ],
    turns=({}, UNDO),
)
SILENT_URL = Case("silent-url", [health(url="http://127.0.0.1:{{ closed }}/")])
NOTHING = Case("nothing", turns=({}, UNDO))
NO_EVENT = Case("no-event", [health()], turns=({"event": GONE},))
STANDING = Case("standing", [health()], turns=({}, {"undo": True, "seconds": 8}), variables={"drain_silent_for": 300})
SECRET = Case(
    "secret",
    [
        {
            "name": "cache",
            "kind": "redis_sentinel",
            "master_name": "cache",
            "password": "hunter2",
            "port": "{{ closed }}",
            "sentinels": [{"host": "127.0.0.1"}],
        }
    ],
)
SAVED = Case(
    "saved",
    [health()],
    turns=({}, SAVE, {"role": "restore", "event": GONE, "take": "cache"}),
    files=("cache",),
    saves=[
        cache(to="controller"),
        {"name": "queue", "kind": "tasks", "file": "save.yml", "probe": "saved is changed"},
        {"name": "flush", "kind": "command", "argv": ["/bin/sh", "-c", "echo flushed > {{ work }}/flushed"]},
    ],
)
NOT_SAVED = Case(
    "not-saved", turns=(SAVE,), saves=[{"name": "flush", "kind": "command", "argv": ["/bin/sh", "-c", "exit 3"]}]
)
UNWELL = Case(
    "unwell",
    [health(), switch("front")],
    turns=(
        {},
        {**RESTORE, "health": [{"port": "{{ closed }}", "timeout": 2}]},
        {"role": "restore", "health": [{"url": "{{ service }}/well"}]},
    ),
    files=("front",),
)
WRONG_HEALTH = Case("wrong-health", turns=({**RESTORE, "health": [{"port": 80, "url": "http://127.0.0.1/"}]},))
OTHERS_RECORD = Case("others-record", [health()], turns=({}, {**RESTORE, "run": "second"}))
APPROVE = {"role": "approve"}
APPROVED = Case(
    "approved",
    turns=(APPROVE, APPROVE),
    variables={"approve_leaders": ["lost", "approved"]},
)
NOBODY_APPROVES = Case("nobody-approves", turns=(APPROVE,), variables={"approve_leaders": ["lost"]})
NOT_CONFIRMED = Case("not-confirmed", turns=(APPROVE,), variables={"approve_confirm": True})
APPROVAL_GONE = Case("approval-gone", turns=({**APPROVE, "event": GONE},))
OTHER_TYPE = Case("other-type", turns=(APPROVE,), event={"event_type": "Freeze"})
WRONG = [
    (Case("wrong-kind", [health(), {"name": "x", "kind": "reboot"}]), ["'x'", "unknown kind 'reboot'", "health_probe"]),
    (Case("no-module", [health(), tasks("x", do="no_module")]), ["'x'", "no_module.yml", "no_such_module"]),
    (Case("no-import", [health(), tasks("x", do="import")]), ["'x'", "import.yml", "include them instead"]),
    (Case("no-yaml", [health(), tasks("x", do="broken")]), ["'x'", "broken.yml"]),
    (Case("no-file", [health(), tasks("x", do="nowhere")]), ["'x'", "nowhere.yml", "does not exist"]),
    (Case("no-list", "health_probe"), ["must be a list"]),
    (Case("no-save", turns=(SAVE,), saves=[{"name": "x", "kind": "path"}]), ["'x'", "unknown kind 'path'", "paths"]),
]
CASES = [
    EVERYTHING,
    TAKEN_OVER,
    LOST_STEP,
    HELD,
    FAILED,
    PROBE_FAILED,
    PROBE_LOST,
    PROBE_BLIND,
    UNDONE,
    LATE_STEP,
    LATE_MODULE,
    SLOW_SUM,
    NO_TIME,
    UNREACHABLE,
    LOST,
    LOST_BALANCER,
    OUT_BEFORE,
    BY_URL,
    SILENT_URL,
    NOTHING,
    NO_EVENT,
    STANDING,
    SECRET,
    SAVED,
    NOT_SAVED,
    UNWELL,
    WRONG_HEALTH,
    OTHERS_RECORD,
    APPROVED,
    NOBODY_APPROVES,
    NOT_CONFIRMED,
    APPROVAL_GONE,
    OTHER_TYPE,
    *(case for case, _words in WRONG),
]


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Stage]:
    folder = tmp_path_factory.mktemp("roles")
    (folder / "always.fate").write_text('{"kind": "drop", "times": 999}')
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as unused:
        busy, closed = listening.getsockname()[1], unused.getsockname()[1]
        unused.close()
        with socket.create_connection(("127.0.0.1", busy)):
            yield Stage(
                needed(request, CASES), folder, "-v", "-e", f"busy={busy}", "-e", f"closed={closed}", files=TASK_FILES
            )


@pytest.mark.quick
def test_no_host_fails_or_is_lost(stage: Stage) -> None:
    assert stage.code == 0, stage.output[-6000:]
    assert "Traceback" not in stage.output


def test_text_from_outside_is_never_a_template(stage: Stage) -> None:
    assert not (stage.reports / "evil").exists()
    assert "touch" in stage.outcome(FAILED).report["reason"]


@pytest.mark.quick("role:drain", cases=[EVERYTHING])
def test_everything_is_drained_once_and_undone_in_reverse_order(stage: Stage) -> None:
    outcome = stage.outcome(EVERYTHING)
    first, again, undone = outcome.reports
    names = ["balancer", "users", "queue", "front", "back"]
    assert first["ready"], first
    assert first["reason"].startswith("5 drain steps done")
    assert outcome.statuses() == dict.fromkeys(names, "done")
    assert [mark["what"] for mark in first["timeline"]] == ["claimed", *["draining"] * 6, "ready"]
    assert again["ready"]
    drained = [mark for mark in first["timeline"] if mark["what"] == "draining"]
    assert [mark for mark in again["timeline"] if mark["what"] == "draining"] == drained, "done twice"
    assert undone["ready"], undone
    assert outcome.statuses(2) == dict.fromkeys(names, "undone")
    back = [mark["detail"].split(":")[0] for mark in undone["timeline"] if mark["what"] == "restoring"]
    assert back == ["", "back", "front", "queue", "users", "balancer"]
    assert (outcome.folder / "orders").read_text().split() == [
        "off",
        "front",
        "off",
        "back",
        "on",
        "back",
        "on",
        "front",
    ]
    assert outcome.record is None
    assert not outcome.did
    assert not (outcome.folder / "out").exists()


def test_the_users_tasks_see_the_event_and_the_step(stage: Stage) -> None:
    assert stage.outcome(PROBE_LOST).did == ["PROBE-LOST-1 queue"]


def test_a_later_run_takes_over_and_does_nothing_twice(stage: Stage) -> None:
    outcome = stage.outcome(TAKEN_OVER)
    _first, second, third = outcome.reports
    assert [report["ready"] for report in outcome.reports] == [True, True, True], outcome.reports
    taken = [mark["detail"] for mark in second["timeline"] if mark["what"] == "claimed"]
    assert "taken over from first" in taken[-1]
    assert sum("queue" in mark["detail"] for mark in second["timeline"] if mark["what"] == "draining") == 1
    assert {step["name"]: step["status"] for step in third["steps"]} == {"balancer": "undone", "queue": "undone"}


def test_tasks_that_nobody_defines_any_more_are_not_undone_on_the_word_of_the_record(stage: Stage) -> None:
    outcome = stage.outcome(LOST_STEP)
    assert not outcome.reports[2]["ready"]
    assert "no longer one of the host's steps. Add it again" in outcome.reports[2]["reason"]
    assert outcome.reports[3]["ready"], outcome.reports[3]["reason"]
    assert not outcome.did


def test_a_probe_that_never_reached_the_host_proves_nothing(stage: Stage) -> None:
    report = stage.outcome(PROBE_LOST).report
    assert not report["ready"]
    assert "could not be reached by the probe" in report["reason"]


def test_a_probe_that_could_not_tell_is_refused(stage: Stage) -> None:
    outcome = stage.outcome(PROBE_BLIND)
    assert not outcome.report["ready"]
    assert "registers nothing" in outcome.report["reason"]
    assert not outcome.did


def test_what_another_run_holds_is_left_to_it(stage: Stage) -> None:
    report = stage.outcome(HELD).reports[1]
    assert not report["ready"]
    assert "Another run has claimed the event: first." in report["reason"]


def test_a_failed_step_ends_the_drain_and_leaves_what_is_drained(stage: Stage) -> None:
    outcome = stage.outcome(FAILED)
    assert not outcome.report["ready"]
    assert outcome.report["reason"].startswith("Drain step 'queue' (tasks) failed:")
    assert outcome.statuses() == {"balancer": "done", "queue": "failed"}
    assert outcome.noted == {"balancer": "done", "queue": "failed"}
    assert (outcome.folder / "out").exists()


def test_a_step_whose_probe_does_not_pass_has_failed(stage: Stage) -> None:
    outcome = stage.outcome(PROBE_FAILED)
    assert not outcome.report["ready"]
    assert outcome.statuses() == {"queue": "failed"}, outcome.report
    assert "The probe '1 == 2' is false" in outcome.report["reason"]


def test_a_failed_drain_is_undone_where_that_is_asked_for_and_not_tried_again(stage: Stage) -> None:
    outcome = stage.outcome(UNDONE)
    for report in outcome.reports:
        assert not report["ready"]
        assert "It is broken" in report["reason"]
        assert "What was done is undone" in report["reason"]
    assert outcome.noted == {"balancer": "undone", "queue": "undone"}
    assert not (outcome.folder / "out").exists()


@pytest.mark.parametrize("case", [LATE_STEP, LATE_MODULE, SLOW_SUM, NO_TIME], ids=str)
def test_a_step_does_not_outlive_its_time(stage: Stage, case: Case) -> None:
    outcome = stage.outcome(case)
    assert not outcome.report["ready"]
    assert " was not done in time: " in outcome.report["reason"], outcome.report
    assert outcome.report["steps"][-1]["status"] == "failed"
    assert not (outcome.folder / "woke").exists()


def test_connections_that_are_left_are_named(stage: Stage) -> None:
    assert "1 connection on" in stage.outcome(LATE_MODULE).report["reason"]
    assert "from 127.0.0.1" in stage.outcome(LATE_MODULE).report["reason"]


def test_a_host_that_goes_down_in_the_middle_is_not_ready(stage: Stage) -> None:
    outcome = stage.outcome(UNREACHABLE)
    assert not outcome.report["ready"]
    assert "Connection lost" in outcome.report["reason"]
    assert outcome.noted == {"balancer": "done", "queue": "doing"}


def test_a_host_that_is_lost_is_not_ready(stage: Stage) -> None:
    report = stage.outcome(LOST).report
    assert not report["ready"]
    assert "Connection lost" in report["reason"]


@pytest.mark.quick("haproxy_server", cases=[LOST_BALANCER, LOST])
def test_a_balancer_that_is_lost_makes_the_host_not_ready(stage: Stage) -> None:
    outcome = stage.outcome(LOST_BALANCER)
    assert not outcome.report["ready"]
    assert outcome.statuses() == {"balancer": "done", "balancers": "failed"}
    assert "could not be reached" in outcome.report["reason"]


def test_what_was_out_of_service_before_the_event_stays_so(stage: Stage) -> None:
    outcome = stage.outcome(OUT_BEFORE)
    assert [report["ready"] for report in outcome.reports] == [True, True]
    assert "before the event" in outcome.reports[1]["steps"][0]["message"]
    assert (outcome.folder / "out").exists()


def test_a_url_of_the_application_can_switch_it(stage: Stage) -> None:
    outcome = stage.outcome(BY_URL)
    assert [report["ready"] for report in outcome.reports] == [True, True]
    assert not (outcome.folder / "out").exists()


def test_a_health_url_where_nothing_answers_proves_nothing(stage: Stage) -> None:
    outcome = stage.outcome(SILENT_URL)
    assert not outcome.report["ready"]
    assert "nothing could be proven" in outcome.report["reason"]
    assert not (outcome.folder / "out").exists()


def test_no_steps_are_done_at_once(stage: Stage) -> None:
    outcome = stage.outcome(NOTHING)
    assert [report["ready"] for report in outcome.reports] == [True, True]


def test_nothing_is_drained_for_an_event_that_is_gone(stage: Stage) -> None:
    outcome = stage.outcome(NO_EVENT)
    assert not outcome.report["ready"]
    assert outcome.report["reason"] == "There is nothing to get ready for: the events have started or are gone."
    assert not (outcome.folder / "out").exists()


def test_nothing_is_undone_while_the_event_stands(stage: Stage) -> None:
    outcome = stage.outcome(STANDING)
    assert outcome.report["ready"]
    assert not outcome.reports[1]["ready"]
    assert "waits until the event is over: Reboot Scheduled" in outcome.reports[1]["reason"]
    assert (outcome.folder / "out").exists()


def test_passwords_are_neither_shown_nor_kept(stage: Stage) -> None:
    outcome = stage.outcome(SECRET)
    assert not outcome.report["ready"]
    assert "hunter2" not in stage.output
    kept = [file.read_text() for file in (outcome.folder / "records").glob("**/*.json")]
    assert "hunter2" not in json.dumps([outcome.report, kept])


@pytest.mark.quick("role:checkpoint", "role:restore", cases=[SAVED])
def test_what_was_saved_on_the_controller_comes_back_from_there(stage: Stage) -> None:
    outcome = stage.outcome(SAVED)
    _drained, saved, restored = outcome.reports
    assert saved["ready"], saved
    assert {step["name"]: step["status"] for step in saved["steps"]} == dict.fromkeys(
        ("cache", "queue", "flush"), "done"
    )
    (copy,) = (stage.reports / "archives" / "saved").glob("*.tar.gz")
    assert copy.stat().st_mode & 0o077 == 0 or copy.parent.stat().st_mode & 0o077 == 0
    assert (outcome.folder / "saved").read_text() == "SAVED-1"
    assert (outcome.folder / "flushed").read_text() == "flushed\n"
    assert restored["restored"], restored
    assert (outcome.folder / "cache").read_text() == "cache"
    assert {step["status"] for step in restored["record"]["steps"]} == {"undone"}
    assert not (outcome.folder / "out").exists()


def test_what_cannot_be_saved_makes_the_host_not_ready(stage: Stage) -> None:
    report = stage.outcome(NOT_SAVED).report
    assert not report["ready"]
    assert report["reason"].startswith("Checkpoint 'flush' (command) failed:")


def test_traffic_does_not_return_to_a_host_that_is_not_well(stage: Stage) -> None:
    outcome = stage.outcome(UNWELL)
    _drained, unwell, well = outcome.reports
    assert not unwell["restored"]
    assert unwell["reason"].startswith("The host is not healthy:")
    noted = {step["name"]: step["status"] for step in unwell["record"]["steps"]}
    assert noted == {"balancer": "done", "front": "undone"}
    assert well["restored"], well
    assert not (outcome.folder / "out").exists()


def test_a_wrong_health_check_is_refused(stage: Stage) -> None:
    report = stage.outcome(WRONG_HEALTH).report
    assert not report["restored"]
    assert "health[0]" in report["reason"]


def test_a_record_that_another_run_holds_is_not_restored(stage: Stage) -> None:
    outcome = stage.outcome(OTHERS_RECORD)
    assert not outcome.reports[1]["restored"]
    assert "Another run has claimed the event: first." in outcome.reports[1]["reason"]
    assert (outcome.folder / "out").exists()


@pytest.mark.quick("role:approve", cases=[APPROVED])
def test_the_next_leader_approves_once_if_the_first_cannot(stage: Stage) -> None:
    outcome = stage.outcome(APPROVED)
    first, again = outcome.reports
    assert (first["outcome"], first["by"]) == ("approved", "approved")
    # Before 2.19 nothing becomes an empty text.
    assert (again["outcome"], again["by"] or None) == ("started", None)
    assert outcome.posts == 1


@pytest.mark.parametrize(
    ("case", "expected", "reason"),
    [
        (NOBODY_APPROVES, "failed", "Connection lost"),
        (NOT_CONFIRMED, "held", "Nobody confirmed"),
        (APPROVAL_GONE, "gone", ""),
        (OTHER_TYPE, "held", "Reboot"),
    ],
    ids=str,
)
def test_what_is_not_approved_says_why(stage: Stage, case: Case, expected: str, reason: str) -> None:
    outcome = stage.outcome(case)
    assert outcome.report["outcome"] == expected, outcome.report
    assert reason in outcome.report["reason"]
    assert outcome.posts == 0


@pytest.mark.parametrize(("case", "words"), WRONG, ids=[str(case) for case, _words in WRONG])
def test_a_wrong_step_is_refused_before_anything_is_touched(stage: Stage, case: Case, words: list[str]) -> None:
    outcome = stage.outcome(case)
    assert not outcome.report["ready"]
    for word in words:
        assert word in outcome.report["reason"]
    assert list(outcome.folder.iterdir()) == []


def test_check_mode_touches_nothing_and_is_not_ready(tmp_path: Path) -> None:
    case = Case("checked", [health(), tasks("queue")], turns=({}, {"undo": True}, RESTORE, SAVE), saves=[cache()])
    stage = Stage([case], tmp_path, "--check", files=TASK_FILES)
    outcome = stage.outcome(case)
    assert stage.code == 0, stage.output[-6000:]
    assert [report.get("ready", report.get("restored")) for report in outcome.reports] == [False] * 4
    assert {report["reason"] for report in outcome.reports} == {"Check mode: nothing was done."}
    assert list(outcome.folder.iterdir()) == []
