# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.

"""The format of an archive: a tar file in gzip, which GNU tar can read. Reading takes only what writing makes."""

from __future__ import annotations

import decimal
import gzip
import hashlib
import os
import re
import tarfile
import typing as t
import urllib.parse
import zlib

from ._errors import EventsError
from ._text import quoted

FILE, DIRECTORY, SYMLINK, HARD_LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
FIFO, CHARACTER_DEVICE, BLOCK_DEVICE = tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE
DEVICES = (CHARACTER_DEVICE, BLOCK_DEVICE)
TYPES = (FILE, DIRECTORY, SYMLINK, HARD_LINK, FIFO, *DEVICES)
CHUNK = 1 << 20
BLOCK = tarfile.BLOCKSIZE
ZEROS = bytes(BLOCK)
# Extended attributes are part of a header, and a header is held in memory.
LARGEST_HEADER = 1 << 26
ATTRIBUTE = "SCHILY.xattr."
# What GNU tar writes as it is in the name of an attribute.
PLAIN = "/:@+,;!$&()*#"
Segments = t.Tuple[t.Tuple[int, int], ...]


class Damaged(EventsError):
    """The archive is not as it was written."""


class Entry(t.NamedTuple):
    """One file, directory, link, fifo or device. Times are in nanoseconds."""

    path: str
    type: bytes
    mode: int = 0o600
    uid: int = 0
    gid: int = 0
    modified: int = 0
    accessed: int = 0
    # Of a symbolic link what it says, of a hard link the path of the entry that has the content.
    link: str = ""
    device: tuple[int, int] = (0, 0)
    size: int = 0
    # Offset and length of what is not a hole.
    segments: Segments = ()
    attributes: t.Mapping[str, bytes] = {}

    @property
    def is_sparse(self) -> bool:
        return self.segments != whole(self.size)

    @property
    def stored(self) -> int:
        return sum(length for _offset, length in self.segments)


def whole(size: int) -> Segments:
    """A file without holes."""
    return ((0, size),) if size else ()


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


# ---- writing


class Unwritable(Exception):
    """Told apart from what goes wrong when the files are read."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause


class _Hashed:
    """Passes on what is written, and knows its checksum."""

    def __init__(self, file: t.BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.is_given_up = False

    def write(self, data: bytes) -> int:
        if self.is_given_up:
            return len(data)
        self.digest.update(data)
        try:
            return self._file.write(data)
        except OSError as exc:
            raise Unwritable(exc) from exc

    def flush(self) -> None:
        """The file is flushed when it is complete."""


class Writer:
    """Writes entries; the content of a file follows its entry, by `write`."""

    def __init__(self, file: t.BinaryIO) -> None:
        self._hashed = _Hashed(file)
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=t.cast(t.Any, self._hashed))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_exception: object) -> None:
        # Closing would write what is left, to a file that nobody wants any more.
        self._hashed.is_given_up = True
        self._gzip.close()

    def add(self, entry: Entry) -> None:
        self._gzip.write(_header(entry))

    def write(self, data: bytes) -> None:
        self._gzip.write(data)

    def close(self) -> str:
        """The checksum of everything that was written."""
        self._gzip.write(ZEROS * 2)
        self._gzip.close()
        return self._hashed.digest.hexdigest()


def _header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.path.lstrip("/"))
    info.type, info.mode, info.uid, info.gid = entry.type, entry.mode, entry.uid, entry.gid
    info.linkname = entry.link.lstrip("/") if entry.type == HARD_LINK else entry.link
    info.devmajor, info.devminor = entry.device
    info.size = entry.stored
    # A header of its own, since a number with a fraction would lose nanoseconds.
    more = {"mtime": _seconds(entry.modified), "atime": _seconds(entry.accessed)}
    for name, value in entry.attributes.items():
        key = ATTRIBUTE + urllib.parse.quote_from_bytes(os.fsencode(name), PLAIN)
        more[key] = value.decode("utf-8", "surrogateescape")
    table = b""
    if entry.is_sparse:
        table = _table(entry)
        info.size += len(table)
        more.update({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": info.name})
        more["GNU.sparse.realsize"] = str(entry.size)
    info.pax_headers = more
    header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    if len(header) > LARGEST_HEADER:
        raise EventsError(f"{quoted(entry.path)} has too many extended attributes to be saved.")
    return header + table


def _table(entry: Entry) -> bytes:
    # GNU tar needs the end of a file that ends with a hole.
    segments = (*entry.segments, (entry.size, 0))
    numbers = [len(segments), *(number for segment in segments for number in segment)]
    table = "".join(f"{number}\n" for number in numbers).encode("ascii")
    return table + padding(len(table))


def _seconds(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{abs(nanoseconds) // 10**9}.{abs(nanoseconds) % 10**9:09d}"


# ---- reading


class Reader:
    """Reads entries strictly: what does not end as it should, or is not understood to the last byte, is damaged."""

    def __init__(self, file: t.BinaryIO) -> None:
        file.seek(0)
        self._gzip = gzip.GzipFile(mode="rb", fileobj=file)
        self._left = 0

    def __iter__(self) -> t.Iterator[Entry]:
        while True:
            block = self._exactly(BLOCK)
            if block == ZEROS:
                if self._exactly(BLOCK) != ZEROS or self._read(1):
                    raise Damaged("something follows its end")
                return
            entry, stored = self._entry(block)
            self._left = stored
            yield entry
            while self._left:
                self.take(min(CHUNK, self._left))
            if self._exactly(-stored % BLOCK).strip(b"\0"):
                raise Damaged("something follows the end of a file in it")

    def take(self, size: int) -> bytes:
        """The next part of the content of the last entry, without its holes."""
        self._left -= size
        return self._exactly(size)

    def _entry(self, block: bytes) -> tuple[Entry, int]:
        """The entry, and how much content follows."""
        info, more = _info(block), {}
        if info.type == tarfile.XHDTYPE:
            if info.size > LARGEST_HEADER:
                raise Damaged("a header in it is too long")
            more = _records(self._exactly(info.size))
            self._exactly(-info.size % BLOCK)
            info = _info(self._exactly(BLOCK))
        stored = _number(more["size"]) if "size" in more else info.size
        if info.type not in TYPES or stored < 0 or (stored and info.type != FILE):
            raise Damaged("it has an entry of a type that is never saved")
        if "GNU.sparse.major" not in more:
            return _decoded(info, more, more.get("path", info.name), stored, whole(stored)), stored
        return self._sparse_entry(info, more, stored)

    def _sparse_entry(self, info: tarfile.TarInfo, more: t.Mapping[str, str], stored: int) -> tuple[Entry, int]:
        size = _number(more.get("GNU.sparse.realsize", ""))
        segments, used = self._segments(stored)
        ends = [offset + length for offset, length in segments]
        starts = [offset for offset, _length in segments]
        if any(start < end for start, end in zip(starts, [0, *ends])) or any(end > size for end in ends):
            raise Damaged("the holes of a file in it make no sense")
        entry = _decoded(info, more, more.get("GNU.sparse.name", ""), size, tuple(each for each in segments if each[1]))
        if entry.stored != stored - used:
            raise Damaged("the size of a file in it is not that of its content")
        return entry, stored - used

    def _segments(self, stored: int) -> tuple[list[tuple[int, int]], int]:
        """The table at the beginning of the content of a file with holes, and its length."""
        lines: list[bytes] = []
        used, rest = 0, b""
        while not lines or len(lines) < 1 + 2 * _number(lines[0].decode("ascii", "replace")):
            if used + BLOCK > stored:
                raise Damaged("the table of a file with holes is cut off")
            *more, rest = (rest + self._exactly(BLOCK)).split(b"\n")
            lines += more
            used += BLOCK
        count, *numbers = (_number(line.decode("ascii", "replace")) for line in lines)
        if rest.strip(b"\0"):
            raise Damaged("the table of a file with holes makes no sense")
        return list(zip(numbers[: 2 * count : 2], numbers[1 : 2 * count : 2])), used

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) != size:
            raise Damaged("it ends too early")
        return data

    def _read(self, size: int) -> bytes:
        try:
            return self._gzip.read(size)
        except (OSError, EOFError, zlib.error) as exc:
            raise Damaged(f"it cannot be unpacked ({exc})") from exc


def _info(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as exc:
        raise Damaged(f"a header in it is wrong ({exc})") from exc


def _records(data: bytes) -> dict[str, str]:
    """The records of an extended header: length, space, key, equals sign, value, line feed."""
    records = {}
    while data:
        found = re.match(rb"(\d{1,12}) ([^=]+)=", data)
        length = int(found[1]) if found else 0
        if not found or not found.end() < length <= len(data) or data[length - 1 : length] != b"\n":
            raise Damaged("an extended header in it is wrong")
        records[_text(found[2])] = _text(data[found.end() : length - 1])
        data = data[length:]
    return records


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise Damaged("a number in it is wrong")
    return int(text)


def _nanoseconds(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", text):
        raise Damaged("a time in it is wrong")
    return int(decimal.Decimal(text).scaleb(9))


def _decoded(info: tarfile.TarInfo, more: t.Mapping[str, str], name: str, size: int, segments: Segments) -> Entry:
    link = more.get("linkpath", info.linkname)
    attributes = {
        os.fsdecode(urllib.parse.unquote_to_bytes(key[len(ATTRIBUTE) :])): value.encode("utf-8", "surrogateescape")
        for key, value in more.items()
        if key.startswith(ATTRIBUTE)
    }
    return Entry(
        path="/" + _relative(name[:-1] if info.type == DIRECTORY and name.endswith("/") else name),
        type=info.type,
        mode=info.mode & 0o7777,
        uid=_number(more["uid"]) if "uid" in more else info.uid,
        gid=_number(more["gid"]) if "gid" in more else info.gid,
        modified=_nanoseconds(more.get("mtime", "0")),
        accessed=_nanoseconds(more.get("atime", "0")),
        link="/" + _relative(link) if info.type == HARD_LINK else link,
        device=(info.devmajor, info.devminor),
        size=size,
        segments=segments,
        attributes=attributes,
    )


def _relative(name: str) -> str:
    """A name that leads nowhere but down from where it begins."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise Damaged(f"it holds {quoted(name)}, which leads out of the saved paths")
    return name
