# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting for a step to be verified, within the time that is left. The clock is handed in."""

from __future__ import annotations

import typing as t

from ._clock import Clock
from ._errors import EventsError, WrongOption


class Late(EventsError):
    """It was not done in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, late=True)


class Proof(t.NamedTuple):
    """Whether a condition holds, and what was seen, in words."""

    holds: bool
    message: str


def forgiving(look: t.Callable[[], Proof]) -> t.Callable[[], Proof]:
    """The same look, but an error means that the condition does not hold yet."""

    def look_again() -> Proof:
        try:
            return look()
        except EventsError as exc:
            return Proof(False, exc.message.rstrip("."))

    return look_again


class Patience:
    """The time that a step has. `progress` is called with what is waited for."""

    def __init__(
        self, seconds: float, clock: Clock | None = None, progress: t.Callable[[str], None] | None = None
    ) -> None:
        if not 0 < seconds < 1e9:
            raise WrongOption("timeout has to be more than 0 seconds.")
        self.seconds = seconds
        self.clock = clock or Clock()
        self._progress = progress
        self._end = self.clock.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - self.clock.monotonic())

    def request_timeout(self, longest: float = 5.0) -> float:
        """What a single request may take. Never 0, which some functions take for no limit."""
        return max(0.1, min(longest, self.left))

    def part(self, seconds: float) -> Patience:
        """A part of the time that is left."""
        return Patience(max(0.1, min(seconds, self.left)), self.clock, self._progress)

    def until(self, look: t.Callable[[], Proof], pause: float = 0.5, lasting: float = 0.0) -> str:
        """Look until the condition has held for `lasting` seconds without a break. Returns what was seen."""
        since: float | None = None
        while True:
            begin = self.clock.monotonic()
            proof = look()
            now = self.clock.monotonic()
            since = (begin if since is None else since) if proof.holds else None
            if since is not None and now - since >= lasting:
                return proof.message
            if self._progress:
                self._progress(proof.message)
            if self.left <= 0:
                raise Late(self._late(proof, None if since is None else now - since, lasting))
            self.clock.sleep(min(pause, self.left))

    def _late(self, proof: Proof, held: float | None, lasting: float) -> str:
        if held is None:
            return f"After {self.seconds:.3g} s still: {proof.message}."
        return (
            f"{proof.message}, but only for {held:.0f} s of the {lasting:g} s that it has to last, and the time is "
            "over."
        )
