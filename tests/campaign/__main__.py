# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The campaign: the plan by hypothesis, then whole maintenances on loopback hosts, all from one seed."""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import time
import traceback
from pathlib import Path

from ansible_collections.graceful.azure.tests.campaign import draw, plan, play


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="the same is the same")
    parser.add_argument("--cases", type=int, default=10_000, help="of the plan")
    parser.add_argument("--runs", type=int, help="this many runs, however long they take")
    parser.add_argument("--seconds", type=float, default=180, help="otherwise: begin none after this time")
    parser.add_argument("--only", default="", help="'plan', or the number of one run")
    parser.add_argument("--directory", type=Path, default=Path("campaign"), help="keeps the files of what failed")
    return parser.parse_args()


def check_plan(seed: int, cases: int) -> bool:
    begin = time.monotonic()
    try:
        done = plan.run(seed, cases)
    except Exception:
        traceback.print_exc()
        print(f"plan: FAILED; again: make campaign SEED={seed} ONLY=plan", flush=True)
        return False
    events = ", ".join(f"{count} {words}" for words, count in sorted(plan.totals.items()))
    print(f"plan: {done} cases ({events}), {time.monotonic() - begin:.0f} s", flush=True)
    return True


def one_run(seed: int, number: int, directory: Path, keep: bool) -> play.Outcome:
    begin, drawn = time.monotonic(), draw.draw(seed, number)
    place = (directory / f"{seed}-{number}").absolute()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        outcome = play.play(drawn, place)
    except Exception:
        outcome = play.Outcome([f"the campaign itself broke: {traceback.format_exc()}"])
    print(f"run {number}, seed {seed}: {drawn} -> {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    if outcome.complaints:
        print(f"  again: make campaign SEED={seed} ONLY={number}; its files: {place}", flush=True)
    elif not keep:
        shutil.rmtree(place)
    return outcome


def main() -> int:
    given = arguments()
    print(f"campaign: seed {given.seed}", flush=True)
    passed, failed = 0, 0
    if given.only in ("", "plan"):
        good = check_plan(given.seed, given.cases)
        passed, failed = int(good), int(not good)
    numbers = [int(given.only)] if given.only.isdigit() else range(1, 10**6 if given.runs is None else given.runs + 1)
    until = time.monotonic() + given.seconds
    totals: collections.Counter[str] = collections.Counter()
    for number in [] if given.only == "plan" else numbers:
        if given.runs is None and time.monotonic() > until:
            break
        outcome = one_run(given.seed, number, given.directory, keep=bool(given.only))
        counted = {"approvals": outcome.approved, "held": outcome.held}
        totals.update({"runs": 1, **counted, "early approvals": outcome.early, "hosts left drained": outcome.left})
        passed, failed = passed + (not outcome.complaints), failed + bool(outcome.complaints)
    if totals:
        print(", ".join(f"{key}: {count}" for key, count in totals.items()))
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
