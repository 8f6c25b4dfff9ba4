# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drains a node of a Windows failover cluster. `_Drain_failover_cluster.psm1` does it."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._kind import WINDOWS, Kind, Options


class Step(Kind):
    summary = (
        "The node is paused and drained: none of its roles is online on it any more. Undone: the node is up, and its "
        "roles fail back as `failback` says. It needs the PowerShell module FailoverClusters on the host."
    )
    options: t.ClassVar = {
        "node": {
            "type": "str",
            "description": "The name of the node in the cluster. By default the one that this host is.",
        },
        "target_node": {
            "type": "str",
            "description": "The node to move the roles to. By default the cluster chooses.",
        },
        "force_drain": {
            "type": "bool",
            "default": False,
            "description": "Whether a role is taken offline to be moved if it cannot be moved otherwise.",
        },
        "failback": {
            "type": "str",
            "choices": ["immediate", "policy", "none"],
            "default": "immediate",
            "description": "What becomes of the roles when the node is back: they return at once, as the policy of "
            "each role says, or not.",
        },
    }
    checks: t.ClassVar = {"node": check.text, "target_node": check.text}
    platforms = (WINDOWS,)

    @classmethod
    def mistake(cls, options: Options) -> str:
        node, target = options["node"], options["target_node"]
        if node and target and node.lower() == target.lower():
            return "target_node is the node to drain. Name another one."
        return super().mistake(options)
