# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real services for the steps of a drain, from Debian packages that are unpacked and never installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

PATIENCE = 90


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _each in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(what: str, check: t.Callable[[], t.Any], seconds: float = PATIENCE) -> t.Any:
    end = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < end:
        try:
            found = check()
        except Exception as exc:
            last = exc
        else:
            if found:
                return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds} s ({last})")


class Packages:
    """Unpacked packages, and the environment in which what is in them runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def program(self, path: str) -> str:
        return str(self.root / path)

    @property
    def environment(self) -> dict[str, str]:
        libraries = {file.parent for file in (self.root / "usr/lib").rglob("*.so*")}
        return {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, sorted(libraries))),
            "LC_ALL": "C.UTF-8",
        }


def unpacked(root: Path, *names: str) -> Packages:
    """Skips the test where this machine has no apt to download with."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool} to get {', '.join(names)} with")
    debs = root / "debs"
    debs.mkdir(parents=True)
    got = subprocess.run(["apt-get", "download", *names], cwd=debs, capture_output=True, text=True, check=False)
    if got.returncode != 0:
        lines = got.stderr.strip().splitlines() or ["no reason given"]
        pytest.skip(f"apt-get could not download {', '.join(names)}: {lines[-1]}")
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(deb), str(root / "files")], check=True)
    return Packages(root / "files")


class Processes:
    """What a test has started; it is ended by its process id."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, name: str, *command: str, **options: t.Any) -> subprocess.Popen[bytes]:
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **options
            )
        self._running.append((process, log))
        return process

    def logs(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-2000:]}" for _process, log in self._running)

    def stop(self) -> None:
        for process, _log in reversed(self._running):
            process.terminate()
        for process, _log in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


@pytest.fixture
def processes(tmp_path: Path) -> t.Iterator[Processes]:
    running = Processes(tmp_path)
    yield running
    running.stop()


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
