#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: patroni_switchover
short_description: Let another member of a Patroni cluster lead
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - If this host's member leads its Patroni cluster, has Patroni switch over to another one, and waits until that one
    leads and this one follows. It is never a failover; if no other member is fit to lead, nothing is done.
options:
  state:
    description:
      - V(follower) means that another member leads and this one follows.
      - V(member) means that this one is healthy, in whatever role. It is waited for, nothing is done.
    type: str
    choices: [follower, member]
    default: follower
  url:
    description: The REST API of this host's member.
    type: str
    default: http://127.0.0.1:8008
  candidate:
    description: The member that shall lead. By default Patroni chooses the fittest.
    type: str
  username:
    description: The user of the REST API, where it has one.
    type: str
  password:
    description: The user's password.
    type: str
  ca_file:
    description: Certificates to check that of an C(https) URL with, instead of the system's.
    type: path
  validate_certs:
    description: Whether to check the certificate of an C(https) URL.
    type: bool
    default: true
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
- name: Let another host lead
  graceful.azure.patroni_switchover:
    url: https://db1.example.com:8008
    ca_file: /etc/patroni/ca.pem
    username: admin
    password: "{{ vaulted_password }}"
"""

RETURN = r"""
msg:
  description: How it is now.
  returned: success
  type: str
  sample: db1 is replica (streaming), db2 leads
before:
  description: How it was.
  returned: success
  type: dict
  sample: {"role": "leader", "state": "running"}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, run_step
from ansible_collections.graceful.azure.plugins.module_utils._patroni import Api, Cluster


def work(module: AnsibleModule, patience: Patience) -> dict[str, t.Any]:
    params = module.params
    credentials = (params["username"], params["password"]) if params["username"] else None
    api = Api(params["url"], credentials, params["ca_file"], params["validate_certs"])
    cluster = Cluster(api, patience)
    if params["state"] == "member" and not module.check_mode:
        return {"changed": False, "msg": cluster.is_back()}
    mine, others = cluster.look()
    led_by_other = any(member.leads and member.is_healthy for member in others)
    settled = mine.is_healthy and (params["state"] == "member" or (led_by_other and not mine.leads))
    result = {
        "changed": not settled,
        "before": {"role": mine.role, "state": mine.state},
        "msg": f"{mine.name} is {mine.role} ({mine.state})",
    }
    if not module.check_mode:
        result["msg"] = cluster.give_up_leadership(params["candidate"])
    return result


def main() -> None:
    options = {
        "state": {"type": "str", "choices": ["follower", "member"], "default": "follower"},
        "url": {"type": "str", "default": "http://127.0.0.1:8008"},
        "candidate": {"type": "str"},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        "ca_file": {"type": "path"},
        "validate_certs": {"type": "bool", "default": True},
        "timeout": {"type": "float", "default": 60},
    }
    module = AnsibleModule(options, supports_check_mode=True, required_together=[("username", "password")])
    run_step(module, work)


if __name__ == "__main__":
    main()
