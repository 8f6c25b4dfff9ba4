#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: haproxy_server
short_description: Set the state of a server in HAProxy
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Sets the administrative state of a server over HAProxy's runtime socket, and verifies it there.
  - Run it on the balancer, or anywhere if the socket is a TCP one.
options:
  socket:
    description:
      - Path of the runtime socket, or C(host:port). It needs C(level admin).
    type: str
    required: true
  backend:
    description: The backend.
    type: str
    required: true
  server:
    description: The server as the backend calls it.
    type: str
    required: true
  state:
    description:
      - V(drain) lets no new sessions begin and returns at once.
      - V(maint) does the same, waits until no session is left, then sets the server to maintenance.
      - V(ready) lets sessions begin again.
    type: str
    choices: [drain, maint, ready]
    required: true
  timeout:
    description: Seconds that all of it may take. Sessions that are left then are a failure; the server stays in drain.
    type: float
    default: 60
extends_documentation_fragment:
  - graceful.azure.attributes
attributes:
  check_mode:
    support: full
    details: It looks once. Not changed means that the server is as wanted.
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
- name: Take this host out of the balancer
  graceful.azure.haproxy_server:
    socket: /run/haproxy/admin.sock
    backend: web
    server: web1
    state: maint
    timeout: 120
  delegate_to: balancer1
"""

RETURN = r"""
msg:
  description: The state of the server and the number of its sessions.
  returned: success
  type: str
  sample: web/web1 is in state maint with 0 sessions
sessions:
  description: How many sessions were left when O(timeout) was over.
  returned: when O(state=maint) was not reached because of sessions that did not end
  type: int
  sample: 3
before:
  description: How it was; C(in_service) says whether sessions could begin.
  returned: success
  type: dict
  sample: {"in_service": true, "state": "ready"}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._haproxy import Server
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    server = Server(params["socket"], params["backend"], params["server"], Patience(params["timeout"]))
    seen = server.look()
    result = {
        "changed": seen.state != params["state"],
        "before": {"in_service": seen.state == "ready", "state": seen.state},
        "msg": f"{server.name} is {seen.message}",
    }
    if not module.check_mode:
        result["msg"] = server.bring(params["state"])
    return result


def main() -> None:
    options = {
        "socket": {"type": "str", "required": True},
        "backend": {"type": "str", "required": True},
        "server": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["drain", "maint", "ready"], "required": True},
        "timeout": {"type": "float", "default": 60},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    try:
        result = work(module)
    except EventsError as exc:
        module.fail_json(msg=exc.message, **exc.fields)
    else:
        module.exit_json(**result)


if __name__ == "__main__":
    main()
