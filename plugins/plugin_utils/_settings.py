# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All variables that users may set, described once: validation, messages and the table in the guide come from here."""

from __future__ import annotations

import difflib
import re
import typing as t
from pathlib import Path

import yaml

from ..module_utils import _checkpoints, _drains, _health_checks
from ..module_utils import _checks as check
from ..module_utils import _endpoint as endpoint
from ..module_utils import _option_checks as option_check
from ..module_utils._errors import EventsError
from ..module_utils._kind import LINUX, WINDOWS, Kind
from ..module_utils._policy import validate_policy
from ..module_utils._text import clean, masked_all, quoted
from ._capacity import validate_min_available
from ._event_hosts import read_event
from ._options import validated
from ._webhooks import read_webhook
from ._window import validate_window

Json = dict[str, t.Any]
PREFIX = "graceful_"
ROLES = Path(__file__).resolve().parents[2] / "roles"
LONGEST = 86400
DRILLED = ("Reboot", "Redeploy", "Freeze", "Preempt", "Terminate")
# Registered by the roles, not set by users.
INTERNAL = ("host", "pass", "drill")
# AWX passes these artifacts of a run to later jobs of a workflow as extra variables, always all of them.
ARTIFACTS = ("result", "was_drill", "report", "report_data", "events", "host_results")
# How similar a name has to be to be reported as misspelt. The prefix gracefully_ is not similar enough.
NEAR = 0.9
# With the default in place of a wrong value of these, the host could ask the wrong service.
CONNECTION = ("endpoint", "api_version", "vm_name", "record_dir")
# A number of hosts, or a percentage.
BATCH = re.compile(r"0*(?:[1-9][0-9]{0,8}|(?:[1-9][0-9]?|100)%)")
NO_SUCH_VARIABLE = "there is no such variable"
WrongSetting = check.WrongSetting
Checker = t.Callable[[t.Any, str], t.Any]


class Setting(t.NamedTuple):
    """One variable. `where` says what it belongs to: each host, the run, or the drill."""

    type: str
    default: t.Any
    description: str
    check: Checker
    where: str = "host"
    # It comes from outside, so it is never evaluated as a template.
    literal: bool = False


def _text(value: t.Any, name: str) -> str:
    if isinstance(value, (list, t.Mapping)):
        raise check.refuse(name, "a string", value)
    return str(value)


def _endpoint(value: t.Any, name: str) -> str:
    given = _text(value, name).strip()
    return given if given.lower() == "auto" else endpoint.checked(given)


def _path(value: t.Any, name: str) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise check.refuse(name, "an absolute path", value)
    return value


def _windows_path(value: t.Any, name: str) -> str:
    # The host expands an environment variable at the beginning.
    plain = re.sub(r"^%\w+%(?=\\)", "C:", value) if isinstance(value, str) else ""
    if not option_check.is_absolute(WINDOWS, plain):
        raise check.refuse(name, r"an absolute path of Windows, such as D:\graceful,", value)
    return str(value)


def seconds(value: t.Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= LONGEST:
        raise check.refuse(name, f"a number of seconds, up to {LONGEST}", value)
    return number


def _number(value: t.Any, name: str) -> int:
    return check.number(value, name, "a whole number")


def _serial(value: t.Any, name: str) -> list[str]:
    """Sizes of batches: numbers of hosts or percentages."""
    given = value if isinstance(value, (list, tuple)) else [value]
    sizes = [str(size).strip() for size in given]
    if not sizes or not all(map(BATCH.fullmatch, sizes)):
        raise WrongSetting(
            f"{name} is {clean(value, 60)}; it has to be a number of hosts, a percentage, or a list of these."
        )
    return sizes


def _webhooks(value: t.Any, name: str) -> list[t.Any]:
    """No message quotes a value: it may be secret."""
    if not isinstance(value, (list, tuple)):
        raise WrongSetting(f"{name} must be a list.")
    for number, item in enumerate(value):
        read_webhook(item, f"{name}[{number}]")
    return list(value)


class Items(t.NamedTuple):
    """Steps, checkpoints or health checks with validated options, and their secrets separately."""

    items: list[Json]
    secrets: Json

    @property
    def masked(self) -> list[Json]:
        """As they are sent, logged and written to the record: without the secrets in URLs."""
        return [
            {**item, "options": masked_all(item["options"])} if "options" in item else masked_all(item)
            for item in self.items
        ]


def _kinds(package: t.Any, phase: str, noun: str, platform: str = LINUX) -> Checker:
    load: t.Callable[[str], type[Kind]] = package.load

    def possible() -> str:
        return ", ".join(kind for kind in sorted(package.NAMES) if platform in load(kind).platforms)

    def read(value: t.Any, name: str) -> Items:
        items: list[Json] = []
        secrets: Json = {}
        for number, given in enumerate(check.sequence(value, name), 1):
            where = f"{noun} {number} of {name}"
            if not isinstance(given, t.Mapping):
                raise check.refuse(where, "a dictionary with a name and a kind", given)
            title, kind = given.get("name"), given.get("kind")
            if not isinstance(title, str) or not title.strip():
                raise WrongSetting(f"{where} has no name. Set name: messages use it.")
            where = f"{noun} {quoted(title)}"
            if any(item["name"] == title for item in items):
                raise WrongSetting(
                    f"Two entries of {name} have the name {quoted(title)}. Give each entry a different name."
                )
            if not isinstance(kind, str) or kind not in package.NAMES:
                problem = "has no kind" if kind is None else f"has the unknown kind {quoted(kind)}"
                raise WrongSetting(f"{where} {problem}. Kinds are: {possible()}.")
            if platform not in load(kind).platforms:
                raise WrongSetting(
                    f"{where} has the kind {kind}, which is not supported on {platform.title()} hosts. Kinds for them "
                    f"are: {possible()}."
                )
            item, secret = _item(load(kind), given, f"{where} ({kind})", platform)
            items.append({"name": title, "kind": kind, **item})
            if secret:
                secrets[f"{phase}/{title}"] = secret
        return Items(items, secrets)

    return read


def _item(kind: type[Kind], given: t.Mapping[str, t.Any], where: str, platform: str) -> tuple[Json, Json]:
    options = {key: value for key, value in given.items() if key not in ("name", "kind", "timeout")}
    timeout = given.get("timeout")
    if timeout is not None:
        timeout = seconds(timeout, f"{where}: timeout")
        if not timeout:
            raise check.refuse(f"{where}: timeout", "more than 0", timeout)
    checked = validated(options, kind.options, where, kind.rules)
    _refuse(where, kind.mistake(checked) or kind.mistake_on(platform, checked) or _unsupported(kind, options, platform))
    plain, secret = _apart(checked, kind.options)
    return {"timeout": timeout, "options": plain}, secret


def _refuse(where: str, mistake: str) -> None:
    if mistake:
        raise WrongSetting(f"{where}: {mistake}")


def _unsupported(kind: type[Kind], given: t.Mapping[str, t.Any], platform: str) -> str:
    """A message about an option that is set and that hosts of this platform do not have; empty if there is none."""
    for name, option in kind.options.items():
        is_set = given.get(name) not in (None, option.get("default"))
        if is_set and platform not in option.get("platforms", (platform,)):
            return f"{name} is not supported on {platform.title()} hosts. Remove it there."
    return ""


def _apart(checked: Json, options: t.Mapping[str, t.Mapping[str, t.Any]]) -> tuple[Json, Json]:
    """The options without those declared as secrets, and all options that contain a secret, as a URL may do."""
    declared = {name for name, spec in options.items() if spec.get("no_log")}
    plain = {key: value for key, value in checked.items() if key not in declared}
    secret = {key: value for key, value in checked.items() if key in declared or masked_all(value) != value}
    return plain, {key: value for key, value in secret.items() if value is not None}


def _health(value: t.Any, name: str) -> Items:
    items: list[Json] = []
    secrets: Json = {}
    for number, given in enumerate(check.sequence(value, name)):
        where = f"{name}[{number}]"
        checked = validated(given, _health_checks.OPTIONS, where, _health_checks.RULES)
        _refuse(where, _health_checks.mistake(checked))
        plain, secret = _apart(checked, _health_checks.OPTIONS)
        items.append(plain)
        if secret:
            secrets[f"health/{number}"] = secret
    return Items(items, secrets)


def _checked(validate: t.Callable[[t.Any], t.Any]) -> Checker:
    """Validates the value and returns it unchanged: the plan parses it itself."""

    def read(value: t.Any, name: str) -> t.Any:
        validate(value)
        return value

    return read


def _anything(value: t.Any, name: str) -> t.Any:
    return value


def _choice(*allowed: str) -> Checker:
    return lambda value, name: check.choice(value, name, allowed)


SETTINGS: t.Final[t.Mapping[str, Setting]] = {
    "hosts": Setting("str", "all", "Which hosts, a host pattern. An extra variable.", _anything, "run"),
    "drain_steps": Setting(
        "list",
        None,
        "How the host is taken out of service, see [roles/drain](../roles/drain/README.md). `[]` says that nothing has "
        "to be drained. If it is not set, the events of the host are held.",
        _kinds(_drains, "drain", "Drain step"),
    ),
    "checkpoint": Setting(
        "list",
        [],
        "What is saved, see [roles/checkpoint](../roles/checkpoint/README.md).",
        _kinds(_checkpoints, "checkpoint", "Checkpoint"),
    ),
    "health": Setting(
        "list",
        [],
        "Health checks that have to pass before traffic returns, see [roles/restore](../roles/restore/README.md).",
        _health,
    ),
    "policy": Setting("list", None, "What to do about which event, see below.", _checked(validate_policy)),
    "min_available": Setting(
        "raw",
        None,
        "How many hosts of a group have to work, a number or a percentage.",
        _checked(validate_min_available),
    ),
    "window": Setting(
        "dict",
        None,
        "When drains and approvals may happen, if there is enough time before NotBefore.",
        _checked(validate_window),
    ),
    "drain_budget": Setting("int", 300, "Seconds that a drain may need, for capacity and window.", check.number),
    "confirm": Setting(
        "bool",
        False,
        "Ask a person before approving, if this is true for any affected host. Without a terminal the event is held.",
        check.boolean,
    ),
    "undo_on_failure": Setting(
        "bool", False, "Put a host back at once if its drain fails; it is then not tried again.", check.boolean
    ),
    "gone_timeout": Setting(
        "int", 1800, "Seconds after NotBefore until an event has to be gone. No run waits for more than a day.", seconds
    ),
    "vm_name": Setting("str", None, "The Azure name, where the service does not return it (classic VMs).", _text),
    "endpoint": Setting("str", "auto", "Where the metadata service is.", _endpoint),
    "api_version": Setting("str", "2020-07-01", "Version of the metadata service, or `auto`.", _text),
    "record_dir": Setting("path", "/var/lib/graceful/records", "Directory for the record, on the host.", _path),
    "checkpoint_dir": Setting(
        "path", "/var/lib/graceful/checkpoints", "Directory for archives, on a disk of the host that survives.", _path
    ),
    "event": Setting(
        "raw",
        None,
        "The event that the run is started for: a message of the watcher or of an event source, or the event in it. "
        "Only the hosts behind its Resources are asked, see [docs/eda.md](eda.md). An extra variable, never evaluated.",
        read_event,
        "run",
        True,
    ),
    "wait": Setting(
        "float",
        0,
        "Seconds to wait for an announcement. 0: do not wait, handle only what is announced now. An extra variable.",
        seconds,
        "run",
    ),
    "wait_round": Setting(
        "float",
        10,
        "Seconds that one pass of waiting takes at most. After it, the run knows what each host sees. An "
        "extra variable.",
        seconds,
        "run",
    ),
    "serial": Setting(
        "list",
        ["100%"],
        "How many hosts drain at a time: a number, a percentage, or a list of these. The approval comes after the last "
        "batch. Hosts with less than two minutes left come first. An extra variable.",
        _serial,
        "run",
    ),
    "force_claim": Setting(
        "bool",
        False,
        "Take over the claims of another run, for example after its controller was killed. An extra variable.",
        check.boolean,
        "run",
    ),
    "run_name": Setting(
        "str", "", "The name of this run in messages; by default the controller and the time.", _text, "run"
    ),
    "report_dir": Setting("path", "graceful-reports", "Directory for reports, on the controller.", _text, "run"),
    "report_keep": Setting("int", 50, "How many reports and archives are kept there; 0 keeps all.", _number, "run"),
    "report_always": Setting("bool", False, "Write a report also if nothing was announced.", check.boolean, "run"),
    "webhooks": Setting(
        "list", [], "Webhooks that get messages, see [roles/report](../roles/report/README.md).", _webhooks, "run"
    ),
    "drill_consent": Setting("str", "", "Has to be `yes`, otherwise the drill does not start.", _text, "drill"),
    "drill_address": Setting(
        "str", "", "An address of the first Linux host that all hosts reach, of a private network.", _text, "drill"
    ),
    "drill_event": Setting(
        "str", "Reboot", f"What is announced: {', '.join(f'`{name}`' for name in DRILLED)}.", _choice(*DRILLED), "drill"
    ),
    "drill_targets": Setting(
        "list", None, "For whom: host names, as a list or with commas; all by default.", _anything, "drill"
    ),
    "drill_notice": Setting(
        "float",
        None,
        "Seconds of notice; by default the least that Azure gives for the event. The reported margin is "
        "always against Azure's least notice.",
        seconds,
        "drill",
    ),
    "drill_duration": Setting("float", 5, "Seconds that the event lasts.", seconds, "drill"),
    "drill_port": Setting("int", 8801, "The emulator's first port; each host has one.", _number, "drill"),
    "drill_control_port": Setting("int", 8800, "The control port of the emulator.", _number, "drill"),
    "drill_dir": Setting(
        "path", "/opt/azure-events-emulator", "The directory of the emulator on its host.", _path, "drill"
    ),
    "drill_run_by": Setting(
        "str",
        "auto",
        "What keeps it running: `auto`, `systemd`, `process`.",
        _choice("auto", "systemd", "process"),
        "drill",
    ),
}


# The same variables on hosts of each platform.
SETTINGS_ON: t.Final[t.Mapping[str, t.Mapping[str, Setting]]] = {
    LINUX: SETTINGS,
    WINDOWS: {
        **SETTINGS,
        "drain_steps": SETTINGS["drain_steps"]._replace(check=_kinds(_drains, "drain", "Drain step", WINDOWS)),
        "checkpoint": SETTINGS["checkpoint"]._replace(check=_kinds(_checkpoints, "checkpoint", "Checkpoint", WINDOWS)),
        "record_dir": SETTINGS["record_dir"]._replace(default=r"%ProgramData%\graceful\records", check=_windows_path),
        "checkpoint_dir": SETTINGS["checkpoint_dir"]._replace(
            default=r"%ProgramData%\graceful\checkpoints", check=_windows_path
        ),
    },
}


class Settings(t.NamedTuple):
    """The variables of a host or a run. A variable with a mistake has its default, and a message in `mistakes`."""

    values: Json
    mistakes: dict[str, str]
    # graceful_drain_steps is not set, which is not the same as [].
    drain_not_set: bool = False

    @property
    def messages(self) -> list[str]:
        return list(self.mistakes.values())

    @property
    def connection_messages(self) -> list[str]:
        return [text for name, text in self.mistakes.items() if name.removeprefix(PREFIX) in CONNECTION]


def read_settings(
    variables: t.Mapping[str, t.Any],
    template: t.Callable[[t.Any], t.Any],
    where: t.Collection[str] = ("host",),
    platform: str = LINUX,
) -> Settings:
    """Evaluate and validate. What cannot be evaluated is a mistake, never a default."""
    values: Json = {}
    mistakes = misspelt(variables)
    facts = variables.get("ansible_facts")
    facts = facts if isinstance(facts, t.Mapping) else {}
    for key, setting in SETTINGS_ON[platform].items():
        name = PREFIX + key
        if setting.where not in where:
            continue
        values[key] = setting.default
        if variables.get(name) is None:
            continue
        if name in facts and facts[name] == variables[name]:
            # Facts take precedence over the inventory, and a host must not decide what is done to it.
            mistakes[name] = (
                f"{name} is a fact that the host returned, which is not accepted. Remove the fact, and set the "
                "variable in the inventory."
            )
            continue
        try:
            value = variables[name] if setting.literal else template(variables[name])
            # A survey or a template returns an empty text where something is not set.
            if value is not None and (value != "" or isinstance(setting.default, str)):
                values[key] = setting.check(value, name)
        except (check.WrongSetting, EventsError) as exc:
            message = clean(exc, 400)
            mistakes[name] = message if name in message else f"{name}: {message}"
        except Exception as exc:
            # Newer versions of ansible-core evaluate nested templates only when the value is checked.
            reason = clean(getattr(exc, "message", None) or exc, 300).rstrip(".")
            mistakes[name] = f"{name} cannot be evaluated: {reason}."
    drain_not_set = values.get("drain_steps", True) is None and "graceful_drain_steps" not in mistakes
    values.update({key: Items([], {}) for key in ("drain_steps", "checkpoint", "health") if not values.get(key, True)})
    return Settings(values, mistakes, drain_not_set)


def misspelt(variables: t.Mapping[str, t.Any]) -> dict[str, str]:
    """A message for each variable with our prefix that does not exist, with the most similar name."""
    found = {}
    results = [key for key in INTERNAL if registered(variables, key)]
    artifacts = ARTIFACTS if all(PREFIX + key in variables for key in ARTIFACTS) else ()
    known = {*SETTINGS, *results, *artifacts}
    for name in variables:
        if not isinstance(name, str) or not name.startswith(PREFIX):
            meant = _meant(name) if isinstance(name, str) else ""
            if meant:
                found[name] = f"{clean(name, 80)} is set, but {NO_SUCH_VARIABLE}. Did you mean {meant}?"
            continue
        key = name[len(PREFIX) :]
        if key not in known:
            near = difflib.get_close_matches(key, list(SETTINGS), 1)
            hint = f"Did you mean {PREFIX}{near[0]}?" if near else "docs/maintenance.md lists all variables."
            found[name] = f"{clean(name, 80)} is set, but {NO_SUCH_VARIABLE}. {hint}"
    return found


def _meant(name: str) -> str:
    """The variable that is probably meant, if the name ends like one of ours and its prefix is similar to ours."""
    prefix, _line, key = name.lower().partition("_")
    # Checked first, because this runs for every variable of every host.
    if not prefix.startswith("gra") or key not in SETTINGS:
        return ""
    near = difflib.SequenceMatcher(None, f"{prefix}_", PREFIX).ratio() > NEAR
    return PREFIX + key if near else ""


def misspelt_for_role(role: str, variables: t.Mapping[str, t.Any]) -> list[str]:
    """A message for each variable with a name similar to that of an option of the role that is not set."""
    spec = yaml.safe_load((ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    options = {name: one for entry in spec["argument_specs"].values() for name, one in entry["options"].items()}
    unset = [name for name, one in options.items() if variables.get(name) == one.get("default")]
    found = []
    for name in variables:
        if isinstance(name, str) and name.startswith(f"{role}_") and name not in options:
            near = difflib.get_close_matches(name, unset, 1, NEAR)
            found += [f"{clean(name, 80)} is set, but {NO_SUCH_VARIABLE}. Did you mean {one}?" for one in near]
    return found


def registered(variables: t.Mapping[str, t.Any], key: str) -> Json:
    """What a role has registered, which is a dictionary. Anything else was set by a user."""
    value = variables.get(PREFIX + key)
    return dict(value) if isinstance(value, t.Mapping) else {}
