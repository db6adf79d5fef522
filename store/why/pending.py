"""Transactions that hold a subscription: open ones, which nobody is given, and acknowledgements that are not committed.

Upstream (4.0.8): ``TopicTransactionBuffer.getMaxReadPosition``, ``PendingAckHandleImpl``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from store.codec.transactions import TxnId
from store.compaction.reading import iter_view
from store.compaction.view import open_view
from store.db.tree import find_node
from store.errors import StoreError
from store.frozen import frozen
from store.model.cursors import Cursor
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.model.transactions import (
    Buffer,
    OpenTransaction,
    coordinator_ids,
    read_buffer,
    read_coordinator,
    read_pending_acks,
)
from store.names import Position, TopicName, shell_word
from store.timespec import format_age_ms
from store.why.front import Front
from store.why.reason import Reason, when
from store.wording import counted, listed, plural

_SHOWN = 3
_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")


@frozen
class TransactionFacts:
    """What is known of transactions on a topic. ``first``: where the first entry of each open one is; ``known``: what their coordinators
    say; ``acks``: open ones with acknowledgements on the subscription. ``error``: why the topic's own could not be read."""

    first: Mapping[TxnId, Position]
    aborted: int
    known: Mapping[TxnId, OpenTransaction]
    acks: tuple[TxnId, ...]
    error: StoreError | None = None


def read_transaction_facts(reader: EntryReader, topic: Topic, cursor: Cursor, front: Front | None) -> TransactionFacts:
    """Return what is known; all entries of TOPIC are read where a transaction ever wrote to it, as far as that is known.

    Logs that cannot be read say nothing.
    """
    known: dict[TxnId, OpenTransaction] = {}
    for number in coordinator_ids(reader.txn):
        try:
            known |= read_coordinator(reader, number).open
        except StoreError:
            continue
    is_written = (
        (front is not None and front.transaction is not None)
        or any(str(topic.name) in one.partitions for one in known.values())
        or has_snapshot(reader, topic.name)
    )
    buffer, unread = Buffer(), None
    try:
        buffer = read_buffer(reader, topic.name) if is_written else buffer
    except StoreError as error:  # of its entries: what else holds the subscription is told all the same
        unread = error
    try:
        acks = read_pending_acks(reader, topic.name, cursor.name) or {}
    except StoreError:
        acks = {}
    return TransactionFacts(buffer.first, len(buffer.aborted), known, tuple(acks), unread)


def has_snapshot(reader: EntryReader, name: TopicName) -> bool:
    """Whether a broker took a snapshot of the transactions of NAME, as it does before the first one writes to it.

    Upstream: ``SingleSnapshotAbortedTxnProcessorImpl``, ``SnapshotSegmentAbortedTxnProcessorImpl``; the key is the topic's name.
    """
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


def iter_transaction_reasons(
    topic: Topic, cursor: Cursor, found: TransactionFacts, oldest: Position | None, now_ms: int
) -> Iterator[Reason]:
    """Yield what transactions have to do with CURSOR, whose first entry that is left is OLDEST."""
    if found.error is not None:
        yield Reason(
            "transactions-unknown",
            f"Which transactions are open here is not known: {found.error.message}.",
            {"error": found.error.code},
        )
    if found.first and oldest is not None:
        txn, first = min(found.first.items(), key=lambda item: item[1])
        others = f" ({counted(len(found.first), 'transaction')} {plural(len(found.first), 'is', 'are')} open here)"
        stuck = first <= oldest
        yield Reason(
            "open-transaction" if stuck else "open-transaction-ahead",
            f"{'Nothing is given' if stuck else 'Messages are given up to there, and nothing more'}: {first} is of transaction {txn}, "
            f"which is open{_since(found.known.get(txn), now_ms)}, and a broker reads only what is in front of it"
            f"{others if len(found.first) > 1 else ''}.",
            {"transaction": str(txn), "first": str(first), "open": len(found.first), "oldest": str(oldest)},
            f"pulsar-admin transactions transaction-metadata -m {txn.most} -l {txn.least}"
            if txn in found.known
            else f"pulsar-admin transactions transaction-buffer-stats -t {shell_word(topic.name)}",
        )
    if found.aborted and oldest is not None:
        count = counted(found.aborted, "transaction")
        yield Reason(
            "aborted-transactions",
            f"{count} of this topic {plural(found.aborted, 'was', 'were')} aborted: their messages are in the topic, and a broker passes "
            "over them.",
            {"transactions": found.aborted},
            f"pulsar-admin transactions transaction-buffer-stats -t {shell_word(topic.name)}",
        )
    if found.acks:
        shown = listed(found.acks, _SHOWN)
        holds = plural(len(found.acks), "holds", "hold")
        yield Reason(
            "pending-acks",
            f"{counted(len(found.acks), 'open transaction')} ({shown}) {holds} acknowledgements of {cursor.name}: they count when it is "
            "committed, and come again when it is aborted.",
            {"transactions": [str(txn) for txn in found.acks]},
            f"pulsar-admin transactions pending-ack-stats -t {shell_word(topic.name)} -s {shell_word(cursor.name)}",
        )


def _since(known: OpenTransaction | None, now_ms: int) -> str:
    if known is None:
        return ", and which no coordinator knows any more"
    return f" since {when(known.start_ms, now_ms)} with a timeout of {format_age_ms(known.timeout_ms)}"
