#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduled_event_approve
short_description: Let announced maintenance start now
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Tells Azure that an announced event may start before its time, which ends the wait for NotBefore.
  - An approval is for B(all) VMs that the event names, not only for the one that sends it. Make sure that every one of
    them is ready before; the playbook C(graceful.azure.maintenance) does.
  - It reads the document first and posts only what is Scheduled at that moment, as the document spells it.
  - A post that the service refuses is not repeated. One that the service does not confirm, because it does not answer
    or answers with an error of its own, may have been accepted. The document is then read for 30 seconds, and only if
    it still shows the event as Scheduled, unchanged, the post is repeated, O(retries) times at most. V(0) never posts
    twice.
notes:
  - Azure may not start an event at once after it was approved, for example because other customers on the same hardware
    have to approve as well. Use M(graceful.azure.scheduled_events_wait) to follow what happens.
  - A VM may approve only its own Terminate event, which O(leader_only) ensures. Such an event does not proceed before
    the Terminate events of other VMs with the same NotBefore are approved, too.
extends_documentation_fragment:
  - graceful.azure.attributes
  - graceful.azure.imds
  - graceful.azure.imds.library
options:
  event_ids:
    description:
      - The events to approve. Case does not matter.
    type: list
    elements: str
    required: true
    aliases: [event_id]
  leader_only:
    description:
      - Post only if this VM is the event's leader, the first name in its resources. So the same task can run on all VMs
        of an event and is sent once.
    type: bool
    default: false
  missing:
    description:
      - Whether an event that is not in the document is an error, V(fail), or accepted, V(ok).
      - With V(fail), nothing is posted if any of the ids is missing.
    type: str
    choices: [fail, ok]
    default: fail
  expected_resources:
    description:
      - The VMs that are ready, by their Azure names. An event that by now names any other VM is not approved.
    type: list
    elements: str
  expected_type:
    description:
      - What the VMs are ready for, for example V(Reboot). An event that by now is of another type is not approved.
    type: str
attributes:
  platform:
    support: full
    platforms: posix, windows
    details: On Windows, where the connection is winrm, psrp or ssh with PowerShell, the task runs the Windows module.
  check_mode:
    support: full
    details: Reads and decides, but never posts.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - An event that has started is not approved again. One that was approved but is still shown as Scheduled is,
        because the document does not tell the two apart. Azure accepts the second approval, too, and it changes
        nothing.
seealso:
  - module: graceful.azure.scheduled_events_info
  - module: graceful.azure.scheduled_events_wait
"""

EXAMPLES = r"""
- name: Approve an event once this VM is ready
  graceful.azure.scheduled_event_approve:
    event_id: F020BA2E-3BC0-4C40-A10B-86575A9EABD5

- name: Run on all VMs of an event, sent by its leader only; an event that is gone is no error
  graceful.azure.scheduled_event_approve:
    event_ids: "{{ announced.events | map(attribute='event_id') }}"
    leader_only: true
    missing: ok
"""

RETURN = r"""
approved:
  description:
    - Ids that were approved; in check mode, that would be.
    - Also those whose post was not confirmed, but which started within the 30 seconds after it. The module then warns.
  returned: always
  type: list
  elements: str
  sample: [F020BA2E-3BC0-4C40-A10B-86575A9EABD5]
already_started:
  description: Ids that had started before, so that there was nothing to approve.
  returned: always
  type: list
  elements: str
  sample: []
missing:
  description: Ids that are not in the document, or left it before their approval was confirmed.
  returned: always
  type: list
  elements: str
  sample: []
not_leader:
  description: Ids that were left to another VM because of O(leader_only).
  returned: always
  type: list
  elements: str
  sample: []
unexpected:
  description:
    - Ids that were not approved because of O(expected_resources) or O(expected_type), or because their status is
      neither Scheduled nor Started.
  returned: always
  type: list
  elements: str
  sample: []
msg:
  description: Why events were not expected.
  returned: if RV(unexpected) is not empty
  type: str
  sample: "F020BA2E-3BC0-4C40-A10B-86575A9EABD5 was not approved: it now names 'web_2', which was not expected."
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._approver import Expected, approve
from ansible_collections.graceful.azure.plugins.module_utils._argspec import connection_options, run
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._viewpoint import Viewpoint


def send(module: AnsibleModule, service: Service) -> dict[str, t.Any]:
    params = module.params
    if not params["event_ids"] or not all(event_id.strip() for event_id in params["event_ids"]):
        raise WrongOption("event_ids names no event, or an empty one. Give the ids that scheduled_events_info returns.")
    leader = Viewpoint(module, service).require_name("leader_only") if params["leader_only"] else None
    expected = Expected(leader, params["expected_resources"], params["expected_type"])
    approval = approve(service, params["event_ids"], expected, params["missing"] == "ok", module.check_mode)
    for warning in [*approval.warnings, *approval.refusals]:
        module.warn(warning)
    message = {"msg": " ".join(approval.refusals)} if approval.refusals else {}
    return dict(approval.lists(), diff=approval.diff(), **message)


def main() -> None:
    specific = {
        "event_ids": {"type": "list", "elements": "str", "required": True, "aliases": ["event_id"]},
        "leader_only": {"type": "bool", "default": False},
        "missing": {"type": "str", "choices": ["fail", "ok"], "default": "fail"},
        "expected_resources": {"type": "list", "elements": "str"},
        "expected_type": {"type": "str"},
    }
    run(AnsibleModule({**connection_options(), **specific}, supports_check_mode=True), send)


if __name__ == "__main__":
    main()
