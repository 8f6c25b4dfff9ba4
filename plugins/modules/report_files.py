#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report_files
short_description: Write the report of a maintenance, as a page and as data
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Writes the report data as JSON and as a self-contained HTML page with a timeline, under a name with the time and
    the run, and again as C(latest.json) and C(latest.html). User names, passwords and queries of URLs are left out.
  - A report that cannot be written is a warning. It never fails the run.
  - It is what the role P(graceful.azure.report#role) uses. Use the role.
notes:
  - This is an action plugin. It runs on the controller, as the user who runs Ansible.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  directory:
    description: Where to write. It is made if it is not there. Nothing is written if it is empty.
    type: str
    required: true
  data:
    description: The report data.
    type: dict
    required: true
  keep:
    description:
      - How many reports to keep. Older ones are removed, and so are the older archives of each restored host in the
        directory C(checkpoints). Files with other names stay. V(0) keeps all.
    type: int
    default: 50
  always:
    description: Write the report also if nothing was announced.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    details: It writes in check mode, too. The report then says what would be done.
  diff_mode:
    support: none
    details: Every report is new.
  idempotent:
    support: none
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Write the report
  graceful.azure.report_files:
    directory: graceful-reports
    data: "{{ report_data }}"
  run_once: true
"""

RETURN = r"""
page:
  description: The path of the page, empty if there is none.
  returned: always
  type: str
  sample: /srv/graceful-reports/20260301T031500Z-5a6c0f0e.html
data:
  description: The path of the data, empty if there is none.
  returned: always
  type: str
  sample: /srv/graceful-reports/20260301T031500Z-5a6c0f0e.json
removed:
  description: The paths of the old reports and archives that were removed.
  returned: always
  type: list
  elements: str
margin:
  description: Of a drill, how long it took against the notice that Azure gives for each kind of event.
  returned: always
  type: list
  elements: str
ansible_stats:
  description: The outcome, in the format of M(ansible.builtin.set_stats). AWX shows it as artifacts.
  returned: always
  type: dict
  contains:
    data:
      description: The values.
      type: dict
      contains:
        graceful_result:
          description: The result of the run.
          type: str
          sample: done
        graceful_was_drill:
          description: Whether it was a drill.
          type: bool
        graceful_report:
          description: The path of the page.
          type: str
        graceful_report_data:
          description: The path of the data.
          type: str
        graceful_events:
          description: The events, each with its C(event_id), C(event_type), C(action), C(outcome), C(message), C(holds)
            and C(hosts).
          type: list
          elements: dict
        graceful_host_results:
          description: The result of each host.
          type: dict
          sample: {"web1": "restored"}
"""

# The work is done in the action plugin of the same name.
