# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finding the service without being told where, in a network where its addresses are not the real ones."""

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Json, NamespaceReads


@pytest.fixture
def found(namespace_reads: NamespaceReads) -> dict[str, Json]:
    if namespace_reads.obstacle:
        pytest.skip(f"endpoint auto needs a network namespace of its own: {namespace_reads.obstacle}")
    return namespace_reads.records


@pytest.mark.parametrize(("place", "endpoint"), [("vnet", "http://169.254.169.254"), ("dhcp", "http://10.24.5.6:8080")])
def test_the_service_is_found(found: dict[str, Json], place: str, endpoint: str) -> None:
    result = found[place]["result"]
    assert found[place]["status"] == "ok", result
    assert (result["endpoint"], result["vm_name"]) == (endpoint, place)
    assert [event["event_id"] for event in result["events"]] == [f"{place}-1".upper()]


def test_where_there_is_none_that_is_said(found: dict[str, Json]) -> None:
    result = found["nothing"]["result"]
    assert found["nothing"]["status"] == "failed"
    for word in ("http://169.254.169.254", "cannot be reached", "that this is an Azure VM"):
        assert word in result["msg"]
