# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: as_json
type: stdout
short_description: Prints nothing but one JSON object at the end, the outcome of the wait on every host
description:
  - For the integration tests, in place of the callbacks that print JSON and that ansible-core does not have.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "as_json"

    def __init__(self) -> None:
        super().__init__()
        self._outcomes: dict[str, t.Any] = {}

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._outcomes[result._host.get_name()] = result._result.get("outcome")

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._display.display(json.dumps(self._outcomes))
