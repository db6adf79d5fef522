"""Read model of ``partitioned-stats-internal``, in upstream's shape (``PartitionedTopicInternalStats``)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import existing_partitions, read_partitioned
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.reports.internal_stats import InternalStats, read_internal_stats
from pulsar_admin.store.wording import Answer


class PartitionedInternalStats(Answer, frozen=True):
    """``metadata``: the number of partitions; ``partitions``: name → what ``stats-internal`` shows."""

    metadata: PartitionedTopic
    partitions: Mapping[str, InternalStats]


def read_partitioned_internals(
    reader: EntryReader, name: TopicName, *, metadata: bool, publish_times: bool, problems: list[StoreError]
) -> PartitionedInternalStats:
    """Return the internal statistics of the partitions that exist; see ``read_internal_stats``."""
    options = {"metadata": metadata, "publish_times": publish_times}
    parts = {
        str(part): read_internal_stats(reader, part, problems=problems, **options)
        for part in existing_partitions(reader.txn, name)
    }
    return PartitionedInternalStats(read_partitioned(reader.txn, name), parts)
