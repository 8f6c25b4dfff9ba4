# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""What is written for one host, as an action plugin reads it: the variables, and the task files that they name."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.graceful.azure.plugins.module_utils._document import EVENT_FIELDS
from ansible_collections.graceful.azure.plugins.plugin_utils import _controller_steps as controller
from ansible_collections.graceful.azure.plugins.plugin_utils import _task_files as task_files
from ansible_collections.graceful.azure.plugins.plugin_utils._platform import platform_of
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import (
    SETTINGS,
    SETTINGS_ON,
    Settings,
    read_settings,
)

Json = dict[str, t.Any]
WORDS = {
    "is endpoint right?": "is graceful_endpoint right?",
    "leave read_timeout above 120 for it.": "run the playbook prepare, which waits for it.",
}
# What a task file may refer to before there is an event.
PLACEHOLDER = dict.fromkeys(EVENT_FIELDS, "")


def host_settings(action: ActionBase, variables: Json, event: Json, where: t.Collection[str] = ("host",)) -> Settings:
    """The variables and what is wrong with them. What is written may refer to the event."""
    seen = {**variables, "drain_event": event, "checkpoint_event": event}
    template = action._templar.copy_with_new_env(available_variables=seen).template
    return read_settings(seen, template, where, platform_of(action))


def why_not_asked(settings: Settings) -> str:
    wrong = settings.connection_messages
    return f"it was not asked: {' '.join(wrong)}" if wrong else ""


def in_words_of_inventory(told: Json) -> Json:
    """An answer whose errors name the variables that a user can set, in place of the module's options."""
    for part, key in ((told["observation"], "error"), (told["report"], "message")):
        for option, variable in WORDS.items():
            if part and part[key]:
                part[key] = part[key].replace(option, variable)
    return told


def directories(platform: str, given: t.Mapping[str, t.Any]) -> Json:
    """Where a role keeps things: what it says, unless it says nothing but the default of Linux hosts."""
    return {
        key: SETTINGS_ON[platform][key].default
        for key in ("record_dir", "checkpoint_dir")
        if given.get(key) == SETTINGS[key].default
    }


def file_mistakes(action: ActionBase, variables: Json, values: Json) -> list[str]:
    """What is wrong with the task files of the steps and checkpoints."""
    find = finder(action, variables)
    parts = {"Drain step": values["drain_steps"], "Checkpoint": values["checkpoint"]}
    return [text for noun, part in parts.items() for text in controller.mistakes(part.items, find, noun)]


def finder(action: ActionBase, variables: Json) -> controller.Find:
    """How the host's task files are found and read."""

    def find(name: str, probe: bool) -> tuple[str, list[str]]:
        path = task_files.find(name, task_files.folders(variables))
        return path, task_files.read(path, action, probe)

    return find


def api_version(written: str, before: t.Mapping[str, t.Any]) -> str:
    """What to ask with: `auto` finds the version once in a run, and again only if the service does not take it."""
    seen = before.get("observation") or {}
    return str(seen["api_version"]) if written.strip().lower() == "auto" and seen.get("events") is not None else written
