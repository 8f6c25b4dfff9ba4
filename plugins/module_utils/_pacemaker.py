# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""A node of a Pacemaker cluster, through the tools that every Pacemaker brings along."""

from __future__ import annotations

import os
import typing as t
from xml.etree import ElementTree

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, Proof


class Ran(t.NamedTuple):
    code: int
    out: str
    err: str


TIMED_OUT = 124
NOT_RUN = (126, 127)

# Runs a program for no longer than so many seconds.
Run = t.Callable[[t.Sequence[str], float], Ran]


def run_with(run_command: t.Callable[..., tuple[int, str, str]]) -> Run:
    """A runner from the module's own, which knows no time limit: coreutils' timeout does."""
    # Cluster tools live where the path of a login without a shell may not lead.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

    def run(command: t.Sequence[str], seconds: float) -> Ran:
        environment = {"PATH": path, "LC_ALL": "C"}
        code, out, err = run_command(["timeout", f"{seconds:.1f}", *command], environ_update=environment)
        if code == TIMED_OUT:
            raise EventsError(f"{command[0]} gave no answer within {seconds:.0f} s.")
        if code in NOT_RUN:
            raise EventsError(f"{command[0]} cannot be run: {err.strip()[:200]}. Is Pacemaker on this host?")
        return Ran(code, out, err)

    return run


class Seen(t.NamedTuple):
    online: bool
    standby: bool
    resources: int


def node_in(document: str, name: str) -> Seen:
    """The node in what crm_mon prints as XML."""
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as exc:
        raise EventsError(f"crm_mon did not print XML: {exc}.") from exc
    nodes = [node for node in root.findall("./nodes/node") if node.get("name") == name]
    if not nodes:
        known = ", ".join(str(node.get("name")) for node in root.findall("./nodes/node")) or "none"
        raise EventsError(f"The cluster has no node {name}; its nodes are: {known}.")
    flags = {key: nodes[0].get(key) == "true" for key in ("online", "standby")}
    return Seen(flags["online"], flags["standby"], int(nodes[0].get("resources_running") or 0))


class Node:
    def __init__(self, run: Run, patience: Patience, name: str | None = None) -> None:
        self._run = run
        self._patience = patience
        self.name = name or self._tool("crm_node", "--name").strip()

    def wants_standby(self) -> bool:
        """What is configured for good; the cluster may not have acted on it yet."""
        value = self._tool(
            "crm_attribute", "--node", self.name, "--name", "standby", "--query", "--quiet", "--default", "off"
        )
        return value.strip().lower() in ("on", "true", "yes", "1")

    def set_standby(self, standby: bool) -> None:
        # For good, so that it outlives the reboot that the maintenance may bring.
        value = "on" if standby else "off"
        self._tool(
            "crm_attribute", "--node", self.name, "--name", "standby", "--update", value, "--lifetime", "forever"
        )

    def look(self) -> Seen:
        command = ("crm_mon", "--one-shot", "--inactive")
        try:
            document = self._tool(*command, "--output-as=xml")
        except EventsError as exc:
            try:
                # Before Pacemaker 2.0.3.
                document = self._tool(*command, "--as-xml")
            except EventsError:
                raise exc from None
        return node_in(document, self.name)

    def bring(self, standby: bool) -> str:
        if self.wants_standby() != standby:
            self.set_standby(standby)
        return self._patience.until(lambda: self._is_settled(standby), pause=1.0)

    def _is_settled(self, standby: bool) -> Proof:
        try:
            seen = self.look()
        except EventsError as exc:
            return Proof(False, exc.message.rstrip("."))
        how = "standby" if seen.standby else "active" if seen.online else "offline"
        words = f"{self.name} is {how} with {seen.resources} resource{'' if seen.resources == 1 else 's'}"
        settled = seen.standby and seen.resources == 0 if standby else seen.online and not seen.standby
        return Proof(settled, words)

    def _tool(self, *command: str) -> str:
        ran = self._run(command, self._patience.request_timeout(30))
        if ran.code != 0:
            said = (ran.err.strip() or ran.out.strip() or "no reason was given").splitlines()[-1]
            raise EventsError(f"{command[0]} failed with {ran.code}: {said}")
        return ran.out
