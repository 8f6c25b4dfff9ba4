# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which task file of the role maintenance is next, what it finds to do, and why a run has ended. Pure."""

from __future__ import annotations

import typing as t

from ..module_utils._policy import action_of
from ..module_utils._text import iso, listed
from ._pass import Pass, drained_steps, event_title, timestamp

Json = dict[str, t.Any]

# Task files of the role maintenance.
ACT = "act.yml"
APPROVE = "approve.yml"
CONFIRM = "confirm.yml"
CONTROLLER_STEPS = "controller_steps.yml"
FINISH = "finish.yml"
TELL = "tell.yml"
NOTHING = "steps/nothing.yml"
# How long after the host has asked for a step the controller takes it. Claims are valid for longer than that.
CONTROLLER_STEP_SECONDS = 60


def choose_next_tasks(this: Pass) -> None:
    run = this.run
    acting = [host for host, order in run["orders"].items() if order["order"] != "look"]
    steps = {host: step for host in acting if (step := _controller_step(this, host))}
    is_waiting = this.now < run["wait_until"] and (not run["has_worked"] or _is_something_due(this))
    is_pending = acting or run["approve"] or run["confirm"] or this.to_add or is_waiting or this.plans_again()
    if this.options["check_mode"] or not is_pending:
        run.update(next=FINISH, finished=iso(this.now), end_reason=_end_reason(this))
    elif run["confirm"] and (not run["approve"] or run["next"] == APPROVE):
        # What needs no person is approved first. If that fails, the person is asked all the same.
        run["next"] = CONFIRM
    elif run["approve"]:
        run["next"] = APPROVE
    elif this.to_add:
        _restart(this)
    else:
        run["next"] = CONTROLLER_STEPS if steps else ACT
    # The hosts ask again for what the controller does not do in this pass.
    run["controller_steps"] = steps if run["next"] == CONTROLLER_STEPS else {}
    _choose_webhooks(this)


def _restart(this: Pass) -> None:
    """Look at all hosts of the play again. From then on, those that are added take part."""
    run = this.run
    run.update(next=NOTHING, restarts=run["restarts"] + 1, involved=sorted({*this.given.hosts, *this.to_add}))
    if run["only"] is not None:
        run["only"] = sorted({*run["only"], *this.to_add})


def _is_something_due(this: Pass) -> bool:
    """Whether a deferred event begins while this run waits."""
    times = [event["entry"]["wait_until"] for event in this.announced.values()]
    return any(timestamp(time) <= this.run["wait_until"] for time in times if time)


def _controller_step(this: Pass, host: str) -> Json | None:
    """What the controller has to do for the host before it calls it: a step, or a look at its balancers."""
    state, result = this.hosts[host], this.given.hosts[host]
    report, order = state["report"], this.run["orders"][host]["order"]
    if report and report["next"]:
        if this.now - result["at"] > CONTROLLER_STEP_SECONDS:
            # Another run may have taken over since then: the host is asked again.
            return None
        if order == report["order"]:
            return {**report["next"], "tasks": result["step"]["tasks"]}
    if order == "ready" and state["settings"].get("looks") and this.is_new(host):
        return {"mode": "look", "kind": "haproxy", "tasks": "look.yml"}
    return None


# ---- webhooks


def _choose_webhooks(this: Pass) -> None:
    """Send what was not sent yet: at once, unless a host has little time, and at the end of the run."""
    run = this.run
    run["tell"] = []
    if not this.options["webhooks"] or this.options["check_mode"]:
        return
    unsent = [pair for pair in _occasions(this) if pair not in run["sent"]]
    is_urgent = any(order.get("urgent") for order in run["orders"].values())
    if run["next"] == ACT and unsent and not is_urgent:
        run["next"] = TELL
    if run["next"] in (TELL, FINISH):
        run["tell"] = list(dict.fromkeys(occasion for _event_id, occasion in unsent))
        run["sent"] += unsent


def _occasions(this: Pass) -> list[list[str]]:
    pairs = []
    for event_id, event in this.events.items():
        entry = event["entry"]
        if this.held_by_other_run(event_id) or not action_of(entry["action"]).tells:
            continue
        pairs.append([event_id, "noticed"])
        if entry["wait_until"] and not event["gone"]:
            pairs.append([event_id, "deferred"])
        elif event["holds"] and not event["approved"]:
            pairs.append([event_id, "held"])
        if event["approved"]:
            pairs.append([event_id, "approved"])
    return pairs


# ---- the end


def _end_reason(this: Pass) -> str:
    if this.options["check_mode"]:
        return "The run ended after the plan, because check mode changes nothing."
    if not this.events and not this.run["has_worked"]:
        return _nothing_announced(this)
    reasons = [_why_left(this, event_id) for event_id, event in this.events.items() if not event["gone"]]
    left = [host for host in this.hosts if _is_left_drained(this, host)]
    if left:
        reasons.append(f"{listed(left)} could not be put back")
    return f"The run ended because {'; '.join(reasons) or 'nothing is pending any more'}."


def _nothing_announced(this: Pass) -> str:
    not_asked = sorted(filter(this.cannot_be_asked, this.hosts))
    if not not_asked:
        return "Nothing is announced."
    ended = f"The run ended because {listed(not_asked)} could not be asked."
    answered = len(this.hosts) - len(not_asked)
    hosts = "the host" if answered == 1 else f"the {answered} hosts"
    return f"Nothing is announced to {hosts} that answered. {ended}" if answered else ended


def _why_left(this: Pass, event_id: str) -> str:
    """Why nothing more is done for an event that still stands."""
    event = this.events[event_id]
    entry, title = event["entry"], event_title(event["entry"])
    if this.held_by_other_run(event_id):
        return f"another run is handling {title}"
    if entry["wait_until"]:
        return f"{title} is deferred until {entry['wait_until']}: start another run then"
    if this.is_blocked(event_id):
        return f"{title} is held, and nothing is started for it until the reason is corrected"
    if this.has_timed_out(event_id):
        return f"{title} was not over within the time that graceful_gone_timeout allows"
    if event["holds"]:
        return f"this run can do nothing more about {title}"
    return f"nothing has to be done for {title}"


def _is_left_drained(this: Pass, host: str) -> bool:
    """Whether the host is still drained by this run although its events are gone."""
    ours = [event_id for event_id, entry, _may_act in this.claims(host) if this.is_ours(entry)]
    are_gone = all(event_id not in this.events or this.events[event_id]["gone"] for event_id in ours)
    return bool(ours and are_gone and drained_steps(this.hosts[host]["record"]))
