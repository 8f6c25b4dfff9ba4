# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of options that an argument spec cannot make. Each returns what is wrong, or an empty text.

Values are never quoted, since they may be secret. None means that the option is not set.
"""

from __future__ import annotations

import re
import typing as t
import urllib.parse

from ._kind import WINDOWS
from ._text import clean

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# With a drive or as a UNC path, also with the prefix for long paths.
_WINDOWS_PATH = re.compile(
    r"""(\\\\\?\\)?[A-Za-z]:[\\/]{rest}*|(\\\\\?\\UNC\\|\\\\(?!\.\\)){name}+\\{name}+([\\/]{rest}*)?""".format(
        rest=r"""[^<>:"|?*\x00-\x1f]""", name=r"""[^\\/<>:"|?*\x00-\x1f]"""
    )
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Check = t.Callable[[str, t.Any], str]


def first(*mistakes: str) -> str:
    return next(filter(None, mistakes), "")


def text(name: str, value: t.Any) -> str:
    if value is None or (isinstance(value, str) and value.strip()):
        return ""
    return f"{name} has to be a string that is not empty."


def texts(name: str, value: t.Any) -> str:
    if value is None or (value and not any(text(name, each) or each is None for each in value)):
        return ""
    return f"{name} has to be a list of texts, none of them empty."


def entries(example: str, **checks: Check) -> Check:
    """A check of a list of dictionaries, by the names of their keys."""

    def check(name: str, value: t.Any) -> str:
        if not value:
            return f"{name} has to be a list of {example}."
        return first(*(each(f"{key} of {name}", entry[key]) for entry in value for key, each in checks.items()))

    return check


def is_absolute(platform: str, path: str) -> bool:
    """Whether it is an absolute path on a host of that platform."""
    if platform == WINDOWS:
        return bool(_WINDOWS_PATH.fullmatch(path))
    return path.startswith("/") and "\0" not in path


def sample_path(platform: str, name: str) -> str:
    return f"D:\\{name}" if platform == WINDOWS else f"/mnt/{name}"


def argv(name: str, value: t.Any) -> str:
    """Arguments may be empty, the program may not."""
    if value is None or (value and not text(name, value[0]) and all(isinstance(each, str) for each in value)):
        return ""
    return f"{name} has to be a list: the program, then its arguments."


def positive(name: str, value: t.Any, below: float = 1e9) -> str:
    if value is None or 0 < value < below:
        return ""
    return f"{name} has to be more than 0."


def port(name: str, value: t.Any) -> str:
    return "" if value is None or 0 < value < 65536 else f"{name} has to be a port number, 1 to 65535."


def ports(name: str, value: t.Any) -> str:
    if value and not any(port(name, each) for each in value):
        return ""
    return f"{name} has to be a list of port numbers, 1 to 65535."


def networks(name: str, value: t.Any) -> str:
    import ipaddress

    try:
        for each in value:
            ipaddress.ip_network(each, strict=False)
    except ValueError as exc:
        return f"{name} has to be a list of addresses or networks: {clean(exc, 200)}."
    return ""


def http_url(name: str, value: t.Any) -> str:
    if value is None:
        return ""
    wrong = f"{name} has to be a URL of http or https, such as http://127.0.0.1:8080/health."
    if not isinstance(value, str) or re.search(r"\s", value):
        return wrong
    try:
        parts = urllib.parse.urlsplit(value)
        host = (parts.hostname or "").encode("idna")
        port_is_wrong = parts.port == 0
    except ValueError:
        return wrong
    if parts.scheme not in ("http", "https") or not host or port_is_wrong:
        return wrong
    if "@" in parts.netloc:
        return f"{name} has a user name in it. Give it as username and password: those are kept secret."
    return ""


def headers(name: str, value: t.Any) -> str:
    for key, each in (value or {}).items():
        if not isinstance(key, str) or not _HEADER.fullmatch(key):
            return f"{name} has to be a dictionary of HTTP headers; one of its names cannot be that of a header."
        if isinstance(each, (dict, list)) or each is None or not re.fullmatch(r"[\t -~\x80-\xff]*", str(each)):
            return f"{name}: the value of {key} has to be one line of text."
    return ""


def task_file(name: str, value: t.Any) -> str:
    if value is None or re.fullmatch(r"\S.*\.ya?ml", value, re.DOTALL):
        return ""
    return f"{name} has to be a task file, whose name ends with .yml or .yaml."


def probe(name: str, value: t.Any) -> str:
    """What verifies that tasks have done their work."""
    if isinstance(value, bool) or not (texts if isinstance(value, list) else text)(name, value):
        return ""
    return f"{name} has to be a condition, a list of conditions, or a task file (.yml)."


def environment(name: str, value: t.Any) -> str:
    for key, each in (value or {}).items():
        if not isinstance(key, str) or not _VARIABLE.fullmatch(key):
            return f"{name} has to be a dictionary of variables; one of its names cannot be that of a variable."
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            return f"{name}: the value of {key} has to be a string. Put it into quotes."
    return ""
