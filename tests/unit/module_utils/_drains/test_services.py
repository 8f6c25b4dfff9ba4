# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.services import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Programs,
    mistake,
    options_of,
    tools,
)

OK = Ran(0, "", "")


class Systemd:
    """Units and their states, as systemctl tells and changes them."""

    def __init__(self, **units: str) -> None:
        self.units = units
        self.obeys = True
        self.changes: list[tuple[str, str]] = []
        self.run = Programs(self.answer)

    def answer(self, argv: list[str]) -> Ran:
        program, verb, *rest = argv
        name = rest[-1]
        assert program == "systemctl"
        assert rest[-2] == "--", "a name is never an option"
        if verb == "show":
            load_state = "loaded" if name in self.units else "not-found"
            return Ran(0, f"LoadState={load_state}\nActiveState={self.units.get(name, 'inactive')}\n", "")
        self.changes.append((verb, name))
        if self.obeys:
            self.units[name] = "inactive" if verb == "stop" else "active"
        return OK


class InitScripts:
    """The same with init scripts, as `service` runs them."""

    def __init__(self, **units: str) -> None:
        self.units = units
        self.changes: list[tuple[str, str]] = []
        self.run = Programs(self.answer)

    def answer(self, argv: list[str]) -> Ran:
        program, name, verb = argv
        assert program == "service"
        if name not in self.units:
            return Ran(1, "", f"{name}: unrecognized service\n")
        if verb == "status":
            is_running = self.units[name] == "active"
            return Ran(0 if is_running else 3, f"{name} is {'' if is_running else 'not '}running\n", "")
        self.changes.append((verb, name))
        self.units[name] = "inactive" if verb == "stop" else "active"
        return OK


Manager = Systemd | InitScripts


def step(manager: Manager, *services: str, seconds: float = 60) -> Step:
    use = "systemd" if isinstance(manager, Systemd) else "service"
    return Step(options_of(Step, services=list(services), use=use), tools(seconds, JumpingClock(), manager.run))


def noted(*running: str) -> StepRecord:
    return StepRecord({"running": list(running)}, {}, lost=False)


@pytest.mark.parametrize("manager", [Systemd, InitScripts])
def test_services_go_down_in_order_and_come_back_in_reverse_if_they_ran(manager: type[Manager]) -> None:
    host = manager(app="active", idle="inactive", web="active")
    look = step(host, "web", "idle", "app").look()
    assert look == (False, "running: web, app", {"running": ["web", "app"]})
    assert step(host, "web", "idle", "app").do().message == "stopped: web, idle, app"
    assert host.changes == [("stop", "web"), ("stop", "app")]
    assert step(host, "web", "idle", "app").look().done
    host.changes.clear()
    assert step(host, "web", "idle", "app").undo(noted("web", "app")) == "started: app, web"
    assert host.changes == [("start", "app"), ("start", "web")]
    assert host.units["idle"] == "inactive"


@pytest.mark.parametrize("manager", [Systemd, InitScripts])
def test_what_is_so_already_is_left_alone(manager: type[Manager]) -> None:
    host = manager(app="inactive", web="active")
    step(host, "app").do()
    step(host, "web").undo(noted("web"))
    assert host.changes == []
    assert step(host, "app").undo(noted()) == "started: none"


@pytest.mark.parametrize("manager", [Systemd, InitScripts])
def test_a_service_that_is_not_there_is_named(manager: type[Manager]) -> None:
    with pytest.raises(EventsError, match="There is no service ghost on this host"):
        step(manager(web="active"), "web", "ghost").look()


def test_a_service_that_failed_or_is_masked_is_stopped() -> None:
    assert step(Systemd(web="failed"), "web").look() == (True, "running: none", {"running": []})


@pytest.mark.parametrize(
    ("state", "running", "done"),
    [("activating", True, False), ("reloading", True, False), ("deactivating", False, False), ("failed", False, True)],
)
def test_states_on_the_way_are_understood(state: str, running: bool, done: bool) -> None:
    look = step(Systemd(web=state), "web").look()
    assert (look.done, look.before) == (done, {"running": ["web"] if running else []})


def test_a_service_that_stays_up_is_found_out() -> None:
    host = Systemd(web="active")
    host.obeys = False
    with pytest.raises(Late, match="After 10 s still: the service web is running"):
        step(host, "web").do()


def test_a_service_that_stays_down_is_found_out() -> None:
    host = Systemd(web="failed")
    host.obeys = False
    with pytest.raises(Late, match="the service web is stopped"):
        step(host, "web").undo(noted("web"))


def test_a_service_that_takes_a_while_to_end_is_waited_for() -> None:
    host = Systemd(web="deactivating")
    host.obeys = False
    clock = JumpingClock()
    looks = 0

    def later(argv: list[str]) -> Ran:
        nonlocal looks
        looks += argv[1] == "show"
        if looks > 4:
            host.units["web"] = "inactive"
        return host.answer(argv)

    given = options_of(Step, services=["web"], use="systemd")
    assert Step(given, tools(60, clock, Programs(later))).do().message == "stopped: web"
    assert 1000 < clock.now < 1010


@pytest.mark.parametrize("use", ["systemd", "service"])
def test_a_manager_that_refuses_is_said(use: str) -> None:
    def answer(argv: list[str]) -> Ran:
        if "stop" in argv:
            return Ran(1, "", "a hint\nJob for web.service canceled \x1b[0m\n")
        return Ran(0, "LoadState=loaded\nActiveState=active\n", "")

    given = options_of(Step, services=["web"], use=use)
    with pytest.raises(
        EventsError, match=r"The service web could not be stopped: Job for web\.service canceled \?\[0m"
    ):
        Step(given, tools(run=Programs(answer))).do()


@pytest.mark.parametrize(
    ("use", "ran"),
    [
        ("systemd", Ran(1, "", "Failed to connect to bus: No such file or directory")),
        ("systemd", Ran(0, "LoadState=loaded\nActiveState=who knows\n", "")),
        ("systemd", Ran(0, "active", "")),
        ("service", Ran(4, "", "status unknown")),
        ("service", Ran(1, "Usage: /etc/init.d/web {start|stop}", "")),
        ("service", Ran(126, "", "permission denied")),
    ],
)
def test_a_state_that_is_not_told_is_not_taken_for_stopped(use: str, ran: Ran) -> None:
    given = options_of(Step, services=["web"], use=use)
    with pytest.raises(EventsError, match="does not show the state of the service web"):
        Step(given, tools(run=Programs(lambda argv: ran))).look()


@pytest.mark.parametrize(("is_there", "program"), [(True, "systemctl"), (False, "service")])
def test_systemd_is_used_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, program: str
) -> None:
    monkeypatch.setattr(Step, "systemd_runs", str(tmp_path if is_there else tmp_path / "nothing"))
    run = Programs(lambda argv: Ran(0, "ActiveState=active", ""))
    Step(options_of(Step, services=["web"]), tools(run=run)).look()
    assert {argv[0] for argv in run.ran} == {program}


@pytest.mark.parametrize(
    ("before", "now", "merged"),
    [
        ({"running": ["nginx", "old"]}, {"running": ["app"]}, ["app", "nginx", "old"]),
        ({"running": []}, {"running": ["idle"]}, ["idle"]),
        ({}, {"running": ["nginx", "app"]}, ["app", "nginx"]),
        ({"running": "nonsense"}, {}, []),
    ],
)
def test_a_service_that_was_added_between_two_attempts_is_started_again(
    before: dict[str, t.Any], now: dict[str, t.Any], merged: list[str]
) -> None:
    options = options_of(Step, services=["app", "nginx", "idle"])
    assert Step.merged(options, before, now) == {"running": merged}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"services": ["a"]}, ""),
        ({"services": ["a@1.service", "b"], "use": "systemd"}, ""),
        ({"services": []}, "services has to be a list of texts"),
        ({"services": [" "]}, "services has to be a list of texts"),
        ({}, "services"),
        ({"services": ["--now"]}, "services has '--now', which cannot be the name of a service"),
        ({"services": ["a b"]}, "cannot be the name of a service"),
        ({"services": ["../x"]}, "cannot be the name of a service"),
        ({"services": ["a"], "use": "sysvinit"}, "value of use must be one of: auto, systemd, service, got: sysvinit"),
    ],
)
def test_only_names_of_services_are_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)
