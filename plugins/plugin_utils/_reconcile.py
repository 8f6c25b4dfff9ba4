# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop: the state of a run, and what one pass makes of it. Pure: no I/O, and the clock is handed in.

The state is JSON. All of it that matters can be rebuilt from Azure's document and the records of the hosts.
"""

from __future__ import annotations

import copy
import typing as t

from ..module_utils._text import iso
from ._approvals import decide_approvals
from ._next_tasks import ACT, choose_next_tasks
from ._observed import note_events, note_hosts
from ._orders import give_orders
from ._pass import Pass, PassInput

Json = dict[str, t.Any]


def begin(run_id: str, run_name: str, options: Json, now: float) -> Json:
    """The state of a run before its first pass. Options are the settings of the run, check_mode, forks, drill and
    webhooks."""
    return {
        "run_id": run_id,
        "run_name": run_name,
        "options": options,
        "started": iso(now),
        "wait_until": now + options["wait"],
        "pass": 0,
        "at": now,
        # What is known of each event, by its id in small letters, and of each host: see _observed.py.
        "events": {},
        "hosts": {},
        # Azure names that hosts reported in this run, and in earlier ones; hosts whose new name is doubtful.
        "names": {},
        "earlier_names": {},
        "doubtful_names": [],
        # Those of the inventory, if the run is for one event.
        "inventory_names": {},
        # What the last plan says about all events together.
        "summary": [],
        "missing_groups": [],
        # The hosts that are asked, None for all hosts of the play; and why all are asked after all.
        "only": None,
        "ask_all_reason": "",
        # The hosts that take part in the next pass, and what they are to do.
        "involved": [],
        "orders": {},
        # Steps that the controller takes for hosts before they are called, by host.
        "controller_steps": {},
        # Approvals to send, and events to ask a person about, before the next pass.
        "approve": [],
        "confirm": [],
        "confirmed_at": None,
        # Webhook occasions that were sent, with the id of their event, and those to send now.
        "sent": [],
        "tell": [],
        # Whether any host was given something to do.
        "has_worked": False,
        # How often the run began again with all hosts, because some had to be added.
        "restarts": 0,
        "printed_at": 0.0,
        "next": ACT,
        # When and why the run has ended; None while it goes on.
        "finished": None,
        "end_reason": "",
    }


def advance(before: Json, given: PassInput) -> Json:
    """The run after one more pass."""
    this = Pass(copy.deepcopy(before), given)
    note_hosts(this)
    note_events(this)
    decide_approvals(this)
    give_orders(this)
    choose_next_tasks(this)
    return this.run
