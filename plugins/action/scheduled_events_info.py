# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.plugins.action.normal import ActionModule as NormalAction

from ..plugin_utils._platform import HostAction


class ActionModule(HostAction, NormalAction):
    """What ansible-core does for a module without an action plugin."""
