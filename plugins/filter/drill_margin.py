# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drill_margin
short_description: Whether a drill would have been fast enough
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Compares the time from notice to approval in a report with the notice that Azure gives for each kind of event.
options:
  _input:
    description: The report's data.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Say whether we would have made it
  ansible.builtin.debug:
    msg: "{{ graceful__report | graceful.azure.drill_margin }}"
"""

RETURN = r"""
_value:
  description: A line for the time that it took, and one for each kind of event.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._drill import drill_margin


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"drill_margin": drill_margin}
