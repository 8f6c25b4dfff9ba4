# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of one host and the task files that they name, as an action plugin reads them."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ..module_utils._document import EVENT_FIELDS
from . import _controller_steps as controller
from . import _task_files as task_files
from ._platform import platform_of
from ._settings import PREFIX, Settings, read_settings

Json = dict[str, t.Any]
# Advice of the module, and with the variables of users.
ADVICE = {
    "that endpoint is correct.": "that {prefix}endpoint is correct.",
    "leave read_timeout above 120 for it.": "run the playbook prepare, which waits for it.",
}
# The event in templates while there is none.
PLACEHOLDER = dict.fromkeys(EVENT_FIELDS, "")


def host_settings(action: ActionBase, variables: Json, event: Json, where: t.Collection[str] = ("host",)) -> Settings:
    """The variables and the mistakes in them. Their templates may refer to the event."""
    seen = {**variables, "drain_event": event, "checkpoint_event": event}
    template = action._templar.copy_with_new_env(available_variables=seen).template
    return read_settings(seen, template, where, platform_of(action))


def why_not_asked(settings: Settings) -> str:
    wrong = settings.connection_messages
    return f"it was not asked: {' '.join(wrong)}" if wrong else ""


def with_variable_names(answer: Json, prefix: str = PREFIX) -> Json:
    """The answer, with errors that name the variables that a user can set instead of the module's options."""
    for part, key in ((answer["observation"], "error"), (answer["report"], "message")):
        for option, variable in ADVICE.items():
            if part and part[key]:
                part[key] = part[key].replace(option, variable.format(prefix=prefix))
    return answer


def file_mistakes(action: ActionBase, variables: Json, values: Json) -> list[str]:
    """The mistakes in the task files of the steps and checkpoints."""
    find = finder(action, variables)
    parts = {"Drain step": values["drain_steps"], "Checkpoint": values["checkpoint"]}
    return [text for noun, part in parts.items() for text in controller.mistakes(part.items, find, noun)]


def finder(action: ActionBase, variables: Json) -> controller.Find:
    """A function that finds and reads a task file of the host."""

    def find(name: str, probe: bool) -> tuple[str, list[str]]:
        path = task_files.find(name, task_files.folders(variables))
        return path, task_files.read(path, action, probe)

    return find


def api_version(value: str, before: t.Mapping[str, t.Any]) -> str:
    """The version to use. With `auto`, the one found by the previous call, as long as the service accepted it."""
    seen = before.get("observation") or {}
    return str(seen["api_version"]) if value.strip().lower() == "auto" and seen.get("events") is not None else value
