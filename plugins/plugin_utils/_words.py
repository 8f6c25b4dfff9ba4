# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Words for the operator. Text that came from outside is escaped and shortened, so that it can only be read."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone


def printable(text: str, limit: int = 80) -> str:
    """The text without anything a terminal or a template could act on."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    if text.isprintable() and "{" not in text and "}" not in text:
        return text
    return "".join(char if char.isprintable() and char not in "{}" else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted(text: str, limit: int = 80) -> str:
    return "'" + printable(text, limit).replace("'", "\\'") + "'"


def listed(names: t.Sequence[str], show: int = 5) -> str:
    """`web1, web2 and 3 more`."""
    shown = [printable(name) for name in names[:show]]
    if len(names) > show:
        return f"{', '.join(shown)} and {len(names) - show} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "nobody"


def quoted_list(names: t.Sequence[str], show: int = 5) -> str:
    more = f" and {len(names) - show} more" if len(names) > show else ""
    return ", ".join(quoted(name) for name in names[:show]) + more


def is_or_are(names: t.Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def in_words(seconds: int) -> str:
    """`14 min 32 s`: the two largest units are enough to act on."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def iso(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
