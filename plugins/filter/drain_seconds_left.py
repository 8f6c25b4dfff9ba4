# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drain_seconds_left
short_description: The time that a step of a drain may still use
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Seconds that are left of the drain's time and of the step's own. Fails if there are none.
  - The role P(graceful.azure.drain#role) uses it.
positional: reserve
options:
  _input:
    description: The report so far, from P(graceful.azure.drain_report#filter).
    type: dict
    required: true
  reserve:
    description: Seconds to keep back, at most half of those left, so that what waits ends before it is stopped.
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: A task that ends in time
  ansible.builtin.command: /usr/local/bin/drain
  changed_when: true
  timeout: "{{ drain_report | graceful.azure.drain_seconds_left | int }}"
"""

RETURN = r"""
_value:
  description: The seconds.
  type: float
"""

import time
import typing as t
from datetime import datetime, timezone

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils import _drain_report as reports


def left(report: dict[str, t.Any], reserve: float = 0) -> float:
    try:
        return reports.seconds_left(report, reserve, reports.Now(time.monotonic(), datetime.now(timezone.utc)))
    except reports.NoTimeLeft as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"drain_seconds_left": left}
