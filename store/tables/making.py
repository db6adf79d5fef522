"""Makes the large tables with an engine, whose processes read the entries and write the files; this process sees only
counts and offsets.

``entries``: slices → staging files → ranges → final files. ``messages`` under the Spark connector's names: the rows of
``topics dump``, topic by topic, as a consumer reads them: chunks are joined, and messages of a transaction appear if it
is committed. Topics of a cluster have different schemas and a table has one, so values are bytes.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.memory import slice_bytes
from pulsar_admin.store.engine.operation import Engine, Operation
from pulsar_admin.store.engine.slices import SLICE_BYTES, Cut, FileRange, filled, plan_slices
from pulsar_admin.store.errors import DiskFull, EntryNotFound, LimitExceeded, SliceFailed, SourceNotFound, StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_all_topics, read_topic
from pulsar_admin.store.names import FileKind, TopicName, parse_owner, shell_word
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.scan.integer_rows import runs_of
from pulsar_admin.store.scan.source_options import ConnectorRead, TopicPlaces
from pulsar_admin.store.scan.topic_reads import ReadTopicPieces, TopicPiece, has_transactions, iter_pieces
from pulsar_admin.store.scan.typed_values import KnownColumns
from pulsar_admin.store.tables.entries import (
    FINISHED,
    UNSEEN,
    Edges,
    FinishEntries,
    KeyRange,
    LastRange,
    MessageFiles,
    Origin,
    Segment,
    StageEntries,
    answer,
    finished,
    key_range,
    unseen,
)
from pulsar_admin.store.tables.folder import Folder, TableFile
from pulsar_admin.store.tables.parquet import write_parts
from pulsar_admin.store.tables.schemas import known_schema
from pulsar_admin.store.wording import counted

RANGE_ENTRIES = 1 << 19
"""Entries of a range: of three copies each, their records take about 300 MB while they are sorted."""


def plan_edges(folder: Folder, ledgers: Sequence[TableFile], range_entries: int) -> Edges:
    """Return where ranges begin, so that each has about ``range_entries``, also within a large ledger; ``ledgers``: files of that table.

    For a store without an index the sizes of open ledgers are unknown: a range may be larger by these.
    """
    all_edges: list[Edges] = []
    before = 0  # entries before a batch
    for part in ledgers:
        with folder.open_input(part.path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            for batch in file.iter_batches(columns=["ledger_id", "entries"]):
                ids, counts = (batch.column(name).fill_null(0).to_numpy() for name in ("ledger_id", "entries"))
                ends = before + np.cumsum(np.maximum(counts, 0))
                edges = np.arange(before // range_entries + 1, int(ends[-1]) // range_entries + 1) * range_entries
                at = np.searchsorted(ends, edges, "left")
                all_edges.append(Edges(ids[at], edges - (ends[at] - counts[at])))
                before = int(ends[-1])
    columns = ([getattr(edges, name) for edges in all_edges] for name in ("ledgers", "entries"))
    return Edges(*(np.concatenate([np.zeros(0, np.int64), *column]) for column in columns))


def plan_files(txn: Txn, cut: Cut) -> Iterator[tuple[Origin, list[FileRange]]]:
    """Yield every file that the store knows, with its slices up to the size at the import."""
    for log in iter_logs(txn):
        path = str(log.locate(txn.store.path).absolute())
        origin = Origin(path, log.bookie, log.disk, log.file_id, log.kind == FileKind.JOURNAL, bool(log.stranger))
        whole = FileRange(path, log.kind, log.file_id, 0, log.size_bytes)
        pieces = plan_slices([(path, log.file_id, log.size_bytes)], cut) if log.kind == FileKind.ENTRY_LOG else [whole]
        pieces = [replace(piece, kind=whole.kind) for piece in pieces if piece.bytes]
        if pieces:
            last = pieces.pop()
            pieces.append(LastRange(last.path, last.kind, last.file_id, last.start, last.end, last.seek))
            yield origin, pieces


Advance = Callable[[int], None]

_ROUND_RANGES = 1024  # handed to the engine at once
_Row = dict[str, Any]  # Any: columns of what an operation yields


class Making(Struct, frozen=True):
    """How to make a table. ``engine`` None: in this process. ``staging``: an existing directory for files without final
    names.

    ``incomplete``: as in ``store.tables.parquet.write_part``.
    """

    folder: Folder
    staging: str
    cluster: str
    name: str
    engine: Engine | None = None
    advance: Advance = lambda count: None
    digests: LedgerDigests | None = None
    range_entries: int = RANGE_ENTRIES
    slice_bytes: int = SLICE_BYTES
    messages: MessageFiles | None = None
    incomplete: str = ""


class MadeEntries(Struct):
    """The final files in key order, the entries in them with a wrong digest, and the problems in the scanned files."""

    parts: list[TableFile] = field(default_factory=list)
    messages: list[TableFile] = field(default_factory=list)
    damaged: int = 0
    problems: int = 0


def make_entries(txn: Txn, how: Making, ledgers: Sequence[TableFile]) -> MadeEntries:
    """Write the final files; ``ledgers`` are the files of the table of ledgers, which names topics.

    Raises SourceNotFound (a path that an executor does not see), SliceFailed, LimitExceeded, DiskFull.
    """
    made = MadeEntries()
    how.folder.make(f"{how.staging}/segments")
    for table in ("entries", "messages"):
        how.folder.make(f"{how.staging}/{table}")
    staged = _stage(txn, how, made, ledgers)
    finish = FinishEntries(
        how.folder, how.staging, how.cluster, how.name, ledgers, messages=how.messages, incomplete=how.incomplete
    )
    ranges = staged.ranges()
    while pieces := list(islice(ranges, _ROUND_RANGES)):
        for _, rows in run_pieces(how, finish, pieces, lambda piece: how.advance(0)):
            for row in rows:
                (made.parts if row["table"] == "entries" else made.messages).append(_file_of(how, row))
                made.damaged += row["damaged"]
                made.problems += row["problems"]
    made.parts.sort(key=lambda part: part.path)
    made.messages.sort(key=lambda part: part.path)
    return made


def _stage(txn: Txn, how: Making, made: MadeEntries, ledgers: Sequence[TableFile]) -> _Staged:
    """Run phase one; a slice that does not begin where the last one ended is read again from there."""
    memory_bytes = None if how.engine is None else how.engine.memory_bytes
    files = list(plan_files(txn, Cut(min(how.slice_bytes, slice_bytes(memory_bytes)))))
    edges = plan_edges(how.folder, ledgers, how.range_entries)
    digests = how.digests or LedgerDigests.of({})
    stage = StageEntries(how.folder, f"{how.staging}/segments", edges, digests)
    pieces = [piece for _, ours in files for piece in ours]
    staged = _Staged()
    answers = dict(staged.add_all(how, run_pieces(how, stage, pieces, lambda piece: how.advance(piece.bytes))))
    for origin, ours in files:
        behind = None  # where the slice before really ended
        for piece in ours:
            answer = answers.pop(piece)
            if behind is not None and behind >= piece.end:
                continue  # inside the last record
            if behind is not None and answer.first_offset != behind:
                again = replace(piece, start=behind, seek=False)
                answer = dict(staged.add_all(how, run_pieces(how, stage, [again], lambda piece: None)))[again]
            behind = answer.next_offset
            made.problems += answer.problems
            staged.take(answer.files, origin)
    return staged


class _Answer(NamedTuple):
    """A slice's result: offsets of its first record and of the one after it, and its staging files by number."""

    files: range
    first_offset: int
    next_offset: int
    problems: int


class _Staged:
    """The parts of every range in the accepted staging files, five numbers each."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._origins: dict[int, Origin] = {}  # in the order of logs and slices
        self._columns = {name: array("q") for name in ("range", "file", "offset", "size", "rows")}

    def add_all(
        self, how: Making, answers: Iterable[tuple[FileRange, list[_Row]]]
    ) -> Iterator[tuple[FileRange, _Answer]]:
        """Yield (slice, its result) after recording the slice's staging files; ``take`` accepts them."""
        for piece, rows in answers:
            first = len(self._files)
            for row in rows[:-1]:
                _check_seen(how, row["file"], row["bytes"], row["host"])
                offsets = row["offsets"]
                for index, number in enumerate(row["ranges"]):
                    size = offsets[index + 1] - offsets[index]
                    values = (number, len(self._files), offsets[index], size, row["rows"][index])
                    for column, value in zip(self._columns.values(), values, strict=True):
                        column.append(value)
                self._files.append(row["file"])
            end = rows[-1]
            files = range(first, len(self._files))
            yield piece, _Answer(files, end["first_offset"], end["next_offset"], end["problems"])

    def take(self, files: range, origin: Origin) -> None:
        """Accept staging files with the records of one file."""
        self._origins |= dict.fromkeys(files, origin)

    def ranges(self) -> Iterator[KeyRange]:
        """Yield the ranges that have entries."""
        numbers, files, offsets, sizes, rows = (np.asarray(column) for column in self._columns.values())
        places = np.full(len(self._files), -1)
        places[list(self._origins)] = np.arange(len(self._origins))
        order = np.lexsort((places[files], numbers))
        order = order[places[files[order]] >= 0]
        for start, end in runs_of(numbers[order]):
            segments = [
                Segment(
                    self._files[files[at]], int(offsets[at]), int(sizes[at]), int(rows[at]), self._origins[files[at]]
                )
                for at in order[start:end].tolist()
            ]
            yield key_range(int(numbers[order[start]]), segments)


def run_pieces(
    how: Making, operation: Operation, pieces: Sequence[FileRange], finished: Callable[[FileRange], None]
) -> Iterator[tuple[FileRange, list[_Row]]]:
    """Yield (slice, its rows) of all slices, in any order; raises the error of the first slice that failed."""
    if how.engine is None:
        for piece in pieces:
            table = pa.Table.from_batches(operation.run(piece), operation.schema)
            finished(piece)
            yield piece, _checked(table)
        return
    for piece, table in how.engine.run(operation, pieces, finished):
        yield piece, _checked(table)
    if how.engine.failed:
        failed = how.engine.failed[0]
        how.engine.failed.clear()
        if failed.out_of_memory:
            raise LimitExceeded(
                failed.error().message, hint="give --memory more, or run fewer --jobs; nothing was written"
            )
        if "does not see" in failed.reason:
            raise SourceNotFound(failed.reason, hint=UNSEEN, path=failed.piece.path)
        raise SliceFailed(failed.error().message, hint=UNSEEN, path=failed.piece.path, reason=failed.reason)


def _checked(table: pa.Table) -> list[_Row]:
    rows: list[_Row] = table.to_pylist()
    for row in rows:
        if row["error"] is not None:
            raise DiskFull(
                f"{row['host']}: {row['error']}",
                hint="free some space and run the command again; the tables are as before",
            )
    return rows


def _file_of(how: Making, row: _Row) -> TableFile:
    """Return the final file that a row of FINISHED names; raises SourceNotFound unless it exists here."""
    _check_seen(how, row["path"], row["bytes"], row["host"])
    bounds = None if row["first_ledger"] is None else (row["first_ledger"], row["last_ledger"])
    return TableFile(row["path"], row["rows"], row["bytes"], row["sha256"], bounds)


def _check_seen(how: Making, relative: str, size_bytes: int, host: str) -> None:
    """Raise SourceNotFound unless a file that ``host`` wrote exists here."""
    if not how.folder.is_remote and how.folder.size(relative) != size_bytes:
        raise SourceNotFound(
            f"{host} wrote {how.folder.at(relative)}, which this machine does not see",
            hint="name a directory that driver and executors share, or s3://…; nothing was written",
        )


PIECE_BYTES = 64 << 20  # of entries, read and written by one task
_PIECE_TOPICS = 1024
_ROUND_PIECES = 64  # handed to the engine at once


class TopicPieces(FileRange, frozen=True, eq=False):
    """Consecutive pieces of topics. ``number``: their index in the order of the table."""

    number: int = 0
    pieces: Sequence[TopicPiece] = ()


class WriteKnown(Struct, frozen=True):
    """Operation that writes the messages of pieces of topics, with the Spark connector's columns, into a directory of
    the folder.

    ``incomplete``: as in ``store.tables.parquet.write_part``.
    """

    folder: Folder
    directory: str
    cluster: str
    name: str
    incomplete: str = ""

    @property
    def schema(self) -> pa.Schema:
        return FINISHED

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row for each file, and one with the entries that could not be read."""
        assert isinstance(piece, TopicPieces)
        lost: list[int] = []
        stem = f"{self.directory}/part-{piece.number:05d}-{self.name}"
        try:
            batches = self._batches(piece.pieces, lost)
            for part in write_parts(self.folder, stem, known_schema(), batches, incomplete=self.incomplete):
                yield finished("messages", part)
        except DiskFull as error:
            yield answer(FINISHED, error=error.message)
        if lost:
            yield answer(FINISHED, problems=sum(lost))

    def _batches(self, pieces: Sequence[TopicPiece], lost: list[int]) -> Iterator[pa.RecordBatch]:
        schema = known_schema()
        for piece in pieces:
            for path in piece.files.values():
                if not os.path.exists(path):  # the driver has seen it
                    raise unseen(path)
            columns = KnownColumns(parse_owner(piece.topic), raw=True)
            for batch in ReadTopicPieces({piece.topic: columns}).rows(piece, lost.append):
                names = [pa.repeat(pa.scalar(name, pa.string()), len(batch)) for name in (self.cluster, piece.topic)]
                yield pa.RecordBatch.from_arrays([*names, *batch.columns], schema=schema)


def make_known(reader: EntryReader, how: Making, fail: Callable[[StoreError], None]) -> tuple[TableFile, ...]:
    """Write the files of the table, in the order of topics; failures go to ``fail``.

    Raises SourceNotFound (a path that an executor does not see), SliceFailed, LimitExceeded, DiskFull.
    """
    directory = f"{how.staging}/messages"
    how.folder.make(directory)
    write = WriteKnown(how.folder, directory, how.cluster, how.name, how.incomplete)
    pieces = _joined(_pieces(reader, fail))
    parts: list[TableFile] = []
    lost = 0
    while waiting := list(islice(pieces, _ROUND_PIECES)):
        done = run_pieces(how, write, waiting, lambda piece: how.advance(piece.bytes))
        for row in chain.from_iterable(rows for _, rows in done):
            if row["path"] is None:
                lost += row["problems"]
                continue
            parts.append(_file_of(how, row))
    if lost:
        fail(EntryNotFound(f"messages: {counted(lost, 'entry', 'entries')} cannot be read and are not in the table"))
    return tuple(sorted(parts, key=lambda part: part.path))


def _pieces(reader: EntryReader, fail: Callable[[StoreError], None]) -> Iterator[TopicPiece]:
    """Yield the pieces of all topics but system topics, in the order of their names."""
    read = ConnectorRead("", "topics", "", TopicPlaces(), TopicPlaces(), False, True, PIECE_BYTES)
    namespace, whole = None, False
    for name in iter_all_topics(reader.txn):
        if name.is_system:
            continue
        if name.namespace != namespace:
            namespace, whole = name.namespace, has_transactions(reader.txn, name.namespace)
        try:
            topic = read_topic(reader.txn, name)
        except StoreError as error:
            fail(error)
            continue
        yield from iter_pieces(reader, topic, read, whole=whole, lost=partial(_tell, fail, name))


def _tell(fail: Callable[[StoreError], None], name: TopicName, count: int) -> None:
    if count:
        said = f"{name}: {counted(count, 'entry is', 'entries are')} in no imported file"
        fail(EntryNotFound(said, hint=f"which ones: pulsar-admin topics dump {shell_word(name)} --directory DIR"))


def _joined(pieces: Iterator[TopicPiece]) -> Iterator[TopicPieces]:
    """Yield pieces joined to about ``PIECE_BYTES``."""
    for number, some in enumerate(filled(pieces, lambda piece: piece.bytes, PIECE_BYTES, _PIECE_TOPICS)):
        size_bytes = sum(piece.bytes for piece in some)
        name = f"part {number} of messages"
        yield TopicPieces(name, FileKind.ENTRY_LOG, -1, 0, size_bytes, number=number, pieces=some)
