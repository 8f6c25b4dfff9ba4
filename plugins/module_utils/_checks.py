# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what an operator wrote. Each error names the setting and what is allowed for it."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ._text import clean, quoted

# Three years: longer than any notice, and small enough for dates.
LONGEST_SECONDS = 100_000_000
# What Ansible takes for true and false.
YES = ("true", "yes", "on", "y", "t", "1")
NO = ("false", "no", "off", "n", "f", "0")


class WrongSetting(ValueError):
    """A setting of the operator or the playbook cannot be used."""


def refuse(where: str, wanted: str, value: t.Any) -> WrongSetting:
    return WrongSetting(f"{where} must be {wanted}, not {clean(repr(value), 60)}.")


def mapping(value: t.Any, where: str, allowed: t.Collection[str] | None = None) -> Mapping[str, t.Any]:
    if not isinstance(value, Mapping):
        raise refuse(where, "a dictionary", value)
    for key in value:
        if not isinstance(key, str) or (allowed is not None and key not in allowed):
            known = "" if allowed is None else f"; allowed are {', '.join(allowed)}"
            raise WrongSetting(f"{where} has the key {quoted(str(key))}, which is not known{known}.")
    return value


def sequence(value: t.Any, where: str) -> t.Sequence[t.Any]:
    if not isinstance(value, (list, tuple)):
        raise refuse(where, "a list", value)
    return value


def names(value: t.Any, where: str) -> tuple[str, ...]:
    """One name or a list of them."""
    several = (value,) if isinstance(value, str) else value
    if isinstance(several, (list, tuple)) and several and all(isinstance(name, str) and name for name in several):
        return tuple(several)
    raise refuse(where, "a name or a list of names", value)


def text(value: t.Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refuse(where, "a string", value)
    return value


def choice(value: t.Any, where: str, allowed: t.Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise refuse(where, f"one of {', '.join(allowed)}", value)
    return value


def boolean(value: t.Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word not in (*YES, *NO):
        raise refuse(where, "true or false", value)
    return word in YES


def is_number(value: t.Any) -> t.TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: t.Any, where: str, wanted: str = "a whole number of seconds") -> int:
    """A whole number that is not negative; also as text, as the command line gives it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not is_number(value) or not 0 <= value <= LONGEST_SECONDS:
        raise refuse(where, wanted, value)
    return value
