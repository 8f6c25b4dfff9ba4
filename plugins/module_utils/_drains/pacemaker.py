# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts a node of a Pacemaker cluster into standby, by Pacemaker's command-line tools."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import LINUX, Done, Found, Kind, StepRecord
from .._patience import Proof, forgiving
from .._text import clean, count, listed


class Seen(t.NamedTuple):
    online: bool
    standby: bool
    resources: int

    @property
    def message(self) -> str:
        how = "standby" if self.standby else "active" if self.online else "offline"
        return f"{how} with {count(self.resources, 'resource')}"


def node_in(document: str, name: str) -> Seen:
    """The node in the XML of crm_mon."""
    try:
        root = ElementTree.fromstring(document)
    except (ElementTree.ParseError, ValueError) as exc:
        raise EventsError(f"crm_mon did not print XML: {clean(exc, 200)}.") from exc
    nodes = root.findall("./nodes/node")
    node = next((node for node in nodes if node.get("name") == name), None)
    if node is None:
        known = listed([node.get("name") for node in nodes], 20) if nodes else "none"
        raise EventsError(f"The cluster has no node {clean(name, 80)}; its nodes are: {known}.")
    resources = node.get("resources_running") or "0"
    if not resources.isdecimal() or len(resources) > 9:
        raise EventsError(f"crm_mon does not show the number of resources of the node {clean(name, 80)}.")
    return Seen(node.get("online") == "true", node.get("standby") == "true", int(resources))


class Step(Kind):
    summary = "The node is in standby and no resource runs on it; this outlives a reboot. Undone: it is active."
    options: t.ClassVar = {
        "node": {
            "type": "str",
            "description": "The name of the node in the cluster. By default the one that this host is.",
        },
    }
    checks: t.ClassVar = {"node": check.text}
    platforms = (LINUX,)
    _node: str | None = None

    def look(self) -> Found:
        wanted, seen = self.wants_standby(), self.seen()
        done = wanted and seen.standby and seen.resources == 0
        return Found(done, f"{clean(self._name, 80)} is {seen.message}", {"in_service": not wanted})

    def do(self) -> Done:
        return Done(self._bring(True), {})

    def undo(self, record: StepRecord) -> str:
        return self._bring(False)

    @property
    def _name(self) -> str:
        if self._node is None:
            self._node = self.params["node"] or self._tool("crm_node", "--name").strip()
        return self._node

    def wants_standby(self) -> bool:
        """The permanent setting; the cluster may not have acted on it yet."""
        value = self._attribute("--query", "--quiet", "--default", "off")
        return value.strip().lower() in ("on", "true", "yes", "1")

    def seen(self) -> Seen:
        command = ("crm_mon", "--one-shot", "--inactive")
        try:
            document = self._tool(*command, "--output-as=xml")
        except EventsError as exc:
            try:
                # Before Pacemaker 2.0.3.
                document = self._tool(*command, "--as-xml")
            except EventsError:
                raise exc from None
        return node_in(document, self._name)

    def _bring(self, standby: bool) -> str:
        if self.wants_standby() != standby:
            # Permanently: it has to last through a reboot.
            self._attribute("--update", "on" if standby else "off", "--lifetime", "forever")

        def is_settled() -> Proof:
            seen = self.seen()
            settled = seen.standby and seen.resources == 0 if standby else seen.online and not seen.standby
            return Proof(settled, f"{clean(self._name, 80)} is {seen.message}")

        return self.tools.patience.until(forgiving(is_settled), pause=1.0)

    def _attribute(self, *arguments: str) -> str:
        return self._tool("crm_attribute", f"--node={self._name}", "--name", "standby", *arguments)

    def _tool(self, *command: str) -> str:
        return self.tools.run(command, self.tools.patience.request_timeout(30)).succeeded(command[0]).out
