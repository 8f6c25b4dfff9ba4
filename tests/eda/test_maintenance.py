# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole path on loopback: real watchers tell the shipped rulebook, which starts the real maintenance."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet
from ansible_collections.graceful.azure.tests.eda.harness import TOKEN, Rulebook, told, until
from ansible_collections.graceful.azure.tests.unit.watcher.harness import ALL_CHANGES, Host


class World:
    """Hosts with watchers, an emulator, and a rulebook that they tell."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self.fleet = Fleet(directory / "fleet")
        stack.callback(self.fleet.stop)
        self.rulebook = Rulebook(directory / "rulebook", "maintenance", noop=False)
        stack.callback(lambda: print(self.rulebook.log[-12000:]))
        stack.callback(self.rulebook.close)
        self.rulebook.inventory.mkdir()
        for host, variables in self.fleet.variables.items():
            (directory / f"watcher-{host}").mkdir()
            watcher = Host(directory / f"watcher-{host}", variables["graceful_endpoint"])
            watcher.config.update(host=host, record_dir=variables["graceful_record_dir"])
            watcher.config["receivers"].append({"name": "eda", "changes": ALL_CHANGES})
            watcher.secrets["receivers"]["eda"] = {
                "url": f"http://127.0.0.1:{self.rulebook.port}/",
                "token": TOKEN,
            }
            watcher.start()
            stack.callback(watcher.stop)

    def start(self) -> None:
        common = {
            **self.fleet._defaults(),
            "graceful_report_dir": str(self.rulebook.directory / "reports"),
            "graceful_report_always": True,
        }
        web = {"web": {"hosts": self.fleet.variables, "vars": common}}
        (self.rulebook.inventory / "hosts.yml").write_text(json.dumps(web))
        self.rulebook.start()

    @property
    def runs(self) -> int:
        return self.rulebook.log.count("PLAY [Maintenance]")

    def all_back(self) -> bool:
        return all(self.fleet.record(host) is None and not self.fleet.is_drained(host) for host in self.fleet.names)


@pytest.fixture
def world(tmp_path: Path, java: None) -> t.Iterator[World]:
    for name in ("fleet", "rulebook"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        made = World(tmp_path, stack)
        yield made
        made.fleet.check_invariant()


def test_an_event_is_told_taken_by_one_run_drained_approved_and_put_back(world: World) -> None:
    world.start()
    published = time.time()
    event_id = world.fleet.announce("web1", "web2")
    until(lambda: world.fleet.happened("approved"))
    # One run, whoever told of it: all three have.
    assert world.runs == 1
    until(lambda: world.all_back() and world.fleet.log("web1"))
    assert [line["EventId"] for line in world.fleet.happened("approved")] == [event_id]
    for host in ("web1", "web2"):
        assert [what for _at, what in world.fleet.log(host)] == ["drained", "back"]
    assert world.fleet.log("web3") == []
    logs = sorted(world.fleet.log("web1") + world.fleet.log("web2"), reverse=True)
    hops = {what: at - published for at, what in logs}
    hops["approved"] = world.fleet.happened("approved")[0]["time"] - published
    print("seconds after it was published:", {what: round(hops[what], 1) for what in ("drained", "approved", "back")})


def test_what_a_message_says_is_not_evaluated_by_a_run(world: World, tmp_path: Path) -> None:
    """Somebody who has the token sends a message that the watcher would not have made."""
    made = tmp_path / "made"
    evil = "{{ lookup('pipe', 'touch " + str(made) + "') }}"
    world.start()
    message = told("appeared", "EVIL", resources=["shop_0"])
    message["data"]["event"].update(description=evil, event_type=evil, resources=["shop_0", evil])
    message["data"].update(host=evil, vm_name=evil)
    assert world.rulebook.post(message) == 200
    world.rulebook.says("PLAY RECAP")
    assert not made.exists()
    assert world.fleet.posts() == []
    assert world.all_back()


def test_a_rulebook_that_is_killed_in_mid_event_leaves_nothing_drained(world: World) -> None:
    """Its run dies with it. The next message about the event starts another one, which goes on from the records."""
    world.start()
    # web2 does not answer, so that nothing is approved yet.
    world.fleet.drop("web2")
    event_id = world.fleet.announce("web1", "web2")
    until(lambda: world.fleet.is_drained("web1"))
    world.rulebook.stop(signal.SIGKILL)
    world.fleet.come_back("web2")
    world.rulebook.start()
    world.fleet.control("start", {"EventId": event_id})
    world.fleet.control("complete", {"EventId": event_id})
    until(world.all_back, 600)
    assert [what for _at, what in world.fleet.log("web1")] == ["drained", "back"]
    assert world.fleet.posts() == []
