"""Facts of a subscription, or of another durable cursor, each gathered when it is first asked for.

Upstream (4.0.8): ``ManagedCursorImpl.recover``, ``OpReadEntry``, ``PersistentTopic.checkMessageExpiry``, ``MLPendingAckStore``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown, fact
from pulsar_admin.store.facts.clocks import Clocks
from pulsar_admin.store.facts.delays import NotDue, TtlConflict, find_ttl_conflict
from pulsar_admin.store.facts.pending_acks import PendingAckLog, read_pending_ack_log
from pulsar_admin.store.model.broken import NOT_SEEN, BrokenLedger
from pulsar_admin.store.model.coverage import absent_of
from pulsar_admin.store.model.cursors import (
    Cursor,
    Extent,
    Intervals,
    extent_of,
    is_consumed,
    is_own,
    normal_ranges,
    pending_intervals,
    subtract,
)
from pulsar_admin.store.model.transactions import Buffer, read_pending_acks
from pulsar_admin.store.names import PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX, Position
from pulsar_admin.store.policies.in_force import MessageTtl, find_delivery, may_delay

if TYPE_CHECKING:
    from pulsar_admin.store.facts.chunks import CutMessage
    from pulsar_admin.store.facts.front import Front
    from pulsar_admin.store.facts.markers import Contents
    from pulsar_admin.store.facts.topics import TopicFacts
    from pulsar_admin.store.search.pending import FutureDated


class Loss(Struct, frozen=True):
    """The first entries of a backlog that no broker can read, in the ledger ``broken``: the run from ``first`` to ``last``.

    ``end``: the rank behind that run; ``entries``: all of the backlog that this ledger lost; ``entries_before``: of the backlog before it.
    """

    broken: BrokenLedger
    first: Position
    last: Position
    end: int
    entries: int
    entries_before: int


class Overdue(Struct, frozen=True):
    """What of a backlog a broker drops by the TTL when it next looks, through the entry ``through``."""

    extent: Extent
    through: Position


def _count(intervals: Intervals) -> int:
    return sum(end - start for start, end in intervals)


class SubscriptionFacts:
    """What one snapshot says of a subscription, or of another durable cursor, of a topic."""

    def __init__(self, topic: TopicFacts, cursor: Cursor) -> None:
        self.of = topic
        self.cursor = cursor

    @fact
    def where(self) -> str:
        """The topic and the subscription."""
        return f"{self.of.topic.name} {self.cursor.name}"

    @property
    def is_consumed(self) -> bool:
        """Whether consumers read by it: neither the broker's own cursor, nor a replicator's."""
        return is_consumed(self.cursor.name)

    # -- where it stands ----------------------------------------------------------------------------------------------

    @fact
    def cursor_bookies(self) -> tuple[str, ...]:
        """The bookies that are not imported and may have a newer state of it than what is shown."""
        return absent_of(self.of.reader.txn, self.cursor.info.cursors_ledger_id) if self.cursor.is_incomplete else ()

    @fact
    def ahead(self) -> Position | None:
        """Where it is stored, if that is ahead of the topic; None also where a bookie that is not imported may have what is between."""
        stored, last = self.cursor.ahead, self.of.topic.ids[-1:]
        if stored is None or stored.ledger_id not in last:
            return stored
        return None if any(one.ledger_id in last and one.not_seen() for one in self.of.broken) else stored

    @fact
    def pending(self) -> Intervals:
        """The ranks of the topic's entries that are not acknowledged, as (first, end) with the end excluded."""
        return pending_intervals(self.of.topic, self.cursor.state, self.acknowledged)

    @fact
    def pending_entries(self) -> int:
        """How many entries are not acknowledged."""
        return _count(self.pending)

    @fact
    def backlog(self) -> Extent:
        """How much is not acknowledged: entries, messages (those of batches counted) and bytes."""
        return extent_of(self.of.reader.txn, self.of.topic, self.pending)

    @fact
    def acknowledged(self) -> Intervals:
        """The ranks that are acknowledged one by one, after the mark-delete position."""
        return normal_ranges(self.of.topic, self.cursor.state) if self.cursor.state.ranges else ()

    @fact
    def holes(self) -> Intervals:
        """The ranks that are not acknowledged, before others that are."""
        done = self.acknowledged
        return tuple((start, end) for start, end in self.pending if done and end <= done[-1][0])

    @fact
    def acknowledged_entries(self) -> int:
        """How many entries are acknowledged one by one."""
        return _count(self.acknowledged)

    @fact
    def hole_entries(self) -> int:
        """How many entries are not acknowledged, before others that are."""
        return _count(self.holes)

    # -- the entry to be given next -----------------------------------------------------------------------------------

    @fact
    def oldest(self) -> Position | None:
        """The first entry that is not acknowledged."""
        return self.of.topic.at_rank(self.pending[0][0]) if self.pending else None

    @fact
    def holds_messages(self) -> bool:
        """Whether the topic's entries are messages, not the records of a log of transactions."""
        local = self.of.topic.name.base.local_name
        return not local.startswith(TRANSACTION_LOG_PREFIX) and not local.endswith(PENDING_ACK_SUFFIX)

    @fact
    def front(self) -> Front | Unknown | None:
        """The message to be given next; None without a backlog, and for records that are no messages."""
        if self.oldest is None or not self.holds_messages:
            return None
        from pulsar_admin.store.facts.front import read_front  # all of messages

        try:
            return read_front(self.of.reader, self.cursor.state, self.oldest)
        except StoreError as error:  # a file that is gone or another one, too
            return Unknown.of(error)

    @fact
    def cut_message(self) -> CutMessage | None:
        """The chunked message that its backlog begins in the middle of; None where it does not, or that would read too much."""
        if not self.may_look_at_edges:
            return None
        from pulsar_admin.store.facts.chunks import find_cut  # all of messages

        return find_cut(self.of.reader, self.of.topic, self.pending)

    @fact
    def contents(self) -> Contents | Unknown | None:
        """What its backlog consists of; None without a backlog, without a marker at its ends, or where that would read too much."""
        if not self.may_look_at_edges:
            return None
        from pulsar_admin.store.facts.markers import has_marker_at_edges

        of = self.of
        if not of.budget.unlimited and not has_marker_at_edges(of.reader, of.topic, self.pending):
            return None
        return self.headers if of.budget.take(self.pending_entries) else None

    @fact
    def headers(self) -> Contents | Unknown:
        """What all headers of its backlog say."""
        from pulsar_admin.store.facts.markers import read_contents

        try:
            return read_contents(self.of.reader, self.of.topic, self.pending, self.of.now_ms)
        except StoreError as error:
            return Unknown.of(error)

    @fact
    def messages(self) -> int:
        """How many messages clients get of its backlog: of what ``contents`` knows, markers are none, and the chunks of one are one."""
        known = self.contents
        return self.backlog.messages - (
            0 if known is None or isinstance(known, Unknown) else known.markers + known.parts
        )

    @fact
    def may_look_at_edges(self) -> bool:
        """Whether the entries at the ends of its backlog may be read: consumers wait for messages there, and not too many were read."""
        if not self.of.budget.has_edges or not self.is_consumed or self.of.topic.name.is_system:
            return False
        return self.holds_messages and bool(self.pending) and self.of.budget.take_edges()

    # -- what cannot be read ------------------------------------------------------------------------------------------

    @fact
    def loss(self) -> Loss | None:
        """The first entries of the backlog that no broker can read: a broker gets so far."""
        topic, pending = self.of.topic, self.pending
        for broken in self.of.broken if pending else ():
            rank = topic.rank(Position(broken.ledger_id, 0))
            lost = tuple((rank + first, rank + last + 1) for first, last in broken.lost)
            hit = subtract(pending, subtract(pending, lost))
            if hit:
                start, end = hit[0]
                before = sum(min(stop, start) - low for low, stop in pending if low < start)
                return Loss(broken, topic.at_rank(start), topic.at_rank(end - 1), end, _count(hit), before)
        return None

    @fact
    def unseen(self) -> tuple[BrokenLedger, ...]:
        """The ledgers of the backlog of which bookies that are not imported may have more."""
        if not self.pending:
            return ()
        topic, first = self.of.topic, self.pending[0][0]
        return tuple(
            broken
            for broken in self.of.broken
            if broken.not_seen() and topic.rank(Position(broken.ledger_id, broken.entries)) > first
        )

    @fact
    def is_oldest_lost(self) -> bool:
        """Whether the oldest entry is lost, or not seen."""
        oldest = self.oldest
        return oldest is not None and any(
            broken.holds(oldest) or (broken.reason == NOT_SEEN and broken.ledger_id == oldest.ledger_id)
            for broken in self.of.broken
        )

    # -- transactions -------------------------------------------------------------------------------------------------

    @fact
    def buffer(self) -> Buffer | Unknown:
        """The transactions that the topic's entries tell of; the entries are read only where a transaction ever wrote to it."""
        front = self.front
        if self.of.may_have_transactions or (getattr(front, "transaction", None) is not None):
            return self.of.buffer
        return Buffer()

    @fact
    def pending_ack_log(self) -> PendingAckLog | Unknown | None:
        """The log of what transactions acknowledged on it; None where none ever did."""
        if not self.is_consumed:
            return None
        try:
            return read_pending_ack_log(self.of.reader, self.of.topic.name, self.cursor.name)
        except StoreError as error:
            return Unknown.of(error)

    @fact
    def pending_acks(self) -> Mapping[TxnId, Position | None] | Unknown:
        """The open transactions with acknowledgements of it, and the position of a cumulative one.

        None of a log that no broker can replay: those that are open before the loss may have ended after it.
        """
        log = self.pending_ack_log
        if log is None or isinstance(log, Unknown) or not log.is_replayed:
            return log if isinstance(log, Unknown) else {}
        try:
            return read_pending_acks(self.of.reader, self.of.topic.name, self.cursor.name) or {}
        except StoreError as error:
            return Unknown.of(error)

    # -- delays and TTL -----------------------------------------------------------------------------------------------

    @fact
    def not_due(self) -> NotDue | Unknown:
        """The entries of the backlog that wait for their time, none where delayed delivery is disabled; reads all headers of it."""
        if not self.holds_messages or not self.pending:
            return NotDue(0, None, None)
        try:
            in_force = find_delivery(self.of.reader.txn, self.of.topic.name)
        except StoreError as error:
            return Unknown.of(error)
        if in_force is not None and not in_force.delivery.active:
            return NotDue(0, None, None)
        return self.headers if isinstance(self.headers, Unknown) else self.headers.not_due

    @property
    def may_expire(self) -> bool:
        """Whether brokers expire anything of it: not of their own cursors, nor of system topics."""
        return not is_own(self.cursor.name) and not self.of.topic.name.is_system

    @fact
    def ttl(self) -> MessageTtl | Unknown | None:
        """The TTL that expires its backlog; None where nothing does, or nothing is left."""
        return self.of.message_ttl if self.may_expire and self.pending else None

    @fact
    def future_dated(self) -> FutureDated | Unknown | None:
        """The entries of the backlog that are dated after now by more than clocks may differ: no TTL reaches them before.

        None without a TTL.
        """
        if self.ttl is None or isinstance(self.ttl, Unknown):
            return self.ttl
        from pulsar_admin.store.search.pending import PendingSearch, read_future_dated  # all of searches

        search = PendingSearch(self.of.reader, self.of.topic, self.cursor.state, "auto")
        try:
            return read_future_dated(search, self.of.now_ms + Clocks.TOLERANCE_MS)
        except StoreError as error:
            return Unknown.of(error)

    @fact
    def overdue(self) -> Overdue | Unknown | None:
        """What the TTL in force drops when a broker next looks; None for nothing."""
        if self.ttl is None or isinstance(self.ttl, Unknown):
            return self.ttl
        from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER
        from pulsar_admin.store.search.expiry import broker_through

        topic, reader = self.of.topic, self.of.reader
        try:
            through = broker_through(
                reader, topic, self.cursor, self.of.now_ms - self.ttl.seconds * 1000, DEFAULT_BROKER
            )
        except StoreError as error:
            return Unknown.of(error)
        if through is None:
            return None
        end = topic.place(through)
        gone = ((low, min(high, end)) for low, high in self.pending if low < end)
        return Overdue(extent_of(reader.txn, topic, gone), through)

    @fact
    def ttl_conflict(self) -> TtlConflict | Unknown | None:
        """What the TTL in force drops of its backlog before it is due; None where it drops nothing, or that would read too much."""
        topic = self.of
        if not self.is_consumed or self.ttl is None or isinstance(self.ttl, Unknown):
            return None
        if not may_delay(topic.reader.txn, topic.topic.name) or not topic.budget.take(self.pending_entries):
            return None
        if isinstance(self.not_due, Unknown):
            return self.not_due
        if not self.not_due.entries:
            return None
        try:
            found = find_ttl_conflict(topic.reader, topic.topic, self.cursor)
        except StoreError as error:
            return Unknown.of(error)
        return found if found is not None and found.messages else None
