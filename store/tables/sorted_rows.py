"""Databases of a store as rows in the order of their keys, read from row groups that are asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from store.codec.rocksvalue import NodeStat
from store.db.blocks import block_of_key
from store.db.environment import Txn
from store.db.tree import Node, row_of
from store.frozen import NamedTuple
from store.tables.entry_rows import EntryTable
from store.tables.groups import Group, Kept

_HELD_ROWS = 1 << 19
_LONG_PATH = 400  # bytes from which on keys are not in the order of paths
NODE_COLUMNS = ("path", "value", "version", "created_time", "modified_time", "owner")


class Rows(Protocol):
    """The rows of one database, in the order of their keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of KEY."""

    def seek(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows from the key START on, at least those that begin with PREFIX."""

    def count(self) -> int:
        """Return how many rows there are."""


class NoRows:
    """A database that tables do not have."""

    def get(self, key: bytes) -> None:
        return None

    def seek(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def count(self) -> int:
        return 0


class Decoded(NamedTuple):
    """The rows of one group, sorted."""

    keys: list[bytes]
    values: list[bytes]


class SortedRows:
    """Rows in row groups that are sorted by key; MAKE decodes one. LOWS and HIGHS: bounds of their keys."""

    def __init__(
        self, groups: Sequence[tuple[bytes, bytes, Group]], make: Callable[[Group], list[tuple[bytes, bytes]]]
    ) -> None:
        found = sorted(groups, key=lambda item: item[:2])
        self._lows = [low for low, _, _ in found]
        self._highs = [high for _, high, _ in found]
        self._groups = [group for _, _, group in found]
        self._make = make
        self._held: Kept[int, Decoded] = Kept(_HELD_ROWS, lambda decoded: len(decoded.keys))

    @property
    def is_scattered(self) -> bool:
        """Whether row groups are read again and again."""
        return self._held.misses > 2 * len(self._groups)

    def _decoded(self, number: int) -> Decoded:
        rows = sorted(self._make(self._groups[number]))
        return Decoded([key for key, _ in rows], [value for _, value in rows])

    def get(self, key: bytes) -> bytes | None:
        for number in range(bisect_left(self._highs, key), bisect_right(self._lows, key)):
            found = self._held.get(number, self._decoded)
            place = bisect_left(found.keys, key)
            if place < len(found.keys) and found.keys[place] == key:
                return found.values[place]
        return None

    def seek(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        for number in range(bisect_left(self._highs, start), len(self._groups)):
            keys, values = self._held.get(number, self._decoded)
            for place in range(bisect_left(keys, start), len(keys)):  # no slices: most callers take one row
                yield keys[place], values[place]

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row, each group read once and forgotten."""
        for number in range(len(self._groups)):
            yield from zip(*self._decoded(number), strict=True)

    def count(self) -> int:
        return sum(group.rows for group in self._groups)


def node_rows(groups: Sequence[Group]) -> SortedRows:
    """Return the database ``tree`` of the table ``nodes``."""
    return SortedRows([(*_key_bounds(*group.bounds[0]), group) for group in groups], _nodes_of)


def _key_bounds(low: str, high: str) -> tuple[bytes, bytes]:
    first, last = low.encode()[:_LONG_PATH], high.encode()
    return first, last if len(last) <= _LONG_PATH else last[:_LONG_PATH] + b"\xff" * 33


def _nodes_of(group: Group) -> list[tuple[bytes, bytes]]:
    table = group.read(NODE_COLUMNS)
    columns = [table.column(name) for name in ("path", "value", "version", "owner")]
    times = [table.column(name).cast("int64") for name in ("created_time", "modified_time")]
    rows = zip(*(column.to_pylist() for column in (*columns, *times)), strict=True)
    return [
        row_of(Node(path, NodeStat(version, owner or 0, (created or 0) // 1000, (modified or 0) // 1000, False), value))
        for path, value, version, owner, created, modified in rows
    ]


def kept_rows(groups: Sequence[Group], database: str) -> SortedRows:
    """Return DATABASE of the table ``rows``, which is sorted by database and key."""

    def rows_of(group: Group) -> list[tuple[bytes, bytes]]:
        table = group.read(("database", "key", "value"))
        if group.bounds[0] != (database, database):
            names = table.column("database").to_pylist()
            low = bisect_left(names, database)
            table = table.slice(low, bisect_right(names, database) - low)
        return list(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))

    found = []
    for group in groups:
        if group.bounds[0] == (database, database):
            found.append((*group.bounds[1], group))
        elif group.bounds[0][0] <= database <= group.bounds[0][1] and (rows := rows_of(group)):
            found.append((rows[0][0], rows[-1][0], group))  # the bounds are those of several databases
    return SortedRows(found, rows_of)


class BlockRows:
    """The database ``entries``: location blocks."""

    def __init__(self, table: EntryTable) -> None:
        self._table = table

    def get(self, key: bytes) -> bytes | None:
        return self._table.block(key)

    def seek(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        begin = max(prefix, start)
        ledger_id, number = block_of_key(begin[:16].ljust(16, b"\0"))
        one = len(prefix) >= 8 and begin.startswith(prefix)
        found = self._table.blocks(ledger_id, number) if one else self._table.all_blocks(ledger_id)
        return ((key, block) for key, block in found if key >= begin)

    def count(self) -> int:
        return sum(1 for _ in self.seek(b"", b""))


class SpilledRows:
    """Rows that were all written into a store of this process's own."""

    def __init__(self, txn: Txn, database: str) -> None:
        self._txn, self._database = txn, database

    def get(self, key: bytes) -> bytes | None:
        return self._txn.get(self._database, key)

    def seek(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, bytes(value)) for key, value in self._txn.items(self._database, prefix, start))

    def count(self) -> int:
        return self._txn.count(self._database)
