# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: scheduled_events
short_description: Poll metadata services for the events that Azure announces
description:
  - Polls one or several Azure metadata services for Scheduled Events, and emits each change once.
  - What is emitted is C(payload) with the message that the role P(graceful.azure.watcher#role) sends, a CloudEvent
    with C(type), C(subject) and C(data), so that the same rules take both.
  - C(type) is C(graceful.azure.scheduled_event.) and the change, C(appeared), C(changed), C(started) or C(gone).
  - A metadata service can be asked from its own VM only. This source is for a VM that watches itself, for a few VMs
    whose service is forwarded, and for the emulator.
  - For a fleet put the role P(graceful.azure.watcher#role) on the hosts.
  - It keeps nothing on disk. When the rulebook is started, what is announced then is emitted as C(appeared).
  - A service that cannot be read is logged, and asked again. Nothing counts as gone meanwhile.
  - It needs nothing but what ansible-rulebook brings.
author:
  - graceful.azure contributors
options:
  services:
    description:
      - The services to poll, at most 200.
      - If this is not given, the one of the VM that ansible-rulebook runs on.
    type: list
    elements: dict
    suboptions:
      host:
        description: The host's name in the inventory.
        type: str
        required: true
      endpoint:
        description:
          - Where its metadata service is, as scheme and host, such as C(http://127.0.0.1:8080).
          - C(auto) is the address in every VNet, then the one from DHCP.
        type: str
        default: auto
      vm_name:
        description: The VM's Azure name. If this is not given, the service is asked.
        type: str
  poll_interval:
    description: Seconds from one look to the next, 0.2 to 3600. The service takes about five requests a second.
    type: float
    default: 1
  api_version:
    description: Version of the service's API. C(auto) is the newest that it takes.
    type: str
    default: "2020-07-01"
"""

EXAMPLES = r"""
# The VM that ansible-rulebook runs on.
- graceful.azure.scheduled_events:

# Two emulated VMs.
- graceful.azure.scheduled_events:
    services:
      - {host: web1, endpoint: "http://127.0.0.1:8081"}
      - {host: web2, endpoint: "http://127.0.0.1:8082"}
    poll_interval: 0.5
"""

import asyncio
import concurrent.futures
import logging
import runpy
import typing as t
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[4]
load = runpy.run_path(str(COLLECTION / "plugins" / "plugin_utils" / "_by_path.py"))["load"]
transport, polling = load("module_utils._transport"), load("plugin_utils._polling")
logger = logging.getLogger("graceful.azure.scheduled_events")


async def watch(
    polled: t.Any, queue: asyncio.Queue[t.Any], loop: asyncio.AbstractEventLoop, pool: concurrent.futures.Executor
) -> None:
    while True:
        begin = loop.time()
        messages, pause = await loop.run_in_executor(pool, polled.look)
        for message in messages:
            await queue.put({"payload": message})
        await asyncio.sleep(max(0.0, begin + pause - loop.time()))


async def main(queue: asyncio.Queue[t.Any], args: dict[str, t.Any]) -> None:
    """Poll until the rulebook ends."""
    options = polling.read_options(args)
    loop = asyncio.get_running_loop()
    senders = [transport.PlainTransport() for _place in options.services]
    pool = concurrent.futures.ThreadPoolExecutor(len(senders), "scheduled_events")
    try:
        services = [
            polling.Polled(place, options, sender, logger.warning)
            for place, sender in zip(options.services, senders, strict=True)
        ]
        await asyncio.gather(*(watch(polled, queue, loop, pool) for polled in services))
    finally:
        # Python waits for the threads before it ends.
        for sender in senders:
            sender.abort()
        pool.shutdown(wait=False, cancel_futures=True)
