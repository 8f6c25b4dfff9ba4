# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._redis import Refusal, decoded, encoded


@pytest.mark.parametrize(
    ("raw", "reply"),
    [
        (b"+OK\r\n", "OK"),
        (b":42\r\n", 42),
        (b"$5\r\nhello\r\n", "hello"),
        (b"$0\r\n\r\n", ""),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (
            b"*3\r\n$6\r\nmaster\r\n:3129659\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
            ["master", 3129659, [["a", "b", "c"]]],
        ),
        (b"$4\r\n\r\n\r\n\r\n", "\r\n\r\n"),
    ],
)
def test_a_reply_is_understood(raw: bytes, reply: t.Any) -> None:
    assert decoded(io.BytesIO(raw)) == reply


def test_an_error_is_a_refusal() -> None:
    with pytest.raises(Refusal, match="NOGOODSLAVE"):
        decoded(io.BytesIO(b"-NOGOODSLAVE No suitable replica to promote\r\n"))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"+OK",
        b"$5\r\nhel",
        b"*2\r\n:1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"$999999999999\r\n",
        b"$x\r\n",
        b"*1\r\n" * 20,
    ],
    ids=["nothing", "cut line", "cut text", "cut list", "another protocol", "too large", "no number", "too deep"],
)
def test_what_is_no_reply_is_an_error(raw: bytes) -> None:
    with pytest.raises((EOFError, ValueError)):
        decoded(io.BytesIO(raw))


def test_words_travel_with_their_length() -> None:
    assert (
        encoded(["AUTH", "pass word\r\nFLUSHALL é"]) == b"*2\r\n$4\r\nAUTH\r\n$22\r\npass word\r\nFLUSHALL \xc3\xa9\r\n"
    )
