# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file in `_drains/` and `_checkpoints/` is a complete kind, and what is generated from them is up to date."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _checkpoints, _drains
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS, Kind
from ansible_collections.graceful.azure.tests.tools import generate
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import validated

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = {"_drains": (_drains, "Step"), "_checkpoints": (_checkpoints, "Item")}
FILES = {
    f"{folder}/{file.stem}": (folder, file.stem)
    for folder in FOLDERS
    for file in sorted((ROOT / "plugins" / "module_utils" / folder).glob("[!_]*.py"))
}
TYPES = ("str", "int", "float", "bool", "list", "dict", "raw")
RULES = ("required_one_of", "required_together", "mutually_exclusive", "required_by", "required_if")
KEYS = {"type", "elements", "default", "required", "choices", "no_log", "options", "description", "platforms"}
SECRET = re.compile(r"password|passphrase|secret|token|headers|api_key")


def demand(holds: bool, message: str) -> None:
    """For what somebody who writes a kind may forget: the message alone says what to do."""
    if not holds:
        pytest.fail(message, pytrace=False)


def options_in(options: t.Mapping[str, t.Any], prefix: str = "") -> t.Iterator[tuple[str, t.Mapping[str, t.Any]]]:
    for name, option in options.items():
        yield prefix + name, option
        yield from options_in(option.get("options", {}), f"{prefix}{name}.")


def where(kind: type[Kind]) -> str:
    return "{}/{}.py".format(*kind.__module__.split(".")[-2:])


@pytest.fixture(params=list(FILES.values()), ids=list(FILES))
def kind(request: pytest.FixtureRequest) -> type[Kind]:
    folder, name = request.param
    module = importlib.import_module(f"{FOLDERS[folder][0].__name__}.{name}")
    own = [each for _name, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__]
    kinds = [each for each in own if issubclass(each, Kind)]
    one = [each.__name__ for each in kinds] == [FOLDERS[folder][1]]
    demand(one, f"{folder}/{name}.py: write one class {FOLDERS[folder][1]}, and no other kind.")
    found: type[Kind] = kinds[0]
    return found


def test_both_folders_have_kinds() -> None:
    assert {folder for folder, _name in FILES.values()} == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_loader_knows_exactly_the_files(folder: str) -> None:
    loader = FOLDERS[folder][0]
    names = [name for place, name in FILES.values() if place == folder]
    demand(sorted(loader.NAMES) == names, f"{folder}/__init__.py is out of date. Run make generate.")
    for name in names:
        assert loader.load(name).__module__ == f"{loader.__name__}.{name}"
    with pytest.raises(EventsError, match=r'no kind "no.thing".* Kinds are: '):
        loader.load("no'thing")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_host_compiles_only_the_kind_that_it_needs(folder: str) -> None:
    name = FOLDERS[folder][0].NAMES[0]
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT.parents[2])!r})\n"
        f"from {FOLDERS[folder][0].__name__} import load\n"
        f"load({name!r})\n"
        f"print(*sorted(each.rpartition('.')[2] for each in sys.modules if '.{folder}.' in each))\n"
        "print(*(each for each in sys.modules if each.partition('.')[0] == 'ansible'))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[0] == name
    assert not told.splitlines()[1:] or not told.splitlines()[1], "nothing of Ansible is imported"


@pytest.mark.parametrize("name", FILES)
def test_it_has_a_test_of_its_own(name: str) -> None:
    folder, kind = FILES[name]
    test = f"tests/unit/module_utils/{folder}/test_{kind}.py"
    demand((ROOT / test).is_file(), f"Write {test}.")
    demand("\ndef test_" in (ROOT / test).read_text(encoding="utf-8"), f"{test} has no test.")


def test_it_says_in_a_sentence_what_it_does(kind: type[Kind]) -> None:
    assert kind.summary.strip() == kind.summary
    demand(kind.summary.endswith("."), f"{where(kind)}: set summary: what is done, and what is undone.")


def test_it_can_look_do_and_undo_unless_the_controller_does(kind: type[Kind]) -> None:
    verbs = ("do", "undo") if kind.__name__ == "Item" else ("look", "do", "undo")
    defined = [verb for verb in verbs if getattr(kind, verb) is not getattr(Kind, verb)]
    wanted = [] if kind.by_controller or LINUX not in kind.platforms else list(verbs)
    demand(defined == wanted, f"{where(kind)}: it has to have the methods {wanted}, and has {defined}.")


def test_it_is_for_platforms_that_exist_and_so_are_its_options(kind: type[Kind]) -> None:
    assert kind.platforms
    assert set(kind.platforms) <= {LINUX, WINDOWS}
    for name, option in options_in(kind.options):
        assert set(option.get("platforms", kind.platforms)) <= set(kind.platforms), name
        assert not ("platforms" in option and option.get("required")), name


POWERSHELL = {"_drains": "Drain", "_checkpoints": "Checkpoint"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_kind_for_windows_hosts_has_its_powershell_file_and_the_other_way_round(folder: str) -> None:
    noun, loader = POWERSHELL[folder], FOLDERS[folder][0]
    files = {file.stem: file for file in (ROOT / "plugins" / "module_utils").glob(f"_{noun}_*.psm1")}
    loaded = {name: loader.load(name) for name in loader.NAMES}
    wanted = {f"_{noun}_{name}" for name, one in loaded.items() if WINDOWS in one.platforms and not one.by_controller}
    missing, unknown = (
        ", ".join(f"plugins/module_utils/{name}.psm1" for name in sorted(names))
        for names in (wanted - set(files), set(files) - wanted)
    )
    demand(not missing, f"Write {missing}, or set platforms = (LINUX,) in the kind if Windows hosts cannot do it.")
    demand(not unknown, f"No kind for Windows hosts has {unknown}.")
    for name, one in loaded.items():
        if f"_{noun}_{name}" not in files:
            continue
        text = files[f"_{noun}_{name}"].read_text(encoding="ascii")
        assert text.rstrip().endswith(f"Export-ModuleMember -Function 'Get-Graceful{noun}_{name}'")
        # What it reads is described once, in Python.
        read = set(re.findall(r"\$Options\['(\w+)'\]", text)) - set(one.options)
        assert not read
        assert ("CarriesTraffic = $true" in text) == one.carries_traffic


def test_each_option_has_a_type_and_a_description(kind: type[Kind]) -> None:
    for name, option in options_in(kind.options):
        this = f"{where(kind)}: option {name}"
        demand(set(option) <= KEYS, f"{this} has keys that are not known: {sorted(set(option) - KEYS)}.")
        demand(option.get("type") in TYPES, f"{this} has no known type. Types are: {', '.join(TYPES)}.")
        demand(option.get("description", "").endswith("."), f"{this} has no description, or one that is no sentence.")
        assert ("elements" in option) == (option["type"] == "list"), name
        assert not (option.get("required") and "default" in option), name
        if "choices" in option and "default" in option:
            assert option["default"] in option["choices"], name


def test_secrets_are_marked_as_such(kind: type[Kind]) -> None:
    for name, option in options_in(kind.options):
        assert bool(SECRET.search(name)) == bool(option.get("no_log")), name
        assert "." not in name or not option.get("no_log"), "secrets are kept apart by the names of options"


def test_an_option_does_not_have_the_name_of_what_every_step_has(kind: type[Kind]) -> None:
    assert not {"name", "kind", "timeout"} & set(kind.options)


def test_rules_are_about_options_that_exist(kind: type[Kind]) -> None:
    assert set(kind.rules) <= set(RULES)
    for rule in ("required_one_of", "required_together", "mutually_exclusive"):
        assert {name for group in kind.rules.get(rule, ()) for name in group} <= set(kind.options)
    for name, others in kind.rules.get("required_by", {}).items():
        assert {name, *others} <= set(kind.options)


def test_defaults_are_as_an_argument_spec_would_make_them(kind: type[Kind]) -> None:
    """So that every option is there, and of its type, also where only the defaults are used."""
    options, _error = validated(kind.options, kind.rules, {})
    assert set(options) == set(kind.options)
    for name, option in kind.options.items():
        assert options[name] == option.get("default"), name
        assert type(options[name]) is type(option.get("default")), name


def test_what_is_generated_from_the_kinds_is_up_to_date() -> None:
    tool = ROOT / "tests" / "tools" / "generate.py"
    ran = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    demand(ran.returncode == 0, (ran.stdout + ran.stderr).strip())


def test_an_option_without_a_description_is_named_with_its_file() -> None:
    options = {
        "path": {"type": "str", "description": "A path."},
        "more": {"type": "dict", "options": {"deep": {"type": "str"}}},
    }
    with pytest.raises(generate.Incomplete, match=r"^_drains/new\.py: option more has no description\.$"):
        generate.option_table(options, {}, "_drains/new.py")
