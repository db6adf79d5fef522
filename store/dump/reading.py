"""The messages of a large window: the rows of a dump, filtered by columns."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.compaction.reading import behind_view, last_of_view
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.dump.job import Dumped, iter_window_rows
from pulsar_admin.store.dump.options import AskedMessages, DumpOptions
from pulsar_admin.store.dump.tables import json_columns
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt
from pulsar_admin.store.model.cursors import pending_intervals
from pulsar_admin.store.model.messages import EVENT, MessageRow, Window
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import EARLIEST, Position, TopicName
from pulsar_admin.store.scan.arrow import numbers_of, strings
from pulsar_admin.store.scan.entries import is_within
from pulsar_admin.store.scan.messages import UNDECIDED, message_schema
from pulsar_admin.store.search.by_time import Found, count_damaged
from pulsar_admin.store.wording import counted

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
    """Yield the first messages, with one of ``keys`` if any are named, as ``store.compaction.reading.iter_view`` gives them.

    The view of the options is read, then what follows it; None: the topic was never compacted. Problems are told as by
    ``iter_columns``.
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
    """Yield the first rows that ``choose`` takes of the options, in which ``other`` replaces fields; return how many are still wanted."""
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
    """Return what ``store.search.by_time.find_by_event_time`` finds, by columns and the reader's engine."""
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
    """Return the messages of a batch, of entries in the window, that are in it too; see ``Window.holds``."""
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
    """Return a mask of the messages in the batch that is the entry at a position."""
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
