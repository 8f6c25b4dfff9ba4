#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_record
short_description: Keep a host's own record of what maintenance did to it
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Keeps one small JSON file per maintenance event on the host that the event affects. It says which run has the event
    in hand, how long that run may stay silent, what was done on the host and when.
  - Two runs for one event do not collide, because only one of them can claim it. A run that was interrupted leaves
    behind what the next one needs to put the host back.
  - A file is replaced as a whole, so a process that is killed leaves the old record or the new one. What is damaged is
    never deleted and never taken for no record.
notes:
  - Every claim, note and release is also written to the host's system journal, where there is one.
  - Times are seconds since 1970 by the host's own clock.
  - The texts in a record come from outside. They are stored and returned, never run and never used as a template.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  directory:
    description:
      - Where the records are, as an absolute path. It is made with mode C(0700) if it does not exist.
      - Nobody but root and the user that the task runs as may be able to write to it.
    type: path
    required: true
  state:
    description:
      - V(listed) returns the records that are not finished, and writes nothing.
      - V(claimed) takes the event in hand for this run. If another run has it, and may still be silent, the task does
        not fail but returns RV(claimed=false) and the RV(holder). A claim that has been silent for longer than it may
        be is taken over; steps and timeline are kept.
      - V(noted) renews this run's claim and adds what O(step) and O(mark) say. It fails if the event is not in this
        run's hands.
      - V(released) finishes the record of an event that is over, and moves it to C(history/) in the directory, where
        the newest 100 are kept. It fails if the event is not in this run's hands, or if a step is not undone and there
        is no O(heir). Without a record there is nothing to do.
    type: str
    choices: [listed, claimed, noted, released]
    default: listed
  event_id:
    description:
      - The event. Case does not matter. Needed for all states but V(listed), where it selects one record.
    type: str
  event:
    description:
      - The event as M(graceful.azure.scheduled_events_info) returns it, to be stored with O(state=claimed).
    type: dict
  run_id:
    description:
      - What tells this run from all others, for example a UUID made once per run. Needed for all states but V(listed).
    type: str
  run_name:
    description:
      - How people call this run; O(run_id) if not given.
    type: str
  phase:
    description:
      - What this run is about to do. If not given, what it said last, and V(claimed) at first.
    type: str
  silent_for:
    description:
      - For how many seconds this run may be silent from now on. After that its claim is stale, and another run may take
        the event over. At most 2592000, which are 30 days.
      - If not given, what this run said last, and 900 at first.
    type: float
  force:
    description:
      - With O(state=claimed), take the event over even if another run has it in hand. That run fails at its next note.
      - Also begins a new record where a damaged one is, which is set aside in C(history/).
    type: bool
    default: false
  step:
    description:
      - With O(state=noted), something that is being done, or was done, on the host and has to be undone later.
      - C(name) says which one, and C(status) how far it is, one of V(doing), V(done), V(failed) and V(undone). All but
        V(undone) keep the record from being released without an O(heir).
      - C(phase) is the phase that did it, also when it is undone in another one; the phase of the claim if not given.
        C(kind) says what sort of step it is, C(message) what an operator should know, and the dictionary C(data) what
        undoing it needs to know.
      - There is one step of each phase and name. Noted again, only what is given is replaced.
    type: dict
  mark:
    description:
      - Something that happened, appended to the timeline.
    type: dict
    suboptions:
      what:
        description:
          - What happened, in a word, for example V(drained).
        type: str
        required: true
      detail:
        description:
          - More about it.
        type: str
        default: ""
      at:
        description:
          - When, in seconds since 1970; now if not given. The same mark of the same time is kept once.
        type: float
  heir:
    description:
      - With O(state=released), the id of an event that takes the place of this one and has a record. Steps that are not
        undone move there instead of failing the task.
    type: str
attributes:
  check_mode:
    support: full
    details: Reads and decides, but writes nothing.
  diff_mode:
    support: none
    details: The record is returned as a whole.
  idempotent:
    support: partial
    details:
      - The same claim, step or mark of a given time again merely renews the claim, which does not count as a change. A
        mark without a time is appended each time.
  action_group:
    support: none
    details: It does not talk to the metadata service, so the group's defaults do not concern it.
    membership: []
seealso:
  - module: graceful.azure.scheduled_events_info
"""

EXAMPLES = r"""
- name: Take the event in hand before anything is done to the host
  graceful.azure.maintenance_record:
    directory: /var/lib/graceful/records
    state: claimed
    event_id: "{{ event.event_id }}"
    event: "{{ event }}"
    run_id: "{{ run_id }}"
    run_name: "{{ lookup('ansible.builtin.pipe', 'hostname') }}, maintenance"
    phase: drain
    silent_for: 300
  register: claim

- name: Note what was done, for whoever has to undo it
  graceful.azure.maintenance_record:
    directory: /var/lib/graceful/records
    state: noted
    event_id: "{{ event.event_id }}"
    run_id: "{{ run_id }}"
    step:
      name: stop nginx
      kind: service
      status: done
      data:
        name: nginx
        was: running
    mark:
      what: drained
  when: claim.claimed

- name: Finish once the event is over and everything is undone
  graceful.azure.maintenance_record:
    directory: /var/lib/graceful/records
    state: released
    event_id: "{{ event.event_id }}"
    run_id: "{{ run_id }}"
    mark:
      what: restored

- name: Find what an interrupted run left behind
  graceful.azure.maintenance_record:
    directory: /var/lib/graceful/records
  register: left
"""

RETURN = r"""
records:
  description:
    - The records that are not finished, the oldest first, each as in RV(record).
    - What lies in the place of a record and is none is listed too, with a warning.
  returned: if O(state=listed)
  type: list
  elements: dict
  contains:
    file:
      description: Where it is.
      type: str
      sample: /var/lib/graceful/records/f020ba2e-3bc0-4c40-a10b-86575a9eabd5.json
    stale:
      description: Whether the run that has it in hand has been silent for too long. Not for what is damaged.
      type: bool
      sample: false
    damaged:
      description: V(true) if it cannot be used; then there are only this, RV(records[].file) and RV(records[].message).
      type: bool
      sample: true
    message:
      description: What is wrong with it and what to do. Only for what is damaged.
      type: str
      sample: It is not JSON.
record:
  description: The record as it is now, or in check mode would be; V(none) if there is none.
  returned: if O(state) is not V(listed)
  type: dict
  contains:
    version:
      description: The version of the format.
      type: int
      sample: 1
    event:
      description: The event as it was given with the claim.
      type: dict
      sample: {"event_id": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5", "event_type": "Reboot"}
    claim:
      description: Which run has the event in hand, in which phase, since when, renewed when, and silent until when.
      type: dict
      sample:
        run_id: 9d7a1a6c-2f3a-4b5e-9a51-0a6c2b1f2f10
        run_name: controller, maintenance
        phase: drain
        since: 1789842587.2
        renewed: 1789842590.7
        silent_until: 1789842890.7
    steps:
      description: What was done, in the order in which it was begun.
      type: list
      elements: dict
      sample:
        - phase: drain
          name: stop nginx
          kind: service
          status: done
          at: 1789842590.7
          message: ""
          data: {"name": "nginx", "was": "running"}
    timeline:
      description: What happened. Claims, and steps handed on to an heir, are entered by the module itself.
      type: list
      elements: dict
      sample: [{"at": 1789842590.7, "what": "drained", "detail": ""}]
    created:
      description: When the event was claimed first.
      type: float
      sample: 1789842587.2
    finished:
      description: When it was released; V(none) before.
      type: float
      sample:
claimed:
  description: Whether the event is in this run's hands.
  returned: if O(state) is not V(listed)
  type: bool
  sample: true
took_over:
  description: Whether it was taken over from another run, or a damaged record was set aside.
  returned: if O(state) is not V(listed)
  type: bool
  sample: false
holder:
  description: The other run that has the event in hand; V(none) if none has.
  returned: if O(state) is not V(listed)
  type: dict
  contains:
    run_name:
      description: How people call that run.
      type: str
      sample: awx, maintenance, job 4711
    phase:
      description: What it is doing.
      type: str
      sample: drain
    since:
      description: Since when it has the event in hand.
      type: float
      sample: 1789842587.2
    silent_until:
      description: After this time the event may be taken over, unless that run has been heard of.
      type: float
      sample: 1789842890.7
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._record import Wish, keep_record

MARK = {
    "what": {"type": "str", "required": True},
    "detail": {"type": "str", "default": ""},
    "at": {"type": "float"},
}


def main() -> None:
    module = AnsibleModule(
        {
            "directory": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["listed", "claimed", "noted", "released"], "default": "listed"},
            "event_id": {"type": "str"},
            "event": {"type": "dict"},
            "run_id": {"type": "str"},
            "run_name": {"type": "str"},
            "phase": {"type": "str"},
            "silent_for": {"type": "float"},
            "force": {"type": "bool", "default": False},
            "step": {"type": "dict"},
            "mark": {"type": "dict", "options": MARK},
            "heir": {"type": "str"},
        },
        required_if=[("state", state, ["event_id", "run_id"]) for state in ("claimed", "noted", "released")],
        supports_check_mode=True,
    )
    given = {option: value for option, value in module.params.items() if value is not None and option in Wish._fields}
    try:
        outcome = keep_record(module.params["directory"], Wish(**given), module.check_mode)
    except EventsError as exc:
        module.fail_json(msg=exc.message, **exc.fields)
    else:
        for warning in outcome.warnings:
            module.warn(warning)
        module.exit_json(**outcome.result)


if __name__ == "__main__":
    main()
