# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  endpoint:
    description:
      - Where the metadata service is, as a URL of scheme and host only, such as V(http://127.0.0.1:8080).
      - V(auto) asks the address that every VM in a VNet has, C(169.254.169.254), and if nothing answers there, the
        address in DHCP option 245, on ports 80 and 8080. On Linux that is from the lease files of dhclient,
        systemd-networkd, NetworkManager or dhcpcd, on Windows from its DHCP client, the environment variable
        C(SCHEDULEDEVENTSIP) or the registry value C(HKLM\Software\ScheduledEvents\ScheduledEventsIp).
    type: str
    default: auto
  api_version:
    description:
      - The version of the Scheduled Events API. What a version does not have is V(none) in the result.
      - V(auto) is the newest that the service takes. It begins with V(2024-07-09), which is needed for
        SpotRebalanceRecommendation events and which not every service has, and goes on with the next older one when the
        service answers 404 or 400.
      - A version that the service refuses is an error, with the versions it offers if it says so.
    type: str
    default: "2020-07-01"
  connect_timeout:
    description:
      - Seconds until the service has to take the connection.
    type: float
    default: 5
  read_timeout:
    description:
      - Seconds until the service has to have sent its whole answer.
      - The very first request of a VM enables the service and may take two minutes.
      - Together with O(connect_timeout) this bounds a read with all its retries.
    type: float
    default: 130
  retries:
    description:
      - How often to ask again after a failure that may pass, such as a refused connection, a 429 or 503 answer, or a
        broken document. V(0) means never. A 401 or 403 answer is final.
      - A 410 answer means that the service is moving and is tried again for up to 70 seconds.
    type: int
    default: 3
  vm_name:
    description:
      - This VM's Azure name, which is what events name their resources by. It often differs from the hostname.
      - If not given, the service is asked for it. On classic VMs, which have no instance metadata, the result has
        V(none) for it and the module warns.
    type: str
"""

    # What runs on Linux hosts needs a library; its twins for Windows do not.
    LIBRARY = r"""
options: {}
requirements:
  - requests (on Linux hosts; the playbook C(graceful.azure.prepare) installs it)
"""

    FILTERS = r"""
options:
  event_ids:
    description:
      - Only events with one of these ids. Case does not matter.
    type: list
    elements: str
    aliases: [event_id]
  event_types:
    description:
      - Only events of these types, such as V(Freeze), V(Reboot), V(Redeploy), V(Preempt), V(Terminate) or
        V(SpotRebalanceRecommendation). Other names are accepted with a warning.
    type: list
    elements: str
  event_statuses:
    description:
      - Only events in one of these states, V(Scheduled) or V(Started).
    type: list
    elements: str
  event_sources:
    description:
      - Only events from one of these sources, V(Platform) or V(User).
    type: list
    elements: str
  only_mine:
    description:
      - Only events that name this VM. In an availability set or scale set a VM also sees the events of the other VMs.
    type: bool
    default: false
"""
