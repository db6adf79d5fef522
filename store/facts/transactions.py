"""Facts of transactions on one topic: which are open, which were aborted, and what their coordinators know of them.

Upstream (4.0.8): ``TopicTransactionBuffer``, ``MLTransactionMetadataStore``.
"""

from __future__ import annotations

from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.compaction.reading import iter_view
from pulsar_admin.store.compaction.view import open_view
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.model.transactions import OpenTransaction, coordinator_ids, read_coordinator
from pulsar_admin.store.names import TopicName

_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")


def read_coordinated(reader: EntryReader) -> dict[TxnId, OpenTransaction]:
    """Return the open transactions of all coordinators; a log that cannot be read says nothing."""
    known: dict[TxnId, OpenTransaction] = {}
    for number in coordinator_ids(reader.txn):
        try:
            known |= read_coordinator(reader, number).open
        except StoreError:
            continue
    return known


def has_snapshot(reader: EntryReader, name: TopicName) -> bool:
    """Whether a broker took a snapshot of the transactions of ``name``, as it does before the first one writes to it.

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
