# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: approvals
short_description: Which Azure events may be approved now
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Compares the plan that P(graceful.azure.plan#filter) made with what the hosts have reported since.
  - An event may be approved only if the policy allows it, nothing in the plan holds it, and every affected host has
    reported that it is ready for that very event. Anything else holds it.
positional: reports
options:
  _input:
    description: The plan.
    type: dict
    required: true
  reports:
    description:
      - What the hosts report, by host and event id in any spelling, as a dictionary with C(ready) and C(reason).
      - Only C(ready=true), as a boolean, counts as ready.
    type: dict
    required: true
  now:
    description: The time at which to approve, in ISO 8601. By default the current time.
    type: str
seealso:
  - plugin: graceful.azure.plan
    plugin_type: filter
  - module: graceful.azure.scheduled_event_approve
"""

EXAMPLES = r"""
- name: Show what may be approved, and what holds the rest
  ansible.builtin.debug:
    msg: "{{ plan | graceful.azure.approvals(reports) }}"
  vars:
    plan: "{{ observations | graceful.azure.plan(groups, ansible_play_hosts_all) }}"
    reports:
      web1:
        F020BA2E-3BC0-4C40-A10B-86575A9EABD5: {ready: true}
      web2:
        F020BA2E-3BC0-4C40-A10B-86575A9EABD5: {ready: false, reason: the queue is not empty yet}
"""

RETURN = r"""
_value:
  description: Every event of the plan, in one of three lists.
  type: dict
  contains:
    approve:
      description: The events that may be approved.
      type: list
      elements: dict
      contains:
        event_id:
          description: The id, spelled as in the document.
          type: str
          sample: F020BA2E-3BC0-4C40-A10B-86575A9EABD5
        event_type:
          description: The type.
          type: str
          sample: Reboot
        leader:
          description: The host that should approve.
          type: str
          sample: web1
        leaders:
          description: The hosts that can approve, in the order in which to ask them.
          type: list
          elements: str
          sample: [web1, web2]
        hosts:
          description: The affected hosts, all of them ready.
          type: list
          elements: str
          sample: [web1, web2]
        seconds_left:
          description: Seconds until Azure may act in any case; V(none) if unknown.
          type: int
          sample: 640
    held:
      description: The events that must not be approved.
      type: list
      elements: dict
      contains:
        event_id:
          description: The id, spelled as in the document.
          type: str
          sample: F020BA2E-3BC0-4C40-A10B-86575A9EABD5
        reasons:
          description: Everything that speaks against it.
          type: list
          elements: str
          sample: ["web2 is not ready: 'the queue is not empty yet'"]
    ignored:
      description: The events that have started or that the policy does not want to approve.
      type: list
      elements: dict
      contains:
        event_id:
          description: The id, spelled as in the document.
          type: str
          sample: F020BA2E-3BC0-4C40-A10B-86575A9EABD5
        reason:
          description: Why nothing is to be approved.
          type: str
          sample: the policy says notify
"""

import typing as t
from datetime import datetime, timezone

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.graceful.azure.plugins.plugin_utils._approvals import approvals
from ansible_collections.graceful.azure.plugins.plugin_utils._checks import WrongSetting


def judge(plan: t.Any, reports: t.Any, now: str | None = None) -> t.Any:
    try:
        judged = approvals(plan, reports, now=now or datetime.now(timezone.utc))
    except WrongSetting as exc:
        raise AnsibleFilterError(str(exc)) from exc
    # Before ansible-core 2.19, text that came from an event could otherwise be taken for a template.
    return wrap_var(judged)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"approvals": judge}
