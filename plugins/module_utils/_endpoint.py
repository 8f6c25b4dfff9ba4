# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the metadata service is: the endpoint of the options, the address in every VNet, or the one from DHCP."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ._errors import WrongOption
from ._text import clean, quoted

VNET_ENDPOINT = "http://169.254.169.254"


def checked(endpoint: str) -> str:
    """The endpoint as the client uses it. Raises WrongOption with what is wrong with it."""
    try:
        parts = urlsplit(endpoint.strip())
        port, host = parts.port, parts.hostname or ""
    except ValueError as exc:
        raise _wrong(endpoint, f"is not a URL ({exc})") from exc
    if parts.scheme.lower() != "http":
        found = f"has the scheme {parts.scheme}" if parts.scheme else "has no scheme"
        raise _wrong(endpoint, f"{found}; the metadata service speaks plain http")
    if parts.username is not None or parts.password is not None:
        raise _wrong(endpoint, "has a user name or password, which the service does not ask for")
    if not re.fullmatch(r"[A-Za-z0-9._:%-]+", host):
        raise _wrong(endpoint, "names no host")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _wrong(endpoint, "has more than a host")
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}" if port is None else f"http://{host}:{port}"


def _wrong(endpoint: str, why: str) -> WrongOption:
    return WrongOption(
        f"endpoint {quoted(endpoint, 200)} {clean(why)}. "
        "Give the scheme and host only, such as http://169.254.169.254 or http://127.0.0.1:8080, or auto."
    )


def lease_endpoints() -> list[str]:
    """The endpoints from DHCP. The code is loaded only when they are needed."""
    from . import _leases

    return _leases.lease_endpoints()
