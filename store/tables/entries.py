"""Makes the table ``entries`` on executors and, from the same entries, the table ``messages``.

Phase one (``StageEntries``): a slice of a file → records sorted by ledger and entry, cut at the edges of key ranges. A
staging file is a sequence of Arrow IPC streams, one for each range with entries in the slice, so that the task for a
range reads its part of every file with one request and nothing else. The driver receives the offsets of the parts.

Phase two (``FinishEntries``): a range of (ledger id, entry id) → its entries from every staging file, once each, as final files.

Of several records of an entry, the table has the one that the index of a store would name
(``store.index.writer.Indexer``). In order of preference: a right digest, a bookie proven to belong to the cluster, an
entry log before a journal, the newest log and the oldest journal, the last in a log and the first in a journal.

Messages: the chosen entries of a range are read from their files and split into messages. Each entry is decoded on its
own, as in ``store.scan.operations``: batches are exploded, a chunk is a row of its own.
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.engine.operation import stream_of
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import DiskFull, NotFound, SourceChanged, SourceNotFound, StoreError
from pulsar_admin.store.kernels.columns import BAD_DIGEST, RECORD, UNFRAMED
from pulsar_admin.store.kernels.producers import producer_spans, sequence_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import iter_all_topics
from pulsar_admin.store.names import FileKind, parse_owner
from pulsar_admin.store.scan.arrow import column, nullable, spans_array, texts_of
from pulsar_admin.store.scan.files import BATCH_RECORDS, FileScan, LedgerDigests, Slice
from pulsar_admin.store.scan.operations import PlainFiles, ReadMessages, ScanOptions, entry_column
from pulsar_admin.store.scan.places import Places, PlacesReader, read_at_once
from pulsar_admin.store.scan.schemas import MESSAGE_SCHEMA
from pulsar_admin.store.scan.typed_values import Values
from pulsar_admin.store.tables.folder import Folder, TableFile
from pulsar_admin.store.tables.parquet import GROUP_ROWS, write_part, write_parts
from pulsar_admin.store.tables.schemas import OF_TOPIC, TABLES

UNSEEN = (
    "nothing was written; run it on a machine that can read all files, or use paths that every executor sees (a shared "
    "mount)"
)
STAGED_ROWS = BATCH_RECORDS  # sorted at once: a staging file has about this many
NO_SEQUENCE = np.int64(-(1 << 63))
RECORD_FIELDS = tuple(name for name in RECORD.names or () if name != "length")
_NUMBERS = {name: pa.from_numpy_dtype(RECORD[name]) for name in RECORD_FIELDS}
STAGED = pa.schema([*_NUMBERS.items(), ("sequence_id", pa.int64()), ("producer", pa.string())])

SEGMENTS = pa.schema(
    [
        ("host", pa.string()),
        ("error", pa.string()),  # of a disk that is full: nobody tries again
        ("file", pa.string()),  # null: the slice's last row, which says how it ended
        ("bytes", pa.int64()),
        ("ranges", pa.list_(pa.int32())),  # by part
        ("offsets", pa.list_(pa.int64())),
        ("rows", pa.list_(pa.int64())),
        ("first_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("problems", pa.int64()),
    ]
)


class Edges(Struct, frozen=True):
    """The first (ledger id, entry id) of each range but range 0, ascending; lower keys are in range 0."""

    ledgers: Array  # i64
    entries: Array  # i64

    def cut(self, ledgers: Array, entries: Array) -> tuple[Array, Array]:
        """Return (numbers of ranges with rows among the sorted keys, first row of each, then the number of rows)."""
        low = int(np.searchsorted(self.ledgers, ledgers[0], "left"))
        high = int(np.searchsorted(self.ledgers, ledgers[-1], "right"))
        starts = np.searchsorted(ledgers, self.ledgers[low:high], "left")
        ends = np.searchsorted(ledgers, self.ledgers[low:high], "right")
        inside = [
            start + int(np.searchsorted(entries[start:end], entry))
            for start, end, entry in zip(starts.tolist(), ends.tolist(), self.entries[low:high].tolist(), strict=True)
        ]
        rows = np.array([0, *inside, len(ledgers)], np.int64)
        ranges = np.arange(low, low + len(rows) - 1, dtype=np.int32)
        filled = np.diff(rows) > 0
        return ranges[filled], np.append(rows[:-1][filled], len(ledgers))


class StageEntries(Struct, frozen=True):
    """Operation that writes one or more staging files per slice, into ``directory`` of the folder."""

    folder: Folder
    directory: str
    edges: Edges
    digests: LedgerDigests = field(default_factory=lambda: LedgerDigests.of({}))
    staged_rows: int = STAGED_ROWS

    @property
    def schema(self) -> pa.Schema:
        return SEGMENTS

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row for each staging file, and one that says how the slice ended. Raises SourceNotFound, SourceChanged."""
        scan = FileScan(Slice(piece.path, piece.kind, piece.start, piece.end, piece.seek), self.digests)
        try:
            waiting: list[pa.RecordBatch] = []
            rows = 0
            for records in _present(scan, piece):
                waiting.append(_staged(records, scan))
                rows += len(records)
                if rows >= self.staged_rows:
                    yield answer(SEGMENTS, **self._write(waiting))
                    rows = 0
            if rows:
                yield answer(SEGMENTS, **self._write(waiting))
        except DiskFull as error:
            yield answer(SEGMENTS, error=error.message)
        except NotFound as error:
            if isinstance(error, SourceNotFound):
                raise
            raise unseen(self.folder.at(self.directory)) from error
        yield answer(
            SEGMENTS, first_offset=scan.first_offset, next_offset=scan.next_offset, problems=len(scan.problems)
        )

    def _write(self, waiting: list[pa.RecordBatch]) -> dict[str, Any]:  # Any: columns of SEGMENTS
        """Write the waiting rows to a staging file, and empty the list; return its row."""
        table = pa.Table.from_batches(waiting, STAGED).combine_chunks()
        waiting.clear()
        ledgers, entries = (table.column(name).to_numpy() for name in ("ledger_id", "entry_id"))
        order = np.lexsort((entries, ledgers))
        if not np.all(order[1:] > order[:-1]):
            table = table.take(pa.array(order))
        ranges, edges = self.edges.cut(ledgers[order], entries[order])
        name = f"{self.directory}/{uuid.uuid4().hex}.arrows"
        offsets = [0]
        with self.folder.create(name) as out:
            for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                data = stream_of(STAGED, table.slice(start, end - start).to_batches(), "lz4")
                out.write(data)
                offsets.append(offsets[-1] + data.size)
        parts = {"ranges": ranges.tolist(), "offsets": offsets, "rows": np.diff(edges).tolist()}
        return {"file": name, "bytes": offsets[-1], **parts}


def unseen(path: str) -> SourceNotFound:
    """Return the error for a path that does not exist on this machine."""
    return SourceNotFound(f"{platform.node()} does not see {path}", hint=UNSEEN, path=path)


def _present(scan: FileScan, piece: FileRange) -> Iterator[Array]:
    """Yield the records of a scan that the store knows: a file may have grown since; raises SourceNotFound for a file
    that does not exist here."""
    try:
        for records in scan.batches():
            known = (
                records[records["offset"] + 4 + records["size"] <= piece.end]
                if isinstance(piece, LastRange)
                else records
            )
            if len(known):
                yield known
    except SourceChanged as error:
        if os.path.exists(piece.path):
            raise
        raise unseen(piece.path) from error


class LastRange(FileRange, frozen=True):
    """The last slice of a file: records that end after the slice were written after the import, and are skipped."""


def _staged(records: Array, scan: FileScan) -> pa.RecordBatch:
    """Return records as columns, with producer and sequence id from the scanned bytes."""
    window = scan.window
    assert window is not None
    first, last = records["offset"].min(), (records["offset"] + 4 + records["size"]).max()
    window.cover(int(first), int(last))
    at = records["offset"] - window.base
    starts, ends = at + 4 + 32 + records["digest_bytes"], at + 4 + records["size"]
    framed = records["flags"] & (UNFRAMED | BAD_DIGEST) == 0
    ends = np.where(framed, ends, starts)
    producers, sequences = senders(window.data, starts, ends)
    numbers = [column(records[name].copy()) for name in RECORD_FIELDS]
    return pa.RecordBatch.from_arrays([*numbers, column(sequences), producers], schema=STAGED)


def entry_keys(ledgers: Array, entries: Array) -> Array:
    """Return ledger and entry ids as one column of pairs, which can be compared and searched."""
    keys = np.empty(len(ledgers), [("ledger", np.int64), ("entry", np.int64)])
    keys["ledger"], keys["entry"] = ledgers, entries
    return keys


def senders(data: Array, starts: Array, ends: Array) -> tuple[pa.Array, Array]:
    """Return the producers of messages, given as spans of ``data``, and their sequence ids."""
    spans = np.zeros((len(starts), 2), np.int64)
    producer_spans(data, starts, ends, spans)
    sequences = np.full(len(starts), NO_SEQUENCE)
    sequence_ids(data, starts, ends, sequences)
    try:
        producers = spans_array(data, spans[:, 0].copy(), spans[:, 1].copy(), pa.string())
    except pa.ArrowInvalid:  # not UTF-8: protobuf does not look
        raw = [bytes(data[start : start + size]) if size >= 0 else None for start, size in spans.tolist()]
        producers = pa.array([None if one is None else one.decode(errors="replace") for one in raw], pa.string())
    return producers, sequences


def answer(schema: pa.Schema, **values: Any) -> pa.RecordBatch:  # Any: columns of the schema
    """Return a row of SEGMENTS or FINISHED with these values and this machine's name."""
    row = {"host": platform.node(), **values}
    return pa.RecordBatch.from_arrays([pa.array([row.get(item.name)], item.type) for item in schema], schema=schema)


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
    """The file that staged records come from. ``disk``: equal for files of one bookie; ``order``: the file's id in the
    store."""

    path: str
    bookie: str
    disk: str
    order: int
    is_journal: bool
    is_stranger: bool


class Segment(NamedTuple):
    """The part of a staging file that belongs to a range."""

    file: str
    offset: int
    size_bytes: int
    rows: int
    origin: Origin


class KeyRange(FileRange, frozen=True, eq=False):
    """One range, in the form of a slice for an engine. ``number``: its index in key order."""

    number: int = 0
    segments: Sequence[Segment] = ()


def key_range(number: int, segments: Sequence[Segment]) -> KeyRange:
    """Return a range made of segments."""
    size_bytes = sum(segment.size_bytes for segment in segments)
    return KeyRange(
        f"range {number} of entries", FileKind.ENTRY_LOG, -1, 0, size_bytes, number=number, segments=segments
    )


class FinishEntries(Struct, frozen=True):
    """Operation that writes one or more final files per range, below a directory of the folder.

    ``ledgers``: files of the table that names topics; ``messages``: also write the table of messages. ``incomplete``:
    as in ``write_part``.
    """

    folder: Folder
    directory: str
    cluster: str
    name: str
    ledgers: Sequence[TableFile]
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
                damaged = int(np.count_nonzero(records.rows["flags"] & BAD_DIGEST))
                batches = (
                    self._batch(records.part(slice(start, start + _BATCH_ROWS)), topics)
                    for start in range(0, len(records.rows), _BATCH_ROWS)
                )
                relative = f"{self.directory}/entries/{stem}.parquet"
                part = write_part(self.folder, relative, TABLES["entries"], batches, self.incomplete)
                yield finished("entries", part, damaged=damaged)
                if self.messages is not None:
                    yield from self._write_messages(self.messages, records, listed, stem)
        except DiskFull as error:
            yield answer(FINISHED, error=error.message)

    def _write_messages(
        self, messages: MessageFiles, records: _ChosenEntries, listed: Mapping[int, _LedgerInTopic], stem: str
    ) -> Iterator[pa.RecordBatch]:
        problems: list[StoreError] = []
        batches = messages.batches(self.cluster, records, listed, problems)
        told = 0
        stem = f"{self.directory}/messages/{stem}"
        for part in write_parts(self.folder, stem, TABLES["messages"], batches, incomplete=self.incomplete):
            yield finished("messages", part, problems=len(problems) - told)
            told = len(problems)

    def _batch(self, part: _ChosenEntries, topics: dict[int, str]) -> pa.RecordBatch:
        rows = part.rows
        origins = pa.array(part.origins)
        sequences = part.sequences
        made = {
            "cluster": pa.repeat(pa.scalar(self.cluster, pa.string()), len(rows)),
            "topic": texts_of(rows["ledger_id"], topics.get),
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


class _ChosenEntries(Struct, frozen=True):
    """Each entry once, in order of ledger and entry: its record, and the index of its file in ``files``."""

    rows: Array  # RECORD
    sequences: Array  # i64
    producers: pa.Array
    copies: Array  # how many bookies have a whole one
    origins: Array  # i64
    files: Sequence[Origin]

    def part(self, wanted: slice) -> _ChosenEntries:
        """Return the selected entries."""
        rows, sequences, producers = self.rows[wanted], self.sequences[wanted], self.producers[wanted]
        return _ChosenEntries(rows, sequences, producers, self.copies[wanted], self.origins[wanted], self.files)


def _sorted_passes(folder: Folder, segments: Sequence[Segment], most_rows: int) -> Iterator[_ChosenEntries]:
    """Yield the entries of segments in order, about ``most_rows`` records at a time."""
    total = sum(segment.rows for segment in segments)
    edges: list[tuple[int, int]] = []
    if total > most_rows:
        parts = -(-total // most_rows)  # about equal ones, cut at keys of a sample
        samples = [_keys(_read(folder, segment))[::_SAMPLE] for segment in segments]
        keys = np.sort(np.concatenate(samples), order=["ledger", "entry"])
        chosen = np.unique(keys[[len(keys) * part // parts for part in range(1, parts)]])
        edges = [(int(ledger), int(entry)) for ledger, entry in chosen.tolist()]
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        tables = (_between(_read(folder, segment), low, high) for segment in segments)
        staged = _gathered(tables, total)
        if len(staged.rows):
            yield _choose(segments, staged)


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
    """Records of several segments, and the number from each."""

    rows: Array  # RECORD
    sequences: Array  # i64
    producers: pa.Array
    counts: list[int]


def _gathered(tables: Iterator[pa.Table], most: int) -> _Gathered:
    """Return the records of tables, at most ``most`` of them: each table's numbers are copied, then it is released."""
    rows = np.zeros(most, RECORD)  # no memory before it is written to
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


def _choose(segments: Sequence[Segment], staged: _Gathered) -> _ChosenEntries:
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
        return _ChosenEntries(rows, staged.sequences, staged.producers, copies, origins, files)
    producers = staged.producers.take(pa.array(winners))
    return _ChosenEntries(rows[winners], staged.sequences[winners], producers, copies, origins[winners], files)


def _rank(rows: Array, origins: Array, files: Sequence[Origin]) -> Array:
    """Return a rank for each record; of several records of an entry, the one with the least rank is chosen."""
    journal, stranger, order = (
        np.array([getattr(origin, name) for origin in files], np.int64)[origins]
        for name in ("is_journal", "is_stranger", "order")
    )
    at = (order << 32) | rows["offset"]
    newest_first = np.where(journal != 0, at, (1 << 60) - 1 - at)
    bad = rows["flags"] & BAD_DIGEST != 0
    rank: Array = (bad.astype(np.int64) << 62) | (stranger << 61) | (journal << 60) | newest_first
    return rank


def _copies(flags: Array, origins: Array, is_first: Array, files: Sequence[Origin]) -> Array:
    """Return on how many disks each entry has an intact record; rows are in order, ``is_first`` marks the first."""
    disks = list(dict.fromkeys(origin.disk for origin in files))
    disk = np.array([disks.index(origin.disk) for origin in files], np.int64)[origins]
    entry = np.cumsum(is_first) - 1
    whole = flags & BAD_DIGEST == 0
    pairs = np.unique(entry[whole] * len(disks) + disk[whole])
    return np.bincount(pairs // max(len(disks), 1), minlength=int(is_first.sum()))


def _read_listed(folder: Folder, parts: Sequence[TableFile], ledgers: Array) -> dict[int, _LedgerInTopic]:
    """Return the ledgers (ids, sorted) that a topic lists, from the row groups that may have them."""
    topics: dict[int, _LedgerInTopic] = {}
    low, high = int(ledgers[0]), int(ledgers[-1])
    for part in parts:
        if part.ledgers is None or part.ledgers[1] < low or part.ledgers[0] > high:
            continue
        with folder.open_input(part.path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            at = file.schema_arrow.names.index("ledger_id")
            for group in range(file.num_row_groups):
                bounds = file.metadata.row_group(group).column(at).statistics
                if bounds.max >= low and bounds.min <= high:
                    rows = file.read_row_group(group, columns=["ledger_id", "topic", "entries"])
                    topics |= _named(rows, low, high)
    return topics


def _named(rows: pa.Table, low: int, high: int) -> dict[int, _LedgerInTopic]:
    ids = rows.column("ledger_id").to_numpy()
    start, end = np.searchsorted(ids, [low, high + 1]).tolist()
    part = rows.slice(start, end - start)
    columns = (part.column(name).to_pylist() for name in ("ledger_id", "topic", "entries"))
    return {
        ledger: _LedgerInTopic(topic, entries)
        for ledger, topic, entries in zip(*columns, strict=True)
        if topic is not None
    }


def finished(table: str, part: TableFile, *, damaged: int = 0, problems: int = 0) -> pa.RecordBatch:
    """Return the row for a final file of a table."""
    low, high = part.ledgers or (None, None)
    bounds = {"first_ledger": low, "last_ledger": high, "damaged": damaged, "problems": problems}
    file = {"path": part.path, "rows": part.rows, "bytes": part.size_bytes, "sha256": part.sha256}
    return answer(FINISHED, table=table, **file, **bounds)


class _LedgerInTopic(NamedTuple):
    """A ledger in a topic's list, and the end of its entries by that list: brokers deliver none after it."""

    topic: str
    entries: int


def with_topics(batch: pa.RecordBatch, schema: pa.Schema, cluster: str | None, **others: pa.Array) -> pa.RecordBatch:
    """Return a batch of messages with the columns of a schema; cluster and topic are added, missing ones null."""
    made = dict(zip(batch.schema.names, batch.columns, strict=True)) | others
    made["cluster"] = pa.repeat(pa.scalar(cluster, pa.string()), len(batch))
    made |= {name: _parts_of_topics(name, batch.column("topic")) for name in OF_TOPIC if name in schema.names}
    found = [made[item.name] if item.name in made else pa.nulls(len(batch), item.type) for item in schema]
    return pa.RecordBatch.from_arrays(found, schema=schema)


def _parts_of_topics(part: str, topics: pa.Array) -> pa.Array:
    """Return the tenant or the namespace (OF_TOPIC) of each topic."""
    found = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    spaces = [parse_owner(topic).namespace for topic in found.dictionary.to_pylist()]
    texts = [space.tenant if part == "tenant" else str(space) for space in spaces]
    return pa.array(texts, pa.string()).take(found.indices)


class MessageFiles(Struct, frozen=True):
    """How to make message rows: with values by ``schemas``, and with payloads if requested."""

    payload: bool = False
    schemas: Mapping[str, TopicSchemas] = field(default_factory=dict)

    def batches(
        self, cluster: str, records: _ChosenEntries, listed: Mapping[int, _LedgerInTopic], problems: list[StoreError]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of records in order, as SQL on a store gives them: of listed ledgers up to their ends,
        without system topics.

        Undecodable entries are added to ``problems``.
        """
        left_out = {"path"} if self.payload else {"path", "payload"}
        names = tuple(name for name in MESSAGE_SCHEMA.names if name not in left_out)
        topics = {ledger_id: one.topic for ledger_id, one in listed.items()}
        reader = ReadMessages(ScanOptions(topics=topics), names, values=Values(self.schemas))
        paths = pa.array([origin.path for origin in records.files], pa.string())
        with closing(PlainFiles({number: origin.path for number, origin in enumerate(records.files)})) as files:
            # Messages of system topics are left out.
            system = {name for name in {one.topic for one in listed.values()} if parse_owner(name).is_system}
            ends = {ledger_id: one.entries for ledger_id, one in listed.items() if one.topic not in system}
            for part in _groups(records, ends):
                rows = records.rows[part]
                entries = PlacesReader(files, False, None).read_places(Places.of_records(rows, records.origins[part]))
                for batch in reader.rows([entries], "", problems):
                    at = np.searchsorted(
                        entry_keys(rows["ledger_id"], rows["entry_id"]),
                        entry_keys(*(batch.column(name).to_numpy() for name in ("ledger_id", "entry_id"))),
                    )
                    path = paths.take(pa.array(records.origins[part][at]))
                    yield with_topics(batch, TABLES["messages"], cluster, path=path)


def read_all_schemas(reader: EntryReader) -> dict[str, TopicSchemas]:
    """Return topic → its schemas, for all topics with a schema."""
    found: dict[str, TopicSchemas] = {}
    for name in iter_all_topics(reader.txn):
        try:
            schemas = read_schemas(reader, name)
        except StoreError:
            continue  # the table of schemas tells it
        if schemas.versions or schemas.problems:
            found[str(name)] = schemas
    return found


def _groups(records: _ChosenEntries, ends: Mapping[int, int]) -> Iterator[Array]:
    """Yield the indexes of records that are messages before the ends of their ledgers, as many at a time as are read at once."""
    is_good = records.rows["flags"] & (UNFRAMED | BAD_DIGEST) == 0
    ledgers, places = np.unique(records.rows["ledger_id"], return_inverse=True)
    end = np.array([ends.get(one, 0) for one in ledgers.tolist()], np.int64)[places]
    good = np.flatnonzero(is_good & (records.rows["entry_id"] < end))
    return (good[part] for part in read_at_once(records.rows["size"][good]))
