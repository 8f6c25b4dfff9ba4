# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Why webhooks failed, in words without their secrets. Pure: standard library only, no I/O, no Ansible."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

# What the uri module says -> what the operator reads. Its own words may quote the URL, so they are never passed on.
REASONS = (
    (r"timed out|time frame|timeout", "no complete answer in time"),
    (r"refused", "the connection was refused"),
    (r"name or service not known|name resolution|nodename|getaddrinfo|no address", "its name is not known"),
    (r"certificate|ssl|tls", "its certificate or TLS was not accepted"),
    (r"unreachable|no route", "there is no way to it in the network"),
    (r"reset|aborted|closed|without response|remote end", "it closed the connection"),
    (r"url type|invalid url|invalid literal|nonnumeric port|control characters|no host given", "its URL is not valid"),
)


def problems(results: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """A line for each webhook that did not take the message; results are those of a loop over all webhooks."""
    return [
        f"webhook {number} of {len(results)}{_where(result)}: {reason}"
        for number, result in enumerate(results, 1)
        for reason in [_reason(result)]
        if reason
    ]


def _reason(result: t.Mapping[str, t.Any]) -> str:
    if result.get("skipped"):
        return ""
    status = result.get("status")
    if isinstance(status, int) and status > 0:
        if 200 <= status < 300:
            return ""
        return f"it answered HTTP {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
    told = str(result.get("msg", ""))
    return next((words for pattern, words in REASONS if re.search(pattern, told, re.IGNORECASE)), "it was not reached")


def _where(result: t.Mapping[str, t.Any]) -> str:
    """The host's name only: path, query and user name of a webhook are often its secret."""
    webhook = result.get("item")
    if not isinstance(webhook, t.Mapping):
        return ""
    try:
        address = urlsplit(str(webhook.get("url", "")))
        host = address.hostname or ""
        # A port that is none is the sign of a malformed address, whose host could be a part of a password.
        str(address.port)
    except ValueError:
        return ""
    return f" ({host})" if re.fullmatch(r"[a-z0-9.:-]{1,253}", host) else ""
