"""Where in a topic is a time: the question, its three rules, the answer. What ``topics find-by-time`` and the API ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

from store.db.clocks import check_clock
from store.db.files import catalogued_bytes
from store.frozen import frozen
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position
from store.search.broker_setup import DEFAULT_BROKER, BrokerSetup, Probe
from store.search.by_time import Found, find_by_event_time, find_first_at_or_after
from store.wording import counted

if TYPE_CHECKING:
    from store.search.explain import Explanation
    from store.search.unindexed import ScanFound

EVENT = "event"
FindRule = Literal["first-at-or-after", "all-before", "broker"]
FIRST: FindRule = "first-at-or-after"
BEFORE: FindRule = "all-before"
BROKER: FindRule = "broker"
Advance = Callable[[int], None]
OpenProgress = Callable[[int], AbstractContextManager[Advance]]
"""Shows how far a scan of so many bytes is: opened with their number, told each part of them."""


def no_progress(size_bytes: int) -> AbstractContextManager[Advance]:
    """Show nothing."""
    return nullcontext(lambda count: None)


@frozen
class TimeQuestion:
    """Which time, on which clock (auto, publish, broker, event), by which rule; BROKER: whom that rule asks.

    ``batch_index``: name the message in its batch, not only the entry.
    """

    time_ms: int
    clock: str = "auto"
    rule: FindRule = FIRST
    broker: BrokerSetup = DEFAULT_BROKER
    batch_index: bool = False


@frozen
class TimeAnswer:
    """``position`` None: nothing is there. ``found``: what the search read. ``scanned``: the files, where the index was not enough."""

    position: Position | None
    entry_time_ms: int | None
    found: Found
    scanned: ScanFound | None = None


@frozen
class BrokerTimeAnswer:
    """What a broker answers. ``forgotten``: a ledger that loading the topic forgets. ``compacted_ledger``: the one it searched."""

    position: Position
    entry_time_ms: int | None
    entries_read: int
    probes: tuple[Probe, ...]
    compacted_ledger: int | None
    forgotten: int | None


def find_by_time(
    reader: EntryReader, topic: Topic, question: TimeQuestion, progress: OpenProgress = no_progress
) -> TimeAnswer:
    """Return the answer of rule ``first-at-or-after`` or ``all-before``, exact on clocks that run backwards.

    Where ledgers are in no index and READER has an engine, the files are scanned for their entries, with PROGRESS. Raises
    InvalidValue for an unknown clock, SliceFailed.
    """
    found, scanned = _search(reader, topic, question, progress)
    if question.rule == FIRST:
        position = found.position
        if position is not None and question.batch_index:
            position = _in_batch(reader, position)
        return TimeAnswer(position, found.entry_time_ms, found, scanned)
    before = topic.last_confirmed if found.position is None else topic.previous(found.position.entry)
    return TimeAnswer(before if before.entry_id >= 0 else None, None, found, scanned)


def gaps_before(topic: Topic, found: Found) -> list[str]:
    """Return what could hold an answer earlier than FOUND and was not read, in words; empty: nothing."""
    gaps = []
    if found.ledgers_without_index:
        ledgers = ", ".join(map(str, found.ledgers_without_index))
        gaps.append(f"{topic.name}: no entry of ledgers {ledgers} is in the index: an earlier answer could lie there")
    if found.unreadable:
        damaged = counted(found.unreadable, "damaged entry")
        gaps.append(f"{topic.name}: {damaged} passed over: an earlier answer could be there")
    return gaps


def find_as_broker(reader: EntryReader, topic: Topic, question: TimeQuestion) -> BrokerTimeAnswer:
    """Return what the broker of QUESTION answers, by its own clock; raises LedgerNotFound where it fails."""
    from store.search.broker import BrokerSearch  # 1 ms, and only this rule asks a broker

    search = BrokerSearch(reader, topic, question.broker)
    answer = search.message_id_by_time(question.time_ms)
    return BrokerTimeAnswer(
        answer,
        search.time_at(answer),
        search.entries_read,
        tuple(search.probes),
        search.used_compacted_ledger,
        search.forgotten,
    )


def explain_answer(reader: EntryReader, topic: Topic, question: TimeQuestion, found: Found) -> Explanation:
    """Return why FOUND answers QUESTION, and the answer of its broker."""
    from store.search.explain import explain

    # Event times are not indexed: the proof then speaks of the broker's own clock.
    clock = check_clock("auto" if question.clock == EVENT else question.clock)
    return explain(reader, topic, question.time_ms, clock, found, question.broker)


def _search(
    reader: EntryReader, topic: Topic, question: TimeQuestion, progress: OpenProgress
) -> tuple[Found, ScanFound | None]:
    if question.clock == EVENT:
        return _find_event(reader, topic, question.time_ms), None
    found = find_first_at_or_after(reader, topic, question.time_ms, check_clock(question.clock))
    if reader.engine is None or not found.ledgers_without_index:
        return found, None
    scanned = _scan_too(reader, found, question, progress)
    if scanned.position is None or (found.position is not None and found.position < scanned.position):
        return found, scanned
    return found._replace(position=scanned.position, entry_time_ms=scanned.time_ms), scanned


def _find_event(reader: EntryReader, topic: Topic, time_ms: int) -> Found:
    from store.model.window import Window
    from store.search.window import is_small

    if is_small(reader.txn, topic, Window(start_ms=time_ms, clock=EVENT), None):
        return find_by_event_time(reader, topic, time_ms)
    from store.dump.reading import find_event_time

    return find_event_time(reader, topic, time_ms)


def _scan_too(reader: EntryReader, found: Found, question: TimeQuestion, progress: OpenProgress) -> ScanFound:
    """Look for the entries of ledgers without an index in the files themselves."""
    from store.search.unindexed import find_unindexed

    assert reader.engine is not None
    with progress(catalogued_bytes(reader.txn)) as advance:
        clock = check_clock(question.clock)
        return find_unindexed(reader.engine, reader.txn, advance, found.ledgers_without_index, question.time_ms, clock)


def _in_batch(reader: EntryReader, position: Position) -> Position:
    """Name the first message of a batch: all of its messages have the entry's publish and broker time."""
    from store.codec.message import decode_message_entry, is_batch

    if position.batch_index >= 0:
        return position
    header = decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
    return Position(position.ledger_id, position.entry_id, 0) if is_batch(header.metadata) else position
