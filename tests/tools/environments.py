# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environments the tests run in: one per ansible-core version, made once and kept until its requirements change.

make NAME...           make what is missing and say which versions there are
run NAME COMMAND...    run a command of that environment, away from the user's own Ansible settings
best                   say which one `best` is, which can be given instead of a name: the newest ansible-core that a
                       Python found here can run, that is newest, or else main
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
COLLECTIONS = CACHE / "collections"
PYTHON_LINKS = CACHE / "pythons"
SKIPPED = CACHE / "skipped"

PROBE = """
import importlib.util, json, sys
print(json.dumps([getattr(sys, "_base_executable", sys.executable), sys.version_info[:3],
                  all(map(importlib.util.find_spec, ("ensurepip", "venv")))]))
"""


@dataclasses.dataclass(frozen=True)
class Environment:
    name: str
    directory: Path
    lowest_python: tuple[int, int]
    highest_python: tuple[int, int]
    prefers_newest_python: bool
    copes_with_spaces: bool

    @property
    def requirements(self) -> Path:
        return ROOT / "tests" / "requirements" / f"{self.name}.txt"

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def stamp(self) -> Path:
        return self.directory / ".stamp"

    @property
    def python_range(self) -> str:
        return f"Python {dotted(self.lowest_python)} to {dotted(self.highest_python)}"


@dataclasses.dataclass(frozen=True)
class Interpreter:
    path: str
    version: tuple[int, int, int]
    makes_environments: bool


# The controller's Python versions as each ansible-core declares them.
ENVIRONMENTS = {
    "main": Environment("main", ROOT / ".venv", (3, 11), (3, 14), False, True),
    "lowest": Environment("lowest", CACHE / "environments" / "lowest", (3, 10), (3, 12), False, False),
    "newest": Environment("newest", CACHE / "environments" / "newest", (3, 12), (3, 14), True, True),
    # As main, with Event-Driven Ansible beside it.
    "eda": Environment("eda", CACHE / "environments" / "eda", (3, 11), (3, 14), False, True),
}


BEST = "best"


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def pyenv_directories() -> list[Path]:
    root = os.environ.get("PYENV_ROOT", "")
    if not root and shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
    return sorted(Path(root, "versions").glob("*/bin")) if root else []


def probe(candidate: str) -> Interpreter | None:
    """A name on PATH proves nothing: pyenv leaves names behind that do not run."""
    try:
        done = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True, check=True, timeout=30)
        path, version, makes_environments = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # One interpreter has many names; the stamp must not depend on the one it was called by.
    return Interpreter(os.path.realpath(path), tuple(version), makes_environments)


def find_interpreters() -> list[Interpreter]:
    """One working interpreter per Python version, oldest first; the one running this is preferred."""
    named = re.compile(r"python3\.\d+")
    candidates = [sys.executable]
    for directory in [*map(Path, os.get_exec_path()), *pyenv_directories()]:
        if directory.is_dir():
            candidates += [str(file) for file in sorted(directory.iterdir()) if named.fullmatch(file.name)]
    found: dict[tuple[int, int], Interpreter] = {}
    for interpreter in filter(None, map(probe, candidates)):
        kept = found.setdefault(interpreter.version[:2], interpreter)
        if interpreter.makes_environments and not kept.makes_environments:
            found[interpreter.version[:2]] = interpreter
    return [found[version] for version in sorted(found)]


def choose(environment: Environment, interpreters: list[Interpreter]) -> Interpreter | None:
    if spaces_forbid(environment):
        return None
    usable = [
        interpreter
        for interpreter in interpreters
        if environment.lowest_python <= interpreter.version[:2] <= environment.highest_python
        and interpreter.makes_environments
    ]
    if not usable:
        return None
    running = [interpreter for interpreter in usable if interpreter.version[:2] == sys.version_info[:2]]
    if running and environment.name == "main":
        return running[0]
    return usable[-1] if environment.prefers_newest_python else usable[0]


def link_interpreters(interpreters: list[Interpreter]) -> None:
    """ansible-test looks for pythonX.Y on PATH. Several of us may be at it at the same time."""
    PYTHON_LINKS.mkdir(parents=True, exist_ok=True)
    wanted = {f"python{dotted(interpreter.version[:2])}": interpreter.path for interpreter in interpreters}
    for name, path in wanted.items():
        new = PYTHON_LINKS / f".{name}.{os.getpid()}"
        new.symlink_to(path)
        new.replace(PYTHON_LINKS / name)
    for link in PYTHON_LINKS.glob("python*"):
        if link.name not in wanted:
            link.unlink(missing_ok=True)


def create(environment: Environment, interpreter: Interpreter) -> None:
    stamp = hashlib.sha256(
        "\n".join([str(environment.directory), *map(str, dataclasses.astuple(interpreter))]).encode()
        + environment.requirements.read_bytes()
    ).hexdigest()
    if environment.stamp.is_file() and environment.stamp.read_text() == stamp:
        return
    print(f"{environment.name}: making the environment in {environment.directory.relative_to(ROOT)}", flush=True)
    shutil.rmtree(environment.directory, ignore_errors=True)
    subprocess.run([interpreter.path, "-m", "venv", str(environment.directory)], check=True)
    pip = [str(environment.bin / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, "-r", str(environment.requirements)], check=True)
    environment.stamp.write_text(stamp)


def ansible_version(environment: Environment) -> str:
    ask = "from importlib.metadata import version; print(version('ansible-core'))"
    return subprocess.check_output([str(environment.bin / "python"), "-c", ask], text=True).strip()


def make(names: list[str]) -> None:
    interpreters = find_interpreters()
    link_interpreters(interpreters)
    if BEST in names:
        names = list(dict.fromkeys("newest" if name == BEST else name for name in [*names, "main"]))
    chosen = {ENVIRONMENTS[name]: choose(ENVIRONMENTS[name], interpreters) for name in names}
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(create, environment, python) for environment, python in chosen.items() if python]
    for future in made:
        future.result()
    for environment, interpreter in chosen.items():
        if interpreter:
            core = f"ansible-core {ansible_version(environment)}"
            print(f"{environment.name}: {core} on Python {dotted(interpreter.version)}", flush=True)
            continue
        shutil.rmtree(environment.directory, ignore_errors=True)
        found = ", ".join(dotted(interpreter.version) for interpreter in interpreters)
        print(f"{environment.name}: not possible here, {why_not(environment)} (found: {found})", flush=True)
        if environment.name == "main":
            raise SystemExit(1)


def spaces_forbid(environment: Environment) -> bool:
    """ansible-core 2.16 does not quote the path of the interpreter it runs modules with."""
    return " " in str(ROOT) and not environment.copes_with_spaces


def why_not(environment: Environment) -> str:
    if spaces_forbid(environment):
        return "its ansible-core cannot run from a directory with a space in its path"
    return f"it wants {environment.python_range} with its venv and ensurepip"


def isolated(environment: Environment) -> dict[str, str]:
    """Nothing of the user's own Ansible settings may decide a test."""
    home = CACHE / "ansible" / environment.name
    home.mkdir(parents=True, exist_ok=True)
    config = home / "ansible.cfg"
    config.touch()
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON", "MAKE", "MFLAGS"))
    }
    return {
        **inherited,
        "PATH": os.pathsep.join([str(environment.bin), *os.get_exec_path()]),
        "VIRTUAL_ENV": str(environment.directory),
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(home),
        # Where the managed host is this machine, Ansible would use the user's ~/.ansible by the name in passwd.
        "ANSIBLE_REMOTE_TEMP": str(home / "remote"),
        "XDG_CACHE_HOME": str(CACHE / "xdg"),
        "LC_ALL": "C.UTF-8",
        "PYTHONPYCACHEPREFIX": str(CACHE / "pycache"),
    }


def run(name: str, command: list[str]) -> int:
    environment = ENVIRONMENTS["newest" if name == BEST else name]
    what = " ".join(command).replace(f"{ROOT}{os.sep}", "")
    note = SKIPPED / re.sub(r"\W+", "-", f"{name} {what}")
    note.unlink(missing_ok=True)
    if not environment.stamp.is_file():
        SKIPPED.mkdir(parents=True, exist_ok=True)
        instead = " (run in the main environment instead)" if name == BEST else ""
        note.write_text(f"{what}, {environment.name} environment: {why_not(environment)}{instead}\n")
        print(f"SKIPPED {note.read_text()}", end="", flush=True)
        if name != BEST:
            return 0
        environment = ENVIRONMENTS["main"]
    return subprocess.run(
        [str(environment.bin / command[0]), *command[1:]], env=isolated(environment), check=False
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    maker = actions.add_parser("make")
    maker.add_argument("names", nargs="+", choices=[*ENVIRONMENTS, BEST], metavar="NAME")
    runner = actions.add_parser("run")
    runner.add_argument("name", choices=[*ENVIRONMENTS, BEST])
    runner.add_argument("command", nargs=argparse.REMAINDER)
    actions.add_parser(BEST)
    arguments = parser.parse_args()
    if arguments.action == "run":
        return run(arguments.name, arguments.command)
    if arguments.action == BEST:
        print("newest" if ENVIRONMENTS["newest"].stamp.is_file() else "main")
        return 0
    make(arguments.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
