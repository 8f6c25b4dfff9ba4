# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user's own play, configuration and task files do to the hosts of a run: none is lost, and none forgotten."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.graceful.azure.tests.cycle.harness import HERE, Fleet

OWN_PLAY = """
- name: An earlier play
  hosts: all
  gather_facts: false
  tasks:
    - name: Lose a host
      ansible.builtin.fail:
      when: inventory_hostname == lost | default("")

- name: Maintenance
  hosts: all
  gather_facts: false
  {keywords}
  roles: [graceful.azure.maintenance]
"""
FAULTY_DO = f"""
- name: Take the host out of service
  ansible.builtin.include_tasks: {HERE}/drain.yml

- name: Lose the connection, once
  ansible.builtin.shell:
    cmd: 'test -e once || {{ touch once; echo "$FATE" > fate; }}'
    chdir: "{{{{ home }}}}"
  environment:
    FATE: '{{"kind": "drop", "times": 2}}'
  when: inventory_hostname == "web3"

- name: Reach the host
  ansible.builtin.ping:

- name: Include what is not there
  ansible.builtin.include_role:
    name: no_such_role
  when: inventory_hostname == "web2"
"""
SLOW = {
    "name": "slow",
    "kind": "command",
    "do": ["sh", "-c", 'sleep 12; touch "$0"', "{{ home }}/slept"],
    "probe": ["test", "-e", "{{ home }}/slept"],
    "undo": ["rm", "-f", "{{ home }}/slept"],
}


def own_play(fleet: Fleet, keywords: str = "strategy: ansible.builtin.linear") -> str:
    file = fleet.directory / "site.yml"
    file.write_text(OWN_PLAY.format(keywords=keywords))
    return str(file)


def test_no_host_is_lost_because_of_another_whatever_the_play_and_the_configuration_say(fleet: Fleet) -> None:
    """any_errors_fatal, a role that is not there, a host that is lost for a moment, and a limit for each task."""
    (do := fleet.directory / "do.yml").write_text(FAULTY_DO)
    fleet.common["graceful_drain_steps"] = [{**fleet._defaults()["graceful_drain_steps"][0], "do": str(do)}, SLOW]
    fleet.settings["ANSIBLE_TASK_TIMEOUT"] = "6"
    for host in fleet.names:
        fleet.announce(host, notice=90)
    run = fleet.run(playbook=own_play(fleet, "any_errors_fatal: true"))
    assert run.status == 2, run.output[-4000:]
    outcomes = {event["hosts"][0]: event["outcome"] for event in run.report["events"]}
    assert (outcomes["web1"], outcomes["web3"]) == ("completed", "completed"), run.messages
    assert outcomes["web2"] != "completed"
    assert "its tasks did not finish" in run.messages
    fleet.check_all_back()


def test_a_host_that_was_not_looked_at_is_never_taken_for_one_without_announcements(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 2, scopes=("a", "b"))
    try:
        fleet.announce("web2")
        in_batches = fleet.run(playbook=own_play(fleet, "serial: 1"))
        assert in_batches.status == 2, in_batches.output[-4000:]
        assert "graceful_serial" in in_batches.output
        # This name is one of our own. What has it is a spelling mistake, and no result.
        fleet.variables["web2"]["graceful_host"] = "web2.example.com"
        lost = fleet.run("-e", "lost=web2", playbook=own_play(fleet))
        assert lost.status != 0
        assert "web2" in lost.messages, lost.output[-4000:]
        assert lost.report["result"] != "nothing"
        for task in ("Make the plan", "Look at the hosts, and carry out their orders"):
            later = fleet.run("--start-at-task", task)
            assert later.status != 0
            assert "The first task of the role maintenance was skipped" in later.output, later.output[-4000:]
        assert fleet.log("web2") == []
    finally:
        fleet.stop()


def test_a_service_that_says_nothing_does_not_cost_the_other_hosts_their_notice(fleet: Fleet) -> None:
    fleet.control("fault", {"kind": "stall", "vm": "shop_2", "seconds": 600})
    fleet.announce("web1", EventType="Preempt", notice=60)
    begin = time.monotonic()
    fleet.run(kill_when=lambda: fleet.is_drained("web1") or time.monotonic() - begin > 60)
    assert fleet.is_drained("web1")


def test_check_mode_says_of_a_list_of_hosts_who_cannot_keep_a_record(fleet: Fleet) -> None:
    fleet.variables["web2"]["graceful_record_dir"] = "/dev/null/records"
    chosen = ("-e", '{"graceful_hosts": ["web1", "web2"]}')
    run = fleet.run("--check", *chosen)
    assert run.status == 2, run.output[-4000:]
    assert "The host cannot read or write the record of a maintenance (graceful_record_dir)" in run.messages
    assert set(run.report["hosts"]) <= {"web1", "web2"}
    assert "[web3]" not in run.output.split("TASK [graceful.azure.maintenance", 1)[1]
