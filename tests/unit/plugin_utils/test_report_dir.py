# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils import _report_dir as report_dir

NOW = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)
DATA: dict[str, t.Any] = {
    "version": 2,
    "run": {"run_id": "../5d0f-6f8a-0d9b"},
    "result": "done",
    "hosts": {"web1": {"result": "restored"}, "web2": {"result": "left drained"}},
}


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def archives(directory: Path, host: str, count: int) -> list[str]:
    """Archives of a host, the oldest first."""
    place = directory / "checkpoints" / host
    place.mkdir(parents=True)
    made = [f"{number:020x}.tar.gz" for number in reversed(range(count))]
    for age, name in enumerate(reversed(made)):
        (place / name).write_text("")
        os.utime(place / name, (1e9 - age, 1e9 - age))
    return made


def test_page_and_data_are_written_under_the_time_and_as_the_latest(tmp_path: Path) -> None:
    page, data = report_dir.write_report(str(tmp_path / "made"), DATA, NOW)
    assert page == str(tmp_path / "made" / "20260919T180000Z-5d0f6f8a.html")
    assert names(tmp_path / "made") == [Path(page).name, Path(data).name, "latest.html", "latest.json"]
    assert json.loads(Path(data).read_text()) == DATA
    assert "<h1>" in Path(page).read_text()
    assert Path(page).stat().st_mode & 0o777 == 0o640
    assert report_dir.REPORT_NAME.fullmatch(Path(page).name)


@pytest.mark.parametrize(("keep", "left"), [(0, 5), (1, 1), (3, 3), (50, 5)])
def test_the_oldest_reports_are_removed(tmp_path: Path, keep: int, left: int) -> None:
    for minutes in range(5):
        report_dir.write_report(str(tmp_path), DATA, NOW + timedelta(minutes=minutes))
    others = [
        "20260919.html",
        "20260919T180000Z-.json",
        "20260919T180000Z-5d0f6f8a.html.bak",
        "notes.html",
        "told.json",
    ]
    for name in others:
        (tmp_path / name).write_text("")
    removed = report_dir.remove_old(str(tmp_path), keep, DATA)
    assert len(removed) == 2 * (5 - left)
    kept = [f"20260919T180{minutes}00Z-5d0f6f8a.{ending}" for minutes in range(5) for ending in ("html", "json")]
    assert names(tmp_path) == sorted([*kept[-2 * left :], *others, "latest.html", "latest.json"])


def test_old_archives_are_removed_of_restored_hosts_only(tmp_path: Path) -> None:
    first, second = archives(tmp_path, "web1", 4), archives(tmp_path, "web2", 4)
    elsewhere = archives(tmp_path, "db1", 4)
    (tmp_path / "checkpoints" / "web1" / "dump.tar.gz").write_text("")
    removed = report_dir.remove_old(str(tmp_path), 2, DATA)
    place = tmp_path / "checkpoints"
    assert removed == sorted(str(place / "web1" / name) for name in first[:2])
    assert names(place / "web1") == sorted([*first[2:], "dump.tar.gz"])
    assert names(place / "web2") == sorted(second)
    assert names(place / "db1") == sorted(elsewhere)


def test_no_archive_is_removed_by_way_of_a_link_or_another_directory(tmp_path: Path) -> None:
    outside = archives(tmp_path / "outside", "web1", 3)
    (tmp_path / "reports" / "checkpoints").mkdir(parents=True)
    real = tmp_path / "outside" / "checkpoints" / "web1"
    (tmp_path / "reports" / "checkpoints" / "web1").symlink_to(real)
    data = {"hosts": {"web1": {"result": "restored"}, "../../outside/checkpoints/web1": {"result": "restored"}}}
    assert report_dir.remove_old(str(tmp_path / "reports"), 1, data) == []
    assert names(real) == sorted(outside)


def test_what_was_told_is_read_back(tmp_path: Path) -> None:
    told = {"a": {"noticed": "2026-09-19T18:00:00Z"}}
    report_dir.write_sent(str(tmp_path / "made"), told)
    assert report_dir.read_sent(str(tmp_path / "made")) == told
    assert names(tmp_path / "made") == ["told.json"]


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_was_not_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "told.json").write_bytes(content)
    assert report_dir.read_sent(str(tmp_path)) == {}


def test_azure_names_are_added_to_those_that_are_known(tmp_path: Path) -> None:
    place = str(tmp_path / "made")
    report_dir.keep_names(place, {"web1": "shop_0", "web2": "shop_1"})
    report_dir.keep_names(place, {"web2": "shop_7", "web3": "{{ x }}\x1b"})
    known = report_dir.read_names(place, ["web1", "web2", "web3", "web4"])
    assert known == {"web1": "shop_0", "web2": "shop_7", "web3": "{ { x }}?"}
    assert report_dir.read_names(place, ["web2"]) == {"web2": "shop_7"}
    assert names(tmp_path / "made") == ["azure-names.json"]


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"web1": 1}'])
def test_azure_names_that_cannot_be_read_are_not_known(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "azure-names.json").write_bytes(content)
    assert report_dir.read_names(str(tmp_path), ["web1"]) == {}
    report_dir.keep_names(str(tmp_path), {"web1": "shop_0"})
    assert report_dir.read_names(str(tmp_path), ["web1"]) == {"web1": "shop_0"}


def test_nothing_is_written_where_no_name_is_new(tmp_path: Path) -> None:
    report_dir.keep_names(str(tmp_path / "not-made"), {})
    assert names(tmp_path) == []


def test_names_that_cannot_be_written_are_no_error() -> None:
    report_dir.keep_names("/dev/null/nowhere", {"web1": "shop_0"})


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "latest.html").mkdir()
    with pytest.raises(OSError, match="directory"):
        report_dir.write_whole(str(tmp_path / "latest.html"), "text")
    assert names(tmp_path) == ["latest.html"]
