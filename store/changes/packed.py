"""Records in compressed bytes: a plan may have millions, which as objects would take several times the memory."""

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

from msgspec import Struct, msgpack

Record = TypeVar("Record", bound=Struct)
_BLOCK = 1024
"""Records that are compressed together: their keys, and most of their values, are alike."""


class Packed(Sequence[Record]):
    """A sequence of records of one type, stored as MessagePack and decoded on each access.

    Tuples in JSON values become lists.
    """

    __slots__ = ("_blocks", "_decoder", "_encoder", "_ends", "_read", "_rest")

    def __init__(self, kind: type[Record], records: Iterable[Record] = ()) -> None:
        self._blocks: list[bytes] = []
        self._ends = array("q")  # how many records there are up to the end of each block
        self._rest: list[bytes] = []  # records that come after all blocks
        self._read: tuple[bytes, list[bytes]] = b"", []  # the block read last, and its records
        self._encoder, self._decoder = msgpack.Encoder(), msgpack.Decoder(kind)
        self.extend(records)

    def append(self, record: Record) -> None:
        """Add a record at the end."""
        self._append(self._encoder.encode(record))

    def put_first(self, record: Record) -> None:
        """Add a record at the beginning."""
        self._blocks.insert(0, _compressed([self._encoder.encode(record)]))
        self._ends = array("q", (1, *(end + 1 for end in self._ends)))

    def extend(self, records: Iterable[Record]) -> None:
        """Add records at the end."""
        if isinstance(records, Packed):
            for one in records._iter_bytes():
                self._append(one)
            return
        for record in records:
            self.append(record)

    def cut(self, length: int) -> None:
        """Keep only the first ``length`` records."""
        while length < self._in_blocks:
            self._rest = _decompressed(self._blocks.pop())
            self._ends.pop()
        del self._rest[length - self._in_blocks :]

    @property
    def _in_blocks(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _append(self, encoded: bytes) -> None:
        self._rest.append(encoded)
        if len(self._rest) == _BLOCK:
            self._blocks.append(_compressed(self._rest))
            self._ends.append(self._in_blocks + _BLOCK)
            self._rest = []

    def _iter_bytes(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield from _decompressed(block)
        yield from self._rest

    def __len__(self) -> int:
        return self._in_blocks + len(self._rest)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        if at >= self._in_blocks:
            return self._decoder.decode(self._rest[at - self._in_blocks])
        number = bisect_right(self._ends, at)
        if self._read[0] is not self._blocks[number]:
            self._read = self._blocks[number], _decompressed(self._blocks[number])
        return self._decoder.decode(self._read[1][at - self._ends[number]])  # counted from the block's end

    def __iter__(self) -> Iterator[Record]:
        return map(self._decoder.decode, self._iter_bytes())


def _compressed(records: list[bytes]) -> bytes:
    return zlib.compress(msgpack.encode(records), 1)


def _decompressed(block: bytes) -> list[bytes]:
    return msgpack.decode(zlib.decompress(block), type=list[bytes])
