# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where Ansible finds the copy of the collection that the tests run in."""

from __future__ import annotations

import os
from pathlib import Path

COLLECTIONS = Path(os.path.abspath(__file__)).parents[5]
