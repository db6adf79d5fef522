"""ZooKeeper's files at rest: snapshots and transaction logs of ``version-2``, as jute writes them (ZooKeeper 3.5 to 3.9).

Integers are big-endian; a string or buffer is i32 length (−1: null) and bytes; a vector i32 count and items.

**Snapshot** (``snapshot.<zxid hex>``): ``ZKSN``, version i32 = 2, database id i64; sessions: i32 count × (id i64, timeout i32);
ACL cache: i32 count × (id i64, vector of (perms i32, scheme, id)); then nodes: path, data, ACL id i64, czxid i64, mzxid i64,
ctime i64, mtime i64, version i32, cversion i32, aversion i32, ephemeral owner i64, pzxid i64; the path ``/`` ends them. A seal follows:
Adler-32 of all bytes before it as i64, string ``/``. Newer versions add the zxid and digest of the tree (i64, i32, i64) and the zxid
processed last (i64), each with a seal of its own. Taken while transactions ran, it may hold some of those behind the zxid of its name.
``.gz`` is gzip of all that, ``.snappy`` the stream of snappy-java: 8 bytes of magic, two i32 versions, then i32 length × raw block.

**Log** (``log.<zxid hex>``): ``ZKLG``, version i32 = 2, database id i64; then records: Adler-32 as i64, i32 length, bytes, ``B``. The file
is extended with zeros ahead of use: zeros are its end. Bytes: client id i64, cxid i32, zxid i64, time i64, type i32, the
transaction, in newer versions a digest. The end of a session names the ephemeral nodes that it takes with it. Zxids of an epoch (the
upper 32 bits) follow each other without a gap.

Sources: ``FileSnap``, ``SnapStream``, ``FileTxnLog``, ``FilePadding``, ``DataTree``, ``PrepRequestProcessor``, ``zookeeper.jute``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from store.codec.buffer import Reader, written_end
from store.errors import MetadataCorrupt

SNAPSHOT_MAGIC, LOG_MAGIC = b"ZKSN", b"ZKLG"
VERSION = 2
HEADER = struct.Struct(
    ">4s"  # magic
    "i"  #   version
    "q"  #   database id
)
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
SEAL = struct.Struct(
    ">q"  # Adler-32 of all bytes before
    "i"  #  1
    "c"  #  "/"
)
STAT = struct.Struct(
    ">q"  # ACL id
    "q"  #  czxid
    "q"  #  mzxid
    "q"  #  ctime
    "q"  #  mtime
    "i"  #  version
    "i"  #  cversion
    "i"  #  aversion
    "q"  #  ephemeral owner
    "q"  #  pzxid
)
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_OPEN_ACL, _READ_ONLY_ACL = -1, 1  # −1 is in no ACL cache (``ReferenceCountedACLCache``)
_CONTAINER_OWNER = -(2**63)  # ``EphemeralType``: a container node; owners of nodes with a TTL begin with 0xFF
_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_LOOKED_AT_BYTES = (
    1 << 20
)  # behind the last record: logs are extended by 64 MiB, and damage that begins at a record's border is rare
_CHUNK_BYTES = 4 << 20  # more than a transaction is long: jute.maxbuffer, by default 1 MiB
_LONG_BYTES = 64 << 20  # a length that is damage, most likely
_SEARCHED = 4  # times the bytes of a log that looking for whole records behind damage may sum up

CLOSE_SESSION, ERROR, CREATE, DELETE, SET_DATA, MULTI, CREATE_2 = -11, -1, 1, 2, 5, 14, 15
RECONFIG, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 16, 19, 20, 21
_DIGEST_VERSION = 2
_CREATES = {CREATE, CREATE_2, CREATE_CONTAINER, CREATE_TTL}
_DELETES = {DELETE, DELETE_CONTAINER}
_SETS = {SET_DATA, RECONFIG}
_USUAL = {CREATE, DELETE, SET_DATA, CREATE_2}


@dataclass(frozen=True, slots=True)
class ZooKeeperNode:
    """A znode: times in ms; ``modified_zxid``: the transaction that wrote its data."""

    path: str
    data: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    modified_zxid: int


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
    """One record of a log: its zxid, time in ms, whose it was, and what it did to nodes (nothing for sessions and errors).

    ``session``: the id of the client's session; ``cxid``: the number that the client gave its request.
    """

    zxid: int
    time_ms: int
    session: int
    cxid: int
    changes: tuple[Put | Delete, ...]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Bytes at OFFSET that are not a whole record. ``unfinished``: they are what a write leaves that was stopped, the beginning of a record
    with nothing but the zeros of preallocation behind it."""

    offset: int
    reason: str
    unfinished: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes of a snapshot by path, without the root; ``newest_zxid``: of the newest transaction that it shows to have been."""

    nodes: dict[str, ZooKeeperNode]
    newest_zxid: int


def decode_snapshot(data: bytes | memoryview, where: str) -> Snapshot:
    """Return a snapshot whose seals fit; raises MetadataCorrupt for any other, also for one that does not end."""
    reader = Reader(data, where, MetadataCorrupt)
    _check_header(reader, SNAPSHOT_MAGIC, where)
    for _ in range(_count(reader, where)):
        reader.take(12)
    for _ in range(_count(reader, where)):
        reader.take(8)
        _skip_acls(reader, where)
    nodes: dict[str, ZooKeeperNode] = {}
    newest = 0
    while (path := _text(reader, where)) != "/":
        value = _buffer(reader, where)
        _, czxid, mzxid, created_ms, modified_ms, version, _, _, owner, pzxid = STAT.unpack(reader.take(STAT.size))
        newest = max(newest, czxid, mzxid, pzxid)
        if path:
            nodes[path] = ZooKeeperNode(path, value, version, created_ms, modified_ms, is_of_session(owner), mzxid)
    end = reader.pos
    _check_seal(memoryview(data), end, where)
    reader.take(SEAL.size)
    if reader.remaining:
        newest = max(newest, reader.i64())
        _check_seal(memoryview(data), len(data) - SEAL.size, where)
    return Snapshot(nodes, newest)


def is_of_session(owner: int) -> bool:
    """Whether OWNER of a node is a session, so that the node ends with it; containers and nodes with a TTL have owners that are none."""
    return owner not in (0, _CONTAINER_OWNER) and owner >> 56 != -1


def _check_seal(data: memoryview, pos: int, where: str) -> None:
    """Raise MetadataCorrupt unless the seal at POS is that of all bytes before it."""
    found = Reader(data[pos:], f"{where}, seal", MetadataCorrupt).take(SEAL.size)
    expected = SEAL.pack(zlib.adler32(data[:pos]), 1, b"/")
    if found != expected:
        raise MetadataCorrupt(
            f"{where} @ {pos:#x}: its seal does not fit: expected {expected.hex()}, found {found.hex()}",
            where=where,
            offset=pos,
            expected=expected.hex(),
            found=found.hex(),
        )


class SnapshotNode(NamedTuple):
    """A znode to write: ``children_made`` is its cversion, which numbers the next sequential node below it. A tuple, as there may be
    millions."""

    path: str
    data: bytes
    version: int
    children_made: int
    created_ms: int
    modified_ms: int
    read_only: bool = False


def iter_snapshot(nodes: Iterable[SnapshotNode], zxid: int) -> Iterator[bytes]:
    """Yield the bytes of a snapshot of NODES as of transaction ZXID; the first is the root, "", and a node follows its parent.

    No session is open, and every node is everybody's (``OPEN_ACL_UNSAFE``), or to be read by everybody.
    """
    head = HEADER.pack(SNAPSHOT_MAGIC, VERSION, -1) + _INT.pack(0)
    acls = _INT.pack(1) + _LONG.pack(_READ_ONLY_ACL) + _INT.pack(1) + _INT.pack(1) + _jute(b"world") + _jute(b"anyone")
    part = head + acls
    checksum = zlib.adler32(part)
    yield part
    for node in nodes:
        acl = _READ_ONLY_ACL if node.read_only else _OPEN_ACL
        times = node.created_ms, node.modified_ms
        stat = STAT.pack(acl, zxid, zxid, *times, node.version, node.children_made, 0, 0, zxid)
        part = _jute(node.path.encode()) + _jute(node.data) + stat
        checksum = zlib.adler32(part, checksum)
        yield part
    end = _jute(b"/")
    yield end + SEAL.pack(zlib.adler32(end, checksum), 1, b"/")


def _jute(raw: bytes) -> bytes:
    return _INT.pack(len(raw)) + raw


def decompress_snapshot(data: bytes, extension: str, where: str) -> bytes:
    """Return the bytes of a snapshot whose name ends in EXTENSION, which tells how they are stored; raises MetadataCorrupt.

    As ``SnapStream``: "gz", "snappy", and any other is not compressed.
    """
    if extension.lower() == "gz":
        return _gunzip(data, where)
    return _unsnappy(data, where) if extension.lower() == "snappy" else data


def _gunzip(data: bytes, where: str) -> bytes:
    import gzip  # 3 ms, and few snapshots are compressed

    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise MetadataCorrupt(f"{where}: not the whole of a gzip file: {error}", where=where) from error


def _unsnappy(data: bytes, where: str) -> bytes:
    from store.codec.compression import SNAPPY, decompress

    reader = Reader(data, where, MetadataCorrupt)
    parts: list[bytes | memoryview] = []
    while reader.remaining or not parts:
        length = reader.i32()
        if length == int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True):
            reader.take(12)
            parts.append(b"")
            continue
        chunk = reader.take(length)
        if not parts:
            raise MetadataCorrupt(f"{where}: no snappy stream", where=where)
        size = Reader(chunk, where, MetadataCorrupt).varint()
        parts.append(decompress(SNAPPY, chunk, size, where=where, error=MetadataCorrupt))
    return b"".join(parts)


def iter_transactions(data: bytes | bytearray | memoryview, where: str) -> Iterator[Transaction | BadRecord]:
    """Yield the transactions of a log in order, and a BadRecord where bytes are none; it goes on at the next whole record."""
    view = memoryview(data)
    _check_header(Reader(view[: HEADER.size], where, MetadataCorrupt), LOG_MAGIC, where)
    yield from _iter_records(view, HEADER.size, 0, where)


def read_transactions(file: BinaryIO, where: str) -> Iterator[Transaction | BadRecord]:
    """Yield what ``iter_transactions`` yields of the log FILE, of which some MiB at a time are in memory; all of it behind damage.

    An empty file has none, and 4 MiB of zeros end it.
    """
    data = file.read(HEADER.size)
    if data:
        _check_header(Reader(data, where, MetadataCorrupt), LOG_MAGIC, where)
    base, data = len(data), file.read(_CHUNK_BYTES)
    chunk = data
    while chunk:
        offset = 0
        while end := _record_end(data, offset):
            start = offset + _RECORD_HEAD.size
            found = _decode_usual(data, start, end - 1)
            yield found or _decode_transaction(memoryview(data)[start : end - 1], f"{where} @ {base + offset:#x}")
            offset = end
        base, data = base + offset, data[offset:]
        if not _may_go_on(data):
            break
        chunk = file.read(_CHUNK_BYTES)
        data += chunk
    rest = bytearray(data)
    while chunk and chunk.count(0) < _CHUNK_BYTES and (chunk := file.read(_CHUNK_BYTES)):
        rest += chunk
    yield from _iter_records(memoryview(rest), 0, base, where)


def _may_go_on(data: bytes) -> bool:
    """Whether DATA, which begins with no whole record, may be the beginning of one."""
    if len(data) <= _RECORD_HEAD.size:
        return True
    length = int(_RECORD_HEAD.unpack_from(data)[1])
    return len(data) - _RECORD_HEAD.size <= length < _LONG_BYTES


def _iter_records(view: memoryview, offset: int, base: int, where: str) -> Iterator[Transaction | BadRecord]:
    """Yield the records of VIEW from OFFSET on; it begins at position BASE of its log."""
    search: _Search | None = None
    while offset >= 0:
        end = _record_end(view, offset)
        if end:
            yield _decode_transaction(view[offset + _RECORD_HEAD.size : end - 1], f"{where} @ {base + offset:#x}")
            offset = end
            continue
        search = search or _Search(view)
        if search.is_end(offset):
            return
        following = search.next_record(offset)
        yield BadRecord(base + offset, *search.judge(offset, following))
        offset = following


def _record_end(view: bytes | memoryview, offset: int) -> int:
    """Return the position behind the whole record at OFFSET, 0 when there is none."""
    start = offset + _RECORD_HEAD.size
    if start >= len(view):
        return 0
    checksum, length = _RECORD_HEAD.unpack_from(view, offset)
    end = start + int(length)
    if length <= 0 or end >= len(view) or view[end] != _END_OF_RECORD:
        return 0
    return end + 1 if zlib.adler32(view[start:end]) == checksum else 0


class _Search:
    """What stands in a log where its whole records end: nothing, a write that was stopped, or damage."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._raw = b""
        self._left = _SEARCHED * len(view)

    def is_end(self, offset: int) -> bool:
        """Whether nothing was written from OFFSET on."""
        if self._raw:
            return offset >= len(self._raw)
        return written_end(self._view, offset, min(len(self._view), offset + _LOOKED_AT_BYTES)) == offset

    def next_record(self, offset: int) -> int:
        """Return the position of the first whole record behind OFFSET, −1 when there is none or looking for it takes too long."""
        if not self._raw:
            self._raw = bytes(self._view[: written_end(self._view, offset, len(self._view))])
        if len(self._raw) - offset > _RECORD_HEAD.size:
            length = int(_RECORD_HEAD.unpack_from(self._view, offset)[1])
            follower = offset + _RECORD_HEAD.size + length + 1
            if length > 0 and _record_end(self._view, follower):
                return follower
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
        """Return what is wrong at OFFSET, and whether a write was stopped there; FOLLOWING as ``next_record`` gives."""
        written = len(self._raw) - offset
        head = self._raw[offset : offset + _RECORD_HEAD.size].ljust(_RECORD_HEAD.size, b"\0")
        checksum, length = _RECORD_HEAD.unpack(head)
        end = offset + _RECORD_HEAD.size + max(length, 0)
        is_begun = 0 <= checksum < 1 << 32 and (written <= _RECORD_HEAD.size or len(self._raw) <= end)
        # All of a record but for its length or its end: a write that was stopped leaves fewer bytes.
        is_whole = written > _RECORD_HEAD.size and zlib.adler32(self._raw[offset + _RECORD_HEAD.size : -1]) == checksum
        if following < 0 and is_begun and not is_whole:
            if end < len(self._view):
                return "a record that was not finished", True
            return "the file ends inside a record", False
        is_framed = length > 0 and end < len(self._view) and self._view[end] == _END_OF_RECORD
        return ("checksum mismatch" if is_framed else "no record"), False


def _decode_usual(data: bytes, pos: int, end: int) -> Transaction | None:
    """Return the transaction in DATA from POS to END where it is as nearly all are, five times as fast as ``_decode_transaction``."""
    try:
        session, cxid, zxid, time_ms, kind = _TRANSACTION_HEAD.unpack_from(data, pos)
        pos += _TRANSACTION_HEAD.size
        if kind != MULTI:
            change = _usual_change(data, pos, end, kind)
            return None if change is None else Transaction(zxid, time_ms, session, cxid, (change,))
        (count,) = _INT.unpack_from(data, pos)
        pos += _INT.size
        changes: list[Put | Delete] = []
        for _ in range(count):
            part, length = _PART.unpack_from(data, pos)
            pos += _PART.size
            change = _usual_change(data, pos, min(pos + length, end), part)
            if change is None or length < 0:
                return None
            changes.append(change)
            pos += length
    except (struct.error, UnicodeDecodeError):
        return None
    return Transaction(zxid, time_ms, session, cxid, tuple(changes))


def _usual_change(data: bytes, pos: int, end: int, kind: int) -> Put | Delete | None:
    """Return the change of KIND between POS and END: of one node, which everybody may change."""
    if kind not in _USUAL:
        return None
    (length,) = _INT.unpack_from(data, pos)
    pos += _INT.size
    behind = pos + length
    if length <= 0 or behind > end:
        return None
    path = data[pos:behind].decode()
    if kind == DELETE:
        return Delete(path)
    (length,) = _INT.unpack_from(data, behind)
    pos = behind + _INT.size
    behind = pos + max(length, 0)
    value = data[pos:behind]
    if kind == SET_DATA:
        return Put(path, value, _INT.unpack_from(data, behind)[0]) if behind + _INT.size <= end else None
    at = behind + len(_OPEN_ACLS)
    if data[behind:at] != _OPEN_ACLS or at >= end:
        return None
    return Put(path, value, None, data[at] != 0)


def _decode_transaction(body: memoryview, where: str) -> Transaction:
    reader = Reader(body, where, MetadataCorrupt)
    session, cxid, zxid, time_ms, kind = _TRANSACTION_HEAD.unpack(reader.take(_TRANSACTION_HEAD.size))
    return Transaction(zxid, time_ms, session, cxid, tuple(_changes(reader, kind, where)))


def _changes(reader: Reader, kind: int, where: str, *, inner: bool = False) -> Iterator[Put | Delete]:
    """Yield what a transaction of KIND changes; INNER: it is a part of another, where ZooKeeper takes no further MULTI."""
    if kind in _CREATES:
        path, data = _text(reader, where), _buffer(reader, where)
        _skip_acls(reader, where)
        ephemeral = kind in (CREATE, CREATE_2) and bytes(reader.take(1)) != b"\0"
        yield Put(path, data, None, ephemeral)
    elif kind in _DELETES:
        yield Delete(_text(reader, where))
    elif kind in _SETS:
        yield Put(_text(reader, where), _buffer(reader, where), reader.i32())
    elif kind == CLOSE_SESSION and not inner:
        yield from map(Delete, _closed_paths(reader, where))
    elif kind == MULTI and not inner:
        parts = [(reader.i32(), _buffer(reader, where)) for _ in range(_count(reader, where))]
        if any(part == ERROR for part, _ in parts):
            return
        for part, raw in parts:
            yield from _changes(Reader(raw, where, MetadataCorrupt), part, where, inner=True)


def _closed_paths(reader: Reader, where: str) -> Iterator[str]:
    """Yield the nodes that a session took with it: in the transaction since 3.6 (``zookeeper.closeSessionTxn.enabled``), where a digest,
    version i32 = 2 and i64, may follow or stand alone."""
    count = _count(reader, where) if reader.remaining else 0
    if count == _DIGEST_VERSION and reader.remaining == _LONG.size:
        return
    for _ in range(count):
        yield _text(reader, where)


def _check_header(reader: Reader, magic: bytes, where: str) -> None:
    check_header(bytes(reader.take(HEADER.size)), magic, where)


def check_header(raw: bytes, magic: bytes, where: str) -> None:
    """Raise MetadataCorrupt unless RAW, the first bytes of a file, have this MAGIC and our version."""
    found, version, _ = HEADER.unpack(raw)
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
        raise MetadataCorrupt(f"{where}: a path that is not UTF-8", where=where) from error


def _skip_acls(reader: Reader, where: str) -> None:
    for _ in range(_count(reader, where)):
        reader.take(4)
        _buffer(reader, where)
        _buffer(reader, where)
