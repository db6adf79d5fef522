"""Which entries of a topic to track: positions that were named, and the acknowledgement holes of a subscription."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.errors import EntryNotFound, InvalidValue
from pulsar_admin.store.model.cursors import Intervals, iter_ledger_parts, normal_ranges, subtract
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, Position

if TYPE_CHECKING:
    from pyroaring import BitMap64


class NackedEntries:
    """Entries to track, gathered one by one: topic → (due time in epoch ms, ledger id) → entry ids."""

    def __init__(self, topics: Sequence[Topic], *, unknown: bool = False) -> None:
        """UNKNOWN: also take positions that no topic of TOPICS has, as long as there is one topic only."""
        self.entries: dict[str, dict[tuple[int, int], BitMap64]] = {str(topic.name): {} for topic in topics}
        self._topics = {ledger_id: topic for topic in topics for ledger_id in topic.ids}
        self._default = topics[0] if unknown and len(topics) == 1 else None
        self._names = ", ".join(str(topic.name) for topic in topics[:1]) + (" …" if len(topics) > 1 else "")

    def add(self, position: Position, due_ms: int) -> None:
        """Track the entry at POSITION (its batch index is dropped); raises InvalidValue, EntryNotFound."""
        if not (0 <= position.ledger_id < LONG_MAX and 0 <= position.entry_id < LONG_MAX):
            raise InvalidValue(
                f"position {position} is not an entry",
                hint="write LEDGER:ENTRY, as topics read prints it",
                value=str(position),
            )
        topic = self._topics.get(position.ledger_id)
        if topic is None or not topic.is_entry(position.entry):
            topic = self._default
        if topic is None:
            raise EntryNotFound(
                f"{self._names} has no entry {position}",
                hint="--force tracks it anyway, on one topic: it may be newer than the store",
                ledgerId=position.ledger_id,
                entryId=position.entry_id,
            )
        self._bitmap(topic, due_ms, position.ledger_id).add(position.entry_id)

    def add_intervals(self, topic: Topic, intervals: Iterable[tuple[int, int]], due_ms: int) -> None:
        """Track the entries of TOPIC with the ranks in INTERVALS."""
        for start, end in intervals:
            for ledger_id, first, last in iter_ledger_parts(topic, start, end):
                self._bitmap(topic, due_ms, ledger_id).add_range(first, last + 1)

    def _bitmap(self, topic: Topic, due_ms: int, ledger_id: int) -> BitMap64:
        # Imported here: it costs 8 ms, and only commands that track need it.
        from pyroaring import BitMap64

        groups = self.entries[str(topic.name)]
        place = due_ms, ledger_id
        if place not in groups:
            groups[place] = BitMap64()
        return groups[place]


def hole_intervals(topic: Topic, state: CursorState) -> Intervals:
    """Return the holes in what was acknowledged, as ranks: not deleted, with an individually deleted entry behind them."""
    deleted = normal_ranges(topic, state)
    if not deleted:
        return ()
    start = topic.place(state.mark_delete)
    return subtract(((start, deleted[-1][1]),), deleted)
