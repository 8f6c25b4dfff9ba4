#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_status
short_description: Read what is announced for a VM and what earlier runs left on it
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Returns what M(graceful.azure.scheduled_events_info) and M(graceful.azure.maintenance_record) return, in one task.
  - The playbook C(graceful.azure.maintenance) asks every host this, and hosts that have nothing to tell no more.
extends_documentation_fragment:
  - graceful.azure.attributes
  - graceful.azure.imds
options:
  directory:
    description:
      - Directory of the host's maintenance records. One that does not exist has none.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    details: The module only reads.
  diff_mode:
    support: none
    details: There is nothing that could differ.
  idempotent:
    support: full
seealso:
  - module: graceful.azure.scheduled_events_info
  - module: graceful.azure.maintenance_record
"""

EXAMPLES = r"""
- name: See what is announced and what is left
  graceful.azure.maintenance_status:
    directory: /var/lib/graceful/records
  register: status
"""

RETURN = r"""
events:
  description: The announced events, as M(graceful.azure.scheduled_events_info) returns them.
  returned: success
  type: list
  elements: dict
vm_name:
  description: This VM's Azure name; V(none) where the service does not tell it and O(vm_name) is not set.
  returned: success
  type: str
  sample: web_0
endpoint:
  description: Where the service was found.
  returned: success
  type: str
  sample: http://169.254.169.254
records:
  description: The unfinished records, as M(graceful.azure.maintenance_record) returns them.
  returned: always
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._argspec import Viewpoint, connection_options, run
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record import Wish, keep_record
from ansible_collections.graceful.azure.plugins.module_utils._service import Service


def look(module: AnsibleModule, service: Service) -> dict[str, t.Any]:
    kept = keep_record(module.params["directory"], Wish())
    for warning in kept.warnings:
        module.warn(warning)
    records = kept.result["records"]
    view = Viewpoint(module, service)
    try:
        seen = view.look()
    except EventsError as exc:
        raise EventsError(exc.message, **{**exc.fields, "records": records}) from exc
    return {"events": seen.events, "vm_name": view.vm_name, "endpoint": service.endpoint, "records": records}


def main() -> None:
    options = {**connection_options(), "directory": {"type": "path", "required": True}}
    run(AnsibleModule(options, supports_check_mode=True), look)


if __name__ == "__main__":
    main()
