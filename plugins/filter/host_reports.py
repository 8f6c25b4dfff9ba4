# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: host_reports
short_description: Whether a host is ready, for each of its events
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - A host is ready for an event only if it was claimed, all that the policy demands is done, and that was noted on the
    host afterwards.
positional: claims, drained, saved, noted
options:
  _input:
    description: The host's work, from P(graceful.azure.assignments#filter).
    type: dict
    required: true
  claims:
    description: What claiming returned.
    type: raw
    required: true
  drained:
    description: What the role drain reported.
    type: raw
    required: true
  saved:
    description: What the role checkpoint reported.
    type: raw
    required: true
  noted:
    description: What noting the readiness returned.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Report
  ansible.builtin.set_fact:
    reports: "{{ work | graceful.azure.host_reports(claims, drain_report, checkpoint_report, noted) }}"
"""

RETURN = r"""
_value:
  description: For each event id, whether the host is V(ready) and the V(reason).
  type: dict
"""

import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._cycle import host_reports


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"host_reports": host_reports}
