# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stops sites and application pools of IIS when there are no connections left. `_Drain_iis.psm1` does it."""

from __future__ import annotations

import re
import typing as t

from .. import _option_checks as check
from .._kind import WINDOWS, Kind, Options
from .._text import quoted

# Without what the cmdlets take for a pattern or a path.
_NAME = re.compile(r"(?=\S)[^*?\[\]/\\`\x00-\x1f]{1,260}(?<=\S)")


def _names(option: str, value: t.Sequence[str]) -> str:
    wrong = next((name for name in value if not _NAME.fullmatch(name)), None)
    return "" if wrong is None else f"{option} has {quoted(wrong)}, which cannot be a name in IIS."


class Step(Kind):
    summary = (
        "Nobody is connected to the sites' ports any more, then the sites and the application pools are stopped. "
        "Undone: those that ran before are started, pools first. It needs the PowerShell module WebAdministration on "
        "the host. Take the host out of its balancer before this step: IIS takes connections until it is stopped."
    )
    options: t.ClassVar = {
        "sites": {
            "type": "list",
            "elements": "str",
            "default": [],
            "description": "Names of sites, in the order in which they are stopped.",
        },
        "app_pools": {
            "type": "list",
            "elements": "str",
            "default": [],
            "description": "Names of application pools. Their workers end the requests that they have, for as long as "
            "the pool's shutdown time limit.",
        },
        "ports": {
            "type": "list",
            "elements": "int",
            "description": "Local TCP ports on which nobody may be connected before anything is stopped. By default "
            "those of the sites' http and https bindings. `[]` waits for nobody.",
        },
        "ignore_from": {
            "type": "list",
            "elements": "str",
            "default": [],
            "description": "Addresses or networks whose connections do not count, such as those of a health probe.",
        },
    }
    checks: t.ClassVar = {
        "sites": _names,
        "app_pools": _names,
        "ports": lambda name, value: check.ports(name, value) if value else "",
        "ignore_from": check.networks,
    }
    platforms = (WINDOWS,)

    @classmethod
    def mistake(cls, options: Options) -> str:
        if not options["sites"] and not options["app_pools"]:
            return "sites or app_pools has to name something to stop."
        return super().mistake(options)
