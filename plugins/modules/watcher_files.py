#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: watcher_files
short_description: Make the files of the watcher, for the role watcher only
version_added: 0.2.0
author: graceful.azure contributors (@graceful)
description:
  - Packs the watcher into one file, and makes its configuration and its secrets from the variables of the host. It runs
    on the controller, and only in the role P(graceful.azure.watcher#role), with which it may change.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  receivers:
    description: Who gets the messages, see the role.
    type: raw
    default: []
  on_its_own:
    description: Whether the host drains itself if no run does.
    type: bool
    default: false
  approve_alone:
    description: Whether it then approves an event that names this VM and no other.
    type: bool
    default: false
  poll_interval:
    description: Seconds between two requests.
    type: float
    default: 1.0
  spool_max:
    description: How many messages are kept for a receiver that is not available.
    type: int
    default: 1000
  state_dir:
    description: Directory for the state of the watcher, on the host.
    type: str
    required: true
  metrics_dir:
    description: Directory for the metrics, on the host. None are written if it is empty.
    type: str
    default: ""
  secrets_file:
    description: Where the secrets are on the host.
    type: str
    required: true
  paths:
    description: Other paths that the role uses, by the names of its variables, to be checked.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    details: The files are made in Ansible's temporary directory on the controller, and removed at the end of the run.
  diff_mode:
    support: none
    details: There is nothing that could differ.
  idempotent:
    support: full
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Make the files of the watcher
  graceful.azure.watcher_files:
    receivers: "{{ watcher_receivers }}"
    state_dir: /var/lib/graceful/watcher
    secrets_file: /etc/graceful/watcher-secrets.json
  register: made
"""

RETURN = r"""
program:
  description: Path of the program on the controller.
  returned: success
  type: str
config:
  description: Path of the configuration on the controller.
  returned: success
  type: str
secrets:
  description: Path of the secrets on the controller, for the user who runs Ansible only.
  returned: success
  type: str
not_covered:
  description: What the host cannot do on its own, and why.
  returned: success
  type: list
  elements: str
  sample: ["Drain step 'balancers' (haproxy): the controller takes it."]
"""

# The work is done in the action plugin of the same name.
