# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever is wrong with the service or the options: a failed task in time, with a message that helps."""

from __future__ import annotations

import os
import pwd
import typing as t

import pytest
from ansible_collections.graceful.azure.tests.integration.harness import Case, Json, Outcome, Raw

EMPTY_DOCUMENT = b'{"DocumentIncarnation": 1, "Events": []}'
SLOW_HEAD = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(EMPTY_DOCUMENT), EMPTY_DOCUMENT), 0.2)


def broken(name: str, fault: Json, *words: str, polls: int | None = 1, **options: t.Any) -> Case:
    return Case(
        name, {"vm_name": "me", **options}, faults=[{"path": "scheduledevents", **fault}], words=words, polls=polls
    )


def shaped(name: str, document: t.Any, *words: str) -> Case:
    return broken(name, {"kind": "document", "document": document}, "not an events document", *words)


def wrong(name: str, *words: str, **options: t.Any) -> Case:
    return Case(name, options, words=words, polls=0)


GUARDED = ("Metadata Security Protocol", "this request came from the user", "Allow it", "ProxyAgent.Connection.log")
SERVICE_CASES = [
    Case(
        "refused",
        faults=[{"kind": "refuse"}],
        words=["cannot be reached", "refused", "Check that this is an Azure VM"],
        polls=0,
    ),
    broken("stalled", {"kind": "stall"}, "did not finish its answer within 2 s", "read_timeout", read_timeout=2),
    # The timeouts bound the retries, too.
    broken(
        "stalled_retried", {"kind": "stall"}, "Tried 2 times", connect_timeout=2, read_timeout=2, retries=9, polls=2
    ),
    broken("reset_retried", {"kind": "reset"}, "closed the connection", "Tried 2 times", retries=1, polls=2),
    broken("not_found", {"kind": "404"}, "404", "does not have api_version '2020-07-01'", "check endpoint", retries=3),
    broken("no_such_version", {"kind": "404"}, "api_version '2024-07-09'", "auto", api_version="2024-07-09", retries=3),
    broken(
        "no_version_at_all",
        {"kind": "404"},
        "none of the API versions from 2024-07-09 to 2017-03-01",
        "Check endpoint",
        api_version="auto",
        polls=8,
    ),
    *(broken(f"guarded_{status}", {"kind": status}, status, *GUARDED, retries=3) for status in ("401", "403")),
    broken("bad_request", {"kind": "400"}, "400", "api_version", "endpoint", retries=3),
    broken("gone_for_good", {"kind": "410"}, "410", "Tried", retries=1, polls=None),
    broken("too_many", {"kind": "429", "retry_after": 1}, "429", "Tried 2 times", retries=1, polls=2),
    broken("server_error", {"kind": "500"}, "500", "Tried 1 time in"),
    broken("unavailable", {"kind": "503"}, "503", "Tried 3 times", retries=2, polls=3),
    broken("redirected", {"kind": "redirect"}, "302", "'/metadata/redirected'", "not followed", retries=3),
    broken("html", {"kind": "html"}, "not an events document", "not JSON"),
    broken("cut_off", {"kind": "truncated"}, "sent only", "bytes"),
    broken("cut_json", {"kind": "truncated", "cut": "json"}, "not JSON"),
    broken("empty_body", {"kind": "empty"}, "it is empty", "Tried 3 times", retries=2, polls=3),
    broken("oversized", {"kind": "oversized"}, "more than 1 MiB", "Check that endpoint", retries=3),
    broken("slow_body", {"kind": "drip"}, "did not finish its answer within 2 s", "read_timeout", read_timeout=2),
    Case("slow_head", {"vm_name": "me", "read_timeout": 2}, raw=SLOW_HEAD, words=["did not finish its answer", "2 s"]),
    broken("nested", {"kind": "body", "body": "[" * 200_000}, "not an events document"),
    shaped("shape_null", None, "JSON null"),
    shaped("shape_list", [], "JSON list"),
    shaped("shape_no_events", {"DocumentIncarnation": 1}, "no list named Events"),
    shaped("shape_event_number", {"Events": [7]}, "entry 1 of Events is a JSON number"),
    shaped("shape_event_without_id", {"Events": [{"EventType": "Reboot"}]}, "entry 1 of Events has no EventId"),
    shaped(
        "shape_resources_text", {"Events": [{"EventId": "A", "Resources": "me"}]}, "Resources", "'A'", "list of names"
    ),
    Case("future_version", {"api_version": "2099-01-01"}, words=["400", "Set api_version", "2020-07-01", "2019-08-01"]),
    Case("latest_version", {"api_version": "latest"}, words=["400", "Set api_version", "2020-07-01"], polls=1),
    Case("guarded_name", faults=[{"kind": "403", "path": "instance"}], words=["/metadata/instance", "403", *GUARDED]),
    Case(
        "name_unavailable",
        faults=[{"kind": "500", "path": "instance"}],
        words=["/metadata/instance", "500"],
    ),
    Case(
        "mine_on_classic_vm",
        {"only_mine": True},
        faults=[{"kind": "404", "path": "instance"}],
        words=["only_mine", "Azure name", "Set vm_name"],
    ),
]

OPTION_CASES = [
    wrong("endpoint_text", "not a url", "scheme and host only", endpoint="not a url"),
    wrong("endpoint_path", "has more than a host", endpoint="http://127.0.0.1:1/metadata/scheduledevents"),
    wrong("endpoint_https", "https", "plain http", endpoint="https://127.0.0.1:1"),
    wrong("endpoint_user", "user name or password", endpoint="http://me:open-sesame@127.0.0.1:1"),
    wrong("endpoint_port", "not a URL", endpoint="http://127.0.0.1:99999"),
    wrong("connect_timeout_negative", "connect_timeout is -1", "greater than 0", connect_timeout=-1),
    wrong("read_timeout_zero", "read_timeout is 0", "greater than 0", read_timeout=0),
    wrong("read_timeout_nan", "read_timeout is nan", "greater than 0", read_timeout="nan"),
    wrong("read_timeout_text", "read_timeout", "float", read_timeout="soon"),
    wrong("retries_negative", "retries is -1", "from 0", retries=-1),
    wrong("vm_name_empty", "vm_name is empty", "leave it out", vm_name=""),
]


@pytest.mark.parametrize("case", SERVICE_CASES, ids=str)
def test_a_bad_service_fails_the_task_with_advice(case: Case, outcome: Outcome) -> None:
    assert case.words
    assert not outcome.result["changed"]


@pytest.mark.parametrize("case", [case for case in SERVICE_CASES if case.name == "guarded_403"], ids=str)
def test_a_refusal_says_who_asked_and_where_it_is_logged(case: Case, outcome: Outcome) -> None:
    assert f"'{pwd.getpwuid(os.geteuid()).pw_name}' (uid {os.geteuid()})" in outcome.result["msg"]
    assert "/var/lib/azure-proxy-agent/ProxyAgent.Connection.log" in outcome.result["msg"]


@pytest.mark.parametrize("case", OPTION_CASES, ids=str)
def test_a_wrong_option_is_named_before_anything_is_sent(case: Case, outcome: Outcome) -> None:
    assert case.words
    assert outcome.requests == []


LIBRARY_CASES = [
    Case(
        f"library_for_{group}",
        options,
        group,
        library_missing=True,
        words=["requests", "graceful.azure.prepare"],
        polls=0,
    )
    for group, options in {"info": {}, "approve": {"event_ids": ["A"]}, "wait": {}}.items()
]


@pytest.mark.parametrize("case", LIBRARY_CASES, ids=str)
def test_a_missing_library_is_named_with_the_playbook_that_installs_it(case: Case, outcome: Outcome) -> None:
    assert case.words
    assert outcome.requests == []
