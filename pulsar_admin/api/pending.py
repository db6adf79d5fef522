"""Delayed messages, stored negative acks, and transactions of subscriptions and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_admin import arguments
from pulsar_admin.api.plan import Named, Plan, Planner
from pulsar_admin.api.session import Session
from pulsar_admin.arguments import Delay, JavaInt, Place, Time
from pulsar_admin.later import later, laters
from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.db.audit_log import read_change
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.nacks import DEFAULT_PRECISION_BITS, DueNack, KeptGroup, KeptStats, iter_due
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.cursors import cursor_of_nobody, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.nacks.buckets import iter_position_rows, kept_stats, kept_trackers
from pulsar_admin.store.names import Position, TopicName, TopicSelection
from pulsar_admin.store.reports import transactions
from pulsar_admin.store.wording import Answer, counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.store.changes import nacks as changes
    from pulsar_admin.store.delayed import build as building
    from pulsar_admin.store.delayed import runs
    from pulsar_admin.store.delayed import summary as summaries
    from pulsar_admin.store.delayed import trackers as verifying
    from pulsar_admin.store.delayed import waiting as waits
    from pulsar_admin.store.nacks.holes import TopicNacks
    from pulsar_admin.store.nacks.sizes import NackLoad, TrackerSizing
else:
    changes = later("pulsar_admin.store.changes.nacks")
    building, runs, summaries, verifying = laters("pulsar_admin.store.delayed", "build runs summary trackers")
    waits = later("pulsar_admin.store.delayed.waiting")


def build_indexes(
    session: Session, chosen: Sequence[building.WantedIndex], *, rebuild: bool, dry_run: bool = False
) -> Iterator[building.BuildResult]:
    """Build or update indexes of delayed messages, each in a transaction of its own; ``dry_run`` writes nothing.

    The entries of many are read together; ``rebuild`` discards existing indexes. Raises NotWritable, Unsupported.
    """
    now_ms, each = session.clock_ms, session.each
    with (
        session.engine([], sum(wanted.bytes for wanted in chosen)) as engine,
        session.opened() if dry_run else session.writing() as store,
        session.progress(len(chosen), "subscriptions", "delayed build", resumes=True) as advance,
    ):
        for result in building.build_indexes(store, engine, chosen, now_ms, each, rebuild=rebuild, dry_run=dry_run):
            if lost := result.missing + result.unreadable:
                what = counted(lost, "waiting entry is", "waiting entries are")
                session.partial([f"{result.topic} {result.subscription}: {what} lost or damaged"])
            advance(1)
            yield result


class Delayed(Named):
    """A subscription's delayed messages: from the index of ``delayed build`` if that is current, otherwise from the entries.

    Whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays. All methods raise
    TopicNotFound (also for a partitioned topic), SubscriptionNotFound, IndexCorrupt, DiskFull (large backlogs are sorted on disk).
    """

    def __init__(self, session: Session, name: TopicName, subscription: str | None) -> None:
        self._session = session
        self._name = name
        self._subscription = None if subscription is None else arguments.given_text("subscription", subscription)

    def due(self, until: Time | None = None) -> pa.Table:
        """Return the messages that a broker would dispatch until ``until`` (default: now), in order, one row each.

        Columns: ``ledger_id``, ``entry_id``; ``deliver_at``, the tick in which it is dispatched; ``due_time``, which
        the message itself asks for, null if its entry is lost; both ``timestamp[us, UTC]``.
        """
        until_ms = self._session.now_ms if until is None else self._session.time_ms(until)
        with self._opened() as (reader, delivery):
            return waits.due_table(reader, delivery.waiting, until_ms)

    def histogram(self) -> pa.Table:
        """Return the number of messages by due time: ``start`` (timestamp) and ``width_ms`` of a partition, ``messages`` in it."""
        with self._opened() as (_, delivery):
            return waits.load_table(delivery.waiting)

    def status(self) -> summaries.DelayedSummary:
        """Return policy, how many messages are due when, the index and its lag, the messages that a TTL or quota drops before they are due,
        and estimates of the memory and rebuild time of a broker's own index (``trackers``)."""
        with self._opened() as (reader, delivery):
            return summaries.summarize(reader, delivery, self._session.now_ms)

    def replay(self, until: Time, *, since: Time | None = None) -> Iterator[waits.Replayed]:
        """Yield the messages that a time wheel dispatches until ``until``, by slot: ``dispatch.tick_ms``, ``dispatch.rows`` (arrays).

        Messages due before ``since`` are left out. Two partitions of time are in memory. The caller sets the pace.
        Raises InvalidValue (``until`` before ``since``).
        """
        until_ms = self._session.time_ms(until)
        since_ms = None if since is None else self._session.time_ms(since)
        with self._opened() as (_, delivery):
            yield from waits.iter_replay([delivery.waiting], since_ms, until_ms)

    def verify(self) -> verifying.Verified:
        """Compare a broker's buckets and the index with the entries: counts, and ``findings``. Raises InvalidValue (no subscription)."""
        name = self._named()
        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._name)
            return verifying.verify_cursor(reader, topic, read_cursor(reader.txn, reader, topic, name))

    def build(self, *, rebuild: bool = False) -> building.BuildResult:
        """Build or update the subscription's index, which is not in the audit log; ``rebuild`` discards an existing one.

        Raises NotWritable, InvalidValue (no subscription), Unsupported.
        """
        with self._session.reader() as reader:
            selection = TopicSelection((read_topic(reader.txn, self._name).name,))
            cursors = self._session.iter_cursors(reader, selection, self._named())
            chosen = [building.WantedIndex.of(*one) for one in cursors]
        (result,) = build_indexes(self._session, chosen, rebuild=rebuild)
        return result

    def _named(self) -> str:
        if self._subscription is None:
            raise InvalidValue("name a subscription: topic.delayed(subscription)")
        return self._subscription

    @contextmanager
    def _opened(self) -> Iterator[tuple[EntryReader, summaries.Delivery]]:
        with self._session.scan() as reader, runs.open_runs() as file:
            topic, name = read_topic(reader.txn, self._name), self._subscription
            cursor = cursor_of_nobody(topic) if name is None else read_cursor(reader.txn, reader, topic, name)
            (delivery,) = summaries.open_deliveries(reader, [(topic, cursor)], file, self._session.now_ms)
            yield reader, delivery
        self._session.warn(delivery.warnings)


class KeptNacks(Planner):
    """Stored negative acks of one or all subscriptions in some or all topics, kept by time bucket as in PIP-393.

    Every question raises TopicNotFound for a topic that neither they nor the store know, SubscriptionNotFound if none of the topics has
    the subscription, and IndexCorrupt.
    """

    def __init__(self, session: Session, topics: Sequence[TopicName], subscription: str | None) -> None:
        self._session = session
        self._topics = topics
        self._subscription = None if subscription is None else arguments.given_text("subscription", subscription)

    def stats(self) -> tuple[KeptStats, ...]:
        """Return statistics per topic or partition and subscription: pending and due entries, bytes, deadlines in ms."""
        return self._session.ask(kept_stats, self._topics, self._subscription, self._session.clock_ms)

    def due(self, *, popped: int | None = None) -> tuple[DueNack, ...]:
        """Return the due nacks ordered by time, or those of any subscription that the change with number ``popped`` removed.

        Raises ChangeNotFound, NothingMatches (it popped nothing).
        """
        return tuple(
            DueNack(group.topic, group.subscription, position, group.due_ms)
            for group in self.due_groups(popped=popped)
            for position in group.positions()
        )

    def due_groups(self, *, popped: int | None = None) -> Iterator[KeptGroup]:
        """Yield the nacks of ``due`` grouped by ledger and time: ``entry_ids`` is a bitmap of pyroaring."""
        with self._session.read() as txn:
            yield from self._due(txn) if popped is None else changes.popped_groups(read_change(txn, popped))

    def pop(self) -> Plan:
        """Plan removing the due nacks; the change keeps them, so that ``Store.undo`` restores them. Look at ``due`` first."""
        return self._planned_rows(lambda txn, now_ms: changes.plan_pop(txn, self._due(txn), now_ms))

    def _due(self, txn: Txn) -> Iterator[KeptGroup]:
        return iter_due(txn, kept_trackers(txn, self._topics, self._subscription), self._session.clock_ms)


class Nacks(KeptNacks):
    """Negative acks of one subscription; for a partitioned topic, those of all partitions.

    Every method raises TopicNotFound, SubscriptionNotFound, IndexCorrupt.
    """

    def __init__(self, session: Session, name: TopicName, subscription: str) -> None:
        super().__init__(session, (name,), subscription)
        self._name = name
        self._subscription: str = subscription

    def add(
        self,
        positions: Iterable[Place | tuple[Place, Delay]],
        delay: Delay,
        *,
        precision_bits: int | None = None,
        force: bool = False,
    ) -> Plan:
        """Plan tracking entries as nacked, due ``delay`` after now, rounded down to 2^bits ms (batch indexes are dropped).

        An item may be a pair of position and its own delay. ``precision_bits`` None: those in use, 8 at first. ``force`` accepts entries
        that the store does not know. Raises EntryNotFound, InvalidValue, Refused (another precision while some are pending).
        """
        usual = arguments.delay_ms(delay)
        given = (
            (one[0], arguments.delay_ms(one[1]))
            if isinstance(one, tuple) and not isinstance(one, Position)
            else (one, usual)
            for one in arguments.given_items("positions", positions)
        )
        placed = ((arguments.position_of(place), delay_ms) for place, delay_ms in given)
        return self._planned(changes.plan_positions, self._name, self._subscription, placed, precision_bits, force)

    def add_lines(
        self,
        lines: Iterable[str],
        delay: Delay,
        *,
        source: str = "lines",
        precision_bits: int | None = None,
        force: bool = False,
    ) -> Plan:
        """Plan the same from lines: ``LEDGER:ENTRY``, or JSON as of ``topics read`` and ``nacks due``, perhaps with a ``delay``.

        ``source`` names the lines in errors. Raises as ``add``.
        """
        texts = (arguments.given_text("line", line) for line in arguments.given_items("lines", lines))
        rows = iter_position_rows(texts, source, self._name)
        positions = (
            (place, delay if row.delay_ms is None else row.delay_ms) for row in rows for place in row.positions
        )
        return self.add(positions, delay, precision_bits=precision_bits, force=force)

    def add_holes(self, delay: Delay, *, precision_bits: int | None = None) -> Plan:
        """Plan tracking the subscription's acknowledgement holes: unacknowledged entries before individually deleted ones."""
        delay_ms = arguments.delay_ms(delay)
        return self._planned(changes.plan_holes, self._name, self._subscription, delay_ms, precision_bits)


class NackSizes(Answer, frozen=True):
    """The cost of a load: ``precisions`` has a sizing for each of 0 to 16 bits. ``measured``: the topic it was measured on."""

    load: NackLoad
    measured: TopicNacks | None
    precisions: tuple[TrackerSizing, ...]

    @arguments.checked
    def recommended_bits(self, precision: Delay | None = None, *, memory_bytes: int = 64 << 20) -> int:
        """Return the recommended precision bits: the most that deliver early by no more than ``precision``.

        None: the fewest, from the clients' default up, that keep Java's client within ``memory_bytes``.
        """
        most = self.precisions[-1].precision_bits
        if precision is not None:
            return min((arguments.delay_ms(precision) + 1).bit_length() - 1, most)
        fitting = [sizing.precision_bits for sizing in self.precisions if sizing.java_bytes <= memory_bytes]
        return next((bits for bits in fitting if bits >= DEFAULT_PRECISION_BITS), most)


@arguments.checked
def nack_sizes(
    rate: float | None = None,
    delay: Delay = "1m",
    *,
    measured: TopicNacks | None = None,
    batch_size: int | None = None,
    entries_per_ledger: int | None = None,
    acknowledged_every: int = 0,
) -> NackSizes:
    """Return the cost of ``rate`` messages per second nacked for ``delay``, in batches of ``batch_size`` (default 1).

    ``measured``, from ``Topic.measured_nacks``, replaces values of None, and says where nacks lie. Every
    ``acknowledged_every``-th entry is not nacked, 0: none. Raises InvalidValue.
    """
    from pulsar_admin.store.nacks.holes import TopicNacks  # here: loads need no store
    from pulsar_admin.store.nacks.sizes import ENTRIES_PER_LEDGER, NackLoad, size_table

    given = None if measured is None else arguments.given_object("measured", measured, TopicNacks)
    usual = (given.batch_size, given.entries_per_ledger) if given else (1, ENTRIES_PER_LEDGER)
    per_entry = usual[0] if batch_size is None else batch_size
    per_ledger = usual[1] if entries_per_ledger is None else entries_per_ledger
    if rate is None:
        if given is None or given.nacked_entries_per_second is None:
            raise InvalidValue("how many nacks a second?", hint="give rate, or measured, of entries of several times")
        rate = given.nacked_entries_per_second * per_entry
    load = NackLoad(rate, arguments.delay_ms(delay), per_entry, per_ledger, acknowledged_every)
    return NackSizes(load, given, size_table(load, given))


class Transactions(Planner):
    """The transactions in the coordinators' logs. All methods raise NotFound (no such coordinator) and EntryCorrupt."""

    def coordinators(self) -> Mapping[str, str]:
        """Return coordinator number → URL of the cluster; a store does not show which broker runs a coordinator."""
        with self._session.reporting() as problems:
            return self._session.ask(transactions.coordinators, problems)

    def stats(self, coordinator: int | None = None) -> Mapping[str, transactions.CoordinatorStats]:
        """Return each coordinator's log, or one's, by coordinator number: open transactions, newest number."""
        return self._session.ask_entries(transactions.coordinator_stats, coordinator)

    def internal_stats(self, coordinator: int, *, metadata: bool = False) -> transactions.LogStats:
        """Return the ledgers and cursors of a coordinator's log; ``metadata`` is that of ``Topic.internal_stats``."""
        return self._session.ask_entries(transactions.coordinator_log, coordinator, metadata)

    def transaction(self, most: int, least: int) -> transactions.TransactionMetadata:
        """Return the topics and subscriptions of transaction ``least`` of coordinator ``most``; raises NotFound unless it is open."""
        return self._session.ask_entries(transactions.transaction_metadata, TxnId(most, least))

    def open(
        self, *, coordinator: int | None = None, timeout_above: Delay | None = None
    ) -> Mapping[str, transactions.TransactionMetadata]:
        """Return open transactions by id, of one coordinator or all, whose timeout (not age) is above ``timeout_above``."""
        timeout_ms = -1 if timeout_above is None else arguments.delay_ms(timeout_above)
        return self._session.ask_entries(transactions.slow_transactions, coordinator, timeout_ms)

    def scale(self, coordinators: JavaInt) -> Plan:
        """Plan increasing the number of transaction coordinators; raises InvalidValue, Refused."""
        from pulsar_admin.store.changes.topics import plan_coordinators

        return self._planned(plan_coordinators, coordinators)


class TopicTransactions(Named):
    """The transactions in the entries of one topic or partition, all of which are read. Raises TopicNotFound."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    def stats(self) -> transactions.BufferStats:
        """Return how far committed messages reach, how many transactions are open, and how many were aborted."""
        return self._session.ask_entries(transactions.buffer_stats, self._name, of=self._name)

    def transaction(self, most: int, least: int) -> transactions.InBuffer:
        """Return where transaction ``least`` of coordinator ``most`` starts (None: it is not open here), and whether it was aborted."""
        return self._session.ask_entries(transactions.in_buffer, self._name, TxnId(most, least), of=self._name)

    def snapshot_stats(self, *, metadata: bool = False) -> transactions.LogStats:
        """Return the ledgers and cursors of the namespace's snapshot topic; ``metadata`` is that of ``Topic.internal_stats``."""
        return self._session.ask_entries(transactions.snapshot_log, self._name, metadata)


class CursorTransactions(Named):
    """Transactions that acknowledged on a subscription, from its pending-ack log, for one topic or partition.

    Every question raises TopicNotFound, SubscriptionNotFound, EntryCorrupt.
    """

    def __init__(self, session: Session, name: TopicName, subscription: str) -> None:
        self._session = session
        self._name = name
        self._subscription = subscription

    def stats(self) -> transactions.PendingAckStats:
        """Return how many open transactions hold acknowledgements."""
        return self._session.ask_entries(transactions.pending_ack_stats, self._name, self._subscription)

    def transaction(self, most: int, least: int) -> transactions.InPendingAcks:
        """Return what transaction ``least`` of coordinator ``most`` acknowledged cumulatively (None: nothing)."""
        txn = TxnId(most, least)
        return self._session.ask_entries(transactions.in_pending_ack, self._name, self._subscription, txn)

    def internal_stats(self, *, metadata: bool = False) -> transactions.LogStats:
        """Return the ledgers and cursors of the log; ``metadata`` is that of ``Topic.internal_stats``."""
        return self._session.ask_entries(transactions.pending_ack_log, self._name, self._subscription, metadata)
