"""Dumping topics: windows of entries → rows of one level (messages or entries), batch by batch in bounded memory.

Queries of many messages also read such rows and filter them by columns.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.compaction.reading import CompactedReader, behind_view, last_of_view
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.dump.options import AskedMessages, DumpOptions
from pulsar_admin.store.dump.spread import MakeRows, PlacedRows, Rows, TopicWindow, WindowsAsOne, rows_on, undecoded_in
from pulsar_admin.store.dump.tables import (
    HELPERS,
    DumpColumns,
    EntryColumns,
    entry_batch,
    json_columns,
    json_text,
    known_text,
)
from pulsar_admin.store.dump.written import Format, WriteTo, WrittenFile
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt, EntryNotFound, StoreError
from pulsar_admin.store.model.compacted_view import parts_of_view
from pulsar_admin.store.model.cursors import Extent, extent_of, iter_ledger_parts, pending_intervals
from pulsar_admin.store.model.ledgers import iter_gaps
from pulsar_admin.store.model.messages import EVENT, MessageReader, MessageRow, ReadOptions, Window
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import EARLIEST, LATEST, Position, TopicName
from pulsar_admin.store.scan.arrow import numbers_of, strings
from pulsar_admin.store.scan.entries import WindowScan, is_within, window_ranks
from pulsar_admin.store.scan.messages import UNDECIDED, MessageColumns, message_schema
from pulsar_admin.store.scan.operations import redact_batch
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.typed_values import KnownColumns
from pulsar_admin.store.search.by_time import Found, count_damaged
from pulsar_admin.store.wording import Answer, counted

_T = TypeVar("_T")


class Dumped(Struct):
    """Counts of what was dumped and of missing entries, and the errors of what could not be read."""

    rows: int = 0
    entries: int = 0
    missing: int = 0
    problems: list[StoreError] = field(default_factory=list)


def iter_batches(reader: EntryReader, topic: Topic, options: DumpOptions, dumped: Dumped) -> Iterator[Rows]:
    """Yield the rows of a topic's window in topic order; ``dumped`` counts them."""
    undecoded = 0
    for batch in iter_window_rows(reader, topic, options, dumped):
        undecoded += batch.undecoded if isinstance(batch, WrittenFile) else undecoded_in(batch)
        yield batch
        del batch
    if undecoded:
        dumped.problems.append(
            EntryCorrupt(f"{topic.name}: {counted(undecoded, 'value')} cannot be decoded; valueError says why")
        )


def iter_window_rows(
    reader: EntryReader, topic: Topic, options: DumpOptions, dumped: Dumped
) -> Generator[Any, None, None]:  # Any: pyarrow has no types
    """Yield the rows as batches or, if other processes of ``as_one`` write them, as files. At the end, or when closed
    early, errors of what could not be read are added to ``dumped``."""
    as_one = options.as_one if options.as_one is not None and topic.name in options.as_one.windows else None
    window = _open_window(reader, topic, options) if as_one is None else as_one.windows[topic.name]
    read, columns = window.found, window.work.columns
    slow = _message_columns(reader, topic, options, columns, dumped) if options.level == "messages" else None
    try:
        for entries, batches in _rows(window, slow, None if as_one is None else as_one.placed(topic.name)):
            dumped.entries += entries
            for batch in batches:
                if isinstance(batch, WrittenFile):
                    dumped.rows += batch.rows
                    yield batch
                    continue
                dumped.rows += len(batch)
                yield redact_batch(batch) if options.redact else batch
                del batch
            del batches  # not kept while the next are fetched
    finally:
        dumped.problems += read.scan.unreadable
        if read.missing:
            dumped.missing += read.missing
            dumped.problems.append(_missing(reader, topic, options, read.missing))


_TOPICS_AS_ONE = 4096


def read_as_one(
    reader: EntryReader,
    items: Iterable[_T],
    windows: Callable[[_T], Iterable[tuple[Topic, DumpOptions]]],
    to: WriteTo | None = None,
) -> Iterator[tuple[_T, WindowsAsOne | None]]:
    """Yield (item, its ``WindowsAsOne``, for ``DumpOptions.as_one``): the engine reads some thousand topics in one run.

    ``windows`` returns an item's topics and options. The caller must read the rows of one item before the next. ``to``:
    as in ``WindowsAsOne``. Without an engine, None in its place.
    """
    if reader.engine is None:
        yield from ((item, None) for item in items)
        return
    turn: list[tuple[_T, list[tuple[Topic, DumpOptions]]]] = []
    ledgers: dict[int, TopicName] = {}
    for item in items:
        wanted = [*windows(item)]
        names = {ledger_id: topic.name for topic, _ in wanted for ledger_id in topic.ids}
        if len(turn) == _TOPICS_AS_ONE or not ledgers.keys().isdisjoint(names):
            yield from _turn_as_one(reader, turn, ledgers, to)
            turn, ledgers = [], {}
        turn.append((item, wanted))
        ledgers |= names
    yield from _turn_as_one(reader, turn, ledgers, to)


def _turn_as_one(
    reader: EntryReader,
    turn: Sequence[tuple[_T, Iterable[tuple[Topic, DumpOptions]]]],
    ledgers: Mapping[int, TopicName],
    to: WriteTo | None,
) -> Iterator[tuple[_T, WindowsAsOne]]:
    opened: dict[TopicName, TopicWindow] = {}
    for topic, options in (one for _, wanted in turn for one in wanted):
        with suppress(StoreError):  # it is read alone, which raises the same
            opened[topic.name] = _open_window(reader, topic, options)
    with closing(WindowsAsOne(reader, opened, ledgers, to)) as as_one:
        yield from ((item, as_one) for item, _ in turn)


def _open_window(reader: EntryReader, topic: Topic, options: DumpOptions) -> TopicWindow:
    """Return the scan of a topic's window and the rows to make of it; raises MetadataCorrupt for a damaged schema."""
    read = WindowScan(reader, topic, options.window, None if options.view is None else parts_of_view(options.view))
    if options.batch_bytes is not None and reader.engine is None:
        read.scan.batch_bytes = min(options.batch_bytes, read.scan.batch_bytes)
    closed_ms = {ledger.ledger_id: ledger.info.timestamp_ms or None for ledger in topic.ledgers}
    entries = EntryColumns(closed_ms, options.stripped) if options.level == "entries" else None
    return TopicWindow(read, MakeRows(_columns(reader, topic, options), entries, read.times))


def _columns(reader: EntryReader, topic: Topic, options: DumpOptions) -> DumpColumns:
    schemas = read_schemas(reader, topic.name) if options.value or options.profile else None
    if options.profile is not None:
        known = KnownColumns(topic.name, schemas or TopicSchemas(), options.payload)
        return DumpColumns(known=known)
    return DumpColumns(
        options.payload,
        schemas,
        options.markers,
        options.only,
        options.view is not None,
        options.match,
        typed=options.typed,
    )


def _missing(reader: EntryReader, topic: Topic, options: DumpOptions, missing: int) -> EntryNotFound:
    of = "the window" if options.view is None else "the compacted ledger"
    text = f"{topic.name}: of {of} {counted(missing, 'entry is', 'entries are')} in no imported file"
    parts = iter_ledger_parts(topic, *window_ranks(topic, options.window))
    parts = parts if options.view is None else parts_of_view(options.view)
    gaps = (
        (ledger, max(low, first))
        for ledger, first, last in parts
        for low, high in iter_gaps(reader.txn, ledger, last)
        if high >= first
    )
    for gap in islice(gaps, 1):
        try:
            reader.read(*gap)
        except StoreError as error:
            return EntryNotFound(f"{text}; the first: {error.message}", hint=error.hint, **error.context)
    return EntryNotFound(text)


def _rows(
    window: TopicWindow, slow: MessageColumns | None, placed: PlacedRows | None
) -> Iterator[tuple[int, Iterable[Rows]]]:
    """Yield (number of entries, their rows); the engine, if there is one, makes them.

    ``placed``: the window's results from an engine that reads several windows in one run.
    """
    read, work = window
    finish = work.columns.finisher()

    def convert(entries: EntryBatch) -> Iterator[pa.RecordBatch]:
        if slow is None:
            assert work.entries is not None
            return iter([entry_batch(entries, work.entries)])
        return finish(slow.convert(work.columns.screened(entries)))

    if read.scan.reader.engine is None:
        yield from ((len(entries), convert(entries)) for entries in read.batches())
    else:
        yield from rows_on(window, convert, slow, placed)


def _message_columns(
    reader: EntryReader, topic: Topic, options: DumpOptions, columns: DumpColumns, dumped: Dumped
) -> MessageColumns:
    window = options.window
    first = topic.last_confirmed if window.first == LATEST else window.first
    whole = options.whole or (first.entry == EARLIEST and not window.is_timed)
    kind = CompactedReader if columns.compacted else MessageReader
    messages = kind(
        reader,
        ReadOptions(options.committed, options.markers, whole),
        lambda: topic.iter_positions(first),
        dumped.problems,
    )
    return MessageColumns(messages, names=columns.names, unwrap=columns.unwrap, keep=columns.match)


def dump_text(reader: EntryReader, topics: Sequence[Topic], options: DumpOptions, dumped: Dumped) -> Iterator[str]:
    """Yield every row as JSON, in the pieces of ``json_text``."""
    for topic, as_one in read_as_one(reader, topics, lambda topic: [(topic, options)]):
        for batch in iter_batches(reader, topic, replace(options, as_one=as_one), dumped):
            yield from json_text(str(topic.name), batch) if options.profile is None else known_text(batch)
            del batch


class DumpReport(Answer, frozen=True):
    """A finished dump. ``rows``: messages or entries, by the level."""

    directory: str
    format: str
    level: str
    topics: int
    entries: int
    rows: int
    files: int
    bytes: int
    missing_entries: int
    problems: int
    dry_run: bool = False


def dump_directory(
    reader: EntryReader, topics: Sequence[Topic], path: Path, form: Format, options: DumpOptions
) -> tuple[DumpReport, list[StoreError]]:
    """Write topics into a new directory in a format; return the report and what could not be dumped.

    Raises AlreadyExists, DiskFull, NotWritable; after an error nothing is left.
    """
    dumped = Dumped()
    hidden = () if options.profile is None else tuple(helper.name for helper in HELPERS)
    from pulsar_admin.store.dump.files import DumpDirectory  # pyarrow.parquet: text is written without

    with DumpDirectory(path, form, check_clock(options.window.clock), options.level, hidden) as directory:
        to = None if reader.engine is None else directory.open_to_others(redact=options.redact)
        for topic, as_one in read_as_one(reader, topics, lambda topic: [(topic, options)], to):
            for rows in iter_batches(reader, topic, replace(options, as_one=as_one), dumped):
                (directory.take if isinstance(rows, WrittenFile) else directory.add)(str(topic.name), rows)
                del rows
    report = DumpReport(
        directory=str(path),
        format=form,
        level=options.level,
        topics=len(topics),
        entries=dumped.entries,
        rows=dumped.rows,
        files=directory.files,
        bytes=directory.bytes,
        missing_entries=dumped.missing,
        problems=len(dumped.problems),
    )
    return report, dumped.problems


class DumpSize(Answer, frozen=True):
    """How much a dump reads. ``uncounted_entries``: entries in no imported file, whose messages and bytes are in no
    sum; None if there are none."""

    JSON_OPTIONAL = ("uncounted_entries",)

    topics: int
    entries: int
    messages: int
    bytes: int
    uncounted_entries: int | None


def preview_dump(reader: EntryReader, topics: Sequence[Topic], options: DumpOptions) -> DumpSize:
    """Return how much lies between the window's positions, from the index; the window's times are ignored."""
    total = Extent()
    for topic in topics:
        total += extent_of(reader.txn, topic, [window_ranks(topic, options.window)])
    return DumpSize(len(topics), total.entries, total.messages, total.bytes, total.uncounted_entries)


_ROW = (*message_schema(payload=True, markers=True).names, "schemaVersion", "value", "valueError")
"""The columns of a ``MessageRow`` after its topic, in its order."""


def iter_columns(asked: AskedMessages) -> Generator[pa.RecordBatch, None, None]:
    """Yield the messages asked for in topic order, by the reader's engine where it has one.

    The window may choose messages by their key or event time and begin or end inside a batch. What could not be read is
    added to ``problems`` at the end, values that cannot be decoded as they come.
    """
    window = asked.options.window
    yield from _limited(asked, lambda batch: _chosen(batch, window), window=window.by_entry)


def iter_matches(asked: AskedMessages) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first messages of the options' window that its match looks for, as ``iter_columns``.

    Messages that cannot be matched are counted in ``problems``, encrypted ones as EncryptedPayload.
    """
    topic, window, problems = asked.topic, asked.options.window, asked.problems
    encrypted = undecoded = 0

    def choose(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal encrypted, undecoded
        batch = _chosen(batch, window)
        doubtful = batch.filter(batch.column(UNDECIDED))
        sealed = doubtful.column("encrypted").true_count
        encrypted, undecoded = encrypted + sealed, undecoded + len(doubtful) - sealed
        return batch.filter(pc.invert(batch.column(UNDECIDED))).drop_columns([UNDECIDED])

    try:
        yield from _limited(asked, choose, window=window.by_entry)
    finally:
        if encrypted:
            what = counted(encrypted, "encrypted entry", "encrypted entries")
            problems.append(EncryptedPayload(f"{topic.name}: {what} cannot be read and may contain matches"))
        if undecoded:
            what = counted(undecoded, "value")
            problems.append(EntryCorrupt(f"{topic.name}: {what} cannot be decoded and may match"))


def iter_backlog_columns(asked: AskedMessages, state: CursorState) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first messages of the options' window in the backlog that ``state`` leaves, as ``iter_columns``."""
    topic, window = asked.topic, asked.options.window
    intervals = pending_intervals(topic, state)
    first = topic.next_valid(state.mark_delete) if window.first == EARLIEST else window.first

    def choose(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = _chosen(batch, window)
        ledgers, entries = (batch.column(name).to_numpy() for name in ("ledgerId", "entryId"))
        return batch.filter(pa.array(is_within(topic, DelayedRows(entries, ledgers, entries), intervals)))

    yield from _limited(asked, choose, window=replace(window, first=first).by_entry)


def iter_view_columns(asked: AskedMessages, keys: Collection[str]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first messages that ``store.compaction.reading.iter_view`` would, only those with ``keys`` if any are
    given.

    The compacted ledger ``options.view`` is read, then the entries after it; None: the topic was never compacted.
    Problems are added as by ``iter_columns``.
    """
    wanted = strings([*keys], pa.string()) if keys else None

    def choose(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if wanted is None else batch.filter(pc.is_in(batch.column("key"), wanted))

    reader, topic, view, left = asked.reader, asked.topic, asked.options.view, asked.limit
    if view is not None:
        left = yield from _limited(asked, choose, committed=False)
    first, stop = behind_view(reader, topic, view, None if view is None else last_of_view(reader, view))
    if first < stop and left != 0:
        window = Window(topic.at_rank(first) if first else EARLIEST, topic.at_rank(stop - 1))
        behind = AskedMessages(reader, topic, asked.options, left, asked.problems)
        yield from _limited(behind, choose, view=None, window=window, whole=True)


def _limited(
    asked: AskedMessages, choose: Callable[[pa.RecordBatch], pa.RecordBatch], **other: Any
) -> Generator[pa.RecordBatch, None, int | None]:  # Any: of DumpOptions
    """Yield the rows that ``choose`` selects, up to the limit; return how many are left of it (None: no limit).

    ``other``: options that replace those of ``asked``.
    """
    topic, options, left = asked.topic, replace(asked.options, **other), asked.limit
    dumped = Dumped()
    # Closed here: the engine's processes end, and what was wrong is told, when nobody wants more.
    with closing(iter_window_rows(asked.reader, topic, options, dumped)) as batches:
        for batch in batches:
            chosen = choose(batch)
            chosen = chosen if left is None else chosen.slice(0, left)
            if "valueError" in chosen.schema.names and not options.lenient:
                failed = chosen.filter(pc.is_valid(chosen.column("valueError")))
                for row in failed.select(["ledgerId", "entryId", "batchIndex", "valueError"]).to_pylist():
                    position = Position(row["ledgerId"], row["entryId"], row["batchIndex"])
                    asked.problems.append(EntryCorrupt(f"the value of {position} of {topic.name}: {row['valueError']}"))
            if len(chosen):
                yield chosen
            left = None if left is None else left - len(chosen)
            if left == 0:
                break
    asked.problems += dumped.problems
    return left


def find_event_time(reader: EntryReader, topic: Topic, time_ms: int) -> Found:
    """Do the same as ``store.search.by_time.find_by_event_time``, by columns and with the reader's engine."""
    options = DumpOptions(committed=False, only=("ledgerId", "entryId", "batchIndex", "eventTime"))
    dumped = Dumped()
    read, last = 0, (-1, -1)
    answer: tuple[Position, int] | None = None
    with closing(iter_window_rows(reader, topic, options, dumped)) as batches:
        for batch in batches:
            ledgers, entries, indexes, times = (numbers_of(column)[0] for column in batch.columns)
            hits = np.flatnonzero((times != 0) & (times >= time_ms))
            end = int(hits[0]) + 1 if len(hits) else len(batch)
            steps = np.diff(ledgers[:end], prepend=last[0]) | np.diff(entries[:end], prepend=last[1])
            read += int(np.count_nonzero(steps))
            last = int(ledgers[end - 1]), int(entries[end - 1])
            if len(hits):
                answer = Position(*last, int(indexes[end - 1])), int(times[end - 1])
                break
    position, event_ms = answer or (None, None)
    return Found(position, event_ms, read, 0, len(topic.ids), (), count_damaged(dumped.problems))


def _chosen(batch: pa.RecordBatch, window: Window) -> pa.RecordBatch:
    """Return those messages of a batch that are in the window; all of their entries are. See ``Window.holds``."""
    if window.key is not None:
        batch = batch.filter(pc.equal(batch.column("key"), window.key))
    if window.clock == EVENT and window.chooses:
        times, (start_ms, end_ms) = batch.column("eventTime"), window.times
        inside = pc.and_(pc.greater_equal(times, start_ms), pc.less(times, end_ms))
        batch = batch.filter(pc.and_(pc.not_equal(times, 0), inside))
    if window.first.batch_index >= 0:
        outside = pc.less(batch.column("batchIndex"), window.first.batch_index)
        batch = batch.filter(pc.invert(pc.and_(_of_batch(batch, window.first), outside)))
    if window.last.batch_index >= 0:
        outside = pc.greater(batch.column("batchIndex"), window.last.batch_index)
        batch = batch.filter(pc.invert(pc.and_(_of_batch(batch, window.last), outside)))
    return batch


def _of_batch(batch: pa.RecordBatch, position: Position) -> pa.Array:
    """Return a mask of the messages that are in the entry at a position, if that entry is a batch."""
    same = pc.and_(
        pc.equal(batch.column("ledgerId"), position.ledger_id), pc.equal(batch.column("entryId"), position.entry_id)
    )
    return pc.and_(same, pc.greater_equal(batch.column("batchIndex"), 0))


def iter_rows(topic: TopicName, batch: pa.RecordBatch) -> Iterator[MessageRow]:
    """Yield the messages of a batch as ``store.model.messages.message_row`` makes them."""
    columns = json_columns(batch)
    values = (columns.get(name, repeat(None, len(batch))) for name in _ROW)
    for row in map(MessageRow, repeat(str(topic), len(batch)), *values):
        if isinstance(row.payload, pa.Buffer):
            row = replace(row, payload=b64encode(row.payload).decode())
        yield row
