# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of the user: one drains, one checks whether that is done, and one undoes it."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._kind import LINUX, Done, Found, Kind, Ran, StepRecord
from .._patience import Proof

# In seconds: it is run again and again.
LONGEST_PROBE = 30.0


class Step(Kind):
    summary = (
        "`do` has ended with 0, and `probe` ends with 0. Undone: `undo` has ended with 0. What passed the probe before "
        "is left as it is."
    )
    options: t.ClassVar = {
        "do": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "The program that drains, and its arguments. No shell is used. It may be run again after an "
            "interruption.",
        },
        "probe": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "A program that ends with 0 if the host is drained and changes nothing. It is asked before "
            "`do`, and after it until it passes.",
        },
        "undo": {
            "type": "list",
            "elements": "str",
            "description": "The program that puts the host back. Without it there is nothing to undo.",
        },
        "become_user": {
            "type": "str",
            "platforms": (LINUX,),
            "description": "The user that they run as. By default the one that the host is managed as.",
        },
        "environment": {
            "type": "dict",
            "description": "Environment variables for these programs. They are noted in the host's record, so "
            "this is no place for secrets.",
        },
    }
    checks: t.ClassVar = {
        **dict.fromkeys(("do", "probe", "undo"), check.argv),
        "become_user": check.text,
        "environment": check.environment,
    }

    def look(self) -> Found:
        proof = self._probe()
        return Found(proof.holds, proof.message, {"in_service": not proof.holds})

    def do(self) -> Done:
        self._run("do", self.tools.patience.left).succeeded("The program of do")
        return Done(self.tools.patience.until(self._probe, pause=1.0), {})

    def undo(self, record: StepRecord) -> str:
        if not self.params["undo"]:
            return "there is nothing to undo"
        ran = self._run("undo", self.tools.patience.left).succeeded("The program of undo")
        return f"undo has ended: {ran.message}"

    def _probe(self) -> Proof:
        ran = self._run("probe", self.tools.patience.request_timeout(LONGEST_PROBE))
        ended = "passes" if ran.code == 0 else f"ends with {ran.code}"
        return Proof(ran.code == 0, f"the probe {ended}: {ran.message}")

    def _run(self, name: str, seconds: float) -> Ran:
        variables = {key: str(value) for key, value in (self.params["environment"] or {}).items()}
        return self.tools.run(self.params[name], seconds, user=self.params["become_user"], environment=variables)
