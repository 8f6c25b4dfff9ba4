# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What a kind of drain step or checkpoint is. Each kind is one file in `_drains/` or `_checkpoints/`."""

from __future__ import annotations

import typing as t

from ._errors import EventsError
from ._patience import Patience

LINUX, WINDOWS = "linux", "windows"
NOT_HERE = "a Linux host cannot do that: its kind is for Windows hosts. Correct the step's kind"
Options = t.Mapping[str, t.Any]
Json = t.Dict[str, t.Any]


class Ran(t.NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The last line of what it said."""
        said = (self.err.strip() or self.out.strip() or "it said nothing").splitlines()
        return said[-1].strip()


class Runner(t.Protocol):
    """Runs a program without a shell, for no longer than `seconds`. Raises EventsError if it cannot be run or hangs."""

    def __call__(
        self,
        argv: t.Sequence[str],
        seconds: float,
        user: str | None = None,
        environment: t.Mapping[str, str] | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Ran: ...


class Tools(t.NamedTuple):
    """What the engine hands to a kind."""

    patience: Patience
    run: Runner
    # Whether an earlier attempt has begun this step already.
    begun: bool = False
    # For checkpoints: where archives go, and a file name that is this item's alone.
    directory: str = ""
    file_name: str = ""


class Look(t.NamedTuple):
    """How things are. `before` is what undo has to know; with in_service=False undo leaves everything as it is."""

    done: bool
    message: str
    before: Json


class Done(t.NamedTuple):
    """What was done and verified; `data` is noted for undo."""

    message: str
    data: Json


class Noted(t.NamedTuple):
    """What the record says about a step that is to be undone. `lost` means that disks may have been lost."""

    before: Json
    data: Json
    lost: bool


def noted_names(before: Json, key: str) -> list[str]:
    names = before.get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


class Kind:
    """The base of every kind. Options are an argument spec in which each option also has a description.

    An option that only some hosts can take has `platforms`, as a kind has.
    """

    summary = ""
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {}
    # required_one_of, required_together, mutually_exclusive, required_by, as in an argument spec.
    rules: t.ClassVar[t.Mapping[str, t.Any]] = {}
    # Of _option_checks.py, by the name of the option: what an argument spec cannot say of it.
    checks: t.ClassVar[t.Mapping[str, t.Callable[[str, t.Any], str]]] = {}
    # The hosts that can do it. On Windows hosts the PowerShell file of that name does it: see CONTRIBUTING.
    platforms: t.ClassVar[tuple[str, ...]] = (LINUX, WINDOWS)
    # Undone only after the health checks have passed.
    carries_traffic = False
    # The controller takes the step: it reaches beyond the host.
    by_controller = False
    # How it was before has to be looked up by the controller, too.
    looks_first = False

    def __init__(self, options: Options, tools: Tools) -> None:
        self.given = options
        self.tools = tools

    @classmethod
    def mistake(cls, options: Options) -> str:
        """What is wrong with options that fit the argument spec, in words; empty if nothing is."""
        return next(filter(None, (check(name, options[name]) for name, check in cls.checks.items())), "")

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        """The same, for what only counts on hosts of that platform, such as how a path begins."""
        return ""

    @classmethod
    def merged(cls, options: Options, before: Json, now: Json) -> Json:
        """How it was before anything was done: what an earlier, interrupted attempt has seen goes first."""
        return before

    def look(self) -> Look:
        """Not for checkpoints: they are made for each event."""
        raise EventsError(NOT_HERE)

    def do(self) -> Done:
        raise EventsError(NOT_HERE)

    def undo(self, noted: Noted) -> str:
        raise EventsError(NOT_HERE)

    def is_saved(self, noted: Noted) -> bool:
        """Of checkpoints: whether what was saved is still there."""
        return True

    def clean_up(self, noted: Noted) -> None:
        """Remove what only undo needed. Called when everything on the host is undone; it may be called again."""
