# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can go wrong between a host and its metadata service, each with what to do about it."""

from __future__ import annotations

import typing as t


class EventsError(Exception):
    """A message for the operator, plus the fields that a module returns beside it."""

    def __init__(self, message: str, **fields: t.Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return self.message


class WrongOption(EventsError):
    """An option has a value that cannot be used."""


class Refused(EventsError):
    """The service answered, and asking again would not change its answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class PassingFailure(EventsError):
    """A failure that may not last, so that another try makes sense."""

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class NoConnection(PassingFailure):
    """No connection could be made, so nothing was sent; with C(endpoint=auto) another address may have the service."""
