# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
short_description: Which announced Azure events touch which hosts, what to do and why
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Merges what the hosts saw with M(graceful.azure.scheduled_events_info) into one entry per event, finds the
    inventory hosts behind the event's resources and applies each host's policy.
  - It only computes. The same input gives the same plan, whatever the order of the hosts.
  - An event is held, that is never approved, as long as its RV(_value.events[].hold) is not empty.
positional: groups, targeted, settings
options:
  _input:
    description:
      - What each host saw, by host, as a dictionary with these keys.
      - C(reachable), whether the host answered. Only V(true) counts.
      - C(vm_name), the host's Azure name, as M(graceful.azure.scheduled_events_info) returned it or the inventory
        gives it. V(none) if it is not known.
      - C(events), the list that M(graceful.azure.scheduled_events_info) returned, without filters. V(none) if the
        host was not asked since another one sees the same; an empty list says that it was asked and saw nothing.
      - C(error), why the host could not read its metadata service; V(none) if it could.
      - C(drained), V(true) if the host is drained already. Optional.
    type: dict
    required: true
  groups:
    description: The inventory's groups, each with the list of its hosts.
    type: dict
  targeted:
    description:
      - The hosts that the play may touch. An event that affects another host is held.
      - By default all hosts of the input.
    type: list
    elements: str
  settings:
    description:
      - The settings of each host, by host, as a dictionary with these keys. A mistake in any of them is an error
        before anything is planned.
      - C(policy), a list of rules of which the first that matches decides. See the notes. By default a Freeze of at
        most 10 seconds is V(notify); another Freeze, a Reboot, a Redeploy and a Terminate are V(drain_and_approve); a
        Preempt is V(drain); anything else is V(notify).
      - C(min_available), how many hosts of a group must stay available. A number or a percentage (V(50%), rounded up)
        holds for each group of the host, except C(all) and C(ungrouped) unless there is no other. A dictionary of
        groups names them. Where hosts demand different amounts for a group, the largest counts. Hosts that cannot be
        reached, that are drained or whose event has started are not available; hosts outside O(targeted) are taken as
        available.
      - C(window), the hours in which hosts may be drained early and events approved, as a dictionary with C(start)
        and C(end) (for example V(22:00) and V(05:00)), C(timezone) (for example V(Europe/Berlin), by default V(UTC))
        and C(days) (the weekdays on which it begins, by default all). It counts only if it opens early enough before
        the event.
      - C(drain_budget), the seconds that draining needs. What is put off because of the capacity begins that long
        before the event. By default V(300).
    type: dict
  now:
    description: The time for which to plan, in ISO 8601. By default the current time.
    type: str
notes:
  - "A rule matches if all of these keys that it has match, each of them a value or a list: C(event_type),
    C(event_source), C(group) (an inventory group of the host) and C(resource) (the host's Azure name, or a pattern
    such as V(web_*)); and C(min_duration) and C(max_duration) (seconds that the interruption takes), C(notice)
    (seconds left: a number as the most, or a dictionary with C(min) and C(max)). What is not known matches neither a
    duration nor a notice."
  - "Its C(action) is one of V(ignore), V(notify), V(approve) (without draining), V(drain) (without approving) and
    V(drain_and_approve). C(name) and C(because) are shown to people. If no rule matches, the action is V(notify)."
  - An event is approved only if the actions of all affected hosts allow it. A Terminate that names more than one VM
    never is.
  - "C(unknown_names=ignore) lets a rule approve an event with names that no inventory host has. All affected hosts'
    rules must say so, and the Azure names of all hosts of O(groups) must be known. By default such an event is held."
  - A host is drained also for an event that is held, since Azure acts on it all the same.
  - An event that would leave a group with too few hosts is put off as a whole. The nearest deadline goes first, then
    the smallest id.
seealso:
  - plugin: graceful.azure.approvals
    plugin_type: filter
  - module: graceful.azure.scheduled_events_info
"""

EXAMPLES = r"""
- name: See what Azure has announced
  graceful.azure.scheduled_events_info:
  register: announced
  ignore_errors: true
  ignore_unreachable: true

- name: Collect what the hosts saw
  ansible.builtin.set_fact:
    observed:
      reachable: "{{ not announced.unreachable | default(false) }}"
      vm_name: "{{ announced.vm_name | default(graceful_vm_name | default(none)) }}"
      events: "{{ announced.events | default([]) }}"
      error: "{{ announced.msg if announced is failed else none }}"

- name: Say what would be done
  ansible.builtin.debug:
    msg: "{{ (observations | graceful.azure.plan(groups, ansible_play_hosts_all, settings)).summary }}"
  vars:
    observations: "{{ dict(ansible_play_hosts_all | zip(seen)) }}"
    seen: "{{ ansible_play_hosts_all | map('extract', hostvars, 'observed') }}"
    settings: "{{ dict(ansible_play_hosts_all | product([{'min_available': {'web': '50%'}, 'policy': rules}])) }}"
    rules:
      - name: databases need a person
        group: db
        action: notify
      - name: nightly redeployments
        event_type: [Reboot, Redeploy]
        notice: {min: 600}
        action: drain_and_approve
  run_once: true
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    now:
      description: The time for which it was made.
      type: str
      sample: "2026-09-19T18:00:00Z"
    blind:
      description:
        - For each targeted host that could not read its own document, why not. What Azure has announced to it alone
          is not known.
      type: dict
    summary:
      description: The plan in words.
      type: list
      elements: str
    hosts:
      description:
        - "What awaits each host that an event touches: C(vm_name), C(reachable), C(targeted), C(drain) (whether to
          drain it now) and C(events), a list with C(event_id), C(event_type), C(event_status), C(seconds_left),
          C(deadline), C(action), C(rule), C(because), C(drain) and C(wait_until)."
        - Hosts that no event touches are not in it.
      type: dict
    events:
      description: The events, the nearest deadline first, after those that have started or whose deadline is not known.
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
        event_status:
          description: V(Started) if any host saw it started, otherwise V(Scheduled).
          type: str
          sample: Scheduled
        event_source:
          description: V(Platform) or V(User).
          type: str
          sample: Platform
        description:
          description: What Azure says about the event. Text from outside, never a template.
          type: str
        duration_seconds:
          description: How long the interruption will take; V(none) if unknown to any host.
          type: int
          sample: 5
        resources:
          description: The Azure names that any host saw in the event.
          type: list
          elements: str
          sample: [web_0, web_3]
        seen_by:
          description: How many hosts saw the event.
          type: int
          sample: 4
        hosts:
          description: The inventory hosts behind the resources, in that order.
          type: list
          elements: str
          sample: [web1, web2]
        unknown_names:
          description: Resources that no inventory host is known to be.
          type: list
          elements: str
        ambiguous_names:
          description: Resources that several inventory hosts may be. None of them is drained.
          type: list
          elements: str
        leader:
          description: The first affected host that can be asked to approve; V(none) if there is none.
          type: str
          sample: web1
        leaders:
          description: All affected hosts that can be asked to approve, in the order of the resources.
          type: list
          elements: str
          sample: [web1, web2]
        seconds_left:
          description: The least number of seconds that a host saw; V(none) once started or if unknown.
          type: int
          sample: 872
        deadline:
          description: When Azure may act at the earliest; V(none) once started or if unknown.
          type: str
          sample: "2026-09-19T18:14:32Z"
        action:
          description:
            - What the policies of the affected hosts allow together.
            - V(approve) and V(drain_and_approve) only if all allow to approve; otherwise V(drain) if any wants to
              drain.
          type: str
          sample: drain_and_approve
        actions:
          description: "What each affected host's policy says, by host: C(action), C(rule) and C(because)."
          type: dict
          sample: {"web1": {"action": "drain_and_approve", "rule": "reboot or move", "because": "the policy says so"}}
        approvable:
          description: Whether the policy allows to approve the event at all.
          type: bool
        hold:
          description: Why the event must not be approved now, or at all. Empty if nothing speaks against it.
          type: list
          elements: str
          sample: ["web2 cannot be reached"]
        drain:
          description: The hosts to drain now.
          type: list
          elements: str
          sample: [web1, web2]
        wait_until:
          description: Until when a window or the capacity puts the event off, V(none) if nothing does. Plan again then.
          type: str
          sample: "2026-09-19T22:00:00Z"
        wait_reason:
          description: Why it is put off.
          type: str
          sample: the window is 22:00-05:00 UTC
        reason:
          description: The event and what is done about it, in a sentence.
          type: str
          sample: "Reboot of web1 in 14 min 32 s: drain, then approve (rule 'reboot or move'): the policy says so."
"""

import typing as t
from datetime import datetime, timezone

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.graceful.azure.plugins.plugin_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan


def make_plan(
    observations: t.Any,
    groups: t.Any = None,
    targeted: t.Any = None,
    settings: t.Any = None,
    now: str | None = None,
) -> t.Any:
    try:
        made = plan(observations, groups, targeted, settings, now=now or datetime.now(timezone.utc))
    except WrongSetting as exc:
        raise AnsibleFilterError(str(exc)) from exc
    # Before ansible-core 2.19, text that came from an event could otherwise be taken for a template.
    return wrap_var(made)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"plan": make_plan}
