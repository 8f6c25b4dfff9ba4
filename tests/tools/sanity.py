# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test sanity with the ansible-core of the environment this runs in.

ansible-test keeps its state in HOME, fetches get-pip from a server of its own and hands none of the PIP_ variables on:
it gets a home in the cache, a get-pip made from pip's own wheel, and pip's settings as a file.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
COLLECTION = Path("ansible_collections", "graceful", "azure")
ENVIRONMENT_NAME = Path(os.environ["ANSIBLE_HOME"]).name
HOME = CACHE / "ansible-test" / ENVIRONMENT_NAME
SKIPPED = CACHE / "skipped" / f"sanity-{ENVIRONMENT_NAME}"

PIP_VERSIONS_WANTED = """
import types
from ansible_test._internal.constants import SUPPORTED_PYTHON_VERSIONS
from ansible_test._internal.python_requirements import get_venv_packages
print(*{get_venv_packages(types.SimpleNamespace(version=version))["pip"] for version in SUPPORTED_PYTHON_VERSIONS})
"""

GET_PIP = """\
import pathlib, sys
wheels = pathlib.Path(__file__).parent
sys.path.insert(0, str(wheels / "{wheel}"))
from pip._internal.cli.main import main
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.exit(main(["install", "--upgrade", "--force-reinstall", "--find-links", str(wheels), *wanted]))
"""

WINDOWS = Path(__file__).resolve().parents[1] / "windows" / "windows.py"
PWSH = """\
#!/bin/sh
GRACEFUL_WINDOWS_CACHE='{cache}' exec '{python}' '{windows}' run "$@"
"""

SKIP_NOTICE = re.compile(r"WARNING: (?=.*(?:skip|not (?:found|available|supported)|missing))", re.IGNORECASE)


def python(*arguments: str) -> str:
    return subprocess.check_output([sys.executable, *arguments], text=True)


def provide_get_pip() -> None:
    """ansible-test uses what lies in its cache instead of downloading."""
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in python("-c", PIP_VERSIONS_WANTED).split():
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        if script.exists():
            continue
        python("-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "-d", str(cache), f"pip=={version}")
        (wheel,) = cache.glob(f"pip-{version}-*.whl")
        script.write_text(GET_PIP.format(wheel=wheel.name))


@contextmanager
def pip_settings() -> Iterator[None]:
    """What pip is told by files and variables together; it may hold passwords, so it does not stay."""
    settings = configparser.RawConfigParser()
    from_variables: dict[str, str] = {}
    for line in python("-m", "pip", "config", "list").splitlines():
        name, value = line.split("=", 1)
        section, option = name.rsplit(".", 1)
        if section == ":env:":
            from_variables[option] = ast.literal_eval(value)
        else:
            settings.read_dict({section: {option: ast.literal_eval(value)}})
    settings.read_dict({"global": {**from_variables, "quiet": "2"}})
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if proxy and not settings.has_option("global", "proxy"):
        settings["global"]["proxy"] = proxy
    file = HOME / ".config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            settings.write(opened)
        yield
    finally:
        file.unlink()


def powershell() -> Path | None:
    """A directory with a pwsh: what make test-windows has set up, or nothing."""
    cache = Path(os.environ.get("GRACEFUL_WINDOWS_CACHE") or CACHE / "windows")
    if not (cache / "ready").exists() or not shutil.which("wine"):
        return None
    directory = HOME / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "pwsh"
    program.write_text(PWSH.format(cache=cache, python=sys.executable, windows=WINDOWS))
    program.chmod(0o755)
    return directory


def without_windows(collection: Path) -> None:
    """ansible-test asks pwsh for the options of a module in PowerShell, and fails where there is none."""
    for file in (collection / "plugins" / "modules").glob("win_*"):
        file.unlink()
    print("SKIPPED the modules for Windows: there is no pwsh, make test-windows sets one up", flush=True)


def variables() -> dict[str, str]:
    # The interpreters that were tried before anything on PATH, where pyenv's may not run.
    path = [
        str(HOME / "bin"),
        str(CACHE / "pythons"),
        str(Path(sys.executable).parent),
        str(CACHE.parent / ".venv" / "bin"),
        os.defpath,
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON", "XDG_"))}
    return {**kept, "HOME": str(HOME), "PATH": os.pathsep.join(path)}


def run_sanity(collection: Path) -> int:
    # PSScriptAnalyzer is part of make test-windows.
    options = ["--color", "no", "--skip-test", "pslint", *sys.argv[1:]]
    command = [str(Path(sys.executable).with_name("ansible-test")), "sanity", *options]
    skipped: dict[str, None] = {}
    with subprocess.Popen(
        command,
        cwd=collection,
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            if SKIP_NOTICE.match(line):
                skipped[line.removeprefix("WARNING: ")] = None
    SKIPPED.parent.mkdir(parents=True, exist_ok=True)
    SKIPPED.write_text("".join(f"ansible-test sanity, {ENVIRONMENT_NAME} environment: {line}" for line in skipped))
    return running.returncode


def main() -> int:
    # Ended from outside, it still removes its copy and pip's settings.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if list(Path(os.environ["ANSIBLE_COLLECTIONS_PATH"], COLLECTION, "tests", "sanity").glob("ignore-*.txt")):
        print("tests/sanity/ignore-*.txt: this collection passes without exceptions")
        return 1
    provide_get_pip()
    # Outside the checkout: ansible-test would take the checkout's .git for the copy's and find every file ignored.
    with tempfile.TemporaryDirectory(prefix="graceful-sanity-") as temporary, pip_settings():
        collection = Path(temporary, COLLECTION)
        shutil.copytree(Path(os.environ["ANSIBLE_COLLECTIONS_PATH"], COLLECTION), collection, symlinks=True)
        if not powershell():
            without_windows(collection)
        return run_sanity(collection)


if __name__ == "__main__":
    sys.exit(main())
