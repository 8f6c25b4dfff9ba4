# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _text as text


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ("plain, with ünïcode", "plain, with ünïcode"),
        ("two\nlines\tand  tabs ", "two lines and tabs"),
        ("bell \x07 and colour \x1b[31m", "bell ? and colour ?[31m"),
        ("right to left \u202e", "right to left ?"),
        ("lone surrogate \ud800", "lone surrogate ?"),
        ("line\u2028separator", "line separator"),
        ("{{ 1 / 0 }} {% if %} {# x #}", "{ { 1 / 0 }} { % if %} { # x #}"),
        ("{{{", "{ { {"),
        (42, "42"),
        (None, "None"),
    ],
)
def test_cleaned_text_can_only_be_read(value: t.Any, cleaned: str) -> None:
    assert text.clean(value) == cleaned


def test_cleaned_text_is_no_longer_than_it_may_be() -> None:
    assert text.clean("x" * 1000) == "x" * 599 + "…"
    assert text.clean("x" * 10, 5) == "xxxx…"
    assert text.clean("x" * 5, 5) == "xxxxx"


def test_data_is_cleaned_through_and_through() -> None:
    dirty = {"a\n": ["{{ x }}", 1, None, True, 2.5], "b": {"c": ("\x00", {1})}}
    assert text.clean_all(dirty) == {"a": ["{ { x }}", 1, None, True, 2.5], "b": {"c": ["?", "{1}"]}}


def test_data_that_is_nested_too_deeply_becomes_text() -> None:
    nested: t.Any = "end"
    for _each in range(50):
        nested = [nested]
    flat = text.clean_all(nested, depth=3)
    assert isinstance(flat[0][0][0], str)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://user:pass@host/path", "http://…@host/path"),
        ("http://host/path?token=abc&b=1", "http://host/path?…"),
        ("https://u@host:1/?x, then more", "https://…@host:1/?… then more"),
        ("GET http://a/?x and http://b:c@d/", "GET http://a/?… and http://…@d/"),
        ("http://user:p@ss@host/path", "http://…@host/path"),
        ("http://user:pa/s?s#word@host/?x", "http://…@host/?…"),
        ("http://host:8080/at/me@example.com", "http://host:8080/at/me@example.com"),
        ("no url, me@example.com?", "no url, me@example.com?"),
        ("http://host/path", "http://host/path"),
    ],
)
def test_a_url_does_not_show_its_secrets(given: str, shown: str) -> None:
    assert text.masked(given) == shown
    assert text.clean(given) == shown, "no message has them"
    assert text.is_masked({"urls": [shown]}) == (given != shown)


def test_a_control_character_does_not_hide_a_secret() -> None:
    assert "word" not in text.clean("http://user:pass\x00word@host/?token=\x1bword")


def test_options_are_masked_through_and_through() -> None:
    given = {"argv": ["curl", "http://u:p@h/?t=1"], "more": {"url": "http://h/?t=1"}, "port": 80}
    shown = {"argv": ["curl", "http://…@h/?…"], "more": {"url": "http://h/?…"}, "port": 80}
    assert text.masked_all(given) == shown
    assert text.is_masked(shown)
    assert not text.is_masked(given)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], "none"),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
    ],
)
def test_names_are_listed(names: list[str], shown: str) -> None:
    assert text.listed(names) == shown


def test_quoted_text_cannot_end_its_quotes() -> None:
    assert text.quoted("it's") == '"it\'s"'
    assert text.quoted("""it's "so" ', x""") == """\"it's 'so' ', x\""""
    assert text.quoted_list(["a", "b", "c"], 2) == "'a', 'b' and 1 more"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (872, "14 min 32 s"),
        (3661, "1 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    "moment",
    [0, datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))],
)
def test_times_are_in_utc(moment: datetime | float) -> None:
    assert text.iso(moment) == "1970-01-01T00:00:00Z"


def test_counting() -> None:
    assert (text.count(1, "step"), text.count(2, "step"), text.count(0, "step")) == ("1 step", "2 steps", "0 steps")
    assert (text.is_or_are(["a"]), text.is_or_are(["a", "b"])) == ("is", "are")
