# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies archives between a Windows host and the controller with the methods of the connection plugin."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils._text import clean

Json = dict[str, t.Any]
FAILED = {"failed": True, "changed": False}


def copied(action: ActionBase, step: t.Any) -> Json:
    """Fetch the archive of the step, or send it. A failure is in the result, and never an exception.

    The controller decides about the path on the controller, the host about the path on the host."""
    mode = step.get("mode") if isinstance(step, t.Mapping) else None
    if mode not in ("fetch", "send"):
        return {**FAILED, "msg": "No host asks for an archive. Only the collection's roles copy one."}
    here, there = str(step["controller_copy"]), str(step["archive"])
    connection: t.Any = action._connection
    try:
        if mode == "fetch":
            os.makedirs(os.path.dirname(here), mode=0o700, exist_ok=True)
            part = here + ".part"
            # Created first, so that nobody else can read it.
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
            connection.fetch_file(there, part)
            os.chmod(part, 0o600)
            os.replace(part, here)
        else:
            connection.put_file(here, there)
    except (AnsibleError, OSError) as exc:
        doing = "fetched from" if mode == "fetch" else "sent to"
        return {**FAILED, "msg": f"The archive could not be {doing} the host: {clean(exc, 300)}"}
    return {"changed": True, "msg": "the archive was copied"}
