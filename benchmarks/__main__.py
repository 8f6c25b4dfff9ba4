# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure, and print each figure beside its target. Nothing is asserted: a missed target is printed and no error.

Everything runs on this machine against emulators of its own. Run it with `make bench`, or `make bench ARGS=--quick`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from pathlib import Path

from ansible_collections.graceful.azure.benchmarks import cycle, modules, picture
from ansible_collections.graceful.azure.benchmarks.common import Json, show

PARTS = ("cycle", *modules.PARTS)


def circumstances(begin: float) -> Json:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
        "python": platform.python_version(),
        "minutes": round((time.monotonic() - begin) / 60, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, in two minutes")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this alone; may be repeated")
    parser.add_argument("--size", help="of the cycle only this one, as HOSTS:AFFECTED")
    parser.add_argument("--result", type=Path, default=Path("bench.json"), help="where the figures are written")
    given = parser.parse_args()
    wanted = given.only or PARTS
    begin = time.monotonic()
    figures: Json = {}
    lines = []
    if "cycle" in wanted:
        sizes = cycle.QUICK if given.quick else cycle.FULL
        figures["cycle"] = cycle.measure(cycle.only(sizes, given.size) if given.size else sizes)
        lines += cycle.lines_of(figures["cycle"])
    parts = [part for part in modules.PARTS if part in wanted]
    if parts:
        lines += modules.measure(modules.QUICK if given.quick else modules.FULL, parts)
    figures["circumstances"] = circumstances(begin)
    print()
    show(lines)
    if "cycle" in figures:
        cycle.explain(figures["cycle"])
    if parts:
        modules.explain(modules.QUICK if given.quick else modules.FULL)
    told = figures["circumstances"]
    print(f"Took {told['minutes']} min on {told['cores']} processors, load {told['load']}.")
    figures["lines"] = [line.cells() for line in lines]
    given.result.parent.mkdir(parents=True, exist_ok=True)
    given.result.write_text(json.dumps(figures, indent=1))
    if "cycle" in figures:
        table = [line.cells() for line in cycle.lines_of(figures["cycle"])]
        given.result.with_suffix(".svg").write_text(picture.draw(table, told))
    print(f"Written to {given.result}, and drawn beside it.")


if __name__ == "__main__":
    main()
