# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the seconds of each hop from the notice to the host that serves again, as JSON, and "mistakes", what is wrong.

hops.py ROOM KEEP
"""

from __future__ import annotations

import json
import runpy
import sys
import typing as t
from pathlib import Path

Json = dict[str, t.Any]
OBSERVE = runpy.run_path(str(Path(__file__).parent.with_name("watcher") / "observe.py"))


def main() -> None:
    room, keep = map(Path, sys.argv[1:])
    lab, p95 = OBSERVE["Lab"](room, keep), OBSERVE["p95"]
    moments = {(line["EventId"], line["what"]): line["time"] for line in lab.events()}
    reboot, missed, preempt = [line["EventId"] for line in lab.events() if line["what"] == "published"]
    machines = {"reboot": ["web1", "web2"], "preempt": list(lab.disks)}
    figures: Json = {}
    mistakes = []
    for name, event_id in (("reboot", reboot), ("preempt", preempt)):
        published = moments[event_id, "published"]
        told = [
            line["at"] - published
            for line in lab.lines("told")
            if line["subject"] == event_id and line["data"]["change"] == "appeared"
        ]
        # The first time for the first event, and the last one for the last.
        number = 0 if name == "reboot" else -1
        hosts = machines[name]
        at = {
            word: [[when for when, what in lab.witnessed(host) if what == word][number] for host in hosts]
            for word in ("drained", "back")
        }
        hops = {"told": p95(told), "drained": p95([when - published for when in at["drained"]])}
        if (event_id, "approved") in moments:
            hops["approved"] = round(moments[event_id, "approved"] - published, 2)
        end = moments.get((event_id, "completed"), moments.get((event_id, "cancelled")))
        if end is not None:
            hops["over"] = round(end - published, 2)
        hops["back"] = p95([when - published for when in at["back"]])
        figures[f"{name}, seconds after it was published (p95)"] = hops
        if len(told) != len(lab.disks):
            mistakes.append(f"{name}: told {len(told)} times by {len(lab.disks)} machines")
    log = (keep / "rulebook.log").read_text()
    # Each run says for which event it was started; the second one only looks whether something is left.
    figures["runs"] = {
        name: log.count(f"'{event_id}': of ")
        for name, event_id in (("reboot", reboot), ("missed", missed), ("preempt", preempt))
    }
    mistakes += [f"{name}: {runs} runs" for name, runs in figures["runs"].items() if not runs]
    print(json.dumps({**figures, "mistakes": mistakes}))


if __name__ == "__main__":
    main()
