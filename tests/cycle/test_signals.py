# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run says, to whom, and what it keeps to itself."""

from __future__ import annotations

import http.server
import json
import re
import sys
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import PATIENCE, Fleet
from ansible_collections.graceful.azure.tests.tools.launcher import INTEGRATION

SECRET = "hunter2"
# In the place of Python's own module: what goes to the system log, each message in a line.
SYSTEM_LOG = """
LOG_INFO = LOG_NOTICE = LOG_USER = 1
openlog = closelog = lambda *_given: None
def syslog(*given):
    with open({log!r}, "a") as file:
        print(repr(given[-1]), file=file)
"""


class Hooks(http.server.ThreadingHTTPServer):
    """Takes what webhooks post, and is healthy unless a marker is there."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, t.Any]] = []
        self.asked: list[str] = []
        self.marker = Path("/nonexistent")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def occasions(self) -> list[str]:
        return [body["occasion"] for body in self.bodies]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(200)

    def do_GET(self) -> None:
        self._answer(503 if self.path.startswith("/health") and self.server.marker.exists() else 200)

    def _answer(self, status: int) -> None:
        self.server.asked.append(self.path)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_given: t.Any) -> None:
        pass


@pytest.fixture
def hooks() -> t.Iterator[Hooks]:
    with Hooks() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_plan_and_recap_are_seen_where_tasks_that_went_well_are_not_shown(fleet: Fleet) -> None:
    fleet.settings["ANSIBLE_DISPLAY_OK_HOSTS"] = "no"
    fleet.announce("web1")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert run.output.count("drain, then approve (rule") == 1, run.output
    assert run.output.count("completed: Reboot of web1, approved by web1, took") == 1, run.output
    assert "Report: " in run.output


def test_an_event_of_a_host_that_nobody_wrote_down_how_to_drain_is_held_and_that_is_seen(fleet: Fleet) -> None:
    fleet.settings["ANSIBLE_DISPLAY_OK_HOSTS"] = "no"
    fleet.variables["web1"]["graceful_drain_steps"] = None
    fleet.announce("web1", "web2")
    run = fleet.run()
    assert run.status == 2, run.output[-4000:]
    reason = "nothing is drained on web1: graceful_drain_steps is not set"
    held = f": HELD, not approved, because {reason}."
    assert run.output.count(held) == 1, run.output
    assert f"  because {reason}." in run.messages
    assert "drain now" not in run.output
    assert fleet.log("web2") == []
    assert fleet.posts() == []


def test_a_host_that_is_not_reached_or_not_in_the_run_is_called_by_its_name(fleet: Fleet) -> None:
    """One told its Azure name to an earlier run, of the other the inventory plugin azure_rm knows it."""
    assert fleet.run("--limit", "web1,web2").report["result"] == "nothing"
    fleet.drop("web2")
    azure_rm = {"name": "shop_2", "vmid": "13f56399-bd52-4150-9748-7190aae1ff21"}
    fleet.variables["web3"].update(azure_rm)
    fleet.announce("web1", "web2", "web3")
    run = fleet.run("--check", "--limit", "web1,web2")
    # web2 could not be asked.
    assert run.status == 2, run.output[-4000:]
    assert "web2 cannot be reached" in run.messages, run.messages
    assert "web3 is outside this run (--limit or graceful_hosts)" in run.messages, run.messages
    assert "no inventory host" not in run.output


def catch_system_log(fleet: Fleet, host: str) -> Path:
    """Where all goes from now on that modules write to the system log; Ansible itself writes their options there."""
    log, program, stand_in = (fleet.directory / f"{host}.{name}" for name in ("log", "python", "modules"))
    stand_in.mkdir()
    (stand_in / "syslog.py").write_text(SYSTEM_LOG.format(log=str(log)))
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{stand_in}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    fleet.variables[host]["ansible_python_interpreter"] = str(program)
    return log


def test_the_secrets_of_urls_are_in_no_output_record_log_report_or_message(fleet: Fleet, hooks: Hooks) -> None:
    system_log = catch_system_log(fleet, "web1")
    url = f"http://{hooks.address}/health?key={SECRET}"
    hooks.marker = fleet.home("web1") / "out"
    probe = {"name": "probe", "kind": "health_probe", "url": url, "marker": str(hooks.marker), "interval": 0.2}
    told = str(fleet.home("web1") / "told")
    do = ["sh", "-c", 'touch "$0"', told, f"http://me:{SECRET}@{hooks.address}/"]
    called = {"name": "told", "kind": "command", "do": do, "undo": ["rm", told], "probe": ["test", "-e", told]}
    fleet.common["graceful_drain_steps"] = [*fleet._defaults()["graceful_drain_steps"], probe, called]
    fleet.common["graceful_health"] = [{"url": f"http://{hooks.address}/well?key={SECRET}"}]
    fleet.common["graceful_webhooks"] = [{"url": f"http://me:{SECRET}@{hooks.address}/hook?key={SECRET}"}]
    fleet.announce("web1", Description=f"see http://me:{SECRET}@127.0.0.1/?key={SECRET}", started_for=1)
    run = fleet.run("-vvv")
    assert run.status == 0, run.output[-4000:]
    assert hooks.occasions == ["noticed", "approved", "restored"]
    assert {f"/health?key={SECRET}", f"/well?key={SECRET}"} < set(hooks.asked)
    assert SECRET not in json.dumps(hooks.bodies)
    logged = system_log.read_text()
    assert "Invoked with" in logged
    assert "/health?" in logged
    assert "draining" in logged
    written = {path for path in fleet.directory.rglob("*") if path.is_file()}
    # What the user and the emulator have written themselves.
    own = {fleet.directory / "inventory.yml", fleet.directory / "journal"}
    assert [str(path) for path in written - own if SECRET.encode() in path.read_bytes()] == []


def test_an_event_that_needs_nothing_is_told_once_and_only_json_goes_to_a_callback_that_prints_it(
    fleet: Fleet, hooks: Hooks
) -> None:
    fleet.common["graceful_webhooks"] = [{"url": f"http://{hooks.address}/"}]
    fleet.announce("web1", EventType="Freeze", DurationInSeconds=5)
    fleet.settings["ANSIBLE_STDOUT_CALLBACK"] = "as_json"
    fleet.settings["ANSIBLE_CALLBACK_PLUGINS"] = str(INTEGRATION / "plugins" / "callback")
    launch = fleet.launch("maintenance", fleet.directory / "reports", [])
    output, errors = launch.home / "output", launch.home / "errors"
    assert launch.start(output, errors).wait(PATIENCE) == 0, errors.read_text()
    assert json.loads(output.read_text()), "nothing else is printed there"
    assert "notify only (rule 'short freeze')" in errors.read_text()
    assert "Recap:" in errors.read_text()
    fleet.settings.clear()
    again = fleet.run()
    assert again.status == 0, again.output[-4000:]
    assert again.output.count("notified: Freeze of web1") == 1, "the recap is printed once"
    assert [(body["occasion"], body["result"]) for body in hooks.bodies] == [("noticed", "nothing")]
    assert fleet.log("web1") == []


def test_a_mistake_in_the_policy_of_some_hosts_holds_their_events_and_nothing_else(fleet: Fleet, hooks: Hooks) -> None:
    fleet.common["graceful_webhooks"] = [{"url": f"http://{hooks.address}/", "events": ["held", "restored"]}]
    fleet.common["graceful_min_available"] = {"wbe": 1}
    fleet.variables["web3"]["graceful_policy"] = [{"event_type": "Reboot", "action": "drain_and_aprove"}]
    approved, held = fleet.announce("web1"), fleet.announce("web3")
    run = fleet.run()
    assert run.status == 2, run.output[-4000:]
    outcomes = {event["event_id"]: event["outcome"] for event in run.report["events"]}
    assert outcomes == {approved: "completed", held: "held"}
    mistake = "web3: graceful_policy: Rule 1 of the policy: action must be one of"
    assert mistake in run.messages, run.messages
    assert "graceful_min_available names the group 'wbe', which the inventory does not have" in run.messages
    assert run.output.count("  held: Reboot of web3") == 1, "the recap is printed once"
    assert [(body["occasion"], body["event_ids"]) for body in hooks.bodies] == [
        ("held", [held]),
        ("restored", [approved]),
    ]
    assert mistake in hooks.bodies[0]["text"]
    assert "\\" not in hooks.bodies[0]["text"], "no escapes"
    assert fleet.log("web3") == []


def test_tags_that_would_leave_something_out_are_refused(fleet: Fleet) -> None:
    fleet.announce("web1")
    run = fleet.run("--tags", "drain")
    assert run.status == 2
    sentence = "--tags drain and --skip-tags none would skip parts of the maintenance"
    # Ansible itself says an error once above the result, and once in it.
    assert 1 <= run.output.count(sentence) <= 2, run.output
    assert fleet.record("web1") is None


def test_a_wrong_value_is_quoted_as_it_is_although_it_looks_like_a_template(fleet: Fleet) -> None:
    run = fleet.run("-e", json.dumps({"graceful_wait": "{{ '{{' }} soon"}))
    assert run.status == 2, run.output[-4000:]
    assert "graceful_wait must be a number of seconds, up to 86400, not '{ { soon'" in run.output
    assert "\\x7b" not in run.output


def test_check_mode_notices_a_task_file_that_is_not_there(fleet: Fleet) -> None:
    fleet.variables["web2"]["graceful_drain_steps"] = [
        {"name": "own", "kind": "tasks", "do": "no.yml", "undo": "no.yml", "probe": "1"}
    ]
    run = fleet.run("--check")
    assert run.status == 2, run.output[-4000:]
    assert re.search(r"web2: .*'no\.yml', which does not exist. Searched: ", run.messages), run.messages


def test_a_host_pattern_under_a_name_that_does_not_exist_ends_the_run_or_holds(fleet: Fleet) -> None:
    """`graceful_host` is what the role itself registers."""
    fleet.announce("web1")
    run = fleet.run("-e", "graceful_host=web1")
    assert run.status == 2, run.output[-4000:]
    assert "graceful_host is set, but there is no such variable. Did you mean graceful_hosts?" in run.output
    assert "has no attribute" not in run.output
    fleet.variables["web1"]["graceful_host"] = "web1"
    run = fleet.run()
    assert run.status == 2, run.output[-4000:]
    assert "web1: graceful_host is set, but there is no such variable. Did you mean graceful_hosts?" in run.messages
    assert fleet.log("web1") == []
    assert fleet.posts() == []


def test_check_mode_ends_with_2_if_something_is_written_wrong_although_nothing_is_announced(fleet: Fleet) -> None:
    fleet.variables["web2"]["graceful_polcy"] = []
    run = fleet.run("--check")
    assert run.status == 2, run.output[-4000:]
    assert "web2: graceful_polcy is set, but there is no such variable. Did you mean graceful_policy?" in run.messages


def test_a_host_is_put_back_if_no_eviction_follows_a_recommendation(fleet: Fleet) -> None:
    rule = {"event_type": "SpotRebalanceRecommendation", "action": "drain", "expires_after": 10}
    fleet.common.update(graceful_api_version="auto", graceful_policy=[rule])
    fleet.announce("web1", EventType="SpotRebalanceRecommendation")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert "put back because nothing followed within 10 s" in run.messages, run.messages
    assert fleet.happened("cancelled") == [], "it still stands"
    again = fleet.run()
    assert again.report["events"][0]["outcome"] == "notified", again.messages
    assert [what for _at, what in fleet.log("web1")] == ["drained", "back"]
    assert not fleet.is_drained("web1")
