#!/usr/bin/python
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_archive
short_description: Save paths that maintenance may lose, and put back what was lost
version_added: 0.1.0
author: graceful.azure contributors (@graceful)
description:
  - Saves files and directories, with mode and owner, into one archive with a checksum. Redeploy and Preempt lose the
    ephemeral disk of a VM.
  - Puts back what is in the archive and no longer on the disk, and only that. What is there stays as it is.
  - The role P(graceful.azure.checkpoint#role) uses it to save, the role P(graceful.azure.restore#role) to put back.
extends_documentation_fragment:
  - graceful.azure.attributes
options:
  state:
    description:
      - V(saved) writes the archive anew. V(restored) puts back what was lost.
    type: str
    choices: [saved, restored]
    default: saved
  paths:
    description:
      - Absolute paths of files and directories. Of a symbolic link, what it leads to is saved.
    type: list
    elements: path
    required: true
  archive:
    description:
      - Absolute path of the archive, on a disk that survives.
    type: path
    required: true
  checksum:
    description:
      - What saving returned as RV(checksum). Required to restore; a damaged archive is refused.
    type: str
  only_missing_paths:
    description:
      - Leave alone those of the O(paths) that are there, whatever is missing inside them. For when nothing can have
        been lost, so that what is missing was deleted on purpose.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The list RV(restored) says what was put back.
  idempotent:
    support: partial
    details: Restoring is idempotent. Saving always writes the archive anew.
  action_group:
    support: none
    membership: []
"""

EXAMPLES = r"""
- name: Save the cache that lies on the ephemeral disk
  graceful.azure.checkpoint_archive:
    paths: [/mnt/cache]
    archive: /var/lib/graceful/cache.tar.gz
  register: saved

- name: Put back what was lost
  graceful.azure.checkpoint_archive:
    state: restored
    paths: "{{ saved.paths }}"
    archive: /var/lib/graceful/cache.tar.gz
    checksum: "{{ saved.checksum }}"
"""

RETURN = r"""
checksum:
  description: SHA-256 of the archive.
  returned: when O(state=saved), not in check mode
  type: str
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
size:
  description: Size of the archive in bytes.
  returned: when O(state=saved), not in check mode
  type: int
  sample: 10240
entries:
  description: Number of files and directories in the archive.
  returned: when O(state=saved), not in check mode
  type: int
  sample: 3
paths:
  description: Where the O(paths) really are; what restoring needs.
  returned: when O(state=saved), not in check mode
  type: list
  elements: str
  sample: [/mnt/cache]
restored:
  description: What was put back; in check mode, what would be.
  returned: when O(state=restored)
  type: list
  elements: str
  sample: [/mnt/cache/index]
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.graceful.azure.plugins.module_utils._archive import restore, save
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError, WrongOption


def work(params: dict[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    if not params["paths"]:
        raise WrongOption("paths is empty, so there is nothing to save. Name what may be lost.")
    for path in (*params["paths"], params["archive"]):
        if not os.path.isabs(path) or "\0" in path:
            raise WrongOption(f"{path!r} is not an absolute path.")
    if params["state"] == "restored":
        restored = restore(
            params["paths"], params["archive"], params["checksum"], check_mode, params["only_missing_paths"]
        )
        return {"changed": bool(restored), "restored": restored}
    return {"changed": True} if check_mode else {"changed": True, **save(params["paths"], params["archive"])._asdict()}


def main() -> None:
    module = AnsibleModule(
        {
            "state": {"type": "str", "choices": ["saved", "restored"], "default": "saved"},
            "paths": {"type": "list", "elements": "path", "required": True},
            "archive": {"type": "path", "required": True},
            "checksum": {"type": "str"},
            "only_missing_paths": {"type": "bool", "default": False},
        },
        required_if=[("state", "restored", ["checksum"])],
        supports_check_mode=True,
    )
    try:
        result = work(module.params, module.check_mode)
    except EventsError as exc:
        module.fail_json(msg=exc.message, **exc.fields)
    else:
        module.exit_json(**result)


if __name__ == "__main__":
    main()
