"""Reads a part of a topic: between positions, between times, or with one key; losses on the way are reported.

Times prune by the time index: blocks without an entry in the window are not read. The window is exact on clocks that run
backwards, it takes every entry whose own time lies in it. Event times belong to messages and are not indexed: they are compared
message by message.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec.structs import replace

from pulsar_admin.store.db.blocks import BLOCK_BITS, Block, LedgerTimes
from pulsar_admin.store.db.clocks import Clock, block_max, block_min, check_clock, first_candidate
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import EntryNotFound, NotWritable, SourceChanged, StoreError
from pulsar_admin.store.model.cursors import Extent, extent_of
from pulsar_admin.store.model.entry_times import iter_block_times
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions, Window
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import EARLIEST, LATEST, LONG_MAX, Position
from pulsar_admin.store.wording import counted, plural

SMALL_MESSAGES, SMALL_BYTES, SMALL_HEADS = 4096, 16 << 20, 1 << 14
"""Up to this many entries (of a time window: heads) are read one by one, rather than import the libraries that read columns."""


def is_small(txn: Txn, topic: Topic, window: Window, limit: int | None) -> bool:
    """Whether the window, or its first ``limit`` messages, are so few that reading them one by one is cheaper than a scan."""
    if window.is_timed:
        return _is_small_timed(txn, topic, window, limit)
    if limit is not None and limit <= SMALL_MESSAGES and not window.chooses:
        return True
    first = topic.last_confirmed if window.first == LATEST else window.first.entry
    end = topic.rank(Position(window.last.ledger_id, window.last.entry_id + 1))
    return is_few(extent_of(txn, topic, [(min(topic.rank(first), end), end)]), None)


def is_few(extent: Extent, limit: int | None) -> bool:
    """Whether an extent, or at most ``limit`` messages from its beginning, is so small that it is read one by one."""
    if limit is not None and limit <= SMALL_MESSAGES:
        return True
    return extent.entries <= SMALL_MESSAGES and extent.messages <= SMALL_MESSAGES and extent.bytes <= SMALL_BYTES


def _is_small_timed(txn: Txn, topic: Topic, window: Window, limit: int | None) -> bool:
    """Whether a window of times needs few headers and has few messages, assuming that times are spread evenly in each block."""
    start_ms, end_ms = window.times
    clock = check_clock(window.clock)
    heads = messages = size_bytes = 0.0
    wanted = LONG_MAX if limit is None or window.chooses else limit
    for block in _iter_all_blocks(txn, topic, window):
        header, low, high = block.header, block_min(block, clock), block_max(block, clock) + 1
        share = (min(high, end_ms) - max(low, start_ms)) / (high - low)
        heads += header.entries
        messages += share * header.messages
        size_bytes += share * header.payload_bytes
        if heads > SMALL_HEADS or messages > SMALL_MESSAGES or size_bytes > SMALL_BYTES:
            return False
        if messages >= wanted:
            break
    return True


def _iter_all_blocks(txn: Txn, topic: Topic, window: Window) -> Iterator[Block]:
    """Yield the blocks of a topic that may hold an entry of the window."""
    for ledger in _listed(topic, window):
        times = find_times(txn, ledger.ledger_id)
        if times is not None:
            yield from _iter_blocks(txn, ledger, times, window)


def _listed(topic: Topic, window: Window) -> Iterator[TopicLedger]:
    """Yield the ledgers with entries between the window's positions."""
    first = topic.last_confirmed if window.first == LATEST else window.first
    for ledger in topic.ledgers:
        if ledger.entries and first.ledger_id <= ledger.ledger_id <= window.last.ledger_id:
            yield ledger


def iter_window(
    reader: EntryReader, topic: Topic, window: Window, options: ReadOptions, problems: list[StoreError]
) -> Iterator[Message]:
    """Yield the messages of a topic in a window, in topic order; failures are added to ``problems`` as they occur.

    The reader's progress gets the bytes of payloads read or, in a window of times, the bytes searched for times.
    """
    first = topic.last_confirmed if window.first == LATEST else window.first
    options = replace(options, whole=first.entry == EARLIEST and not window.is_timed)
    messages = MessageReader(reader, options, lambda: topic.iter_positions(first), problems)
    if window.is_timed:
        positions = _iter_timed(reader, topic, window, problems)
    else:
        positions = takewhile(lambda position: position <= window.last.entry, topic.iter_positions(first))
    for message in messages.iter_messages(positions):
        if window.holds(message):
            reader.advance(0 if window.is_timed else len(message.payload))
            yield message


def _iter_timed(reader: EntryReader, topic: Topic, window: Window, problems: list[StoreError]) -> Iterator[Position]:
    """Yield the entries of the window's ledgers whose time lies in it."""
    first = topic.last_confirmed if window.first == LATEST else window.first
    for ledger in _listed(topic, window):
        times = find_times(reader.txn, ledger.ledger_id)
        missing = ledger.entries - (times.sums.entries if times else 0)
        if missing > 0:
            problems.append(
                EntryNotFound(
                    f"ledger {ledger.ledger_id}: {missing:,} of {counted(ledger.entries, 'entry')} {plural(missing, 'is', 'are')} "
                    "in no imported file; some may be in the window",
                    hint=f"see: pulsar-admin ledgers info {ledger.ledger_id}",
                    ledgerId=ledger.ledger_id,
                )
            )
        if times is not None:
            blocks = _iter_blocks(reader.txn, ledger, times, window)
            entry_times = _iter_times(reader, blocks, check_clock(window.clock))
            start_ms, end_ms = window.times
            for entry_id, entry_ms in entry_times:
                if entry_ms is not None and start_ms <= entry_ms < end_ms and entry_id < ledger.entries:
                    position = Position(ledger.ledger_id, entry_id)
                    if first.entry <= position <= window.last.entry:
                        yield position


def _iter_times(reader: EntryReader, blocks: Iterable[Block], clock: Clock) -> Iterator[tuple[int, int | None]]:
    """Yield (entry id, time) of the entries of ``blocks``; entries in an unreadable file are added to the reader's ``failed``."""
    for block in blocks:
        try:
            yield from iter_block_times(reader, block, clock)
        except (SourceChanged, NotWritable) as error:
            from pulsar_admin.store.scan.places import Places, note_failure  # brings numpy, which good files do without

            assert reader.failed is not None
            note_failure(reader.failed, Places.of(block, 0, len(block)), error)
        reader.advance(sum(block.sizes()))


def _iter_blocks(txn: Txn, ledger: TopicLedger, times: LedgerTimes, window: Window) -> Iterator[Block]:
    """Yield the blocks of a ledger that may hold an entry of the window."""
    clock = check_clock(window.clock)
    start_ms, end_ms = window.times
    first = first_candidate(times, start_ms, clock)
    if first is None:
        return
    minima = {"publish": times.publish_min, "auto": times.auto_min}.get(clock)
    # From this block on everything is younger; entries without a broker time are on no column.
    end = times.sums.first_block + (times.blocks if minima is None else bisect_left(minima, end_ms))
    for block in iter_blocks(txn, ledger.ledger_id, first << BLOCK_BITS):
        if block.entry_id(0) >> BLOCK_BITS >= end:
            return
        if block_max(block, clock) >= start_ms and block_min(block, clock) < end_ms:
            yield block
