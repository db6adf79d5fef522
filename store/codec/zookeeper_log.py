"""ZooKeeper's transaction logs: ``log.<zxid hex>`` of ``version-2``, as jute writes them (ZooKeeper 3.5 to 3.9).

**Log** (``log.<zxid hex>``): ``ZKLG``, version i32 = 2, database id i64; then records: Adler-32 as i64, i32 length, bytes, ``B``. The file
is extended with zeros ahead of use: zeros up to its end are no records. Bytes: client id i64, cxid i32, zxid i64, time i64, type i32, the
transaction, in newer versions a digest. The end of a session names the ephemeral nodes that it takes with it. Zxids of an epoch (the
upper 32 bits) follow each other without a gap.

Sources: ``FileTxnLog``, ``FilePadding``, ``DataTree``, ``PrepRequestProcessor``, ``zookeeper.jute``.
"""

import errno
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from io import FileIO
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Reader, written_end
from pulsar_admin.store.codec.jute import HEADER, INT, LONG, check_header, read_buffer, read_count, read_text, skip_acls
from pulsar_admin.store.errors import MetadataCorrupt

LOG_MAGIC = b"ZKLG"
_RECORD_HEAD = struct.Struct(
    ">q"  # Adler-32 of the bytes
    "i"  #  length
)
_TRANSACTION_HEAD = struct.Struct(
    ">q"  # client id: its session
    "i"  #  cxid
    "q"  #  zxid
    "q"  #  time, ms
    "i"  #  type
)
_PART = struct.Struct(
    ">i"  # type of a part of a multi
    "i"  #  its length
)
_OPEN_ACLS = bytes.fromhex("00000001 0000001f 00000005") + b"world" + bytes.fromhex("00000006") + b"anyone"
_END_OF_RECORD = 0x42
_RECORD_BORDER = b"B\0\0\0\0"  # end of a record, and the upper half of the next one's Adler-32
_SECTOR_BYTES = 512  # what a disk writes as a whole; the pages of memory, by which a kernel copies, begin with one
_BUFFER_BYTES = (
    8192  # of the BufferedOutputStream through which ``FileTxnLog`` writes, after each commit from its beginning
)
_BATCH_MS = 1000  # between the first and the last transaction that one commit writes, most likely
_RECENT = 1000  # transactions that one commit writes at most (``zookeeper.maxBatchSize``)
_Recent = deque[tuple[int, int]]
"""(position in the log, time in ms) of the records before."""
_ZEROS = 24  # that the written part of a record may end with: fields that are null or small
CHUNK_BYTES = 4 << 20  # more than a transaction is long: jute.maxbuffer, by default 1 MiB
_LONG_BYTES = 64 << 20  # a length that is damage, most likely
_SEARCHED = 4  # times the bytes of a log that looking for whole records after damage may sum up

CLOSE_SESSION, ERROR, CREATE, DELETE, SET_DATA, MULTI, CREATE_2 = -11, -1, 1, 2, 5, 14, 15
RECONFIG, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 16, 19, 20, 21
_DIGEST_VERSION = 2
_CREATES = {CREATE, CREATE_2, CREATE_CONTAINER, CREATE_TTL}
_DELETES = {DELETE, DELETE_CONTAINER}
_SETS = {SET_DATA, RECONFIG}
_USUAL = {CREATE, DELETE, SET_DATA, CREATE_2}


class Put(NamedTuple):
    """A node was created (``version`` None) or got new data. A tuple, as there are millions in the logs of a day."""

    path: str
    data: bytes
    version: int | None
    ephemeral: bool = False


class Delete(NamedTuple):
    """A node was deleted."""

    path: str


class Transaction(NamedTuple):
    """One record of a log: its zxid, time in ms, client, and changes to nodes (none for sessions and errors).

    ``session``: the id of the client's session; ``cxid``: the number that the client gave its request.
    """

    zxid: int
    time_ms: int
    session: int
    cxid: int
    changes: tuple[Put | Delete, ...]


class BadRecord(Struct, frozen=True):
    """Bytes at ``offset`` that are not a complete record. ``unfinished``: they look like an interrupted write, the
    beginning of a record followed only by the zeros of preallocation, which begin where writes stop; damage there
    looks alike."""

    offset: int
    reason: str
    unfinished: bool


def check_log_header(data: bytes | bytearray, where: str) -> None:
    """Raise MetadataCorrupt unless the bytes begin like a log."""
    check_header(Reader(memoryview(data), where, MetadataCorrupt).take(HEADER.size), LOG_MAGIC, where)


def read_transactions(file: BinaryIO, where: str) -> Iterator[Transaction | BadRecord]:
    """Yield the transactions of a log in order, and a BadRecord for other bytes; continue at the next complete record.

    A wrong header is a BadRecord at 0: a server refuses the log, but records have digests of their own. Some MiB are
    in memory at a time; after damage the whole file. An empty file has no transactions.
    """
    header = file.read(HEADER.size)
    recent = _Recent(maxlen=_RECENT)
    base, data = len(header), file.read(CHUNK_BYTES)
    if header:
        try:
            check_log_header(header, where)
        except MetadataCorrupt as error:
            is_blank = not (header.strip(b"\0") or data.strip(b"\0"))  # preallocated, and nothing was written
            yield BadRecord(0, f"not the header of a log: {error.message.removeprefix(f'{where}: ')}", is_blank)
    chunk = data
    while chunk:
        offset = 0
        while end := _record_end(data, offset):
            start = offset + _RECORD_HEAD.size
            usual = _decode_usual(data, start, end - 1)
            item = usual or _decode_record(memoryview(data)[start : end - 1], base + offset, where)
            if isinstance(item, Transaction):
                recent.append((base + offset, item.time_ms))
            yield item
            offset = end
        base, data = base + offset, data[offset:]
        if not _may_go_on(data):
            break
        chunk = file.read(CHUNK_BYTES)
        data += chunk
    rest, zeros, blank = bytearray(data), 0, bytes(CHUNK_BYTES)
    while chunk and (chunk := file.read(CHUNK_BYTES)):
        if chunk == blank[: len(chunk)]:
            zeros += len(chunk) + skip_hole(file)
        else:
            rest += bytes(zeros) + chunk
            zeros = 0
    rest += bytes(min(zeros, CHUNK_BYTES))
    yield from iter_records(memoryview(rest), 0, base, where, recent)


def skip_hole(file: BinaryIO) -> int:
    """Move a file to the next byte that its file system stores, or to its end; return how far. ZooKeeper extends logs by sparse holes."""
    if not isinstance(file, FileIO):
        return 0
    begin = file.tell()
    try:
        os.lseek(file.fileno(), begin, os.SEEK_DATA)
    except OSError as error:
        file.seek(0, os.SEEK_END if error.errno == errno.ENXIO else os.SEEK_CUR)
    return file.tell() - begin


def _may_go_on(data: bytes) -> bool:
    """Whether data that begins with no complete record may be the beginning of one."""
    if len(data) <= _RECORD_HEAD.size:
        return True
    length = int(_RECORD_HEAD.unpack_from(data)[1])
    return len(data) - _RECORD_HEAD.size <= length < _LONG_BYTES


def iter_records(
    view: memoryview, offset: int, base: int, where: str, recent: _Recent | None = None
) -> Iterator[Transaction | BadRecord]:
    """Yield the records of a view from ``offset`` on; the view begins at position ``base`` of its log, after the ``recent`` records."""
    recent = _Recent(maxlen=_RECENT) if recent is None else recent
    search: _Search | None = None
    while offset >= 0:
        end = _record_end(view, offset)
        if end:
            item = _decode_record(view[offset + _RECORD_HEAD.size : end - 1], base + offset, where)
            if isinstance(item, Transaction):
                recent.append((base + offset, item.time_ms))
            yield item
            offset = end
            continue
        search = search or _Search(view, base, recent)
        if search.is_end(offset):
            return
        following = search.next_record(offset)
        yield BadRecord(base + offset, *search.judge(offset, following))
        offset = following


def _record_end(view: bytes | memoryview, offset: int) -> int:
    """Return the position after the complete record at ``offset``, 0 without one."""
    start = offset + _RECORD_HEAD.size
    if start >= len(view):
        return 0
    checksum, length = _RECORD_HEAD.unpack_from(view, offset)
    end = start + int(length)
    if length <= 0 or end >= len(view) or view[end] != _END_OF_RECORD:
        return 0
    return end + 1 if zlib.adler32(view[start:end]) == checksum else 0


class _Search:
    """Decides what follows a complete record of a log: its end, an interrupted write, or damage."""

    def __init__(self, view: memoryview, base: int, recent: _Recent) -> None:
        self._view = view
        self._base = base
        self._recent = recent
        self._raw = b""
        self._left = _SEARCHED * len(view)

    def is_end(self, offset: int) -> bool:
        """Whether nothing was written from ``offset`` on."""
        if self._raw:
            return offset >= len(self._raw)
        return written_end(self._view, offset, len(self._view)) == offset

    def next_record(self, offset: int) -> int:
        """Return the position of the first complete record after ``offset``, −1 without one or if the search takes too long."""
        if not self._raw:
            self._raw = bytes(self._view[: written_end(self._view, offset, len(self._view))])
        if len(self._raw) - offset > _RECORD_HEAD.size:
            length = int(_RECORD_HEAD.unpack_from(self._view, offset)[1])
            follower = offset + _RECORD_HEAD.size + length + 1
            if length > 0 and _record_end(self._view, follower):
                return follower
            # A hole of zeros may end where a record begins: four zeros and its Adler-32, whose first byte may also be zero.
            zeros = len(self._raw) - offset - len(self._raw[offset:].lstrip(b"\0"))
            for start in (offset + zeros - 5, offset + zeros - 4):
                if start > offset and _record_end(self._view, start):
                    return start
        while (offset := self._raw.find(_RECORD_BORDER, offset) + 1) > 0:
            length = int.from_bytes(self._raw[offset + 8 : offset + 12], "big", signed=True)
            if 0 < length < len(self._raw) - offset:
                self._left -= length
                if self._left < 0:
                    return -1
                if _record_end(self._view, offset):
                    return offset
        return -1

    def judge(self, offset: int, following: int) -> tuple[str, bool]:
        """Return the problem at ``offset``, and whether a write was interrupted there; ``following``: from ``next_record``."""
        written = len(self._raw) - offset
        head = self._raw[offset : offset + _RECORD_HEAD.size].ljust(_RECORD_HEAD.size, b"\0")
        checksum, length = _RECORD_HEAD.unpack(head)
        end = offset + _RECORD_HEAD.size + max(length, 0)
        is_begun = 0 <= checksum < 1 << 32 and (written <= _RECORD_HEAD.size or len(self._raw) <= end)
        # All of a record but for its length or its end: a write that was stopped leaves fewer bytes.
        is_whole = written > _RECORD_HEAD.size and zlib.adler32(self._raw[offset + _RECORD_HEAD.size : -1]) == checksum
        if following < 0 and is_begun and not is_whole:
            if end >= len(self._view):
                return "the file ends inside a record", False
            is_sized = written > _RECORD_HEAD.size
            there = f"{written} of {end + 1 - offset} bytes of a record" if is_sized else "the beginning of a record"
            if self._may_stop(offset, length, end if is_sized else len(self._view)):
                return f"{there}, then zeros", True
            return f"{there}, then zeros where no write stops", False
        is_framed = length > 0 and end < len(self._view) and self._view[end] == _END_OF_RECORD
        return ("checksum mismatch" if is_framed else "no record"), False

    def _may_stop(self, offset: int, length: int, end: int) -> bool:
        """Whether a write of the record at ``offset``, of ``length``, whose last byte is at or before ``end``, may
        have been interrupted where zeros begin.

        A loss of power stops it between sectors, a kill between pages or between the blocks that
        ``BufferedOutputStream`` writes: its whole buffer, counted from a commit, or a longer body at once.
        """
        first = self._base + len(self._raw)
        last = min(first + _ZEROS, self._base + end)
        start, end = self._base + offset, self._base + end
        if -first % _SECTOR_BYTES <= last - first:
            return True
        if length >= _BUFFER_BYTES and (first <= start + _RECORD_HEAD.size <= last or last == end):
            return True
        newest_ms = self._recent[-1][1] if self._recent else 0
        begins = [start, *(place for place, time_ms in self._recent if time_ms >= newest_ms - _BATCH_MS)]
        behind_large = [
            following - 1
            for place, following in pairwise(sorted(begins))
            if following - 1 - place - _RECORD_HEAD.size >= _BUFFER_BYTES
        ]
        return any(-(first - begin) % _BUFFER_BYTES <= last - first for begin in (*begins, *behind_large))


def _decode_record(body: memoryview, offset: int, where: str) -> Transaction | BadRecord:
    """Return the transaction in a complete record at ``offset``; a BadRecord if only its checksum is good."""
    begins = f"{where} @ {offset:#x}"
    try:
        return _decode_transaction(body, begins)
    except MetadataCorrupt as error:
        return BadRecord(offset, error.message.removeprefix(f"{begins}: "), False)


def _decode_usual(data: bytes, pos: int, end: int) -> Transaction | None:
    """Return a transaction of the most common form, five times as fast as ``_decode_transaction``."""
    try:
        session, cxid, zxid, time_ms, kind = _TRANSACTION_HEAD.unpack_from(data, pos)
        pos += _TRANSACTION_HEAD.size
        if kind != MULTI:
            change = _usual_change(data, pos, end, kind)
            return None if change is None else Transaction(zxid, time_ms, session, cxid, (change,))
        (count,) = INT.unpack_from(data, pos)
        pos += INT.size
        changes: list[Put | Delete] = []
        for _ in range(count):
            part, length = _PART.unpack_from(data, pos)
            pos += _PART.size
            behind = pos + length
            change = _usual_change(data, pos, behind, part) if pos <= behind <= end else None
            if change is None:
                return None
            changes.append(change)
            pos = behind
    except (struct.error, UnicodeDecodeError):
        return None
    return Transaction(zxid, time_ms, session, cxid, tuple(changes))


def _usual_change(data: bytes, pos: int, end: int, kind: int) -> Put | Delete | None:
    """Return the change of a transaction that sets data, deletes, or creates with the open ACL; else None."""
    if kind not in _USUAL:
        return None
    (length,) = INT.unpack_from(data, pos)
    pos += INT.size
    behind = pos + length
    if length <= 0 or behind > end:
        return None
    path = data[pos:behind].decode()
    if kind == DELETE:
        return Delete(path)
    (length,) = INT.unpack_from(data, behind)
    pos = behind + INT.size
    behind = pos + max(length, 0)
    value = data[pos:behind]
    if kind == SET_DATA:
        return Put(path, value, INT.unpack_from(data, behind)[0]) if behind + INT.size <= end else None
    at = behind + len(_OPEN_ACLS)
    if data[behind:at] != _OPEN_ACLS or at >= end:
        return None
    return Put(path, value, None, data[at] != 0)


def _decode_transaction(body: memoryview, where: str) -> Transaction:
    reader = Reader(body, where, MetadataCorrupt)
    session, cxid, zxid, time_ms, kind = _TRANSACTION_HEAD.unpack(reader.take(_TRANSACTION_HEAD.size))
    return Transaction(zxid, time_ms, session, cxid, tuple(_changes(reader, kind)))


def _changes(reader: Reader, kind: int, *, inner: bool = False) -> Iterator[Put | Delete]:
    """Yield the changes of a transaction; ``inner``: it is a part of another, where ZooKeeper allows no further MULTI."""
    if kind in _CREATES:
        path, data = read_text(reader), read_buffer(reader)
        skip_acls(reader)
        ephemeral = kind in (CREATE, CREATE_2) and bytes(reader.take(1)) != b"\0"
        yield Put(path, data, None, ephemeral)
    elif kind in _DELETES:
        yield Delete(read_text(reader))
    elif kind in _SETS:
        yield Put(read_text(reader), read_buffer(reader), reader.i32())
    elif kind == CLOSE_SESSION and not inner:
        yield from map(Delete, _closed_paths(reader))
    elif kind == MULTI and not inner:
        parts = [(reader.i32(), read_buffer(reader)) for _ in range(read_count(reader))]
        if any(part == ERROR for part, _ in parts):
            return
        for part, raw in parts:
            yield from _changes(Reader(raw, reader.where, MetadataCorrupt), part, inner=True)


def _closed_paths(reader: Reader) -> Iterator[str]:
    """Yield the ephemeral nodes that ended with a session: in the transaction since 3.6
    (``zookeeper.closeSessionTxn.enabled``), where a digest, version i32 = 2 and i64, may follow or stand alone."""
    count = read_count(reader) if reader.remaining else 0
    if count == _DIGEST_VERSION and reader.remaining == LONG.size:
        return
    for _ in range(count):
        yield read_text(reader)
