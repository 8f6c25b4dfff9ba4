# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with Windows, and a PowerShell that stays: many cases in one process."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import typing as t
from pathlib import Path

import ansible
from ansible_collections.graceful.azure.tests.integration.harness import recorded
from ansible_collections.graceful.azure.tests.tools.launcher import COLLECTION, INTEGRATION, Launch
from ansible_collections.graceful.azure.tests.windows import windows

Json = dict[str, t.Any]

HERE = Path(os.path.abspath(__file__)).parent
MODULES = COLLECTION / "plugins" / "modules"
MODULE_UTILS = COLLECTION / "plugins" / "module_utils"
CONNECTIONS = os.pathsep.join(map(str, (HERE / "plugins" / "connection", INTEGRATION / "plugins" / "connection")))
# How a module or a shared file names the shared files that it needs.
REQUIRES = re.compile(r"^#AnsibleRequires -PowerShell \S+\.plugins\.module_utils\.(\w+)\s*$", re.MULTILINE)
IMPORT = "Import-Module -Force -DisableNameChecking -Scope Global"
PATIENCE = 400
# The last one is for ansible-core 2.21 and later, which look for a PowerShell of their own.
WINDOWS = {
    "ansible_connection": "wine",
    "ansible_shell_type": "powershell",
    "ansible_pwsh_interpreter": windows.POWERSHELL_COMMAND[0],
}
# Preludes that make another host of it.
CONSTRAINED = "$ExecutionContext.SessionState.LanguageMode = 'ConstrainedLanguage'"
TOO_OLD = "$PSVersionTable.PSVersion = [version]'4.0'"


class PowerShellError(Exception):
    """What a script threw."""


def needed(file: Path) -> list[Path]:
    """The shared files that a file names, each after what it needs itself."""
    found: list[Path] = []
    for name in REQUIRES.findall(file.read_text()):
        util = MODULE_UTILS / f"{name}.psm1"
        found += [one for one in [*needed(util), util] if one not in found]
    return found


class Session:
    """One PowerShell process that runs what it is given."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(1)
        library = windows.windows_path(Path(ansible.__file__).parent)
        port = str(listener.getsockname()[1])
        driver = windows.windows_path(HERE / "driver.ps1")
        command = [*windows.POWERSHELL_COMMAND, "-File", driver, "-Port", port, "-Ansible", library]
        self._process = windows.Process(subprocess.list2cmdline(command))
        with listener:
            self._socket = self._accept(listener)
        self._socket.settimeout(PATIENCE)
        self._stream = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def _accept(self, listener: socket.socket) -> socket.socket:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    break
        raise self._ended()

    def _ended(self) -> PowerShellError:
        try:
            done = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return PowerShellError("PowerShell does not answer")
        return PowerShellError(f"PowerShell has ended ({done.returncode}): {(done.stdout + done.stderr)[-2000:]!r}")

    def script(self, text: str, *arguments: t.Any) -> t.Any:
        """What the script puts out, from JSON. It finds its arguments in $args[0], one after the other."""
        answer = self._ask({"script": text, "arguments": list(arguments)})
        if "error" in answer:
            raise PowerShellError(answer["error"])
        return answer["output"]

    def load(self, *utils: str) -> None:
        """Makes the functions of our shared files known to the scripts."""
        for util in utils:
            file = MODULE_UTILS / f"{util}.psm1"
            for one in [*needed(file), file]:
                self.script(
                    "Import-Module $args[0][0] -Force -DisableNameChecking -Scope Global", windows.windows_path(one)
                )

    def module(self, name: str, arguments: Json, check: bool = False, diff: bool = False) -> Json:
        """A module's own result. For what Ansible makes of it, see Hosts."""
        file = MODULES / f"{name}.ps1"
        given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": diff}
        utils = [windows.windows_path(util) for util in needed(file)]
        answer = self._ask({"module": windows.windows_path(file), "arguments": given, "utils": utils})
        if "error" in answer:
            raise PowerShellError(answer["error"])
        return t.cast(Json, json.loads(answer["result"]))

    def _ask(self, request: Json) -> Json:
        try:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            line = self._stream.readline()
        except OSError as exc:
            # It hangs, or has been ended for that: whoever asks next need not wait.
            self._process.kill()
            raise PowerShellError("PowerShell does not answer") from exc
        if not line:
            raise self._ended()
        return t.cast(Json, json.loads(line))

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def play(
    directory: Path,
    tasks: t.Sequence[Json],
    hosts: t.Mapping[str, Json] | None = None,
    arguments: t.Sequence[str] = (),
    settings: t.Mapping[str, str] | None = None,
) -> list[Json]:
    """Runs tasks on hosts with Windows (one, unless told otherwise), and says what became of each of them."""
    directory.mkdir(parents=True, exist_ok=True)
    record, inventory, playbook = (directory / name for name in ("record", "inventory.json", "playbook.json"))
    record.touch()
    inventory.write_text(json.dumps({"all": {"hosts": {**(hosts or {"windows1": {}})}, "vars": WINDOWS}}))
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": list(tasks)}]))
    more = {**recorded(record), "ANSIBLE_CONNECTION_PLUGINS": CONNECTIONS, **(settings or {})}
    done = Launch(playbook, inventory, directory / "home", arguments, settings=more).run(PATIENCE)
    records = [json.loads(line) for line in record.read_text().splitlines()]
    assert records, done.stdout[-3000:]
    return records
