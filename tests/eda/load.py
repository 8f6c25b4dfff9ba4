# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts report few events to one real ansible-rulebook on loopback: exactly one run for each event, nothing lost.

python -m ansible_collections.graceful.azure.tests.eda.load [--hosts 10000] [--events 100] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import statistics
import sys
import tempfile
import time
import typing as t
from collections import Counter
from pathlib import Path

import aiohttp
from ansible_collections.graceful.azure.tests.eda.harness import TOKEN, Rulebook, java_is_missing, told

# A host gives up its connection after each message, and so many are at it at the same time at most.
AT_ONCE = 200
# As the watcher: what was not taken is sent again.
TRIES = 5


@dataclasses.dataclass
class Result:
    hosts: int
    events: int
    # Answers by status; 0 is no answer.
    answers: Counter[int]
    not_taken: int
    runs: Counter[str]
    # Seconds from the first message to the last answer, and to the end of the last run.
    reported_in: float
    done_in: float
    # Seconds from the first message about an event to its run; and of an answer.
    to_run: list[float]
    to_answer: list[float]
    megabytes: float
    cpu: float

    @property
    def is_exact(self) -> bool:
        return not self.not_taken and len(self.runs) == self.events and set(self.runs.values()) == {1}

    def __str__(self) -> str:
        def figures(values: list[float]) -> str:
            middle = statistics.median(values)
            return f"median {middle:.2f} s, p95 {percentile(values, 95):.2f} s, most {max(values):.2f} s"

        more = {event: number for event, number in self.runs.items() if number != 1}
        answers = ", ".join(f"{number} x {status or 'no answer'}" for status, number in sorted(self.answers.items()))
        return "\n".join(
            [
                f"{self.hosts} hosts, {self.events} events: {sum(self.runs.values())} runs"
                + (f", NOT ONE FOR EACH: {more}" if more else "")
                + f"; {self.not_taken} messages lost",
                f"  all reported in {self.reported_in:.1f} s ({answers}); an answer took {figures(self.to_answer)}",
                f"  first report of an event to its run: {figures(self.to_run)}",
                f"  the last run ended after {self.done_in:.1f} s",
                f"  ansible-rulebook: {self.megabytes:.0f} MB at most, {self.cpu:.1f} s of CPU",
            ]
        )


def percentile(values: t.Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def messages(hosts: int, events: int) -> list[tuple[str, bytes]]:
    """Each host is in the scope of one event, and reports it once. In any order."""
    made = []
    for number in range(hosts):
        event_id = f"EVENT-{number % events:04}"
        message = told("appeared", event_id, f"host{number}", number, resources=[f"vm_{number % events}"])
        made.append((event_id, json.dumps(message).encode()))
    random.Random(1).shuffle(made)
    return made


async def report(port: int, bodies: list[tuple[str, bytes]], seconds: float) -> tuple[Result, dict[str, float]]:
    first: dict[str, float] = {}
    answers: Counter[int] = Counter()
    took: list[float] = []
    lost = 0
    free = asyncio.Semaphore(AT_ONCE)
    begin = time.time()
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/cloudevents+json",
        "Connection": "close",
    }
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:

        async def tell(number: int, event_id: str, body: bytes) -> None:
            nonlocal lost
            await asyncio.sleep(max(0.0, begin + seconds * number / len(bodies) - time.time()))
            for attempt in range(TRIES):
                async with free:
                    now = time.time()
                    first.setdefault(event_id, now)
                    try:
                        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as answer:
                            status = answer.status
                    except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError):
                        status = 0
                answers[status] += 1
                took.append(time.time() - now)
                if status == 200:
                    return
                await asyncio.sleep(2.0**attempt)
            lost += 1

        await asyncio.gather(*(tell(number, *one) for number, one in enumerate(bodies)))
    made = Result(len(bodies), len(first), answers, lost, Counter(), time.time() - begin, 0.0, [], took, 0.0, 0.0)
    return made, first


def of_process(pid: int) -> tuple[float, float]:
    """The most memory in MB, and the seconds of CPU, without its runs."""
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(peak) / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(directory: Path, hosts: int, events: int, seconds: float, concurrent: int, patience: float) -> Result:
    rulebook = Rulebook(directory, "maintenance")
    rulebook.settings["EDA_MAX_CONCURRENT_ACTIONS"] = str(concurrent)
    rulebook.start()
    try:
        begin = time.time()
        result, first = asyncio.run(report(rulebook.port, messages(hosts, events), seconds))
        end = time.monotonic() + patience
        while time.monotonic() < end and (len(list(rulebook.runs_directory.iterdir())) < events or rulebook.is_busy):
            time.sleep(0.5)
        result.done_in = time.time() - begin
        # What should not come would come now.
        rulebook.settle()
        assert rulebook.process
        result.megabytes, result.cpu = of_process(rulebook.process.pid)
        result.runs = Counter(rulebook.events)
        started = dict(zip(rulebook.events, rulebook.run_times, strict=True))
        result.to_run = [started[event_id] - at for event_id, at in first.items() if event_id in started] or [0.0]
        return result
    finally:
        rulebook.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="in which all hosts report")
    parser.add_argument("--concurrent", type=int, default=2 * (os.cpu_count() or 1), help="runs at a time")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds to wait for the runs at most")
    given = parser.parse_args()
    missing = java_is_missing()
    if missing:
        print(f"skipped: {missing}")
        return 0
    with tempfile.TemporaryDirectory(prefix="graceful-eda-") as directory:
        result = measure(Path(directory), given.hosts, given.events, given.seconds, given.concurrent, given.patience)
    print(result, flush=True)
    return 0 if result.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
