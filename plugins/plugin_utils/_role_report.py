# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of the roles drain, checkpoint and restore, from the answer of the host. Pure."""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]
UNFINISHED = ("working", "waiting")


def role_report(role: str, answer: t.Mapping[str, t.Any]) -> Json:
    """Whether the order was carried out, the reason if not, and the host's record of it."""
    report, observation = answer["report"] or {}, answer["observation"] or {}
    record = report.get("closed") or observation.get("record")
    done = report.get("state") in ("ready", "put_back")
    reason = report.get("message") or answer["error"] or ""
    if report.get("state") in UNFINISHED:
        reason = f"Not finished in time: {reason}"
    if role == "restore":
        return {"restored": done, "reason": reason, "record": record}
    noted = record or {"steps": [], "timeline": []}
    steps = [step for step in noted["steps"] if step["phase"] == role]
    return {"ready": done, "reason": reason, "steps": steps, "timeline": noted["timeline"]}
