# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The style sheet of the report and its colours, for light and dark screens."""

from __future__ import annotations

# Name -> light, dark.
COLOURS = {
    "page": ("#f3f5f8", "#0f131a"),
    "card": ("#ffffff", "#181e28"),
    "ink": ("#1a2230", "#e9edf4"),
    "soft": ("#556174", "#a8b3c4"),
    "line": ("#dce1e9", "#333d4d"),
    "focus": ("#2356b3", "#8ab4ff"),
    "good": ("#18794e", "#6fd8a4"),
    "good-back": ("#e2f4ea", "#14352a"),
    "wait": ("#8a5300", "#f3bf62"),
    "wait-back": ("#fdf0d5", "#3a2c10"),
    "bad": ("#b3261e", "#ff9a91"),
    "bad-back": ("#fce8e6", "#431f1d"),
    "calm": ("#4b586c", "#b3bed0"),
    "calm-back": ("#e9edf3", "#273140"),
}
LOOKS = ("good", "wait", "bad", "calm")
# Phase -> background and text, for light and for dark screens.
PHASES = {
    "noticed": ("#94a0b3", "#1a2230", "#6d7b91", "#000000"),
    "draining": ("#f4c95d", "#3d2c00", "#8d6a17", "#ffffff"),
    "drained": ("#fbe6b2", "#3d2c00", "#5d4816", "#ffefc4"),
    "checkpointed": ("#dcd3f5", "#33246b", "#4b3f78", "#ece5ff"),
    "ready": ("#cfe0fb", "#1d3f7f", "#26416f", "#d6e5ff"),
    "approved": ("#3c66b8", "#ffffff", "#6f9bea", "#0b1424"),
    "down": ("#4b5668", "#ffffff", "#c3ccd9", "#131922"),
    "back": ("#d3dae3", "#1a2230", "#465266", "#f1f4f8"),
    "restoring": ("#8fd3b4", "#063523", "#1f6e50", "#ffffff"),
    "restored": ("#18794e", "#ffffff", "#6fd8a4", "#0b2419"),
    "failed": ("#b3261e", "#ffffff", "#ff9a91", "#2d0805"),
    "scheduled": ("#dde7fb", "#2b4a86", "#1f2e4c", "#b9cdf7"),
    "started": ("#2b4a86", "#ffffff", "#8fb2f5", "#0b1424"),
    "gone": ("#94a0b3", "#1a2230", "#6d7b91", "#000000"),
}
EVENT_PHASES = ("scheduled", "approved", "started", "gone")
HOST_PHASES = tuple(name for name in PHASES if name not in ("scheduled", "started", "gone"))
# Drawn as a thin line.
THIN = ("noticed", "restored", "gone")


def _variables(dark: int) -> str:
    plain = [f"--{name}:{both[dark]}" for name, both in COLOURS.items()]
    phases = [f"--p-{name}:{four[2 * dark]};--on-{name}:{four[2 * dark + 1]}" for name, four in PHASES.items()]
    return ";".join(plain + phases)


def _look(name: str) -> str:
    badge = f".badge.{name}{{color:var(--{name});background:var(--{name}-back)}}"
    return f"{badge}header.{name}{{--tone:var(--{name})}}"


def _phase(name: str) -> str:
    stripes = {"draining": 45, "restoring": -45}
    angle = f"repeating-linear-gradient({stripes[name]}deg,#0000 0 7px,#0002 7px 9px)" if name in stripes else "none"
    return f".p.{name}{{background:{angle} var(--p-{name});color:var(--on-{name})}}"


CSS = (
    f":root{{color-scheme:light dark;--who:212px;{_variables(0)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}"
    + "".join(map(_look, LOOKS))
    + "".join(map(_phase, PHASES))
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 48px; }
h1, h2, h3, p, ul, dl { margin: 0; }
h1 { font-size: 28px; line-height: 1.2; }
h2 { display: flex; flex-wrap: wrap; gap: 6px 12px; align-items: center; font-size: 21px; line-height: 1.3; }
h3 { font-size: 16px; }
ul { padding-left: 20px; }
code { font: 14px/1.4 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
header, .card {
  padding: 20px 24px; margin-bottom: 20px; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
}
header { border-top: 6px solid var(--tone); }
.run, .id, .note, dt, thead th, .who span { color: var(--soft); font-size: 14px; }
.message { margin-top: 6px; }
.banner { margin-top: 12px; padding: 8px 14px; border-radius: 8px; background: var(--calm-back); font-weight: 600; }
.messages { margin-top: 12px; padding-left: 16px; border-left: 3px solid var(--tone); list-style: none; }
.badge { padding: 1px 10px; border-radius: 99px; font-size: 14px; font-weight: 600; line-height: 22px; }
.holds { margin-top: 14px; padding: 10px 16px; border-left: 4px solid var(--wait); background: var(--wait-back); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 10px 28px; margin-top: 14px; }
dd { margin: 0; }
.picture { overflow-x: auto; margin-top: 14px; }
.picture:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.lanes { position: relative; min-width: calc(var(--who) + 600px); border-bottom: 1px solid var(--line); }
.lane { display: grid; grid-template-columns: var(--who) 1fr; border-top: 1px solid var(--line); break-inside: avoid; }
.lane.axis { border-top: 0; }
.who {
  position: sticky; left: 0; z-index: 2; padding: 5px 12px 5px 0; background: var(--card); line-height: 19px;
  font-size: 14px;
}
.who b, .who span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.track { position: relative; min-height: 30px; margin: 0 40px; }
.grid { position: absolute; inset: 0 40px 0 calc(var(--who) + 40px); }
.grid i { position: absolute; top: 26px; bottom: 0; border-left: 1px solid var(--line); }
.tick { position: absolute; bottom: 4px; transform: translateX(-50%); white-space: nowrap; }
.tick, .p { font-size: 14px; font-style: normal; font-variant-numeric: tabular-nums; }
.p {
  position: absolute; top: calc(50% - 11px); height: 22px; padding: 0 6px; border: 1px solid var(--card);
  border-radius: 4px; line-height: 20px; white-space: nowrap; overflow: hidden;
}
.p.noticed, .p.restored, .p.gone { top: calc(50% - 3px); height: 6px; }
.p.open { border-right: 3px dotted var(--ink); border-radius: 4px 0 0 4px; }
.limit { position: absolute; z-index: 1; top: 0; bottom: 0; border-left: 2px dashed var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 12px; padding: 0; list-style: none; }
.legend li { display: flex; gap: 6px; align-items: center; font-size: 14px; color: var(--soft); }
.legend .box { position: relative; width: 30px; height: 22px; }
.legend .p { width: 30px; } .legend .limit { left: 14px; }
table { width: 100%; margin-top: 14px; border-collapse: collapse; font-size: 15px; }
td, th { padding: 4px 10px 4px 0; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { border-top: 0; font-weight: 400; }
tbody th { padding-top: 14px; }
td:nth-child(1) { width: 84px; font-variant-numeric: tabular-nums; } td:nth-child(2) { width: 150px; }
.plain { display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 6px 0 0; list-style: none; }
@media (max-width: 700px) {
  :root { --who: 128px; }
  main { padding: 12px 10px 32px; }
  header, .card { padding: 16px; }
  h1 { font-size: 24px; }
  dl { grid-template-columns: 1fr; }
  td:nth-child(2) { width: 104px; }
}
@media print {
  @page { margin: 14mm; }
  :root { --page: #fff; --who: 150px; color-scheme: light; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  header, .card { padding: 12px 16px; }
  .picture { overflow: visible; } .lanes { min-width: 0; }
  h2, h3 { break-after: avoid; } dl, .holds, tr { break-inside: avoid; }
}
"""
)
