# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles prepare and drill, from the collection's playbooks and from the six lines of a project's own."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import sys
import textwrap
import threading
import typing as t
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import HERE, Fleet, Run

Json = dict[str, t.Any]
CONSENT = ("-e", "graceful_drill_consent=yes")
SHARE = "graceful_min_available does not allow all targets to be drained at once"

PREPARE = """
- name: Prepare
  hosts: all
  gather_facts: false
  ignore_unreachable: true
  roles:
    - role: graceful.azure.prepare
"""
DRILL = """
- name: Drill
  hosts: all
  gather_facts: false
  roles:
    - role: graceful.azure.drill
"""


def asked(fleet: Fleet) -> set[str]:
    """The VMs whose metadata service was asked for events."""
    return {line["vm"] for line in fleet.journal() if line["kind"] == "request" and "scheduledevents" in line["path"]}


def project(fleet: Fleet, **playbooks: str) -> Path:
    """A project of a user: playbooks, group_vars beside them, and task files that are named relative to them."""
    place = fleet.directory / "project"
    (place / "group_vars").mkdir(parents=True, exist_ok=True)
    (place / "tasks").mkdir(exist_ok=True)
    for name, text in playbooks.items():
        (place / f"{name}.yml").write_text(f"---{text}")
    for name in ("drain", "undrain", "probe"):
        (place / "tasks" / f"{name}.yml").write_text((HERE / f"{name}.yml").read_text())
    return place


class TestPrepare:
    @pytest.mark.quick("role:prepare", "readiness")
    def test_it_says_who_is_ready_and_what_stands_in_the_way(self, fleet: Fleet) -> None:
        fleet.variables["web2"]["graceful_endpoint"] = "http://127.0.0.1:1"
        fleet.drop("web3")
        run = fleet.run(playbook="prepare")
        assert run.status == 2
        assert "1 of 3 hosts are ready. Repeat this within 24 hours" in run.output
        assert "web2: The metadata service at http://127.0.0.1:1 cannot be reached" in run.output
        assert "that graceful_endpoint is correct." in run.output
        assert "web3: The host cannot be reached" in run.output
        assert "graceful_drain_steps" not in run.output
        names = json.loads((fleet.directory / "reports" / "azure-names.json").read_text())
        assert names == {"web1": "shop_0"}

    def test_hosts_that_a_condition_leaves_out_are_not_judged(self, fleet: Fleet) -> None:
        playbook = project(fleet, prepare=f"{PREPARE}      when: inventory_hostname != 'web3'\n") / "prepare.yml"
        run = fleet.run(playbook=str(playbook))
        assert run.status == 0, run.output[-4000:]
        assert "2 of 2 hosts are ready" in run.output

    def test_it_finds_everything_that_is_written_wrong_and_asks_all_the_same(self, fleet: Fleet) -> None:
        (fleet.home("web1") / "records").write_text("not a directory")
        fleet.variables["web1"]["graceful_window"] = {"start": "25:00", "end": "05:00"}
        fleet.variables["web2"]["graceful_drain_steps"] = [{"name": "app", "kind": "service", "services": ["app"]}]
        fleet.variables["web2"]["graceful_min_available"] = "{{ nothing_of_that_name }}"
        fleet.variables["web2"]["graceful_health"] = [{"prot": 80}]
        saved = {"name": "own", "kind": "tasks", "file": "no.yml", "probe": "1"}
        fleet.variables["web3"].update(graceful_checkpoint=[saved], graceful_drain_stpes=[], graceful_wait="soon")
        fleet.common["graceful_policy"] = [{"action": "aprove"}]
        run = fleet.run(playbook="prepare")
        assert run.status == 2
        assert "Traceback" not in run.output
        for said in (
            "/records is not a directory. Move it away, or set another graceful_record_dir.",
            "web1: graceful_window: ",
            "web2: graceful_drain_steps: Drain step 'app' has the unknown kind 'service'",
            "web2: graceful_min_available cannot be evaluated",
            "web2: graceful_health[0] has the key 'prot', which is not known; did you mean port?",
            "web3: graceful_drain_stpes is set, but there is no such variable. Did you mean graceful_drain_steps?",
            "web3: graceful_wait must be a number of seconds",
            "'no.yml', which does not exist. Searched: ",
            "web1, web2 and web3: graceful_policy: Rule 1 of the policy: action must be one of",
            "0 of 3 hosts are ready",
        ):
            assert said in run.output
        assert asked(fleet) == set(fleet.names.values())

    def test_who_is_asked_where_is_written_right_or_the_host_is_not_asked_at_all(self, fleet: Fleet) -> None:
        """With the default of what is wrong it would ask somebody else. (Not the endpoint: nothing may leave here.)"""
        fleet.variables["web1"]["graceful_record_dir"] = "records"
        fleet.announce("web1")
        prepared = fleet.run(playbook="prepare")
        assert prepared.status == 2
        assert "web1: it was not asked: graceful_record_dir must be an absolute path" in prepared.output
        run = fleet.run()
        assert run.status == 2, run.output[-4000:]
        assert "it was not asked: graceful_record_dir must be" in run.output
        assert asked(fleet) == {"shop_1", "shop_2"}

    def test_it_warns_of_what_would_be_held_and_of_what_protects_nothing(self, fleet: Fleet) -> None:
        fleet.common["graceful_drain_steps"] = None
        fleet.variables["web2"]["graceful_drain_steps"] = []
        fleet.common["graceful_policy"] = [{"action": "notify", "group": ["web", "wbe"]}]
        fleet.common["graceful_min_available"] = {"web": 1, "bew": 1}
        run = fleet.run(playbook="prepare")
        assert run.status == 0, run.output[-4000:]
        assert (
            "nothing is drained on web1 and web3: graceful_drain_steps is not set; their events are held" in run.output
        )
        assert "graceful_policy names 'wbe', which the inventory does not have: the rule never matches" in run.output
        assert (
            "graceful_min_available names 'bew', which the inventory does not have: it protects nothing" in run.output
        )
        assert "restarts from the portal or the CLI wait for an approval" in run.output
        assert "3 of 3 hosts are ready" in run.output

    def test_check_mode_writes_nothing(self, fleet: Fleet) -> None:
        run = fleet.run("--check", playbook="prepare")
        assert run.status == 0, run.output[-4000:]
        assert not (fleet.home("web1") / "records").exists()
        assert not (fleet.directory / "reports" / "azure-names.json").exists()

    def test_a_pattern_without_hosts_is_no_success(self, fleet: Fleet) -> None:
        run = fleet.run("-e", "graceful_hosts=nobody", playbook="prepare")
        assert run.status == 2
        assert "graceful_hosts is nobody, but the inventory has no such host or group" in run.output

    @pytest.mark.parametrize("tags", [("--tags", "drain"), ("--skip-tags", "untagged")])
    def test_tags_that_would_leave_something_out_are_refused(self, fleet: Fleet, tags: tuple[str, str]) -> None:
        run = fleet.run(*tags, playbook="prepare")
        assert run.status == 2, run.output[-4000:]
        assert "would skip parts of the preparation" in run.output
        assert asked(fleet) == set()

    def test_one_call_for_each_host(self, fleet: Fleet) -> None:
        fleet.variables["web1"]["ansible_python_interpreter"] = counting(fleet.home("web1"))
        assert fleet.run(playbook="prepare").status == 0
        assert len((fleet.home("web1") / "calls").read_text().splitlines()) == 1

    def test_the_library_is_installed_where_it_is_missing(self, fleet: Fleet) -> None:
        """The package module is the project's own, and all that it does is to make the library visible."""
        for host in ("web1", "web2"):
            fleet.variables[host]["ansible_python_interpreter"] = without_libraries(fleet.home(host))
        fleet.variables["web2"]["prepare_packages"] = ["not-there"]
        with_module = PREPARE.replace(
            "roles:", "module_defaults: {package: {use: ansible.legacy.own_package}}\n  roles:"
        )
        place = project(fleet, prepare=with_module)
        (place / "library").mkdir()
        (place / "library" / "own_package.py").write_text(textwrap.dedent(OWN_PACKAGE))
        run = fleet.run(playbook=str(place / "prepare.yml"))
        assert run.status == 0, run.output[-4000:]
        assert "3 of 3 hosts are ready" in run.output
        assert "Warning: web2: The Python library (requests) is missing for " in run.output
        assert (
            "It could not be installed: no package not-there. Only the three modules scheduled_… need it" in run.output
        )
        assert "web1: The Python library" not in run.output
        assert asked(fleet) == set(fleet.names.values())


OWN_PACKAGE = """
    from ansible.module_utils.basic import AnsibleModule
    import os
    import sys

    module = AnsibleModule({"name": {"type": "list"}, "state": {}, "use": {}})
    if module.params["name"] != ["python3-requests"]:
        module.fail_json(msg="no package " + module.params["name"][0])
    open(os.environ["GRACEFUL_TEST_LIBRARIES"], "w").close()
    module.exit_json(changed=True)
"""


def counting(home: Path) -> str:
    """A Python that writes down each time that it is called."""
    python = home / "python"
    python.write_text(f'#!/bin/sh\necho called >> "{home}/calls"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def without_libraries(home: Path) -> str:
    """A Python without any library, until somebody makes the file `libraries`."""
    python, libraries = home / "python", home / "libraries"
    python.write_text(
        f'#!/bin/sh\nexport GRACEFUL_TEST_LIBRARIES="{libraries}"\n'
        f'if [ -e "{libraries}" ]; then exec "{sys.executable}" "$@"; fi\nexec "{sys.executable}" -S -E "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


@pytest.fixture
def drilled(fleet: Fleet) -> Fleet:
    """A fleet that knows where its drills take place."""
    fleet.common.update(
        graceful_drill_address="127.0.0.1",
        graceful_drill_port=0,
        graceful_drill_control_port=0,
        graceful_drill_dir=str(fleet.directory / "drill"),
        graceful_drill_run_by="process",
        graceful_drill_duration=1,
    )
    return fleet


def start_event(fleet: Fleet) -> None:
    """Let the drill's emulator start what it has announced."""
    place = fleet.directory / "drill"
    control = json.loads((place / "ready.json").read_text())["control"]
    journal = [json.loads(line) for line in (place / "journal.jsonl").read_text().splitlines()]
    (event_id,) = [line["EventId"] for line in journal if line.get("what") == "published"]
    body = json.dumps({"EventId": event_id}).encode()
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{control}/start", body, timeout=20).close()


def stop_emulator(fleet: Fleet) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(json.loads((fleet.directory / "drill" / "ready.json").read_text())["pid"], signal.SIGTERM)


def check_over(fleet: Fleet) -> None:
    """The emulator was started and is stopped, the hosts are in service, and Azure was never told anything."""
    assert (fleet.directory / "drill" / "journal.jsonl").exists()
    assert not (fleet.directory / "drill" / "ready.json").exists()
    assert fleet.posts() == []
    fleet.check_all_back()


def check_not_begun(fleet: Fleet, run: Run) -> None:
    assert run.status == 2
    assert "Traceback" not in run.output
    assert not (fleet.directory / "drill").exists()
    assert all(fleet.log(host) == [] for host in fleet.names)


class Hook(t.NamedTuple):
    url: str
    bodies: list[Json]


@contextlib.contextmanager
def webhook() -> t.Iterator[Hook]:
    bodies: list[Json] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: t.Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Hook(f"http://127.0.0.1:{server.server_address[1]}/", bodies)
        server.shutdown()


class TestDrill:
    @pytest.mark.quick("role:drill", "role:emulator", "drill_plan")
    def test_it_says_whether_we_would_have_made_it_and_that_it_was_a_drill(self, drilled: Fleet) -> None:
        check_not_begun(drilled, refused := drilled.run(playbook="drill"))
        assert "graceful_drill_consent=yes" in refused.output
        # Neither a name that the hosts have in Azure nor an endpoint, wherever it is written, matters in a drill.
        drilled.variables["web1"]["graceful_vm_name"] = "shop_0"
        endpoint = ("-e", "graceful_endpoint=http://127.0.0.1:1")
        with webhook() as hook:
            drilled.common["graceful_webhooks"] = [{"url": hook.url}]
            run = drilled.run(*CONSENT, *endpoint, playbook="drill")
        assert run.status == 0, run.output[-4000:]
        assert "Reboot (15 min of notice): in time" in run.output
        assert "Preempt (30 s of notice): " in run.output
        assert "This was a drill" in run.output
        assert [what for _at, what in drilled.log("web3")] == ["drained", "back"]
        check_over(drilled)
        report = run.report
        assert (report["drill"], report["result"]) == (True, "done")
        assert report["messages"][0].startswith("This was a drill")
        margin = report["margin"]
        assert 0 <= margin["noticed"] <= margin["ready"] <= margin["approved"] <= 900
        assert margin["notices"]["Reboot"]["spare"] == 900 - margin["approved"]
        page = (drilled.directory / "reports" / "latest.html").read_text()
        assert "<h1>Drill: Maintenance done</h1>" in page
        assert "Reboot (15 min of notice): in time" in page
        assert page.count("This was a drill") == 1
        assert hook.bodies
        assert all(body["text"].startswith("DRILL: ") and body["drill"] for body in hook.bodies)
        records = list((drilled.home("web1") / "records" / "history").glob("*.json"))
        (record,) = [json.loads(file.read_text()) for file in records]
        (entry,) = record["events"].values()
        assert entry["claim"]["run_name"].startswith("drill, ")
        assert entry["event"]["description"] == "A drill. Nothing is going to be rebooted."
        assert not (drilled.directory / "reports" / "azure-names.json").exists()

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((*CONSENT, "--check"), "In check mode there is nothing to drill"),
            ((*CONSENT, "-e", "graceful_drill_targets=web1,web9"), "names web9, which is not part of this drill"),
        ],
    )
    def test_what_cannot_be_drilled_is_refused(self, drilled: Fleet, arguments: tuple[str, ...], said: str) -> None:
        run = drilled.run(*arguments, playbook="drill")
        check_not_begun(drilled, run)
        assert said in run.output

    def test_where_the_targets_do_not_fit_it_says_which_would(self, drilled: Fleet) -> None:
        drilled.common["graceful_min_available"] = {"web": 2}
        run = drilled.run(*CONSENT, playbook="drill")
        check_not_begun(drilled, run)
        assert "group 'web' would have 0 of 3 hosts available, 2 are required" in run.output
        assert "These can be: -e graceful_drill_targets=web1." in run.output
        run = drilled.run(*CONSENT, "-e", "graceful_drill_targets=web2", playbook="drill")
        assert run.status == 0, run.output[-4000:]
        assert [drilled.log(host) != [] for host in drilled.names] == [False, True, False]
        check_over(drilled)

    def test_real_maintenance_comes_first(self, drilled: Fleet) -> None:
        drilled.announce("web1")
        run = drilled.run(*CONSENT, playbook="drill")
        check_not_begun(drilled, run)
        assert "web1: Azure has announced a Reboot" in run.output

    def test_a_host_that_nobody_put_back_is_left_alone(self, drilled: Fleet) -> None:
        drilled.announce("web2")
        killed = drilled.run(kill_when=lambda: drilled.is_drained("web2"))
        assert killed.status != 0
        left = drilled.record("web2")
        assert left is not None
        (event_id,) = left["events"]
        drilled.control("cancel", {"EventId": event_id.upper()})
        run = drilled.run(*CONSENT, "-e", "graceful_force_claim=true", playbook="drill")
        assert run.status == 2
        assert "has not put it back after Reboot" in run.output
        assert drilled.is_drained("web2")

    def test_a_host_that_does_not_drain_ends_it_with_an_error_and_the_others_come_back(self, drilled: Fleet) -> None:
        drilled.variables["web2"]["misbehaviour"] = "fail"
        # As if NotBefore had come.
        with drilled.once(lambda: drilled.said("HELD, not approved"), lambda: start_event(drilled)):
            run = drilled.run(*CONSENT, playbook="drill")
        assert run.status == 2, run.output[-4000:]
        assert run.report["drill"] is True
        assert run.report["events"][0]["outcome"] == "held"
        assert "The service does not stop." in run.messages
        assert "The drill was not completed (result: " in run.output
        assert "it is not known how long it would have taken" in run.output
        assert [what for _at, what in drilled.log("web1")] == ["drained", "back"]
        assert drilled.log("web2") == []
        check_over(drilled)

    def test_an_event_that_starts_before_the_hosts_are_ready_is_no_success(self, drilled: Fleet) -> None:
        drilled.common["misbehaviour"] = "wait"

        def act() -> None:
            start_event(drilled)
            for host in drilled.names:
                (drilled.home(host) / "go-on").touch()

        with drilled.once(lambda: all(map(drilled.is_drained, drilled.names)), act):
            run = drilled.run(*CONSENT, playbook="drill")
        assert run.status == 2, run.output[-4000:]
        assert (run.report["result"], run.report["margin"]["notices"]) == ("failed", {})
        assert "it is not known how long it would have taken" in run.output
        check_over(drilled)

    def test_the_emulator_is_stopped_also_if_the_maintenance_cannot_even_begin(self, drilled: Fleet) -> None:
        drilled.variables["web1"]["graceful_wait"] = "soon"
        run = drilled.run(*CONSENT, "-e", "graceful_drill_targets=web2", playbook="drill")
        assert run.status == 2
        assert "graceful_wait must be a number of seconds" in run.output
        assert drilled.log("web2") == []
        check_over(drilled)

    def test_an_emulator_that_cannot_start_ends_the_drill(self, drilled: Fleet) -> None:
        drilled.common["graceful_drill_control_port"] = int(drilled.ready["control"].rpartition(":")[2])
        run = drilled.run(*CONSENT, playbook="drill")
        assert run.status == 2
        assert "The emulator did not start: " in run.output
        assert "Traceback" not in run.output
        assert all(drilled.log(host) == [] for host in drilled.names)

    def test_an_eviction_has_a_margin_although_nothing_is_approved(self, drilled: Fleet) -> None:
        # Longer than Azure's, so that a slow machine still gets ready; the margin is against Azure's.
        preempt = ("-e", "graceful_drill_event=Preempt", "-e", "graceful_drill_notice=600")
        with drilled.once(lambda: "ready" in drilled.marks("web1"), lambda: start_event(drilled)):
            run = drilled.run(*CONSENT, *preempt, "-e", "graceful_drill_targets=web1", playbook="drill")
        assert run.status == 0, run.output[-4000:]
        assert run.report["events"][0]["outcome"] == "drained"
        assert "after the announcement" in run.output
        assert run.report["margin"]["approved"] is None
        assert run.report["margin"]["notices"]["Preempt"]["needed"] == run.report["margin"]["ready"]
        check_over(drilled)

    def test_a_deletion_is_an_event_of_its_own_for_each_host(self, drilled: Fleet) -> None:
        run = drilled.run(*CONSENT, "-e", "graceful_drill_event=Terminate", playbook="drill")
        assert run.status == 0, run.output[-4000:]
        assert [event["outcome"] for event in run.report["events"]] == ["completed"] * 3
        assert "Terminate (5 min of notice): in time" in run.output
        check_over(drilled)


def test_a_projects_own_six_lines_see_its_group_vars_and_task_files(drilled: Fleet) -> None:
    place = project(drilled, prepare=PREPARE, drill=DRILL)
    step = {"name": "service", "kind": "tasks", "do": "drain.yml", "undo": "undrain.yml", "probe": "tasks/probe.yml"}
    drilled.common["graceful_drain_steps"] = "{{ steps_of_the_project }}"
    (place / "group_vars" / "web.yml").write_text(json.dumps({"steps_of_the_project": [step]}))
    run = drilled.run(playbook=str(place / "prepare.yml"))
    assert run.status == 0, run.output[-4000:]
    assert "3 of 3 hosts are ready" in run.output
    run = drilled.run(*CONSENT, playbook=str(place / "drill.yml"))
    assert run.status == 0, run.output[-4000:]
    assert run.report["drill"] is True
    assert [what for _at, what in drilled.log("web3")] == ["drained", "back"]
    check_over(drilled)


def test_facts_that_are_neither_injected_nor_forgotten_change_nothing(
    drilled: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that a site may have; a cache must not carry a drill into the next run."""
    cache = drilled.directory / "cache"
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "False")
    monkeypatch.setenv("ANSIBLE_CACHE_PLUGIN", "jsonfile")
    monkeypatch.setenv("ANSIBLE_CACHE_PLUGIN_CONNECTION", str(cache))
    assert "3 of 3 hosts are ready" in drilled.run(playbook="prepare").output
    killed = drilled.run(*CONSENT, playbook="drill", kill_when=lambda: drilled.is_drained("web1"))
    assert killed.status != 0
    try:
        assert "drill" not in "".join(file.read_text() for file in cache.glob("*"))
        run = drilled.run("-e", "graceful_force_claim=true")
        assert run.report["drill"] is False, run.output[-4000:]
        assert run.report["result"] == "done", run.output[-4000:]
        drilled.check_all_back()
        again = drilled.run(*CONSENT, playbook="drill")
        assert again.status == 0, again.output[-4000:]
    finally:
        # In case that no drill replaced and stopped it.
        stop_emulator(drilled)
    check_over(drilled)


def test_what_follows_a_drill_is_no_drill(drilled: Fleet) -> None:
    """A maintenance after it, in the same run of Ansible, asks Azure."""
    after = DRILL.replace("Drill", "Maintenance").replace("azure.drill", "azure.maintenance")
    place = project(drilled, both=DRILL + after)
    with drilled.once(lambda: drilled.is_drained("web1"), lambda: drilled.announce("web1")):
        run = drilled.run(*CONSENT, playbook=str(place / "both.yml"))
    assert run.status == 0, run.output[-4000:]
    assert run.report["drill"] is False
    assert run.report["events"][0]["outcome"] == "completed"
    assert len(drilled.posts()) == 1
    drilled.check_all_back()
