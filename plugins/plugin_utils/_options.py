# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates a dictionary of options that a user has written: a step, a health check, a webhook or a receiver."""

from __future__ import annotations

import difflib
import typing as t
from types import ModuleType

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._checks import WrongSetting
from ..module_utils._text import clean, quoted

Json = dict[str, t.Any]
Specs = t.Mapping[str, t.Mapping[str, t.Any]]
TYPES = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "raw": "a value",
    "str": "a string",
}
# A program and its arguments. The argument spec would split a text at its commas.
PROGRAMS = ("do", "undo", "probe", "argv")


def documented(module: ModuleType) -> Json:
    """The options of a module of ours as an argument spec: those that its documentation describes."""
    return t.cast(Json, yaml.safe_load(module.DOCUMENTATION)["options"])


def validated(given: t.Any, specs: Specs, where: str, rules: t.Mapping[str, t.Any] | None = None) -> Json:
    """All options, with their types and defaults. A message never quotes a value: it may be secret."""
    if not isinstance(given, t.Mapping):
        raise WrongSetting(f"{where} must be a dictionary. Its keys can be: {', '.join(specs)}.")
    for key in given:
        if key not in specs:
            near = difflib.get_close_matches(str(key), list(specs), 1)
            hint = f"; did you mean {near[0]}?" if near else f". Allowed are: {', '.join(specs)}."
            raise WrongSetting(f"{where} has the key {quoted(key)}, which is not known{hint}")
    options = {key: value for key, value in given.items() if value is not None}
    for key, value in options.items():
        spec = specs[key]
        if key in PROGRAMS and spec["type"] == "list" and isinstance(value, str):
            raise WrongSetting(f"{where}: {key} has to be a list, such as [touch, /x].")
        if ArgumentSpecValidator({key: spec}).validate({key: value}).error_messages:
            raise WrongSetting(f"{where}: {key} has to be {_wanted(spec)}.")
    result = ArgumentSpecValidator(specs, **(rules or {})).validate(options)
    if result.error_messages:
        raise WrongSetting(f"{where}: {clean(result.error_messages[0], 300)}.")
    return dict(result.validated_parameters)


def _wanted(spec: t.Mapping[str, t.Any]) -> str:
    entry = TYPES[spec.get("elements", spec["type"])]
    if "choices" in spec:
        entry = f"one of {', '.join(spec['choices'])}"
    elif "options" in spec:
        entry = f"a dictionary with {', '.join(spec['options'])}"
    return f"a list in which each entry is {entry}" if "elements" in spec else entry
