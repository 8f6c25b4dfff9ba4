#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drill_plan
short_description: The plan of a drill, for the role drill only
version_added: 0.2.0
author: graceful.azure contributors (@graceful)
description:
  - Decides whether a drill may begin, and announces its events to the emulator. It is a part of the role
    P(graceful.azure.drill#role), with which it may change.
  - What V(begin) returns is registered as C(drill_plan), what V(announce) and V(end) return as C(graceful_drill). As
    long as that says that events were announced, the role P(graceful.azure.maintenance#role) asks the emulator and
    never Azure.
options:
  state:
    description:
      - V(begin) reads the settings.
      - V(check) fails if the drill must not begin because of the state of a host.
      - V(announce) announces the events to the emulator. It runs on the emulator's host.
      - V(end) ends the drill.
    type: str
    choices: [begin, check, announce, end]
    required: true
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: none
    details: It fails, because there is nothing to drill.
  diff_mode:
    support: none
    details: There is nothing that could differ.
  idempotent:
    support: none
    details: Each V(announce) announces events.
  action_group:
    support: none
    membership: []
seealso:
  - module: graceful.azure.maintenance_plan
"""

EXAMPLES = r"""
- name: Validate input
  graceful.azure.drill_plan:
    state: begin
  run_once: true
  register: drill_plan
"""

RETURN = r"""
announced:
  description: When the events were announced; empty if the drill has ended.
  returned: with O(state=announce) and O(state=end)
  type: str
  sample: "2026-09-19T18:00:00Z"
endpoints:
  description: Where each host finds the emulator.
  returned: with O(state=announce)
  type: dict
  sample: {"web1": "http://10.0.0.4:8801"}
"""
