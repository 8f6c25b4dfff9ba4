# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turns a broken connection or an answer other than 200 into an error with advice. Loaded only when there is one."""

from __future__ import annotations

import json
import math
import os
import pwd
import typing as t
from datetime import datetime

from ._connection import NoAnswer, NotConnected
from ._document import parse_time
from ._errors import NoConnection, PassingFailure, Refused
from ._text import clean, quoted

if t.TYPE_CHECKING:
    from ._transport import Reply, Request

PASSING_STATUSES = (410, 429, 500, 502, 503, 504)
RETRY_AFTER_LEAST, RETRY_AFTER_MOST = 1.0, 30.0
PROXY_AGENT_LOG = "/var/lib/azure-proxy-agent/ProxyAgent.Connection.log"


def of_exchange(request: Request, exc: BaseException) -> PassingFailure:
    """What it means that there is no answer. NoConnection means that certainly nothing was sent."""
    where, late = request.where, isinstance(exc, NoAnswer) and exc.late
    if late and isinstance(exc, NotConnected):
        return NoConnection(
            f"{where} did not accept the connection within {request.connect_timeout:g} s. Is this an Azure VM with its "
            "primary network interface up, and is the address not blocked by a firewall or routed elsewhere?"
        )
    if late:
        return PassingFailure(
            f"{where} did not finish its answer within {request.total_timeout:.3g} s. The first request of a VM may "
            "take two minutes: leave read_timeout above 120 for it."
        )
    while exc.__context__ is not None and not isinstance(exc, NoAnswer):
        # requests and urllib3 wrap what http.client says of an answer that is no HTTP.
        exc = exc.__context__
    cause = clean(exc)
    if isinstance(exc, NotConnected):
        return NoConnection(
            f"{where} cannot be reached ({cause}). Check that this is an Azure VM, and that endpoint is correct."
        )
    return PassingFailure(f"{where} closed the connection ({cause}).")


def of_answer(request: Request, reply: Reply, now: datetime) -> Refused | PassingFailure:
    """What an answer other than 200 means."""
    error, versions = _error_body(reply.body)
    answered = f"{request.where} answered {request.method} {request.path} with {reply.status}{error}."
    if reply.status in PASSING_STATUSES:
        return PassingFailure(answered, reply.status, _retry_after(reply, now))
    if 300 <= reply.status < 400:
        target = quoted(reply.headers.get("Location", "nowhere"), 200)
        return Refused(
            f"{answered} It redirects to {target}, which the metadata service never does and which is not followed. "
            "Check endpoint, and what answers at that address.",
            reply.status,
        )
    if reply.status in (401, 403):
        return Refused(f"{answered} {_not_allowed()}", reply.status)
    if versions:
        return Refused(
            f"{answered} Set api_version to one that it offers: {', '.join(versions)}; or to auto.", reply.status
        )
    version = quoted(request.query.get("api-version", ""), 40)
    advice = {
        400: f"It refuses the request as it is. If it does not know api_version {version}, set api_version to auto for "
        "the newest that it has; otherwise check that endpoint is Azure's metadata service.",
        404: f"It does not have api_version {version}: set api_version to auto for the newest that it "
        "has. If it has none, this is not the metadata service: check endpoint.",
    }
    return Refused(
        f"{answered} {advice.get(reply.status, 'Check that endpoint is the metadata service.')}", reply.status
    )


def _not_allowed() -> str:
    uid = os.geteuid()
    try:
        user = f"{quoted(pwd.getpwuid(uid).pw_name)} (uid {uid})"
    except KeyError:
        user = f"with uid {uid}"
    return (
        "The Metadata Security Protocol is enforced on this VM: its guest proxy agent lets only allowed users, groups "
        f"and processes through, and this request came from the user {user}. Allow it in the agent's rules, or run "
        f"the task as a user that is allowed. The agent logs what it refuses in {PROXY_AGENT_LOG}."
    )


def _error_body(body: bytes) -> tuple[str, list[str]]:
    """The error that the service gives, quoted, and the versions that it offers instead."""
    try:
        content = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return "", []
    if not isinstance(content, dict):
        return "", []
    error, versions = content.get("error"), content.get("newest-versions")
    text = f" ({quoted(error, 300)})" if isinstance(error, str) and error else ""
    return text, [clean(version, 40) for version in versions[:20]] if isinstance(versions, list) else []


def _retry_after(reply: Reply, now: datetime) -> float | None:
    value = reply.headers.get("Retry-After")
    if value is None:
        return None
    moment = parse_time(value)
    try:
        seconds = float(value) if moment is None else (moment - now).total_seconds()
    except ValueError:
        return None
    return min(max(seconds, RETRY_AFTER_LEAST), RETRY_AFTER_MOST) if not math.isnan(seconds) else None
