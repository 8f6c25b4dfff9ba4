# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What the roles drain, checkpoint and restore tell their user, from what the host answered. Pure."""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]


def role_report(role: str, told: t.Mapping[str, t.Any]) -> Json:
    """Whether the order was carried out, why not, and what the host's record says about it."""
    report, observation = told["report"] or {}, told["observation"] or {}
    record = report.get("closed") or observation.get("record")
    done = report.get("state") in ("ready", "put_back")
    reason = report.get("message") or told["error"] or ""
    if role == "restore":
        return {"restored": done, "reason": reason, "record": record}
    noted = record or {"steps": [], "timeline": []}
    steps = [step for step in noted["steps"] if step["phase"] == role]
    return {"ready": done, "reason": reason, "steps": steps, "timeline": noted["timeline"]}
