# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what is made from other files of the collection; with --check, only say what is out of date and fail.

To add a part, write a function that returns its text and add a line to PARTS.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import itertools
import json
import re
import sys
import textwrap
import types
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "ansible_collections.graceful.azure"
MODULE_UTILS = f"{COLLECTION}.plugins.module_utils"
# How a marker is written, by the file's suffix.
COMMENTS = {".md": "<!-- {} -->", ".yml": "      # {}", ".py": "    # {}"}

LOADER = '''\
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# It is made from the files beside it: run `make generate` instead of editing it.

"""The kinds of {nouns}."""

from __future__ import annotations

import functools

from .._kind import load_kind

NAMES: tuple[str, ...] = (
{names}
)  # fmt: skip
load = functools.partial(load_kind, f"{{__name__}}.", "{class_name}", "{nouns}", NAMES)


def _sent_to_hosts() -> None:
    """Never called: Ansible sends to a host what is imported somewhere in the text of a module."""
    from . import (  # noqa: F401
{imports}
    )
'''


class Incomplete(Exception):
    """What is missing in a file that something is made from."""


class Folder(t.NamedTuple):
    """Where the kinds of one sort are."""

    name: str
    class_name: str
    nouns: str

    @property
    def kinds(self) -> list[str]:
        directory = ROOT / "plugins" / "module_utils" / self.name
        return sorted(file.stem for file in directory.glob("[!_]*.py"))

    def load(self, kind: str) -> t.Any:
        found = getattr(importlib.import_module(f"{MODULE_UTILS}.{self.name}.{kind}"), self.class_name, None)
        if found is None:
            raise Incomplete(f"{self.name}/{kind}.py: it has no class {self.class_name}.")
        return found


DRAINS = Folder("_drains", "Step", "drain steps")
CHECKPOINTS = Folder("_checkpoints", "Item", "checkpoints")


def loader(folder: Folder) -> str:
    names = " ".join(f'"{name}",' for name in folder.kinds)
    return LOADER.format(
        class_name=folder.class_name,
        nouns=folder.nouns,
        names=textwrap.fill(names, 120, initial_indent=" " * 4, subsequent_indent=" " * 4),
        imports="\n".join(f"        {name}," for name in folder.kinds),
    )


def kind_tables(folder: Folder) -> str:
    return "\n".join(_kind_section(name, folder.load(name), f"{folder.name}/{name}.py") for name in folder.kinds)


def _kind_section(name: str, kind: t.Any, file: str) -> str:
    remarks = [
        kind.summary,
        "" if len(kind.platforms) > 1 else f"Only on {kind.platforms[0].title()} hosts.",
        "The controller takes this step." if kind.by_controller else "",
        "It carries traffic, so it is undone last, after the health checks." if kind.carries_traffic else "",
    ]
    lines = [f"### `{name}`", "", " ".join(filter(None, remarks)), ""]
    if kind.options:
        lines += option_table(kind.options, kind.rules, file)
    else:
        lines.append("It has no options.")
    return "\n".join([*lines, ""])


def platform_table() -> str:
    """Which hosts can do which kinds."""
    columns = {"on both": ("linux", "windows"), "only on Linux": ("linux",), "only on Windows": ("windows",)}
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for folder in (DRAINS, CHECKPOINTS):
        platforms = {kind: folder.load(kind).platforms for kind in folder.kinds}
        cells = [", ".join(f"`{kind}`" for kind in platforms if platforms[kind] == each) for each in columns.values()]
        lines.append(f"| {folder.nouns} | {' | '.join(cells)} |")
    return "\n".join(lines)


def option_table(options: t.Mapping[str, t.Any], rules: t.Mapping[str, t.Any], file: str) -> list[str]:
    """`file` is where the options are described, for the message about one that is not."""
    rows = [f"| {' | '.join(row)} |" for row in _option_rows(options, file)]
    return ["| option | type | default | |", "|---|---|---|---|", *rows, *_rule_lines(rules)]


def _option_rows(options: t.Mapping[str, t.Any], file: str, prefix: str = "") -> t.Iterator[tuple[str, ...]]:
    for name, option in options.items():
        for key in ("type", "description"):
            if key not in option:
                raise Incomplete(f"{file}: option {prefix}{name} has no {key}.")
        shown = f"**`{prefix}{name}`**" if option.get("required") else f"`{prefix}{name}`"
        kind = f"list of {option['elements']}" if option.get("elements") else option["type"]
        default = "required" if option.get("required") else _shown(option.get("default"))
        remarks = [option["description"]]
        if option.get("choices"):
            remarks.append(f"One of {', '.join(f'`{choice}`' for choice in option['choices'])}.")
        if option.get("platforms"):
            remarks.append(f"Only on {' and '.join(option['platforms']).title()} hosts.")
        if option.get("no_log"):
            remarks.append("A secret: it is never recorded.")
        yield shown, kind, default, " ".join(remarks).replace("|", "\\|")
        yield from _option_rows(option.get("options", {}), file, f"{prefix}{name}[].")


def settings_table(*places: str) -> str:
    """The variables that a user may write, of these places: each host's, those of the run, those of a drill."""
    settings = importlib.import_module(f"{COLLECTION}.plugins.plugin_utils._settings")
    rows = [
        f"| `{settings.PREFIX}{name}` | {one.type} | {_shown(one.default)} | {one.description} |"
        for name, one in settings.SETTINGS.items()
        if one.where in places
    ]
    return "\n".join(["| variable | type | default | |", "|---|---|---|---|", *rows])


def settings_items(*places: str) -> str:
    """The same for ansible-doc, in a role's description. As options, Ansible would check them, and lose hosts."""
    settings = importlib.import_module(f"{COLLECTION}.plugins.plugin_utils._settings")
    lines = []
    for name, one in settings.SETTINGS.items():
        if one.where in places:
            default = f", default {_shown(one.default)}" if _shown(one.default) else ""
            text = _in_ansible_markup(f"`{settings.PREFIX}{name}` ({one.type}{default}) - {one.description}")
            wrapped = textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False)
            # With the empty line that it ends with, ansible-doc shows it as a paragraph of its own.
            lines += ["      - >+", *(f"        {line}" for line in wrapped), ""]
    return "\n".join(lines)


def _in_ansible_markup(text: str) -> str:
    text = re.sub(r"\[roles/(\w+)\]\([^)]*\)", r"P(graceful.azure.\1#role)", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("see below", "see the guide")
    return re.sub(r"`([^`]*)`", r"C(\1)", text)


def policy_table() -> str:
    """The rules that hold where nobody wrote others."""
    policy = importlib.import_module(f"{COLLECTION}.plugins.module_utils._policy")
    rows = []
    for rule in policy.DEFAULT_POLICY:
        shown = {key: value for key, value in rule.items() if key not in ("name", "action", "because")}
        matches = ", ".join(f"`{key}: {json.dumps(value).replace(chr(34), '')}`" for key, value in shown.items())
        rows.append(f"| {rule['name']} | {matches} | `{rule['action']}` | {rule['because']} |")
    return "\n".join(["| rule | matches | action | because |", "|---|---|---|---|", *rows])


def action_table() -> str:
    policy = importlib.import_module(f"{COLLECTION}.plugins.module_utils._policy")
    rows = [f"| `{action.name}` | {action.message} |" for action in policy.ACTIONS.values()]
    return "\n".join(["| action | what is done |", "|---|---|", *rows])


def _shown(default: t.Any) -> str:
    if default is None or default == "":
        return ""
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _rule_lines(rules: t.Mapping[str, t.Any]) -> list[str]:
    """What an option demands of others, as a sentence below the table."""

    def groups(rule: str) -> list[str]:
        return [_names(group) for group in rules.get(rule, ())]

    needed, exclusive = groups("required_one_of"), groups("mutually_exclusive")
    sentences = [f"{'Exactly' if names in exclusive else 'At least'} one of {names}." for names in needed]
    sentences += [f"At most one of {names}." for names in exclusive if names not in needed]
    sentences += [f"{names} only together." for names in groups("required_together")]
    for name, others in rules.get("required_by", {}).items():
        sentences.append(f"`{name}` only with {_names(others)}.")
    return ["", " ".join(sentences)] if sentences else []


def _names(names: t.Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def receiver_table() -> str:
    settings = importlib.import_module(f"{COLLECTION}.plugins.plugin_utils._watcher_settings")
    return "\n".join(option_table(settings.RECEIVER_OPTIONS, {}, "_watcher_settings.py"))


def health_table() -> str:
    checks = importlib.import_module(f"{MODULE_UTILS}._health_checks")
    return "\n".join(option_table(checks.OPTIONS, checks.RULES, "_health_checks.py"))


# Its documentation is that of the module for Linux: the same task, options and results.
TWINS = ("scheduled_events_info", "scheduled_event_approve", "scheduled_events_wait", "host_maintenance")
TWIN = """\
# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# It is made from the documentation of {name}.py: run `make generate` instead of editing it.
DOCUMENTATION:
{documentation}
EXAMPLES: |
{examples}
RETURN:
{result}
"""
TWIN_DIFFERS = {
    "  - graceful.azure.imds.library\n": "",
    "platforms: posix, windows\n": "platforms: windows\n",
    "    details: On Windows, where": "    details: Where",
    "the task runs the Windows module.": "a task of M(graceful.azure.{name}) runs it.",
    "default: /var/lib/graceful/checkpoints": "default: '%ProgramData%\\graceful\\checkpoints'",
    "version_added: 0.1.0": "version_added: 0.2.0",
    "default: /var/lib/graceful/records": "default: '%ProgramData%\\graceful\\records'",
}


def texts_of(name: str) -> dict[str, str]:
    """DOCUMENTATION, EXAMPLES and RETURN of a module."""
    tree = ast.parse((ROOT / "plugins" / "modules" / f"{name}.py").read_text(encoding="utf-8"))
    return {
        t.cast(ast.Name, node.targets[0]).id: node.value.value.strip("\n")
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def event_fields() -> str:
    """The fields of an event, as scheduled_events_info describes them."""
    after = texts_of("scheduled_events_info")["RETURN"].partition("  contains:\n")[2]
    return "\n".join(itertools.takewhile(lambda line: line.startswith("    "), after.splitlines()))


def twin_documentation(name: str) -> str:
    """What ansible-doc shows of the module for Windows."""
    texts = texts_of(name)
    documentation = f"{texts['DOCUMENTATION']}\n".replace(f"module: {name}\n", f"module: win_{name}\n", 1)
    for text, other in TWIN_DIFFERS.items():
        documentation = documentation.replace(text, other.replace("{name}", name))
    indent = functools.partial(textwrap.indent, prefix="  ")
    return TWIN.format(
        name=name,
        documentation=indent(documentation.rstrip("\n")),
        examples=indent(texts["EXAMPLES"]),
        result=indent(texts["RETURN"]),
    )


# The file, the marker in it or None for the whole file, and what makes the text.
PARTS: tuple[tuple[str, str | None, t.Callable[[], str]], ...] = (
    ("plugins/module_utils/_drains/__init__.py", None, functools.partial(loader, DRAINS)),
    ("plugins/module_utils/_checkpoints/__init__.py", None, functools.partial(loader, CHECKPOINTS)),
    ("roles/drain/README.md", "drain kinds", functools.partial(kind_tables, DRAINS)),
    ("roles/watcher/README.md", "receiver options", receiver_table),
    ("roles/checkpoint/README.md", "checkpoint kinds", functools.partial(kind_tables, CHECKPOINTS)),
    ("roles/restore/README.md", "health checks", health_table),
    ("docs/windows.md", "kinds", platform_table),
    ("docs/maintenance.md", "variables", functools.partial(settings_table, "host", "run")),
    ("docs/maintenance.md", "policy", policy_table),
    ("docs/maintenance.md", "actions", action_table),
    ("roles/drill/README.md", "variables", functools.partial(settings_table, "drill")),
    ("roles/maintenance/meta/argument_specs.yml", "variables", functools.partial(settings_items, "host", "run")),
    ("roles/drill/meta/argument_specs.yml", "variables", functools.partial(settings_items, "drill")),
    ("plugins/modules/scheduled_events_wait.py", "event fields", event_fields),
    *((f"plugins/modules/win_{name}.yml", None, functools.partial(twin_documentation, name)) for name in TWINS),
)


def with_part(text: str, marker: str | None, part: str, file: str) -> str:
    """The file's text with the part in its place."""
    if marker is None:
        return part
    comment = COMMENTS[Path(file).suffix]
    begin, end = comment.format(f"begin generated: {marker}"), comment.format("end generated")
    before, found, rest = text.partition(begin)
    _old, ended, after = rest.partition(end)
    if not found or not ended:
        sys.exit(f"{file} has no lines {begin.strip()} and {end.strip()}.")
    return f"{before}{begin}\n{part.rstrip()}\n{end}{after}"


def make_importable() -> None:
    """The collection's own imports work, whatever the checkout is called and wherever it is."""
    sys.dont_write_bytecode = True
    name = ""
    for part in COLLECTION.split("."):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT)] if name == COLLECTION else []
        sys.modules[name] = package


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if something is out of date")
    check = parser.parse_args().check
    make_importable()
    stale = []
    for file, marker, make in PARTS:
        path = ROOT / file
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        try:
            new = with_part(old, marker, make(), file)
        except Incomplete as exc:
            sys.exit(str(exc))
        if new == old:
            continue
        stale.append(file)
        if not check:
            path.write_text(new, encoding="utf-8")
    for file in stale:
        print(f"{file} is out of date. Run make generate." if check else f"{file} is written.")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
