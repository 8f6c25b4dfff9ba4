# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: recap
short_description: What a maintenance run did, as data and in words
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Puts together what the phases of the playbook C(graceful.azure.maintenance) left as facts.
  - The role P(graceful.azure.report#role) shows it.
positional: variables, hosts
options:
  _input:
    description: The run, with its C(plan), C(work), C(decision) and C(approvals).
    type: dict
    required: true
  variables:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  hosts:
    description: The hosts that took part.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Tell what happened
  ansible.builtin.set_fact:
    report: "{{ run | graceful.azure.recap(hostvars, ansible_play_hosts_all) }}"
"""

RETURN = r"""
_value:
  description: The report's data.
  type: dict
"""

import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._cycle import recap


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"recap": recap}
