#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pacemaker_standby
short_description: Have a Pacemaker node give its resources to the others
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Sets a node of a Pacemaker cluster to standby and waits until no resource runs on it, or makes it active again.
  - The standby outlives a reboot of the node.
options:
  state:
    description: V(standby), no resources may run on the node; V(active), they may.
    type: str
    choices: [standby, active]
    required: true
  node:
    description: The node as the cluster calls it. By default the one that this host is.
    type: str
  timeout:
    description: Seconds that all of it may take. Resources that are left then are a failure; the node stays in standby.
    type: float
    default: 60
requirements:
  - crm_attribute, crm_mon and crm_node, which come with Pacemaker
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: full
    details: It looks once. Not changed means that it is as wanted.
  diff_mode:
    support: none
    details: There is nothing to show beyond the message.
  idempotent:
    support: full
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Move the resources elsewhere
  graceful.azure.pacemaker_standby:
    state: standby
    timeout: 300
"""

RETURN = r"""
msg:
  description: How it is now.
  returned: success
  type: str
  sample: db1 is standby with 0 resources
before:
  description: How it was; C(in_service) says whether the node was not in standby.
  returned: success
  type: dict
  sample: {"in_service": true}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._pacemaker import Node, run_with
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, run_step


def work(module: AnsibleModule, patience: Patience) -> dict[str, t.Any]:
    standby = module.params["state"] == "standby"
    node = Node(run_with(module.run_command), patience, module.params["node"])
    wanted, seen = node.wants_standby(), node.look()
    settled = wanted == standby and seen.standby == standby and (seen.resources == 0 or not standby)
    result = {
        "changed": not settled,
        "before": {"in_service": not wanted},
        "msg": f"{node.name} is {'standby' if seen.standby else 'active'} with {seen.resources} resources",
    }
    if not module.check_mode:
        result["msg"] = node.bring(standby)
    return result


def main() -> None:
    options = {
        "state": {"type": "str", "choices": ["standby", "active"], "required": True},
        "node": {"type": "str"},
        "timeout": {"type": "float", "default": 60},
    }
    run_step(AnsibleModule(options, supports_check_mode=True), work)


if __name__ == "__main__":
    main()
