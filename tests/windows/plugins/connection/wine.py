# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase
from ansible_collections.graceful.azure.tests.windows import windows

DOCUMENTATION = """
name: wine
short_description: A host with Windows, which is a PowerShell under Wine on this machine
description:
  - For the tests. Modules run as they do on Windows, through ansible-core's own wrapper for PowerShell.
author: graceful.azure contributors (@graceful)
options:
  remote_addr:
    description: Not used.
    type: str
    vars:
      - name: inventory_hostname
      - name: ansible_host
  fate:
    description:
      - A file with JSON. While it is there, what runs is killed and nothing new begins.
      - C(kind) is C(drop), the connection fails, or C(kill), the command ends with no output;
        C(times) is how many commands that happens to.
    type: str
    default: ""
    vars:
      - name: fate
  prelude:
    description: PowerShell that runs before ansible-core's wrapper, in its process, to make another host of it.
    type: str
    default: ""
    vars:
      - name: prelude
  prefix:
    description: A folder of Wine's other than the usual one, which makes another host of it.
    type: str
    default: ""
    vars:
      - name: prefix
"""

Output = tuple[int, bytes, bytes]


class Connection(ConnectionBase):
    transport = "wine"
    module_implementation_preferences = (".ps1", ".exe", "")
    allow_executable = False
    has_pipelining = True

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        self.always_pipeline_modules = True
        self.has_native_async = True
        self._shell_type = "powershell"
        super().__init__(*args, **kwargs)

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Output:
        if self._is_down():
            return self._suffer()
        program = windows.POWERSHELL_COMMAND[0]
        line = re.sub(r"^.*?(?= -NoProfile )", lambda _found: program, cmd)
        process = windows.Process(self._after_prelude(line), in_data or b"", self.get_option("prefix"))
        while True:
            try:
                done = process.wait(0.2)
            except subprocess.TimeoutExpired:
                if self._is_down():
                    process.kill()
                    return self._suffer()
            else:
                return done.returncode, done.stdout, done.stderr

    def _after_prelude(self, line: str) -> str:
        front, last = line.rsplit(" ", 1)
        # Newer versions of ansible-core quote it for PowerShell, which does not read the command line here.
        encoded, prelude = last.strip("'"), self.get_option("prelude")
        if prelude:
            wrapper = base64.b64decode(encoded).decode("utf-16-le")
            encoded = base64.b64encode(f"{prelude}; $input | & {{ {wrapper} }}".encode("utf-16-le")).decode()
        return f"{front} {encoded}"

    def put_file(self, in_path: str, out_path: str) -> None:
        shutil.copy(in_path, windows.unix_path(out_path))

    def fetch_file(self, in_path: str, out_path: str) -> None:
        shutil.copy(windows.unix_path(in_path), out_path)

    def reset(self) -> None:
        self.close()

    def close(self) -> None:
        self._connected = False

    def _is_down(self) -> bool:
        return bool(self.get_option("fate")) and self._fate.exists()

    @property
    def _fate(self) -> Path:
        return Path(t.cast(str, self.get_option("fate")))

    def _suffer(self) -> Output:
        fate = json.loads(self._fate.read_text())
        fate["times"] -= 1
        if fate["times"]:
            new = self._fate.with_name(f"{self._fate.name}.new")
            new.write_text(json.dumps(fate))
            new.replace(self._fate)
        else:
            self._fate.unlink()
        if fate["kind"] == "drop":
            raise AnsibleConnectionFailure("Connection lost, on purpose.")
        return 1, b"", b""
