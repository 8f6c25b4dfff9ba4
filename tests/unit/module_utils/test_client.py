# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import typing as t
from datetime import datetime, timezone

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._client import Limits
from ansible_collections.graceful.azure.plugins.module_utils._document import parse
from ansible_collections.graceful.azure.plugins.module_utils._errors import (
    NoConnection,
    PassingFailure,
    Refused,
    WrongOption,
)
from ansible_collections.graceful.azure.plugins.module_utils._service import VERSIONS, Service, service_of
from ansible_collections.graceful.azure.plugins.module_utils._transport import Reply
from ansible_collections.graceful.azure.tests.unit.module_utils.fake_service import (
    ScriptedTransport,
    client,
    event,
    events,
    reply,
    service,
)
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import START, JumpingClock

GET: tuple[str, dict[str, str], t.Callable[[Reply], Reply]] = ("/path", {}, lambda answer: answer)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_status_is_retried_until_the_retries_are_used_up(status: int) -> None:
    clock = JumpingClock()
    transport = ScriptedTransport(reply(status, {"error": "busy"}))
    with pytest.raises(PassingFailure, match=f"{status} .'busy'.*Tried 4 times"):
        client(transport, clock).fetch(*GET)
    assert clock.pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("failure", [PassingFailure("reset"), NoConnection("refused"), reply(503)])
def test_a_failure_that_passes_is_not_noticed(failure: t.Any) -> None:
    assert client(ScriptedTransport(failure, failure, reply(200))).fetch(*GET).status == 200


def test_retries_zero_means_one_try() -> None:
    for answer in (reply(503), reply(410), PassingFailure("reset")):
        transport = ScriptedTransport(answer)
        with pytest.raises(PassingFailure, match="Tried 1 time in"):
            client(transport, retries=0).fetch(*GET)
        assert len(transport.sent) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 301, 302, 307])
def test_other_answers_are_final(status: int) -> None:
    transport = ScriptedTransport(reply(status, Location="http://elsewhere/"))
    with pytest.raises(Refused, match=str(status)) as refusal:
        client(transport).fetch(*GET)
    assert refusal.value.status == status
    assert len(transport.sent) == 1


@pytest.mark.parametrize(
    ("given", "pause"),
    [
        ("5", 5.0),
        ("0", 1.0),
        ("-3", 1.0),
        ("3600", 30.0),
        ("Sat, 19 Sep 2026 18:00:07 GMT", 7.0),
        ("soon", 0.5),
        ("nan", 0.5),
    ],
)
def test_retry_after_is_honoured_within_bounds(given: str, pause: float) -> None:
    clock = JumpingClock()
    client(ScriptedTransport(reply(429, Retry_After=given), reply(200)), clock).fetch(*GET)
    assert clock.pauses == [pause]


def test_a_410_is_retried_for_seventy_seconds_whatever_the_number_of_retries() -> None:
    clock = JumpingClock()
    with pytest.raises(PassingFailure):
        client(ScriptedTransport(reply(410)), clock, retries=1).fetch(*GET)
    assert 70 <= sum(clock.pauses) <= 80
    assert max(clock.pauses) <= 10


def test_no_retry_goes_beyond_the_overall_deadline() -> None:
    clock = JumpingClock()
    with pytest.raises(PassingFailure):
        client(ScriptedTransport(reply(503)), clock, connect_timeout=1, read_timeout=2, retries=50).fetch(*GET)
    assert sum(clock.pauses) < 3


def test_a_slow_failure_leaves_the_rest_of_the_time_to_the_next_try() -> None:
    clock = JumpingClock()
    transport = ScriptedTransport(PassingFailure("stalled"), clock=clock, seconds=6.0)
    with pytest.raises(PassingFailure):
        client(transport, clock, connect_timeout=2, read_timeout=8).fetch(*GET)
    assert [round(request.total_timeout, 1) for request in transport.sent] == [8.0, 3.5]


def test_a_refused_version_lists_what_the_service_offers() -> None:
    answer = reply(400, {"error": "bad version", "newest-versions": ["2020-07-01", "2019-08-01"]})
    with pytest.raises(Refused, match=r"'bad version'.*api_version.*2020-07-01, 2019-08-01"):
        client(ScriptedTransport(answer)).fetch(*GET)


HOSTILE = "\x1b[2J\n{{ x }}{% y %}\u202e"


@pytest.mark.parametrize(
    "answer",
    [
        reply(400, {"error": HOSTILE, "newest-versions": "none"}),
        reply(400, {"error": "no", "newest-versions": [HOSTILE, 7]}),
        reply(302, {"error": HOSTILE}, Location=HOSTILE),
        reply(403, {"error": HOSTILE}),
        reply(404, {"error": HOSTILE}),
        reply(503, {"error": HOSTILE}),
    ],
)
def test_text_of_the_service_in_a_message_is_neither_a_template_nor_for_the_terminal(answer: Reply) -> None:
    with pytest.raises((Refused, PassingFailure)) as failure:
        client(ScriptedTransport(answer), retries=0).fetch(*GET)
    assert failure.value.message.isprintable()
    assert "{{" not in failure.value.message
    assert "{%" not in failure.value.message


@pytest.mark.parametrize("content", [b'{"Events": [{"EventId": "{{ x }}", "Resources": 7}]}', b"{{ x }}\x1b"])
def test_a_broken_document_in_a_message_is_neither_a_template_nor_for_the_terminal(content: bytes) -> None:
    asked, _transport = service(reply(200, content), retries=0)
    with pytest.raises(PassingFailure, match="not an events document") as failure:
        asked.read()
    assert failure.value.message.isprintable()
    assert "{{" not in failure.value.message


def test_what_is_odd_in_a_document_can_only_be_read() -> None:
    asked, _transport = service(events({**event("A"), "EventType": HOSTILE}))
    (oddity,) = asked.read().document.oddities
    assert "unknown type" in oddity
    assert oddity.isprintable()
    assert "{{" not in oddity


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_guarded_service_says_who_asked_and_what_the_operator_has_to_do(status: int, method: str) -> None:
    asked, transport = service(reply(status, {"error": "Forbidden"}))
    with pytest.raises(Refused) as refusal:
        asked.read() if method == "GET" else asked.start(["A"], parse(events(event("A")).body))
    user = pwd.getpwuid(os.geteuid()).pw_name
    for word in (
        str(status),
        "'Forbidden'",
        "Metadata Security Protocol",
        f"'{user}' (uid {os.geteuid()})",
        "Allow it",
        "/var/lib/azure-proxy-agent/ProxyAgent.Connection.log",
    ):
        assert word in refusal.value.message
    assert len(transport.sent) == 1


def test_a_user_without_a_name_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999_999)
    with pytest.raises(Refused, match="the user with uid 3999999999"):
        service(reply(403))[0].read()


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"connect_timeout": -1}, "connect_timeout is -1"),
        ({"connect_timeout": 0}, "connect_timeout is 0"),
        ({"read_timeout": -0.5}, "read_timeout is -0.5"),
        ({"read_timeout": float("nan")}, "read_timeout is nan"),
        ({"retries": -1}, "retries is -1"),
    ],
)
def test_senseless_limits_are_refused(limits: dict[str, t.Any], word: str) -> None:
    with pytest.raises(WrongOption, match=word):
        Limits(**limits).checked()


class TestAutomaticEndpoint:
    def test_the_address_of_the_lease_is_asked_when_nothing_answers_at_the_first(self) -> None:
        transport = ScriptedTransport(NoConnection("no route"), NoConnection("refused"), reply(200))
        asked = client(transport, fallbacks=lambda: ["http://10.0.0.1", "http://10.0.0.1:8080"])
        asked.fetch(*GET)
        asked.fetch(*GET)
        assert [request.endpoint + request.path for request in transport.sent] == [
            "http://127.0.0.1:1/path",
            "http://10.0.0.1/path",
            "http://10.0.0.1:8080/path",
            "http://10.0.0.1:8080/path",
        ]
        assert asked.endpoint == "http://10.0.0.1:8080"

    def test_leases_are_not_looked_at_when_the_first_answers_even_with_an_error(self) -> None:
        def forbidden() -> list[str]:
            raise AssertionError("leases were read")

        client(ScriptedTransport(reply(503), reply(200)), fallbacks=forbidden).fetch(*GET)

    def test_a_service_that_was_there_is_not_looked_for_elsewhere_later(self) -> None:
        transport = ScriptedTransport(reply(200), NoConnection("refused"), reply(200))
        asked = client(transport, fallbacks=lambda: ["http://10.0.0.1"])
        asked.fetch(*GET)
        asked.fetch(*GET)
        assert asked.endpoint == "http://127.0.0.1:1"

    def test_the_message_tells_of_every_address(self) -> None:
        transport = ScriptedTransport(NoConnection("first."), reply(404), NoConnection("third."))
        with pytest.raises(NoConnection, match=r"first\..*404.*third\."):
            client(transport, retries=0, fallbacks=lambda: ["http://10.0.0.1", "http://10.0.0.1:8080"]).fetch(*GET)


class TestService:
    def test_the_services_clock_counts(self) -> None:
        asked, _transport = service(events(Date="Sat, 19 Sep 2026 17:00:00 GMT"))
        assert asked.read().service_time == datetime(2026, 9, 19, 17, 0, tzinfo=timezone.utc)

    @pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}])
    def test_without_a_usable_date_our_own_clock_counts(self, headers: dict[str, t.Any]) -> None:
        asked, _transport = service(events(**headers))
        assert asked.read().service_time == START

    def test_an_etag_is_sent_back_and_304_means_the_same_document(self) -> None:
        asked, transport = service(events(event(), ETag='"7"'), reply(304, b""))
        assert asked.read().document == asked.read().document
        assert [request.headers.get("If-None-Match") for request in transport.sent] == [None, '"7"']

    def test_a_304_that_nobody_asked_for_is_no_document(self) -> None:
        asked, _transport = service(reply(304, b""), retries=0)
        with pytest.raises(PassingFailure, match="not an events document"):
            asked.read()

    @pytest.mark.parametrize("content", [b"", b"<html>", b'{"Events": [{}]}'])
    def test_a_broken_document_is_retried_and_never_taken_for_an_empty_one(self, content: bytes) -> None:
        asked, transport = service(reply(200, content), events(event()))
        assert len(asked.read().document.events) == 1
        assert len(transport.sent) == 2

    @pytest.mark.parametrize(
        ("answer", "name"),
        [
            (reply(200, {"compute": {"name": "web_0"}}), "web_0"),
            (reply(200, {"compute": {"name": "_web_0"}}), "web_0"),
            (reply(200, {"compute": {}}), None),
            (reply(200, []), None),
            (reply(404), None),
            (reply(400), None),
        ],
    )
    def test_the_vms_name(self, answer: Reply, name: str | None) -> None:
        assert service(answer)[0].vm_name() == name

    def test_a_failing_service_is_not_taken_for_one_without_names(self) -> None:
        with pytest.raises(PassingFailure, match="503"):
            service(reply(503))[0].vm_name()

    @pytest.mark.parametrize(
        ("answer", "name", "mine"),
        [(reply(404), None, None), (reply(200, {"compute": {"name": "web_0"}}), "web_0", True)],
    )
    def test_a_look_asks_for_the_vms_name_once_also_if_there_is_none(
        self, answer: Reply, name: str | None, mine: bool | None
    ) -> None:
        asked, transport = service(lambda request: answer if "/instance" in request.path else events(event()))
        seen = None
        for _each in range(3):
            _reading, seen, (one,) = asked.look(seen)
            assert (seen, one["affects_me"]) == (name, mine)
        assert sum("/instance" in request.path for request in transport.sent) == 1

    @pytest.mark.parametrize(("version", "more"), [("2017-03-01", b', "DocumentIncarnation": 7'), ("2017-08-01", b"")])
    def test_only_the_preview_version_posts_the_incarnation(self, version: str, more: bytes) -> None:
        transport = ScriptedTransport(events(event("A"), incarnation=7), reply(200))
        asked = Service(client(transport), version)
        asked.start(["A"], asked.read().document)
        assert transport.sent[1].body == b'{"StartRequests": [{"EventId": "A"}]' + more + b"}"
        assert transport.sent[1].query == {"api-version": version}


NEWEST, DEFAULT, OLDEST = "2024-07-09", "2020-07-01", "2017-03-01"


class TestVersions:
    @staticmethod
    def asked_for(transport: ScriptedTransport) -> list[str]:
        return [request.query["api-version"] for request in transport.sent]

    def test_the_table_is_in_order_from_the_newest_to_the_oldest(self) -> None:
        assert VERSIONS[0] == NEWEST
        assert VERSIONS[-1] == OLDEST
        assert sorted(VERSIONS, reverse=True) == list(VERSIONS)

    def test_auto_uses_the_newest_if_the_service_takes_it(self) -> None:
        asked, transport = service(events(event()), api_version="auto")
        asked.read()
        asked.read()
        assert asked.api_version == NEWEST
        assert self.asked_for(transport) == [NEWEST] * 2

    @pytest.mark.parametrize("status", [400, 404])
    def test_auto_goes_on_with_the_next_older_one_and_remembers_it(self, status: int) -> None:
        asked, transport = service(reply(status), reply(status), events(event()), api_version="Auto")
        asked.read()
        asked.read()
        asked.start(["A"], asked.read().document)
        assert asked.api_version == VERSIONS[2]
        assert self.asked_for(transport) == [*VERSIONS[:3], *[VERSIONS[2]] * 3]

    def test_auto_goes_on_where_it_was_after_a_failure_that_passed(self) -> None:
        asked, transport = service(reply(404), reply(429), events(), api_version="auto", retries=0)
        with pytest.raises(PassingFailure):
            asked.read()
        asked.read()
        assert self.asked_for(transport) == [NEWEST, DEFAULT, DEFAULT]

    def test_a_version_that_was_taken_once_is_not_given_up_later(self) -> None:
        asked, transport = service(events(), reply(404), api_version="auto")
        asked.read()
        with pytest.raises(Refused, match="404"):
            asked.read()
        assert self.asked_for(transport) == [NEWEST] * 2

    @pytest.mark.parametrize("answer", [reply(403), reply(405), reply(302), reply(503)])
    def test_other_answers_say_nothing_about_the_version(self, answer: Reply) -> None:
        asked, transport = service(answer, api_version="auto", retries=0)
        with pytest.raises((Refused, PassingFailure)):
            asked.read()
        assert self.asked_for(transport) == [NEWEST]

    @pytest.mark.parametrize(("known", "first"), [(DEFAULT, DEFAULT), (None, NEWEST), ("2099-01-01", NEWEST)])
    def test_what_was_found_before_is_tried_first(self, known: str | None, first: str) -> None:
        asked, transport = service(reply(404), reply(404), events(), api_version="auto")
        asked.begin_with(known)
        asked.read()
        assert self.asked_for(transport)[0] == first
        assert asked.api_version == VERSIONS[VERSIONS.index(first) + 2]

    def test_where_no_version_is_taken_it_says_so(self) -> None:
        asked, transport = service(reply(404), api_version="auto")
        with pytest.raises(Refused, match=rf"none of the API versions from {NEWEST} to {OLDEST}.*404.*Check endpoint"):
            asked.read()
        assert self.asked_for(transport) == list(VERSIONS)

    def test_trying_versions_does_not_take_longer_than_a_read_may(self) -> None:
        clock = JumpingClock()
        transport = ScriptedTransport(reply(404), clock=clock, seconds=4.0)
        with pytest.raises(Refused):
            Service(client(transport, clock, connect_timeout=2, read_timeout=8), "auto").read()
        assert transport.sent[2].total_timeout == 2.0
        assert all(request.total_timeout == 0.1 for request in transport.sent[3:])

    @pytest.mark.parametrize("version", [NEWEST, DEFAULT, "2099-01-01"])
    def test_an_explicit_version_that_is_not_there_is_named(self, version: str) -> None:
        asked, transport = service(reply(404), api_version=version)
        with pytest.raises(Refused, match=f"404.*does not have api_version '{version}'.*auto.*check endpoint"):
            asked.read()
        assert len(transport.sent) == 1

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"api_version": " "}, "api_version is empty"),
            ({"retries": -1}, "retries is -1"),
            ({"endpoint": "ftp://127.0.0.1"}, "plain http"),
        ],
    )
    def test_options_that_cannot_be_used_are_named(self, given: dict[str, t.Any], message: str) -> None:
        options = {"endpoint": "auto", "api_version": "auto", "connect_timeout": 5, "read_timeout": 5, "retries": 0}
        with pytest.raises(WrongOption, match=message):
            service_of({**options, **given})
