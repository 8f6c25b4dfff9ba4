# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role report with the ansible-core of this environment; webhooks are served from this process, on loopback."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import ssl
import threading
import time
import typing as t
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.tools.launcher import Launch
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

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
        "version": 2,
        "drill": False,
        "run": {
            "run_id": "../5d0f-6f8a-0d9b",
            "run_name": "controller, maintenance.yml",
            "started": "2026-09-19T18:00:00Z",
            "finished": "2026-09-19T18:02:30Z",
            "check_mode": False,
        },
        "result": "done",
        "messages": ["web-0 was rebooted."],
        "events": [
            {
                "event_id": EVENT_ID,
                "event_type": "Reboot",
                "event_status": "Started",
                "resource_type": "VirtualMachine",
                "resources": ["web_0"],
                "not_before": None,
                "seconds_left": None,
                "description": "",
                "event_source": "Platform",
                "duration_seconds": None,
                "leader": "web_0",
                "action": "drain_and_approve",
                "reason": "The third rule.",
                "outcome": "completed",
                "holds": [],
                "message": "completed: Reboot of web-0",
                "noticed": "2026-09-19T18:00:00Z",
                "approved": "2026-09-19T18:00:41Z",
                "approved_by": "web-0",
                "started": None,
                "gone": None,
                "hosts": ["web-0"],
            }
        ],
        "hosts": {
            "web-0": {"vm_name": "web_0", "result": "restored", "reason": "", "events": [EVENT_ID], "timeline": []}
        },
        **fields,
    }


def held(run_id: str = "run-1") -> dict[str, t.Any]:
    report = data(result="held", run={"run_id": run_id, "run_name": "nightly", "check_mode": False})
    report["events"][0].update(outcome="held", holds=["web-0 is late"], message="held: Reboot of web-0", approved=None)
    return report


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
    def run(report: dict[str, t.Any], *options: str, proxy: str | None = None, **variables: t.Any) -> Run:
        directory = tmp_path / "made" / "reports"
        (tmp_path / "inventory").write_text(INVENTORY)
        (tmp_path / "playbook.yml").write_text(PLAYBOOK)
        (tmp_path / "data.json").write_text(json.dumps(report))
        given = {"data_file": str(tmp_path / "data.json"), "report_dir": str(directory), **variables}
        # Whoever runs the tests may have a proxy.
        proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        settings = {**proxies, "ANSIBLE_SHOW_CUSTOM_STATS": "1", **({"http_proxy": proxy} if proxy else {})}
        home = tmp_path / "ansible"
        launch = Launch(tmp_path / "playbook.yml", tmp_path / "inventory", home, options, given, settings=settings)
        done = launch.run(cwd=tmp_path)
        return Run(done.returncode, done.stdout, directory)

    return run


class Request(t.NamedTuple):
    path: str
    headers: dict[str, str]
    body: t.Any
    at: float


class Hooks(ThreadingHTTPServer):
    """Answers by path: /404 with that status, /hang never, /drip with a header that never ends; else with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.requests: list[Request] = []
        self.over = threading.Event()

    def url(self, path: str, user: str = "", scheme: str = "http") -> str:
        return f"{scheme}://{user}127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """A client that does not trust the certificate leaves."""


class Hook(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(Request(self.path, dict(self.headers), body, time.monotonic()))
        if self.path.startswith("/hang"):
            self.server.over.wait()
            return
        status = re.match(r"/(\d{3})", self.path)
        self.send_response(int(status[1]) if status else 200)
        self.send_header("Location", self.server.url("/followed"))
        self.send_header("Content-Length", "0")
        if self.path.startswith("/drip"):
            self.flush_headers()
            with contextlib.suppress(OSError):
                while not self.server.over.wait(0.2):
                    self.wfile.write(b"X")
        self.end_headers()

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


@pytest.mark.quick("role:report", "report_files")
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
        "graceful_was_drill": False,
        "graceful_report": str(run.directory / page),
        "graceful_report_data": str(run.directory / kept),
        "graceful_events": [
            {
                "event_id": EVENT_ID,
                "event_type": "Reboot",
                "action": "drain_and_approve",
                "outcome": "completed",
                "message": "completed: Reboot of web-0",
                "holds": [],
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
    report = data(messages=[evil, "[1, 2]", "True"], result=evil)
    report["run"]["run_name"] = evil
    report["events"][0].update(
        event_type=evil, description=evil, reason=evil, message=evil, holds=[evil], hosts=[evil], outcome="held"
    )
    report["hosts"] = {evil: {"result": evil, "timeline": [{"at": None, "what": evil, "detail": evil}]}}
    run = play(report, report_occasion="held", report_webhooks=[{"url": hooks.url("/")}])
    assert run.code == 0, run.output
    assert not trap.exists()
    assert json.loads((run.directory / "latest.json").read_text()) == report
    assert "{ { lookup(&#x27;ansible.builtin.pipe&#x27;" in (run.directory / "latest.html").read_text()
    assert run.stats["graceful_events"][0]["event_type"] == evil
    (request,) = hooks.requests
    assert request.body["messages"] == report["messages"]


def test_secrets_of_urls_are_nowhere_in_the_report(play: Play, hooks: Hooks) -> None:
    said = "http://user:s3cret@db.example.com/health?token=s3cret did not answer"
    report = data(messages=[said])
    report["hosts"]["web-0"]["timeline"] = [{"at": None, "what": "failed", "detail": said}]
    run = play(report, report_occasion="restored", report_webhooks=[{"url": hooks.url("/")}])
    assert run.code == 0, run.output
    assert "db.example.com/health" in (run.directory / "latest.html").read_text()
    assert "s3cret" not in "".join((run.directory / name).read_text() for name in run.files)
    assert "s3cret" not in str(hooks.requests)


@pytest.mark.parametrize("entry_point", ["main", "notify"])
def test_webhooks_get_the_occasions_they_asked_for(play: Play, hooks: Hooks, entry_point: str) -> None:
    webhooks = [
        {"url": hooks.url("/default")},
        {"url": hooks.url("/held?token=1"), "events": ["held"], "headers": {"X-Token": "2"}},
        {"url": hooks.url("/failed"), "events": ["failed", "finished"]},
    ]
    run = play(held(), entry_point=entry_point, report_occasion="held", report_webhooks=webhooks)
    assert run.code == 0, run.output
    assert [request.path for request in hooks.requests] == ["/default", "/held?token=1"]
    assert hooks.requests[1].headers["X-Token"] == "2"
    body = hooks.requests[0].body
    assert body["occasion"] == "held"
    assert body["result"] == "held"
    assert body["event_ids"] == [EVENT_ID]
    assert body["text"] == "Azure maintenance held: not approved\nheld: Reboot of web-0\nweb-0 is late"
    assert body["hosts"] == {"web-0": "restored"}
    assert (body["report"] != "") == (entry_point == "main")
    assert len(run.files) == (5 if entry_point == "main" else 1)
    assert run.files[-1] == "told.json"
    assert "webhook 1 of" not in run.output


@pytest.mark.quick("report_webhooks")
def test_every_format_arrives(play: Play, hooks: Hooks) -> None:
    webhooks = [
        {"url": hooks.url("/json")},
        {"url": hooks.url("/slack"), "format": "slack"},
        {"url": hooks.url("/teams"), "format": "teams"},
        {"url": hooks.url("/pagerduty"), "format": "pagerduty", "key": "s3cret"},
    ]
    run = play({**held(), "drill": True}, "-vvv", report_occasion="held", report_webhooks=webhooks)
    assert run.code == 0, run.output
    received = {request.path: request.body for request in hooks.requests}
    assert list(received) == ["/json", "/slack", "/teams", "/pagerduty"]
    assert {request.headers["Content-Type"] for request in hooks.requests} == {"application/json"}
    assert received["/json"]["drill"] is True
    headline = "DRILL: Azure maintenance held: not approved"
    assert received["/slack"]["blocks"][0]["text"]["text"] == headline
    card = received["/teams"]["attachments"][0]["content"]
    assert card["body"][0]["inlines"][0]["text"] == headline
    alert = received["/pagerduty"]
    assert alert["routing_key"] == "s3cret"
    assert alert["event_action"] == "trigger"
    assert alert["dedup_key"] == EVENT_ID
    assert alert["payload"]["summary"] == f"{headline}: held: Reboot of web-0"
    assert "s3cret" not in run.output
    assert run.stats["graceful_was_drill"] is True
    assert "so it is not known how long it would have taken." in run.output

    run = play(data(), report_occasion="restored", report_webhooks=webhooks[3:])
    assert hooks.requests[-1].body["event_action"] == "resolve", run.output
    assert hooks.requests[-1].body["dedup_key"] == EVENT_ID


def test_an_event_is_told_once(play: Play, hooks: Hooks) -> None:
    webhooks = [{"url": hooks.url("/")}]
    for run_id, occasion, told in (("run-1", "noticed", 1), ("run-2", "noticed", 1), ("run-2", "held", 2)):
        run = play(held(run_id), entry_point="notify", report_occasion=occasion, report_webhooks=webhooks)
        assert run.code == 0, run.output
        assert len(hooks.requests) == told, (run_id, occasion)
    noted = json.loads((run.directory / "told.json").read_text())
    assert set(noted[EVENT_ID.lower()]) == {"noticed", "held run-2"}

    play(held("run-2"), entry_point="notify", report_occasion="held", report_webhooks=webhooks, report_dir="")
    assert len(hooks.requests) == 3, "without a report directory it is told again"


def test_what_nobody_took_is_told_again(play: Play, hooks: Hooks) -> None:
    for path in ("/503", "/works"):
        play(held(), entry_point="notify", report_occasion="held", report_webhooks=[{"url": hooks.url(path)}])
    assert [request.path for request in hooks.requests] == ["/503", "/works"]


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
    webhooks: list[t.Any] = [
        {"url": url, "headers": {"X-Key": "s3cret"}, "timeout": 1 if "/hang" in url or "/drip" in url else 60}
        for url in urls
    ]
    webhooks += [{"ulr": "s3cret"}, "s3cret"]
    run = play(data(), "-vvv", report_occasion="restored", report_webhooks=webhooks)
    assert run.code == 0, run.output
    problems = [
        "webhook 1 of 9 (127.0.0.1) answered HTTP 404",
        "webhook 2 of 9 (127.0.0.1) answered HTTP 302, and redirects are not followed",
        "webhook 3 of 9 (127.0.0.1) gave no complete answer in time",
        "webhook 4 of 9 (127.0.0.1) gave no complete answer in time",
        "webhook 5 of 9 (127.0.0.1) refused the connection",
        "webhook 6 of 9: url has to begin with http:// or https:// and to name a host.",
        "webhook 8 of 9 has the key 'ulr', which is not known; did you mean url?",
        "webhook 9 of 9 must be a dictionary. Its keys can be: url, format, key, events, headers, timeout.",
    ]
    # Warnings are wrapped.
    said = re.sub(r"\s", "", run.output)
    assert said.count("[WARNING]:webhook") == len(problems)
    for problem in problems:
        assert f"[WARNING]:{problem.replace(' ', '')}" in said
    assert not [request for request in hooks.requests if request.path.startswith("/followed")]
    at = {request.path.split("/")[1]: request.at for request in hooks.requests}
    assert 0.9 <= at["drip"] - at["hang"] < 10
    assert 0.9 <= at["works"] - at["drip"] < 10
    assert hooks.requests[-1].headers["Authorization"] == "Basic dXNlcjpzM2NyZXQ="
    assert "s3cret" not in run.output


def test_webhooks_that_are_no_list_do_not_fail_the_run(play: Play) -> None:
    run = play(data(), report_occasion="restored", report_webhooks={"url": "s3cret"})
    assert run.code == 0, run.output
    assert "The webhooks have to be a list." in run.output
    assert "s3cret" not in run.output


def test_a_certificate_that_nobody_signed_is_not_accepted(play: Play, hooks: Hooks, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path / "certificate.pem"))
    hooks.socket = context.wrap_socket(hooks.socket, server_side=True)
    run = play(data(), report_occasion="restored", report_webhooks=[{"url": hooks.url("/", scheme="https")}])
    assert run.code == 0, run.output
    # Warnings are wrapped.
    assert "webhook 1 of 1 (127.0.0.1) has a certificate or TLS that was not accepted" in " ".join(run.output.split())
    assert hooks.requests == []


def self_signed(file: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return file


def test_a_proxy_of_the_environment_is_used(play: Play, hooks: Hooks) -> None:
    webhooks = [{"url": "http://chat.example.invalid/hook"}]
    run = play(data(), proxy=hooks.url(""), report_occasion="restored", report_webhooks=webhooks)
    assert run.code == 0, run.output
    assert [request.path for request in hooks.requests] == ["http://chat.example.invalid/hook"]


def test_check_mode_writes_the_report_and_tells_nobody(play: Play, hooks: Hooks) -> None:
    run = play(held(), "--check", "--diff", report_occasion="held", report_webhooks=[{"url": hooks.url("/")}])
    assert run.code == 0, run.output
    assert len(run.files) == 4
    assert hooks.requests == []
    assert "webhook 1 of" not in run.output


def test_only_as_many_reports_as_wanted_are_kept(play: Play) -> None:
    for _dummy in range(2):
        run = play(data(), report_keep=1)
        assert run.code == 0, run.output
    assert len(run.files) == 4


@pytest.mark.parametrize(
    ("result", "announced", "always", "written"),
    [
        ("nothing", False, False, False),
        ("nothing", False, True, True),
        # Only told of, so that nothing was done.
        ("nothing", True, False, True),
        ("deferred", False, False, True),
    ],
)
def test_a_report_is_written_if_something_was_announced(
    play: Play, result: str, announced: bool, always: bool, written: bool
) -> None:
    told = data(result=result, hosts={})
    run = play(told if announced else {**told, "events": []}, report_always=always)
    assert run.code == 0, run.output
    assert bool(run.files) == written
    assert bool(run.stats["graceful_report"]) == written
    assert run.stats["graceful_result"] == result


def test_without_a_directory_nothing_is_written(play: Play) -> None:
    run = play(data(), report_dir="")
    assert run.code == 0, run.output
    assert run.files == []
    assert run.stats["graceful_result"] == "done"
    assert run.stats["graceful_report"] == ""


def test_a_report_that_cannot_be_written_does_not_fail_the_run(play: Play, hooks: Hooks, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    webhooks = [{"url": hooks.url("/")}]
    occupied = str(tmp_path / "occupied" / "reports")
    run = play(data(), report_dir=occupied, report_occasion="restored", report_webhooks=webhooks)
    assert run.code == 0, run.output
    assert len(re.findall(r"web-\d\s+: .*unreachable=0\s+failed=0", run.output)) == 2
    # Warnings are wrapped, in the middle of a path, too.
    said = re.sub(r"\s", "", run.output)
    assert f"Thereportcannotbewrittento{occupied}:Notadirectory" in said
    assert "Thereportdirectorycannotbewritten(Notadirectory),sothenextrunsendsthisagain." in said
    assert len(hooks.requests) == 1
    assert run.stats["graceful_report"] == ""


def test_an_occasion_that_does_not_exist_is_refused(play: Play) -> None:
    run = play(data(), report_occasion="sometimes")
    assert run.code == 2
    assert "value of report_occasion must be one of: noticed, deferred, held, approved, restored," in run.output
