# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# It needs the standard library only, so that it can also be loaded by its path.

"""Text for the operator. Text from outside is cleaned here, and nowhere else."""

from __future__ import annotations

import re
import typing as t
import unicodedata
from datetime import datetime, timezone

LONGEST = 600
# Only so many characters of a text are cleaned at all, so that long texts take no time.
LARGEST = 20_000
# Control characters, marks that change the direction of text, lone surrogates, and what is not assigned.
_UNREADABLE = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
# The second is a header by which ansible-core before 2.19 takes other marks for templates in the text that follows.
_TEMPLATE = re.compile(r"\{(?=[{%#])|#(?=jinja2:)")
_SCHEME = r"\b[A-Za-z][A-Za-z0-9+.-]*://"
# Up to the last @ of the authority; a password may also have characters in it that end one, where no port can be meant.
_USERINFO = re.compile(rf"({_SCHEME})(?:[^\s/?#]*@|[^\s/?#@:]*:(?!\d*[/?#])\S*@)")
_QUERY = re.compile(rf"({_SCHEME}[^\s?#'\"]*)\?[^\s'\"]*")
_MASKED = re.compile(r"://(?:…@|[^\s?#'\"]*\?…)")


def clean(value: t.Any, limit: int = LONGEST) -> str:
    """The value as one line of text that neither a terminal nor a template acts on, and without the secrets of URLs."""
    text = masked(" ".join(_text(value)[:LARGEST].split()))
    if not text.isascii() or not text.isprintable():
        text = "".join("?" if unicodedata.category(char) in _UNREADABLE else char for char in text)
    text = _TEMPLATE.sub(lambda found: f"{found.group()} ", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def readable(text: str) -> str:
    """The lines of the text without characters that a terminal would act on."""
    return "".join("?" if unicodedata.category(char) in _UNREADABLE and char not in "\t\n\r" else char for char in text)


def _text(value: t.Any) -> str:
    try:
        return str(value)
    except (RecursionError, ValueError):
        # Nested too deeply, or a number of too many digits.
        return f"a {type(value).__name__} that cannot be shown"


def clean_all(value: t.Any, limit: int = LONGEST, depth: int = 12) -> t.Any:
    """JSON data with every text in it cleaned, keys included. What is not JSON, or nested too deeply, becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if abs(value) < 1e15 else clean(value, limit)
    if isinstance(value, str) or depth <= 0:
        return clean(value, limit)
    if isinstance(value, t.Mapping):
        return {clean(key, 200): clean_all(entry, limit, depth - 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_all(entry, limit, depth - 1) for entry in value]
    return clean(value, limit)


def masked(text: str) -> str:
    """The text without the user names, passwords and queries of the URLs in it."""
    return _QUERY.sub(r"\1?…", _USERINFO.sub(r"\1…@", text)) if "://" in text else text


def masked_all(value: t.Any) -> t.Any:
    """Options or other data with every text in it masked."""
    if isinstance(value, t.Mapping):
        return {key: masked_all(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_all(entry) for entry in value]
    return masked(value) if isinstance(value, str) else value


def is_masked(value: t.Any) -> bool:
    """Whether something of it was masked, so that it cannot be used as it is."""
    return _MASKED.search(str(value)) is not None


def quoted(value: t.Any, limit: int = 80) -> str:
    """The text between quotes that it cannot end, without escapes."""
    text = clean(value, limit)
    return f"'{text}'" if "'" not in text else '"' + text.replace('"', "'") + '"'


def listed(names: t.Sequence[t.Any], show: int = 5) -> str:
    """`web1, web2 and 3 more`."""
    shown = [clean(name, 80) for name in names[:show]]
    if len(names) > show:
        return f"{', '.join(shown)} and {len(names) - show} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def quoted_list(names: t.Sequence[t.Any], show: int = 5) -> str:
    more = f" and {len(names) - show} more" if len(names) > show else ""
    return ", ".join(quoted(name) for name in names[:show]) + more


def sentence(*reasons: str) -> str:
    """The reasons as one sentence with one full stop."""
    text = "; ".join(reason.rstrip(".") for reason in reasons)
    return text if text.endswith(("?", "!")) else text + "."


def is_or_are(names: t.Sequence[t.Any]) -> str:
    return "is" if len(names) == 1 else "are"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """`14 min 32 s`: the two largest units are enough to act on."""
    left, parts = max(0, int(seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2]) or "0 s"


def iso(moment: datetime | float) -> str:
    """ISO 8601 in UTC, of a time or of seconds since 1970."""
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, timezone.utc)
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
