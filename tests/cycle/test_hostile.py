# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that lie, and bad luck: nothing of it runs on the controller, and nothing is approved too early."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
import typing as t
import unicodedata
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Run

# Runs the module as the real Python would, and then tells what its lie makes of the result.
LIAR = """#!{python}
import json, subprocess, sys
done = subprocess.run([{python!r}, *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE)
try:
    told = json.loads(done.stdout)
    scope = {{}}
    exec(open({lie!r}).read(), scope)
    told = scope["lie"](told)
    told = told if isinstance(told, str) else json.dumps(told)
except ValueError:
    told = done.stdout.decode()
sys.stdout.write(told)
sys.exit(done.returncode)
"""
# Every text that a host sends is a payload, but for those that the controller has to understand to go on. Sources of an
# event that differ would hold it.
PAYLOADS_EVERYWHERE = """
import os

KEPT = ("state", "mode", "event_id", "event_type", "event_status", "phase", "kind", "status", "what", "not_before",
        "run_id", "resources", "vm_name", "leader", "order", "name", "document", "event_source")

def poisoned(value, key=""):
    if isinstance(value, dict):
        return {{**{{name: poisoned(one, name) for name, one in value.items()}}, {payload!r}: {payload!r}}}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return {payload!r} if isinstance(value, str) and key not in KEPT else value

def lie(told):
    # Facts go before what the inventory says.
    told["ansible_facts"] = dict.fromkeys(("graceful_pass", "graceful_host", "maintenance_looked"), {payload!r})
    if "report" in told:
        told["report"], told["observation"] = poisoned(told["report"]), poisoned(told["observation"])
        told.update(msg={payload!r}, warnings=[{payload!r}], exception={payload!r})
        told.update(deprecations=[{{"msg": {payload!r}}}])
    elif "cmd" in told and {failed!r} and not os.path.exists({failed!r}):
        # A task of the user's own fails once. What Ansible itself shows of it is not ours to clean.
        open({failed!r}, "w").close()
        told = {{**poisoned(told), **dict.fromkeys(("msg", "stderr", "stdout"), {payload!r}), "failed": True}}
    return told
"""
# A terminal, and text that is read from right to left.
CONTROLS = "\x1b]0;owned\x07\x9b31m\u202egnihton\u2066\u200f"
# What is nested too deeply, and no answer at all.
NONSENSE = {
    "deep": 'lambda told: \'{"report": \' + "[" * 200_000 + "]" * 200_000 + "}"',
    "no JSON": 'lambda told: "\\x1b]0;owned\\x07 nonsense " * 1000',
}


def payloads(flag: Path) -> list[str]:
    """What ansible-core before 2.19 would evaluate if it came across it; the second one by what a text begins with."""
    touch = f"touch {flag}"
    header = "#jinja2:variable_start_string:'[[',variable_end_string:']]',x:"
    return [
        f"{{{{ lookup('pipe', '{touch}') }}}}{CONTROLS}",
        f"{header}[[ lookup(*'pipe~{touch}'.split('~')) ]].",
        f"{{% set x = lookup('pipe', '{touch}') %}}",
    ]


@contextlib.contextmanager
def made(directory: Path, size: int) -> t.Iterator[Fleet]:
    fleet = Fleet(directory, size)
    try:
        yield fleet
        fleet.check_invariant()
    finally:
        fleet.stop()


def make_liar(fleet: Fleet, host: str, lie: str) -> None:
    """From now on the host's Python tells what the lie makes of each result."""
    program, file = fleet.directory / f"python-of-{host}", fleet.home(host) / "lie.py"
    file.write_text(lie)
    program.write_text(LIAR.format(python=sys.executable, lie=str(file)))
    program.chmod(0o755)
    fleet.variables[host]["ansible_python_interpreter"] = str(program)


def check_terminal(run: Run) -> None:
    """Nothing but lines of text, which read as they were written."""
    odd = {char for char in run.output if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not odd, sorted(map(ascii, odd))


@pytest.mark.quick
def test_nothing_that_a_host_tells_is_evaluated_on_the_controller(fleet: Fleet) -> None:
    flag = fleet.directory / "evaluated"
    for host, payload in zip(fleet.names, payloads(flag), strict=False):
        failed = "" if CONTROLS in payload else str(fleet.home(host) / "failed")
        make_liar(fleet, host, PAYLOADS_EVERYWHERE.format(payload=payload, failed=failed))
    # What is written for the hosts may refer to the event.
    why = {"WHY": "{{ drain_event.description }} {{ drain_event }}"}
    told = {"name": "told", "kind": "command", "do": ["true"], "undo": ["true"], "probe": ["true"], "environment": why}
    fleet.common["graceful_drain_steps"] = [*fleet._defaults()["graceful_drain_steps"], told]
    fleet.announce(*fleet.names, Description=payloads(flag)[1])
    run = fleet.run()
    assert not flag.exists(), run.output[-4000:]
    assert "Traceback" not in run.output
    check_terminal(run)
    assert run.report["result"] == "done", run.output[-4000:]
    assert len(fleet.posts()) == 1
    assert all(f"{host}: FAILED: " in run.output for host in ("web2", "web3")), "a failure was said, with its payload"


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_host_that_answers_nonsense_holds_its_event_and_nothing_else(fleet: Fleet, nonsense: str) -> None:
    fleet.variables["web2"]["graceful_vm_name"] = fleet.names["web2"]
    answer = NONSENSE[nonsense]
    make_liar(fleet, "web2", f"real = {answer}\nlie = lambda told: real(told) if 'report' in told else told")
    held = fleet.announce("web2")
    fleet.announce("web1")
    with fleet.once(lambda: bool(fleet.happened("completed")), lambda: fleet.control("cancel", {"EventId": held})):
        run = fleet.run()
    assert "Traceback" not in run.output, run.output[-6000:]
    check_terminal(run)
    assert [post["vm"] for post in fleet.posts()] == [fleet.names["web1"]], run.output[-6000:]
    assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]
    assert run.report, run.output[-6000:]


@pytest.mark.quick
def test_what_cannot_be_evaluated_holds_the_event_and_is_said(tmp_path: Path) -> None:
    with made(tmp_path, 5) as fleet:
        steps = fleet._defaults()["graceful_drain_steps"]
        saved = {"name": "deep", "kind": "paths", "paths": ["{{ here }}/{{ nobody_wrote_this }}"]}
        written: dict[str, tuple[str, t.Any]] = {
            "web1": ("graceful_checkpoint", "{{ nobody_wrote_this }}"),
            "web2": ("graceful_health", [{"port": "{{ nobody_wrote_this.port }}"}]),
            "web3": ("graceful_drain_steps", [*steps, {**steps[0], "name": "b", "probe": ["{{ nobody_wrote_this }}"]}]),
            "web4": ("graceful_confirm", "{{ nobody_wrote_this }}"),
            "web5": ("graceful_checkpoint", "{{ saved }}"),
        }
        for host, (name, value) in written.items():
            fleet.variables[host].update({name: value, "saved": [saved], "here": "{{ home }}"})
            fleet.announce(host)
        run = fleet.run()
        assert run.status == 2, run.output[-4000:]
        assert fleet.posts() == []
        for host, (name, _value) in written.items():
            assert f"{host}: {name} cannot be evaluated" in run.messages, run.messages
            assert fleet.log(host) == []
        assert run.messages.count("nobody_wrote_this") >= len(written), run.messages


def test_a_host_whose_health_checks_cannot_be_evaluated_any_more_is_not_well(fleet: Fleet) -> None:
    port = fleet.home("web1") / "port"
    port.write_text("1")
    fleet.common["graceful_health"] = [{"port": "{{ lookup('file', home ~ '/port') | int }}", "timeout": 1}]
    fleet.announce("web1")
    with fleet.once(lambda: bool(fleet.posts()), port.unlink):
        run = fleet.run()
    assert run.status == 2, run.output[-4000:]
    assert "The host is not healthy: graceful_health cannot be evaluated" in run.output, run.output[-4000:]
    assert fleet.record("web1"), "it is not done with"


def test_a_run_that_was_suspended_before_its_approval_leaves_what_another_run_has_taken_over(fleet: Fleet) -> None:
    event = {"event_id": fleet.announce("web1", "web2"), "event_type": "Reboot"}
    other = fleet.keeper("web2", "other", silent_for=600.0, force=True)
    first = fleet.start()
    try:
        wait_until(lambda: fleet.said("Next pass: approve"), 150)
        os.killpg(first.pid, signal.SIGSTOP)
        assert fleet.posts() == [], "it was suspended too late for this test"
        # Another run has taken over by force, and has put web2 back.
        other.claim([event], "")
        put_back(fleet, "web2")
        record = fleet.record("web2")
        assert record
        for noted in record["steps"]:
            other.note_step([event["event_id"].lower()], {**noted, "status": "undone"})
        time.sleep(20)
        os.killpg(first.pid, signal.SIGCONT)
        wait_until(lambda: fleet.said("is handling it"), 150)
    finally:
        os.killpg(first.pid, signal.SIGCONT)
        fleet.control("cancel", {"EventId": event["event_id"]})
        first.wait(150)
    assert fleet.posts() == []
    assert [what for _at, what in fleet.log("web2")] == ["drained", "back"]
    assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]


@pytest.mark.parametrize("fault", ["503", "lost_post"])
def test_there_is_one_request_in_thirty_seconds_and_none_after_a_refusal(tmp_path: Path, fault: str) -> None:
    with made(tmp_path, 4) as fleet:
        silent = {} if fault == "503" else {"seconds": 1}
        fleet.control("fault", {"kind": fault, "vm": fleet.names["web1"], "method": "POST", "count": 1, **silent})
        again = fleet.announce("web1", "web2")
        for host in ("web3", "web4"):
            fleet.control("fault", {"kind": "400", "vm": fleet.names[host], "method": "POST"})
        refused = fleet.announce("web3", "web4")
        with fleet.once(
            lambda: bool(fleet.happened("completed")), lambda: fleet.control("cancel", {"EventId": refused})
        ):
            run = fleet.run()
        times = {one: [post["time"] for post in fleet.posts() if one in post["body"]] for one in (again, refused)}
        assert len(times[refused]) == 1, run.output[-4000:]
        first, second = times[again]
        assert second - first >= 29, run.output[-4000:]
        assert run.status == 2, run.output[-4000:]
        fleet.check_all_back()


def test_a_request_whose_answer_is_lost_is_not_sent_again_if_it_was_taken(fleet: Fleet) -> None:
    fleet.control("fault", {"kind": "silent_post", "method": "POST", "count": 1, "seconds": 1})
    fleet.announce("web1", "web2", "web3")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert len(fleet.posts()) == 1, run.output[-4000:]
    fleet.check_all_back()


def test_a_document_that_is_empty_for_a_moment_puts_nobody_back(fleet: Fleet) -> None:
    fleet.announce("web1", "web2", start_delay=15)
    empty = {"kind": "document", "document": {"DocumentIncarnation": 7, "Events": []}, "seconds": 2}
    with fleet.once(lambda: bool(fleet.posts()), lambda: fleet.control("fault", {**empty, "path": "scheduledevents"})):
        run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    (started,) = fleet.happened("started")
    for host in ("web1", "web2"):
        (_drained, (back, what)) = fleet.log(host)
        assert what == "back"
        assert back > started["time"], "it was put back before Azure has started the event"
    assert len(fleet.posts()) == 1


def test_a_host_that_comes_back_while_a_person_is_asked_is_not_approved(fleet: Fleet) -> None:
    event_id = fleet.announce("web1", "web2")
    fleet.common["graceful_confirm"] = True
    with run_at_a_terminal(fleet) as (process, terminal):
        wait_until(lambda: fleet.said("Ask a person]"), 150)
        # Nobody can drain it again.
        (fleet.home("web2") / "broken").touch()
        put_back(fleet, "web2")

        # What is typed before the question is thrown away.
        def answered() -> bool:
            os.write(terminal, b"yes\r")
            time.sleep(1)
            return fleet.said("web2 is not ready")

        wait_until(answered, 150)
        assert fleet.posts() == []
        (fleet.home("web2") / "broken").unlink()
        fleet.control("cancel", {"EventId": event_id})
        process.wait(200)
    assert fleet.posts() == [], "it was drained again only after the event was gone"


@contextlib.contextmanager
def run_at_a_terminal(fleet: Fleet) -> t.Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that a person can be asked by, and the other end of its terminal."""
    launch = fleet.launch("maintenance", fleet.directory / "reports", ())
    person, terminal = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with (launch.home / "output").open("wb") as out:
        process = subprocess.Popen(
            launch.command, env=launch.environment, stdin=terminal, stdout=out, stderr=out, preexec_fn=own_terminal
        )
    os.close(terminal)
    try:
        yield process, person
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        os.close(person)


def put_back(fleet: Fleet, host: str) -> None:
    """What another run, or somebody else, would do."""
    subprocess.run(["sh", "-c", "rm drained; echo $(date +%s.%N) back >> log"], cwd=fleet.home(host), check=True)


def wait_until(what: t.Callable[[], t.Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)
