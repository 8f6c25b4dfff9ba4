# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role report with the ansible-core of this environment; webhooks are served from this process, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COLLECTIONS = Path(__file__).absolute().parents[5]
EVENT_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
# Hosts that nobody reaches, and a way to become root that fails: the report needs neither.
INVENTORY = """\
[web]
web-0 ansible_host=127.0.0.1 ansible_port=1
web-1 ansible_host=127.0.0.1 ansible_port=1
[all:vars]
ansible_become=true
ansible_become_exe=/nonexistent/sudo
"""
# As in real life the data comes from a task's result: what a module returned is never a template.
PLAYBOOK = """\
- name: Report
  hosts: web
  gather_facts: false
  tasks:
    - name: Read the data
      ansible.builtin.slurp:
        src: "{{ data_file }}"
      delegate_to: localhost
      run_once: true
      vars:
        ansible_become: false
      register: slurped

    - name: Keep the data
      ansible.builtin.set_fact:
        what_was_done: "{{ slurped.content | b64decode | from_json }}"

    - name: Report
      ansible.builtin.include_role:
        name: graceful.azure.report
        tasks_from: "{{ entry_point | default('main') }}"
      vars:
        report_data: "{{ what_was_done }}"
"""


def data(**fields: t.Any) -> dict[str, t.Any]:
    return {
        "version": 1,
        "run": {
            "run_id": "../5d0f-6f8a-0d9b",
            "run_name": "controller, maintenance.yml",
            "started": "2026-09-19T18:00:00Z",
            "finished": "2026-09-19T18:02:30Z",
            "check_mode": False,
        },
        "result": "done",
        "words": ["web-0 was rebooted."],
        "events": [
            {
                "event_id": EVENT_ID,
                "event_type": "Reboot",
                "event_status": "Started",
                "event_source": "Platform",
                "description": "",
                "resources": ["web_0"],
                "not_before": None,
                "action": "drain_and_approve",
                "reason": "The third rule.",
                "outcome": "completed",
                "hold": [],
                "leader": "web-0",
                "noticed": "2026-09-19T18:00:00Z",
                "approved": "2026-09-19T18:00:41Z",
                "started": None,
                "gone": None,
                "hosts": ["web-0"],
            }
        ],
        "hosts": {"web-0": {"vm_name": "web_0", "result": "restored", "events": [EVENT_ID], "timeline": []}},
        **fields,
    }


class Run(t.NamedTuple):
    code: int
    output: str
    directory: Path

    @property
    def stats(self) -> dict[str, t.Any]:
        """The custom statistics, which ansible-playbook prints last."""
        found = re.search(r"^\s*RUN: (\{.*\})\s*$", self.output.split("CUSTOM STATS")[1], re.MULTILINE)
        assert found
        stats = json.loads(found[1])
        assert isinstance(stats, dict)
        return stats

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir()) if self.directory.is_dir() else []


Play = t.Callable[..., Run]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(report: dict[str, t.Any], *options: str, **variables: t.Any) -> Run:
        directory = tmp_path / "made" / "reports"
        (tmp_path / "inventory").write_text(INVENTORY)
        (tmp_path / "playbook.yml").write_text(PLAYBOOK)
        (tmp_path / "data.json").write_text(json.dumps(report))
        given = {"data_file": str(tmp_path / "data.json"), "report_dir": str(directory), **variables}
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environment.update(
            ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS),
            ANSIBLE_HOME=str(tmp_path / "ansible"),
            ANSIBLE_LOCAL_TEMP=str(tmp_path / "ansible" / "tmp"),
            ANSIBLE_REMOTE_TEMP=str(tmp_path / "ansible" / "remote"),
            ANSIBLE_NOCOLOR="1",
            ANSIBLE_SHOW_CUSTOM_STATS="1",
        )
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                *("-i", "inventory", "-e", json.dumps(given), *options, "playbook.yml"),
            ],
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )
        return Run(done.returncode, done.stdout, directory)

    return run


class Request(t.NamedTuple):
    path: str
    headers: dict[str, str]
    body: t.Any


class Hooks(ThreadingHTTPServer):
    """Answers by path: /404 with that status, /hang never and /drip forever; anything else with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.requests: list[Request] = []
        self.over = threading.Event()

    def url(self, path: str, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_address[1]}{path}"


class Hook(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(Request(self.path, dict(self.headers), body))
        if self.path.startswith("/hang"):
            self.server.over.wait()
            return
        status = re.match(r"/(\d{3})", self.path)
        self.send_response(int(status[1]) if status else 200)
        self.send_header("Location", self.server.url("/followed"))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000000" if self.path.startswith("/drip") else "0")
        self.end_headers()
        if self.path.startswith("/drip"):
            with contextlib.suppress(OSError):
                while not self.server.over.wait(0.2):
                    self.wfile.write(b" ")

    def log_message(self, *_arguments: t.Any) -> None:
        pass


@pytest.fixture
def hooks() -> t.Iterator[Hooks]:
    server = Hooks()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_page_and_data_are_written_once_whatever_the_hosts_are(play: Play) -> None:
    run = play(data(), "--limit", "web-1")
    assert run.code == 0, run.output
    page, kept, *latest = run.files
    assert re.fullmatch(r"\d{8}T\d{6}Z-5d0f6f8a\.html", page)
    assert kept == page.replace(".html", ".json")
    assert latest == ["latest.html", "latest.json"]
    assert json.loads((run.directory / kept).read_text()) == data()
    assert "<h1>" in (run.directory / page).read_text()
    assert (run.directory / "latest.html").read_text() == (run.directory / page).read_text()
    assert (run.directory / "latest.json").read_text() == (run.directory / kept).read_text()
    assert f"Report: {run.directory / page}" in run.output
    assert run.stats == {
        "graceful_result": "done",
        "graceful_report": str(run.directory / page),
        "graceful_report_data": str(run.directory / kept),
        "graceful_events": [
            {
                "event_id": EVENT_ID,
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "completed",
                "hold": [],
                "hosts": ["web-0"],
            }
        ],
        "graceful_host_results": {"web-0": "restored"},
    }
    assert re.search(r"web-1\s+: ok=\d+\s+changed=0\s+unreachable=0\s+failed=0", run.output)


def test_text_of_an_event_is_never_evaluated(play: Play, hooks: Hooks, tmp_path: Path) -> None:
    trap = tmp_path / "evaluated"
    touch = f"touch {trap}"
    evil = f"{{{{ lookup('ansible.builtin.pipe', '{touch}') }}}}$({touch})`{touch}`{{% raw %}}</script><b>\"'"
    report = data(words=[evil, "[1, 2]", "True"], result=evil)
    report["run"]["run_name"] = evil
    report["events"][0].update(event_type=evil, description=evil, reason=evil, hold=[evil], hosts=[evil])
    report["hosts"] = {evil: {"result": evil, "timeline": [{"at": None, "what": evil, "detail": evil}]}}
    run = play(report, report_occasion="held", report_webhooks=[{"url": hooks.url("/")}])
    assert run.code == 0, run.output
    assert not trap.exists()
    assert json.loads((run.directory / "latest.json").read_text()) == report
    assert "{{ lookup(&#x27;ansible.builtin.pipe&#x27;" in (run.directory / "latest.html").read_text()
    assert run.stats["graceful_events"][0]["event_type"] == evil
    (request,) = hooks.requests
    assert request.body["words"] == report["words"]


@pytest.mark.parametrize("entry_point", ["main", "notify"])
def test_webhooks_get_the_occasions_they_asked_for(play: Play, hooks: Hooks, entry_point: str) -> None:
    webhooks = [
        {"url": hooks.url("/default")},
        {"url": hooks.url("/held?token=1"), "events": ["held"], "headers": {"X-Token": "2"}},
        {"url": hooks.url("/failed"), "events": ["failed", "finished"]},
    ]
    run = play(data(result="held"), entry_point=entry_point, report_occasion="held", report_webhooks=webhooks)
    assert run.code == 0, run.output
    assert [request.path for request in hooks.requests] == ["/default", "/held?token=1"]
    assert hooks.requests[1].headers["X-Token"] == "2"
    body = hooks.requests[0].body
    assert body["occasion"] == "held"
    assert body["result"] == "held"
    assert body["text"] == "web-0 was rebooted."
    assert body["hosts"] == {"web-0": "restored"}
    assert (body["report"] != "") == (entry_point == "main")
    assert (run.files != []) == (entry_point == "main")
    assert "WARNING: webhook" not in run.output


def test_webhooks_that_fail_or_hang_are_said_without_their_secrets(play: Play, hooks: Hooks) -> None:
    secret = "/s3cret?token=s3cret"
    urls = [
        hooks.url(f"/404{secret}"),
        hooks.url(f"/302{secret}"),
        hooks.url(f"/hang{secret}"),
        hooks.url(f"/drip{secret}"),
        f"http://user:s3cret@127.0.0.1:1{secret}",
        f"http://127.0.0.1:s3cret{secret}",
        hooks.url(f"/works{secret}", user="user:s3cret@"),
    ]
    webhooks = [
        {"url": url, "headers": {"X-Key": "s3cret"}, "timeout": 1 if "/hang" in url or "/drip" in url else 60}
        for url in urls
    ]
    run = play(data(), "-vvv", report_occasion="restored", report_webhooks=webhooks)
    assert run.code == 0, run.output
    said = re.findall(r'"msg": "WARNING: (webhook .*)"', run.output)
    assert said == [
        "webhook 1 of 7 (127.0.0.1): it answered HTTP 404",
        "webhook 2 of 7 (127.0.0.1): it answered HTTP 302, and redirects are not followed",
        "webhook 3 of 7 (127.0.0.1): no complete answer in time",
        "webhook 4 of 7 (127.0.0.1): no complete answer in time",
        "webhook 5 of 7 (127.0.0.1): the connection was refused",
        "webhook 6 of 7: its URL is not valid",
    ]
    assert not [request for request in hooks.requests if request.path.startswith("/followed")]
    assert hooks.requests[-1].path.startswith("/works")
    assert "s3cret" not in run.output


def test_check_mode_writes_the_report_and_tells_nobody(play: Play, hooks: Hooks) -> None:
    run = play(data(), "--check", "--diff", report_occasion="held", report_webhooks=[{"url": hooks.url("/")}])
    assert run.code == 0, run.output
    assert len(run.files) == 4
    assert hooks.requests == []
    assert "WARNING: webhook" not in run.output


def test_without_a_directory_nothing_is_written(play: Play) -> None:
    run = play(data(), report_dir="")
    assert run.code == 0, run.output
    assert run.files == []
    assert run.stats["graceful_result"] == "done"
    assert run.stats["graceful_report"] == ""


def test_a_report_that_cannot_be_written_does_not_fail_the_run(play: Play, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    run = play(data(), report_dir=str(tmp_path / "occupied" / "reports"))
    assert run.code == 0, run.output
    assert len(re.findall(r"web-\d\s+: .*unreachable=0\s+failed=0", run.output)) == 2
    assert "WARNING: the report could not be written" in run.output
    assert run.stats["graceful_report"] == ""


def test_an_occasion_that_does_not_exist_is_refused(play: Play) -> None:
    run = play(data(), report_occasion="sometimes")
    assert run.code == 2
    assert "value of report_occasion must be one of: noticed, held, approved, restored, failed, finished" in run.output
