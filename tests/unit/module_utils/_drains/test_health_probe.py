# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.server
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._clock import Clock
from ansible_collections.graceful.azure.plugins.module_utils._drains.health_probe import Step
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import (
    JumpingClock,
    Peer,
    Secure,
    mistake,
    options_of,
    seconds_at_most,
    tools,
)

NOTED = StepRecord({"in_service": True}, {}, lost=False)


class Application(http.server.ThreadingHTTPServer):
    """Answers with the statuses it is told, the last one for ever; /to/N as a POST tells it N."""

    daemon_threads = True

    def __init__(self) -> None:
        self.statuses = [200]
        self.asked = 0
        self.posts: list[str] = []
        self.headers: list[t.Any] = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Application

    def do_GET(self) -> None:
        statuses = self.server.statuses
        self.server.asked += 1
        self._answer(statuses.pop(0) if len(statuses) > 1 else statuses[0])

    def do_POST(self) -> None:
        self.server.posts.append(self.path)
        status = int(self.path.rsplit("/", 1)[1])
        if status:
            self.server.statuses = [status]
        self._answer(204 if status else 500)

    def _answer(self, status: int) -> None:
        self.server.headers.append(self.headers)
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


@pytest.fixture
def application() -> t.Iterator[Application]:
    running = Application()
    yield running
    running.end()


def step(
    application: Application,
    marker: Path | None = None,
    clock: Clock | None = None,
    seconds: float = 20,
    begun: bool = False,
    **given: t.Any,
) -> Step:
    """With a marker, or else with URLs that take it out and put it back."""
    urls = {"out_url": f"{application.url}/to/503", "in_url": f"{application.url}/to/200"}
    switch = urls if marker is None else {"marker": str(marker)}
    options = {"url": application.url, "interval": 0.01, **switch, **given}
    return Step(options_of(Step, **options), tools(seconds, clock or Clock(), begun=begun))


def marked(url: str, seconds: float = 5) -> Step:
    """With a marker that is not there, so that one answer is enough."""
    return Step(options_of(Step, url=url, marker="/nonexistent/out"), tools(seconds, Clock()))


@pytest.mark.parametrize("status", [200, 204, 302, 404, 503])
def test_every_answer_counts_as_it_is(application: Application, status: int) -> None:
    application.statuses = [status]
    assert marked(application.url).look().message == f"{application.url} answers {status}"
    assert application.asked == 1, "a redirect is not followed"


def test_no_answer_is_told_apart(application: Application) -> None:
    application.end()
    assert "does not answer" in marked(application.url).look().message


def test_an_application_that_answers_byte_by_byte_cannot_exceed_the_deadline() -> None:
    with Peer(b"HTTP/1.1 200 " + b"O" * 1000, pause=0.02) as slow, seconds_at_most(3):
        assert "does not answer" in marked(slow.url, 0.3).look().message


def test_a_certificate_is_not_checked_as_a_load_balancer_does_not(certificate: Path) -> None:
    with Secure(b"HTTP/1.1 200 OK\r\n\r\n", certificate) as server:
        assert marked(f"https://127.0.0.1:{server.port}/", 5).look().message.endswith("answers 200")


@pytest.mark.parametrize("means_out", [True, False], ids=["the marker means out", "the marker means in"])
def test_the_marker_is_there_as_long_as_it_should(application: Application, tmp_path: Path, means_out: bool) -> None:
    marker = tmp_path / "marker"
    if not means_out:
        marker.touch()
    means = "out" if means_out else "in"
    application.statuses = [200, 503]
    assert "answers 503" in step(application, marker, marker_means=means).do().message
    assert marker.exists() == means_out
    application.statuses = [503, 200]
    assert "answers 200" in step(application, marker, marker_means=means).undo(NOTED)
    assert marker.exists() != means_out


def test_one_healthy_answer_starts_the_count_anew(application: Application, tmp_path: Path) -> None:
    application.statuses = [200, 503, 503, 200, 503]
    step(application, tmp_path / "marker", JumpingClock(), interval=1).do()
    assert application.asked == 1 + 3 + 3, "one to see how it is, three in vain, three for two seconds"


def test_an_application_that_ignores_the_marker_is_found_out(application: Application, tmp_path: Path) -> None:
    with pytest.raises(Late, match=r"still: .* answers 200"):
        step(application, tmp_path / "marker", JumpingClock(), seconds=9).do()
    assert (tmp_path / "marker").exists(), "what is drained stays so"


def test_a_url_that_never_answered_proves_nothing(application: Application, tmp_path: Path) -> None:
    application.end()
    with pytest.raises(EventsError, match="nothing could be proven"):
        step(application, tmp_path / "marker").do()
    assert not (tmp_path / "marker").exists()
    assert "does not answer" in step(application, tmp_path / "marker", must_answer=False).do().message


def test_after_an_interruption_a_later_step_may_have_stopped_what_answers(
    application: Application, tmp_path: Path
) -> None:
    application.end()
    assert "does not answer" in step(application, tmp_path / "marker", begun=True).do().message


def test_a_marker_without_its_folder_is_said(application: Application, tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="its folder does not exist"):
        step(application, tmp_path / "nothing" / "marker").do()


def test_a_marker_that_is_a_folder_is_said(application: Application, tmp_path: Path) -> None:
    (tmp_path / "marker").mkdir()
    with pytest.raises(EventsError, match=r"marker .* cannot be changed"):
        step(application, tmp_path / "marker").undo(NOTED)


def test_a_url_switches_whatever_the_health_url_says(application: Application) -> None:
    """The health URL may be the wrong one, and then says nothing about the application."""
    both = step(application, threshold=1)
    for before in ([200], [503]):
        application.statuses, application.posts = before, []
        both.do()
        assert (application.statuses, application.posts) == ([503], ["/to/503"])
        both.undo(NOTED)
        assert (application.statuses, application.posts) == ([200], ["/to/503", "/to/200"])


@pytest.mark.parametrize("status", [404, 401, 302])
@pytest.mark.parametrize("by", ["marker", "url"])
def test_a_url_that_is_not_the_health_url_proves_nothing(
    application: Application, tmp_path: Path, status: int, by: str
) -> None:
    application.statuses = [status]
    with pytest.raises(EventsError, match=f"answers {status}, which is neither healthy nor out of service"):
        step(application, tmp_path / "marker" if by == "marker" else None).do()
    assert application.posts == []
    assert not (tmp_path / "marker").exists()


def test_an_application_that_is_ill_can_be_taken_out(application: Application, tmp_path: Path) -> None:
    application.statuses = [500]
    step(application, tmp_path / "marker").do()
    assert (tmp_path / "marker").exists()


def test_a_switch_that_refuses_is_said(application: Application) -> None:
    with pytest.raises(EventsError, match="answers 500, which is not a success"):
        step(application, out_url=f"{application.url}/to/0").do()


def test_a_healthy_host_is_in_service_at_the_first_look(application: Application) -> None:
    clock = JumpingClock()
    assert step(application, clock=clock).look() == (False, f"{application.url} answers 200", {"in_service": True})
    assert (application.asked, clock.now) == (1, 1000)


@pytest.mark.parametrize(
    ("statuses", "done", "seconds"),
    [
        ([503, 200], False, 0),
        ([503, 503, 503, 200], False, 2),
        ([503], True, 10),
        ([503] * 12 + [200], True, 10),
    ],
    ids=["one bad answer", "some bad answers", "out", "out for as long as a balancer needs"],
)
def test_out_of_service_is_what_a_load_balancer_would_take_for_it(
    application: Application, statuses: list[int], done: bool, seconds: float
) -> None:
    clock = JumpingClock()
    application.statuses = statuses
    look = step(application, clock=clock, seconds=60, interval=5, threshold=2).look()
    assert (look.done, look.before) == (done, {"in_service": not done})
    assert clock.now == 1000 + seconds


def test_without_the_time_to_look_nothing_is_said_to_be_out(application: Application) -> None:
    application.statuses = [503]
    look = step(application, clock=JumpingClock(), seconds=4, interval=5).look()
    assert (look.done, look.before) == (False, {"in_service": True})


@pytest.mark.parametrize(
    ("is_there", "status", "done", "in_service"),
    [(True, 503, True, False), (True, 200, False, False), (False, 503, False, True), (False, 200, False, True)],
)
def test_a_marker_says_at_the_first_look_whether_the_host_is_out(
    application: Application, tmp_path: Path, is_there: bool, status: int, done: bool, in_service: bool
) -> None:
    if is_there:
        (tmp_path / "marker").touch()
    application.statuses = [status]
    look = step(application, tmp_path / "marker", JumpingClock()).look()
    assert (look.done, look.before) == (done, {"in_service": in_service})
    assert application.asked == 1


def test_headers_and_login_go_to_every_url_and_stay_out_of_messages(application: Application) -> None:
    secrets: dict[str, t.Any] = {"headers": {"X-Token": "hunter2"}, "username": "me", "password": "hunter3"}
    drained = step(application, url=f"{application.url}/health?key=hunter4", threshold=1, **secrets)
    look, done = drained.look(), drained.do()
    assert [header["X-Token"] for header in application.headers] == ["hunter2"] * len(application.headers)
    assert {header["Authorization"] for header in application.headers} == {"Basic bWU6aHVudGVyMw=="}
    assert application.posts == ["/to/503"]
    assert "hunter" not in f"{look} {done}"
    assert look.message == f"{application.url}/health?… answers 200"


URL = "http://127.0.0.1/"
BY_MARKER = {"url": URL, "marker": "/run/out"}
BY_URLS = {"url": "https://h:1/", "out_url": "http://h/o", "in_url": "http://h/i"}


@pytest.mark.parametrize(
    "given",
    [
        BY_MARKER,
        {**BY_MARKER, "interval": "2", "threshold": 3, "healthy": [200, "204"], "must_answer": "false"},
        {**BY_MARKER, "headers": {"X-Token": "a b", "X-Number": 5}, "username": "me", "password": "x"},
        BY_URLS,
        {**BY_URLS, "method": "put"},
    ],
)
def test_what_can_be_carried_out_is_accepted(given: dict[str, t.Any]) -> None:
    assert not mistake(Step, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"marker": "/run/out"}, "url"),
        ({"url": URL}, "one of the following is required: marker, out_url"),
        ({**BY_MARKER, "out_url": URL, "in_url": URL}, "mutually exclusive: marker|out_url"),
        ({"url": URL, "out_url": URL}, "required together: out_url, in_url"),
        ({**BY_MARKER, "username": "me"}, "required together: username, password"),
        ({**BY_MARKER, "url": "ftp://h/"}, "url has to be a URL of http or https"),
        ({**BY_MARKER, "url": "file:///etc/passwd"}, "url has to be a URL of http or https"),
        ({**BY_MARKER, "url": "http://h:0/"}, "url has to be a URL of http or https"),
        ({**BY_MARKER, "url": "http://h/ x"}, "url has to be a URL of http or https"),
        ({**BY_MARKER, "url": "http://me:hunter2@h/"}, "url has a user name in it"),
        ({**BY_URLS, "out_url": "h"}, "out_url has to be a URL"),
        ({**BY_URLS, "in_url": "file:///x"}, "in_url has to be a URL"),
        ({**BY_MARKER, "marker": "out"}, "marker has to be the absolute path"),
        ({**BY_MARKER, "marker": "~/out"}, "marker has to be the absolute path"),
        ({**BY_MARKER, "marker": ""}, "marker has to be the absolute path"),
        ({**BY_MARKER, "marker_means": "up"}, "marker_means"),
        ({**BY_MARKER, "interval": -1}, "interval has to be more than 0"),
        ({**BY_MARKER, "interval": "nan"}, "interval has to be more than 0"),
        ({**BY_MARKER, "threshold": 0}, "threshold has to be more than 0"),
        ({**BY_MARKER, "healthy": [2000]}, "healthy has to be a list of HTTP statuses"),
        ({**BY_MARKER, "healthy": []}, "healthy has to be a list of HTTP statuses"),
        ({**BY_MARKER, "method": "P OST"}, "method has to be an HTTP method"),
        ({**BY_MARKER, "headers": {"X-Token": "hunter2\r\nX: 1"}}, "headers: the value of X-Token"),
        ({**BY_MARKER, "headers": {"X Token": "hunter2"}}, "cannot be that of a header"),
        ({**BY_MARKER, "headers": {"X": {"hunter2": 1}}}, "headers: the value of X"),
    ],
)
def test_what_cannot_be_carried_out_is_said_without_secrets(given: dict[str, t.Any], words: str) -> None:
    said = mistake(Step, given)
    assert words in said
    assert "hunter" not in said
