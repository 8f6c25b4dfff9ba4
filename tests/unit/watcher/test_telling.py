# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packed watcher as a process: what its receivers get, whatever happens to them and to itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import signal
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._watcher.config import Receiver
from ansible_collections.graceful.azure.plugins.module_utils._watcher.receivers import Sender
from ansible_collections.graceful.azure.plugins.module_utils._watcher.spool import Spool
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator, until
from ansible_collections.graceful.azure.tests.unit.watcher.harness import Host, Json, Server

TOKEN = "s3cret-token"


def gone(emulator: Emulator, event_id: str) -> None:
    emulator.obeys("/complete", {"EventId": event_id})


def test_each_change_is_told_once(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver, secrets={"token": TOKEN})
    host.start()
    event_id = emulator.publish("Reboot", ["web_0", "web_1"], notice=2, started_for=2)
    until(lambda: "gone" in receiver.changes)
    time.sleep(1)
    assert receiver.changes == ["appeared", "started", "gone"]
    first = receiver.messages[0]
    assert first["specversion"] == "1.0"
    assert first["type"] == "graceful.azure.scheduled_event.appeared"
    assert first["source"] == "/graceful.azure/watcher/web1"
    assert first["subject"] == event_id
    data = first["data"]
    assert (data["host"], data["vm_name"], data["event"]["event_id"]) == ("web1", "web_0", event_id)
    assert data["event"]["resources"] == ["web_0", "web_1"]
    assert data["event"]["affects_me"] is True
    assert receiver.messages[-1]["data"]["outcome"] == "completed"
    assert {got.headers["Authorization"] for got in receiver.got} == {f"Bearer {TOKEN}"}
    assert {got.headers["Content-Type"] for got in receiver.got} == {"application/cloudevents+json"}
    assert receiver.no_id_twice()
    until(lambda: host.spooled() == 0)
    assert TOKEN not in host.log
    host.says("Announced: Reboot")


def test_it_is_told_within_a_moment(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.config["poll_interval"] = 1.0
    host.tells(receiver)
    host.start()
    host.says("Watching")
    until((host.directory / "metrics.prom").exists)
    begin = time.monotonic()
    emulator.publish("Preempt", ["web_0"])
    until(lambda: receiver.changes == ["appeared"])
    # A second between two looks, and a loaded machine.
    assert time.monotonic() - begin < 4


def test_a_cancelled_event_is_gone_as_cancelled(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    host.start()
    event_id = emulator.publish()
    until(lambda: receiver.changes)
    emulator.obeys("/cancel", {"EventId": event_id})
    until(lambda: receiver.changes == ["appeared", "gone"])
    assert receiver.messages[-1]["data"]["outcome"] == "cancelled"


def test_what_changes_in_an_event_is_told(host: Host, receiver: Server, serve: Callable[..., Server]) -> None:
    event: Json = {
        "EventId": "A",
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0"],
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 19 Sep 2095 18:29:47 GMT",
        "Description": "{{ lookup('pipe', 'id') }}",
        "EventSource": "Platform",
        "DurationInSeconds": 5,
    }
    metadata = serve()
    compute = {"compute": {"name": "web_0"}}
    metadata.answer = lambda got: (
        200,
        compute if "/instance" in got.path else {"DocumentIncarnation": 1, "Events": [event]},
    )
    host.config["endpoint"] = metadata.url
    host.tells(receiver)
    host.start()
    until(lambda: receiver.changes == ["appeared"])
    event["Resources"] = ["web_0", "web_1"]
    until(lambda: receiver.changes == ["appeared", "changed"])
    assert receiver.messages[-1]["data"]["changed_fields"] == ["resources"]
    event.update(EventStatus="Started", NotBefore="")
    until(lambda: receiver.changes == ["appeared", "changed", "started"])
    assert all("{{" not in got.body.decode() for got in receiver.got), "no receiver may take it for a template"


def test_a_service_that_cannot_be_read_says_nothing_about_events(
    host: Host, emulator: Emulator, receiver: Server
) -> None:
    host.tells(receiver)
    host.start()
    emulator.publish()
    until(lambda: receiver.changes)
    emulator.obeys("/fault", {"kind": "503"})
    host.says("The events cannot be read")
    time.sleep(3)
    emulator.obeys("/faults/clear", {})
    host.says("can be read again")
    time.sleep(1)
    assert receiver.changes == ["appeared"]


def test_a_receiver_that_is_away_gets_everything_in_order_when_it_is_back(
    host: Host, emulator: Emulator, receiver: Server
) -> None:
    receiver.stop()
    host.tells(receiver)
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], started_for=60)
    host.says("did not accept a message")
    assert host.spooled() == 1
    emulator.obeys("/start", {"EventId": event_id})
    until(lambda: host.spooled() == 2)
    receiver.start()
    until(lambda: receiver.changes == ["appeared", "started"])
    host.says("It takes messages again")
    until(lambda: host.spooled() == 0)


def test_one_receiver_that_hangs_does_not_keep_the_others_waiting(
    host: Host, emulator: Emulator, receiver: Server, serve: Callable[..., Server]
) -> None:
    slow = serve()

    def hang(_got: t.Any) -> tuple[int, t.Any]:
        time.sleep(9)
        return 200, {}

    slow.answer = hang
    host.tells(slow, "slow", timeout=8)
    host.tells(receiver)
    host.start()
    host.says("Watching")
    event_id = emulator.publish("Reboot", ["web_0"], started_for=60)
    until(lambda: receiver.changes == ["appeared"], 7)
    emulator.obeys("/start", {"EventId": event_id})
    until(lambda: receiver.changes == ["appeared", "started"], 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_nothing_is_told_twice_or_lost_by_a_restart(
    host: Host, emulator: Emulator, receiver: Server, number: int
) -> None:
    host.tells(receiver)
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], started_for=600)
    until(lambda: receiver.changes == ["appeared"])
    until(lambda: host.spooled() == 0)
    host.stop(number)
    emulator.obeys("/start", {"EventId": event_id})
    host.start()
    until(lambda: receiver.changes == ["appeared", "started"])
    until(lambda: host.spooled() == 0)
    receiver.stop()
    gone(emulator, event_id)
    until(lambda: host.spooled() == 1)
    host.stop(number)
    receiver.start()
    host.start()
    until(lambda: receiver.changes == ["appeared", "started", "gone"])
    time.sleep(1)
    assert receiver.changes == ["appeared", "started", "gone"]
    assert receiver.no_id_twice()


def test_what_was_spooled_but_not_committed_is_not_told_twice(host: Host, emulator: Emulator, receiver: Server) -> None:
    """The process ended between the two writes: the message is made again, under the same id."""
    host.tells(receiver)
    receiver.stop()
    emulator.publish("Reboot", ["web_0"])
    host.once()
    (spooled,) = (host.directory / "state" / "spool" / "eda").glob("*.json")
    message = json.loads(spooled.read_text())
    (host.directory / "state" / "state.json").unlink()
    receiver.start()
    host.start()
    until(lambda: receiver.changes)
    time.sleep(1)
    assert [got["id"] for got in receiver.messages] == [message["id"]]


def test_a_wrong_token_is_said_and_the_message_is_kept(host: Host, emulator: Emulator, receiver: Server) -> None:
    receiver.answer = lambda got: (200 if got.headers["Authorization"] == "Bearer right" else 401, {})
    host.tells(receiver, secrets={"token": "wrong"})
    host.start()
    event_id = emulator.publish("Reboot", ["web_0"], started_for=60)
    host.says("HTTP 401, its token or signature is not accepted")
    until(lambda: len(receiver.got) >= 3)
    times = len(receiver.got)
    time.sleep(1)
    assert len(receiver.got) - times <= 1, "it is tried ever more rarely"
    assert host.log.count("HTTP 401") == 1
    assert host.spooled() == 1
    host.stop()
    host.secrets["receivers"]["eda"]["token"] = "right"
    receiver.got.clear()
    host.start()
    until(lambda: receiver.changes == ["appeared"])
    emulator.obeys("/start", {"EventId": event_id})
    until(lambda: receiver.changes == ["appeared", "started"])


def test_a_message_that_is_refused_does_not_block_the_next_one(tmp_path: Path, receiver: Server) -> None:
    receiver.answer = lambda got: (422 if got.json["data"]["change"] == "appeared" else 200, {})
    spool = Spool(str(tmp_path), 10, None)
    said: list[str] = []
    sender = Sender(Receiver("eda", receiver.url), spool, said.append)
    spool.add(0, {"type": "scheduled_event.appeared", "data": {"change": "appeared"}})
    assert [sender.step() for _try in range(6)] == [1, 2, 4, 8, 16, 32], "it may be a mistake in how it is sent"
    spool.add(1, {"type": "scheduled_event.started", "data": {"change": "started"}})
    assert [sender.step() for _try in range(2)] == [0, None]
    assert receiver.changes == ["appeared"] * 7 + ["started"]
    assert "which is dropped: appeared" in said[-1]
    assert (spool.dropped, len(spool)) == (1, 0)


def test_nothing_is_dropped_while_the_receiver_refuses_everything(tmp_path: Path, receiver: Server) -> None:
    receiver.answer = lambda _got: (400, {})
    spool = Spool(str(tmp_path), 10, None)
    for number, change in enumerate(["appeared", "started"]):
        spool.add(number, {"type": change, "data": {"change": change, "text": "\u00fc\U0001f600"}})
    sender = Sender(Receiver("eda", receiver.url), spool, lambda _text: None)
    assert sender.step()
    assert all(sender.step() for _try in range(7))
    assert (spool.dropped, len(spool)) == (0, 2)
    receiver.answer = lambda _got: (200, {})
    receiver.got.clear()
    assert [sender.step() for _try in range(3)] == [0, 0, None]
    assert receiver.changes == ["appeared", "started"]
    assert "\u00fc\U0001f600".encode() in receiver.got[0].body


def test_the_spool_is_bounded_and_the_oldest_goes_first(host: Host, emulator: Emulator, receiver: Server) -> None:
    receiver.stop()
    host.config["spool_max"] = 3
    host.tells(receiver)
    host.start()
    for _number in range(5):
        emulator.publish("Reboot", ["web_0"])
    until(lambda: sum("Announced" in line for line in host.log.splitlines()) == 5)
    until(lambda: host.spooled() == 3)
    receiver.start()
    until(lambda: len(receiver.got) == 3)
    told = [message["subject"] for message in receiver.messages]
    announced = re.findall(r"Announced: Reboot (\S+)", host.log)
    assert told == announced[2:]


@pytest.mark.parametrize("form", ["hex", "base64"])
def test_the_signature_is_of_the_very_body(host: Host, emulator: Emulator, receiver: Server, form: str) -> None:
    secrets = {"hmac_secret": TOKEN, "headers": {"X-Extra": "1"}}
    host.tells(receiver, secrets=secrets, hmac_format=form, hmac_header="X-Signed", hmac_prefix="")
    emulator.publish()
    assert host.once().returncode == 0
    (got,) = receiver.got
    digest = hmac.new(TOKEN.encode(), got.body, hashlib.sha256)
    expected = digest.hexdigest() if form == "hex" else base64.b64encode(digest.digest()).decode()
    assert (got.headers["X-Signed"], got.headers["X-Extra"]) == (expected, "1")


def test_awx_is_asked_to_launch_a_job_with_the_event(host: Host, emulator: Emulator, receiver: Server) -> None:
    receiver.answer = lambda _got: (201, {"job": 42, "ignored_fields": {}})
    host.tells(receiver, "awx", {"token": TOKEN, "url": f"{receiver.url}/api/v2/job_templates/7/launch/"}, kind="awx")
    event_id = emulator.publish()
    done = host.once()
    assert done.returncode == 0, done.stderr
    (got,) = receiver.got
    assert got.path == "/api/v2/job_templates/7/launch/"
    assert got.headers["Authorization"] == f"Bearer {TOKEN}"
    assert got.json["extra_vars"]["graceful_event"]["data"]["event"]["event_id"] == event_id
    assert "job 42" in done.stderr


def test_awx_that_ignores_the_event_is_said(host: Host, emulator: Emulator, receiver: Server) -> None:
    receiver.answer = lambda _got: (201, {"job": 42, "ignored_fields": {"extra_vars": {}}})
    host.tells(receiver, "awx", kind="awx")
    emulator.publish()
    assert "prompt for variables on launch" in host.once().stderr


def test_who_wants_its_own_events_only_is_not_told_of_others(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver, events="affected")
    emulator.publish("Reboot", ["web_1"])
    mine = emulator.publish("Reboot", ["web_0"])
    assert host.once().returncode == 0
    assert [message["subject"] for message in receiver.messages] == [mine]


def test_who_wants_some_changes_only_gets_those(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.config["receivers"].append({"name": "eda", "changes": ["started"]})
    host.secrets["receivers"]["eda"] = {"url": receiver.url}
    emulator.publish("Redeploy", ["web_0"], EventStatus="Started", started_for=60)
    assert host.once().returncode == 0
    assert receiver.changes == ["started"]


def test_tls_is_verified(host: Host, emulator: Emulator, serve: Callable[..., Server], certificate: Path) -> None:
    receiver = serve(certificate)
    host.tells(receiver)
    emulator.publish()
    refused = host.once()
    assert refused.returncode == 1
    assert "certificate" in refused.stderr
    assert receiver.got == []
    host.config["receivers"][0]["ca_file"] = str(certificate)
    assert host.once().returncode == 0
    assert receiver.changes == ["appeared"]


def test_a_redirect_is_not_followed(host: Host, emulator: Emulator, receiver: Server) -> None:
    receiver.answer = lambda _got: (302, {})
    host.tells(receiver)
    emulator.publish()
    assert "redirects, which is not followed" in host.once().stderr


def test_back_is_told_once_after_a_boot_with_an_open_record(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    claim = {"run_id": "r", "run_name": "run 1", "since": 1.0, "renewed": 1.0, "silent_until": 2.0}
    entry = {"event": {"event_id": "E1", "event_type": "Reboot"}, "claim": claim, "ready": 1.5, "started": None}
    entry.update(gone=None, gone_reads=0, unhealthy=0, gave_up=None, approval=None, noticed=1.0, lapsed=None)
    record = {"version": 2, "events": {"e1": entry}, "steps": [], "timeline": [], "created": 1.0, "boot_id": "before"}
    folder = host.directory / "records"
    folder.mkdir(0o700)
    (folder / "record.json").write_text(json.dumps(record))
    host.start()
    until(lambda: receiver.changes == ["back"])
    host.stop()
    host.start()
    until(lambda: host.log.count("Watching") == 2)
    time.sleep(1)
    assert receiver.changes == ["back"]
    data = receiver.messages[0]["data"]
    assert (data["event"]["event_id"], data["record"]["claimed_by"]) == ("E1", ["run 1"])


def test_a_dry_run_prints_and_changes_nothing(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    event_id = emulator.publish()
    for _time in range(2):
        done = host.once("--print")
        assert done.returncode == 0, done.stderr
        (message,) = map(json.loads, done.stdout.splitlines())
        assert message["subject"] == event_id
    assert receiver.got == []
    assert not (host.directory / "state").exists()
    assert not (host.directory / "metrics.prom").exists()


def test_a_second_watcher_of_the_same_host_ends(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    host.start()
    host.says("Watching")
    done = host.once()
    assert done.returncode == 69
    assert "runs already" in done.stderr
    assert host.once("--print").returncode == 0


def test_secrets_that_others_can_read_are_refused(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    host.write()
    Path(host.config["secrets_file"]).chmod(0o640)
    done = host.once("--print")
    assert done.returncode == 78
    assert "has secrets and can be used by others" in done.stderr


@pytest.mark.parametrize(
    ("file", "text"),
    [("watcher.json", "{"), ("watcher.json", "[]"), ("watcher.json", '{"version": 9}'), ("secrets.json", "x")],
)
def test_a_configuration_that_cannot_be_used_is_said(host: Host, file: str, text: str) -> None:
    host.write()
    (host.directory / file).write_text(text)
    host.write = lambda: host.directory / "watcher.json"  # type: ignore[method-assign]
    done = host.once("--print")
    assert done.returncode == 78
    assert "Apply the role graceful.azure.watcher again" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_that_cannot_be_made_is_said(host: Host, emulator: Emulator) -> None:
    host.config["state_dir"] = "/proc/of/nobody"
    done = host.once()
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("/proc/of")
    assert done.stderr.endswith("It is tried again.\n")


def test_certificates_that_cannot_be_used_are_said_in_a_dry_run(
    host: Host, emulator: Emulator, receiver: Server
) -> None:
    host.tells(receiver, ca_file="/etc/of/nobody.pem")
    done = host.once("--print")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "The certificates in /etc/of/nobody.pem cannot be used: No such file or directory.\n"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 1, "events": []}',
        '{"version": 1, "events": {"a": 1}, "back_reported": "", "sequence": 9}',
    ],
)
def test_a_damaged_state_is_said_and_nothing_is_lost(
    host: Host, emulator: Emulator, receiver: Server, content: str
) -> None:
    host.tells(receiver)
    receiver.stop()
    emulator.publish()
    host.once()
    (host.directory / "state" / "state.json").write_text(content)
    receiver.start()
    done = host.once()
    assert done.returncode == 0, done.stderr
    assert "is reported again" in done.stderr
    assert receiver.changes == ["appeared", "appeared"]


def test_a_disk_that_cannot_be_written_does_not_silence_it(host: Host, emulator: Emulator, receiver: Server) -> None:
    host.tells(receiver)
    emulator.publish()
    spool = host.directory / "state" / "spool" / "eda"
    spool.mkdir(parents=True)
    # Nothing can replace a directory that is not empty.
    (spool / "000000000000.json" / "x").mkdir(parents=True)
    done = host.once()
    assert done.returncode == 0, done.stderr
    assert "Messages are sent" in done.stderr
    assert receiver.changes == ["appeared"]
