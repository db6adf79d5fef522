"""A ZooKeeper snapshot node by node, in bounded memory: there may be millions of them (layout: ``store.codec.zookeeper``)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from store.codec.jute import HEADER, check_header
from store.codec.zookeeper import SEAL, SNAPSHOT_MAGIC, STAT, is_of_session
from store.errors import MetadataCorrupt

_CHUNK_BYTES = 4 << 20
_LONGEST_BYTES = 256 << 20  # of a value; a length beyond is damage


class StreamedNode(NamedTuple):
    """A znode; ``children_made``: how many were ever made below it, which numbers the next sequential one."""

    path: str
    data: bytes
    version: int
    children_made: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    modified_zxid: int
    newest_zxid: int


class _Stream:
    """Takes bytes of FILE and sums them up (Adler-32)."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.where = where
        self._file = file
        self._data = b""
        self._pos = 0
        self._summed = 0
        self._adler = 1

    def take(self, size: int) -> bytes:
        start, end = self._pos, self._pos + size
        if end > len(self._data) or size < 0:
            self._fill(size)
            start, end = 0, size
        self._pos = end
        return self._data[start:end]

    def _fill(self, size: int) -> None:
        self.adler()
        rest = self._data[self._pos :]
        if not 0 <= size <= _LONGEST_BYTES:
            raise MetadataCorrupt(f"{self.where}: a length of {size} bytes", where=self.where)
        self._data = rest + self._file.read(max(_CHUNK_BYTES, size - len(rest)))
        self._pos = self._summed = 0
        if len(self._data) < size:
            raise MetadataCorrupt(
                f"{self.where}: the snapshot is cut: {size} bytes expected, {len(self._data)} are left",
                where=self.where,
            )

    def adler(self) -> int:
        """Return the sum of what was taken."""
        self._adler = zlib.adler32(memoryview(self._data)[self._summed : self._pos], self._adler)
        self._summed = self._pos
        return self._adler

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def buffer(self) -> bytes:
        size = self.number()
        return self.take(size) if size > 0 else b""


def iter_snapshot_nodes(file: BinaryIO, where: str) -> Iterator[StreamedNode]:
    """Yield the nodes of the snapshot in FILE, the root left out; raises MetadataCorrupt, at its end, too, when its seal does not fit."""
    stream = _Stream(file, where)
    check_header(stream.take(HEADER.size), SNAPSHOT_MAGIC, where)
    for _ in range(stream.number()):
        stream.take(12)  # a session
    for _ in range(stream.number()):
        stream.take(8)
        for _ in range(stream.number()):  # an ACL: permissions, scheme, id
            stream.take(4)
            stream.buffer()
            stream.buffer()
    while (raw := stream.buffer()) != b"/":
        data = stream.buffer()
        _, czxid, mzxid, created, modified, version, made, _, owner, pzxid = STAT.unpack(stream.take(STAT.size))
        if raw:
            newest = max(czxid, mzxid, pzxid)
            yield StreamedNode(
                _text(raw, where), data, version, made, created, modified, is_of_session(owner), mzxid, newest
            )
    expected = SEAL.pack(stream.adler(), 1, b"/")
    found = stream.take(SEAL.size)
    if found != expected:
        raise MetadataCorrupt(
            f"{where}: its seal does not fit: expected {expected.hex()}, found {found.hex()}",
            hint="put this snapshot aside: an older one and the logs are read then",
            where=where,
        )


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{where}: a path that is not UTF-8", where=where) from error
