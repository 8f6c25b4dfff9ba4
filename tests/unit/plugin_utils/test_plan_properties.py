# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold for any fleet, any events and any reports."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
import re
import typing as t

from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.module_utils._document import same_id, same_name
from ansible_collections.graceful.azure.plugins.module_utils._policy import ACTIONS, KEYS, validate_policy
from ansible_collections.graceful.azure.plugins.plugin_utils._capacity import validate_min_available
from ansible_collections.graceful.azure.plugins.plugin_utils._door import admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._plan import plan
from ansible_collections.graceful.azure.plugins.plugin_utils._window import validate_window
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import NOW, all_ready, approvals, event
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

# A machine that is busy with something else is no failure.
thoroughly = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
most_thoroughly = settings(thoroughly, max_examples=300)

Observations = dict[str, dict[str, t.Any]]
HOSTS = [f"web{number}" for number in range(6)]
NAMES = [f"vm{number}" for number in range(8)]
IDS = ["E0", "E1", "E2", "e3", "E4"]


class World(t.NamedTuple):
    observations: Observations
    groups: dict[str, list[str]]
    targeted: list[str]
    settings: dict[str, t.Any]

    def plan(self) -> dict[str, t.Any]:
        return plan(self.observations, self.groups, self.targeted, self.settings, now=NOW)


rules = st.fixed_dictionaries(
    {"action": st.sampled_from(["drain_and_approve"] * 3 + list(ACTIONS))},
    optional={
        "unknown_names": st.sampled_from(["hold", "ignore"]),
        "event_type": st.sampled_from(["Reboot", "Freeze", ["Redeploy", "Terminate"]]),
        "group": st.sampled_from(["a", "b"]),
        "resource": st.sampled_from(["vm0", "vm[1-3]", "*"]),
        "notice": st.sampled_from([600, {"min": 600}]),
    },
)
host_settings = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.lists(rules, max_size=3),
        "min_available": st.sampled_from([0, 1, 2, 3, "50%", {"a": 2}, {"b": "75%", "nobody": 1}]),
        "window": st.sampled_from([None, {"start": "20:00", "end": "22:00"}, {"start": "17:00", "end": "19:00"}]),
        "drain_budget": st.sampled_from([0, 60, 300, 900]),
    },
)
announced = st.builds(
    lambda event_id, resources, fields: event(event_id, *resources, **fields),
    st.sampled_from(IDS),
    st.lists(st.sampled_from([*NAMES[:6] * 3, *NAMES]), max_size=4),
    st.fixed_dictionaries(
        {
            "event_type": st.sampled_from(["Reboot", "Reboot", "Redeploy", "Freeze", "Preempt", "Terminate", "New"]),
            "event_status": st.sampled_from(["Scheduled"] * 12 + ["Started", "Odd"]),
            "seconds_left": st.sampled_from([None, 0, 30, 300, 301, 900, 100_000]),
            "duration_seconds": st.sampled_from([None, 0, 10, 11]),
        }
    ),
)


ACCIDENTS: dict[str, dict[str, t.Any]] = {
    "silent": {"reachable": False, "events": []},
    "failed": {"error": "HTTP 500", "events": None},
    "nameless": {"vm_name": None},
    "twin": {"vm_name": NAMES[0]},
    "blind": {"events": []},
    "not asked": {"events": None},
    "drained": {"drained": True},
}
variations = st.sampled_from(
    [
        {},
        {"event_status": "Started", "not_before": None, "seconds_left": None},
        {"seconds_left": 30},
        {"event_source": "User", "duration_seconds": 5},
        {"event_type": "Redeploy"},
        {"resources": [NAMES[5], NAMES[7], NAMES[4]]},
        {"resources": [NAMES[0]]},
    ]
)
KINDS = [*ACCIDENTS, "sees something else", "is missing"]


def observe(number: int, events: list[dict[str, t.Any]], accident: str | None) -> dict[str, t.Any]:
    usual = {"reachable": True, "vm_name": NAMES[number], "events": copy.deepcopy(events), "error": None}
    return {**usual, **ACCIDENTS.get(accident or "", {})}


@st.composite
def calm_worlds(draw: st.DrawFn) -> World:
    """A scope whose hosts agree about at least one event that can be approved, beside others."""
    names = draw(st.lists(st.sampled_from([*NAMES[:3], NAMES[6]]), min_size=1, max_size=3, unique=True))
    events = [event("E1", *names), *draw(st.lists(announced, max_size=2))]
    events = list({one["event_id"]: one for one in reversed(events)}.values())
    observations = {name: observe(number, events, None) for number, name in enumerate(HOSTS)}
    return World(observations, {"all": HOSTS}, HOSTS, {})


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A scope with the accidents of real life."""
    events = draw(st.lists(announced, min_size=1, max_size=4, unique_by=lambda one: str(one["event_id"])))
    accidents = draw(st.dictionaries(st.sampled_from(HOSTS), st.sampled_from(KINDS), max_size=2))
    observations: Observations = {}
    for number, name in enumerate(HOSTS):
        accident = accidents.get(name)
        if accident == "sees something else":
            observations[name] = observe(number, draw(st.lists(announced, max_size=2)), None)
        elif accident != "is missing":
            observations[name] = observe(number, events, accident)
    settings_of = draw(st.dictionaries(st.sampled_from(HOSTS), host_settings, max_size=3))
    groups = {"all": HOSTS, "a": HOSTS[:3], "b": draw(st.lists(st.sampled_from(HOSTS), max_size=4))}
    targeted = draw(st.sampled_from([HOSTS, HOSTS, HOSTS[:5], HOSTS[2:]]))
    return World(observations, groups, list(targeted), settings_of)


@st.composite
def nearly_calm_worlds(draw: st.DrawFn) -> World:
    """A calm world in which one thing went wrong, or two."""
    world = draw(calm_worlds())
    observations = copy.deepcopy(world.observations)
    for name, kind in draw(st.dictionaries(st.sampled_from(HOSTS[:3]), st.sampled_from(KINDS), max_size=1)).items():
        if kind == "is missing":
            del observations[name]
        else:
            observations[name].update(copy.deepcopy(ACCIDENTS.get(kind, {})))
    name = draw(st.sampled_from(sorted(observations)))
    for one in observations[name]["events"] or []:
        one.update(draw(variations))
    ignoring = {"policy": [{"action": "drain_and_approve", "unknown_names": "ignore"}]}
    settings_of = dict.fromkeys(HOSTS, draw(st.sampled_from([{}, ignoring])))
    targeted = draw(st.sampled_from([HOSTS] * 4 + [HOSTS[1:]]))
    return World(observations, world.groups, targeted, settings_of)


@st.composite
def busy_worlds(draw: st.DrawFn) -> World:
    """Everybody wants to leave at once, and somebody has to stay."""
    names = st.lists(st.sampled_from(NAMES[:6]), min_size=1, max_size=2, unique=True)
    left = st.sampled_from([30, 300, 301, 600, 900])
    drawn = draw(st.lists(st.tuples(names, left), min_size=2, max_size=4))
    events = [event(f"E{number}", *some, seconds_left=left) for number, (some, left) in enumerate(drawn)]
    observations = {
        name: observe(number, events, draw(st.sampled_from([None] * 9 + ["silent", "drained"])))
        for number, name in enumerate(HOSTS)
    }
    minimum = draw(st.sampled_from([1, 2, 3, 4, 5, "50%", "75%", {"a": 2}, {"all": 3, "b": "50%"}]))
    budgets = st.sampled_from([0, 300, 600])
    settings_of = {name: {"min_available": minimum, "drain_budget": draw(budgets)} for name in HOSTS}
    return World(observations, {"all": HOSTS, "a": HOSTS[:3], "b": HOSTS[2:]}, HOSTS, settings_of)


any_world = worlds() | calm_worlds() | nearly_calm_worlds() | busy_worlds()
NOT_READY = [False, None, 1, "True", "missing"]
doubts = st.dictionaries(
    st.tuples(st.sampled_from(HOSTS[:3]), st.sampled_from(["E1", "E1", "E2"])), st.sampled_from(NOT_READY), max_size=2
)


@st.composite
def reported(draw: st.DrawFn) -> tuple[World, dict[str, t.Any]]:
    world, doubt = draw(any_world), draw(doubts)
    reports: dict[str, t.Any] = {host: {} for host in HOSTS}
    for host in HOSTS:
        for event_id in IDS:
            ready = doubt.get((host, event_id), True)
            if ready != "missing":
                reports[host][same_id(event_id)] = {"ready": ready, "reason": "so it is"}
    return world, reports


def versions(world: World, event_id: str) -> list[dict[str, t.Any]]:
    return [
        one
        for observation in world.observations.values()
        for one in observation["events"] or []
        if same_id(one["event_id"]) == same_id(event_id)
    ]


def event_ids(observation: dict[str, t.Any]) -> list[str]:
    return [same_id(one["event_id"]) for one in observation["events"] or []]


@most_thoroughly
@given(reported())
def test_nothing_is_approved_unless_every_affected_host_is_ready(drawn: tuple[World, dict[str, t.Any]]) -> None:
    world, reports = drawn
    for approval in approvals(world.plan(), reports)["approve"]:
        event_id = approval["event_id"]
        assert all(version["event_status"] == "Scheduled" for version in versions(world, event_id))
        named = {same_name(name) for version in versions(world, event_id) for name in version["resources"]}
        affected = [host for host, seen in world.observations.items() if same_name(seen["vm_name"] or "") in named]
        assert approval["hosts"]
        assert set(approval["hosts"]) <= set(affected)
        assert set(approval["approvers"]) <= set(approval["hosts"])
        for host in approval["hosts"]:
            seen = world.observations[host]
            assert reports[host][same_id(event_id)]["ready"] is True
            assert (seen["reachable"], seen["error"]) == (True, None)
            assert host in world.targeted
        for host in set(affected) - set(approval["hosts"]):
            # A host of the same name that was asked and does not know the event is in another scope.
            seen = world.observations[host]
            assert seen["events"] is not None
            assert same_id(event_id) not in event_ids(seen)
            assert seen["vm_name"] in [world.observations[other]["vm_name"] for other in approval["hosts"]]


@most_thoroughly
@given(worlds() | nearly_calm_worlds())
def test_unknown_names_are_never_approved_unless_every_affected_host_says_so(world: World) -> None:
    made = world.plan()
    entries = {entry["event_id"]: entry for entry in made["events"]}
    for approval in approvals(made, all_ready(made))["approve"]:
        if entries[approval["event_id"]]["unknown_names"]:
            for host in approval["hosts"]:
                assert "ignore" in [rule.get("unknown_names") for rule in world.settings[host]["policy"]]
            assert set(HOSTS) <= set(world.observations)
            assert all(seen["vm_name"] for seen in world.observations.values())


@thoroughly
@given(calm_worlds() | busy_worlds(), st.randoms(use_true_random=False))
def test_one_host_less_ready_and_the_event_is_no_longer_approved(world: World, rng: random.Random) -> None:
    made = world.plan()
    reports = all_ready(made)
    approved = approvals(made, reports)["approve"]
    assume(approved)
    chosen = rng.choice(approved)
    reports[rng.choice(chosen["hosts"])][chosen["event_id"]]["ready"] = False
    still = [approval["event_id"] for approval in approvals(made, reports)["approve"]]
    assert chosen["event_id"] not in still
    assert len(still) == len(approved) - 1


@thoroughly
@given(calm_worlds(), st.sampled_from(["unready", "unreachable", "outside"]))
def test_a_new_affected_host_that_is_not_ready_holds_an_approved_event(world: World, trouble: str) -> None:
    before = world.plan()
    reports = all_ready(before)
    approved = approvals(before, reports)["approve"]
    assume(approved)
    event_id = approved[0]["event_id"]
    newcomer = {"reachable": trouble != "unreachable", "vm_name": "newcomer", "error": None, "events": None}
    observations = copy.deepcopy(world.observations)
    for seen in observations.values():
        for one in seen["events"] or []:
            if same_id(one["event_id"]) == same_id(event_id):
                one["resources"].append("newcomer")
    targeted = world.targeted if trouble == "outside" else [*world.targeted, "new"]
    after = world._replace(observations={**observations, "new": newcomer}, targeted=targeted)
    if trouble != "unready":
        reports["new"] = {event_id: {"ready": True}}
    assert event_id not in [one["event_id"] for one in approvals(after.plan(), reports)["approve"]]


@thoroughly
@given(any_world, st.randoms(use_true_random=False))
def test_the_order_of_everything_does_not_matter(world: World, rng: random.Random) -> None:
    # An id that stands twice in one document has no order that could be kept.
    assume(all(len(ids) == len(set(ids)) for ids in map(event_ids, world.observations.values())))

    def shuffled(items: t.Iterable[t.Any]) -> list[t.Any]:
        return sorted(items, key=lambda _item: rng.random())

    observations = {
        host: {**seen, "events": None if seen["events"] is None else shuffled(seen["events"])}
        for host, seen in shuffled(world.observations.items())
    }
    other = World(
        observations,
        {group: shuffled(hosts) for group, hosts in shuffled(world.groups.items())},
        shuffled(world.targeted),
        dict(shuffled(world.settings.items())),
    )
    assert json.dumps(other.plan()) == json.dumps(world.plan())


def minimum(world: World, group: str) -> int:
    """An independent reading of min_available."""
    size, most = len(set(world.groups[group])), 0
    for host, given_settings in world.settings.items():
        value = given_settings.get("min_available", 0)
        if isinstance(value, dict):
            value = value.get(group, 0)
        elif host not in world.groups[group] or (group == "all" and any(host in world.groups[one] for one in "ab")):
            value = 0
        most = max(most, math.ceil(size * int(value[:-1]) / 100) if isinstance(value, str) else value)
    return most


@thoroughly
@given(worlds() | busy_worlds())
def test_what_happens_early_leaves_every_group_its_minimum(world: World) -> None:
    made = world.plan()
    early: set[str] = set()
    away = {host for host in world.targeted if not world.observations.get(host, {}).get("reachable")}
    away.update(host for host, seen in world.observations.items() if seen.get("drained"))
    for entry in made["events"]:
        leaving = entry["hosts"] if entry["approvable"] and not entry["holds"] else entry["drain"]
        budget = max((world.settings.get(host, {}).get("drain_budget", 300) for host in entry["hosts"]), default=0)
        if entry["event_status"] == "Started":
            away.update(entry["hosts"])
        elif (entry["seconds_left"] or 0) <= budget:
            away.update(leaving)
        else:
            early.update(leaving)
    for group, members in world.groups.items():
        if (early - away) & set(members):
            assert len(set(members) - away - early) >= minimum(world, group)


@thoroughly
@given(worlds() | busy_worlds())
def test_every_deferred_event_says_until_when_and_not_after_its_deadline(world: World) -> None:
    for entry in world.plan()["events"]:
        assert (entry["wait_until"] is None) == (entry["deferral"] == "")
        if entry["wait_until"] is not None:
            assert entry["wait_until"] > NOW
            assert entry["seconds_left"] > 0
            assert entry["drain"] == []
            assert entry["holds"]


names = st.text(max_size=12)


@thoroughly
@given(
    event_type=names,
    resources=st.lists(names, max_size=3),
    description=names,
    vm_name=st.none() | names,
    error=st.none() | names,
    not_before=st.none() | names,
    status=names,
)
def test_a_plan_is_json_and_its_words_can_only_be_read(
    event_type: str,
    resources: list[str],
    description: str,
    vm_name: str | None,
    error: str | None,
    not_before: str | None,
    status: str,
) -> None:
    one = event(
        "E1",
        *resources,
        event_type=event_type,
        description=description,
        event_status=status,
        not_before=not_before,
        seconds_left=None,
    )
    seen = {"web1": {"reachable": True, "vm_name": vm_name, "events": [one], "error": error}}
    made = plan(seen, now=NOW)
    judged = approvals(made, {"web1": {"E1": {"ready": False, "reason": description}}})
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert json.loads(json.dumps(judged, allow_nan=False)) == judged
    words = [*made["summary"], made["events"][0]["reason"], *made["events"][0]["holds"]]
    words.extend(reason for held in judged["held"] for reason in held["reasons"])
    for text in words:
        assert text.isprintable()
        assert not re.search(r"\{[{%#]", text)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
clocks = st.sampled_from(["22:00", "5:00", "Europe/Berlin", "UTC", "mon", "50%", "drain"]) | anything


def mostly(keys: t.Iterable[str]) -> st.SearchStrategy[dict[str, t.Any]]:
    return st.dictionaries(st.sampled_from(sorted(keys)), clocks, max_size=5)


@thoroughly
@given(anything | st.lists(mostly(KEYS), max_size=2), anything | mostly(["start", "end", "timezone", "days"]), anything)
def test_settings_are_accepted_or_refused_but_nothing_else(policy: t.Any, window: t.Any, minimum: t.Any) -> None:
    for validate, value in (
        (validate_policy, policy),
        (validate_window, window),
        (validate_min_available, minimum),
    ):
        with contextlib.suppress(WrongSetting):
            t.cast(t.Callable[[t.Any], t.Any], validate)(value)


wild_events = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(event("E1"), anything)), max_size=3)


@thoroughly
@given(st.lists(wild_events, min_size=1, max_size=3), anything)
def test_whatever_comes_through_the_door_is_planned_and_nothing_of_it_approved(
    documents: list[t.Any], vm_name: t.Any
) -> None:
    observations = {}
    for number, events in enumerate(documents):
        told = admitted({"report": {}, "observation": {"events": events, "vm_name": vm_name}})
        observations[f"web{number}"] = {"reachable": True, **told["observation"]}
    assert approvals(plan(observations, now=NOW), {})["approve"] == []


@thoroughly
@given(st.dictionaries(st.sampled_from(["ready", "reason", "state"]), anything))
def test_reports_of_any_form_approve_nothing(report: dict[str, t.Any]) -> None:
    made = plan({"web1": {"reachable": True, "vm_name": "vm1", "events": [event("E1", "vm1")]}}, now=NOW)
    assume(report.get("ready") is not True)
    assert approvals(made, {"web1": {"E1": report}})["approve"] == []
