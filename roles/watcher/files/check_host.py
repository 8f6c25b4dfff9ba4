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
        return f"The watcher needs Python 3.8 or newer, and {sys.executable} is older: set watcher_python."
    if started and not os.path.isdir("/run/systemd/system"):
        return "The watcher needs systemd, which does not run on this host."
    if started and os.geteuid() != 0:
        return "The watcher has to be installed as root: set become."
    return ""


if __name__ == "__main__":
    reason = missing(sys.argv[1:] == ["yes"])
    if reason:
        sys.exit(reason)
