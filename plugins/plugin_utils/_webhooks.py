# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Webhooks: their options, which events they have not got yet, and why posting failed. Pure: no I/O."""

from __future__ import annotations

import errno
import http.client
import re
import socket
import ssl
import typing as t
import urllib.error
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from ansible_collections.graceful.azure.plugins.modules import report_webhooks

from ..module_utils import _option_checks as check
from ..module_utils._checks import WrongSetting
from ..module_utils._document import parse_time, same_id
from ..module_utils._text import iso
from ._options import documented, validated
from ._report import BAD_RESULTS, Event, Report, read

Json = dict[str, t.Any]
Sent = dict[str, dict[str, str]]

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
# Once for each event, whichever run sees it; the other occasions once for each event and run.
SENT_ONCE = ("noticed", "deferred")
KEPT_FOR = timedelta(days=30)
# Which events an occasion is about; of the others, those with that outcome.
CONCERNS: dict[str, t.Callable[[Event], bool]] = {
    "noticed": lambda event: event.outcome not in ("ignored", "held_by_other_run"),
    "approved": lambda event: event.approved is not None,
    "restored": lambda event: event.outcome in ("completed", "cancelled", "drained"),
}

OPTIONS: Json = documented(report_webhooks)["webhooks"]["suboptions"]


def read_webhook(item: t.Any, where: str) -> Json:
    """The webhook with every option set. Raises WrongSetting, which quotes no value."""
    webhook = validated(item, OPTIONS, where)
    pagerduty = webhook["format"] == "pagerduty"
    webhook["url"] = webhook["url"] or (PAGERDUTY_URL if pagerduty else "")
    webhook["events"] = webhook["events"] or [one for one in OPTIONS["events"]["choices"] if one != "finished"]
    webhook["headers"] = webhook["headers"] or {}
    mistake = check.first(
        "key is missing, the routing key of the PagerDuty service." if pagerduty and not webhook["key"] else "",
        "" if host_of(webhook["url"]) else "url has to begin with http:// or https:// and to name a host.",
        check.positive("timeout", webhook["timeout"]),
        check.headers("headers", webhook["headers"]),
    )
    if mistake:
        raise WrongSetting(f"{where}: {mistake}")
    return webhook


def host_of(url: str) -> str:
    """Only the name of the host, because the rest of the URL may be secret. Empty if the URL is malformed."""
    try:
        address = urlsplit(url)
        host = address.hostname or ""
        # Raises ValueError if the port is not a number: then the host could be a part of a password.
        str(address.port)
    except ValueError:
        return ""
    valid = address.scheme in ("http", "https") and re.fullmatch(r"[!-~]+", url)
    return host if valid and re.fullmatch(r"[a-z0-9._:-]{1,253}", host) else ""


# Which events are unsent


def unsent(data: t.Any, occasion: str, sent: t.Any, now: datetime) -> list[str]:
    """The ids of the events for which no message about the occasion was sent; "" stands for the whole run."""
    report = read(data)
    known = recent(sent, now)
    return [
        event_id
        for event_id in _events_of(report, occasion)
        if occasion == "finished" or _key(report, occasion) not in known.get(same_id(event_id), {})
    ]


def with_sent(sent: t.Any, data: t.Any, occasion: str, event_ids: t.Iterable[str], now: datetime) -> Sent:
    """What was sent, with this message and without old ones."""
    known = recent(sent, now)
    if occasion != "finished":
        for event_id in event_ids:
            known.setdefault(same_id(event_id), {})[_key(read(data), occasion)] = iso(now)
    return known


def recent(sent: t.Any, now: datetime) -> Sent:
    """The valid and recent entries of what was sent: {event id: {occasion: time}}."""
    kept: Sent = {}
    for event_id, occasions in sent.items() if isinstance(sent, t.Mapping) else ():
        for occasion, at in occasions.items() if isinstance(occasions, t.Mapping) else ():
            moment = parse_time(at) if isinstance(at, str) else None
            if moment is not None and now - moment <= KEPT_FOR:
                kept.setdefault(str(event_id), {})[str(occasion)] = at
    return kept


def _key(report: Report, occasion: str) -> str:
    return occasion if occasion in SENT_ONCE else f"{occasion} {report.run.run_id}"


def _events_of(report: Report, occasion: str) -> list[str]:
    """The events that the occasion is about."""
    concerns = CONCERNS.get(occasion) or (lambda event: event.outcome == occasion)
    ids = {same_id(event.event_id): event.event_id for event in report.events if concerns(event)}
    if occasion in ("noticed", "deferred", "held", "approved"):
        return list(ids.values())
    # Hosts are also restored after an event that is no longer announced.
    bad = {same_id(one): one for host in report.hosts if host.result in BAD_RESULTS for one in host.events}
    good = {same_id(one): one for host in report.hosts if host.result == "restored" for one in host.events}
    if occasion == "failed":
        ids = {**bad, **ids}
    elif occasion == "restored":
        ids = {**{key: one for key, one in good.items() if key not in bad}, **ids}
    return list(ids.values()) or [""]


# What went wrong


def name_of(number: int, count: int, item: t.Any) -> str:
    """The name of a webhook in messages, without its secrets."""
    host = host_of(str(item.get("url"))) if isinstance(item, t.Mapping) else ""
    return f"webhook {number} of {count}{f' ({host})' if host else ''}"


LATE = "gave no complete answer in time"


def failure(exc: BaseException) -> str:
    """Why posting failed, to follow the name of the webhook. The text of the exception could contain the URL."""
    if isinstance(exc, urllib.error.HTTPError):
        redirected = ", and redirects are not followed" if 300 <= exc.code < 400 else ""
        return f"answered HTTP {exc.code}{redirected}"
    if isinstance(exc, urllib.error.URLError) and isinstance(exc.reason, BaseException):
        return failure(exc.reason)
    # The order matters: many of these are also an OSError.
    for kinds, reason in (
        (TimeoutError, LATE),
        (ssl.SSLError, "has a certificate or TLS that was not accepted"),
        (socket.gaierror, "has a host name that cannot be resolved"),
        (ConnectionRefusedError, "refused the connection"),
        ((ConnectionError, http.client.IncompleteRead), "closed the connection"),
        ((http.client.InvalidURL, UnicodeError), "has a URL that is not valid"),
        (http.client.HTTPException, "gave an answer that is not HTTP"),
    ):
        if isinstance(exc, t.cast(t.Any, kinds)):
            return reason
    if isinstance(exc, OSError) and exc.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "cannot be reached in the network"
    return "was not reached"
