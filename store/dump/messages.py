"""Messages of topics in order, as a query selects them (all, a backlog, a compacted view, or the matches of a search
with the messages around each), one by one, as rows or as columns.

A small number of messages is read one by one, without loading pyarrow. Matches of a search come from a scan by columns,
the messages around them are read one by one.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.dump.options import AskedMessages, DumpOptions
from pulsar_admin.store.errors import InvalidValue, NotSeen, StoreError
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.cursors import iter_backlog, read_cursor
from pulsar_admin.store.model.messages import (
    EVENT,
    Decoded,
    Message,
    MessageReader,
    MessageRow,
    ReadOptions,
    Window,
    as_admin_shows,
    message_row,
    read_message,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.scalable import in_one_order, iter_by_time
from pulsar_admin.store.model.schemas import read_schemas, value_decoder
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import EARLIEST, LATEST, LONG_MAX, Position, TopicName
from pulsar_admin.store.timespec import moment
from pulsar_admin.store.wording import camel_case, line_of

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from pulsar_admin.store.codec.scalable import ScalableTopic
    from pulsar_admin.store.scan.messages import Match

Item = TypeVar("Item")


class TopicMessages(AskedMessages):
    """The requested messages of a topic, which one of the methods can read once. ``count``: messages read so far."""

    count = 0

    def is_few(self) -> bool:
        """Whether there are so few messages that they are read one by one."""
        from pulsar_admin.store.search.window import is_small

        return is_small(self.reader.txn, self.topic, self.options.window, self.limit)

    def each(self) -> Iterator[Message]:
        """Yield the messages one by one, without regard to the limit."""
        from pulsar_admin.store.search.window import iter_window

        wanted = ReadOptions(self.options.committed, self.options.markers)
        return iter_window(self.reader, self.topic, self.options.window, wanted, self.problems)

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches with the columns of the options; the reader's engine, if it has one, makes them."""
        from pulsar_admin.store.dump.job import iter_columns

        return iter_columns(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of ``columns``, and count the messages."""
        for batch in self.columns():
            self.count += len(batch)
            yield batch

    def rows(self) -> Iterator[MessageRow]:
        """Yield the messages as rows."""
        if self.is_few():
            name, payload = self.topic.name, self.options.payload
            for message, decoded in self.decoded():
                yield message_row(name, message, payload=payload, decoded=decoded)
            return
        from pulsar_admin.store.dump.job import iter_rows

        for batch in self.batches():
            yield from iter_rows(self.topic.name, batch)

    def text(self, line_of: Callable[[MessageRow], str]) -> Iterator[str]:
        """Yield JSON lines in pieces, as ``store.dump.tables.json_text`` does; ``line_of`` serves few rows."""
        if self.is_few():
            yield from (f"{line_of(row)}\n" for row in self.rows())
            return
        from pulsar_admin.store.dump.tables import json_text

        for batch in self.batches():
            yield from json_text(str(self.topic.name), batch)

    def decoded(self) -> Iterator[tuple[Message, Decoded | None]]:
        """Yield (message, its decoded value), None in place of the value unless the options ask for values."""
        decode: Callable[[Message], Decoded] | None = None
        if self.options.value:
            decode = value_decoder(self.reader, self.topic.name, None if self.options.lenient else self.problems)
        for message in islice(self.each(), self.limit):
            self.count += 1
            yield message, None if decode is None else decode(message)


class ViewMessages(TopicMessages):
    """The messages of a compacted view, those with ``keys`` if any are given; raises MetadataCorrupt, EntryCorrupt."""

    def __init__(self, *asked: Any, keys: Collection[str]) -> None:  # Any: the fields of AskedMessages
        from pulsar_admin.store.model.compacted_view import open_view

        super().__init__(*asked)
        self.options = replace(self.options, view=open_view(self.reader, self.topic, self.problems))
        self.keys = keys

    def is_few(self) -> bool:
        from pulsar_admin.store.compaction.reading import view_extent
        from pulsar_admin.store.search.window import is_few

        extent = view_extent(self.reader.txn, self.topic, self.options.view)
        return is_few(extent, None if self.keys else self.limit)

    def each(self) -> Iterator[Message]:
        from pulsar_admin.store.compaction.reading import iter_view

        messages = iter_view(self.reader, self.topic, self.options.view, self.problems)
        return (message for message in messages if not self.keys or message.key in self.keys)

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.job import iter_view_columns

        return iter_view_columns(self, self.keys)


class BacklogMessages(TopicMessages):
    """The backlog of a subscription in a topic; raises SubscriptionNotFound."""

    def __init__(self, *asked: Any, subscription: str) -> None:  # Any: the fields of AskedMessages
        super().__init__(*asked)
        cursor = read_cursor(self.reader.txn, self.reader, self.topic, subscription)
        self.state = cursor.state
        if unseen := unseen_position(self.reader.txn, cursor):
            self.problems.append(NotSeen(f"{self.topic.name}: {unseen}"))

    def is_few(self) -> bool:
        from pulsar_admin.store.search.window import SMALL_MESSAGES

        return self.limit is not None and self.limit <= SMALL_MESSAGES and self.options.window == Window()

    def each(self) -> Iterator[Message]:
        wanted = ReadOptions(self.options.committed, self.options.markers, whole=False)
        start = self.topic.next_valid(self.state.mark_delete)
        messages = MessageReader(self.reader, wanted, lambda: self.topic.iter_positions(start), self.problems)
        return messages.iter_messages(iter_backlog(self.topic, self.state))

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.job import iter_backlog_columns

        return iter_backlog_columns(self, self.state)


class EntryMessage(TopicMessages):
    """The first message of the entry at a position; raises the entry's error, or NothingMatches if compaction removed every message."""

    def __init__(self, *asked: Any, position: Position) -> None:  # Any: the fields of AskedMessages
        super().__init__(*asked)
        self.message = read_message(self.reader, position)

    def is_few(self) -> bool:
        return True

    def each(self) -> Iterator[Message]:
        return iter((self.message,))


_WINDOW_MAX = 1 << 20  # entries before a match among which its neighbours are looked for at once


class FoundRow(MessageRow, frozen=True):
    """A message that was found or, with ``context`` true, one shown because it is near a match."""

    context: bool | None = None


class MatchingMessages(TopicMessages):
    """The messages that match the options; ``rows`` adds ``before`` messages before each and ``after`` after it."""

    def __init__(self, *asked: Any, before: int, after: int) -> None:  # Any: the fields of AskedMessages
        super().__init__(*asked)
        self.before, self.after = before, after

    def is_few(self) -> bool:
        return False

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.job import iter_matches

        return iter_matches(self)

    def rows(self) -> Iterator[FoundRow]:
        if not self.before and not self.after:
            yield from (FoundRow(**asdict(row)) for row in super().rows())
            return
        neighbours = _Neighbours(self.reader, self.topic, self.options, self.problems)
        last: Position | None = None
        left = 0  # messages still to show behind LAST
        for row in super().rows():
            here = Position(row.ledger_id, row.entry_id, row.batch_index)
            if last is not None:
                for beside in neighbours.following(last, here, left):
                    yield beside
                    last = Position(beside.ledger_id, beside.entry_id, beside.batch_index)
            yield from neighbours.preceding(last, here, self.before)
            yield FoundRow(**asdict(row))
            last, left = here, self.after
        if last is not None:
            yield from neighbours.following(last, None, left)


class _Neighbours:
    """Reads the messages next to a match, whether or not they match."""

    def __init__(self, reader: EntryReader, topic: Topic, options: DumpOptions, problems: list[StoreError]) -> None:
        self._reader = reader
        self._topic = topic
        self._options = options
        self._problems = problems
        self._decode = value_decoder(reader, topic.name) if options.value else None

    def following(self, start: Position, stop: Position | None, count: int) -> Iterator[FoundRow]:
        """Yield the first ``count`` messages after ``start`` and before ``stop``."""
        messages = self._between(start, start.entry, stop) if count else iter(())
        yield from map(self._row, islice(messages, count))

    def preceding(self, start: Position | None, stop: Position, count: int) -> Iterator[FoundRow]:
        """Yield the last ``count`` messages after ``start`` and before ``stop``."""
        end = self._topic.rank(stop.entry)
        lowest = 0 if start is None else self._topic.rank(start.entry)
        entries, messages = count, list[Message]()
        first = end + 1
        while count and len(messages) < count and first > lowest:
            first = max(lowest, end - entries)
            messages = list(self._between(start, self._topic.at_rank(first), stop))
            entries = min(4 * entries, entries + _WINDOW_MAX)
        yield from map(self._row, messages[len(messages) - min(count, len(messages)) :])

    def _between(self, start: Position | None, first: Position, stop: Position | None) -> Iterator[Message]:
        """Yield the messages from the entry ``first`` on, after ``start`` and before ``stop``."""
        options = ReadOptions(self._options.committed, whole=False)
        reader = MessageReader(self._reader, options, lambda: self._topic.iter_positions(first), self._problems)
        for message in reader.iter_messages(self._topic.iter_positions(first)):
            if stop is not None and message.position >= stop:
                return
            if start is None or message.position > start:
                yield message

    def _row(self, message: Message) -> FoundRow:
        decoded = None if self._decode is None else self._decode(message)
        row = message_row(self._topic.name, message, payload=self._options.payload, decoded=decoded)
        return FoundRow(**asdict(row), context=True)


# -- queries ----------------------------------------------------------------------------------------------------------


_VALUES = {"value", "value_error"}
ON_DEMAND = ("topic", "payload", "marker_type", "schema_version", "value", "value_error")
"""Columns that only callers that name them pay for."""
COLUMNS = tuple(name for name in MessageRow.__struct_fields__ if name not in ON_DEMAND)
"""The columns of messages if none are named."""


class MessageQuery(Struct, frozen=True):
    """A selection of messages and columns. ``limit`` counts over all topics, or with ``each`` per topic.

    ``subscription`` selects its backlog only. ``match`` is the search; each match comes with the ``before`` messages
    before it and the ``after`` messages after it. ``compacted`` reads compacted views, only ``keys`` if given.
    ``entry`` is the first message of one entry of each topic. ``lenient``: values that cannot be decoded are no problem.
    """

    window: Window = Window()
    columns: tuple[str, ...] = COLUMNS
    subscription: str | None = None
    limit: int | None = None
    each: bool = False
    uncommitted: bool = False
    markers: bool = False
    match: Match | None = None
    before: int = 0
    after: int = 0
    compacted: bool = False
    keys: tuple[str, ...] = ()
    entry: Callable[[Topic], Position] | None = None
    lenient: bool = False

    def check(self) -> None:
        """Raise InvalidValue for an unknown column or clock, and for a limit that is not a number of messages."""
        if self.limit is not None and (type(self.limit) is not int or not 0 <= self.limit <= LONG_MAX):
            raise InvalidValue(f"limit {self.limit!r}: expected 0 or more messages, None for all")
        unknown = sorted({*self.columns} - {*COLUMNS, *ON_DEMAND})
        if unknown or not self.columns:
            there = f"there are {[*COLUMNS, *ON_DEMAND]}"
            raise InvalidValue(f"no column {unknown}" if unknown else "no columns", hint=there)
        if self.window.clock != EVENT:
            check_clock(self.window.clock)

    @property
    def is_merged(self) -> bool:
        """Whether messages of a scalable topic's segments are merged in time order: not with messages around matches,
        nor for compacted views."""
        return not (self.before or self.after or self.compacted)

    @property
    def options(self) -> DumpOptions:
        """The options for reading entries."""
        value = not _VALUES.isdisjoint(self.columns)
        needed = {camel_case(name) for name in self.columns if name != "topic"}
        needed |= {"key"} if self.window.key is not None or self.keys or not needed else set()
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
            lenient=self.lenient,
        )

    def open(
        self, reader: EntryReader, name: TopicName, *how: Any
    ) -> TopicMessages:  # Any: the fields of AskedMessages
        """Return a topic's messages, by options, limit and problems; raises TopicNotFound, SubscriptionNotFound."""
        asked = reader, read_topic(reader.txn, name), *how
        if self.entry is not None:
            return EntryMessage(*asked, position=self.entry(asked[1]))
        if self.compacted:
            return ViewMessages(*asked, keys=self.keys)
        if self.subscription is not None:
            return BacklogMessages(*asked, subscription=self.subscription)
        if self.match is not None:
            return MatchingMessages(*asked, before=self.before, after=self.after)
        return TopicMessages(*asked)


_MERGED_BYTES, _BATCH_BYTES_LEAST, _MERGED_ROWS = 32 << 20, 256 << 10, 1 << 13
Shown = tuple[TopicName, Message, "Decoded | None"]


class MessageRecord(SimpleNamespace):
    """A message: the columns that were asked for as attributes, each as in ``Messages.rows``; any other raises AttributeError."""

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    publish_time: datetime | None
    broker_time: datetime | None
    event_time: datetime | None
    key: str | None
    ordering_key: bytes | None
    producer: str
    sequence_id: int
    properties: dict[str, str]
    size: int
    sha1: bytes
    payload: bytes
    broker_index: int | None
    deliver_at_time: datetime | None
    encrypted: bool
    null_value: bool
    chunks: int
    marker_type: str | None
    transaction: str | None
    schema_version: int | None
    value: Any  # Any: what the topic's schema makes of a payload
    value_error: str | None

    def __getattr__(self, name: str) -> Any:  # Any: each column's own type
        asked = f"columns={[*vars(self)]}"
        raise AttributeError(f"the column {name!r} was not asked for: {asked}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} of a message cannot be set", name=name, obj=self)

    def __repr__(self) -> str:
        return line_of("MessageRecord", vars(self))


class _Together(NamedTuple):
    """Topics whose messages are merged into one order: the segments of ``scalable``; None: a single topic."""

    scalable: ScalableTopic | None
    topics: list[TopicMessages]


def _publish_ms(row: MessageRow) -> int:
    return row.publish_time


class SelectedMessages(NamedTuple):
    """The messages of a query, topic by topic, from one snapshot; errors of what cannot be read are added to
    ``problems``.

    ``each`` is ``Session.each``: it opens one topic after the other, and may report and skip a topic that fails.
    """

    query: MessageQuery
    reader: EntryReader
    names: Sequence[TopicName]
    each: Callable[..., Iterator[TopicMessages]]
    problems: list[StoreError]

    def rows(self) -> Generator[dict[str, Any], None, None]:  # Any: each column's own type
        """Yield rows as dictionaries: times as datetimes in UTC (None if absent), bytes as bytes, values by their schema.

        A few messages without values are read without pyarrow.
        """
        typed = self._typed()
        schema = None
        for group in self._groups(typed=typed is not None):
            if _VALUES.isdisjoint(self.query.columns) and all(one.is_few() for one in group.topics):
                for row in self._in_order(group, TopicMessages.rows, _publish_ms):
                    yield {name: _cell(row, name) for name in self.query.columns}
                continue
            schema = schema or _schema_of(self.query.columns, typed)
            for batch in self._batches_of(group, schema):
                yield from batch.to_pylist(maps_as_pydicts="lossy")

    def json_rows(self) -> Generator[MessageRow, None, None]:
        """Yield rows with the fields of the JSON output."""
        for group in self._groups(whole=True):
            yield from self._in_order(group, lambda one: one.rows(), _publish_ms)

    def json_lines(self, line_of: Callable[[MessageRow], str]) -> Generator[str, None, None]:
        """Yield the rows of ``json_rows`` as JSON lines, in pieces as ``TopicMessages.text`` does."""
        for group in self._groups(whole=True):
            if group.scalable is None:
                yield from group.topics[0].text(line_of)
            else:
                yield from (f"{line_of(row)}\n" for row in self._in_order(group, lambda one: one.rows(), _publish_ms))

    def as_admin_shows(self) -> Generator[Shown, None, None]:
        """Yield (topic, message as upstream's admin client shows it, value); see ``store.model.messages``."""

        def each(one: TopicMessages) -> Iterator[Shown]:
            for message, decoded in one.decoded():
                yield one.topic.name, as_admin_shows(self.reader, message), decoded

        for group in self._groups():
            yield from self._in_order(group, each, lambda found: found[1].publish_ms)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches with the query's columns."""
        typed = self._typed()
        schema = _schema_of(self.query.columns, typed)
        for group in self._groups(typed=typed is not None):
            yield from self._batches_of(group, schema)

    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return _schema_of(self.query.columns, self._typed())

    def outside(self) -> Iterator[str]:
        """Yield why nothing is found if a position lies beyond all ledgers of the topics."""
        first, last = self.query.window.first, self.query.window.last
        if first in (EARLIEST, LATEST) and last == LATEST:
            return
        try:
            ids = [ledger_id for name in self.names for ledger_id in read_topic(self.reader.txn, name).ids]
        except StoreError:  # raised or reported by those that read messages
            return
        if first != LATEST and first.ledger_id > max(ids, default=-1):
            yield f"nothing is at or after {first}: the last ledger is {max(ids, default='none')}"
        if last.ledger_id < min(ids, default=LONG_MAX):
            yield f"nothing is at or before {last}: the first ledger is {min(ids, default='none')}"

    def _groups(self, *, whole: bool = False, typed: bool = False) -> Iterator[_Together]:
        """Yield the topics to read, segments of a scalable topic together, until the limit is reached."""
        query, reader, problems, left = self.query, self.reader, self.problems, self.query.limit
        options = replace(query.options, typed=typed)
        options = replace(options, only=()) if whole else options

        def opened(name: TopicName) -> TopicMessages:
            return query.open(reader, name, options, left, problems)

        names = self.names
        merged = in_one_order(reader.txn, names, problems) if query.is_merged else [(None, [name]) for name in names]

        def opened_groups() -> Iterator[_Together]:
            for scalable, together in merged:
                if left == 0 and not query.each:
                    return
                topics = [*self.each(together, opened, alone=len(names) == 1)]
                if not topics:
                    continue
                if scalable is not None:  # a batch of each is held at once
                    most = max(_MERGED_BYTES // len(topics), _BATCH_BYTES_LEAST)
                    for one in topics:
                        only = (*one.options.only, "publishTime") if one.options.only else ()
                        one.options = replace(one.options, batch_bytes=most, only=tuple(sorted({*only})))
                yield _Together(scalable, topics)

        is_whole = query.limit is None and query.subscription is None and query.entry is None and not query.compacted
        is_spread = (is_whole or query.match is not None) and reader.engine is not None
        for group in _read_as_one(reader, opened_groups()) if is_spread else opened_groups():
            if left == 0 and not query.each:
                return
            for one in group.topics if is_spread else ():
                one.limit = left
            yield group
            left = left if left is None or query.each else max(left - sum(one.count for one in group.topics), 0)

    def _in_order(
        self, group: _Together, each: Callable[[TopicMessages], Iterator[Item]], time_of: Callable[[Item], int]
    ) -> Iterator[Item]:
        """Yield the items that ``each`` makes of a group's topics, merged into one order."""
        if group.scalable is None:
            return each(group.topics[0])
        streams = {one.topic.name: each(one) for one in group.topics}
        limit = None if self.query.each else group.topics[0].limit  # that of all of them
        return islice(iter_by_time(group.scalable, streams, time_of), limit)

    def _batches_of(self, group: _Together, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if group.scalable is None:
            (one,) = group.topics
            yield from (_shown(batch, one.topic.name, schema) for batch in one.batches() if len(batch))
            return
        import pyarrow as pa

        def places(one: TopicMessages) -> Iterator[tuple[int, pa.RecordBatch, int]]:
            for batch in one.batches():
                shown = _shown(batch, one.topic.name, schema)
                yield from ((time or 0, shown, place) for place, time in enumerate(batch["publishTime"].to_pylist()))

        merged = self._in_order(group, places, itemgetter(0))
        while chunk := [*islice(merged, _MERGED_ROWS)]:
            batches = {id(batch): batch for _, batch, _ in chunk}
            starts = dict(zip(batches, accumulate(map(len, batches.values()), initial=0), strict=False))
            table = pa.Table.from_batches(batches.values(), schema)
            yield from (
                table.take([starts[id(batch)] + place for _, batch, place in chunk]).combine_chunks().to_batches()
            )

    def _typed(self) -> pa.DataType | None:
        """Return the Arrow type of values if all topics share a schema, else None: values are JSON text."""
        if "value" not in self.query.columns:
            return None
        from pulsar_admin.store.scan.typed_values import VersionedValues

        paths = {name.schema_path: name for name in self.names}  # partitions share one
        try:
            every = [read_schemas(self.reader, name) for name in paths.values()]
        except StoreError:  # told by who reads the topic's messages
            return None
        return VersionedValues(every[0]).kind if every and all(schemas == every[0] for schemas in every) else None


def _read_as_one(reader: EntryReader, groups: Iterable[_Together]) -> Iterator[_Together]:
    """Yield the groups with options by which the engine reads their topics in one run, unchanged for few messages and
    for merged segments."""
    from pulsar_admin.store.dump.job import read_as_one

    def windows(group: _Together) -> list[tuple[Topic, DumpOptions]]:
        (one, *others) = group.topics
        if others or one.is_few():
            return []
        return [(one.topic, replace(one.options, window=one.options.window.by_entry))]

    for group, as_one in read_as_one(reader, groups, windows):
        for one in group.topics:
            one.options = replace(one.options, as_one=as_one)
        yield group


_TIMES = {"publish_time", "broker_time", "event_time", "deliver_at_time"}
_TEXTS = {"topic", "producer", "value", "value_error"}


def _cell(row: MessageRow, name: str) -> Any:  # Any: each column's own type
    """Return the value of a row's column, in the form that ``_shown`` gives it."""
    value = getattr(row, name)
    if name in _TIMES:
        return moment(value) if value is not None and value > 0 else None
    if name in ("payload", "ordering_key") and value is not None:
        return b64decode(value)
    if name == "sha1":
        return bytes.fromhex(value)
    if value is None:
        return _SAID_BY_ABSENCE.get(name)
    return value


_SAID_BY_ABSENCE = {"encrypted": False, "null_value": False, "chunks": 1}


def _schema_of(columns: Sequence[str], value: pa.DataType | None) -> pa.Schema:
    """Return the schema of columns; ``value`` is the type of values, None: JSON text."""
    import pyarrow as pa

    return pa.schema([(name, value if name == "value" and value is not None else _type_of(name)) for name in columns])


def _type_of(name: str) -> pa.DataType:
    import pyarrow as pa

    from pulsar_admin.store.scan import messages
    from pulsar_admin.store.scan.schemas import TIME

    if name in _TIMES:
        return TIME
    return pa.string() if name in _TEXTS else messages.schema_of((camel_case(name),)).types[0]


def _shown(batch: pa.RecordBatch, topic: TopicName, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a topic's messages with the columns of ``schema``."""
    import pyarrow as pa

    from pulsar_admin.store.scan.typed_values import timestamps

    columns = []
    for field in schema:
        if field.name == "topic":
            columns.append(pa.repeat(pa.scalar(str(topic), field.type), len(batch)))
            continue
        column = batch.column(camel_case(field.name))
        columns.append(timestamps(column) if field.name in _TIMES else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
