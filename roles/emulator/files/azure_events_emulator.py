#!/usr/bin/env python
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Emulates Azure's Scheduled Events, and as much of the instance metadata as their clients ask for.

One file, standard library only. `serve` is the metadata service of a fleet of VMs; the other commands control a running
one through its control API. It shares no code with the clients that are tested with it.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import http.client
import http.server
import ipaddress
import itertools
import json
import math
import os
import queue
import re
import selectors
import shlex
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from functools import partial
from typing import Any, Callable, Dict, NoReturn
from urllib.parse import parse_qsl, urlsplit

Json = Dict[str, Any]

# --- what the service knows -------------------------------------------------------------------------------------

PREVIEW = "2017-03-01"
NEWEST = "2024-07-09"
EVENT_VERSIONS = (
    PREVIEW, "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01", NEWEST,
)  # fmt: skip
FIELD_SINCE = {"Description": "2019-04-01", "EventSource": "2019-08-01", "DurationInSeconds": "2020-07-01"}
# Announces nothing that happens to the VM: it never starts, and leaves the document at its NotBefore.
RECOMMENDATION = "SpotRebalanceRecommendation"
TYPE_SINCE = {
    "Freeze": "", "Reboot": "", "Redeploy": "", "Preempt": "2017-11-01", "Terminate": "2019-01-01",
    RECOMMENDATION: NEWEST,
}  # fmt: skip
LEAST_NOTICE = {"Freeze": 900.0, "Reboot": 900.0, "Redeploy": 600.0, "Preempt": 30.0, "Terminate": 300.0}

INSTANCE_VERSIONS = (
    "2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01",
    "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01",
    "2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01",
    "2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15",
    "2024-03-15", "2024-07-17", "2025-04-07",
)  # fmt: skip
COMPUTE_SINCE = {
    "placementGroupId": "2017-08-01", "resourceGroupName": "2017-08-01", "subscriptionId": "2017-08-01",
    "tags": "2017-08-01", "vmScaleSetName": "2017-12-01", "zone": "2017-12-01", "azEnvironment": "2018-10-01",
    "provider": "2018-10-01", "resourceId": "2019-03-11", "tagsList": "2019-06-04", "osProfile": "2020-07-15",
    "priority": "2020-12-01",
}  # fmt: skip

STATUS_FAULTS = ("400", "401", "403", "404", "405", "410", "429", "500", "503")
POST_FAULTS = ("vanish", "silent_post", "lost_post")
# `seconds` is how long these are silent; with the others, how long the fault is in force
SILENT_FAULTS = ("stall", "silent_post", "lost_post")
FAULT_KINDS = (
    "refuse", "reset", "stall", "drip", *STATUS_FAULTS, "redirect", "html", "empty", "truncated", "oversized", "bom",
    "body", "document", "no_date", *POST_FAULTS,
)  # fmt: skip
FAULT_HELP = {
    "vm": "only requests of this VM",
    "method": "only GET or only POST",
    "path": "only scheduledevents or only instance",
    "count": "the fault ends after so many requests",
    "skip": "so many requests pass before it begins",
    "seconds": "how long it is in force; with stall, silent_post and lost_post how long it is silent",
    "interval": "drip: seconds between two bytes",
    "retry_after": "a status: the value of its header Retry-After",
    "location": "redirect: where to",
    "cut": "truncated: json for half a document in a complete answer",
    "body": "body: the text that is sent",
    "status": "body and document: the status",
    "document": "document: the JSON that is sent",
    "EventId": "vanish: the event that leaves before the next approval is handled",
}
FAULT_OPTIONS = ("kind", *FAULT_HELP)
MORE = "For more information refer to aka.ms/azureimds"
JOURNAL_KEPT = 100_000
BODY_LIMIT = 1 << 20


class Refusal(Exception):
    """What was asked for is not possible; the message says what is."""


def known_keys(what: str, given: Any, allowed: tuple[str, ...]) -> Json:
    if not isinstance(given, dict):
        raise Refusal(f"{what} must be a JSON object")
    for key in given:
        if key not in allowed:
            raise Refusal(f"{what} has no field {key!r} (allowed: {', '.join(allowed)})")
    return given


def seconds_of(spec: Json, key: str, default: float | None = None) -> float | None:
    value = spec.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
        raise Refusal(f"{key} must be a number of seconds, not {value!r}")
    return float(value)


def whole_number(spec: Json, key: str, least: int) -> int | None:
    value = spec.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise Refusal(f"{key} must be a whole number of at least {least}, not {value!r}")
    return value


def one_of(spec: Json, key: str, allowed: tuple[str, ...], default: str | None = None) -> Any:
    value = default if spec.get(key) is None else spec[key]
    if value is not None and value not in allowed:
        raise Refusal(f"{key} {value!r} is not known (allowed: {', '.join(allowed)})")
    return value


# --- the fleet --------------------------------------------------------------------------------------------------


@dataclass
class Vm:
    name: str
    scope: str
    address: str = ""
    computer_name: str = ""
    port: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    compute: Json = field(default_factory=dict)
    endpoint: str = ""

    def instance(self, version: str) -> Json:
        """The answer to /metadata/instance; every primitive is a string there."""
        uniform = re.fullmatch(r"(.+)_(\d+)", self.name)
        group, subscription = "emulated", str(uuid.uuid5(uuid.NAMESPACE_DNS, "subscription"))
        home = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute"
        compute: Json = {
            "azEnvironment": "AzurePublicCloud", "location": "westeurope", "name": self.name, "offer": "",
            "osType": "Linux",
            "osProfile": {"adminUsername": "azureuser", "computerName": self.computer_name or computer_name(self.name),
                          "disablePasswordAuthentication": "true"},
            "placementGroupId": str(uuid.uuid5(uuid.NAMESPACE_DNS, self.scope)) if self.scope != self.name else "",
            "platformFaultDomain": "0", "platformUpdateDomain": "0", "priority": "Regular",
            "provider": "Microsoft.Compute", "publisher": "", "resourceGroupName": group,
            "resourceId": f"{home}/virtualMachines/{self.name}", "sku": "",
            "subscriptionId": subscription, "tags": ";".join(f"{key}:{value}" for key, value in self.tags.items()),
            "tagsList": [{"name": key, "value": value} for key, value in self.tags.items()], "version": "",
            "vmId": str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name)),
            "vmScaleSetName": uniform.group(1) if uniform else "", "vmSize": "Standard_D2s_v5", "zone": "",
        }  # fmt: skip
        compute.update(self.compute)
        address = {"privateIpAddress": self.address or "127.0.0.1", "publicIpAddress": ""}
        interface = {
            "ipv4": {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "24"}]},
            "ipv6": {"ipAddress": []},
            "macAddress": "000D3A000000",
        }
        shown = {key: value for key, value in compute.items() if version >= COMPUTE_SINCE.get(key, "")}
        return {"compute": shown, "network": {"interface": [interface]}}


def computer_name(vm_name: str) -> str:
    """The hostname a scale set gives: in a uniform one the instance id in six digits of base 36."""
    uniform = re.fullmatch(r"(.+)_(\d+)", vm_name)
    if not uniform:
        return vm_name
    number, digits = int(uniform.group(2)), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return uniform.group(1) + digits.rjust(6, "0")


def load_json(path: str, what: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot read {what} {path}: {error}") from None


def load_fleet(path: str) -> list[Vm]:
    fleet = known_keys(f"fleet {path}", load_json(path, "fleet"), ("vms",)).get("vms")
    if not isinstance(fleet, dict) or not fleet:
        raise Refusal(f"fleet {path} needs 'vms': an object with at least one VM")
    return [read_vm(name, spec) for name, spec in fleet.items()]


def read_vm(name: str, spec: Any) -> Vm:
    what = f"VM {name!r}"
    if not re.fullmatch(r"[\w.-]+", name):
        raise Refusal(f"{what}: a name holds letters, digits, '_', '-' and '.' only")
    known_keys(what, spec, ("scope", "address", "computer_name", "port", "tags", "compute"))
    for key in ("scope", "address", "computer_name"):
        if not isinstance(spec.get(key, ""), str):
            raise Refusal(f"{what}: {key} must be text")
    if spec.get("address"):
        try:
            ipaddress.ip_address(spec["address"])
        except ValueError:
            raise Refusal(f"{what}: {spec['address']!r} is not an address") from None
    port = whole_number(spec, "port", 0) or 0
    if port > 65535:
        raise Refusal(f"{what}: there is no port {port}")
    tags, compute = spec.get("tags", {}), spec.get("compute", {})
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise Refusal(f"{what}: tags must be an object of texts")
    if not isinstance(compute, dict):
        raise Refusal(f"{what}: compute must be an object")
    scope = spec.get("scope") or name  # a VM on its own sees its own events
    return Vm(name, scope, spec.get("address", ""), spec.get("computer_name", ""), port, tags, compute)


# --- journal and clock ------------------------------------------------------------------------------------------


class Journal:
    """One JSON object a line, in the order things happened; the newest lines also stay in memory."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=JOURNAL_KEPT)
        self._number = 0
        try:
            self._file = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
        except OSError as error:
            raise Refusal(f"cannot write journal {path}: {error}") from None

    def write(self, kind: str, when: float | None = None, **fields: Any) -> None:
        with self._lock:
            self._number += 1
            line = json.dumps({"n": self._number, "time": when or time.time(), "kind": kind, **fields})
            self._lines.append((self._number, line))
            if self._file:
                self._file.write(line + "\n")
                self._file.flush()

    def since(self, number: int) -> str:
        with self._lock:
            return "".join(line + "\n" for n, line in self._lines if n > number)


class Clock(threading.Thread):
    """Runs actions later, one by one. Nothing is ever unscheduled: an action looks whether it still applies."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    # capped: a wait for days does not fit everywhere
                    self._changed.wait(min(self._due[0][0] - time.monotonic(), 3600.0) if self._due else None)
                action = heapq.heappop(self._due)[2]
            action()


# --- events, scopes, faults -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Event:
    event_id: str
    event_type: str
    resources: list[str]
    scope: str
    not_before: float
    description: str
    source: str
    duration: int
    raw: Json
    start_delay: float = 0.0
    started_for: float | None = None
    cancel_after: float | None = None
    starts_at_once: bool = False
    status: str = "Scheduled"
    approved: bool = False

    def document(self, version: str) -> Json:
        names = ["_" + name for name in self.resources] if version == PREVIEW else list(self.resources)
        fields: Json = {
            "EventId": self.event_id,
            "EventType": self.event_type,
            "ResourceType": "VirtualMachine",
            "Resources": names,
            "EventStatus": self.status,
            "NotBefore": formatdate(self.not_before, usegmt=True) if self.status == "Scheduled" else "",
            "Description": self.description,
            "EventSource": self.source,
            "DurationInSeconds": self.duration,
        }
        shown = {key: value for key, value in fields.items() if version >= FIELD_SINCE.get(key, "")}
        shown.update(self.raw)
        return {key: value for key, value in shown.items() if value != {"__absent__": True}}

    def known_in(self, version: str) -> bool:
        return version >= TYPE_SINCE.get(self.event_type, "")

    def is_called(self, event_id: str) -> bool:
        return event_id.upper() in (self.event_id.upper(), str(self.raw.get("EventId", self.event_id)).upper())


@dataclass
class Scope:
    incarnation: int = 1
    events: list[Event] = field(default_factory=list)
    enabled_at: float | None = None  # monotonic; the first request enables the service
    last_request: float = 0.0


@dataclass(eq=False)
class Fault:
    number: int
    kind: str
    options: Json
    vm: str | None
    method: str | None
    path: str | None
    count: int | None
    skip: int
    seconds: float | None
    cleared: threading.Event = field(default_factory=threading.Event)

    def matches(self, vm: str | None, method: str, topic: str) -> bool:
        asked = ((self.vm, vm), (self.method, method), (self.path, topic))
        return self.kind != "refuse" and self.count != 0 and all(wanted in (None, given) for wanted, given in asked)

    def shown(self) -> Json:
        return {**self.options, "fault": self.number, "count": self.count, "skip": self.skip}


@dataclass
class Settings:
    notice_scale: float = 1.0
    first_call_delay: float = 0.0
    disable_after: float = 86400.0
    rate_limit: int = 0
    unknown_id: int = 400
    etag: bool = False
    newest_version: str = NEWEST
    on_start: list[str] = field(default_factory=list)


# What --set and the control API take, beside EventType and Resources.
PUBLISH_HELP = {
    "scope": "the scope in which the event is announced; by default that of its VMs",
    "notice": "seconds until NotBefore; without it the least that Azure gives for the type",
    "DurationInSeconds": "of the interruption; -1 if unknown, which is the default",
    "Description": "any text",
    "EventSource": "Platform (default) or User",
    "EventId": "a GUID unless given",
    "EventStatus": "Scheduled (default), or Started for an event without notice",
    "started_for": "seconds from Started until the event is completed; without it, complete it yourself",
    "start_delay": "seconds from the approval until the event starts",
    "cancel_after": "seconds after which the event is cancelled if it has not started",
    "raw": 'fields that replace those of the event in the document, as an object; {"__absent__": true} removes a field',
    "foreign": "true to allow VMs and event types that the emulator does not know",
}
PUBLISH_FIELDS = ("EventType", "Resources", *PUBLISH_HELP)

VM_CHOICES = {"first": slice(0, 1), "last": slice(-1, None), "first two": slice(0, 2), "all": slice(None)}


class Fabric:
    """Azure's side: the documents of the scopes, the course of the events, and who approved them."""

    def __init__(self, vms: list[Vm], settings: Settings, journal: Journal) -> None:
        self.vms = {vm.name: vm for vm in vms}
        self.settings = settings
        self.journal = journal
        self.lock = threading.RLock()
        self.clock = Clock()
        self.scopes: dict[str, Scope] = {vm.scope: Scope() for vm in vms}
        self.control_url = ""
        self.hooks: list[subprocess.Popen[bytes]] = []

    def read_event(self, spec: Any) -> Event:
        """An event as asked for, but not published yet."""
        known_keys("the event", spec, PUBLISH_FIELDS)
        foreign = spec.get("foreign", False) is True
        kind = spec.get("EventType")
        if not isinstance(kind, str) or not kind or (kind not in TYPE_SINCE and not foreign):
            known = ", ".join(TYPE_SINCE)
            raise Refusal(f'EventType {kind!r} is not known (allowed: {known}; any other with "foreign": true)')
        scope, resources = self._resources(spec, foreign)
        duration = spec.get("DurationInSeconds", -1)
        if isinstance(duration, bool) or not isinstance(duration, int) or duration < -1:
            raise Refusal(f"DurationInSeconds must be a whole number of at least -1, not {duration!r}")
        source = one_of(spec, "EventSource", ("Platform", "User"), "Platform")
        status = one_of(spec, "EventStatus", ("Scheduled", "Started"), "Scheduled")
        texts = {"EventId": str(uuid.uuid4()).upper(), "Description": "", **spec}
        if not all(isinstance(texts[key], str) for key in ("EventId", "Description")) or not texts["EventId"]:
            raise Refusal("EventId and Description must be text")
        raw = spec.get("raw", {})
        if not isinstance(raw, dict):
            raise Refusal("raw must be a JSON object")
        # the least notice shrinks with the scale, but a second stays: there must be something to see
        least = max(LEAST_NOTICE.get(kind, 900.0) / self.settings.notice_scale, 1.0)
        notice = seconds_of(spec, "notice", least) or 0.0
        not_before = math.ceil(time.time() + notice)  # it has whole seconds, and no event starts before it
        return Event(
            texts["EventId"], kind, resources, scope, not_before, texts["Description"], source, duration, raw,
            start_delay=seconds_of(spec, "start_delay") or 0.0, started_for=seconds_of(spec, "started_for"),
            cancel_after=seconds_of(spec, "cancel_after"), starts_at_once=status == "Started",
        )  # fmt: skip

    def publish(self, spec: Any, by: str) -> str:
        event = self.read_event(spec)
        with self.lock:
            if self.find(event.event_id):
                raise Refusal(f"there already is an event {event.event_id}")
            self.scopes[event.scope].events.append(event)
            self._changed(event, "published", by)
            at_not_before = partial(self._start, event, "notbefore")
            if event.event_type == RECOMMENDATION:
                at_not_before = partial(self._leave, event, "cancelled", "notbefore")
            if event.starts_at_once:
                self._start(event, by)
            else:
                self.clock.later(event.not_before - time.time() + 0.001, at_not_before)
            if event.cancel_after is not None:
                leave = partial(self._leave, event, "cancelled", "cancel_after", only="Scheduled")
                self.clock.later(event.cancel_after, leave)
        return event.event_id

    def _resources(self, spec: Json, foreign: bool) -> tuple[str, list[str]]:
        """The scope and the names, from a list of names or from a choice that fits any fleet."""
        wanted, scope = spec.get("Resources"), spec.get("scope")
        if scope is not None and scope not in self.scopes:
            raise Refusal(f"scope {scope!r} is not known (allowed: {', '.join(self.scopes)})")
        if isinstance(wanted, str) and wanted in VM_CHOICES:
            for name in [scope] if scope else self.scopes:
                members = [vm.name for vm in self.vms.values() if vm.scope == name]
                if wanted != "first two" or len(members) > 1:
                    return name, members[VM_CHOICES[wanted]]
            raise Refusal("Resources 'first two' needs two VMs in one scope")
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            raise Refusal(f"Resources must be a list of VM names, or one of: {', '.join(VM_CHOICES)}; not {wanted!r}")
        unknown = [name for name in wanted if name not in self.vms]
        if unknown and not foreign:
            known = ", ".join(self.vms)
            raise Refusal(f'VM {unknown[0]!r} is not in the fleet (allowed: {known}; any other with "foreign": true)')
        scopes = {self.vms[name].scope for name in wanted if name in self.vms}
        if scope is None:
            if len(scopes or self.scopes) != 1:
                raise Refusal(f"say which scope sees the event (allowed: {', '.join(self.scopes)})")
            scope = next(iter(scopes or self.scopes))
        if scopes - {scope}:
            raise Refusal(f"Resources lie in another scope than {scope!r}: an event belongs to one")
        return scope, list(wanted)

    def _changed(self, event: Event, what: str, by: str) -> None:
        self.scopes[event.scope].incarnation += 1
        self._note(event, what, by)

    def _note(self, event: Event, what: str, by: str) -> None:
        self.journal.write(
            "event", what=what, EventId=event.event_id, EventType=event.event_type, Resources=event.resources, by=by
        )

    def _start(self, event: Event, by: str) -> None:
        with self.lock:
            if event.status != "Scheduled" or event not in self.scopes[event.scope].events:
                return
            event.status = "Started"
            self._changed(event, "started", by)
            if event.started_for is not None:
                self.clock.later(event.started_for, partial(self._leave, event, "completed", "started_for"))
            if self.settings.on_start:
                threading.Thread(target=self._run_hook, args=(event,), daemon=True).start()

    def _leave(self, event: Event, what: str, by: str, only: str | None = None) -> None:
        with self.lock:
            events = self.scopes[event.scope].events
            if event in events and only in (None, event.status):
                events.remove(event)
                self._changed(event, what, by)
                self._start_terminates(event.scope, by)

    def _run_hook(self, event: Event) -> None:
        fields = {
            "ID": event.event_id, "TYPE": event.event_type, "RESOURCES": " ".join(event.resources),
            "SCOPE": event.scope, "SOURCE": event.source, "DURATION": str(event.duration),
            "DESCRIPTION": event.description, "JSON": json.dumps(event.document(NEWEST)),
        }  # fmt: skip
        environment = {f"AZURE_EVENT_{key}": value.replace("\0", "") for key, value in fields.items()}
        environment["AZURE_EVENTS_CONTROL"] = self.control_url
        try:
            hook = subprocess.Popen(
                self.settings.on_start, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
        except OSError as error:
            self.journal.write("hook", EventId=event.event_id, rc=None, error=str(error))
            return
        self.hooks.append(hook)
        self.journal.write("hook", EventId=event.event_id, rc=hook.wait(), error=None)

    def find(self, event_id: Any, scope: str | None = None) -> Event | None:
        for name in [scope] if scope else self.scopes:
            for event in self.scopes[name].events:
                if isinstance(event_id, str) and event.is_called(event_id):
                    return event
        return None

    def command(self, verb: str, spec: Any, by: str) -> None:
        """start, complete or cancel an event, for the control API and for scenarios."""
        event_id = known_keys(f"/{verb}", spec, ("EventId",)).get("EventId")
        with self.lock:
            event = self.find(event_id)
            if event is None:
                there = ", ".join(event.event_id for scope in self.scopes.values() for event in scope.events)
                raise Refusal(f"there is no event {event_id!r} (there are: {there or 'none'})")
            if verb == "cancel":
                if event.status == "Started":
                    raise Refusal(f"event {event.event_id} is Started: it can be completed, not cancelled")
                self._leave(event, "cancelled", by)
                return
            self._start(event, by)
            if verb == "complete":
                self._leave(event, "completed", by)

    def approve(self, vm: Vm, event_ids: list[str]) -> int:
        """The status to answer. An unknown id is undocumented: an error status then refuses the request as a whole."""
        with self.lock:
            events = [self.find(event_id, vm.scope) for event_id in event_ids]
            if None in events and self.settings.unknown_id >= 300:
                return self.settings.unknown_id
            for event in events:
                if event is not None and event.status == "Scheduled" and not event.approved:
                    event.approved = True
                    self._note(event, "approved", vm.name)
                    if event.event_type == "Terminate":
                        self._start_terminates(event.scope, vm.name)
                    elif event.event_type != RECOMMENDATION:
                        self._start_approved(event, vm.name)
            return self.settings.unknown_id if None in events else 200

    def _start_approved(self, event: Event, by: str) -> None:
        """Azure may take its time: others on the same hardware may have to approve as well."""
        if event.start_delay:
            self.clock.later(event.start_delay, partial(self._start, event, by))
        else:
            self._start(event, by)

    def _start_terminates(self, scope: str, by: str) -> None:
        """An approved Terminate waits for the others of the scope with the same NotBefore, give or take a second."""
        pending = [
            one for one in self.scopes[scope].events if (one.event_type, one.status) == ("Terminate", "Scheduled")
        ]
        for event in pending:
            together = [one for one in pending if abs(one.not_before - event.not_before) <= 1]
            if all(one.approved for one in together):
                self._start_approved(event, by)

    def document(self, scope: str, version: str) -> Json:
        with self.lock:
            seen = self.scopes[scope]
            events = [event.document(version) for event in seen.events if event.known_in(version)]
            return {"DocumentIncarnation": seen.incarnation, "Events": events}

    def enable(self, scope: str) -> None:
        """The first request switches the service on, which takes its time; a day without any switches it off again."""
        with self.lock:
            seen, now = self.scopes[scope], time.monotonic()
            if seen.enabled_at is not None and now - seen.last_request > self.settings.disable_after:
                seen.enabled_at, seen.incarnation = None, 1
            if seen.enabled_at is None:
                seen.enabled_at = now + self.settings.first_call_delay
            seen.last_request = now
            wait = seen.enabled_at - now
        if wait > 0:
            time.sleep(wait)

    def vanish(self, event_id: Any) -> None:
        event = self.find(event_id)
        if event is not None:
            self._leave(event, "completed" if event.status == "Started" else "cancelled", "fault")

    def state(self) -> Json:
        with self.lock:
            return {
                "vms": {vm.name: {"scope": vm.scope, "endpoint": vm.endpoint} for vm in self.vms.values()},
                "scopes": {
                    name: {"incarnation": scope.incarnation, "events": self.document(name, NEWEST)["Events"]}
                    for name, scope in self.scopes.items()
                },
            }


class Faults:
    """What goes wrong on purpose."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.journal = fabric.journal
        self.lock = fabric.lock
        self.in_force: list[Fault] = []
        self.changed: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)

    def inject(self, spec: Any) -> int:
        known_keys("the fault", spec, FAULT_OPTIONS)
        if spec.get("kind") is None:
            raise Refusal(f"the fault needs a kind (allowed: {', '.join(FAULT_KINDS)})")
        kind = one_of(spec, "kind", FAULT_KINDS)
        vm = one_of(spec, "vm", tuple(self.fabric.vms))
        method = one_of(spec, "method", ("GET", "POST"))
        path = one_of(spec, "path", ("scheduledevents", "instance"))
        count, skip = whole_number(spec, "count", 1), whole_number(spec, "skip", 0) or 0
        seconds = seconds_of(spec, "seconds")
        one_of(spec, "cut", ("json",))
        seconds_of(spec, "interval")
        whole_number(spec, "status", 200)
        if kind == "refuse" and (method or path or count or skip):
            raise Refusal("refuse is for every connection: it takes vm and seconds only")
        if kind == "vanish" and self.fabric.find(spec.get("EventId")) is None:
            raise Refusal(f"vanish needs the EventId of an event that is there, not {spec.get('EventId')!r}")
        if kind == "document" and "document" not in spec:
            raise Refusal("document needs the option document")
        if kind == "body" and not isinstance(spec.get("body"), str):
            raise Refusal("body needs the option body, a text")
        if kind in POST_FAULTS:
            method, path = "POST", "scheduledevents"
        elif kind == "document":
            method, path = method or "GET", path or "scheduledevents"
        if kind == "vanish":
            count = count or 1
        with self.lock:
            fault = Fault(next(self._numbers), kind, dict(spec), vm, method, path, count, skip, seconds)
            self.in_force.append(fault)
            self.journal.write("fault", what="injected", fault=fault.shown())
            self.changed()
            if seconds is not None and kind not in SILENT_FAULTS:
                self.fabric.clock.later(seconds, lambda: self._end(fault))
        return fault.number

    def clear(self, number: int | None) -> None:
        with self.lock:
            ending = [fault for fault in self.in_force if number in (None, fault.number)]
            if number is not None and not ending:
                there = ", ".join(str(fault.number) for fault in self.in_force)
                raise Refusal(f"there is no fault {number!r} (there are: {there or 'none'})")
            for fault in ending:
                self._end(fault)

    def _end(self, fault: Fault) -> None:
        with self.lock:
            if fault in self.in_force:
                self.in_force.remove(fault)
                fault.cleared.set()
                self.journal.write("fault", what="cleared", fault=fault.shown())
                self.changed()

    def take(self, vm: str | None, method: str, topic: str) -> Fault | None:
        """The fault for this request, if any; counts it."""
        with self.lock:
            for fault in self.in_force:
                if not fault.matches(vm, method, topic):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.count is not None:
                    fault.count -= 1
                    if not fault.count and fault.kind not in SILENT_FAULTS:
                        self._end(fault)
                return fault
        return None

    def keep_silent(self, fault: Fault) -> None:
        """Until its seconds are over or somebody clears it."""
        fault.cleared.wait(fault.seconds)
        if fault.count == 0:
            self._end(fault)

    def refuses(self, vm: str | None) -> bool:
        return any(fault.kind == "refuse" and fault.vm in (None, vm) for fault in self.in_force)


# --- the metadata service, as a VM sees it ----------------------------------------------------------------------


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json; charset=utf-8"


def as_json(status: int, content: Any, **headers: str) -> Answer:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Answer(status, json.dumps(content).encode(), named)


def bad_request(text: str) -> Answer:
    return as_json(400, {"error": f"Bad request. {text}"})


@dataclass
class Request:
    vm: Vm | None
    method: str
    path: str
    pairs: list[tuple[str, str]]
    headers: Message
    body: bytes

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/") if self.path.startswith("/") else []

    @property
    def topic(self) -> str:
        """scheduledevents, instance, or nothing the service knows."""
        segments = self.segments
        if [part.lower() for part in segments] == ["metadata", "scheduledevents"]:
            return "scheduledevents"
        return "instance" if [part.lower() for part in segments[:2]] == ["metadata", "instance"] else ""

    @property
    def query(self) -> Json:
        shown: Json = {}
        for name, value in self.pairs:
            shown[name] = value if name not in shown else [shown[name], value]
        return shown


class Service:
    """Answers a VM's request as Azure does."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._recent: dict[str, deque[float]] = {name: deque() for name in fabric.vms}

    def answer(self, request: Request) -> Answer:
        if request.vm is None:
            return as_json(404, {"error": "Not found. No VM has this address."})
        if self._too_many(request.vm.name):
            return as_json(429, {"error": "Too many requests."}, Retry_After="1")
        if "X-Forwarded-For" in request.headers:
            return bad_request("A request with the header X-Forwarded-For is not accepted")
        if request.headers.get("Metadata", "").strip().lower() != "true":
            return bad_request("Required metadata header not specified")
        if not request.topic:
            return as_json(404, {"error": "Not found."})
        methods = ("GET", "POST") if request.topic == "scheduledevents" else ("GET",)
        if request.method not in methods:
            return as_json(405, {"error": f"Method {request.method} not allowed."}, Allow=", ".join(methods))
        names = [name.lower() for name, _value in request.pairs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            return bad_request(f"Query parameter {repeated} is given more than once")
        version = dict(request.pairs).get("api-version", "")
        versions = EVENT_VERSIONS if request.topic == "scheduledevents" else INSTANCE_VERSIONS
        if request.topic == "scheduledevents" and version in versions and version > self.fabric.settings.newest_version:
            return as_json(404, {"error": "Not found."})
        if version not in versions:
            what = "is invalid or was not" if version else "was not"
            answer = f"Bad request. api-version {what} specified in the request. {MORE}"
            return as_json(400, {"error": answer, "newest-versions": self._newest(request.topic, versions)})
        if request.topic == "instance":
            return self._instance(request, request.vm.instance(version))
        self.fabric.enable(request.vm.scope)
        if request.method == "POST":
            return self._approve(request, request.vm, version)
        return self._events(request, request.vm, version)

    def _newest(self, topic: str, versions: tuple[str, ...]) -> list[str]:
        most = self.fabric.settings.newest_version if topic == "scheduledevents" else versions[-1]
        return [version for version in reversed(versions) if version <= most][:3]

    def _too_many(self, vm: str) -> bool:
        limit, now = self.fabric.settings.rate_limit, time.monotonic()
        if not limit:
            return False
        with self.fabric.lock:
            recent = self._recent[vm]
            while recent and now - recent[0] >= 1:
                recent.popleft()
            if len(recent) >= limit:
                return True
            recent.append(now)
            return False

    def _events(self, request: Request, vm: Vm, version: str) -> Answer:
        document = self.fabric.document(vm.scope, version)
        if not self.fabric.settings.etag:
            return as_json(200, document)
        tag = f'"{version}.{document["DocumentIncarnation"]}"'
        if request.headers.get("If-None-Match") == tag:
            return Answer(304, headers={"ETag": tag})
        return as_json(200, document, ETag=tag)

    def _approve(self, request: Request, vm: Vm, version: str) -> Answer:
        try:
            content = json.loads(request.body)
        except (ValueError, RecursionError):
            return bad_request("The body is not JSON")
        wanted = content.get("StartRequests") if isinstance(content, dict) else None
        if not isinstance(wanted, list) or not wanted:
            return bad_request("The body needs StartRequests, a list of objects with an EventId")
        ids = [one["EventId"] for one in wanted if isinstance(one, dict) and isinstance(one.get("EventId"), str)]
        if len(ids) < len(wanted):
            return bad_request("Every one of StartRequests needs an EventId")
        if version == PREVIEW and not re.fullmatch(r"\d+", str(content.get("DocumentIncarnation"))):
            return bad_request(f"In {PREVIEW} the body needs DocumentIncarnation, too")
        status = self.fabric.approve(vm, ids)
        return Answer(status) if status < 300 else as_json(status, {"error": "There is no such event."})

    @staticmethod
    def _instance(request: Request, node: Any) -> Answer:
        for part in request.segments[2:]:
            if isinstance(node, dict) and part in node:
                node = node[part]
            elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            else:
                return as_json(404, {"error": "Not found."})
        text = dict(request.pairs).get("format", "json").lower() == "text"
        if isinstance(node, (dict, list)):
            if not text:
                return as_json(200, node)
            children = node.items() if isinstance(node, dict) else enumerate(node)
            listing = "\n".join(f"{key}/" if isinstance(value, (dict, list)) else str(key) for key, value in children)
            return Answer(200, listing.encode(), content_type="text/plain; charset=utf-8")
        if not text:
            return bad_request("A single value needs format=text")
        return Answer(200, str(node).encode(), content_type="text/plain; charset=utf-8")


def faulty_answer(fault: Fault, request: Request, real: Callable[[], Answer]) -> Answer:
    """What the client gets instead of, or made of, the real answer."""
    kind, options = fault.kind, fault.options
    if kind in STATUS_FAULTS:
        wait = options.get("retry_after")
        answer = as_json(int(kind), {"error": f"{http.client.responses[int(kind)]}, injected."})
        answer.headers.update({} if wait is None else {"Retry-After": str(wait)})
        return answer
    if kind == "redirect":
        return Answer(302, headers={"Location": str(options.get("location", "/metadata/redirected"))})
    if kind == "html":
        return Answer(200, b"<!DOCTYPE html>\n<title>Sign in</title><p>Please sign in.</p>\n", content_type="text/html")
    if kind == "empty":
        return Answer(200)
    if kind == "body":
        return Answer(options.get("status", 200), options["body"].encode())
    if kind == "document":
        return as_json(options.get("status", 200), options["document"])
    answer = real()
    if kind == "bom":
        answer.body = b"\xef\xbb\xbf" + answer.body
    elif kind == "oversized":
        answer.body += b" " * (2 << 20)
    elif kind == "truncated" and options.get("cut") == "json":
        answer.body = answer.body[: len(answer.body) // 2]
    return answer


# --- the listening sockets --------------------------------------------------------------------------------------


class Listener(socketserver.ThreadingTCPServer):
    """A socket of one VM or (by address) of all. When closed it keeps its port, bound but not listening."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[Handler], vms: list[Vm], by_address: bool, emulator: Emulator
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.vms = vms
        self.by_address = {ipaddress.ip_address(vm.address): vm for vm in vms} if by_address else None
        self.emulator = emulator
        self.is_open = False
        self.connections: dict[socket.socket, str | None] = {}
        self.abrupt: set[socket.socket] = set()
        super().__init__(address, handler, bind_and_activate=False)
        self.server_bind()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def vm_of(self, source: str) -> Vm | None:
        if self.by_address is None:
            return self.vms[0] if self.vms else None
        return self.by_address.get(ipaddress.ip_address(source.partition("%")[0]))

    def open(self) -> None:
        self.server_activate()
        self.socket.setblocking(False)
        self.emulator.selector.register(self.socket, selectors.EVENT_READ, self)
        self.is_open = True

    def close(self) -> None:
        self.emulator.selector.unregister(self.socket)
        self.socket.close()
        self.socket = socket.socket(self.address_family, self.socket_type)
        self.server_bind()
        self.is_open = False

    def accept_one(self) -> None:
        try:
            connection, source = self.socket.accept()
        except OSError:
            return
        connection.setblocking(True)
        vm = self.vm_of(source[0])
        self.connections[connection] = vm.name if vm else None
        if vm and self.emulator.faults.refuses(vm.name):
            self.abort(connection)
            self.shutdown_request(connection)
        else:
            self.process_request(connection, source)

    def abort(self, connection: socket.socket) -> None:
        """Makes the connection end with a reset."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abrupt.add(connection)

    def disconnect(self, vm: str) -> None:
        for connection, owner in list(self.connections.items()):
            if owner == vm:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self.connections.pop(request, None)
        if request in self.abrupt:
            self.abrupt.discard(request)
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"azure_events_emulator: {client_address}: {error!r}", file=sys.stderr)


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.1 with kept-alive connections, one write per answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener
    numbers = itertools.count(1)

    def setup(self) -> None:
        super().setup()
        self.number = next(self.numbers)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the journal is the log

    def read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = b""
            while True:
                size = int(self.rfile.readline(100).split(b";")[0], 16)
                body += self.rfile.read(size)
                self.rfile.readline(100)
                if not size or len(body) > BODY_LIMIT:
                    return body
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= BODY_LIMIT:
            raise ValueError("the body's length is out of bounds")
        return self.rfile.read(length)

    def head(self, answer: Answer, date: bool = True) -> bytes:
        headers = {"Server": "azure-events-emulator", **answer.headers}
        if date:
            headers["Date"] = formatdate(time.time(), usegmt=True)
        if answer.body:
            headers["Content-Type"] = answer.content_type
        if answer.status != 304:
            headers["Content-Length"] = str(len(answer.body))
        if self.close_connection:
            headers["Connection"] = "close"
        status = f"{self.protocol_version} {answer.status} {http.client.responses.get(answer.status, 'Unknown')}"
        return "\r\n".join([status, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode("latin-1")

    def send(self, answer: Answer, date: bool = True) -> None:
        self.wfile.write(self.head(answer, date) + (b"" if self.command == "HEAD" else answer.body))

    def dispatch(self) -> None:
        try:
            body = self.read_body()
        except ValueError:
            self.close_connection = True
            self.send(bad_request("The body's length is missing or wrong"))
            return
        self.respond(body)

    def respond(self, body: bytes) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # whatever the method, it is the service's to refuse
            return self.dispatch
        raise AttributeError(name)


class VmHandler(Handler):
    """A VM's side: only what the service itself would answer, and the faults."""

    def respond(self, body: bytes) -> None:
        arrived, since = time.time(), time.monotonic()
        path, _mark, query = self.path.partition("?")
        vm = self.server.vm_of(self.client_address[0])
        request = Request(vm, self.command, path, parse_qsl(query, keep_blank_values=True), self.headers, body)
        emulator = self.server.emulator
        fabric = emulator.fabric
        fault = emulator.faults.take(vm.name if vm else None, request.method, request.topic)
        kind = fault.kind if fault else None

        def note(status: int | None) -> None:
            fabric.journal.write(
                "request", arrived, vm=vm.name if vm else None, source=":".join(map(str, self.client_address[:2])),
                connection=self.number, method=request.method, path=path, query=request.query,
                headers=dict(self.headers.items()), body=body.decode("utf-8", "replace"), status=status, fault=kind,
                seconds=round(time.monotonic() - since, 6),
                incarnation=fabric.scopes[vm.scope].incarnation if vm else None,
            )  # fmt: skip

        if fault and kind in ("reset", "stall", "lost_post"):
            note(None)
            if kind == "reset":
                self.server.abort(self.connection)
            else:
                emulator.faults.keep_silent(fault)
            self.close_connection = True
            return
        if fault and kind == "vanish":
            fabric.vanish(fault.options["EventId"])
        if fault:
            answer = faulty_answer(fault, request, lambda: emulator.service.answer(request))
        else:
            answer = emulator.service.answer(request)
        note(None if kind == "silent_post" else answer.status)
        if fault and kind == "silent_post":
            emulator.faults.keep_silent(fault)
            self.close_connection = True
        elif fault and kind == "drip":
            self.wfile.write(self.head(answer))
            for byte in answer.body:
                time.sleep(float(fault.options.get("interval", 0.2)))
                self.wfile.write(bytes([byte]))
        elif fault and kind == "truncated" and "cut" not in fault.options:
            self.close_connection = True
            self.wfile.write(self.head(answer) + answer.body[: len(answer.body) // 2])
        else:
            self.send(answer, date=kind != "no_date")


class ControlHandler(Handler):
    """The control API: JSON in, JSON out."""

    def respond(self, body: bytes) -> None:
        try:
            answer = self.execute(body)
        except Refusal as refusal:
            answer = as_json(400, {"error": str(refusal)})
        self.send(answer)
        if self.path == "/stop" and answer.status == 200:
            self.server.emulator.stopping.put(None)

    def execute(self, body: bytes) -> Answer:
        emulator = self.server.emulator
        fabric = emulator.fabric
        parts = urlsplit(self.path)
        if self.command == "GET" and parts.path == "/state":
            faults = [fault.shown() for fault in emulator.faults.in_force]
            return as_json(200, {**emulator.fabric.state(), "faults": faults})
        if self.command == "GET" and parts.path == "/journal":
            since = dict(parse_qsl(parts.query)).get("since", "0")
            if not since.isdigit():
                raise Refusal(f"since must be a line's number, not {since!r}")
            return Answer(200, fabric.journal.since(int(since)).encode(), content_type="application/x-ndjson")
        verb = parts.path.strip("/")
        if self.command != "POST" or verb not in CONTROL_VERBS:
            verbs = ", ".join(CONTROL_VERBS)
            raise Refusal(f"there is no {self.command} {parts.path} (GET: state, journal; POST: {verbs})")
        try:
            spec = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise Refusal("the body is not JSON") from None
        if verb == "publish":
            return as_json(200, {"EventId": fabric.publish(spec, "control")})
        if verb == "fault":
            return as_json(200, {"fault": emulator.faults.inject(spec)})
        if verb == "faults/clear":
            emulator.faults.clear(whole_number(known_keys("/faults/clear", spec, ("fault",)), "fault", 1))
        elif verb == "play":
            Play(emulator, read_scenario(known_keys("/play", spec, ("scenario",)).get("scenario"))).begin()
        elif verb != "stop":
            fabric.command(verb, spec, "control")
        return as_json(200, {})


CONTROL_VERBS = ("publish", "start", "complete", "cancel", "fault", "faults/clear", "play", "stop")

# --- scenarios --------------------------------------------------------------------------------------------------


def typical(kind: str, source: str, description: str, **more: Any) -> Json:
    event = {"EventType": kind, "EventSource": source, "Description": description, "Resources": "first"}
    return {"at": 0, "action": "publish", "event": {**event, **more}}


def recommendation(at: float, vms: str, **more: Any) -> Json:
    return {**typical(RECOMMENDATION, "Platform", "The VM may be evicted soon.", Resources=vms, **more), "at": at}


SCENARIOS: dict[str, Json] = {
    "live_migration": {
        "description": "Freeze of 5 s: 15 min Scheduled, 5 min Started.",
        "steps": [typical("Freeze", "Platform", "Live migration to a new host.", DurationInSeconds=5, started_for=300)],
    },
    "host_maintenance": {
        "description": "Freeze of 9 s: 15 min Scheduled, 10 min Started.",
        "steps": [typical("Freeze", "Platform", "The host is updated.", DurationInSeconds=9, started_for=600)],
    },
    "user_reboot": {
        "description": "Reboot that somebody asked for: 15 min Scheduled, 10 min Started.",
        "steps": [typical("Reboot", "User", "A user restarts the virtual machine.", started_for=600)],
    },
    "redeploy": {
        "description": "Redeploy by the platform after a failure: 15 min Scheduled, 10 min Started.",
        "steps": [typical("Redeploy", "Platform", "The host is failing.", notice=900, started_for=600)],
    },
    "user_redeploy": {
        "description": "Redeploy that somebody asked for: 15 min Scheduled, 10 min Started.",
        "steps": [typical("Redeploy", "User", "A user redeploys the virtual machine.", notice=900, started_for=600)],
    },
    "spot_eviction": {
        "description": "Preempt of a Spot VM: 30 s Scheduled.",
        "steps": [typical("Preempt", "Platform", "Spot capacity is needed elsewhere.", started_for=60)],
    },
    "scale_set_deletion": {
        "description": "Terminate of a scale set's instance: 5 min Scheduled.",
        "steps": [typical("Terminate", "User", "The scale set removes this instance.", started_for=60)],
    },
    "cancelled_maintenance": {
        "description": "Freeze that is called off: leaves after 8 min, while Scheduled.",
        "steps": [
            typical("Freeze", "Platform", "The host is updated.", DurationInSeconds=9),
            {"at": 480, "action": "cancel"},
        ],
    },
    "scale_in": {
        "description": "Terminate of two instances with one NotBefore: neither proceeds until both are approved.",
        "steps": [
            typical("Terminate", "User", "The scale set removes this instance.", started_for=60),
            typical("Terminate", "User", "The scale set removes this instance.", Resources="last", started_for=60),
        ],
    },
    "hardware_failure": {
        "description": "Redeploy that is Started at once, without notice: 10 min Started.",
        "steps": [typical("Redeploy", "Platform", "The host has failed.", EventStatus="Started", started_for=600)],
    },
    "hardware_failure_reboot": {
        "description": "Reboot that is Started at once, without notice: 10 min Started.",
        "steps": [typical("Reboot", "Platform", "The host has failed.", EventStatus="Started", started_for=600)],
    },
    "predicted_failure": {
        "description": "Redeploy off failing hardware with 7 days' notice: 10 min Started.",
        "steps": [typical("Redeploy", "Platform", "The host is expected to fail.", notice=604800, started_for=600)],
    },
    "several_vms": {
        "description": "One Reboot for the first two VMs of a scope: 15 min Scheduled, 10 min Started.",
        "steps": [typical("Reboot", "Platform", "The host is updated.", Resources="first two", started_for=600)],
    },
    "two_events": {
        "description": "At once a Reboot of the first VM and a Freeze of the last: 15 min Scheduled, 10 min Started.",
        "steps": [
            typical("Reboot", "User", "A user restarts the virtual machine.", started_for=600),
            typical("Freeze", "Platform", "The host is updated.", Resources="last", started_for=600),
        ],
    },
    "spot_rebalance": {
        "description": "Recommendations for Spot VMs: three come to nothing, one is followed by a Preempt after 5 min.",
        "steps": [
            recommendation(0, "first", cancel_after=240),
            recommendation(0, "last", cancel_after=600),
            {**recommendation(600, "first"), "label": "followed"},
            recommendation(720, "last", cancel_after=300),
            {"at": 900, "action": "cancel", "label": "followed"},
            {**typical("Preempt", "Platform", "Spot capacity is needed elsewhere.", started_for=60), "at": 900},
        ],
    },
}  # fmt: skip

STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "publish": ("event",), "start": (), "complete": (), "cancel": (), "fault": ("fault",), "clear": (),
}  # fmt: skip
SCALED = ("notice", "started_for", "start_delay", "cancel_after")


def load_scenario(name: str) -> Json:
    """A built-in by its name, or a file by its path."""
    if name not in SCENARIOS and not os.path.exists(name):
        raise Refusal(f"scenario {name!r} is neither a file nor one of: {', '.join(SCENARIOS)}")
    return read_scenario(name if name in SCENARIOS else load_json(name, "scenario"))


def read_scenario(wanted: Any) -> Json:
    """A built-in by its name, or the scenario itself."""
    if isinstance(wanted, str) and wanted in SCENARIOS:
        return SCENARIOS[wanted]
    known_keys("the scenario", wanted, ("name", "description", "steps"))
    if not isinstance(wanted.get("steps"), list) or not wanted["steps"]:
        raise Refusal("the scenario needs steps, a list of at least one")
    labels: set[tuple[bool, str]] = set()
    for number, step in enumerate(wanted["steps"], 1):
        action = step.get("action") if isinstance(step, dict) else None
        if action not in STEP_FIELDS:
            raise Refusal(f"step {number} has no action that is known (allowed: {', '.join(STEP_FIELDS)})")
        known_keys(f"step {number}", step, ("at", "action", "label") + STEP_FIELDS[action])
        seconds_of(step, "at", 0)
        missing = [key for key in STEP_FIELDS[action] if not isinstance(step.get(key), dict)]
        if missing:
            raise Refusal(f"step {number} needs {missing[0]!r}, an object")
        label = (action in ("fault", "clear"), str(step.get("label", "")))
        if action in ("publish", "fault"):
            labels.add(label)
        elif label not in labels and (action != "clear" or "label" in step):
            raise Refusal(f"step {number}: no earlier step is labelled {label[1]!r}")
    return dict(wanted)


class Play:
    """A scenario being played. Its seconds are Azure's: the notice scale divides them; a fault's are not."""

    def __init__(self, emulator: Emulator, scenario: Json) -> None:
        self.fabric = emulator.fabric
        self.faults = emulator.faults
        self.scenario = scenario
        self.event_ids: dict[str, str] = {}
        self.fault_numbers: dict[str, int] = {}
        for step in scenario["steps"]:  # what cannot be played is refused before anything begins
            if step["action"] == "publish":
                self.fabric.read_event(step["event"])

    def begin(self) -> None:
        for step in self.scenario["steps"]:
            wait = float(step.get("at", 0)) / self.fabric.settings.notice_scale
            if wait:
                self.fabric.clock.later(wait, partial(self._try, step))
            else:
                self._do(step)

    def _try(self, step: Json) -> None:
        try:
            self._do(step)
        except Refusal as refusal:  # such as an event that has left by itself
            self.fabric.journal.write("scenario", what="skipped", step=step, error=str(refusal))

    def _do(self, step: Json) -> None:
        action, label = step["action"], str(step.get("label", ""))
        if action == "publish":
            scale = self.fabric.settings.notice_scale
            scaled = {key: seconds_of(step["event"], key) for key in SCALED if step["event"].get(key) is not None}
            event = {**step["event"], **{key: (value or 0.0) / scale for key, value in scaled.items()}}
            self.event_ids[label] = self.fabric.publish(event, "scenario")
        elif action == "fault":
            self.fault_numbers[label] = self.faults.inject(step["fault"])
        elif action == "clear":
            self.faults.clear(self.fault_numbers.get(label) if "label" in step else None)
        else:
            self.fabric.command(action, {"EventId": self.event_ids.get(label)}, "scenario")


# --- serve ------------------------------------------------------------------------------------------------------


class Emulator:
    def __init__(self, args: argparse.Namespace) -> None:
        self.stopping: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put may interrupt its get: fit for signals
        self.selector = selectors.DefaultSelector()
        vms = load_fleet(args.fleet) if args.fleet else [read_vm(name, {"scope": args.scope}) for name in args.vm]
        if len({vm.name for vm in vms}) < len(vms):
            raise Refusal("a VM is named twice")
        try:
            hook = shlex.split(args.on_start or "")
        except ValueError as error:
            raise Refusal(f"--on-start: {error}") from None
        if hook and not shutil.which(hook[0]):
            raise Refusal(f"--on-start: there is no command {hook[0]!r}")
        settings = Settings(
            args.notice_scale, args.first_call_delay, args.disable_after, args.rate_limit, args.unknown_id, args.etag,
            args.newest_version, hook,
        )  # fmt: skip
        scenario = load_scenario(args.scenario) if args.scenario else None
        self.fabric = Fabric(vms, settings, Journal(args.journal))
        self.faults = Faults(self.fabric)
        self.play = Play(self, scenario) if scenario else None
        self.service = Service(self.fabric)
        self.listeners = self._vm_listeners(vms, args)
        self.control = self._listener((args.control_bind, args.control_port), ControlHandler, [])
        self.fabric.control_url = self.control.url
        self.faults.changed = self._update_listeners

    def _listener(
        self, address: tuple[str, int], handler: type[Handler], vms: list[Vm], by_address: bool = False
    ) -> Listener:
        try:
            return Listener(address, handler, vms, by_address, self)
        except (OSError, OverflowError) as error:
            raise Refusal(f"cannot listen on {address[0]} port {address[1]}: {error}") from None

    def _vm_listeners(self, vms: list[Vm], args: argparse.Namespace) -> list[Listener]:
        if args.by_address:
            for vm in vms:
                if not vm.address:
                    raise Refusal(f"--by-address: VM {vm.name!r} has no address")
            if len({ipaddress.ip_address(vm.address) for vm in vms}) < len(vms):
                raise Refusal("--by-address: two VMs have the same address")
            listeners = [self._listener((args.bind, args.port), VmHandler, vms, by_address=True)]
        else:
            ports = [vm.port or (args.port_base + number if args.port_base else 0) for number, vm in enumerate(vms)]
            listeners = [self._listener((args.bind, port), VmHandler, [vm]) for vm, port in zip(vms, ports)]
        for listener in listeners:
            for vm in listener.vms:
                vm.endpoint = listener.url
        return listeners

    def _update_listeners(self) -> None:
        """Closes and opens listeners as the refusals in force demand."""
        for listener in self.listeners:
            closed = self.faults.refuses(None if listener.by_address is not None else listener.vms[0].name)
            if closed == listener.is_open:
                (listener.close if closed else listener.open)()
            for vm in listener.vms:
                if self.faults.refuses(vm.name):
                    listener.disconnect(vm.name)

    def _accept_all(self) -> None:
        while True:
            for key, _events in self.selector.select():
                key.data.accept_one()

    def run(self, ready_file: str | None) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.put(None))
        self.fabric.clock.start()
        for listener in [*self.listeners, self.control]:
            listener.open()
        threading.Thread(target=self._accept_all, daemon=True).start()
        if self.play:
            self.play.begin()
        ready = json.dumps(
            {
                "control": self.control.url,
                "vms": {vm.name: vm.endpoint for vm in self.fabric.vms.values()},
                "pid": os.getpid(),
                "journal": self.fabric.journal.path,
            }
        )
        if ready_file:
            try:
                with open(ready_file + ".new", "w", encoding="utf-8") as file:
                    file.write(ready + "\n")
                os.replace(ready_file + ".new", ready_file)
            except OSError as error:
                raise Refusal(f"cannot write ready file {ready_file}: {error}") from None
        print(ready, flush=True)
        self.stopping.get()
        for hook in self.fabric.hooks:
            if hook.poll() is None:
                hook.terminate()
        if ready_file:
            with contextlib.suppress(OSError):
                os.remove(ready_file)
        return 0


# --- command line -----------------------------------------------------------------------------------------------


RAW = argparse.RawDescriptionHelpFormatter


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def number_above(least: float, kind: Callable[[str], Any] = float) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is less than {least:g}")
        return value

    return convert


def settable(keys: dict[str, str]) -> Parser:
    """The option --set, with its keys in the help."""
    width = max(map(len, keys))
    table = "\n".join(f"{key:<{width}}  {meaning}" for key, meaning in keys.items())
    parser = Parser(add_help=False)
    group = parser.add_argument_group("keys of --set", table)
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="VALUE is JSON, or else text; may be repeated"
    )
    return parser


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="azure_events_emulator", description="An emulator of Azure's Scheduled Events.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True
    serve = commands.add_parser("serve", help="start a metadata service for each of several VMs")
    fleet = serve.add_mutually_exclusive_group(required=True)
    fleet.add_argument(
        "--fleet", metavar="FILE", help='JSON file with the VMs: {"vms": {"web_0": {"scope": "web"}, ...}}'
    )
    fleet.add_argument("--vm", metavar="NAME", action="append", help="the Azure name of a VM; may be repeated")
    port = number_above(0, int)
    seconds = number_above(0)
    serve.add_argument("--scope", default="fleet", help="the scope of the VMs named with --vm")
    serve.add_argument("--scenario", metavar="NAME|FILE", help="a scenario to play when the service is ready")
    serve.add_argument("--bind", default="127.0.0.1", help="address on which the metadata services listen")
    serve.add_argument(
        "--port-base",
        type=port,
        default=0,
        help="port of the first VM; the others get the next ones (0: any free port)",
    )
    serve.add_argument(
        "--by-address", action="store_true", help="one port for all; a VM is recognised by its source address"
    )
    serve.add_argument("--port", type=port, default=80, help="the port with --by-address")
    serve.add_argument("--control-bind", default="127.0.0.1")
    serve.add_argument("--control-port", type=port, default=0)
    serve.add_argument("--journal", metavar="FILE", help="append every request and event to this file")
    serve.add_argument("--ready-file", metavar="FILE", help="write the ready line to this file, too")
    serve.add_argument(
        "--notice-scale",
        type=number_above(0.001),
        default=1.0,
        help="divide Azure's times by this; with 60, a notice of 15 minutes takes 15 seconds",
    )
    serve.add_argument(
        "--first-call-delay", type=seconds, default=0.0, help="seconds that the first request of a scope takes"
    )
    serve.add_argument(
        "--disable-after",
        type=seconds,
        default=86400.0,
        help="seconds without a request after which the service is disabled again",
    )
    serve.add_argument(
        "--rate-limit",
        type=port,
        default=0,
        help="requests a second for each VM, further ones get 429 (0: no limit; Azure: 5)",
    )
    serve.add_argument(
        "--on-start",
        metavar="CMD",
        help="program to run when an event starts; the environment has its fields as AZURE_EVENT_*",
    )
    serve.add_argument(
        "--unknown-id",
        type=number_above(200, int),
        default=400,
        help="HTTP status for the approval of an unknown EventId",
    )
    serve.add_argument(
        "--newest-version", choices=EVENT_VERSIONS, default=NEWEST, metavar="VERSION",
        help="answer 404 to versions of the events that are newer (%(default)s)",
    )  # fmt: skip
    serve.add_argument("--etag", action="store_true", help="send ETag and honour If-None-Match")

    control = Parser(add_help=False)
    control.add_argument(
        "--control", metavar="URL", default=os.environ.get("AZURE_EVENTS_CONTROL"),
        help="the control URL from serve's ready line; or AZURE_EVENTS_CONTROL",
    )  # fmt: skip
    control.add_argument("--ready-file", metavar="FILE", help="take the control URL from serve's ready file")
    publish = commands.add_parser(
        "publish", parents=[control, settable(PUBLISH_HELP)], help="publish an event", formatter_class=RAW
    )
    publish.add_argument("EventType", help=", ".join(TYPE_SINCE))
    publish.add_argument("Resources", nargs="*", metavar="VM")
    for verb in ("start", "complete", "cancel"):
        commands.add_parser(verb, parents=[control], help=f"{verb} an event").add_argument("EventId")
    fault = commands.add_parser(
        "fault", parents=[control, settable(FAULT_HELP)], help="inject a fault", formatter_class=RAW
    )
    fault.add_argument("kind", help=", ".join(FAULT_KINDS))
    clear = commands.add_parser("clear", parents=[control], help="clear one fault, or all")
    clear.add_argument("fault", type=int, nargs="?")
    play = commands.add_parser("play", parents=[control], help="play a scenario")
    play.add_argument("scenario", metavar="NAME|FILE")
    journal = commands.add_parser("journal", parents=[control], help="print the journal")
    journal.add_argument("--since", type=port, default=0, metavar="N")
    commands.add_parser("state", parents=[control], help="print VMs, scopes, events and faults")
    commands.add_parser("stop", parents=[control], help="end the emulator")
    commands.add_parser("scenarios", help="list the built-in scenarios")
    commands.add_parser("scenario", help="print a built-in scenario as JSON").add_argument("name")
    return parser.parse_args(argv)


def settings_of(pairs: list[str]) -> Json:
    fields: Json = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise Refusal(f"--set {pair!r}: KEY=VALUE expected")
        try:
            fields[key] = json.loads(value)
        except ValueError:
            fields[key] = value
    return fields


def send_command(args: argparse.Namespace) -> int:
    """The client commands: one request to the control API, its answer to stdout."""
    control = args.control
    if args.ready_file:
        ready = load_json(args.ready_file, "ready file")
        control = ready.get("control") if isinstance(ready, dict) else None
    if not control:
        raise Refusal("say which emulator: --control URL, --ready-file FILE or AZURE_EVENTS_CONTROL")
    path: str = args.command
    spec: Json = {}
    if path == "publish":
        spec = {"EventType": args.EventType, "Resources": args.Resources, **settings_of(args.set)}
    elif path in ("start", "complete", "cancel"):
        spec = {"EventId": args.EventId}
    elif path == "fault":
        spec = {"kind": args.kind, **settings_of(args.set)}
    elif path == "clear":
        path, spec = "faults/clear", {} if args.fault is None else {"fault": args.fault}
    elif path == "play":
        spec = {"scenario": load_scenario(args.scenario)}
    method = "GET" if path in ("state", "journal") else "POST"
    if path == "journal":
        path += f"?since={args.since}"
    parts = urlsplit(control)
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=10)
        connection.request(method, f"/{path}", json.dumps(spec) if method == "POST" else None)
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"azure_events_emulator: {control} does not answer: {error}", file=sys.stderr)
        return 1
    if response.status != 200:
        raise Refusal(json.loads(text)["error"])
    print(text.rstrip("\n"))
    return 0


def main(argv: list[str]) -> int:
    args = parse_args(argv)
    try:
        if args.command == "serve":
            return Emulator(args).run(args.ready_file)
        if args.command == "scenarios":
            width = max(map(len, SCENARIOS))
            print("\n".join(f"{name:<{width}}  {scenario['description']}" for name, scenario in SCENARIOS.items()))
            return 0
        if args.command == "scenario":
            print(json.dumps({"name": args.name, **load_scenario(args.name)}, indent=2))
            return 0
        return send_command(args)
    except Refusal as refusal:
        print(f"azure_events_emulator: {refusal}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
