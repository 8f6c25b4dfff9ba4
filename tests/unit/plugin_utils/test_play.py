# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.graceful.azure.plugins.plugin_utils._play import (
    require_all_tasks,
    require_one_batch,
    run_so_far,
)

OWN = ["always", "shop"]


def in_a_play(**keywords: t.Any) -> t.Any:
    play = types.SimpleNamespace(**keywords)
    return types.SimpleNamespace(_task=types.SimpleNamespace(get_play=lambda: play))


@pytest.mark.parametrize(("tags", "skipped"), [((), ()), (("all",), ()), (("all",), ("notest", "molecule-notest"))])
def test_tags_that_leave_nothing_out_are_fine(tags: tuple[str, ...], skipped: tuple[str, ...]) -> None:
    require_all_tasks({"ansible_run_tags": tags, "ansible_skip_tags": skipped}, OWN)


@pytest.mark.parametrize(
    ("tags", "skipped"),
    [(("drain",), ()), (("tagged",), ()), (("all",), ("untagged",)), (("all",), ("always",)), (("all",), ("shop",))],
)
def test_tags_that_leave_something_out_are_refused(tags: tuple[str, ...], skipped: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleActionFail, match="would skip parts of the drill"):
        require_all_tasks({"ansible_run_tags": tags, "ansible_skip_tags": skipped}, OWN, "drill")


@pytest.mark.parametrize("serial", [[], [0], ["100%"]])
def test_a_play_with_all_its_hosts_at_once_is_fine(serial: list[t.Any]) -> None:
    require_one_batch(in_a_play(serial=serial))


@pytest.mark.parametrize("serial", [[1], ["50%"], [1, "100%"]])
def test_a_play_with_batches_is_refused_because_later_ones_would_not_be_looked_at(serial: list[t.Any]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"would not be looked at. Remove serial .* is graceful_serial"):
        require_one_batch(in_a_play(serial=serial))


@pytest.mark.parametrize("left", [None, "", {}, {"failed": True}])
def test_a_run_without_its_first_task_says_what_is_missing(left: t.Any) -> None:
    assert run_so_far({"graceful_pass": {"run": '{"pass": 1}'}}) == {"pass": 1}
    with pytest.raises(AnsibleActionFail, match=r"first task .* was skipped. Run it without --start-at-task"):
        run_so_far({"graceful_pass": left})
