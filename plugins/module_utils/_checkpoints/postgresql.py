# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a CHECKPOINT in PostgreSQL, so that its recovery after a restart is short."""

from __future__ import annotations

import typing as t

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import LINUX, Done, Kind, StepRecord
from .._patience import Proof

STATEMENT = ("-X", "-w", "-v", "ON_ERROR_STOP=1", "-c", "CHECKPOINT")
# The exit status of psql if it cannot connect.
NO_CONNECTION = 2
# How long a server may take to restart after a switchover.
RESTARTS_WITHIN = 20.0


class Item(Kind):
    summary = "PostgreSQL has ended a CHECKPOINT. Nothing is put back."
    options: t.ClassVar = {
        "argv": {
            "type": "list",
            "elements": "str",
            "default": ["psql"],
            "description": "How psql is called, with the arguments that it needs to connect. It asks for no password. "
            "No shell is used.",
        },
        "become_user": {
            "type": "str",
            "description": "The user that psql runs as, often `postgres`. By default the one that the host is managed "
            "as.",
        },
    }
    checks: t.ClassVar = {"argv": check.argv, "become_user": check.text}
    platforms = (LINUX,)

    def do(self) -> Done:
        return Done(self.tools.patience.part(RESTARTS_WITHIN).until(self._checkpoint, pause=1.0), {})

    def undo(self, record: StepRecord) -> str:
        return "there is nothing to put back"

    def _checkpoint(self) -> Proof:
        # The statement may take all the time that is left.
        seconds = self.tools.patience.request_timeout(self.tools.patience.left)
        ran = self.tools.run([*self.params["argv"], *STATEMENT], seconds, user=self.params["become_user"])
        if ran.code == 0:
            return Proof(True, "PostgreSQL has made a CHECKPOINT")
        if ran.code == NO_CONNECTION:
            return Proof(False, f"PostgreSQL takes no connection: {ran.message.rstrip('.')}")
        raise EventsError(f"PostgreSQL made no CHECKPOINT: {ran.message}")
