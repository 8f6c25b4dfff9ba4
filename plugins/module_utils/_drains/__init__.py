# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# It is made from the files beside it: run `make generate` instead of editing it.

"""The kinds of drain steps."""

from __future__ import annotations

import importlib
import typing as t

from .._errors import EventsError
from .._kind import Kind
from .._text import quoted

NAMES: tuple[str, ...] = (
    "command",
    "connections",
    "failover_cluster",
    "haproxy",
    "health_probe",
    "iis",
    "pacemaker",
    "patroni",
    "redis_sentinel",
    "services",
    "tasks",
)


def load(name: str) -> type[Kind]:
    """The class of a kind. A host imports only the kind that it needs."""
    if name not in NAMES:
        raise EventsError(f"There is no kind {quoted(name)} of drain steps. Kinds are: {', '.join(NAMES)}.")
    return t.cast("type[Kind]", importlib.import_module(f"{__name__}.{name}").Step)


def _sent_to_hosts() -> None:
    """Never called: Ansible sends to a host what is imported somewhere in the text of a module."""
    from . import (  # noqa: F401
        command,
        connections,
        failover_cluster,
        haproxy,
        health_probe,
        iis,
        pacemaker,
        patroni,
        redis_sentinel,
        services,
        tasks,
    )
