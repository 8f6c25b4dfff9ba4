# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints with real databases: what they say is saved is saved, and what is not is said."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _checkpoints
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, Tools
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.plugins.module_utils._run import run
from ansible_collections.graceful.azure.tests.services.conftest import (
    Packages,
    Processes,
    Redis,
    free_ports,
    unpacked,
    wait_for,
)

Json = dict[str, t.Any]
POSTGRESQL = "15"
# PostgreSQL does not run as root.
UNPRIVILEGED: Json = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def save(packages: Packages, kind: str, argv: t.Sequence[str], seconds: float = 60, user: str | None = None) -> str:
    """What the checkpoint says when it is done."""

    def run_with_libraries(
        argv: t.Sequence[str],
        seconds: float,
        user: str | None = None,
        environment: t.Mapping[str, str] | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Ran:
        return run(argv, seconds, user, {**packages.environment, **(environment or {})}, pass_fds)

    tools = Tools(Patience(seconds), run_with_libraries)
    return _checkpoints.load(kind)({"argv": list(argv), "become_user": user}, tools).do().message


def save_redis(redis: Redis, **more: t.Any) -> str:
    return save(redis.packages, "redis", redis.client, **more)


def test_redis_is_saved(redis: Redis) -> None:
    assert save_redis(redis) == "Redis has saved"
    assert b"precious" in (redis.folder / "dump.rdb").read_bytes()


def test_redis_is_saved_behind_a_save_that_is_under_way(redis: Redis) -> None:
    """What is written after that one has begun is not in it."""
    redis.ask("CONFIG", "SET", "rdb-key-save-delay", "5000000")
    redis.ask("BGSAVE")
    redis.ask("SET", "late", "data")
    redis.ask("CONFIG", "SET", "rdb-key-save-delay", "0")
    assert "rdb_bgsave_in_progress:1" in redis.ask("INFO", "persistence")
    assert save_redis(redis) == "Redis has saved"
    assert b"late" in (redis.folder / "dump.rdb").read_bytes()


def test_redis_is_saved_behind_a_rewrite_of_its_log(redis: Redis) -> None:
    redis.ask("CONFIG", "SET", "appendonly", "yes")
    wait_for("the first log", lambda: "aof_rewrite_in_progress:0" in redis.ask("INFO", "persistence"))
    redis.ask("CONFIG", "SET", "rdb-key-save-delay", "5000000")
    redis.ask("BGREWRITEAOF")
    redis.ask("CONFIG", "SET", "rdb-key-save-delay", "0")
    assert "aof_rewrite_in_progress:1" in redis.ask("INFO", "persistence")
    assert not (redis.folder / "dump.rdb").exists()
    assert save_redis(redis) == "Redis has saved"
    assert b"precious" in (redis.folder / "dump.rdb").read_bytes()


def test_redis_that_cannot_write_is_said(redis: Redis) -> None:
    # A directory in the place of the file: not even root can write that.
    (redis.folder / "dump.rdb" / "taken").mkdir(parents=True)
    with pytest.raises(EventsError, match="Redis could not save"):
        save_redis(redis)


def test_redis_that_wants_a_password_says_so(redis: Redis) -> None:
    redis.ask("CONFIG", "SET", "requirepass", "secret")
    with pytest.raises(EventsError, match="NOAUTH"):
        save_redis(redis)


def test_redis_that_is_down_is_said(redis: Redis) -> None:
    redis.process.terminate()
    redis.process.wait(20)
    with pytest.raises(EventsError, match="Connection refused"):
        save_redis(redis)


def test_redis_that_hangs_costs_no_more_than_its_time(redis: Redis) -> None:
    redis.process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    try:
        with pytest.raises(Late, match="did not end within 5 s"):
            save_redis(redis, seconds=5)
    finally:
        redis.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - begin < 15


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

    def save(self, role: str = "postgres", **more: t.Any) -> str:
        return save(self.packages, "postgresql", self.client(role), **more)


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


@pytest.mark.parametrize("user", [None, *(["nobody"] if UNPRIVILEGED else [])])
def test_postgresql_has_made_its_checkpoint(postgres: Postgres, user: str | None) -> None:
    postgres.ask("CREATE TABLE IF NOT EXISTS orders AS SELECT generate_series(1, 1000)")
    postgres.ask("INSERT INTO orders VALUES (1)")
    written = postgres.ask("SELECT pg_current_wal_insert_lsn()")
    assert postgres.save(user=user) == "PostgreSQL has made a CHECKPOINT"
    assert postgres.ask(f"SELECT redo_lsn >= '{written}' FROM pg_control_checkpoint()") == "t"


def test_postgresql_tells_a_role_that_may_not(postgres: Postgres) -> None:
    with pytest.raises(EventsError, match="pg_checkpoint"):
        postgres.save(role="clerk")


def test_postgresql_that_is_down_is_said(postgres: Postgres) -> None:
    nowhere = postgres._replace(port=free_ports(1)[0])
    with pytest.raises(Late, match=r"After 3 s still: PostgreSQL takes no connection: Is the server running"):
        nowhere.save(seconds=3)


def test_postgresql_that_comes_back_in_time_is_waited_for(postgres: Postgres) -> None:
    """Its socket is moved away for a moment, as if it restarted."""
    file = postgres.folder / f".s.PGSQL.{postgres.port}"
    away = file.with_name("away")
    file.rename(away)
    back = threading.Timer(2, away.rename, [file])
    back.start()
    try:
        assert postgres.save() == "PostgreSQL has made a CHECKPOINT"
    finally:
        back.join()


def test_postgresql_that_does_not_get_it_done_costs_no_more_than_its_time(postgres: Postgres) -> None:
    worker = int(postgres.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"))
    os.kill(worker, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        with pytest.raises(Late, match="did not end within 5 s"):
            postgres.save(seconds=5)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert time.monotonic() - begin < 15
