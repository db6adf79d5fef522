"""Read model of cursors: their actual positions (pulsar.md §1.6), and their backlogs in entries, messages and bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, ParamSpec, final, overload

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.codec.cursor import (
    CursorInfo,
    CursorState,
    RangeColumns,
    Ranges,
    decode_cursor_info,
    decode_cursor_ledger,
)
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.blocks import BLOCK_ENTRIES
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, find_node, iter_children, iter_nodes, read_node
from pulsar_admin.store.model.ledgers import find_metadata, find_sums, iter_blocks_of, read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, check_namespace, expand_topic, iter_topics, read_topic
from pulsar_admin.store.names import NamespaceName, Position, TopicName, TopicSelection, decode_name, shell_word
from pulsar_admin.store.wording import Answer, Sparse, listed, plural

if TYPE_CHECKING:
    from pyroaring import BitMap

_Asked = ParamSpec("_Asked")
COMPACTION_CURSOR = "__compaction"
DEDUP_CURSOR = "pulsar.dedup"
REPLICATED_PROPERTY = "pulsar.replicated.subscription"
LOG_CURSOR, PENDING_ACK_CURSOR = "transaction.subscription", "__pending_ack_state"
"""Of ``MLTransactionLogImpl`` and ``MLPendingAckStore``: the only cursors of their managed ledgers."""
REPLICATOR_PREFIX = "pulsar.repl."


class CursorSource(StrEnum):
    """The source of a cursor's position."""

    METADATA = "metadata"
    """ManagedCursorInfo: the cursor has no ledger."""
    LEDGER = "cursor-ledger"
    """The last entry of its ledger."""
    FALLBACK = "metadata-fallback"
    """The ledger is gone, empty or unreadable, or its metadata is: a broker starts at the snapshot of its creation."""
    NONE = "none"
    """Nothing: it stands for a subscription that does not exist."""
    UNREADABLE = "unreadable"
    """Nothing that can be read: it has acknowledged nothing, as far as anybody knows."""


class Cursor(Struct, frozen=True):
    """A cursor with its actual state. ``recoverable``: the state in entries of a ledger without metadata, which no broker can read.

    ``ahead``: the position that is stored, where that is ahead of the topic's end: a broker that loads the topic starts the cursor there.
    """

    topic: TopicName
    name: str
    stat: NodeStat
    info: CursorInfo
    state: CursorState
    source: CursorSource
    skipped_entries: int = 0  # newer cursor-ledger entries that could not be read
    recoverable: CursorState | None = None
    ahead: Position | None = None

    @property
    def mark_delete(self) -> Position:
        return self.state.mark_delete

    @property
    def is_incomplete(self) -> bool:
        """Return whether the cursor's ledger records more than could be read."""
        return self.source is CursorSource.FALLBACK or self.skipped_entries > 0


def cursor_of_nobody(topic: Topic) -> Cursor:
    """Return the cursor, with an empty name, of a subscription at the beginning of a topic: its backlog is the whole topic."""
    state = CursorState(topic.first_position)
    stat = NodeStat(0, 0, 0, 0, False)
    return Cursor(topic.name, "", stat, CursorInfo(-1), state, CursorSource.NONE)


def iter_cursor_names(txn: Txn, topic: TopicName) -> Iterator[str]:
    """Yield the names of the topic's cursors, in clear, internal ones included."""
    for component in iter_children(txn, topic.path):
        yield decode_name(component)


def iter_selected_cursors(
    txn: Txn,
    topics: Iterable[Topic],
    selection: TopicSelection,
    subscription: str | None,
    read: Callable[[Topic, Iterable[str]], Iterator[Cursor]],
    *,
    unsubscribed: bool,
) -> Iterator[tuple[Topic, Cursor]]:
    """Yield (topic, cursor), as ``read`` reads it, of a subscription (None: of all but the broker's own) in every topic of a selection.

    A named topic must have the subscription. Topics without it are skipped if all topics or a pattern are selected, and with
    ``unsubscribed`` also if several are named. With ``unsubscribed`` and no ``subscription``, a topic without any has ``cursor_of_nobody``.
    Raises SubscriptionNotFound, also if no topic has it.
    """
    required = selection.single is not None if unsubscribed else bool(selection.topics)
    topic_names: list[str] = []
    is_any = unsubscribed and subscription is None
    for topic in topics:
        topic_names.append(str(topic.name))
        names = iter_cursor_names(txn, topic.name)
        if subscription is None:
            chosen = sorted(filter(is_consumed, names))
            if unsubscribed and not chosen:
                yield topic, cursor_of_nobody(topic)
        else:
            chosen = [subscription] if required or subscription in names else []
        for cursor in read(topic, chosen):
            is_any = True
            yield topic, cursor
    if is_any:
        return
    if subscription is None:
        have = plural(len(topic_names), "has", "have")
        raise errors.SubscriptionNotFound(f"{listed(topic_names, 3)} {have} no subscription", topics=topic_names)
    raise errors.SubscriptionNotFound(
        f"no topic that matches has a subscription {subscription!r}", subscription=subscription
    )


def subscription_names(txn: Txn, topic: TopicName) -> tuple[str, ...]:
    """Return the subscriptions of a topic, or of any partition of a partitioned one, in name order; raises TopicNotFound."""
    names = {name for part in expand_topic(txn, topic) for name in iter_cursor_names(txn, part)}
    return tuple(sorted(filter(is_subscription, names)))


def is_subscription(cursor: str) -> bool:
    """Whether ``topics subscriptions`` lists this cursor (upstream leaves out deduplication and replicators)."""
    return cursor != DEDUP_CURSOR and not cursor.startswith(REPLICATOR_PREFIX)


def is_consumed(cursor: str) -> bool:
    """Whether consumers read by this cursor: it is a subscription's, and not compaction's."""
    return is_subscription(cursor) and cursor != COMPACTION_CURSOR


def is_replicated(cursor: Cursor) -> bool:
    """Return whether clusters share the cursor's position; as for brokers, the property's value does not matter
    (``PersistentSubscription.isCursorFromReplicatedSubscription``)."""
    return REPLICATED_PROPERTY in cursor.state.properties


def check_subscription(txn: Txn, name: TopicName, subscription: str) -> None:
    """Raise SubscriptionNotFound unless the topic ``name``, or a partition of it, has the cursor ``subscription``."""
    if all(find_node(txn, one.cursor_path(subscription)) is None for one in expand_topic(txn, name)):
        raise _not_found(name, subscription)


def _not_found(topic: TopicName, subscription: str) -> errors.SubscriptionNotFound:
    return errors.SubscriptionNotFound(
        f"topic {topic} has no subscription {subscription!r}",
        hint=f"list them with: pulsar-admin topics subscriptions {shell_word(topic)}",
        topic=str(topic),
        subscription=subscription,
    )


def read_cursor(txn: Txn, reader: EntryReader, topic: Topic, name: str) -> Cursor:
    """Return the cursor ``name`` of ``topic``; raises SubscriptionNotFound, MetadataCorrupt."""
    path = topic.name.cursor_path(name)
    node = find_node(txn, path)
    if node is None:
        raise _not_found(topic.name, name)
    return cursor_of(txn, reader, topic, name, node)


def read_topic_cursor(reader: EntryReader, name: TopicName, subscription: str) -> tuple[Topic, Cursor]:
    """Return a topic and one of its cursors; raises TopicNotFound, SubscriptionNotFound, MetadataCorrupt."""
    topic = read_topic(reader.txn, name)
    return topic, read_cursor(reader.txn, reader, topic, subscription)


def read_damaged_cursor(txn: Txn, reader: EntryReader, topic: Topic, name: str) -> Cursor:
    """Return the cursor ``name`` of ``topic`` in order to replace or remove it; if it is damaged or exceeds a limit, one that has
    acknowledged nothing.

    Raises SubscriptionNotFound, and Unsupported for one that a newer Pulsar wrote.
    """
    try:
        return read_cursor(txn, reader, topic, name)
    except (errors.MetadataCorrupt, errors.EntryCorrupt, errors.LimitExceeded):
        node = read_node(txn, topic.name.cursor_path(name))
        state = CursorState(topic.first_position)
        return Cursor(topic.name, name, node.stat, CursorInfo(-1), state, CursorSource.UNREADABLE)


def iter_cursor_nodes(txn: Txn, topic: TopicName) -> Iterator[tuple[str, Node]]:
    """Yield the topic's cursors by name, as ``iter_cursor_names``, with their nodes: for scans of all topics."""
    root = f"{topic.path}/"
    for node in iter_nodes(txn, root):
        component = node.path[len(root) :]
        if "/" not in component:
            yield decode_name(component), node


def read_each_cursor(txn: Txn, reader: EntryReader, topic: Topic) -> Iterator[tuple[str, Cursor | errors.StoreError]]:
    """Yield the name of each cursor of ``topic``, as ``iter_cursor_names``, with the result or error of ``read_cursor``."""
    root = f"{topic.name.path}/"
    try:
        nodes = list(iter_nodes(txn, root))
    except errors.StoreError:
        nodes = []  # one by one: a row that cannot be read is one cursor's
    names = [node.path[len(root) :] for node in nodes]
    if not nodes or any("/" in name for name in names):
        for name in iter_cursor_names(txn, topic.name):
            yield name, _or_error(read_cursor, txn, reader, topic, name)
        return
    for component, node in zip(names, nodes, strict=True):
        name = decode_name(component)
        yield name, _or_error(cursor_of, txn, reader, topic, name, node)


def _or_error(
    read: Callable[_Asked, Cursor], *arguments: _Asked.args, **named: _Asked.kwargs
) -> Cursor | errors.StoreError:
    try:
        return read(*arguments, **named)
    except errors.StoreError as error:
        return error


def cursor_of(txn: Txn, reader: EntryReader, topic: Topic, name: str, node: Node) -> Cursor:
    """Return the cursor ``name`` of ``topic`` that ``node`` holds; raises MetadataCorrupt."""
    info = decode_cursor_info(node.value, node.path)
    snapshot = CursorState(info.mark_delete or topic.first_position, info.ranges, info.batch_deletes, info.properties)
    if not info.is_in_ledger:
        return _recovered(topic, Cursor(topic.name, name, node.stat, info, snapshot, CursorSource.METADATA))
    state, skipped = read_cursor_ledger(txn, reader, info.cursors_ledger_id)
    # Upstream ManagedCursorImpl.recoverFromLedger rewinds when the ledger cannot be opened, whatever the bookies still hold.
    unseen = state if state is not None and find_metadata(txn, info.cursors_ledger_id) is None else None
    if state is None or unseen is not None:
        state, source = snapshot, CursorSource.FALLBACK
    else:
        source = CursorSource.LEDGER
    return _recovered(topic, Cursor(topic.name, name, node.stat, info, state, source, skipped, unseen))


def read_cursors(txn: Txn, reader: EntryReader, topic: Topic) -> dict[str, Cursor]:
    """Return every cursor of ``topic`` by name, in name order."""
    return {name: read_cursor(txn, reader, topic, name) for name in sorted(iter_cursor_names(txn, topic.name))}


def read_cursor_ledger(txn: Txn, reader: EntryReader, ledger_id: int) -> tuple[CursorState | None, int]:
    """Return the newest readable state in a cursor ledger and how many newer entries were skipped as unreadable."""
    try:
        last = read_ledger(txn, ledger_id).last_entry_id
    except errors.LedgerNotFound:
        return None, 0
    skipped = 0
    kept: dict[int, CursorState] = txn.memo.setdefault(read_cursor_ledger, {}) if txn.is_snapshot else {}
    if ledger_id in kept:
        return kept[ledger_id], 0
    for newest in range(last, -1, -1):
        try:
            payloads = (bytes(reader.read(ledger_id, entry_id).payload) for entry_id in range(newest, -1, -1))
            state = decode_cursor_ledger(payloads, f"cursor ledger {ledger_id}:{newest}")
        except (errors.EntryNotFound, errors.EntryCorrupt):
            skipped += 1
            continue
        if state is not None:
            if isinstance(state.ranges, RangeColumns) and not skipped:
                kept.clear()
                kept[ledger_id] = state
            return state, skipped
    return None, skipped


def _recovered(topic: Topic, cursor: Cursor) -> Cursor:
    """Return ``cursor`` with a mark-delete that is ahead of the topic's end moved to that end, as a loading broker does.

    A mark-delete in a trimmed ledger stays as stored: 4.0.8 shows it so, and it means the same as (next ledger, −1).
    """
    stored = cursor.state
    if stored.mark_delete <= topic.last_confirmed:
        return cursor
    # The beginning of a listed ledger without entries is the same place: a broker leaves a cursor there when a ledger is rolled over.
    is_end = stored.mark_delete.entry_id < 0 and topic.ledger(stored.mark_delete.ledger_id) is not None
    ahead = None if is_end else stored.mark_delete
    return replace(cursor, state=replace(stored, mark_delete=topic.last_confirmed), ahead=ahead)


# -- the backlog ------------------------------------------------------------------------------------------------------


def normal_ranges(topic: Topic, state: CursorState) -> Intervals:
    """Return the individually deleted entries after the mark-delete position as merged, half-open rank intervals (see Topic.rank)."""
    if not state.ranges:
        return ()
    if type(state.ranges) is RangeColumns and topic.number_of_entries <= _MOST_BITS:
        ranks = _bits(())
        for ledger_id, bits in state.ranges.parts:
            index = bisect_left(topic.ids, ledger_id)
            if topic.ids[index : index + 1] == [ledger_id]:
                before, end = topic.ranks[index : index + 2]
                ranks |= (bits & _bits(((0, end - before),))).shift(before)
        return _packed(ranks - _bits(((0, topic.place(state.mark_delete)),)))
    floor = topic.place(state.mark_delete)
    return union((max(topic.place(low), floor), topic.place(high)) for low, high in state.ranges)


def hole_intervals(topic: Topic, state: CursorState) -> Intervals:
    """Return the holes in what was acknowledged, as ranks: not deleted, with an individually deleted entry after them."""
    deleted = normal_ranges(topic, state)
    if not deleted:
        return ()
    start = topic.place(state.mark_delete)
    return subtract(((start, deleted[-1][1]),), deleted)


def backlog_entries(topic: Topic, state: CursorState) -> int:
    """Return the entries after the mark-delete position that are not individually deleted."""
    return topic.entries_after(state.mark_delete) - count_ranks(normal_ranges(topic, state))


def backlog_size_bytes(topic: Topic, mark_delete: Position) -> int:
    """Return upstream's estimate of the backlog's size (ManagedLedgerImpl.getEstimatedBacklogSize, 4.0.8)."""
    size = topic.total_size_bytes
    for ledger in topic.ledgers:
        if ledger.ledger_id > mark_delete.ledger_id:
            break
        if ledger.ledger_id < mark_delete.ledger_id or mark_delete.entry_id + 1 >= ledger.entries:
            size -= ledger.size_bytes
        elif mark_delete.entry_id >= 0:
            size -= (mark_delete.entry_id + 1) * (ledger.size_bytes // ledger.entries)
    return size


class CursorPlace(Answer, frozen=True):
    """A cursor's position in one topic or partition.

    ``mark_delete``: everything up to it is acknowledged. ``individually_deleted``: (lower, upper] ranges acknowledged
    after it. ``batch_acks``: entry → bit-set words of its unacknowledged messages. ``source`` of the position:
    ``metadata``, ``cursor-ledger``, or ``metadata-fallback`` if the cursor ledger is lost. ``backlog_entries`` counts
    unacknowledged entries, ``backlog_size_bytes`` is the broker's estimate. ``stored_mark_delete``: the stored
    position if it is after the topic's end, where a broker starts instead (``mark_delete``).
    """

    topic: str
    subscription: str
    mark_delete: Position
    individually_deleted: tuple[tuple[Position, Position], ...]
    batch_acks: Mapping[Position, tuple[int, ...]]
    properties: Mapping[str, int]
    source: str
    backlog_entries: int
    backlog_size_bytes: int
    stored_mark_delete: Position | None = None


def place_of(topic: Topic, cursor: Cursor) -> CursorPlace:
    """Return where a cursor is."""
    state = cursor.state
    return CursorPlace(
        str(topic.name),
        cursor.name,
        state.mark_delete,
        tuple(state.ranges),
        state.batch_deletes,
        state.properties,
        cursor.source,
        backlog_entries(topic, state),
        backlog_size_bytes(topic, state.mark_delete),
        cursor.ahead,
    )


def iter_backlog(topic: Topic, state: CursorState) -> Iterator[Position]:
    """Yield the positions not yet deleted, from the mark-delete on."""
    rank = topic.place(state.mark_delete)
    for hole_start, hole_end in (*normal_ranges(topic, state), (topic.number_of_entries, topic.number_of_entries)):
        while rank < hole_start:
            yield topic.at_rank(rank)
            rank += 1
        rank = max(rank, hole_end)


def range_text(ranges: Ranges) -> str:
    """Return individually deleted ranges as upstream prints them: ``[(10:2..10:4],(10:6..10:7]]``."""
    if isinstance(ranges, RangeColumns):
        texts = (
            ",".join([f"({ledger}:%d..{ledger}:%d]"] * (len(edges) // 2)) % (*edges,)
            for ledger, edges in ranges.iter_edges()
        )
    else:
        texts = (f"({lower}..{upper}]" for lower, upper in ranges)
    return f"[{','.join(texts)}]"


def is_own(cursor: str) -> bool:
    """Whether the broker keeps ``cursor`` for itself."""
    return cursor in (COMPACTION_CURSOR, DEDUP_CURSOR)


def read_truth(reader: EntryReader, node: Node) -> dict[str, object] | None:
    """Return the actual state of the cursor of ``node`` as JSON; None if its topic is unknown. Raises as ``read_cursor``."""
    from pulsar_admin.store.model.nodes import managed_node

    named = managed_node(node.path, node.value)
    if named is None or named.ledger is None or named.cursor is None:
        return None
    cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, named.ledger), named.cursor)
    return {
        "source": cursor.source,
        "markDeletePosition": str(cursor.mark_delete),
        **({} if cursor.ahead is None else {"storedMarkDeletePosition": str(cursor.ahead)}),
        "individuallyDeletedMessages": range_text(cursor.state.ranges),
        "batchDeletes": {str(position): list(words) for position, words in cursor.state.batch_deletes.items()},
        "properties": dict(cursor.state.properties),
        "skippedEntries": cursor.skipped_entries,
        "recoverableMarkDeletePosition": None if cursor.recoverable is None else str(cursor.recoverable.mark_delete),
    }


def iter_namespace_cursors(
    reader: EntryReader,
    namespace: NamespaceName,
    subscription: str | None,
    fail: Callable[[errors.StoreError], None],
    is_meant: Callable[[TopicName], bool],
    of_topics: str,
) -> Iterator[tuple[Topic, Cursor]]:
    """Yield the cursor ``subscription``, or all but the broker's own, of the selected topics of a namespace; no
    system topics.

    Unreadable ones go to ``fail``. Raises NamespaceNotFound, SubscriptionNotFound if no topic has it, and Refused for
    a ``subscription`` of the broker's own, with ``of_topics``, the command that does the same for one topic.
    """
    check_namespace(reader.txn, namespace)
    names = (name for name in iter_topics(reader.txn, namespace) if not name.is_system and is_meant(name))
    if subscription is not None and is_own(subscription):
        first = next((name for name in names if find_node(reader.txn, name.cursor_path(subscription))), None)
        raise errors.Refused(
            f"{subscription} is the broker's own cursor",
            hint=f"no topic of {namespace} has it"
            if first is None
            else f"topic by topic --force allows it: pulsar-admin {of_topics} {shell_word(first)} -s {shell_word(subscription)} --force",
            subscription=subscription,
        )
    is_any = False
    for name in names:
        try:
            topic = read_topic(reader.txn, name)
        except errors.StoreError as error:
            fail(error)
            continue
        for cursor in _iter_meant(reader, topic, subscription, fail):
            is_any = True
            yield topic, cursor
    if not is_any:
        what = "subscription" if subscription is None else f"subscription {subscription!r}"
        raise errors.SubscriptionNotFound(
            f"no topic of {namespace} has a {what}",
            hint=f"see: pulsar-admin topics subscriptions --pattern {shell_word(f'{namespace}/*')}",
            namespace=str(namespace),
            subscription=subscription,
        )


def _iter_meant(
    reader: EntryReader, topic: Topic, subscription: str | None, fail: Callable[[errors.StoreError], None]
) -> Iterator[Cursor]:
    for name in sorted(iter_cursor_names(reader.txn, topic.name)):
        if name == subscription or (subscription is None and not is_own(name)):
            try:
                yield read_cursor(reader.txn, reader, topic, name)
            except errors.StoreError as error:
                fail(error)


# -- how much lies in a part of a topic, from the location index alone ------------------------------------------------


@final
class RankBits(Sequence[tuple[int, int]]):
    """Very many intervals as a bitmap, which equals a tuple of them: building a hundred thousand tuples costs more than all use of them.

    Recognized by ``type(…)``: ``isinstance`` would call an abstract class in Python, several times per cursor.
    """

    __slots__ = ("_edges", "bits")

    def __init__(self, bits: BitMap) -> None:
        self.bits = bits
        self._edges = bits ^ bits.shift(1)

    def __len__(self) -> int:
        return len(self._edges) // 2

    def __iter__(self) -> Iterator[tuple[int, int]]:
        edges = iter(self._edges.to_array())
        return zip(edges, edges, strict=True)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, int], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | tuple[tuple[int, int], ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self._edges[2 * index], self._edges[2 * index + 1]

    def __eq__(self, other: object) -> bool:
        if type(other) is RankBits:
            return bool(self.bits == other.bits)
        return isinstance(other, tuple) and len(self) == len(other) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))


Intervals = tuple[tuple[int, int], ...] | RankBits
"""Half-open intervals of ranks (``Topic.rank``), ascending, disjoint."""
_MANY = 1000
_MOST_BITS = 2**32 - 1
"""Entries of a topic whose intervals can be bitmaps."""


def _bits(intervals: Intervals) -> BitMap:
    if type(intervals) is RankBits:
        return intervals.bits
    from pyroaring import BitMap  # cold questions about few intervals need none

    bits = BitMap()
    for start, end in intervals:
        bits.add_range(start, end)
    return bits


def _packed(bits: BitMap) -> Intervals:
    packed = RankBits(bits)
    return packed if len(packed) > _MANY else tuple(packed)


class Extent(Sparse, frozen=True):
    """Entries, messages (of batches, all) and payload bytes. ``uncounted_entries``: entries whose bytes are not in the store, so that their
    messages and sizes are unknown and not included; None for none."""

    entries: int = 0
    messages: int = 0
    bytes: int = 0
    uncounted_entries: int | None = None

    def __add__(self, other: Extent) -> Extent:
        uncounted = (self.uncounted_entries or 0) + (other.uncounted_entries or 0)
        return Extent(
            self.entries + other.entries, self.messages + other.messages, self.bytes + other.bytes, uncounted or None
        )


def pending_intervals(topic: Topic, state: CursorState, ranges: Intervals | None = None) -> Intervals:
    """Return a cursor's backlog as ranks: those after the mark-delete position, without the individually deleted ``ranges``."""
    done = normal_ranges(topic, state) if ranges is None else ranges
    return subtract(((topic.place(state.mark_delete), topic.number_of_entries),), done)


def count_ranks(intervals: Sequence[tuple[int, int]]) -> int:
    """Return how many ranks are in ``intervals``."""
    return len(intervals.bits) if type(intervals) is RankBits else sum(end - start for start, end in intervals)


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the ranks that are in any of ``intervals``, which may be empty, overlap, and come in any order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Return the ranks in ``left`` that are not in ``right``."""
    if type(left) is RankBits or type(right) is RankBits:
        return _packed(_bits(left) - _bits(right))
    rest = []
    for start, end in left:
        index = bisect_right(right, start, key=lambda one: one[1])
        while index < len(right) and right[index][0] < end:
            if start < right[index][0]:
                rest.append((start, right[index][0]))
            start = right[index][1]
            index += 1
        if start < end:
            rest.append((start, end))
    return tuple(rest)


def extent_of(txn: Txn, topic: Topic, intervals: Iterable[tuple[int, int]]) -> Extent:
    """Return how much lies in ``intervals`` of ``topic``, ascending and disjoint; reads index rows only."""
    by_ledger: dict[int, Sequence[tuple[int, int]]] = {}
    if type(intervals) is RankBits:
        for index, whole in enumerate(pairwise(topic.ranks)):
            if bits := intervals.bits & _bits((whole,)):
                by_ledger[index] = RankBits(bits)
    else:
        spans: dict[int, list[tuple[int, int]]] = {}
        for start, end in intervals:
            while start < end:
                index = bisect_right(topic.ranks, start) - 1
                stop = min(end, topic.ranks[index + 1])
                spans.setdefault(index, []).append((start, stop))
                start = stop
        by_ledger.update(spans)
    entries = seen = messages = size_bytes = 0
    for index, here in by_ledger.items():
        counted = _ledger_extent(txn, topic, topic.ids[index], topic.ranks[index], here)
        entries += count_ranks(here)
        seen, messages, size_bytes = seen + counted[0], messages + counted[1], size_bytes + counted[2]
    return Extent(entries, messages, size_bytes, entries - seen or None)


def iter_ledger_parts(topic: Topic, start: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Yield (ledger id, first entry, last entry) of the ranks ``start`` to ``end`` (excluded)."""
    rank = start
    before = topic.ranks
    while rank < end:
        index = bisect_right(before, rank) - 1
        first = rank - before[index]
        last = min(end, before[index + 1]) - before[index] - 1
        yield topic.ids[index], first, last
        rank = before[index] + last + 1


def parts_of(topic: Topic, intervals: Intervals) -> tuple[tuple[int, int, int], ...]:
    """Return ``intervals`` of ranks as parts of ledgers, which stay valid when the topic loses its first ledgers."""
    return tuple(part for start, end in intervals for part in iter_ledger_parts(topic, start, end))


def _ledger_extent(
    txn: Txn, topic: Topic, ledger_id: int, before: int, ranks: Sequence[tuple[int, int]]
) -> tuple[int, int, int]:
    """Return (imported entries, messages, bytes) of the ``ranks`` in a ledger, whose first rank is ``before``.

    If nothing of the ledger is imported, and ``ranks`` are all of it, the bytes are those in the topic's list."""
    sums = find_sums(txn, ledger_id)
    wanted, first, end = count_ranks(ranks), ranks[0][0] - before, ranks[-1][1] - before
    if sums is None:
        ledger = topic.ledger(ledger_id)
        return 0, 0, ledger.size_bytes if ledger is not None and wanted == ledger.entries else 0
    if wanted == end - first and first <= sums.first_entry and end > sums.last_entry:
        return sums.entries, sums.messages, sums.payload_bytes
    here, messages, size_bytes = 0, 0, 0
    starts, ends = ([], []) if type(ranks) is RankBits else zip(*ranks, strict=True)
    done = 0
    for block in iter_blocks_of(txn, ledger_id, first, end - 1):
        start = before + block.entry_id(0)
        if start - before >= end:
            break
        counts = block.message_counts()
        if type(ranks) is RankBits:
            start -= block.entry_id(0) % BLOCK_ENTRIES
            slots = (ranks.bits & _bits(((start, start + BLOCK_ENTRIES),))).shift(-start).to_array()
            indexes = block.indexes_of(slots)
            count = len(indexes)
            if 0 < count < len(block):
                messages += count if isinstance(counts, int) else sum(map(counts.__getitem__, indexes))
                size_bytes += block.payload_at(indexes)
        else:
            done = bisect_right(ends, start, done)
            after = bisect_right(starts, before + block.entry_id(len(block) - 1), done)
            lows, highs = block.indexes_from(before, starts[done:after]), block.indexes_from(before, ends[done:after])
            count = sum(highs) - sum(lows)
            if 0 < count < len(block):
                messages += (
                    count
                    if isinstance(counts, int)
                    else sum(sum(counts[low:high]) for low, high in zip(lows, highs, strict=True))
                )
                size_bytes += block.payload_between(lows, highs, count)
        here += count
        if count == len(block):
            messages += block.header.messages
            size_bytes += block.header.payload_bytes
    return here, messages, size_bytes
