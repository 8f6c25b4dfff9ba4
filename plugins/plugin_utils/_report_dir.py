# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report directory on the controller: reports, messages that were sent to webhooks, and Azure names of hosts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import typing as t
from datetime import datetime

from ..module_utils._files import read_json, write
from ..module_utils._text import clean
from ._report import read
from ._timeline import page

LATEST = "latest"
SENT = "told.json"
AZURE_NAMES = "azure-names.json"
CHECKPOINTS = "checkpoints"
# Only files with these names are removed.
REPORT_NAME = re.compile(r"(\d{8}T\d{6}Z-[A-Za-z0-9]{1,8})\.(?:html|json)")
ARCHIVE_NAME = re.compile(r"[0-9a-f]{20,64}\.tar\.gz")


def absolute(directory: str) -> str:
    return os.path.realpath(os.path.expanduser(directory))


def write_report(directory: str, data: t.Mapping[str, t.Any], now: datetime) -> tuple[str, str]:
    """Write page and data, and copies named latest. Returns their paths. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    texts = {"html": page(data), "json": json.dumps(data, indent=4, sort_keys=True, default=str) + "\n"}
    # Sorted by time, and unique for the run; no text of an event is used.
    run_id = re.sub(r"[^A-Za-z0-9]", "", read(data).run.run_id)[:8]
    name = f"{now:%Y%m%dT%H%M%SZ}-{run_id or 'run'}"
    for base in (name, LATEST):
        for ending, text in texts.items():
            write_whole(os.path.join(directory, f"{base}.{ending}"), text)
    return os.path.join(directory, f"{name}.html"), os.path.join(directory, f"{name}.json")


def remove_old(directory: str, keep: int, data: t.Mapping[str, t.Any]) -> list[str]:
    """Remove the oldest reports and archives beyond the number to keep; 0 keeps all. Returns what was removed.

    Archives are removed only of hosts that this run restored: others may still need theirs."""
    if keep <= 0:
        return []
    names = [found for name in os.listdir(directory) if (found := REPORT_NAME.fullmatch(name))]
    kept = set(sorted({found[1] for found in names})[-keep:])
    old = [os.path.join(directory, found[0]) for found in names if found[1] not in kept]
    restored = {host.name for host in read(data).hosts if host.result == "restored"}
    for host in restored.intersection(_names(os.path.join(directory, CHECKPOINTS))):
        place = os.path.join(directory, CHECKPOINTS, host)
        archives = [os.path.join(place, name) for name in _names(place) if ARCHIVE_NAME.fullmatch(name)]
        old += sorted(archives, key=os.path.getmtime)[:-keep]
    for file in old:
        os.unlink(file)
    return sorted(old)


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) and not os.path.islink(directory) else []


def read_sent(directory: str) -> dict[str, t.Any]:
    """The messages that were sent to webhooks; empty if the file cannot be read."""
    return _read_json(os.path.join(directory, SENT))


def write_sent(directory: str, sent: t.Mapping[str, t.Any]) -> None:
    _write_json(os.path.join(directory, SENT), sent)


def read_names(directory: str, hosts: t.Collection[str]) -> dict[str, str]:
    """Azure names from earlier runs, for hosts that cannot be reached now."""
    names = _read_json(os.path.join(directory, AZURE_NAMES))
    return {host: clean(name, 200) for host, name in names.items() if host in hosts and isinstance(name, str)}


def keep_names(directory: str, names: t.Mapping[str, str]) -> None:
    """Add these names to the file, if it can be written."""
    file = os.path.join(directory, AZURE_NAMES)
    known = _read_json(file)
    if {**known, **names} != known:
        with contextlib.suppress(OSError):
            _write_json(file, {**known, **names})


def _write_json(file: str, content: t.Mapping[str, t.Any]) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    write_whole(file, json.dumps(content, indent=4, sort_keys=True) + "\n")


def _read_json(file: str) -> dict[str, t.Any]:
    """The dictionary in the file; empty if there is none."""
    try:
        content = read_json(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_whole(file: str, text: str) -> None:
    """Replace the file at once, because somebody may be reading it, and another run writing it."""
    write(file, text.encode("utf-8", "backslashreplace"), 0o640, sync=False, draft=f"{file}.{os.getpid()}")
