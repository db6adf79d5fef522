"""ZooKeeper's files at rest: snapshots and transaction logs of ``version-2``, as jute writes them (ZooKeeper 3.5 to 3.9).

Integers are big-endian; a string or buffer is i32 length (−1: null) and bytes; a vector i32 count and items.

**Snapshot** (``snapshot.<zxid hex>``): ``ZKSN``, version i32 = 2, database id i64; sessions: i32 count × (id i64, timeout i32);
ACL cache: i32 count × (id i64, vector of (perms i32, scheme, id)); then nodes: path, data, ACL id i64, czxid i64, mzxid i64,
ctime i64, mtime i64, version i32, cversion i32, aversion i32, ephemeral owner i64, pzxid i64; the path ``/`` ends them.

**Log** (``log.<zxid hex>``): ``ZKLG``, version i32 = 2, database id i64; then records: Adler-32 as i64, i32 length, bytes, ``B``. The file
is extended with zeros ahead of use: a length of 0 is the end. Bytes: client id i64, cxid i32, zxid i64, time i64, type i32, the
transaction, in newer versions a digest.

Sources: ``FileSnap``, ``FileTxnLog``, ``DataTree``, ``zookeeper.jute``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from store.codec.buffer import Reader
from store.errors import MetadataCorrupt

SNAPSHOT_MAGIC, LOG_MAGIC = b"ZKSN", b"ZKLG"
VERSION = 2
_HEADER = struct.Struct(
    ">4s"  # magic
    "i"  #   version
    "q"  #   database id
)
_RECORD_HEAD = struct.Struct(
    ">q"  # Adler-32 of the bytes
    "i"  #  length
)
_END_OF_RECORD = 0x42

ERROR, CREATE, DELETE, SET_DATA, MULTI, CREATE_2 = -1, 1, 2, 5, 14, 15
RECONFIG, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 16, 19, 20, 21
_CREATES = {CREATE, CREATE_2, CREATE_CONTAINER, CREATE_TTL}
_DELETES = {DELETE, DELETE_CONTAINER}
_SETS = {SET_DATA, RECONFIG}


@dataclass(frozen=True, slots=True)
class ZooKeeperNode:
    """A znode: times in ms."""

    path: str
    data: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class Put:
    """A node was created (``version`` None) or got new data."""

    path: str
    data: bytes
    version: int | None
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A node was deleted."""

    path: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """One record of a log: its zxid, time in ms, and what it did to nodes (nothing for sessions and errors)."""

    zxid: int
    time_ms: int
    changes: tuple[Put | Delete, ...]


@dataclass(frozen=True, slots=True)
class TornLog:
    """Bytes at OFFSET that are no whole record: the log's last write was cut, or the file is damaged."""

    offset: int
    reason: str


def decode_snapshot(data: bytes | memoryview, where: str) -> Iterator[ZooKeeperNode]:
    """Yield the nodes of a snapshot; raises MetadataCorrupt, also for one that does not end."""
    reader = Reader(data, where, MetadataCorrupt)
    _check_header(reader, SNAPSHOT_MAGIC, where)
    for _ in range(_count(reader, where)):
        reader.take(12)
    for _ in range(_count(reader, where)):
        reader.take(8)
        _skip_acls(reader, where)
    while (path := _text(reader, where)) != "/":
        value = _buffer(reader, where)
        reader.take(8 + 16)
        created_ms, modified_ms, version = reader.i64(), reader.i64(), reader.i32()
        reader.take(8)
        owner = reader.i64()
        reader.take(8)
        if path:
            yield ZooKeeperNode(path, value, version, created_ms, modified_ms, owner > 0)


def iter_transactions(data: bytes | memoryview, where: str) -> Iterator[Transaction | TornLog]:
    """Yield the transactions of a log in order; a record that is not whole ends it with a TornLog."""
    view = memoryview(data)
    _check_header(Reader(view[: _HEADER.size], where, MetadataCorrupt), LOG_MAGIC, where)
    offset = _HEADER.size
    while len(view) - offset >= _RECORD_HEAD.size:
        checksum, length = _RECORD_HEAD.unpack_from(view, offset)
        start = offset + _RECORD_HEAD.size
        if length == 0:
            return
        if not 0 < length <= len(view) - start - 1 or view[start + length] != _END_OF_RECORD:
            yield TornLog(offset, f"a record of {length} bytes that does not end")
            return
        body = view[start : start + length]
        if zlib.adler32(body) != checksum:
            yield TornLog(offset, "checksum mismatch")
            return
        yield _decode_transaction(body, f"{where} @ {offset:#x}")
        offset = start + length + 1


def _decode_transaction(body: memoryview, where: str) -> Transaction:
    reader = Reader(body, where, MetadataCorrupt)
    reader.take(12)
    zxid, time_ms, kind = reader.i64(), reader.i64(), reader.i32()
    return Transaction(zxid, time_ms, tuple(_changes(reader, kind, where)))


def _changes(reader: Reader, kind: int, where: str) -> Iterator[Put | Delete]:
    if kind in _CREATES:
        path, data = _text(reader, where), _buffer(reader, where)
        _skip_acls(reader, where)
        ephemeral = kind in (CREATE, CREATE_2) and bytes(reader.take(1)) != b"\0"
        yield Put(path, data, None, ephemeral)
    elif kind in _DELETES:
        yield Delete(_text(reader, where))
    elif kind in _SETS:
        yield Put(_text(reader, where), _buffer(reader, where), reader.i32())
    elif kind == MULTI:
        parts = [(reader.i32(), _buffer(reader, where)) for _ in range(_count(reader, where))]
        if any(part == ERROR for part, _ in parts):
            return
        for part, raw in parts:
            yield from _changes(Reader(raw, where, MetadataCorrupt), part, where)


def _check_header(reader: Reader, magic: bytes, where: str) -> None:
    found, version, _ = _HEADER.unpack(reader.take(_HEADER.size))
    if found != magic or version != VERSION:
        raise MetadataCorrupt(
            f"{where}: expected {magic.decode()} version {VERSION}, found {found!r} version {version}",
            where=where,
            expected=magic.decode(),
            found=found.hex(),
        )


def _count(reader: Reader, where: str) -> int:
    count = reader.i32()
    if count > reader.remaining:  # every item has a byte at least
        raise MetadataCorrupt(f"{where}: a vector of {count} items in {reader.remaining} bytes", where=where)
    return max(count, 0)


def _buffer(reader: Reader, where: str) -> bytes:
    length = reader.i32()
    return bytes(reader.take(length)) if length > 0 else b""


def _text(reader: Reader, where: str) -> str:
    try:
        return _buffer(reader, where).decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{where}: a path that is no UTF-8", where=where) from error


def _skip_acls(reader: Reader, where: str) -> None:
    for _ in range(_count(reader, where)):
        reader.take(4)
        _buffer(reader, where)
        _buffer(reader, where)
