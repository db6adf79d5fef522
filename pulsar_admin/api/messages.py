"""Messages of a topic, read when they are iterated over. Imports pyarrow when it is asked for columns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.api.batches import Batches, first_rows
from pulsar_admin.api.given import given_text, given_texts
from pulsar_admin.api.session import Session
from pulsar_admin.jsonify import camel_case, dump_json
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.dump.messages import EntryMessage, TopicMessages, ViewMessages
from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.cursors import iter_backlog, read_cursor
from pulsar_admin.store.model.entries import as_admin_shows
from pulsar_admin.store.model.message_row import MessageRow
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.model.window import EVENT, Window
from pulsar_admin.store.names import EARLIEST, LONG_MAX, Position, TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.store.model.schemas import Decoded
    from pulsar_admin.store.scan.matching import Match

_VALUES = {"value", "value_error"}
COLUMNS = (
    *("ledger_id", "entry_id", "batch_index", "publish_time", "broker_time", "event_time", "key", "ordering_key"),
    *("producer", "sequence_id", "properties", "size", "sha1", "broker_index", "deliver_at_time", "encrypted"),
    *("null_value", "chunks", "transaction"),
)
"""The columns of messages where none are named."""
ON_DEMAND = ("topic", "payload", "marker_type", "schema_version", "value", "value_error")
"""Further columns, which only callers that name them pay for."""


class MessageQuery(Struct, frozen=True):
    """Which messages, and which of their columns. ``limit``: of all topics together, or of EACH. ``subscription``: only its backlog.

    ``match``: what is looked for; records have ``before`` messages in front of each, and ``after`` behind it.
    ``compacted``: of compacted views, those with one of ``keys`` (none: all). ``entry``: the first message of one entry of each topic.
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

    def check(self) -> None:
        """Raise InvalidValue for an unknown column or clock, and for a limit that is not a number of messages."""
        if self.limit is not None and (type(self.limit) is not int or not 0 <= self.limit <= LONG_MAX):
            raise InvalidValue(f"limit {self.limit!r}: expected 0 or more messages, None for all")
        for what, value in (("subscription", self.subscription), ("key", self.window.key)):
            if value is not None:
                given_text(what, value)
        unknown = sorted({*self.columns} - {*COLUMNS, *ON_DEMAND})
        if unknown or not self.columns:
            there = f"there are {[*COLUMNS, *ON_DEMAND]}"
            raise InvalidValue(f"no column {unknown}" if unknown else "no columns", hint=there)
        if self.window.clock != EVENT:
            check_clock(self.window.clock)

    @property
    def options(self) -> DumpOptions:
        """What is read of the entries."""
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
        )

    def open(
        self, reader: EntryReader, name: TopicName, options: DumpOptions, limit: int | None, problems: list[StoreError]
    ) -> TopicMessages:
        """Return the messages of the topic NAME; raises TopicNotFound, SubscriptionNotFound."""
        topic = read_topic(reader.txn, name)
        if self.entry is not None:
            return EntryMessage(reader, topic, options, self.entry(topic), problems)
        if self.compacted:
            return ViewMessages(reader, topic, options, self.keys, limit, problems)
        if self.subscription is not None:
            return BacklogMessages(reader, topic, options, self.subscription, limit, problems)
        if self.match is not None:
            from pulsar_admin.store.dump.searching import MatchingMessages

            context = {"before": self.before, "after": self.after}
            return MatchingMessages(reader, topic, options, limit, problems, **context)
        return TopicMessages(reader, topic, options, limit, problems)


Shown = tuple[TopicName, Message, "Decoded | None"]
Choose = Callable[[Txn], Iterable[TopicName]]
"""Names topics of a snapshot."""


class Messages(Batches):
    """Messages of a topic, as a method of it chose them; nothing is read before it is iterated over, and then a batch at a time.

    Columns are those of ``schema``: ids and sizes integers, times ``timestamp[us, UTC]`` (null where there is none), ``key`` and
    ``producer`` strings, ``properties`` a map, ``payload`` and ``ordering_key`` bytes, ``value`` JSON text. Each iteration reads a
    snapshot of its own. What could not be read is left out, in ``problems`` of the last iteration, and a PartialData warning.
    """

    def __init__(self, session: Session, names: Choose, query: MessageQuery) -> None:
        super().__init__(session, self._made_schema, self._batches)
        self._names = names
        self._query = query

    def records(self) -> Iterator[MessageRow]:
        """Yield them as objects with the fields that ``topics read -o json`` shows: times in ms, bytes in base64, values as JSON has them.

        Of columns only ``payload``, ``value`` and ``marker_type`` matter: what is not named is None. A few messages come without pyarrow.
        """

        def rows(reader: EntryReader, problems: list[StoreError]) -> Generator[MessageRow, None, None]:
            return (row for one in self._topics(reader, problems, whole=True) for row in one.rows())

        return self._read(rows)

    def json_lines(self) -> Iterator[str]:
        """Yield what ``records`` does as JSON lines, in pieces of text that hold many lines, or a part of a long one."""

        def text(reader: EntryReader, problems: list[StoreError]) -> Generator[str, None, None]:
            return (piece for one in self._topics(reader, problems, whole=True) for piece in one.text(_line))

        return self._read(text)

    def as_admin_shows(self) -> Iterator[Shown]:
        """Yield them one by one, with topic and value, as upstream's admin client shows them: see ``store.model.entries``."""

        def shown(reader: EntryReader, problems: list[StoreError]) -> Generator[Shown, None, None]:
            for one in self._topics(reader, problems):
                for message, decoded in one.decoded():
                    yield one.topic.name, as_admin_shows(reader, message), decoded

        return self._read(shown)

    def _topics(
        self, reader: EntryReader, problems: list[StoreError], *, whole: bool = False
    ) -> Iterator[TopicMessages]:
        query, options, left = self._query, self._query.options, self._query.limit
        options = replace(options, only=()) if whole else options

        def opened(name: TopicName) -> TopicMessages:
            return query.open(reader, name, options, left, problems)

        for one in self._session.each(self._names(reader.txn), opened):
            if left == 0 and not query.each:
                return
            yield one
            left = left if left is None or query.each else left - one.count

    def _batches(self, reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.api.message_columns import shown

        for one in self._topics(reader, problems):
            yield from (shown(batch, one.topic.name, self.schema) for batch in one.batches() if len(batch))

    def _made_schema(self) -> pa.Schema:
        from pulsar_admin.api.message_columns import schema_of

        return schema_of(self._query.columns)


class BacklogMessages(TopicMessages):
    """The messages that SUBSCRIPTION has left of a topic; raises SubscriptionNotFound."""

    def __init__(
        self,
        reader: EntryReader,
        topic: Topic,
        options: DumpOptions,
        subscription: str,
        limit: int | None,
        problems: list[StoreError],
    ) -> None:
        super().__init__(reader, topic, options, limit, problems)
        self.state = read_cursor(reader.txn, reader, topic, subscription).state

    def is_few(self) -> bool:
        from pulsar_admin.store.search.window import SMALL_MESSAGES

        return self.limit is not None and self.limit <= SMALL_MESSAGES and self.options.window == Window()

    def each(self) -> Iterator[Message]:
        wanted = ReadOptions(self.options.committed, self.options.markers, whole=False)
        start = self.topic.next_valid(self.state.mark_delete)
        messages = MessageReader(self.reader, wanted, lambda: self.topic.iter_positions(start), self.problems)
        return messages.iter_messages(iter_backlog(self.topic, self.state))

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.api.message_columns import waiting
        from pulsar_admin.store.dump.reading import iter_columns
        from pulsar_admin.store.model.extent import pending_intervals

        options, intervals = self.options, pending_intervals(self.topic, self.state)
        if options.window.first == EARLIEST:
            first = self.topic.next_valid(self.state.mark_delete)
            options = replace(options, window=replace(options.window, first=first))
        with closing(iter_columns(self.reader, self.topic, options, None, self.problems)) as batches:
            left = (waiting(batch, self.topic, intervals) for batch in batches)
            yield from left if self.limit is None else first_rows(left, self.limit)


def _line(row: MessageRow) -> str:
    return dump_json(row, pretty=False)


def messages_of(session: Session, names: Choose, query: MessageQuery) -> Messages:
    """Return the messages of topics, one topic after the other; raises InvalidValue."""
    query.check()
    return Messages(session, names, query)


def chosen_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return COLUMNS, or those that are there without asking; raises InvalidValue for a text, which is a sequence, too."""
    return COLUMNS if columns is None else given_texts("columns", columns)
