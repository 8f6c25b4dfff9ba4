# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The event sources with real HTTP: run by their path, as ansible-rulebook does, with a list for a queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import runpy
import socket
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.eda.conftest import Make
from ansible_collections.graceful.azure.tests.eda.harness import NOOP, TOKEN, free_port, request, until
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, serving

SOURCES = COLLECTION / "extensions" / "eda" / "plugins" / "event_source"
SCHEDULED = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
Json = dict[str, t.Any]


class Source:
    """One source in a thread of its own."""

    def __init__(self, name: str, **args: t.Any) -> None:
        self.got: list[Json] = []
        self.failure: BaseException | None = None
        self._main = runpy.run_path(str(SOURCES / f"{name}.py"))["main"]
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[t.Any] | None = None
        self._thread = threading.Thread(target=self._run, args=(args,), daemon=True)
        self._thread.start()

    async def put(self, event: Json) -> None:
        self.got.append(event)

    def _run(self, args: Json) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._main(self, args))
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception as exc:
            self.failure = exc

    def ended(self) -> BaseException | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.failure

    def stop(self) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self.ended()
        self._loop.close()

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(one["payload"]["data"]["change"], one["payload"]["data"]["host"]) for one in self.got]


@contextlib.contextmanager
def running(name: str, **args: t.Any) -> t.Iterator[Source]:
    source = Source(name, **args)
    try:
        yield source
        assert source.failure is None
    finally:
        source.stop()


@pytest.fixture(scope="module")
def emulator() -> t.Iterator[Emulator]:
    with serving("--vm", "web_0", "--vm", "web_1") as one:
        yield one


def places(emulator: Emulator) -> list[Json]:
    return [{"host": f"host-{name}", "endpoint": endpoint} for name, endpoint in emulator.vms.items()]


def test_scheduled_events_tells_each_change_of_each_service_once(emulator: Emulator) -> None:
    with running("scheduled_events", services=places(emulator), poll_interval=0.2) as source:
        event_id = emulator.publish(resources=["web_0"])
        until(lambda: len(source.got) == 2)
        assert sorted(source.changes) == [("appeared", "host-web_0"), ("appeared", "host-web_1")]
        for one in source.got:
            assert set(one) == {"payload"}
            assert one["payload"]["data"]["event"]["event_id"] == event_id
            assert one["payload"]["data"]["event"]["affects_me"] is (one["payload"]["data"]["host"] == "host-web_0")
        emulator.obeys("/start", {"EventId": event_id})
        until(lambda: len(source.got) == 4)
        emulator.obeys("/complete", {"EventId": event_id})
        until(lambda: len(source.got) == 6)
    assert [change for change, _host in source.changes] == ["appeared"] * 2 + ["started"] * 2 + ["gone"] * 2
    emulator.forget()


def test_scheduled_events_lives_through_a_service_that_is_away(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {"host": "nobody", "endpoint": f"http://127.0.0.1:{free_port()}"}
    with running("scheduled_events", services=[nobody, places(emulator)[0]], poll_interval=0.2) as source:
        emulator.publish(resources=["web_0"])
        until(lambda: source.changes == [("appeared", "host-web_0")])
        until(lambda: "cannot be reached" in caplog.text)
    assert "nobody: the events cannot be read" in caplog.text
    emulator.forget()


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("scheduled_events", {"services": [{"host": "x", "endpoint": "ftp://x"}]}, "endpoint 'ftp://x'"),
        ("scheduled_events", {"poll": 1}, "no option 'poll'"),
        ("event_grid", {"port": 1}, "secret has to be"),
        ("event_grid", {"port": 1, "secret": TOKEN, "certfile": "/nowhere.pem"}, "certfile and keyfile cannot be used"),
        ("event_grid", {"port": 1, "secret": TOKEN, "host": "203.0.113.1"}, "cannot listen on 203.0.113.1 port 1"),
    ],
)
def test_a_wrong_option_ends_a_source_with_a_message(name: str, args: Json, said: str) -> None:
    assert said in str(Source(name, **args).ended())


def delivery(number: int = 1, **fields: t.Any) -> Json:
    properties = {"EventId": f"E{number}", "EventType": "Reboot", "EventStatus": "Scheduled", "Resources": ["web_0"]}
    data = {"resourceInfo": {"properties": {**properties, **fields}}}
    return {"id": str(number), "topic": "/subscriptions/0", "eventType": SCHEDULED, "data": data}


def listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(5)
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def grid(caplog: pytest.LogCaptureFixture) -> t.Iterator[tuple[Source, int]]:
    caplog.set_level(logging.DEBUG)
    port = free_port()
    with running("event_grid", port=port, secret=TOKEN) as source:
        until(lambda: listens(port))
        yield source, port
    # Neither the web server's own log nor ours has the secret.
    assert TOKEN not in caplog.text


def test_event_grid_answers_both_handshakes(grid: tuple[Source, int]) -> None:
    source, port = grid
    validation = {
        "id": "1",
        "topic": "/subscriptions/0",
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": "512d38b6"},
    }
    headers = {"aeg-event-type": "SubscriptionValidation", "Content-Type": "application/json"}
    answer = request(port, "POST", f"/{TOKEN}", json.dumps([validation]).encode(), headers)
    assert (answer.status, answer.json) == (200, {"validationResponse": "512d38b6"})
    asked = {"WebHook-Request-Origin": "eventgrid.azure.net", "WebHook-Request-Rate": "100"}
    answer = request(port, "OPTIONS", f"/{TOKEN}", headers=asked)
    assert answer.status == 200
    assert answer.headers["WebHook-Allowed-Origin"] == "eventgrid.azure.net"
    assert answer.headers["WebHook-Allowed-Rate"] == "100"
    assert source.got == []


def test_event_grid_takes_deliveries_once(grid: tuple[Source, int]) -> None:
    source, port = grid
    batch = [delivery(1), delivery(2, EventStatus="Canceled"), delivery(1)]
    for _each in range(3):
        assert request(port, "POST", f"/{TOKEN}", json.dumps(batch).encode()).status == 200
    assert [change for change, _host in source.changes] == ["appeared", "gone"]
    assert source.got[1]["payload"]["data"]["outcome"] == "cancelled"


def test_event_grid_refuses_what_is_not_its_own(grid: tuple[Source, int]) -> None:
    source, port = grid
    good = json.dumps([delivery()]).encode()
    cases = [
        ("POST", "/", good, 404),
        ("POST", f"/{TOKEN}x", good, 404),
        ("POST", f"/{TOKEN}/", good, 404),
        ("POST", f"/x/../{TOKEN}", good, 404),
        ("POST", f"/%61{TOKEN[1:]}", good, 404),
        ("POST", f"/?{TOKEN}", good, 404),
        ("OPTIONS", "/", None, 404),
        ("GET", f"/{TOKEN}", None, 405),
        ("DELETE", f"/{TOKEN}", None, 405),
        ("OPTIONS", f"/{TOKEN}", None, 400),
        ("POST", f"/{TOKEN}", b"", 400),
        ("POST", f"/{TOKEN}", b"[" * 100_000, 400),
        ("POST", f"/{TOKEN}", b'{"eventType": "x"}', 400),
        ("POST", f"/{TOKEN}", b"[" + b" " * (2 << 20) + b"]", 413),
    ]
    for method, path, body, status in cases:
        assert request(port, method, path, body).status == status, (method, path, (body or b"")[:40])
    assert source.got == []
    assert request(port, "POST", f"/{TOKEN}", good).status == 200
    until(lambda: len(source.got) == 1)


def test_event_grid_speaks_tls(certificate: Path) -> None:
    import http.client
    import ssl

    port = free_port()
    with running("event_grid", port=port, secret=TOKEN, certfile=str(certificate)) as source:
        until(lambda: listens(port))
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request("POST", f"/{TOKEN}", json.dumps([delivery()]).encode())
            assert connection.getresponse().status == 200
        assert [change for change, _host in source.changes] == ["appeared"]


def test_ansible_rulebook_finds_the_source_and_its_messages_start_a_run(emulator: Emulator, make: Make) -> None:
    """By the name that users write; the rules are those of the shipped rulebook."""
    rulebook = make("maintenance")
    text = Path(rulebook.rulebook).read_text()
    begin, end = text.index("    - name: watchers"), text.index("  rules:")
    services = {"services": places(emulator), "poll_interval": 0.5}
    source = f"    - graceful.azure.scheduled_events: {json.dumps(services)}\n"
    Path(rulebook.rulebook).write_text(text[:begin] + source + text[end:])
    assert str(NOOP) in text
    rulebook.start(wait=False)
    try:
        event_id = emulator.publish(resources=["web_0", "web_1"])
        until(lambda: rulebook.events == [event_id])
    finally:
        emulator.forget()
