# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the machines' disks and at what was told, from outside: no connection to a machine, so nothing disturbs it.

observe.py ROOM KEEP wait WHAT NUMBER   wait until so many machines are drained, back or spooled, or so many messages
                                        are refused, or appeared, started, gone or back in told
observe.py ROOM KEEP figures            print what was measured, as JSON, and what is wrong, as "mistakes"
"""

from __future__ import annotations

import collections
import json
import sys
import time
import typing as t
from pathlib import Path

Json = dict[str, t.Any]
PATIENCE = 120


class Lab:
    def __init__(self, room: Path, keep: Path) -> None:
        self._keep = keep
        self.disks = {path.name: path / "disk" for path in sorted((room / "machines").iterdir())}

    def witnessed(self, machine: str) -> list[tuple[float, str]]:
        file = self.disks[machine] / "var/lib/lab/witness"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(float(at), what) for at, what in map(str.split, lines)]

    def lines(self, name: str) -> list[Json]:
        file = self._keep / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def number(self, what: str) -> int:
        if what in ("drained", "back"):
            return sum([word for _at, word in self.witnessed(name)][-1:] == [what] for name in self.disks)
        if what == "spooled":
            spools = [disk / "var/lib/graceful/watcher/spool/receiver" for disk in self.disks.values()]
            return sum(any(spool.glob("*.json")) for spool in spools)
        if what == "refused":
            return len({line["data"]["host"] for line in self.lines("told.refused")})
        return sum(line["data"]["change"] == what.partition(":")[2] for line in self.lines("told"))

    def events(self) -> list[Json]:
        return [line for line in self.lines("journal") if line["kind"] == "event"]


def wait(lab: Lab, what: str, number: int) -> None:
    end = time.monotonic() + PATIENCE
    while lab.number(what) < number:
        if time.monotonic() > end:
            sys.exit(f"{what}: {lab.number(what)} after {PATIENCE} s, and not {number}")
        time.sleep(0.1)


def p95(values: list[float]) -> float:
    return round(sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)], 2)


def figures(lab: Lab) -> Json:
    events, told = lab.events(), lab.lines("told")
    moments = {(line["EventId"], line["what"]): line["time"] for line in events}
    order = [line["EventId"] for line in events if line["what"] == "published"]
    # Nobody took messages during the second and the third.
    cancelled, preempt, reboot, taken_over = order
    delays = [
        line["at"] - moments[line["subject"], {"appeared": "published"}.get(line["data"]["change"], "started")]
        for line in told
        if line["subject"] in (cancelled, taken_over)
        and line["data"]["change"] in ("appeared", "started")
        # A machine that goes down itself tells what it saw when it is up again.
        and not (line["data"]["change"] == "started" and line["data"]["event"]["affects_me"])
    ]
    helped = [name for name in lab.disks if lab.witnessed(name)]
    drains = {name: [at for at, what in lab.witnessed(name) if what == "drained"] for name in helped}
    own = [drains[name][0] - moments[preempt, "published"] for name in helped]
    mistakes = [
        f"{name} was drained after the reboot began" for name in helped if drains[name][1] >= moments[reboot, "started"]
    ]
    counted = collections.Counter(line["id"] for line in told)
    mistakes += [f"told twice: {line['data']}" for line in told if counted[line["id"]] > 1]
    for name in lab.disks:
        mistakes += wrongly_told(name, [line for line in told if line["data"]["host"] == name], order, name in helped)
    for name in helped:
        times = 3 if name in ("web1", "web2") else 2
        words = [what for _at, what in lab.witnessed(name)]
        if words != ["drained", "back"] * times:
            mistakes.append(f"{name}: {words}")
    return {
        "published to told, p95 of all": f"{p95(delays)} s of {len(delays)}, at most 1.2",
        "published to drained by itself, Preempt, p95 of six": f"{p95(own)} s, at most 4",
        "drained before NotBefore, controller down, least seconds left": round(
            min(moments[reboot, "started"] - drains[name][1] for name in helped), 1
        ),
        "messages told": len(told),
        "messages told twice": sum(number - 1 for number in counted.values()),
        "mistakes": mistakes + [f"told after {p95(delays)} s"] * (p95(delays) > 1.2),
    }


def wrongly_told(name: str, told: list[Json], order: list[str], helped: bool) -> list[str]:
    """Each change of each event once, in order. A machine that went down may have missed the start."""
    found = [
        f"{order.index(line['subject'])} {line['data']['change']} {line['data']['outcome'] or ''}".strip()
        for line in told
    ]
    expected = ["0 appeared", "0 gone cancelled", "1 appeared", "1 gone cancelled"]
    expected += ["2 appeared", "2 started", *["2 back"] * helped, "2 gone completed"]
    expected += ["3 appeared", "3 started", *["3 back"] * (name in ("web1", "web2")), "3 gone completed"]
    without = [line for line in expected if not (helped and line.endswith("started"))]
    seen = [line for line in found if line in without or line not in expected]
    return [] if seen == without and len(set(found)) == len(found) else [f"{name} told {found}"]


def main() -> None:
    room, keep, action, *more = sys.argv[1:]
    lab = Lab(Path(room), Path(keep))
    if action == "wait":
        wait(lab, more[0], int(more[1]))
    else:
        print(json.dumps(figures(lab)))


if __name__ == "__main__":
    main()
