"""Location blocks and columns of entries from the table ``entries``: of those row groups alone that have what is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from store.aliases import Array
from store.db.blocks import BLOCK_BITS, BLOCK_ENTRIES, Block, block_key, block_of_key
from store.errors import Corrupt
from store.frozen import NamedTuple
from store.index.packing import pack_block
from store.kernels import columns as kernel
from store.names import LONG_MAX
from store.scan.schemas import FLAGS, INVERTED
from store.tables.groups import Group, Kept, LedgerGroups
from store.wording import counted

KEYS = ("ledger_id", "entry_id")
_PLACES = ("offset", "size", "payload_bytes", "messages", "last_add_confirmed")
_TIMES = {"publish_time": "publish_ms", "broker_time": "broker_ms", "deliver_at_time": "deliver_at_ms"}
COLUMNS = (*KEYS, *_PLACES, *_TIMES, *FLAGS, "path")
_HELD_ROWS = 1 << 21
_HELD_BYTES = 256 << 20
_HELD_BLOCKS = 32 << 20  # bytes
_BATCH_ROWS = 1 << 15


class Rows(NamedTuple):
    """The good entries of a row group: records as a scan makes them, and the number of each one's file."""

    records: Array  # kernel.RECORD
    files: Array  # u32

    def part(self, low: int, high: int | None = None) -> Rows:
        """Return those from LOW to HIGH, excluded."""
        return Rows(self.records[low:high], self.files[low:high])


def rows_of(table: pa.Table, file_ids: Mapping[str, int]) -> Rows:
    """Return the entries of TABLE (COLUMNS); those with a bad digest are in no index and left out. Raises Corrupt."""
    records = np.zeros(table.num_rows, kernel.RECORD)
    for name in (*KEYS, "offset", "size", "messages"):
        records[name] = _numbers(table, name)
    records["lac"] = _numbers(table, "last_add_confirmed", -1)
    records["digest_bytes"] = records["size"] - 32 - _numbers(table, "payload_bytes")
    for name, bit in FLAGS.items():
        is_set = (_numbers(table, name) != 0) != (name in INVERTED)
        records["flags"] |= np.where(is_set, bit, 0).astype(np.int16)
    for name, target in _TIMES.items():
        times, there = _values(table, name)
        records[target] = np.where(there, times // 1000, 0 if name == "deliver_at_time" else -1)
        if name == "broker_time":
            records["flags"] |= np.where(there, kernel.HAS_BROKER_TIME, 0).astype(np.int16)
    paths = table.column("path").combine_chunks().dictionary_encode()
    known = np.array([_file_id(path, file_ids) for path in paths.dictionary.to_pylist()], np.uint32)
    indices, _ = values_of(paths.indices)
    good = records["flags"] & kernel.BAD_DIGEST == 0
    return Rows(records[good], known[indices][good])


def _file_id(path: str, file_ids: Mapping[str, int]) -> int:
    if path not in file_ids:
        raise Corrupt(
            f"the table entries names {path}, which the table rows does not know: expected one of {counted(len(file_ids), 'file')}",
            hint="export the tables again",
            path=path,
        )
    return file_ids[path]


def _numbers(table: pa.Table, name: str, null: int = 0) -> Array:
    values, there = _values(table, name)
    return values if there.all() else np.where(there, values, null)


def _values(table: pa.Table, name: str) -> tuple[Array, Array]:
    return values_of(table.column(name).combine_chunks())


def values_of(found: pa.Array) -> tuple[Array, Array]:
    """Return the numbers, times or truth values of FOUND, anything for a null, and which are there (bool).

    By their buffers: ``to_numpy`` imports pandas, a quarter of a second that nothing here needs.
    """
    start, end = found.offset, found.offset + len(found)
    bits, data = found.buffers()
    there = np.ones(len(found), bool) if bits is None else _bits(bits)[start:end]
    if pa.types.is_boolean(found.type):
        return _bits(data)[start:end], there
    return np.frombuffer(data, f"<i{found.type.bit_width // 8}")[start:end], there


def _bits(data: pa.Buffer) -> Array:
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)


def pack_blocks(parts: Iterable[Rows]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the location blocks of PARTS, which follow one another by ledger and entry, each with its key."""
    held = Rows(np.zeros(0, kernel.RECORD), np.zeros(0, np.uint32))
    for part in parts:
        rows = Rows(*(np.concatenate(both) for both in zip(held, part, strict=True))) if len(held.files) else part
        ledgers, blocks = rows.records["ledger_id"], rows.records["entry_id"] >> BLOCK_BITS
        changes = (np.diff(ledgers) != 0) | (np.diff(blocks) != 0)
        edges = [0, *(np.flatnonzero(changes) + 1).tolist()]
        for low, high in pairwise(edges):
            yield _packed(rows.part(low, high))
        held = rows.part(edges[-1])  # it may go on in the next part
    if len(held.files):
        yield _packed(held)


def _packed(rows: Rows) -> tuple[bytes, bytes]:
    ledger_id, number, block = pack_block(rows.records, rows.files)
    return block_key(ledger_id, number), block


class Bodies:
    """The table ``bodies`` of one cluster: records that metadata lies in, sorted by ledger."""

    def __init__(self, groups: LedgerGroups) -> None:
        self._groups = groups
        self._held: Kept[Group, dict[tuple[int, int], bytes]] = Kept(_HELD_BYTES, _size_of_bodies)

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the record of an entry, None for one that is not kept."""
        for group in self._groups.of(ledger_id):
            record = self._held.get(group, _bodies_of).get((ledger_id, entry_id))
            if record is not None:
                return record
        return None


def _bodies_of(group: Group) -> dict[tuple[int, int], bytes]:
    columns = group.read((*KEYS, "record")).to_pydict()
    return dict(zip(zip(columns["ledger_id"], columns["entry_id"], strict=True), columns["record"], strict=True))


def _size_of_bodies(found: dict[tuple[int, int], bytes]) -> int:
    return sum(map(len, found.values()))


class EntryTable:
    """The table ``entries`` of one cluster, sorted by ledger and entry. FILE_IDS: path → number in the catalogue."""

    def __init__(self, groups: LedgerGroups, bodies: Bodies, file_ids: Mapping[str, int]) -> None:
        self._groups = groups
        self._bodies = bodies
        self._file_ids = file_ids
        self._held: Kept[Group, Rows] = Kept(_HELD_ROWS, lambda rows: len(rows.files))
        self._names: Kept[Group, pa.Array] = Kept(_HELD_ROWS, len)
        self._blocks: Kept[bytes, bytes | None] = Kept(_HELD_BLOCKS, lambda block: 100 + len(block or b""))

    def block(self, key: bytes) -> bytes | None:
        """Return the location block of KEY, None where no entry of it is in the table."""
        return self._blocks.get(key, self._make)

    def _make(self, key: bytes) -> bytes | None:
        ledger_id, number = block_of_key(key)
        first = number << BLOCK_BITS
        found = next(pack_blocks(self._slices(ledger_id, first, first + BLOCK_ENTRIES - 1)), None)
        return None if found is None else found[1]

    def blocks(self, ledger_id: int, first: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the location blocks of a ledger from the number FIRST on, each with its key."""
        return pack_blocks(self._slices(ledger_id, first << BLOCK_BITS, LONG_MAX))

    def all_blocks(self, first_ledger: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the location blocks of every ledger from FIRST_LEDGER on, each row group read once and forgotten."""
        return pack_blocks(self._from(first_ledger))

    def _from(self, first_ledger: int) -> Iterator[Rows]:
        for group in self._groups.since(first_ledger):
            rows = self._read(group)
            rows = rows.part(int(np.searchsorted(rows.records["ledger_id"], first_ledger)))
            if len(rows.files):
                yield rows

    def _read(self, group: Group) -> Rows:
        return rows_of(group.read(COLUMNS), self._file_ids)

    def _groups_of(self, ledger_id: int, first: int, last: int) -> Iterator[Group]:
        """Yield the row groups that may have entries FIRST to LAST of a ledger."""
        for group in self._groups.of(ledger_id):
            ledgers, (low, high) = group.bounds
            if ledgers != (ledger_id, ledger_id) or (low <= last and first <= high):
                yield group

    def _slices(self, ledger_id: int, first: int, last: int) -> Iterator[Rows]:
        """Yield the entries FIRST to LAST of a ledger, as far as they are there."""
        for group in self._groups_of(ledger_id, first, last):
            rows = self._held.get(group, self._read)
            low, high = _span(rows.records, ledger_id, first, last)
            if high > low:
                yield rows.part(low, high)

    # -- columns --------------------------------------------------------------------------------------------------

    def record(self, ledger_id: int, entry_id: int) -> bytes | None:
        """See ``store.db.columns.EntryColumns``."""
        return self._bodies.find(ledger_id, entry_id)

    def times(self, block: Block) -> Iterator[tuple[int, int | None] | None]:
        """See ``store.db.columns.EntryColumns``."""
        for rows in self._slices(block.ledger_id, block.entry_id(0), block.entry_id(len(block) - 1)):
            columns = (rows.records[name].tolist() for name in ("publish_ms", "broker_ms", "flags"))
            for publish_ms, broker_ms, flags in zip(*columns, strict=True):
                if flags & kernel.UNFRAMED:
                    yield None
                else:
                    yield publish_ms, broker_ms if flags & kernel.HAS_BROKER_TIME else None

    def batches(self, parts: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, Any]]:  # Any: numpy's columns
        """See ``store.db.columns.EntryColumns``; the columns are those of ``store.scan.entries.EntryBatch``."""
        pending: list[tuple[Array, pa.Array]] = []
        entries = missing = 0
        for ledger_id, first, last in parts:
            missing += last - first + 1
            for records, names in self._named(ledger_id, first, last):
                pending.append((records, names))
                missing, entries = missing - len(records), entries + len(records)
            if entries >= _BATCH_ROWS:
                yield missing, _columns(pending)
                pending, entries, missing = [], 0, 0
        if pending or missing:
            yield missing, _columns(pending)

    def _named(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[Array, pa.Array]]:
        """Yield the entries of a ledger with the names of their producers."""
        for group in self._groups_of(ledger_id, first, last):
            rows = self._held.get(group, self._read)
            low, high = _span(rows.records, ledger_id, first, last)
            if high > low:
                names = self._names.get(group, _names_of)
                yield rows.records[low:high], names[low:high]


def _names_of(group: Group) -> pa.Array:
    table = group.read(("digest_ok", "producer"))
    return table.filter(table.column("digest_ok")).column("producer").combine_chunks()


def _span(records: Array, ledger_id: int, first: int, last: int) -> tuple[int, int]:
    """Return where entries FIRST to LAST of a ledger begin and end in RECORDS."""
    low, high = np.searchsorted(records["ledger_id"], (ledger_id, ledger_id + 1))
    entries = records["entry_id"][low:high]
    return int(low + np.searchsorted(entries, first)), int(low + np.searchsorted(entries, last, "right"))


def _columns(parts: list[tuple[Array, pa.Array]]) -> tuple[Array, ...]:
    """Return (ledger ids, entry ids, data, offsets, held, rows) of PARTS; ``data``: names, −1 bytes for none."""
    records = np.concatenate([np.zeros(0, kernel.RECORD), *(rows for rows, _ in parts)])
    names = pa.concat_arrays([pa.array([], pa.string()), *(found for _, found in parts)]).cast(pa.large_binary())
    edges = np.frombuffer(names.buffers()[1], np.int64)[: len(names) + 1]
    text = names.buffers()[2]
    data = np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
    held = np.where(names.is_null().to_numpy(zero_copy_only=False), -1, np.diff(edges))
    return records["ledger_id"], records["entry_id"], data, edges[:-1], held, records
