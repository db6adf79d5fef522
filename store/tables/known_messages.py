"""The table ``messages`` under the Spark connector's names: topic by topic, as a consumer reads them, the rows of ``topics dump``.

Chunks are joined, and what a transaction wrote is there once it is committed. The schemas of a cluster's topics differ and a table
has one, so values are bytes. Whoever runs slices reads the entries and writes the files; here are the places of the entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice

import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import DiskFull, EntryNotFound, StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import FileKind, TopicName, parse_owner, shell_word
from pulsar_admin.store.scan.source_options import ConnectorRead, TopicPlaces
from pulsar_admin.store.scan.topic_reads import ReadTopicPieces, TopicPiece, has_transactions, iter_pieces
from pulsar_admin.store.scan.typed_values import KnownColumns
from pulsar_admin.store.tables.entries import FINISHED, finished, finished_row
from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.making import Making, check_seen, run_pieces
from pulsar_admin.store.tables.manifest import Part
from pulsar_admin.store.tables.schemas import known_schema
from pulsar_admin.store.tables.staging import unseen
from pulsar_admin.store.tables.writing import write_parts
from pulsar_admin.store.wording import counted

PIECE_BYTES = 64 << 20  # of entries, read and written by one task
_PIECE_TOPICS = 1024
_ROUND_PIECES = 64  # handed to the engine at once


class TopicPieces(FileRange, frozen=True, eq=False):
    """Pieces of topics in order. ``number``: their place in the table."""

    number: int = 0
    pieces: Sequence[TopicPiece] = ()


class WriteKnown(Struct, frozen=True):
    """The messages of pieces of topics, written into DIRECTORY of FOLDER under the names that the Spark connector gives their columns.

    ``incomplete``: as of ``store.tables.writing.write_part``.
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
            yield finished_row({"error": error.message})
        if lost:
            yield finished_row({"problems": sum(lost)})

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


def make_known(reader: EntryReader, how: Making, fail: Callable[[StoreError], None]) -> tuple[Part, ...]:
    """Write the files of the table, in the order of topics; what cannot be read is told to FAIL.

    Raises SourceNotFound (a path that an executor does not see), SliceFailed, LimitExceeded, DiskFull.
    """
    directory = f"{how.staging}/messages"
    how.folder.make(directory)
    write = WriteKnown(how.folder, directory, how.cluster, how.name, how.incomplete)
    pieces = _joined(_pieces(reader, fail))
    parts: list[Part] = []
    lost = 0
    while waiting := list(islice(pieces, _ROUND_PIECES)):
        done = run_pieces(how, write, waiting, lambda piece: how.advance(piece.bytes))
        for row in chain.from_iterable(rows for _, rows in done):
            if row["path"] is None:
                lost += row["problems"]
                continue
            check_seen(how, row["path"], row["bytes"], row["host"])
            parts.append(Part(row["path"], row["rows"], row["bytes"], row["sha256"]))
    if lost:
        fail(EntryNotFound(f"messages: {counted(lost, 'entry', 'entries')} cannot be read and are not in the table"))
    return tuple(sorted(parts, key=lambda part: part.path))


def _pieces(reader: EntryReader, fail: Callable[[StoreError], None]) -> Iterator[TopicPiece]:
    """Yield the pieces of all topics but the system's, in the order of their names."""
    read = ConnectorRead("", "topics", "", TopicPlaces(), TopicPlaces(), False, True, PIECE_BYTES)
    namespace, whole = None, False
    for name in iter_topics(reader.txn):
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
        said = f"{name}: {counted(count, 'entry is', 'entries are')} in no file that is there"
        fail(EntryNotFound(said, hint=f"which ones: pulsar-admin topics dump {shell_word(name)} --directory DIR"))


def _joined(pieces: Iterator[TopicPiece]) -> Iterator[TopicPieces]:
    """Yield PIECES together, about PIECE_BYTES of them at a time."""
    waiting: list[TopicPiece] = []
    number = size_bytes = 0
    for piece in pieces:
        waiting.append(piece)
        size_bytes += piece.bytes
        if size_bytes >= PIECE_BYTES or len(waiting) == _PIECE_TOPICS:
            yield _whole(number, size_bytes, waiting)
            number, size_bytes, waiting = number + 1, 0, []
    if waiting:
        yield _whole(number, size_bytes, waiting)


def _whole(number: int, size_bytes: int, pieces: list[TopicPiece]) -> TopicPieces:
    return TopicPieces(
        f"part {number} of messages", FileKind.ENTRY_LOG, -1, 0, size_bytes, number=number, pieces=pieces
    )
