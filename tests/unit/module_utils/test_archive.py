# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tarfile
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils import _archive
from ansible_collections.graceful.azure.plugins.module_utils._archive import PART, Restored, Saved
from ansible_collections.graceful.azure.plugins.module_utils._archive_files import NEW, STAGE
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import Ran, Runner
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late, Patience
from ansible_collections.graceful.azure.plugins.module_utils._run import run as real_run
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import JumpingClock

ROOT = os.geteuid() == 0
ACCESS = "system.posix_acl_access"
only_root = pytest.mark.skipif(not ROOT, reason="only root can give files away and make devices")


class Meddler(JumpingClock):
    """Something happens whenever the time is looked at, which is between any two files."""

    def __init__(self, meddle: t.Callable[[], None]) -> None:
        super().__init__()
        self._meddle = meddle

    def monotonic(self) -> float:
        self._meddle()
        return super().monotonic()


class SlowClock(JumpingClock):
    """Each look at the time takes a second."""

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def save(archive: Path, *paths: Path, patience: Patience | None = None, run: Runner = real_run) -> Saved:
    return _archive.save([str(path) for path in paths], str(archive), patience or Patience(60, JumpingClock()), run)


def restore(
    archive: Path,
    checksum: str,
    *paths: Path | str,
    patience: Patience | None = None,
    only_missing_paths: bool = False,
) -> Restored:
    patience = patience or Patience(60, JumpingClock())
    return _archive.restore([str(path) for path in paths], str(archive), checksum, patience, only_missing_paths)


def tar_with(
    change: t.Callable[[list[str]], list[str]] = lambda argv: argv, after: t.Callable[[Ran], Ran] = lambda ran: ran
) -> Runner:
    """The real tar, with other arguments or another result."""

    def run(
        argv: t.Sequence[str],
        seconds: float,
        user: str | None = None,
        environment: t.Mapping[str, str] | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Ran:
        if "--create" not in argv:
            return real_run(argv, seconds)
        return after(real_run(change(list(argv)), seconds, user, environment, pass_fds))

    return run


def tar_with_options(*options: str) -> Runner:
    return tar_with(lambda argv: ["tar", *options, *argv[1:]])


def tar_that_is_disturbed(*command: str) -> Runner:
    """A program runs after the first 10 KiB were written: begin with a file that is larger."""
    action = " ".join(map(shlex.quote, command))
    return tar_with_options("--sort=name", "--checkpoint=1", f"--checkpoint-action=exec={action}")


def checksum_of(archive: Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.fixture
def tmp_path() -> t.Iterator[Path]:
    """A short one: messages cut off long names."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="graceful-")))
    yield path
    shutil.rmtree(path)


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


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "safe" / "a.tar.gz"


# ---- what comes back, and how


def test_everything_comes_back_with_its_mode_after_the_disk_was_lost(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    restored = restore(archive, saved.checksum, scratch)
    assert len(restored.paths) == saved.entries == 5
    assert (scratch / "deep" / "secret").read_text() == "one"
    assert (scratch / "deep" / "secret").stat().st_mode & 0o777 == 0o640
    assert (scratch / "deep").stat().st_mode & 0o777 == 0o750
    assert os.readlink(scratch / "link") == "deep/secret"
    assert saved.remarks == restored.remarks == ""


def test_only_what_was_lost_is_put_back(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    (scratch / "deep" / "secret").write_text("newer")
    (scratch / "name with $(space)").unlink()
    assert restore(archive, saved.checksum, scratch).paths == [str(scratch / "name with $(space)")]
    assert (scratch / "deep" / "secret").read_text() == "newer"
    assert restore(archive, saved.checksum, scratch).paths == []


def test_behind_a_link_is_what_is_saved(scratch: Path, tmp_path: Path, archive: Path) -> None:
    link = tmp_path / "cache"
    link.symlink_to(scratch)
    saved = save(archive, link)
    assert saved.paths == [str(scratch)]
    shutil.rmtree(scratch)
    restore(archive, saved.checksum, *saved.paths)
    assert (link / "deep" / "secret").read_text() == "one"


def test_a_link_to_nowhere_is_nothing_to_save(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "cache").symlink_to("nowhere")
    with pytest.raises(EventsError, match="does not exist"):
        save(archive, tmp_path / "cache")


def test_what_was_deleted_on_purpose_does_not_come_back_if_nothing_can_be_lost(scratch: Path, archive: Path) -> None:
    other = scratch.parent / "other"
    other.write_text("whole")
    saved = save(archive, scratch, other)
    (scratch / "deep" / "secret").unlink()
    other.unlink()
    assert restore(archive, saved.checksum, scratch, other, only_missing_paths=True).paths == [str(other)]
    assert restore(archive, saved.checksum, scratch, other).paths == [str(scratch / "deep" / "secret")]


def test_without_anything_missing_the_archive_is_not_needed(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    archive.unlink()
    assert restore(archive, saved.checksum, scratch, only_missing_paths=True).paths == []


def test_a_path_within_another_one_is_saved_once_and_comes_back_by_itself(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch / "deep", scratch)
    assert saved.entries == 5
    shutil.rmtree(scratch / "deep")
    (scratch / "link").unlink()
    restored = restore(archive, saved.checksum, *saved.paths, only_missing_paths=True)
    assert restored.paths == [str(scratch / "deep"), str(scratch / "deep" / "secret")]


@pytest.mark.parametrize("name", ["app", "-C", "a,b&c\\1", "line\nfeed", "*?[a]", "\udcff ü"])
def test_directories_above_come_back_as_they_were(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TAR_OPTIONS", "--exclude=cache")
    cache = tmp_path / "disk" / name / "cache"
    cache.mkdir(parents=True)
    cache.parent.chmod(0o710)
    (cache.parent / "other").write_text("not saved")
    saved = save(archive, cache)
    shutil.rmtree(tmp_path / "disk")
    assert restore(archive, saved.checksum, cache).paths == [str(cache.parents[1]), str(cache.parent), str(cache)]
    assert cache.parent.stat().st_mode & 0o777 == 0o710
    assert cache.is_dir()


def test_times_come_back_to_the_nanosecond(scratch: Path, archive: Path) -> None:
    times = {
        "deep": 1_700_000_000_123_456_789,
        "deep/secret": 1_600_000_000_000_000_001,
        "link": 1_500_000_000_999_999_999,
        "name with $(space)": -1_500_000_001,
    }
    for name, time in times.items():
        os.utime(scratch / name, ns=(time + 5, time), follow_symlinks=False)
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    restore(archive, saved.checksum, scratch)
    found = {name: (scratch / name).lstat() for name in times}
    assert {name: status.st_mtime_ns for name, status in found.items()} == times
    # Of the access times those that this test has not changed by looking.
    assert found["deep/secret"].st_atime_ns == times["deep/secret"] + 5


@pytest.mark.parametrize(
    "name",
    [
        b"line\nfeed",
        b"not utf-8 \xff\xfe",
        "ü€😀".encode(),
        b"x" * 255,
        b"d" * 120 + b"/" + b"e" * 120 + b"/f",
        b"-rf",
        b"{{ x }}",
        b"a=b%3D",
    ],
)
def test_any_name_comes_back(tmp_path: Path, archive: Path, name: bytes) -> None:
    file = tmp_path / "scratch" / os.fsdecode(name)
    file.parent.mkdir(parents=True)
    file.write_text("content")
    link = tmp_path / "scratch" / "link"
    link.symlink_to(os.fsdecode(name))
    saved = save(archive, tmp_path / "scratch")
    shutil.rmtree(tmp_path / "scratch")
    restore(archive, saved.checksum, tmp_path / "scratch")
    assert file.read_text() == link.read_text() == "content"


def test_hard_links_stay_one_file(scratch: Path, archive: Path) -> None:
    secret, second = scratch / "deep" / "secret", scratch / "second"
    os.link(secret, second)
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    restore(archive, saved.checksum, scratch)
    assert secret.samefile(second)
    second.unlink()
    assert restore(archive, saved.checksum, scratch).paths == [str(second)]
    assert secret.samefile(second)


def test_a_hard_link_comes_back_although_its_other_name_was_deleted_on_purpose(scratch: Path, archive: Path) -> None:
    other = scratch.parent / "zother"
    other.mkdir()
    os.link(scratch / "deep" / "secret", other / "first")
    os.link(scratch / "deep" / "secret", other / "second")
    saved = save(archive, scratch, other)
    (scratch / "deep" / "secret").unlink()
    shutil.rmtree(other)
    restored = restore(archive, saved.checksum, scratch, other, only_missing_paths=True)
    assert restored.paths == [str(other), str(other / "first"), str(other / "second")]
    assert (other / "first").read_text() == "one"
    assert (other / "first").samefile(other / "second")


def test_a_hard_link_is_made_again_to_a_file_that_is_there(scratch: Path, archive: Path) -> None:
    other = scratch.parent / "zother"
    os.link(scratch / "deep" / "secret", other)
    saved = save(archive, scratch, other)
    other.unlink()
    assert restore(archive, saved.checksum, scratch, other, only_missing_paths=True).paths == [str(other)]
    assert other.samefile(scratch / "deep" / "secret")


@only_root
def test_owners_and_all_of_the_mode_come_back(scratch: Path, archive: Path) -> None:
    secret, deep, link, pipe = scratch / "deep" / "secret", scratch / "deep", scratch / "link", scratch / "pipe"
    os.mkfifo(pipe)
    os.chown(secret, 1234, 1235)
    os.chown(deep, 1236, 3_000_000_000)
    os.chown(link, 1238, 1239, follow_symlinks=False)
    os.chown(pipe, 1240, 1241)
    secret.chmod(0o6751)
    deep.chmod(0o3500)
    pipe.chmod(0o620)
    saved = save(archive, scratch)
    before = [path.lstat() for path in (deep, secret, link, pipe)]
    shutil.rmtree(scratch)
    restored = restore(archive, saved.checksum, scratch)
    for old, new in zip(before, [path.lstat() for path in (deep, secret, link, pipe)], strict=True):
        assert (new.st_uid, new.st_gid, new.st_mode) == (old.st_uid, old.st_gid, old.st_mode)
        assert new.st_mtime_ns == old.st_mtime_ns
    assert restored.remarks == ""


@only_root
def test_devices_come_back(scratch: Path, archive: Path) -> None:
    os.mknod(scratch / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    restore(archive, saved.checksum, scratch)
    status = (scratch / "null").stat()
    assert stat.S_ISCHR(status.st_mode)
    assert status.st_rdev == os.makedev(1, 3)
    assert (scratch / "null").read_bytes() == b""


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Tag, permissions and id of each, as the kernel keeps them."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY_ID = 0xFFFFFFFF
# user::rw-, user:1234:rw-, group::---, mask::rw-, other::---
READ_BY_1234 = acl((1, 6, NOBODY_ID), (2, 6, 1234), (4, 0, NOBODY_ID), (16, 6, NOBODY_ID), (32, 0, NOBODY_ID))
# The same for whatever is made in a directory.
DEFAULT_FOR_1234 = acl((1, 7, NOBODY_ID), (2, 7, 1234), (4, 0, NOBODY_ID), (16, 7, NOBODY_ID), (32, 0, NOBODY_ID))


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as exc:
        pytest.skip(f"this file system keeps no {name}: {exc.strerror}")


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_access_control_lists_and_extended_attributes_come_back(scratch: Path, archive: Path) -> None:
    secret, deep = scratch / "deep" / "secret", scratch / "deep"
    set_attribute(secret, ACCESS, READ_BY_1234)
    set_attribute(secret, "user.note", bytes(range(256)))
    set_attribute(secret, "user.with=sign %3D:ü", b"")
    set_attribute(deep, "system.posix_acl_default", DEFAULT_FOR_1234)
    set_attribute(deep, "user.of a directory", b"=\n")
    before = [(attributes(path), path.stat().st_mode) for path in (secret, deep)]
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    assert restore(archive, saved.checksum, scratch).remarks == ""
    assert [(attributes(path), path.stat().st_mode) for path in (secret, deep)] == before
    assert len(before[0][0]) == 3


def test_a_file_does_not_inherit_rights_that_it_did_not_have(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    (scratch / "deep" / "secret").unlink()
    set_attribute(scratch / "deep", "system.posix_acl_default", DEFAULT_FOR_1234)
    restore(archive, saved.checksum, scratch)
    assert attributes(scratch / "deep" / "secret") == {}
    assert (scratch / "deep" / "secret").stat().st_mode & 0o777 == 0o640


def test_without_its_access_control_list_a_file_gives_its_group_no_more_than_before(
    scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = scratch / "deep" / "secret"
    set_attribute(secret, ACCESS, READ_BY_1234)
    saved = save(archive, scratch)
    shutil.rmtree(scratch)

    def refuse(*_arguments: t.Any, **_more: t.Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    restored = restore(archive, saved.checksum, scratch)
    assert restored.remarks == f"1 put back without all extended attributes: '{secret}'"
    assert secret.stat().st_mode & 0o777 == 0o600


SPARSE = {
    "hole at the end": ([(0, b"data")], 1 << 30),
    "hole at the beginning": ([((1 << 30) - 4, b"data")], 1 << 30),
    "many holes": ([(number << 20, b"data") for number in range(200)], 200 << 20),
    "nothing but a hole": ([], 5 << 20),
}


@pytest.mark.parametrize("name", SPARSE)
def test_holes_stay_holes(tmp_path: Path, archive: Path, name: str) -> None:
    pieces, size = SPARSE[name]
    file = tmp_path / "scratch" / "sparse"
    file.parent.mkdir()
    with file.open("wb") as writer:
        for offset, data in pieces:
            writer.seek(offset)
            writer.write(data)
        writer.truncate(size)
    blocks = file.stat().st_blocks
    if blocks * 512 >= size:
        pytest.skip("this file system has no holes")
    saved = save(archive, file.parent)
    shutil.rmtree(file.parent)
    restore(archive, saved.checksum, file.parent)
    assert file.stat().st_size == size
    # The file system may keep its own list of the pieces in another form.
    assert file.stat().st_blocks - blocks < 100
    with file.open("rb") as reader:
        for offset, data in pieces:
            reader.seek(offset)
            assert reader.read(len(data) + 1) in (data, data + b"\0")
    assert saved.size < 100_000


def test_zeros_that_are_no_hole_are_not_made_one(tmp_path: Path, archive: Path) -> None:
    file = tmp_path / "scratch"
    file.write_bytes(bytes(1 << 20))
    blocks = file.stat().st_blocks
    saved = save(archive, file)
    file.unlink()
    restore(archive, saved.checksum, file)
    os.sync()
    assert file.stat().st_blocks == blocks
    assert file.read_bytes() == bytes(1 << 20)


def test_a_file_with_holes_and_more_than_8_gib_of_data_comes_back_with_its_size(tmp_path: Path, archive: Path) -> None:
    """Such a file has a header more. Here it has that header, and little data."""
    root = tmp_path / "root"
    large, table = f"{root}/large", b"2\n0\n4\n1000\n0\n".ljust(512, b"\0")
    info, content = member(large, content=table + b"data")
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": info.name}
    info.pax_headers = {**sparse, "GNU.sparse.realsize": "1000", "size": str(info.size)}
    checksum = forged(archive, root, (info, content), member(f"{root}/next", content=b"next"))
    restore(archive, checksum, root)
    assert (root / "large").read_bytes() == b"data" + bytes(996)
    assert (root / "next").read_bytes() == b"next"


# ---- what is left out, and said


def test_a_socket_is_left_out_and_said(scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket must not be long.
    monkeypatch.chdir(scratch)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    saved = save(archive, scratch)
    assert saved.entries == 5
    assert saved.remarks == f"1 left out (socket): '{scratch / 'socket'}'"


def test_files_that_vanish_are_left_out_and_said(scratch: Path, archive: Path) -> None:
    (scratch / "a").write_bytes(os.urandom(100_000))
    vanishing = [scratch / f"vanishing{number}" for number in range(5)]
    for file in vanishing:
        file.write_text("x")
    saved = save(archive, scratch, run=tar_that_is_disturbed("rm", *map(str, vanishing)))
    assert saved.entries == 6
    assert f"5 left out (vanished while it was read): '{vanishing[0]}', " in saved.remarks
    shutil.rmtree(scratch)
    assert len(restore(archive, saved.checksum, scratch).paths) == 6


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_file_that_changes_while_it_is_read_is_saved_and_said(tmp_path: Path, archive: Path, size: int) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 2_000_000)
    saved = save(archive, log, run=tar_that_is_disturbed("truncate", f"--size={size}", str(log)))
    assert f"1 changed while it was read: '{log}'" in saved.remarks
    log.unlink()
    restore(archive, saved.checksum, log)
    assert log.stat().st_size == 2_000_000
    assert log.read_bytes()[:5_000] == b"x" * 5_000


def test_a_directory_that_becomes_a_link_while_it_is_read_is_not_followed(
    scratch: Path, archive: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of somebody else")
    (scratch / "deep" / "a").write_bytes(os.urandom(100_000))
    swap = f"mv {scratch}/deep {tmp_path}/away && ln -s {outside} {scratch}/deep"
    save(archive, scratch, run=tar_that_is_disturbed("sh", "-c", swap))
    assert (scratch / "deep").is_symlink()
    assert b"of somebody else" not in gzip.decompress(archive.read_bytes())


def test_a_directory_above_that_becomes_a_link_before_it_is_read_is_not_followed(
    scratch: Path, archive: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "secret").write_text("of somebody else")

    def swap(argv: list[str]) -> list[str]:
        scratch.rename(tmp_path / "away")
        scratch.symlink_to(outside)
        return argv

    def swap_after_that_directory(argv: list[str]) -> list[str]:
        swap(argv)
        return [*argv[: argv.index("--no-recursion")], *argv[argv.index("--recursion") :]]

    saved = save(archive, scratch / "deep", run=tar_with(swap_after_that_directory))
    scratch.unlink()
    (tmp_path / "away").rename(scratch)
    (scratch / "deep" / "secret").unlink()
    restore(archive, saved.checksum, scratch / "deep")
    assert (scratch / "deep" / "secret").read_text() == "one"
    with pytest.raises(EventsError, match="which is not among the paths"):
        save(archive, scratch / "deep", run=tar_with(swap))


def test_a_path_that_vanishes_is_no_checkpoint(scratch: Path, archive: Path) -> None:
    other = scratch.parent / "zother"
    other.write_text("x")

    def vanish(argv: list[str]) -> list[str]:
        other.unlink()
        return argv

    with pytest.raises(EventsError, match=r"failed: tar: /.*zother: Cannot stat: No such file or directory. Nothing"):
        save(archive, scratch, other, run=tar_with(vanish))
    assert not archive.exists()


def test_what_else_tar_says_is_said(scratch: Path, archive: Path) -> None:
    run = tar_with(after=lambda ran: ran._replace(err=f"{ran.err}tar: strange\n"))
    assert save(archive, scratch, run=run).remarks == "1 with a message of tar: 'tar: strange'"


@pytest.mark.parametrize(
    "version", ["tar (busybox) 1.36.1", "bsdtar 3.7.2 - libarchive 3.7.2", "tar (GNU tar) 1.27.1", ""]
)
def test_without_gnu_tar_the_checkpoint_says_so(
    scratch: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if version:
        (programs / "tar").write_text(f"#!/bin/sh\necho '{version}'\n")
        (programs / "tar").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(EventsError, match=r"saved with GNU tar 1.28 or newer, .* Install or update the packages tar"):
        save(archive, scratch)
    assert not archive.parent.exists()


# ---- without root


@pytest.fixture
def place() -> t.Iterator[Path]:
    """A directory of the user that is not root; pytest's own is closed to it."""
    place = Path(tempfile.mkdtemp(prefix="graceful-test-"))
    if ROOT:
        shutil.chown(place, "nobody")
    yield place
    subprocess.run(["chmod", "-R", "u+rwx", str(place)], check=True)
    shutil.rmtree(place)


def without_root(work: t.Callable[[], t.Any]) -> t.Any:
    """What it returns, or what the error says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            if ROOT:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.umask(0o022)
            try:
                result = work()
            except EventsError as exc:
                result = exc.message
            except BaseException as exc:
                result = repr(exc)
            os.write(writer, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def test_without_root_a_directory_that_its_owner_cannot_write_to_comes_back(place: Path) -> None:
    def work() -> list[t.Any]:
        closed = place / "scratch" / "closed"
        closed.mkdir(parents=True)
        (closed / "file").write_text("one")
        closed.chmod(0o555)
        saved = save(place / "safe" / "a.tar.gz", place / "scratch")
        closed.chmod(0o755)
        shutil.rmtree(place / "scratch")
        restored = restore(place / "safe" / "a.tar.gz", saved.checksum, place / "scratch")
        return [(closed / "file").read_text(), closed.stat().st_mode & 0o7777, restored.remarks]

    assert without_root(work) == ["one", 0o555, ""]


def test_without_root_a_directory_above_that_cannot_be_listed_does_not_have_to_be_saved(place: Path) -> None:
    def work() -> list[t.Any]:
        cache = place / "above" / "cache"
        cache.mkdir(parents=True)
        (cache / "file").write_text("one")
        cache.parent.chmod(0o311)
        saved = save(place / "a.tar.gz", cache)
        shutil.rmtree(cache)
        restored = restore(place / "a.tar.gz", saved.checksum, cache)
        return [(cache / "file").read_text(), saved.entries, len(restored.paths)]

    assert without_root(work) == ["one", 2, 2]


@only_root
def test_without_root_owners_and_devices_are_not_kept_and_that_is_said(place: Path) -> None:
    scratch, archive = place / "scratch", place / "a.tar.gz"
    scratch.mkdir()
    (scratch / "tool").write_text("x")
    (scratch / "tool").chmod(0o6755)
    os.chown(scratch, 65534, 65534)
    os.mknod(scratch / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    saved = save(archive, scratch)
    archive.chmod(0o644)
    shutil.rmtree(scratch)
    remarks = without_root(lambda: restore(archive, saved.checksum, scratch).remarks)
    assert remarks == (
        f"1 not put back (device, which only root can make): '{scratch}/null'; "
        f"1 put back without the owner: '{scratch}/tool'"
    )
    assert (scratch / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_file_that_cannot_be_read_is_an_error(place: Path) -> None:
    def work() -> None:
        (place / "scratch").mkdir()
        (place / "scratch" / "closed").write_text("x")
        (place / "scratch" / "closed").chmod(0)
        save(place / "a.tar.gz", place / "scratch")

    assert without_root(work) == (
        f"Saving to {place}/a.tar.gz failed: tar: {place}/scratch/closed: Cannot open: Permission denied. Nothing was "
        "saved."
    )
    assert not (place / "a.tar.gz").exists()


def test_a_place_that_is_not_writable_is_said_with_what_to_do(place: Path) -> None:
    def work() -> None:
        (place / "scratch").mkdir()
        (place / "safe").mkdir(mode=0o555)
        save(place / "safe" / "a.tar.gz", place / "scratch")

    assert without_root(work) == (
        f"Saving to {place}/safe/a.tar.gz failed: Permission denied. Choose a place that this user can write to "
        "(graceful_checkpoint_dir), or set become to true."
    )


# ---- links that somebody puts in the way


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_became_a_link_or_a_file_leads_nowhere(scratch: Path, archive: Path, tmp_path: Path, kind: str) -> None:
    saved = save(archive, scratch)
    outside, deep = tmp_path / "outside", scratch / "deep"
    outside.mkdir()
    shutil.rmtree(deep)
    if kind == "link":
        deep.symlink_to(outside)
    else:
        deep.write_text("x")
    (scratch / "name with $(space)").unlink()
    with pytest.raises(EventsError, match=r"Nothing was put back: .*/deep is a link or a file now, .* Move it away"):
        restore(archive, saved.checksum, scratch)
    assert list(outside.iterdir()) == []
    assert not (scratch / "name with $(space)").exists()


def test_a_subdirectory_that_becomes_a_link_at_any_moment_leads_nowhere(
    scratch: Path, archive: Path, tmp_path: Path
) -> None:
    """Somebody swaps it between any two files that are put back, once per attempt, at every moment there is."""
    for number in range(20):
        (scratch / "deep" / f"file{number}").write_text(str(number))
    saved = save(archive, scratch)
    outside, away = tmp_path / "outside", tmp_path / "away"
    outcomes = []
    for moment in range(1, 200):
        shutil.rmtree(scratch)
        shutil.rmtree(away, ignore_errors=True)
        shutil.rmtree(outside, ignore_errors=True)
        outside.mkdir()
        looks = itertools.count()

        def swap(moment: int = moment, looks: t.Iterator[int] = looks) -> None:
            if next(looks) >= moment and (scratch / "deep").is_dir() and not (scratch / "deep").is_symlink():
                (scratch / "deep").rename(away)
                (scratch / "deep").symlink_to(outside)

        try:
            restore(archive, saved.checksum, scratch, patience=Patience(60, Meddler(swap)))
        except EventsError as exc:
            words = ("is a link or a file now", "deep failed, after 25 others: Not a directory")
            outcomes.append(any(each in exc.message for each in words) or exc.message)
        assert list(outside.iterdir()) == [], f"after {moment} looks at the time"
        if not (scratch / "deep").is_symlink():
            break
    assert set(outcomes) == {True}
    assert 20 < len(outcomes) < 150, "the last attempt is one in which nothing happened"
    assert len(list((scratch / "deep").iterdir())) == 21


@pytest.mark.parametrize("only_missing_paths", [False, True])
def test_a_directory_above_that_became_a_link_is_refused(
    tmp_path: Path, archive: Path, only_missing_paths: bool
) -> None:
    cache, outside = tmp_path / "disk" / "cache", tmp_path / "outside"
    cache.mkdir(parents=True)
    (cache / "file").write_text("one")
    saved = save(archive, cache)
    shutil.rmtree(tmp_path / "disk")
    outside.mkdir()
    (tmp_path / "disk").symlink_to(outside)
    with pytest.raises(EventsError, match=r"Nothing was put back: .*/disk is a link or a file now"):
        restore(archive, saved.checksum, cache, only_missing_paths=only_missing_paths)
    assert list(outside.iterdir()) == []


@only_root
@pytest.mark.parametrize("moment", [0, 1, 2, 3, 4, 5, 6, 8, 10, 12])
def test_what_only_its_directory_protects_is_not_put_into_the_directory_of_another_user(
    tmp_path: Path, archive: Path, moment: int
) -> None:
    """The owner of the directory above can move a directory of root away, and make one of his own in its place."""
    data = tmp_path / "data"
    secrets = data / "secrets"
    secrets.mkdir(parents=True, mode=0o700)
    for number in range(3):
        (secrets / f"key{number}").write_text("for root")
    os.chown(data, 65534, 65534)
    saved = save(archive, data)
    shutil.rmtree(secrets)
    looks = [0]

    def replace() -> None:
        looks[0] += 1
        if looks[0] == moment + 1:
            if secrets.exists():
                secrets.rename(data / "moved")
            secrets.mkdir(mode=0o755)
            os.chown(secrets, 65534, 65534)

    with contextlib.suppress(EventsError):
        restore(archive, saved.checksum, data, patience=Patience(60, Meddler(replace)))
    assert looks[0] > moment
    assert list(secrets.iterdir()) == [] or secrets.stat().st_uid == 0


def test_a_file_that_somebody_made_meanwhile_stays(
    scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(archive, scratch)
    secret, make = scratch / "deep" / "secret", tarfile.TarFile.makefile
    secret.unlink()

    def somebody_makes_it(*arguments: t.Any) -> None:
        make(*arguments)
        secret.write_text("newer")

    monkeypatch.setattr(tarfile.TarFile, "makefile", somebody_makes_it)
    assert restore(archive, saved.checksum, scratch).paths == []
    assert secret.read_text() == "newer"


def test_a_directory_that_somebody_made_meanwhile_stays_as_it_is(
    scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(archive, scratch)
    deep, make = scratch / "deep", os.mkdir
    before = deep.stat().st_mtime_ns
    shutil.rmtree(deep)

    def somebody_makes_it(path: t.Any, *arguments: t.Any, **more: t.Any) -> None:
        make(path, *arguments, **more)
        if path == NEW:
            make(deep, 0o700)

    monkeypatch.setattr(os, "mkdir", somebody_makes_it)
    assert restore(archive, saved.checksum, scratch).paths == [str(deep / "secret")]
    assert deep.stat().st_mode & 0o777 == 0o700
    assert deep.stat().st_mtime_ns != before


@only_root
@pytest.mark.parametrize(("owner", "mode"), [(1234, 0o700), (0, 0o777)])
def test_the_directory_of_somebody_else_is_not_used_to_make_files_in(
    scratch: Path, archive: Path, owner: int, mode: int
) -> None:
    saved = save(archive, scratch)
    (scratch / "deep" / "secret").unlink()
    (scratch / "deep" / STAGE).mkdir()
    (scratch / "deep" / STAGE).chmod(mode)
    os.chown(scratch / "deep" / STAGE, owner, owner)
    with pytest.raises(EventsError, match=f"a directory {STAGE} there is not ours and has to be removed"):
        restore(archive, saved.checksum, scratch)
    (scratch / "deep" / STAGE).rmdir()
    assert restore(archive, saved.checksum, scratch).paths == [str(scratch / "deep" / "secret")]


# ---- archives that are not what was saved


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name.lstrip("/") if not name.startswith("//") else name[1:])
    info.type, info.linkname, info.size = kind, link, len(content)
    info.mode = 0o755
    return info, content


def forged(archive: Path, root: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    """An archive with these members, in their order, and what every archive begins with. Its checksum is right."""
    archive.parent.mkdir(exist_ok=True)
    parents = [member(str(path), tarfile.DIRTYPE) for path in reversed(root.parents) if path != Path("/")]
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, content in (*parents, member(str(root), tarfile.DIRTYPE), *members):
            tar.addfile(info, io.BytesIO(content))
    return checksum_of(archive)


def repacked(archive: Path, content: bytes) -> str:
    archive.write_bytes(gzip.compress(content))
    return checksum_of(archive)


def test_what_is_forged_below_is_well_formed_but_for_what_is_forged(archive: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first, second = f"{root}/first", f"{root}/second"
    checksum = forged(archive, root, member(first, content=b"x"), member(second, tarfile.LNKTYPE, first.lstrip("/")))
    # tarfile fills up to a whole record; what is written here ends with two blocks.
    content = gzip.decompress(archive.read_bytes()).rstrip(b"\0")
    checksum = repacked(archive, content + bytes(-len(content) % 512 + 1024))
    assert restore(archive, checksum, root).paths == [str(root), first, second]


OUTSIDE = "/etc/graceful-test-outside"
FORGERIES: dict[str, tuple[t.Callable[[str], list[tuple[tarfile.TarInfo, bytes]]], str]] = {
    "a path outside": (lambda root: [member(OUTSIDE)], "which is not among the paths"),
    "a directory outside": (lambda root: [member("/etc/x", tarfile.DIRTYPE)], "which is not among the paths"),
    "an absolute path": (lambda root: [member("/" + OUTSIDE)], "leads out of the saved paths"),
    "a way up": (lambda root: [member(f"{root}/../outside")], "leads out of the saved paths"),
    "a way up at the end": (lambda root: [member(f"{root}/..", tarfile.DIRTYPE)], "leads out of the saved paths"),
    "no way": (lambda root: [member(f"{root}/./x")], "leads out of the saved paths"),
    "a hard link to outside": (
        lambda root: [member(f"{root}/x", tarfile.LNKTYPE, "etc/passwd")],
        "which is not among the paths",
    ),
    "an absolute hard link": (
        lambda root: [member(f"{root}/x", tarfile.LNKTYPE, "/etc/passwd")],
        "leads out of the saved paths",
    ),
    "a header for all": (
        lambda root: [member("x", tarfile.XGLTYPE, content=b"14 path=etc/x\n"), member(f"{root}/x")],
        "which is not among the paths",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_whatever_leads_out_of_the_saved_paths_is_refused(forgery: str, archive: Path, tmp_path: Path) -> None:
    make, words = FORGERIES[forgery]
    root = tmp_path / "root"
    checksum = forged(archive, root, member(f"{root}/first", content=b"x"), *make(str(root)))
    with pytest.raises(EventsError, match=f"is damaged: .*{words}.* Nothing was put back"):
        restore(archive, checksum, root)
    assert not root.exists()
    assert not os.path.lexists(OUTSIDE)


NONSENSE: dict[str, t.Callable[[str], list[tuple[tarfile.TarInfo, bytes]]]] = {
    "a file through a link": lambda root: [
        member(f"{root}/link", tarfile.SYMTYPE, "/etc"),
        member(f"{root}/link/outside"),
    ],
    "a directory in the place of a link": lambda root: [
        member(f"{root}/link", tarfile.SYMTYPE, "/etc"),
        member(f"{root}/link", tarfile.DIRTYPE),
    ],
    "a hard link to a link": lambda root: [
        member(f"{root}/link", tarfile.SYMTYPE, "/etc/passwd"),
        member(f"{root}/x", tarfile.LNKTYPE, f"{root}/link".lstrip("/")),
    ],
    "a hard link to what follows": lambda root: [
        member(f"{root}/a", tarfile.LNKTYPE, f"{root}/b".lstrip("/")),
        member(f"{root}/b"),
    ],
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_archive_that_makes_no_sense_changes_nothing_outside(nonsense: str, archive: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    checksum = forged(archive, root, *NONSENSE[nonsense](str(root)))
    before = os.stat("/etc").st_mtime_ns, os.stat("/etc/passwd").st_nlink
    with contextlib.suppress(EventsError):
        restore(archive, checksum, root)
    assert (os.stat("/etc").st_mtime_ns, os.stat("/etc/passwd").st_nlink) == before
    assert not list(root.rglob(STAGE))


def test_an_archive_of_other_paths_is_refused(scratch: Path, archive: Path, tmp_path: Path) -> None:
    saved = save(archive, scratch)
    with pytest.raises(EventsError, match="not among the paths"):
        restore(archive, saved.checksum, tmp_path / "elsewhere")


def test_a_damaged_checkpoint_puts_nothing_back(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    shutil.rmtree(scratch)
    with pytest.raises(EventsError, match="is damaged: its checksum is"):
        restore(archive, saved.checksum, scratch)
    assert not scratch.exists()


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


DAMAGES: dict[str, t.Callable[[bytes], bytes]] = {
    "a header in the middle": lambda tar: gzip.compress(flipped(tar, tar.index(b"name with") + 3)),
    "no end": lambda tar: gzip.compress(tar.rstrip(b"\0") + bytes(-len(tar.rstrip(b"\0")) % 512)),
    "cut off in a header": lambda tar: gzip.compress(tar[: len(tar) // 2 // 512 * 512 + 100]),
    "cut off after an entry": lambda tar: gzip.compress(tar[: tar.index(b"name with") // 512 * 512]),
    "something behind the end": lambda tar: gzip.compress(tar + b"x"),
    "another archive behind it": lambda tar: gzip.compress(tar) + gzip.compress(tar),
    "a checksum of gzip that is wrong": lambda tar: flipped(gzip.compress(tar), -8),
    "gzip cut off": lambda tar: gzip.compress(tar)[:-20],
    "gzip damaged in the middle": lambda tar: flipped(gzip.compress(tar), len(gzip.compress(tar)) // 2),
    "something behind gzip": lambda tar: gzip.compress(tar) + b"x",
    "no gzip": lambda tar: tar,
    "nothing": lambda _tar: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_before_anything_is_put_back_even_if_the_checksum_is_right(
    damage: str, scratch: Path, archive: Path
) -> None:
    save(archive, scratch)
    archive.write_bytes(DAMAGES[damage](gzip.decompress(archive.read_bytes())))
    shutil.rmtree(scratch)
    with pytest.raises(EventsError, match=r"is damaged: .* Nothing was put back"):
        restore(archive, checksum_of(archive), scratch)
    assert not scratch.exists()


def test_no_damage_leads_out_of_the_saved_paths_or_to_an_error_of_our_own(
    scratch: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hundreds of times, that would only keep the disk busy.
    monkeypatch.setattr(os, "sync", lambda: None)
    with (scratch / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    os.link(scratch / "deep" / "secret", scratch / "second")
    with contextlib.suppress(OSError):
        os.setxattr(scratch / "sparse", "user.note", b"value")
    save(archive, scratch)
    content = gzip.decompress(archive.read_bytes())
    outcomes: set[bool | None] = set()
    chance = random.Random(1)
    before = sorted(os.listdir(tmp_path))
    for _attempt in range(300):
        shutil.rmtree(scratch, ignore_errors=True)
        damaged = bytearray(content)
        for _byte in range(chance.choice([1, 2, 5])):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 0x2F, 0x2E, 0x39, 0xFF])
        checksum = repacked(archive, bytes(damaged))
        try:
            restore(archive, checksum, scratch)
        except EventsError as exc:
            outcomes.add("is damaged" in exc.message)
            assert not scratch.exists()
        else:
            outcomes.add(None)
        assert set(os.listdir(tmp_path)) <= set(before)
    assert outcomes == {True, None}


def test_what_cannot_be_read_back_is_not_saved(scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk keeps something else than what was written to it."""
    saved = save(archive, scratch)
    written = os.fsync

    def spoil(descriptor: int) -> None:
        written(descriptor)
        part = archive.with_name(archive.name + PART)
        part.write_bytes(flipped(part.read_bytes(), -8))

    monkeypatch.setattr(os, "fsync", spoil)
    with pytest.raises(EventsError, match=r"What was written to .* cannot be read back"):
        save(archive, scratch)
    assert checksum_of(archive) == saved.checksum
    assert os.listdir(archive.parent) == [archive.name]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["true"], "No such file"),
        (["mkdir"], "Is a directory"),
        (["mkfifo"], "File or stream is not seekable"),
        (["ln", "-s", "/etc/passwd"], "Too many levels of symbolic links"),
    ],
)
def test_a_checkpoint_that_is_gone_is_said_so(scratch: Path, archive: Path, command: list[str], words: str) -> None:
    archive.parent.mkdir()
    subprocess.run([*command, str(archive)], check=True, timeout=20)
    with pytest.raises(EventsError, match=f"cannot be read: {words}.* Nothing was put back"):
        restore(archive, "0", scratch)


# ---- full disks, interruptions and time


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


def test_what_could_not_be_put_back_whole_is_put_back_by_the_next_run(scratch: Path, archive: Path) -> None:
    large = scratch / "deep" / "large"
    large.write_bytes(os.urandom(300_000))
    os.link(large, scratch / "deep" / "large too")
    content = large.read_bytes()
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    with largest_file(100_000), pytest.raises(EventsError, match=r"large failed, .*: File too large. Run it again"):
        restore(archive, saved.checksum, scratch)
    assert not list(scratch.rglob("large*")), "half a file would be taken for the whole one"
    assert not list(scratch.rglob(STAGE))
    (scratch / "deep" / STAGE).mkdir(mode=0o700)
    (scratch / "deep" / STAGE / NEW).write_text("left by a run that was killed")
    restore(archive, saved.checksum, scratch)
    assert large.read_bytes() == content
    assert large.samefile(scratch / "deep" / "large too")
    assert (scratch / "deep").stat().st_mode & 0o777 == 0o750
    assert not list(scratch.rglob(STAGE))


def test_a_restore_that_is_killed_leaves_whole_files_and_the_next_one_goes_on(
    scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (scratch / f"large{number}").write_bytes(os.urandom(3 << 20))
    contents = {file.name: file.read_bytes() for file in scratch.glob("large*")}
    saved = save(archive, scratch)
    for moment in range(1, 12):
        shutil.rmtree(scratch)
        child = os.fork()
        if child == 0:
            looks = itertools.count()

            def end(moment: int = moment, looks: t.Iterator[int] = looks) -> None:
                if (scratch / STAGE / NEW).exists() and next(looks) == moment:
                    os._exit(9)

            with contextlib.suppress(BaseException):
                restore(archive, saved.checksum, scratch, patience=Patience(60, Meddler(end)))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        for file in scratch.glob("large*"):
            assert file.read_bytes() == contents[file.name]
        restore(archive, saved.checksum, scratch)
        assert {file.name: file.read_bytes() for file in scratch.glob("large*")} == contents
        assert not (scratch / STAGE).exists()


def test_a_full_disk_leaves_the_earlier_archive_alone(scratch: Path, archive: Path) -> None:
    saved = save(archive, scratch)
    (scratch / "large").write_bytes(os.urandom(300_000))
    with largest_file(100_000), pytest.raises(EventsError, match="failed: File size limit exceeded"):
        save(archive, scratch)
    assert checksum_of(archive) == saved.checksum
    assert os.listdir(archive.parent) == [archive.name]


def test_a_full_disk_is_said_with_what_to_do(scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(archive, scratch)
    (scratch / "deep" / "secret").unlink()

    def full(*_arguments: t.Any, **_more: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    said = "\ngzip: stdout: No space left on device\ntar: -: Cannot write: Broken pipe\n"
    with pytest.raises(
        EventsError, match=r"failed: gzip: stdout: No space left on device. Free some space there, or choose"
    ):
        save(archive, scratch, run=tar_with(after=lambda _ran: Ran(2, "", said)))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        EventsError, match=r"failed: No space left on device. Free some space there, or choose another place"
    ):
        save(archive, scratch)
    monkeypatch.setattr(tarfile.TarFile, "makefile", full)
    with pytest.raises(
        EventsError, match=r"secret failed, .*: No space left on device. Free some space there. Run it again"
    ):
        restore(archive, saved.checksum, scratch)
    assert not (scratch / "deep" / "secret").exists()


@only_root
def test_a_disk_that_is_really_full_is_said(scratch: Path, archive: Path) -> None:
    (scratch / "large").write_bytes(os.urandom(1 << 20))
    archive.parent.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(archive.parent)], check=True, timeout=20)
    try:
        with pytest.raises(
            EventsError, match=r"No space left on device. Free some space there, or choose another place"
        ):
            save(archive, scratch)
        assert os.listdir(archive.parent) == []
    finally:
        subprocess.run(["umount", str(archive.parent)], check=True, timeout=20)


def test_a_file_system_that_cannot_sync_directories_saves_all_the_same(
    scratch: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    assert save(archive, scratch).checksum == checksum_of(archive)


@pytest.mark.parametrize(
    ("paths", "word"), [(["none"], "does not exist"), (["."], "which is to be saved"), (["/"], "which is to be saved")]
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    tmp_path: Path, archive: Path, paths: list[str], word: str
) -> None:
    with pytest.raises(EventsError, match=word):
        save(archive, *(tmp_path / path for path in paths))
    assert not archive.parent.exists()


def test_an_archive_is_readable_by_nobody_else(scratch: Path, archive: Path) -> None:
    save(archive, scratch)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert archive.parent.stat().st_mode & 0o777 == 0o700


def test_a_directory_for_archives_that_is_there_keeps_its_mode(scratch: Path, archive: Path) -> None:
    archive.parent.mkdir()
    archive.parent.chmod(0o755)
    save(archive, scratch)
    assert archive.parent.stat().st_mode & 0o777 == 0o755


def test_what_a_killed_run_left_is_not_followed_and_not_kept(scratch: Path, archive: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    archive.parent.mkdir()
    archive.with_name(archive.name + PART).symlink_to(precious)
    save(archive, scratch)
    assert precious.read_text() == "x"
    assert os.listdir(archive.parent) == [archive.name]


@pytest.mark.parametrize("what", ["tar", "reading back"])
def test_saving_takes_no_longer_than_it_may(scratch: Path, archive: Path, what: str) -> None:
    saved = save(archive, scratch)
    (scratch / "large").write_bytes(os.urandom(1 << 20))
    if what == "tar":
        patience, run = Patience(0.5), tar_with_options("--checkpoint=1", "--checkpoint-action=sleep=1")
    else:
        patience, run = Patience(20, SlowClock()), real_run
    with pytest.raises(Late, match=r"s (for it are over|and was stopped). It is not saved. Give the checkpoint more"):
        save(archive, scratch, patience=patience, run=run)
    assert checksum_of(archive) == saved.checksum
    assert os.listdir(archive.parent) == [archive.name]


def test_what_takes_too_long_to_put_back_goes_on_where_it_was(scratch: Path, archive: Path) -> None:
    for number in range(20):
        (scratch / f"file{number}").write_text(str(number))
    saved = save(archive, scratch)
    shutil.rmtree(scratch)
    with pytest.raises(Late, match=r"The 60 s for it are over. \d+ put back. Run it again for the rest"):
        restore(archive, saved.checksum, scratch, patience=Patience(60, SlowClock()))
    there = {str(path) for path in scratch.rglob("*")}
    assert there
    restored = restore(archive, saved.checksum, scratch)
    assert len(restored.paths) + len(there) + 1 == saved.entries
    assert not there & set(restored.paths)
