# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.
# It is made from the files beside it: run `make generate` instead of editing it.

"""The kinds of checkpoints."""

from __future__ import annotations

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Kind
from ansible_collections.graceful.azure.plugins.module_utils._text import quoted

NAMES: tuple[str, ...] = (
    "command",
    "paths",
    "postgresql",
    "redis",
    "tasks",
)


def load(name: str) -> type[Kind]:
    """The class of a kind. A host imports only the kind that it needs; Ansible sends those that are imported here."""
    if name == "command":
        from ansible_collections.graceful.azure.plugins.module_utils._checkpoints import command

        return command.Item
    if name == "paths":
        from ansible_collections.graceful.azure.plugins.module_utils._checkpoints import paths

        return paths.Item
    if name == "postgresql":
        from ansible_collections.graceful.azure.plugins.module_utils._checkpoints import postgresql

        return postgresql.Item
    if name == "redis":
        from ansible_collections.graceful.azure.plugins.module_utils._checkpoints import redis

        return redis.Item
    if name == "tasks":
        from ansible_collections.graceful.azure.plugins.module_utils._checkpoints import tasks

        return tasks.Item
    raise EventsError(f"There is no kind {quoted(name)} of checkpoints. Kinds are: {', '.join(NAMES)}.")
