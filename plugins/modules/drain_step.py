#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_step
short_description: Take the steps of a drain, within the time that is left
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Takes steps that drain a host, or undoes them. For each it looks, notes in the host's record what is about to be
    done, does it, verifies it, and notes that.
  - Except for O(now=read) it never fails, and it never loses the host, also not if the host cannot be reached.
    RV(report) says how it went.
  - It is what the role P(graceful.azure.drain#role) consists of. Use the role.
notes:
  - This is an action plugin. It runs modules of this collection on the host.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  now:
    description:
      - V(begin) checks all steps, claims the event and returns what is to be done.
      - V(take) does or undoes what comes next, up to a step that tasks have to take.
      - V(doing), V(proven) and V(failed) note how far a step is that tasks take.
      - V(read) does nothing to the host. It fails if a step or a task file could not be used.
      - V(undone) adds the report of an undoing to that of a drain that failed.
    type: str
    choices: [begin, take, doing, proven, failed, undone, read]
    required: true
  progress:
    description: What this module returned last. For all but V(begin).
    type: dict
  steps:
    description:
      - All steps as the user has written them. For V(begin), for V(read), and for V(take), which needs their passwords.
    type: list
    elements: dict
  event:
    description: The event, for V(begin).
    type: dict
  run:
    description: The options of M(graceful.azure.maintenance_record) that say which run this is, for V(begin).
    type: dict
  seconds:
    description: The time for all of it, for V(begin).
    type: float
  undo:
    description: Whether to undo what the record says was done, for V(begin).
    type: bool
    default: false
  kinds:
    description: Undo only steps of these kinds, for V(begin). By default those of all kinds.
    type: list
    elements: str
  folders:
    description: Where task files are looked for, for V(begin) and V(read).
    type: list
    elements: str
  files:
    description: Task files, for V(read).
    type: list
    elements: str
  before:
    description: How it was before the step, for V(doing).
    type: dict
  holds:
    description: Whether what an earlier run has done still holds, for V(doing).
    type: bool
    default: false
  result:
    description: What the tasks returned, for V(proven), V(failed) and V(undone).
    type: dict
attributes:
  check_mode:
    support: full
    details: It looks and decides, and writes nothing.
  diff_mode:
    support: none
    details: The report says what was done.
  idempotent:
    support: full
    details: A step that is done and still holds is not done again.
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Drain a host
  ansible.builtin.include_role:
    name: graceful.azure.drain
  vars:
    drain_event: "{{ mine.events[0] }}"
    drain_run_id: 5a6c0f0e-4c5b-4d1c-b8f6-0c1f6f1d9f51
    drain_steps:
      - name: No new connections
        kind: health_probe
        url: http://127.0.0.1:8080/health
        marker: /run/web/maintenance
"""

RETURN = r"""
report:
  description: How far it is. C(ready) is true only if every step is done and verified.
  returned: unless O(now=read)
  type: dict
plan:
  description: The steps that are to be done or undone, in order; without passwords.
  returned: unless O(now=read)
  type: list
  elements: dict
going:
  description: Whether there is more to do. It ends with the last step, and with the first that failed.
  returned: unless O(now=read)
  type: bool
step:
  description: The step under way.
  returned: unless O(now=read)
  type: dict
next:
  description: The step that comes next, or that is under way; V(none) if it is over.
  returned: unless O(now=read)
  type: dict
files:
  description: The full paths of the task files.
  returned: when O(now=read)
  type: list
  elements: str
evidence:
  description: The names of the variables that their tasks register.
  returned: when O(now=read)
  type: list
  elements: str
own:
  description: How many of the steps tasks have to take.
  returned: unless O(now=read)
  type: int
"""

# The work is done in the action plugin of the same name.
