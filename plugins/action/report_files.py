# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.modules import report_files

from ..module_utils._text import clean
from ..plugin_utils import _report_dir as report_dir
from ..plugin_utils._drill import drill_margin
from ..plugin_utils._options import documented
from ..plugin_utils._play import Plugin
from ..plugin_utils._report import safe, summary
from ..plugin_utils._settings import ARTIFACTS, PREFIX
from ..plugin_utils._slices import say

Json = dict[str, t.Any]


class ActionModule(Plugin):
    """Writes on the controller, in this process: modules would take seconds."""

    _requires_connection = False
    OPTIONS = documented(report_files)

    def _result(self, options: Json) -> Json:
        data = safe(options["data"])
        short = summary(data)
        result: Json = {"page": "", "data": "", "removed": [], "margin": drill_margin(data) if short["drill"] else []}
        if options["directory"] and (options["always"] or short["events"] or short["result"] != "nothing"):
            result.update(self._write(report_dir.absolute(options["directory"]), data, options["keep"]))
        # Artifacts for AWX, in the format of set_stats.
        values = (short["result"], short["drill"], result["page"], result["data"], short["events"], short["hosts"])
        stats = {PREFIX + name: value for name, value in zip(ARTIFACTS, values, strict=True)}
        result["ansible_stats"] = {"data": stats, "per_host": False, "aggregate": False}
        result["ansible_facts"] = {"report_path": result["page"]}
        for line in [f"Report: {result['page']}"] * bool(result["page"]) + result["margin"]:
            say(line)
        return result

    def _write(self, directory: str, data: Json, keep: int) -> Json:
        written: Json = {}
        try:
            page, kept = report_dir.write_report(directory, data, datetime.now(timezone.utc))
            written = {"page": page, "data": kept}
            written["removed"] = report_dir.remove_old(directory, keep, data)
        except OSError as exc:
            what = "Old reports cannot be removed from" if written else "The report cannot be written to"
            self._display.warning(clean(f"{what} {directory}: {exc.strerror or exc}"))
        return written
