# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._readiness import readiness

GOOD: dict[str, t.Any] = {"endpoint": "http://127.0.0.1", "vm_name": "web_0", "clock_offset": -0.4, "events": [{}]}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (GOOD, ""),
        ({"unreachable": True, "msg": "no route"}, "cannot be reached"),
        ({"failed": True, "msg": "Connection refused."}, "Connection refused."),
        ({"skipped": True}, "was not asked"),
        ({**GOOD, "vm_name": None}, "Set graceful_vm_name"),
        ({**GOOD, "clock_offset": None}, "does not tell its time"),
        ({**GOOD, "clock_offset": 31.0}, "31 s behind"),
        ({**GOOD, "clock_offset": -90.0}, "90 s ahead"),
    ],
)
def test_what_stands_in_the_way(answer: dict[str, t.Any], problem: str) -> None:
    found = readiness({"web1": answer}, 30)["problems"]["web1"]
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_host_that_cannot_keep_a_record_is_not_ready() -> None:
    kept = {"web1": {"changed": False, "msg": "nothing to do"}, "web2": {"failed": True, "msg": "Run it with become."}}
    answers = {"web1": GOOD, "web2": {**GOOD, "vm_name": "web_1"}}
    problems = readiness(answers, 30, records=kept)["problems"]
    assert problems["web1"] == ""
    assert "graceful_record_dir" in problems["web2"]
    assert problems["web2"].endswith("Run it with become.")


def test_the_table_shows_every_host_and_what_must_be_repeated() -> None:
    table = readiness({"web2": {"unreachable": True}, "web1": {**GOOD, "vm_name": "web\x1b_0"}}, 30)["table"]
    assert table[1].split() == ["web1", "yes", "web?_0", "http://127.0.0.1", "-0.4", "s", "1"]
    assert table[2].split()[:2] == ["web2", "no"]
    assert table[3].startswith("web2: The host cannot be reached")
    assert table[-1].startswith("1 of 2 hosts are ready. Repeat this within 24 hours")
