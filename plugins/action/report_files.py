# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import tempfile
import typing as t
from datetime import datetime, timezone

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.plugin_utils._timeline import page


class ActionModule(ActionBase):
    """Writes on the controller, in this process: modules that copied there would take seconds."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        del tmp
        directory, data = self._task.args.get("directory"), self._task.args.get("data")
        if not isinstance(directory, str) or not directory or not isinstance(data, t.Mapping):
            raise AnsibleActionFail("report_files needs a directory and the report data, which is a dictionary.")
        directory = os.path.realpath(os.path.expanduser(directory))
        stem = os.path.join(directory, _name(data, datetime.now(timezone.utc)))
        try:
            os.makedirs(directory, exist_ok=True)
            texts = {
                "json": json.dumps(data, indent=4, sort_keys=True, default=str) + "\n",
                "html": page(data),
            }
            for ending, text in texts.items():
                for base in (stem, os.path.join(directory, "latest")):
                    _write(f"{base}.{ending}", text)
        except (OSError, TypeError, ValueError) as exc:
            raise AnsibleActionFail(f"The report cannot be written to {directory}: {exc}") from exc
        result.update(changed=True, page=f"{stem}.html", data=f"{stem}.json")
        return result


def _name(data: t.Mapping[str, t.Any], now: datetime) -> str:
    """Sorted by time, and told apart by run; nothing of it is event text."""
    run = data.get("run")
    run_id = re.sub(r"[^A-Za-z0-9]", "", str(run.get("run_id") or "")) if isinstance(run, t.Mapping) else ""
    return f"{now:%Y%m%dT%H%M%SZ}-{run_id[:8] or 'run'}"


def _write(file: str, text: str) -> None:
    """The whole or nothing: somebody may have the page open."""
    descriptor, draft = tempfile.mkstemp(dir=os.path.dirname(file), prefix=".report-")
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), 0o640)
        os.replace(draft, file)
    except OSError:
        os.unlink(draft)
        raise
