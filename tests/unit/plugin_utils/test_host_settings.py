# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._host_settings import api_version


@pytest.mark.parametrize(
    ("written", "seen", "asked_with"),
    [
        ("auto", None, "auto"),
        ("Auto", {"api_version": "2020-07-01", "events": []}, "2020-07-01"),
        ("2019-08-01", {"api_version": "2020-07-01", "events": []}, "2019-08-01"),
        # The host may have been moved to where the service is an older one.
        ("auto", {"api_version": "2024-07-09", "events": None, "error": "404"}, "auto"),
    ],
)
def test_the_version_that_auto_has_found_is_remembered_for_the_run(written: str, seen: t.Any, asked_with: str) -> None:
    assert api_version(written, {"observation": seen}) == asked_with
    assert api_version(written, {}) == written
