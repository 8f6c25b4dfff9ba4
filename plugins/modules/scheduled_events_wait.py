#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduled_events_wait
short_description: Wait until announced maintenance appears, starts or is over
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Polls the Scheduled Events document on the VM until something happens to the events that match the filters.
  - A failure that may pass, such as a refused connection, a 503 answer or a broken document, does not end the wait
    before O(timeout). It never counts as an empty document.
  - As a task it survives the reboot of the host. It is run in slices of about half a minute, reconnects when the
    connection was lost, and shows a line of progress after each slice. With a stdout callback that prints data, such as
    C(ansible.posix.json), those lines go to stderr.
notes:
  - C(async) is not supported. The task reconnects by itself.
  - O(retries) does not matter here, a failed read is followed by the next poll. Once the service has answered, a
    single answer may take at most 10 seconds, or O(read_timeout) if that is less.
  - Azure allows about five requests a second and VM.
extends_documentation_fragment:
  - graceful.azure.attributes
  - graceful.azure.imds
  - graceful.azure.imds.library
  - graceful.azure.imds.filters
options:
  until:
    description:
      - What to wait for.
      - V(appeared), until any event matches, also at the first read.
      - V(started), until a matching event is Started.
      - V(gone), until every event that matched at the first read has left the document. If none did, it ends at once.
      - V(changed), until the matching events differ from those of the first read.
    type: str
    choices: [appeared, started, gone, changed]
    default: appeared
  timeout:
    description:
      - Seconds to wait at most, all slices and reboots together. V(0) reads once. An answer that comes
        a few seconds late still counts.
    type: float
    default: 900
  poll_interval:
    description:
      - Seconds from one poll to the next.
    type: float
    default: 1
  on_timeout:
    description:
      - Whether it is an error, V(fail), or not, V(ok), if the time is over before it happened. RV(outcome) tells which.
    type: str
    choices: [fail, ok]
    default: fail
  seen:
    description:
      - What an earlier wait returned as RV(seen), to go on where it ended. The task uses it between its slices.
      - Its key C(slice) makes the module come back, with V(timed_out) and C(continues) set, after that many seconds,
        after the first read that O(until) compares with, or when RV(times) changes, so that nothing is lost when the
        host goes down.
    type: dict
attributes:
  platform:
    support: full
    platforms: posix, windows
    details: On Windows, where the connection is winrm, psrp or ssh with PowerShell, the task runs the Windows module.
  check_mode:
    support: full
    details: The module only reads. It waits in check mode as well.
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
seealso:
  - module: graceful.azure.scheduled_events_info
  - module: graceful.azure.scheduled_event_approve
"""

EXAMPLES = r"""
- name: Wait up to an hour until something is announced for this VM
  graceful.azure.scheduled_events_wait:
    until: appeared
    only_mine: true
    timeout: 3600
    on_timeout: ok
  register: notice

- name: Wait until the maintenance is over, through the reboot
  graceful.azure.scheduled_events_wait:
    until: gone
    event_ids: "{{ notice.events | map(attribute='event_id') }}"
    timeout: 1800
  register: maintenance
  when: notice.outcome == 'appeared'
"""

RETURN = r"""
events:
  description: The matching events as last seen, also if the wait timed out or failed.
  returned: always
  type: list
  elements: dict
  contains:
    # begin generated: event fields
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
    # end generated
outcome:
  description:
    - V(appeared), V(started) or V(changed), what was waited for has happened.
    - V(completed), all events have left the document, and at least one was seen Started or took the host down.
    - V(cancelled), all events have left the document and none was ever seen Started.
    - V(none), there was no event that could leave the document.
    - V(timed_out), it did not happen in time.
    - V(unreachable), the service could not be read, or the host not be reached, at the end.
  returned: always
  type: str
  sample: completed
elapsed:
  description: Seconds that the wait took.
  returned: always
  type: float
  sample: 74.2
polls:
  description: How often the service was asked, or tried to be asked.
  returned: always
  type: int
  sample: 71
times:
  description:
    - When each event was first seen Started, and when it was first missing, by the clock of the host.
    - All events that matched at any time. With O(until=gone) also those of O(event_ids) that were never there.
  returned: always
  type: list
  elements: dict
  contains:
    event_id:
      description: The id in lower case.
      type: str
      sample: f020ba2e-3bc0-4c40-a10b-86575a9eabd5
    started_at:
      description: When it was first seen Started, in ISO 8601 and UTC; V(none) if it never was.
      type: str
      sample: "2026-09-19T18:29:47Z"
    gone_at:
      description: When it was first missing in the document; V(none) while it is there.
      type: str
      sample: "2026-09-19T18:30:31Z"
interruptions:
  description: When the connection to the host was lost and when it answered again; V(none) if it did not.
  returned: always, as a task
  type: list
  elements: dict
  contains:
    lost:
      description: When it was noticed that the host does not answer.
      type: str
      sample: "2026-09-19T18:29:47Z"
    back:
      description: When it answered again.
      type: str
      sample: "2026-09-19T18:30:31Z"
seen:
  description: What to hand to a later wait as O(seen) so that it goes on where this one ended.
  returned: always
  type: dict
  sample: {"answered": true, "started": false}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._argspec import connection_options, run
from ansible_collections.graceful.azure.plugins.module_utils._client import Limits
from ansible_collections.graceful.azure.plugins.module_utils._document import Event
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._viewpoint import Viewpoint, filter_options, filters_of
from ansible_collections.graceful.azure.plugins.module_utils._waiter import CONDITIONS, Seen, wait

# Only the first answer of a VM may take minutes. Later, a stalled read must not hide a notice of 30 seconds.
SETTLED_READ_TIMEOUT = 10.0
LONGEST_WAIT = 30 * 24 * 3600


def await_events(module: AnsibleModule, service: Service) -> dict[str, t.Any]:
    params = module.params
    if not 0 <= params["timeout"] <= LONGEST_WAIT:
        raise WrongOption(f"timeout is {params['timeout']:g}; give seconds from 0 (read once) to {LONGEST_WAIT}.")
    if not 0 < params["poll_interval"] <= LONGEST_WAIT:
        raise WrongOption(f"poll_interval is {params['poll_interval']:g}; give seconds greater than 0.")
    seen = Seen.from_option(params["seen"])
    filters = filters_of(params)
    view = Viewpoint(module, service, seen.vm_name)
    asked = service.client.limits
    service.begin_with(seen.api_version)

    def read(budget: float) -> list[Event]:
        patience = min(asked.read_timeout, SETTLED_READ_TIMEOUT) if seen.answered else asked.read_timeout
        service.client.limits = Limits(min(asked.connect_timeout, budget), min(patience, budget), 0)
        if filters.only_mine:
            view.require_name("only_mine")
        _reading, events = view.look()
        seen.vm_name, seen.api_version = view.vm_name, service.api_version
        return events

    done = wait(read, params["until"], filters, seen, params["timeout"], params["poll_interval"], service.client.clock)
    result = done.result()
    if done.outcome in ("timed_out", "unreachable") and not done.continues and params["on_timeout"] == "fail":
        raise EventsError(done.failure_message(params["until"], params["timeout"]), **result)
    return result


def main() -> None:
    specific = {
        "until": {"type": "str", "choices": list(CONDITIONS), "default": "appeared"},
        "timeout": {"type": "float", "default": 900},
        "poll_interval": {"type": "float", "default": 1},
        "on_timeout": {"type": "str", "choices": ["fail", "ok"], "default": "fail"},
        "seen": {"type": "dict"},
    }
    options = {**connection_options(), **filter_options(), **specific}
    run(AnsibleModule(options, supports_check_mode=True), await_events)


if __name__ == "__main__":
    main()
