# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program of the user that saves something."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._kind import LINUX, Done, Kind, StepRecord
from .._text import clean


class Item(Kind):
    summary = "The program has ended with 0. Nothing is restored: the collection does not know what was saved."
    options: t.ClassVar = {
        "argv": {
            "type": "list",
            "elements": "str",
            "required": True,
            "description": "The program and its arguments. No shell is used. It may be run again after an "
            "interruption.",
        },
        "become_user": {
            "type": "str",
            "platforms": (LINUX,),
            "description": "The user that it runs as. By default the one that the host is managed as.",
        },
    }
    checks: t.ClassVar = {"argv": check.argv, "become_user": check.text}

    def do(self) -> Done:
        ran = self.tools.run(self.params["argv"], self.tools.patience.left, user=self.params["become_user"])
        # Without its arguments, which may be secret.
        ran.succeeded(clean(self.params["argv"][0], 200))
        return Done(f"the program has ended: {ran.message}", {})

    def undo(self, record: StepRecord) -> str:
        return "there is nothing to put back"
