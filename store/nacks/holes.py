"""The rate of negative acks on a topic, from its entries and the unacknowledged entries between acknowledged ones.

The index has the earliest and latest time of each block of up to 1,024 entries; an entry's time is interpolated from
its place in the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.cursors import extent_of, hole_intervals, iter_ledger_parts, read_cursor
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.db.blocks import Block
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.nacks.bitmaps import Int64s


SAMPLE_LIMIT = 500_000
"""Entries that are sampled: the first ones of a longer topic."""

_TAIL = 0.01  # share of the entries at each end that is ignored: times of wrong clocks would distort the rate


class TopicNacks(Answer, frozen=True):
    """The entries of a topic that count as nacked. ``entries_per_second`` is None if all entries have the same time.

    ``holes``: unacknowledged entries with an acknowledged one after them; ``nacked_share``: their share of the entries
    from the mark-delete position to the last acknowledged entry. The columns are the holes' entries; without holes they
    are all entries, and the share is 1. ``uncounted_entries``: entries that the store lacks, whose messages are not counted.
    """

    JSON_OPTIONAL = ("uncounted_entries",)

    entries: int
    messages: int
    uncounted_entries: int | None
    entries_per_second: float | None
    entries_per_ledger: int
    holes: int
    nacked_share: float
    ledger_ids: Int64s
    entry_ids: Int64s
    times_ms: Int64s

    @property
    def batch_size(self) -> int:
        """Messages per entry, rounded, of the entries that the store has."""
        seen = self.entries - (self.uncounted_entries or 0)
        return max(1, round(self.messages / seen)) if seen else 1

    @property
    def nacked_entries_per_second(self) -> float | None:
        """Entries nacked per second, None if all entries have the same time."""
        return None if self.entries_per_second is None else self.entries_per_second * self.nacked_share


def read_topic_nacks(reader: EntryReader, name: TopicName, subscription: str | None) -> TopicNacks:
    """Return the nacks of a topic, those of ``subscription`` if given.

    Raises TopicNotFound, SubscriptionNotFound, and InvalidValue if no indexed entry has a time.
    """
    txn, topic = reader.txn, read_topic(reader.txn, name)
    cursor = None if subscription is None else read_cursor(txn, reader, topic, subscription)
    extent = extent_of(txn, topic, ((0, topic.number_of_entries),))
    holes = hole_intervals(topic, cursor.state) if cursor is not None else ()
    all_columns = _columns(txn, topic, ((0, topic.number_of_entries),))
    if not len(all_columns[2]):
        raise InvalidValue(
            f"{topic.name} has no entry with a time, so no rate can be computed",
            hint="give --rate",
            topic=str(topic.name),
        )
    ledgers, entries, times = _columns(txn, topic, holes) if holes else all_columns
    count = sum(end - start for start, end in holes)
    share = 1.0
    if cursor is not None and holes:
        # After the last hole there is a deleted entry, so the region ends after it.
        last = max(topic.place(upper) for _, upper in cursor.state.ranges)
        share = count / max(last - topic.place(cursor.state.mark_delete), 1)
    # Without the earliest and latest times, which wrong clocks may have set.
    import numpy as np

    ordered = np.sort(all_columns[2])
    cut = int(len(ordered) * _TAIL)
    kept = ordered[cut : len(ordered) - cut]
    span_ms = int(kept[-1] - kept[0])
    return TopicNacks(
        entries=topic.number_of_entries,
        messages=extent.messages,
        uncounted_entries=extent.uncounted_entries,
        entries_per_second=(len(kept) - 1) * 1000 / span_ms if span_ms > 0 else None,
        entries_per_ledger=max(ledger.entries for ledger in topic.ledgers),
        holes=count,
        nacked_share=share,
        ledger_ids=ledgers,
        entry_ids=entries,
        times_ms=times,
    )


def _columns(txn: Txn, topic: Topic, intervals: Iterable[tuple[int, int]]) -> tuple[Int64s, Int64s, Int64s]:
    """Return ledger ids, entry ids and times (ms) of at most ``SAMPLE_LIMIT`` entries in the intervals that have a time."""
    import numpy as np

    none = np.empty(0, dtype=np.int64)
    parts = [(none, none, none)]
    left = SAMPLE_LIMIT
    for ledger_id, ids, times in _iter_parts(txn, topic, intervals):
        ids, times = ids[:left], times[:left]
        parts.append((np.full(len(ids), ledger_id, dtype=np.int64), ids, times))
        left -= len(ids)
        if left <= 0:
            break
    ledgers, entries, all_times = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ledgers, entries, all_times


def _iter_parts(txn: Txn, topic: Topic, intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, Int64s, Int64s]]:
    from pulsar_admin.store.model.ledgers import iter_blocks

    for start, end in intervals:
        for ledger_id, first, last in iter_ledger_parts(topic, start, end):
            for block in takewhile(partial(_begins_by, last), iter_blocks(txn, ledger_id, first)):
                ids, times = _block_times(block)
                wanted = (ids >= first) & (ids <= last)
                yield ledger_id, ids[wanted], times[wanted]


def _begins_by(last_entry: int, block: Block) -> bool:
    return block.entry_id(0) <= last_entry


def _block_times(block: Block) -> tuple[Int64s, Int64s]:
    """Return the entry ids of a block and their times; empty if no entry has a time."""
    import numpy as np

    low, high = block.header.auto_min_ms, block.header.auto_max_ms
    if low > high:
        none = np.empty(0, dtype=np.int64)
        return none, none
    slots = np.array(block.slots(), dtype=np.int64)
    ids = slots + (block.entry_id(0) - int(slots[0]))
    place = np.arange(len(ids)) / max(len(ids) - 1, 1)
    return ids, np.maximum(low + (place * (high - low)).astype(np.int64), 0)
