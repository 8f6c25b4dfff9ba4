# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is secret in a URL that a user has written reaches the host as a secret, and nothing else."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import Items, read_settings

SECRET = "hunter2"
PROBE = {"name": "probe", "kind": "health_probe", "url": f"http://127.0.0.1/health?key={SECRET}", "marker": "/run/out"}
CALLED = {
    "name": "queue",
    "kind": "command",
    "do": ["curl", f"http://me:{SECRET}@127.0.0.1/pause"],
    "undo": ["true"],
    "probe": ["true"],
}


def read(**variables: t.Any) -> t.Any:
    return read_settings({f"graceful_{key}": value for key, value in variables.items()}, lambda value: value)


@pytest.mark.parametrize(
    ("name", "written", "place", "key"),
    [
        ("drain_steps", PROBE, "drain/probe", "url"),
        ("drain_steps", CALLED, "drain/queue", "do"),
        ("checkpoint", {"name": "save", "kind": "command", "argv": CALLED["do"]}, "checkpoint/save", "argv"),
        ("health", {"url": PROBE["url"]}, "health/0", "url"),
        ("health", {"argv": CALLED["do"]}, "health/0", "argv"),
    ],
)
def test_what_is_sent_logged_and_noted_has_no_secret(name: str, written: t.Any, place: str, key: str) -> None:
    settings = read(**{name: [written]})
    assert settings.mistakes == {}
    items: Items = settings.values[name]
    assert SECRET not in str(items.masked)
    assert items.secrets[place][key] == written[key]
    assert SECRET in str(items.items), "the controller itself needs it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drain_steps", [{**PROBE, "url": f"http://me:{SECRET}@127.0.0.1/"}]),
        ("drain_steps", [{"name": "db", "kind": "patroni", "url": f"http://me:{SECRET}@127.0.0.1:8008/?x={SECRET}"}]),
        ("health", [{"url": f"http://me:{SECRET}@127.0.0.1/"}]),
        ("endpoint", f"http://me:{SECRET}@127.0.0.1"),
        ("endpoint", f"http://127.0.0.1/?key={SECRET}"),
    ],
)
def test_what_cannot_be_used_is_said_without_its_secret(name: str, value: t.Any) -> None:
    settings = read(**{name: value})
    assert settings.mistakes
    assert SECRET not in str(settings.mistakes)
    assert SECRET not in str(settings.values)
