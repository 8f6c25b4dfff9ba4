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
