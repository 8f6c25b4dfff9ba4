# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pacemaker's own tools on a cluster that its own simulator moves on; no daemon runs."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.pacemaker import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.plugins.module_utils._run import run as real_run
from ansible_collections.graceful.azure.tests.services.conftest import Packages, unpacked
from ansible_collections.graceful.azure.tests.services.kinds import NOTED, drain_and_undo, step

LIBRARIES = (
    "libcib27 libcrmcommon34 libcrmservice28 libcrmcluster29 liblrmd28 libpacemaker1 libpe-rules26 libpe-status28 "
    "libqb100 libstonithd26 libxslt1.1 libcpg4 libcmap4 libcfg7 libquorum5 libvotequorum8 libcorosync-common4 "
    "libpils2 libplumb2 libltdl7"
)
CLUSTER = """
<cib validate-with="pacemaker-3.0" epoch="1" num_updates="0" admin_epoch="0" crm_feature_set="3.0.14" have-quorum="1"
     dc-uuid="1">
  <configuration>
    <crm_config>
      <cluster_property_set id="options"><nvpair id="o1" name="stonith-enabled" value="false"/></cluster_property_set>
    </crm_config>
    <nodes><node id="1" uname="db1"/><node id="2" uname="db2"/></nodes>
    <resources>
      <primitive id="address" class="ocf" provider="heartbeat" type="Dummy"/>
      <primitive id="disk" class="ocf" provider="heartbeat" type="Dummy"/>
    </resources>
    <constraints>
      <rsc_location id="l1" rsc="address" node="db1" score="100"/>
      <rsc_location id="l2" rsc="disk" node="db1" score="100"/>
    </constraints>
  </configuration>
  <status>
    <node_state id="1" uname="db1" in_ccm="true" crmd="online" join="member" expected="member"/>
    <node_state id="2" uname="db2" in_ccm="true" crmd="online" join="member" expected="member"/>
  </status>
</cib>
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("pacemaker")
    return unpacked(folder, "pacemaker-cli-utils", "pacemaker-common", *LIBRARIES.split())


class Cluster:
    def __init__(self, packages: Packages, folder: Path) -> None:
        self._packages = packages
        self._file = folder / "cib.xml"
        self._next = folder / "next.xml"
        self._file.write_text(CLUSTER)
        self.moves = True
        self.settle()

    def settle(self) -> None:
        """Let the cluster do what it wants to do."""
        done = self._tool("crm_simulate", "--simulate", "-x", str(self._file), "-O", str(self._next))
        assert done.code == 0, done.err
        self._next.replace(self._file)

    def run(
        self,
        argv: t.Sequence[str],
        seconds: float,
        user: str | None = None,
        environment: t.Mapping[str, str] | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Ran:
        if argv[0] == "crm_mon" and self.moves:
            self.settle()
        return self._tool(*argv)

    def node(self, name: str, seconds: float = 30) -> Step:
        return t.cast(Step, step("pacemaker", seconds, run=self.run, node=name))

    @property
    def variables(self) -> dict[str, str]:
        schemas = self._packages.program("usr/share/pacemaker")
        return {**self._packages.environment, "CIB_file": str(self._file), "PCMK_schema_directory": schemas}

    def _tool(self, name: str, *arguments: str) -> Ran:
        return real_run([self._packages.program(f"usr/sbin/{name}"), *arguments], 60, environment=self.variables)


@pytest.fixture
def cluster(packages: Packages, tmp_path: Path) -> Cluster:
    return Cluster(packages, tmp_path)


def test_a_node_in_standby_gives_its_resources_to_the_other_and_gets_them_back(cluster: Cluster) -> None:
    assert cluster.node("db1").seen().resources == 2
    assert not cluster.node("db1").wants_standby()
    assert cluster.node("db1").do().message == "db1 is standby with 0 resources"
    assert cluster.node("db1").wants_standby()
    assert cluster.node("db2").seen().resources == 2
    assert cluster.node("db1").undo(NOTED).startswith("db1 is active")
    assert cluster.node("db1").seen() == (True, False, 2)


def test_resources_that_do_not_move_in_time_are_late(cluster: Cluster) -> None:
    cluster.moves = False
    with pytest.raises(Late, match="db1 is standby with 2 resources"):
        cluster.node("db1", seconds=2).do()


def test_a_node_that_is_not_in_the_cluster_is_said(cluster: Cluster) -> None:
    with pytest.raises(EventsError, match="crm_attribute ended with"):
        cluster.node("nobody", seconds=5).do()
    with pytest.raises(EventsError, match="has no node nobody; its nodes are: db1 and db2"):
        cluster.node("nobody").seen()


def test_the_step_sets_standby_and_takes_it_back(cluster: Cluster) -> None:
    drained = drain_and_undo("pacemaker", cluster.run, node="db1")
    assert drained.look == (False, "db1 is active with 2 resources", {"in_service": True})
    assert drained.done == "db1 is standby with 0 resources"
    assert drained.undone.startswith("db1 is active")
