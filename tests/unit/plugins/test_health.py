# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.server
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._health import Health, MarkerSwitch, UrlSwitch, ask
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.tests.unit.plugins.scripted import JumpingClock


class Application(http.server.ThreadingHTTPServer):
    """Answers with the statuses it is told, the last one for ever; /to/N as a POST tells it N."""

    daemon_threads = True

    def __init__(self) -> None:
        self.statuses = [200]
        self.asked = 0
        self.posts: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


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
    running.shutdown()
    running.server_close()


def health(application: Application, marker: Path, interval: float = 0.01, means_out: bool = True) -> Health:
    return Health(application.url, MarkerSwitch(str(marker), means_out), [200], interval, 2)


@pytest.mark.parametrize("status", [200, 204, 302, 404, 503])
def test_every_answer_counts_as_it_is(application: Application, status: int) -> None:
    application.statuses = [status]
    assert ask(application.url, 5).status == status
    assert application.asked == 1, "a redirect is not followed"


def test_no_answer_is_told_apart(application: Application) -> None:
    application.shutdown()
    application.server_close()
    answer = ask(application.url, 5)
    assert answer.status is None
    assert "does not answer" in answer.words


@pytest.mark.parametrize("means_out", [True, False], ids=["the marker means out", "the marker means in"])
def test_the_marker_is_there_as_long_as_it_should(application: Application, tmp_path: Path, means_out: bool) -> None:
    marker = tmp_path / "marker"
    if not means_out:
        marker.touch()
    application.statuses = [200, 503]
    switch = health(application, marker, means_out=means_out)
    assert "answers 503" in switch.settle(True, Patience(20))
    assert marker.exists() == means_out
    application.statuses = [503, 200]
    assert "answers 200" in switch.settle(False, Patience(20))
    assert marker.exists() != means_out


def test_one_healthy_answer_starts_the_count_anew(application: Application, tmp_path: Path) -> None:
    application.statuses = [200, 503, 503, 200, 503]
    health(application, tmp_path / "marker", interval=1).settle(True, Patience(20, JumpingClock()))
    assert application.asked == 1 + 3 + 3, "one to see how it is, three in vain, three for two seconds"


def test_an_application_that_ignores_the_marker_is_found_out(application: Application, tmp_path: Path) -> None:
    with pytest.raises(Late, match=r"still: .* answers 200"):
        health(application, tmp_path / "marker").settle(True, Patience(9, JumpingClock()))
    assert (tmp_path / "marker").exists(), "what is drained stays so"


def test_a_url_that_never_answered_proves_nothing(application: Application, tmp_path: Path) -> None:
    application.shutdown()
    application.server_close()
    with pytest.raises(EventsError, match="nothing could be proven"):
        health(application, tmp_path / "marker").settle(True, Patience(5), must_answer=True)
    assert not (tmp_path / "marker").exists()
    assert "does not answer" in health(application, tmp_path / "marker").settle(True, Patience(5))


def test_a_marker_without_its_folder_is_said(application: Application, tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="its folder is not there"):
        health(application, tmp_path / "nothing" / "marker").settle(True, Patience(5))


def test_a_url_switches_whatever_the_health_url_says(application: Application) -> None:
    """The health URL may be the wrong one, and then says nothing about the application."""
    switch = UrlSwitch(f"{application.url}/to/503", f"{application.url}/to/200", "post")
    both = Health(application.url, switch, [200], 0.01, 1)
    for before in ([200], [503]):
        application.statuses, application.posts = before, []
        both.settle(True, Patience(5))
        assert (application.statuses, application.posts) == ([503], ["/to/503"])
        both.settle(False, Patience(5))
        assert (application.statuses, application.posts) == ([200], ["/to/503", "/to/200"])


@pytest.mark.parametrize("status", [404, 401, 302])
@pytest.mark.parametrize("by", ["marker", "url"])
def test_a_url_that_is_not_the_health_url_proves_nothing(
    application: Application, tmp_path: Path, status: int, by: str
) -> None:
    marker = MarkerSwitch(str(tmp_path / "marker"), means_out=True)
    switch = marker if by == "marker" else UrlSwitch(f"{application.url}/to/503", f"{application.url}/to/200", "POST")
    application.statuses = [status]
    with pytest.raises(EventsError, match=f"answers {status}, which is neither healthy nor out of service"):
        Health(application.url, switch, [200], 0.01, 1).settle(True, Patience(5), must_answer=True)
    assert application.posts == []
    assert not (tmp_path / "marker").exists()


def test_an_application_that_is_ill_can_be_taken_out(application: Application, tmp_path: Path) -> None:
    application.statuses = [500]
    health(application, tmp_path / "marker").settle(True, Patience(5), must_answer=True)
    assert (tmp_path / "marker").exists()


def test_a_switch_that_refuses_is_said(application: Application) -> None:
    switch = UrlSwitch(f"{application.url}/to/0", f"{application.url}/to/200", "POST")
    with pytest.raises(EventsError, match="answers 500, which is not a success"):
        Health(application.url, switch, [200], 0.01, 1).settle(True, Patience(5))
