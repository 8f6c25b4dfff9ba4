# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The events as this VM sees them, and which of them a task asks for."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ._document import KNOWN_SOURCES, KNOWN_TYPES, Event, Filters, plain_name
from ._errors import WrongOption
from ._service import Reading, Service
from ._text import quoted

LISTS = ("event_ids", "event_types", "event_statuses", "event_sources")


def filter_options() -> dict[str, t.Any]:
    return {
        "event_ids": {"type": "list", "elements": "str", "aliases": ["event_id"]},
        "event_types": {"type": "list", "elements": "str"},
        "event_statuses": {"type": "list", "elements": "str"},
        "event_sources": {"type": "list", "elements": "str"},
        "only_mine": {"type": "bool", "default": False},
    }


def filters_of(params: t.Mapping[str, t.Any]) -> Filters:
    for name in LISTS:
        if not all(value.strip() for value in params[name] or ()):
            raise WrongOption(f"{name} has an empty entry, which no event matches. Leave it out to mean all events.")
    for status in params["event_statuses"] or ():
        if status.lower() not in ("scheduled", "started"):
            raise WrongOption(f"event_statuses has {quoted(status)}. Valid values are Scheduled and Started.")
    return Filters(**{name: params[name] or () for name in LISTS}, only_mine=params["only_mine"])


class Viewpoint:
    """The events as this VM sees them. The service is asked for the VM's Azure name once, if vm_name is not set."""

    def __init__(self, module: AnsibleModule, service: Service, known_name: str | None = None) -> None:
        self._module = module
        self._service = service
        given = module.params["vm_name"]
        if given is not None and not given.strip():
            raise WrongOption("vm_name is empty; leave it out to ask the service, or give the VM's Azure name.")
        self.vm_name: str | None = plain_name(given.strip()) if given else known_name
        self._warned: set[str] = set()
        for option, known in (("event_types", KNOWN_TYPES), ("event_sources", KNOWN_SOURCES)):
            for name in module.params.get(option) or ():
                if name.lower() not in [one.lower() for one in known]:
                    # Not an error: Azure may have added one since.
                    self._warn(f"{option} has {quoted(name)}, which is not known. Known are {', '.join(known)}.")

    def require_name(self, option: str) -> str:
        """This VM's name, for an option that needs it."""
        self.vm_name = self.vm_name or self._service.vm_name()
        if self.vm_name is None:
            raise WrongOption(
                f"{option} needs this VM's Azure name, which the service does not return (a classic VM?). Set vm_name."
            )
        return self.vm_name

    def look(self) -> tuple[Reading, list[Event]]:
        """The document, and its events as this VM sees them now."""
        reading, self.vm_name, events = self._service.look(self.vm_name)
        if self.vm_name is None:
            self._warn(
                "The service does not return this VM's Azure name (a classic VM?): vm_name and affects_me are null. "
                "Set vm_name to the VM's Azure name."
            )
        for oddity in reading.document.oddities:
            self._warn(oddity)
        return reading, events

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._module.warn(text)
