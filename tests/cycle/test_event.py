# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs for one event, as Event-Driven Ansible and AWX start them: they ask the hosts behind it and nobody else."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._watcher.changes import Change, Source, message
from ansible_collections.graceful.azure.tests.cycle.harness import Fleet

Json = dict[str, t.Any]


@pytest.fixture
def large(tmp_path: Path) -> t.Iterator[Fleet]:
    fleet = Fleet(tmp_path, size=20)
    try:
        yield fleet
        fleet.check_invariant()
    finally:
        fleet.stop()


def told(event_id: str, *resources: str, **more: t.Any) -> str:
    """The extra variable, with the message that a watcher sends."""
    event = {"event_id": event_id, "event_type": "Reboot", "resources": list(resources), "affects_me": True}
    return json.dumps({"graceful_event": message(Change("appeared", {**event, **more}), Source("elsewhere"), 1, 0.0)})


def called(fleet: Fleet) -> set[str]:
    """The hosts whose metadata service was asked."""
    hosts = {name: host for host, name in fleet.names.items()}
    return {hosts[line["vm"]] for line in fleet.journal() if line["kind"] == "request"}


@pytest.mark.quick("role:maintenance", "maintenance_plan", "host_maintenance")
def test_only_the_hosts_behind_the_event_are_called(large: Fleet) -> None:
    """By the inventory: web3 by graceful_vm_name, web7 as azure.azcollection's inventory plugin describes a VM."""
    large.variables["web3"]["graceful_vm_name"] = "{{ 'shop_' ~ 2 }}"
    large.variables["web7"].update(name="shop_6", vmid="4e5f")
    event_id = large.announce("web3", "web7")
    run = large.run("-e", told(event_id, "shop_2", "SHOP_6"))
    assert run.status == 0, run.output[-4000:]
    assert run.report["events"][0]["outcome"] == "completed"
    assert called(large) == {"web3", "web7"}
    assert "of 20 hosts, only web3 and web7 are asked" in run.output
    assert [what for _at, what in large.log("web7")] == ["drained", "back"]
    large.check_all_back()


def test_names_that_hosts_have_told_before_are_enough(large: Fleet) -> None:
    (large.directory / "reports").mkdir()
    (large.directory / "reports" / "azure-names.json").write_text(json.dumps({"web2": "shop_1", "web5": "shop_4"}))
    event_id = large.announce("web2", "web5")
    run = large.run("-e", told(event_id, "shop_1", "shop_4"))
    assert run.status == 0, run.output[-4000:]
    assert called(large) == {"web2", "web5"}
    # A second message about the same event finds nothing to do, and asks nobody else either.
    assert large.run("-e", told(event_id, "shop_1", "shop_4")).report["result"] == "nothing"
    assert called(large) == {"web2", "web5"}


def test_a_name_that_nobody_knows_makes_it_ask_everyone_and_it_says_so(large: Fleet) -> None:
    event_id = large.announce("web3")
    run = large.run("-e", told(event_id, "shop_2"))
    assert run.status == 0, run.output[-4000:]
    assert "no host is known to have the Azure name 'shop_2', so all hosts are asked" in run.output
    assert called(large) == set(large.names)


def test_names_that_are_out_of_date_make_it_ask_everyone_and_it_says_so(fleet: Fleet) -> None:
    (fleet.directory / "reports").mkdir()
    (fleet.directory / "reports" / "azure-names.json").write_text(json.dumps({"web1": "shop_2"}))
    event_id = fleet.announce("web3")
    run = fleet.run("-e", told(event_id, "shop_2"))
    assert run.status == 0, run.output[-4000:]
    assert "None of the hosts that were asked has the Azure name 'shop_2': all hosts are asked." in run.output
    assert run.report["events"][0]["outcome"] == "completed"
    assert [what for _at, what in fleet.log("web3")] == ["drained", "back"]


def test_the_event_is_never_evaluated(fleet: Fleet) -> None:
    trap = fleet.directory / "evaluated"
    evil = f"{{{{ lookup('ansible.builtin.pipe', 'touch {trap}') }}}}"
    given = {"graceful_event": {"event_id": evil, "event_type": evil, "resources": [evil], evil: evil}}
    run = fleet.run("-e", json.dumps(given))
    assert run.status == 0, run.output[-4000:]
    assert "no host is known to have the Azure name" in run.output
    assert "{{" not in run.output
    assert not trap.exists()


def test_a_wrong_shape_has_a_message_and_nothing_is_done(fleet: Fleet) -> None:
    fleet.announce("web1")
    run = fleet.run("-e", json.dumps({"graceful_event": {"data": {"event": [1]}}}))
    assert run.status == 2, run.output[-4000:]
    assert "graceful_event has no event in it" in run.output
    assert "Traceback" not in run.output
    assert called(fleet) == set()
