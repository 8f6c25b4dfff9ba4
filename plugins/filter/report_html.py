# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_html
short_description: The report of a maintenance as a page to look at
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Turns the report data of a run into one self-contained HTML page with a timeline for each event.
  - The page has no scripts and loads nothing. All text in the data is shown as text.
  - Nothing in the data makes it fail. What is missing is left out.
  - The role P(graceful.azure.report#role) uses it.
options:
  _input:
    description: The report data, as in the JSON file that lies next to each page.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Draw the page again from the data
  ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.file', 'reports/latest.json') | from_json | graceful.azure.report_html }}"
    dest: reports/latest.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils._timeline import page


def report_html(data: t.Any) -> str:
    if not isinstance(data, t.Mapping):
        raise AnsibleFilterError("report_html needs the report data, which is a dictionary.")
    return page(data)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"report_html": report_html}
