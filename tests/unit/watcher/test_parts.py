# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watcher is made of: comparing, spooling, planning for one host, figures, and what systemd is told."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS, Event
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption
from ansible_collections.graceful.azure.plugins.module_utils._watcher import changes, metrics, spool, systemd
from ansible_collections.graceful.azure.plugins.module_utils._watcher.config import OnItsOwn
from ansible_collections.graceful.azure.plugins.module_utils._watcher.on_its_own import Host, Planner, run_of
from ansible_collections.graceful.azure.plugins.plugin_utils._watcher_program import pack
from ansible_collections.graceful.azure.tests.unit.emulator.harness import Emulator
from ansible_collections.graceful.azure.tests.unit.watcher import harness

Json = dict[str, t.Any]


def event(event_id: str = "A", **fields: t.Any) -> Event:
    plain = {
        **dict.fromkeys(EVENT_FIELDS),
        "event_id": event_id,
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "resource_type": "VirtualMachine",
        "resources": ["web_0"],
        "not_before": "2026-09-19T18:00:00Z",
        "seconds_left": 900,
        "description": "",
        "event_source": "Platform",
        "affects_me": True,
        "leader": "web_0",
    }
    return t.cast(Event, {**plain, **fields})


# ---- comparing


class Looks:
    """A series of looks, a second apart."""

    def __init__(self) -> None:
        self.known: dict[str, Json] = {}
        self.now = 1000.0
        # What the host's clock is ahead of the monotonic one.
        self.wall = 1700000000.0

    def see(self, *events: Event) -> list[tuple[str, str]]:
        self.now += 1
        found, self.known = changes.compare(self.known, events, self.now, self.wall + self.now)
        return [(change.change, change.event["event_id"]) for change in found]


def test_time_that_passes_is_no_change() -> None:
    looks = Looks()
    assert looks.see(event()) == [("appeared", "A")]
    assert looks.see(event(seconds_left=5)) == []
    assert looks.see(event("a")) == [("changed", "a")], "another spelling is the same event, and a change"


def test_what_begins_as_started_has_appeared_and_started() -> None:
    assert Looks().see(event(event_status="Started")) == [("appeared", "A"), ("started", "A")]


def test_the_start_itself_is_no_change_but_new_resources_are() -> None:
    looks = Looks()
    looks.see(event())
    started = event(event_status="Started", not_before=None)
    assert looks.see(started) == [("started", "A")]
    assert looks.see(started) == []
    looks = Looks()
    looks.see(event())
    assert looks.see(event(event_status="Started", not_before=None, resources=["web_0", "web_1"])) == [
        ("changed", "A"),
        ("started", "A"),
    ]


def test_one_look_without_the_event_does_not_make_it_gone() -> None:
    looks = Looks()
    looks.see(event(event_status="Started"))
    assert looks.see() == []
    assert looks.see(event(event_status="Started")) == []
    assert [looks.see() for _look in range(4)] == [[], [], [("gone", "A")], []]


def test_what_was_never_seen_started_is_missed_for_longer() -> None:
    looks = Looks()
    looks.see(event())
    told = [looks.see() for _look in range(8)]
    assert told.index([("gone", "A")]) == 5
    assert looks.known == {}


def test_a_clock_that_is_set_does_not_delay_what_is_gone() -> None:
    looks = Looks()
    looks.see(event(event_status="Started"))
    assert looks.see() == []
    looks.wall -= 86400
    assert [looks.see() for _look in range(4)] == [[], [], [("gone", "A")], []]


@pytest.mark.parametrize(
    ("not_before", "boots", "affects_me", "outcome"),
    [
        ("2099-01-01T00:00:00Z", False, True, "cancelled"),
        ("2099-01-01T00:00:00Z", True, True, "completed"),
        ("2099-01-01T00:00:00Z", True, False, "cancelled"),
        ("2023-11-14T00:00:00Z", False, True, "completed"),
    ],
    ids=["in time", "after a boot", "after a boot, of another VM", "after it was due"],
)
def test_what_became_of_an_event_whose_start_was_not_seen(
    not_before: str, boots: bool, affects_me: bool, outcome: str
) -> None:
    known: dict[str, Json] = {}
    found: list[changes.Change] = []
    for look in range(8):
        seen = [event(not_before=not_before, affects_me=affects_me)] if look == 0 else []
        boot_id = "second" if boots and look > 0 else "first"
        found, known = changes.compare(known, seen, 1000.0 + look, 1700000000.0 + look, boot_id)
        if not known:
            break
    assert [(change.change, change.outcome) for change in found] == [("gone", outcome)]


def test_an_id_that_is_there_twice_counts_once() -> None:
    looks = Looks()
    assert looks.see(event(), event("a", event_status="Started")) == [("appeared", "a"), ("started", "a")]


def test_the_same_message_has_the_same_id_and_another_one_another() -> None:
    source = changes.Source("web1", "web_0", "boot")
    change = changes.Change("appeared", dict(event()))
    first = changes.message(change, source, 5, 1000.0)
    assert first["id"] == changes.message(change, source, 5, 2000.0)["id"]
    assert first["id"] != changes.message(change, source, 6, 1000.0)["id"]
    assert first["id"] != changes.message(change._replace(change="gone"), source, 5, 1000.0)["id"]
    assert set(first) == {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"}


# ---- spooling


def test_the_spool_keeps_order_over_a_restart_and_forgets_what_was_not_committed(tmp_path: Path) -> None:
    kept = spool.Spool(str(tmp_path), 10, 0)
    for number in range(12):
        kept.add(number, {"n": number})
    assert (len(kept), kept.dropped) == (10, 2)
    (tmp_path / "000000000003.json.1.tmp").write_text("half")
    again = spool.Spool(str(tmp_path), 10, 11)
    assert again.oldest() == (2, {"n": 2})
    assert len(again) == 9
    assert again.next == 11
    (tmp_path / "000000000002.json").write_text("[]")
    assert again.oldest() == (3, {"n": 3})
    assert again.dropped == 1


def test_the_spool_is_bounded_in_bytes(tmp_path: Path) -> None:
    kept = spool.Spool(str(tmp_path), 100, 0, most_bytes=1000)
    for number in range(10):
        kept.add(number, {"text": "x" * 300})
    assert len(kept) == 3
    kept.add(10, {"text": "x" * 5000})
    assert kept.oldest() == (10, {"text": "x" * 5000}), "what is too large alone is still told"


# ---- planning for one host

MINE = "watcher on web1"


def planner(**options: t.Any) -> Planner:
    return Planner(OnItsOwn(**options), run_of("web1"))


def entry(run: str = MINE, silent_until: float = 0.0, **fields: t.Any) -> Json:
    claim = {"run_id": run, "run_name": run, "since": 1.0, "renewed": silent_until, "silent_until": silent_until}
    blank = dict.fromkeys(("ready", "started", "gone", "gave_up", "approval", "lapsed"))
    counts = {"gone_reads": 0, "unhealthy": 0}
    return {"event": dict(event()), "claim": claim, "noticed": 1.0, **blank, **counts, **fields}


def record(*steps: str, **entries: Json) -> Json:
    noted = [{"phase": "drain", "name": status, "kind": "command", "status": status} for status in steps]
    return {"events": entries, "steps": noted}


def order(planned: Planner, *events: Event, kept: Json | None = None, vm_name: str | None = "web_0") -> str:
    plan = planned.plan(Host(events, kept, 1000.0, vm_name))
    return plan.order.order if plan.order else plan.reason


@pytest.mark.parametrize(
    ("left", "budget", "begins"),
    [(900, 300, False), (300, 300, True), (119, 10, True), (121, 10, False), (None, 300, True)],
)
def test_it_begins_when_the_drain_has_to(left: int | None, budget: int, begins: bool) -> None:
    assert (order(planner(drain_budget=budget), event(seconds_left=left)) == "ready") is begins


@pytest.mark.parametrize(
    "fields",
    [{"affects_me": False}, {"affects_me": None}, {"event_status": "Started"}, {"event_status": "Odd"}],
)
def test_it_gets_ready_only_for_what_affects_it_and_has_not_started(fields: Json) -> None:
    assert order(planner(), event(seconds_left=30, **fields)) != "ready"


def test_an_event_that_is_in_the_document_twice_has_started_if_one_of_them_has() -> None:
    twice = [event(seconds_left=30), event("a", event_status="Started")]
    assert order(planner(), *twice) == ""
    assert order(planner(), *twice, kept=record("done", a=entry())) == "put_back"
    other = event("a", seconds_left=30, affects_me=False, resources=["web_1"])
    assert order(planner(), other, event(seconds_left=30)) == "ready", "one of them names this VM"


def test_it_does_nothing_for_others_than_its_policy_says() -> None:
    rules = [{"event_type": "Reboot", "group": "web", "action": "notify"}, {"action": "drain"}]
    urgent = event(seconds_left=30)
    assert (
        order(planner(policy=rules, groups=["web"]), urgent) == "the policy requires no drain for the announced events"
    )
    assert order(planner(policy=rules, groups=["db"]), urgent) == "ready"
    with pytest.raises(WrongOption, match="policy"):
        planner(policy=[{"action": "nonsense"}])


def test_without_its_azure_name_it_does_nothing_and_says_why() -> None:
    assert "graceful_vm_name" in order(planner(), event(seconds_left=30, affects_me=None), vm_name=None)


def test_a_run_that_may_be_alive_has_the_host_with_all_its_events() -> None:
    kept = record("done", b=entry("run-1", 1000.0))
    assert order(planner(), event(seconds_left=30), kept=kept) == "run-1 is handling it"


def test_the_claim_of_a_silent_run_does_not_keep_it_back() -> None:
    assert order(planner(), event(seconds_left=30), kept=record(a=entry("run-1", 999.0))) == "ready"


def test_what_a_dead_run_has_begun_is_finished_and_what_it_has_not_begun_waits() -> None:
    assert order(planner(), event(), kept=record("doing", a=entry("run-1", 999.0))) == "ready"
    assert "the drain begins" in order(planner(), event(), kept=record(a=entry("run-1", 999.0)))


def test_what_is_over_is_put_back() -> None:
    kept = record("done", a=entry())
    assert order(planner(), kept=kept) == "put_back"
    assert order(planner(), event(event_status="Started"), kept=kept) == "put_back"


def test_a_drain_that_has_expired_is_put_back_once_although_the_event_stands() -> None:
    planned = planner(policy=[{"action": "drain", "expires_after": 100}])
    kept = record("done", a=entry(noticed=950.0))
    assert order(planned, event(seconds_left=30), kept=kept) == "ready"
    kept = record("done", a=entry(noticed=900.0))
    plan = planned.plan(Host([event(seconds_left=30)], kept, 1000.0, "web_0"))
    assert plan.order is not None
    assert (plan.order.order, plan.order.lapsed) == ("put_back", ["a"])
    kept = record("undone", a=entry(noticed=900.0, lapsed=990.0))
    assert order(planned, event(seconds_left=30), kept=kept) not in ("ready", "put_back")
    assert order(planned, kept=kept) == "put_back", "it is closed when the event is gone"


def test_a_second_event_keeps_it_drained() -> None:
    kept = record("done", a=entry())
    assert order(planner(), event("B", seconds_left=60), kept=kept) == "ready"


def test_after_it_gave_up_or_approved_it_only_waits_for_the_end() -> None:
    approval = {"at": 1.0, "status": "approved", "run_id": MINE, "message": ""}
    for fields in ({"gave_up": "no"}, {"approval": approval}):
        assert order(planner(), event(seconds_left=30), kept=record("done", a=entry(**fields))) == "put_back"


@pytest.mark.parametrize(
    ("options", "fields", "approves"),
    [
        ({"approve": True}, {}, True),
        ({}, {}, False),
        ({"approve": True}, {"resources": ["web_0", "web_1"]}, False),
        ({"approve": True}, {"resources": ["web_1"]}, False),
        ({"approve": True}, {"resources": []}, False),
        ({"approve": True}, {"event_type": "Preempt"}, False),
        ({"approve": True, "policy": [{"action": "drain"}]}, {}, False),
        ({"approve": True, "policy": [{"action": "approve"}]}, {}, True),
    ],
)
def test_what_it_may_approve(options: Json, fields: Json, approves: bool) -> None:
    plan = planner(**options).plan(Host([event(seconds_left=30, **fields)], None, 1000.0, "web_0"))
    assert bool(plan.approve) is approves


def test_an_approval_without_a_drain_takes_no_steps() -> None:
    options: Json = {"approve": True, "policy": [{"action": "approve"}], "steps": [{"name": "x"}]}
    plan = planner(**options).plan(Host([event(seconds_left=30)], None, 1000.0, "web_0"))
    assert plan.order is not None
    assert (plan.order.order, plan.order.steps) == ("ready", ())


# ---- figures


def figures() -> str:
    requests = metrics.Requests()
    requests.answered(0.004, 1700000000.5)
    requests.answered(0.3, 1700000001.25)
    requests.failed()
    approval = {"at": 1700000003.0, "status": "approved", "run_id": MINE, "message": ""}
    kept = record("done", a=entry(ready=1700000002.0, approval=approval))
    kept["timeline"] = [{"at": 1700000001.0, "what": "draining", "detail": "", "event_id": ""}]
    odd = event('B"\\\n', affects_me=None, not_before=None, seconds_left=None, resources=[])
    seen = metrics.Seen(7, [event(), odd, event()], kept, {"eda": (2, 1)}, True)
    return metrics.text(requests, seen)


def test_the_figures_have_the_names_that_dashboards_know() -> None:
    text = figures()
    labels = (
        'eventID="A",eventType="Reboot",resourceType="VirtualMachine",resource="web_0",eventStatus="Scheduled",'
        'notBefore="2026-09-19T18:00:00Z",eventSource="Platform"'
    )
    for line in (
        "azure_scheduledevent_document_incarnation 7",
        f"azure_scheduledevent_event{{{labels}}} 1789840800",
        'azure_scheduledevent_event_drain{eventID="A",type="start"} 1700000001',
        'azure_scheduledevent_event_drain{eventID="A",type="finish"} 1700000002',
        'azure_scheduledevent_event_approval{eventID="A"} 1700000003',
        'azure_scheduledevent_request_bucket{le="0.005"} 1',
        'azure_scheduledevent_request_bucket{le="+Inf"} 2',
        "azure_scheduledevent_request_count 2",
        "azure_scheduledevent_request_error 1",
        "azure_scheduledevent_last_success_timestamp_seconds 1700000001.25",
        'azure_scheduledevent_not_before_seconds{eventID="A",eventType="Reboot",affectsMe="true"} 900',
        "azure_scheduledevent_host_drained 1",
        'azure_scheduledevent_watcher_waiting_messages{receiver="eda"} 2',
        'azure_scheduledevent_watcher_dropped_messages_total{receiver="eda"} 1',
    ):
        assert line in text.splitlines()
    assert r'eventID="B\"\\\n"' in text
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))


FILES = Path(__file__).resolve().parents[3] / "roles" / "watcher" / "files"


def test_dashboard_and_alerts_use_figures_that_there_are() -> None:
    names = {line.split()[2] for line in figures().splitlines() if line.startswith("# TYPE")}
    names |= {f"azure_scheduledevent_request_{part}" for part in ("bucket", "sum", "count")}
    for file in ("dashboard.json", "alerts.yml"):
        used = set(re.findall(r"azure_scheduledevent_\w+", (FILES / file).read_text()))
        assert used
        assert used <= names


# ---- the program


def test_systemd_is_notified_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        systemd.notify("READY=1", "STATUS=two\nlines")
        assert manager.recv(1000) == b"READY=1\nSTATUS=two lines"
    systemd.notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    systemd.notify("READY=1")


def test_packing_it_twice_makes_the_same_file() -> None:
    assert pack() == pack()


def _python_3_8() -> str | None:
    found = [*sorted(Path("~/.pyenv/versions").expanduser().glob("3.8*/bin/python3.8")), shutil.which("python3.8")]
    works = (str(one) for one in found if one and subprocess.run([str(one), "-c", ""], check=False).returncode == 0)
    return next(works, None)


def test_the_packed_program_runs_on_the_oldest_python(tmp_path: Path) -> None:
    python = _python_3_8()
    if python is None:
        pytest.skip("there is no Python 3.8")
    program = tmp_path / "watcher.pyz"
    program.write_bytes(pack())
    module = "ansible_collections.graceful.azure.plugins.module_utils._watcher.watcher"
    code = f"import sys; sys.path.insert(0, {str(program)!r}); import {module}"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_idle_it_needs_little(tmp_path: Path, emulator: Emulator, receiver: harness.Server) -> None:
    host = harness.Host(tmp_path, emulator.vms["web_0"])
    host.config["poll_interval"] = 1.0
    host.tells(receiver)
    host.acts()
    host.start()
    try:
        host.says("Watching")
        time.sleep(2)
        assert host.process is not None
        process = Path("/proc") / str(host.process.pid)
        before, begin = _cpu_seconds(process), time.monotonic()
        time.sleep(5)
        used = (_cpu_seconds(process) - before) / (time.monotonic() - begin)
        resident = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
        megabytes = int(resident.split()[1]) / 1000
    finally:
        host.stop()
    print(f"idle: {used:.2%} of a core, {megabytes:.0f} MB resident")
    assert used < 0.01
    assert megabytes < 40
    assert len({line["connection"] for line in emulator.journal("request")}) == 1, "one kept-alive connection"


def _cpu_seconds(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
