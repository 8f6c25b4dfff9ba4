# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Polls metadata services, and makes the messages that the watcher would send.

It keeps nothing on disk: after a restart, what is announced then is sent again.
"""

from __future__ import annotations

import math
import socket
import typing as t

from ..module_utils._client import Sender
from ..module_utils._clock import Clock
from ..module_utils._errors import EventsError, PassingFailure, WrongOption
from ..module_utils._service import Service, service_of
from ..module_utils._text import clean, quoted, quoted_list
from ..module_utils._watcher.changes import Source, compare, message
from ..module_utils._watcher.watcher import FIRST_LIMITS, LIMITS, REFUSED_PAUSE, SAY_AGAIN

Json = dict[str, t.Any]
Log = t.Callable[[str], None]
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.2, 3600.0
MOST_SERVICES = 200
OPTIONS = ("services", "poll_interval", "api_version")
SERVICE_OPTIONS = ("host", "endpoint", "vm_name")


class Place(t.NamedTuple):
    """One metadata service, and the host that it belongs to."""

    host: str
    endpoint: str = "auto"
    vm_name: str | None = None


class Options(t.NamedTuple):
    services: t.Sequence[Place]
    poll_interval: float = 1.0
    api_version: str = "2020-07-01"


def read_options(args: t.Mapping[str, t.Any]) -> Options:
    """Raises WrongOption with what is wrong."""
    check_names(args, OPTIONS, "graceful.azure.scheduled_events")
    interval = args.get("poll_interval", 1.0)
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or not math.isfinite(interval):
        raise WrongOption(f"poll_interval is {quoted(interval)}; give seconds, such as 1.")
    if not SHORTEST_INTERVAL <= interval <= LONGEST_INTERVAL:
        raise WrongOption(f"poll_interval is {interval:g}; give {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g} seconds.")
    version = args.get("api_version", "2020-07-01")
    if not isinstance(version, str) or not version.strip():
        raise WrongOption(f"api_version is {quoted(version)}; give one such as 2020-07-01 in quotes, or auto.")
    return Options(_places(args.get("services")), float(interval), version.strip())


def check_names(args: t.Mapping[str, t.Any], known: t.Sequence[str], whose: str) -> None:
    """An option that does not exist is a spelling mistake. Names with eda_ belong to ansible-rulebook."""
    unknown = [name for name in args if name not in known and not str(name).startswith("eda_") and name != "feedback"]
    if unknown:
        raise WrongOption(f"{whose} has no option {quoted_list(unknown)}. It has {', '.join(known)}.")


def _places(services: t.Any) -> list[Place]:
    if services is None:
        return [Place(socket.gethostname())]
    if not isinstance(services, list) or not services or not all(isinstance(one, dict) for one in services):
        raise WrongOption("services has to be a list of mappings, each with host and endpoint.")
    if len(services) > MOST_SERVICES:
        raise WrongOption(
            f"services has {len(services)} entries. More than {MOST_SERVICES} are not polled from one place: "
            "put the role graceful.azure.watcher on the hosts."
        )
    places = [_place(one) for one in services]
    if len({place.host for place in places}) < len(places):
        raise WrongOption("services names a host more than once.")
    return places


def _place(service: Json) -> Place:
    check_names(service, SERVICE_OPTIONS, "An entry of services")
    wrong = [name for name, value in service.items() if not isinstance(value, str) or not value.strip()]
    if wrong or "host" not in service:
        raise WrongOption(f"An entry of services needs texts: host, endpoint, vm_name. Wrong: {quoted_list(wrong)}.")
    return Place(**{name: value.strip() for name, value in service.items()})


class Polled:
    """One metadata service, and the events that are known of it."""

    def __init__(self, place: Place, options: Options, transport: Sender, log: Log, clock: Clock | None = None) -> None:
        self.place = place
        self._interval = options.poll_interval
        self._log = log
        self._clock = clock or Clock()
        self._vm_name = place.vm_name
        self._known: dict[str, Json] = {}
        self._sequence = 0
        self._answered = False
        self._logged: tuple[str, float] | None = None
        connection = {**FIRST_LIMITS._asdict(), "endpoint": place.endpoint, "api_version": options.api_version}
        self._service: Service = service_of(connection, transport)

    def look(self) -> tuple[list[Json], float]:
        """The messages about what has changed, and the seconds until the next look. It blocks while it reads."""
        try:
            return self._messages(), self._interval
        except EventsError as exc:
            self._log_once(f"{self.place.host}: the events cannot be read: {exc.message}")
            pause = (exc.retry_after or 0.0) if isinstance(exc, PassingFailure) else REFUSED_PAUSE
            return [], max(pause, self._interval)
        except Exception as exc:
            # It must go on polling, whatever one answer was like.
            self._log_once(f"{self.place.host}: an error of the event source itself: {exc!r:.300}")
            return [], max(REFUSED_PAUSE, self._interval)

    def _messages(self) -> list[Json]:
        _reading, self._vm_name, events = self._service.look(self._vm_name)
        if not self._answered:
            self._service.client.limits = LIMITS
            self._answered = True
            self._log(f"{self.place.host}: watching {self._service.endpoint}, Azure name {clean(self._vm_name)}.")
        if self._logged:
            self._logged = None
            self._log(f"{self.place.host}: the events can be read again.")
        now = self._clock.utc_now().timestamp()
        changes, self._known = compare(self._known, events, self._clock.monotonic(), now)
        source = Source(self.place.host, self._vm_name, kind="scheduled_events")
        made = []
        for change in changes:
            made.append(message(change, source, self._sequence, now))
            self._sequence += 1
        return made

    def _log_once(self, text: str) -> None:
        """The same text is logged again only after an hour."""
        now = self._clock.monotonic()
        if self._logged is None or self._logged[0] != text or now - self._logged[1] > SAY_AGAIN:
            self._logged = (text, now)
            self._log(clean(text))
