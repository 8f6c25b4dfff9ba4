# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drill: what is announced to which hosts, whether it may begin, and whether it was fast enough. Pure."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ..module_utils._checks import WrongSetting
from ..module_utils._document import same_id
from ..module_utils._kind import WINDOWS
from ..module_utils._text import clean, duration, is_or_are, listed
from ._capacity import Ledger
from ._fleet import Fleet
from ._readiness import Answer, record_problem
from ._report import Event, Report, read

Json = dict[str, t.Any]

# The least notice that Azure promises, in seconds.
NOTICES = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Terminate": 300, "Preempt": 30}
# Azure does not wait for an approval of these, so the time until the hosts are ready counts.
NOT_APPROVED = ("Preempt",)
DRILL = "This was a drill: the events were emulated, Azure announced nothing."
DESCRIPTION = "A drill. Nothing is going to be rebooted."
CONSENT = (
    "A drill drains these hosts for real, as maintenance would. Nothing is rebooted, but they leave service for a "
    "while. If that is what you want, run it again with -e graceful_drill_consent=yes."
)
NO_PLACE = (
    "All hosts of this drill are Windows hosts, and the emulator of the metadata service needs Python on Linux. Add a "
    "Linux host that they can reach to the play, and name the hosts to drill with graceful_drill_targets."
)
UNKNOWN = (
    "Not every host got ready, or not every event was approved, so it is not known how long it would have taken. "
    "The report has the reasons."
)
TIME_TO_NOTICE = (
    "This counts from the announcement, as Azure's notice does. In a real maintenance, add the time until a run begins."
)
# Characters that the emulator does not accept in names of VMs, and the URLs that it returns.
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
_ADDRESS = re.compile(r"http://(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5}")


# ---- before it


def planned(
    values: t.Mapping[str, t.Any], hosts: t.Sequence[str], drill_id: str, windows: t.Collection[str] = ()
) -> Json:
    """The drill that the variables describe. Raises WrongSetting for the first mistake.

    The emulator is written in Python, so it runs on the first host that is not a Windows host."""
    if values["drill_consent"].strip().lower() not in ("yes", "true"):
        raise WrongSetting(CONSENT)
    emulator_host = next((host for host in hosts if host not in windows), None)
    if emulator_host is None:
        raise WrongSetting(NO_PLACE)
    address = _address(values["drill_address"].strip(), emulator_host)
    targets = _targets(values["drill_targets"], hosts)
    names = _vm_names(hosts)
    return {
        "emulator_host": emulator_host,
        "address": address,
        "targets": targets,
        "names": names,
        # A new scope makes sure that an emulator of an earlier drill is not used again.
        "vms": {name: {"scope": f"drill-{drill_id}"} for name in names.values()},
        "announcements": _announcements(values, [names[host] for host in targets]),
        **{key: values[f"drill_{key}"] for key in ("port", "control_port", "dir", "run_by")},
    }


def _address(address: str, host: str) -> str:
    where = f"an address of {clean(host, 80)}, where the emulator runs, that all hosts reach"
    if not address:
        raise WrongSetting(f"graceful_drill_address is not set. It has to be {where}.")
    try:
        everywhere = ipaddress.ip_address(address).is_unspecified
    except ValueError:
        # A name that the host resolves.
        everywhere = False
    if everywhere:
        raise WrongSetting(f"graceful_drill_address is {clean(address, 80)}. It has to be one address: {where}.")
    return address


def _targets(given: t.Any, hosts: t.Sequence[str]) -> list[str]:
    """Host names, as a list or with commas; all hosts where none are given."""
    parts = given if isinstance(given, (list, tuple)) else [given] if given else []
    if not all(isinstance(part, str) for part in parts):
        raise WrongSetting("graceful_drill_targets has to be host names, as a list or with commas.")
    names = list(dict.fromkeys(name.strip() for part in parts for name in part.split(",") if name.strip()))
    unknown = [name for name in names if name not in hosts]
    if unknown:
        raise WrongSetting(
            f"graceful_drill_targets names {listed(unknown)}, which {is_or_are(unknown)} not part of this drill. "
            f"Its hosts are {listed(hosts, 20)}."
        )
    return names or list(hosts)


def _vm_names(hosts: t.Sequence[str]) -> dict[str, str]:
    """In a drill the VMs have the inventory names, changed where the emulator does not accept them."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for number, host in enumerate(hosts, 1):
        name = _NOT_IN_NAMES.sub("-", host)
        names[host] = f"{name}-{number}" if name.lower() in taken else name
        taken.add(names[host].lower())
    return names


def _announcements(values: t.Mapping[str, t.Any], names: t.Sequence[str]) -> list[Json]:
    kind = values["drill_event"]
    event = {
        "EventType": kind,
        # Like a maintenance by Azure. A policy may have other rules for events of users.
        "EventSource": "Platform",
        "Description": DESCRIPTION,
        "started_for": values["drill_duration"],
    }
    if values["drill_notice"] is not None:
        event["notice"] = values["drill_notice"]
    # Azure deletes each VM by an event of its own.
    groups = [[name] for name in names] if kind == "Terminate" else [list(names)]
    return [{**event, "Resources": group} for group in groups]


def objections(drill: Json, answers: t.Mapping[str, Answer], groups: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """The reasons why the drill must not begin, from the state of the hosts. Real maintenance has priority."""
    found = []
    if answers.get(drill["emulator_host"], {}).get("platform") == WINDOWS:
        found.append(
            f"{clean(drill['emulator_host'], 80)}: the emulator cannot run on a Windows host. Set ansible_connection "
            "or ansible_shell_type for it in the inventory, and another host is used"
        )
    for host, answer in answers.items():
        found += [f"{clean(host, 80)}: {text}" for text in _objections(host, answer, drill)]
    return found or _too_many(drill["targets"], answers, groups)


def _objections(host: str, answer: Answer, drill: Json) -> list[str]:
    if not answer["reachable"]:
        needed = host in (drill["emulator_host"], *drill["targets"])
        return [f"it cannot be reached: {answer['error']}"] if needed else []
    observation = answer["observation"]
    if observation is None:
        return [f"it cannot be asked: {answer['error']}"] if host in drill["targets"] else []
    found = []
    if host in drill["targets"]:
        problem = record_problem(answer)
        found += [*([problem] if problem else []), *answer["mistakes"]]
    for entry in ((observation["record"] or {}).get("events") or {}).values():
        event, claim = entry["event"], entry["claim"]
        found.append(
            f"the run {claim['run_name']} has not put it back after {event['event_type']} {event['event_id']}. "
            "Run graceful.azure.maintenance first"
        )
    announced = [event for event in observation["events"] or [] if event["affects_me"] is not False]
    found += [f"Azure has announced a {event['event_type']} ({event['event_id']}) to it" for event in announced]
    return found


def _too_many(
    targets: t.Sequence[str], answers: t.Mapping[str, Answer], groups: t.Mapping[str, t.Sequence[str]]
) -> list[str]:
    """Whether graceful_min_available allows to drain all targets at once, and if not, which of them."""
    seen = {host: {"reachable": answer["reachable"]} for host, answer in answers.items()}
    demands = {host: {"min_available": answer["min_available"]} for host, answer in answers.items()}
    fleet = Fleet(seen, groups, list(answers), demands)
    ledger = Ledger(fleet.members, fleet.required()[0], fleet.away())
    shortages = ledger.shortages(targets)
    if not shortages:
        return []
    fitting: list[str] = []
    for host in targets:
        if not ledger.shortages([*fitting, host]):
            fitting.append(host)
    allowed = f"These can be: -e graceful_drill_targets={','.join(fitting)}" if fitting else "None of them can be now"
    return [
        f"graceful_min_available does not allow all targets to be drained at once: {'; '.join(shortages)}. {allowed}"
    ]


def begun(drill: Json, ready: t.Any, announced: str) -> tuple[Json, str]:
    """What the role maintenance needs to know about the drill, and the URL of the emulator's control."""
    answer = ready if isinstance(ready, t.Mapping) else {}
    vms = answer.get("vms")
    addresses = vms if isinstance(vms, t.Mapping) else {}
    endpoints = {host: str(addresses.get(name)) for host, name in drill["names"].items()}
    control = str(answer.get("control"))
    if not all(map(_ADDRESS.fullmatch, [*endpoints.values(), control])):
        raise WrongSetting(
            f"The emulator on {clean(drill['emulator_host'], 80)} does not return its addresses. See its log in "
            f"{clean(drill['dir'], 200)}."
        )
    return {"names": drill["names"], "endpoints": endpoints, "announced": announced}, control


def under_way(variables: t.Mapping[str, t.Any]) -> Json:
    """The drill that is under way in this play, empty if there is none."""
    if "graceful_drill" in (variables.get("ansible_facts") or {}):
        raise WrongSetting(
            "A host returns a fact with the name graceful_drill, which is not accepted. Find out where the fact comes "
            "from, or leave the host out."
        )
    given = variables.get("graceful_drill")
    if not isinstance(given, t.Mapping) or not given.get("announced"):
        return {}
    return {key: given[key] for key in ("names", "endpoints", "announced")}


# ---- after it


def margin(data: t.Any) -> Json:
    """Seconds from the announcement until the hosts were ready and the event was approved, against every notice."""
    report = read(data)
    noticed = _needed(report, [event.noticed for event in report.events])
    ready = _needed(report, [_ready(event, report) for event in report.events])
    approved = _needed(report, [event.approved for event in report.events])
    notices = {}
    for kind, notice in NOTICES.items():
        needed = approved if ready is None or (approved is not None and kind not in NOT_APPROVED) else ready
        if needed is not None:
            notices[kind] = {"notice": notice, "needed": needed, "spare": notice - needed}
    return {"noticed": noticed, "ready": ready, "approved": approved, "notices": notices}


def drill_margin(data: t.Any) -> list[str]:
    """The same as sentences."""
    found = margin(data)
    noticed = "" if not found["noticed"] else f" (it was noticed after {duration(found['noticed'])})"
    if found["approved"] is not None:
        first = f"Ready and approved {duration(found['approved'])} after the announcement{noticed}."
    elif found["ready"] is not None:
        first = f"Drained and saved {duration(found['ready'])} after the announcement{noticed}. Nothing was approved."
    else:
        return [UNKNOWN]
    return [
        first,
        *(_verdict(kind, one["notice"], one["spare"]) for kind, one in found["notices"].items()),
        TIME_TO_NOTICE,
    ]


def _needed(report: Report, times: t.Sequence[float | None]) -> float | None:
    """Seconds until the last of these times, one for each event; None unless all are known."""
    begins = [event.noticed if report.announced is None else report.announced for event in report.events]
    pairs = zip(begins, times, strict=True)
    return _last([None if begin is None or at is None else max(0.0, at - begin) for begin, at in pairs])


def _ready(event: Event, report: Report) -> float | None:
    """When the last host of the event was ready; None unless all of them got ready."""
    event_id = same_id(event.event_id)
    times = {
        host.name: at
        for host in report.hosts
        for at, entry in host.in_time
        if entry.what == "ready" and entry.event_id in ("", event_id)
    }
    return _last([times.get(name) for name in event.hosts])


def _last(times: t.Sequence[float | None]) -> float | None:
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def _verdict(kind: str, notice: float, spare: float) -> str:
    if spare >= 0:
        return f"{kind} ({duration(notice)} of notice): in time, {duration(spare)} to spare."
    return f"{kind} ({duration(notice)} of notice): too late by {duration(-spare)}."
