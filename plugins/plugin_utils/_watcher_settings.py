# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of the watcher of a host: receivers, and its work on its own. Secrets are separate. Pure."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ..module_utils import _checkpoints, _drains
from ..module_utils import _option_checks as check
from ..module_utils._document import EVENT_FIELDS, KNOWN_TYPES
from ..module_utils._kind import Kind
from ..module_utils._text import clean, count, quoted
from ..module_utils._watcher import config as configuration
from ..module_utils._watcher.changes import APPEARED, BACK, CHANGES
from ..module_utils._watcher.metrics import FILE
from ._options import validated
from ._settings import CONNECTION, Settings, WrongSetting

Json = dict[str, t.Any]
DRAIN_NOT_SET = "graceful_drain_steps is not set: a host on its own needs it. [] means that nothing has to be drained."
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PARTS: t.Mapping[str, tuple[str, str, t.Callable[[str], type[Kind]]]] = {
    "drain_steps": ("drain", "Drain step", _drains.load),
    "checkpoint": ("checkpoint", "Checkpoint", _checkpoints.load),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
_LAUNCH = re.compile(r"[^?#]*/(workflow_)?job_templates/[^/]+/launch/([?#]|$)")

RECEIVER_OPTIONS: dict[str, Json] = {
    "name": {"description": "What it is called; letters, digits, `.`, `-` and `_`.", "type": "str", "required": True},
    "kind": {
        "description": "`cloudevents` posts the message to a webhook or event stream of Event-Driven Ansible, or to "
        "any URL. `awx` launches a job template with the message as the extra variable `graceful_event`.",
        "type": "str",
        "choices": list(configuration.KINDS),
        "default": configuration.CLOUDEVENTS,
    },
    "url": {
        "description": "Where to post to. For `awx` the address that launches, such as "
        "`https://awx.example.com/api/v2/job_templates/42/launch/` or, behind a gateway, "
        "`https://aap.example.com/api/controller/v2/job_templates/42/launch/`.",
        "type": "str",
        "required": True,
        "no_log": True,
    },
    "token": {"description": "Sent as a Bearer token.", "type": "str", "no_log": True},
    "hmac_secret": {"description": "Signs the body, with SHA-256.", "type": "str", "no_log": True},
    "hmac_header": {
        "description": "The header for the signature.",
        "type": "str",
        "default": "X-Hub-Signature-256",
    },
    "hmac_format": {
        "description": "How the signature is written.",
        "type": "str",
        "choices": ["hex", "base64"],
        "default": "hex",
    },
    "hmac_prefix": {"description": "What comes before it.", "type": "str", "default": "sha256="},
    "headers": {"description": "Headers to send along.", "type": "dict", "no_log": True},
    "changes": {
        "description": "Which changes it is told. By default all, and for `awx` `appeared` and `back`.",
        "type": "list",
        "elements": "str",
        "choices": list(CHANGES),
    },
    "events": {
        "description": "Of which events: `all` that this VM sees, or those that name it (`affected`). By default "
        "`all`, and for `awx` `affected`: each host that tells launches a job.",
        "type": "str",
        "choices": list(configuration.AUDIENCES),
    },
    "timeout": {"description": "Seconds that one try may take in all.", "type": "float", "default": 10.0},
    "ca_file": {
        "description": "A file on the host with the certificates to trust. By default those of the system. TLS is "
        "verified always.",
        "type": "str",
    },
}


class Prepared(t.NamedTuple):
    """What goes to the host."""

    config: Json
    secrets: Json
    # What a host on its own cannot do.
    not_covered: list[str]
    warnings: list[str]


def receivers(given: t.Any) -> tuple[list[Json], Json, list[str]]:
    """The receivers without their secrets, the secrets by name, and warnings. Raises WrongSetting, which quotes no
    value, because it may be secret."""
    if not isinstance(given, (list, tuple)):
        raise WrongSetting("watcher_receivers has to be a list.")
    plain: list[Json] = []
    secrets: Json = {}
    warnings: list[str] = []
    for number, item in enumerate(given):
        where = f"watcher_receivers[{number}]"
        receiver = _receiver(item, where)
        name = receiver["name"]
        if name in secrets:
            raise WrongSetting(f"{where} has the same name as another one, {quoted(name)}.")
        hidden = {key for key, option in RECEIVER_OPTIONS.items() if option.get("no_log")}
        secrets[name] = {key: receiver[key] for key in sorted(hidden) if receiver[key]}
        plain.append({key: value for key, value in receiver.items() if key not in hidden})
        if _is_open(receiver):
            warnings.append(f"{where} ({clean(name, 60)}) has a secret that is sent without encryption: use https.")
    return plain, secrets, warnings


def _receiver(item: t.Any, where: str) -> Json:
    receiver = validated(item, RECEIVER_OPTIONS, where)
    awx = receiver["kind"] == configuration.AWX
    receiver["changes"] = receiver["changes"] or ([APPEARED, BACK] if awx else list(CHANGES))
    receiver["events"] = receiver["events"] or (configuration.AFFECTED if awx else configuration.ALL)
    receiver["headers"] = {str(key): str(value) for key, value in (receiver["headers"] or {}).items()}
    mistake = _mistake(receiver)
    if mistake:
        raise WrongSetting(f"{where}: {mistake}")
    return receiver


def _mistake(receiver: Json) -> str:
    name_is_right = _NAME.fullmatch(receiver["name"])
    launches = receiver["kind"] != configuration.AWX or _LAUNCH.match(receiver["url"])
    header = {receiver["hmac_header"]: receiver["hmac_prefix"]}
    token = {"Authorization": receiver["token"] or ""}
    return check.first(
        "" if name_is_right else "name has to be letters, digits, '.', '-' and '_', up to 41 characters.",
        check.http_url("url", receiver["url"]),
        check.positive("timeout", receiver["timeout"], 600),
        check.headers("headers", receiver["headers"]),
        check.headers("hmac_header and hmac_prefix", header),
        # As it is a header, its value is not quoted.
        "token has to be one line of text." if check.headers("token", token) else "",
        "" if (receiver["ca_file"] or "/").startswith("/") else "ca_file has to be an absolute path.",
        "" if launches else "for kind awx, url has to end with /job_templates/NUMBER/launch/.",
    )


def _is_open(receiver: Json) -> bool:
    parts = urlsplit(receiver["url"])
    return parts.scheme == "http" and parts.hostname not in LOOPBACK and bool(receiver["token"] or receiver["headers"])


# ---- what the host does on its own


def sample_events() -> list[Json]:
    """An event of each type, with different values in all fields: a setting that differs depends on the event."""
    return [
        {
            **{name: f"{name}-{kind}" for name in EVENT_FIELDS},
            **dict.fromkeys(("resource_type", "affects_me")),
            **dict.fromkeys(("seconds_left", "duration_seconds"), number),
            "event_type": kind,
            "resources": [f"leader-{kind}"],
        }
        for number, kind in enumerate(KNOWN_TYPES)
    ]


def settings_mistakes(settings: Settings, on_its_own: bool) -> list[str]:
    """The mistakes because of which the watcher cannot be installed."""
    if on_its_own:
        return settings.messages + [DRAIN_NOT_SET] * settings.drain_not_set
    return settings.connection_messages


def on_its_own(variants: t.Sequence[Settings], groups: t.Sequence[str], approve: bool) -> tuple[Json, Json, list[str]]:
    """What the host does on its own, its secrets, and what it cannot do. `variants`: the settings for each sample."""
    values = variants[0].values
    secrets: Json = {}
    not_covered: list[str] = []
    covered: dict[str, list[Json]] = {}
    for key, (phase, noun, _load) in PARTS.items():
        covered[key] = []
        masked = {item["name"]: item for item in values[key].masked}
        for item, secret, reason in _judged(key, variants):
            if reason:
                not_covered.append(f"{noun} {quoted(item['name'])} ({item['kind']}): {reason}.")
                continue
            covered[key].append(masked[item["name"]])
            if secret is not None:
                secrets[f"{phase}/{item['name']}"] = secret
    if all(one.values["health"] == values["health"] for one in variants):
        secrets.update(values["health"].secrets)
        health = values["health"].masked
    else:
        health = []
        not_covered.append("Health checks: they depend on the event, and a host on its own cannot evaluate templates.")
    why_not = _why_no_approval(values, [one for one in not_covered if one.startswith("Drain")]) if approve else ""
    if why_not:
        not_covered.append(f"Approval: {why_not}.")
    config = {
        "steps": covered["drain_steps"],
        "checkpoint": covered["checkpoint"],
        "health": health,
        **{key: values[key] for key in ("checkpoint_dir", "undo_on_failure", "drain_budget", "policy")},
        "groups": sorted(groups),
        "approve": approve and not why_not,
    }
    return config, secrets, not_covered


def _judged(key: str, variants: t.Sequence[Settings]) -> t.Iterator[tuple[Json, t.Any, str]]:
    """Each step or checkpoint, in order, with its secret, and the reason if the host cannot do it on its own."""
    phase, _noun, load = PARTS[key]
    parts = [
        {item["name"]: (item, part.secrets.get(f"{phase}/{item['name']}")) for item in part.items}
        for part in (one.values[key] for one in variants)
    ]
    # The first of items that differ.
    first = {name: found for part in reversed(parts) for name, found in part.items()}
    for name in dict.fromkeys(name for part in parts for name in part):
        item, secret = first[name]
        reason = ""
        if load(item["kind"]).by_controller:
            reason = "the controller takes this step"
        elif item["options"].get("to") == "controller":
            reason = "its archive is copied to the controller"
        elif any(part.get(name) != (item, secret) for part in parts):
            reason = "it depends on the event, and a host on its own cannot evaluate templates"
        yield item, secret, reason


def _why_no_approval(values: Json, steps: t.Sequence[str]) -> str:
    if steps:
        return f"{count(len(steps), 'drain step')} cannot be taken without a controller"
    if values["confirm"]:
        return "graceful_confirm is set, so a person has to be asked"
    if values["min_available"] is not None:
        return "graceful_min_available is set, and a host on its own does not know the others"
    return ""


def prepared(host: str, options: Json, variants: t.Sequence[Settings], groups: t.Sequence[str]) -> Prepared:
    """The two files of a host. Raises WrongSetting."""
    plain, hidden, warnings = receivers(options["receivers"])
    values = variants[0].values
    work: Json | None = None
    step_secrets: Json = {}
    not_covered: list[str] = []
    if options["on_its_own"]:
        work, step_secrets, not_covered = on_its_own(variants, groups, options["approve_alone"])
    metrics_dir = options["metrics_dir"].rstrip("/")
    config: Json = {
        "version": configuration.VERSION,
        "host": host,
        "metrics_file": f"{metrics_dir}/{FILE}" if metrics_dir else "",
        **{key: options[key] for key in ("state_dir", "poll_interval", "spool_max", "secrets_file")},
        **{key: values[key] for key in CONNECTION},
        "receivers": plain,
        "on_its_own": work,
    }
    return Prepared(config, {"receivers": hidden, "steps": step_secrets}, not_covered, warnings)
