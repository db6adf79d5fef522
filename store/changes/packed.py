"""Records kept as bytes: of the millions that a plan may have, objects would take several times the memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

from msgspec import Struct, msgpack

Record = TypeVar("Record", bound=Struct)


class Packed(Sequence[Record]):
    """Records of one kind in their order, each encoded as MessagePack and made anew whenever it is asked for.

    What is a tuple in a value of JSON is a list afterwards.
    """

    __slots__ = ("_bytes", "_decoder", "_encoder", "_ends")

    def __init__(self, kind: type[Record], records: Iterable[Record] = ()) -> None:
        self._bytes, self._ends = bytearray(), array("q")
        self._encoder, self._decoder = msgpack.Encoder(), msgpack.Decoder(kind)
        self.extend(records)

    def append(self, record: Record) -> None:
        """Add a record at the end."""
        self._encoder.encode_into(record, self._bytes, -1)
        self._ends.append(len(self._bytes))

    def extend(self, records: Iterable[Record]) -> None:
        """Add records at the end."""
        if isinstance(records, Packed):
            start = len(self._bytes)
            self._bytes += records._bytes
            self._ends.extend(array("q", (start + end for end in records._ends)))
            return
        for record in records:
            self.append(record)

    def cut(self, length: int) -> None:
        """Forget the records from this place on."""
        del self._bytes[self._ends[length - 1] if length else 0 :], self._ends[length:]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        return self._decoder.decode(self._bytes[self._ends[at - 1] if at else 0 : self._ends[at]])

    def __iter__(self) -> Iterator[Record]:
        start = 0
        for end in self._ends:
            yield self._decoder.decode(self._bytes[start:end])
            start = end
