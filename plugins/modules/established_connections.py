#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: established_connections
short_description: Wait until nobody is connected to some ports of this host
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Waits until the host has no established TCP connection on the ports, over IPv4 or IPv6. It closes none.
  - Use it after the host has been taken out of its load balancer, which leaves the connections that are open.
options:
  ports:
    description: Local ports.
    type: list
    elements: int
    required: true
  ignore_from:
    description: Addresses or networks whose connections do not count, such as those of a monitoring system.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait. Connections that are left then are a failure.
    type: float
    default: 60
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: full
    details: It looks once. Not changed means that there are no connections.
  diff_mode:
    support: none
    details: There is nothing that could differ.
  idempotent:
    support: full
  platform:
    platforms: linux
  action_group:
    support: none
    membership: []
seealso:
  - module: graceful.azure.health_probe
"""

EXAMPLES = r"""
- name: Let the last users finish
  graceful.azure.established_connections:
    ports: [443]
    ignore_from: [168.63.129.16]
    timeout: 300
"""

RETURN = r"""
msg:
  description: How it is now.
  returned: success
  type: str
  sample: no connections on 443
connections:
  description: Number of connections at the beginning.
  returned: success
  type: int
  sample: 7
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._connections import Table, networks
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, run_step


def work(module: AnsibleModule, patience: Patience) -> dict[str, t.Any]:
    if not module.params["ports"] or not all(0 < port < 65536 for port in module.params["ports"]):
        raise WrongOption("ports has to name port numbers, 1 to 65535.")
    table = Table(set(module.params["ports"]), networks(module.params["ignore_from"]))
    count = len(table.open_now())
    if module.check_mode:
        return {"changed": count > 0, "connections": count, "msg": table.none_open().words}
    return {"changed": count > 0, "connections": count, "msg": patience.until(table.none_open)}


def main() -> None:
    options = {
        "ports": {"type": "list", "elements": "int", "required": True},
        "ignore_from": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "float", "default": 60},
    }
    run_step(AnsibleModule(options, supports_check_mode=True), work)


if __name__ == "__main__":
    main()
