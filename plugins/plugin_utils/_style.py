# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""How the report looks: its style sheet, and the shapes that its pictures are made of."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --page: #f3f5f8; --card: #fff; --ink: #1a2230; --soft: #556174; --line: #dce1e9; --grid: #e8ecf2;
  --good: #18794e; --good-soft: #e2f4ea; --wait: #8a5300; --wait-soft: #fdf0d5; --bad: #b3261e; --bad-soft: #fce8e6;
  --calm: #4b586c; --calm-soft: #e9edf3;
  --draining: #f4c95d; --on-draining: #3d2c00; --down: #4b5668; --on-down: #fff;
  --restoring: #8fd3b4; --on-restoring: #063523; --rail: #94a0b3;
  --scheduled: #eef2fb; --on-scheduled: #2b4a86; --started: #3c66b8; --on-started: #fff;
  --approval: #2356b3; --limit: #b3261e;
  --who: 212px; --shade: #0003;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #0f131a; --card: #181e28; --ink: #e9edf4; --soft: #a8b3c4; --line: #333d4d; --grid: #262f3c;
    --good: #6fd8a4; --good-soft: #14352a; --wait: #f3bf62; --wait-soft: #3a2c10; --bad: #ff9a91; --bad-soft: #431f1d;
    --calm: #b3bed0; --calm-soft: #273140;
    --draining: #8d6a17; --on-draining: #fff4d6; --down: #c3ccd9; --on-down: #131922;
    --restoring: #1f6e50; --on-restoring: #e0fff1; --rail: #6d7b91;
    --scheduled: #1d2940; --on-scheduled: #b9cdf7; --started: #6f9bea; --on-started: #0b1424;
    --approval: #8ab4ff; --limit: #ff9a91; --shade: #000a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 48px; }
h1, h2, h3, p, ul, dl { margin: 0; }
ul { padding: 0; list-style: none; }
code {
  font: 14px/1.4 ui-monospace, "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere;
}
header, .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px;
  margin-bottom: 20px;
}
header { border-top: 5px solid var(--tone); }
header.good { --tone: var(--good); } header.wait { --tone: var(--wait); }
header.bad { --tone: var(--bad); } header.calm { --tone: var(--calm); }
h1 {
  display: flex; gap: 12px; align-items: center; font-size: 28px; line-height: 1.2;
  overflow-wrap: anywhere;
}
h1 .icon { width: 32px; height: 32px; flex: none; }
h2 {
  display: flex; flex-wrap: wrap; gap: 6px 12px; align-items: center; font-size: 22px; line-height: 1.3;
  overflow-wrap: anywhere;
}
h3 { font-size: 16px; }
.run, .id { color: var(--soft); font-size: 15px; overflow-wrap: anywhere; }
.run { margin-top: 6px; }
.check {
  margin-top: 12px; padding: 8px 12px; border-radius: 8px; background: var(--calm-soft); font-weight: 600;
}
.words { margin-top: 14px; }
.words li {
  padding: 3px 0 3px 16px; border-left: 3px solid var(--tone); overflow-wrap: anywhere;
  white-space: pre-line;
}
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin-top: 16px; }
.chips li {
  display: inline-flex; gap: 6px; align-items: center; padding: 3px 12px; border-radius: 99px;
  background: var(--calm-soft); font-size: 15px;
}
.icon { overflow: visible; vertical-align: -3px; }
.icon.good { color: var(--good); }
.icon.wait { color: var(--wait); }
.icon.bad { color: var(--bad); }
.icon.calm { color: var(--calm); }
.badge {
  display: inline-flex; gap: 6px; align-items: center; padding: 1px 10px 1px 6px; border-radius: 99px;
  font-size: 14px; font-weight: 600; line-height: 22px;
}
.badge.good { color: var(--good); background: var(--good-soft); }
.badge.wait { color: var(--wait); background: var(--wait-soft); }
.badge.bad { color: var(--bad); background: var(--bad-soft); }
.badge.calm { color: var(--calm); background: var(--calm-soft); }
.hold {
  margin: 14px 0 0; padding: 10px 16px; border-left: 4px solid var(--wait); border-radius: 6px;
  background: var(--wait-soft);
}
.hold li { margin-left: 18px; list-style: disc; overflow-wrap: anywhere; white-space: pre-line; }
dl .wide { grid-column: 1 / -1; }
dl {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 10px 28px;
  margin-top: 16px;
}
dt { color: var(--soft); font-size: 14px; }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
dd code { color: var(--soft); }
/* Shadows at the edges say that there is more; at the end of the way the card's own colour covers them. */
.picture {
  overflow-x: auto; margin: 18px -24px 0; padding: 0 24px;
  background:
    linear-gradient(to right, var(--card) 40%, transparent) left / 40px 100% no-repeat local,
    linear-gradient(to left, var(--card) 40%, transparent) right / 40px 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 18px 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 18px 100% no-repeat scroll;
}
.picture:focus-visible, summary:focus-visible { outline: 3px solid var(--approval); outline-offset: 2px; }
.lanes { position: relative; min-width: calc(var(--who) + 600px); border-bottom: 1px solid var(--line); }
.lanes svg { display: block; overflow: visible; width: 100%; }
.lines {
  position: absolute; inset: 0 0 0 var(--who); height: 100%; width: calc(100% - var(--who)) !important;
  overflow: hidden !important;
}
.lines line { stroke: var(--grid); }
.lines line.break { stroke: var(--soft); stroke-width: 2; stroke-dasharray: 1 4; stroke-linecap: round; }
.lines line.approval { stroke: var(--approval); stroke-width: 2; }
.lines line.not-before { stroke: var(--limit); stroke-width: 2; stroke-dasharray: 7 5; }
.lane {
  position: relative; display: grid; grid-template-columns: var(--who) 1fr; align-items: center;
  border-top: 1px solid var(--line); padding: 5px 0; break-inside: avoid;
}
.lane.axis { border-top: 0; align-items: end; padding-bottom: 0; }
.lane.axis.below { border-top: 1px solid var(--line); }
.who {
  position: sticky; left: 0; z-index: 1; align-self: stretch; display: flex; flex-direction: column;
  justify-content: center; padding-right: 12px; margin: -5px 0; background: var(--card); font-size: 14px;
  line-height: 19px;
}
.who b { overflow-wrap: anywhere; font-size: 15px; font-weight: 600; }
.who span { color: var(--soft); }
.who .icon {
  display: inline-block !important; width: 15px !important; height: 15px; margin-right: 5px;
  vertical-align: -2px;
}
.axis .who { flex-direction: row; justify-content: space-between; align-items: end; padding-bottom: 5px; }
text { fill: var(--ink); font-size: 14px; font-variant-numeric: tabular-nums; }
text.tick { fill: var(--soft); }
text.flag { font-weight: 600; }
text.start { text-anchor: start; } text.middle { text-anchor: middle; } text.end { text-anchor: end; }
text.flag.approval, use.flag.approval { fill: var(--approval); }
text.flag.not-before, use.flag.not-before { fill: var(--limit); }
text.flag, text.tick { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.bar { stroke: none; }
.bar.draining { fill: url(#p-draining); }
.bar.down { fill: var(--down); }
.bar.restoring { fill: url(#p-restoring); }
.bar.scheduled { fill: var(--scheduled); stroke: var(--on-scheduled); stroke-dasharray: 4 3; }
.bar.started { fill: var(--started); }
text.in { pointer-events: none; }
text.in.draining { fill: var(--on-draining); }
text.in.down { fill: var(--on-down); }
text.in.restoring { fill: var(--on-restoring); }
text.in.scheduled { fill: var(--on-scheduled); } text.in.started { fill: var(--on-started); }
.rail { fill: var(--rail); }
.stem { stroke: var(--soft); }
.more { fill: var(--ink); stroke: var(--card); stroke-width: 2px; paint-order: stroke; }
.mark { color: var(--ink); }
.mark.restored, .mark.back { color: var(--good); }
.mark.failed { color: var(--bad); }
.mark.approved { color: var(--approval); }
.mark.held, .mark.not_ready { color: var(--wait); }
.note { margin-top: 10px; color: var(--soft); font-size: 14px; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 12px; font-size: 14px; color: var(--soft);
}
.legend li { display: inline-flex; gap: 6px; align-items: center; }
details { margin-top: 16px; }
summary { cursor: pointer; font-weight: 600; padding: 6px 0; }
table { width: 100%; border-collapse: collapse; font-size: 15px; }
td, th {
  padding: 5px 10px 5px 0; text-align: left; vertical-align: top; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; white-space: pre-line;
}
thead th { border-top: 0; color: var(--soft); font-size: 14px; font-weight: 400; }
tbody th { padding-top: 14px; white-space: normal; }
tbody th .badge { margin-left: 6px; }
td:nth-child(1) { width: 84px; font-variant-numeric: tabular-nums; } td:nth-child(2) { width: 130px; }
.dated td:nth-child(1) { width: 176px; }
.silent { display: flex; flex-wrap: wrap; gap: 6px 20px; padding-top: 6px; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  :root { --who: 128px; }
  main { padding: 12px 10px 32px; }
  header, .card { padding: 16px; }
  h1 { font-size: 24px; }
  dl { grid-template-columns: 1fr; gap: 6px; }
  dl div { display: grid; grid-template-columns: 84px 1fr; gap: 8px; align-items: baseline; }
  .picture { margin: 18px -16px 0; padding: 0 16px 6px; }
  .who b { font-size: 14px; }
  td:nth-child(1) { width: 78px; } td:nth-child(2) { width: 114px; }
  .dated td:nth-child(1) { width: 94px; }
}
@media print {
  @page { margin: 14mm; }
  :root { --page: #fff; --who: 150px; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 14px; }
  main { max-width: none; padding: 0; }
  header, .card { padding: 12px 16px; }
  .picture { overflow: visible; margin: 14px 0 0; padding: 0; background: none; }
  .lanes { min-width: 0; }
  dl, .hold, tr, h2 { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""

_HALO = 'stroke="var(--card)" stroke-width="4" stroke-linejoin="round"'


def _mark(name: str, path: str, filled: bool = True) -> str:
    """A shape of about 14 pixels around the origin, with a border in the colour of the page around it."""
    inside = 'fill="currentColor"' if filled else 'fill="var(--card)"'
    return (
        f'<g id="m-{name}"><path d="{path}" fill="var(--card)" {_HALO}/>'
        f'<path d="{path}" {inside} stroke="currentColor" stroke-width="2" stroke-linejoin="round"/></g>'
    )


def _disc(name: str, inside: str, radius: float = 7.5) -> str:
    return (
        f'<g id="{name}"><circle r="{radius}" fill="currentColor" stroke="var(--card)" stroke-width="1.5"/>'
        f'<path d="{inside}" fill="none" stroke="var(--card)" stroke-width="2.2" stroke-linecap="round" '
        'stroke-linejoin="round"/></g>'
    )


def _icon(name: str, inside: str) -> str:
    return f'<symbol id="i-{name}" viewBox="-9 -9 18 18">{_disc(f"d-{name}", inside, 8.5)}</symbol>'


def _stripes(name: str, angle: int) -> str:
    return (
        f'<pattern id="p-{name}" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate({angle})">'
        f'<rect width="9" height="9" fill="var(--{name})"/>'
        f'<rect width="2" height="9" fill="var(--on-{name})" fill-opacity=".13"/></pattern>'
    )


_TICK = "M-3.6 .3 L-1 3 L3.8 -2.8"
_PAUSE = "M-2.2 -3.2 V3.2 M2.2 -3.2 V3.2"
_CROSS = "M-3 -3 L3 3 M3 -3 L-3 3"
_DASH = "M-3.6 0 H3.6"
_CALL = "M0 -4 V.8 M0 3.9 V4"

SHAPES = (
    '<svg class="shapes" width="0" height="0" style="position:absolute" aria-hidden="true"><defs>'
    + _mark("noticed", "M5 0 A5 5 0 1 1 -5 0 A5 5 0 1 1 5 0 Z", filled=False)
    + _mark("drained", "M-6 -4.5 H6 L0 5.5 Z")
    + _mark("checkpointed", "M-5 -5 H5 V5 H-5 Z")
    + _mark("down", "M0 -6.5 L6.5 0 L0 6.5 L-6.5 0 Z")
    + _mark("back", "M0 -6.5 L6.5 0 L0 6.5 L-6.5 0 Z", filled=False)
    + _mark("restored", "M-6 4.5 H6 L0 -5.5 Z")
    + _disc("m-approved", _TICK)
    + _disc("m-held", _PAUSE)
    + _disc("m-not_ready", _CALL)
    + _disc("m-failed", _CROSS)
    + _icon("good", _TICK)
    + _icon("wait", _PAUSE)
    + _icon("bad", _CROSS)
    + _icon("calm", _DASH)
    + '<path id="to-right" d="M-4 -5.5 L4.5 0 L-4 5.5 Z"/><path id="to-left" d="M4 -5.5 L-4.5 0 L4 5.5 Z"/>'
    '<path id="f-approval" d="M-4.5 -5 H4.5 L0 4 Z"/><path id="f-not-before" d="M0 -5 L5 0 L0 5 L-5 0 Z"/>'
    + _stripes("draining", 45)
    + _stripes("restoring", -45)
    + "</defs></svg>"
)
