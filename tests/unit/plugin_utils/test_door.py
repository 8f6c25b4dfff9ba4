# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a host answers: behind the door it has its shape, is short, and can only be read."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS
from ansible_collections.graceful.azure.plugins.plugin_utils._door import MODES, MOST, STATES, admitted
from ansible_collections.graceful.azure.plugins.plugin_utils._pass import PassInput
from ansible_collections.graceful.azure.plugins.plugin_utils._progress import messages, status
from ansible_collections.graceful.azure.plugins.plugin_utils._recap import report
from ansible_collections.graceful.azure.plugins.plugin_utils._reconcile import advance, begin
from ansible_collections.graceful.azure.tests.unit.plugin_utils.fleets import event
from ansible_collections.graceful.azure.tests.unit.plugin_utils.simulation import OPTIONS

Json = dict[str, t.Any]
Path = tuple[t.Any, ...]
NOW = 1_789_842_587.0
EVENT = {**event("E1", "vm1"), "affects_me": True, "description": "a description", "not_before": "2026-09-19T18:45:00Z"}
CLAIM = {"run_id": "id", "run_name": "run", "since": NOW, "renewed": NOW, "silent_until": NOW}
APPROVAL = {"at": NOW, "status": "approved", "run_id": "id", "message": "it is"}
TIMES = dict.fromkeys(("noticed", "ready", "started", "gone", "lapsed"), NOW)
ENTRY = {"event": EVENT, "claim": CLAIM, **TIMES, "approval": APPROVAL}
STEP = {"phase": "drain", "name": "app", "kind": "services", "status": "done", "message": "m", "at": NOW, "attempts": 2}
MARK = {"what": "draining", "detail": "d", "event_id": "E1", "at": NOW}
RECORD = {"events": {"e1": ENTRY}, "steps": [STEP], "timeline": [MARK]}
NEXT = {"phase": "drain", "name": "lb", "kind": "haproxy", "archive": "/a.tar.gz", "mode": "undo", "seconds": 30.0,
        "before": {"servers": [{"host": "lb1", "socket": "/s", "in_service": False}]}}  # fmt: skip
WHOLE: Json = {
    "report": {"state": "next", "message": "done", "final": True, "tried": False, "attempts": 3, "next_try": 5.0,
               "next": NEXT, "held": {"e1": {"run_name": "other"}}, "approval": APPROVAL, "closed": RECORD},
    "observation": {"time": NOW, "error": "none", "events": [EVENT], "document": "fingerprint", "clock_offset": 0.5,
                    "vm_name": "vm1", "api_version": "2020-07-01", "endpoint": "http://127.0.0.1:1", "record": RECORD,
                    "record_error": "none", "warnings": ["careful"]},
}  # fmt: skip
SETTINGS = {"policy": None, "drain_budget": 30, "gone_timeout": 60, "confirm": True, "vm_name": None}


def paths_in(value: t.Any, path: Path = ()) -> t.Iterator[Path]:
    """The way to every field, those that hold others included."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from paths_in(one, (*path, key))


def with_value(path: Path, value: t.Any) -> Json:
    changed: Json = json.loads(json.dumps(WHOLE))
    place: t.Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def texts_in(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts_in(key)
            yield from texts_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from texts_in(one)


def shape_of(value: t.Any) -> t.Any:
    """The keys of everything."""
    return {key: shape_of(one) for key, one in value.items()} if isinstance(value, dict) else None


def templated(text: str) -> t.Any:
    templar = Templar(loader=DataLoader(), variables={})
    try:
        from ansible.template import trust_as_template
    except ImportError:  # ansible-core before 2.19 trusts every text that is not marked
        return templar.template(text)
    return templar.template(trust_as_template(text))


FIELDS = list(paths_in(WHOLE))
LABELS = [".".join(map(str, path)) for path in FIELDS]
PAYLOADS: dict[str, t.Any] = {
    "template": "{{ 1 + 1 }}",
    "statement": "{% for x in [1] %}{{ x }}{% endfor %}{# gone #}",
    "control characters": "\x1b]0;title\x07\x9b2J\r\n\u202e\ud800\0",
    "huge text": "x" * 1_000_000,
    "huge number": 10**400,
    "nan": float("nan"),
    "negative": -1,
    "later than any date": 9e11,
    "header of a template": "#jinja2:variable_start_string:'[[',variable_end_string:']]',x:[[ 1 + 1 ]].",
    "nothing": None,
    "list": ["{{ 1 + 1 }}", {"{{ 1 + 1 }}": "\x1b"}],
    "mapping": {"{{ 1 + 1 }}": {"\x1b[2J": ["{{ 1 + 1 }}"]}},
    "deep": json.loads("[" * 200 + "]" * 200),
    "bool": True,
    "bytes": b"{{ 1 + 1 }}",
}


def test_a_whole_answer_passes_unchanged() -> None:
    told = admitted(copy.deepcopy(WHOLE))
    assert {key: told[key] for key in ("report", "observation")} == WHOLE
    assert (told["reachable"], told["error"]) == (True, None)


def test_an_event_has_all_of_its_fields_whatever_came() -> None:
    told = admitted(with_value(("observation", "events"), [{"event_id": "E1"}, EVENT]))
    for one in told["observation"]["events"]:
        assert list(one) == list(EVENT_FIELDS)


@pytest.mark.parametrize("path", FIELDS, ids=LABELS)
def test_a_payload_in_any_field_can_only_be_read(path: Path) -> None:
    for payload in PAYLOADS.values():
        told = admitted(with_value(path, payload))
        json.dumps(told, allow_nan=False)
        for text in texts_in(told):
            assert text.isprintable()
            assert len(text) <= 600
            if "{" in text or "[[" in text:
                assert templated(text) == text
        if told["report"] is None:
            assert path in (("report",), ("observation",))
            continue
        # What is wrong in one place does not change the form of the rest.
        step, states = (
            told["report"]["next"],
            (told["report"]["state"], told["report"]["final"], told["report"]["tried"]),
        )
        assert set(told["report"]) == set(WHOLE["report"])
        assert states[0] in STATES
        assert {type(flag) for flag in states[1:]} == {bool}
        assert step is None or (set(step) == set(NEXT) and step["mode"] in MODES and step["seconds"] >= 1)
        assert set(told["observation"]) == set(WHOLE["observation"])
        for record in (told["observation"]["record"], told["report"]["closed"]):
            assert record is None or set(record) == set(RECORD)
            for one in record["events"].values() if record else ():
                assert shape_of({**one, "approval": one["approval"] or APPROVAL}) == shape_of(ENTRY)
            for one in record["steps"] if record else ():
                assert shape_of(one) == shape_of(STEP)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_in_every_field_ends_no_run_and_reaches_no_message(payload: str) -> None:
    run = begin("run-1", "a run", OPTIONS, NOW)
    for number, path in enumerate(FIELDS):
        told = {**admitted(with_value(path, PAYLOADS[payload])), "host": "web1", "pass": number + 1, "order": "ready",
                "events": ["E1"], "settings": SETTINGS, "mistakes": [], "interruptions": [],
                "at": NOW, "step": {"tasks": ""}}  # fmt: skip
        given = PassInput({"web1": told}, {"all": ["web1"]}, {"web1": "vm1"}, NOW + number)
        before, run = run, advance({**run, "finished": None}, given)
        said = [*messages(before, run, NOW), *status(run), *texts_in(report(run))]
        json.dumps(run, allow_nan=False)
        for text in said:
            assert text.isprintable()
            assert "{{" not in text
            assert "{%" not in text
            assert "#jinja2:" not in text


def test_a_mode_or_state_that_nobody_knows_is_no_order_to_the_controller() -> None:
    assert admitted(with_value(("report", "next", "mode"), "run"))["report"]["next"] is None
    assert admitted(with_value(("report", "state"), "approve"))["report"]["state"] == "failed"


def test_an_event_without_an_id_makes_the_host_one_that_cannot_be_asked() -> None:
    told = admitted(with_value(("observation", "events"), [EVENT, {**EVENT, "event_id": None}]))
    assert told["observation"]["events"] is None
    assert "without an EventId" in told["observation"]["error"]


def test_an_event_without_an_id_in_a_record_is_none() -> None:
    told = admitted(with_value(("observation", "record", "events", "e1", "event", "event_id"), " "))
    assert told["observation"]["record"]["events"] == {}


def test_a_flood_is_cut() -> None:
    told = admitted(with_value(("observation", "events"), [EVENT] * (MOST + 5)))
    assert len(told["observation"]["events"]) == MOST
    told = admitted(with_value(("observation", "record", "timeline"), [{**MARK, "at": at} for at in range(1000)]))
    kept = told["observation"]["record"]["timeline"]
    assert (len(kept), kept[-1]["at"]) == (500, 999)
    told = admitted(with_value(("observation", "record", "events"), {str(number): ENTRY for number in range(1000)}))
    assert len(told["observation"]["record"]["events"]) == 200
    told = admitted(with_value(("report", "next", "seconds"), 1e11))
    assert told["report"]["next"]["seconds"] == 86400


@pytest.mark.parametrize(
    ("result", "reachable", "error"),
    [
        ({"unreachable": True, "msg": "no route\x1b[2J"}, False, "no route?[2J"),
        ({"failed": True, "msg": "{{ 1 + 1 }}"}, True, "{ { 1 + 1 }}"),
        ({"failed": True, "module_stderr": "Killed", "module_stdout": ""}, True, "Killed"),
        ({"report": "ready", "observation": {}}, True, "no reason was given"),
        ({"report": {"state": "ready"}}, True, "no reason was given"),
        ({}, True, "no reason was given"),
    ],
)
def test_what_is_no_answer_is_never_taken_for_one(result: Json, reachable: bool, error: str) -> None:
    assert admitted(result) == {"reachable": reachable, "error": error, "report": None, "observation": None}
