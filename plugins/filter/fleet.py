# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: What the hosts saw and how they are set up, in the form that the plan reads
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Collects from C(hostvars) what M(graceful.azure.maintenance_status) returned on each host, and the inventory's
    C(graceful_vm_name), C(graceful_policy), C(graceful_min_available), C(graceful_window) and C(graceful_drain_budget).
positional: asked, inventory
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  asked:
    description: The hosts that were asked; their answers are in C(graceful__status).
    type: list
    elements: str
    required: true
  inventory:
    description: All hosts of the inventory.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Collect what the hosts saw
  ansible.builtin.set_fact:
    seen: "{{ hostvars | graceful.azure.fleet(ansible_play_hosts_all, groups['all']) }}"
"""

RETURN = r"""
_value:
  description:
    - V(statuses) by host, and V(observations) and V(settings) for P(graceful.azure.plan#filter).
    - V(mistakes) says by host what is wrong with how it would be drained, saved or put back, V(mute) names the hosts
      whose webhooks cannot be used, and V(words) has both for people.
    - V(controller) is the name of the machine that runs Ansible.
  type: dict
"""

import platform
import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._cycle import fleet


def fleet_here(*arguments: t.Any, **named: t.Any) -> dict[str, t.Any]:
    return dict(fleet(*arguments, **named), controller=platform.node() or "controller")


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"fleet": fleet_here}
