# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._host_settings import (
    api_version,
    why_not_asked,
    with_variable_names,
)
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "127.0.0.1:19403"),
        ("endpoint", "{{ nowhere }}"),
        ("api_version", ["2020-07-01"]),
        ("vm_name", {"name": "shop_0"}),
        ("record_dir", "records"),
    ],
)
def test_a_host_is_not_asked_if_it_is_written_wrong_where_or_how(name: str, value: t.Any) -> None:
    def template(given: t.Any) -> t.Any:
        if given == "{{ nowhere }}":
            raise ValueError("'nowhere' is undefined")
        return given

    settings = read_settings({f"graceful_{name}": value, "graceful_confirm": "perhaps"}, template)
    assert why_not_asked(settings).startswith("it was not asked: ")
    assert f"graceful_{name}" in why_not_asked(settings)
    assert "graceful_confirm" not in why_not_asked(settings)
    # What only says what is done with the host does not keep it from being asked.
    assert why_not_asked(read_settings({"graceful_window": "never", "graceful_confirm": "perhaps"}, template)) == ""


def test_errors_name_the_variables_of_the_inventory() -> None:
    error = "http://127.0.0.1:1 cannot be reached. Check that this is an Azure VM, and that endpoint is correct."
    told: t.Any = {"observation": {"error": error}, "report": {"message": None}}
    assert with_variable_names(told)["observation"]["error"].endswith("and that graceful_endpoint is correct.")
    told["observation"]["error"] = "that endpoint is correct."
    assert with_variable_names(told, "drain_")["observation"]["error"] == "that drain_endpoint is correct."
    assert with_variable_names({"observation": None, "report": None}) == {"observation": None, "report": None}
