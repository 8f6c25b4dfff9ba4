# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _run
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._run import run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import seconds_at_most

LIMIT = 5.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def script(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(["import os, sys, time, json", *lines])]


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(pid: int, seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


def test_how_a_program_ended_and_what_it_said() -> None:
    ran = run(
        script("print('out')", "print('one', file=sys.stderr)", "print('two ', file=sys.stderr)", "sys.exit(3)"), 20
    )
    assert (ran.code, ran.out, ran.err, ran.message) == (3, "out\n", "one\ntwo \n", "two")


def test_no_shell_reads_the_arguments() -> None:
    assert run([*script("print(sys.argv[1])"), "$HOME; `id` *"], 20).out == "$HOME; `id` *\n"


def test_output_that_is_not_text_is_replaced() -> None:
    assert run(script("os.write(1, bytes([97, 255, 98]))"), 20).out == "a�b"


def test_nothing_can_be_read_and_the_directory_is_the_root() -> None:
    assert run(script("print(repr(sys.stdin.read()), os.getcwd())"), 20).out == "'' /\n"


def test_output_is_kept_up_to_a_limit_and_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "LARGEST_OUTPUT", 1000)
    ran = run(script("sys.stdout.write('x' * 3_000_000)", "sys.exit(7)"), 20)
    assert (ran.code, ran.out) == (7, "x" * 1000)


def test_the_environment_is_plain_and_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    told = json.loads(run(script("print(json.dumps(dict(os.environ)))"), 20, environment={"MINE": "1"}).out)
    assert (told["PATH"], told["LC_ALL"], told["MINE"]) == ("/usr/bin:/bin:/usr/sbin:/sbin", "C", "1")


def test_a_program_is_found_in_the_path_that_it_gets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert run(["tool"], 20).out == "found\n"


def test_a_program_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = script("time.sleep(60)")
    with seconds_at_most(LIMIT), pytest.raises(Late, match=r"python\S* did not end within 0\.5 s and was stopped"):
        run(
            script(
                "import subprocess",
                f"child = subprocess.Popen({child!r})",
                f"open({str(note)!r}, 'w').write(str(child.pid))",
                "time.sleep(60)",
            ),
            0.5,
        )
    assert ended(int(note.read_text()))


def test_a_program_that_keeps_talking_cannot_exceed_its_time() -> None:
    with seconds_at_most(LIMIT), pytest.raises(Late):
        run(script("while True: sys.stdout.write('x' * 1000)"), 0.5)


def test_a_program_that_closed_its_output_cannot_exceed_its_time() -> None:
    with seconds_at_most(LIMIT), pytest.raises(Late):
        run(script("os.close(1); os.close(2); time.sleep(60)"), 0.5)


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_without_time_nothing_is_waited_for(seconds: float) -> None:
    with seconds_at_most(LIMIT), pytest.raises(Late, match="within 0 s"):
        run(script("time.sleep(60)"), seconds)


def test_what_a_program_leaves_running_is_neither_waited_for_nor_killed(tmp_path: Path) -> None:
    """As an init script does: the daemon keeps the output open."""
    note = tmp_path / "pid"
    daemon = script("time.sleep(30)")
    with seconds_at_most(LIMIT):
        ran = run(
            script(
                "import subprocess",
                f"daemon = subprocess.Popen({daemon!r})",
                f"open({str(note)!r}, 'w').write(str(daemon.pid))",
                "print('started')",
            ),
            20,
        )
    pid = int(note.read_text())
    try:
        assert (ran.code, ran.out) == (0, "started\n")
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_when_the_caller_is_told_to_end_its_program_ends_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    waits = script(f"open({str(note)!r}, 'w').write(str(os.getpid()))", "time.sleep(60)")
    module = _run.__name__
    root = Path(str(_run.__file__)).parents[5]
    caller = subprocess.Popen(
        script(
            "import signal",
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))",
            f"sys.path.insert(0, {str(root)!r})",
            f"from {module} import run",
            f"run({waits!r}, 60)",
        )
    )
    end = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    caller.terminate()
    assert caller.wait(20) == 1
    assert ended(int(note.read_text()))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no-such-program-here"], "no-such-program-here cannot be run: there is no such program"),
        (["/nonexistent/tool", "x"], "/nonexistent/tool cannot be run: there is no such program"),
        (["/etc/passwd"], "/etc/passwd cannot be run: Permission denied"),
        (["/"], "/ cannot be run: Permission denied"),
        (["true", "a\0b"], "true cannot be run: embedded null byte"),
        (["true", "\ud800"], "true cannot be run"),
    ],
)
def test_a_program_that_cannot_be_run_is_named(argv: list[str], words: str) -> None:
    with pytest.raises(EventsError, match=words) as caught:
        run(argv, 20)
    assert not isinstance(caught.value, Late)


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x00\x01")
    (tmp_path / "tool").chmod(0o755)
    with pytest.raises(EventsError, match="tool cannot be run: Exec format error"):
        run([str(tmp_path / "tool")], 20)


def test_a_user_that_is_not_there_is_said() -> None:
    with pytest.raises(EventsError, match="true cannot be run: there is no user nobody-of-that-name"):
        run(["true"], 20, user="nobody-of-that-name")


@needs_root
def test_the_groups_of_another_user_are_all_that_the_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda name, group: [group, 54321])
    assert "54321" in run(["id", "-G"], 20, user="nobody").out.split()


@needs_root
def test_another_user_runs_the_program_with_that_users_groups_and_home() -> None:
    ran = run(["/bin/sh", "-c", "id -un; id -G; echo $HOME $USER $LOGNAME; touch /etc/x"], 20, user="nobody")
    name, groups, home = ran.out.splitlines()
    assert name == "nobody"
    assert "0" not in groups.split()
    assert home == f"{os.path.expanduser('~nobody')} nobody nobody"
    assert "Permission denied" in ran.err


def test_only_root_can_become_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(EventsError, match=r"true cannot be run as nobody: only root .* Set become to true"):
        run(["true"], 20, user="nobody")


def test_the_same_user_needs_no_rights() -> None:
    assert run(["true"], 20, user=pwd.getpwuid(os.geteuid()).pw_name).code == 0
