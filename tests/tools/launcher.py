# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts ansible-playbook the same way in every suite: the Ansible beside this Python, and no settings of the user."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

COLLECTION = Path(os.path.abspath(__file__)).parents[2]
COLLECTIONS = COLLECTION.parents[2]
INTEGRATION = COLLECTION / "tests" / "integration"
PROGRAM = Path(sys.executable).with_name("ansible-playbook")


@dataclasses.dataclass(frozen=True)
class Launch:
    """One call of ansible-playbook."""

    # The name of one of our playbooks, or a file.
    playbook: str | Path
    # A file, or hosts with commas.
    inventory: str | Path
    # Where Ansible keeps its own files.
    home: Path
    arguments: t.Sequence[str] = ()
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    forks: int = 6
    # More settings, or others than below.
    settings: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        given = ["-e", json.dumps(self.variables)] if self.variables else []
        options = ["-i", str(self.inventory), "-f", str(self.forks), *given, *self.arguments]
        return [str(PROGRAM), *options, str(self.playbook)]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_CONFIG": str(INTEGRATION / "ansible.cfg"),
            "ANSIBLE_CONNECTION_PLUGINS": str(INTEGRATION / "plugins" / "connection"),
            "ANSIBLE_HOME": str(self.home),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            **self.settings,
        }

    def start(self, output: Path, errors: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """In the background, in a session of its own; errors go to the same file unless they have their own."""
        self.home.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as stdout, (errors or Path(os.devnull)).open("wb") as stderr:
            return subprocess.Popen(
                self.command,
                cwd=cwd,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr if errors else subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, timeout: float = 300, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """To its end. Both outputs together are its stdout."""
        self.home.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            self.command,
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
