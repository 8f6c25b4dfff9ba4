# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the pages in Markdown say exists, and their examples would be accepted."""

from __future__ import annotations

import re
import textwrap
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.graceful.azure.plugins.module_utils import _drains
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS, Ran, StepRecord
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import read_settings
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import Programs, options_of, tools

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("*.md", "docs/*.md", "examples/*/*.md", "roles/*/*.md", "tests/*/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))
EXAMPLE = re.compile(r"^( *)```yaml\n(.*?)^ *```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
NAME = re.compile(r"(?<![\w\\])graceful\.azure\.(?!scheduled_event\.)([a-z_]+)")
PLACES = ("plugins/modules/{}.py", "plugins/modules/{}.yml", "roles/{}", "playbooks/{}.yml",
          "extensions/eda/rulebooks/{}.yml", "extensions/eda/plugins/event_source/{}.py")  # fmt: skip


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples() -> t.Iterator[t.Any]:
    for page in PAGES:
        for number, found in enumerate(EXAMPLE.finditer(text_of(page)), 1):
            plain = re.sub(r"{{.*?}}", "web1", textwrap.dedent(found[2]))
            yield pytest.param(page, plain, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(page)):
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_named_is_in_the_collection(page: Path) -> None:
    names = set(NAME.findall(text_of(page)))
    assert not [name for name in names if not any((ROOT / place.format(name)).exists() for place in PLACES)]


@pytest.mark.parametrize(("page", "example"), list(examples()))
def test_an_example_would_be_accepted(page: Path, example: str) -> None:
    content = yaml.safe_load(example)
    assert content
    # The others are variables of a rulebook.
    if isinstance(content, dict) and page.name != "eda.md":
        platform = WINDOWS if page.name == "windows.md" else LINUX
        settings = read_settings(content, lambda value: value, ("host", "run"), platform)
        assert not settings.messages


def test_the_kind_in_contributing_works() -> None:
    found = re.search(r"^   ```python\n(.*?)^   ```$", text_of(ROOT / "CONTRIBUTING.md"), re.M | re.S)
    assert found
    scope: dict[str, t.Any] = {"__name__": f"{_drains.__name__}.queue", "__package__": _drains.__name__}
    exec(textwrap.dedent(found[1]), scope)
    paused = False

    def queuectl(argv: list[str]) -> Ran:
        nonlocal paused
        assert (argv[0], argv[2]) == ("queuectl", "mail")
        if argv[1] == "is-paused":
            return Ran(0 if paused else 1, "", "")
        paused = argv[1] == "pause"
        return Ran(0, "", "")

    kind = scope["Step"]
    step = kind(options_of(kind, queue="mail"), tools(run=Programs(queuectl)))
    assert step.look() == (False, "the queue takes jobs", {"in_service": True})
    assert step.do().message == "the queue is paused"
    assert step.undo(StepRecord({"in_service": True}, {}, lost=False)) == "the queue takes jobs"
