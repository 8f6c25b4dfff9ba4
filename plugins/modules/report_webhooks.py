#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report_webhooks
short_description: Send messages about a maintenance to webhooks
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Posts to each webhook that has the occasion in its C(events), one after the other.
  - V(noticed) and V(deferred) are sent once for each event, the other occasions once for each event and run. The file
    C(told.json) in the report directory has what was sent in the last 30 days.
  - A webhook that fails, hangs or has a mistake is a line in RV(problems), and a warning. It never fails the run.
  - Redirects are not followed, certificates are verified, and proxies are taken from the environment.
  - It is what the role P(graceful.azure.report#role) uses. Use the role.
notes:
  - This is an action plugin. It runs on the controller, as the user who runs Ansible.
  - Use C(no_log=true) with it, since URLs, headers and keys are secrets.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  webhooks:
    description: Where to post to.
    type: list
    elements: dict
    required: true
    suboptions:
      url:
        description: >-
          Where to post to. Required, except for format pagerduty, which knows its own. It is treated as a secret,
          except for its host.
        type: str
      format:
        description: >-
          What the receiver understands: json has all fields, for a receiver of your own; slack is an incoming
          webhook of Slack, teams a workflow of Microsoft Teams; pagerduty opens an alert for each event that is
          noticed, held or failed, and closes it when the event is over and its hosts are restored. Leave noticed
          out of events if an event that is only notified should open none.
        type: str
        choices: [json, slack, teams, pagerduty]
        default: json
      key:
        description: >-
          The routing key of the PagerDuty service, a secret. Required for format pagerduty.
        type: str
      events:
        description: >-
          On which occasions to post. All but finished if not set.
        type: list
        elements: str
        choices: [noticed, deferred, held, approved, restored, failed, finished]
      headers:
        description: >-
          Headers to send along. They are treated as secrets.
        type: dict
      timeout:
        description: >-
          Seconds that the webhook may take in all, from looking up its name to its answer.
        type: int
        default: 5
  data:
    description: The report data.
    type: dict
    required: true
  occasion:
    description: What the message is about.
    type: str
    choices: [noticed, deferred, held, approved, restored, failed, finished]
    default: finished
  directory:
    description: The report directory, with the record of what was sent. If it is empty, everything is sent again.
    type: str
    default: ""
  page:
    description: The path of the report's page, for the message.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    details: Nothing is sent in check mode.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: A message is sent once, except for the occasion V(finished).
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Tell the people on duty that an event is held
  graceful.azure.report_webhooks:
    webhooks:
      - format: pagerduty
        key: "{{ vault_pagerduty_key }}"
        events: [held, failed, restored]
    data: "{{ report_data }}"
    occasion: held
    directory: graceful-reports
  run_once: true
  no_log: true
"""

RETURN = r"""
problems:
  description: A line for each webhook that did not take the message, without its secrets.
  returned: always
  type: list
  elements: str
  sample: ["webhook 2 of 3 (chat.example.com) answered HTTP 404"]
event_ids:
  description: The events about which a message was sent now.
  returned: always
  type: list
  elements: str
"""

# The work is done in the action plugin of the same name.
