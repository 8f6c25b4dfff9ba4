# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role checkpoint with real databases: what it says is saved is saved, and what is not is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.tests.services.conftest import (
    Packages,
    Processes,
    free_ports,
    unpacked,
    wait_for,
)
from ansible_collections.graceful.azure.tests.services.role import COLLECTIONS

Json = dict[str, t.Any]
HERE = Path(os.path.abspath(__file__)).parent
POSTGRESQL = "15"
# PostgreSQL does not run as root.
UNPRIVILEGED: Json = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def save(folder: Path, item: Json, environment: t.Mapping[str, str]) -> Json:
    """The role's report."""
    report = folder / "report.json"
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "checkpoint_items": [{"name": "database", **item}],
        "checkpoint_event": {"event_id": "F020BA2E", "event_type": "Reboot"},
        "checkpoint_run_id": "1",
        "checkpoint_record_dir": str(folder / "records"),
        "checkpoint_seconds": 60,
        "report": str(report),
    }
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"vars": variables, "hosts": {"host": {}}}}))
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_PIPELINING": "1"}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory)]
    played = subprocess.run(
        [*command, str(HERE / "checkpoint.yml")],
        env={**environment, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    return t.cast(Json, json.loads(report.read_text()))


def not_saved(report: Json) -> str:
    assert report["ready"] is False
    reason: str = report["reason"]
    assert reason.startswith("Checkpoint database failed: ")
    return reason


class Redis(t.NamedTuple):
    folder: Path
    packages: Packages
    port: int
    process: subprocess.Popen[bytes]

    @property
    def client(self) -> list[str]:
        return [self.packages.program("usr/bin/redis-cli"), "-p", str(self.port)]

    def ask(self, *words: str) -> str:
        asked = subprocess.run(
            [*self.client, *words],
            env=self.packages.environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return asked.stdout.strip()

    def save(self, folder: Path, **more: t.Any) -> Json:
        return save(folder, {"kind": "redis", "argv": self.client, **more}, self.packages.environment)


@pytest.fixture(scope="module")
def redis_packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    names = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")
    return unpacked(tmp_path_factory.mktemp("redis"), *names)


@pytest.fixture
def redis(redis_packages: Packages, processes: Processes, tmp_path: Path) -> Redis:
    (port,) = free_ports(1)
    data = tmp_path / "data"
    data.mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), "--save", ""]
    options += ["--enable-protected-configs", "yes"]
    program = redis_packages.program("usr/bin/redis-check-rdb")  # the server under another name
    process = processes.start("redis", "redis-server", *options, executable=program, env=redis_packages.environment)
    found = Redis(data, redis_packages, port, process)
    wait_for("Redis", lambda: found.ask("PING") == "PONG")
    found.ask("SET", "precious", "data")
    return found


def test_redis_is_saved(redis: Redis, tmp_path: Path) -> None:
    assert redis.save(tmp_path)["ready"] is True
    assert b"precious" in (redis.folder / "dump.rdb").read_bytes()


def test_redis_that_cannot_write_is_said(redis: Redis, tmp_path: Path) -> None:
    # A directory in the place of the file: not even root can write that.
    (redis.folder / "dump.rdb" / "taken").mkdir(parents=True)
    assert "Redis could not save" in not_saved(redis.save(tmp_path))


def test_redis_that_wants_a_password_says_so(redis: Redis, tmp_path: Path) -> None:
    redis.ask("CONFIG", "SET", "requirepass", "secret")
    assert "NOAUTH" in not_saved(redis.save(tmp_path))


def test_redis_that_is_down_is_said(redis: Redis, tmp_path: Path) -> None:
    redis.process.terminate()
    redis.process.wait(20)
    assert "Connection refused" in not_saved(redis.save(tmp_path))


def test_redis_that_hangs_costs_no_more_than_its_time(redis: Redis, tmp_path: Path) -> None:
    redis.process.send_signal(signal.SIGSTOP)
    try:
        assert "Timed out" in not_saved(redis.save(tmp_path, timeout=5))
    finally:
        redis.process.send_signal(signal.SIGCONT)


class Postgres(t.NamedTuple):
    packages: Packages
    folder: Path
    port: int

    def client(self, user: str = "postgres") -> list[str]:
        return [self.program("psql"), "-h", str(self.folder), "-p", str(self.port), "-U", user, "-d", "postgres"]

    def program(self, name: str) -> str:
        return self.packages.program(f"usr/lib/postgresql/{POSTGRESQL}/bin/{name}")

    def ask(self, statement: str) -> str:
        asked = subprocess.run(
            [*self.client(), "-XAtc", statement],
            env=self.packages.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return asked.stdout.strip()

    def save(self, folder: Path, *, user: str = "postgres", **more: t.Any) -> Json:
        return save(folder, {"kind": "postgresql", "argv": self.client(user), **more}, self.packages.environment)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Postgres]:
    packages = unpacked(
        tmp_path_factory.mktemp("postgresql"), f"postgresql-{POSTGRESQL}", f"postgresql-client-{POSTGRESQL}", "libpq5"
    )
    # Short and open to the user that the database runs as.
    folder = Path(tempfile.mkdtemp(prefix="graceful-db-"))
    folder.chmod(0o755)
    shutil.copytree(packages.root, folder / "files", symlinks=True)
    own = folder / "own"
    own.mkdir(mode=0o711)
    if UNPRIVILEGED:
        shutil.chown(own, "nobody", "nogroup")
    found = Postgres(Packages(folder / "files"), own, free_ports(1)[0])
    running = Processes(folder)
    try:
        initdb = [found.program("initdb"), "-D", str(own / "data"), "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run(initdb, env=found.packages.environment, cwd=own, capture_output=True, check=True, **UNPRIVILEGED)
        options = ["-h", "", "-k", str(own), "-p", str(found.port), "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        serve = [found.program("postgres"), "-D", str(own / "data"), *options]
        running.start("postgres", *serve, env=found.packages.environment, cwd=own, **UNPRIVILEGED)
        wait_for("PostgreSQL", lambda: found.ask("SELECT 1") == "1")
        found.ask("CREATE ROLE clerk LOGIN")
        yield found
    finally:
        running.stop()
        shutil.rmtree(folder)


def test_postgresql_has_made_its_checkpoint(postgres: Postgres, tmp_path: Path) -> None:
    postgres.ask("CREATE TABLE IF NOT EXISTS orders AS SELECT generate_series(1, 1000)")
    written = postgres.ask("SELECT pg_current_wal_insert_lsn()")
    assert postgres.save(tmp_path)["ready"] is True
    assert postgres.ask(f"SELECT redo_lsn >= '{written}' FROM pg_control_checkpoint()") == "t"


def test_postgresql_tells_a_role_that_may_not(postgres: Postgres, tmp_path: Path) -> None:
    assert "pg_checkpoint" in not_saved(postgres.save(tmp_path, user="clerk"))


def test_postgresql_that_is_down_is_said(postgres: Postgres, tmp_path: Path) -> None:
    nowhere = postgres._replace(port=free_ports(1)[0])
    assert "Is the server running" in not_saved(nowhere.save(tmp_path))


def test_postgresql_that_does_not_get_it_done_costs_no_more_than_its_time(postgres: Postgres, tmp_path: Path) -> None:
    worker = int(postgres.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"))
    os.kill(worker, signal.SIGSTOP)
    try:
        assert "Timed out" in not_saved(postgres.save(tmp_path, timeout=5))
    finally:
        os.kill(worker, signal.SIGCONT)
