"""Transactions, as a broker that starts on the store recovers them: of coordinators, of a topic's entries, of a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pulsar_admin.api.given import Delay, delay_ms, given_flag, whole_number
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.planner import Named, Planner
from pulsar_admin.api.session import Session
from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.model.transactions import (
    coordinator_ids,
    log_topic,
    read_buffer,
    read_coordinator,
    read_transaction,
)
from pulsar_admin.store.names import INT_MAX, INT_MIN, TopicName
from pulsar_admin.store.reports import transactions as reports
from pulsar_admin.store.reports.transactions import (
    BufferStats,
    CoordinatorStats,
    InBuffer,
    InPendingAcks,
    LogStats,
    PendingAckStats,
    TransactionMetadata,
)

_SNAPSHOT = "__transaction_buffer_snapshot"


class Transactions(Planner):
    """What the coordinators' logs say. Every question raises NotFound (no such coordinator), and EntryCorrupt."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def coordinators(self) -> Mapping[str, str]:
        """Return by the coordinators' numbers the URL of their cluster: which broker has one, a store does not know."""
        with self._session.read() as txn:
            return reports.coordinators(txn)

    def stats(self, coordinator: int | None = None) -> Mapping[str, CoordinatorStats]:
        """Return what each coordinator's log says, by its number, or one COORDINATOR's: how many are open, the newest number."""
        with self._session.reader() as reader:
            numbers = _coordinators(reader, coordinator)
            return {str(number): reports.coordinator_stats(read_coordinator(reader, number)) for number in numbers}

    def internal_stats(self, coordinator: int, *, metadata: bool = False) -> LogStats:
        """Return the ledgers and cursors of the log of COORDINATOR; METADATA: see ``Topic.internal_stats``."""
        number, wanted = whole_number("coordinator", coordinator), given_flag("metadata", metadata)
        with self._session.reader() as reader:
            read_coordinator(reader, number)
            return reports.log_stats(reader, log_topic(number), metadata=wanted)

    def transaction(self, most: int, least: int) -> TransactionMetadata:
        """Return an open transaction, LEAST of the coordinator MOST: its topics and subscriptions; NotFound: it is not open."""
        txn_id = _txn_id(most, least)
        with self._session.reader() as reader:
            return reports.transaction_metadata(reader, read_transaction(reader, txn_id))

    def open(
        self, *, coordinator: int | None = None, timeout_above: Delay | None = None
    ) -> Mapping[str, TransactionMetadata]:
        """Return by their ids the open transactions, of one COORDINATOR or all, whose timeout, not their age, is TIMEOUT_ABOVE that."""
        timeout_ms = -1 if timeout_above is None else delay_ms(timeout_above)
        with self._session.reader() as reader:
            return reports.slow_transactions(reader, _coordinators(reader, coordinator), timeout_ms)

    def scale(self, coordinators: int) -> Plan:
        """Plan that there are so many COORDINATORS, more than now; raises InvalidValue, Refused."""
        from pulsar_admin.store.changes.topics import plan_coordinators

        return self._session.plan(plan_coordinators, whole_number("coordinators", coordinators, INT_MIN, INT_MAX))


class TopicTransactions(Named):
    """What the entries of one topic or partition say of transactions; all of them are read. Raises TopicNotFound."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    def stats(self) -> BufferStats:
        """Return how far committed messages reach, how many transactions are open, and how many were aborted."""
        with self._session.reader() as reader:
            return reports.buffer_stats(reader, self._name)

    def transaction(self, most: int, least: int) -> InBuffer:
        """Return where the transaction LEAST of the coordinator MOST starts, if it is open, and whether it was aborted."""
        txn_id = _txn_id(most, least)
        with self._session.reader() as reader:
            return reports.in_buffer(read_buffer(reader, self._name), txn_id)

    def snapshot_stats(self, *, metadata: bool = False) -> LogStats:
        """Return the ledgers and cursors of the namespace's topic of snapshots; METADATA: see ``Topic.internal_stats``."""
        wanted = given_flag("metadata", metadata)
        with self._session.reader() as reader:
            read_topic(reader.txn, self._name)
            log = TopicName(self._name.namespace, _SNAPSHOT)
            return reports.log_stats(reader, log, _SNAPSHOT, metadata=wanted)


class CursorTransactions(Named):
    """What the log of a subscription says of transactions that acknowledged on it, of one topic or partition.

    Every question raises TopicNotFound, SubscriptionNotFound, EntryCorrupt.
    """

    def __init__(self, session: Session, name: TopicName, subscription: str) -> None:
        self._session = session
        self._name = name
        self._subscription = subscription

    def stats(self) -> PendingAckStats:
        """Return how many open transactions hold acknowledgements."""
        with self._reader() as reader:
            return reports.pending_ack_stats(reader, self._name, self._subscription)

    def transaction(self, most: int, least: int) -> InPendingAcks:
        """Return the position that the transaction LEAST of the coordinator MOST acknowledged cumulatively, if it did."""
        txn_id = _txn_id(most, least)
        with self._reader() as reader:
            return reports.in_pending_ack(reader, self._name, self._subscription, txn_id)

    def internal_stats(self, *, metadata: bool = False) -> LogStats:
        """Return the ledgers and cursors of the log; METADATA: see ``Topic.internal_stats``."""
        wanted = given_flag("metadata", metadata)
        with self._reader() as reader:
            return reports.log_stats(reader, self._name.pending_ack(self._subscription), metadata=wanted)

    @contextmanager
    def _reader(self) -> Iterator[EntryReader]:
        with self._session.reader() as reader:
            reports.check_subscription(reader.txn, self._name, self._subscription)
            yield reader


def _coordinators(reader: EntryReader, coordinator: int | None) -> list[int]:
    return coordinator_ids(reader.txn) if coordinator is None else [whole_number("coordinator", coordinator)]


def _txn_id(most: int, least: int) -> TxnId:
    return TxnId(whole_number("most", most), whole_number("least", least))
