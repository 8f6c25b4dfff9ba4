# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module host_maintenance as a plain task: every order, wrong options, lost connections, and runs that compete."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible.release import __version__
from ansible_collections.graceful.azure.tests.integration.harness import TRACEBACK, UNPRINTABLE
from ansible_collections.graceful.azure.tests.integration.turns import (
    GONE,
    HOSTILE,
    Case,
    Json,
    Outcome,
    Stage,
    health,
    needed,
    switch,
)

EVENT = "{{ given_event }}"
FRAIL: Json = {"ansible_connection": "frail"}
CONTROLS = "\x1b[31m\x9b31m\u202e\u2066\x07"


def give(order: str, **more: t.Any) -> Json:
    """A turn in which the module gets an order; what is not one of its options is the turn's."""
    options: Json = {
        "order": order,
        "endpoint": "{{ graceful_endpoint }}",
        "record_dir": "{{ work }}/records",
        "checkpoint_dir": "{{ work }}/archives",
    }
    if order != "look":
        options.update(run_id="first", events=[EVENT])
    turn: Json = {key: more.pop(key) for key in ("check", "event", "after", "first") if key in more}
    given = {**options, **more}
    return {**turn, "order": {key: value for key, value in given.items() if value is not None}}


def step(name: str, script: str, probe: str = "true") -> Json:
    """A step that runs a script in the host's directory."""
    do, asked = (["/bin/sh", "-c", f"cd {{{{ work }}}} && {text}"] for text in (script, probe))
    return {"name": name, "kind": "command", "do": do, "probe": asked, "undo": ["true"]}


def slow(name: str, before: str = "true", seconds: int = 3) -> Json:
    """A step that takes some seconds, and writes itself down when it is done."""
    script = f"{before}; sleep {seconds}; echo {name} >> did"
    return step(name, script, f"grep -qx {name} did")


def quick(name: str) -> Json:
    return step(name, f"echo {name} >> did", f"grep -qx {name} did")


def downfall(kind: str, times: int) -> str:
    """In a script: the connection fails from now on."""
    fate = json.dumps({"kind": kind, "times": times})
    return f"echo '{fate}' > {{{{ fate }}}}.new && mv {{{{ fate }}}}.new {{{{ fate }}}}"


READY = give("ready", steps=[health(), switch("front")], timeout=60)
LOOK = Case("look", turns=(give("look"),))
CYCLE = Case(
    "cycle",
    turns=(
        {**READY, "check": True},
        READY,
        READY,
        give("approve", check=True),
        give("approve"),
        give("approve"),
        give("put_back", timeout=4),
        give("put_back", event="complete", check=True),
        give("put_back", timeout=60),
        give("put_back", timeout=60),
    ),
    files=("front",),
)
RELEASED = Case(
    "released",
    turns=(
        give("ready", steps=[switch("front")], timeout=60),
        give("ready", steps=[switch("front")], run_id="second", timeout=60),
        give("release", check=True),
        give("release"),
        give("release"),
        give("ready", steps=[switch("front")], run_id="second", timeout=60),
        give("put_back", run_id="second", event=GONE, timeout=60),
    ),
    files=("front",),
)
NOT_READY = Case("not-ready", turns=(give("approve"), give("ready"), give("approve", run_id="second")))
FAILED = Case(
    "failed",
    turns=(give("ready", steps=[switch("front"), step("broken", "exit 3"), quick("never")], timeout=60),),
    files=("front",),
)
NO_EVENT = Case("no-event", turns=(give("ready", steps=[quick("never")], event=GONE),))
UNWELL = Case(
    "unwell",
    turns=(
        give("ready", steps=[health()], timeout=60),
        give("put_back", health=[{"argv": ["false"], "timeout": 1}], event=GONE, timeout=60),
    ),
)
SAVED = Case(
    "saved",
    turns=(
        give("ready", checkpoint=[{"name": "cache", "kind": "paths", "paths": ["{{ work }}/cache"]}], timeout=60),
        give("put_back", event="start", timeout=3),
        give("put_back", event="complete", first=["rm", "{{ work }}/cache"], timeout=60),
    ),
    files=("cache",),
)
NO_SERVICE = Case(
    "no-service", turns=(give("look", endpoint="http://127.0.0.1:1"), give("ready", endpoint="http://127.0.0.1:1"))
)
WORKING = Case(
    "working",
    turns=(give("ready", steps=[slow("long")]), give("ready", steps=[slow("long")], timeout=60)),
)
DROPPED = Case(
    "dropped",
    turns=(give("ready", steps=[slow("long", downfall("drop", 2)), quick("after")], timeout=90),),
    variables=FRAIL,
)
KILLED = Case(
    "killed",
    turns=(
        give("ready", steps=[slow("long", downfall("kill", 1)), quick("after")], wait=30),
        give("ready", steps=[slow("long", downfall("kill", 1)), quick("after")], after=6, timeout=60),
    ),
    variables=FRAIL,
)
LOST = Case(
    "lost",
    turns=(give("ready", steps=[quick("never")], timeout=3),),
    variables={**FRAIL, "fate": "{{ reports }}/../always.fate"},
)
TAKEN_OVER = Case(
    "taken-over",
    turns=(
        give("ready", steps=[slow("one", "echo $$ > process", seconds=300), quick("two")]),
        give("ready", steps=[quick("other")], run_id="second", run_name="the other one", force=True, timeout=60),
        give("ready", steps=[slow("one", seconds=300), quick("two")]),
    ),
)
CLAIM_LOST = Case(
    "claim-lost",
    turns=(
        give(
            "ready",
            steps=[
                step("one", """sed -i 's/"run_id": "first"/"run_id": "other"/' records/record.json"""),
                quick("two"),
            ],
            timeout=60,
        ),
    ),
)
DAMAGED = Case(
    "damaged",
    turns=(
        give("look", first=["install", "-D", "-m", "600", "{{ work }}/rubbish", "{{ work }}/records/record.json"]),
        give("ready", steps=[quick("never")]),
        give("ready", force=True),
    ),
    files=("rubbish",),
)
PAYLOAD = Case(
    "payload",
    turns=(
        give("look"),
        give(
            "ready",
            events="{{ answer.observation.events }}",
            steps=[step("broken", "cat ../said >&2; exit 3")],
            run_name="{{ answer.observation.events[0].description }}",
            timeout=30,
        ),
        give("look"),
        give("ready", run_id="second"),
    ),
    announced={"Description": HOSTILE + CONTROLS},
)
HOSTILE_RECORD = Case(
    "hostile-record",
    turns=(
        give("look", first=["install", "-D", "-m", "600", "{{ reports }}/../record", "{{ work }}/records/record.json"]),
        give("ready", run_id="second"),
        give("put_back", event=GONE, timeout=30),
    ),
)


def wrong(name: str, *words: str, order: str = "ready", **options: t.Any) -> tuple[Case, t.Sequence[str]]:
    return Case(name, turns=(give(order, **options),)), words


def balancers(name: str) -> Json:
    socket = {"host": "lb1", "socket": "/run/haproxy.sock"}
    return {"name": name, "kind": "haproxy", "backend": "web", "server": "web1", "sockets": [socket]}


WRONG = [
    wrong("no-order", "order must be one of: look, ready, approve, put_back, release", order="drain"),
    wrong("no-run", "needs events and run_id", run_id=None),
    wrong("blank-run", "needs events and run_id", run_id=" "),
    wrong("no-events", "needs events and run_id", events=None),
    wrong("empty-events", "needs events and run_id", order="release", events=[]),
    wrong("events-text", "events", "dict", events="A-1"),
    wrong("event-number", "events", "dict", events=[7]),
    wrong("event-without-id", "each needs an event_id", events=[{"event_type": "Reboot"}]),
    wrong("event-id-list", "each needs an event_id", events=[{"event_id": ["A"]}]),
    wrong("event-type-list", "event_type of A has to be a string", events=[{"event_id": "A", "event_type": ["x"]}]),
    wrong("resources-text", "resources of A has to be a list", events=[{"event_id": "A", "resources": "web"}]),
    wrong("resources-number", "resources of A has to be a list", events=[{"event_id": "A", "resources": [1]}]),
    wrong("steps-text", "steps must be a list, not 'health_probe'", steps="health_probe"),
    wrong("steps-number", "steps must be a list", steps=7),
    wrong("step-text", "Drain step 1 of steps", "name and a kind", steps=["health_probe"]),
    wrong("unknown-kind", "'x'", "unknown kind 'reboot'", "health_probe", steps=[{"name": "x", "kind": "reboot"}]),
    wrong(
        "unknown-key",
        "'x' (connections)",
        "'prots'",
        "ports",
        steps=[{"name": "x", "kind": "connections", "prots": [80]}],
    ),
    wrong("nested-options", "'options'", steps=[{"name": "x", "kind": "connections", "options": {"ports": [80]}}]),
    wrong("for-controller", "'x' (haproxy)", "Use the collection's roles", steps=[quick("never"), balancers("x")]),
    wrong("checkpoint-text", "checkpoint must be a list", checkpoint="paths"),
    wrong(
        "fetched",
        "'x' (paths)",
        "roles",
        checkpoint=[{"name": "x", "kind": "paths", "paths": ["/srv"], "to": "controller"}],
    ),
    wrong("health-wrong", "health[0]", order="put_back", health=[{"port": 80, "url": "http://127.0.0.1/"}]),
    wrong("timeout-text", "timeout must be a number of seconds", "'soon'", timeout="soon"),
    wrong("timeout-nan", "timeout must be a number of seconds", timeout="nan"),
    wrong("timeout-negative", "timeout must be a number of seconds", timeout=-1),
    wrong("seconds-text", "seconds must be a number of seconds", seconds="long"),
    wrong("seconds-infinite", "seconds must be a number of seconds", seconds="inf"),
    wrong("silent-for-text", "silent_for must be a number of seconds", silent_for=[1]),
    wrong("wait-nan", "wait is nan", "number of seconds", wait="nan"),
    wrong("max-age-negative", "max_age is -5", "number of seconds", order="approve", max_age=-5),
    wrong("endpoint-text", "scheme and host only", endpoint="not a url"),
    wrong("record-relative", "absolute path", record_dir="records"),
]
UNWRITABLE = [
    (
        Case(
            "no-directory",
            turns=(give("ready", steps=[quick("never")], record_dir="{{ work }}/file/records"),),
            files=("file",),
        ),
        ["file", "Not a directory", "move it away"],
    ),
    (
        Case("a-file", turns=(give("ready", steps=[quick("never")], record_dir="{{ work }}/file"),), files=("file",)),
        ["is not a directory", "graceful_record_dir"],
    ),
    (
        Case(
            "open-to-all",
            turns=(give("ready", steps=[quick("never")], first=["mkdir", "-m", "777", "{{ work }}/records"]),),
        ),
        ["can be written by other users", "0700"],
    ),
    (
        Case("no-such-system", turns=(give("ready", steps=[quick("never")], record_dir="/proc/records"),)),
        ["/proc/records", "nothing was lost"],
    ),
]
# Before 2.19 all turns of a case are evaluated at once; there, tests/cycle/test_hostile.py has it.
LAZY = tuple(map(int, __version__.split(".")[:2])) >= (2, 19)
CASES = [
    LOOK,
    CYCLE,
    RELEASED,
    NOT_READY,
    FAILED,
    NO_EVENT,
    UNWELL,
    SAVED,
    NO_SERVICE,
    WORKING,
    DROPPED,
    KILLED,
    LOST,
    TAKEN_OVER,
    CLAIM_LOST,
    DAMAGED,
    *([PAYLOAD] if LAZY else []),
    HOSTILE_RECORD,
    *(case for case, _words in (*WRONG, *UNWRITABLE)),
]


def hostile_record(event_id: str, text: str) -> Json:
    """Every text in it is a payload, but it has the shape of a record."""
    claim = {"run_id": "first", "run_name": text, "since": 1, "renewed": 1, "silent_until": 1}
    approval = {"at": 1, "status": text, "run_id": text, "message": text}
    texts = ("event_status", "description", "event_source", "resource_type", "not_before", "leader")
    event = {"event_id": event_id, "event_type": text, "resources": [text], **dict.fromkeys(texts, text)}
    entry = {"event": event, "claim": claim, "ready": None, "started": None, "gone": None}
    entry.update(noticed=1, lapsed=None, gone_reads=0, unhealthy=0)
    step = {"phase": "drain", "name": text, "kind": text, "status": "done", "at": 1, "message": text, "attempts": 0}
    return {
        "version": 2,
        "created": 1,
        "boot_id": text,
        "events": {event_id.lower(): {**entry, "gave_up": None, "approval": approval}},
        "steps": [{**step, "timeout": None, "options": {text: text}, "before": {text: text}, "data": {text: text}}],
        "timeline": [{"at": 1, "what": text, "detail": text, "event_id": text}],
    }


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("orders")
    (folder / "always.fate").write_text('{"kind": "drop", "times": 999}')
    (folder / "said").write_text(HOSTILE + CONTROLS)
    (folder / "record").write_text(json.dumps(hostile_record(HOSTILE_RECORD.event_id, HOSTILE + CONTROLS)))
    return Stage(needed(request, CASES), folder, "-v")


def state(result: Json) -> str:
    """How a task ended, in three words."""
    status = "failed" if result.get("failed") else "ok"
    return f"{status} {(result.get('report') or {}).get('state')}{' changed' if result['changed'] else ''}"


def states(outcome: Outcome) -> list[str]:
    return [state(result) for result in outcome.reports]


def steps_of(result: Json) -> dict[str, str]:
    return {step["name"]: step["status"] for step in result["observation"]["record"]["steps"]}


@pytest.mark.quick
def test_the_play_goes_on_with_every_host(stage: Stage) -> None:
    assert stage.code == 0, stage.output[-6000:]
    assert TRACEBACK not in stage.output


def test_a_look_tells_what_is_announced_and_writes_nothing(stage: Stage) -> None:
    outcome = stage.outcome(LOOK)
    assert states(outcome) == ["ok looked"]
    seen = outcome.report["observation"]
    assert (seen["vm_name"], seen["record"], seen["error"], seen["warnings"]) == ("look", None, None, [])
    assert [(event["event_id"], event["affects_me"]) for event in seen["events"]] == [(LOOK.event_id, True)]
    assert set(outcome.report) >= {"report", "observation", "interruptions"}
    assert not {"step", "passes", "until"} & set(outcome.report)
    assert list(outcome.folder.iterdir()) == []


@pytest.mark.quick("host_maintenance", cases=[CYCLE])
def test_a_host_gets_ready_approves_once_and_is_put_back(stage: Stage) -> None:
    outcome = stage.outcome(CYCLE)
    assert states(outcome) == [
        "ok skipped",
        "ok ready changed",
        "ok ready",
        "ok skipped",
        "ok approved changed",
        "ok approved",
        "failed waiting",
        "ok skipped",
        "ok put_back changed",
        "ok put_back",
    ]
    assert outcome.reports[0]["observation"]["record"] is None
    assert steps_of(outcome.reports[1]) == {"balancer": "done", "front": "done"}
    assert outcome.reports[6]["msg"] == "After 4 s: waits until the event is over: Reboot Started"
    assert outcome.posts == 1
    assert (outcome.folder / "orders").read_text().splitlines() == ["off front", "on front"]
    assert not (outcome.folder / "out").exists()
    assert outcome.record is None


def test_check_mode_of_a_put_back_changes_nothing(stage: Stage) -> None:
    before, checked = stage.outcome(CYCLE).reports[6:8]
    assert checked["observation"]["record"] == before["observation"]["record"]


def test_a_release_leaves_the_host_to_the_next_run(stage: Stage) -> None:
    outcome = stage.outcome(RELEASED)
    assert states(outcome) == [
        "ok ready changed",
        "failed held_by_other_run",
        "ok skipped",
        "ok released",
        "ok released",
        "ok ready changed",
        "ok put_back changed",
    ]
    assert (
        outcome.reports[1]["msg"] == "Another run has claimed the event: first. Run this again when that run has ended."
    )
    assert (outcome.folder / "orders").read_text().splitlines() == ["off front", "on front"]
    assert outcome.record is None


def test_nothing_is_approved_for_a_host_that_is_not_ready_or_by_another_run(stage: Stage) -> None:
    outcome = stage.outcome(NOT_READY)
    assert states(outcome) == ["failed held_by_other_run", "ok ready changed", "failed held_by_other_run"]
    assert "does not hold the claim" in outcome.reports[0]["msg"]
    assert outcome.posts == 0


def test_a_task_whose_drain_failed_fails(stage: Stage) -> None:
    outcome = stage.outcome(FAILED)
    assert states(outcome) == ["failed failed changed"]
    assert outcome.report["msg"].startswith("Drain step 'broken' (command) failed:")
    assert steps_of(outcome.report) == {"front": "done", "broken": "failed"}
    assert not outcome.did


def test_a_task_for_an_event_that_is_gone_fails_and_drains_nothing(stage: Stage) -> None:
    outcome = stage.outcome(NO_EVENT)
    assert states(outcome) == ["failed gone"]
    assert list(outcome.folder.iterdir()) == [] or outcome.record is None
    assert not outcome.did


def test_traffic_does_not_return_to_a_host_that_is_not_well(stage: Stage) -> None:
    outcome = stage.outcome(UNWELL)
    assert states(outcome) == ["ok ready changed", "failed failed"]
    assert "not healthy" in outcome.reports[1]["msg"]
    assert (outcome.folder / "out").exists()


def test_what_was_saved_comes_back(stage: Stage) -> None:
    outcome = stage.outcome(SAVED)
    assert states(outcome) == ["ok ready changed", "failed waiting", "ok put_back changed"]
    assert (outcome.folder / "cache").read_text() == "cache"


def test_without_a_service_nothing_is_claimed(stage: Stage) -> None:
    outcome = stage.outcome(NO_SERVICE)
    assert states(outcome) == ["ok looked", "failed failed"]
    assert outcome.reports[0]["observation"]["events"] is None
    assert "cannot be reached" in outcome.reports[0]["observation"]["error"]
    assert "cannot be reached" in outcome.reports[1]["msg"]
    assert outcome.record is None


def test_one_call_may_leave_the_work_under_way_and_the_next_one_finds_it(stage: Stage) -> None:
    outcome = stage.outcome(WORKING)
    assert [state(result).removesuffix(" changed") for result in outcome.reports] == ["ok working", "ok ready"]
    assert "long" in outcome.report["report"]["message"]
    assert outcome.did == ["long"]


def test_a_connection_that_is_dropped_in_the_middle_of_a_drain_costs_nothing(stage: Stage) -> None:
    outcome = stage.outcome(DROPPED)
    assert states(outcome) == ["ok ready changed"], outcome.report
    (gap,) = outcome.report["interruptions"]
    assert gap["back"]
    assert "[dropped] not reachable, trying again" in stage.output
    assert outcome.did == ["long", "after"]


def test_work_goes_on_without_its_module_and_is_not_done_twice(stage: Stage) -> None:
    outcome = stage.outcome(KILLED)
    # Nobody has been told yet what the work has changed.
    assert states(outcome) == ["failed None changed", "ok ready changed"], outcome.reports
    assert outcome.report["msg"].startswith("The host gave no answer:")
    assert outcome.did == ["long", "after"]


def test_a_host_that_is_lost_fails_its_task(stage: Stage) -> None:
    outcome = stage.outcome(LOST)
    assert outcome.report["failed"]
    assert "Connection lost" in outcome.report["msg"]
    assert not outcome.did


def test_a_run_that_was_taken_over_takes_no_further_step(stage: Stage) -> None:
    outcome = stage.outcome(TAKEN_OVER)
    assert states(outcome) == ["ok working changed", "ok ready changed", "failed held_by_other_run"], outcome.reports
    assert (
        outcome.reports[2]["msg"]
        == "Another run has claimed the event: the other one. Run this again when that run has ended."
    )
    assert outcome.did == ["other"]
    process = int((outcome.folder / "process").read_text())
    assert not Path(f"/proc/{process}").exists(), "the step of the first run goes on"


def test_a_step_that_follows_a_lost_claim_does_not_happen(stage: Stage) -> None:
    outcome = stage.outcome(CLAIM_LOST)
    assert states(outcome) == ["failed held_by_other_run changed"], outcome.reports
    assert not outcome.did


def test_a_damaged_record_is_said_and_set_aside_only_by_force(stage: Stage) -> None:
    outcome = stage.outcome(DAMAGED)
    assert states(outcome) == ["ok looked", "failed failed", "ok ready changed"]
    assert "cannot be used as a record" in outcome.reports[0]["observation"]["record_error"]
    assert "cannot be used as a record" in outcome.reports[1]["msg"]
    (warning,) = outcome.reports[2]["observation"]["warnings"]
    assert "was set aside as" in warning
    # Warnings are wrapped.
    assert "[damaged]" + re.sub(r"\s", "", warning) in re.sub(r"\s", "", stage.output)
    (aside,) = (outcome.folder / "records" / "history").iterdir()
    assert aside.read_text() == "rubbish"
    assert not outcome.did


@pytest.mark.quick(cases=[*([PAYLOAD] if LAZY else []), HOSTILE_RECORD])
@pytest.mark.parametrize("case", [*([PAYLOAD] if LAZY else []), HOSTILE_RECORD], ids=str)
def test_text_from_outside_is_neither_a_template_nor_an_escape_sequence(stage: Stage, case: Case) -> None:
    outcome = stage.outcome(case)
    assert not (stage.reports / "evil").exists()
    for result in outcome.reports:
        told = json.dumps(result, ensure_ascii=False)
        assert not UNPRINTABLE.search(told), told
        assert "{{" not in told
    assert not UNPRINTABLE.search(stage.output.replace("\t", " "))


@pytest.mark.skipif(not LAZY, reason="ansible-core before 2.19 evaluates all turns at once")
def test_a_payload_can_be_read(stage: Stage) -> None:
    looked, failed, again, other = stage.outcome(PAYLOAD).reports
    assert "lookup('ansible.builtin.pipe'" in looked["observation"]["events"][0]["description"]
    assert "lookup('ansible.builtin.pipe'" in failed["msg"]
    (entry,) = again["observation"]["record"]["events"].values()
    assert "lookup('ansible.builtin.pipe'" in entry["event"]["description"]
    assert "lookup('ansible.builtin.pipe'" in other["msg"], "the name of the run that holds the claim"


def test_a_hostile_record_is_refused_where_it_cannot_be_undone(stage: Stage) -> None:
    looked, taken, back = stage.outcome(HOSTILE_RECORD).reports
    assert looked["observation"]["record"]["steps"][0]["status"] == "done"
    assert "taken over from" in json.dumps(taken["observation"]["record"]["timeline"])
    assert back["failed"]
    assert stage.outcome(HOSTILE_RECORD).posts == 0


@pytest.mark.parametrize(("case", "words"), WRONG, ids=[str(case) for case, _words in WRONG])
def test_a_wrong_option_is_named_before_anything_is_done(stage: Stage, case: Case, words: t.Sequence[str]) -> None:
    outcome = stage.outcome(case)
    assert outcome.report["failed"]
    for word in words:
        assert word in outcome.report["msg"], outcome.report
    assert outcome.requests == []
    assert list(outcome.folder.iterdir()) == []


@pytest.mark.parametrize(("case", "words"), UNWRITABLE, ids=[str(case) for case, _words in UNWRITABLE])
def test_without_a_record_nothing_is_done(stage: Stage, case: Case, words: t.Sequence[str]) -> None:
    outcome = stage.outcome(case)
    assert states(outcome) == ["failed failed"], outcome.report
    for word in words:
        assert word in outcome.report["msg"], outcome.report
    assert not outcome.did


def test_check_mode_does_nothing(tmp_path: Path) -> None:
    orders = ("look", "ready", "approve", "put_back", "release")
    case = Case("checked", turns=[give(order, **({} if order == "look" else {"timeout": 30})) for order in orders])
    stage = Stage([case], tmp_path, "--check")
    outcome = stage.outcome(case)
    assert stage.code == 0, stage.output[-6000:]
    assert states(outcome) == ["ok looked", *["ok skipped"] * 4]
    assert outcome.posts == 0
    assert list(outcome.folder.iterdir()) == []
