"""Topics as a consumer reads them, under the names of another tool: for a read with the Spark connector's options,
the driver plans pieces of topics from a store, and executors read their messages.

A piece has the places of its entries, which the driver took from the store's index. So every entry is read once, however many copies it
has, and entries of no topic are not read. A message of several chunks is in the piece of its last one, which looks back for the others.
Messages of a transaction are read if its commit is: if a topic may have transactions, one piece is the whole topic.

Upstream: ``PulsarHelper`` and ``PulsarRelation`` of streamnative/pulsar-spark 3.4.1. Times are the broker's, as a seek by time knows
them: broker time if an entry has one, otherwise publish time. If the connector would wait forever, for a first message after the
topic's end, this returns none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import chain
from pathlib import Path
from warnings import warn

import numpy as np
import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store import errors
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.message import EntryHeader, is_chunk
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.engine.slices import FileRange, filled
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, ReadOptions, Window
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.schemas import read_schemas
from pulsar_admin.store.model.topics import Topic, expand_topic, iter_topics, read_topic
from pulsar_admin.store.model.transactions import SegmentStates, read_segment_states
from pulsar_admin.store.names import (
    EARLIEST,
    LATEST,
    LONG_MAX,
    SEGMENT,
    FileKind,
    NamespaceName,
    Position,
    TopicName,
    parse_namespace,
    parse_topic,
    shell_word,
)
from pulsar_admin.store.scan.entries import EntryScan, WindowScan
from pulsar_admin.store.scan.messages import MessageColumns
from pulsar_admin.store.scan.operations import EntryPlaces, PlainFiles
from pulsar_admin.store.scan.places import BATCH_BYTES, EntryBatch, Places, PlacesReader, doubtful
from pulsar_admin.store.scan.source_options import ConnectorRead, Place, pattern_namespace, pattern_topics
from pulsar_admin.store.scan.typed_values import KnownColumns
from pulsar_admin.store.wording import counted

_KINDS = {size: kind for kind, size in DIGEST_SIZE.items()}
_HMAC_BYTES = DIGEST_SIZE[DigestType.HMAC]


class TopicPiece(EntryPlaces, frozen=True, eq=False):
    """Entries of a topic in order. ``before``: the nearest entries before them, where chunks may be; ``after``: the
    topic's later entries.

    ``is_whole``: with ``after``, the ends of all transactions that wrote here are known. ``states``: the known states of the transactions
    of a segment.
    """

    topic: str = ""
    before: Sequence[Places] = ()
    after: Sequence[Places] = ()
    is_whole: bool = False
    states: SegmentStates | None = None


class ReadTopicPieces(Struct, frozen=True):
    """The messages of pieces of topics, under the connector's columns for each topic; ``fail``: unreadable entries end the read."""

    columns: Mapping[str, KnownColumns]
    fail: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns, which all topics share."""
        return next(iter(self.columns.values())).schema

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages in topic order; raises StoreError for unreadable entries if these end the read."""
        assert isinstance(piece, TopicPiece)
        yield from self.rows(piece, partial(_warn, piece.topic))

    def rows(self, piece: TopicPiece, pass_over: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a piece; ``pass_over`` gets the entries that cannot be read."""
        known = self.columns[piece.topic]
        convert = known.converter()
        with closing(PlainFiles(piece.files)) as files:
            messages = _PieceMessages(piece, files)
            columns = MessageColumns(messages, names={*known.needs, "encrypted"})
            for batch in chain.from_iterable(map(columns.convert, self._entries(piece, files, pass_over))):
                self._check(messages, batch)
                yield convert(batch)[0]
            self._check(messages)
        if messages.errors:
            pass_over(len(messages.errors))

    def _entries(self, piece: TopicPiece, files: PlainFiles, pass_over: Callable[[int], None]) -> Iterator[EntryBatch]:
        """Yield the entries that are those that were imported."""
        entries = PlacesReader(files, False, None, None if self.fail else [])
        read = 0
        for places in piece.batches:
            for batch, there in entries.read_present(places):
                # A message authentication code is believed: no executor has its password.
                named = (batch.rows["ledger_id"] == batch.ledger_ids) & (batch.rows["entry_id"] == batch.entry_ids)
                wrong: Array = doubtful(batch, there) & ~(named & (there.digests == _HMAC_BYTES))
                sound = ~wrong
                if self.fail and not sound.all():
                    position = Position(int(batch.ledger_ids[~sound][0]), int(batch.entry_ids[~sound][0]))
                    raise errors.EntryCorrupt(
                        f"{piece.topic}: entry {position} is not what was imported; failOnDataLoss is true"
                    )
                read += int(sound.sum())
                yield batch.take(sound)
        lost = sum(map(len, piece.batches)) - read
        if lost:
            pass_over(lost)

    def _check(self, messages: _PieceMessages, batch: pa.RecordBatch | None = None) -> None:
        if messages.unfinished is not None:
            raise errors.Unsupported(
                f"{messages.unfinished} belongs to a transaction that may end in another task",
                hint="let a task read a topic whole: set sliceBytes to more than the topic has",
            )
        if self.fail and messages.errors:
            raise messages.errors[0]
        if self.fail and batch is not None and batch.column("encrypted").true_count:
            raise errors.EncryptedPayload("a message is encrypted; failOnDataLoss is true")


def _warn(topic: str, entries: int) -> None:
    are = counted(entries, "entry cannot be read and is", "entries cannot be read and are")
    warn(f"pulsar_entries: {topic}: {are} skipped, as failOnDataLoss is false", stacklevel=2)


class _PlacedReader(EntryReader):
    """Reads entries of a piece one by one at their places, for entries that the kernel cannot split."""

    def __init__(self, piece: TopicPiece, files: PlainFiles) -> None:
        super().__init__(files, None)  # type: ignore[arg-type]  # no store, and files that read alike
        self._groups = [*piece.batches, *piece.before, *piece.after]
        self._found: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    def read(self, ledger_id: int, entry_id: int) -> Entry:
        if (ledger_id, entry_id) not in self._found:
            self._found = self._group_of(ledger_id, entry_id)
        file_id, offset, size, digest_bytes = self._found[ledger_id, entry_id]
        kind = _KINDS[digest_bytes]
        body = memoryview(self.files.read(file_id, offset + 4, size))
        return decode_entry(body, kind, where=f"entry {ledger_id}:{entry_id}", verify=kind is not DigestType.HMAC)

    def _group_of(self, ledger_id: int, entry_id: int) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        for places in self._groups:
            if ((places.ledger_ids == ledger_id) & (places.entry_ids == entry_id)).any():
                ids = zip(places.ledger_ids.tolist(), places.entry_ids.tolist(), strict=True)
                columns = (places.files, places.offsets, places.sizes, places.digests)
                return dict(zip(ids, zip(*(column.tolist() for column in columns), strict=True), strict=True))
        raise errors.EntryNotFound(f"entry {ledger_id}:{entry_id} is not among those of its topic")


class _PieceMessages(MessageReader):
    """The messages of those entries of a piece that the kernel cannot split; ``unfinished``: an entry of a transaction
    whose end is in no part of the piece."""

    def __init__(self, piece: TopicPiece, files: PlainFiles) -> None:
        ends = (*piece.batches, *piece.after)
        super().__init__(_PlacedReader(piece, files), ReadOptions(whole=False), lambda: _positions(ends))
        self.unfinished: Position | None = None
        self._is_whole = piece.is_whole or piece.states is not None
        self._states = piece.states
        self._before = piece.before

    def segment_states(self, position: Position) -> SegmentStates | None:
        return self._states

    def iter_messages(self, positions: Iterable[Position]) -> Iterator[Message]:
        for position in positions:
            try:
                header = self.read_header(position)
                # Whether it was committed is told by a marker, which may lie in a later piece.
                if self.unfinished is None and not self._is_whole and header.metadata.HasField("txnid_most_bits"):
                    self.unfinished = position
                    return
                yield from self._visible(header, position, ())
            except (errors.SourceChanged, *ENTRY_ERRORS) as error:
                self.errors.append(error)

    def _join_chunk(self, header: EntryHeader, position: Position) -> Message | None:
        metadata = header.metadata
        if metadata.chunk_id > 0 and not (metadata.uuid in self._chunks or metadata.uuid in self._joined):
            for earlier, place in reversed(self._earlier(metadata.uuid, metadata.chunk_id)):
                super()._join_chunk(earlier, place)
        return super()._join_chunk(header, position)

    def _earlier(self, uuid: str, count: int) -> list[tuple[EntryHeader, Position]]:
        """Return the first ``count`` chunks of a message from before the piece, in descending order; empty unless all
        exist.

        Also empty if chunk ``count`` or a later one is there too: the one in the piece is a duplicate then."""
        chunks: list[tuple[EntryHeader, Position]] = []
        for position in reversed([*_positions(self._before)]):
            try:
                header = self.read_header(position)
            except (errors.SourceChanged, *ENTRY_ERRORS):
                continue
            if not is_chunk(header.metadata) or header.metadata.uuid != uuid:
                continue
            if header.metadata.chunk_id >= count and not chunks:
                return []
            if header.metadata.chunk_id < count - len(chunks):
                chunks.append((header, position))
            if len(chunks) == count:
                return chunks
        return []


def _positions(groups: Iterable[Places]) -> Iterator[Position]:
    for places in groups:
        yield from map(Position, places.ledger_ids.tolist(), places.entry_ids.tolist())


def nearest(places: Sequence[Places], count: int) -> tuple[Places, ...]:
    """Return the last ``count`` places."""
    kept: list[Places] = []
    for group in reversed(places):
        kept.insert(0, group.take(np.s_[max(0, len(group) - count) :]))
        count -= len(kept[0])
        if count <= 0:
            break
    return tuple(kept)


LOOK_BACK_ENTRIES = 1024
"""Entries before a piece, among which the first chunks of its messages may be."""
_BATCHES = 4  # a piece has at least so many, and by two of them it may be larger than was asked for
_TRANSACTIONS = "__transaction_buffer_snapshot"
"""A namespace has this topic when a transaction wrote to one of its topics (``SystemTopicNames``, Pulsar 4.0.8)."""


@contextmanager
def _opened(read: ConnectorRead) -> Iterator[EntryReader]:
    with open_store(Path(read.store)) as opened, open_reader(opened) as reader:
        yield reader


def topics_operation(read: ConnectorRead, only: tuple[str, ...] = ()) -> ReadTopicPieces:
    """Return the operation that reads the topics, restricted to the columns ``only``. Raises InvalidValue for topics
    with different schemas, as the connector does."""
    with _opened(read) as reader:
        columns = {
            str(topic): KnownColumns(topic, read_schemas(reader, topic), read.raw, only)
            for topic in _chosen(reader.txn, read)
        }
    newest = [known.schemas.newest for known in columns.values()]
    if not read.raw and any(schema != newest[0] for schema in newest):
        raise errors.InvalidValue(
            f"the {len(newest)} topics do not share one schema",
            hint="set allowDifferentTopicSchemas to true, and column value has their bytes",
        )
    operation = ReadTopicPieces(columns, read.fail)
    try:
        _ = operation.schema  # computed here, so that an error names the option before executors start
    except errors.Unsupported as error:
        raise errors.Unsupported(
            error.message, hint="set allowDifferentTopicSchemas to true, and column value has the bytes"
        ) from error
    return operation


def plan_topic_pieces(read: ConnectorRead) -> list[TopicPiece]:
    """Return the pieces of the topics; lost entries raise EntryNotFound or SourceChanged, or are warned of, as the read's options say."""
    with _opened(read) as reader:
        topics = _chosen(reader.txn, read)
        known = {str(topic) for topic in topics}
        for places in (read.start, read.end):
            for name in places.each or ():
                if name not in known:
                    raise errors.InvalidValue(
                        f"an offset or time is of {name}, which is not read",
                        hint="name a topic that is; of partitions, each",
                    )
        # The end of a transaction could lie in another piece: such a topic is one piece.
        transactional = {
            namespace: has_transactions(reader.txn, namespace)
            for namespace in dict.fromkeys(topic.namespace for topic in topics)
        }
        return [
            piece
            for topic in topics
            for piece in iter_pieces(
                reader,
                read_topic(reader.txn, topic),
                read,
                whole=transactional[topic.namespace],
                lost=partial(_report, topic, fail=read.fail),
            )
        ]


def _chosen(txn: Txn, read: ConnectorRead) -> list[TopicName]:
    if read.kind == "topicsPattern":
        namespace = parse_namespace(pattern_namespace(read.text))
        there = [topic for topic in iter_topics(txn, namespace) if not topic.is_system]
        topics: Iterable[TopicName] = pattern_topics(read.text, there)
    else:
        names = [name.strip() for name in read.text.split(",") if name.strip()]
        topics = [topic for name in names for topic in expand_topic(txn, parse_topic(name))]
    chosen = [*dict.fromkeys(topics)]
    if not chosen:
        raise errors.TopicNotFound(f"no topic is {read.kind} {read.text!r}", hint="list them: pulsar-admin topics list")
    return chosen


def has_transactions(txn: Txn, namespace: NamespaceName) -> bool:
    """Whether a transaction may have written to topics of a namespace."""
    return any(topic.local_name.startswith(_TRANSACTIONS) for topic in iter_topics(txn, namespace))


def iter_pieces(
    reader: EntryReader, topic: Topic, read: ConnectorRead, *, whole: bool, lost: Callable[[int], None]
) -> Iterator[TopicPiece]:
    """Yield the pieces of a topic; ``whole``: a single one, which includes later entries. ``lost`` gets the entries that no file has."""
    low, high = _ranks(reader, topic, read)
    batch_bytes = min(read.slice_bytes // _BATCHES, BATCH_BYTES)
    scan = EntryScan(reader, iter_ledger_parts(topic, low, high), batch_bytes=batch_bytes)
    behind = EntryScan(reader, iter_ledger_parts(topic, high, topic.number_of_entries) if whole else ())
    after = tuple(behind.groups())
    gone = 0
    seen: tuple[Places, ...] = ()
    paths = _Paths(reader, fail=read.fail)
    states = read_segment_states(reader.txn, topic.name) if topic.name.domain == SEGMENT else None
    runs = [*filled(scan.groups(), lambda places: places.bytes, LONG_MAX if whole else read.slice_bytes)]
    for run in runs:
        batches = [kept for places in run if len(kept := paths.readable(places))]
        gone += sum(map(len, run)) - sum(map(len, batches))
        if batches:
            is_whole = whole or (len(runs) == 1 and high == topic.number_of_entries)
            yield paths.piece(str(topic.name), batches, before=seen, after=after, is_whole=is_whole, states=states)
        seen = nearest([*seen, *batches], LOOK_BACK_ENTRIES)
    lost(scan.missing + gone)


def _report(topic: TopicName, lost: int, *, fail: bool) -> None:
    if not lost:
        return
    said = f"{topic}: {counted(lost, 'entry is', 'entries are')} in no imported file"
    if fail:
        raise errors.EntryNotFound(
            f"{said}; failOnDataLoss is true",
            hint=f"which ones: pulsar-admin topics dump {shell_word(topic)} --directory DIR",
        )
    warn(f"pulsar_entries: {said}, and skipped, as failOnDataLoss is false", stacklevel=2)


class _Paths:
    """The paths of the files of pieces, each found once. A file that is gone or was replaced ends the read or, if the
    options say so, its entries are left out."""

    def __init__(self, reader: EntryReader, *, fail: bool) -> None:
        self._path: Callable[[int], str | None] = cache(reader.files.path_of if fail else reader.files.find_path)

    def readable(self, places: Places) -> Places:
        """Return the places whose files exist."""
        ids = [file_id for file_id in np.unique(places.files).tolist() if self._path(file_id) is not None]
        mask = np.isin(places.files, ids)
        return places if mask.all() else places.take(mask)

    def piece(
        self,
        topic: str,
        batches: list[Places],
        *,
        before: tuple[Places, ...],
        after: tuple[Places, ...],
        is_whole: bool,
        states: SegmentStates | None,
    ) -> TopicPiece:
        after = tuple(kept for places in after if len(kept := self.readable(places)))
        ids = np.unique(np.concatenate([places.files for places in (*batches, *before, *after)])).tolist()
        files = {file_id: path for file_id in ids if (path := self._path(file_id)) is not None}
        first, size_bytes = int(batches[0].offsets[0]), sum(places.bytes for places in batches)
        return TopicPiece(
            files[int(batches[0].files[0])],
            FileKind.ENTRY_LOG,
            int(batches[0].files[0]),
            first,
            first + size_bytes,
            batches=batches,
            files=files,
            topic=topic,
            before=before,
            after=after,
            is_whole=is_whole,
            states=states,
        )


def _ranks(reader: EntryReader, topic: Topic, read: ConnectorRead) -> tuple[int, int]:
    """Return the ranks (half-open) of the entries between start and end, that of the end included.

    As in the connector, the range is empty if start and end are the same entry.
    """
    entries = topic.number_of_entries
    start, end = read.start.of(topic.name), read.end.of(topic.name)
    first = 0 if start in (None, EARLIEST) else _rank(reader, topic, start)
    last = entries if end in (None, LATEST) else _rank(reader, topic, end)
    if first > last:
        said = f"{topic.name}: the end, {topic.at_rank(last)}, is before the start, {topic.at_rank(first)}"
        if read.fail:
            raise errors.InvalidValue(said, hint="swap them, or set failOnDataLoss to false: then nothing is read")
        warn(f"pulsar_entries: {said}: skipped, as failOnDataLoss is false", stacklevel=2)
        return first, first
    if first == last and start not in (None, EARLIEST):
        return first, first
    return first, min(last + 1, entries)


def _rank(reader: EntryReader, topic: Topic, place: Place | None) -> int:
    """Return the rank of the first entry at or after a place."""
    if place == LATEST:
        return max(topic.number_of_entries - 1, 0)
    if place == EARLIEST:
        return 0
    if isinstance(place, Position):
        return topic.rank(place)
    assert place is not None
    for batch in WindowScan(reader, topic, Window(start_ms=place)).batches():
        return topic.rank(Position(int(batch.ledger_ids[0]), int(batch.entry_ids[0])))
    return topic.number_of_entries
