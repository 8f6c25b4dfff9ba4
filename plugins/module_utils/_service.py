# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metadata service: its paths and API versions, the events, this VM's name, and approving."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ._client import Client, Limits, Sender
from ._document import BrokenDocument, Document, Event, load_json, parse, parse_time, plain_name, seen_by
from ._endpoint import VNET_ENDPOINT, checked, lease_endpoints
from ._errors import PassingFailure, Refused, WrongOption
from ._text import clean
from ._transport import Reply

EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"
INSTANCE_VERSION = "2021-02-01"
PREVIEW_VERSION = "2017-03-01"
AUTO = "auto"
# Newest first: the order in which api_version=auto tries them.
VERSIONS = (
    "2024-07-09", "2020-07-01", "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01", "2017-08-01", PREVIEW_VERSION,
)  # fmt: skip
# Seconds until a VM that has no name, such as a classic one, is asked for it again.
NAME_AGAIN = 60.0
# The answers to a version that the service does not have.
VERSION_REFUSED = (400, 404)


class Reading(t.NamedTuple):
    document: Document
    service_time: datetime
    clock_offset: float | None


class Service:
    """One VM's metadata service."""

    def __init__(self, client: Client, api_version: str) -> None:
        self.client = client
        # With auto, until the service has accepted a version.
        self._choosing = api_version.lower() == AUTO
        self.api_version = VERSIONS[0] if self._choosing else api_version
        self._etag: str | None = None
        self._document: Document | None = None
        self._ask_name_at = 0.0

    @property
    def endpoint(self) -> str:
        return self.client.endpoint

    def begin_with(self, api_version: str | None) -> None:
        """With auto, try this version first: it was found before."""
        if self._choosing and api_version in VERSIONS:
            self.api_version = api_version

    def read(self) -> Reading:
        """The current document, and the time by the service's clock."""
        headers = {"If-None-Match": self._etag} if self._etag else {}
        deadline = self.client.deadline()
        while True:
            query = {"api-version": self.api_version}
            try:
                reading = self.client.fetch(EVENTS_PATH, query, self._decode, headers, deadline)
            except Refused as refusal:
                if not self._choosing or refusal.status not in VERSION_REFUSED:
                    raise
                self.api_version = self._next_older(refusal)
            else:
                self._choosing = False
                return reading

    def look(self, vm_name: str | None) -> tuple[Reading, str | None, list[Event]]:
        """The document, this VM's name, which is asked for if it is not known, and the events as this VM sees them."""
        reading = self.read()
        vm_name = self.vm_name() if vm_name is None else vm_name
        return reading, vm_name, seen_by(reading.document, vm_name, reading.service_time)

    def _next_older(self, refusal: Refused) -> str:
        if self.api_version == VERSIONS[-1]:
            raise Refused(
                f"The metadata service at {self.endpoint} supports none of the API versions from {VERSIONS[0]} to "
                f"{VERSIONS[-1]}; it answered {refusal.status} to the last. Check endpoint, and that this VM has a "
                "metadata service.",
                refusal.status,
            ) from refusal
        return VERSIONS[VERSIONS.index(self.api_version) + 1]

    def _decode(self, reply: Reply) -> Reading:
        if reply.status == 304 and self._document is not None:
            document = self._document
        else:
            document = self._parse(reply)
            self._document, self._etag = document, reply.headers.get("ETag")
        date, now = parse_time(reply.headers.get("Date", "")), self.client.clock.utc_now()
        return Reading(document, date or now, None if date is None else round((date - now).total_seconds(), 1))

    def _parse(self, reply: Reply) -> Document:
        try:
            document = parse(reply.body)
        except BrokenDocument as exc:
            raise self._unusable(EVENTS_PATH, "an events document", exc) from exc
        return document._replace(oddities=[clean(oddity) for oddity in document.oddities])

    def _unusable(self, path: str, expected: str, exc: BrokenDocument) -> PassingFailure:
        return PassingFailure(
            f"The response of {self.endpoint}{path} is not {expected}: {clean(exc)}. "
            "Check which service is at endpoint."
        )

    def vm_name(self) -> str | None:
        """This VM's Azure name; None where the service has no instance metadata, as on classic VMs."""
        now = self.client.clock.monotonic()
        if now < self._ask_name_at:
            return None
        try:
            name = self.client.fetch(INSTANCE_PATH, {"api-version": INSTANCE_VERSION}, self._decode_name)
        except Refused as exc:
            if exc.status not in (400, 404, 405):
                raise
            name = None
        if name is None:
            self._ask_name_at = now + NAME_AGAIN
        return name

    def _decode_name(self, reply: Reply) -> str | None:
        try:
            content = load_json(reply.body)
        except BrokenDocument as exc:
            raise self._unusable(INSTANCE_PATH, "instance metadata", exc) from exc
        compute = content.get("compute") if isinstance(content, dict) else None
        name = compute.get("name") if isinstance(compute, dict) else None
        return plain_name(name) if isinstance(name, str) and name else None

    def start(self, event_ids: t.Sequence[str], document: Document) -> None:
        """Approve these events, spelled as in the document, by one POST."""
        content: dict[str, t.Any] = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        if self.api_version == PREVIEW_VERSION:
            content["DocumentIncarnation"] = document.incarnation
        self.client.post(EVENTS_PATH, {"api-version": self.api_version}, content)


def service_of(params: t.Mapping[str, t.Any], transport: Sender | None = None) -> Service:
    """The service as the shared options describe it."""
    if transport is None:
        from ._requests_transport import RequestsTransport

        transport = RequestsTransport()
    automatic = params["endpoint"].strip().lower() == AUTO
    client = Client(
        transport,
        VNET_ENDPOINT if automatic else checked(params["endpoint"]),
        Limits(params["connect_timeout"], params["read_timeout"], params["retries"]).checked(),
        fallbacks=lease_endpoints if automatic else tuple,
    )
    if not params["api_version"].strip():
        raise WrongOption("api_version is empty; leave it out, or give one such as 2020-07-01, or auto.")
    return Service(client, params["api_version"].strip())
