# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.
# It is made from the files beside it: run `make generate` instead of editing it.

"""The kinds of drain steps."""

from __future__ import annotations

from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Kind
from ansible_collections.graceful.azure.plugins.module_utils._text import quoted

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
    """The class of a kind. A host imports only the kind that it needs; Ansible sends those that are imported here."""
    if name == "command":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import command

        return command.Step
    if name == "connections":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import connections

        return connections.Step
    if name == "failover_cluster":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import failover_cluster

        return failover_cluster.Step
    if name == "haproxy":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import haproxy

        return haproxy.Step
    if name == "health_probe":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import health_probe

        return health_probe.Step
    if name == "iis":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import iis

        return iis.Step
    if name == "pacemaker":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import pacemaker

        return pacemaker.Step
    if name == "patroni":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import patroni

        return patroni.Step
    if name == "redis_sentinel":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import redis_sentinel

        return redis_sentinel.Step
    if name == "services":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import services

        return services.Step
    if name == "tasks":
        from ansible_collections.graceful.azure.plugins.module_utils._drains import tasks

        return tasks.Step
    raise EventsError(f"There is no kind {quoted(name)} of drain steps. Kinds are: {', '.join(NAMES)}.")
