"""Finds the position of a time in a topic by one of three rules, for ``topics find-by-time`` and the API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.db.files import catalogued_bytes
from pulsar_admin.store.errors import StoreError, check_choice
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, is_whole, may_be_broken
from pulsar_admin.store.names import Position
from pulsar_admin.store.search.broker_setup import BrokerSetup, Probe
from pulsar_admin.store.search.by_time import Found, find_by_event_time, find_first_at_or_after
from pulsar_admin.store.wording import Answer, counted

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_admin.store.compaction.reading import FoundInView
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.scan.unindexed import ScanFound
    from pulsar_admin.store.search.doubts import Doubt
    from pulsar_admin.store.search.explain import BlockRead, BrokerAnswer, LedgerAnswer, LedgersLeftOut, Neighbour

EVENT = "event"
FindRule = Literal["first-at-or-after", "all-before", "broker"]
FIRST: FindRule = "first-at-or-after"
BEFORE: FindRule = "all-before"
BROKER: FindRule = "broker"
Advance = Callable[[int], None]
OpenProgress = Callable[[int], AbstractContextManager[Advance]]
"""Shows how far a scan of so many bytes is: opened with their number, told each part of them."""


class TimeQuestion(Struct, frozen=True):
    """A time to find, the clock (auto, publish, broker, event) and the rule; ``broker``: the broker that the rule ``broker``
    imitates.

    ``batch_index``: also find the message in its batch, not only the entry.
    """

    time_ms: int
    clock: str
    rule: FindRule
    broker: BrokerSetup
    batch_index: bool

    def __post_init__(self) -> None:
        """Raise InvalidValue for an unknown rule."""
        check_choice("rule", self.rule, FindRule)


class FoundEntry(Answer, frozen=True):
    """The position of a time in a topic, and what was read to find it.

    ``position``: None where nothing is at or after the time. ``entry_time_ms``: the entry's own time on the clock. ``exact``: whether it
    is the first entry at or after the time (rule ``all-before``: the entry before that one), whatever is lost; None: not known, as what is
    not imported may hold an earlier one. Of rule ``broker``: whether a broker is certain to give this answer, whatever is lost before it;
    None: not known, as the last ledger may have more than is imported, on which its probes depend.
    ``doubts``: what is lost or not seen before the answer; ``unreadable``: damaged entries there.
    ``ledgers_without_index``: ledgers before the answer without a readable entry.
    ``scanned``: the files that were read because no index covers them. Of rule ``broker``: ``broker_version``; ``compacted_ledger``, the
    one that it searched; ``forgotten``, a ledger that loading the topic forgets. ``probes``: the entries that a broker looked at (rule
    ``broker``, and with a proof). The rest is the proof that is asked for: ``broker``, what one would answer and why; ``ledgers``,
    ``neighbours``, ``block``.
    """

    JSON_HIDDEN = ("doubts", "unreadable", "scanned", "forgotten")
    JSON_OPTIONAL = ("broker_version", "broker")
    JSON_WITH: ClassVar = {
        **dict.fromkeys(("compacted_ledger", "probes"), "broker_version"),
        **dict.fromkeys(("ledgers", "ledgers_left_out", "block", "neighbours"), "broker"),
    }
    JSON_OF_TOPIC = True

    SHOWN = ("topic", "position", "entry_time_ms", "exact", "entries_read")

    topic: str
    time_ms: int
    clock: str
    rule: str
    broker_version: str | None
    position: Position | None
    exact: bool | None
    entry_time_ms: int | None
    entries_read: int
    ledgers_pruned: int
    ledgers_scanned: int
    ledgers_without_index: tuple[int, ...] = ()
    compacted_ledger: int | None = None
    probes: tuple[Probe, ...] = ()
    broker: BrokerAnswer | None = None
    ledgers: tuple[LedgerAnswer, ...] = ()
    ledgers_left_out: tuple[LedgersLeftOut, ...] = ()
    block: BlockRead | None = None
    neighbours: tuple[Neighbour, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    unreadable: int = 0
    scanned: ScanFound | None = None
    forgotten: int | None = None

    @property
    def entry_time(self) -> datetime | None:
        """The entry's time in UTC; None where it has none, or one that no calendar holds."""
        from pulsar_admin.store.timespec import moment

        return moment(self.entry_time_ms)


def find_entry(
    reader: EntryReader, topic: Topic, question: TimeQuestion, *, explain: bool, progress: OpenProgress
) -> FoundEntry:
    """Return the answer to a question in a topic, with ``explain`` its proof; the first two rules are exact on clocks that run backwards.

    Where ledgers are in no index and the reader has an engine, the files are scanned for their entries, with
    ``progress``. Raises InvalidValue for an unknown clock, SliceFailed, and if a broker fails what ``BrokerSearch``
    raises.
    """
    if question.rule == BROKER:
        answer, exact = _find_as_broker(reader, topic, question)
    else:
        first, scanned = _search(reader, topic, question, progress)
        answer, exact = _found(reader, topic, question, first, scanned), first.position
    if not explain:
        return answer
    from pulsar_admin.store.search.explain import explain as explain_time

    # Event times are not indexed: the proof then speaks of the broker's own clock.
    clock = check_clock("auto" if question.clock == EVENT else question.clock)
    proof = explain_time(reader, topic, question.time_ms, clock, exact, question.broker)
    return replace(
        answer,
        probes=answer.probes or proof.broker.probes,
        broker=proof.broker,
        ledgers=proof.ledgers,
        ledgers_left_out=proof.left_out,
        neighbours=proof.neighbours,
        block=proof.block,
    )


def _found(
    reader: EntryReader, topic: Topic, question: TimeQuestion, found: Found, scanned: ScanFound | None
) -> FoundEntry:
    doubts: tuple[Doubt, ...] = ()
    if may_be_broken(reader.txn, topic) or any(ledger.info.offloaded for ledger in topic.ledgers):
        from pulsar_admin.store.search.doubts import find_doubts  # nearly every topic is whole

        held = {} if scanned is None else scanned.held
        doubts = find_doubts(reader.txn, topic, found.position, question.time_ms, question.clock, held)
    position, entry_time_ms = found.position, found.entry_time_ms
    if question.rule == BEFORE:
        before = topic.last_confirmed if position is None else topic.previous(position.entry)
        position, entry_time_ms = before if before.entry_id >= 0 else None, None
    elif position is not None and question.batch_index and position.batch_index < 0:
        from pulsar_admin.store.codec.message import decode_message_entry, is_batch

        # The first message of a batch: all of its messages have the entry's publish and broker time.
        header = decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
        if is_batch(header.metadata):
            position = Position(position.ledger_id, position.entry_id, 0)
    is_broken = bool(found.unreadable) or any(doubt.lost for doubt in doubts)
    return FoundEntry(
        str(topic.name),
        question.time_ms,
        question.clock,
        question.rule,
        None,
        position,
        False if is_broken else None if doubts else True,
        entry_time_ms,
        found.entries_read,
        found.ledgers_pruned,
        found.ledgers_scanned,
        found.ledgers_without_index,
        doubts=doubts,
        unreadable=found.unreadable,
        scanned=scanned,
    )


def find_in_view(
    reader: EntryReader, topic: Topic, time_ms: int, rule: str, problems: list[StoreError]
) -> FoundInView | None:
    """Return the first entry of the compacted ledger published at or after a time, None if the topic was never compacted.

    ``rule`` ``broker`` bisects. Raises MetadataCorrupt, EntryCorrupt.
    """
    from pulsar_admin.store.compaction import reading
    from pulsar_admin.store.model.compacted_view import open_view
    from pulsar_admin.store.search.window import is_few

    view = open_view(reader, topic, problems)
    if view is None:
        return None
    if rule == BROKER:
        return reading.bisect_view(reader, view, time_ms)
    if is_few(reading.view_extent(reader.txn, topic, view), None):
        return reading.find_in_view(reader, view, time_ms)
    from pulsar_admin.store.compaction.entries import find_published

    return find_published(reader, view, time_ms)


def gaps_before(found: FoundEntry) -> list[str]:
    """Return sentences about unread parts that may contain an earlier answer; empty if there are none."""
    if found.exact:
        return []
    gaps = []
    if found.doubts:
        from pulsar_admin.store.search.doubts import text_of_doubts  # nearly every topic is whole

        what = "a broker's probes depend on" if found.rule == BROKER else "an earlier answer could be among"
        gaps.append(f"{found.topic}: {what} {text_of_doubts(found.doubts)}")
    if any(doubt.lost for doubt in found.doubts):
        gaps.append(f"{found.topic}: see the losses with: pulsar-admin ledgers missing")
    bookies = [bookie for doubt in found.doubts for bookie in doubt.bookies]
    if bookies:
        from pulsar_admin.store.model.coverage import bring_hint

        gaps.append(f"{found.topic}: {bring_hint(bookies)}")
    if found.unreadable:
        damaged = counted(found.unreadable, "damaged entry", "damaged entries")
        gaps.append(f"{found.topic}: an earlier answer could be among {damaged} that cannot be read")
    return gaps


def texts_of_answer(txn: Txn, topic: Topic, found: FoundEntry) -> list[str]:
    """Return sentences about what a broker does at the found position, if it cannot read the ledger there."""
    ledger = None if found.position is None else topic.ledger(found.position.ledger_id)
    if ledger is None or is_whole(txn, ledger):
        return []
    from pulsar_admin.store.model.broken import NO_METADATA, find_broken_ledger  # hardly any ledger is

    broken = find_broken_ledger(txn, topic, ledger)
    if broken is None or broken.reason != NO_METADATA:
        return []
    return [f"{topic.name}: ledger {broken.ledger_id}: {broken.what()}: {broken.broker()}"]


def _find_as_broker(reader: EntryReader, topic: Topic, question: TimeQuestion) -> tuple[FoundEntry, Position | None]:
    """Return what the broker of a question answers, by its own clock, and the first entry at or after the time on it."""
    from pulsar_admin.store.search.broker import BrokerSearch  # 1 ms, and only this rule asks a broker

    search = BrokerSearch(reader, topic, question.broker)
    answer = search.message_id_by_time(question.time_ms)
    first = find_first_at_or_after(reader, topic, question.time_ms, "auto")
    doubts: tuple[Doubt, ...] = ()
    # An open last ledger may have more than is imported.
    if topic.ledgers and topic.ledgers[-1].is_open and may_be_broken(reader.txn, topic):
        from pulsar_admin.store.search.doubts import find_doubt  # nearly every topic is whole

        doubt = find_doubt(reader.txn, topic.ledgers[-1], 0, to_end=True)
        doubts = () if doubt is None or doubt.unseen_from is None else (doubt,)
    entry = FoundEntry(
        str(topic.name),
        question.time_ms,
        "auto" if search.used_compacted_ledger is None else "publish",
        question.rule,
        question.broker.rules.release,
        answer,
        None if doubts else True,  # each entry that it looks at could be read, or it had no answer
        search.time_at(answer),
        search.entries_read,
        0,
        len({probe.position.ledger_id for probe in search.probes}),
        compacted_ledger=search.used_compacted_ledger,
        probes=tuple(search.probes),
        doubts=doubts,
        forgotten=search.forgotten,
    )
    return entry, first.position


def _search(
    reader: EntryReader, topic: Topic, question: TimeQuestion, progress: OpenProgress
) -> tuple[Found, ScanFound | None]:
    if question.clock == EVENT:
        from pulsar_admin.store.model.messages import Window
        from pulsar_admin.store.search.window import is_small

        if is_small(reader.txn, topic, Window(start_ms=question.time_ms, clock=EVENT), None):
            return find_by_event_time(reader, topic, question.time_ms), None
        from pulsar_admin.store.dump.job import find_event_time

        return find_event_time(reader, topic, question.time_ms), None
    clock = check_clock(question.clock)
    first = find_first_at_or_after(reader, topic, question.time_ms, clock)
    if reader.engine is None or not first.ledgers_without_index:
        return first, None
    from pulsar_admin.store.scan.unindexed import find_unindexed

    # The entries of ledgers without an index are looked for in the files themselves.
    with progress(catalogued_bytes(reader.txn)) as advance:
        unknown = first.ledgers_without_index
        scanned = find_unindexed(reader.engine, reader.txn, advance, unknown, question.time_ms, clock)
    if scanned.position is None or (first.position is not None and first.position < scanned.position):
        return first, scanned
    return replace(first, position=scanned.position, entry_time_ms=scanned.time_ms), scanned
