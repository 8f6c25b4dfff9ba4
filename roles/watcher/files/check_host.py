# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says what a host lacks for the watcher, before anything is installed.

check_host.py STARTED   STARTED is yes if the service is to be started
"""

import os
import sys

OLDEST = (3, 8)


def missing(started: bool) -> str:
    if sys.version_info[:2] < OLDEST:
        return f"{sys.executable} is older than Python 3.8, which the watcher needs: set watcher_python."
    if started and not os.path.isdir("/run/systemd/system"):
        return "This host is not run by systemd, which the watcher needs."
    if started and os.geteuid() != 0:
        return "The watcher is installed by root: set become."
    return ""


if __name__ == "__main__":
    reason = missing(sys.argv[1:] == ["yes"])
    if reason:
        sys.exit(reason)
