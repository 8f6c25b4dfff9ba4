# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: recorder
type: notification
short_description: Writes what became of every task on every host, one JSON object a line
description:
  - For the integration tests, to the file that E(GRACEFUL_RECORD) names.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "recorder"

    def __init__(self) -> None:
        super().__init__()
        self._begun: dict[tuple[str, str], float] = {}

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        self._begun[host.get_name(), task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._record("ok", result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._record("failed", result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._record("unreachable", result)

    def _record(self, status: str, result: t.Any) -> None:
        host, task = result._host.get_name(), result._task
        line = {
            "host": host,
            "task": task.get_name(),
            "status": status,
            "seconds": time.monotonic() - self._begun[host, task._uuid],
            "result": result._result,
        }
        with open(os.environ["GRACEFUL_RECORD"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
