#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduled_events_info
short_description: Read the maintenance that Azure has announced for this VM
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Reads the Scheduled Events document of the VM's metadata service, in which Azure announces reboots, redeployments,
    freezes, Spot evictions and deletions minutes or seconds ahead.
  - Run it on the VM itself, nothing else can reach the service. The first call enables the service for the VM.
notes:
  - Azure disables the service for a VM that has sent no request for 24 hours.
extends_documentation_fragment:
  - graceful.azure.attributes
  - graceful.azure.imds
  - graceful.azure.imds.library
  - graceful.azure.imds.filters
attributes:
  platform:
    support: full
    platforms: posix, windows
    details: On Windows, where the connection is winrm, psrp or ssh with PowerShell, the task runs the Windows module.
  check_mode:
    support: full
    details: The module only reads.
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
seealso:
  - module: graceful.azure.scheduled_events_wait
  - module: graceful.azure.scheduled_event_approve
"""

EXAMPLES = r"""
- name: See what Azure has announced
  graceful.azure.scheduled_events_info:
  register: announced

- name: Only reboots and redeployments of this very VM that have not started yet
  graceful.azure.scheduled_events_info:
    event_types: [Reboot, Redeploy]
    event_statuses: [Scheduled]
    only_mine: true
  register: mine

- name: Say how much time is left
  ansible.builtin.debug:
    msg: "{{ item.event_type }} in {{ item.seconds_left }} s"
  loop: "{{ mine.events }}"
  loop_control:
    label: "{{ item.event_id }}"
"""

RETURN = r"""
events:
  description: The announced events that match the filters.
  returned: success
  type: list
  elements: dict
  contains:
    event_id:
      description: The id, spelled as in the document. Compare it without regard to case.
      type: str
      sample: F020BA2E-3BC0-4C40-A10B-86575A9EABD5
    event_type:
      description:
        - V(Freeze), V(Reboot), V(Redeploy), V(Preempt), V(Terminate), V(SpotRebalanceRecommendation), or one that Azure
          has added since.
      type: str
      sample: Reboot
    event_status:
      description: V(Scheduled) or V(Started). An event that is over has left the document.
      type: str
      sample: Scheduled
    resource_type:
      description: What the resources are.
      type: str
      sample: VirtualMachine
    resources:
      description: Azure names of the VMs concerned.
      type: list
      elements: str
      sample: [web_0, web_3]
    not_before:
      description: When the event may start at the earliest, in ISO 8601 and UTC; V(none) once started or if unknown.
      type: str
      sample: "2026-09-19T18:29:47Z"
    seconds_left:
      description: Seconds until RV(events[].not_before) by the service's clock; V(none) once started or if unknown.
      type: int
      sample: 872
    description:
      description: What Azure says about the event. Text from outside, never a template.
      type: str
      sample: Virtual machine is being restarted as requested by authorized user.
    event_source:
      description: V(Platform) or V(User).
      type: str
      sample: Platform
    duration_seconds:
      description: How long the interruption will take; V(none) if unknown.
      type: int
      sample: 5
    affects_me:
      description: Whether this VM is among the resources; V(none) if its Azure name is not known.
      type: bool
      sample: true
    leader:
      description: The first name in the resources, which is the one that should approve; V(none) if there are none.
      type: str
      sample: web_0
document_incarnation:
  description: The number of the document. Another number means that something has changed; it need not be a larger one.
  returned: success
  type: int
  sample: 16
vm_name:
  description: This VM's Azure name; V(none) where the service does not return it and O(vm_name) is not set.
  returned: success
  type: str
  sample: web_0
api_version:
  description: The version of the API that was used; with O(api_version=auto) the one that the service took.
  returned: success
  type: str
  sample: "2020-07-01"
endpoint:
  description: Where the service was found.
  returned: success
  type: str
  sample: http://169.254.169.254
clock_offset:
  description: Seconds by which the service's clock is ahead of the host's; V(none) if the service did not tell it.
  returned: success
  type: float
  sample: 0.4
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._argspec import connection_options, run
from ansible_collections.graceful.azure.plugins.module_utils._document import matching
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._viewpoint import Viewpoint, filter_options, filters_of


def read(module: AnsibleModule, service: Service) -> dict[str, t.Any]:
    view = Viewpoint(module, service)
    filters = filters_of(module.params)
    if filters.only_mine:
        view.require_name("only_mine")
    reading, events = view.look()
    return {
        "events": matching(events, filters),
        "document_incarnation": reading.document.incarnation,
        "vm_name": view.vm_name,
        "api_version": service.api_version,
        "endpoint": service.endpoint,
        "clock_offset": reading.clock_offset,
    }


def main() -> None:
    run(AnsibleModule({**connection_options(), **filter_options()}, supports_check_mode=True), read)


if __name__ == "__main__":
    main()
