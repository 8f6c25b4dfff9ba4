# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes Redis save its data to its disk."""

from __future__ import annotations

import re
import typing as t

from .. import _option_checks as check
from .._errors import EventsError
from .._kind import LINUX, Done, Kind, Ran, StepRecord
from .._patience import Proof


class Item(Kind):
    summary = "Redis has ended a BGSAVE that began after the checkpoint did. Nothing is put back."
    options: t.ClassVar = {
        "argv": {
            "type": "list",
            "elements": "str",
            "default": ["redis-cli"],
            "description": "How redis-cli is called, with the arguments that it needs to connect. No shell is used.",
        },
        "become_user": {
            "type": "str",
            "description": "The user that redis-cli runs as. By default the one that the host is managed as.",
        },
    }
    checks: t.ClassVar = {"argv": check.argv, "become_user": check.text}
    platforms = (LINUX,)

    def do(self) -> Done:
        self.tools.patience.until(self._is_a_later_second, pause=1.0)
        now = self._now()
        self.tools.patience.until(self._begin, pause=1.0)
        return Done(self.tools.patience.until(lambda: self._is_saved(now), pause=1.0), {})

    def undo(self, record: StepRecord) -> str:
        return "there is nothing to put back"

    def _is_a_later_second(self) -> Proof:
        """The time of a save is in whole seconds, so two saves within one second cannot be told apart."""
        saved = _last_save(self._ask("INFO", "persistence").out)
        return Proof(saved is None or self._now() > saved, "the last save of Redis is of this second")

    def _now(self) -> int:
        """By the clock of Redis, as the times of its saves are."""
        ran = self._ask("TIME")
        found = re.match(r"\s*([0-9]+)\s", ran.out + "\n")
        if ran.code != 0 or not found:
            # redis-cli ends with 0 even if the server answers with an error.
            raise EventsError(f"Redis does not answer TIME: {ran.message}")
        return int(found[1])

    def _begin(self) -> Proof:
        ran = self._ask("BGSAVE", "SCHEDULE")
        if "Background saving" in ran.out:
            return Proof(True, "Redis saves")
        if "already in progress" in ran.out:
            # It may have begun before the last change.
            return Proof(False, "another save is under way in Redis")
        raise EventsError(f"Redis did not begin to save: {ran.message}")

    def _is_saved(self, since: int) -> Proof:
        """Only a save that ended since then counts: one that waits for a rewrite of the log has not begun."""
        info = self._ask("INFO", "persistence").out
        saved = _last_save(info)
        is_ok = "rdb_last_bgsave_status:ok" in info
        if "rdb_bgsave_in_progress:0" not in info:
            return Proof(False, "Redis has not ended its save")
        if saved is not None and saved >= since and is_ok:
            return Proof(True, "Redis has saved")
        if "rdb_last_bgsave_status:err" in info and "aof_rewrite_in_progress:1" not in info:
            raise EventsError("Redis could not save. Its log says why.")
        return Proof(False, "Redis has not begun its save")

    def _ask(self, *words: str) -> Ran:
        seconds = self.tools.patience.request_timeout(self.tools.patience.left)
        return self.tools.run([*self.params["argv"], *words], seconds, user=self.params["become_user"])


def _last_save(info: str) -> int | None:
    found = re.search(r"rdb_last_save_time:([0-9]+)", info)
    return int(found[1]) if found else None
