# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role drain from the outside: what it leaves on the host and what it reports. All hosts are this machine."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

Json = dict[str, t.Any]
HERE = Path(os.path.abspath(__file__)).parent
COLLECTIONS = HERE.parents[4]
EVENT_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
HOSTILE = "{{ lookup('ansible.builtin.pipe', 'touch ' ~ reports ~ '/evil') }}"
UNDO = {"undo": True}

# A stand-in for the service manager: what runs has a file, and every order is written down.
SERVICE_MANAGER = """
import json, os, sys
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"name": {"type": "path"}, "state": {"type": "str"}}, supports_check_mode=True)
file, wanted = module.params["name"], module.params["state"] == "started"
if not os.path.isdir(os.path.dirname(file)):
    module.fail_json(msg="Could not find the requested service " + file)
changed = os.path.exists(file) != wanted
if changed and not module.check_mode:
    with open(os.path.dirname(file) + "/orders", "a") as orders:
        orders.write(module.params["state"] + " " + os.path.basename(file) + " ")
    open(file, "w").close() if wanted else os.unlink(file)
module.exit_json(changed=changed)
"""

TASK_FILES: dict[str, list[Json]] = {
    "do": [
        {
            "name": "Do",
            "ansible.builtin.shell": "echo {{ drain_event.event_id }} >> {{ work }}/did",
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
    "unregistered": [{"name": "Look", "ansible.builtin.stat": {"path": "{{ work }}/did"}}],
    "go_down": [
        {
            "name": "Go down",
            "ansible.builtin.copy": {"content": '{"kind": "drop", "times": 99}', "dest": "{{ fate }}", "mode": "0600"},
            "delegate_to": "localhost",
        },
        {"name": "Be gone", "ansible.builtin.stat": {"path": "/"}, "register": "gone"},
    ],
}


def tasks(name: str, do: str = "do", probe: t.Any = "did.stat.exists", **more: t.Any) -> Json:
    return {"name": name, "kind": "tasks", "do": f"{do}.yml", "undo": "undo.yml", "probe": probe, **more}


def health(name: str = "balancer", **more: t.Any) -> Json:
    probing = {"url": "{{ health }}", "marker": "{{ work }}/out", "interval": 0.2, "threshold": 2}
    return {"name": name, "kind": "health_probe", **probing, **more}


@dataclass(frozen=True)
class Case:
    name: str
    steps: t.Any
    turns: t.Sequence[Json] = ({},)
    variables: Json = field(default_factory=dict)
    files: t.Sequence[str] = ()

    def __str__(self) -> str:
        return self.name


class Outcome(t.NamedTuple):
    reports: list[Json]
    folder: Path

    @property
    def report(self) -> Json:
        return self.reports[0]

    @property
    def record(self) -> Json:
        (file,) = (self.folder / "records").glob("*.json")
        found: Json = json.loads(file.read_text())
        return found

    @property
    def noted(self) -> dict[str, str]:
        return {step["name"]: step["status"] for step in self.record["steps"]}

    def statuses(self, number: int = 0) -> dict[str, str]:
        return {step["name"]: step["status"] for step in self.reports[number]["steps"]}


class HealthServer(http.server.ThreadingHTTPServer):
    """Every host's health: 503 if its file `out` is there. A POST to /host/out or /host/in makes and removes it."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(("127.0.0.1", 0), HealthHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HealthHandler(http.server.BaseHTTPRequestHandler):
    server: HealthServer

    def do_GET(self) -> None:
        host = self.path.split("/")[1]
        self._answer(503 if (self.server.folder / host / "out").exists() else 200)

    def do_POST(self) -> None:
        host, way = self.path.split("/")[1:]
        file = self.server.folder / host / "out"
        file.touch() if way == "out" else file.unlink()
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


class Stage:
    """All cases, played at once."""

    def __init__(self, cases: t.Sequence[Case], folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.reports = folder / "reports"
        self.reports.mkdir()
        (folder / "library").mkdir()
        (folder / "library" / "stand_in_service.py").write_text(SERVICE_MANAGER)
        server = HealthServer(folder)
        (folder / "event.json").write_text(json.dumps({"event_id": EVENT_ID, "description": HOSTILE}))
        for name, content in TASK_FILES.items():
            (folder / f"{name}.yml").write_text(yaml.safe_dump(content))
        (folder / "broken.yml").write_text("- name: [")
        inventory = folder / "inventory.json"
        inventory.write_text(json.dumps({"all": {"vars": self._variables(), "hosts": self._hosts(cases, server)}}))
        settings = {
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "plugins" / "connection"),
            "ANSIBLE_LIBRARY": str(folder / "library"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
        }
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-f", "8", "-i", str(inventory)]
        played = subprocess.run(
            [*command, *arguments, str(HERE / "drain.yml")],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.output = played.stdout + played.stderr
        self.code = played.returncode
        server.shutdown()
        server.server_close()

    def _variables(self) -> Json:
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "reports": str(self.reports),
            "work": f"{self.folder}/{{{{ inventory_hostname }}}}",
            "fate": "{{ work }}.fate",
            "drain_record_dir": "{{ work }}/records",
            "drain_seconds": 300,
        }

    def _hosts(self, cases: t.Sequence[Case], server: HealthServer) -> Json:
        hosts = {}
        for case in cases:
            work = self.folder / case.name
            work.mkdir(mode=0o700)
            for name in case.files:
                (work / name).touch()
            own = {"steps": case.steps, "turns": list(case.turns), "health": f"{server.url}/{case.name}/health"}
            hosts[case.name] = {**own, "service": f"{server.url}/{case.name}", **case.variables}
        return hosts

    def outcome(self, case: Case) -> Outcome:
        files = sorted(self.reports.glob(f"{case.name}.[0-9].json"))
        assert len(files) == len(case.turns), self.output[-6000:]
        assert (self.reports / f"{case.name}.here").exists(), f"{case.name} was lost:\n{self.output[-6000:]}"
        return Outcome([json.loads(file.read_text()) for file in files], self.folder / case.name)


EVERYTHING = Case(
    "everything",
    [
        health(),
        {"name": "users", "kind": "connections", "ports": [1]},
        tasks("queue"),
        {
            "name": "daemons",
            "kind": "services",
            "services": ["{{ work }}/front", "{{ work }}/middle", "{{ work }}/back"],
            "use": "stand_in_service",
        },
    ],
    turns=({}, {}, UNDO),
    files=("front", "back"),
)
TAKEN_OVER = Case(
    "taken-over",
    [health(), tasks("queue", undo_probe="gone.yml", probe="probe.yml")],
    turns=({}, {"run": "second", "after": 3}, {"run": "second", "undo": True}),
    variables={"drain_silent_for": 1},
)
LOST_STEP = Case(
    "lost-step",
    [tasks("queue", do="including", probe="probe.yml")],
    turns=({}, {"steps": []}, {"undo": True, "steps": []}, {"undo": True}),
)
PROBE_LOST = Case("probe-lost", [tasks("queue", do="do", probe="lost.yml")], variables={"ansible_connection": "frail"})
PROBE_BLIND = Case("probe-blind", [tasks("queue", probe="unregistered.yml")])
HELD = Case("held", [health()], turns=({}, {"run": "second"}))
FAILED = Case("failed", [health(), tasks("queue", do="fail"), tasks("never")])
PROBE_FAILED = Case("probe-failed", [tasks("queue", do="nothing", probe="1 == 2")])
UNDONE = Case(
    "undone", [health(), tasks("queue", do="fail"), tasks("never")], variables={"drain_undo_on_failure": True}
)
LATE_STEP = Case("late-step", [tasks("slow", do="sleep", timeout=3)])
LATE_MODULE = Case(
    "late-module",
    [health(), {"name": "users", "kind": "connections", "ports": ["{{ busy }}"], "timeout": 15}],
)
SLOW_SUM = Case("slow-sum", [tasks("naps", do="naps", timeout=5)])
NO_TIME = Case("no-time", [tasks("slow", do="sleep")], variables={"drain_seconds": 20})
UNREACHABLE = Case(
    "unreachable",
    [health(), tasks("queue", do="go_down", probe="gone is success"), tasks("never")],
    variables={"ansible_connection": "frail"},
)
GONE = Case("gone", [health()], variables={"ansible_connection": "frail", "fate": "{{ reports }}/../always.fate"})
LOST_BALANCER = Case(
    "lost-balancer",
    [
        health(),
        {
            "name": "balancers",
            "kind": "haproxy",
            "backend": "web",
            "server": "web1",
            "sockets": [{"host": "gone", "socket": "/run/haproxy.sock"}],
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
NOTHING = Case("nothing", [], turns=({}, UNDO))
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
WRONG = [
    (Case("wrong-kind", [health(), {"name": "x", "kind": "reboot"}]), ["'x'", "unknown kind 'reboot'", "health_probe"]),
    (Case("no-module", [health(), tasks("x", do="no_module")]), ["'x'", "no_module.yml", "no_such_module"]),
    (Case("no-import", [health(), tasks("x", do="import")]), ["'x'", "import.yml", "include them instead"]),
    (Case("no-yaml", [health(), tasks("x", do="broken")]), ["'x'", "broken.yml"]),
    (Case("no-list", "health_probe"), ["have to be a list"]),
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
    GONE,
    LOST_BALANCER,
    OUT_BEFORE,
    BY_URL,
    SILENT_URL,
    NOTHING,
    SECRET,
    *(case for case, _words in WRONG),
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Stage]:
    folder = tmp_path_factory.mktemp("drain")
    (folder / "always.fate").write_text('{"kind": "drop", "times": 99}')
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as unused:
        busy, closed = listening.getsockname()[1], unused.getsockname()[1]
        unused.close()
        with socket.create_connection(("127.0.0.1", busy)):
            yield Stage(CASES, folder, "-v", "-e", f"busy={busy}", "-e", f"closed={closed}")


def test_no_host_fails_or_is_lost(stage: Stage) -> None:
    assert stage.code == 0, stage.output[-6000:]


def test_text_from_outside_is_never_a_template(stage: Stage) -> None:
    assert not (stage.reports / "evil").exists()
    assert "touch" in stage.outcome(FAILED).report["reason"]


def test_everything_is_drained_once_and_undone_in_reverse_order(stage: Stage) -> None:
    outcome = stage.outcome(EVERYTHING)
    first, again, undone = outcome.reports
    names = ["balancer", "users", "queue", "daemons"]
    assert first["ready"], first
    assert outcome.statuses() == dict.fromkeys(names, "done")
    assert [mark["what"] for mark in first["timeline"]] == ["draining"] * 5 + ["drained"]
    assert {mark["event_id"] for mark in first["timeline"]} == {EVENT_ID}
    assert again["ready"]
    assert all("done before" in step["message"] for step in again["steps"]), again
    assert undone["ready"]
    assert [step["name"] for step in undone["steps"]] == names[::-1]
    assert outcome.statuses(2) == dict.fromkeys(names, "undone")
    assert outcome.noted == dict.fromkeys(names, "undone")
    assert not (outcome.folder / "did").exists()
    assert not (outcome.folder / "out").exists()


def test_services_go_down_in_order_and_only_those_that_ran_come_up_in_reverse_order(stage: Stage) -> None:
    orders = (stage.outcome(EVERYTHING).folder / "orders").read_text()
    assert orders == "stopped front stopped back started back started front "


def test_a_later_run_takes_over_and_does_nothing_twice(stage: Stage) -> None:
    outcome = stage.outcome(TAKEN_OVER)
    assert [report["ready"] for report in outcome.reports] == [True, True, True]
    assert all("done before" in step["message"] for step in outcome.reports[1]["steps"])
    assert outcome.record["claim"]["run_id"] == "second"
    assert outcome.noted == {"balancer": "undone", "queue": "undone"}


def test_tasks_that_nobody_defines_any_more_are_not_undone_on_the_word_of_the_record(stage: Stage) -> None:
    outcome = stage.outcome(LOST_STEP)
    assert not outcome.reports[2]["ready"]
    assert "not among the drain steps any more. Define it again" in outcome.reports[2]["reason"]
    assert outcome.reports[3]["ready"], outcome.reports[3]["reason"]
    assert not (outcome.folder / "did").exists()


def test_a_probe_that_never_reached_the_host_proves_nothing(stage: Stage) -> None:
    report = stage.outcome(PROBE_LOST).report
    assert not report["ready"]
    assert "could not be reached by the probe" in report["reason"]


def test_a_probe_that_could_not_tell_is_refused(stage: Stage) -> None:
    outcome = stage.outcome(PROBE_BLIND)
    assert not outcome.report["ready"]
    assert "registers nothing" in outcome.report["reason"]
    assert not (outcome.folder / "did").exists()


def test_what_another_run_holds_is_left_to_it(stage: Stage) -> None:
    report = stage.outcome(HELD).reports[1]
    assert not report["ready"]
    assert "in the hands of" in report["reason"]
    assert report["steps"] == []


def test_a_failed_step_ends_the_drain_and_leaves_what_is_drained(stage: Stage) -> None:
    outcome = stage.outcome(FAILED)
    assert not outcome.report["ready"]
    assert outcome.report["reason"].startswith("Step 'queue' (tasks) failed:")
    assert outcome.statuses() == {"balancer": "done", "queue": "failed"}
    assert outcome.noted == {"balancer": "done", "queue": "failed"}
    assert (outcome.folder / "out").exists()


def test_a_step_whose_probe_does_not_pass_has_failed(stage: Stage) -> None:
    outcome = stage.outcome(PROBE_FAILED)
    assert not outcome.report["ready"]
    assert outcome.statuses() == {"queue": "failed"}, outcome.report
    assert "probe did not pass" in outcome.report["reason"]


def test_a_failed_drain_is_undone_where_that_is_wished_and_still_not_ready(stage: Stage) -> None:
    outcome = stage.outcome(UNDONE)
    assert not outcome.report["ready"]
    assert "what was done is undone" in outcome.report["reason"]
    assert outcome.noted == {"balancer": "undone", "queue": "undone"}
    assert not (outcome.folder / "out").exists()


@pytest.mark.parametrize("case", [LATE_STEP, LATE_MODULE, SLOW_SUM, NO_TIME], ids=str)
def test_a_step_does_not_outlive_its_time(stage: Stage, case: Case) -> None:
    outcome = stage.outcome(case)
    last = outcome.report["steps"][-1]
    assert not outcome.report["ready"]
    assert last["status"] == "late", outcome.report
    assert " was late: " in outcome.report["reason"]
    # On a slow machine the time may be over before it was begun.
    assert outcome.noted.get(last["name"], "failed") == "failed"
    assert not (outcome.folder / "woke").exists()


def test_connections_that_are_left_are_named(stage: Stage) -> None:
    assert "1 connection on" in stage.outcome(LATE_MODULE).report["reason"]
    assert "from 127.0.0.1" in stage.outcome(LATE_MODULE).report["reason"]


def test_a_host_that_goes_down_in_the_middle_is_not_ready(stage: Stage) -> None:
    outcome = stage.outcome(UNREACHABLE)
    assert not outcome.report["ready"]
    assert outcome.statuses() == {"balancer": "done", "queue": "failed"}
    assert "could not be reached" in outcome.report["reason"]
    assert outcome.noted == {"balancer": "done", "queue": "doing"}


def test_a_host_that_is_gone_is_not_ready(stage: Stage) -> None:
    report = stage.outcome(GONE).report
    assert not report["ready"]
    assert "could not be reached" in report["reason"]


def test_a_balancer_that_is_gone_makes_the_host_not_ready(stage: Stage) -> None:
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


def test_passwords_are_neither_shown_nor_kept(stage: Stage) -> None:
    outcome = stage.outcome(SECRET)
    assert not outcome.report["ready"]
    assert "hunter2" not in stage.output
    kept = [file.read_text() for file in (outcome.folder / "records").glob("**/*.json")]
    assert "hunter2" not in json.dumps([outcome.report, kept])


@pytest.mark.parametrize(("case", "words"), WRONG, ids=[str(case) for case, _words in WRONG])
def test_a_wrong_step_is_refused_before_anything_is_touched(stage: Stage, case: Case, words: list[str]) -> None:
    outcome = stage.outcome(case)
    assert not outcome.report["ready"]
    for word in words:
        assert word in outcome.report["reason"]
    assert list(outcome.folder.iterdir()) == []


def test_check_mode_touches_nothing_and_is_not_ready(tmp_path: Path) -> None:
    case = Case("checked", [health(), tasks("queue")], turns=({}, UNDO))
    stage = Stage([case], tmp_path, "--check")
    outcome = stage.outcome(case)
    assert stage.code == 0, stage.output[-6000:]
    assert not outcome.report["ready"]
    assert outcome.statuses() == {"balancer": "skipped", "queue": "skipped"}
    assert list(outcome.folder.iterdir()) == []
