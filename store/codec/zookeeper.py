"""ZooKeeper's files at rest: snapshots of ``version-2``, as jute writes them (ZooKeeper 3.5 to 3.9).

Integers are big-endian; a string or buffer is i32 length (−1: null) and bytes; a vector i32 count and items.

**Snapshot** (``snapshot.<zxid hex>``): ``ZKSN``, version i32 = 2, database id i64; sessions: i32 count × (id i64, timeout i32);
ACL cache: i32 count × (id i64, vector of (perms i32, scheme, id)); then nodes: path, data, ACL id i64, czxid i64, mzxid i64,
ctime i64, mtime i64, version i32, cversion i32, aversion i32, ephemeral owner i64, pzxid i64; the path ``/`` ends them. A seal follows:
Adler-32 of all bytes before it as i64, string ``/``. Newer versions add the zxid and digest of the tree (i64, i32, i64) and the zxid
processed last (i64), each with a seal of its own. Taken while transactions ran, it may hold some of those behind the zxid of its name.
``.gz`` is gzip of all that, ``.snappy`` the stream of snappy-java: 8 bytes of magic, two i32 versions, then i32 length × raw block.

Sources: ``FileSnap``, ``SnapStream``, ``DataTree``. Logs: ``store.codec.zookeeper_log``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from store.codec.buffer import Reader
from store.codec.jute import HEADER, INT, LONG, VERSION, check_header, read_buffer, read_count, read_text, skip_acls
from store.errors import MetadataCorrupt

SNAPSHOT_MAGIC = b"ZKSN"
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
_OPEN_ACL, _READ_ONLY_ACL = -1, 1  # −1 is in no ACL cache (``ReferenceCountedACLCache``)
_CONTAINER_OWNER = -(2**63)  # ``EphemeralType``: a container node; owners of nodes with a TTL begin with 0xFF
_SNAPPY_MAGIC = b"\x82SNAPPY\0"


class ZooKeeperNode(NamedTuple):
    """A znode: times in ms; ``modified_zxid``: the transaction that wrote its data. A tuple, as there may be millions."""

    path: str
    data: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    modified_zxid: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes of a snapshot by path, without the root; ``newest_zxid``: of the newest transaction that it shows to have been."""

    nodes: dict[str, ZooKeeperNode]
    newest_zxid: int


def decode_snapshot(data: bytes | memoryview, where: str) -> Snapshot:
    """Return a snapshot whose seals fit; raises MetadataCorrupt for any other, also for one that does not end."""
    reader = Reader(data, where, MetadataCorrupt)
    check_header(reader.take(HEADER.size), SNAPSHOT_MAGIC, where)
    for _ in range(read_count(reader, where)):
        reader.take(12)
    for _ in range(read_count(reader, where)):
        reader.take(8)
        skip_acls(reader, where)
    nodes: dict[str, ZooKeeperNode] = {}
    newest = 0
    while (path := read_text(reader, where)) != "/":
        value = read_buffer(reader, where)
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
    head = HEADER.pack(SNAPSHOT_MAGIC, VERSION, -1) + INT.pack(0)
    acls = INT.pack(1) + LONG.pack(_READ_ONLY_ACL) + INT.pack(1) + INT.pack(1) + _jute(b"world") + _jute(b"anyone")
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
    return INT.pack(len(raw)) + raw


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
