# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: assignments
short_description: What each host has to do in a maintenance cycle
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - From the plan and what M(graceful.azure.maintenance_status) returned on each host, the events that each host has to
    claim, whether it has to be drained, and what earlier runs left on it.
  - With O(claims), what another run has in hand on any host is left out everywhere.
positional: statuses, claims
options:
  _input:
    description: The plan.
    type: dict
    required: true
  statuses:
    description: What the module returned, by host.
    type: dict
    required: true
  claims:
    description: What claiming returned, by host, once that is done.
    type: dict
  forced:
    description: Whether to take over what a run that may still be alive has left on a host.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See what there is to do
  ansible.builtin.set_fact:
    work: "{{ plan | graceful.azure.assignments({inventory_hostname: status}) }}"
"""

RETURN = r"""
_value:
  description:
    - The work by host, the events that other runs have in hand, which of those this run should claim again, the hosts
      with a damaged record, and remarks in words.
  type: dict
"""

import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._cycle import assignments


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"assignments": assignments}
