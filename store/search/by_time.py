"""Exact search by time on the time index: the first entry at or after a time, and what lies before it.

Rule: entries are looked at in topic order, whatever their clocks say. A block can hold the first entry at or after T only if
it is the first whose running maximum reaches T, so one bisection over a monotone column and one block answer (PIP-345's idea,
made exact for clocks that run backwards). Clock ``auto``: broker time where the entry carries one, else publish time (upstream
``Commands.getEntryTimestamp``, 4.0.8).
"""

from collections.abc import Iterable

from msgspec import Struct

from pulsar_admin.store.db.blocks import BLOCK_BITS, NO_MAX, Block, decode_latest, decode_times, ledger_key
from pulsar_admin.store.db.clocks import Clock, block_max, block_min, first_candidate
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, LedgerNotFound, StoreError
from pulsar_admin.store.model.entry_times import is_doubtful, iter_block_times
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import counted, plural


class Found(Struct, frozen=True):
    """The result of a time search. ``position`` None: nothing is at or after the time.

    ``ledgers_without_index``: listed ledgers before it that have entries, none of them imported (lost or offloaded),
    and that are not stated to be earlier (PIP-345): the answer is exact only for imported entries.
    """

    position: Position | None
    entry_time_ms: int | None
    entries_read: int
    ledgers_pruned: int
    ledgers_scanned: int
    ledgers_without_index: tuple[int, ...] = ()
    unreadable: int = 0


def find_first_at_or_after(reader: EntryReader, topic: Topic, time_ms: int, clock: Clock) -> Found:
    """Return the first entry of a topic whose time is ``time_ms`` or later."""
    pruned, scanned, read, unreadable = 0, 0, 0, 0
    without: list[int] = []
    for ledger_id, ledger in zip(topic.ids, topic.ledgers, strict=True):
        if not ledger.entries:
            continue
        row = reader.txn.view("times", ledger_key(ledger_id))
        if row is None:
            from pulsar_admin.store.model.publish_times import is_stated_earlier  # nearly every ledger has a row

            if is_stated_earlier(reader.txn, topic, ledger, time_ms, clock):
                pruned += 1
            else:
                without.append(ledger_id)
            continue
        if decode_latest(ledger_id, row, clock) < time_ms:
            pruned += 1
            continue
        first_block = first_candidate(decode_times(ledger_id, row), time_ms, clock)
        assert first_block is not None  # the largest time is not before TIME_MS
        scanned += 1
        first, look = None, _Look(reader, time_ms, clock)
        for block in iter_blocks(reader.txn, ledger_id, first_block << BLOCK_BITS):
            first = look.into(block, ledger.entries)
            if first is not None:
                break
        read, unreadable = read + look.read, unreadable + look.unreadable
        if first is not None:
            return Found(*first, read, pruned, scanned, tuple(without), unreadable)
    return Found(None, None, read, pruned, scanned, tuple(without), unreadable)


class _Look:
    """Searches blocks for the first entry that is late enough, and counts the entries read."""

    def __init__(self, reader: EntryReader, time_ms: int, clock: Clock) -> None:
        self._reader = reader
        self._question = (time_ms, clock)
        self.read = 0
        self.unreadable = 0

    def into(self, block: Block, entries: int) -> tuple[Position, int] | None:
        """Return (position, time) of the first match in a block among the ledger's first ``entries`` entries, None without a match."""
        time_ms, clock = self._question
        if block_max(block, clock) < time_ms:
            return None
        earliest_ms = block_min(block, clock)
        for entry_id, found_ms in iter_block_times(self._reader, block, clock):
            if entry_id >= entries:
                break
            self.read += 1
            entry_ms = NO_MAX if found_ms is None else found_ms
            is_late, is_asked = entry_ms >= time_ms, is_doubtful(found_ms, earliest_ms, clock)
            if (is_late or is_asked) and self._is_sound(block.ledger_id, entry_id) and is_late:
                return Position(block.ledger_id, entry_id), entry_ms
        return None

    def _is_sound(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the whole entry has a good digest: its header was read without it."""
        try:
            self._reader.read(ledger_id, entry_id)
        except EntryCorrupt:
            self.unreadable += 1
            return False
        return True


def find_by_event_time(reader: EntryReader, topic: Topic, time_ms: int) -> Found:
    """Return the first message of a topic whose event time is ``time_ms`` or later; reads messages from the start on.

    Event times are set by producers and not indexed. A message without one is skipped, an encrypted batch counts with
    its entry's event time.
    """
    from pulsar_admin.store.codec.buffer import signed
    from pulsar_admin.store.model.messages import MessageReader, ReadOptions

    messages = MessageReader(reader, ReadOptions(committed=False))
    read, last = 0, None
    for message in messages.iter_messages(topic.iter_positions(topic.first_position)):
        read += message.position.entry != last
        last = message.position.entry
        if message.event_ms and signed(message.event_ms) >= time_ms:
            return Found(
                message.position, signed(message.event_ms), read, 0, len(topic.ids), (), count_damaged(messages.errors)
            )
    return Found(None, None, read, 0, len(topic.ids), (), count_damaged(messages.errors))


def count_damaged(errors: Iterable[StoreError]) -> int:
    """Return how many of the errors concern imported entries; missing entries are counted from the index."""
    return sum(not isinstance(error, EntryNotFound | LedgerNotFound) for error in errors)


def texts_of_clock(reader: EntryReader, topic: Topic, clock: str) -> list[str]:
    """Return warnings for a search by this clock: entries without a broker time, which clock ``broker`` skips."""
    if clock != "broker":
        return []
    times = [read for ledger_id in topic.ids if (read := find_times(reader.txn, ledger_id)) is not None]
    entries = sum(row.sums.entries for row in times)
    without = entries - sum(row.sums.broker_count for row in times)
    if not without:
        return []
    return [
        f"{topic.name}: {without:,} of {counted(entries, 'entry')} {plural(without, 'carries', 'carry')} no broker time: "
        "--clock broker skips them, --clock auto takes their publish time"
    ]
