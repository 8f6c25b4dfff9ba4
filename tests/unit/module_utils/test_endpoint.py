# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _endpoint as endpoint
from ansible_collections.graceful.azure.plugins.module_utils._errors import WrongOption


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://169.254.169.254", "http://169.254.169.254"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("HTTP://Example.internal", "http://example.internal"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_endpoint_is_scheme_and_host(given: str, used: str) -> None:
    assert endpoint.checked(given) == used


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("169.254.169.254", "has no scheme"),
        ("localhost:8080", "scheme"),
        ("", "has no scheme"),
        ("https://127.0.0.1", "plain http"),
        ("ftp://127.0.0.1", "plain http"),
        ("file:///etc/passwd", "plain http"),
        ("http://", "names no host"),
        ("http://a b", "names no host"),
        ("http://127.0.0.1:port", "not a URL"),
        ("http://127.0.0.1:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://me:secret@127.0.0.1", "user name or password"),
        ("https://me:secret@127.0.0.1", "plain http"),
        ("http://me:secret@127.0.0.1:port", "not a URL"),
        ("http://{{ host }}\x1b", "names no host"),
        ("http://127.0.0.1/metadata", "more than a host"),
        ("http://127.0.0.1?x=1", "more than a host"),
        ("http://127.0.0.1#x", "more than a host"),
    ],
)
def test_anything_else_is_refused_with_an_example(given: str, word: str) -> None:
    with pytest.raises(WrongOption, match=word) as refusal:
        endpoint.checked(given)
    assert "such as http://" in refusal.value.message
    assert "secret" not in refusal.value.message
    assert "{{" not in refusal.value.message
    assert refusal.value.message.isprintable()
