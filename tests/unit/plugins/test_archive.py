# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._archive import PART, checksum_of, restore, save
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    scratch = tmp_path / "scratch"
    (scratch / "deep").mkdir(parents=True)
    (scratch / "deep" / "secret").write_text("one")
    (scratch / "deep" / "secret").chmod(0o640)
    (scratch / "deep").chmod(0o750)
    (scratch / "name with $(space)").write_text("two")
    (scratch / "link").symlink_to("deep/secret")
    return scratch


def test_everything_comes_back_with_its_mode_after_the_disk_was_lost(scratch: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "safe" / "a.tar.gz")
    saved = save([str(scratch)], archive)
    shutil.rmtree(scratch)
    restored = restore([str(scratch)], archive, saved.checksum, dry_run=False)
    assert len(restored) == saved.entries == 5
    assert (scratch / "deep" / "secret").read_text() == "one"
    assert (scratch / "deep" / "secret").stat().st_mode & 0o777 == 0o640
    assert (scratch / "deep").stat().st_mode & 0o777 == 0o750
    assert os.readlink(scratch / "link") == "deep/secret"
    assert Path(archive).stat().st_mode & 0o777 == 0o600


def test_only_what_was_lost_is_put_back(scratch: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "a.tar.gz")
    saved = save([str(scratch)], archive)
    (scratch / "deep" / "secret").write_text("newer")
    (scratch / "name with $(space)").unlink()
    assert restore([str(scratch)], archive, saved.checksum, dry_run=True) == [str(scratch / "name with $(space)")]
    assert not (scratch / "name with $(space)").exists()
    assert restore([str(scratch)], archive, saved.checksum, dry_run=False) == [str(scratch / "name with $(space)")]
    assert (scratch / "deep" / "secret").read_text() == "newer"
    assert restore([str(scratch)], archive, saved.checksum, dry_run=False) == []


def test_behind_a_link_is_what_is_saved(scratch: Path, tmp_path: Path) -> None:
    link, archive = tmp_path / "cache", str(tmp_path / "a.tar.gz")
    link.symlink_to(scratch)
    saved = save([str(link)], archive)
    assert saved.paths == [str(scratch)]
    shutil.rmtree(scratch)
    restore(saved.paths, archive, saved.checksum, dry_run=False)
    assert (link / "deep" / "secret").read_text() == "one"


def test_a_link_to_nowhere_is_nothing_to_save(tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to("nowhere")
    with pytest.raises(EventsError, match="is not there"):
        save([str(tmp_path / "cache")], str(tmp_path / "a.tar.gz"))


def test_what_was_deleted_on_purpose_does_not_come_back_if_nothing_can_be_lost(scratch: Path, tmp_path: Path) -> None:
    other, archive = tmp_path / "other", str(tmp_path / "a.tar.gz")
    other.write_text("whole")
    paths = [str(scratch), str(other)]
    saved = save(paths, archive)
    (scratch / "deep" / "secret").unlink()
    other.unlink()
    assert restore(paths, archive, saved.checksum, False, only_missing_paths=True) == [str(other)]
    assert restore(paths, archive, saved.checksum, False) == [str(scratch / "deep" / "secret")]


@contextlib.contextmanager
def largest_file(size: int) -> t.Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_what_could_not_be_put_back_whole_is_put_back_by_the_next_run(scratch: Path, tmp_path: Path) -> None:
    large = scratch / "deep" / "large"
    large.write_bytes(os.urandom(300_000))
    os.link(large, scratch / "deep" / "large too")
    archive, content = str(tmp_path / "a.tar.gz"), large.read_bytes()
    saved = save([str(scratch)], archive)
    shutil.rmtree(scratch)
    with largest_file(100_000), pytest.raises(EventsError, match=r"File too large. Run it again"):
        restore([str(scratch)], archive, saved.checksum, dry_run=False)
    assert not list(scratch.rglob("large*")), "half a file would be taken for the whole one"
    (scratch / "deep" / f"large{PART}").write_text("left by a run that was killed")
    restore([str(scratch)], archive, saved.checksum, dry_run=False)
    assert large.read_bytes() == content
    assert large.samefile(scratch / "deep" / "large too")
    assert (scratch / "deep").stat().st_mode & 0o777 == 0o750
    assert not list(scratch.rglob(f"*{PART}"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_and_all_of_the_mode_come_back(scratch: Path, tmp_path: Path) -> None:
    secret, deep = scratch / "deep" / "secret", scratch / "deep"
    os.chown(secret, 1234, 1235)
    os.chown(deep, 1236, 1237)
    secret.chmod(0o6751)
    deep.chmod(0o3500)
    archive = str(tmp_path / "a.tar.gz")
    saved = save([str(scratch)], archive)
    before = [path.lstat() for path in (deep, secret)]
    shutil.rmtree(scratch)
    restore([str(scratch)], archive, saved.checksum, dry_run=False)
    for old, new in zip(before, [path.lstat() for path in (deep, secret)], strict=True):
        assert (new.st_uid, new.st_gid, new.st_mode) == (old.st_uid, old.st_gid, old.st_mode)
        assert new.st_mtime == pytest.approx(old.st_mtime)


def test_a_damaged_checkpoint_puts_nothing_back(scratch: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    saved = save([str(scratch)], str(archive))
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    shutil.rmtree(scratch)
    with pytest.raises(EventsError, match="is damaged"):
        restore([str(scratch)], str(archive), saved.checksum, dry_run=False)
    assert not scratch.exists()


def test_a_checkpoint_that_is_gone_is_said_so(scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="cannot be read: No such file"):
        restore([str(scratch)], str(tmp_path / "none"), "0", dry_run=False)


def test_an_archive_of_other_paths_is_refused(scratch: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "a.tar.gz")
    saved = save([str(scratch)], archive)
    with pytest.raises(EventsError, match="not among the paths"):
        restore([str(tmp_path / "elsewhere")], archive, saved.checksum, dry_run=False)


def test_a_full_disk_leaves_the_earlier_archive_alone(scratch: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "safe" / "a.tar.gz")
    saved = save([str(scratch)], archive)
    (scratch / "large").write_bytes(os.urandom(300_000))
    with largest_file(100_000), pytest.raises(EventsError, match="failed: File too large"):
        save([str(scratch)], archive)
    assert checksum_of(archive) == saved.checksum
    assert os.listdir(tmp_path / "safe") == ["a.tar.gz"]


@pytest.mark.parametrize(("paths", "word"), [(["none"], "is not there"), (["."], "lies inside")])
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    tmp_path: Path, paths: list[str], word: str
) -> None:
    target = tmp_path / "safe" / "a.tar.gz"
    with pytest.raises(EventsError, match=word):
        save([str(tmp_path / path) for path in paths], str(target))
    assert not target.exists()
