# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watcher's configuration: one file that the role writes, and one for root only that has the secrets."""

from __future__ import annotations

import os
import stat
import typing as t

from .._client import Limits
from .._errors import WrongOption
from .._files import read_json
from .._service import Service, service_of
from .._text import clean
from .._transport import PlainTransport

Json = t.Dict[str, t.Any]
VERSION = 1
CLOUDEVENTS, AWX = KINDS = ("cloudevents", "awx")
ALL, AFFECTED = AUDIENCES = ("all", "affected")


class Receiver(t.NamedTuple):
    """Where messages are sent to. What is secret comes from the other file."""

    name: str
    url: str
    kind: str = CLOUDEVENTS
    # Which changes it gets, and whether also those of events that affect other VMs only.
    changes: t.Sequence[str] = ()
    events: str = ALL
    timeout: float = 10.0
    ca_file: str | None = None
    token: str | None = None
    headers: t.Mapping[str, str] = {}
    hmac_secret: str | None = None
    hmac_header: str = "X-Hub-Signature-256"
    hmac_format: str = "hex"
    hmac_prefix: str = "sha256="


class OnItsOwn(t.NamedTuple):
    """What the host needs to drain itself, as a run would give it to the engine."""

    steps: t.Sequence[Json] = ()
    checkpoint: t.Sequence[Json] = ()
    health: t.Sequence[Json] = ()
    secrets: t.Mapping[str, Json] = {}
    checkpoint_dir: str = "/var/lib/graceful/checkpoints"
    undo_on_failure: bool = False
    drain_budget: float = 300.0
    policy: t.Sequence[Json] | None = None
    groups: t.Sequence[str] = ()
    # Whether it may approve, and only an event that names no other VM.
    approve: bool = False


class Config(t.NamedTuple):
    path: str
    host: str
    state_dir: str
    record_dir: str = "/var/lib/graceful/records"
    metrics_file: str = ""
    poll_interval: float = 1.0
    endpoint: str = "auto"
    api_version: str = "2020-07-01"
    vm_name: str | None = None
    spool_max: int = 1000
    receivers: t.Sequence[Receiver] = ()
    on_its_own: OnItsOwn | None = None

    def service(self, limits: Limits) -> Service:
        options = {**limits._asdict(), "endpoint": self.endpoint, "api_version": self.api_version}
        return service_of(options, PlainTransport())


def load(path: str) -> Config:
    """Raises WrongOption with what is wrong; the role writes both files anew."""
    content = _read(path)
    if content.get("version") != VERSION:
        raise WrongOption(f"{path} is not of version {VERSION}. Apply the role graceful.azure.watcher again.")
    secrets = _read(str(content["secrets_file"]), secret=True) if content.get("secrets_file") else {}
    hidden = secrets.get("receivers") or {}
    try:
        receivers = [Receiver(**{**given, **hidden.get(given["name"], {})}) for given in content["receivers"]]
        own = content.get("on_its_own")
        given = {key: content[key] for key in Config._fields if key in content}
        given.update(receivers=receivers)
        given.update(on_its_own=OnItsOwn(**{**own, "secrets": secrets.get("steps") or {}}) if own else None)
        config = Config(path=path, **given)
    except (TypeError, KeyError, AttributeError) as exc:
        raise WrongOption(
            f"{path} cannot be used ({clean(exc, 200)}). Apply the role graceful.azure.watcher again."
        ) from exc
    if not os.path.isabs(config.state_dir) or not 0.2 <= config.poll_interval <= 3600:
        raise WrongOption(f"{path}: state_dir has to be an absolute path, and poll_interval 0.2 to 3600 seconds.")
    return config


def _read(path: str, secret: bool = False) -> Json:
    try:
        if secret:
            _demand_private(path, os.stat(path))
        content = read_json(path)
    except OSError as exc:
        raise WrongOption(f"{path}: {exc.strerror or exc}. Apply the role graceful.azure.watcher, as root.") from exc
    except ValueError as exc:
        # The error itself could quote a secret.
        raise WrongOption(f"{path} is not JSON. Apply the role graceful.azure.watcher again.") from exc
    if not isinstance(content, dict):
        raise WrongOption(f"{path} is not a configuration. Apply the role graceful.azure.watcher again.")
    return content


def _demand_private(path: str, status: os.stat_result) -> None:
    """Other users who could read it could start runs; who could write it could run programs as root."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 or status.st_uid not in (0, os.geteuid()):
        raise WrongOption(
            f"{path} (owner {status.st_uid}, mode {mode:04o}) has secrets and can be used by others. "
            "Apply the role graceful.azure.watcher again, and find out who changed it."
        )
