# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a kind of drain step or checkpoint is. Each kind is one file in `_drains/` or `_checkpoints/`."""

from __future__ import annotations

import importlib
import typing as t

from ._errors import EventsError
from ._patience import Patience
from ._text import clean, quoted

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
        """The last line of its output, cleaned: errors before anything else."""
        lines = (self.err.strip() or self.out.strip() or "no output").splitlines()
        return clean(lines[-1], 300)

    def succeeded(self, program: str) -> Ran:
        """The same, if it ended with 0. `program` is what a message calls it."""
        if self.code != 0:
            raise EventsError(f"{program} ended with {self.code}: {self.message}")
        return self


# Runs a program: run() of _run.py, or a stand-in.
Runner = t.Callable[..., Ran]


class Tools(t.NamedTuple):
    """What the engine hands to a kind."""

    # The time that is left for the step, and waiting within it.
    patience: Patience
    run: Runner
    # Whether an earlier attempt has begun this step already.
    begun: bool = False
    # For checkpoints: where archives go, and a file name that is this item's alone.
    directory: str = ""
    file_name: str = ""


class Found(t.NamedTuple):
    """How things are. `before` is recorded for undo; with in_service=False undo leaves everything as it is."""

    done: bool
    message: str
    before: Json


class Done(t.NamedTuple):
    """What was done and verified; `data` is recorded for undo."""

    message: str
    data: Json


class StepRecord(t.NamedTuple):
    """What the host's record says about a step that is to be undone. `lost` means that disks may have been lost."""

    before: Json
    data: Json
    lost: bool


def load_kind(package: str, class_name: str, nouns: str, names: t.Sequence[str], name: str) -> type[Kind]:
    """The class of a kind. A host imports only the kind that it needs."""
    if name not in names:
        raise EventsError(f"There is no kind {quoted(name)} of {nouns}. Kinds are: {', '.join(names)}.")
    return t.cast("type[Kind]", getattr(importlib.import_module(package + name), class_name))


class Kind:
    """The base of every kind. Options are an argument spec in which each option also has a description.

    An option that only some hosts can take has `platforms`, as a kind has.
    """

    summary = ""
    options: t.ClassVar[t.Mapping[str, t.Mapping[str, t.Any]]] = {}
    # required_one_of, required_together, mutually_exclusive, required_by, as in an argument spec.
    rules: t.ClassVar[t.Mapping[str, t.Any]] = {}
    # What an argument spec cannot say of an option, by its name: see _option_checks.py.
    checks: t.ClassVar[t.Mapping[str, t.Callable[[str, t.Any], str]]] = {}
    # The hosts that can do it. On Windows hosts the PowerShell file of that name does it: see CONTRIBUTING.
    platforms: t.ClassVar[tuple[str, ...]] = (LINUX, WINDOWS)
    # Undone only after the health checks have passed.
    carries_traffic = False
    # The controller takes the step, since it needs more than this host.
    by_controller = False
    # The controller also has to look up how it was before.
    looks_first = False

    def __init__(self, params: Options, tools: Tools) -> None:
        """`params` has a value for each option; secrets that were not given are missing."""
        self.params = params
        self.tools = tools

    @classmethod
    def mistake(cls, options: Options) -> str:
        """What is wrong with options that match the argument spec; empty if nothing is."""
        return next(filter(None, (check(name, options[name]) for name, check in cls.checks.items())), "")

    @classmethod
    def mistake_on(cls, platform: str, options: Options) -> str:
        """The same, for what depends on the platform, such as how a path begins."""
        return ""

    @classmethod
    def merged(cls, options: Options, before: Json, now: Json) -> Json:
        """How it was before the step, after an interruption: what the first attempt saw, and not what is seen now."""
        return before

    def look(self) -> Found:
        """Whether it is done already, and how it is now. Changes nothing. Checkpoints have no `look`."""
        raise EventsError(NOT_HERE)

    def do(self) -> Done:
        """Drain or save, and return when that is verified. It may be called again after an interruption."""
        raise EventsError(NOT_HERE)

    def undo(self, record: StepRecord) -> str:
        """Put back what was drained or lost, and return a message when that is verified. It may be called again."""
        raise EventsError(NOT_HERE)

    def is_saved(self, record: StepRecord) -> bool:
        """Of checkpoints: whether what was saved is still there."""
        return True

    def clean_up(self, record: StepRecord) -> None:
        """Remove what only undo needed. Called when everything on the host is undone. It may be called again."""
