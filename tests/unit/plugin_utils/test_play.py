# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.graceful.azure.plugins.plugin_utils._play import require_all_tasks

OWN = ["always", "shop"]


@pytest.mark.parametrize(("tags", "skipped"), [((), ()), (("all",), ()), (("all",), ("notest", "molecule-notest"))])
def test_tags_that_leave_nothing_out_are_fine(tags: tuple[str, ...], skipped: tuple[str, ...]) -> None:
    require_all_tasks({"ansible_run_tags": tags, "ansible_skip_tags": skipped}, OWN)


@pytest.mark.parametrize(
    ("tags", "skipped"),
    [(("drain",), ()), (("tagged",), ()), (("all",), ("untagged",)), (("all",), ("always",)), (("all",), ("shop",))],
)
def test_tags_that_leave_something_out_are_refused(tags: tuple[str, ...], skipped: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleActionFail, match="would leave parts of the drill out"):
        require_all_tasks({"ansible_run_tags": tags, "ansible_skip_tags": skipped}, OWN, "drill")
