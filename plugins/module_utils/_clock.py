# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The passing of time, in one place so that tests can hand in their own."""

from __future__ import annotations

import time
from datetime import datetime, timezone


class Clock:
    def monotonic(self) -> float:
        """The same for all the processes that Ansible forks."""
        return time.monotonic()

    def utc_now(self) -> datetime:
        return datetime.now(timezone.utc)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
