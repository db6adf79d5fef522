"""Read model of topics: their ledgers, their end, and arithmetic on positions (upstream ``ManagedLedgerImpl``); their partitions, and
whether all their ledgers are whole: the question before ``store.model.broken``, which most topics answer for little.

Imports little: every cold question about a topic loads it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import accumulate, chain, islice, pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store import errors
from pulsar_admin.store.codec.ledgermetadata import find_usual_ledger, ledger_path
from pulsar_admin.store.codec.managedledger import (
    SHADOW_SOURCE,
    LedgerInfo,
    ManagedLedger,
    decode_managed_ledger,
    find_plain_ledgers,
)
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db import tree
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.unserved import has_unserved
from pulsar_admin.store.model.ledgers import find_end, find_metadata, find_sums, find_whole, is_damaged, read_ledger
from pulsar_admin.store.names import (
    PARTITION_SUFFIX,
    PENDING_ACK_SUFFIX,
    PERSISTENT,
    SCALABLE,
    NamespaceName,
    Position,
    TopicName,
    TopicSelection,
    decode_name,
    encode_name,
    is_encoded,
    parse_topic,
    shell_word,
    topic_of_path,
)
from pulsar_admin.store.wording import counted, listed, plural

if TYPE_CHECKING:
    from pulsar_admin.store.codec.policies import PartitionedTopic

PARTITIONS_MAX = 1_000_000
"""Of a topic: each is a node of the metadata; a greater number is damage."""
_SHOWN = 5
"""Partitions that an error names."""


class TopicLedger(Struct, frozen=True):
    """One ledger of a topic with its true size: that of the open last ledger comes from BookKeeper, not from the list."""

    info: LedgerInfo
    entries: int
    size_bytes: int
    is_open: bool

    @property
    def ledger_id(self) -> int:
        return self.info.ledger_id


class Topic:
    """A topic as its metadata and BookKeeper's describe it; positions count as the broker counts them."""

    def __init__(
        self, name: TopicName, stat: NodeStat, managed: ManagedLedger, ledgers: tuple[TopicLedger, ...]
    ) -> None:
        self.name = name
        self.stat = stat
        self.managed = managed
        self.ledgers = ledgers
        self.ids = [ledger.info.ledger_id for ledger in ledgers]
        # ranks[i]: entries before ledger i; one more element for the end.
        self.ranks = list(accumulate([ledger.entries for ledger in ledgers], initial=0))

    @property
    def is_shadow(self) -> bool:
        """Whether its ledgers are those of another topic, its source."""
        return SHADOW_SOURCE in self.managed.properties

    @property
    def number_of_entries(self) -> int:
        return self.ranks[-1]

    @property
    def total_size_bytes(self) -> int:
        return sum(ledger.size_bytes for ledger in self.ledgers)

    @property
    def last_confirmed(self) -> Position:
        """Last entry of the last non-empty ledger, or (last ledger, −1); the terminated position when there is one."""
        if self.managed.terminated is not None:
            return self.managed.terminated
        for ledger in reversed(self.ledgers):
            if ledger.entries:
                return Position(ledger.ledger_id, ledger.entries - 1)
        return Position(self.ids[-1], -1) if self.ids else Position(-1, -1)

    @property
    def first_position(self) -> Position:
        """(first ledger, −1), upstream's getFirstPosition of the managed ledger."""
        return Position(self.ids[0], -1) if self.ids else Position(-1, -1)

    def rank(self, position: Position) -> int:
        """Return how many entries lie before ``position`` (entry −1 counts as the ledger's beginning)."""
        return rank_of(self.ids, self.ranks, position.ledger_id, position.entry_id)

    def place(self, position: Position) -> int:
        """Return how many entries lie at or before ``position``: two positions that nothing lies between have the same place.

        As pairs they differ: (ledger, −1) is the place after the last entry before that ledger.
        """
        return rank_of(self.ids, self.ranks, position.ledger_id, position.entry_id + 1)

    def entries_after(self, position: Position) -> int:
        """Return how many entries lie after ``position``."""
        return self.number_of_entries - self.place(position)

    def at_rank(self, rank: int) -> Position:
        """Return the position of entry number ``rank`` (0-based); past the end: last confirmed + 1."""
        if rank >= self.number_of_entries:
            last = self.last_confirmed
            return Position(last.ledger_id, last.entry_id + 1)
        index = bisect_right(self.ranks, max(rank, 0)) - 1
        return Position(self.ids[index], max(rank, 0) - self.ranks[index])

    def ledger(self, ledger_id: int) -> TopicLedger | None:
        """Return the listed ledger with this id, or None."""
        index = bisect_left(self.ids, ledger_id)
        return self.ledgers[index] if index < len(self.ids) and self.ids[index] == ledger_id else None

    def is_entry(self, position: Position) -> bool:
        """Whether ``position`` names an entry of this topic."""
        ledger = self.ledger(position.ledger_id)
        return ledger is not None and 0 <= position.entry_id < ledger.entries

    def next_valid(self, position: Position) -> Position:
        """Return the next entry after ``position``, across ledger ends; after the last entry, the place where the next one would come."""
        rank = self.place(position)
        if rank < self.number_of_entries:
            return self.at_rank(rank)
        last_ledger = self.ledgers[-1] if self.ledgers else None
        if last_ledger is not None and last_ledger.is_open and last_ledger.entries == 0:
            return Position(last_ledger.ledger_id, 0)
        last = self.last_confirmed
        return Position(last.ledger_id, last.entry_id + 1)

    def previous(self, position: Position) -> Position:
        """Return the position just before ``position``: entry − 1, the end of an earlier non-empty ledger, or (first, −1)."""
        if position.entry_id > 0:
            return Position(position.ledger_id, position.entry_id - 1)
        index = bisect_left(self.ids, position.ledger_id)
        for ledger in reversed(self.ledgers[:index]):
            if ledger.entries:
                return Position(ledger.ledger_id, ledger.entries - 1)
        return self.first_position

    def iter_positions(self, start: Position) -> Iterator[Position]:
        """Yield the positions of all entries from ``start`` on."""
        for index in range(bisect_left(self.ids, start.ledger_id), len(self.ids)):
            ledger = self.ledgers[index]
            first = max(start.entry_id, 0) if ledger.ledger_id == start.ledger_id else 0
            for entry_id in range(first, ledger.entries):
                yield Position(ledger.ledger_id, entry_id)


def rank_of(ids: Sequence[int], ranks: Sequence[int], ledger_id: int, entry_id: int) -> int:
    """Return how many entries lie before an entry in ledgers of these ``ids``, with ``ranks`` as ``Topic.ranks``."""
    index = bisect_left(ids, ledger_id)
    start = ranks[index]
    if entry_id <= 0 or index == len(ids) or ids[index] != ledger_id:
        return start
    return min(start + entry_id, ranks[index + 1])


def read_topic(txn: Txn, name: TopicName) -> Topic:
    """Return the topic; raises TopicNotFound (naming the partitions of a partitioned one), MetadataCorrupt.

    The last topic is cached: commands read a topic in several places, and it may have hundreds of thousands of ledgers.
    """
    node = tree.find_node(txn, name.path)
    if node is None:
        if name.domain == SCALABLE:
            first = next(iter(expand_topic(txn, name)), None)
            raise errors.TopicNotFound(
                f"{name} has segments and no entries of its own",
                hint=f"name a segment, for example {first}",
                topic=str(name),
            )
        partitions = partition_count(txn, name)
        if partitions:
            raise errors.TopicNotFound(
                f"{name} has {counted(partitions, 'partition')} and no entries of its own",
                hint=f"name a partition, for example {name.partition(0)}",
                topic=str(name),
            )
        raise _not_found(txn, name)
    slot = read_topic, name.is_system  # what is read beside a topic leaves it there
    kept: tuple[tree.Node, Topic] | None = txn.memo.pop(slot, None)
    if kept is None or kept[0] != node or not _is_current(txn, kept[1]):
        kept = node, _decode_topic(txn, name, node)
    txn.memo[slot] = kept
    return kept[1]


def _not_found(txn: Txn, name: TopicName) -> errors.TopicNotFound:
    """Return the error for an unknown topic; it names partitions or subscriptions of the topic that still exist."""
    there = list_partitions(txn, name) if name.domain == PERSISTENT and not name.is_partition else []
    if there:
        numbers = [one.partition_index for one in there]
        create = f"create the metadata again: pulsar-admin topics create-partitioned-topic {shell_word(name)} -p {len(numbers)}"
        return errors.TopicNotFound(
            f"no topic {name}: only its {plural(len(there), 'partition')} {listed(numbers, _SHOWN)} "
            f"{plural(len(there), 'exists', 'exist')}, without metadata of a partitioned topic",
            # One that is not there may be lost: it must not be created empty.
            hint=create if numbers[-1] < len(numbers) else "for the meaning and the repair run: pulsar-admin doctor",
            topic=str(name),
            partitions=numbers,
        )
    partitions = partition_count(txn, name.base) if name.is_partition else 0
    if 0 <= name.partition_index < partitions:
        return errors.TopicNotFound(
            f"no topic {name}, although the metadata of {name.base} says {counted(partitions, 'partition')}",
            hint="for the meaning and the repair run: pulsar-admin doctor",
            topic=str(name),
        )
    below = sum(1 for _ in tree.iter_children(txn, name.path))
    if below:
        return errors.TopicNotFound(
            f"no topic {name}: its node is gone, but {counted(below, 'subscription')} {plural(below, 'is', 'are')} still listed",
            hint="for the meaning and the repair run: pulsar-admin doctor",
            topic=str(name),
        )
    return errors.TopicNotFound(
        f"no topic {name}",
        hint=_listing(txn, name.namespace)
        or f"list the existing ones with: pulsar-admin topics list {shell_word(name.namespace)}",
        topic=str(name),
    )


def find_pending_ack(txn: Txn, name: TopicName, subscription: str) -> TopicName | None:
    """Return the topic that logs acknowledgements by transactions on a subscription, None without one."""
    return next((log for log in name.pending_acks(subscription) if tree.find_node(txn, log.path) is not None), None)


def list_partitions(txn: Txn, name: TopicName) -> list[TopicName]:
    """Return the topics that are named like partitions of ``name``, by their numbers, whatever its record says."""
    prefix = encode_name(f"{name.local_name}{PARTITION_SUFFIX}")
    alike = tree.iter_children_like(txn, name.namespace.managed_ledgers_path, prefix)
    partitions = (TopicName(name.namespace, decode_name(child)) for child in alike if is_encoded(child))
    return sorted((one for one in partitions if one.base == name), key=lambda one: one.partition_index)


def _is_current(txn: Txn, topic: Topic) -> bool:
    """Whether a cached ``topic``, whose node is unchanged, is still valid: a write transaction may have changed its open ledger."""
    last = topic.ledgers[-1:]
    if topic.is_shadow and not txn.is_snapshot:
        return False
    return not last or not last[0].is_open or _open_ledger(txn, last[0].info) == last[0]


def _decode_topic(txn: Txn, name: TopicName, node: tree.Node) -> Topic:
    managed = decode_managed_ledger(node.value, node.path)
    if SHADOW_SOURCE in managed.properties:
        managed = _of_source(txn, name, managed)
    ledgers = [TopicLedger(info, info.entries, info.size_bytes, False) for info in managed.ledgers]
    if ledgers and not ledgers[-1].info.timestamp_ms:
        ledgers[-1] = _open_ledger(txn, ledgers[-1].info)
    return Topic(name, node.stat, managed, tuple(ledgers))


def _of_source(txn: Txn, name: TopicName, managed: ManagedLedger) -> ManagedLedger:
    """Return a shadow topic's managed ledger as a broker loads it: with the ledgers of its source (upstream ``ShadowManagedLedgerImpl``),
    which may be more than its own list has, or with its own if the source is gone."""
    try:
        source = parse_topic(managed.properties[SHADOW_SOURCE])
    except errors.InvalidValue:
        return managed
    node = tree.find_node(txn, source.path)
    if node is None and name.is_partition:
        node = tree.find_node(txn, source.partition(name.partition_index).path)
    if node is None:
        return managed
    decoded = decode_managed_ledger(node.value, node.path)
    return ManagedLedger(decoded.ledgers, decoded.terminated, managed.properties)


def _open_ledger(txn: Txn, info: LedgerInfo) -> TopicLedger:
    return TopicLedger(info, *read_open_size(txn, info.ledger_id), True)


def read_open_size(txn: Txn, ledger_id: int) -> tuple[int, int]:
    """Return (entries, payload bytes) of a topic's open ledger, (0, 0) if it is unknown or damaged; raises IndexCorrupt."""
    whole = find_whole(txn, ledger_id)
    if whole is not None:
        return whole.entries, whole.size_bytes
    end = find_end(txn, ledger_id)
    if end is not None:
        return end
    try:
        ledger = read_ledger(txn, ledger_id)
    except (errors.LedgerNotFound, errors.MetadataCorrupt):  # the sweep over ledgers tells of it
        return 0, 0
    return ledger.entries, ledger.size_bytes


def partition_count(txn: Txn, name: TopicName) -> int:
    """Return the number of partitions of a partitioned topic, 0 for any other name."""
    if name.domain != PERSISTENT or name.is_partition or not _has_partitioned(txn, name.namespace):
        return 0
    node = tree.find_node(txn, name.partitioned_path)
    if node is None:
        return 0
    # Imported here: most topics have no partitions.
    from pulsar_admin.store.codec.policies import decode_partitioned_topic

    return decode_partitioned_topic(node.value, node.path).partitions


def _has_partitioned(txn: Txn, namespace: NamespaceName) -> bool:
    """Whether ``namespace`` may have partitioned topics; a snapshot caches the answer for the last namespace."""
    kept: tuple[NamespaceName, bool] | None = txn.memo.get(_has_partitioned) if txn.is_snapshot else None
    if kept is None or kept[0] != namespace:
        altered: list[bytes] = []
        with txn.passing_altered(altered.append):
            first = next(txn.keys("tree", tree.tree_key(f"/admin/partitioned-topics/{namespace}/persistent/")), None)
        txn.memo[_has_partitioned] = kept = namespace, first is not None or bool(altered)
    return kept[1]


def expand_topic(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return ``name``'s partitions when it is a partitioned topic, the segments of its record when it is a scalable one, else ``name``
    itself; raises TopicNotFound, and MetadataCorrupt for a number of partitions that nobody could list.
    """
    if name.domain == SCALABLE:
        from pulsar_admin.store.model.scalable import expand_scalable  # few stores have any

        return expand_scalable(txn, name)
    partitions = partition_count(txn, name)
    if partitions > PARTITIONS_MAX:
        raise errors.MetadataCorrupt(
            f"{name} has {partitions:,} partitions: no topic has more than {PARTITIONS_MAX:,}, so the number is damaged",
            hint=f"see: pulsar-admin topics get-partitioned-topic-metadata {shell_word(name)}",
            topic=str(name),
        )
    if partitions:
        return tuple(name.partition(index) for index in range(partitions))
    if tree.find_node(txn, name.path) is None:
        read_topic(txn, name)  # raises with the right words
    return (name,)


def iter_topics(txn: Txn, namespace: NamespaceName | None = None, containing: str = "") -> Iterator[TopicName]:
    """Yield every topic and partition of ``namespace`` (default: all), system topics included, in name order; ``containing``: part of
    their names.

    A node whose name is not as ``encode_name`` writes it is left out, because no topic name leads to it; ``store check`` reports it.
    """
    for one in iter_all_namespaces(txn) if namespace is None else (namespace,):
        yield from (TopicName(one, name) for name in _local_names(txn, one) if containing in name)


def iter_all_topics(txn: Txn) -> Iterator[TopicName]:
    """Yield every topic and partition in name order, then the segments of scalable topics: everything that has messages."""
    yield from iter_topics(txn)
    from pulsar_admin.store.model.nodes import iter_segments  # few stores have any

    yield from iter_segments(txn)


def iter_topics_between(txn: Txn, namespace: NamespaceName, start: int, end: int) -> Iterator[TopicName]:
    """Yield the topics of ``namespace`` with indexes ``start`` to ``end`` (excluded) in the order of ``iter_topics``; skipping the others
    costs little."""
    return (TopicName(namespace, name) for name in islice(_local_names(txn, namespace), start, end))


def count_topics(txn: Txn, namespace: NamespaceName | None = None) -> int:
    """Return how many topics and partitions ``namespace`` has (default: all)."""
    namespaces = iter_all_namespaces(txn) if namespace is None else (namespace,)
    return sum(1 for one in namespaces for _ in _local_names(txn, one))


_SPLIT_LETTERS = 1 << 16
_RUN_NAMES = 1 << 14


class _NamespaceTopics(Struct, frozen=True):
    """The topics of a namespace as a snapshot keeps them: their local names in order, with NUL between them as there may be a million;
    those of them that are logs of pending acknowledgements, and those that may have no node of their own."""

    names: str
    logs: frozenset[str]
    headless: tuple[str, ...]


def _local_names(txn: Txn, namespace: NamespaceName) -> Iterable[str]:
    kept = _find_listed(txn, namespace)
    if kept is not None:
        return _split(kept.names)
    path, altered, logs, headless = namespace.managed_ledgers_path, list[bytes](), set[str](), list[str]()
    own_bytes = len(f"{path}/".encode())

    def list_names() -> Iterator[str]:
        for child, key in tree.iter_children_and_keys(txn, path):
            if is_encoded(child):
                yield (name := decode_name(child))
                if name.endswith(PENDING_ACK_SUFFIX):
                    logs.add(name)
                if len(key) != own_bytes + len(child):
                    headless.append(name)

    if not txn.is_snapshot:
        return sorted(list_names())
    with txn.noting_altered(altered):
        names = _join(list_names())
    if names is None:
        return sorted(list_names())
    if not altered:
        listed = _NamespaceTopics(names, frozenset(logs), tuple(headless))
        txn.memo.setdefault(_local_names, {})[namespace] = listed
    return _split(names)


def _join(names: Iterator[str]) -> str | None:
    """Return the names in order, joined with NUL; None if one is empty or has a NUL. Joins while it reads: a list of strings takes four
    times the memory."""
    runs = list[tuple[str, str, str]]()
    while run := sorted(islice(names, _RUN_NAMES)):
        runs.append((run[0], run[-1], "\0".join(run)))
        if not run[0] or runs[-1][2].count("\0") >= len(run):
            return None
    is_in_order = all(before[1] < after[0] for before, after in pairwise(runs))
    parts = (run[2] for run in runs)
    return "\0".join(parts if is_in_order else sorted(chain.from_iterable(part.split("\0") for part in parts)))


def _split(names: str) -> Iterator[str]:
    """Yield the names between the NULs, some thousands at once: a list of all takes four times the memory."""
    start = 0
    while start < len(names):
        end = names.find("\0", start + _SPLIT_LETTERS)
        end = len(names) if end < 0 else end
        yield from names[start:end].split("\0")
        start = end + 1


def _find_listed(txn: Txn, namespace: NamespaceName) -> _NamespaceTopics | None:
    kept: dict[NamespaceName, _NamespaceTopics] | None = txn.memo.get(_local_names)
    return None if kept is None else kept.get(namespace)


def find_pending_ack_logs(txn: Txn, namespace: NamespaceName) -> frozenset[str] | None:
    """Return the local names of the logs of pending acknowledgements in ``namespace``; None if its topics have not been listed before."""
    kept = _find_listed(txn, namespace)
    return None if kept is None else kept.logs


def iter_headless(txn: Txn) -> Iterator[TopicName]:
    """Yield the topics of ``iter_topics`` that have no node of their own, only nodes below its path."""
    for namespace in iter_all_namespaces(txn):
        names = _local_names(txn, namespace)
        kept = _find_listed(txn, namespace)
        for name in names if kept is None else kept.headless:
            topic = TopicName(namespace, name)
            if txn.view("tree", tree.tree_key(topic.path)) is None:
                yield topic


def iter_topic_texts(txn: Txn, namespace: NamespaceName, *, system: bool) -> Iterator[str]:
    """Yield every topic and partition of ``namespace`` as text, in name order; a namespace may have a million."""
    root = f"persistent://{namespace}/"
    for name in _local_names(txn, namespace):
        is_usual = "__" not in name and namespace.tenant != "pulsar"
        if system or is_usual or not TopicName(namespace, name).is_system:
            yield root + name


def list_topics(txn: Txn, namespace: NamespaceName | None, *, system: bool) -> tuple[str, ...]:
    """Return every topic and partition of a namespace (None: of all) as text; raises NamespaceNotFound."""
    if namespace is not None:
        check_namespace(txn, namespace)
    chosen = iter_all_namespaces(txn) if namespace is None else (namespace,)
    return tuple(name for one in chosen for name in iter_topic_texts(txn, one, system=system))


def select_topics(txn: Txn, selection: TopicSelection) -> tuple[TopicName, ...]:
    """Return the topics meant by ``selection``, partitioned ones as their partitions; a glob is matched with and without ``persistent://``.

    Raises TopicNotFound for a name that does not exist, and when nothing matches.
    """
    pattern = selection.pattern
    if not selection.all_topics and pattern is None:
        return tuple(topic for name in selection.topics for topic in expand_topic(txn, name))
    topics = tuple(topic for topic in iter_all_topics(txn) if not topic.is_system)
    if pattern is not None:
        topics = tuple(topic for topic in topics if _matches(topic, pattern))
    if not topics:
        raise _no_match(pattern)
    return topics


def check_pattern(txn: Txn, pattern: str) -> None:
    """Raise TopicNotFound if no topic matches the glob ``pattern``, system topics among them."""
    if not any(_matches(topic, pattern) for topic in iter_all_topics(txn)):
        raise _no_match(pattern)


def _no_match(pattern: str | None) -> errors.TopicNotFound:
    return errors.TopicNotFound(
        f"no topic matches {pattern!r}" if pattern is not None else "the store has no topics",
        hint="list the existing ones with: pulsar-admin topics list TENANT/NAMESPACE",
    )


def scan_bytes(txn: Txn, names: Iterable[TopicName]) -> int:
    """Return how many bytes the entries of topics have with their headers, as the metadata says: what a scan reads at most.

    Unreadable topics, which are reported where they are read, have none.
    """
    total = 0
    for name in names:
        with suppress(errors.StoreError):
            sizes = find_plain_size(txn, name)
            if sizes is None:
                topic = read_topic(txn, name)
                sizes = topic.number_of_entries, topic.total_size_bytes
            entries, payload_bytes = sizes
            total += payload_bytes + _HEADER_BYTES * entries
    return total


_HEADER_BYTES = 36
"""Of an entry: ids, last confirmed entry, length, and the CRC-32C that brokers use by default."""


def iter_namespaces(txn: Txn, tenant: str) -> Iterator[NamespaceName]:
    """Yield the namespaces of ``tenant`` that have policies or topics."""
    names = set(tree.iter_children(txn, f"/admin/policies/{tenant}"))
    root = f"/managed-ledgers/{tenant}"
    for first in tree.iter_children(txn, root):
        if tree.has_children(txn, f"{root}/{first}/persistent"):
            names.add(first)
        for second in tree.iter_children(txn, f"{root}/{first}"):  # of a namespace in a cluster, as before Pulsar 2.0
            below = f"{root}/{first}/{second}/persistent"
            if second != "persistent" and tree.has_children(txn, below) and _has_topics(txn, below):
                names.add(f"{first}/{second}")
    for name in sorted(names):
        cluster, _, namespace = name.rpartition("/")
        yield NamespaceName(tenant, namespace, cluster)


def _has_topics(txn: Txn, path: str) -> bool:
    """Whether a node below ``path`` is a topic's: one of a newer Pulsar may lie where namespaces were before Pulsar 2.0."""
    return any(topic_of_path(f"{path}/{name}") is not None for name in tree.iter_children(txn, path))


def list_all_tenants(txn: Txn) -> list[str]:
    """Return the tenants that have policies, namespaces or topics, in order."""
    roots = ("/admin/policies", "/managed-ledgers")
    return sorted({name for root in roots for name in tree.iter_children(txn, root)})


def iter_all_namespaces(txn: Txn) -> Iterator[NamespaceName]:
    """Yield every namespace that has policies or topics, tenant by tenant, in order."""
    for tenant in list_all_tenants(txn):
        yield from iter_namespaces(txn, tenant)


def check_namespace(txn: Txn, namespace: NamespaceName) -> None:
    """Raise NamespaceNotFound unless ``namespace`` has policies or topics."""
    if hint := _listing(txn, namespace):
        raise errors.NamespaceNotFound(f"no namespace {namespace}", hint=hint, namespace=str(namespace))


def _listing(txn: Txn, namespace: NamespaceName) -> str:
    """Return a hint for a namespace that does not exist: list its tenant's namespaces, or the tenants; "" if it exists."""
    if (
        tree.find_node(txn, namespace.policies_path) is not None
        or next(tree.iter_children(txn, namespace.managed_ledgers_path), None) is not None
    ):
        return ""
    if namespace.tenant in list_all_tenants(txn):
        return f"list the existing namespaces with: pulsar-admin namespaces list {shell_word(namespace.tenant)}"
    return "list the existing tenants with: pulsar-admin tenants list"


# -- whether all is there ---------------------------------------------------------------------------------------------


COMPACTION, COMPACTED_LEDGER = "__compaction", "CompactedTopicLedger"
"""The cursor of compaction, and its property that names the compacted ledger."""
_BOOKIES, _NONE_ABSENT, _NO_JOURNAL = b"bookies", b'"absent": []', b'"withoutJournal": ["'
"""The row of ``store.model.coverage``, and what is in it where no bookie is absent, and where one lacks its journal: in an id quotes are
escaped."""


def may_be_broken(txn: Txn, topic: Topic) -> bool:
    """Whether a ledger of ``topic`` is not whole, or an open one may have more entries on a bookie that is not imported."""
    return not all(is_whole(txn, ledger) for ledger in topic.ledgers) or (
        bool(topic.ledgers) and topic.ledgers[-1].is_open and lacks_bookies(txn)
    )


def is_whole(txn: Txn, listed: TopicLedger) -> bool:
    """Return whether a ledger is offloaded, or has metadata, all its entries indexed, and bookies that serve them; few look-ups."""
    if listed.info.offloaded:
        return True
    known = find_whole(txn, listed.ledger_id)
    if known is not None and known.entries == listed.entries:
        return True
    row = txn.view("tree", tree.tree_key(ledger_path(listed.ledger_id)))
    if row is None or (find_usual_ledger(tree.plain_value(row)) is None and is_damaged(txn, listed.ledger_id)):
        return False
    if has_unserved(txn, listed.ledger_id) or (lacks_bookies(txn) and _is_on_gone(txn, listed.ledger_id)):
        return False
    sums = find_sums(txn, listed.ledger_id)
    if sums is None:
        return not listed.entries
    return (sums.entries, sums.first_entry, sums.last_entry) == (listed.entries, 0, listed.entries - 1)


def find_plain_size(txn: Txn, name: TopicName) -> tuple[int, int] | None:
    """Return (entries, payload bytes) of a topic without compacted view whose ledgers were all found complete; else
    None.

    Also None if not all ledgers were checked before. For scans of many topics: a third of the cost of ``read_topic``.
    """
    path = name.path
    row = txn.view("tree", tree.tree_key(path))
    ledgers = None if row is None else find_plain_ledgers(tree.plain_value(row))
    if not ledgers or txn.view("tree", tree.tree_key(f"{path}/{COMPACTION}")) is not None:
        return None
    total = total_bytes = 0
    for index, (ledger_id, entries, size_bytes, closed_ms) in enumerate(ledgers):
        whole = find_whole(txn, ledger_id)
        if whole is None:
            return None
        if not closed_ms and index == len(ledgers) - 1:
            if lacks_bookies(txn):
                return None
            entries, size_bytes = whole.entries, whole.size_bytes
        elif whole.entries != entries:
            return None
        total += entries
        total_bytes += size_bytes
    return total, total_bytes


def lacks_bookies(txn: Txn) -> bool:
    """Whether a bookie that ledgers name, or the journal of one, is not imported."""
    if not txn.is_snapshot or lacks_bookies not in txn.memo:
        row = txn.get("state", _BOOKIES)
        txn.memo[lacks_bookies] = row is not None and (_NONE_ABSENT not in row or _NO_JOURNAL in row)
    return bool(txn.memo[lacks_bookies])


def _is_on_gone(txn: Txn, ledger_id: int) -> bool:
    from pulsar_admin.store.model.coverage import ensemble_bookies, find_gone_bookies  # few stores lack a bookie

    gone = find_gone_bookies(txn)
    metadata = find_metadata(txn, ledger_id) if gone else None
    return metadata is not None and not gone.isdisjoint(ensemble_bookies(metadata))


# -- partitioned topics: the records that give a name its partitions --------------------------------------------------


_PARTITIONED = "/admin/partitioned-topics"


def iter_partitioned(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[TopicName]:
    """Yield the partitioned topics of ``namespace`` (default: all) by their base names, in name order."""
    if namespace is not None:
        children = tree.iter_children(txn, f"{_PARTITIONED}/{namespace}/persistent")
        yield from sorted(TopicName(namespace, decode_name(child)) for child in children)
        return
    for tenant in tree.iter_children(txn, _PARTITIONED):
        for one in iter_namespaces(txn, tenant):
            yield from iter_partitioned(txn, one)


def read_partitioned(txn: Txn, name: TopicName) -> PartitionedTopic:
    """Return the partitions of ``name``: 0 for a topic without partitions, and for a name that does not exist, as upstream answers.

    Raises MetadataCorrupt.
    """
    from pulsar_admin.store.codec.policies import PartitionedTopic, decode_partitioned_topic  # most topics have none

    node = None if name.is_partition else tree.find_node(txn, name.partitioned_path)
    return PartitionedTopic(0) if node is None else decode_partitioned_topic(node.value, node.path)


def read_existing(txn: Txn, name: TopicName) -> PartitionedTopic:
    """Return the partitions of ``name``, 0 for a topic without them; raises TopicNotFound if it does not exist, MetadataCorrupt."""
    partitioned = read_partitioned(txn, name)
    if not partitioned.partitions:
        read_topic(txn, name)
    return partitioned


def existing_partitions(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return the partitions of ``name`` that exist; a partition that was never opened has no metadata."""
    count = read_partitioned(txn, name).partitions
    there = (part for part in list_partitions(txn, name) if part.partition_index < count)
    return tuple(part for part in there if tree.find_node(txn, part.path) is not None)


def expand_existing(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return ``expand_topic`` of ``name``, but only partitions that exist: a damaged record may have any number of them."""
    return existing_partitions(txn, name) if partition_count(txn, name) else expand_topic(txn, name)


def select_partitioned(txn: Txn, pattern: str | None) -> tuple[TopicName, ...]:
    """Return the partitioned topics whose names match a glob (default: all), without system topics.

    Raises TopicNotFound if none matches.
    """
    names = (name for name in iter_partitioned(txn) if not name.is_system)
    matching = tuple(name for name in names if pattern is None or _matches(name, pattern))
    if not matching:
        raise errors.TopicNotFound(
            "no partitioned topic" + (f" matches {pattern!r}" if pattern is not None else " is in the store"),
            hint="list the existing ones with: pulsar-admin topics list-partitioned-topics TENANT/NAMESPACE",
        )
    return matching


def check_partitioned(txn: Txn, name: TopicName) -> TopicName:
    """Return ``name``; raises TopicNotFound unless it is a partitioned topic."""
    if not read_partitioned(txn, name).partitions:
        if tree.find_node(txn, name.path) is None:
            raise _not_found(txn, name)
        raise errors.TopicNotFound(
            f"{name} is not a partitioned topic",
            hint=f"list them with: pulsar-admin topics list-partitioned-topics {shell_word(name.namespace)}",
            topic=str(name),
        )
    return name


def _matches(name: TopicName, pattern: str) -> bool:
    return fnmatchcase(str(name), pattern) or fnmatchcase(str(name).removeprefix("persistent://"), pattern)
