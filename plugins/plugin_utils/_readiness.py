# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts are ready for maintenance, from the answer and the variables of each host. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._document import same_name
from ..module_utils._policy import validate_policy
from ..module_utils._text import clean, listed, quoted_list

Json = dict[str, t.Any]
# The answer of a host (reachable, error, report, observation), and of its variables mistakes, drain_not_set,
# min_available and the groups that they name.
Answer = t.Mapping[str, t.Any]
LIBRARY = "Python library (requests)"
HEADER = ("host", "ready", "Azure name", "endpoint", "clock offset", "announced")
REPEAT = "Repeat this within 24 hours: Azure disables the service for a VM that has sent no request for 24 hours."
RESTARTS = (
    "The service is enabled now, so restarts from the portal or the CLI wait for an approval, or for their whole "
    "notice (about 15 minutes). A rule of graceful_policy can approve them, or Azure's scheduledEventsPolicy: see the "
    "README of the role prepare."
)
GROUP_USES = {"policy": "the rule never matches", "min_available": "it protects nothing"}


def library_is_missing(answer: Answer) -> bool:
    return any(LIBRARY in text for text in (answer["observation"] or {}).get("warnings", ()))


def named_groups(values: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """The groups that a host's settings name, by setting."""
    least = values["min_available"]
    return {
        "policy": sorted({group for rule in validate_policy(values["policy"]) for group in rule.groups}),
        "min_available": sorted(least) if isinstance(least, t.Mapping) else [],
    }


def readiness(
    answers: t.Mapping[str, Answer], groups: t.Collection[str], max_clock_offset: float, installs: t.Mapping[str, str]
) -> Json:
    """The problems of each host that is not ready, and a table of all hosts.

    `installs` has the result of installing the missing library, by host."""
    problems = {host: found for host in sorted(answers) if (found := _problems(host, answers, max_clock_offset))}
    libraries = _library_warnings(answers, installs)
    table = [*_table(answers, problems), *_remarks(answers, problems, groups, libraries)]
    return {"problems": problems, "table": table}


def _problems(host: str, answers: t.Mapping[str, Answer], max_clock_offset: float) -> list[str]:
    answer = answers[host]
    found = [_service_problem(answer, max_clock_offset), record_problem(answer), _shared_name(host, answers)]
    return [text for text in (*found, *answer["mistakes"]) if text]


def _service_problem(answer: Answer, max_clock_offset: float) -> str:
    """The first reason why the host cannot notice maintenance, with advice."""
    observation = answer["observation"]
    if not answer["reachable"]:
        return (
            f"The host cannot be reached: {answer['error'].rstrip('.')}. Check its connection, then prepare it again."
        )
    if observation is None:
        return str(answer["error"])
    if observation["error"]:
        return str(observation["error"])
    if not observation["vm_name"]:
        return "The metadata service does not return the Azure name of the VM. Set graceful_vm_name for this host."
    offset = observation["clock_offset"]
    if offset is None:
        return "The metadata service does not return its time, so the clock of the host cannot be checked."
    if abs(offset) > max_clock_offset:
        wrong = "behind" if offset > 0 else "ahead"
        return f"The host's clock is {abs(offset):.0f} s {wrong}. Correct its time synchronisation."
    return ""


def record_problem(answer: Answer) -> str:
    report, observation = answer["report"] or {}, answer["observation"] or {}
    why = report.get("message") if report.get("state") == "failed" else observation.get("record_error")
    return str(why or "")


def _shared_name(host: str, answers: t.Mapping[str, Answer]) -> str:
    name = _azure_name(answers[host])
    others = [other for other in answers if other != host and name == _azure_name(answers[other])]
    if not name or not others:
        return ""
    return (
        f"It has the same Azure name as {clean(others[0], 80)}: an event that both see is not approved. This is no "
        "problem if they are in different resource groups and never see the same event."
    )


def _azure_name(answer: Answer) -> str:
    return same_name(str((answer["observation"] or {}).get("vm_name") or ""))


def _table(answers: t.Mapping[str, Answer], problems: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    rows = [HEADER, *(_row(host, answers[host], host not in problems) for host in sorted(answers))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(host: str, answer: Answer, ready: bool) -> tuple[str, ...]:
    seen = answer["observation"] or {}
    offset, events = seen.get("clock_offset"), seen.get("events")
    return (
        clean(host, 80),
        "yes" if ready else "no",
        seen.get("vm_name") or "-",
        seen.get("endpoint") or "-",
        "-" if offset is None else f"{round(offset, 1) + 0.0:+.1f} s",
        "-" if events is None else str(sum(event["affects_me"] is not False for event in events)),
    )


def _library_warnings(answers: t.Mapping[str, Answer], installs: t.Mapping[str, str]) -> list[str]:
    """Warnings only: the playbooks do not need the library."""
    lines = []
    for host in sorted(answers):
        for text in (answers[host]["observation"] or {}).get("warnings", ()):
            if LIBRARY in text:
                warning = f"{text} {installs.get(host, '')}".strip()
                lines.append(f"Warning: {clean(host, 80)}: {warning} Only the three modules scheduled_… need it.")
    return lines


def _remarks(
    answers: t.Mapping[str, Answer],
    problems: t.Mapping[str, t.Sequence[str]],
    groups: t.Collection[str],
    libraries: t.Sequence[str],
) -> list[str]:
    """What the table does not show. The same text for several hosts is one line."""
    alike: dict[str, list[str]] = {}
    for host, texts in problems.items():
        for text in texts:
            alike.setdefault(text, []).append(host)
    lines = [*(f"{listed(hosts)}: {text}" for text, hosts in alike.items()), *libraries]
    idle = [host for host in sorted(answers) if answers[host]["drain_not_set"]]
    if idle:
        whose = "its" if len(idle) == 1 else "their"
        lines.append(
            f"Warning: nothing is drained on {listed(idle)}: graceful_drain_steps is not set; {whose} events are held "
            "unless the policy's action is approve. An empty list says that nothing has to be drained."
        )
    for key, means in GROUP_USES.items():
        missing = sorted({group for answer in answers.values() for group in answer["groups"][key]} - set(groups))
        if missing:
            lines.append(
                f"Warning: graceful_{key} names {quoted_list(missing)}, which the inventory does not have: {means}."
            )
    if any((answer["observation"] or {}).get("events") is not None for answer in answers.values()):
        lines.append(RESTARTS)
    return [*lines, f"{len(answers) - len(problems)} of {len(answers)} hosts are ready. {REPEAT}"]
