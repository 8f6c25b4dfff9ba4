# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: webhook_problems
short_description: Why webhooks failed, without their secrets
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Judges what M(ansible.builtin.uri) returned in a loop over webhooks.
  - Names a webhook by its number and host. Of its URL and headers nothing else appears, nor do the words of the module,
    which may quote them.
  - The role P(graceful.azure.report#role) uses it.
options:
  _input:
    description: The results of the loop, one for each webhook, in order.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Say which webhooks failed
  ansible.builtin.debug:
    msg: "{{ sent.results | graceful.azure.webhook_problems }}"
"""

RETURN = r"""
_value:
  description: A line for each webhook that did not take the message.
  type: list
  elements: str
  sample: ["webhook 2 of 3 (chat.example.com): it answered HTTP 404"]
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.graceful.azure.plugins.plugin_utils._webhooks import problems


def webhook_problems(results: t.Any) -> list[str]:
    if not isinstance(results, (list, tuple)) or not all(isinstance(result, t.Mapping) for result in results):
        raise AnsibleFilterError("webhook_problems needs the list of results of a loop.")
    return problems(results)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"webhook_problems": webhook_problems}
