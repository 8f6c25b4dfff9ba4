# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Whether a fleet can take part in graceful maintenance, from what each host's metadata service answered."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._document import same_name

Answer = t.Mapping[str, t.Any]


def readiness(
    answers: t.Mapping[str, Answer],
    max_clock_offset: float,
    mistakes: t.Mapping[str, str] | None = None,
    installs: t.Mapping[str, Answer] | None = None,
    records: t.Mapping[str, Answer] | None = None,
) -> dict[str, t.Any]:
    """What is wrong with each host (empty if nothing is), and the same as a table to look at."""
    written = mistakes or {}
    kept = records or {}
    problems = {
        host: problem(answer, max_clock_offset)
        or _shared_name(host, answers)
        or str(written.get(host) or "")
        or _no_record(kept.get(host) or {})
        for host, answer in answers.items()
    }
    for host, install in (installs or {}).items():
        if problems.get(host) and install.get("failed"):
            problems[host] = f"The Python library requests is missing and could not be installed: {install.get('msg')}"
    return {"problems": problems, "table": table(answers, problems)}


def problem(answer: Answer, max_clock_offset: float) -> str:
    """The first thing that stands in the way, with what to do about it."""
    if answer.get("unreachable"):
        return "The host cannot be reached. Check its connection, then prepare it again."
    if answer.get("failed") or "endpoint" not in answer:
        return str(answer.get("msg") or "The metadata service was not asked.")
    if not answer.get("vm_name"):
        return "The service does not tell the VM's Azure name. Set graceful_vm_name for this host."
    offset = answer.get("clock_offset")
    if offset is None:
        return "The service does not tell its time, so the host's clock cannot be checked."
    if abs(offset) > max_clock_offset:
        wrong = "behind" if offset > 0 else "ahead"
        return f"The host's clock is {abs(offset):.0f} s {wrong}. Mend its time synchronisation."
    return ""


def _no_record(answer: Answer) -> str:
    if not answer.get("failed") and not answer.get("unreachable"):
        return ""
    return f"It cannot keep the record of a maintenance (graceful_record_dir): {answer.get('msg')}"


def _shared_name(host: str, answers: t.Mapping[str, Answer]) -> str:
    name = same_name(str(answers[host].get("vm_name") or ""))
    others = [
        other for other in answers if other != host and name == same_name(str(answers[other].get("vm_name") or ""))
    ]
    if not name or not others or answers[host].get("events") is None:
        return ""
    return (
        f"Its Azure name is that of {others[0]}, too: while both see the same event it is not approved. In different "
        "resource groups that is fine."
    )


def table(answers: t.Mapping[str, Answer], problems: t.Mapping[str, str]) -> list[str]:
    header = ("host", "ready", "Azure name", "endpoint", "clock", "announced")
    rows = [header, *(_row(host, answers[host], problems[host]) for host in sorted(answers))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    ready = sum(not text for text in problems.values())
    return [
        *lines,
        *(f"{host}: {problems[host]}" for host in sorted(problems) if problems[host]),
        f"{ready} of {len(problems)} hosts are ready. "
        "Repeat this within 24 hours: Azure disables the service for a VM that does not ask.",
    ]


def _row(host: str, answer: Answer, trouble: str) -> tuple[str, ...]:
    offset = answer.get("clock_offset")
    clock = "-" if offset is None else f"{offset:+.1f} s"
    events = str(len(answer["events"])) if "events" in answer else "-"
    cells = (
        host,
        "no" if trouble else "yes",
        answer.get("vm_name") or "-",
        answer.get("endpoint") or "-",
        clock,
        events,
    )
    return tuple("".join(char if char.isprintable() else "?" for char in cell) for cell in cells)
