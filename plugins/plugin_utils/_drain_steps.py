# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The steps that take a host out of service: which a user may write, and what the record says about undoing them."""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t

from ansible_collections.graceful.azure.plugins.plugin_utils._words import printable, quoted

Step = dict[str, t.Any]
Record = t.Mapping[str, t.Any]
PHASE = "drain"
# Never in the record nor in a fact; the tasks take them from the user's steps.
SECRETS = ("password", "sentinel_password")
# The role's own tasks do these, and their work reaches beyond the host.
DONE_BY_TASKS = ("haproxy", "tasks")
TASK_FILES = ("do", "undo", "probe", "undo_probe")
PROBES = ("probe", "undo_probe")
TASK_FILE = re.compile(r"\.ya?ml$")
# What must not be undone twice: a step that failed half-way may have done something.
TO_UNDO = ("doing", "done", "failed")


class WrongStep(Exception):
    """A step that cannot be carried out as it is written."""


class Unusable(Exception):
    """Why a task file cannot be used."""


# Gives the full path of a task file, or raises Unusable; of a probe more is demanded.
Find = t.Callable[[str, bool], str]


def _is_list(value: t.Any) -> bool:
    return isinstance(value, t.Sequence) and not isinstance(value, (str, bytes))


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: t.Any) -> bool:
    """Templates may turn a number into text."""
    try:
        return not isinstance(value, bool) and 0 < float(value) < 1e9
    except (TypeError, ValueError):
        return False


def _is_port(value: t.Any) -> bool:
    return _is_number(value) and float(value).is_integer() and float(value) <= 65535


def _is_bool(value: t.Any) -> bool:
    return isinstance(value, bool) or str(value).lower() in ("true", "false", "yes", "no")


def _is_url(value: t.Any) -> bool:
    return _is_text(value) and re.match(r"https?://[^/\s]+", value) is not None


def _is_network(value: t.Any) -> bool:
    try:
        ipaddress.ip_network(str(value), strict=False)
    except ValueError:
        return False
    return _is_text(value)


def _is_status(value: t.Any) -> bool:
    return _is_number(value) and 100 <= float(value) <= 599


def _list_of(check: t.Callable[[t.Any], bool]) -> t.Callable[[t.Any], bool]:
    return lambda value: _is_list(value) and bool(value) and all(map(check, value))


def _is_socket(value: t.Any) -> bool:
    allowed = {"host", "socket"}
    return isinstance(value, t.Mapping) and set(value) == allowed and all(map(_is_text, value.values()))


def _is_sentinel(value: t.Any) -> bool:
    if not isinstance(value, t.Mapping) or not {"host"} <= set(value) <= {"host", "port"}:
        return False
    return _is_text(value["host"]) and _is_port(value.get("port", 26379))


def _is_condition(value: t.Any) -> bool:
    """A task file, one condition, or several."""
    return _is_text(value) or isinstance(value, bool) or _list_of(_is_text)(value)


class Value(t.NamedTuple):
    words: str
    fits: t.Callable[[t.Any], bool]


TEXT = Value("a text", _is_text)
NUMBER = Value("a number above 0", _is_number)
PORT = Value("a port number", _is_port)
BOOL = Value("true or false", _is_bool)
URL = Value("a URL of http or https", _is_url)


class Kind(t.NamedTuple):
    required: t.Mapping[str, Value] = {}
    optional: t.Mapping[str, Value] = {}
    one_of: t.Sequence[str] = ()

    @property
    def keys(self) -> dict[str, Value]:
        return {**self.required, **self.optional}


KINDS: t.Mapping[str, Kind] = {
    "health_probe": Kind(
        {"url": URL},
        {
            "marker": Value("the absolute path of a file", lambda value: _is_text(value) and value.startswith("/")),
            "marker_means": Value("out or in", lambda value: value in ("out", "in")),
            "out_url": URL,
            "in_url": URL,
            "method": TEXT,
            "interval": NUMBER,
            "threshold": NUMBER,
            "healthy": Value("a list of HTTP statuses", _list_of(_is_status)),
            "must_answer": BOOL,
        },
        one_of=("marker", "out_url"),
    ),
    "haproxy": Kind(
        {
            "backend": TEXT,
            "server": TEXT,
            "sockets": Value("a list of {host: inventory name, socket: path or host:port}", _list_of(_is_socket)),
        }
    ),
    "connections": Kind(
        {"ports": Value("a list of port numbers", _list_of(_is_port))},
        {"ignore_from": Value("a list of addresses or networks", _list_of(_is_network))},
    ),
    "services": Kind({"services": Value("a list of service names", _list_of(_is_text))}, {"use": TEXT}),
    "patroni": Kind(
        {},
        {
            "url": URL,
            "candidate": TEXT,
            "username": TEXT,
            "password": TEXT,
            "ca_file": TEXT,
            "validate_certs": BOOL,
        },
    ),
    "redis_sentinel": Kind(
        {"master_name": TEXT},
        {
            "host": TEXT,
            "port": PORT,
            "username": TEXT,
            "password": TEXT,
            "sentinels": Value("a list of {host, port}", _list_of(_is_sentinel)),
            "sentinel_username": TEXT,
            "sentinel_password": TEXT,
        },
    ),
    "pacemaker": Kind({}, {"node": TEXT}),
    "tasks": Kind(
        {
            "do": Value("a task file (.yml)", lambda value: _is_text(value) and TASK_FILE.search(value) is not None),
            "probe": Value("a condition or a task file (.yml)", _is_condition),
        },
        {
            "undo": Value("a task file (.yml)", lambda value: _is_text(value) and TASK_FILE.search(value) is not None),
            "undo_probe": Value("a condition or a task file (.yml)", _is_condition),
        },
    ),
}
COMMON = {"timeout": NUMBER}


def checked(steps: t.Any, find: Find = lambda name, probe: name) -> list[Step]:
    """The user's steps, each proven to be one that can be carried out."""
    if not _is_list(steps):
        raise WrongStep(f"The drain steps have to be a list, not {_type(steps)}.")
    result: list[Step] = []
    for number, given in enumerate(steps, 1):
        step = _checked_step(number, given, find)
        if step["name"] in [each["name"] for each in result]:
            raise WrongStep(f"Two drain steps have the name {quoted(step['name'])}. Give each its own.")
        result.append(step)
    return result


def _checked_step(number: int, given: t.Any, find: Find) -> Step:
    if not isinstance(given, t.Mapping):
        raise WrongStep(f"Drain step {number} has to be a dictionary with a name and a kind, not {_type(given)}.")
    if not _is_text(given.get("name")):
        raise WrongStep(f"Drain step {number} has no name. Give it one, an operator will read it.")
    where = f"Drain step {quoted(given['name'])}"
    kind = KINDS.get(given["kind"]) if isinstance(given.get("kind"), str) else None
    if kind is None:
        said = f"has the unknown kind {quoted(str(given['kind']))}" if "kind" in given else "has no kind"
        raise WrongStep(f"{where} {said}. Kinds are: {', '.join(KINDS)}.")
    where += f" ({given['kind']})"
    options = {key: value for key, value in given.items() if key not in ("name", "kind")}
    allowed = {**kind.keys, **COMMON}
    for key in options:
        if key not in allowed:
            raise WrongStep(f"{where} has the unknown key {quoted(str(key))}. Allowed are: {', '.join(allowed)}.")
    for key in kind.required:
        if key not in options:
            raise WrongStep(f"{where} lacks the key {key}, {kind.required[key].words}.")
    if kind.one_of and sum(key in options for key in kind.one_of) != 1:
        raise WrongStep(f"{where} needs exactly one of: {', '.join(kind.one_of)}.")
    if ("out_url" in options) != ("in_url" in options):
        raise WrongStep(f"{where} needs both out_url and in_url.")
    for key, value in options.items():
        if not allowed[key].fits(value):
            raise WrongStep(f"{where}: {key} has to be {allowed[key].words}.")
    if given["kind"] == "tasks":
        options = _with_files_found(where, options, find)
    timeout = options.pop("timeout", None)
    return {
        "name": given["name"],
        "kind": given["kind"],
        "timeout": None if timeout is None else float(timeout),
        "options": {key: value for key, value in options.items() if key not in SECRETS},
    }


def _with_files_found(where: str, options: Step, find: Find) -> Step:
    found = dict(options)
    for key, name in _files_of(options):
        try:
            found[key] = find(name, key in PROBES)
        except Unusable as exc:
            raise WrongStep(f"{where}: {key} is {quoted(name, 200)}, {exc}.") from exc
    return found


def _files_of(options: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    values = [(key, options.get(key)) for key in TASK_FILES]
    return [(key, value) for key, value in values if isinstance(value, str) and TASK_FILE.search(value)]


def _type(value: t.Any) -> str:
    names = {"str": "text", "dict": "a dictionary", "NoneType": "nothing", "bool": "a truth value"}
    return next((names[kind.__name__] for kind in type(value).__mro__ if kind.__name__ in names), "something else")


def with_record(steps: t.Sequence[Step], record: Record | None) -> list[Step]:
    """Each step with what the record knows of it; how it was before the first attempt is what the undo will need."""
    known = {entry["name"]: entry for entry in _drained(record)}
    for step in steps:
        kind = known[step["name"]]["kind"] if step["name"] in known else step["kind"]
        if kind != step["kind"]:
            raise WrongStep(
                f"Drain step {quoted(step['name'])} is of kind {step['kind']}, but an earlier run left one of that "
                f"name and of kind {printable(kind)} that is not undone. Give the new one another name."
            )
    return [_remembering(step, known.get(step["name"])) for step in steps]


def to_undo(record: Record | None, steps: t.Any = (), find: Find = lambda name, probe: name) -> list[Step]:
    """What the record says was begun and not undone, last first, as it was done.

    A record is the word of its host, and of whoever rules that host. What reaches beyond it, to other machines and to
    files of the controller, is therefore taken from what the user has written and nowhere else.
    """
    result = []
    for entry in reversed(_drained(record)):
        kept = entry["data"].get("step") or {}
        step = {"name": entry["name"], "kind": entry["kind"], "timeout": kept.get("timeout")}
        done = kept.get("options", {})
        beyond = entry["kind"] in DONE_BY_TASKS
        step.update(_as_written(entry, done, steps, find) if beyond else {"options": done})
        result.append(_remembering(step, entry))
    return result


def _as_written(entry: Record, done: t.Mapping[str, t.Any], steps: t.Any, find: Find) -> Step:
    """The options that the user's steps now have for what was done, or why it cannot be undone with them."""
    name, kind = entry["name"], entry["kind"]
    given = [step for step in steps if isinstance(step, t.Mapping)] if _is_list(steps) else []
    try:
        mine = checked([step for step in given if (step.get("name"), step.get("kind")) == (name, kind)], find)
        why = "" if mine else "It is not among the drain steps any more."
    except WrongStep as exc:
        mine, why = [], str(exc)
    if not mine:
        return {"options": {}, "broken": f"{why} Define it again, or undo it by hand and remove the event's record"}
    options = mine[0]["options"]
    return {"options": options} if kind != "haproxy" else _where_in_service_before(options, done, entry)


def _where_in_service_before(options: Step, done: t.Mapping[str, t.Any], entry: Record) -> Step:
    """Without the balancers where an operator had taken the server out before the event."""
    servers = (entry["data"].get("before") or {}).get("servers", [])
    were_out = [_place(server) for server in servers if not server.get("in_service", True)]
    written = [_place(socket) for socket in options["sockets"]]
    lost = [" ".join(map(str, place)) for place in map(_place, done.get("sockets", [])) if place not in written]
    left = f"no longer among its sockets and left as they are: {', '.join(lost)}" if lost else ""
    sockets = [socket for socket in options["sockets"] if _place(socket) not in were_out]
    return {"options": {**options, "sockets": sockets}, "left": printable(left)}


def _place(server: t.Mapping[str, t.Any]) -> tuple[t.Any, t.Any]:
    return server.get("host"), server.get("socket")


def before_all(step: Step, now: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """How it was before anything was done: what an earlier, interrupted attempt has seen goes before what is seen now.

    But somebody may have added a service or a balancer to the step since."""
    old = step["before"]
    if step["kind"] == "haproxy":
        pairs = zip(step["options"]["sockets"], now.get("servers", []), strict=False)
        servers = {_place(socket): {**server, **socket} for socket, server in pairs}
        servers.update({_place(server): server for server in (old or {}).get("servers", [])})
        return {**now, "servers": list(servers.values())}
    if step["kind"] == "services" and old:
        running = {*old.get("running", []), *now.get("running", [])}
        wanted = step["options"]["services"]
        return {**old, "running": [*(name for name in wanted if name in running), *sorted(running - {*wanted})]}
    return now if old is None else old


def _drained(record: Record | None) -> list[Record]:
    steps = (record or {}).get("steps", [])
    return [step for step in steps if step["phase"] == PHASE and step["status"] in TO_UNDO]


def _remembering(step: Step, entry: Record | None) -> Step:
    if entry is None:
        return {**step, "recorded": "", "before": None}
    return {**step, "recorded": entry["status"], "before": entry["data"].get("before")}


def task_file(name: str, folders: t.Sequence[str | None]) -> str:
    """The first file of that name in the folders, as a full path."""
    paths = [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in folders if folder]
    for path in paths:
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise Unusable("which is not there")
