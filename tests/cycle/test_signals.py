# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run says, to whom, and what it keeps to itself."""

from __future__ import annotations

from ansible_collections.graceful.azure.tests.cycle.harness import Fleet


def test_plan_and_recap_are_seen_where_tasks_that_went_well_are_not_shown(fleet: Fleet) -> None:
    fleet.settings["ANSIBLE_DISPLAY_OK_HOSTS"] = "no"
    fleet.announce("web1")
    run = fleet.run()
    assert run.status == 0, run.output[-4000:]
    assert run.output.count("drain, then approve (rule") == 1, run.output
    assert run.output.count("completed: Reboot of web1, approved by web1, took") == 1, run.output
    assert "Report: " in run.output


def test_a_host_that_is_not_reached_or_not_in_the_run_is_called_by_its_name(fleet: Fleet) -> None:
    """One told its Azure name to an earlier run, of the other the inventory plugin azure_rm knows it."""
    assert fleet.run("--limit", "web1,web2").report["result"] == "nothing"
    fleet.drop("web2")
    azure_rm = {"name": "shop_2", "vmid": "13f56399-bd52-4150-9748-7190aae1ff21"}
    fleet.variables["web3"].update(azure_rm)
    fleet.announce("web1", "web2", "web3")
    run = fleet.run("--check", "--limit", "web1,web2")
    assert run.status == 0, run.output[-4000:]
    assert "web2 cannot be reached" in run.messages, run.messages
    assert "web3 is outside this run (--limit)" in run.messages, run.messages
    assert "no inventory host" not in run.output
