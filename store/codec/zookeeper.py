"""ZooKeeper's files at rest: snapshots of ``version-2``, as jute writes them (ZooKeeper 3.5 to 3.9).

Integers are big-endian; a string or buffer is i32 length (−1: null) and bytes; a vector i32 count and items.

**Snapshot** (``snapshot.<zxid hex>``): ``ZKSN``, version i32 = 2, database id i64; sessions: i32 count × (id i64, timeout i32);
ACL cache: i32 count × (id i64, vector of (perms i32, scheme, id)); then nodes: path, data, ACL id i64, czxid i64, mzxid i64,
ctime i64, mtime i64, version i32, cversion i32, aversion i32, ephemeral owner i64, pzxid i64; the path ``/`` ends them. A seal follows:
Adler-32 of all bytes before it as i64, string ``/``. Newer versions add the zxid and digest of the tree (i64, i32, i64) and the zxid
processed last (i64), each with a seal of its own. Taken while transactions ran, it may hold some of those after the zxid in its name.
``.gz`` is gzip of all that, ``.snappy`` the stream of snappy-java: 8 bytes of magic, two i32 versions, then i32 length × raw block.

Sources: ``FileSnap``, ``SnapStream``, ``DataTree``. Logs: ``store.codec.zookeeper_log``.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.jute import HEADER, INT, LONG, VERSION, check_header
from pulsar_admin.store.codec.ledger_ids import LedgerIds
from pulsar_admin.store.errors import MetadataCorrupt

SNAPSHOT_MAGIC = b"ZKSN"
_SEAL = struct.Struct(
    ">q"  # Adler-32 of all bytes before
    "i"  #  1
    "c"  #  "/"
)
_STAT = struct.Struct(
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
_CHUNK_BYTES = 4 << 20
_LONGEST_BYTES = 256 << 20  # of a value; a length beyond is damage
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


class Snapshot(Struct, frozen=True):
    """The nodes of a snapshot by path, without the root; ``newest_zxid``: the newest transaction of which it has
    traces; ``ledger_ids``: the ids allocated by then."""

    nodes: dict[str, ZooKeeperNode]
    newest_zxid: int
    ledger_ids: LedgerIds


class SnapshotReader:
    """Reads a snapshot node by node, in bounded memory; ``newest_zxid`` as in ``Snapshot``, once all nodes are read."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.newest_zxid = 0
        self._where = where
        self._file = file
        self._data = b""
        self._pos = 0
        self._before = 0
        """Where ``_data`` begins in the snapshot."""
        self._summed = 0
        self._adler = 1

    def nodes(self) -> Iterator[tuple[ZooKeeperNode, int]]:
        """Yield (node, number of nodes ever created directly below it) for all but the root; the next sequential child
        has this number.

        Raises MetadataCorrupt, also at the end of a snapshot whose seals do not fit.
        """
        check_header(self._take(HEADER.size), SNAPSHOT_MAGIC, self._where)
        # Sessions, and then the cache of ACLs.
        for _ in range(self._number()):
            self._take(12)
        for _ in range(self._number()):
            self._take(8)
            for _ in range(self._number()):  # permissions, scheme, id
                self._take(4)
                self._buffer()
                self._buffer()
        newest = 0
        while (raw := self._buffer()) != b"/":
            data = self._buffer()
            _, czxid, mzxid, created, modified, version, made, _, owner, pzxid = _STAT.unpack(self._take(_STAT.size))
            newest = max(newest, czxid, mzxid, pzxid)
            if raw:
                yield (
                    ZooKeeperNode(self._path(raw), data, version, created, modified, is_of_session(owner), mzxid),
                    made,
                )
        self._check_seal()
        left = self._more()
        if left:  # the digest of the tree and the zxid processed last
            newest = max(newest, LONG.unpack(self._take(LONG.size))[0])
            self._take(left - LONG.size - _SEAL.size)
            self._check_seal()
        self.newest_zxid = newest

    def _take(self, size: int) -> bytes:
        start, end = self._pos, self._pos + size
        if end > len(self._data) or size < 0:
            self._fill(size)
            start, end = 0, size
        self._pos = end
        return self._data[start:end]

    def _more(self, size: int = 0) -> int:
        """Read until ``size`` unread bytes are in memory, or the file ends; return how many there are."""
        self._sum()
        rest = self._data[self._pos :]
        self._data = rest + self._file.read(max(_CHUNK_BYTES, size - len(rest)))
        self._before += self._pos
        self._pos = self._summed = 0
        return len(self._data)

    def _fill(self, size: int) -> None:
        if not 0 <= size <= _LONGEST_BYTES:
            raise MetadataCorrupt(f"{self._where}: a length of {size} bytes", where=self._where)
        if self._more(size) < size:
            raise MetadataCorrupt(
                f"{self._where}: the snapshot is cut: {size} bytes expected, {len(self._data)} are left",
                where=self._where,
            )

    def _sum(self) -> int:
        """Return the Adler-32 of all bytes so far."""
        self._adler = zlib.adler32(memoryview(self._data)[self._summed : self._pos], self._adler)
        self._summed = self._pos
        return self._adler

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def _buffer(self) -> bytes:
        size = self._number()
        return self._take(size) if size > 0 else b""

    def _path(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MetadataCorrupt(f"{self._where}: a path that is not UTF-8", where=self._where) from error

    def _check_seal(self) -> None:
        """Raise MetadataCorrupt unless the seal that follows is that of all bytes before it."""
        offset, expected = self._before + self._pos, _SEAL.pack(self._sum(), 1, b"/")
        seal = self._take(_SEAL.size)
        if seal != expected:
            raise MetadataCorrupt(
                f"{self._where} @ {offset:#x}: its seal does not fit: expected {expected.hex()}, found {seal.hex()}",
                hint="put this snapshot aside: an older one and the logs are read then",
                where=self._where,
                offset=offset,
                expected=expected.hex(),
                found=seal.hex(),
            )


def decode_snapshot(file: BinaryIO, where: str) -> Snapshot:
    """Return the snapshot in a file; raises as ``SnapshotReader.nodes``."""
    reader, ledger_ids = SnapshotReader(file, where), LedgerIds()
    nodes: dict[str, ZooKeeperNode] = {}
    for node, children_made in reader.nodes():
        nodes[node.path] = node
        ledger_ids.see(node.path, children_made)
    return Snapshot(nodes, reader.newest_zxid, ledger_ids)


class Salvaged(Struct, frozen=True):
    """The readable part of a damaged snapshot: ``nodes`` and ``newest_zxid`` as in ``Snapshot``; ``lost_bytes``: bytes
    that are not nodes."""

    nodes: dict[str, ZooKeeperNode]
    newest_zxid: int
    lost_bytes: int


_NODE_START = re.compile(rb"\0\0[\s\S]{2}/[^/\0]")
"""How a node begins: the length of its path, and the path."""
_OWN_NODES = "/zookeeper"  # ``DataTree`` makes them, as of transaction 0


def salvage_snapshot(data: bytes) -> Salvaged:
    """Return the nodes of a snapshot that ``decode_snapshot`` refuses: up to the damage, and from the next complete node on.

    Nodes have no checksums, so one with a changed value is taken; one with impossible statistics is not.
    """
    nodes: dict[str, ZooKeeperNode] = {}
    newest = lost = 0
    match = _NODE_START.search(data, HEADER.size)
    # Its sessions and ACLs, and the root, whose path is empty, precede the first node.
    offset = match.start() if match else len(data)
    while offset < len(data):
        node, zxid, end = _salvage_node(data, offset)
        if node is not None:
            nodes[node.path] = node
            newest = max(newest, zxid)
            offset = end
            continue
        if data.startswith(_jute(b"/"), offset):  # no node follows
            break
        match = _NODE_START.search(data, offset + 1)
        lost += (match.start() if match else len(data)) - offset
        offset = match.start() if match else len(data)
    return Salvaged(nodes, newest, lost)


def _salvage_node(data: bytes, offset: int) -> tuple[ZooKeeperNode | None, int, int]:
    """Return the node at ``offset``, its newest transaction and its end; None if no possible node is there."""
    nothing = None, 0, offset
    try:
        size = INT.unpack_from(data, offset)[0]
        path = data[offset + INT.size : offset + INT.size + size].decode()
        at = offset + INT.size + size
        length = max(INT.unpack_from(data, at)[0], 0)
        at += INT.size
        _, czxid, mzxid, created, modified, version, _, _, owner, pzxid = _STAT.unpack_from(data, at + length)
    except (struct.error, UnicodeDecodeError):
        return nothing
    if size <= 1 or not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        return nothing
    is_possible = 0 < czxid <= min(mzxid, pzxid) and min(created, modified) > 0 and version >= 0
    if not is_possible and not path.startswith(_OWN_NODES):
        return nothing
    node = ZooKeeperNode(path, data[at : at + length], version, created, modified, is_of_session(owner), mzxid)
    return node, max(mzxid, pzxid), at + length + _STAT.size


def is_of_session(owner: int) -> bool:
    """Whether a node's owner is a session, with which the node ends; containers and nodes with a TTL have other owners."""
    return owner not in (0, _CONTAINER_OWNER) and owner >> 56 != -1


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
    """Yield the bytes of a snapshot of nodes as of a transaction; the first is the root, "", and a node follows its parent.

    No session is open, and every node is open to everybody (``OPEN_ACL_UNSAFE``), or readable by everybody.
    """
    head = HEADER.pack(SNAPSHOT_MAGIC, VERSION, -1) + INT.pack(0)
    acls = INT.pack(1) + LONG.pack(_READ_ONLY_ACL) + INT.pack(1) + INT.pack(1) + _jute(b"world") + _jute(b"anyone")
    part = head + acls
    checksum = zlib.adler32(part)
    yield part
    for node in nodes:
        acl = _READ_ONLY_ACL if node.read_only else _OPEN_ACL
        times = node.created_ms, node.modified_ms
        stat = _STAT.pack(acl, zxid, zxid, *times, node.version, node.children_made, 0, 0, zxid)
        part = _jute(node.path.encode()) + _jute(node.data) + stat
        checksum = zlib.adler32(part, checksum)
        yield part
    end = _jute(b"/")
    yield end + _SEAL.pack(zlib.adler32(end, checksum), 1, b"/")


def _jute(raw: bytes) -> bytes:
    return INT.pack(len(raw)) + raw


def iter_snappy(data: bytes, where: str) -> Iterator[bytes | memoryview]:
    """Yield the content of a stream of snappy-java, part by part; raises MetadataCorrupt."""
    from pulsar_admin.store.codec.compression import SNAPPY, decompress

    reader = Reader(data, where, MetadataCorrupt)
    is_begun = False
    while reader.remaining or not is_begun:
        length = reader.i32()
        if length == int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True):
            reader.take(12)
            is_begun = True
            continue
        chunk = reader.take(length)
        if not is_begun:
            raise MetadataCorrupt(f"{where}: no snappy stream", where=where)
        size = Reader(chunk, where, MetadataCorrupt).varint()
        yield decompress(SNAPPY, chunk, size, where=where, error=MetadataCorrupt)
