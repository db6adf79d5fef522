"""Messages of a topic as columns, read when they are iterated over. Imports pyarrow: only what reads messages imports this."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from pulsar_admin.api.batches import Batches, Source
from pulsar_admin.api.session import Session
from pulsar_admin.jsonify import camel_case
from store.compaction.view import open_view
from store.db.clocks import check_clock
from store.db.delayed_entries import DelayedRows
from store.db.environment import Txn
from store.delayed.backlog import is_within
from store.dump.job import DumpOptions
from store.dump.reading import iter_columns, iter_matches, iter_view_columns
from store.errors import InvalidValue, StoreError
from store.model.cursors import read_cursor
from store.model.extent import Intervals, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.model.window import EVENT, Window
from store.names import EARLIEST, TopicName
from store.scan.matching import Match
from store.scan.message_rows import timestamps
from store.scan.messages import schema_of
from store.scan.schemas import TIME

_TIMES = {"publish_time", "broker_time", "event_time", "deliver_at_time"}
_VALUES = {"value", "value_error"}
COLUMNS = (
    *("ledger_id", "entry_id", "batch_index", "publish_time", "broker_time", "event_time", "key", "ordering_key"),
    *("producer", "sequence_id", "properties", "size", "sha1", "broker_index", "deliver_at_time", "encrypted"),
    *("null_value", "chunks", "transaction"),
)
"""The columns of messages where none are named."""
ON_DEMAND = ("topic", "payload", "marker_type", "schema_version", "value", "value_error")
"""Further columns, which only callers that name them pay for."""
SCHEMA = pa.schema(
    [
        (
            name,
            TIME
            if name in _TIMES
            else pa.string()
            if name in (*_VALUES, "producer", "topic")
            else schema_of((camel_case(name),)).types[0],
        )
        for name in (*COLUMNS, *ON_DEMAND)
    ]
)


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages, and which of their columns. ``subscription``: only its backlog."""

    window: Window
    columns: tuple[str, ...] = COLUMNS
    subscription: str | None = None
    limit: int | None = None
    uncommitted: bool = False
    markers: bool = False
    match: Match | None = None

    def check(self) -> None:
        """Raise InvalidValue for an unknown column or clock, and for a limit that is not a number of messages."""
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            raise InvalidValue(f"limit {self.limit!r}: expected 0 or more messages, None for all")
        unknown = sorted(set(self.columns) - {*SCHEMA.names})
        if unknown or not self.columns:
            raise InvalidValue(f"no column {unknown}" if unknown else "no columns", hint=f"there are {SCHEMA.names}")
        if self.window.clock != EVENT:
            check_clock(self.window.clock)

    @property
    def options(self) -> DumpOptions:
        """What is read of the entries."""
        value = not _VALUES.isdisjoint(self.columns)
        needed = {camel_case(name) for name in self.columns if name != "topic"}
        needed |= {"key"} if self.window.key is not None or not needed else set()
        needed |= {"encrypted"} if self.match is not None else set()
        if self.window.clock == EVENT:
            needed.add("eventTime")
        if self.subscription is not None or max(self.window.first.batch_index, self.window.last.batch_index) >= 0:
            needed |= {"ledgerId", "entryId", "batchIndex"}
        return DumpOptions(
            window=self.window,
            payload="payload" in self.columns,
            value=value or (self.match is not None and self.match.needs_value),
            committed=not self.uncommitted,
            markers=self.markers or "marker_type" in self.columns,
            only=() if value else tuple(sorted(needed)),
            match=self.match,
        )


Choose = Callable[[Txn], Iterable[TopicName]]
"""Names topics of a snapshot."""


class Messages(Batches):
    """Messages of a topic, as a method of it chose them; nothing is read before it is iterated over, and then a batch at a time.

    Columns are those of ``schema``: ids and sizes integers, times ``timestamp[us, UTC]`` (null where there is none), ``key`` and
    ``producer`` strings, ``properties`` a map, ``payload`` and ``ordering_key`` bytes, ``value`` JSON text. Each iteration reads a
    snapshot of its own. What could not be read is left out, in ``problems`` of the last iteration, and a PartialData warning.
    """

    def __init__(self, session: Session, columns: Sequence[str], source: Source, limit: int | None = None) -> None:
        super().__init__(session, pa.schema([SCHEMA.field(column) for column in columns]), source, limit)

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self.schema:
            found = batch.column(camel_case(field.name))
            columns.append(timestamps(found) if field.name in _TIMES else found.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def messages_of(session: Session, names: Choose, query: MessageQuery) -> Messages:
    """Return the messages of topics, one topic after the other; raises InvalidValue."""
    query.check()

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        for part in names(reader.txn):
            for batch in _batches(reader, read_topic(reader.txn, part), query, problems):
                yield _with_topic(batch, part) if "topic" in query.columns else batch

    return Messages(session, query.columns, source, query.limit)


def _with_topic(batch: pa.RecordBatch, name: TopicName) -> pa.RecordBatch:
    return batch.append_column("topic", pa.repeat(pa.scalar(str(name), pa.string()), len(batch)))


def _batches(
    reader: EntryReader, topic: Topic, query: MessageQuery, problems: list[StoreError]
) -> Iterator[pa.RecordBatch]:
    options, waiting = query.options, None
    if query.subscription is not None:
        state = read_cursor(reader.txn, reader, topic, query.subscription).state
        waiting = pending_intervals(topic, state)
        if options.window.first == EARLIEST:
            options = replace(options, window=replace(options.window, first=topic.next_valid(state.mark_delete)))
    iter_them = iter_columns if query.match is None else iter_matches
    with closing(iter_them(reader, topic, options, None, problems)) as batches:
        for batch in batches:
            yield batch if waiting is None else _waiting(batch, topic, waiting)


def chosen_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return COLUMNS, or those that are there without asking; raises InvalidValue for a text, which is a sequence, too."""
    if isinstance(columns, str):
        raise InvalidValue(f"columns {columns!r} is a text", hint=f"write a list: columns=[{columns!r}]")
    return COLUMNS if columns is None else tuple(columns)


def compacted_messages(
    session: Session, name: TopicName, columns: Sequence[str] | None, keys: Collection[str] | None, limit: int | None
) -> Messages:
    """Return the messages of a topic's compacted view, those with KEYS only; raises InvalidValue."""
    query = MessageQuery(Window(), chosen_columns(columns), limit=limit)
    query.check()
    options = query.options
    if keys is not None and options.only:
        options = replace(options, only=tuple(sorted({*options.only, "key"})))

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        topic = read_topic(reader.txn, name)
        wanted = replace(options, view=open_view(reader, topic, problems))
        if keys is None or keys:
            yield from iter_view_columns(reader, topic, wanted, tuple(keys or ()), limit, problems)

    return Messages(session, query.columns, source)


def _waiting(batch: pa.RecordBatch, topic: Topic, intervals: Intervals) -> pa.RecordBatch:
    """Return the rows of BATCH whose entries lie in INTERVALS of ranks."""
    ledgers, entries = (batch.column(name).to_numpy() for name in ("ledgerId", "entryId"))
    return batch.filter(pa.array(is_within(topic, DelayedRows(entries, ledgers, entries), intervals)))
