"""Building the index of a topic and subscription: on from where it stands, in one transaction a subscription.

What is read: entries that wait and are not covered yet (behind the index cursor, or given back by a reset). What leaves: entries that
are covered and no longer wait. Ledgers are written first; then one transaction makes them known together with the directory and
the index cursor, so a process killed at any instant leaves the index as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from store.codec.delayedindex import DelayedRows, iter_encoded, join_rows
from store.codec.delayedpolicy import DEFAULT_RULES, IndexRules
from store.codec.digest import DigestType
from store.cursors import Cursor
from store.delayed.backlog import DelayScan, intervals_of, is_within, parts_of
from store.delayed.directory import Index, Partition, find_index, put_index
from store.delayed.partitions import PartitionSource
from store.errors import StalePlan
from store.extent import Intervals, pending_intervals, subtract
from store.ledgers import EntryReader
from store.logwriter import LedgerSpec, WrittenLedgers, write_ledgers
from store.meta import Store, Txn
from store.names import Position
from store.plans.delayed import find_rules
from store.topics import Topic

COMPONENT = "delayed-message-index"
LEDGERS_MAX = 4
"""Ledgers of a partition before they are written as one."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build did. ``added`` and ``removed``: messages; ``read``: entries of the topic that were looked at."""

    topic: str
    subscription: str
    cursor: Position
    messages: int
    added: int
    removed: int
    partitions: int
    partitions_written: int
    partitions_dropped: int
    bytes: int
    read: int
    missing: int
    unreadable: int


@dataclass(slots=True)
class Draft:
    """A new state of an index before it is written. ``writes``: partition start → its rows, in a new ledger.

    ``keeps``: partitions that stay as they are; those that also have new rows get one more ledger.
    """

    index: Index
    scan: DelayScan
    txn_id: int
    writes: dict[int, DelayedRows] = field(default_factory=dict)
    keeps: dict[int, Partition] = field(default_factory=dict)
    added: int = 0
    removed: int = 0
    dropped: int = 0


def rules_of(txn: Txn, topic: Topic) -> IndexRules:
    """Return the widths that count for TOPIC: its namespace's, else the defaults."""
    return find_rules(txn, topic.name.namespace) or DEFAULT_RULES


def draft_index(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int, *, rebuild: bool = False) -> Draft:
    """Return what the index of CURSOR becomes; REBUILD looks at nothing of the old one. Raises IndexCorrupt, Unsupported."""
    old = None if rebuild else find_index(reader.txn, topic.name, cursor.name)
    rules = rules_of(reader.txn, topic)
    if old is not None and rules.tick_ms < old.rules.tick_ms:
        old = None  # its times are rounded down too far; the entries have them whole
    pending = pending_intervals(topic, cursor.state)
    covered = () if old is None else intervals_of(topic, old.covered)
    end = topic.last_confirmed
    index = Index(topic.name, cursor.name, rules, end, now_ms, parts_of(topic, pending))
    draft = Draft(index, DelayScan(reader), reader.txn.id)
    fresh = draft.scan.rows(parts_of(topic, subtract(pending, covered)), rules.tick_ms)
    draft.added = len(fresh)
    if old is not None:
        _take_over(draft, PartitionSource(reader, old), old, (topic, pending))
    for start_ms, rows in cut(fresh, rules.granularity_ms):
        draft.writes[start_ms] = join_rows([draft.writes[start_ms], rows]) if start_ms in draft.writes else rows
    _merge_small(draft, PartitionSource(reader, old) if old is not None else None)
    return draft


def _take_over(draft: Draft, source: PartitionSource, old: Index, wanted: tuple[Topic, Intervals]) -> None:
    """Keep the old partitions; those that lost messages, or are wider than partitions are now, are written anew."""
    topic, pending = wanted
    lost = bool(subtract(intervals_of(topic, old.covered), pending)) or any(
        topic.ledger(ledger_id) is None for ledger_id, _, _ in old.covered
    )
    for partition in old.partitions:
        is_wide = partition.width_ms > draft.index.rules.granularity_ms
        if not lost and not is_wide:
            draft.keeps[partition.start_ms] = partition
            continue
        rows = join_rows(list(source.read(partition)))
        kept = rows.take(is_within(topic, rows, pending))
        draft.removed += len(rows) - len(kept)
        draft.dropped += not len(kept)
        if len(kept) == len(rows) and not is_wide:
            draft.keeps[partition.start_ms] = partition
            continue
        for start_ms, part in cut(kept, draft.index.rules.granularity_ms):
            before = draft.writes.get(start_ms)
            draft.writes[start_ms] = part if before is None else join_rows([before, part])


def _merge_small(draft: Draft, source: PartitionSource | None) -> None:
    """Write partitions that would get too many ledgers as one."""
    for start_ms in list(draft.writes):
        kept = draft.keeps.get(start_ms)
        if kept is not None and (len(kept.ledgers) >= LEDGERS_MAX or kept.width_ms != draft.index.rules.granularity_ms):
            assert source is not None
            draft.writes[start_ms] = join_rows([draft.writes[start_ms], *source.read(kept)])
            del draft.keeps[start_ms]


def cut(rows: DelayedRows, width_ms: int) -> Iterator[tuple[int, DelayedRows]]:
    """Yield (start, rows) of each partition that has any, in time order."""
    if not len(rows):
        return
    starts = rows.times_ms // width_ms
    edges = np.flatnonzero(np.append(True, starts[1:] != starts[:-1]))
    ends = np.append(edges[1:], len(rows))
    for low, high in zip(edges.tolist(), ends.tolist(), strict=True):
        yield int(starts[low]) * width_ms, rows.take(slice(low, high))


def apply_draft(store: Store, draft: Draft) -> Index:
    """Write DRAFT's ledgers, then make them and the directory known in one transaction; return the new index.

    STORE is open for writing. Raises StalePlan when the index changed since the draft was made, DiskFull.
    """
    written = write_ledgers(store, _ledgers(draft)) if draft.writes else None
    index = replace(draft.index, partitions=_partitions(draft, written))

    def work(txn: Txn) -> None:
        if txn.id - 1 != draft.txn_id:
            raise StalePlan("the store changed while the index was built", hint="run the same command again")
        if written is not None:
            written.index(txn)
        put_index(txn, index)

    try:
        store.write(work)
    except BaseException:
        if written is not None:
            written.discard()
        raise
    return index


def _ledgers(draft: Draft) -> Iterator[tuple[LedgerSpec, list[bytes]]]:
    tick_ms = draft.index.rules.tick_ms
    for rows in draft.writes.values():
        # Rows taken over may have been made with another tick: times are rounded down again.
        same = rows if not (rows.times_ms % tick_ms).any() else rows.floored(tick_ms)
        yield LedgerSpec(COMPONENT, digest_type=DigestType.CRC32C), [entry for entry, _ in iter_encoded(same, tick_ms)]


def _partitions(draft: Draft, written: WrittenLedgers | None) -> tuple[Partition, ...]:
    partitions = dict(draft.keeps)
    ledgers = () if written is None else written.ledgers
    for (start_ms, rows), ledger in zip(draft.writes.items(), ledgers, strict=True):
        kept = partitions.get(start_ms)
        new = (ledger.ledger_id, len(rows), ledger.size_bytes)
        before = () if kept is None else kept.ledgers
        partitions[start_ms] = Partition(start_ms, draft.index.rules.granularity_ms, (*before, new))
    return tuple(partitions[start_ms] for start_ms in sorted(partitions))


def result_of(draft: Draft, index: Index) -> BuildResult:
    """Return what the build of DRAFT did; INDEX: what ``apply_draft`` gave, or the draft's of a dry run."""
    messages = sum(map(len, draft.writes.values())) + sum(part.messages for part in draft.keeps.values())
    return BuildResult(
        str(index.topic),
        index.subscription,
        index.cursor,
        messages,
        draft.added,
        draft.removed,
        len(draft.keeps.keys() | draft.writes.keys()),
        len(draft.writes),
        draft.dropped,
        index.bytes,
        draft.scan.entries,
        draft.scan.missing,
        draft.scan.unreadable,
    )
