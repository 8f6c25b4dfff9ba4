# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The policy: ordered rules, the first that matches a host and an event decides. Pure."""

from __future__ import annotations

import difflib
import fnmatch
import typing as t

from . import _checks as check
from ._document import KNOWN_TYPES, same_name
from ._text import quoted

IGNORE = "ignore"
NOTIFY = "notify"
APPROVE = "approve"
DRAIN = "drain"
DRAIN_AND_APPROVE = "drain_and_approve"


class Action(t.NamedTuple):
    """What a rule may ask for. An action does only what it names: by default nothing is approved."""

    name: str
    message: str
    drains: bool = False
    approves: bool = False
    tells: bool = True


ACTIONS: t.Final[t.Mapping[str, Action]] = {
    action.name: action
    for action in (
        Action(IGNORE, "ignore it", tells=False),
        Action(NOTIFY, "notify only"),
        Action(APPROVE, "approve without draining", approves=True),
        Action(DRAIN, "drain, and let Azure start it", drains=True),
        Action(DRAIN_AND_APPROVE, "drain, then approve", drains=True, approves=True),
    )
}
UNKNOWN_ACTION = Action("unknown", "nothing, because the action is not known")


def action_of(name: t.Any) -> Action:
    """The action of that name; one that does nothing if there is none."""
    return ACTIONS.get(name, UNKNOWN_ACTION) if isinstance(name, str) else UNKNOWN_ACTION


KEYS = (
    "name", "because", "event_type", "event_source", "min_duration", "max_duration", "notice", "group", "resource",
    "unknown_names", "urgent", "expires_after", "action",
)  # fmt: skip

DEFAULT_POLICY: t.Final[t.Sequence[t.Mapping[str, t.Any]]] = (
    {
        "name": "short freeze",
        "event_type": "Freeze",
        "max_duration": 10,
        "action": NOTIFY,
        "because": "the pause is shorter than most timeouts, and a drain would take longer",
    },
    {
        "name": "freeze",
        "event_type": "Freeze",
        "action": DRAIN_AND_APPROVE,
        "because": "the pause is long, or its length is not known",
    },
    {
        "name": "predicted failure",
        "event_type": "Redeploy",
        "event_source": "Platform",
        "notice": {"min": 86400},
        "urgent": True,
        "action": DRAIN_AND_APPROVE,
        "because": "the hardware is expected to fail, so the event is not delayed",
    },
    {
        "name": "reboot or move",
        "event_type": ["Reboot", "Redeploy"],
        "action": DRAIN_AND_APPROVE,
        "because": "a drained host loses nothing, and an approval ends the wait for NotBefore",
    },
    {
        "name": "deletion",
        "event_type": "Terminate",
        "action": DRAIN_AND_APPROVE,
        "because": "the VM is being deleted; a VM approves its own deletion only",
    },
    {
        "name": "eviction",
        "event_type": "Preempt",
        "action": DRAIN,
        "because": "the notice is only 30 seconds, and all of it is used to drain",
    },
    {
        "name": "eviction is likely",
        "event_type": "SpotRebalanceRecommendation",
        "action": NOTIFY,
        "because": "most recommendations are not followed by an eviction",
    },
    {
        "name": "anything else",
        "action": NOTIFY,
        "because": "the event type is not known, so a person has to decide",
    },
)


class Decision(t.NamedTuple):
    action: str
    rule: str
    because: str
    ignores_unknown_names: bool
    # The window does not put it off.
    urgent: bool = False
    # After so many seconds the host is put back although the event stands, unless Azure has started it.
    expires_after: int | None = None
    # That time is over.
    lapsed: bool = False

    @property
    def drains(self) -> bool:
        return action_of(self.action).drains

    @property
    def approves(self) -> bool:
        return action_of(self.action).approves


class Facts(t.NamedTuple):
    """What the rules match on: one event and one host."""

    event_type: str
    event_source: str | None
    duration: int | None
    notice: int | None
    groups: t.Collection[str]
    resource: str


class Span(t.NamedTuple):
    least: int | None = None
    most: int | None = None

    def takes(self, value: int | None) -> bool:
        if self.least is None and self.most is None:
            return True
        # An unknown value matches no limit.
        return value is not None and (self.least or 0) <= value and (self.most is None or value <= self.most)


class Rule(t.NamedTuple):
    decision: Decision
    event_types: frozenset[str]
    event_sources: frozenset[str]
    duration: Span
    notice: Span
    groups: tuple[str, ...]
    resources: tuple[str, ...]

    def matches(self, facts: Facts) -> bool:
        return (
            (not self.event_types or facts.event_type.lower() in self.event_types)
            and (not self.event_sources or (facts.event_source or "").lower() in self.event_sources)
            and self.duration.takes(facts.duration)
            and self.notice.takes(facts.notice)
            and (not self.groups or any(group in facts.groups for group in self.groups))
            and (not self.resources or self._names(same_name(facts.resource)))
        )

    def _names(self, resource: str) -> bool:
        return any(fnmatch.fnmatchcase(resource, pattern) for pattern in self.resources)


Policy = t.Tuple[Rule, ...]

NO_RULE = Decision(NOTIFY, "no rule", "no rule of the policy matches, so a person has to decide", False)


def decide(policy: Policy, facts: Facts) -> Decision:
    return next((rule.decision for rule in policy if rule.matches(facts)), NO_RULE)


def validate_policy(policy: t.Any) -> Policy:
    """The rules, ready for use; the default ones where there are none. Raises WrongSetting."""
    rules = DEFAULT_POLICY if policy is None else check.sequence(policy, "The policy")
    return tuple(_rule(rule, position) for position, rule in enumerate(rules, 1))


def _rule(rule: t.Any, position: int) -> Rule:
    where = f"Rule {position} of the policy"
    given = check.mapping(rule, where, KEYS)
    if "action" not in given:
        raise check.WrongSetting(f"{where} has no action; allowed are {', '.join(ACTIONS)}.")
    return Rule(
        decision=_decision(given, where, f"rule {position}"),
        event_types=frozenset(_event_type(name, where) for name in _names(given, "event_type", where)),
        event_sources=frozenset(name.lower() for name in _names(given, "event_source", where)),
        duration=_span(given, "min_duration", "max_duration", where),
        notice=_notice(given, where),
        groups=_names(given, "group", where),
        resources=tuple(same_name(name) for name in _names(given, "resource", where)),
    )


def _decision(given: t.Mapping[str, t.Any], where: str, name: str) -> Decision:
    unknown = check.choice(given.get("unknown_names", "hold"), f"{where}: unknown_names", ("hold", "ignore"))
    action = check.choice(given["action"], f"{where}: action", tuple(ACTIONS))
    if "expires_after" in given and action != DRAIN:
        raise check.WrongSetting(f"{where}: expires_after goes with the action {DRAIN} only.")
    return Decision(
        action=action,
        rule=check.text(given.get("name", name), f"{where}: name"),
        because=check.text(given.get("because", "the policy says so"), f"{where}: because"),
        ignores_unknown_names=unknown == "ignore",
        urgent=check.boolean(given.get("urgent", False), f"{where}: urgent"),
        expires_after=_seconds(given, "expires_after", where),
    )


def _names(given: t.Mapping[str, t.Any], key: str, where: str) -> tuple[str, ...]:
    return check.names(given[key], f"{where}: {key}") if key in given else ()


def _seconds(given: t.Mapping[str, t.Any], key: str, where: str) -> int | None:
    return check.number(given[key], f"{where}: {key}") if key in given else None


def _event_type(name: str, where: str) -> str:
    """Azure may announce new types, but hardly one that looks like a known one misspelt."""
    similar = difflib.get_close_matches(name.lower(), [known.lower() for known in KNOWN_TYPES], 1, 0.75)
    if similar and name.lower() not in similar:
        raise check.WrongSetting(f"{where}: event_type is {quoted(name)}; did you mean {similar[0].capitalize()}?")
    return name.lower()


def _notice(given: t.Mapping[str, t.Any], where: str) -> Span:
    if "notice" not in given:
        return Span()
    where = f"{where}: notice"
    notice = given["notice"]
    if isinstance(notice, t.Mapping):
        return _span(check.mapping(notice, where, ("min", "max")), "min", "max", where)
    return Span(
        most=check.number(notice, where, "a whole number of seconds (at most), or a dictionary with min and max")
    )


def _span(given: t.Mapping[str, t.Any], least: str, most: str, where: str) -> Span:
    span = Span(_seconds(given, least, where), _seconds(given, most, where))
    if span.least is not None and span.most is not None and span.least > span.most:
        raise check.WrongSetting(f"{where}: {least} is larger than {most}, so it would never match.")
    return span
