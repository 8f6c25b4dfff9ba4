# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads an archive with tarfile, for no longer than it may take."""

from __future__ import annotations

import gzip
import tarfile
import typing as t
import zlib

from ._errors import EventsError
from ._patience import Late, Patience
from ._text import clean, quoted

CHUNK = 1 << 20
BLOCK = tarfile.BLOCKSIZE


class Damaged(EventsError):
    """The archive is not as it was written."""


class Timed:
    """A file that can be read until the time is over."""

    def __init__(self, file: t.BinaryIO, patience: Patience) -> None:
        self._file = file
        self._patience = patience

    def demand_time(self) -> None:
        if self._patience.left <= 0:
            raise Late(f"The {self._patience.seconds:.3g} s for it are over.")

    def read(self, size: int) -> bytes:
        self.demand_time()
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)


class _Member(tarfile.TarInfo):
    """Of a file with holes and more than 8 GiB of data, tarfile takes the wrong one of two sizes."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Member:
        member = super().fromtarfile(tarfile)
        if member.sparse is not None and "size" in member.pax_headers:
            stored = sum(length for _offset, length in t.cast("list[tuple[int, int]]", member.sparse))
            tarfile.offset = member.offset_data + stored + -stored % BLOCK
            member.size = int(member.pax_headers["GNU.sparse.realsize"])
        return member


class Reader:
    """Goes through an archive of these paths from its beginning to its end, and refuses what leads out of them."""

    def __init__(self, file: Timed, paths: t.Sequence[str]) -> None:
        self._file = file
        self._paths = paths
        self._tar: t.Any = None
        self._above = {parent for path in paths for parent in parents(path)}

    def __iter__(self) -> t.Iterator[tuple[str, tarfile.TarInfo]]:
        """Each entry, and the path that it was saved from."""
        self._file.seek(0)
        try:
            with gzip.GzipFile(fileobj=self._file, mode="rb") as unpacked, tarfile.open(
                fileobj=unpacked, mode="r:", tarinfo=_Member, encoding="utf-8", errors="surrogateescape"
            ) as self._tar:
                # Newer versions would leave out or change some of what was saved.
                self._tar.extraction_filter = lambda member, _directory: member
                while (member := self._tar.next()) is not None:
                    self._file.demand_time()
                    # Or it would keep them all.
                    self._tar.members.clear()
                    yield self._path(member), member
                # It takes what it does not understand for the end, which is two blocks of zeros, and more zeros.
                has_end = unpacked.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)
                if not has_end or any(chunk.strip(b"\0") for chunk in iter(lambda: unpacked.read(CHUNK), b"")):
                    raise Damaged("something in it is no entry, or its end is missing")
        except (Damaged, Late):
            raise
        except Exception as exc:
            raise Damaged(f"it cannot be unpacked ({clean(exc, 80)})") from exc

    def unpack(self, member: tarfile.TarInfo, directory: str, name: str) -> None:
        """Make what the last entry is, without owner, mode and times."""
        member.name = name
        try:
            self._tar.extract(member, directory, set_attrs=False)
        except (tarfile.TarError, EOFError, zlib.error) as exc:
            raise Damaged(f"it cannot be unpacked ({clean(exc, 80)})") from exc

    def _path(self, member: tarfile.TarInfo) -> str:
        path = "/" + member.name
        for name in (path, "/" + member.linkname) if member.islnk() else (path,):
            if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")[1:]):
                raise Damaged(f"it holds {quoted(name)}, which leads out of the saved paths")
            if not any(within(name, root) for root in self._paths) and not (member.isdir() and name in self._above):
                raise Damaged(f"it holds {quoted(name)}, which is not among the paths")
        return path


def parents(path: str) -> list[str]:
    """The directories above, the topmost first."""
    names = path.split("/")
    return ["/".join(names[:count]) or "/" for count in range(1, len(names))]


def within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
