# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checks import WrongSetting
from ansible_collections.graceful.azure.plugins.plugin_utils._cycle import (
    assignments,
    fleet,
    host_reports,
    observations,
    recap,
)

CLAIMED: dict[str, t.Any] = {"claimed": True, "item": {"event_id": "A"}}
READY = {"ready": True, "reason": "ready"}


def event(event_id: str = "A", **fields: t.Any) -> dict[str, t.Any]:
    return {"event_id": event_id, "event_type": "Reboot", "event_status": "Scheduled", "seconds_left": 600, **fields}


def awaited(event_id: str = "A", **fields: t.Any) -> dict[str, t.Any]:
    whole = {**event(event_id), "action": "drain_and_approve", "drain": True, "wait_until": None}
    return {**whole, **fields}


def status(*events: dict[str, t.Any], records: t.Sequence[dict[str, t.Any]] = ()) -> dict[str, t.Any]:
    return {"events": list(events), "vm_name": "web_0", "records": list(records)}


def record(event_id: str, *steps: dict[str, t.Any], stale: bool = True) -> dict[str, t.Any]:
    claim = {"run_name": "an older run", "phase": "restore", "silent_until": 1_789_842_587.0}
    return {"event": event(event_id), "steps": list(steps), "stale": stale, "claim": claim}


def looped(*answers: dict[str, t.Any]) -> dict[str, t.Any]:
    return {"results": list(answers)}


class TestObservations:
    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (status(), {"reachable": True, "vm_name": "web_0", "events": [], "error": None, "drained": False}),
            (
                {"unreachable": True, "msg": "x"},
                {"reachable": False, "vm_name": "named", "events": None, "error": None},
            ),
            ({"failed": True, "msg": "404"}, {"reachable": True, "vm_name": "named", "events": None, "error": "404"}),
            ({"skipped": True}, {"reachable": True, "events": None, "error": "it was not asked"}),
            (None, {"reachable": False, "events": None}),
        ],
    )
    def test_nothing_but_an_answer_counts_as_one(self, answer: t.Any, expected: dict[str, t.Any]) -> None:
        seen = observations({"web1": answer}, {"web1": "named"})["web1"]
        assert {key: seen[key] for key in expected} == expected

    def test_a_host_outside_the_run_is_known_by_its_name_only(self) -> None:
        seen = observations({}, {"web9": "web_9"})
        assert seen["web9"]["reachable"] is False
        assert seen["web9"]["vm_name"] == "web_9"

    def test_a_host_with_drain_steps_not_undone_is_drained(self) -> None:
        done = {"phase": "drain", "status": "done"}
        assert observations({"web1": status(records=[record("A", done)])}, {})["web1"]["drained"] is True
        undone = {**done, "status": "undone"}
        assert observations({"web1": status(records=[record("A", undone)])}, {})["web1"]["drained"] is False

    @pytest.mark.parametrize("given", ["30m", -1, True, [], 10**9, float("nan")])
    def test_what_is_no_number_of_seconds_is_refused(self, given: t.Any) -> None:
        with pytest.raises(WrongSetting, match="graceful_gone_timeout of a"):
            fleet({"a": {"graceful_gone_timeout": given}}, ["a"], ["a"])

    @pytest.mark.parametrize("given", ["30", 0, 86400])
    def test_templates_may_make_a_text_of_a_number(self, given: t.Any) -> None:
        fleet({"a": {"graceful_gone_timeout": given}}, ["a"], ["a"])

    def test_the_fleet_collects_names_settings_and_answers(self) -> None:
        variables = {"a": {"graceful_vm_name": "A_0", "graceful_policy": [], "graceful__status": status()}, "b": {}}
        found = fleet(variables, ["a"], ["a", "b"])
        assert found["settings"] == {"a": {"policy": []}, "b": {}}
        assert found["observations"]["a"]["vm_name"] == "web_0"


class TestAssignments:
    def work(self, *events: dict[str, t.Any], answer: dict[str, t.Any], claims: t.Any = None) -> dict[str, t.Any]:
        plan = {"hosts": {"web1": {"events": list(events)}}}
        return assignments(plan, {"web1": answer}, claims)

    def test_an_event_to_drain_for_is_claimed_and_drained_within_its_notice(self) -> None:
        mine = self.work(awaited(), answer=status(event()))["hosts"]["web1"]
        assert [one["event_id"] for one in mine["events"]] == ["A"]
        assert (mine["drain"], mine["seconds"]) == (True, 590)

    @pytest.mark.parametrize(("left", "seconds"), [(900, 890), (40, 30), (30, 23), (8, 6), (2, 5), (None, 290)])
    def test_a_part_of_the_notice_is_kept_for_the_approval(self, left: int | None, seconds: int) -> None:
        mine = self.work(awaited(), answer=status(event(seconds_left=left)))["hosts"]["web1"]
        assert mine["seconds"] == seconds

    @pytest.mark.parametrize(("left", "hurried"), [(30, ["web1"]), (129, ["web1"]), (130, []), (900, []), (None, [])])
    def test_who_has_less_than_two_minutes_is_hurried(self, left: int | None, hurried: list[str]) -> None:
        assert self.work(awaited(), answer=status(event(seconds_left=left)))["hurried"] == hurried

    @pytest.mark.parametrize(
        "fields",
        [
            {"action": "notify", "drain": False},
            {"action": "ignore", "drain": False},
            {"event_status": "Started"},
            {"wait_until": "2026-09-19T22:00:00Z", "drain": False},
        ],
    )
    def test_what_is_not_for_now_is_no_work(self, fields: dict[str, t.Any]) -> None:
        assert self.work(awaited(**fields), answer=status(event()))["hosts"] == {}

    def test_what_an_interrupted_run_began_is_taken_up_even_if_it_has_started(self) -> None:
        mine = self.work(awaited(event_status="Started"), answer=status(event(), records=[record("a")]))["hosts"][
            "web1"
        ]
        assert [one["event_id"] for one in mine["events"]] == ["A"]
        assert mine["drain"] is False

    def test_a_record_of_an_event_that_is_gone_is_left_to_be_undone(self) -> None:
        mine = self.work(answer=status(records=[record("B")]))["hosts"]["web1"]
        assert [old["event"]["event_id"] for old in mine["leftovers"]] == ["B"]

    def test_nothing_counts_as_gone_if_the_document_could_not_be_read(self) -> None:
        failed = {"failed": True, "msg": "503", "records": [record("B")]}
        assert self.work(answer=failed)["hosts"] == {}

    def test_what_another_run_holds_on_one_host_is_left_to_it_on_all(self) -> None:
        held = {"claimed": False, "holder": {"run_name": "other", "phase": "drain"}, "item": {"event_id": "a"}}
        work = self.work(awaited(), answer=status(event()), claims={"web2": looped(held)})
        assert work["hosts"] == {}
        assert "other has it in hand on web2" in work["elsewhere"]["a"]

    def test_a_damaged_record_is_told(self) -> None:
        work = self.work(answer=status(records=[{"damaged": True, "message": "cannot be read"}]))
        assert work["damaged"] == {"web1": "cannot be read"}

    def test_what_a_run_that_is_alive_has_left_is_its_own(self) -> None:
        answer = status(records=[record("B", stale=False)])
        work = self.work(answer=answer)
        assert work["hosts"] == {}
        assert work["words"] == [
            "web1: an older run has what is left of B in hand (phase restore) and may be silent until "
            "2026-09-19T18:29:47Z"
        ]
        forced = assignments({"hosts": {}}, {"web1": answer}, forced=True)
        assert len(forced["hosts"]["web1"]["leftovers"]) == 1

    def test_a_host_is_not_put_back_while_something_else_is_under_way_on_it(self) -> None:
        started = {"event_status": "Started", "action": "notify", "drain": False}
        answer = status(event("B", event_status="Started", seconds_left=None), records=[record("A")])
        mine = self.work(awaited("B", **started), answer=answer)["hosts"]["web1"]
        assert [one["event_id"] for one in mine["events"]] == ["B"]
        assert (mine["drain"], mine["events"][0]["demands_drain"]) == (False, False)
        assert len(mine["leftovers"]) == 1

    REFUSED: t.ClassVar = {
        "claimed": False,
        "holder": {"run_name": "other", "phase": "claim"},
        "item": {"event_id": "A"},
    }

    @pytest.mark.parametrize(
        ("claims", "contested"),
        [
            ({"web1": [CLAIMED], "web2": [CLAIMED]}, []),
            ({"web1": [CLAIMED], "web2": [REFUSED]}, ["a"]),
            ({"web1": [REFUSED], "web2": [CLAIMED]}, []),
            ({"web1": [{"unreachable": True, "item": {"event_id": "A"}}], "web2": [CLAIMED], "web3": [REFUSED]}, ["a"]),
            ({"web1": [CLAIMED], "web2": [REFUSED, CLAIMED]}, []),
            ({"web1": [CLAIMED], "web2": [REFUSED, {"skipped": True, "item": {"event_id": "A"}}]}, ["a"]),
        ],
    )
    def test_of_two_runs_that_claim_at_once_exactly_one_has_the_right(
        self, claims: dict[str, list[dict[str, t.Any]]], contested: list[str]
    ) -> None:
        work = self.work(awaited(), answer=status(event()), claims={h: looped(*a) for h, a in claims.items()})
        assert work["contested"] == contested
        final = {host: answers[-1] for host, answers in claims.items()}
        assert ("a" in work["elsewhere"]) == any(
            a.get("claimed") is not True for a in final.values() if "claimed" in a or "skipped" in a
        )


class TestHostReports:
    """Ready is only what is proven; whatever is missing, unknown or odd is not."""

    WORK: t.ClassVar[dict[str, t.Any]] = {"events": [{"event_id": "A", "demands_drain": True}]}

    def report(self, claims: t.Any, drained: t.Any, saved: t.Any, noted: t.Any) -> dict[str, t.Any]:
        return t.cast(dict[str, t.Any], host_reports(self.WORK, claims, drained, saved, noted)["A"])

    def test_ready_when_claimed_drained_saved_and_confirmed(self) -> None:
        assert self.report(looped(CLAIMED), READY, READY, looped(CLAIMED))["ready"] is True

    @pytest.mark.parametrize(
        ("claims", "drained", "saved", "noted", "words"),
        [
            (None, READY, READY, looped(CLAIMED), "not claimed"),
            (looped(), READY, READY, looped(CLAIMED), "not claimed"),
            (looped({**CLAIMED, "claimed": False, "msg": "held"}), READY, READY, looped(CLAIMED), "held"),
            (looped({**CLAIMED, "unreachable": True}), READY, READY, looped(CLAIMED), "cannot be reached"),
            (looped(CLAIMED), None, READY, looped(CLAIMED), "draining did not come to an end"),
            (looped(CLAIMED), {"ready": False, "reason": "late"}, READY, looped(CLAIMED), "late"),
            (looped(CLAIMED), {"ready": "yes"}, READY, looped(CLAIMED), "draining failed"),
            (looped(CLAIMED), READY, None, looped(CLAIMED), "checkpoint did not come to an end"),
            (looped(CLAIMED), READY, {"ready": False, "reason": "disk full"}, looped(CLAIMED), "disk full"),
            (looped(CLAIMED), READY, READY, None, "not confirmed"),
            (looped(CLAIMED), READY, READY, looped({**CLAIMED, "failed": True, "msg": "taken over"}), "taken over"),
            (looped(CLAIMED), READY, READY, looped({**CLAIMED, "unreachable": True}), "cannot be reached"),
            (looped(CLAIMED), READY, READY, looped({**CLAIMED, "skipped": True}), "not confirmed"),
        ],
    )
    def test_not_ready_otherwise(self, claims: t.Any, drained: t.Any, saved: t.Any, noted: t.Any, words: str) -> None:
        report = self.report(claims, drained, saved, noted)
        assert report["ready"] is False
        assert words in report["reason"]

    def test_an_approval_without_drain_needs_no_drain(self) -> None:
        work = {"events": [{"event_id": "A", "demands_drain": False}]}
        assert host_reports(work, looped(CLAIMED), None, None, looped(CLAIMED))["A"]["ready"] is True


class TestRecap:
    """When Azure started and ended an event is told as the first host saw it."""

    def story(self, *waits: t.Any, decision: t.Any = None, **fields: t.Any) -> dict[str, t.Any]:
        hosts = [f"web{number}" for number, _wait in enumerate(waits)]
        planned = {**event(), "event_source": "Platform", "description": "", "resources": [], "deadline": None}
        planned |= {"action": "notify", "reason": "", "leader": None, "hosts": hosts, "hold": [], **fields}
        run: dict[str, t.Any] = {
            "plan": {"events": [planned], "hosts": {}, "blind": {}},
            "work": {"hosts": {}, "elsewhere": {}, "words": []},
            "decision": decision or {},
            "approvals": [],
            "noticed": "2026-09-19T18:00:00Z",
            "finished": "2026-09-19T18:30:00Z",
        }
        variables = {host: {"graceful__over": wait} for host, wait in zip(hosts, waits, strict=True)}
        return t.cast(dict[str, t.Any], recap(run, variables, hosts)["events"][0])

    def wait(self, started: str | None, gone: str | None) -> dict[str, t.Any]:
        return {"outcome": "completed", "times": [{"event_id": "a", "started_at": started, "gone_at": gone}]}

    def test_by_the_first_host_that_saw_it(self) -> None:
        early = self.wait("2026-09-19T18:05:00Z", "2026-09-19T18:09:00Z")
        late = self.wait("2026-09-19T18:05:01Z", "2026-09-19T18:07:00Z")
        story = self.story(early, self.wait(None, None), late, {"skipped": True}, None)
        assert (story["started"], story["gone"]) == ("2026-09-19T18:05:00Z", "2026-09-19T18:07:00Z")

    def test_what_nobody_saw_is_unknown(self) -> None:
        story = self.story(self.wait(None, "2026-09-19T18:07:00Z"))
        assert (story["started"], story["gone"]) == (None, "2026-09-19T18:07:00Z")

    def test_what_had_started_when_it_was_noticed_was_started_then(self) -> None:
        story = self.story(self.wait("2026-09-19T18:05:00Z", None), event_status="Started")
        assert story["started"] == "2026-09-19T18:00:00Z"

    def test_what_was_cleared_and_never_tried_has_failed(self) -> None:
        plan = {"action": "drain_and_approve"}
        cleared = {"approve": [{"event_id": "a"}], "held": []}
        story = self.story(None, decision=cleared, **plan)
        assert (story["outcome"], story["hold"]) == ("failed", ["the run did not come to its approval"])

    @pytest.mark.parametrize(
        ("reports", "outcome", "hold"),
        [
            ({"a": {"ready": True, "reason": "ready"}}, "notified", []),
            ({"a": {"ready": False, "reason": "it hangs"}}, "failed", ["web0 is not ready: it hangs"]),
            (None, "failed", ["web0 is not ready: it did not report"]),
        ],
    )
    def test_who_was_to_be_drained_only_and_was_not_has_failed(
        self, reports: t.Any, outcome: str, hold: list[str]
    ) -> None:
        planned = {**event(), "event_source": "Platform", "description": "", "resources": [], "deadline": None}
        planned |= {"action": "drain", "reason": "", "leader": None, "hosts": ["web0", "web1"], "hold": []}
        run: dict[str, t.Any] = {
            "plan": {"events": [planned], "hosts": {}, "blind": {}},
            # web1 has nothing to do for it: put off, or another run's.
            "work": {"hosts": {"web0": {"events": [event()], "leftovers": []}}, "elsewhere": {}, "words": []},
            "decision": {},
            "approvals": [],
            "finished": "2026-09-19T18:30:00Z",
        }
        story = recap(run, {"web0": {"graceful__reports": reports}}, ["web0"])["events"][0]
        assert (story["outcome"], story["hold"]) == (outcome, hold)

    def test_a_damaged_record_is_a_failure(self) -> None:
        work: dict[str, t.Any] = {"hosts": {}, "elsewhere": {}, "words": [], "damaged": {"web1": "x.json is damaged"}}
        plan: dict[str, t.Any] = {"events": [], "hosts": {}, "blind": {}}
        told = recap({"plan": plan, "work": work, "decision": {}, "approvals": []}, {}, [])
        assert (told["result"], told["words"]) == ("failed", ["web1: x.json is damaged"])

    @pytest.mark.parametrize(
        ("blind", "result", "words"),
        [
            ({}, "nothing", ["Nothing is announced."]),
            ({"web1": "no"}, "failed", ["web1: nobody knows what Azure has announced to it (no)"]),
        ],
    )
    def test_who_could_not_ask_does_not_say_that_nothing_is_announced(
        self, blind: dict[str, str], result: str, words: list[str]
    ) -> None:
        plan = {"events": [], "hosts": {}, "blind": blind}
        work: dict[str, t.Any] = {"hosts": {}, "elsewhere": {}, "words": []}
        told = recap({"plan": plan, "work": work, "decision": {}, "approvals": []}, {}, [])
        assert (told["result"], told["words"]) == (result, words)
