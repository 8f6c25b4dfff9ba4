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
  - Whole seconds that are left of the drain's time and of the step's own. Fails if there are none.
  - The role P(graceful.azure.drain#role) uses it.
positional: reserve
options:
  _input:
    description: What M(graceful.azure.drain_step) returned.
    type: dict
    required: true
  reserve:
    description: Seconds to keep back, at most half of those left, so that what waits ends before it is stopped.
    type: float
    default: 0
  fail:
    description: Whether it is a failure if no time is left. If not, V(0) is returned.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: A task that ends in time
  ansible.builtin.command: /usr/local/bin/drain
  changed_when: true
  timeout: "{{ drain_progress | graceful.azure.drain_seconds_left }}"
"""

RETURN = r"""
_value:
  description: The seconds.
  type: int
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils._drain import seconds_left


def left(progress: dict[str, t.Any], reserve: float = 0, fail: bool = True) -> int:
    seconds = seconds_left(progress)
    if fail and seconds <= 0:
        raise AnsibleFilterError("There is no time left for it.")
    # Ansible takes 0 for no limit.
    return max(1 if fail else 0, int(max(seconds - reserve, seconds / 2)))


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"drain_seconds_left": left}
