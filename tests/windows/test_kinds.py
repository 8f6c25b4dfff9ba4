# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds in PowerShell, with a clock that jumps and stand-ins for the cmdlets of services, clusters and IIS."""

from __future__ import annotations

import contextlib
import socket
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _checkpoints, _drains
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import validated
from ansible_collections.graceful.azure.tests.windows import windows
from ansible_collections.graceful.azure.tests.windows.harness import MODULE_UTILS, PowerShellError, Session

Json = dict[str, t.Any]
HERE = Path(__file__).resolve().parent
LOADERS = {"Drain": _drains.load, "Checkpoint": _checkpoints.load}
FILES = ("_MaintenanceTools", "_Peer", "_Drain_connections", "_Drain_health_probe", "_Drain_services", "_Drain_command",
         "_Drain_failover_cluster", "_Drain_iis", "_Checkpoint_paths", "_Checkpoint_command")  # fmt: skip


@pytest.fixture(scope="module")
def kinds(session: Session) -> t.Iterator[Session]:
    for name in FILES:
        path = windows.windows_path(MODULE_UTILS / f"{name}.psm1")
        session.script("Import-Module $args[0][0] -Force -DisableNameChecking -Scope Global", path)
    session.script(". $args[0][0]", windows.windows_path(HERE / "stand_ins.ps1"))
    yield session
    session.script("Remove-StandIn")


class Called(t.NamedTuple):
    value: t.Any
    world: Json


class World:
    """A host with stand-ins, on which a kind is looked at, done and undone."""

    def __init__(self, session: Session, noun: str, kind: str, world: Json | None = None) -> None:
        self._session = session
        self._noun, self._kind = noun, kind
        self._options = LOADERS[noun](kind).options
        self._rules = LOADERS[noun](kind).rules
        session.script("Set-World $args[0][0]", world or {})

    def options(self, given: Json) -> Json:
        options, error = validated(self._options, self._rules, given)
        assert not error
        return options

    def call(self, verb: str, given: Json, noted: Json | None = None, **tools: t.Any) -> t.Any:
        arguments = {"kind": f"Get-Graceful{self._noun}_{self._kind}", "verb": verb, "options": self.options(given)}
        return self._session.script(
            "Invoke-Kind $args[0][0]", {**arguments, "noted": noted or {}, "tools": {"seconds": 60, **tools}}
        )

    def error(self, verb: str, given: Json, noted: Json | None = None, **tools: t.Any) -> str:
        with pytest.raises(PowerShellError) as caught:
            self.call(verb, given, noted, **tools)
        return str(caught.value)

    @property
    def now(self) -> Json:
        return t.cast(Json, self._session.script("$global:World"))


# command

COMMAND = {"do": ["drain.exe", "now"], "probe": ["probe.exe"], "undo": ["undo.exe"], "environment": {"A": 1}}


def test_programs_drain_are_verified_and_undo(kinds: Session) -> None:
    host = World(
        kinds, "Drain", "command", {"programs": {"drain.exe": [[0, "ok"]], "probe.exe": [[1, "no"], [0, "yes"]]}}
    )
    assert host.call("Do", COMMAND) == {"Message": "the probe passes: yes", "Data": {}}
    assert host.now["ran"] == ["drain.exe now", "probe.exe", "probe.exe"]
    assert host.now["environments"][0] == {"A": "1"}


@pytest.mark.parametrize(
    ("begun", "ends", "look"),
    [
        (False, 0, {"Done": True, "Message": "the probe passes: x", "Before": {"in_service": False}}),
        (True, 0, {"Done": True, "Message": "the probe passes: x", "Before": {"in_service": True}}),
        (False, 3, {"Done": False, "Message": "the probe ends with 3: x", "Before": {"in_service": True}}),
    ],
)
def test_what_passed_the_probe_before_was_out_of_service(kinds: Session, begun: bool, ends: int, look: Json) -> None:
    host = World(kinds, "Drain", "command", {"programs": {"probe.exe": [[ends, "x"]]}})
    assert host.call("Look", COMMAND, begun=begun) == look


def test_a_program_that_fails_is_said(kinds: Session) -> None:
    host = World(kinds, "Drain", "command", {"programs": {"drain.exe": [[5, "no way"]], "undo.exe": [[0, "back"]]}})
    assert "The program of do ended with 5: no way" in host.error("Do", COMMAND)
    assert host.call("Undo", COMMAND) == "undo has ended: back"
    assert host.call("Undo", {**COMMAND, "undo": None}) == "there is nothing to undo"


def test_a_probe_that_never_passes_is_late(kinds: Session) -> None:
    host = World(kinds, "Drain", "command", {"programs": {"drain.exe": [[0, ""]], "probe.exe": [[1, "busy"]]}})
    assert "After 60 s still: the probe ends with 1: busy." in host.error("Do", COMMAND)


def test_a_checkpoint_is_a_program_that_ends_well(kinds: Session) -> None:
    host = World(kinds, "Checkpoint", "command", {"programs": {"save.exe": [[0, "saved"], [2, "full"]]}})
    given = {"argv": ["save.exe", "secret"]}
    assert host.call("Do", given) == {"Message": "the program has ended: saved", "Data": {}}
    error = host.error("Do", given)
    assert "save.exe ended with 2: full" in error
    assert "secret" not in error.splitlines()[0]
    assert host.call("Undo", given) == "there is nothing to put back"


# services


def service(status: str = "Running", *dependents: str, **more: t.Any) -> Json:
    return {"status": status, "dependents": list(dependents), **more}


TIERS = {
    "db": service("Running", "app"),
    "app": service("Running", "web"),
    "web": service(),
    "idle": service("Stopped"),
}


def test_services_are_stopped_with_what_depends_on_them_and_all_that_ran_is_started(kinds: Session) -> None:
    host = World(kinds, "Drain", "services", {"services": TIERS})
    given = {"services": ["db", "idle"]}
    look = host.call("Look", given)
    assert look == {
        "Done": False,
        "Message": "running: db; what depends on them: web, app",
        "Before": {"running": ["db"], "dependents": ["web", "app"]},
    }
    assert host.call("Do", given)["Message"] == "stopped: db, idle"
    assert host.now["did"] == ["stop web", "stop app", "stop db"]
    assert host.call("Look", given)["Done"] is True
    assert host.call("Undo", given, {"Before": look["Before"]}) == "started: db, app, web"
    assert host.now["did"][3:] == ["start db", "start app", "start web"]
    assert host.now["types"] == dict.fromkeys(TIERS, "Automatic"), "the start type is kept"


def test_what_was_stopped_before_stays_stopped(kinds: Session) -> None:
    host = World(kinds, "Drain", "services", {"services": {"a": service("Stopped"), "b": service("Stopped")}})
    look = host.call("Look", {"services": ["a", "b"]})
    assert look["Done"] is True
    assert host.call("Undo", {"services": ["a", "b"]}, {"Before": look["Before"]}) == "started: none"
    assert host.now["did"] == []


def test_services_are_started_in_reverse_order(kinds: Session) -> None:
    host = World(kinds, "Drain", "services", {"services": {"a": service("Stopped"), "b": service("Stopped")}})
    noted = {"Before": {"running": ["a", "b"], "dependents": []}}
    assert host.call("Undo", {"services": ["a", "b"]}, noted) == "started: b, a"


def test_a_service_that_does_not_stop_is_late_with_what_to_do(kinds: Session) -> None:
    host = World(kinds, "Drain", "services", {"services": {"slow": service(stops=False)}})
    error = host.error("Do", {"services": ["slow"]}, seconds=20)
    assert "After 20 s still: the service slow is stopping. It does not stop: look into its own log" in error
    assert host.now["late"] is True


@pytest.mark.parametrize(
    ("world", "verb", "said"),
    [
        ({}, "Look", "There is no service ghost on this host"),
        ({"ghost": service(refuses="Cannot stop it")}, "Do", "The service ghost could not be stopped: Cannot stop it"),
        ({"ghost": service("Strange")}, "Look", "is in a state that is not known: Strange"),
        ({"ghost": service("Stopped", refuses="it is disabled")}, "Undo", "could not be started: it is disabled"),
        ({"ghost": service("Stopped", starts=False)}, "Undo", "still: the service ghost is starting."),
    ],
)
def test_a_service_that_cannot_be_changed_is_said(kinds: Session, world: Json, verb: str, said: str) -> None:
    host = World(kinds, "Drain", "services", {"services": world})
    noted = {"Before": {"running": ["ghost"], "dependents": []}}
    assert said in host.error(verb, {"services": ["ghost"]}, noted)


def test_services_that_were_added_since_the_first_attempt_come_along(kinds: Session) -> None:
    host = World(kinds, "Drain", "services")
    before = {"running": ["b"], "dependents": ["x"]}
    now = {"running": ["a"], "dependents": []}
    merged = host.call("Merged", {"services": ["a", "b"]}, {"Before": before, "Now": now})
    assert merged == {"running": ["a", "b"], "dependents": ["x"]}


# failover_cluster


def cluster(state: str = "Up", drain: str = "NotInitiated", **more: t.Any) -> Json:
    return {"cluster": {"state": state, "drain": drain, "roles": ["SQL Server", "Files"], "moves": True, **more}}


def test_a_node_gives_its_roles_away_and_gets_them_back(kinds: Session) -> None:
    host = World(kinds, "Drain", "failover_cluster", cluster())
    given = {"node": "sql1", "target_node": "sql2", "force_drain": True}
    look = host.call("Look", given)
    assert look == {
        "Done": False,
        "Message": "the node sql1 is up, online on it: SQL Server, Files",
        "Before": {"in_service": True},
    }
    assert host.call("Do", given)["Message"] == "the node sql1 is paused, no role is online on it"
    assert host.now["did"] == ["suspend sql1 drain target sql2 force"]
    assert host.call("Look", given)["Done"] is True
    assert host.call("Undo", given, {"Before": look["Before"]}).startswith("the node sql1 is up")
    assert host.now["did"][-1] == "resume sql1 Immediate"


@pytest.mark.parametrize(
    ("failback", "word"), [("immediate", "Immediate"), ("policy", "Policy"), ("none", "NoFailback")]
)
def test_roles_fail_back_as_the_step_says(kinds: Session, failback: str, word: str) -> None:
    host = World(kinds, "Drain", "failover_cluster", cluster("Paused", "Completed"))
    host.call("Undo", {"node": "sql1", "failback": failback})
    assert host.now["did"] == [f"resume sql1 {word}"]


def test_a_node_that_was_paused_before_is_left_so(kinds: Session) -> None:
    host = World(kinds, "Drain", "failover_cluster", cluster("Paused", "Completed", roles=[]))
    look = host.call("Look", {"node": "SQL1"})
    assert (look["Done"], look["Before"]) == (True, {"in_service": False})
    host.call("Do", {"node": "SQL1"})
    assert host.now["did"] == []


def test_a_drain_that_is_under_way_is_waited_for(kinds: Session) -> None:
    host = World(kinds, "Drain", "failover_cluster", cluster("Paused", "InProgress"))
    assert host.call("Do", {"node": "sql1"})["Message"] == "the node sql1 is paused, no role is online on it"
    assert host.now["did"] == []


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (cluster(moves="fails"), "The drain of the node sql1 failed; online on it: SQL Server, Files. Look with"),
        (cluster(moves=False), "After 60 s still: the node sql1 is paused, online on it: SQL Server, Files."),
        (cluster(refuses="no quorum"), "could not be drained: no quorum Look with"),
        (cluster(silent="RPC server is unavailable."), "does not answer: RPC server is unavailable. Is its service"),
        (cluster(name="sql9"), "The cluster has no node sql1; its nodes are: sql9, sql2. Correct the step's node"),
        ({}, "The cmdlet Get-ClusterNode does not exist: the PowerShell module FailoverClusters is not installed"),
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_drained_is_said(kinds: Session, world: Json, said: str) -> None:
    assert said in World(kinds, "Drain", "failover_cluster", world).error("Do", {"node": "sql1"})


def test_after_a_reboot_the_cluster_is_waited_for(kinds: Session) -> None:
    host = World(kinds, "Drain", "failover_cluster", cluster("Paused", "Completed", wakes=3))
    assert host.call("Undo", {"node": "sql1"}).startswith("the node sql1 is up")
    host = World(kinds, "Drain", "failover_cluster", cluster("Paused", "Completed", wakes=1000))
    assert "still: The cluster does not answer: it wakes up" in host.error("Undo", {"node": "sql1"})


# iis


def web(**more: t.Any) -> Json:
    state = {"sites": {"shop": "Started", "old": "Stopped"}, "pools": {"shop pool": "Started"}}
    return {"iis": {**state, "bindings": {"shop": ["http *:59999:", "net.pipe *"]}, **more}}


IIS = {"sites": ["shop", "old"], "app_pools": ["shop pool"]}


def test_sites_and_pools_are_stopped_and_those_that_ran_are_started_pools_first(kinds: Session) -> None:
    host = World(kinds, "Drain", "iis", web())
    look = host.call("Look", IIS)
    assert look == {
        "Done": False,
        "Message": "started: site shop, application pool shop pool",
        "Before": {"sites": ["shop"], "app_pools": ["shop pool"]},
    }
    done = host.call("Do", IIS)["Message"]
    assert done == "no connections on 59999; stopped: site shop, site old, application pool shop pool"
    assert host.call("Look", IIS)["Done"] is True
    assert host.call("Undo", IIS, {"Before": look["Before"]}) == "started: site shop, application pool shop pool"
    assert host.now["did"] == ["stop site shop", "stop pool shop pool", "start pool shop pool", "start site shop"]


def test_nothing_is_stopped_while_somebody_is_connected(kinds: Session) -> None:
    # Wine takes long for each look at the connections of a busy machine.
    with kinds_server(kinds) as (port, _client):
        host = World(kinds, "Drain", "iis", web())
        error = host.error("Do", {**IIS, "ports": [port]}, seconds=0)
        assert f"After 0 s still: 1 connection on {port}, from 127.0.0.1." in error
        assert host.now["did"] == []
        done = host.call("Do", {**IIS, "ports": [port], "ignore_from": ["127.0.0.0/8"]})
        assert done["Message"].startswith("no connections on")


@pytest.mark.parametrize(
    ("world", "verb", "said"),
    [
        ({}, "Look", "Get-WebsiteState does not exist: the PowerShell module WebAdministration is not installed"),
        (web(sites={}), "Look", "IIS has no site 'shop', or does not tell its state"),
        (web(pools={}), "Look", "IIS has no application pool 'shop pool'"),
        (web(stops=False), "Do", "After 60 s still: the application pool 'shop pool' is stopping."),
        (web(refuses="access is denied"), "Do", "The site 'shop' could not be stopped: access is denied"),
        (web(sites={"shop": "Stopped", "old": "Stopped"}, refuses="a port is taken"), "Undo",
         "The site 'old' could not be started: a port is taken"),
    ],
)  # fmt: skip
def test_what_iis_does_not_do_is_said(kinds: Session, world: Json, verb: str, said: str) -> None:
    noted = {"Before": {"sites": ["shop", "old"], "app_pools": []}}
    assert said in World(kinds, "Drain", "iis", world).error(verb, IIS, noted)


# connections


@contextlib.contextmanager
def kinds_server(session: Session) -> t.Iterator[tuple[int, socket.socket]]:
    """A port that PowerShell listens on, and a connection to it."""
    port = int(session.script(
        "$global:Listener = New-Object System.Net.Sockets.TcpListener ([System.Net.IPAddress]::Loopback, 0); "
        "$global:Listener.Start(); $global:Listener.LocalEndpoint.Port"
    ))  # fmt: skip
    client = socket.create_connection(("127.0.0.1", port))
    session.script("$global:Accepted = $global:Listener.AcceptTcpClient(); $null")
    try:
        yield port, client
    finally:
        client.close()
        session.script("$global:Accepted.Close(); $global:Listener.Stop(); $null")


@pytest.mark.parametrize(
    ("network", "within"),
    [
        ("127.0.0.1", True),
        ("127.0.0.0/8", True),
        ("127.0.0.0/255.0.0.0", True),
        ("0.0.0.0/0", True),
        ("126.0.0.0/7", True),
        ("126.0.0.0/8", False),
        ("::1", False),
        ("127.0.0.2", False),
    ],
)
def test_an_address_is_within_a_network_or_not(kinds: Session, network: str, within: bool) -> None:
    script = """
        $networks = @(Invoke-Private '_Drain_connections' 'Read-Network' $args[0][0])
        Invoke-Private '_Drain_connections' 'Test-Within' ([ipaddress]'127.0.0.1') $networks
    """
    assert kinds.script(script, network) is within


@pytest.mark.parametrize(("ignored", "left"), [(["126.0.0.0/8", "::1"], True), (["126.0.0.0/8", "127.0.0.1"], False)])
def test_connections_count_unless_they_come_from_where_they_do_not_matter(
    kinds: Session, ignored: list[str], left: bool
) -> None:
    with kinds_server(kinds) as (port, _client):
        host = World(kinds, "Drain", "connections")
        look = host.call("Look", {"ports": [port], "ignore_from": ignored})
        wanted = f"1 connection on {port}, from 127.0.0.1" if left else f"no connections on {port}"
        assert (look["Done"], look["Message"]) == (not left, wanted)


# health_probe


class Site(BaseHTTPRequestHandler):
    statuses: t.ClassVar[dict[str, int]] = {}
    asked: t.ClassVar[list[str]] = []

    def do_GET(self) -> None:
        Site.asked.append(
            f"{self.command} {self.path} {self.headers.get('X-Token', '')}{self.headers.get('Authorization', '')}"
        )
        if self.command == "POST" and self.path in ("/out", "/in"):
            Site.statuses["/health"] = 503 if self.path == "/out" else 200
        status = Site.statuses.get(self.path, 404)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/health")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: t.Any) -> None:
        """Nothing."""


@pytest.fixture
def site() -> t.Iterator[str]:
    Site.statuses, Site.asked = {"/health": 200, "/out": 204, "/in": 204, "/moved": 302}, []
    server = HTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_application_leaves_and_returns_by_its_own_urls(kinds: Session, site: str) -> None:
    host = World(kinds, "Drain", "health_probe")
    given = {"url": f"{site}/health", "out_url": f"{site}/out", "in_url": f"{site}/in", "headers": {"X-Token": "t"}}
    look = host.call("Look", given)
    assert look == {"Done": False, "Message": f"{site}/health answers 200", "Before": {"in_service": True}}
    assert host.call("Do", given)["Message"] == f"{site}/health answers 503, for 10 s"
    assert host.call("Look", given)["Before"] == {"in_service": False}
    assert host.call("Undo", given) == f"{site}/health answers 200, for 10 s"
    assert set(Site.asked) == {"GET /health t", "POST /out t", "POST /in t"}


def test_a_marker_takes_the_host_out(kinds: Session, site: str, tmp_path: Path) -> None:
    marker = tmp_path / "a marker"
    host = World(kinds, "Drain", "health_probe")
    given = {"url": f"{site}/health", "marker": windows.windows_path(marker), "interval": 1, "threshold": 1}
    # The marker is there, but the site does not look at it.
    assert "still: " in host.error("Do", given, seconds=5)
    assert marker.exists()
    Site.statuses["/health"] = 503
    assert host.call("Look", given)["Done"] is True
    Site.statuses["/health"] = 200
    host.call("Undo", given)
    assert not marker.exists()
    missing = {**given, "marker": windows.windows_path(tmp_path / "no" / "marker")}
    assert "cannot be made: its folder does not exist" in host.error("Do", missing)


def test_a_marker_may_lie_deep_or_on_a_share(kinds: Session, site: str, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a directory with a long name"] * 10)
    deep.mkdir(parents=True)
    host = World(kinds, "Drain", "health_probe")
    with windows.shared(tmp_path) as share:
        for marker, path in (
            (deep / "marker", windows.windows_path(deep / "marker")),
            (tmp_path / "on a share", f"{share}\\on a share"),
        ):
            given = {"url": f"{site}/health", "marker": path, "interval": 1, "threshold": 1}
            Site.statuses["/health"] = 503
            host.call("Do", given)
            assert marker.exists()
            Site.statuses["/health"] = 200
            host.call("Undo", given)
            assert not marker.exists()


@pytest.mark.parametrize(
    ("path", "said"), [("/nothing", "answers 404, which is neither healthy nor out"), ("/moved", "answers 302, which")]
)
def test_a_url_that_says_nothing_about_the_application_proves_nothing(
    kinds: Session, site: str, path: str, said: str
) -> None:
    host = World(kinds, "Drain", "health_probe")
    given = {"url": site + path, "out_url": f"{site}/out", "in_url": f"{site}/in"}
    assert said in host.error("Do", given)
    assert "POST /out " not in Site.asked


def test_nothing_that_listens_is_said(kinds: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    host = World(kinds, "Drain", "health_probe")
    given = {"url": f"http://127.0.0.1:{port}/", "out_url": "http://127.0.0.1:1/", "in_url": "http://127.0.0.1:1/"}
    assert "does not answer (" in host.error("Do", given)


def test_a_user_and_a_password_are_sent(kinds: Session, site: str) -> None:
    given = {
        "url": f"{site}/health",
        "out_url": f"{site}/out",
        "in_url": f"{site}/in",
        "username": "u",
        "password": "p",
    }
    World(kinds, "Drain", "health_probe").call("Look", given)
    assert Site.asked == ["GET /health Basic dTpw"]


# health

HEALTH = """
    $items = ConvertTo-GracefulData $args[0]
    & (Get-Module '_MaintenanceSteps') { param($items) Test-Health $items { } } $items
"""


def test_a_host_is_well_if_its_port_url_and_program_are(kinds: Session, site: str) -> None:
    kinds.load("_MaintenanceSteps")
    port = int(site.rpartition(":")[2])
    secret = {"headers": {"X-Token": "t", "User-Agent": "us"}, "username": "u", "password": "p"}
    program = ["C:\\windows\\system32\\cmd.exe", "/c", "exit 0"]
    kinds.script(HEALTH, {"port": port}, {"url": f"{site}/health", **secret}, {"argv": program})
    assert Site.asked == ["GET /health tBasic dTpw"]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"url": "SITE/out"}, "The health check of SITE/out did not pass. After 1 s still: SITE/out answers 204."),
        ({"url": "SITE/moved"}, "SITE/moved answers 302."),
        ({"url": "http://127.0.0.1:1/"}, "http://127.0.0.1:1/ does not answer ("),
        ({"port": 1}, "The health check of port 1 did not pass. After 1 s still: 127.0.0.1:1 takes no connection ("),
        ({"argv": ["no-such.exe"]}, "no-such.exe cannot be run: there is no such program on this host."),
    ],
)
def test_what_is_not_well_is_said(kinds: Session, site: str, item: Json, said: str) -> None:
    kinds.load("_MaintenanceSteps")
    given = {key: value.replace("SITE", site) if key == "url" else value for key, value in item.items()}
    with pytest.raises(PowerShellError) as caught:
        kinds.script(HEALTH, {**given, "timeout": 1})
    assert said.replace("SITE", site) in str(caught.value)


# paths


class Saved:
    """A tree on the disk, the archive of it, and what the record says."""

    def __init__(self, session: Session, tmp_path: Path, **tools: t.Any) -> None:
        self.tree = tmp_path / "data with blanks"
        self.archives = tmp_path / "archives"
        self.host = World(session, "Checkpoint", "paths")
        self.tools = {"directory": windows.windows_path(self.archives), "file": "0123.zip", **tools}
        self.options: Json = {"paths": [windows.windows_path(self.tree)]}
        (self.tree / "below" / "deep").mkdir(parents=True)
        (self.tree / "a.txt").write_bytes(b"a" * 3_000_000)
        (self.tree / "below" / "grüße 漢字.txt").write_bytes(b"hello")
        (self.tree / "below" / "empty").touch()

    def save(self) -> Json:
        return t.cast(Json, self.host.call("Do", self.options, **self.tools))

    def restore(self, data: Json, lost: bool = True) -> str:
        noted = {"Data": data, "Lost": lost}
        return t.cast(str, self.host.call("Undo", self.options, noted, **self.tools))

    def restore_error(self, data: Json) -> str:
        return self.host.error("Undo", self.options, {"Data": data, "Lost": True}, **self.tools)

    @property
    def archive(self) -> Path:
        return self.archives / "0123.zip"

    def content(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.tree)): file.read_bytes() for file in self.tree.rglob("*") if file.is_file()}


def remove(path: Path) -> None:
    for one in sorted(path.rglob("*"), reverse=True):
        one.rmdir() if one.is_dir() else one.unlink()
    path.rmdir()


def test_a_tree_that_is_lost_comes_back_whole(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    before = saved.content()
    modified = (saved.tree / "a.txt").stat().st_mtime
    done = saved.save()
    assert done["Message"].startswith("6 files with directories, ")
    assert (done["Data"]["paths"], done["Data"]["fetched"]) == (saved.options["paths"], False)
    remove(saved.tree)
    assert saved.restore(done["Data"]).startswith("6 put back: ")
    assert saved.content() == before
    assert abs((saved.tree / "a.txt").stat().st_mtime - modified) < 2
    assert saved.restore(done["Data"]) == "0 put back"
    assert sorted(path.name for path in saved.archives.iterdir()) == ["0123.zip"]


def test_only_what_is_missing_comes_back(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    data = saved.save()["Data"]
    (saved.tree / "a.txt").write_text("newer")
    (saved.tree / "below" / "empty").unlink()
    assert saved.restore(data, lost=False) == "0 put back", "the path itself is there, and no disk was lost"
    assert saved.restore(data).startswith("1 put back")
    assert (saved.tree / "a.txt").read_text() == "newer"


def test_paths_of_more_than_260_characters_are_saved_and_put_back(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    deep = saved.tree
    for number in range(12):
        deep = deep / f"{number:02d} a directory with a long name"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    assert len(str(deep)) > 300
    data = saved.save()["Data"]
    remove(saved.tree)
    saved.restore(data)
    assert (deep / "file").read_text() == "x"


def test_a_share_is_saved_and_put_back(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    with windows.shared(tmp_path) as share:
        saved.options = {"paths": [f"{share}\\{saved.tree.name}"]}
        saved.tools["directory"] = f"{share}\\archives"
        before = saved.content()
        done = saved.save()
        assert done["Data"]["archive"] == f"{share}\\archives\\0123.zip"
        remove(saved.tree)
        assert saved.restore(done["Data"]).startswith("6 put back: ")
    assert saved.content() == before


def test_access_rights_attributes_and_times_are_kept(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    file = windows.windows_path(saved.tree / "a.txt")
    kinds.script(
        "$item = Get-Item -LiteralPath $args[0][0]; "
        "$item.LastWriteTimeUtc = [datetime]::new(2020, 1, 2, 3, 4, 5, [DateTimeKind]::Utc); "
        "$item.IsReadOnly = $true; $null",
        file,
    )
    seen = (
        "$item = Get-Item -LiteralPath $args[0][0]; "
        "$rights = Invoke-Private '_Checkpoint_paths' 'Get-Security' $args[0][0] $false; "
        "@($item.IsReadOnly, $item.LastWriteTimeUtc.Ticks, $rights)"
    )
    before = kinds.script(seen, file)
    assert before[0] is True
    assert "D:" in before[2]
    data = saved.save()["Data"]
    remove(saved.tree)
    assert "without its owner" not in saved.restore(data)
    assert kinds.script(seen, file) == before


def test_a_damaged_archive_puts_nothing_back(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    data = saved.save()["Data"]
    remove(saved.tree)
    whole = saved.archive.read_bytes()
    saved.archive.write_bytes(whole[:-1] + b"x")
    assert "is damaged: its checksum is" in saved.restore_error(data)
    saved.archive.unlink()
    assert "cannot be read: " in saved.restore_error(data)
    assert not saved.tree.exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"checksum": "x", "paths": [], "archive": "Z:\\x"}, "The record does not say which paths were saved"),
        ({"checksum": "x", "paths": ["Z:\\a\\..\\b"], "archive": "Z:\\x"}, "The record does not say which paths"),
        ({"checksum": "x", "paths": [5], "archive": "Z:\\x"}, "The record does not say which paths"),
    ],
)
def test_a_record_that_makes_no_sense_puts_nothing_back(kinds: Session, tmp_path: Path, data: Json, said: str) -> None:
    assert said in Saved(kinds, tmp_path).restore_error(data)


def test_an_archive_that_names_other_paths_puts_nothing_back(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    data = saved.save()["Data"]
    remove(saved.tree)
    elsewhere = {**data, "paths": [windows.windows_path(tmp_path / "other")]}
    assert "is damaged: it holds" in saved.restore_error(elsewhere)
    assert not saved.tree.exists()


def test_what_cannot_be_saved_is_said(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    missing = {"paths": [windows.windows_path(tmp_path / "missing")]}
    assert "does not exist, so it cannot be saved" in saved.host.error("Do", missing, **saved.tools)
    inside = {**saved.tools, "directory": windows.windows_path(saved.tree / "archives")}
    assert "which is to be saved" in saved.host.error("Do", saved.options, **inside)
    assert "The time for it is over. It is not saved" in saved.host.error(
        "Do", saved.options, **{**saved.tools, "seconds": 0}
    )
    assert not saved.archive.exists()


def test_without_an_archive_there_is_nothing_to_put_back_or_to_clean_up(kinds: Session, tmp_path: Path) -> None:
    saved = Saved(kinds, tmp_path)
    assert saved.restore({}) == "nothing was saved, so there is nothing to put back"
    data = saved.save()["Data"]
    saved.host.call("CleanUp", saved.options, {"Data": data}, **saved.tools)
    saved.host.call("CleanUp", saved.options, {"Data": data}, **saved.tools)
    assert not saved.archive.exists()


def test_a_directory_that_became_a_link_is_not_followed(kinds: Session, tmp_path: Path) -> None:
    """Wine 8 has no links: what tells them is replaced."""
    saved = Saved(kinds, tmp_path)
    data = saved.save()["Data"]
    remove(saved.tree)
    kinds.script("Set-LinkStandIn $args[0][0]", windows.windows_path(tmp_path))
    try:
        assert "is a link or a junction, which it was not when it was saved" in saved.restore_error(data)
        assert not saved.tree.exists()
        same = {**data, "links": {windows.windows_path(tmp_path): "Junction X:\\elsewhere"}}
        assert saved.restore(same).startswith("6 put back")
        kinds.script("Set-LinkStandIn $args[0][0]", windows.windows_path(saved.tree / "below"))
        assert "left out (link or junction): " in saved.save()["Message"]
        kinds.script("Set-LinkStandIn $args[0][0]", windows.windows_path(saved.tree))
        assert "is a link, a junction or a mount point" in saved.host.error("Do", saved.options, **saved.tools)
    finally:
        kinds.script("Set-LinkStandIn ''")


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("c:/a/./b//c/../d", "C:\\a\\b\\d"),
        ("\\\\?\\D:\\x", "D:\\x"),
        ("\\\\server.example.com\\share\\a b\\", "\\\\server.example.com\\share\\a b"),
        ("\\\\?\\UNC\\server\\share\\a", "\\\\server\\share\\a"),
        ("C:\\..\\..\\x", "C:\\x"),
        ("C:\\", "C:\\"),
        ("\\\\s\\t", "\\\\s\\t\\"),
    ],
)
def test_one_path_is_written_in_one_way(kinds: Session, given: str, full: str) -> None:
    assert kinds.script("Invoke-Private '_Checkpoint_paths' 'Get-Full' $args[0][0]", given) == full
    if full.count("\\") > 1:
        assert kinds.script("Get-GracefulLongPath $args[0][0]", full) == full
        # Windows cuts off the end of such a name, and does not take so long a path.
        for odd in (f"{full}\\ends with a dot.", f"{full}\\ends with a blank \\x", full + "\\a long name" * 24):
            long = kinds.script("Get-GracefulLongPath $args[0][0]", odd)
            assert long == ("\\\\?\\UNC\\" + odd[2:] if odd.startswith("\\\\") else "\\\\?\\" + odd)
