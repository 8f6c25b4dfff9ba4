# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rulebooks as they are shipped. Only the playbook is another one: it notes that it was started."""

from __future__ import annotations

import json
import signal
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._watcher.config import Receiver
from ansible_collections.graceful.azure.plugins.module_utils._watcher.receivers import send
from ansible_collections.graceful.azure.tests.eda.conftest import Make
from ansible_collections.graceful.azure.tests.eda.harness import TOKEN, Rulebook, request, told, until
from ansible_collections.graceful.azure.tests.unit.watcher.harness import Got, Server


@pytest.fixture(scope="module")
def rulebook(tmp_path_factory: pytest.TempPathFactory, java: None) -> t.Iterator[Rulebook]:
    running = Rulebook(tmp_path_factory.mktemp("rulebook"), "maintenance")
    running.start()
    yield running
    running.close()
    print(running.log[-8000:])


def test_an_event_starts_one_run_however_many_hosts_tell_of_it(rulebook: Rulebook) -> None:
    first = told("appeared", "MANY", "web0")
    assert rulebook.post(first) == 200
    for number in range(1, 60):
        assert rulebook.post(told("appeared", "MANY", f"web{number}", number)) == 200
    assert rulebook.post(told("changed", "MANY", "web1", 100)) == 200
    assert rulebook.post(told("started", "MANY", "web2", 101)) == 200
    rulebook.answers_to("AFTER-MANY")
    assert rulebook.events.count("MANY") == 1
    (run,) = [run for run in rulebook.runs if run["graceful_event"]["subject"] == "MANY"]
    assert run["graceful_event"] == first


def test_an_event_of_which_the_first_message_was_lost_starts_a_run(rulebook: Rulebook) -> None:
    for change in ("changed", "started"):
        for number in range(5):
            assert rulebook.post(told(change, f"LATE-{change}", f"web{number}", number)) == 200
    rulebook.answers_to("AFTER-LATE")
    assert [rulebook.events.count(f"LATE-{change}") for change in ("changed", "started")] == [1, 1]


def test_a_host_that_is_back_starts_a_run_that_restores(rulebook: Rulebook) -> None:
    rulebook.answers_to("BOOTED")
    for number in range(10):
        assert rulebook.post(told("back", "BOOTED", f"web{number}", number, drained=True)) == 200
    until(lambda: rulebook.events.count("BOOTED") == 2)
    rulebook.answers_to("AFTER-BOOTED")
    assert rulebook.events.count("BOOTED") == 2
    changes = [run["graceful_event"]["data"]["change"] for run in rulebook.runs]
    assert [change for change, event_id in zip(changes, rulebook.events, strict=True) if event_id == "BOOTED"] == [
        "appeared",
        "back",
    ]


def test_an_event_that_is_over_starts_a_run_only_if_the_host_is_still_drained(rulebook: Rulebook) -> None:
    assert rulebook.post(told("gone", "OVER-IN-SERVICE", drained=False)) == 200
    assert rulebook.post(told("gone", "OVER-DRAINED", drained=True)) == 200
    until(lambda: "OVER-DRAINED" in rulebook.events)
    rulebook.answers_to("AFTER-OVER")
    assert "OVER-IN-SERVICE" not in rulebook.events


def test_what_is_repeated_starts_nothing(rulebook: Rulebook) -> None:
    replayed = told("appeared", "REPLAYED")
    for _each in range(5):
        assert rulebook.post(replayed) == 200
    rulebook.answers_to("AFTER-REPLAYED")
    assert rulebook.events.count("REPLAYED") == 1


BROKEN: list[tuple[str, bytes, int]] = [
    ("empty", b"", 400),
    ("half", b"{", 400),
    ("text", b"event: appeared", 400),
    ("deep", b"[" * 50_000, 500),
    ("huge", b'{"a": "' + b"x" * (2 << 20) + b'"}', 413),
]


def test_wrong_tokens_and_what_is_no_message_are_refused(rulebook: Rulebook) -> None:
    before = len(rulebook.runs)
    for token in ("wrong", "", None, TOKEN[:-1], f"{TOKEN} {TOKEN}", "é"):
        assert rulebook.post(told("appeared", "WRONG-TOKEN"), token) == 401, token
    for name, body, status in BROKEN:
        assert rulebook.post(body) == status, name
    rulebook.answers_to("AFTER-REFUSED")
    assert len(rulebook.runs) == before + 1


def odd(**fields: t.Any) -> t.Any:
    return {**told("appeared", "FOREIGN"), **fields}


FOREIGN: list[t.Any] = [
    None,
    5,
    [told("appeared", "FOREIGN")],
    {},
    odd(type="com.example.disk.full"),
    odd(type="graceful.azure.scheduled_event.appeared2"),
    odd(type=["graceful.azure.scheduled_event.appeared"]),
    odd(type=None),
    odd(data=None),
    odd(data="text"),
    odd(data={"event": []}),
    odd(data={"event": {"event_id": None}}),
    odd(data={"event": {"event_id": ""}}),
    odd(data={"event": {"event_id": {"a": 1}}}),
    {"payload": told("appeared", "FOREIGN"), "meta": {"hosts": "runner"}},
]


def test_what_is_foreign_starts_nothing_and_breaks_nothing(rulebook: Rulebook) -> None:
    before = len(rulebook.runs)
    for message in FOREIGN:
        assert rulebook.post(message) == 200, message
    rulebook.answers_to("AFTER-FOREIGN")
    assert len(rulebook.runs) == before + 1


def test_a_message_cannot_choose_the_hosts_of_a_run(rulebook: Rulebook) -> None:
    """meta.hosts would become --limit, and a limit holds events. It is looked for beside the payload, not in it."""
    message = {**told("appeared", "LIMITED"), "meta": {"hosts": "nobody"}, "hosts": ["nobody"]}
    assert rulebook.post(message) == 200
    # With a limit that matches nobody there would be no run to note it.
    until(lambda: "LIMITED" in rulebook.events)


def test_what_is_in_a_message_reaches_the_run_as_it_is(rulebook: Rulebook, tmp_path: Path) -> None:
    """ansible-rulebook evaluates the rulebook's expressions, and not what they bring in."""
    made = tmp_path / "made"
    evil = "{{ lookup('pipe', 'touch " + str(made) + "') }}"
    message = told("appeared", "EVIL")
    # The watcher would have made it harmless.
    message["data"]["event"].update(
        description=evil, resources=[evil, "{% raw %}", "!unsafe x", "5"], nested={"a": [evil]}
    )
    message[evil] = evil
    assert rulebook.post(message) == 200
    until(lambda: "EVIL" in rulebook.events)
    (run,) = [run for run in rulebook.runs if run["graceful_event"]["subject"] == "EVIL"]
    assert run["graceful_event"] == message
    assert not made.exists()


def test_a_rulebook_that_is_started_again_starts_at_most_one_more_run(make: Make) -> None:
    """It keeps nothing on disk. Two runs of one event agree on who has it; the later one finds nothing to do."""
    rulebook = make("maintenance")
    rulebook.start()
    rulebook.answers_to("KNOWN")
    assert rulebook.stop(signal.SIGKILL) == -signal.SIGKILL
    rulebook.start()
    for number in range(20):
        assert rulebook.post(told("appeared", "KNOWN", f"web{number}", number)) == 200
    rulebook.answers_to("AFTER-RESTART")
    assert sorted(rulebook.events) == ["AFTER-RESTART", "KNOWN", "KNOWN"]


def test_a_run_takes_over_only_from_a_run_of_the_same_rulebook(rulebook: Rulebook) -> None:
    """Two runs of one event never meet here, so that the other one is dead."""
    claims: dict[str, t.Any] = {
        "CLAIM-OWN": {"claimed_by": ["ansible-rulebook"], "drained": True},
        "CLAIM-OTHER": {"claimed_by": ["somebody"], "drained": True},
        "CLAIM-BOTH": {"claimed_by": ["ansible-rulebook", "somebody"], "drained": True},
        "CLAIM-NONE": {"claimed_by": [], "drained": True},
        "CLAIM-ODD": None,
    }
    for event_id, record in claims.items():
        message = told("started", event_id)
        message["data"]["record"] = record
        assert rulebook.post(message) == 200
    until(lambda: set(claims) <= set(rulebook.events))
    forced = {run["graceful_event"]["subject"]: run["graceful_force_claim"] for run in rulebook.runs}
    assert [forced[event_id] for event_id in claims] == [True, False, False, False, False]
    assert {run["graceful_run_name"] for run in rulebook.runs} == {"ansible-rulebook"}


def test_without_a_token_it_does_not_start(make: Make) -> None:
    rulebook = make("maintenance")
    del rulebook.variables["graceful_token"]
    rulebook.start(wait=False)
    rulebook.says("graceful_token")
    assert rulebook.process
    assert rulebook.process.wait(120) != 0


def test_a_signature_of_the_watcher_takes_the_place_of_the_token(make: Make) -> None:
    rulebook = make("maintenance")
    file = Path(rulebook.rulebook)
    file.write_text(file.read_text().replace('token: "{{ graceful_token | string }}"', "hmac_secret: the-key"))
    rulebook.start()
    url = f"http://127.0.0.1:{rulebook.port}/"
    assert not send(Receiver("eda", url, hmac_secret="another-key"), told("appeared", "WRONGLY-SIGNED")).taken
    assert not send(Receiver("eda", url, token="the-key"), told("appeared", "NOT-SIGNED")).taken
    assert send(Receiver("eda", url, hmac_secret="the-key"), told("appeared", "SIGNED")).taken
    until(lambda: "SIGNED" in rulebook.events)
    rulebook.settle()
    assert rulebook.events == ["SIGNED"]


class Awx:
    """The part of AWX's API that run_job_template uses."""

    def __init__(self, server: Server) -> None:
        self.launched: list[dict[str, t.Any]] = []
        server.answer = self.answer

    def answer(self, got: Got) -> tuple[int, t.Any]:
        path = got.path.partition("?")[0]
        if path.endswith("/launch/"):
            assert got.headers["Authorization"] == "Bearer awx-token"
            self.launched.append(got.json)
            return 201, {"url": f"/api/v2/jobs/{len(self.launched)}/", "id": len(self.launched)}
        template = {
            "id": 7,
            "type": "job_template",
            "name": "Graceful maintenance",
            "summary_fields": {"organization": {"name": "Default"}},
            "related": {"launch": "/api/v2/job_templates/7/launch/"},
            **{f"ask_{what}_on_launch": what == "variables" for what in ("limit", "labels", "inventory", "variables")},
        }
        if "unified_job_templates" in path:
            return 200, {"count": 1, "next": None, "results": [template]}
        done = {"status": "successful", "created": "2026-01-01T00:00:00Z", "artifacts": {}, "type": "job"}
        if "/jobs/" in path and path.rstrip("/").rsplit("/", 1)[-1].isdigit():
            return 200, {**done, "id": int(path.rstrip("/").rsplit("/", 1)[-1])}
        jobs = [{**done, "id": number + 1} for number in range(len(self.launched))]
        return 200, {"count": len(jobs), "next": None, "results": jobs, "version": "24.6.1"}


def test_the_rulebook_for_awx_launches_one_job_for_an_event(make: Make) -> None:
    server = Server()
    awx = Awx(server)
    rulebook = make("maintenance_awx", noop=False)
    rulebook.arguments += ["--controller-url", server.url, "--controller-token", "awx-token"]
    rulebook.settings["EDA_JOB_TEMPLATE_REFRESH_DELAY"] = "0.2"
    rulebook.start()
    first = told("appeared", "E1", "web0")
    rulebook.post(first)
    for number in range(1, 20):
        rulebook.post(told("appeared", "E1", f"web{number}", number))
    rulebook.post(told("appeared", "E2"))
    until(lambda: len(awx.launched) == 2)
    rulebook.post(told("back", "E1", drained=True))
    until(lambda: len(awx.launched) == 3)
    server.stop()
    variables = [job["extra_vars"] for job in awx.launched]
    if isinstance(variables[0], str):
        variables = [json.loads(one) for one in variables]
    assert [one["graceful_event"]["data"]["event"]["event_id"] for one in variables] == ["E1", "E2", "E1"]
    assert variables[0] == {"graceful_event": first}


def test_the_rulebook_for_event_grid_starts_one_run(make: Make) -> None:
    rulebook = make("event_grid")
    rulebook.start()
    properties = {"EventId": "GRID", "EventType": "Reboot", "EventStatus": "Scheduled", "Resources": ["shop_0"]}
    delivery = {
        "id": "1",
        "topic": "/subscriptions/0",
        "eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted",
        "data": {"resourceInfo": {"properties": properties}},
    }
    for _each in range(3):
        assert request(rulebook.port, "POST", f"/{TOKEN}", json.dumps([delivery]).encode()).status == 200
    until(lambda: rulebook.events == ["GRID"])
    over = {**properties, "EventStatus": "Completed"}
    delivery.update(id="2", data={"resourceInfo": {"properties": over}})
    assert request(rulebook.port, "POST", f"/{TOKEN}", json.dumps([delivery]).encode()).status == 200
    until(lambda: rulebook.events == ["GRID", "GRID"])
    assert rulebook.runs[-1]["graceful_event"]["data"]["outcome"] == "completed"
