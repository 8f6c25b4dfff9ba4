# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's tools from a script; with the real ones: tests/services."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.pacemaker import Step, node_in
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Programs,
    mistake,
    options_of,
    tools,
)

NOTED = StepRecord({"in_service": True}, {}, lost=False)


class Cluster:
    """One node, from which a resource leaves or to which one returns each time that somebody looks."""

    def __init__(self, resources: int = 2, standby: bool = False, is_old: bool = False, moves: bool = True) -> None:
        self.resources = resources
        self.standby = standby
        self.online = True
        self._is_old = is_old
        self._moves = moves
        self.run = Programs(self.answer)

    def answer(self, argv: list[str]) -> Ran:
        if argv[0] == "crm_node":
            return Ran(0, "db1\n", "")
        if argv[0] == "crm_mon":
            if self._is_old and "--output-as=xml" in argv:
                return Ran(1, "", "unrecognized option")
            return Ran(0, self._document(), "")
        assert argv[:4] == ["crm_attribute", "--node=db1", "--name", "standby"]
        if "--query" in argv:
            return Ran(0, "on\n" if self.standby else "off\n", "")
        assert argv[-2:] == ["--lifetime", "forever"], "it outlives a reboot"
        self.standby = argv[argv.index("--update") + 1] == "on"
        return Ran(0, "", "")

    def _document(self) -> str:
        if self._moves:
            self.resources = max(0, self.resources - 1) if self.standby else 2
        flags = f'online="{str(self.online).lower()}" standby="{str(self.standby).lower()}"'
        return f'<crm_mon><nodes><node name="db1" {flags} resources_running="{self.resources}"/></nodes></crm_mon>'

    def step(self, seconds: float = 60, **given: t.Any) -> Step:
        return Step(options_of(Step, **given), tools(seconds, JumpingClock(), self.run))


@pytest.mark.parametrize("is_old", [False, True], ids=["Pacemaker", "Pacemaker before 2.0.3"])
def test_a_node_gives_its_resources_away_and_gets_them_back(is_old: bool) -> None:
    cluster = Cluster(is_old=is_old)
    assert cluster.step().look() == (False, "db1 is active with 2 resources", {"in_service": True})
    assert cluster.step().do().message == "db1 is standby with 0 resources"
    assert cluster.step().look() == (True, "db1 is standby with 0 resources", {"in_service": False})
    assert cluster.step().undo(NOTED) == "db1 is active with 2 resources"


def test_a_name_that_was_given_is_not_asked_for() -> None:
    cluster = Cluster()
    cluster.step(node="db1").look()
    assert "crm_node" not in [argv[0] for argv in cluster.run.ran]


def test_resources_that_do_not_move_in_time_are_late() -> None:
    cluster = Cluster(resources=1, moves=False)
    with pytest.raises(Late, match="After 9 s still: db1 is standby with 1 resource"):
        cluster.step(9).do()
    assert cluster.standby, "what is drained stays so"


def test_a_node_that_is_offline_is_waited_for_when_it_should_be_back() -> None:
    cluster = Cluster(standby=True)
    cluster.online = False
    with pytest.raises(Late, match="db1 is offline"):
        cluster.step(9).undo(NOTED)


def test_a_tool_that_fails_is_said() -> None:
    def broken(argv: list[str]) -> Ran:
        return Ran(102, "", "a hint\ncrm_attribute: Error connecting \x1b[1m to the CIB\n")

    with pytest.raises(
        EventsError, match=r"crm_node ended with 102: crm_attribute: Error connecting \?\[1m to the CIB"
    ):
        Step(options_of(Step), tools(run=Programs(broken))).look()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "did not print XML"),
        ("{}", "did not print XML"),
        ("<crm_mon/>", "has no node db1; its nodes are: none"),
        ('<c><nodes><node name="a\u202e"/><node/></nodes></c>', r"its nodes are: a\? and None"),
        ('<c><nodes><node name="db1" resources_running="many"/></nodes></c>', "does not show the number of resources"),
        ('<c><nodes><node name="db1" resources_running="-1"/></nodes></c>', "does not show the number of resources"),
    ],
)
def test_nonsense_of_crm_mon_is_said(document: str, words: str) -> None:
    with pytest.raises(EventsError, match=words):
        node_in(document, "db1")


def test_only_a_name_is_accepted() -> None:
    assert not mistake(Step, {})
    assert not mistake(Step, {"node": "db1"})
    assert "node has to be a string" in mistake(Step, {"node": " "})
