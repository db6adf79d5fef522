"""Read model of scalable topics (Pulsar 5.0): their records, and the segments that have their messages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from pulsar_admin.store.codec.scalable import ScalableTopic, decode_scalable_topic
from pulsar_admin.store.db import tree
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, TopicNotFound
from pulsar_admin.store.names import (
    SCALABLE,
    SCALABLE_TOPICS,
    SEGMENT,
    NamespaceName,
    TopicName,
    decode_name,
    shell_word,
)

_Item = TypeVar("_Item")


def find_scalable(txn: Txn, name: TopicName) -> ScalableTopic | None:
    """Return the scalable topic with a name, of a segment, or that a topic was migrated to; None for none. Raises MetadataCorrupt."""
    node = tree.find_node(txn, name.scalable_path)
    return None if node is None or not node.value else decode_scalable_topic(node.value, node.path, name.whole)


def read_scalable(txn: Txn, name: TopicName) -> ScalableTopic:
    """Return the scalable topic ``name``; raises TopicNotFound, MetadataCorrupt."""
    record = find_scalable(txn, name)
    if record is None:
        raise TopicNotFound(
            f"Scalable topic not found: {name.whole}",
            hint=f"list the existing ones with: pulsar-admin scalable-topics list {shell_word(name.namespace)}",
            topic=str(name),
        )
    return record


def iter_scalable(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[TopicName]:
    """Yield the scalable topics of ``namespace`` (default: all) that have a record, by path; records may be damaged."""
    if namespace is not None:
        root = f"{SCALABLE_TOPICS}/{namespace}"
        for child in tree.iter_children(txn, root):
            node = tree.find_node(txn, f"{root}/{child}")
            if node is not None and node.value:
                yield TopicName(namespace, decode_name(child), SCALABLE)
        return
    for tenant in tree.iter_children(txn, SCALABLE_TOPICS):
        for name in tree.iter_children(txn, f"{SCALABLE_TOPICS}/{tenant}"):
            yield from iter_scalable(txn, NamespaceName(tenant, name))


def expand_scalable(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return the managed ledgers that have the messages of the scalable topic ``name``, parents before their children.

    Raises TopicNotFound, MetadataCorrupt.
    """
    return tuple(dict.fromkeys(one.topic for one in read_scalable(txn, name).segments))


def in_one_order(
    txn: Txn, names: Sequence[TopicName], problems: list[StoreError]
) -> list[tuple[ScalableTopic | None, list[TopicName]]]:
    """Return (scalable topic or None, names) for groups of topics: several segments of one scalable topic, which include the topics that
    were migrated to it, are a group; every other topic is one alone.

    Segments whose record is damaged are alone, too; the error is added to ``problems``.
    """
    record_of: dict[TopicName, ScalableTopic] = {}
    wholes = dict.fromkeys(name.whole for name in names if name.domain == SEGMENT) if len(names) > 1 else ()
    for whole in wholes:
        try:
            record = find_scalable(txn, whole)
        except MetadataCorrupt as error:
            problems.append(error)
        else:
            record_of |= {} if record is None else dict.fromkeys((one.topic for one in record.segments), record)
    groups: dict[TopicName, list[TopicName]] = {}
    for name in names:
        groups.setdefault(record_of[name].topic if name in record_of else name, []).append(name)
    return [(record_of.get(group[0]) if len(group) > 1 else None, group) for group in groups.values()]


def iter_by_time(
    found: ScalableTopic, streams: Mapping[TopicName, Iterator[_Item]], time_of: Callable[[_Item], int]
) -> Iterator[_Item]:
    """Yield the items of segments: those of parents before those of their children, else by time, of equal times by segment id.

    ``streams``: the segments that are read, each in its own order, parents first.
    """
    names = {one.segment_id: one.topic for one in found.segments}
    numbers = {name: number for number, name in names.items()}
    children: dict[TopicName, list[TopicName]] = {name: [] for name in streams}
    waits_for = dict.fromkeys(streams, 0)
    for one in found.segments:
        for parent in {names[number] for number in one.parents if number in names}:
            if parent in children and one.topic in waits_for:
                children[parent].append(one.topic)
                waits_for[one.topic] += 1
    heads: list[tuple[int, int, TopicName, _Item]] = []

    def advance(name: TopicName) -> None:
        ready = [name]
        while ready:
            at = ready.pop()
            waits_for.pop(at, None)
            for item in streams[at]:
                heappush(heads, (time_of(item), numbers.get(at, -1), at, item))
                break
            else:
                for child in children[at]:
                    if child in waits_for:
                        waits_for[child] -= 1
                        ready += [child] if not waits_for[child] else []

    for name in [name for name, count in waits_for.items() if not count]:
        advance(name)
    while heads or waits_for:
        if not heads:  # the record goes in a circle
            advance(next(iter(waits_for)))
            continue
        _, _, name, item = heappop(heads)
        yield item
        advance(name)
