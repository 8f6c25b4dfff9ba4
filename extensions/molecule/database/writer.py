# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An application that writes to the database, and what became of its writes.

write FILE    insert one number after the other; note every row that was acknowledged: time, number, server
check FILE... print as JSON what is in the files and whether it is in the database
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import typing as t
from itertools import pairwise
from pathlib import Path

import psycopg2  # type: ignore[import-untyped]

PAUSE = 0.05
END = "end"


class Row(t.NamedTuple):
    time: float
    number: int
    server: str


class Writer:
    def __init__(self, server: str) -> None:
        # An answer that never comes is a lost connection, not a reason to wait for ever.
        self._server = f"{server} target_session_attrs=read-write connect_timeout=2 tcp_user_timeout=3000"
        self._connection: t.Any = None

    def insert(self, number: int) -> str | None:
        """The server that has acknowledged it; nothing is known of a row that was not."""
        try:
            if self._connection is None:
                self._connection = psycopg2.connect(self._server)
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES (%s) RETURNING host(inet_server_addr())", (number,))
                return str(cursor.fetchone()[0])
        except psycopg2.Error as error:
            print(f"{number}: {str(error).strip()}", file=sys.stderr, flush=True)
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return None


def write(server: str, file: Path, first: int, seconds: float) -> None:
    signal.signal(signal.SIGTERM, lambda *_unused: sys.exit())
    writer, number, deadline = Writer(server), first, time.monotonic() + seconds
    with file.open("w", buffering=1) as log:
        try:
            while time.monotonic() < deadline:
                acknowledged_by = writer.insert(number)
                if acknowledged_by:
                    log.write(f"{time.time()} {number} {acknowledged_by}\n")
                number += 1
                time.sleep(PAUSE)
        finally:
            log.write(f"{time.time()} {END}\n")


def read(file: Path) -> tuple[list[Row], float]:
    """The rows that were acknowledged, and when the writer ended."""
    words = [line.split() for line in file.read_text().splitlines()]
    if not words or words[-1][1] != END:
        raise SystemExit(f"{file}: the writer has not ended")
    return [Row(float(at), int(number), server) for at, number, server in words[:-1]], float(words[-1][0])


def report(file: Path, stored: set[int]) -> dict[str, t.Any]:
    rows, ended = read(file)
    moments = [row.time for row in rows] + [ended]
    spans: list[dict[str, t.Any]] = []
    for row in rows:
        if not spans or spans[-1]["server"] != row.server:
            spans.append({"server": row.server, "first": row.time})
        spans[-1]["last"] = row.time
    return {
        "rows": len(rows),
        "lost": len({row.number for row in rows} - stored),
        "longest_pause": round(max(after - before for before, after in pairwise(moments)), 1) if rows else None,
        "servers": spans,
    }


def check(server: str, files: t.Sequence[Path]) -> None:
    connection = psycopg2.connect(f"{server} target_session_attrs=read-write")
    with connection.cursor() as cursor:
        cursor.execute("SELECT number FROM orders")
        stored = {row[0] for row in cursor.fetchall()}
    print(json.dumps({file.name: report(file, stored) for file in files}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="how to connect, as libpq writes it")
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write")
    writing.add_argument("file", type=Path)
    writing.add_argument("--first", type=int, default=1)
    writing.add_argument("--seconds", type=float, default=900)
    actions.add_parser("check").add_argument("file", type=Path, nargs="+")
    args = parser.parse_args()
    if args.action == "write":
        write(args.server, args.file, args.first, args.seconds)
    else:
        check(args.server, args.file)


if __name__ == "__main__":
    main()
