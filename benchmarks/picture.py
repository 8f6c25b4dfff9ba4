# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws what was measured of the cycle as bars: each a multiple of what the same calls cost with ping."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.benchmarks.common import Json

BAR, GAP, LEFT, WIDTH, UNIT = 18, 8, 400, 830, 110
COLOURS = {True: "#2e7d32", False: "#c62828", None: "#546e7a"}
HEAD = (
    "<!--\nSPDX-FileCopyrightText: graceful.azure contributors\nSPDX-License-Identifier: GPL-3.0-or-later\n-->\n"
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
    '<rect width="100%" height="100%" fill="#ffffff"/>'
)


def draw(lines: t.Sequence[t.Sequence[str]], circumstances: Json) -> str:
    """The lines of the table whose result is a ratio."""
    shown = [line for line in lines if line[2].endswith(" x")]
    height = 60 + len(shown) * (BAR + GAP)
    parts = [HEAD.format(width=WIDTH, height=height)]
    told = (
        f"{circumstances['date']}, {circumstances['cores']} processors. The line is 1: as long as the calls with ping."
    )
    parts.append(f'<text x="10" y="22" fill="#37474f">{told}</text>')
    for number, (what, _measured, result, target, verdict) in enumerate(shown):
        ratio, y = float(result.split()[0]), 40 + number * (BAR + GAP)
        colour = COLOURS[{"reached": True, "missed": False}.get(verdict)]
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{what}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{ratio * UNIT:.0f}" height="{BAR}" fill="{colour}"/>')
        note = f"{result}{f' ({target})' if target else ''}".replace("<", "&lt;")
        parts.append(f'<text x="{LEFT + ratio * UNIT + 6:.0f}" y="{y + 14}">{note}</text>')
    x = LEFT + UNIT
    parts.append(f'<line x1="{x}" x2="{x}" y1="36" y2="{height - 12}" stroke="#37474f" stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>", ""])
