"""Phase two of the table ``entries``: a range of (ledger id, entry id) → its entries from every staging file, once each, as final files.

Of several records of an entry the one counts that the index of a store names: a whole one before one with a bad digest, that of a
bookie proven to be of the cluster, an entry log's before a journal's, of the newest log and the oldest journal, the last in a log
and the first in a journal (``store.index.writer.Indexer``).
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import DiskFull, StoreError
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import column, nullable
from pulsar_admin.store.scan.operations import entry_column
from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.manifest import Part
from pulsar_admin.store.tables.message_files import Listed, MessageFiles
from pulsar_admin.store.tables.schemas import TABLES
from pulsar_admin.store.tables.staging import NO_SEQUENCE, RECORD_FIELDS, entry_keys
from pulsar_admin.store.tables.writing import GROUP_ROWS, write_part, write_parts

RANGE_ROWS_MAX = 1 << 22  # held at once; a range of more is made in several passes
_BATCH_ROWS = GROUP_ROWS
_SAMPLE = 64

FINISHED = pa.schema(
    [
        ("host", pa.string()),
        ("error", pa.string()),
        ("table", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("first_ledger", pa.int64()),
        ("last_ledger", pa.int64()),
        ("damaged", pa.int64()),
        ("problems", pa.int64()),
    ]
)


class Origin(NamedTuple):
    """The file that staged records are of. ``disk``: what tells its bookie's files from another's; ``order``: its id in the store."""

    path: str
    bookie: str
    disk: str
    order: int
    is_journal: bool
    is_stranger: bool


class Segment(NamedTuple):
    """A range's part of a staging file."""

    file: str
    offset: int
    size_bytes: int
    rows: int
    origin: Origin


class KeyRange(FileRange, frozen=True, eq=False):
    """One range, as an engine takes slices. ``number``: its place in the order of keys."""

    number: int = 0
    segments: Sequence[Segment] = ()


def key_range(number: int, segments: Sequence[Segment]) -> KeyRange:
    """Return the range NUMBER, made of SEGMENTS."""
    size_bytes = sum(segment.size_bytes for segment in segments)
    return KeyRange(
        f"range {number} of entries", FileKind.ENTRY_LOG, -1, 0, size_bytes, number=number, segments=segments
    )


class FinishEntries(Struct, frozen=True):
    """One final file or more a range, below DIRECTORY of the folder.

    ``ledgers``: files of the table that names topics; ``messages``: the table of messages, too. ``incomplete``: as of ``write_part``.
    """

    folder: Folder
    directory: str
    cluster: str
    name: str
    ledgers: Sequence[Part]
    most_rows: int = RANGE_ROWS_MAX
    messages: MessageFiles | None = None
    incomplete: str = ""

    @property
    def schema(self) -> pa.Schema:
        return FINISHED

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row for each final file."""
        assert isinstance(piece, KeyRange)
        try:
            for number, records in enumerate(_sorted_passes(self.folder, piece.segments, self.most_rows)):
                listed = _read_listed(self.folder, self.ledgers, records.rows["ledger_id"])
                topics = {ledger_id: one.topic for ledger_id, one in listed.items()}
                stem = f"part-{piece.number:05d}-{number:03d}-{self.name}"
                yield from self._write_entries(records, topics, stem)
                if self.messages is not None:
                    yield from self._write_messages(self.messages, records, listed, stem)
        except DiskFull as error:
            yield finished_row({"error": error.message})

    def _write_entries(self, records: Chosen, topics: dict[int, str], stem: str) -> Iterator[pa.RecordBatch]:
        damaged = int(np.count_nonzero(records.rows["flags"] & kernel.BAD_DIGEST))
        relative = f"{self.directory}/entries/{stem}.parquet"
        part = write_part(self.folder, relative, TABLES["entries"], self._batches(records, topics), self.incomplete)
        yield finished("entries", part, damaged=damaged)

    def _write_messages(
        self, messages: MessageFiles, records: Chosen, listed: Mapping[int, Listed], stem: str
    ) -> Iterator[pa.RecordBatch]:
        problems: list[StoreError] = []
        batches = messages.batches(self.cluster, records, listed, problems)
        told = 0
        stem = f"{self.directory}/messages/{stem}"
        for part in write_parts(self.folder, stem, TABLES["messages"], batches, incomplete=self.incomplete):
            yield finished("messages", part, problems=len(problems) - told)
            told = len(problems)

    def _batches(self, records: Chosen, topics: dict[int, str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(records.rows), _BATCH_ROWS):
            yield self._batch(records.part(slice(start, start + _BATCH_ROWS)), topics)

    def _batch(self, part: Chosen, topics: dict[int, str]) -> pa.RecordBatch:
        rows = part.rows
        ledgers, places = np.unique(rows["ledger_id"], return_inverse=True)
        origins = pa.array(part.origins)
        sequences = part.sequences
        made = {
            "cluster": pa.repeat(pa.scalar(self.cluster, pa.string()), len(rows)),
            "topic": pa.array([topics.get(one) for one in ledgers.tolist()], pa.string()).take(pa.array(places)),
            "path": pa.array([origin.path for origin in part.files], pa.string()).take(origins),
            "bookie": pa.array([origin.bookie or None for origin in part.files], pa.string()).take(origins),
            "copies": column(part.copies.astype(np.int16)),
            "producer": part.producers,
            "sequence_id": nullable(np.where(sequences == NO_SEQUENCE, 0, sequences), sequences != NO_SEQUENCE),
            "last_add_confirmed": column(rows["lac"].copy()),
        }
        schema = TABLES["entries"]
        columns = [made[name] if name in made else entry_column(name, rows) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class Chosen(Struct, frozen=True):
    """Entries once each, by ledger and entry: records, and for each of them the number of its file among FILES."""

    rows: Array  # kernel.RECORD
    sequences: Array  # i64
    producers: pa.Array
    copies: Array  # how many bookies have a whole one
    origins: Array  # i64
    files: Sequence[Origin]

    def part(self, wanted: slice) -> Chosen:
        """Return the entries WANTED."""
        rows, sequences, producers = self.rows[wanted], self.sequences[wanted], self.producers[wanted]
        return Chosen(rows, sequences, producers, self.copies[wanted], self.origins[wanted], self.files)


def _sorted_passes(folder: Folder, segments: Sequence[Segment], most_rows: int) -> Iterator[Chosen]:
    """Yield the entries of SEGMENTS in order, of about MOST_ROWS records at a time."""
    total = sum(segment.rows for segment in segments)
    edges = [] if total <= most_rows else _edges(folder, segments, -(-total // most_rows))
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        tables = (_between(_read(folder, segment), low, high) for segment in segments)
        staged = _gathered(tables, total)
        if len(staged.rows):
            yield _choose(segments, staged)


def _edges(folder: Folder, segments: Sequence[Segment], parts: int) -> list[tuple[int, int]]:
    """Return keys that cut SEGMENTS into about PARTS equal ones."""
    samples = [_keys(_read(folder, segment))[::_SAMPLE] for segment in segments]
    keys = np.sort(np.concatenate(samples), order=["ledger", "entry"])
    chosen = np.unique(keys[[len(keys) * part // parts for part in range(1, parts)]])
    return [(int(ledger), int(entry)) for ledger, entry in chosen.tolist()]


def _keys(table: pa.Table) -> Array:
    return entry_keys(table.column("ledger_id").to_numpy(), table.column("entry_id").to_numpy())


def _between(table: pa.Table, low: tuple[int, int] | None, high: tuple[int, int] | None) -> pa.Table:
    keys = _keys(table)
    start = 0 if low is None else int(np.searchsorted(keys, np.array(low, keys.dtype)))
    end = len(keys) if high is None else int(np.searchsorted(keys, np.array(high, keys.dtype)))
    return table.slice(start, end - start)


def _read(folder: Folder, segment: Segment) -> pa.Table:
    with folder.open_input(segment.file) as file:
        data = file.read_at(segment.size_bytes, segment.offset)
    return pa.ipc.open_stream(data).read_all()


class _Gathered(NamedTuple):
    """Records of several segments, and how many are of each."""

    rows: Array  # kernel.RECORD
    sequences: Array  # i64
    producers: pa.Array
    counts: list[int]


def _gathered(tables: Iterator[pa.Table], most: int) -> _Gathered:
    """Return the records of TABLES, at MOST so many: of each the numbers are copied, then it is let go."""
    rows = np.zeros(most, kernel.RECORD)  # no memory before it is written to
    counts: list[int] = []
    sequences, producers = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
    start = 0
    for table in tables:
        end = start + len(table)
        for name in RECORD_FIELDS:
            rows[name][start:end] = table.column(name).to_numpy()
        sequences.append(table.column("sequence_id").to_numpy())
        producers += table.column("producer").chunks
        counts.append(len(table))
        start = end
    return _Gathered(rows[:start], np.concatenate(sequences), pa.concat_arrays(producers), counts)


def _choose(segments: Sequence[Segment], staged: _Gathered) -> Chosen:
    files = list(dict.fromkeys(segment.origin for segment in segments))
    numbers = {origin: number for number, origin in enumerate(files)}
    origins = np.repeat([numbers[segment.origin] for segment in segments], staged.counts)
    rows = staged.rows
    order = np.lexsort((_rank(rows, origins, files), rows["entry_id"], rows["ledger_id"]))
    ledgers, entries = rows["ledger_id"][order], rows["entry_id"][order]
    is_first = np.append(True, (ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1]))[: len(order)]
    winners = order[is_first]
    copies = _copies(rows["flags"][order], origins[order], is_first, files)
    if len(winners) == len(rows) and bool(np.all(winners[1:] > winners[:-1])):  # as it is: no copy
        return Chosen(rows, staged.sequences, staged.producers, copies, origins, files)
    producers = staged.producers.take(pa.array(winners))
    return Chosen(rows[winners], staged.sequences[winners], producers, copies, origins[winners], files)


def _rank(rows: Array, origins: Array, files: Sequence[Origin]) -> Array:
    """Return a number for each record, the least for the one that counts."""
    journal, stranger, order = (
        np.array([getattr(origin, name) for origin in files], np.int64)[origins]
        for name in ("is_journal", "is_stranger", "order")
    )
    at = (order << 32) | rows["offset"]
    newest_first = np.where(journal != 0, at, (1 << 60) - 1 - at)
    bad = rows["flags"] & kernel.BAD_DIGEST != 0
    rank: Array = (bad.astype(np.int64) << 62) | (stranger << 61) | (journal << 60) | newest_first
    return rank


def _copies(flags: Array, origins: Array, is_first: Array, files: Sequence[Origin]) -> Array:
    """Return on how many disks each entry has a whole record; rows are in order, an entry begins where IS_FIRST."""
    disks = list(dict.fromkeys(origin.disk for origin in files))
    disk = np.array([disks.index(origin.disk) for origin in files], np.int64)[origins]
    entry = np.cumsum(is_first) - 1
    whole = flags & kernel.BAD_DIGEST == 0
    pairs = np.unique(entry[whole] * len(disks) + disk[whole])
    return np.bincount(pairs // max(len(disks), 1), minlength=int(is_first.sum()))


def _read_listed(folder: Folder, parts: Sequence[Part], ledgers: Array) -> dict[int, Listed]:
    """Return those of LEDGERS (ids, sorted) that a topic lists, from the row groups that may have them."""
    found: dict[int, Listed] = {}
    low, high = int(ledgers[0]), int(ledgers[-1])
    for part in parts:
        if part.ledgers is None or part.ledgers[1] < low or part.ledgers[0] > high:
            continue
        with folder.open_input(part.path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            for rows in _groups_between(file, low, high):
                found |= _named(rows, low, high)
    return found


def _groups_between(file: Any, low: int, high: int) -> Iterator[pa.Table]:  # Any: pyarrow's ParquetFile
    """Yield the row groups of FILE, one of the table of ledgers, that may have the ids from LOW to HIGH."""
    at = file.schema_arrow.names.index("ledger_id")
    for group in range(file.num_row_groups):
        bounds = file.metadata.row_group(group).column(at).statistics
        if bounds.max >= low and bounds.min <= high:
            yield file.read_row_group(group, columns=["ledger_id", "topic", "entries"])


def _named(rows: pa.Table, low: int, high: int) -> dict[int, Listed]:
    ids = rows.column("ledger_id").to_numpy()
    start, end = np.searchsorted(ids, [low, high + 1]).tolist()
    part = rows.slice(start, end - start)
    columns = (part.column(name).to_pylist() for name in ("ledger_id", "topic", "entries"))
    return {
        ledger: Listed(topic, entries) for ledger, topic, entries in zip(*columns, strict=True) if topic is not None
    }


def finished(table: str, part: Part, *, damaged: int = 0, problems: int = 0) -> pa.RecordBatch:
    """Return the row of PART, a final file of TABLE."""
    low, high = part.ledgers or (None, None)
    bounds = {"first_ledger": low, "last_ledger": high, "damaged": damaged, "problems": problems}
    file = {"path": part.path, "rows": part.rows, "bytes": part.size_bytes, "sha256": part.sha256}
    return finished_row({"table": table, **file, **bounds})


def finished_row(values: dict[str, Any]) -> pa.RecordBatch:  # Any: columns of FINISHED
    """Return a row of FINISHED with VALUES."""
    row = {"host": platform.node(), **values}
    return pa.RecordBatch.from_arrays([pa.array([row.get(item.name)], item.type) for item in FINISHED], schema=FINISHED)
