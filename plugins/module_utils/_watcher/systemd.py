# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notifies the service manager: that the service is ready, alive, and what it does."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """If there is a service manager; see sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # "@" stands for the abstract namespace, whose names begin with a zero byte.
    place = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1.0)
        channel.connect(place)
        channel.sendall("\n".join(line.replace("\n", " ") for line in lines).encode("utf-8", "replace"))
