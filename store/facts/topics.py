"""Facts of a topic, each gathered when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.facts import Unknown, fact
from pulsar_admin.store.facts.clocks import Clocks, read_clocks
from pulsar_admin.store.facts.subscriptions import SubscriptionFacts
from pulsar_admin.store.model.broken import BrokenLedger, find_broken
from pulsar_admin.store.model.coverage import AbsentBookies, find_absent_bookies
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    DEDUP_CURSOR,
    Cursor,
    Intervals,
    backlog_size_bytes,
    read_cursor,
    read_each_cursor,
)
from pulsar_admin.store.model.nodes import iter_other_cursors
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, may_be_broken
from pulsar_admin.store.model.transactions import Buffer, OpenTransaction, read_buffer
from pulsar_admin.store.names import PERSISTENT, Position
from pulsar_admin.store.policies.in_force import MessageTtl, PoliciesInForce, read_in_force
from pulsar_admin.store.policies.quotas import QuotaState, iter_quota_states
from pulsar_admin.store.policies.table import POLICIES
from pulsar_admin.store.policies.trimming import BROKER_DEFAULT, UNKNOWN_RETENTION, consumed_ledgers, count_released
from pulsar_admin.store.policies.values import value_in_force

READ_ENTRIES = 100_000
"""Entries of a topic that are read where a fact is in entries alone."""
READ_ALL = 2_000_000
"""Entries that are read in all for such facts."""
EDGES = 500
"""Backlogs whose first and last entries are read where nobody asked for every byte."""
_NAMED = 3
_DEDUPLICATION = next(policy for policy in POLICIES if policy.name == "deduplication")
_COMPACTION_THRESHOLD = next(policy for policy in POLICIES if policy.name == "compaction-threshold")


class ReadBudget(Struct):
    """How many entries may still be read for facts that are in entries alone, so that all topics take no whole scan.

    ``unlimited``: somebody asked for every byte.
    """

    unlimited: bool = False
    left: int = READ_ALL
    edges_left: int = EDGES

    @property
    def has_edges(self) -> bool:
        """Whether ``take_edges`` would return that they may."""
        return self.unlimited or self.edges_left > 0

    def take_edges(self) -> bool:
        """Return whether the first and last entries of one more backlog may be read; it counts."""
        self.edges_left -= 1
        return self.unlimited or self.edges_left >= 0

    def take(self, entries: int) -> bool:
        """Return whether so many entries may be read; they count."""
        if self.unlimited:
            return True
        if entries > READ_ENTRIES or entries > self.left:
            return False
        self.left -= entries
        return True


class TopicFacts:
    """What one snapshot says of a topic at ``now_ms``. ``cursors``: those of its durable cursors that can be read; None: read when needed.

    Each fact is read when it is first asked for, and raises what reading its rows raises.
    """

    def __init__(
        self,
        reader: EntryReader,
        topic: Topic,
        cursors: Iterable[Cursor] | None,
        now_ms: int,
        budget: ReadBudget | None = None,
    ) -> None:
        self.reader = reader
        self.topic = topic
        self._cursors = cursors
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
        return tuple((cursor, self._read_cursor(cursor)) for cursor in iter_other_cursors(txn, name))

    def _read_cursor(self, name: str) -> Cursor | StoreError:
        try:
            return read_cursor(self.reader.txn, self.reader, self.topic, name)
        except StoreError as error:
            return error

    @fact
    def cursors(self) -> tuple[Cursor, ...]:
        """Those of its durable cursors that can be read."""
        if self._cursors is not None:
            return tuple(self._cursors)
        return tuple(cursor for _, cursor in self.cursor_readings if isinstance(cursor, Cursor))

    @fact
    def broken(self) -> tuple[BrokenLedger, ...]:
        """The ledgers that it lists and of which something is lost, or not seen."""
        txn = self.reader.txn
        return find_broken(txn, self.topic) if may_be_broken(txn, self.topic) else ()

    @fact
    def lost(self) -> Intervals:
        """The ranks of its entries that no broker can read; those that are only not seen are not among them."""
        places = ((self.topic.rank(Position(one.ledger_id, 0)), one.lost) for one in self.broken)
        return tuple((rank + first, rank + last + 1) for rank, lost in places for first, last in lost)

    @fact
    def absent_bookies(self) -> AbsentBookies | None:
        """The bookies that the metadata names and that are not imported."""
        return find_absent_bookies(self.reader.txn)

    @fact
    def coordinated(self) -> Mapping[TxnId, OpenTransaction]:
        """The open transactions of all coordinators whose logs can be read."""
        from pulsar_admin.store.facts.transactions import read_coordinated

        return read_coordinated(self.reader)

    @fact
    def may_have_transactions(self) -> bool:
        """Whether a transaction ever wrote to it, as far as coordinators and snapshots say."""
        from pulsar_admin.store.facts.transactions import has_snapshot

        named = any(self.where in one.partitions for one in self.coordinated.values())
        return named or has_snapshot(self.reader, self.topic.name)

    @fact
    def buffer(self) -> Buffer | Unknown:
        """What its entries say of transactions; every entry is read."""
        try:
            return read_buffer(self.reader, self.topic.name)
        except StoreError as error:
            return Unknown.of(error)

    @fact
    def subscriptions(self) -> tuple[SubscriptionFacts, ...]:
        """Facts of each of its cursors, those that the broker keeps for itself included."""
        return tuple(SubscriptionFacts(self, cursor) for cursor in self.cursors)

    @fact
    def mark_deletes(self) -> Mapping[str, Position]:
        """The mark-delete position of each readable durable cursor, by name."""
        return {cursor.name: cursor.mark_delete for cursor in self.cursors}

    @fact
    def unreadable_cursors(self) -> tuple[str, ...]:
        """Its durable cursors that cannot be read: where they stand, and what they need, is not known."""
        return tuple(name for name, cursor in self.cursor_readings if not isinstance(cursor, Cursor))

    @fact
    def keeping(self) -> Mapping[str, Position]:
        """Up to where its cursors keep ledgers, by name: one that cannot be read keeps all of them."""
        return dict.fromkeys(self.unreadable_cursors, self.topic.first_position) | dict(self.mark_deletes)

    @fact
    def policies(self) -> PoliciesInForce | Unknown:
        """The policies in force: the topic's own, else its namespace's; a broker's defaults are in no store."""
        try:
            return read_in_force(self.reader.txn, self.topic.name)
        except MetadataCorrupt as error:
            return Unknown.of(error)

    @fact
    def message_ttl(self) -> MessageTtl | Unknown | None:
        """The TTL in force; None where nothing sets one, or sets 0, which is none."""
        if isinstance(self.policies, Unknown):
            return self.policies
        ttl = self.policies.message_ttl
        return ttl if ttl is not None and ttl.seconds > 0 else None

    @fact
    def quotas(self) -> tuple[QuotaState, ...] | Unknown:
        """Each backlog quota in force that has a limit, beside what it counts."""
        if isinstance(self.policies, Unknown):
            return self.policies
        if not self.policies.backlog_quotas:
            return ()
        return tuple(iter_quota_states(self.topic, self.mark_deletes, self.policies.backlog_quotas, self.now_ms))

    @fact
    def clocks(self) -> Clocks:
        """What the index says of the clocks of its producers and brokers."""
        return read_clocks(self.reader.txn, self.topic, self.now_ms)

    @fact
    def consumed(self) -> tuple[int, tuple[str, Position] | None]:
        """How many ledgers from the front every cursor has left, and the slowest cursor, which needs the next one."""
        return consumed_ledgers(self.topic, self.keeping)

    @fact
    def released(self) -> int:
        """How many ledgers from the front a broker deletes when it next looks: every cursor has left them, retention lets them go."""
        consumed = self.consumed[0]
        return count_released(self.topic, consumed, self.retention, self.now_ms) if consumed else 0

    @fact
    def retention(self) -> Retention:
        """The retention in force; of policies that cannot be read one that keeps everything."""
        if isinstance(self.policies, Unknown):
            return UNKNOWN_RETENTION
        return BROKER_DEFAULT if self.policies.retention is None else self.policies.retention.retention

    # -- what a topic has where anything may be wrong with it -----------------------------------------------------------

    @fact
    def has_wrong_clocks(self) -> bool:
        """Whether times are off by more than the tolerance, or yet to come."""
        clocks = self.clocks
        return bool(clocks.ahead_ms or clocks.behind_ms or clocks.future_now or clocks.late_ledgers)

    @fact
    def has_ttl(self) -> bool:
        """Whether a TTL is in force, as far as is known."""
        return self.message_ttl is not None and not isinstance(self.message_ttl, Unknown)

    @fact
    def has_quotas(self) -> bool:
        """Whether a backlog quota with a limit is in force, as far as is known."""
        return bool(self.quotas) and not isinstance(self.quotas, Unknown)

    @fact
    def has_ranges(self) -> bool:
        """Whether a cursor has entries acknowledged one by one."""
        return any(cursor.state.ranges for cursor in self.cursors)

    @fact
    def is_deduplicating(self) -> bool:
        """Whether it has deduplication's cursor."""
        return DEDUP_CURSOR in self.mark_deletes

    @fact
    def has_pending_acks(self) -> bool:
        """Whether a subscription has a log of what transactions acknowledged."""
        return any(one.pending_ack_log is not None for one in self.subscriptions)

    @fact
    def has_edges(self) -> bool:
        """Whether the first and last entries of a backlog may be looked at."""
        return any(one.may_look_at_edges for one in self.subscriptions)

    @fact
    def is_compacted(self) -> bool:
        """Whether it has compaction's cursor."""
        return self.compaction_cursor is not None

    @fact
    def is_overtaken(self) -> bool:
        """Whether a cursor is stored ahead of its end."""
        return any(cursor.ahead is not None for cursor in self.cursors)

    def backlog_size_bytes(self, cursor: str) -> int:
        """Return a broker's estimate of the bytes that the cursor of that name has not consumed."""
        return backlog_size_bytes(self.topic, self.mark_deletes[cursor])

    @fact
    def wrong_producers(self) -> Mapping[str, object]:
        """Who published with wrong clocks, and how many entries, by keys of JSON; empty where that would read too many entries."""
        if not self.budget.take(self.topic.number_of_entries):
            return {}
        from pulsar_admin.store.search.skew import SkewOptions, read_skew  # numpy: few topics have wrong clocks

        skew = read_skew(self.reader, self.topic, SkewOptions(tolerance_ms=Clocks.TOLERANCE_MS, now_ms=self.now_ms))
        wrong = [row for row in skew.producers if row.future or row.late]
        return {
            "producers": [row.producer for row in wrong[:_NAMED]],
            "future": skew.future,
            "late": skew.late,
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

    def consumed_without(self, cursor: str) -> int:
        """Return how many ledgers from the front every cursor but ``cursor`` has left."""
        others = {name: at for name, at in self.keeping.items() if name != cursor}
        return consumed_ledgers(self.topic, others)[0]

    @fact
    def is_deduplicated(self) -> bool | None:
        """Whether a policy turns deduplication on or off; None where none does, and the broker's default counts."""
        value: bool | None = value_in_force(self.reader.txn, self.topic.name, _DEDUPLICATION, {})[0]
        return value

    @fact
    def compaction_cursor(self) -> Cursor | None:
        """Compaction's cursor, whose position is the compaction horizon; None where the topic never was compacted."""
        return next((cursor for cursor in self.cursors if cursor.name == COMPACTION_CURSOR), None)
