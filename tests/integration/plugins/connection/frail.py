# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = """
name: frail
short_description: The local connection, but the host can go down
description:
  - For the integration tests. While the file of O(fate) is there, what runs is killed and nothing new begins.
author: graceful.azure contributors (@graceful)
options:
  fate:
    description:
      - A file with JSON. C(kind) is C(drop), the connection fails, or C(kill), the command ends with 137 and no output;
        C(times) is how many commands that happens to.
    type: path
    vars:
      - name: fate
  become_success_timeout:
    description: As with the local connection.
    type: int
    default: 10
  become_strip_preamble:
    description: As with the local connection.
    type: bool
    default: true
extends_documentation_fragment:
  - connection_pipelining
"""

Output = tuple[int, bytes, bytes]


class Connection(LocalConnection):
    transport = "frail"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Output:
        if self._is_down():
            return self._suffer()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(in_data or b"")
            stdin.seek(0)
            process = subprocess.Popen(
                cmd, shell=True, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        while True:
            try:
                out, err = process.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                if self._is_down():
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                    return self._suffer()
            else:
                return process.returncode, out, err

    def reset(self) -> None:
        self.close()

    @property
    def _fate(self) -> Path:
        return Path(t.cast(str, self.get_option("fate")))

    def _is_down(self) -> bool:
        return self._fate.exists()

    def _suffer(self) -> Output:
        fate = json.loads(self._fate.read_text())
        fate["times"] -= 1
        if fate["times"]:
            # Several tasks may suffer at once: the file is whole at any time.
            new = self._fate.with_name(f"{self._fate.name}.{os.getpid()}")
            new.write_text(json.dumps(fate))
            new.replace(self._fate)
        else:
            self._fate.unlink()
        if fate["kind"] == "drop":
            raise AnsibleConnectionFailure("Connection lost, on purpose.")
        return 137, b"", b""
