"""Topics as a consumer reads them, on executors: pieces of a topic, and the messages of one under the names of another tool.

A piece holds the places of its entries, which the driver took from a store's index; so every entry comes once, however many copies
there are, and what no topic has does not come. A message of several chunks is in the piece of its last one, which looks back for
the others. What a transaction wrote is there when its commit is: a piece of a topic that may have transactions is the whole topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from warnings import warn

import numpy as np
import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.message import EntryHeader, is_chunk
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt, EntryNotFound, SourceChanged, Unsupported
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.known_columns import KnownColumns
from pulsar_admin.store.scan.messages import MessageColumns
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful
from pulsar_admin.store.scan.spread import EntryPlaces, PlainFiles
from pulsar_admin.store.wording import counted

_KINDS = {size: kind for kind, size in DIGEST_SIZE.items()}
_HMAC_BYTES = DIGEST_SIZE[DigestType.HMAC]


class TopicPiece(EntryPlaces, frozen=True, eq=False):
    """Entries of TOPIC in order. ``before``: the nearest in front, where chunks may be; ``after``: the topic's others behind them.

    ``is_whole``: with ``after`` the ends of all transactions that wrote here are known.
    """

    topic: str = ""
    before: Sequence[Places] = ()
    after: Sequence[Places] = ()
    is_whole: bool = False


class ReadTopicPieces(Struct, frozen=True):
    """The messages of pieces of topics, under the columns that are known of each topic; ``fail``: what cannot be read ends it."""

    columns: Mapping[str, KnownColumns]
    fail: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns, the same of all topics."""
        return next(iter(self.columns.values())).schema

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages in topic order; raises StoreError for what cannot be read where that ends it."""
        assert isinstance(piece, TopicPiece)
        yield from self.rows(piece, partial(_warn, piece.topic))

    def rows(self, piece: TopicPiece, pass_over: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of PIECE; PASS_OVER is told of entries that cannot be read."""
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
        """Yield the entries that are what was imported."""
        entries = PlacesReader(files, False, None, None if self.fail else [])
        read = 0
        for places in piece.batches:
            for batch, there in entries.read_present(places):
                sound = ~_wrong(batch, there)
                if self.fail and not sound.all():
                    position = Position(int(batch.ledger_ids[~sound][0]), int(batch.entry_ids[~sound][0]))
                    raise EntryCorrupt(
                        f"{piece.topic}: entry {position} is not what was imported; failOnDataLoss is true"
                    )
                read += int(sound.sum())
                yield batch.take(sound)
        lost = sum(map(len, piece.batches)) - read
        if lost:
            pass_over(lost)

    def _check(self, messages: _PieceMessages, batch: pa.RecordBatch | None = None) -> None:
        if messages.unfinished is not None:
            raise Unsupported(
                f"{messages.unfinished} is of a transaction, whose end may be in another task",
                hint="let a task read a topic whole: set sliceBytes to more than the topic has",
            )
        if self.fail and messages.errors:
            raise messages.errors[0]
        if self.fail and batch is not None and batch.column("encrypted").true_count:
            raise EncryptedPayload("a message is encrypted; failOnDataLoss is true")


def _warn(topic: str, entries: int) -> None:
    are = counted(entries, "entry cannot be read and is", "entries cannot be read and are")
    warn(f"pulsar_entries: {topic}: {are} passed over, as failOnDataLoss is false", stacklevel=2)


def _wrong(batch: EntryBatch, places: Places) -> Array:
    """Return which entries are not proven to be what was imported; a MAC, for which no executor has the password, is believed."""
    named = (batch.rows["ledger_id"] == batch.ledger_ids) & (batch.rows["entry_id"] == batch.entry_ids)
    wrong: Array = doubtful(batch, places) & ~(named & (places.digests == _HMAC_BYTES))
    return wrong


class _PlacedReader(EntryReader):
    """Reads the entries at the places of a piece, one by one, where the columns do not know them."""

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
        raise EntryNotFound(f"entry {ledger_id}:{entry_id} is not among those of its topic")


class _PieceMessages(MessageReader):
    """The messages of a piece that the columns do not know; ``unfinished``: an entry whose transaction's end is not known here."""

    def __init__(self, piece: TopicPiece, files: PlainFiles) -> None:
        ends = (*piece.batches, *piece.after)
        super().__init__(_PlacedReader(piece, files), ReadOptions(whole=False), lambda: _positions(ends))
        self.unfinished: Position | None = None
        self._is_whole = piece.is_whole
        self._before = piece.before

    def iter_messages(self, positions: Iterable[Position]) -> Iterator[Message]:
        for position in positions:
            try:
                header = self.read_header(position)
                if self.unfinished is None and not self._is_whole and header.metadata.HasField("txnid_most_bits"):
                    self.unfinished = position
                    return
                yield from self._visible(header, position, ())
            except (SourceChanged, *ENTRY_ERRORS) as error:
                self.errors.append(error)

    def _join(self, header: EntryHeader, position: Position) -> Message | None:
        metadata = header.metadata
        if metadata.chunk_id > 0 and metadata.uuid not in self._chunks:
            for earlier, place in reversed(self._earlier(metadata.uuid, metadata.chunk_id)):
                super()._join(earlier, place)
        return super()._join(header, position)

    def _earlier(self, uuid: str, count: int) -> list[tuple[EntryHeader, Position]]:
        """Return COUNT chunks of message UUID from in front of the piece, the last one first; nothing when not all are there."""
        found: list[tuple[EntryHeader, Position]] = []
        for position in reversed([*_positions(self._before)]):
            try:
                header = self.read_header(position)
            except (SourceChanged, *ENTRY_ERRORS):
                continue
            if (
                is_chunk(header.metadata)
                and header.metadata.uuid == uuid
                and header.metadata.chunk_id < count - len(found)
            ):
                found.append((header, position))
            if len(found) == count:
                return found
        return []


def _positions(groups: Iterable[Places]) -> Iterator[Position]:
    for places in groups:
        yield from map(Position, places.ledger_ids.tolist(), places.entry_ids.tolist())


def nearest(places: Sequence[Places], count: int) -> tuple[Places, ...]:
    """Return the last COUNT entries of PLACES."""
    kept: list[Places] = []
    for group in reversed(places):
        kept.insert(0, group.take(np.s_[max(0, len(group) - count) :]))
        count -= len(kept[0])
        if count <= 0:
            break
    return tuple(kept)
