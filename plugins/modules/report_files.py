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
  - Writes the report data as JSON and as the page that P(graceful.azure.report_html#filter) makes of it, under a
    name with the time and the run, and again as C(latest.json) and C(latest.html).
  - It is what the role P(graceful.azure.report#role) uses. Use the role.
notes:
  - This is an action plugin. It runs on the controller, as the user who runs Ansible.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  directory:
    description: Where to write. It is made if it is not there.
    type: path
    required: true
  data:
    description: The report data.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    details: It writes in check mode, too, because what would be done is what one wants to read then.
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
  description: The path of the page.
  returned: success
  type: str
  sample: /srv/graceful-reports/20260301T031500Z-5a6c0f0e.html
data:
  description: The path of the data.
  returned: success
  type: str
  sample: /srv/graceful-reports/20260301T031500Z-5a6c0f0e.json
"""

# The work is done in the action plugin of the same name.
