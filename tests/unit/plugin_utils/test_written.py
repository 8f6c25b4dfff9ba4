# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils._written import host_mistake, webhook_mistake

PATHS = {"name": "a", "kind": "paths", "paths": ["/mnt"]}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("drain_steps", "nginx", "graceful_drain_steps: The drain steps have to be a list"),
        ("drain_steps", [{"name": "x", "kind": "nope"}], "unknown kind 'nope'"),
        ("checkpoint", "foo", "graceful_checkpoint must be a list"),
        ("checkpoint", ["foo"], "graceful_checkpoint[0] must be a mapping"),
        ("checkpoint", [{**PATHS, "path": 1}], "the key 'path'"),
        ("checkpoint", [{**PATHS, "kind": "path"}], "kind of graceful_checkpoint[0] must be one of paths"),
        ("checkpoint", [{**PATHS, "name": ""}], "name of graceful_checkpoint[0]"),
        ("checkpoint", [PATHS, PATHS], "graceful_checkpoint[1] has the same name"),
        ("checkpoint", [{**PATHS, "paths": []}], "needs paths"),
        ("checkpoint", [{**PATHS, "paths": ["mnt"]}], "must be absolute"),
        ("checkpoint", [{**PATHS, "timeout": -5}], "timeout of graceful_checkpoint[0]"),
        ("checkpoint", [{**PATHS, "timeout": 0}], "timeout of graceful_checkpoint[0] must be more than 0"),
        ("checkpoint", [{"name": "a", "kind": "tasks", "file": "a.yml"}], "of kind tasks and needs probe"),
        ("checkpoint", [{"name": "a", "kind": "command"}], "of kind command and needs argv"),
        ("health", {"port": 1}, "graceful_health must be a list"),
        ("health", [{"prot": 1}], "the key 'prot'"),
        ("health", [{}], "exactly one of port, url, argv"),
        ("health", [{"port": 1, "url": "http://h"}], "exactly one of port, url, argv"),
    ],
)
def test_what_would_not_work_is_found(name: str, value: t.Any, words: str) -> None:
    assert words in host_mistake({f"graceful_{name}": value})


def test_what_works_is_no_mistake() -> None:
    assert not host_mistake({})
    assert not host_mistake(
        {
            "graceful_drain_steps": [{"name": "x", "kind": "patroni"}],
            "graceful_checkpoint": [PATHS, {"name": "b", "kind": "redis", "timeout": "5"}],
            "graceful_health": [{"port": 80, "timeout": 5}, {"argv": ["true"]}],
        }
    )


class Later(dict[str, t.Any]):
    def get(self, key: str, default: t.Any = None) -> t.Any:
        raise KeyError("'drain_event' is undefined")


def test_what_is_known_only_later_is_not_judged_now() -> None:
    assert not host_mistake(Later())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("http://x", "must be a list"),
        (["http://secret"], "graceful_webhooks[0] must be a mapping"),
        ([{"ulr": "http://secret"}], "the key 'ulr'"),
        ([{"url": "secret"}], "needs a url of http or https"),
        ([{"url": "http://x", "events": "fialed"}], "must be one of noticed"),
        ([{"url": "http://x", "headers": "X: secret"}], "headers of graceful_webhooks[0] must be a mapping"),
        ([{"url": "http://x", "timeout": 0}], "timeout"),
    ],
)
def test_a_webhook_that_cannot_be_told_is_found_and_its_secrets_are_kept(value: t.Any, words: str) -> None:
    found = webhook_mistake({"graceful_webhooks": value})
    assert words in found
    assert "secret" not in found


def test_a_webhook_that_can_be_told_is_no_mistake() -> None:
    whole = {"url": "https://x/", "events": ["held", "failed"], "headers": {"A": "b"}, "timeout": "3"}
    assert not webhook_mistake({"graceful_webhooks": [{"url": "http://x"}, whole]})
