# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible_collections.graceful.azure.plugins.modules import watcher_files

from ..module_utils._files import write
from ..module_utils._kind import WINDOWS
from ..module_utils._text import clean
from ..plugin_utils import _watcher_settings as watcher
from ..plugin_utils._host_settings import host_settings
from ..plugin_utils._options import documented
from ..plugin_utils._platform import platform_of
from ..plugin_utils._play import Plugin
from ..plugin_utils._settings import Settings, WrongSetting, misspelt_for_role
from ..plugin_utils._watcher_program import pack

Json = dict[str, t.Any]
# Characters that have a meaning in the quoted paths of a systemd unit.
NOT_IN_PATHS = re.compile(r"""["'\\%$]|[^ -~]""")


class ActionModule(Plugin):
    """Writes the files to Ansible's temporary directory on the controller, which is removed at the end of the run."""

    _requires_connection = False
    OPTIONS = documented(watcher_files)

    def _result(self, options: Json) -> Json:
        variables = self._vars
        if platform_of(self) == WINDOWS:
            raise AnsibleActionFail(
                "The watcher runs on Linux hosts only. Leave this host out of the play: it is a Windows host."
            )
        self._check(options)
        misspelt = misspelt_for_role("watcher", variables)
        if misspelt:
            raise AnsibleActionFail(" ".join(misspelt))
        variants = self._settings(variables, options["on_its_own"])
        host = str(variables.get("inventory_hostname", "host"))
        try:
            prepared = watcher.prepared(host, options, variants, list(variables.get("group_names") or []))
        except WrongSetting as exc:
            raise AnsibleActionFail(clean(exc, 400)) from None
        for warning in prepared.warnings:
            self._display.warning(f"[{host}] {warning}")
        return {
            "not_covered": prepared.not_covered,
            "program": self._written("program", pack()),
            "config": self._written(f"config {host}", _json(prepared.config)),
            "secrets": self._written(f"secrets {host}", _json(prepared.secrets)),
        }

    def _check(self, options: Json) -> None:
        if not 0.2 <= options["poll_interval"] <= 3600:
            raise AnsibleActionFail("watcher_poll_interval has to be 0.2 to 3600 seconds.")
        if not 1 <= options["spool_max"] <= 100_000:
            raise AnsibleActionFail("watcher_spool_max has to be 1 to 100000.")
        paths = {f"watcher_{name}": options[name] for name in ("state_dir", "metrics_dir")}
        for name, path in {**paths, **options["paths"]}.items():
            if path and (not str(path).startswith("/") or NOT_IN_PATHS.search(str(path))):
                raise AnsibleActionFail(f"{name} has to be an absolute path, without quotes, %, $ and backslashes.")
        if options["approve_alone"] and not options["on_its_own"]:
            raise AnsibleActionFail("watcher_approve_alone needs watcher_on_its_own.")

    def _settings(self, variables: Json, on_its_own: bool) -> list[Settings]:
        """The settings of the host; for a host on its own with each sample event, to find what depends on the event."""
        events = watcher.sample_events() if on_its_own else watcher.sample_events()[:1]
        variants = [host_settings(self, variables, event) for event in events]
        mistakes = [message for one in variants for message in watcher.settings_mistakes(one, on_its_own)]
        if mistakes:
            raise AnsibleActionFail(" ".join(dict.fromkeys(mistakes)))
        return variants

    def _written(self, name: str, body: bytes) -> str:
        """The path of the file. Hosts with the same content share it."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass") + b"\n" + body).hexdigest()[:20]
        path = os.path.join(t.cast(t.Any, C).DEFAULT_LOCAL_TMP, f"graceful-watcher-{digest}")
        if not os.path.exists(path):
            # Under another name first: the forks for other hosts may write the same file.
            write(path, body, sync=False, draft=f"{path}.{os.getpid()}")
        return path


def _json(content: Json) -> bytes:
    return json.dumps(_plain(content), indent=1, sort_keys=True).encode("ascii") + b"\n"


def _plain(value: t.Any) -> t.Any:
    """A copy in plain types: the containers of Ansible evaluate templates only when an element is read."""
    if isinstance(value, t.Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
