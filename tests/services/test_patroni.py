# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.patroni import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._peer import Login
from ansible_collections.graceful.azure.tests.services.conftest import (
    Packages,
    Processes,
    free_ports,
    unpacked,
    wait_for,
)
from ansible_collections.graceful.azure.tests.services.kinds import NOTED, drain_and_undo, step

SYSTEM_PYTHON = "/usr/bin/python3"
POSTGRESQL = "15"
PYTHON_PACKAGES = "pysyncobj psycopg2 click dateutil prettytable psutil urllib3 yaml six wcwidth cdiff pkg-resources"
CREDENTIALS = Login("operator", "s3cret")
# PostgreSQL does not run as root.
UNPRIVILEGED = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    names = ["patroni", f"postgresql-{POSTGRESQL}", f"postgresql-client-{POSTGRESQL}", "libpq5", "libyaml-0-2"]
    names += [f"python3-{name}" for name in PYTHON_PACKAGES.split()]
    packages = unpacked(tmp_path_factory.mktemp("patroni"), *names)
    check = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import patroni, psycopg2, pysyncobj"],
        env=environment(packages),
        capture_output=True,
        text=True,
        check=False,
    )
    if check.returncode != 0:
        pytest.skip(f"Patroni does not run with this system's Python: {check.stderr.strip().splitlines()[-1]}")
    return packages


def environment(packages: Packages) -> dict[str, str]:
    modules = packages.program("usr/lib/python3/dist-packages")
    # Only what a service would have; ours may point into another Python.
    kept = {key: value for key, value in packages.environment.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    return {**kept, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}


class Database(t.NamedTuple):
    urls: list[str]

    def member(self, number: int, login: Login | None = CREDENTIALS, candidate: str | None = None) -> Step:
        given = {"url": self.urls[number], "candidate": candidate, **(login._asdict() if login else {})}
        return t.cast(Step, step("patroni", **given))

    def has_two_members(self) -> bool:
        mine, others = self.member(0).members()
        return mine.leads and mine.is_healthy and len(others) == 1 and others[0].is_healthy


@pytest.fixture(scope="module")
def database(packages: Packages) -> t.Iterator[Database]:
    """Two members, with a consensus among themselves."""
    # Short and open to the user that the database runs as.
    folder = Path(tempfile.mkdtemp(prefix="graceful-db-"))
    folder.chmod(0o755)
    files = folder / "files"
    shutil.copytree(packages.root, files, symlinks=True)
    running = Processes(folder)
    apis, raft, postgres = free_ports(2), free_ports(2), free_ports(2)
    try:
        for number in range(2):
            own = folder / f"db{number}"
            own.mkdir(mode=0o700)
            if UNPRIVILEGED:
                shutil.chown(own, "nobody", "nogroup")
            settings = configuration(number, own, files, apis, raft, postgres)
            file = folder / f"db{number}.json"
            file.write_text(json.dumps(settings))
            command = [SYSTEM_PYTHON, "-m", "patroni", str(file)]
            variables = environment(Packages(files))
            running.start(f"patroni{number}", *command, env=variables, cwd=own, **UNPRIVILEGED)
        found = Database([f"http://127.0.0.1:{port}" for port in apis])
        try:
            wait_for("a leader", lambda: any(found.member(number).members()[0].leads for number in range(2)), 120)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{running.logs()}") from exc
        if not found.member(0).members()[0].leads:
            found.urls.reverse()
        wait_for("a leader and a follower", found.has_two_members, 120)
        yield found
    finally:
        running.stop()
        shutil.rmtree(folder)


def configuration(
    number: int, own: Path, files: Path, apis: list[int], raft: list[int], postgres: list[int]
) -> dict[str, t.Any]:
    other = 1 - number
    return {
        "scope": "tests",
        "name": f"db{number}",
        "restapi": {
            "listen": f"127.0.0.1:{apis[number]}",
            "connect_address": f"127.0.0.1:{apis[number]}",
            "authentication": CREDENTIALS._asdict(),
        },
        "raft": {
            "data_dir": str(own / "raft"),
            "self_addr": f"127.0.0.1:{raft[number]}",
            "partner_addrs": [f"127.0.0.1:{raft[other]}"],
        },
        "bootstrap": {
            "dcs": {"ttl": 30, "loop_wait": 2, "retry_timeout": 5, "postgresql": {"use_pg_rewind": False}},
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{postgres[number]}",
            "connect_address": f"127.0.0.1:{postgres[number]}",
            "data_dir": str(own / "data"),
            "pgpass": str(own / "pgpass"),
            "bin_dir": str(files / "usr/lib/postgresql" / POSTGRESQL / "bin"),
            "authentication": {
                "superuser": {"username": "postgres", "password": "postgres"},
                "replication": {"username": "replicator", "password": "replicator"},
            },
            "parameters": {"unix_socket_directories": str(own), "fsync": "off", "shared_buffers": "16MB"},
            "pg_hba": ["host all all 127.0.0.1/32 md5", "host replication all 127.0.0.1/32 md5", "local all all trust"],
        },
    }


def test_the_leader_hands_over_and_follows(database: Database) -> None:
    leader, others = database.member(0).members()
    assert leader.leads
    assert database.member(0).do().message.endswith(f"{others[0].name} leads")
    now, others_now = database.member(0).members()
    assert not now.leads
    assert now.is_healthy
    # This Patroni does not tell a follower its own name, so the others may be all.
    assert next(member for member in others_now if member.leads).name == others[0].name
    assert "running" in database.member(0).undo(NOTED)
    database.urls.reverse()


def test_a_follower_is_left_alone(database: Database) -> None:
    database.member(1).do()
    assert database.member(0).members()[0].leads


@pytest.mark.parametrize(
    ("credentials", "candidate", "words"),
    [(None, None, "refuses the switchover"), (CREDENTIALS, "nobody", "refuses the switchover")],
    ids=["without a password", "to a member that is not there"],
)
def test_what_patroni_refuses_is_said(
    database: Database, credentials: Login | None, candidate: str | None, words: str
) -> None:
    with pytest.raises(EventsError, match=words):
        database.member(0, credentials, candidate).do()
    assert database.member(0).members()[0].leads


def test_the_step_switches_over_and_sees_the_host_back(database: Database) -> None:
    drained = drain_and_undo("patroni", url=database.urls[0], **CREDENTIALS._asdict())
    assert drained.look.before["role"] == "leader"
    assert drained.done.endswith("leads")
    assert "running" in drained.undone
    assert not database.member(0).members()[0].leads
