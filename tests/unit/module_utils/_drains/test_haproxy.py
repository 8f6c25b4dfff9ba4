# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.haproxy import Step
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import mistake, options_of

Json = dict[str, t.Any]
SOCKETS = [{"host": "lb1", "socket": "/run/a"}, {"host": "lb2", "socket": "127.0.0.1:9999"}]
BALANCED: Json = {"backend": "web", "server": "web1", "sockets": SOCKETS}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (BALANCED, ""),
        ({"backend": "b"}, "server"),
        ({**BALANCED, "sockets": ["/run/a"]}, "sockets"),
        ({**BALANCED, "sockets": []}, "sockets has to be a list of {host"),
        ({**BALANCED, "sockets": [{"host": "lb1"}]}, "socket"),
        ({**BALANCED, "sockets": [{"host": " ", "socket": "/run/a"}]}, "host of sockets has to be a string"),
        ({**BALANCED, "server": "web1; shutdown"}, "server cannot be a name in HAProxy"),
        ({**BALANCED, "backend": "web\nset"}, "backend cannot be a name in HAProxy"),
    ],
)
def test_only_balancers_are_accepted(given: Json, words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)


def seen(**in_service: bool) -> Json:
    sockets = {socket["host"]: socket for socket in SOCKETS}
    return {"servers": [{**sockets[host], "in_service": value} for host, value in in_service.items()]}


@pytest.mark.parametrize(
    ("before", "now", "merged"),
    [
        ({}, seen(lb1=False, lb2=True), seen(lb1=False, lb2=True)),
        (seen(lb1=True, lb2=True), seen(lb1=False, lb2=False), seen(lb1=True, lb2=True)),
        (seen(lb2=True), seen(lb1=False, lb2=False), seen(lb1=False, lb2=True)),
        (seen(lb1=True), {}, seen(lb1=True)),
        ({"servers": "nonsense"}, seen(lb1=True), seen(lb1=True)),
        ({"servers": [1, None]}, seen(lb1=True), seen(lb1=True)),
    ],
    ids=["first attempt", "second attempt", "one was added", "none could be asked", "damaged", "damaged servers"],
)
def test_each_balancer_is_remembered_as_it_was_before_anything_was_done(before: Json, now: Json, merged: Json) -> None:
    assert Step.merged(options_of(Step, **BALANCED), before, now) == merged


def test_it_is_looked_at_and_taken_by_the_controller_and_carries_traffic() -> None:
    assert (Step.by_controller, Step.carries_traffic, Step.looks_first) == (True, True, True)
