"""The end of a topic as a broker counts it for readers: its last dispatchable entry.

Upstream ``PersistentTopic.getLastDispatchablePosition`` (4.0.8): not behind the first message of an open transaction, and
neither a marker nor an entry of an aborted transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.codec.message import is_marker, transaction_id
from pulsar_admin.store.compaction.heads import EntryHead, read_entry_head
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, TopicNotFound
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName

_TXN_COMMIT = 21  # MarkerType; named here because reading messages costs a command that reads heads only 7 ms
_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")


class PassedOver(Struct, frozen=True):
    """An entry that readers do not get, and why."""

    position: Position
    reason: str


class TopicEnd(Struct, frozen=True):
    """Where readers of a topic end. ``head`` None: they get nothing behind the floor that was given."""

    head: EntryHead | None
    passed_over: tuple[PassedOver, ...]


class Transactions(Struct, frozen=True):
    """The transactions of some entries: those committed, and the first entry of one that has neither marker."""

    committed: frozenset[tuple[int, int]]
    first_open: Position | None


def find_topic_end(
    reader: EntryReader, topic: Topic, floor: Position | None, transactions: Transactions | None = None
) -> TopicEnd:
    """Return the last entry behind FLOOR (None: of the whole topic) that readers get; raises EntryNotFound, EntryCorrupt.

    TRANSACTIONS: those behind FLOOR, when they are known. They cost a pass over the heads behind FLOOR; a topic without any costs
    its last entry.
    """
    passed: list[PassedOver] = []
    if transactions is None and has_transactions(reader, topic.name):
        transactions = read_transactions(reader, topic, floor)
    for rank in range(topic.number_of_entries - 1, rank_behind(topic, floor) - 1, -1):
        head = read_entry_head(reader, topic.at_rank(rank))
        if transactions is None and transaction_id(head.metadata) is not None:
            transactions = read_transactions(reader, topic, floor)
        reason = why_unread(head, transactions)
        if not reason:
            return TopicEnd(head, tuple(passed))
        passed.append(PassedOver(head.position, reason))
    return TopicEnd(None, tuple(passed))


def rank_behind(topic: Topic, floor: Position | None) -> int:
    """Return the rank of the first entry behind FLOOR, 0 for None."""
    return 0 if floor is None else topic.place(floor)


def has_transactions(reader: EntryReader, name: TopicName) -> bool:
    """Whether the namespace's transaction buffer snapshots know the topic: the first transactional message writes one."""
    return any(str(name) in _iter_keys(reader, TopicName(name.namespace, local)) for local in _SNAPSHOTS)


def _iter_keys(reader: EntryReader, name: TopicName) -> Iterator[str]:
    """Yield the keys of a system topic, whose messages are never batched; none when there is no such topic."""
    try:
        topic = read_topic(reader.txn, name)
    except TopicNotFound:
        return
    for position in topic.iter_positions(topic.first_position):
        try:
            yield read_entry_head(reader, position).metadata.partition_key
        except (EntryCorrupt, EntryNotFound):
            continue  # another snapshot of the same topic follows, or its entries themselves tell


def read_transactions(reader: EntryReader, topic: Topic, floor: Position | None) -> Transactions:
    """Return the transactions in the entries behind FLOOR."""
    outcomes: dict[tuple[int, int], bool] = {}
    first: dict[tuple[int, int], Position] = {}
    for rank in range(rank_behind(topic, floor), topic.number_of_entries):
        try:
            head = read_entry_head(reader, topic.at_rank(rank))
        except (EntryCorrupt, EntryNotFound):
            continue  # what is lost opens and ends no transaction; reading it reports that
        found = transaction_id(head.metadata)
        if found is None:
            continue
        if is_marker(head.metadata):
            outcomes[found] = head.metadata.marker_type == _TXN_COMMIT
        else:
            first.setdefault(found, head.position)
    first_open = min((place for found, place in first.items() if found not in outcomes), default=None)
    return Transactions(frozenset(found for found, committed in outcomes.items() if committed), first_open)


def why_unread(head: EntryHead, transactions: Transactions | None) -> str:
    """Return why readers do not get an entry; empty when they do."""
    first_open = None if transactions is None else transactions.first_open
    if first_open is not None and head.position >= first_open:
        return f"at or behind {first_open}, where a transaction is open"
    if is_marker(head.metadata):
        return f"a marker of type {head.metadata.marker_type}"
    found = transaction_id(head.metadata)
    if found is not None and transactions is not None and found not in transactions.committed:
        return f"transaction ({found[0]},{found[1]}) was aborted"
    return ""
