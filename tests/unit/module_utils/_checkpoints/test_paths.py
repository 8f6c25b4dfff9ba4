# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._checkpoints.paths import Item
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._run import run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import mistake, options_of, tools


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "first").write_text("one")
    (scratch / "second").write_text("two")
    return scratch


def item(scratch: Path, **given: t.Any) -> Item:
    directory = str(scratch.parent / "safe")
    archive = tools(run=run, directory=directory, file_name="item.tar.gz")
    return Item(options_of(Item, paths=[str(scratch)], **given), archive)


@pytest.mark.parametrize(("to", "fetched"), [("host", False), ("controller", True)])
def test_the_paths_are_saved_and_what_to_note_is_said(scratch: Path, to: str, fetched: bool) -> None:
    work = item(scratch, to=to)
    message, data = work.do()
    archive = scratch.parent / "safe" / "item.tar.gz"
    assert message == f"3 files with directories, {archive.stat().st_size} bytes in {archive}"
    checksum = data.pop("checksum")
    assert len(checksum) == 64
    assert data == {"paths": [str(scratch)], "archive": str(archive), "fetched": fetched}


def test_what_is_left_out_is_in_the_message(scratch: Path) -> None:
    os.mknod(scratch / "socket", stat.S_IFSOCK)
    message, _data = item(scratch).do()
    assert "; 1 left out (socket): '" in message


def test_what_was_lost_is_put_back_and_the_archive_is_removed_at_the_end(scratch: Path) -> None:
    data = item(scratch).do().data
    (scratch / "first").unlink()
    (scratch / "second").write_text("newer")
    message = item(scratch).undo(StepRecord({}, data, True))
    assert message.startswith("1 put back: '")
    assert (scratch / "first").read_text() == "one"
    assert (scratch / "second").read_text() == "newer"
    assert os.listdir(scratch.parent / "safe") == ["item.tar.gz"]
    for _time in range(2):
        item(scratch).clean_up(StepRecord({}, data, True))
        assert os.listdir(scratch.parent / "safe") == []


def test_if_nothing_can_be_lost_only_paths_that_are_wholly_missing_come_back(scratch: Path) -> None:
    data = item(scratch).do().data
    (scratch / "first").unlink()
    assert item(scratch).undo(StepRecord({}, data, False)) == "0 put back"
    assert not (scratch / "first").exists()
    data = item(scratch).do().data
    shutil.rmtree(scratch)
    assert item(scratch).undo(StepRecord({}, data, False)).startswith("2 put back: ")


def test_an_undo_that_was_not_noted_is_not_an_error_the_next_time(scratch: Path) -> None:
    data = item(scratch).do().data
    item(scratch).undo(StepRecord({}, data, True))
    assert item(scratch).undo(StepRecord({}, data, True)) == "0 put back"


def test_an_archive_that_was_brought_again_is_put_back_again(scratch: Path) -> None:
    data = item(scratch, to="controller").do().data
    copy = Path(data["archive"]).read_bytes()
    item(scratch).undo(StepRecord({}, data, True))
    Path(data["archive"]).write_bytes(copy)
    (scratch / "first").unlink()
    assert item(scratch).undo(StepRecord({}, data, True)).startswith("1 put back: ")


def test_a_directory_for_archives_that_was_changed_meanwhile_does_not_matter(scratch: Path) -> None:
    data = item(scratch).do().data
    shutil.rmtree(scratch)
    elsewhere = tools(directory=str(scratch.parent / "elsewhere"), file_name="other.tar.gz")
    work = Item(options_of(Item, paths=[str(scratch)]), elsewhere)
    assert work.undo(StepRecord({}, data, True)).startswith("3 put back: ")


def test_a_checkpoint_that_was_cut_off_leaves_nothing(scratch: Path) -> None:
    safe = scratch.parent / "safe"
    safe.mkdir()
    (safe / "item.tar.gz.part").write_text("half")
    assert item(scratch).undo(StepRecord({}, {}, True)) == "nothing was saved, so there is nothing to put back"
    item(scratch).clean_up(StepRecord({}, {}, True))
    assert os.listdir(safe) == []


def test_an_archive_that_is_gone_is_said(scratch: Path) -> None:
    data = item(scratch).do().data
    Path(data["archive"]).unlink()
    with pytest.raises(EventsError, match=r"cannot be read: No such file or directory. Nothing was put back."):
        item(scratch).undo(StepRecord({}, data, True))


def test_an_archive_that_cannot_be_removed_does_not_keep_the_host_out(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = item(scratch).do().data

    def refuse(path: t.Any, **_more: t.Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    assert item(scratch).undo(StepRecord({}, data, False)) == "0 put back"
    item(scratch).clean_up(StepRecord({}, data, False))


@pytest.mark.parametrize("paths", [None, [], "/etc", ["etc"], ["/etc/../root"], ["//etc"], ["/etc/"], [1], ["/a\0b"]])
def test_a_record_that_makes_no_sense_puts_nothing_back(scratch: Path, paths: t.Any) -> None:
    data = item(scratch).do().data
    with pytest.raises(EventsError, match=r"The record does not say which paths were saved"):
        item(scratch).undo(StepRecord({}, {**data, "paths": paths}, True))
    assert Path(data["archive"]).exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"paths": ["/mnt/cache"]}, ""),
        ({"paths": "/mnt/cache", "to": "controller"}, ""),
        ({}, "paths"),
        ({"paths": []}, "paths has to be a list of absolute paths"),
        ({"paths": ["cache"]}, "paths has to be a list of absolute paths"),
        ({"paths": ["/mnt/cache", ""]}, "paths has to be a list of absolute paths"),
        ({"paths": ["/mnt/\0"]}, "paths has to be a list of absolute paths"),
        ({"paths": ["/mnt"], "to": "moon"}, "to"),
    ],
)
def test_what_a_user_can_get_wrong_is_said(given: dict[str, t.Any], words: str) -> None:
    found = mistake(Item, given)
    assert (words in found) if words else found == ""
