# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role watcher on this machine, with its files in a directory of its own and without a service manager."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.tools.launcher import Launch
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, serving

Json = dict[str, t.Any]
ANALYZE = shutil.which("systemd-analyze")
SECRET = "s3cret-of-the-receiver"
# Directories, program, configuration, secrets, unit.
INSTALLED = 6
STEPS: list[Json] = [
    {"name": "balancers", "kind": "haproxy", "backend": "shop", "server": "web1",
     "sockets": [{"host": "lb1", "socket": "/run/haproxy.sock"}]},
    {"name": "application", "kind": "command", "do": ["/bin/true"], "probe": ["/bin/true"]},
    {"name": "note", "kind": "command", "do": ["/bin/echo", "{{ drain_event.event_id }}"], "probe": ["/bin/true"]},
]  # fmt: skip


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with serving("--vm", "web_0") as running:
        yield running


class Machine:
    def __init__(self, directory: Path, endpoint: str) -> None:
        self.directory = directory
        self.root = directory / "root of it"
        self.variables: Json = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "graceful_endpoint": endpoint,
            "graceful_record_dir": str(self.root / "records"),
            "watcher_started": False,
            "watcher_python": sys.executable,
            "watcher_dir": str(self.root / "lib"),
            "watcher_config_dir": str(self.root / "etc"),
            "watcher_state_dir": str(self.root / "state"),
            "watcher_unit_dir": str(self.root / "units"),
        }
        self.receivers: list[Json] = [{"name": "eda", "url": "http://127.0.0.1:9/post", "token": SECRET}]

    def play(self, *options: str, returns: int = 0, **variables: t.Any) -> Json:
        (self.root / "units").mkdir(parents=True, exist_ok=True)
        given = {**self.variables, "watcher_receivers": self.receivers, **variables}
        inventory = self.directory / "inventory.json"
        inventory.write_text(json.dumps({"web": {"hosts": {"web1": given}}}))
        playbook = self.directory / "play.yml"
        role = {"role": "graceful.azure.watcher"}
        playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": [role]}]))
        launch = Launch(playbook, inventory, self.directory / "home", options)
        done = launch.run(cwd=self.directory)
        output = done.stdout
        assert done.returncode == returns, output
        assert SECRET not in output
        recap = re.findall(r"(ok|changed|failed)=(\d+)", done.stdout)
        return {"output": output, **{key: int(value) for key, value in recap}}

    def read(self, path: str) -> Json:
        return t.cast(Json, json.loads((self.root / path).read_text()))

    @property
    def unit(self) -> Path:
        return self.root / "units" / "graceful-watcher.service"


@pytest.fixture
def machine(tmp_path: Path, emulator: Emulator) -> Machine:
    return Machine(tmp_path, emulator.vms["web_0"])


def test_it_is_installed_once_runs_and_is_removed(machine: Machine, emulator: Emulator) -> None:
    assert machine.play("--check", "--diff")["changed"] == INSTALLED
    assert not (machine.root / "etc").exists()
    assert machine.play("--diff")["changed"] == INSTALLED
    assert machine.play("--diff")["changed"] == 0
    config, secrets = machine.read("etc/watcher.json"), machine.read("etc/watcher-secrets.json")
    assert (config["host"], config["endpoint"]) == ("web1", emulator.vms["web_0"])
    assert config["on_its_own"] is None
    assert SECRET not in json.dumps(config)
    assert secrets["receivers"]["eda"] == {"url": "http://127.0.0.1:9/post", "token": SECRET}
    for path, mode in (
        ("etc", 0o700),
        ("state", 0o700),
        ("etc/watcher.json", 0o600),
        ("etc/watcher-secrets.json", 0o600),
    ):
        assert stat.S_IMODE((machine.root / path).stat().st_mode) == mode
    event_id = emulator.publish("Reboot", ["web_0"])
    program = [sys.executable, "-I", str(machine.root / "lib" / "watcher.pyz")]
    done = subprocess.run(
        [*program, "--config", str(machine.root / "etc" / "watcher.json"), "--once", "--print"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["subject"] == event_id
    (machine.root / "records").mkdir()
    assert machine.play(watcher_state="absent")["changed"] == 1
    left = {path.name for path in machine.root.rglob("*")}
    assert left == {"etc", "lib", "units", "records"}
    assert machine.play(watcher_state="absent")["changed"] == 0


def test_on_its_own_it_gets_what_a_run_would_use_and_says_what_is_not_covered(machine: Machine) -> None:
    checkpoint = [
        {"name": "cache", "kind": "paths", "paths": ["/srv/cache"]},
        {"name": "state", "kind": "paths", "paths": ["/srv/state"], "to": "controller"},
    ]
    done = machine.play(
        watcher_on_its_own=True,
        watcher_approve_alone=True,
        graceful_drain_steps=STEPS,
        graceful_checkpoint=checkpoint,
        graceful_health=[{"url": "http://127.0.0.1/health", "headers": {"X-Key": SECRET}}],
        graceful_drain_budget=60,
        graceful_policy=[{"action": "drain_and_approve"}],
    )
    for line in (
        "Drain step 'balancers' (haproxy): the controller takes this step.",
        "Drain step 'note' (command): it depends on the event",
        "Checkpoint 'state' (paths): its archive is copied to the controller.",
        "Approval: 2 drain steps cannot be taken without a controller.",
    ):
        assert line in done["output"]
    own = machine.read("etc/watcher.json")["on_its_own"]
    assert [step["name"] for step in own["steps"]] == ["application"]
    assert [item["name"] for item in own["checkpoint"]] == ["cache"]
    assert (own["approve"], own["drain_budget"], own["groups"]) == (False, 60, ["web"])
    assert own["policy"] == [{"action": "drain_and_approve"}]
    assert machine.read("etc/watcher-secrets.json")["steps"] == {"health/0": {"headers": {"X-Key": SECRET}}}


@pytest.mark.quick("watcher_files", "role:watcher")
def test_it_may_approve_alone_if_everything_is_covered(machine: Machine) -> None:
    options: Json = {"watcher_on_its_own": "yes", "watcher_approve_alone": "yes", "graceful_drain_steps": STEPS[1:2]}
    machine.play(**options)
    assert machine.read("etc/watcher.json")["on_its_own"]["approve"] is True
    done = machine.play(**options, graceful_min_available=1)
    assert "Approval: graceful_min_available is set" in done["output"]
    assert machine.read("etc/watcher.json")["on_its_own"]["approve"] is False


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"watcher_on_its_own": True}, "graceful_drain_steps is not set"),
        ({"watcher_on_its_own": True, "graceful_drain_steps": [{"name": "x", "kind": "odd"}]}, "unknown kind 'odd'"),
        ({"watcher_approve_alone": True}, "watcher_approve_alone needs watcher_on_its_own"),
        ({"watcher_poll_interval": 0}, "watcher_poll_interval has to be"),
        ({"watcher_spool_max": 0}, "watcher_spool_max has to be 1 to 100000"),
        ({"watcher_state_dir": "state"}, "watcher_state_dir has to be an absolute path"),
        ({"watcher_config_dir": '/etc/"odd'}, "watcher_config_dir has to be an absolute path, without quotes"),
        ({"watcher_python": "/usr/bin/python-of-nobody"}, "python-of-nobody"),
        ({"watcher_receivers": {}}, "watcher_receivers has to be a list"),
        ({"watcher_receivers": [{"name": "a", "uri": SECRET}]}, "has the key 'uri', which is not known"),
        ({"watcher_receivers": [{"name": "../a", "url": "https://a"}]}, "name has to be letters"),
        ({"watcher_receivers": [{"name": "a", "url": SECRET}]}, "url has to be a URL of http or https"),
        (
            {"watcher_receivers": [{"name": "a", "url": "https://a", "token": f"{SECRET}\n"}]},
            "token has to be one line",
        ),
        ({"watcher_receivers": [{"name": "a", "url": "https://a", "kind": "awx"}]}, "/job_templates/NUMBER/launch/"),
        (
            {"watcher_receivers": [{"name": "a", "url": "https://a", "ca_file": "ca.pem"}]},
            "ca_file has to be an absolute",
        ),
        ({"watcher_receivers": [{"name": "a", "url": "https://a"}] * 2}, "has the same name as another one"),
        (
            {"watcher_receivers": [{"name": "a", "url": "https://a", "changes": [SECRET]}]},
            "changes has to be a list in which each",
        ),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_changes(machine: Machine, variables: Json, message: str) -> None:
    done = machine.play(returns=2, **variables)
    assert message in " ".join(done["output"].replace('\\"', '"').split())
    assert done["changed"] == 0


def test_a_metadata_service_that_does_not_answer_fails_the_role(machine: Machine) -> None:
    done = machine.play(returns=2, graceful_endpoint="http://127.0.0.1:1")
    assert "The events cannot be read" in done["output"]


@pytest.mark.skipif(not ANALYZE, reason="there is no systemd-analyze")
@pytest.mark.parametrize(
    ("variables", "most"),
    [
        ({}, 2.5),
        ({"watcher_metrics_dir": "/var/lib/node"}, 2.9),
        ({"watcher_on_its_own": True, "graceful_drain_steps": []}, 9.0),
    ],
    ids=["tells", "with metrics", "on its own"],
)
def test_systemd_takes_the_unit(machine: Machine, variables: Json, most: float) -> None:
    if "watcher_metrics_dir" in variables:
        variables = {"watcher_metrics_dir": str(machine.root / "metrics")}
    machine.play(**variables)
    verified = subprocess.run(
        [str(ANALYZE), "verify", str(machine.unit)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in verified.stderr.splitlines() if "graceful-watcher" in line]
    assert complaints == []
    measured = subprocess.run(
        [str(ANALYZE), "security", "--offline=true", str(machine.unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", measured.stdout)
    if level is None:
        pytest.skip(f"systemd-analyze does not look at files here: {measured.stderr}")
    print(f"exposure: {level.group(1)}")
    assert float(level.group(1)) <= most
