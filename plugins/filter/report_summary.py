# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_summary
short_description: The report of a maintenance in a few fields
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Says of the report data what a message to people and the artifacts of a job need.
  - The role P(graceful.azure.report#role) uses it.
options:
  _input:
    description: The report data, as in the JSON file that lies next to each page.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Say how the last run ended
  ansible.builtin.debug:
    msg: "{{ (latest | from_json | graceful.azure.report_summary).verdict }}"
  vars:
    latest: "{{ lookup('ansible.builtin.file', 'reports/latest.json') }}"
"""

RETURN = r"""
_value:
  description: The summary.
  type: dict
  contains:
    result:
      description: V(nothing), V(done), V(held) or V(failed).
      type: str
      sample: done
    verdict:
      description: The same in words.
      type: str
      sample: Maintenance done
    words:
      description: What happened, in lines.
      type: list
      elements: str
    text:
      description: The same as one text that mentions nobody and links nowhere when a chat shows it.
      type: str
    run:
      description: Which run it was, with its C(run_id), C(run_name) and C(check_mode).
      type: dict
    events:
      description: The events, each with its C(event_id), C(event_type), C(action), C(outcome), C(hold) and C(hosts).
      type: list
      elements: dict
    hosts:
      description: What became of each host.
      type: dict
      sample: {"web1": "restored"}
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils._report import summary


def report_summary(data: t.Any) -> dict[str, t.Any]:
    if not isinstance(data, t.Mapping):
        raise AnsibleFilterError("report_summary needs the report data, which is a dictionary.")
    return summary(data)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"report_summary": report_summary}
