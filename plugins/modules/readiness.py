#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: readiness
short_description: Check whether hosts are ready for maintenance, for the roles prepare and drill only
version_added: 0.2.0
author: graceful.azure contributors (@graceful)
description:
  - Asks a host and validates all its variables, or judges the answers of all hosts.
  - It is a part of the roles P(graceful.azure.prepare#role) and P(graceful.azure.drill#role), with which it may change.
  - Problems of a host are in the result. The task does not fail, so that every host is asked.
options:
  state:
    description:
      - V(ask) asks the host's metadata service, and checks whether the host can write a record, in one call.
      - V(judge) judges the results of V(ask), which are in the hosts' variables C(prepare_answer). It runs on the
        controller, and notes the hosts' Azure names in C(graceful_report_dir).
    type: str
    choices: [ask, judge]
    required: true
  max_clock_offset:
    description: For V(judge), seconds that a host's clock may differ from the service's.
    type: float
    default: 30
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: full
    details: It asks, and writes nothing.
  diff_mode:
    support: none
    details: There is nothing that could differ.
  idempotent:
    support: full
  action_group:
    support: none
    membership: []
seealso:
  - module: graceful.azure.host_maintenance
"""

EXAMPLES = r"""
- name: Ask the metadata service
  graceful.azure.readiness:
    state: ask
  register: prepare_answer
"""

RETURN = r"""
observation:
  description: What the host sees, as M(graceful.azure.host_maintenance) returns it; V(none) if it could not be asked.
  returned: with O(state=ask)
  type: dict
  sample: {"vm_name": "web_0", "events": []}
table:
  description: The state of all hosts, as lines of text.
  returned: with O(state=judge)
  type: list
  elements: str
  sample: ["1 of 1 hosts are ready."]
problems:
  description: The problems of the hosts that are not ready, by host.
  returned: with O(state=judge)
  type: dict
  sample: {}
mistakes:
  description: The mistakes in the variables of the host.
  returned: with O(state=ask)
  type: list
  elements: str
  sample: []
"""
