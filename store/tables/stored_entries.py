"""The table entries of a store: what its index names, once each. Where entries lie the index says; files are read for the rest.

Rows are those of ``store.tables.entries`` but for entries of which no whole record is left: the index has none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from store.aliases import Array
from store.db.blocks import decode_times, ledger_key, ledger_of_key
from store.db.copies import has_copies, iter_copies
from store.db.environment import Txn
from store.db.files import LogFile, find_log
from store.db.owners import find_owners
from store.errors import StoreError
from store.kernels.records import UNFRAMED
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.names import parse_owner
from store.scan.arrow import column, nullable
from store.scan.entries import EntryScan
from store.scan.operations import entry_column
from store.scan.places import EntryBatch, Part, Places
from store.tables.pruned_parts import Seen, iter_wanted
from store.tables.pruning import Pruner, between, equal
from store.tables.schemas import TABLES
from store.tables.staging import NO_SEQUENCE, entry_keys, senders

Extents = list[tuple[Part, str | None]]
"""The entries of ledgers, and their topics."""

ENTRIES = TABLES["entries"]
_INDEXED = {"cluster", "topic", "ledger_id", "entry_id", "offset", "size", "payload_bytes", "path", "bookie", "copies"}
_SENDERS = {"producer", "sequence_id"}
_ROUND_LEDGERS = 1024
_ENTRY_HEADER_BYTES = 32


class StoredEntries(Struct):
    """Entries by ledger and entry. TOPICS: all names, ascending; what cannot be read is added to PROBLEMS; SEEN is filled as scans go."""

    reader: EntryReader
    cluster: str | None
    topics: Callable[[], Sequence[str]]
    problems: list[StoreError] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)

    def rows(self, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        """Yield the entries that the filter may be true of."""
        names = [name for name in ENTRIES.names if name in columns]
        before = self.seen.read_bytes
        makes = _Columns(self.reader.txn, self.cluster, names)
        for extents in self._rounds(pruner):
            named = [_about(topic) for _, topic in extents]
            parts = iter_wanted(self.reader.txn, [part for part, _ in extents], named, pruner, self.seen)
            makes.topics = {part[0]: topic for part, topic in extents}
            for places, batch in self._read(parts, set(names)):
                yield makes.batch(places, batch)
        if _INDEXED.issuperset(names):
            self.seen.read_bytes = before

    def _read(self, parts: Iterator[Part], names: set[str]) -> Iterator[tuple[Places, EntryBatch | None]]:
        """Yield places, and what is read there where NAMES need it."""
        scan = EntryScan(self.reader, parts, heads="digest_ok" not in names)
        if names <= _INDEXED:
            for places in scan.groups():
                yield places, None
                self.reader.advance(places.bytes)
            return
        yield from scan.placed()
        self.problems += scan.unreadable

    def _rounds(self, pruner: Pruner) -> Iterator[Extents]:
        """Yield the ledgers that have entries and may have rows, some at a time."""
        found = _extents(self.reader.txn, self._ids(pruner))
        while some := list(islice(found, _ROUND_LEDGERS)):
            if pruner.passing([between("ledger_id", some[0][0][0], some[-1][0][0])]):
                yield some
            else:
                self.seen.ledgers += len(some)

    def _ids(self, pruner: Pruner) -> Iterator[int]:
        """Yield the ids of ledgers, ascending: of all, or of those topics that the filter names."""
        if not pruner.names("topic") or pruner.passing([pc.field("topic").is_null()]):
            yield from (ledger_of_key(key) for key, _ in self.reader.txn.items("times"))
            return
        ids: set[int] = set()
        for name in pruner.chosen("topic", self.topics()):
            try:
                ids.update(read_topic(self.reader.txn, parse_owner(name)).ids)
            except StoreError as error:
                self.problems.append(error)
        yield from sorted(ids)


def _extents(txn: Txn, ids: Iterator[int]) -> Iterator[tuple[Part, str | None]]:
    for ledger_id in ids:
        row = txn.view("times", ledger_key(ledger_id))
        if row is not None:
            sums = decode_times(ledger_id, row).sums
            owners = (owner.topic for owner in find_owners(txn, ledger_id) if owner.kind == "managed-ledger")
            yield (ledger_id, sums.first_entry, sums.last_entry), next(owners, None)


def _about(topic: str | None) -> pc.Expression:
    return pc.field("topic").is_null() if topic is None else equal("topic", topic)


class _Columns:
    """Makes the columns NAMES of entries, whose ledgers' TOPICS are known."""

    def __init__(self, txn: Txn, cluster: str | None, names: list[str]) -> None:
        self._txn = txn
        self._cluster = cluster
        self._schema = pa.schema([ENTRIES.field(name) for name in names])
        self._logs: dict[int, LogFile] = {}
        self.topics: dict[int, str | None] = {}

    def batch(self, places: Places, batch: EntryBatch | None) -> pa.RecordBatch:
        """Return the entries at PLACES; of a BATCH that was read those that are in it."""
        if batch is not None and len(batch) < len(places):
            places = places.take(
                np.isin(entry_keys(places.ledger_ids, places.entry_ids), entry_keys(batch.ledger_ids, batch.entry_ids))
            )
        made = [self._make(name, places, batch) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _make(self, name: str, places: Places, batch: EntryBatch | None) -> pa.Array:
        if name == "cluster":
            return pa.repeat(pa.scalar(self._cluster, pa.string()), len(places))
        if name == "topic":
            return _by(places.ledger_ids, self.topics.get)
        if name == "path":
            return _by(places.files, lambda number: str(self._log(number).locate(self._txn.store.path).absolute()))
        if name == "bookie":
            return _by(places.files, lambda number: self._log(number).bookie or None)
        if name == "copies":
            return column(self._copies(places))
        if name in _PLACES:
            return column(_PLACES[name](places).astype(ENTRIES.field(name).type.to_pandas_dtype()))
        assert batch is not None
        if name == "last_add_confirmed":
            return column(batch.rows["lac"].copy())
        return _sender(name, batch) if name in _SENDERS else entry_column(name, batch.rows)

    def _log(self, number: int) -> LogFile:
        if number not in self._logs:
            found = find_log(self._txn, number)
            assert found is not None, f"file {number} of the index is not in the catalogue"
            self._logs[number] = found
        return self._logs[number]

    def _copies(self, places: Places) -> Array:
        """Return on how many bookies a whole record of each entry is."""
        found = np.ones(len(places), np.int16)
        if not has_copies(self._txn):
            return found
        for ledger_id in np.unique(places.ledger_ids).tolist():
            of_ledger = places.ledger_ids == ledger_id
            entries = places.entry_ids[of_ledger]
            disks: dict[str, Array] = {}
            for number, ids in iter_copies(self._txn, ledger_id):
                there = np.isin(entries, np.fromiter(ids, np.int64, len(ids)))
                disk = self._log(number).disk
                disks[disk] = disks.get(disk, False) | there
            found[of_ledger] = sum(disks.values(), np.zeros(len(entries), np.int16))
        return found


_PLACES: dict[str, Callable[[Places], Array]] = {
    "ledger_id": lambda places: places.ledger_ids,
    "entry_id": lambda places: places.entry_ids,
    "offset": lambda places: places.offsets,
    "size": lambda places: places.sizes,
    "payload_bytes": lambda places: np.maximum(places.sizes.astype(np.int64) - _ENTRY_HEADER_BYTES - places.digests, 0),
}


def _by(numbers: Array, text: Callable[[int], str | None]) -> pa.Array:
    """Return the TEXT of each of NUMBERS."""
    known, at = np.unique(numbers, return_inverse=True)
    return pa.array([text(number) for number in known.tolist()], pa.string()).take(pa.array(at))


def _sender(name: str, batch: EntryBatch) -> pa.Array:
    starts = batch.offsets + 4 + _ENTRY_HEADER_BYTES + batch.rows["digest_bytes"]
    ends = np.where(batch.rows["flags"] & UNFRAMED == 0, batch.offsets + 4 + batch.held, starts)
    producers, sequences = senders(batch.data, starts, ends)
    if name == "producer":
        return producers
    return nullable(np.where(sequences == NO_SEQUENCE, 0, sequences), sequences != NO_SEQUENCE)
