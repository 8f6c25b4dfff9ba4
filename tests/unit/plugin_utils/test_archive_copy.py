# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives of Windows hosts, to the controller and back, by the connection itself."""

from __future__ import annotations

import stat
import types
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.graceful.azure.plugins.plugin_utils._archive_copy import copied

THERE = "C:\\ProgramData\\graceful\\checkpoints\\x.zip"


class Connection:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.sent: list[tuple[str, str]] = []

    def fetch_file(self, there: str, here: str) -> None:
        if self.fails:
            Path(here).write_bytes(b"half")
            raise AnsibleConnectionFailure("the host\x1b is gone")
        assert there == THERE
        Path(here).write_bytes(b"archive")

    def put_file(self, here: str, there: str) -> None:
        self.sent.append((here, there))


def action(**given: t.Any) -> t.Any:
    return types.SimpleNamespace(_connection=Connection(**given))


def test_it_is_fetched_whole_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    here = tmp_path / "web1" / "x.zip"
    told = copied(action(), {"mode": "fetch", "archive": THERE, "controller_copy": str(here)})
    assert told == {"changed": True, "msg": "the archive was copied"}
    assert here.read_bytes() == b"archive"
    assert stat.S_IMODE(here.stat().st_mode) == 0o600
    assert stat.S_IMODE(here.parent.stat().st_mode) == 0o700


def test_a_host_that_is_lost_meanwhile_leaves_the_archive_of_before(tmp_path: Path) -> None:
    here = tmp_path / "x.zip"
    here.write_bytes(b"before")
    told = copied(action(fails=True), {"mode": "fetch", "archive": THERE, "controller_copy": str(here)})
    assert told["failed"]
    assert told["msg"] == "The archive could not be fetched from the host: the host? is gone"
    assert here.read_bytes() == b"before"


def test_it_is_sent_back_to_where_the_host_wants_it(tmp_path: Path) -> None:
    here = tmp_path / "x.zip"
    one = action()
    assert copied(one, {"mode": "send", "archive": THERE, "controller_copy": str(here)})["changed"]
    assert one._connection.sent == [(str(here), THERE)]


@pytest.mark.parametrize("step", [None, {}, "x", {"mode": "do"}])
def test_without_a_step_that_wants_it_nothing_is_copied(step: t.Any) -> None:
    assert "Only the collection's roles copy one" in copied(action(), step)["msg"]
