# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that nobody here wrote, unchanged but for the address they ask."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import requests
from ansible_collections.graceful.azure.tests.unit.emulator.harness import PATIENCE, Emulator

OCF_ROOT = Path(os.environ.get("OCF_ROOT", "/usr/lib/ocf"))
AGENT = OCF_ROOT / "resource.d/heartbeat/azure-events-az"


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
class TestCurlAsInTheDocumentation:
    @staticmethod
    def curl(emulator: Emulator, *arguments: str) -> str:
        *options, path = arguments
        command = ["curl", "-s", "--noproxy", "*", *options, emulator.vms["web_0"] + path]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def test_reading_and_approving(self, emulator: Emulator) -> None:
        event_id = emulator.publish("Freeze", DurationInSeconds=9)
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        document = json.loads(self.curl(emulator, "-H", "Metadata:true", path))
        assert [event["EventId"] for event in document["Events"]] == [event_id]
        body = json.dumps({"StartRequests": [{"EventId": event_id.lower()}]})
        assert self.curl(emulator, "-H", "Metadata:true", "-X", "POST", "-d", body, path) == ""
        assert emulator.events()[0]["EventStatus"] == "Started"

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("/metadata/instance/compute/name?api-version=2017-08-01&format=text", "web_0"),
            ("/metadata/instance/compute/platformFaultDomain?api-version=2017-08-01&format=text", "0"),
            ("/metadata/instance/compute/tags?api-version=2017-08-01&format=text", "tier:front"),
        ],
    )
    def test_asking_for_one_value(self, emulator: Emulator, path: str, text: str) -> None:
        assert self.curl(emulator, "-H", "Metadata:true", path) == text


def test_a_poller_as_microsofts_python_sample_describes_it(emulator: Emulator) -> None:
    """Polls until the incarnation differs, approves what a user asked for and short freezes, leaves the rest."""
    url, question = emulator.vms["web_0"] + "/metadata/scheduledevents", {"api-version": "2020-07-01"}
    wanted = {
        emulator.publish("Reboot", EventSource="User"): "Started",
        emulator.publish("Freeze", DurationInSeconds=5): "Started",
        emulator.publish("Freeze", DurationInSeconds=-1): "Scheduled",
        emulator.publish("Redeploy"): "Scheduled",
    }
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Metadata"] = "true"
        seen = None
        for _time in range(3):
            document = session.get(url, params=question, timeout=PATIENCE).json()
            if document["DocumentIncarnation"] == seen:
                break
            seen = document["DocumentIncarnation"]
            for event in document["Events"]:
                short = event["EventType"] == "Freeze" and 0 <= int(event["DurationInSeconds"]) < 9
                if event["EventStatus"] == "Scheduled" and (event["EventSource"] == "User" or short):
                    body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
                    assert session.post(url, params=question, data=body, timeout=PATIENCE).status_code == 200
        else:
            pytest.fail("the incarnation never came to rest")
    assert {event["EventId"]: event["EventStatus"] for event in emulator.events()} == wanted


# Pacemaker's tools, as far as the agent calls them: attributes are files, nothing runs anywhere.
CRM = """\
    #!{python}
    import pathlib, sys
    store, me, arguments = pathlib.Path({store!r}), pathlib.Path(sys.argv[0]).name, sys.argv[1:]
    option = {{arguments[i]: arguments[i + 1] for i in range(len(arguments) - 1)}}
    file = store / (option.get("--node", "cluster") + " " + option.get("--name", "")).replace("/", "_")
    if me == "crm_node":
        print("1 {host} member\\n2 other member")
    elif me == "crm_simulate":
        print("Transition Summary:")
    elif me == "crm_attribute" and "--update" in option:
        file.write_text(option["--update"])
    elif me == "crm_attribute" and "--delete" in arguments:
        file.unlink(missing_ok=True)
    elif me == "crm_attribute":
        print(file.read_text() if file.exists() else "")
    elif me == "crm_resource":
        print("rsc_ip (ocf::heartbeat:IPaddr2): Started: rsc_ip_start_0 (rc=0): complete")
"""

# The agent's address is fixed in its class: the one thing that has to be told.
MONITOR = """\
    import importlib.machinery, importlib.util, sys
    loader = importlib.machinery.SourceFileLoader("agent", sys.argv[1])
    agent = importlib.util.module_from_spec(importlib.util.spec_from_loader("agent", loader))
    loader.exec_module(agent)
    agent.azHelper.metadata_host = sys.argv[2] + "/metadata"
    sys.exit(agent.monitor_action("Reboot,Redeploy,Freeze"))
"""


@pytest.mark.skipif(
    not AGENT.exists(), reason=f"Pacemaker's azure-events-az (Debian: resource-agents) is not at {AGENT}"
)
def test_pacemakers_agent_stops_its_node_and_approves(emulator: Emulator, tmp_path: Path) -> None:
    store, tools = tmp_path / "attributes", tmp_path / "tools"
    store.mkdir()
    tools.mkdir()
    host = os.uname().nodename
    script = textwrap.dedent(CRM.format(python=sys.executable, store=str(store), host=host))
    for name in ("crm_attribute", "crm_node", "crm_resource", "crm_simulate"):
        (tools / name).write_text(script, encoding="utf-8")
        (tools / name).chmod(0o755)
    environment = {
        **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
        "OCF_ROOT": str(OCF_ROOT),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HA_logfile": str(tmp_path / "log"),
    }

    def monitor() -> None:
        command = [sys.executable, "-c", textwrap.dedent(MONITOR), str(AGENT), emulator.vms["web_0"]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr

    def state() -> str:
        file = store / f"{host} azure-events-az_curNodeState"
        return file.read_text(encoding="utf-8") if file.exists() else "AVAILABLE"

    monitor()
    assert state() == "AVAILABLE"
    event_id = emulator.publish("Reboot", ["web_0"])
    monitor()
    assert state() == "STOPPING"
    assert emulator.events()[0]["EventStatus"] == "Scheduled"
    monitor()
    assert state() == "IN_EVENT"
    assert emulator.events()[0]["EventStatus"] == "Started"
    emulator.obeys("/complete", {"EventId": event_id})
    monitor()
    assert state() == "AVAILABLE"
    asked = [line for line in emulator.journal("request") if "Pacemaker" in line["headers"].get("User-Agent", "")]
    assert {line["status"] for line in asked} == {200}
    assert {line["query"]["api-version"] for line in asked if line["method"] == "POST"} == {"2019-08-01"}
