"""Facts of partitioned topics whose metadata and existing partitions disagree."""

from contextlib import suppress
from itertools import count, islice

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import Corrupt, StoreError
from pulsar_admin.store.model.topics import iter_partitioned, iter_topics, read_partitioned, read_topic
from pulsar_admin.store.names import PARTITION_SUFFIX, TopicName

_CREATED_MAX = 10_000


class Partitions(Struct, frozen=True):
    """A name with partitions. ``record``: its metadata, None without any; ``there``: the numbers of the partitions that exist.

    ``is_plain``: whether a topic has the name itself, without a number. ``entries`` and ``bytes``: those of the partitions, None if one
    cannot be read; ``damaged``: partitions whose list of ledgers is damaged; ``plain_entries``: those of the topic itself.
    """

    name: TopicName
    record: PartitionedTopic | None
    there: tuple[int, ...]
    is_plain: bool
    entries: int | None = None
    bytes: int | None = None
    plain_entries: int | None = None
    damaged: tuple[int, ...] = ()

    @property
    def counts_too_many(self) -> bool:
        """Whether implausibly many partitions are missing: a number is then part of a topic's name, or damaged."""
        highest = max(self.there[-1] + 1 if self.there else 0, self.record.partitions if self.record else 0)
        return highest - len(self.there) > _CREATED_MAX

    @property
    def is_refused(self) -> bool:
        """Whether the metadata is missing and cannot be created by a command: ``CmdTopics`` (4.0.8) refuses such a name."""
        return self.record is None and PARTITION_SUFFIX in self.name.local_name

    @property
    def missing(self) -> int:
        """How many partitions in the metadata's number do not exist."""
        counted = self.record.partitions if self.record else 0
        return max(0, counted) - sum(index < counted for index in self.there)

    def first_missing(self, most: int) -> tuple[int, ...]:
        """Return the numbers of the first ``most`` missing partitions; the metadata may have two billion."""
        there = set(self.there)
        return tuple(islice((index for index in count() if index not in there), min(most, self.missing)))

    @property
    def beyond(self) -> tuple[int, ...]:
        """The numbers of the existing partitions beyond the metadata's number."""
        return tuple(index for index in self.there if self.record is None or index >= self.record.partitions)


def find_disagreeing(txn: Txn) -> tuple[Partitions, ...]:
    """Return the names whose metadata and partitions disagree, in name order, without system topics, which are created on use.

    Upstream ``PartitionedTopicResources`` and ``BrokerService.fetchPartitionedTopicMetadataAsync`` (4.0.8): metadata with 0 partitions
    means a topic that is not partitioned.
    """
    numbers: dict[TopicName, list[int]] = {}
    for name in iter_topics(txn, containing=PARTITION_SUFFIX):
        if name.is_partition and not name.base.is_partition and name.base.local_name:
            numbers.setdefault(name.base, []).append(name.partition_index)
    disagreeing = []
    for name in sorted({*numbers, *iter_partitioned(txn)}):
        if name.is_system:
            continue
        with suppress(StoreError):  # the checks tell of what cannot be read
            is_plain = find_node(txn, name.path) is not None
            read = read_partitioned(txn, name)
            record = read if read.partitions > 0 else None
            one = Partitions(name, record, tuple(sorted(numbers.get(name, ()))), is_plain)
            if is_plain or one.missing or one.beyond or (record is not None and record.deleted):
                disagreeing.append(_sized(txn, one))
    return tuple(disagreeing)


def _sized(txn: Txn, one: Partitions) -> Partitions:
    with suppress(StoreError):  # the checks tell of what cannot be read
        topics, damaged = [], []
        for index in one.there:
            try:
                topics.append(read_topic(txn, one.name.partition(index)))
            except Corrupt:
                damaged.append(index)
        one = replace(one, damaged=tuple(damaged))
        if not damaged:
            entries, size = (
                sum(topic.number_of_entries for topic in topics),
                sum(topic.total_size_bytes for topic in topics),
            )
            one = replace(one, entries=entries, bytes=size)
    with suppress(StoreError):
        if one.is_plain:
            one = replace(one, plain_entries=read_topic(txn, one.name).number_of_entries)
    return one
