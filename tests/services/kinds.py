# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kind of drain step with a real service: drained, drained again, and undone."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.module_utils import _drains
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._kind import Found, Kind, Runner, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._run import run as real_run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import options_of, tools

NOTED = StepRecord({}, {}, lost=False)


class Drained(t.NamedTuple):
    look: Found
    done: str
    undone: str


def step(name: str, seconds: float = 90, begun: bool = False, run: Runner = real_run, **given: t.Any) -> Kind:
    kind = _drains.load(name)
    return kind(options_of(kind, **given), tools(seconds, Clock(), run, begun))


def drain_and_undo(name: str, run: Runner = real_run, **given: t.Any) -> Drained:
    """As the engine does it, with an interruption after the drain."""
    look = step(name, run=run, **given).look()
    done = step(name, run=run, **given).do()
    again = step(name, begun=True, run=run, **given)
    assert not look.done
    assert again.look().done
    again.do()
    assert again.look().done
    record = StepRecord(look.before, done.data, lost=False)
    return Drained(look, done.message, step(name, run=run, **given).undo(record))
