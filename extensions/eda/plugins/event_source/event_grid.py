# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: event_grid
short_description: Receive the events that Azure announces from Azure Event Grid
description:
  - Receives what an Azure Event Grid subscription delivers by webhook, and emits each change once. The system topic is
    C(microsoft.resourcenotifications.MaintenanceResources).
  - What is emitted is C(payload) with the message that the role P(graceful.azure.watcher#role) sends, a CloudEvent
    with C(type), C(subject) and C(data), so that the same rules take both.
  - C(type) is C(graceful.azure.scheduled_event.) and the change, C(appeared), C(changed), C(started) or C(gone). The
    C(outcome) of what is gone is C(completed) or C(cancelled).
  - Accepts the Event Grid schema and the CloudEvents schema, and answers the handshake of both.
  - A delivery that comes again is answered, and emitted only once. It keeps nothing on disk, so that after a restart it
    does not know what was delivered before.
  - Event Grid does not sign its requests. Anybody who knows O(secret) can start a run, which then finds that nothing
    is announced.
  - Everything else is refused, with 404 for another path, 405 for another method, 413 for a body that is too large, and
    400 for what is no scheduled event. Event Grid does not repeat what was refused with 400 or 413.
  - It needs nothing but what ansible-rulebook brings.
author:
  - graceful.azure contributors
options:
  host:
    description: The address to listen on.
    type: str
    default: 127.0.0.1
  port:
    description: The TCP port to listen on.
    type: int
    required: true
  secret:
    description:
      - The path of the URL that Event Grid is given, 20 to 200 letters, digits, C(-) and C(_).
      - It is the only protection. Take it from a vault, and never log the URL.
    type: str
    required: true
  certfile:
    description:
      - A file with the certificate and those between it and the CA. Event Grid sends to HTTPS only, with a public
        certificate.
      - If this is not given, it speaks plain HTTP, for a proxy on the same machine that does TLS.
    type: str
  keyfile:
    description: A file with the key of the certificate. If this is not given, the key is in O(certfile).
    type: str
  subscriptions:
    description: Ids of Azure subscriptions. If this is given, what comes from others is refused.
    type: list
    elements: str
"""

EXAMPLES = r"""
- graceful.azure.event_grid:
    host: 0.0.0.0
    port: 8443
    secret: "{{ graceful_event_grid_secret }}"
    certfile: /etc/ssl/private/eda.example.com.pem
    subscriptions: [6f0b3e6e-54f3-4b7a-8d5e-0a5f8f4f2a11]
"""

import asyncio
import hmac
import logging
import runpy
import ssl
import typing as t
from pathlib import Path

from aiohttp import web

COLLECTION = Path(__file__).resolve().parents[4]
load = runpy.run_path(str(COLLECTION / "plugins" / "plugin_utils" / "_by_path.py"))["load"]
errors, text = load("module_utils._errors"), load("module_utils._text")
grid = load("plugin_utils._event_grid")
logger = logging.getLogger("graceful.azure.event_grid")
# Seconds to receive a delivery. Event Grid waits for 30 seconds, too.
READ_TIMEOUT = 30.0


class Server:
    def __init__(self, options: t.Any, queue: asyncio.Queue[t.Any]) -> None:
        self._secret = f"/{options.secret}".encode()
        self._receiver = grid.Receiver(options.subscriptions)
        self._queue = queue

    async def answer(self, request: web.Request) -> web.Response:
        """Every wrong path gets the same answer, which does not reveal the right one."""
        if not hmac.compare_digest(request.rel_url.raw_path.encode("utf-8", "replace"), self._secret):
            return web.json_response({"error": "Not found."}, status=404)
        if request.method == "OPTIONS":
            status, headers = grid.handshake(request.headers)
            return web.Response(status=status, headers=headers)
        if request.method != "POST":
            return web.json_response({"error": "Use POST."}, status=405, headers={"Allow": "POST, OPTIONS"})
        try:
            body = await asyncio.wait_for(request.read(), READ_TIMEOUT)
        except web.HTTPRequestEntityTooLarge:
            logger.warning("Refused a delivery of more than %d bytes.", grid.LARGEST_BODY)
            return web.json_response({"error": "Too large."}, status=413)
        except (asyncio.TimeoutError, TimeoutError):
            return web.json_response({"error": "Too slow."}, status=408)
        answer = self._receiver.post(body)
        if answer.log:
            logger.warning("%s", answer.log)
        for message in answer.messages:
            await self._queue.put({"payload": message})
        return web.json_response(answer.content, status=answer.status)


def tls_context(options: t.Any) -> ssl.SSLContext | None:
    if options.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.certfile, options.keyfile)
    except (OSError, ValueError) as exc:
        raise errors.WrongOption(f"certfile and keyfile cannot be used: {text.clean(exc, 200)}.") from exc
    return context


async def main(queue: asyncio.Queue[t.Any], args: dict[str, t.Any]) -> None:
    """Receive until the rulebook ends."""
    options = grid.read_options(args)
    app = web.Application(client_max_size=grid.LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", Server(options, queue).answer)
    # No access log: the path is the secret.
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.host, options.port, ssl_context=tls_context(options))
        try:
            await site.start()
        except OSError as exc:
            place = f"{text.clean(options.host, 100)} port {options.port}"
            raise errors.WrongOption(f"It cannot listen on {place}: {exc.strerror or exc}.") from exc
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
