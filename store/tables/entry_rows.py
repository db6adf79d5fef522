"""Location blocks, time rows and columns of entries from the table ``entries``: of those ledgers alone that are asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store.db.blocks import Block, ledger_key, ledger_of_key
from store.db.environment import Txn
from store.index.writer import Indexer
from store.kernels import records as kernel
from store.names import LONG_MAX, LONG_MIN
from store.scan.operations import FLAGS, INVERTED
from store.tables.groups import Group, Kept

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made

KEYS = ("ledger_id", "entry_id")
_PLACES = ("offset", "size", "payload_bytes", "messages", "last_add_confirmed")
_TIMES = {"publish_time": "publish_ms", "broker_time": "broker_ms", "deliver_at_time": "deliver_at_ms"}
COLUMNS = (*KEYS, *_PLACES, *_TIMES, *FLAGS, "path")
_HELD_ROWS = 1 << 21
_HELD_BYTES = 256 << 20
_BATCH_ROWS = 1 << 15


class Rows(NamedTuple):
    """The good entries of a row group: records as a scan makes them, and the number of each one's file."""

    records: Array  # kernel.RECORD
    files: Array  # u32


def rows_of(table: pa.Table, file_ids: Mapping[str, int]) -> Rows:
    """Return the entries of TABLE (COLUMNS); those with a bad digest are in no index and left out."""
    records = np.zeros(table.num_rows, kernel.RECORD)
    for name in (*KEYS, "offset", "size", "messages"):
        records[name] = _numbers(table, name)
    records["lac"] = _numbers(table, "last_add_confirmed", -1)
    records["digest_bytes"] = records["size"] - 32 - _numbers(table, "payload_bytes")
    for name, bit in FLAGS.items():
        is_set = (_numbers(table, name) != 0) != (name in INVERTED)
        records["flags"] |= np.where(is_set, bit, 0).astype(np.int16)
    for name, target in _TIMES.items():
        there = table.column(name).is_valid().to_numpy(zero_copy_only=False)
        times = _numbers(table, name) // 1000
        records[target] = np.where(there, times, 0 if name == "deliver_at_time" else -1)
        if name == "broker_time":
            records["flags"] |= np.where(there, kernel.HAS_BROKER_TIME, 0).astype(np.int16)
    paths = table.column("path").combine_chunks().dictionary_encode()
    known = np.array([file_ids[path] for path in paths.dictionary.to_pylist()], np.uint32)
    good = records["flags"] & kernel.BAD_DIGEST == 0
    return Rows(records[good], known[paths.indices.to_numpy(zero_copy_only=False)][good])


def _numbers(table: pa.Table, name: str, null: int = 0) -> Array:
    found = table.column(name)
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    elif pa.types.is_boolean(found.type):
        found = found.cast(pa.int8())
    return np.asarray(pc.fill_null(found, pa.scalar(null, found.type)).to_numpy())


class _Made(Txn):
    """The rows of the index that entries make, in memory: what ``Indexer`` writes into."""

    __slots__ = ("_indexer", "_rows")

    def __init__(self) -> None:
        self._rows: dict[str, dict[bytes, bytes]] = {"entries": {}, "times": {}}
        self._indexer = Indexer(self)

    def add(self, rows: Rows) -> None:
        for file_id in np.unique(rows.files).tolist():
            self._indexer.add(rows.records[rows.files == file_id], file_id)

    def finished(self) -> Iterator[LedgerRows]:
        """Yield the rows of each ledger in the order of ids."""
        self._indexer.finish()
        blocks: dict[int, list[tuple[bytes, bytes]]] = {}
        for key in sorted(self._rows["entries"]):
            blocks.setdefault(ledger_of_key(key), []).append((key, self._rows["entries"][key]))
        for ledger_id, found in blocks.items():
            key = ledger_key(ledger_id)
            yield LedgerRows(ledger_id, (key, self._rows["times"][key]), found)

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._rows.get(database, {}).get(key)

    def view(self, database: str, key: bytes) -> memoryview | None:
        value = self.get(database, key)
        return None if value is None else memoryview(value)

    def put(self, database: str, key: bytes, value: bytes) -> None:
        self._rows[database][key] = value

    def put_all(self, database: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        self._rows[database].update(rows)

    def items(
        self, database: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        del start
        for key in sorted(self._rows.get(database, {})):
            if key.startswith(prefix):
                yield key, memoryview(self._rows[database][key])


class LedgerRows(NamedTuple):
    """What the index has of one ledger: its time row and its location blocks, each with its key."""

    ledger_id: int
    times: tuple[bytes, bytes]
    blocks: list[tuple[bytes, bytes]]


def _size_of(found: LedgerRows | None) -> int:
    return 100 if found is None else sum(len(value) for _, value in (found.times, *found.blocks))


class Bodies:
    """The table ``bodies`` of one cluster: records that metadata lies in, sorted by ledger."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = sorted(groups, key=lambda group: group.bounds[0])
        self._firsts = [group.bounds[0][0] for group in self._groups]
        self._lasts = [group.bounds[0][1] for group in self._groups]
        self._held: Kept[int, dict[tuple[int, int], bytes]] = Kept(_HELD_BYTES, _size_of_bodies)

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the record of an entry, None for one that is not kept."""
        for number in range(bisect_left(self._lasts, ledger_id), bisect_right(self._firsts, ledger_id)):
            record = self._held.get(number, self._read).get((ledger_id, entry_id))
            if record is not None:
                return record
        return None

    def _read(self, number: int) -> dict[tuple[int, int], bytes]:
        columns = self._groups[number].read((*KEYS, "record")).to_pydict()
        return dict(zip(zip(columns["ledger_id"], columns["entry_id"], strict=True), columns["record"], strict=True))


def _size_of_bodies(found: dict[tuple[int, int], bytes]) -> int:
    return sum(map(len, found.values()))


class EntryTable:
    """The table ``entries`` of one cluster, sorted by ledger and entry. FILE_IDS: path → number in the catalogue."""

    def __init__(self, groups: Sequence[Group], bodies: Bodies, file_ids: Mapping[str, int]) -> None:
        self._groups = sorted(groups, key=lambda group: (group.bounds[0], group.bounds[1]))
        self._firsts = [group.bounds[0][0] for group in self._groups]
        self._lasts = [group.bounds[0][1] for group in self._groups]
        self._bodies = bodies
        self._file_ids = file_ids
        self._held: Kept[int, Rows] = Kept(_HELD_ROWS, lambda rows: len(rows.files))
        self._ids: Kept[int, Array] = Kept(_HELD_ROWS, len)
        self._names: Kept[int, pa.Array] = Kept(_HELD_ROWS, len)
        self._ledgers: Kept[int, LedgerRows | None] = Kept(_HELD_BYTES, _size_of)

    @property
    def reads(self) -> int:
        """Row groups that were read for single ledgers."""
        return self._held.misses

    def __len__(self) -> int:
        return len(self._groups)

    def ledger(self, ledger_id: int) -> LedgerRows | None:
        """Return the rows of a ledger, None where no entry of it is in the table."""
        return self._ledgers.get(ledger_id, self._make)

    def _make(self, ledger_id: int) -> LedgerRows | None:
        made = _Made()
        for rows in self._slices(ledger_id, 0, LONG_MAX):
            made.add(rows)
        return next(made.finished(), None)

    def ledgers(self, first: int) -> Iterator[LedgerRows]:
        """Yield the rows of every ledger from FIRST on, each row group read once."""
        made = _Made()
        for group in self._groups[bisect_left(self._lasts, first) :]:
            rows = self._read(group)
            if not len(rows.files):
                continue
            ids = rows.records["ledger_id"]
            low, cut = np.searchsorted(ids, (first, ids[-1]))
            if cut > low:
                made.add(Rows(rows.records[low:cut], rows.files[low:cut]))
                yield from made.finished()
                made = _Made()
            cut = max(low, cut)
            made.add(Rows(rows.records[cut:], rows.files[cut:]))
        yield from made.finished()

    def _read(self, group: Group) -> Rows:
        return rows_of(group.read(COLUMNS), self._file_ids)

    def _numbers_of(self, ledger_id: int) -> range:
        return range(bisect_left(self._lasts, ledger_id), bisect_right(self._firsts, ledger_id))

    def _slices(self, ledger_id: int, first: int, last: int) -> Iterator[Rows]:
        """Yield the entries FIRST to LAST of a ledger, as far as they are there."""
        for number in self._numbers_of(ledger_id):
            rows = self._held.get(number, lambda number: self._read(self._groups[number]))
            low, high = _span(rows.records, ledger_id, first, last)
            if high > low:
                yield Rows(rows.records[low:high], rows.files[low:high])

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

    def is_before(self, ledger_id: int, time_ms: int, clock: str) -> bool:
        """See ``store.db.columns.EntryColumns``."""
        groups = [self._groups[number] for number in self._numbers_of(ledger_id)]
        if not any(ledger_id in group.bounds[0] for group in groups):
            return False  # those between the first and the last ledger of a group may not be there
        return all(_latest_ms(group, clock) < time_ms for group in groups)

    def extent(self, ledger_id: int) -> tuple[int, int, int] | None:
        """See ``store.db.columns.EntryColumns``; of most row groups it reads nothing or three columns."""
        entries, first, last = 0, LONG_MAX, LONG_MIN
        for number in self._numbers_of(ledger_id):
            group = self._groups[number]
            if group.bounds[0] == (ledger_id, ledger_id) and group.is_true("digest_ok"):
                count, (low, high) = group.rows, group.bounds[1]
            else:
                ids = self._ids.get(number, self._read_ids)
                found = ids["entry_id"][slice(*_span(ids, ledger_id, 0, LONG_MAX))]
                if not len(found):
                    continue
                count, low, high = len(found), int(found[0]), int(found[-1])
            entries, first, last = entries + count, min(first, low), max(last, high)
        return (entries, first, last) if entries else None

    def _read_ids(self, number: int) -> Array:
        table = self._groups[number].read((*KEYS, "digest_ok"))
        table = table.filter(table.column("digest_ok"))
        ids = np.empty(table.num_rows, [(name, np.int64) for name in KEYS])
        for name in KEYS:
            ids[name] = _numbers(table, name)
        return ids

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
        for number in self._numbers_of(ledger_id):
            rows = self._held.get(number, lambda number: self._read(self._groups[number]))
            low, high = _span(rows.records, ledger_id, first, last)
            if high > low:
                names = self._names.get(number, self._read_names)
                yield rows.records[low:high], names[low:high]

    def _read_names(self, number: int) -> pa.Array:
        table = self._groups[number].read(("digest_ok", "producer"))
        return table.filter(table.column("digest_ok")).column("producer").combine_chunks()


def _latest_ms(group: Group, clock: str) -> int:
    """Return a time on CLOCK that no entry of GROUP is later than."""
    publish_ms, _ = group.latest_ms("publish_time")
    broker_ms, is_stamped = group.latest_ms("broker_time")
    if clock == "broker" or (clock == "auto" and is_stamped):
        publish_ms = None
    if clock == "publish":
        broker_ms = None
    return max((time_ms for time_ms in (publish_ms, broker_ms) if time_ms is not None), default=LONG_MIN)


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
