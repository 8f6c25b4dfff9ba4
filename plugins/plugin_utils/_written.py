# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What users write for a host, looked at before anything is touched. Pure: task files are not opened here."""

from __future__ import annotations

import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils import _checks as check
from ansible_collections.graceful.azure.plugins.plugin_utils._drain_steps import WrongStep, checked

CHECKPOINTS = {
    "paths": ("paths",),
    "command": ("argv",),
    "tasks": ("file", "probe"),
    "postgresql": (),
    "redis": (),
}
CHECKPOINT_KEYS = ("name", "kind", "timeout", "paths", "to", "argv", "become_user", "file", "probe")
HEALTH = ("port", "url", "argv")
OCCASIONS = ("noticed", "held", "approved", "restored", "failed", "finished")


def host_mistake(variables: t.Mapping[str, t.Any]) -> str:
    """The first mistake that would keep the host from being drained, saved or put back; empty if there is none."""
    return _first(
        (_drain_steps, variables, "graceful_drain_steps"),
        (_checkpoint, variables, "graceful_checkpoint"),
        (_health, variables, "graceful_health"),
    )


def webhook_mistake(variables: t.Mapping[str, t.Any]) -> str:
    return _first((_webhooks, variables, "graceful_webhooks"))


def _first(*looks: tuple[t.Callable[[t.Any, str], None], t.Mapping[str, t.Any], str]) -> str:
    for look, variables, name in looks:
        try:
            given = variables.get(name)
            if given is not None:
                look(given, name)
        except (check.WrongSetting, WrongStep) as exc:
            return str(exc) if name in str(exc) else f"{name}: {exc}"
        except Exception:
            # It refers to what is known only when it is used, such as the event.
            continue
    return ""


def _drain_steps(given: t.Any, _name: str) -> None:
    checked(given)


def _checkpoint(given: t.Any, name: str) -> None:
    seen: set[str] = set()
    for number, item in enumerate(check.sequence(given, name)):
        where = f"{name}[{number}]"
        check.mapping(item, where, CHECKPOINT_KEYS)
        kind = check.choice(item.get("kind"), f"The kind of {where}", tuple(CHECKPOINTS))
        own = check.text(item.get("name"), f"The name of {where}")
        if own in seen:
            raise check.WrongSetting(f"{where} has the same name as one before it.")
        seen.add(own)
        for key in CHECKPOINTS[kind]:
            if not item.get(key):
                raise check.WrongSetting(f"{where} is of kind {kind} and needs {key}.")
        if kind == "paths" and not all(str(path).startswith("/") for path in check.names(item["paths"], where)):
            raise check.refuse(f"The paths of {where}", "absolute", item["paths"])
        _demand_timeout(item, where)


def _health(given: t.Any, name: str) -> None:
    for number, item in enumerate(check.sequence(given, name)):
        where = f"{name}[{number}]"
        check.mapping(item, where, (*HEALTH, "timeout"))
        if sum(bool(item.get(key)) for key in HEALTH) != 1:
            raise check.WrongSetting(f"{where} needs exactly one of {', '.join(HEALTH)}.")
        _demand_timeout(item, where)


def _demand_timeout(item: t.Mapping[str, t.Any], where: str) -> None:
    if item.get("timeout") is not None and not check.number(item["timeout"], f"The timeout of {where}"):
        raise check.refuse(f"The timeout of {where}", "more than 0", item["timeout"])


def _webhooks(given: t.Any, name: str) -> None:
    """Values are never quoted: they may be secret."""
    if not isinstance(given, (list, tuple)):
        raise check.WrongSetting(f"{name} must be a list.")
    for number, item in enumerate(given):
        where = f"{name}[{number}]"
        if not isinstance(item, t.Mapping):
            raise check.WrongSetting(f"{where} must be a mapping.")
        check.mapping(item, where, ("url", "events", "headers", "timeout"))
        if not str(item.get("url") or "").startswith(("http://", "https://")):
            raise check.WrongSetting(f"{where} needs a url of http or https.")
        for event in check.names(item.get("events") or OCCASIONS, f"The events of {where}"):
            check.choice(event, f"The events of {where}", OCCASIONS)
        if not isinstance(item.get("headers") or {}, t.Mapping):
            raise check.WrongSetting(f"The headers of {where} must be a mapping.")
        _demand_timeout(item, where)
