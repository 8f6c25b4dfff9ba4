# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan, and what may be approved, on random fleets: judged by a second reading of the rules that shares no code."""

from __future__ import annotations

import collections
import copy
import fnmatch
import json
import typing as t
from datetime import datetime

from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import approvals
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

Json = dict[str, t.Any]

NOW = "2026-09-19T18:00:00Z"
# Inventory names are unlike Azure's; stranger has no host, and outsider no observation.
VMS = {"web1": "shop_0", "Web-2": "SHOP_1", "db": "vault", "cache": "Mem-7"}
NAMES = ["_shop_0", "VAULT", "stranger", "stranger", "", "sh\x1bop {{ x }}"]
IDS = ["A-1", "A-1", "a-1", " A-1 ", "B-2", "B-2", "C-3"]
APPROVING = {"approve", "drain_and_approve"}
TOLD = ("vm_name", "events", "error")
KEYS = ("policy", "min_available", "window", "drain_budget")


class World(t.NamedTuple):
    """What hosts tell, the inventory, what users have written, and how far the hosts are."""

    observations: dict[str, t.Any]
    groups: dict[str, list[str]]
    targeted: list[str]
    settings: dict[str, t.Any]
    reports: dict[str, t.Any]

    def judged(self) -> tuple[Json, Json]:
        """The plan and what may be approved. What hosts tell comes in by the door, what users write by the schema."""
        observations, settings = {}, {}
        for host, own in self.settings.items():
            read = read_settings({f"graceful_{key}": value for key, value in own.items()}, lambda value: value)
            settings[host] = {key: read.values[key] for key in KEYS if read.values[key] is not None}
            one = self.observations.get(host)
            if one is not None:
                told = admitted({"report": {}, "observation": one["told"]})["observation"]
                mistakes = [*one["mistakes"], *read.messages]
                observations[host] = {**one, **{key: told[key] for key in TOLD}, "mistakes": mistakes}
        made = plan(observations, self.groups, self.targeted, settings, now=NOW)
        return made, approvals(made, self.reports)


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
        "event_source": st.sampled_from(["platform", "User"]),
        "urgent": st.booleans(),
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
    {"reachable": False}, {"drained": True}, {"mistakes": ["graceful_health[0] has the key 'prot'"]},
    {"drain_not_set": True}, {"told": {"error": "HTTP 500", "events": None}}, {"told": {"vm_name": None}},
    {"told": {"vm_name": "  "}}, {"told": {"vm_name": "shop_0"}}, {"told": {"events": []}}, {"told": {"events": None}},
]  # fmt: skip
VIEWS: list[Json] = [
    {"event_status": "Started"}, {"resources": ["shop_0"]}, {"event_type": "Redeploy"}, {"seconds_left": 30},
    {"duration_seconds": 11},
]  # fmt: skip
REPORTS: list[Json] = [{}, *({"ready": one, "reason": "held"} for one in (None, 1, "yes", False, False))]
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
        told = {"vm_name": VMS[host], "events": events, "error": None}
        observations[host] = {"reachable": True, "drained": False, "mistakes": [], "drain_not_set": False, "told": told}
    spelled = SPELLED[draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))]
    reports: dict[str, t.Any] = {host: {event_id: {"ready": True} for event_id in spelled} for host in hosts}
    targeted = list(hosts)
    for kind, number, which in draw(st.lists(mishaps, max_size=2)):
        host = hosts[number % len(hosts)]
        if kind == "observation" and host in observations:
            accident = ACCIDENTS[which % len(ACCIDENTS)]
            observations[host] |= {**accident, "told": {**observations[host]["told"], **accident.get("told", {})}}
        elif kind == "twin" and host in observations:
            observations[host]["told"]["vm_name"] = VMS[hosts[which % len(hosts)]].upper()
        elif kind == "view" and host in observations:
            for event in observations[host]["told"]["events"] or []:
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

DRAIN = "drain_and_approve"
FAILING: Json = {"event_type": "Redeploy", "event_source": "Platform", "notice": {"min": 86400}}
DEFAULTS: list[Json] = [
    {"event_type": "Freeze", "max_duration": 10, "action": "notify"},
    {**FAILING, "urgent": True, "action": DRAIN},
    {"event_type": ["Freeze", "Reboot", "Redeploy", "Terminate"], "action": DRAIN},
    {"event_type": "Preempt", "action": "drain"},
]


class Facts(t.NamedTuple):
    """What a rule may ask about an event and one of its hosts."""

    kind: str
    vm: str
    groups: set[str]
    longest: int | None = None
    left: int | None = None
    source: str | None = None


def decided(policy: list[Json] | None, facts: Facts) -> Json:
    """The rule that decides, the documented defaults included."""
    fitting = (rule for rule in (DEFAULTS if policy is None else policy) if matches(rule, facts))
    return next(fitting, {"action": "notify"})


def matches(rule: Json, facts: Facts) -> bool:
    def several(key: str) -> list[str]:
        return [rule[key].lower()] if isinstance(rule[key], str) else [one.lower() for one in rule[key]]

    left, notice = facts.left, rule.get("notice", {})
    span = {"max": notice} if isinstance(notice, int) else notice
    asked: dict[str, t.Callable[[], bool]] = {
        "event_type": lambda: facts.kind.lower() in several("event_type"),
        "event_source": lambda: (facts.source or "").lower() in several("event_source"),
        "group": lambda: bool(facts.groups & set(several("group"))),
        "resource": lambda: any(fnmatch.fnmatchcase(plain(facts.vm), plain(one)) for one in several("resource")),
        "notice": lambda: left is not None and span.get("min", 0) <= left <= span.get("max", left),
        "max_duration": lambda: facts.longest is not None and facts.longest <= rule["max_duration"],
    }
    return all(holds() for key, holds in asked.items() if key in rule)


def plain(text: str) -> str:
    return text.removeprefix("_").lower()


def same(event_id: str) -> str:
    return event_id.strip().lower()


def was_asked(one: Json) -> bool:
    return bool(one["reachable"] and not one["told"]["error"] and one["told"]["events"] is not None)


class Reading:
    """One event: who sees it, whom it affects, and what speaks against approving it, capacity aside."""

    def __init__(self, world: World, event_id: str) -> None:
        self.world, self.event_id = world, event_id
        views = {host: one["told"]["events"] or [] for host, one in sorted(world.observations.items())}
        mine = [(host, event) for host, events in views.items() for event in events if self._is(event)]
        self.seen_by = {host for host, _event in mine}
        self.versions = [event for _host, event in mine]
        self.hosts: list[str] = []
        self.unknown: list[str] = []
        self.doubtful: list[str] = []
        for name in {plain(name): None for event in self.versions for name in event["resources"]}:
            owners = self._owners(name)
            if len(owners) == 1:
                self.hosts += owners
            else:
                (self.doubtful if owners else self.unknown).append(name)
        self.rules = {host: self._rule(host) for host in self.hosts}

    def _is(self, event: Json) -> bool:
        return same(event["event_id"]) == same(self.event_id)

    def _owners(self, name: str) -> list[str]:
        named = {host: one["told"]["vm_name"] or "" for host, one in self.world.observations.items()}
        owners = [host for host, vm in named.items() if vm.strip() and plain(vm) == name]
        if len(owners) > 1 and self.seen_by.intersection(owners):
            # Who was asked and does not see it is a VM of the same name elsewhere.
            observations = self.world.observations
            owners = [host for host in owners if host in self.seen_by or not was_asked(observations[host])]
        return owners

    @property
    def left(self) -> int | None:
        told = [event["seconds_left"] for event in self.versions if event["seconds_left"] is not None]
        dates = [event["not_before"] for event in self.versions if (event["not_before"] or "").endswith("Z")]
        if not told and dates:
            told = [int((datetime.fromisoformat(min(dates)[:-1]) - datetime.fromisoformat(NOW[:-1])).total_seconds())]
        return max(0, min(told)) if told else None

    def _rule(self, host: str) -> Json:
        durations = [event["duration_seconds"] for event in self.versions]
        facts = Facts(
            kind=self.versions[0]["event_type"] or "Unknown",
            vm=self.world.observations[host]["told"]["vm_name"],
            groups={group for group, members in self.world.groups.items() if host in members},
            longest=None if any(one is None or one < 0 for one in durations) else max(durations),
            left=self.left,
            source=next((event["event_source"] for event in self.versions if event["event_source"]), None),
        )
        return decided(self.world.settings.get(host, {}).get("policy"), facts)

    def objections(self) -> list[str]:
        everybody = {*self.world.observations, *self.world.targeted}.union(*self.world.groups.values())
        told = {host: one["told"] for host, one in self.world.observations.items()}
        names = [told.get(host, {}).get("vm_name") or "" for host in everybody]
        lenient = all(rule.get("unknown_names") == "ignore" for rule in self.rules.values())
        terminate = (self.versions[0]["event_type"] or "").lower() == "terminate"
        views = [(event["event_type"] or "Unknown", {*map(plain, event["resources"])}) for event in self.versions]
        sources = {event["event_source"] for event in self.versions} - {None, ""}
        found = {
            "not everybody sees it Scheduled": any(event["event_status"] != "Scheduled" for event in self.versions),
            "its type or its names are disputed": any(view != views[0] for view in views),
            "its source is disputed": len(sources) > 1,
            "nobody in reach sees it": not any(self.world.observations[host]["reachable"] for host in self.seen_by),
            "no host is known": not self.hosts,
            "several hosts have one name": bool(self.doubtful),
            "a name is unknown": bool(self.unknown) and not lenient,
            "it may be a host without a name": bool(self.unknown) and not all(map(str.strip, names)),
            "it deletes several VMs": terminate and len(self.hosts + self.unknown + self.doubtful) > 1,
        }
        for host in self.hosts:
            one, action = self.world.observations[host], self.rules[host]["action"]
            found[f"{host} is outside"] = host not in self.world.targeted
            found[f"{host} is written wrong"] = bool(one["mistakes"])
            found[f"{host} has no drain"] = one["drain_not_set"] and "drain" in action
            found[f"{host} is silent"] = not one["reachable"] or bool(one["told"]["error"])
            found[f"{host} does not see it"] = was_asked(one) and host not in self.seen_by
            found[f"{host} is not ready"] = not self._is_ready(host)
            found[f"{host} may not"] = action not in APPROVING
        return [words for words, applies in found.items() if applies]

    def _is_ready(self, host: str) -> bool:
        told = [
            report for spelled, report in self.world.reports.get(host, {}).items() if self._is({"event_id": spelled})
        ]
        return bool(told) and all(isinstance(report, dict) and report.get("ready") is True for report in told)

    def is_put_off_by_window(self) -> bool:
        """Only where it is plain: all windows that matter are the same closed one, and it opens in time."""
        own = {host: self.world.settings.get(host, {}) for host in self.hosts}
        windows = [own[host].get("window") for host in self.hosts if not self.rules[host].get("urgent")]
        budget = max(given.get("drain_budget", 300) for given in own.values())
        return CLOSED in windows and OPEN not in windows and (self.left or 0) - budget >= 7200


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
    ids = {same(event["event_id"]) for one in world.observations.values() for event in one["told"]["events"] or []}
    readings = {event_id: Reading(world, event_id) for event_id in ids}
    told = [same(entry["event_id"]) for entries in judged.values() for entry in entries]
    assert sorted(told) == sorted(ids), "every event is approved, held or not to be approved, exactly once"
    assert all(entry["reasons"] and all(entry["reasons"]) for entry in judged["held"])
    approved = {same(entry["event_id"]): entry for entry in judged["approve"]}
    for event_id, entry in approved.items():
        reading = readings[event_id]
        assert not reading.objections(), (entry, reading.objections())
        assert sorted(entry["hosts"]) == sorted(set(reading.hosts))
        assert entry["approvers"]
        assert set(entry["approvers"]) <= set(reading.hosts)
        assert not reading.is_put_off_by_window(), f"{event_id} is approved before the window opens"
    going_anyway = {host for entry in made["events"] for host in entry["drain"] if entry["holds"]}
    check_capacity(world, readings, {host for entry in approved.values() for host in entry["hosts"]}, going_anyway)
    for host in {host for entry in made["events"] for host in entry["drain"]}:
        one = world.observations[host]
        assert host in world.targeted
        assert one["reachable"]
        assert not one["mistakes"], f"{host} is drained, although something is written wrong"
    if not any({"min_available", "window"} & set(own) for own in world.settings.values()):
        held = ids - set(approved)
        assert all(readings[event_id].objections() for event_id in held), "held although nothing speaks against it"
    observations = dict(shuffled(list(world.observations.items())))
    again = world._replace(observations=observations, targeted=shuffled(world.targeted)).judged()
    assert json.dumps(again) == json.dumps((made, judged)), "the order of the hosts matters"
    totals.update({key: len(entries) for key, entries in judged.items()})


def check_capacity(world: World, readings: dict[str, Reading], leaving: set[str], going_anyway: set[str]) -> None:
    away = {host for host in world.targeted if not world.observations.get(host, {}).get("reachable")}
    away.update(host for host, one in world.observations.items() if one["drained"])
    started = [one for one in readings.values() if any(event["event_status"] == "Started" for event in one.versions)]
    away.update(host for reading in started for host in reading.hosts)
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
    key = data.draw(st.sampled_from(sorted(whole) if isinstance(whole, dict) else range(len(whole))))
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
    def nonsense(world: World, data: st.DataObject) -> None:
        """Whatever a host tells or a user writes: there is a plan, and a mistake holds the events of its host."""
        done["cases"] += 1
        spoiled = copy.deepcopy(world)
        host = data.draw(st.sampled_from(sorted(spoiled.settings)))
        if spoiled.settings[host] and data.draw(st.booleans()):
            spoil(data, spoiled.settings[host])
        elif host in spoiled.observations:
            spoil(data, spoiled.observations[host]["told"])
        made, judged = spoiled.judged()
        mistaken = {entry["event_id"] for entry in made["events"] if entry["mistaken"]}
        assert not mistaken.intersection(entry["event_id"] for entry in judged["approve"])

    fleets()
    nonsense()
    return done["cases"]
