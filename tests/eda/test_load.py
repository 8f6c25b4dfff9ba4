# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

from ansible_collections.graceful.azure.tests.eda.load import measure


def test_three_hundred_hosts_that_report_ten_events_start_ten_runs(tmp_path: Path) -> None:
    """In small what make bench-eda does with ten thousand hosts."""
    result = measure(tmp_path, hosts=300, events=10, seconds=5.0, concurrent=4, patience=600.0)
    print(result)
    assert result.is_exact, str(result)
