# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in C(check_mode)) when in diff mode.
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing.
  action_group:
    description: Use C(group/graceful.azure.imds) in C(module_defaults) to set defaults for all modules of the group.
    support: full
    membership:
      - graceful.azure.imds
  platform:
    description: Operating systems that the module runs on.
    support: full
    platforms: posix
"""
