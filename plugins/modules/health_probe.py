#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: health_probe
short_description: Take a host out of its load balancer by what its health URL answers
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Makes the URL that a load balancer asks answer something else than healthy, by a marker file or by a URL of the
    application, and waits until it has done so for as long as a load balancer needs to notice.
  - Puts it back the same way.
options:
  state:
    description: Whether the host shall get traffic.
    type: str
    choices: [out, in]
    required: true
  url:
    description:
      - The health URL, asked as the load balancer would, from the host itself.
      - Redirects are not followed, certificates are not checked, proxies are not used.
    type: str
    required: true
  marker:
    description: A file that decides what the health URL answers. Its folder has to be there.
    type: path
  marker_means:
    description: Whether the host is V(out) or V(in) while the marker is there.
    type: str
    choices: [out, in]
    default: out
  out_url:
    description:
      - A URL that takes the application out. Called whatever the health URL says, so it has to bear being called twice.
    type: str
  in_url:
    description: A URL that puts the application back. As O(out_url), it has to bear being called twice.
    type: str
  method:
    description: The method for O(out_url) and O(in_url).
    type: str
    default: POST
  interval:
    description: Seconds between two probes of the load balancer.
    type: float
    default: 5
  threshold:
    description: Number of probes in a row after which the load balancer acts.
    type: float
    default: 2
  healthy:
    description: The HTTP statuses that the load balancer takes for healthy.
    type: list
    elements: int
    default: [200]
  must_answer:
    description:
      - Whether the health URL has to say something about the application before the host is taken out. That is an
        answer that is healthy, or an error of the server (500 and above).
      - A URL where nothing answers, or only that there is no such page, would prove nothing.
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
    details: It looks once. Not changed means that the host is as wanted at this moment.
  diff_mode:
    support: none
    details: There is nothing to show beyond the message.
  idempotent:
    support: full
  action_group:
    support: none
    membership: []
seealso:
  - module: graceful.azure.established_connections
"""

EXAMPLES = r"""
- name: No new traffic for this host
  graceful.azure.health_probe:
    state: out
    url: http://127.0.0.1:8080/health
    marker: /run/web/maintenance

- name: Back into service
  graceful.azure.health_probe:
    state: in
    url: http://127.0.0.1:8080/health
    marker: /run/web/maintenance
"""

RETURN = r"""
msg:
  description: How it is now.
  returned: success
  type: str
  sample: http://127.0.0.1:8080/health answers 503, for 10 s
status:
  description: The HTTP status that was seen first; V(none) if nothing answered.
  returned: success
  type: int
  sample: 200
before:
  description: How it was; C(in_service) says whether the host was not switched out.
  returned: success
  type: dict
  sample: {"in_service": true}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._health import Health, MarkerSwitch, Switch, UrlSwitch
from ansible_collections.graceful.azure.plugins.module_utils._patience import Patience, run_step


def switch_of(params: t.Mapping[str, t.Any]) -> Switch:
    if params["marker"]:
        return MarkerSwitch(params["marker"], params["marker_means"] == "out")
    return UrlSwitch(params["out_url"], params["in_url"], params["method"])


def work(module: AnsibleModule, patience: Patience) -> dict[str, t.Any]:
    params = module.params
    health = Health(params["url"], switch_of(params), params["healthy"], params["interval"], params["threshold"])
    out = params["state"] == "out"
    answer, healthy, is_out = health.look(patience)
    result = {
        "changed": is_out != out or healthy == out,
        "status": answer.status,
        "before": {"in_service": not is_out},
        "msg": answer.words,
    }
    if not module.check_mode:
        result["msg"] = health.settle(out, patience, params["must_answer"])
    return result


def main() -> None:
    options = {
        "state": {"type": "str", "choices": ["out", "in"], "required": True},
        "url": {"type": "str", "required": True},
        "marker": {"type": "path"},
        "marker_means": {"type": "str", "choices": ["out", "in"], "default": "out"},
        "out_url": {"type": "str"},
        "in_url": {"type": "str"},
        "method": {"type": "str", "default": "POST"},
        "interval": {"type": "float", "default": 5},
        "threshold": {"type": "float", "default": 2},
        "healthy": {"type": "list", "elements": "int", "default": [200]},
        "must_answer": {"type": "bool", "default": True},
        "timeout": {"type": "float", "default": 60},
    }
    module = AnsibleModule(
        options,
        supports_check_mode=True,
        required_one_of=[("marker", "out_url")],
        mutually_exclusive=[("marker", "out_url")],
        required_together=[("out_url", "in_url")],
    )
    run_step(module, work)


if __name__ == "__main__":
    main()
