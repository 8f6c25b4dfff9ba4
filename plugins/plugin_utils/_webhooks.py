# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Webhooks: their options, what is news to them, and why posting failed. Pure: no I/O."""

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

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.graceful.azure.plugins.module_utils import _option_checks as check
from ansible_collections.graceful.azure.plugins.module_utils._document import parse_time, same_id
from ansible_collections.graceful.azure.plugins.module_utils._text import iso, quoted
from ansible_collections.graceful.azure.plugins.plugin_utils._report import BAD_RESULTS, Event, Report, read

Json = dict[str, t.Any]
Told = dict[str, dict[str, str]]

OCCASIONS = ("noticed", "deferred", "held", "approved", "restored", "failed", "finished")
FORMATS = ("json", "slack", "teams", "pagerduty")
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
# Once for each event, whichever run sees it; the other occasions once for each event and run.
TOLD_ONCE = ("noticed", "deferred")
REMEMBERED_FOR = timedelta(days=30)
# Which events an occasion is about; of the others, those with that outcome.
CONCERNS: dict[str, t.Callable[[Event], bool]] = {
    "noticed": lambda event: event.outcome not in ("ignored", "held_by_other_run"),
    "approved": lambda event: event.approved is not None,
    "restored": lambda event: event.outcome in ("completed", "cancelled", "drained"),
}

WEBHOOK_OPTIONS: dict[str, Json] = {
    "url": {
        "description": "Where to post to. Required, except for format pagerduty, which knows its own. It is treated as "
        "a secret, except for its host.",
        "type": "str",
        "no_log": True,
    },
    "format": {
        "description": "What the receiver understands: json has all fields, for a receiver of your own; slack is an "
        "incoming webhook of Slack, teams a workflow of Microsoft Teams; pagerduty opens an alert for each event that "
        "is noticed, held or failed, and closes it when the event is over and its hosts are restored. Leave noticed "
        "out of events if an event that is only notified should open none.",
        "type": "str",
        "choices": list(FORMATS),
        "default": "json",
    },
    "key": {
        "description": "The routing key of the PagerDuty service, a secret. Required for format pagerduty.",
        "type": "str",
        "no_log": True,
    },
    "events": {
        "description": "On which occasions to post. All but finished if not set.",
        "type": "list",
        "elements": "str",
        "choices": list(OCCASIONS),
    },
    "headers": {
        "description": "Headers to send along. They are treated as secrets.",
        "type": "dict",
        "no_log": True,
    },
    "timeout": {
        "description": "Seconds that the webhook may take in all, from looking up its name to its answer.",
        "type": "int",
        "default": 5,
    },
}
TYPES = {"str": "a text", "int": "a whole number", "float": "a number", "dict": "a dictionary", "list": "a list"}


def checked(item: t.Any, options: t.Mapping[str, Json], needs: str) -> tuple[str, Json]:
    """What is wrong with a webhook or a receiver, to be read after its name, or else all its options. No value is
    quoted: they may be secret."""
    if not isinstance(item, t.Mapping):
        return f"has to be a dictionary with {needs}.", {}
    unknown = [name for name in item if name not in options]
    if unknown:
        return f"has the key {quoted(unknown[0])}, which is not known; allowed are {', '.join(options)}.", {}
    given = {name: value for name, value in item.items() if value is not None}
    for name, spec in options.items():
        if name in given and ArgumentSpecValidator({name: spec}).validate({name: given[name]}).error_messages:
            choices = f" of {', '.join(spec['choices'])}" if "choices" in spec else ""
            wanted = "one" if choices and "elements" not in spec else TYPES[spec["type"]]
            return f"has a mistake in {name}: it has to be {wanted}{choices}.", {}
    return "", ArgumentSpecValidator(options).validate(given).validated_parameters


def read_webhook(item: t.Any) -> tuple[str, Json]:
    """What is wrong with a webhook, or else the webhook with every option set."""
    mistake, webhook = checked(item, WEBHOOK_OPTIONS, "a url")
    if mistake:
        return mistake, {}
    pagerduty = webhook["format"] == "pagerduty"
    webhook["url"] = webhook["url"] or (PAGERDUTY_URL if pagerduty else "")
    webhook["events"] = webhook["events"] or [occasion for occasion in OCCASIONS if occasion != "finished"]
    webhook["headers"] = webhook["headers"] or {}
    if pagerduty and not webhook["key"]:
        return "is of format pagerduty and needs the key of the PagerDuty service.", {}
    if not host_of(webhook["url"]):
        return "needs a url that begins with http:// or https:// and names a host.", {}
    mistake = check.positive("timeout", webhook["timeout"]) or check.headers("headers", webhook["headers"])
    return (f"has a mistake: {mistake}", {}) if mistake else ("", webhook)


def host_of(url: str) -> str:
    """The host's name only: path, query and user name of a webhook are often its secret. Empty if it is malformed."""
    try:
        address = urlsplit(url)
        host = address.hostname or ""
        # A port that is none is the sign of a malformed address, whose host could be a part of a password.
        str(address.port)
    except ValueError:
        return ""
    valid = address.scheme in ("http", "https") and re.fullmatch(r"[!-~]+", url)
    return host if valid and re.fullmatch(r"[a-z0-9._:-]{1,253}", host) else ""


# What is news


def news(data: t.Any, occasion: str, told: t.Any, now: datetime) -> list[str]:
    """The ids of the events for which the occasion was not told yet; "" stands for the run as a whole."""
    report = read(data)
    known = remembered(told, now)
    return [
        event_id
        for event_id in _concerned(report, occasion)
        if occasion == "finished" or _key(report, occasion) not in known.get(same_id(event_id), {})
    ]


def with_news(told: t.Any, data: t.Any, occasion: str, event_ids: t.Iterable[str], now: datetime) -> Told:
    """What was told, with this added and without what is long ago."""
    known = remembered(told, now)
    if occasion != "finished":
        for event_id in event_ids:
            known.setdefault(same_id(event_id), {})[_key(read(data), occasion)] = iso(now)
    return known


def remembered(told: t.Any, now: datetime) -> Told:
    """What a file says was told: {event id: {occasion: time}}. What is not readable, or too old, counts as not told."""
    kept: Told = {}
    for event_id, occasions in told.items() if isinstance(told, t.Mapping) else ():
        for occasion, at in occasions.items() if isinstance(occasions, t.Mapping) else ():
            moment = parse_time(at) if isinstance(at, str) else None
            if moment is not None and now - moment <= REMEMBERED_FOR:
                kept.setdefault(str(event_id), {})[str(occasion)] = at
    return kept


def _key(report: Report, occasion: str) -> str:
    return occasion if occasion in TOLD_ONCE else f"{occasion} {report.run.run_id}"


def _concerned(report: Report, occasion: str) -> list[str]:
    """Which events the occasion is about."""
    concerns = CONCERNS.get(occasion) or (lambda event: event.outcome == occasion)
    ids = {same_id(event.event_id): event.event_id for event in report.events if concerns(event)}
    if occasion in ("noticed", "deferred", "held", "approved"):
        return list(ids.values())
    # Hosts also restore, or fail to restore, what is left of an event that is no longer announced.
    bad = {same_id(one): one for host in report.hosts if host.result in BAD_RESULTS for one in host.events}
    good = {same_id(one): one for host in report.hosts if host.result == "restored" for one in host.events}
    if occasion == "failed":
        ids = {**bad, **ids}
    elif occasion == "restored":
        ids = {**{key: one for key, one in good.items() if key not in bad}, **ids}
    return list(ids.values()) or [""]


# What went wrong


def problem(number: int, count: int, url: str, reason: str) -> str:
    """A line about a webhook that did not take the message, without its secrets."""
    host = host_of(url)
    return f"webhook {number} of {count}{f' ({host})' if host else ''} {reason}"


LATE = "gave no complete answer in time"


def failure(exc: BaseException) -> str:
    """Why posting failed, to be read after the webhook's name. An exception's own words may quote the URL."""
    if isinstance(exc, urllib.error.HTTPError):
        redirected = ", and redirects are not followed" if 300 <= exc.code < 400 else ""
        return f"answered HTTP {exc.code}{redirected}"
    if isinstance(exc, urllib.error.URLError) and isinstance(exc.reason, BaseException):
        return failure(exc.reason)
    # The first that fits counts: a broken connection is an OSError, too.
    for kinds, reason in (
        (TimeoutError, LATE),
        (ssl.SSLError, "has a certificate or TLS that was not accepted"),
        (socket.gaierror, "has a name that is not known"),
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
