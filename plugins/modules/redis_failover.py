#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: redis_failover
short_description: Let another Redis server be the master
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - If this host's Redis is the master, has a Sentinel fail over, and waits until this one is a replica that is
    connected to its new master.
  - Until then this server takes no writes, for at most 10 seconds, and it follows as soon as the other one is the
    master. A Sentinel alone would tell it some ten seconds later, and what it acknowledges in that time would be
    lost. This needs Redis 6.2 and a user that may C(CLIENT), C(REPLICAOF) and C(CONFIG REWRITE); without, the
    Sentinel does it.
  - Speaks to Redis and Sentinel directly; no client or library is needed. TLS is not supported.
options:
  state:
    description:
      - V(replica) means that this server is a replica, connected to its master.
      - V(member) means that it is the master or such a replica. It is waited for, nothing is done.
    type: str
    choices: [replica, member]
    default: replica
  master_name:
    description: What the Sentinels call the master.
    type: str
    required: true
  host:
    description: Where this host's Redis is.
    type: str
    default: 127.0.0.1
  port:
    description: The port of Redis.
    type: int
    default: 6379
  username:
    description: The user for Redis, where it has access control lists.
    type: str
  password:
    description: The password for Redis.
    type: str
  sentinels:
    description: The Sentinels; asked one after the other until one does it.
    type: list
    elements: dict
    default: [{host: 127.0.0.1}]
    suboptions:
      host:
        description: Where it is.
        type: str
        required: true
      port:
        description: Its port.
        type: int
        default: 26379
  sentinel_username:
    description: The user for the Sentinels.
    type: str
  sentinel_password:
    description: The password for the Sentinels.
    type: str
  timeout:
    description: Seconds that all of it may take.
    type: float
    default: 60
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
- name: Let another host be the master
  graceful.azure.redis_failover:
    master_name: cache
    password: "{{ vaulted_password }}"
    sentinels:
      - host: sentinel1
      - host: sentinel2
"""

RETURN = r"""
msg:
  description: How it is now.
  returned: success
  type: str
  sample: 127.0.0.1:6379 is replica, its link to the master is connected
before:
  description: How it was.
  returned: success
  type: dict
  sample: {"role": "master"}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, run_step
from ansible_collections.graceful.azure.plugins.module_utils._redis import Login, Place, Server


def work(module: AnsibleModule, patience: Patience) -> dict[str, t.Any]:
    params = module.params
    server = Server(
        Place(params["host"], params["port"]),
        Login(params["username"], params["password"]),
        [Place(each["host"], each["port"]) for each in params["sentinels"]],
        Login(params["sentinel_username"], params["sentinel_password"]),
        params["master_name"],
        patience,
    )
    if params["state"] == "member" and not module.check_mode:
        return {"changed": False, "msg": server.is_back()}
    role = server.role()
    settled = role.link == "connected" or (role.name == "master" and params["state"] == "member")
    result = {"changed": not settled, "before": {"role": role.name}, "msg": role.words}
    if not module.check_mode:
        result["msg"] = server.give_up_mastership()
    return result


def main() -> None:
    sentinel = {"host": {"type": "str", "required": True}, "port": {"type": "int", "default": 26379}}
    options = {
        "state": {"type": "str", "choices": ["replica", "member"], "default": "replica"},
        "master_name": {"type": "str", "required": True},
        "host": {"type": "str", "default": "127.0.0.1"},
        "port": {"type": "int", "default": 6379},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        "sentinels": {"type": "list", "elements": "dict", "options": sentinel, "default": [{"host": "127.0.0.1"}]},
        "sentinel_username": {"type": "str"},
        "sentinel_password": {"type": "str", "no_log": True},
        "timeout": {"type": "float", "default": 60},
    }
    run_step(AnsibleModule(options, supports_check_mode=True), work)


if __name__ == "__main__":
    main()
