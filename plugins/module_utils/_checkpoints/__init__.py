# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# It is made from the files beside it: run `make generate` instead of editing it.

"""The kinds of checkpoints."""

from __future__ import annotations

import functools

from .._kind import load_kind

NAMES: tuple[str, ...] = (
    "command", "paths", "postgresql", "redis", "tasks",
)  # fmt: skip
load = functools.partial(load_kind, f"{__name__}.", "Item", "checkpoints", NAMES)


def _sent_to_hosts() -> None:
    """Never called: Ansible sends to a host what is imported somewhere in the text of a module."""
    from . import (  # noqa: F401
        command,
        paths,
        postgresql,
        redis,
        tasks,
    )
