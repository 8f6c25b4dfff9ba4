# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one self-contained HTML page: report data in, text out. Pure: no I/O, no Ansible.

The picture has one lane for each event and host on one time axis. A lane is a row of phases; a phase lasts until the
next one begins. Positions are percentages, so the picture fits every width.
"""

from __future__ import annotations

import html
import math
import typing as t
from datetime import datetime, timezone

from ..module_utils._document import same_id
from ..module_utils._text import clean, count, duration, listed
from ._drill import DRILL, drill_margin
from ._report import Event, Host, Report, read
from ._style import CSS, EVENT_PHASES, HOST_PHASES, THIN

# The smallest width of the time area, in pixels: a label that fits there fits everywhere.
NARROWEST = 520
LETTER = 7.6
# The smallest width of a phase, in percent, so that no phase hides another.
LEAST_WIDTH = 1.2
SHORTEST = 10.0
MOST_TICKS = 6
DAY = 86400
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY)
FEW_NAMES = 4
LONGEST_DETAIL = 300
LOOKS = {
    **dict.fromkeys(("done", "completed", "approved", "drained", "restored", "ready"), "good"),
    **dict.fromkeys(("nothing", "notified", "ignored", "cancelled", "untouched", "gone", "planned"), "calm"),
    **dict.fromkeys(("failed", "unreachable"), "bad"),
}
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""
CHECK_MODE = "Check mode: this is the plan. Nothing was changed."


class Phase(t.NamedTuple):
    at: float
    what: str
    detail: str = ""


class Axis(t.NamedTuple):
    """Maps times to percent of the time area. Times outside are at the edge."""

    first: float
    last: float

    def at(self, time: float) -> float:
        return min(100.0, max(0.0, (time - self.first) / (self.last - self.first) * 100))

    def shows(self, time: float | None) -> t.TypeGuard[float]:
        return time is not None and self.first <= time <= self.last

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round times, with their labels."""
        length = self.last - self.first
        step = next((step for step in STEPS if length / step <= MOST_TICKS), DAY * math.ceil(length / DAY / MOST_TICKS))
        labels, shown_day = [], day(self.first)
        for at in range(math.ceil(self.first / step) * step, math.floor(self.last) + 1, step):
            label = "" if step >= DAY else clock(at) if step < 60 else clock(at)[:5]
            if step >= DAY or day(at) != shown_day:
                shown_day = day(at)
                label = f"{shown_day[:-5]} {label}".strip()
            labels.append((self.at(at), label))
        return labels


def page(data: t.Any) -> str:
    """The whole page."""
    report = read(data)
    parts = [_masthead(report)]
    if report.drill:
        parts.append(_card("margin", "Time needed", f"<ul>{_items(drill_margin(data))}</ul>"))
    parts += [_event(event, number) for number, event in enumerate(report.events, 1)]
    parts += _hosts(report)
    title = f"<title>{shown(report.verdict)} - Azure maintenance</title>\n"
    main = "\n".join(parts)
    return f"{HEAD}{title}<style>{CSS}</style>\n</head>\n<body>\n<main>\n{main}\n</main>\n</body>\n</html>\n"


def shown(value: t.Any, longest: int = 1000) -> str:
    """Text for the page, cleaned and escaped."""
    return html.escape(clean(value, longest), quote=True)


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)


def clock(at: float) -> str:
    return f"{moment(at):%H:%M:%S}"


def day(at: float) -> str:
    return f"{moment(at).day} {moment(at):%b} {moment(at).year:04d}"


def stamp(at: float, near: float | None = None) -> str:
    """The time, with its date unless `near` has the same date."""
    written = clock(at) if near is not None and day(near) == day(at) else f"{day(at)}, {clock(at)}"
    return f'<time datetime="{moment(at):%Y-%m-%dT%H:%M:%SZ}">{written}</time>'


def _later(begin: float | None, end: float) -> str:
    return "" if begin is None else f", {duration(abs(end - begin))} {'later' if end >= begin else 'earlier'}"


def _badge(word: str) -> str:
    return f'<span class="badge {LOOKS.get(word, "wait")}">{shown(word or "unknown", 60)}</span>'


def _items(lines: t.Iterable[str]) -> str:
    return "".join(f"<li>{shown(line)}</li>" for line in lines)


def _card(name: str, title: str, body: str) -> str:
    return f'<section class="card" aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}\n</section>'


def _masthead(report: Report) -> str:
    run = report.run
    line = [f"<bdi>{shown(run.run_name, 200)}</bdi>"] if run.run_name else []
    if run.started is not None:
        line.append(f"{stamp(run.started)} UTC")
        line.append("still running" if run.finished is None else f"took {duration(run.finished - run.started)}")
    line += [f"run <code>{shown(run.run_id, 80)}</code>"] if run.run_id else []
    banners = [text for text, said in ((DRILL, report.drill), (CHECK_MODE, run.check_mode)) if said]
    messages = [line for line in report.messages if line not in banners]
    return (
        f'<header class="{LOOKS.get(report.result, "wait")}">\n<h1>{shown(report.verdict)}</h1>\n'
        f'<p class="run">{" · ".join(line)}</p>\n'
        + "".join(f'<p class="banner">{text}</p>\n' for text in banners)
        + (f'<ul class="messages">{_items(messages)}</ul>\n' if messages else "")
        + "</header>"
    )


def _event(event: Event, number: int) -> str:
    whom = listed(event.hosts) if len(event.hosts) <= FEW_NAMES else count(len(event.hosts), "host")
    title = _name(event, number) + (f" of {whom}" if event.hosts else "")
    body = f'<p class="id">Event <code>{shown(event.event_id, 80)}</code></p>\n'
    if event.message:
        body += f'<p class="message">{shown(event.message)}</p>\n'
    if event.holds:
        body += f'<div class="holds"><h3>Why it is held</h3><ul>{_items(event.holds)}</ul></div>\n'
    facts = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _facts(event) if value)
    return _card(f"e{number}", f"<bdi>{shown(title)}</bdi> {_badge(event.outcome)}", f"{body}<dl>{facts}</dl>")


def _facts(event: Event) -> list[tuple[str, str]]:
    noticed = [] if event.noticed is None else [f"{stamp(event.noticed)} UTC"]
    if event.not_before is not None:
        when = stamp(event.not_before, event.noticed)
        noticed.append(f"not before (earliest start) {when}{_later(event.noticed, event.not_before)}")
    approved = ""
    if event.approved is not None:
        by = f" by <bdi>{shown(event.approved_by, 80)}</bdi>" if event.approved_by else ""
        approved = f"{stamp(event.approved, event.noticed)} UTC{by}{_later(event.noticed, event.approved)}"
    announced = f" by {event.event_source}" if event.event_source else ""
    lasting = f", expected to last {event.duration_seconds} s" if event.duration_seconds else ""
    return [
        ("Hosts", shown(listed(event.hosts, FEW_NAMES)) if event.hosts else "none in the inventory"),
        ("In Azure", shown(listed(event.resources, FEW_NAMES)) if event.resources else ""),
        ("Noticed", "; ".join(noticed)),
        ("Announced", shown(f"{event.event_status}{announced}{lasting}")),
        ("Approved", approved),
        ("Action", shown(event.action)),
        ("Reason", shown(event.reason)),
        ("Azure says", shown(event.description)),
    ]


def _hosts(report: Report) -> list[str]:
    """The timeline of the hosts that had something to do, and the names of the others."""
    named = {name for event in report.events for name in event.hosts}
    involved = [host for host in report.hosts if host.timeline or host.events or host.name in named]
    others = [host for host in report.hosts if host not in involved]
    times = sorted(
        [at for host in involved for at, _entry in host.in_time]
        + [phase.at for event in report.events for phase in event_phases(event)]
    )
    cards = []
    if involved or times:
        picture = _picture(report, involved, times) if times else ""
        cards.append(_card("timeline", "Timeline", picture + _table(report, involved, times)))
    if others:
        names = "".join(f"<li><bdi>{shown(host.name, 255)}</bdi> {_badge(host.result)}</li>" for host in others)
        title = f"{count(len(others), 'host')} without an event"
        cards.append(_card("others", title, f'<ul class="plain">{names}</ul>'))
    return cards


def event_phases(event: Event) -> list[Phase]:
    steps = zip(EVENT_PHASES, (event.noticed, event.approved, event.started, event.gone), strict=True)
    return sorted(Phase(at, what) for what, at in steps if at is not None)


def host_phases(host: Host) -> list[Phase]:
    """The phases without repetitions: another step in the same phase, or another event for a drained host, is none."""
    phases: list[Phase] = []
    for at, entry in host.in_time:
        before = phases[-1].what if phases else ""
        out_already = entry.what == "noticed" and before not in ("", "restored")
        if entry.what in HOST_PHASES and entry.what != before and not out_already:
            phases.append(Phase(at, entry.what, entry.detail))
    return phases


def axis_of(report: Report, times: t.Sequence[float]) -> Axis:
    """The time of this run. Moments outside, as from a wrong clock or an earlier run, do not extend it."""
    begin = times[0] if report.run.started is None else report.run.started
    end = times[-1] if report.run.finished is None else report.run.finished
    first = next((time for time in times if begin <= time <= end), begin)
    last = max(end, first + SHORTEST)
    limits = [event.not_before for event in report.events if event.not_before is not None]
    return Axis(first, max([last, *(limit for limit in limits if limit <= last + (last - first) / 2)]))


def _picture(report: Report, hosts: t.Sequence[Host], times: t.Sequence[float]) -> str:
    axis = axis_of(report, times)
    grid = "".join(f'<i style="left:{x:.2f}%"></i>' for x, _label in axis.ticks)
    ticks = "".join(f'<span class="tick" style="left:{x:.2f}%">{label}</span>' for x, label in axis.ticks)
    scale = f'<div class="lane axis">{_who(day(axis.first), "UTC")}<div class="track">{ticks}</div></div>'
    lanes = [scale]
    for number, event in enumerate(report.events, 1):
        lanes.append(_lane(_name(event, number), event.outcome, event_phases(event), axis, event.not_before))
    lanes += [_lane(host.name, host.result, host_phases(host), axis) for host in hosts]
    lanes += [scale] if len(lanes) > 12 else []
    label = f"{count(len(report.events), 'event')} and {count(len(hosts), 'host')} from {clock(axis.first)} to "
    label += f"{clock(axis.last)} UTC. The table below has the same data."
    notes = "Phases at the left edge began earlier. " if times[0] < axis.first else ""
    notes += "Phases at the right edge were later." if times[-1] > axis.last else ""
    return (
        '<div class="picture" role="region" tabindex="0" aria-label="Timeline as a picture">'
        f'<div class="lanes" role="img" aria-label="{label}">\n<div class="grid">{grid}</div>\n'
        + "\n".join(lanes)
        + f"\n</div></div>\n{_legend(hosts, any(axis.shows(event.not_before) for event in report.events))}"
        + (f'<p class="note">{notes}</p>\n' if notes else "")
    )


def _who(name: str, text: str) -> str:
    whole = shown(name, 255)
    return f'<div class="who"><b title="{whole}">{whole}</b><span>{shown(text or "unknown", 40)}</span></div>'


def _name(event: Event, number: int) -> str:
    return f"{number}. {event.event_type or 'Event'}"


def _lane(name: str, result: str, phases: t.Sequence[Phase], axis: Axis, limit: float | None = None) -> str:
    edges = [*_edges(phases, axis), 100.0]
    ends = [*(phase.at for phase in phases[1:]), None]
    parts = [_bar(*each) for each in zip(phases, edges, edges[1:], ends, strict=False)]
    if axis.shows(limit):
        hint = f"Not before (earliest start) {clock(limit)}"
        parts.append(f'<i class="limit" style="left:{axis.at(limit):.2f}%" title="{hint}"></i>')
    return f'<div class="lane">{_who(name, result)}<div class="track">{"".join(parts)}</div></div>'


def _edges(phases: t.Sequence[Phase], axis: Axis) -> list[float]:
    """The beginnings of the phases in percent, moved a little where one would hide another."""
    edges: list[float] = []
    width = min(LEAST_WIDTH, 100 / max(1, len(phases)))
    for phase in phases:
        edges.append(max(axis.at(phase.at), edges[-1] + width if edges else 0.0))
    return [min(edge, 100 - width * (len(edges) - number)) for number, edge in enumerate(edges)]


def _bar(phase: Phase, left: float, right: float, end: float | None) -> str:
    thin = phase.what in THIN
    name = phase.what.replace("_", " ")
    lasted = "" if end is None else duration(end - phase.at)
    room = ((right - left) * NARROWEST / 100 - 14) / LETTER
    label = "" if thin else next((text for text in (f"{name} {lasted}".strip(), name) if len(text) <= room), "")
    hint = f"{name} {clock(phase.at)}" + (f", {lasted}" if lasted else "" if thin else ", not ended")
    hint += f": {phase.detail}" if phase.detail else ""
    look = f"p {phase.what}" + ("" if thin or lasted else " open")
    style = f"left:{left:.2f}%;width:{right - left:.2f}%"
    return f'<i class="{look}" style="{style}" title="{shown(hint, LONGEST_DETAIL)}">{label}</i>'


def _legend(hosts: t.Sequence[Host], limit: bool) -> str:
    seen = {phase.what for host in hosts for phase in host_phases(host)}
    items = [
        f'<li><span class="box"><i class="p {what}"></i></span>{what.replace("_", " ")}'
        f"{', in service' if what in THIN else ''}</li>"
        for what in HOST_PHASES
        if what in seen
    ]
    items += ['<li><span class="box"><i class="limit"></i></span>Not before (earliest start)</li>'] if limit else []
    return f'<ul class="legend" aria-label="Legend">{"".join(items)}</ul>\n' if items else ""


def _table(report: Report, hosts: t.Sequence[Host], times: t.Sequence[float]) -> str:
    numbers = {same_id(event.event_id): number for number, event in enumerate(report.events, 1)}
    near = times[0] if times and day(times[0]) == day(times[-1]) else None
    groups = []
    for number, event in enumerate(report.events, 1):
        rows = [*event_phases(event)]
        rows += [] if event.not_before is None else [Phase(event.not_before, "not before", "the earliest start")]
        groups.append(_group(_name(event, number), event.outcome, "", sorted(rows), near))
    for host in hosts:
        name = host.name if host.vm_name in ("", host.name) else f"{host.name} (in Azure: {host.vm_name})"
        moments: list[tuple[float | None, str, str]] = []
        for entry in sorted(host.timeline, key=lambda entry: math.inf if entry.at is None else entry.at):
            which = f" (event {numbers[entry.event_id]})" if len(numbers) > 1 and entry.event_id in numbers else ""
            moments.append((entry.at, entry.what.replace("_", " ") + which, entry.detail))
        groups.append(_group(name, host.result, host.reason, moments, near))
    columns = "".join(f'<th scope="col">{name}</th>' for name in ("UTC", "What", "Detail"))
    return f"<table>\n<thead><tr>{columns}</tr></thead>\n" + "\n".join(groups) + "\n</table>"


def _group(
    name: str, result: str, reason: str, rows: t.Iterable[tuple[float | None, str, str]], near: float | None
) -> str:
    lines = [
        f"<tr><td>{'unknown' if at is None else stamp(at, near)}</td><td>{shown(what, 80)}</td>"
        f"<td>{shown(detail, LONGEST_DETAIL)}</td></tr>"
        for at, what, detail in rows
    ]
    title = f"<bdi>{shown(name, 255)}</bdi> {_badge(result)} {shown(reason)}"
    return (
        f'<tbody>\n<tr><th colspan="3" scope="rowgroup">{title}</th></tr>\n'
        + "\n".join(lines or ['<tr><td colspan="3">nothing recorded</td></tr>'])
        + "\n</tbody>"
    )
