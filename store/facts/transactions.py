"""Facts about transactions: which are open on a topic, what their coordinators recorded, and a subscription's log of pending
acknowledgements, which a broker replays before it opens the subscription.

Upstream (4.0.8): ``TopicTransactionBuffer``, ``MLTransactionMetadataStore``, ``MLPendingAckStore``.
"""

from contextlib import suppress

from msgspec import Struct

from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.files import iter_metadata_damage
from pulsar_admin.store.db.ledger_ids import find_next_ledger_id
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.model.broken import NO_LEDGER, NO_METADATA, BrokenLedger, find_broken
from pulsar_admin.store.model.cursors import PENDING_ACK_CURSOR, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import (
    Topic,
    find_pending_ack,
    find_pending_ack_logs,
    may_be_broken,
    read_partitioned,
    read_topic,
)
from pulsar_admin.store.model.transactions import ASSIGN, OpenTransaction, coordinator_ids, log_topic, read_coordinator
from pulsar_admin.store.names import SEGMENT, Position, TopicName, pending_ack_names

_POLICIES = "/admin/policies"
"""Brokers may keep this in another metadata store (``configurationMetadataStoreUrl``), and the number of coordinators with it."""
_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")


def read_coordinated(reader: EntryReader) -> dict[TxnId, OpenTransaction]:
    """Return the open transactions of all coordinators whose logs can be read."""
    known: dict[TxnId, OpenTransaction] = {}
    for number in coordinator_ids(reader.txn):
        with suppress(StoreError):
            known |= read_coordinator(reader, number).open
    return known


class UnassignedCoordinators(Struct, frozen=True):
    """Coordinators that have a log, but whose numbers are not below the recorded number of coordinators.

    ``recorded``: that number, 0 if nothing records it; ``open``: their open transactions, None if a log cannot be read.
    """

    numbers: tuple[int, ...]
    recorded: int
    open: int | None

    @property
    def matters(self) -> bool:
        """Whether it has an effect: it has none if the number is recorded and these coordinators have no open transaction."""
        return not self.recorded or self.open != 0


@once
def find_unassigned(reader: EntryReader) -> UnassignedCoordinators | None:
    """Return the coordinators that no client asks for; None for none, or if the recorded number is unknown or may be in metadata that was
    not imported.

    ``TransactionCoordinatorClientImpl`` (4.0.8) asks for as many as ``ASSIGN`` has partitions, and brokers load a log when they are asked.
    Where nothing is recorded, a standalone Pulsar (``PulsarStandalone``) starts with one.
    """
    txn = reader.txn
    is_recorded = find_node(txn, ASSIGN.partitioned_path) is not None
    if not is_recorded and (next(iter_children(txn, _POLICIES), None) is None or any(iter_metadata_damage(txn))):
        return None
    try:
        recorded = max(0, read_partitioned(txn, ASSIGN).partitions)
    except MetadataCorrupt:  # the checks tell
        return None
    starts_one = not is_recorded and any(source.get("kind") == "standalone" for source in txn.store.info.sources)
    first = 1 if starts_one else recorded
    numbers = [one for one in coordinator_ids(txn) if one >= first and find_node(txn, log_topic(one).path) is not None]
    if not numbers:
        return None
    try:
        opened: int | None = sum(len(read_coordinator(reader, one).open) for one in numbers)
    except StoreError:
        opened = None
    return UnassignedCoordinators(tuple(numbers), recorded, opened)


def has_snapshot(reader: EntryReader, name: TopicName) -> bool:
    """Whether a broker took a snapshot of the transactions of ``name``, as it does before the first one writes to it.

    Upstream: ``SingleSnapshotAbortedTxnProcessorImpl``, ``SnapshotSegmentAbortedTxnProcessorImpl``; the key is the topic's name.
    """
    if name.domain == SEGMENT:
        return any(any(iter_children(reader.txn, root)) for root in ("/txn/id", "/txn/segment-state/aborted"))
    from pulsar_admin.store.compaction.reading import iter_view  # few topics have transactions
    from pulsar_admin.store.model.compacted_view import open_view

    for local in _SNAPSHOTS:
        system = TopicName(name.namespace, local)
        if find_node(reader.txn, system.path) is None:
            continue
        try:
            topic, problems = read_topic(reader.txn, system), list[StoreError]()
            messages = iter_view(reader, topic, open_view(reader, topic, problems), problems)
            if any(message.key == str(name) for message in messages) or problems:
                return True
        except StoreError:  # it may be there
            return True
    return False


class PendingAckLog(Struct, frozen=True):
    """The log of a subscription's pending acknowledgements. ``mark_delete``: the position of its cursor.

    ``endless_until``: the end of the empty log if a replay from there never reaches it, (-1, -1) if the log lists no ledger; None if the
    replay reaches the end. ``lost``: the ledgers that the replay cannot read completely.
    """

    name: TopicName
    mark_delete: Position
    endless_until: Position | None
    lost: tuple[BrokenLedger, ...]

    @property
    def is_replayed(self) -> bool:
        """Whether a broker's replay comes to its end."""
        return self.endless_until is None and not self.lost

    @property
    def replayed_until(self) -> Position | None:
        """The entry at which a broker's replay stops; None if it reaches the last entry."""
        after = Position(self.mark_delete.ledger_id, self.mark_delete.entry_id + 1)
        for broken in self.lost:
            for first, last in broken.lost:
                if Position(broken.ledger_id, last) >= after:
                    return max(Position(broken.ledger_id, first), after)
        return None


def read_pending_ack_log(reader: EntryReader, name: TopicName, subscription: str) -> PendingAckLog | None:
    """Return the log of ``subscription`` of the topic ``name``; None if no transaction ever acknowledged on it.

    Upstream ``MLPendingAckStore.PendingAckReplay`` (4.0.8) reads until it is at the log's last confirmed entry. Raises MetadataCorrupt.
    """
    logs = find_pending_ack_logs(reader.txn, name.namespace)
    if logs is not None and logs.isdisjoint(pending_ack_names(name.local_name, subscription)):
        return None  # as of all but a few of what may be millions
    log = find_pending_ack(reader.txn, name, subscription)
    if log is None:
        return None
    topic = read_topic(reader.txn, log)
    mark_delete = topic.first_position  # at which a broker makes the log's cursor
    if find_node(reader.txn, log.cursor_path(PENDING_ACK_CURSOR)) is not None:
        cursor = read_cursor(reader.txn, reader, topic, PENDING_ACK_CURSOR)
        # Without ledgers nothing is ahead of the end: a broker begins with a new one.
        mark_delete = cursor.mark_delete if topic.ids else cursor.ahead or cursor.mark_delete
    broken = find_broken(reader.txn, topic) if may_be_broken(reader.txn, topic) else ()
    left, lost = topic.place(mark_delete), list[BrokenLedger]()
    for one in broken:
        # A broker that loads the log takes a last ledger that BookKeeper does not know off its list.
        is_dropped = one.is_last and one.reason in (NO_LEDGER, NO_METADATA) and not one.is_damaged
        if one.lost and not is_dropped and topic.rank(Position(one.ledger_id, 0)) + one.lost[-1][1] + 1 > left:
            lost.append(one)
    is_endless = never_replays(reader.txn, topic, mark_delete) and not any(one.not_seen() for one in broken)
    return PendingAckLog(log, mark_delete, topic.last_confirmed if is_endless else None, tuple(lost))


def never_replays(txn: Txn, topic: Topic, mark_delete: Position) -> bool:
    """Whether a replay from ``mark_delete``, the stored position of an empty log, never reaches the end that a broker computes.

    ``ManagedLedgerImpl.initLastConfirmedEntry`` and ``ManagedCursorImpl.recoveredCursor`` (4.0.8): the last confirmed entry of a log
    without entries is (first ledger, -1), and that of a log without ledgers is in the ledger that the broker creates. If the ledger of a
    cursor is gone, a cursor at (ledger, -1) moves to the next ledger, but one at an entry stays.
    """
    if topic.number_of_entries or mark_delete.entry_id < 0:
        return False
    if topic.ids:
        return mark_delete < Position(topic.ids[0], -1)
    next_id = find_next_ledger_id(txn)  # unknown: the new ledger may be before the position
    return next_id is not None and mark_delete.ledger_id < next_id
