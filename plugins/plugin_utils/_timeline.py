# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The report as one self-contained HTML page: report data in, text out. Pure: no I/O, no Ansible.

Positions in the pictures are percentages and text has a fixed size, so a picture fits a phone, a wide screen and paper
without its letters shrinking.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import itertools
import math
import typing as t
import unicodedata

from ansible_collections.graceful.azure.plugins.plugin_utils import _report as report
from ansible_collections.graceful.azure.plugins.plugin_utils._style import CSS, SHAPES

# The narrowest a picture's time area gets, in pixels; what does not collide there collides nowhere.
NARROWEST = 600
LETTER = 7.6
MARK_GAP = 17
LEVEL_HEIGHT = 17
BAR_HEIGHT = 20
# Room at both ends of the time area, in percent, so that a mark at the very beginning or end is whole.
MARGIN = 6.0
DAY = 86400.0
# Where times outside the picture are drawn: in the margins, in percent.
BEFORE, AFTER = 2.0, 98.0
# A pause so many times longer than everything on one side of it is cut off, and any pause longer than a week.
LONG_PAUSE = 5
ENOUGH_TIMES = 3
WEEK = 7 * DAY
SHORTEST = 10.0
MOST_TICKS = 6
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY)
LONGEST_DETAIL = 300
LONGEST_TEXT = 1000
LONGEST_NAME = 80
WIDE = 110
MOST_NAMES = 8
MOST_HOLDS = 80
TABLE_OPEN_UP_TO = 40

# Marks in the picture: what happened -> the words of the legend. The shapes have the same names.
MARKS = {
    "noticed": "noticed",
    "drained": "drained",
    "checkpointed": "checkpoint saved",
    "approved": "approved",
    "down": "went down",
    "back": "came back",
    "restored": "restored, in service",
    "not_ready": "not ready",
    "held": "held",
    "failed": "failed",
}
BARS = {
    "draining": "draining",
    "down": "down",
    "restoring": "restoring",
    report.OUT_OF_SERVICE: "out of service",
}
OUTCOMES = {
    "approved": ("good", "Approved"),
    "completed": ("good", "Completed"),
    "started": ("wait", "Started"),
    "cancelled": ("calm", "Cancelled by Azure"),
    "notified": ("calm", "Notified only"),
    "ignored": ("calm", "Ignored"),
    "held": ("wait", "Held"),
    "failed": ("bad", "Failed"),
}
VERDICT_LOOKS = {"nothing": "calm", "done": "good", "held": "wait", "failed": "bad"}
RESULT_LOOKS = {
    "restored": "good",
    "untouched": "calm",
    "left drained": "wait",
    "gone": "calm",
    "failed": "bad",
    "unreachable": "bad",
}
ACTIONS = {
    "ignore": "ignore it",
    "notify": "tell people, do nothing",
    "approve": "approve without draining",
    "drain": "drain, do not approve",
    "drain_and_approve": "drain, then approve",
}


def page(data: t.Any) -> str:
    """The whole page."""
    run = report.read(data)
    body = [_masthead(run)]
    body += [_card(event, run, number) for number, event in enumerate(run.events, 1)]
    if run.others:
        body.append(_others(run))
    body.append(_untouched(run))
    title = f"{run.verdict} - Azure maintenance"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{shown(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n{SHAPES}\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


# Text


def shown(value: str, longest: int = LONGEST_TEXT) -> str:
    """Text for the page: escaped, with every character that acts instead of showing made visible."""
    return html.escape("".join(map(_visible, _cut(value, longest))), quote=True)


def _cut(value: str, longest: int) -> str:
    if len(value) <= longest:
        return value
    if longest < LONGEST_DETAIL:
        return f"{value[:longest]}…"
    return f"{value[:longest]} … ({len(value) - longest} more characters in the JSON file)"


def _visible(letter: str) -> str:
    if letter in "\n\t" or letter == " " or letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x20:
        return chr(0x2400 + code)
    if unicodedata.category(letter) == "Zs":
        return " "
    return f"⟨U+{code:04X}⟩"


def short_name(name: str) -> str:
    """A name that fits into the picture: beginning and end tell hosts apart."""
    return name if len(name) <= LONGEST_NAME else f"{name[:44]}…{name[-32:]}"


def lasting(span: float) -> str:
    """A length of time in words."""
    whole = round(abs(span))
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{amount} {unit}" for index, (amount, unit) in enumerate(parts[:2]) if amount or not index)


def clock(at: float | None) -> str:
    return "unknown" if at is None else f"{report.moment_of(at):%H:%M:%S}"


def day(at: float) -> str:
    moment = report.moment_of(at)
    return f"{moment.day} {moment:%b} {moment.year}"


def when(at: float | None) -> str:
    return "unknown" if at is None else f"{day(at)}, {clock(at)} UTC"


def amount(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _time(at: float, words: str) -> str:
    return f'<time datetime="{report.moment_of(at):%Y-%m-%dT%H:%M:%SZ}">{words}</time>'


def _badge(look: str, words: str) -> str:
    return f'<span class="badge {look}">{_icon(look)}{shown(words, 60)}</span>'


def _icon(look: str) -> str:
    return f'<svg class="icon {look}" width="18" height="18" aria-hidden="true"><use href="#i-{look}"/></svg>'


# The head of the page


def _masthead(run: report.Report) -> str:
    look = VERDICT_LOOKS.get(run.result, "wait")
    lines = "".join(f"<li>{shown(line)}</li>" for line in run.words)
    facts = [amount(len(run.events), "event"), amount(len(run.hosts), "host"), *_results(run)]
    chips = "".join(f"<li>{fact}</li>" for fact in facts)
    check = '<p class="check">Check mode: this is the plan. Nothing was changed.</p>' if run.check_mode else ""
    return (
        f'<header class="{look}">\n<h1>{_icon(look)}<span>{shown(run.verdict)}</span></h1>\n'
        f'<p class="run">{_run_line(run)}</p>\n{check}'
        + (f'<ul class="words">{lines}</ul>\n' if lines else "")
        + f'<ul class="chips">{chips}</ul>\n</header>'
    )


def _results(run: report.Report) -> list[str]:
    counts: dict[str, int] = {}
    for host in run.hosts:
        counts[host.result or "no result"] = counts.get(host.result or "no result", 0) + 1
    return [f"{_icon(RESULT_LOOKS.get(result, 'wait'))}{count} {shown(result, 40)}" for result, count in counts.items()]


def _run_line(run: report.Report) -> str:
    parts = [f"<bdi>{shown(run.run_name, 200)}</bdi>"] if run.run_name else []
    if run.started is not None:
        parts.append(_time(run.started, when(run.started)))
        parts.append(f"took {lasting(run.finished - run.started)}" if run.finished is not None else "still running")
    if run.run_id:
        parts.append(f'run <code title="{shown(run.run_id, 80)}">{shown(run.run_id[:8])}</code>')
    return " · ".join(parts)


# One event


def _card(event: report.Event, run: report.Report, number: int) -> str:
    look, outcome = OUTCOMES.get(event.outcome, ("wait", event.outcome or "No outcome"))
    facts = "".join(_fact(name, value) for name, value in _facts(event) if value)
    story = Story(event.hosts, event, run)
    name = f"{event.event_type or 'event'} {number}"
    return (
        f'<section class="card" aria-labelledby="e{number}">\n'
        f'<h2 id="e{number}"><bdi>{shown(event.event_type or "Event", 60)}</bdi> {_badge(look, outcome)}</h2>\n'
        f'<p class="id">Event <code>{shown(event.event_id, 80)}</code></p>\n'
        f"{_holds(event)}<dl>{facts}</dl>\n{_told(story, name)}</section>"
    )


def _fact(name: str, value: str) -> str:
    wide = ' class="wide"' if len(value) > WIDE and name in ("Hosts", "Why", "Azure says") else ""
    return f"<div{wide}><dt>{name}</dt><dd>{value}</dd></div>"


def _facts(event: report.Event) -> list[tuple[str, str]]:
    status = f"{event.event_status}, announced by {event.event_source}" if event.event_source else event.event_status
    action = ACTIONS.get(event.action, event.action)
    return [
        ("Hosts", _names([host.name for host in event.hosts]) or "none in the inventory"),
        ("Leader", f"<bdi>{shown(event.leader, 80)}</bdi>" if event.leader else ""),
        ("Not in the inventory", _names(event.strangers)),
        ("Noticed as", shown(status)),
        ("Action", shown(action) + (f" <code>{shown(event.action, 60)}</code>" if event.action in ACTIONS else "")),
        ("Why", shown(event.reason)),
        ("Notice", _notice(event)),
        ("Approved", _approval(event)),
        ("Azure says", shown(event.description)),
    ]


def _names(names: t.Sequence[str]) -> str:
    few = ", ".join(f"<bdi>{shown(name, 80)}</bdi>" for name in names[:MOST_NAMES])
    return few + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _notice(event: report.Event) -> str:
    parts = []
    if event.noticed is not None:
        parts.append(f"noticed {_time(event.noticed, when(event.noticed))}")
    if event.not_before is not None:
        not_before = f"not before {_time(event.not_before, clock(event.not_before))}"
        if event.noticed is None or day(event.noticed) != day(event.not_before):
            not_before = f"not before {_time(event.not_before, when(event.not_before))}"
        if event.noticed is not None and event.not_before >= event.noticed:
            not_before += f", {lasting(event.not_before - event.noticed)} later"
        parts.append(not_before)
    return "; ".join(parts)


def _approval(event: report.Event) -> str:
    if event.approved is None:
        return ""
    same_day = event.noticed is not None and day(event.noticed) == day(event.approved)
    words = _time(event.approved, clock(event.approved) if same_day else when(event.approved))
    if event.not_before is not None:
        gap = event.not_before - event.approved
        words += f", {lasting(gap)} {'before' if gap >= 0 else 'after'} NotBefore"
    return words


def _holds(event: report.Event) -> str:
    if not event.hold:
        return ""
    reasons = "".join(f"<li>{shown(reason)}</li>" for reason in event.hold[:MOST_HOLDS])
    if len(event.hold) > MOST_HOLDS:
        reasons += f"<li>and {len(event.hold) - MOST_HOLDS} more in the JSON file</li>"
    return f'<div class="hold"><h3>Why it is held</h3><ul>{reasons}</ul></div>\n'


def _others(run: report.Report) -> str:
    story = Story(run.others, None, run)
    return (
        '<section class="card" aria-labelledby="others">\n<h2 id="others">Left from earlier</h2>\n'
        "<p>What these hosts did for events that are not part of this run.</p>\n"
        f"{_told(story, 'What was left from earlier')}</section>"
    )


def _untouched(run: report.Report) -> str:
    told = {host.name for event in run.events for host in event.hosts} | {host.name for host in run.others}
    silent = [host for host in run.hosts if host.name not in told]
    if not silent:
        return ""
    items = "".join(
        f"<li><bdi>{shown(host.name, 255)}</bdi> {_badge(RESULT_LOOKS.get(host.result, 'wait'), host.result)}</li>"
        for host in silent
    )
    is_open = " open" if len(silent) <= MOST_NAMES else ""
    return (
        f'<details class="card"{is_open}><summary>{amount(len(silent), "host")} '
        f'that no event touched</summary>\n<ul class="silent">{items}</ul></details>'
    )


def _told(story: Story, name: str) -> str:
    """A story as picture, legend and table."""
    if not story.has_something:
        return ""
    scale = story.scale
    picture = _picture(story, scale, name) + _outside(story, scale) + _legend(story) if scale else ""
    return f"{picture}{_table(story)}\n"


# What a picture shows


@dataclasses.dataclass(frozen=True)
class Scale:
    """Maps times to percent of the time area."""

    first: float
    last: float

    def at(self, time: float) -> float:
        if not self.shows(time):
            return BEFORE if time < self.first else AFTER
        share = (time - self.first) / (self.last - self.first)
        return round(MARGIN + share * (100 - 2 * MARGIN), 2)

    def shows(self, time: float) -> bool:
        return self.first <= time <= self.last

    @property
    def ticks(self) -> tuple[list[float], float]:
        """Round times to label, and the step between them."""
        step = float(next((step for step in STEPS if (self.last - self.first) / step <= MOST_TICKS), STEPS[-1]))
        while (self.last - self.first) / step > MOST_TICKS:
            step *= 2
        begin = math.ceil(self.first / step)
        return [tick * step for tick in range(begin, math.floor(self.last / step) + 1)], step


@dataclasses.dataclass(frozen=True)
class Story:
    """The hosts that one picture and one table are about."""

    hosts: tuple[report.Host, ...]
    event: report.Event | None
    run: report.Report

    @property
    def has_something(self) -> bool:
        return bool(self.hosts or self._event_times)

    @property
    def _event_times(self) -> list[float]:
        event = self.event
        times = (event.noticed, event.approved, event.started, event.gone) if event else ()
        return [time for time in times if time is not None]

    @functools.cached_property
    def times(self) -> list[float]:
        return sorted([at for host in self.hosts for at, _moment in host.in_time] + self._event_times)

    @functools.cached_property
    def many_days(self) -> bool:
        return len({day(time) for time in [*self.times, *([] if self.limit is None else [self.limit])]}) > 1

    @property
    def limit(self) -> float | None:
        return self.event.not_before if self.event else None

    @functools.cached_property
    def scale(self) -> Scale | None:
        """The time that the picture spans: around this run, without what is far from everything else."""
        if not self.times:
            return None
        near = self._near()
        first, last = near[0], max(near[-1], near[0] + SHORTEST)
        half = (last - first) / 2
        if self.run.finished is not None and self.run.finished > last:
            last = min(self.run.finished, last + half)
        if self.limit is not None and last < self.limit <= last + half:
            last = self.limit
        if self.limit is not None and first - half <= self.limit < first:
            first = self.limit
        return Scale(first, last)

    def _near(self) -> list[float]:
        times = self.times
        while len(times) > 1:
            pause, cut = max(
                (later - earlier, index) for index, (earlier, later) in enumerate(itertools.pairwise(times), 1)
            )
            kept = self._side(times[:cut], times[cut:])
            squeezed = len(set(kept)) >= ENOUGH_TIMES and pause > LONG_PAUSE * max(kept[-1] - kept[0], SHORTEST)
            if pause <= WEEK and not squeezed:
                break
            times = kept
        return times

    def _side(self, before: list[float], after: list[float]) -> list[float]:
        """Of the times before and after a pause those that belong to this run."""
        now = self.run.finished if self.run.finished is not None else self.run.started
        if now is None:
            return before if len(before) > len(after) else after
        return before if abs(now - before[-1]) < abs(now - after[0]) else after

    def stamp(self, at: float) -> str:
        return f"{day(at)} {clock(at)}" if self.many_days else clock(at)

    @property
    def until(self) -> float:
        """What has not ended lasts until here."""
        return self.scale.last if self.scale else 0.0


# The picture


def _picture(story: Story, scale: Scale, name: str) -> str:
    lanes = [_azure_lane(story, scale), *(_lane(host, scale, story.until) for host in story.hosts)]
    axis = _axis(story, scale)
    many = len(story.hosts) > 12
    label = (
        f"{name}: {amount(len(story.hosts), 'host')} from {clock(scale.first)} to {clock(scale.last)} UTC. "
        "The table below tells the same."
    )
    return (
        f'<div class="picture" role="region" tabindex="0" aria-label="{shown("Timeline of " + name, 120)}">'
        f'<div class="lanes" role="img" aria-label="{shown(label, 300)}">\n{_lines(story, scale)}\n{axis}\n'
        + "\n".join(lane for lane in lanes if lane)
        + (f"\n{_axis_below(scale)}" if many else "")
        + "\n</div></div>\n"
    )


def _lines(story: Story, scale: Scale) -> str:
    """What runs through all lanes: the grid, NotBefore and the approval."""
    parts = [f'<line x1="{x}%" x2="{x}%" y1="0" y2="100%"/>' for x in map(scale.at, scale.ticks[0])]
    for edge, outside in ((4, story.times[0] < scale.first), (96, story.times[-1] > scale.last)):
        if outside:
            parts.append(f'<line class="break" x1="{edge}%" x2="{edge}%" y1="0" y2="100%"/>')
    for kind, at in (("not-before", story.limit), ("approval", story.event.approved if story.event else None)):
        if at is not None and scale.shows(at):
            parts.append(f'<line class="{kind}" x1="{scale.at(at)}%" x2="{scale.at(at)}%" y1="0" y2="100%"/>')
    return f'<svg class="lines" aria-hidden="true">{"".join(parts)}</svg>'


def _outside(story: Story, scale: Scale) -> str:
    words = [
        word
        for word, outside in (
            ("at the left edge is earlier", any(time < scale.first for time in story.times)),
            ("at the right edge is later", any(time > scale.last for time in story.times)),
        )
        if outside
    ]
    return f'<p class="note">What stands {" and ".join(words)} than the picture shows.</p>\n' if words else ""


def _axis(story: Story, scale: Scale) -> str:
    rows: list[str] = []
    approved = story.event.approved if story.event else None
    if approved is not None:
        rows.append(_flag("approval", f"approved {story.stamp(approved)}", approved, scale, len(rows)))
    limit = story.limit
    if limit is not None:
        words = f"NotBefore {story.stamp(limit)}"
        if limit > scale.last:
            words += f", {lasting(limit - scale.last)} after this picture"
        elif limit < scale.first:
            words += f", {lasting(scale.first - limit)} before this picture"
        rows.append(_flag("not-before", words, limit, scale, len(rows)))
    return _axis_row("axis", scale, rows)


def _axis_below(scale: Scale) -> str:
    return _axis_row("axis below", scale, [])


def _axis_row(look: str, scale: Scale, flags: t.Sequence[str]) -> str:
    height = 22 * len(flags) + 24
    labels = "".join(
        f'<text class="tick {_tick_anchor(label, x)}" x="{x}%" y="{height - 8}">{label}</text>'
        for x, label in ((scale.at(tick), label) for tick, label in _tick_labels(scale))
    )
    return (
        f'<div class="lane {look}"><div class="who"><span>{day(scale.first)}</span><span>UTC</span></div>'
        f'<svg height="{height}">{"".join(flags)}{labels}</svg></div>'
    )


def _tick_labels(scale: Scale) -> list[tuple[float, str]]:
    ticks, step = scale.ticks
    labels = []
    shown_day = day(scale.first)
    for tick in ticks:
        label = clock(tick) if step < 60 else clock(tick)[:5]
        if day(tick) != shown_day or step >= DAY:
            shown_day = day(tick)
            label = shown_day.rsplit(" ", 1)[0] if step >= DAY else f"{shown_day.rsplit(' ', 1)[0]} {label}"
        labels.append((tick, label))
    return labels


def _tick_anchor(label: str, x: float) -> str:
    half = len(label) * LETTER / 2 + 2
    return "start" if _pixels(x) < half else "end" if _pixels(100 - x) < half else "middle"


def _flag(kind: str, words: str, at: float, scale: Scale, row: int) -> str:
    """The label of a vertical line; an arrow at the edge if the line would be outside."""
    y = 15 + 22 * row
    if not scale.shows(at):
        later = at > scale.last
        x, anchor, dx = (99.5, "end", -16) if later else (0.5, "start", 16)
        arrow = f'<use class="flag {kind}" href="#to-{"right" if later else "left"}" x="{x}%" y="{y - 5}"/>'
        return f'{arrow}<text class="flag {kind} {anchor}" x="{x}%" dx="{dx}" y="{y}">{shown(words)}</text>'
    x = scale.at(at)
    anchor, dx = ("start", 7) if x <= 50 else ("end", -7)
    return (
        f'<use class="flag {kind}" href="#f-{kind}" x="{x}%" y="{y - 5}"/>'
        f'<text class="flag {kind} {anchor}" x="{x}%" dx="{dx}" y="{y}">{shown(words)}</text>'
    )


def _azure_lane(story: Story, scale: Scale) -> str:
    """What Azure did with the event, above what the hosts did."""
    event = story.event
    if event is None or not (event.noticed or event.started):
        return ""
    bars = []
    if event.noticed is not None:
        end = _earliest(event.started, event.gone)
        bars.append(_bar("scheduled", "Scheduled", event.noticed, end, scale, 17))
    if event.started is not None:
        bars.append(_bar("started", "Started", event.started, event.gone, scale, 17))
    return (
        '<div class="lane azure"><div class="who"><b>Azure</b><span>the event</span></div>'
        f'<svg height="34">{"".join(bars)}</svg></div>'
    )


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _lane(host: report.Host, scale: Scale, until: float) -> str:
    bars = report.spans(host, until)
    placed, levels = _placed(host, bars, scale)
    height = 34 + LEVEL_HEIGHT * (levels - 1)
    y = height - 17
    parts = [_rail(span, scale, y) for span in report.out_of_service(host, until)]
    parts += [_bar(span.kind, span.kind, span.start, None if span.is_open else span.end, scale, y) for span in bars]
    parts += [_mark(moment, at, scale, y, level) for at, moment, level in placed]
    look = RESULT_LOOKS.get(host.result, "wait")
    name = shown(short_name(host.name))
    return (
        f'<div class="lane"><div class="who" title="{shown(host.name, 255)}"><b>{name}</b>'
        f"<span>{_icon(look)}{shown(host.result or 'no result', 40)}</span></div>"
        f'<svg height="{height}">{"".join(parts)}</svg></div>'
    )


def _pixels(percent: float) -> float:
    return percent * NARROWEST / 100


def _bar_label(words: str, start: float, end: float | None, left: float, right: float) -> str:
    """The longest label that fits into the bar."""
    labels = (words,) if end is None else (f"{words} {lasting(end - start)}", lasting(end - start))
    return next((label for label in labels if _pixels(right - left) >= len(label) * LETTER + 22), "")


def _bar(kind: str, words: str, start: float, end: float | None, scale: Scale, y: float) -> str:
    left = scale.at(start)
    right = scale.at(scale.last if end is None else max(start, end))
    label = _bar_label(words, start, end, left, right)
    ending = "not ended" if end is None else f"{lasting(end - start)}, until {clock(end)}"
    hint = f"{words} from {clock(start)}: {ending}"
    look = "bar open" if end is None else "bar"
    parts = [
        f'<rect class="{look} {kind}" x="{left}%" y="{y - BAR_HEIGHT / 2}" width="{max(right - left, 0.3):.2f}%" '
        f'height="{BAR_HEIGHT}" rx="4"><title>{shown(hint)}</title></rect>'
    ]
    if label:
        parts.append(f'<text class="in {kind}" x="{left}%" dx="12" y="{y + 5}">{shown(label)}</text>')
    if end is None:
        parts.append(f'<use class="more" href="#to-right" x="{right}%" y="{y}"/>')
    return "".join(parts)


def _rail(span: report.Span, scale: Scale, y: float) -> str:
    left, right = scale.at(span.start), scale.at(span.end)
    ending = "not back in service" if span.is_open else f"for {lasting(span.end - span.start)}"
    more = f'<use class="more" href="#to-right" x="{right}%" y="{y}"/>' if span.is_open else ""
    return (
        f'<rect class="rail" x="{left}%" y="{y - 2}" width="{max(right - left, 0.3):.2f}%" height="4">'
        f"<title>out of service, {ending}</title></rect>{more}"
    )


def _mark(moment: report.Moment, at: float, scale: Scale, y: float, level: int) -> str:
    x = scale.at(at)
    top = y - LEVEL_HEIGHT * level
    stem = f'<line class="stem" x1="{x}%" x2="{x}%" y1="{top}" y2="{y}"/>' if level else ""
    where = "" if scale.shows(at) else " (outside this picture)"
    hint = f"{MARKS[moment.what]} {clock(at)}{where}" + (f": {moment.detail}" if moment.detail else "")
    return (
        f'{stem}<use class="mark {moment.what}" href="#m-{moment.what}" x="{x}%" y="{top}">'
        f"<title>{shown(hint, 160)}</title></use>"
    )


def _placed(
    host: report.Host, bars: t.Sequence[report.Span], scale: Scale
) -> tuple[list[tuple[float, report.Moment, int]], int]:
    """Each mark with its level: marks at nearly the same time stand above each other, and none hides a bar's words."""
    taken = []
    for span in bars:
        left, right = scale.at(span.start), scale.at(span.end)
        words = _bar_label(span.kind, span.start, None if span.is_open else span.end, left, right)
        if words:
            taken.append((_pixels(left) + 4, _pixels(left) + 14 + len(words) * LETTER))
    placed = []
    last: list[float] = []
    for at, moment in host.in_time:
        if moment.what not in MARKS:
            continue
        x = _pixels(scale.at(at))
        level = 0
        while (level < len(last) and x - last[level] < MARK_GAP) or (
            level == 0 and any(left < x < right for left, right in taken)
        ):
            level += 1
        last += [-math.inf] * (level + 1 - len(last))
        last[level] = x
        placed.append((at, moment, level))
    return placed, max(len(last), 1)


def _legend(story: Story) -> str:
    seen = {moment.what for host in story.hosts for moment in host.moments if moment.at is not None}
    marks = [
        f'<li><svg width="20" height="20" aria-hidden="true"><use class="mark {what}" href="#m-{what}" x="10" y="10"/>'
        f"</svg>{words}</li>"
        for what, words in MARKS.items()
        if what in seen
    ]
    kinds = {span.kind for host in story.hosts for span in report.spans(host, story.until)}
    if any(report.out_of_service(host, story.until) for host in story.hosts):
        kinds.add(report.OUT_OF_SERVICE)
    bars = [
        '<li><svg width="30" height="20" aria-hidden="true">'
        + (
            '<rect class="rail" y="8" width="30" height="4"/>'
            if kind == report.OUT_OF_SERVICE
            else f'<rect class="bar {kind}" x="1" y="2" width="28" height="16" rx="4"/>'
        )
        + f"</svg>{words}</li>"
        for kind, words in BARS.items()
        if kind in kinds
    ]
    items = "".join(bars + marks)
    return f'<ul class="legend" aria-label="Legend">{items}</ul>\n' if items else ""


# The same as a table


def _table(story: Story) -> str:
    rows = _event_rows(story.event)
    bodies = [_group(story, "The event", "", rows)] if rows else []
    for host in story.hosts:
        found = [(m.at, m.what.replace("_", " "), m.detail) for m in host.moments]
        found.sort(key=lambda row: math.inf if row[0] is None else row[0])
        rows += found
        names = host.name if host.vm_name in ("", host.name) else f"{host.name} (in Azure: {host.vm_name})"
        bodies.append(_group(story, names, host.result or "no result", found))
    if not bodies:
        return ""
    is_open = " open" if len(rows) <= TABLE_OPEN_UP_TO else ""
    dated = ' class="dated"' if story.many_days else ""
    return (
        f"<details{is_open}><summary>The same as a table</summary>\n<table{dated}>\n"
        '<thead><tr><th scope="col">UTC</th><th scope="col">What</th><th scope="col">Detail</th></tr></thead>\n'
        + "\n".join(bodies)
        + "\n</table></details>"
    )


def _event_rows(event: report.Event | None) -> list[tuple[float | None, str, str]]:
    if event is None:
        return []
    rows: list[tuple[float | None, str, str]] = [
        (event.noticed, "noticed", ""),
        (event.approved, "approved", f"by {event.leader}" if event.leader else ""),
        (event.not_before, "NotBefore", "the earliest that Azure starts on its own"),
        (event.started, "started", ""),
        (event.gone, "gone", "left the document"),
    ]
    known = [row for row in rows if row[0] is not None]
    return sorted(known, key=lambda row: row[0] or 0.0)


def _group(story: Story, name: str, result: str, rows: t.Sequence[tuple[float | None, str, str]]) -> str:
    badge = _badge(RESULT_LOOKS.get(result, "wait"), result) if result else ""
    lines = [
        f"<tr><td>{_time(at, story.stamp(at)) if at is not None else 'unknown'}</td><td>{shown(what, 60)}</td>"
        f"<td>{shown(detail, LONGEST_DETAIL)}</td></tr>"
        for at, what, detail in rows
    ]
    return (
        f'<tbody>\n<tr><th colspan="3" scope="rowgroup"><bdi>{shown(name, 255)}</bdi> {badge}</th></tr>\n'
        + "\n".join(lines or ['<tr><td colspan="3">nothing recorded</td></tr>'])
        + "\n</tbody>"
    )
