#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_plan
short_description: The plan of a maintenance, for the role maintenance only
version_added: 0.2.0
author: graceful.azure contributors (@graceful)
description:
  - Makes the state of a run, or continues it by one pass. It runs on the controller, and only in the role
    P(graceful.azure.maintenance#role), with which it may change.
  - What it returns is registered as C(graceful_pass).
options:
  state:
    description:
      - Whether the run begins, another pass has been made, no more passes are left, or the run is over and its recap is
        shown.
    type: str
    choices: [begin, advance, end, recap]
    required: true
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: full
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
- name: Plan
  graceful.azure.maintenance_plan:
    state: advance
  run_once: true
  register: graceful_pass
"""

RETURN = r"""
msg:
  description: What is announced, what is being done and what is stuck.
  returned: success
  type: list
  elements: str
  sample: ["Reboot of web1: drain, then approve."]
"""
