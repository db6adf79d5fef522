"""Facts of a topic, and of each of its subscriptions and other durable cursors, each gathered on first use.

Upstream (4.0.8): ``ManagedCursorImpl.recover``, ``OpReadEntry``, ``PersistentTopic.checkMessageExpiry``, ``MLPendingAckStore``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, StoreError
from pulsar_admin.store.facts import Fact, Unknown, backlogs, fact, known, transactions
from pulsar_admin.store.model.broken import NOT_SEEN, BrokenLedger, find_broken
from pulsar_admin.store.model.broken_beside import find_unseen_states
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    DEDUP_CURSOR,
    PENDING_ACK_CURSOR,
    Cursor,
    CursorSource,
    Extent,
    Intervals,
    backlog_size_bytes,
    count_ranks,
    extent_of,
    is_consumed,
    is_own,
    normal_ranges,
    pending_intervals,
    read_cursor,
    read_each_cursor,
    subtract,
)
from pulsar_admin.store.model.ledgers import WholeLedger, find_sums
from pulsar_admin.store.model.nodes import iter_other_cursors
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, may_be_broken
from pulsar_admin.store.model.transactions import Buffer, OpenTransaction, read_buffer, read_pending_acks
from pulsar_admin.store.names import (
    EVENTS,
    PENDING_ACK_SUFFIX,
    PERSISTENT,
    SEGMENT,
    TRANSACTION_LOG_PREFIX,
    Position,
    TopicName,
)
from pulsar_admin.store.policies.events import PolicyEvents, event_topics, find_policy_events
from pulsar_admin.store.policies.in_force import MessageTtl, PoliciesInForce, find_delivery, may_delay, read_in_force
from pulsar_admin.store.policies.quotas import QuotaState, iter_quota_states
from pulsar_admin.store.policies.retention import UNKNOWN_RETENTION, begins_compaction, consumed_ledgers, count_released
from pulsar_admin.store.policies.table import POLICIES
from pulsar_admin.store.policies.values import value_in_force

if TYPE_CHECKING:
    from pulsar_admin.store.facts.next_message import NextMessage
    from pulsar_admin.store.search.before_due import TtlConflict
    from pulsar_admin.store.search.broker_setup import Probe
    from pulsar_admin.store.search.expiry import FutureDated


# -- wrong clocks, as far as the index tells --------------------------------------------------------------------------


class Clocks(Struct, frozen=True):
    """One topic's clocks. ``ahead_ms`` and ``behind_ms``: the largest error of publish times; 0: within the tolerance.

    ``future_now``: a publish time is after now. ``late_ledgers``: ledgers closed in the future, by the broker's clock.
    ``is_stamped``: every entry has a broker's time, by which brokers search and expire, whatever the producers' clocks.
    """

    TOLERANCE_MS: ClassVar[int] = 300_000

    future_ledgers: int = 0
    past_ledgers: int = 0
    ahead_ms: int = 0
    behind_ms: int = 0
    future_now: bool = False
    late_ledgers: int = 0
    late_bytes: int = 0
    latest_close_ms: int = 0
    is_stamped: bool = False


def is_on_time(ledger: WholeLedger, closed_ms: int, opened_ms: int, now_ms: int) -> bool:
    """Whether ``_read_clocks`` would find no clock error in a ledger."""
    latest_ms = now_ms + Clocks.TOLERANCE_MS
    smallest, largest = ledger.publish_min_ms, ledger.publish_max_ms
    if closed_ms > latest_ms or smallest > largest:
        return closed_ms <= latest_ms
    off_ms = max(largest - (closed_ms or now_ms), opened_ms - smallest) if ledger.off_ms is None else ledger.off_ms
    return off_ms <= Clocks.TOLERANCE_MS and largest <= latest_ms


def _read_clocks(txn: Txn, topic: Topic, now_ms: int) -> Clocks:
    """Return the clock errors that the time rows of ``topic`` show; a producer's retry takes less than the tolerance.

    An entry cannot have been published after its ledger was closed, nor before the previous ledger was (a broker closes a ledger
    before it opens the next). Where these times run backwards, a broker's clock was wrong: they say nothing of producers.
    """
    future = past = ahead = behind = late = late_bytes = latest = 0
    future_now, is_stamped = False, True
    opened_ms = last_ms = 0
    closes = [ledger.info.timestamp_ms or now_ms for ledger in topic.ledgers]
    earliest_after = [*accumulate([now_ms, *reversed(closes[1:])], min)][::-1]
    for ledger, earliest_ms in zip(topic.ledgers, earliest_after, strict=False):
        closed_ms = ledger.info.timestamp_ms or 0
        sums = find_sums(txn, ledger.ledger_id)
        if closed_ms > now_ms + Clocks.TOLERANCE_MS:
            late, late_bytes, latest = late + 1, late_bytes + ledger.size_bytes, max(latest, closed_ms)
        if sums is not None and sums.begin_publish_ms is not None:
            is_stamped &= sums.is_stamped
            # How far publish times are after, and before, what is possible: an open ledger's may be up to now.
            if sums.is_stamped:
                over, under = sums.publish_max_ms - sums.broker_max_ms, sums.broker_min_ms - sums.publish_min_ms
            else:
                is_told = closed_ms >= max(last_ms - Clocks.TOLERANCE_MS, 1)
                end_ms = closed_ms if is_told else max(closed_ms, now_ms)
                over, under = sums.publish_max_ms - end_ms, opened_ms - sums.publish_min_ms
            if over > Clocks.TOLERANCE_MS:
                future, ahead = future + 1, max(ahead, over)
            if under > Clocks.TOLERANCE_MS:
                past, behind = past + 1, max(behind, under)
            future_now |= sums.publish_max_ms > now_ms + Clocks.TOLERANCE_MS
        opened_ms = closed_ms if 0 < closed_ms <= earliest_ms else opened_ms
        last_ms = max(last_ms, closed_ms)
    return Clocks(future, past, ahead, behind, future_now, late, late_bytes, latest, is_stamped)


# -- a subscription ---------------------------------------------------------------------------------------------------


class BacklogLoss(Struct, frozen=True):
    """The first unreadable entries of a backlog, those of the ledger ``broken``: the run from ``first`` to ``last``.

    ``end``: the rank after that run; ``entries``: all lost entries of the backlog in this ledger; ``entries_before``: those before it.
    """

    broken: BrokenLedger
    first: Position
    last: Position
    end: int
    entries: int
    entries_before: int


class Overdue(Struct, frozen=True):
    """The part of a backlog that a broker expires at its next TTL check, up to and including the entry ``through``."""

    extent: Extent
    through: Position


class TtlCheck(Struct, frozen=True):
    """A broker's next check of a TTL: the last entry that it expires for every subscription, and the entry at which its search begins."""

    through: Position | None
    start: Probe | None

    @property
    def failed(self) -> bool:
        """Whether the search finds nothing because it cannot read an entry after its first."""
        return self.through is None and self.start is not None and self.start.matches


class SubscriptionFacts:
    """The facts of a topic's subscription, or other durable cursor, in one snapshot. Each is read on first use."""

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
        """The bookies that are not imported and may have a newer state of the cursor."""
        return find_unseen_states(self.of.reader.txn, self.cursor)

    @fact
    def ahead(self) -> Position | None:
        """The stored position if it is ahead of the topic, else None.

        Also None if a bookie that is not imported may have the entries between, and for a log of pending acknowledgements whose replay
        never ends because of it."""
        stored, last = self.cursor.ahead, self.of.topic.ids[-1:]
        if stored is not None and self.cursor.name == PENDING_ACK_CURSOR:
            stored = None if transactions.never_replays(self.of.reader.txn, self.of.topic, stored) else stored
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
        return count_ranks(self.pending)

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
        return subtract(self.pending, ((done[-1][1], self.of.topic.number_of_entries),)) if done else ()

    @fact
    def forgotten_batches(self) -> int:
        """How many batches are partly acknowledged on the subscription and delivered whole by a broker that loads the topic.

        Versions before 5.0 do not read that back from the metadata (``ManagedCursorImpl.recover``; 4.0.8 and 4.2.4 do not, 5.0.1 does).
        """
        if self.cursor.source is not CursorSource.METADATA or not self.cursor.state.batch_deletes:
            return 0
        from pulsar_admin.store.search.broker_setup import RULES, told_version

        version, _ = told_version(self.of.reader.txn)
        return 0 if RULES[version].reads_batch_acks else len(self.cursor.state.batch_deletes)

    @fact
    def acknowledged_entries(self) -> int:
        """How many entries are acknowledged one by one."""
        return count_ranks(self.acknowledged)

    @fact
    def hole_entries(self) -> int:
        """How many entries are not acknowledged, before others that are."""
        return count_ranks(self.holes)

    # -- the entry to be given next -----------------------------------------------------------------------------------

    @fact
    def oldest(self) -> Position | None:
        """The first entry that is not acknowledged."""
        return self.of.topic.at_rank(self.pending[0][0]) if self.pending else None

    @fact
    def holds_messages(self) -> bool:
        """Whether the topic's entries are messages, not the records of a log of transactions."""
        if "__" not in self.of.topic.name.local_name:  # nearly all
            return True
        local = self.of.topic.name.base.local_name
        return not local.startswith(TRANSACTION_LOG_PREFIX) and not local.endswith(PENDING_ACK_SUFFIX)

    @fact
    def next_message(self) -> NextMessage | Unknown | None:
        """The message to be delivered next; None without a backlog, and if the topic's records are not messages."""
        if self.oldest is None or not self.holds_messages:
            return None
        from pulsar_admin.store.facts.next_message import read_next_message  # all of messages

        state, oldest = self.cursor.state, self.oldest
        return Unknown.unless(lambda: read_next_message(self.of.reader, state, oldest))

    @fact
    def cut_message(self) -> backlogs.CutMessage | None:
        """The chunked message in the middle of which the backlog begins; None for none, or if that is unknown."""
        if not self.may_look_at_edges or self.cursor_bookies:
            return None
        return backlogs.find_cut(self.of.reader, self.of.topic, self.pending, known(self.contents))

    @fact
    def contents(self) -> backlogs.Contents | Unknown | None:
        """What the backlog consists of; None without one, if reading it costs too much, or if a sample of a long one has no marker."""
        if not self.may_look_at_edges:
            return None
        of = self.of
        is_short = of.budget.unlimited or self.pending_entries <= _SHORT
        if not is_short and not backlogs.may_be_markers(of.reader, of.topic, self.pending):
            return None
        return self.headers if of.budget.take(self.pending_entries, of.topic.name) else None

    @fact
    def headers(self) -> backlogs.Contents | Unknown:
        """The contents of the backlog, counted from the headers of all its entries."""
        of, pending = self.of, self.pending
        return Unknown.unless(lambda: backlogs.read_contents(of.reader, of.topic, pending, of.now_ms))

    @fact
    def messages(self) -> int:
        """How many messages of the backlog clients get: as ``contents`` counts, without markers, the chunks of a message as one."""
        contents = known(self.contents)
        if contents is None:
            return self.backlog.messages
        counted = self.backlog.messages if contents.messages is None else contents.messages
        return counted - contents.markers - contents.parts

    @fact
    def uncounted_entries(self) -> int | None:
        """How many entries of the backlog are not in the store, so that their messages cannot be counted; None for none."""
        contents = known(self.contents)
        return self.backlog.uncounted_entries if contents is None or contents.messages is None else None

    @property
    def is_awaited(self) -> bool:
        """Whether consumers wait for messages of its backlog."""
        is_theirs = self.is_consumed and not self.of.topic.name.is_system and self.holds_messages
        return is_theirs and bool(self.pending)

    @fact
    def may_look_at_edges(self) -> bool:
        """Whether the entries at the ends of the backlog may be read: consumers wait for messages there, and the budget allows it."""
        return self.is_awaited and self.of.budget.take_edges(self.of.topic.name)

    # -- what cannot be read ------------------------------------------------------------------------------------------

    @fact
    def loss(self) -> BacklogLoss | None:
        """The first entries of the backlog that no broker can read; delivery stops before them."""
        topic, pending = self.of.topic, self.pending
        for broken in self.of.broken if pending else ():
            rank = topic.rank(Position(broken.ledger_id, 0))
            lost = tuple((rank + first, rank + last + 1) for first, last in broken.lost)
            hit = subtract(pending, subtract(pending, lost))
            if hit:
                start, end = hit[0]
                before = sum(min(stop, start) - low for low, stop in pending if low < start)
                return BacklogLoss(broken, topic.at_rank(start), topic.at_rank(end - 1), end, count_ranks(hit), before)
        return None

    @fact
    def unseen(self) -> tuple[BrokenLedger, ...]:
        """The ledgers of the backlog, and an open one at its end, that may have more entries on bookies that are not imported."""
        topic = self.of.topic
        first = self.pending[0][0] if self.pending else topic.number_of_entries
        return tuple(
            broken
            for broken in self.of.broken
            if broken.not_seen()
            and (broken.unseen_from is not None or topic.rank(Position(broken.ledger_id, broken.entries)) > first)
        )

    @fact
    def is_oldest_lost(self) -> bool:
        """Whether the oldest entry is lost or not imported."""
        oldest = self.oldest
        return oldest is not None and any(
            broken.holds(oldest) or (broken.reason == NOT_SEEN and broken.ledger_id == oldest.ledger_id)
            for broken in self.of.broken
        )

    @fact
    def is_oldest_no_message(self) -> bool:
        """Whether the oldest entry is whole, but nothing that clients can read: a broker or client acknowledges it and goes on (4.0.8)."""
        oldest, reader, found = self.oldest, self.of.reader, self.next_message
        if oldest is None or not isinstance(found, Unknown) or not isinstance(found.error, EntryCorrupt):
            return False
        return known(Unknown.unless(lambda: reader.read(oldest.ledger_id, oldest.entry_id))) is not None

    @fact
    def is_oldest_offloaded(self) -> bool:
        """Whether the oldest entry is in tiered storage and was not imported."""
        ledger = None if self.oldest is None else self.of.topic.ledger(self.oldest.ledger_id)
        return ledger is not None and ledger.info.offloaded and isinstance(self.next_message, Unknown)

    # -- transactions -------------------------------------------------------------------------------------------------

    @fact
    def buffer(self) -> Buffer | Unknown:
        """The transactions found in the topic's entries, which are read only if a transaction may have written to the topic."""
        first = self.next_message
        if self.of.may_have_transactions or (getattr(first, "transaction", None) is not None):
            return self.of.buffer
        return Buffer()

    @fact
    def pending_ack_log(self) -> transactions.PendingAckLog | Unknown | None:
        """The log of acknowledgements by transactions; None if there were none."""
        if not self.is_consumed:
            return None
        of, name = self.of, self.cursor.name
        return Unknown.unless(lambda: transactions.read_pending_ack_log(of.reader, of.topic.name, name))

    @fact
    def pending_acks(self) -> Mapping[TxnId, Position | None] | Unknown:
        """The open transactions with acknowledgements on the subscription, and the position of a cumulative one.

        None for a log that no broker can replay: transactions that are open before the loss may have ended after it.
        """
        log, of, name = self.pending_ack_log, self.of, self.cursor.name
        if isinstance(log, Unknown):
            return log
        if of.topic.name.domain != SEGMENT and (log is None or not log.is_replayed):
            return {}
        return Unknown.unless(lambda: read_pending_acks(of.reader, of.topic.name, name) or {})

    # -- delays and TTL -----------------------------------------------------------------------------------------------

    @fact
    def delays(self) -> backlogs.Contents | Unknown | None:
        """The contents of the backlog with its delays; None if the topic has no messages, or if delayed delivery is disabled."""
        if not self.holds_messages or not self.pending:
            return None
        policies = self.of.policies
        in_force = (
            Unknown.unless(lambda: find_delivery(self.of.reader.txn, self.of.topic.name))
            if isinstance(policies, Unknown)  # perhaps of something else
            else policies.delayed_delivery
        )
        if isinstance(in_force, Unknown):
            return in_force
        return self.headers if in_force is None or in_force.delivery.active else None

    @fact
    def not_due(self) -> backlogs.NotDue | Unknown:
        """The entries of the backlog that wait for their time, none where delayed delivery is disabled; reads all of its headers."""
        delays = self.delays
        if isinstance(delays, Unknown):
            return delays
        return backlogs.NotDue(0, None, None) if delays is None else delays.not_due

    @property
    def may_expire(self) -> bool:
        """Whether brokers expire messages of the subscription: not of their own cursors, nor of system topics."""
        return not is_own(self.cursor.name) and not self.of.topic.name.is_system

    @fact
    def ttl(self) -> MessageTtl | Unknown | None:
        """The TTL that applies to the backlog; None if no TTL does, or if there is no backlog."""
        return self.of.message_ttl if self.may_expire and self.pending else None

    @fact
    def future_dated(self) -> FutureDated | Unknown | None:
        """Entries of the backlog whose publish time is after now by more than the clock tolerance, so that the TTL reaches them too late.

        None without a TTL.
        """
        if self.ttl is None or isinstance(self.ttl, Unknown):
            return self.ttl
        from pulsar_admin.store.search.expiry import PendingSearch, read_future_dated  # all of searches

        search = PendingSearch(self.of.reader, self.of.topic, self.cursor.state, "auto")
        return Unknown.unless(lambda: read_future_dated(search, self.of.now_ms + Clocks.TOLERANCE_MS))

    @fact
    def overdue(self) -> Overdue | Unknown | None:
        """What a broker expires at its next TTL check; None if it expires nothing."""
        if self.ttl is None or isinstance(self.ttl, Unknown):
            return self.ttl
        topic, reader, check = self.of.topic, self.of.reader, self.of.ttl_check
        if check is None or isinstance(check, Unknown):
            return check
        through = check.through
        if through is None or through <= self.cursor.mark_delete:
            return None
        end = topic.place(through)
        gone = tuple((low, min(high, end)) for low, high in self.pending if low < end)
        return Overdue(backlogs.extent_of_messages(reader, topic, gone), through)

    @fact
    def ttl_conflict(self) -> TtlConflict | Unknown | None:
        """Delayed messages of the backlog that the TTL drops before they are due; None for none, or if that is unknown."""
        topic = self.of
        ttl = known(self.ttl)
        if not self.is_consumed or ttl is None or self.cursor_bookies:
            return None
        name = topic.topic.name
        if not may_delay(topic.reader.txn, name) or not topic.budget.take(self.pending_entries, name):
            return None
        if isinstance(self.not_due, Unknown):
            return self.not_due
        if not self.not_due.entries:
            return None
        from pulsar_admin.store.search.before_due import find_ttl_conflict  # numpy

        conflict = Unknown.unless(
            lambda: find_ttl_conflict(topic.reader, topic.topic, self.cursor, ttl.seconds, ttl.source)
        )
        return conflict if isinstance(conflict, Unknown) or conflict.messages else None


# -- a topic ----------------------------------------------------------------------------------------------------------


_READ_ENTRIES = 100_000
"""Entries of a topic that are read where a fact is in entries alone."""
_READ_ALL = 2_000_000
"""Entries that are read in all for such facts."""
_SHORT = 1_000
"""Entries of a backlog that are read as soon as its ends are: in about a millisecond."""
EDGES = 500
"""Backlogs whose first and last entries are read unless every byte was asked for."""
_TOGETHER = 200_000
"""Entries of short backlogs of several topics that are read in one scan."""
_NAMED = 3
_DEDUPLICATION = next(policy for policy in POLICIES if policy.name == "deduplication")
_COMPACTION_THRESHOLD = next(policy for policy in POLICIES if policy.name == "compaction-threshold")


class ReadBudget(Struct):
    """How many more entries may be read for facts that only entries have, so that a pass over all topics is not a full scan.

    ``unlimited``: the caller wants every byte read. ``topics_left_out``: topics whose backlogs were not read, or not completely.
    """

    unlimited: bool = False
    left: int = _READ_ALL
    edges_left: int = EDGES
    topics_left_out: int = 0
    last_left_out: TopicName | None = None

    @property
    def has_edges(self) -> bool:
        """Whether ``take_edges`` would return True."""
        return self.unlimited or self.edges_left > 0

    def take_edges(self, name: TopicName) -> bool:
        """Reserve the reading of the first and last entries of a backlog of the topic ``name``; return False if the budget is spent."""
        if self.has_edges:
            self.edges_left -= 1
            return True
        self.leave_out(name)
        return False

    def take(self, entries: int, name: TopicName | None = None) -> bool:
        """Reserve the reading of ``entries`` entries, of a backlog of the topic ``name`` if given; return False if too few are left."""
        if self.unlimited:
            return True
        if entries <= min(_READ_ENTRIES, self.left):
            self.left -= entries
            return True
        if name is not None:
            self.leave_out(name)
        return False

    def leave_out(self, name: TopicName) -> None:
        """Count a topic whose backlogs are not read; each once, as its backlogs come one after the other."""
        self.topics_left_out += name != self.last_left_out
        self.last_left_out = name


def _asked(tells: Callable[[TopicFacts], bool]) -> Fact[bool]:
    return Fact(tells)


class TopicFacts:
    """The facts of a topic in one snapshot, at ``now_ms``. Each is read on first use, which raises the errors of reading its rows."""

    def __init__(self, reader: EntryReader, topic: Topic, now_ms: int, budget: ReadBudget | None = None) -> None:
        self.reader = reader
        self.topic = topic
        self.now_ms = now_ms
        self.budget = budget or ReadBudget()

    @fact
    def where(self) -> str:
        """The topic's full name."""
        return str(self.topic.name)

    @fact
    def cursor_readings(self) -> tuple[tuple[str, Cursor | StoreError], ...]:
        """Each of its durable cursors by name, or why it cannot be read."""
        txn, name = self.reader.txn, self.topic.name
        if name.domain == PERSISTENT:
            return tuple(read_each_cursor(txn, self.reader, self.topic))
        readings: list[tuple[str, Cursor | StoreError]] = []
        for cursor in iter_other_cursors(txn, name):
            try:
                readings.append((cursor, read_cursor(txn, self.reader, self.topic, cursor)))
            except StoreError as error:
                readings.append((cursor, error))
        return tuple(readings)

    @fact
    def cursors(self) -> tuple[Cursor, ...]:
        """Those of its durable cursors that can be read."""
        return tuple(cursor for _, cursor in self.cursor_readings if isinstance(cursor, Cursor))

    @fact
    def broken(self) -> tuple[BrokenLedger, ...]:
        """The listed ledgers of which something is lost or not imported."""
        txn = self.reader.txn
        return find_broken(txn, self.topic) if may_be_broken(txn, self.topic) else ()

    @fact
    def lost(self) -> Intervals:
        """The ranks of the entries that no broker can read, without those that bookies which are not imported may have."""
        places = ((self.topic.rank(Position(one.ledger_id, 0)), one.lost) for one in self.broken)
        return tuple((rank + first, rank + last + 1) for rank, lost in places for first, last in lost)

    @fact
    def coordinated(self) -> Mapping[TxnId, OpenTransaction]:
        """The open transactions of all coordinators whose logs can be read."""
        return transactions.read_coordinated(self.reader)

    @fact
    def may_have_transactions(self) -> bool:
        """Whether a transaction may have written to the topic, by the coordinators' logs and transaction snapshots."""
        named = any(self.where in one.partitions for one in self.coordinated.values())
        return named or transactions.has_snapshot(self.reader, self.topic.name)

    @fact
    def buffer(self) -> Buffer | Unknown:
        """The transactions found in the topic's entries, all of which are read."""
        return Unknown.unless(lambda: read_buffer(self.reader, self.topic.name).check())

    @fact
    def subscriptions(self) -> tuple[SubscriptionFacts, ...]:
        """Facts of each of its cursors, those that the broker keeps for itself included."""
        return tuple(SubscriptionFacts(self, cursor) for cursor in self.cursors)

    def let_go(self) -> None:
        """Drop the subscriptions, which refer back to the topic: freeing such cycles by garbage collection takes a tenth of a pass."""
        vars(self).pop("subscriptions", None)

    @fact
    def mark_deletes(self) -> Mapping[str, Position]:
        """The mark-delete position of each readable durable cursor, by name."""
        return {cursor.name: cursor.mark_delete for cursor in self.cursors}

    @fact
    def unreadable_cursors(self) -> tuple[str, ...]:
        """The names of durable cursors that cannot be read, so that their positions and the ledgers that they need are unknown."""
        return tuple(name for name, cursor in self.cursor_readings if not isinstance(cursor, Cursor))

    @fact
    def unseen_cursors(self) -> frozenset[str]:
        """The names of cursors of which bookies that are not imported may have a newer state, so that their positions are unknown."""
        return frozenset(one.cursor.name for one in self.subscriptions if one.cursor_bookies)

    @fact
    def keeping(self) -> Mapping[str, Position]:
        """Cursor name → the position after which it keeps ledgers; a cursor that cannot be read keeps all ledgers.

        Where a ledger is consumed, compaction's cursor is among them if a broker is to create it.
        """
        first = self.topic.first_position
        found = dict.fromkeys(self.unreadable_cursors, first) | dict(self.mark_deletes)
        with suppress(MetadataCorrupt):  # the retention is then unknown, and keeps all ledgers
            if consumed_ledgers(self.topic, found)[0] and begins_compaction(self.reader.txn, self.topic.name, found):
                found[COMPACTION_CURSOR] = first
        return found

    @fact
    def policies(self) -> PoliciesInForce | Unknown:
        """The policies in force: the topic's own, else its namespace's; a broker's defaults are in no store."""
        try:
            return read_in_force(self.reader.txn, self.topic.name)
        except MetadataCorrupt as error:
            return Unknown.of(error)

    @fact
    def is_namespace_bare(self) -> bool:
        """Whether the policies of its namespace are gone."""
        from pulsar_admin.store.facts.vanished import find_bare_namespaces

        return any(one.name == self.topic.name.namespace for one in find_bare_namespaces(self.reader.txn))

    @fact
    def off_list(self) -> tuple[int, ...]:
        """The ledgers that have messages of the topic and are missing from its list (``Vanished.off_list``)."""
        from pulsar_admin.store.facts.vanished import off_list_of

        return off_list_of(self.reader, self.topic.name)

    @fact
    def message_ttl(self) -> MessageTtl | Unknown | None:
        """The TTL in force; None if nothing sets one, or if it is 0, which means no TTL."""
        if isinstance(self.policies, Unknown):
            return self.policies
        ttl = self.policies.message_ttl
        return ttl if ttl is not None and ttl.seconds > 0 else None

    @fact
    def ttl_check(self) -> TtlCheck | Unknown | None:
        """The next check of the TTL by a broker that has the topic loaded; None without a TTL."""
        ttl = self.message_ttl
        if ttl is None or isinstance(ttl, Unknown):
            return ttl
        from pulsar_admin.store.search.broker import BrokerSearch

        search, limit_ms = BrokerSearch(self.reader, self.topic), self.now_ms - ttl.seconds * 1000
        through = Unknown.unless(lambda: search.ttl_position(limit_ms))
        return through if isinstance(through, Unknown) else TtlCheck(through, next(iter(search.probes), None))

    @fact
    def quotas(self) -> tuple[QuotaState, ...] | Unknown:
        """Each backlog quota in force that has a limit and whose state against it is known."""
        if isinstance(self.policies, Unknown):
            return self.policies
        if not self.policies.backlog_quotas:
            return ()
        # A cursor of unknown position may be slower than all others: what it would change is not told.
        unseen = self.unseen_cursors.union(self.unreadable_cursors)
        marks = {name: mark for name, mark in self.mark_deletes.items() if name not in unseen}
        if unseen and not marks:
            return ()
        states = iter_quota_states(self.topic, marks, self.policies.backlog_quotas, self.now_ms)
        is_size_known = all(one.unseen_from is None for one in self.broken)
        return tuple(one for one in states if one.is_reached or (not unseen and (is_size_known or not one.is_size)))

    @fact
    def clocks(self) -> Clocks:
        """The clock errors of the topic's producers and brokers, from the index; a producer's retry takes less than the tolerance."""
        return _read_clocks(self.reader.txn, self.topic, self.now_ms)

    @fact
    def consumed(self) -> tuple[int, tuple[str, Position] | None]:
        """How many of the first ledgers all cursors have consumed, and (name, position) of the slowest cursor, which needs the next one."""
        return consumed_ledgers(self.topic, self.keeping)

    @fact
    def released(self) -> int:
        """How many of the first ledgers a broker deletes when it next trims: all cursors have consumed them, and retention allows it."""
        consumed = self.consumed[0]
        return count_released(self.topic, consumed, self.retention, self.now_ms) if consumed else 0

    @fact
    def retention(self) -> Retention:
        """The retention in force; if the policies cannot be read, one that keeps everything."""
        if isinstance(self.policies, Unknown):
            return UNKNOWN_RETENTION
        return self.policies.applied_retention.retention

    # -- what a topic has where anything may be wrong with it -----------------------------------------------------------

    has_ttl = _asked(lambda facts: known(facts.message_ttl) is not None)
    """Whether a TTL is in force, as far as is known."""
    has_quotas = _asked(lambda facts: bool(known(facts.quotas)))
    """Whether a backlog quota with a limit is in force, as far as is known."""
    has_ranges = _asked(lambda facts: any(cursor.state.ranges for cursor in facts.cursors))
    """Whether a cursor has entries acknowledged one by one."""
    is_deduplicating = _asked(lambda facts: DEDUP_CURSOR in facts.mark_deletes)
    """Whether it has deduplication's cursor."""
    has_pending_acks = _asked(lambda facts: any(one.pending_ack_log is not None for one in facts.subscriptions))
    """Whether a subscription has a log of acknowledgements by transactions."""
    has_edges = _asked(lambda facts: any(one.may_look_at_edges for one in facts.subscriptions))
    """Whether the first and last entries of a backlog may be looked at."""
    is_compacted = _asked(lambda facts: COMPACTION_CURSOR in facts.mark_deletes)
    """Whether it has compaction's cursor."""
    is_overtaken = _asked(lambda facts: any(cursor.ahead is not None for cursor in facts.cursors))
    """Whether a cursor is stored ahead of its end."""

    @fact
    def has_wrong_clocks(self) -> bool:
        """Whether times are off by more than the tolerance, or yet to come."""
        clocks = self.clocks
        return bool(clocks.ahead_ms or clocks.behind_ms or clocks.future_now or clocks.late_ledgers)

    @fact
    def has_policy_events(self) -> bool:
        """Whether the topic's entries are the topic policies of its namespace; if several topics could be, the first one is."""
        name = self.topic.name
        return name.base.local_name == EVENTS and event_topics(self.reader.txn, name.namespace)[:1] == (name,)

    @fact
    def policy_events(self) -> PolicyEvents | Unknown | None:
        """The topic policies of the namespace, as read from the topic's entries."""
        return Unknown.unless(lambda: find_policy_events(self.reader.txn, self.topic.name.namespace))

    def backlog_size_bytes(self, cursor: str) -> int:
        """Return a broker's estimate of the bytes that the cursor of that name has not consumed."""
        return backlog_size_bytes(self.topic, self.mark_deletes[cursor])

    @fact
    def wrong_producers(self) -> Mapping[str, object]:
        """The producers with wrong clocks and their numbers of entries, by JSON key; empty if that would read too many entries."""
        if not self.budget.take(self.topic.number_of_entries):
            return {}
        from pulsar_admin.store.search.skew import SkewOptions, read_skew  # numpy: few topics have wrong clocks

        skew = read_skew(self.reader, self.topic, SkewOptions(tolerance_ms=Clocks.TOLERANCE_MS, now_ms=self.now_ms))
        wrong = [row for row in skew.producers if row.blamed]
        return {
            "producers": [row.producer for row in wrong[:_NAMED]],
            "future": sum(row.future for row in wrong),
            "late": sum(row.late for row in wrong),
            "aheadProducers": [row.producer for row in wrong if row.future][:_NAMED],
            "behindProducers": [row.producer for row in wrong if row.late][:_NAMED],
        }

    @fact
    def node_bytes(self) -> int:
        """The size of the metadata node that lists its ledgers."""
        node = find_node(self.reader.txn, self.topic.name.path)
        return 0 if node is None else len(node.value)

    @fact
    def compaction_problems(self) -> tuple[str, ...]:
        """How compaction's cursor and the compacted ledger contradict each other, in words."""
        if self.compaction_cursor is None:
            return ()
        from pulsar_admin.store.compaction.status import read_status

        return tuple(read_status(self.reader, self.topic, ()).problems)

    @fact
    def compaction_threshold(self) -> int:
        """The backlog in bytes at which a broker compacts it by itself; 0 for never."""
        return value_in_force(self.reader.txn, self.topic.name, _COMPACTION_THRESHOLD, {})[0] or 0

    def held_by(self, cursor: str) -> tuple[int, int]:
        """Return the number and the bytes of the ledgers that only ``cursor`` keeps."""
        others = {name: at for name, at in self.keeping.items() if name != cursor}
        ledgers = self.topic.ledgers[self.consumed[0] : consumed_ledgers(self.topic, others)[0]]
        return len(ledgers), sum(ledger.size_bytes for ledger in ledgers)

    @fact
    def is_deduplicated(self) -> bool | Unknown | None:
        """Whether a policy turns deduplication on or off, and off for a system topic (``SystemTopic``); None for the broker's default."""
        if self.topic.name.is_system:
            return False
        return Unknown.unless(lambda: value_in_force(self.reader.txn, self.topic.name, _DEDUPLICATION, {})[0])

    @fact
    def compaction_cursor(self) -> Cursor | None:
        """Compaction's cursor, whose position is the compaction horizon; None where the topic never was compacted."""
        return next((cursor for cursor in self.cursors if cursor.name == COMPACTION_CURSOR), None)


def read_headers_together(subscriptions: Iterable[SubscriptionFacts], now_ms: int) -> None:
    """Read the ``headers`` of all ``subscriptions`` with short backlogs in one scan, at a tenth of the cost of a scan for each.

    If any of them cannot be read, none is: each is read on first use.
    """
    left, short = _TOGETHER, list[SubscriptionFacts]()
    with suppress(StoreError):
        for one in subscriptions:
            if 0 < one.pending_entries <= min(_SHORT, left):
                left -= one.pending_entries
                short.append(one)
        wanted = [(one.of.topic, one.pending) for one in short]
        contents = backlogs.read_each_contents(short[0].of.reader, wanted, now_ms) if short else None
        for one, headers in zip(short, contents or (), strict=False):
            vars(one)["headers"] = headers  # as if it had been asked for
