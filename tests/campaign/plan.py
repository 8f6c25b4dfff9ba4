# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan, and what may be approved, on random fleets: judged by a second reading of the rules that shares no code."""

from __future__ import annotations

import collections
import contextlib
import copy
import fnmatch
import json
import typing as t
from datetime import datetime

from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._approvals import approvals
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

Json = dict[str, t.Any]

NOW = "2026-09-19T18:00:00Z"
# Inventory names are unlike Azure's; stranger has no host, and outsider no observation.
VMS = {"web1": "shop_0", "Web-2": "SHOP_1", "db": "vault", "cache": "Mem-7"}
NAMES = ["_shop_0", "VAULT", "stranger", "stranger", "", "sh\x1bop {{ x }}"]
IDS = ["A-1", "A-1", "a-1", " A-1 ", "B-2", "B-2", "C-3"]
APPROVING = {"approve", "drain_and_approve"}


class World(t.NamedTuple):
    observations: dict[str, t.Any]
    groups: dict[str, list[str]]
    targeted: list[str]
    settings: dict[str, t.Any]
    reports: dict[str, t.Any]

    def judged(self) -> tuple[Json, Json]:
        made = plan(self.observations, self.groups, self.targeted, self.settings, now=NOW)
        return made, approvals(made, self.reports, now=NOW)


# ---- what is drawn

texts = st.sampled_from(["", "Host is being updated", "{{ 7 * 7 }}", "\x1b[2J"]) | st.text(max_size=4)
kinds = ["Reboot"] * 15 + ["Redeploy", "Freeze", "Freeze", "Preempt", "Terminate", "terminate", "Unheard-of", "", None]
fields = st.fixed_dictionaries(
    {
        "event_id": st.sampled_from(IDS),
        "event_type": st.sampled_from(kinds),
        "event_status": st.sampled_from(["Scheduled"] * 25 + ["Started", "scheduled", "", None]),
        "not_before": st.sampled_from(["2026-09-19T18:15:00Z", "2026-09-20T18:00:00Z", "soon", "", None]),
        "seconds_left": st.sampled_from([900, 900, 86400, 30, 0, -5, None]),
        "duration_seconds": st.sampled_from([None, 5, 10, 11, -1]),
        "event_source": st.sampled_from(["Platform", "User", None]),
        "description": texts,
    }
)
rules = st.fixed_dictionaries(
    {"action": st.sampled_from(["drain_and_approve"] * 4 + ["approve", "approve", "drain", "notify", "ignore"])},
    optional={
        "event_type": st.sampled_from(["Reboot", "reboot", ["Freeze", "Redeploy", "Terminate"]]),
        "group": st.sampled_from(["web", ["web", "nobody"], "all"]),
        "resource": st.sampled_from(["shop_*", ["vault", "Mem-?"]]),
        "notice": st.sampled_from([600, {"min": 600}, {"max": 900}]),
        "max_duration": st.just(10),
        "unknown_names": st.sampled_from(["hold", "ignore", "ignore"]),
    },
)
LENIENT: Json = {"policy": [{"action": "approve", "unknown_names": "ignore"}]}
CLOSED, OPEN = {"start": "20:00", "end": "22:00"}, {"start": "17:00", "end": 1140}
own_settings = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.lists(rules, min_size=1, max_size=2),
        "min_available": st.sampled_from([0, 1, 1, 2, "50%", "100%", {"web": 1}, {"all": 3}]),
        "window": st.sampled_from([CLOSED, CLOSED, OPEN]),
        "drain_budget": st.sampled_from([0, 300, 900]),
    },
)
# What can befall one host: to its observation, to its view of the events, to its reports.
ACCIDENTS: list[Json] = [
    {"reachable": False, "events": None},
    {"reachable": False},
    {"error": "HTTP 500", "events": None},
    {"vm_name": None},
    {"vm_name": "  "},
    {"vm_name": "shop_0"},
    {"events": []},
    {"events": None},
    {"drained": True},
]
VIEWS: list[Json] = [
    {"event_status": "Started"},
    {"resources": ["shop_0"]},
    {"event_type": "Redeploy"},
    {"seconds_left": 30},
    {"duration_seconds": 11},
]
REPORTS: list[t.Any] = [
    None,
    "ready",
    {},
    *({"ready": one, "reason": "held"} for one in (None, 1, "yes", False, False)),
]
SPELLED = [["A-1", "B-2", "C-3"], ["a-1", "b-2", "c-3"], ["A-1", "a-1 ", "B-2", "C-3"], ["B-2"]]
mishaps = st.tuples(
    st.sampled_from(["observation", "twin", "view", "report", "no report", "no observation", "outside"]),
    st.integers(0, 3),
    st.integers(0, 71),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A fleet of one or two scopes whose hosts agree and are ready, and what went wrong with that."""
    hosts = [*VMS][: draw(st.integers(1, 4))]
    names = st.lists(st.sampled_from([*[VMS[host] for host in hosts] * (24 // len(hosts)), *NAMES]), max_size=3)
    scopes = [[{**draw(fields), "resources": draw(names)} for _one in range(draw(st.integers(1, 2)))] for _two in "ab"]
    one_scope = draw(st.integers(0, 2))
    observations: dict[str, t.Any] = {}
    for number, host in enumerate(hosts):
        events = copy.deepcopy(scopes[0 if one_scope else number % 2])
        observations[host] = {"reachable": True, "vm_name": VMS[host], "events": events, "error": None}
    spelled = SPELLED[draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))]
    reports: dict[str, t.Any] = {host: {event_id: {"ready": True} for event_id in spelled} for host in hosts}
    targeted = list(hosts)
    for kind, number, which in draw(st.lists(mishaps, max_size=2)):
        host = hosts[number % len(hosts)]
        if kind == "observation" and host in observations:
            observations[host] |= ACCIDENTS[which % len(ACCIDENTS)]
        elif kind == "twin" and host in observations:
            observations[host]["vm_name"] = VMS[hosts[which % len(hosts)]].upper()
        elif kind == "view" and host in observations:
            for event in observations[host]["events"] or []:
                event.update(VIEWS[which % len(VIEWS)])
        elif kind == "report" and host in reports:
            reports[host][spelled[which % len(spelled)]] = REPORTS[which % len(REPORTS)]
        elif kind == "outside":
            targeted = [other for other in targeted if other != host]
        elif kind in ("no report", "no observation"):
            (reports if kind == "no report" else observations).pop(host, None)
    groups = {"all": hosts, "web": draw(st.sampled_from([hosts[:2], hosts[:2], [*hosts, "outsider"]]))}
    common = draw(st.sampled_from([{}, {}, LENIENT, None]))
    common = draw(own_settings) if common is None else common
    different = draw(st.sampled_from([0, 0, 0, 1]))
    given_settings = {host: draw(own_settings) if different else common for host in hosts}
    return World(observations, groups, targeted, given_settings, reports)


# ---- the second reading


def plain(text: str) -> str:
    return text.removeprefix("_").lower()


def same(event_id: str) -> str:
    return event_id.strip().lower()


def sightings(world: World, event_id: str) -> dict[str, list[Json]]:
    """Who sees the event, and as what."""
    seen = collections.defaultdict(list)
    for host, observation in world.observations.items():
        for event in observation["events"] or []:
            if same(event["event_id"]) == same(event_id):
                seen[host].append(event)
    return dict(seen)


def time_left(versions: list[Json]) -> int | None:
    told = [event["seconds_left"] for event in versions if event["seconds_left"] is not None]
    dates = [event["not_before"] for event in versions if (event["not_before"] or "").endswith("Z")]
    if not told and dates:
        told = [int((datetime.fromisoformat(min(dates)[:-1]) - datetime.fromisoformat(NOW[:-1])).total_seconds())]
    return max(0, min(told)) if told else None


def matches(rule: Json, kind: str, left: int | None, longest: int | None, groups: set[str], vm: str) -> bool:
    def several(key: str) -> list[str]:
        return [rule[key]] if isinstance(rule[key], str) else list(rule[key])

    notice = rule.get("notice", {})
    span = {"max": notice} if isinstance(notice, int) else notice
    return (
        ("event_type" not in rule or kind.lower() in [one.lower() for one in several("event_type")])
        and ("group" not in rule or bool(groups & set(several("group"))))
        and ("resource" not in rule or any(fnmatch.fnmatchcase(plain(vm), plain(one)) for one in several("resource")))
        and (not span or (left is not None and span.get("min", 0) <= left <= span.get("max", left)))
        and ("max_duration" not in rule or (longest is not None and longest <= rule["max_duration"]))
    )


DEFAULTS: list[Json] = [
    {"event_type": "Freeze", "max_duration": 10, "action": "notify"},
    {"event_type": ["Freeze", "Reboot", "Redeploy", "Terminate"], "action": "drain_and_approve"},
    {"event_type": "Preempt", "action": "drain"},
]


def decided(policy: list[Json] | None, *facts: t.Any) -> Json:
    """The rule that decides, the documented defaults included."""
    fitting = (rule for rule in (DEFAULTS if policy is None else policy) if matches(rule, *facts))
    return next(fitting, {"action": "notify"})


def demanded(world: World, host: str, versions: list[Json]) -> Json:
    kind = versions[0]["event_type"] or "Unknown"
    durations = [event["duration_seconds"] for event in versions]
    longest = None if any(one is None or one < 0 for one in durations) else max(durations)
    groups = {group for group, members in world.groups.items() if host in members}
    vm = world.observations[host]["vm_name"]
    return decided(world.settings.get(host, {}).get("policy"), kind, time_left(versions), longest, groups, vm)


def is_ready(world: World, host: str, event_id: str) -> bool:
    told = [report for spelled, report in world.reports.get(host, {}).items() if same(spelled) == same(event_id)]
    return bool(told) and all(isinstance(report, dict) and report.get("ready") is True for report in told)


def nameless(world: World) -> set[str]:
    everybody = {*world.observations, *world.targeted, *(host for members in world.groups.values() for host in members)}
    return {host for host in everybody if not (world.observations.get(host, {}).get("vm_name") or "").strip()}


def affected_hosts(world: World, event_id: str) -> tuple[list[str], list[str], list[str]]:
    """The hosts behind the event's names, the names that nobody has, and those that several have."""
    seen = sightings(world, event_id)
    hosts: list[str] = []
    unknown: list[str] = []
    doubtful: list[str] = []
    for name in {plain(name): None for events in seen.values() for event in events for name in event["resources"]}:
        named = {host: one["vm_name"] or "" for host, one in world.observations.items()}
        owners = [host for host, vm in named.items() if vm.strip() and plain(vm) == name]
        if len(owners) > 1 and set(owners) & set(seen):
            # Who was asked and does not see it is a VM of the same name elsewhere.
            owners = [host for host in owners if host in seen or not was_asked(world.observations[host])]
        if len(owners) == 1:
            hosts += owners
        else:
            (doubtful if owners else unknown).append(name)
    return hosts, unknown, doubtful


def was_asked(observation: Json) -> bool:
    return bool(observation["reachable"] and not observation["error"] and observation["events"] is not None)


def objections(world: World, event_id: str) -> list[str]:
    """Everything that forbids the approval, capacity and windows aside."""
    seen = sightings(world, event_id)
    versions = [event for events in seen.values() for event in events]
    hosts, unknown, doubtful = affected_hosts(world, event_id)
    demands = {host: demanded(world, host, versions) for host in hosts}
    found = {
        "not everybody sees it Scheduled": any(event["event_status"] != "Scheduled" for event in versions),
        "its type is disputed": len({event["event_type"] or "Unknown" for event in versions}) > 1,
        "its names are disputed": len({frozenset(map(plain, event["resources"])) for event in versions}) > 1,
        "nobody in reach sees it": not any(world.observations[host]["reachable"] for host in seen),
        "no host is known": not hosts,
        "several hosts have one name": bool(doubtful),
        "a name is unknown": bool(unknown) and any(rule.get("unknown_names") != "ignore" for rule in demands.values()),
        "an unknown name may be a host without one": bool(unknown) and bool(nameless(world)),
        "it deletes several VMs": (versions[0]["event_type"] or "").lower() == "terminate"
        and len(hosts + unknown + doubtful) > 1,
    }
    for host in hosts:
        one = world.observations[host]
        found[f"{host} is outside"] = host not in world.targeted
        found[f"{host} is silent"] = not one["reachable"] or bool(one["error"])
        found[f"{host} does not see it"] = was_asked(one) and host not in seen
        found[f"{host} is not ready"] = not is_ready(world, host, event_id)
        found[f"{host} may not"] = demands[host]["action"] not in APPROVING
    return [words for words, applies in found.items() if applies]


def put_off_by_window(world: World, hosts: list[str], versions: list[Json]) -> bool:
    """Only where it is plain: all windows that matter are the same closed one, and it opens in time."""
    given_windows = [world.settings.get(host, {}).get("window") for host in hosts]
    budget = max(world.settings.get(host, {}).get("drain_budget", 300) for host in hosts)
    return CLOSED in given_windows and OPEN not in given_windows and (time_left(versions) or 0) - budget >= 7200


def minimum(world: World, group: str) -> int:
    size, most = len(set(world.groups[group])), 0
    for host, own in world.settings.items():
        value = own.get("min_available", 0)
        if isinstance(value, dict):
            value = value.get(group, 0)
        elif host not in world.groups[group] or (group == "all" and host in world.groups["web"]):
            value = 0
        most = max(most, -(-size * int(value[:-1]) // 100) if isinstance(value, str) else value)
    return most


# ---- what must hold

totals: collections.Counter[str] = collections.Counter()


def check(world: World, shuffled: t.Callable[[list[t.Any]], list[t.Any]]) -> None:
    before = copy.deepcopy(world)
    made, judged = world.judged()
    assert world == before, "the input was changed"
    assert json.loads(json.dumps(judged)) == judged
    ids = {same(event["event_id"]) for one in world.observations.values() for event in one["events"] or []}
    told = [same(entry["event_id"]) for entries in judged.values() for entry in entries]
    assert sorted(told) == sorted(ids), "every event is approved, held or not to be approved, exactly once"
    assert all(entry["reasons"] and all(entry["reasons"]) for entry in judged["held"])
    assert all(entry["reason"] for entry in judged["ignored"])
    approved = {same(entry["event_id"]): entry for entry in judged["approve"]}
    for event_id, entry in approved.items():
        assert not objections(world, event_id), (entry, objections(world, event_id))
        hosts = affected_hosts(world, event_id)[0]
        assert sorted(entry["hosts"]) == sorted(set(hosts))
        assert entry["leader"] in hosts
        versions = [event for events in sightings(world, event_id).values() for event in events]
        assert not put_off_by_window(world, hosts, versions), f"{event_id} is approved before the window opens"
    check_capacity(world, approved, {host for entry in made["events"] for host in entry["drain"] if entry["hold"]})
    for entry in made["events"]:
        for host in entry["drain"]:
            assert host in world.targeted
            assert world.observations[host]["reachable"]
    if not any({"min_available", "window"} & set(own) for own in world.settings.values()):
        held = ids - set(approved)
        assert all(objections(world, event_id) for event_id in held), "held although nothing speaks against it"
    observations = dict(shuffled(list(world.observations.items())))
    again = world._replace(observations=observations, targeted=shuffled(world.targeted)).judged()
    assert json.dumps(again) == json.dumps((made, judged)), "the order of the hosts matters"
    totals.update({key: len(entries) for key, entries in judged.items()})


def check_capacity(world: World, approved: dict[str, Json], going_anyway: set[str]) -> None:
    leaving = {host for entry in approved.values() for host in entry["hosts"]}
    away = {host for host in world.targeted if not world.observations.get(host, {}).get("reachable")}
    away.update(host for host, one in world.observations.items() if one.get("drained"))
    for one in world.observations.values():
        for event in one["events"] or []:
            if event["event_status"] == "Started":
                away.update(affected_hosts(world, event["event_id"])[0])
    for group, members in world.groups.items():
        if (leaving - away - going_anyway) & set(members):
            assert len(set(members) - away - leaving) >= minimum(world, group), f"group {group} is too small"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def spoil(data: st.DataObject, whole: t.Any) -> None:
    """Put anything in the place of something, at a depth of its own."""
    keys = sorted(whole) if isinstance(whole, dict) else range(len(whole))
    key = data.draw(st.sampled_from(keys))
    if isinstance(whole[key], (dict, list)) and whole[key] and data.draw(st.integers(0, 3)):
        spoil(data, whole[key])
    else:
        whole[key] = data.draw(anything)


def run(start: int, cases: int) -> int:
    """Check as many cases; the same start is the same cases. Raises what hypothesis found, made small."""
    thorough = settings(
        max_examples=cases * 4 // 5, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    done: collections.Counter[str] = collections.Counter()

    @seed(start)
    @thorough
    @given(worlds(), st.data())
    def fleets(world: World, data: st.DataObject) -> None:
        done["cases"] += 1
        check(world, lambda items: data.draw(st.permutations(items)))

    @seed(start)
    @settings(thorough, max_examples=cases - cases * 4 // 5)
    @given(worlds(), st.data())
    def refused_or_planned(world: World, data: st.DataObject) -> None:
        """Whatever stands anywhere in the input: a plan, or a refusal in words."""
        done["cases"] += 1
        spoiled = copy.deepcopy(world)._asdict()
        spoil(data, spoiled)
        with contextlib.suppress(WrongSetting):
            World(**spoiled).judged()

    fleets()
    refused_or_planned()
    return done["cases"]
