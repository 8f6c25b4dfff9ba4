# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses what Azure Event Grid sends about scheduled events, and makes the answers. Pure: no I/O.

Nothing that it sends is signed, and anybody who knows the secret in the URL can send anything: every field is checked.
The messages are those that the watcher would send.
"""

from __future__ import annotations

import itertools
import json
import re
import typing as t
from collections import OrderedDict

from ..module_utils._clock import Clock
from ..module_utils._document import BrokenDocument, Event, load_json, parse, same_id, seen_by
from ..module_utils._errors import WrongOption
from ..module_utils._text import clean, count, quoted
from ..module_utils._watcher.changes import GONE, Change, Source, compare, message
from ._polling import check_names

Json = dict[str, t.Any]
SCHEDULED_EVENT = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
# Statuses that only Event Grid has. In the metadata service the event leaves the document.
OVER = {"completed": "completed", "canceled": "cancelled", "cancelled": "cancelled"}
# Event Grid sends at most one MiB at a time.
LARGEST_BODY = 2 << 20
# How many ids and events are remembered.
REMEMBERED = 20_000
SOURCE = Source("", kind="event_grid")
OPTIONS = ("host", "port", "secret", "certfile", "keyfile", "subscriptions")
SECRET = re.compile(r"[A-Za-z0-9_-]{20,200}")
ORIGIN = re.compile(r"[A-Za-z0-9.-]{1,253}")
RATE = re.compile(r"[0-9]{1,9}|\*")


class Options(t.NamedTuple):
    secret: str
    port: int
    host: str = "127.0.0.1"
    certfile: str | None = None
    keyfile: str | None = None
    # Azure subscriptions; empty means all.
    subscriptions: t.Sequence[str] = ()


class Answer(t.NamedTuple):
    status: int
    content: Json
    messages: t.Sequence[Json] = ()
    # A line for the log, or nothing.
    log: str = ""


class NotUsable(ValueError):
    """An entry that is no scheduled event, or is not complete."""


def read_options(args: t.Mapping[str, t.Any]) -> Options:
    """Raises WrongOption with what is wrong. The secret is not shown."""
    check_names(args, OPTIONS, "graceful.azure.event_grid")
    options = {name: args[name] for name in OPTIONS if args.get(name) is not None}
    secret = options.get("secret")
    if not isinstance(secret, str) or not SECRET.fullmatch(secret):
        raise WrongOption("secret has to be 20 to 200 letters, digits, - and _: it is the path of the URL.")
    try:
        options["port"] = int(str(options.get("port")))
    except ValueError:
        options["port"] = 0
    if not 1 <= options["port"] <= 65535:
        raise WrongOption(f"port is {quoted(args.get('port'))}; give a number from 1 to 65535.")
    for name in ("host", "certfile", "keyfile"):
        if name in options and (not isinstance(options[name], str) or not options[name].strip()):
            raise WrongOption(f"{name} is {quoted(options[name])}; give a string.")
    if "keyfile" in options and "certfile" not in options:
        raise WrongOption("keyfile is given without certfile.")
    subscriptions = options.get("subscriptions", [])
    if not isinstance(subscriptions, list) or not all(isinstance(one, str) and one.strip() for one in subscriptions):
        raise WrongOption("subscriptions has to be a list of ids of Azure subscriptions.")
    options["subscriptions"] = tuple(one.strip().lower() for one in subscriptions)
    return Options(**options)


def handshake(headers: t.Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """The answer to OPTIONS, which validates a CloudEvents subscription."""
    origin = headers.get("WebHook-Request-Origin", "")
    if not ORIGIN.fullmatch(origin):
        return 400, {}
    rate = headers.get("WebHook-Request-Rate", "")
    return 200, {"WebHook-Allowed-Origin": origin, **({"WebHook-Allowed-Rate": rate} if RATE.fullmatch(rate) else {})}


class Receiver:
    """Turns deliveries into messages. What was delivered before is answered, and makes no new message."""

    def __init__(self, subscriptions: t.Sequence[str] = (), clock: Clock | None = None) -> None:
        self._subscriptions = subscriptions
        self._clock = clock or Clock()
        self._ids: OrderedDict[str, None] = OrderedDict()
        # What is known of each event; None if it is over.
        self._events: OrderedDict[str, Json | None] = OrderedDict()

    def post(self, body: bytes) -> Answer:
        try:
            content = load_json(body)
        except BrokenDocument as exc:
            return _refused(clean(exc, 200))
        entries = content if isinstance(content, list) else [content]
        if len(entries) == 1 and _type_of(entries[0]) == VALIDATION:
            return self._validate(entries[0])
        messages: list[Json] = []
        problems: list[str] = []
        taken = 0
        for entry in entries:
            try:
                messages += self._messages(entry)
                taken += 1
            except (NotUsable, BrokenDocument) as exc:
                problems.append(clean(exc, 200))
        if not taken:
            return _refused(problems[0] if problems else "it has no events")
        log = f"Left out {count(len(problems), 'event')} of a delivery: {problems[0]}." if problems else ""
        return Answer(200, {}, messages, log)

    def _validate(self, entry: Json) -> Answer:
        data = entry.get("data")
        code = data.get("validationCode") if isinstance(data, dict) else None
        if not isinstance(code, str) or not 1 <= len(code) <= 200:
            return _refused("a validation without validationCode")
        try:
            self._check_subscription(entry)
        except NotUsable as exc:
            return _refused(str(exc))
        topic = clean(entry.get("topic") or "unknown", 200)
        return Answer(200, {"validationResponse": code}, log=f"Validated a subscription of the topic {topic}.")

    def _check_subscription(self, entry: Json) -> None:
        place = entry.get("topic") or entry.get("source")
        parts = place.strip("/").lower().split("/") if isinstance(place, str) else []
        subscription = parts[1] if len(parts) > 1 and parts[0] == "subscriptions" else ""
        if self._subscriptions and subscription not in self._subscriptions:
            raise NotUsable(f"it is from the Azure subscription {quoted(subscription)}, which is not in subscriptions")

    def _messages(self, entry: t.Any) -> list[Json]:
        if _type_of(entry) != SCHEDULED_EVENT:
            raise NotUsable(f"its type is {quoted(_type_of(entry))} and not {SCHEDULED_EVENT}")
        self._check_subscription(entry)
        outer_id = entry.get("id")
        if not isinstance(outer_id, str) or not 1 <= len(outer_id) <= 500:
            raise NotUsable("it has no id")
        if outer_id in self._ids:
            return []
        event = self._event(entry)
        now = self._clock.utc_now().timestamp()
        made = [
            message(change, SOURCE, f"{outer_id} {number}", now)
            for number, change in enumerate(self._changes(event, now))
        ]
        _remember(self._ids, outer_id, None)
        return made

    def _event(self, entry: Json) -> Event:
        data = entry.get("data")
        info = data.get("resourceInfo") if isinstance(data, dict) else None
        properties = info.get("properties") if isinstance(info, dict) else None
        if not isinstance(properties, dict):
            raise NotUsable("it has no data.resourceInfo.properties")
        resources = properties.get("Resources")
        if isinstance(resources, list):
            names = [vm_name(one) if isinstance(one, str) else one for one in resources]
            properties = {**properties, "Resources": names}
        document = parse(json.dumps({"DocumentIncarnation": 0, "Events": [properties]}).encode())
        return seen_by(document, None, self._clock.utc_now())[0]

    def _changes(self, event: Event, now: float) -> t.Sequence[Change]:
        event_id = same_id(event["event_id"])
        known = self._events.get(event_id)
        if known is None and event_id in self._events:
            # Deliveries come in any order: an event that is over does not return.
            return ()
        outcome = OVER.get(event["event_status"].strip().lower())
        if outcome:
            _remember(self._events, event_id, None)
            return [Change(GONE, {**event}, outcome=outcome)]
        before = {event_id: known} if known else {}
        changes, after = compare(before, [event], self._clock.monotonic(), now)
        _remember(self._events, event_id, after[event_id])
        return changes


def _remember(memory: OrderedDict[str, t.Any], key: str, value: t.Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _type_of(entry: t.Any) -> str:
    """The type, by the Event Grid schema or by CloudEvents."""
    kind = (entry.get("eventType") or entry.get("type")) if isinstance(entry, dict) else None
    return kind if isinstance(kind, str) else ""


def _refused(why: str) -> Answer:
    return Answer(400, {"error": f"Not accepted: {why}."}, log=f"Refused a delivery: {why}.")


def vm_name(resource: str) -> str:
    """The VM's name as in the metadata service, from a name or a resource id."""
    parts = [part for part in resource.split("/") if part]
    if not resource.startswith("/") or len(parts) < 2:
        return resource
    named = {kind.lower(): name for kind, name in itertools.pairwise(parts)}
    machine, scale_set = named.get("virtualmachines"), named.get("virtualmachinescalesets")
    if machine and scale_set and machine.isdigit():
        return f"{scale_set}_{machine}"
    return machine or parts[-1]
