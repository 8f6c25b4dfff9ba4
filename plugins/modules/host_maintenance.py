#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_maintenance
short_description: Get one host ready for announced maintenance, and put it back
version_added: 0.2.0
author: graceful.azure contributors (@graceful)
description:
  - Carries one order out on the host, in one process. It claims the events, takes the drain steps, saves the
    checkpoints, verifies all of it and notes it in the host's record; or it waits until the events are gone, brings
    back what was lost, undoes the steps last first, checks the health and closes the record.
  - A call that was interrupted can be made again. It finds in the record what was done, and continues.
  - It acts only while this run holds the claim of the events, and checks that immediately before each step.
  - As a task it is called repeatedly until the order is carried out or O(timeout) is over. It survives a
    reboot of the host and prints what it waits for. The role P(graceful.azure.maintenance#role) calls it once in each
    pass.
  - A task fails if its order was not carried out, so that nothing that follows is done for a host that is not ready.
    With O(timeout=0) it may also end while the work is under way, which is no failure.
  - Steps that only the controller can take, which are those of the kinds C(haproxy) and C(tasks), need the collection's
    roles.
notes:
  - C(async) is not supported. The task reconnects by itself.
  - Work that takes longer than O(wait) continues in a process of its own on the host, and the next call asks for its
    result.
extends_documentation_fragment:
  - graceful.azure.attributes
  - graceful.azure.imds
options:
  order:
    description:
      - V(look) reads the document and the record, and changes nothing.
      - V(ready) claims the events, drains, saves and verifies.
      - V(approve) lets the event start, if this host holds the claim and has just verified that it is ready.
      - V(put_back) waits until the events are gone and puts the host back into service.
      - V(release) gives the claims back. What is not undone stays in the record, for another run to take over.
    type: str
    choices: [look, ready, approve, put_back, release]
    default: look
  events:
    description: The events, as M(graceful.azure.scheduled_events_info) returns them. Needed by every order but V(look).
    type: list
    elements: dict
    default: []
  steps:
    description: The drain steps, as in C(graceful_drain_steps). The role P(graceful.azure.drain#role) has the kinds.
    type: list
    elements: dict
    default: []
  checkpoint:
    description: What to save, as in C(graceful_checkpoint). The role P(graceful.azure.checkpoint#role) has the kinds.
    type: list
    elements: dict
    default: []
  health:
    description:
      - What has to be healthy before traffic returns, as in C(graceful_health).
        The role P(graceful.azure.restore#role) has the checks.
    type: list
    elements: dict
    default: []
  health_mistake:
    description: Why C(graceful_health) of this host cannot be used. If it is set, traffic does not return to the host.
    type: str
    default: ""
  secrets:
    description: Secret options of steps, checkpoints and health checks. They are never recorded.
    type: dict
    default: {}
  record_dir:
    description: Directory of the host's record.
    type: path
    default: /var/lib/graceful/records
  checkpoint_dir:
    description: Directory for archives, on a disk that survives.
    type: path
    default: /var/lib/graceful/checkpoints
  run_id:
    description: The id of this run, which no other run has. Needed by every order but V(look).
    type: str
    default: ""
  run_name:
    description: The name of this run in messages.
    type: str
    default: ""
  silent_for:
    description:
      - Seconds that the claim may stay silent before another run may take it over. V(0) means 300 more than O(seconds).
    type: float
    default: 120
  force:
    description: Take over what another run has claimed, although it may still be alive.
    type: bool
    default: false
  seconds:
    description: Seconds from now until the host has to be ready, or that undoing may take.
    type: float
    default: 300
  wait:
    description: Seconds that one call may take.
    type: float
    default: 0
  known:
    description: RV(observation.document) of an earlier call. A wait ends when the document differs from it.
    type: str
    default: ""
  undo_on_failure:
    description: Put the host back at once if its drain fails. The drain is then not tried again.
    type: bool
    default: false
  controller_step:
    description:
      - The result of the step in RV(report.next), which the controller took.
      - With C(pending=true) the step has begun and takes longer. The host asks for it again as long as there is time.
    type: dict
  looked:
    description: How balancers looked before anything was done, by the name of the step.
    type: dict
    default: {}
  max_age:
    description: For V(approve), how many seconds ago this host may have verified that it is ready.
    type: float
    default: 60
  fresh:
    description: For V(ready), how many seconds ago a step that the controller takes may have been verified.
    type: float
    default: 30
  probe_record:
    description: For V(look), make the directory of the record and see that it can be written. Not in check mode.
    type: bool
    default: false
  lapsed:
    description: For V(put_back), lower case ids of events for which the host is put back although they are not over.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that the task may go on, all calls together. V(0) makes one call.
    type: float
    default: 0
attributes:
  platform:
    support: full
    platforms: posix, windows
    details: On Windows, where the connection is winrm, psrp or ssh with PowerShell, the task runs the Windows module.
  check_mode:
    support: full
    details: It looks, and changes nothing.
  diff_mode:
    support: none
    details: There is nothing to show beyond the report.
  idempotent:
    support: full
seealso:
  - module: graceful.azure.scheduled_events_info
"""

EXAMPLES = r"""
- name: Read what is announced to this host, and its record
  graceful.azure.host_maintenance:
    order: look
  register: host

- name: Get the host ready for what is announced to it
  graceful.azure.host_maintenance:
    order: ready
    events: "{{ host.observation.events | selectattr('affects_me') }}"
    run_id: by-hand-1
    steps:
      - name: application
        kind: services
        services: [shop]
    timeout: 300

- name: Put it back when the event is over
  graceful.azure.host_maintenance:
    order: put_back
    events: "{{ host.observation.events | selectattr('affects_me') }}"
    run_id: by-hand-1
    timeout: 3600
"""

RETURN = r"""
report:
  description: The result of the order.
  returned: when the host answered
  type: dict
  contains:
    state:
      description:
        - V(looked), V(ready), V(working), V(next), V(failed), V(waiting), V(put_back), V(released),
          V(held_by_other_run), V(gone), V(skipped); of an approval also V(approved), V(unconfirmed), V(started),
          V(unexpected).
      type: str
      sample: ready
    message:
      description: The state as a message.
      type: str
      sample: 2 drain steps done, 1 checkpoint saved, all verified
    next:
      description: A step that only the controller can take.
      type: dict
      sample: {"phase": "drain", "name": "balancers", "kind": "haproxy", "mode": "do", "seconds": 280.5}
    held:
      description: Who holds the events that this run could not claim.
      type: dict
      sample: {}
observation:
  description: What the host sees after the order.
  returned: when the host answered
  type: dict
  contains:
    events:
      description:
        - The events, as M(graceful.azure.scheduled_events_info) returns them; V(none) if they could not be read.
      type: list
      elements: dict
      sample: []
    error:
      description: Why they could not be read.
      type: str
      sample: null
    document:
      description: Equal for equal documents.
      type: str
      sample: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    warnings:
      description: What is odd about the document or the record. The task shows it, too.
      type: list
      elements: str
      sample: []
    record:
      description: The host's record; V(none) if it has none.
      type: dict
      sample: null
interruptions:
  description: When the host was lost and when it answered again.
  returned: always
  type: list
  elements: dict
  sample: [{"lost": "2026-03-01T03:15:00Z", "back": "2026-03-01T03:15:42Z"}]
"""

import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._argspec import (
    connection_options,
    requests_are_there,
    run,
)
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._look import Look, Order, why_not_writable
from ansible_collections.graceful.azure.plugins.module_utils._record import Keeper, Run
from ansible_collections.graceful.azure.plugins.module_utils._service import Service
from ansible_collections.graceful.azure.plugins.module_utils._text import clean
from ansible_collections.graceful.azure.plugins.module_utils._transport import PlainTransport

# More than anybody waits, and less than what a record takes for a time.
LONGEST = 1e6


def carry_out(module: AnsibleModule, service: Service) -> dict[str, t.Any]:
    params = module.params
    for name in ("seconds", "wait", "silent_for", "max_age", "timeout"):
        if not 0 <= params[name] < LONGEST:
            raise WrongOption(f"{name} is {params[name]}; it has to be a number of seconds, from 0 to {LONGEST:.0f}.")
    order = Order(**{key: params[key] for key in Order._fields})
    if order.order != "look" and not (order.events and params["run_id"].strip()):
        raise WrongOption(f"order={order.order} needs events and run_id.")
    for event in order.events:
        _check_event(event)
    run_name = params["run_name"] or params["run_id"]
    keeper = Keeper(params["record_dir"], Run(params["run_id"], run_name, params["silent_for"], params["force"]))
    skipped = module.check_mode and order.order != "look"
    if module.check_mode:
        order = order._replace(order="look", wait=0.0 if skipped else order.wait, probe_record=False)
    engine = Look if order.order == "look" else _engine()
    result = engine(order, service, params["vm_name"], keeper).carry_out()
    # Ansible does not show the warnings of a module that an action plugin calls, so they are part of the observation.
    result["observation"]["warnings"] = result.pop("warnings")
    if params["probe_record"] and not requests_are_there():
        # Who prepares a host wants to know whether the other modules can run there, too.
        result["observation"]["warnings"].append(f"The Python library (requests) is missing for {sys.executable}.")
    if module.check_mode and not result["observation"]["record_error"]:
        result["observation"]["record_error"] = why_not_writable(params["record_dir"])
    if skipped:
        result["report"] = {"state": "skipped", "message": "Check mode: nothing was done."}
    return result


def _check_event(event: t.Mapping[str, t.Any]) -> None:
    event_id, names = event.get("event_id"), event.get("resources")
    if not isinstance(event_id, str) or not event_id.strip():
        raise WrongOption("events: each needs an event_id.")
    if not isinstance(event.get("event_type"), (str, type(None))):
        raise WrongOption(f"events: event_type of {clean(event_id, 80)} has to be a string.")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise WrongOption(f"events: resources of {clean(event_id, 80)} has to be a list of strings.")


def _engine() -> type[Look]:
    # Loaded only if it is needed: most calls only look.
    from ansible_collections.graceful.azure.plugins.module_utils._engine import Engine

    return Engine


def main() -> None:
    specific = {
        "order": {"type": "str", "choices": ["look", "ready", "approve", "put_back", "release"], "default": "look"},
        "events": {"type": "list", "elements": "dict", "default": []},
        "steps": {"type": "list", "elements": "dict", "default": []},
        "checkpoint": {"type": "list", "elements": "dict", "default": []},
        "health": {"type": "list", "elements": "dict", "default": []},
        "health_mistake": {"type": "str", "default": ""},
        "secrets": {"type": "dict", "default": {}, "no_log": True},
        "record_dir": {"type": "path", "default": "/var/lib/graceful/records"},
        "checkpoint_dir": {"type": "path", "default": "/var/lib/graceful/checkpoints"},
        "run_id": {"type": "str", "default": ""},
        "run_name": {"type": "str", "default": ""},
        "silent_for": {"type": "float", "default": 120},
        "force": {"type": "bool", "default": False},
        "seconds": {"type": "float", "default": 300},
        "wait": {"type": "float", "default": 0},
        "known": {"type": "str", "default": ""},
        "undo_on_failure": {"type": "bool", "default": False},
        "controller_step": {"type": "dict"},
        "looked": {"type": "dict", "default": {}},
        "max_age": {"type": "float", "default": 60},
        "fresh": {"type": "float", "default": 30},
        "lapsed": {"type": "list", "elements": "str", "default": []},
        "probe_record": {"type": "bool", "default": False},
        "timeout": {"type": "float", "default": 0},
    }
    module = AnsibleModule({**connection_options(), **specific}, supports_check_mode=True)
    run(module, carry_out, PlainTransport())


if __name__ == "__main__":
    main()
