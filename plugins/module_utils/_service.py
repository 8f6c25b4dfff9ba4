# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""Knows the metadata service's paths: the events, this VM's name, and how to approve."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ansible_collections.graceful.azure.plugins.module_utils._client import Client
from ansible_collections.graceful.azure.plugins.module_utils._document import (
    BrokenDocument,
    Document,
    load_json,
    parse,
    parse_time,
    plain_name,
)
from ansible_collections.graceful.azure.plugins.module_utils._errors import PassingFailure, Refused
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply

EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"
INSTANCE_VERSION = "2021-02-01"
PREVIEW_VERSION = "2017-03-01"


class Reading(t.NamedTuple):
    document: Document
    service_time: datetime
    clock_offset: float | None


class Service:
    """One VM's metadata service."""

    def __init__(self, client: Client, api_version: str) -> None:
        self.client = client
        self.api_version = api_version
        self._etag: str | None = None
        self._document: Document | None = None

    @property
    def endpoint(self) -> str:
        return self.client.endpoint

    def read(self) -> Reading:
        """The document as it stands now, with the time by the service's own clock."""
        headers = {"If-None-Match": self._etag} if self._etag else {}
        return self.client.fetch(EVENTS_PATH, {"api-version": self.api_version}, self._decode, headers)

    def _decode(self, reply: Reply) -> Reading:
        if reply.status == 304 and self._document is not None:
            document = self._document
        else:
            try:
                document = parse(reply.body)
            except BrokenDocument as exc:
                raise PassingFailure(
                    f"What {self.endpoint}{EVENTS_PATH} sent is not an events document: {exc}."
                ) from exc
            self._document, self._etag = document, reply.headers.get("ETag")
        date, now = parse_time(reply.headers.get("Date", "")), self.client.clock.utc_now()
        return Reading(document, date or now, None if date is None else round((date - now).total_seconds(), 1))

    def vm_name(self) -> str | None:
        """This VM's Azure name; None where the service has no instance metadata, as on classic VMs."""
        try:
            return self.client.fetch(INSTANCE_PATH, {"api-version": INSTANCE_VERSION}, self._decode_name)
        except Refused as exc:
            if exc.status in (400, 404, 405):
                return None
            raise

    def _decode_name(self, reply: Reply) -> str | None:
        try:
            content = load_json(reply.body)
        except BrokenDocument as exc:
            raise PassingFailure(f"What {self.endpoint}{INSTANCE_PATH} sent is not usable: {exc}.") from exc
        compute = content.get("compute") if isinstance(content, dict) else None
        name = compute.get("name") if isinstance(compute, dict) else None
        return plain_name(name) if isinstance(name, str) and name else None

    def start(self, event_ids: t.Sequence[str], document: Document) -> None:
        """Approve these events, spelled as in the document; sent once, never repeated here."""
        content: dict[str, t.Any] = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        if self.api_version == PREVIEW_VERSION:
            content["DocumentIncarnation"] = document.incarnation
        self.client.post(EVENTS_PATH, {"api-version": self.api_version}, content)
