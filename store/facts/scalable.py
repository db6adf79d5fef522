"""Facts of scalable topics: their records, the segments that exist, and the cursors of each.

Upstream (5.0.1): ``SegmentLayout``, ``ScalableTopicController``. A split or a merge creates the managed ledgers of the new segments and
their cursors, terminates those of the old ones, and then writes the record, which is the moment that counts.
"""

from collections import defaultdict
from contextlib import suppress
from itertools import pairwise

from msgspec import Struct

from pulsar_admin.store.codec.scalable import HASH_MAX, ScalableTopic, Segment
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import is_consumed, iter_cursor_names
from pulsar_admin.store.model.nodes import iter_segments
from pulsar_admin.store.model.scalable import find_scalable, iter_scalable
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import TopicName


class SegmentFacts(Struct, frozen=True):
    """A managed ledger of a scalable topic. ``said``: its entry in the record, None if no record lists it.

    ``topic``: None if the managed ledger does not exist or cannot be read; ``subscriptions``: the cursors of consumers.
    """

    name: TopicName
    said: Segment | None
    is_there: bool
    topic: Topic | None
    subscriptions: frozenset[str]


class ScalableFacts(Struct, frozen=True):
    """A scalable topic. ``record``: None where it does not exist, or cannot be read (``error``)."""

    name: TopicName
    record: ScalableTopic | None
    error: StoreError | None
    segments: tuple[SegmentFacts, ...]

    @property
    def is_pruned(self) -> bool:
        """Whether consumed segments are missing from the record: a broker removes them from it, and deletes their ledgers."""
        record = self.record
        return record is not None and len(record.segments) < record.next_segment_id


def iter_untiled(live: tuple[Segment, ...]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (first hash, last hash, segment ids) of each range of hashes that none or several of the segments ``live`` cover."""
    came, went = defaultdict(list), defaultdict(list)
    for one in live:
        came[one.start].append(one.segment_id)
        went[one.end + 1].append(one.segment_id)
    have: dict[int, None] = {}  # ordered, as a set is not
    untiled = []
    for first, after in pairwise(sorted({0, HASH_MAX + 1, *came, *went})):
        have |= dict.fromkeys(came[first])
        for segment_id in went[first]:
            del have[segment_id]
        if len(have) != 1:
            untiled.append((first, after - 1, tuple(have)))
    return untiled


def read_scalable_topics(txn: Txn) -> tuple[ScalableFacts, ...]:
    """Return all scalable topics by name, including those of which only segments exist."""
    there: dict[TopicName, list[TopicName]] = {}
    for name in iter_segments(txn):
        there.setdefault(name.whole, []).append(name)
    return tuple(read_scalable_facts(txn, name, there.get(name, ())) for name in sorted({*there, *iter_scalable(txn)}))


def read_scalable_facts(txn: Txn, name: TopicName, there: list[TopicName] | tuple[TopicName, ...]) -> ScalableFacts:
    """Return the facts of the scalable topic ``name`` that has the segments ``there``."""
    record, error = None, None
    try:
        record = find_scalable(txn, name)
    except StoreError as found:
        error = found
    said = {} if record is None else {one.topic: one for one in record.segments}
    names = (*said, *(one for one in there if one not in said))
    return ScalableFacts(name, record, error, tuple(_segment(txn, one, said.get(one)) for one in names))


def _segment(txn: Txn, name: TopicName, said: Segment | None) -> SegmentFacts:
    topic = None
    is_there = find_node(txn, name.path) is not None
    with suppress(StoreError):  # what reads every topic tells
        topic = read_topic(txn, name) if is_there else None
    return SegmentFacts(name, said, is_there, topic, frozenset(filter(is_consumed, iter_cursor_names(txn, name))))
