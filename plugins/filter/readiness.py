# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: readiness
short_description: Whether hosts can take part in graceful maintenance
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Judges what M(graceful.azure.scheduled_events_info) returned on each host.
  - The role P(graceful.azure.prepare#role) uses it.
positional: max_clock_offset, mistakes, installs, records
options:
  _input:
    description: What the module returned, by host.
    type: dict
    required: true
  max_clock_offset:
    description: Seconds that a host's clock may differ from the service's.
    type: float
    default: 30
  mistakes:
    description: What is wrong with what was written for each host, by host; an empty string if nothing is.
    type: dict
  installs:
    description: What M(ansible.builtin.package) returned where something had to be installed, by host.
    type: dict
  records:
    description: What M(graceful.azure.maintenance_record) returned when it was tried, by host.
    type: dict
"""

EXAMPLES = r"""
- name: Show whether all hosts are ready
  ansible.builtin.debug:
    msg: "{{ ({inventory_hostname: announced} | graceful.azure.readiness).table }}"
"""

RETURN = r"""
_value:
  description: The judgement.
  type: dict
  contains:
    problems:
      description: What stands in the way, by host; an empty string if nothing does.
      type: dict
      sample: {"web1": ""}
    table:
      description: The same as lines of text.
      type: list
      elements: str
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils._readiness import readiness


def judge(
    answers: t.Any,
    max_clock_offset: float = 30,
    mistakes: t.Mapping[str, str] | None = None,
    installs: t.Mapping[str, t.Any] | None = None,
    records: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    if not isinstance(answers, t.Mapping) or not all(isinstance(answer, t.Mapping) for answer in answers.values()):
        raise AnsibleFilterError("readiness needs a dictionary of what scheduled_events_info returned, by host.")
    return readiness(answers, float(max_clock_offset), mistakes, installs, records)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"readiness": judge}
