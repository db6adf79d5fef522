"""Building the delayed-message index of a subscription, reading its partitions, and splitting them into narrower ones.

A build adds backlog entries that the index does not cover yet (after the index cursor, or returned by a reset) and
removes covered entries that are acknowledged now. Ledgers are written first; then one transaction per subscription
records them with the directory and the index cursor, so a process killed at any moment leaves the old index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedger, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeReport, DelayedPart, Plan, SplitIndex, WritingPlan
from pulsar_admin.store.changes.policies import find_rules, plan_enable
from pulsar_admin.store.codec.claims import COMPONENT
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.delayed import Index, Partition, encode_index, find_index, index_key, iter_wide, put_index
from pulsar_admin.store.db.delayed_entries import DelayedRows, decode_entry_rows, iter_encoded, join_rows
from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES, IndexRules
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.delayed.backlog import DelayScan, intervals_of, read_delayed
from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
from pulsar_admin.store.errors import Corrupt, IndexCorrupt, NotFound, StalePlan
from pulsar_admin.store.model.cursors import Cursor, Intervals, parts_of, pending_intervals, read_cursor, subtract
from pulsar_admin.store.model.ledgers import find_times, iter_entry_ids
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, NamespaceName, Position, TopicName, shell_word
from pulsar_admin.store.scan.entries import is_within
from pulsar_admin.store.scan.integer_rows import RunFile
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine


class PartitionSource:
    """The messages of one index by due time; a partition's ledgers are only read when a requested time overlaps it.

    Partitions may overlap: those built before the granularity was raised are inside newer ones. Messages of a partition
    that are due outside the requested time are skipped.
    """

    def __init__(self, reader: EntryReader, index: Index) -> None:
        self._reader = reader
        self._index = index
        self._partitions = sorted(index.partitions, key=lambda partition: partition.start_ms)
        self._starts = [partition.start_ms for partition in self._partitions]
        self._widest_ms = max((partition.width_ms for partition in self._partitions), default=0)

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return the messages due from ``start_ms`` to ``end_ms`` (excluded); raises IndexCorrupt for a lost or damaged ledger."""
        low, high = bisect_left(self._starts, start_ms - self._widest_ms), bisect_left(self._starts, end_ms)
        chosen = [part for part in self._partitions[low:high] if part.end_ms > start_ms]
        rows = join_rows([rows for partition in chosen for rows in self.read(partition)])
        edges = np.searchsorted(rows.times_ms, [max(start_ms, LONG_MIN), min(end_ms, LONG_MAX)]).tolist()
        return rows.take(slice(*edges))

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return the start of the first partition that ends after ``start_ms``, at least ``start_ms``; None without one."""
        for index in range(bisect_left(self._starts, start_ms - self._widest_ms), len(self._starts)):
            if self._partitions[index].end_ms > start_ms:
                return max(self._starts[index], start_ms)
        return None

    def read(self, partition: Partition) -> Iterator[DelayedRows]:
        """Yield the rows of each entry of a partition; raises IndexCorrupt."""
        for ledger_id, messages, _ in partition.ledgers:
            count = 0
            for rows in read_ledger_rows(self._reader, self._index, ledger_id):
                count += len(rows)
                yield rows
            if count != messages:
                raise _lost(self._index, ledger_id, f"it holds {count} messages, expected {messages}")

    def iter_rows(self) -> Iterator[DelayedRows]:
        """Yield everything in the index, entry by entry; raises IndexCorrupt."""
        return (rows for partition in self._partitions for rows in self.read(partition))


def read_ledger_rows(reader: EntryReader, index: Index, ledger_id: int) -> Iterator[DelayedRows]:
    """Yield the rows of each entry of one ledger of an index; raises IndexCorrupt naming the ledger."""
    if find_times(reader.txn, ledger_id) is None:
        raise _lost(index, ledger_id, "it does not exist")
    for entry_id in iter_entry_ids(reader.txn, ledger_id):
        try:
            payload = reader.read(ledger_id, entry_id).payload
            yield decode_entry_rows(payload, f"delayed index ledger {ledger_id}:{entry_id}")[1]
        except (Corrupt, NotFound) as error:
            raise _lost(index, ledger_id, error.message) from error


def _lost(index: Index, ledger_id: int, why: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"ledger {ledger_id} of the delayed index of {index.topic} {index.subscription}: {why}",
        hint=(
            f"rebuild the index: pulsar-admin delayed build {shell_word(index.topic)} -s "
            f"{shell_word(index.subscription)} --rebuild"
        ),
        ledgerId=ledger_id,
        topic=str(index.topic),
        subscription=index.subscription,
    )


_CLAIMS = {COMPONENT: b"delayed-message-index"}
LEDGERS_MAX = 4
"""A partition with this many ledgers is rewritten as one ledger when messages are added."""
TURN_ENTRIES = 1 << 24
TURN_MOST = 4096
_T = TypeVar("_T")


class BuildResult(Answer, frozen=True):
    """The result of a build. ``added`` and ``removed``: messages; ``read``: entries of the topic that were read."""

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


class Draft(Struct):
    """A new state of an index that is not written yet. ``writes``: the rows for new ledgers, one ledger per partition.

    ``keeps``: the old partitions to keep; one that also has new rows gets another ledger. ``source``: the old index.
    """

    index: Index
    scan: DelayScan
    txn_id: int
    writes: SortedRuns
    keeps: dict[int, Partition] = field(default_factory=dict)
    source: PartitionSource | None = None
    added: int = 0
    removed: int = 0
    dropped: int = 0


def rules_of(txn: Txn, topic: Topic) -> IndexRules:
    """Return the index widths that apply to a topic: its namespace's, otherwise the defaults."""
    return find_rules(txn, topic.name.namespace) or DEFAULT_RULES


class WantedIndex(Struct, frozen=True):
    """A subscription whose index is to be built; ``entries`` and ``bytes``: of its topic, the most that must be read."""

    topic: TopicName
    subscription: str
    entries: int = 0
    bytes: int = 0

    @staticmethod
    def of(topic: Topic, cursor: Cursor) -> WantedIndex:
        """Return the wanted index for a cursor of a topic."""
        return WantedIndex(topic.name, cursor.name, topic.number_of_entries, topic.total_size_bytes)


def iter_turns(chosen: Iterable[_T], entries_of: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield lists of items to be read together, limited so that a killed build loses little and temporary files stay small."""
    turn: list[_T] = []
    entries = 0
    for wanted in chosen:
        if turn and (entries + entries_of(wanted) > TURN_ENTRIES or len(turn) == TURN_MOST):
            yield turn
            turn, entries = [], 0
        turn.append(wanted)
        entries += entries_of(wanted)
    if turn:
        yield turn


def draft_index(reader: EntryReader, wanted: WantedIndex, now_ms: int, file: RunFile, *, rebuild: bool) -> Draft:
    """Return the draft of an index, still without the entries that ``read_drafts`` must read; then call
    ``finish_draft``.

    ``file`` holds the rows that exceed memory; ``rebuild`` ignores the old index. Raises TopicNotFound,
    SubscriptionNotFound, IndexCorrupt, Unsupported, DiskFull.
    """
    topic = read_topic(reader.txn, wanted.topic)
    cursor = read_cursor(reader.txn, reader, topic, wanted.subscription)
    old = None if rebuild else find_index(reader.txn, topic.name, cursor.name)
    rules = rules_of(reader.txn, topic)
    if old is not None and rules.tick_ms < old.rules.tick_ms:
        old = None  # its times are rounded to a longer tick; the entries have the exact ones
    pending = pending_intervals(topic, cursor.state)
    covered = () if old is None else intervals_of(topic, old.covered)
    index = Index(topic.name, cursor.name, rules, topic.last_confirmed, now_ms, parts_of(topic, pending))
    scan = DelayScan(reader, parts_of(topic, subtract(pending, covered)))
    draft = Draft(index, scan, reader.txn.id, SortedRuns(file, rules))
    if old is not None:
        draft.source = PartitionSource(reader, old)
        _take_over(draft, draft.source, old, topic, pending)
    return draft


def read_drafts(drafts: Sequence[Draft]) -> None:
    """Read the entries that the drafts lack, with an engine those of all drafts in one job. Raises DiskFull."""
    of_scan = {id(draft.scan): draft for draft in drafts}
    for scan, rows in read_delayed([draft.scan for draft in drafts]):
        draft = of_scan[id(scan)]
        draft.added += len(rows)
        draft.writes.add(rows)


def _take_over(draft: Draft, source: PartitionSource, old: Index, topic: Topic, pending: Intervals) -> None:
    """Add the old partitions to the draft; those with acknowledged messages, or wider than the granularity, are rewritten."""
    lost = bool(subtract(intervals_of(topic, old.covered), pending)) or any(
        topic.ledger(ledger_id) is None for ledger_id, _, _ in old.covered
    )
    for partition in old.partitions:
        is_wide = partition.width_ms > draft.index.rules.granularity_ms
        kept = partition.messages
        if lost:
            kept = sum(int(is_within(topic, rows, pending).sum()) for rows in source.read(partition))
        draft.removed += partition.messages - kept
        draft.dropped += not kept
        if kept == partition.messages and not is_wide:
            draft.keeps[partition.start_ms] = partition
        elif kept:
            for rows in source.read(partition):
                draft.writes.add(rows.take(is_within(topic, rows, pending)))


def finish_draft(draft: Draft) -> Draft:
    """Rewrite partitions that would get too many ledgers; afterwards the reader may be closed. Raises IndexCorrupt."""
    for start_ms in list(draft.writes.counts):
        kept = draft.keeps.get(start_ms)
        if kept is not None and (len(kept.ledgers) >= LEDGERS_MAX or kept.width_ms != draft.index.rules.granularity_ms):
            assert draft.source is not None
            for rows in draft.source.read(kept):
                draft.writes.add(rows)
            del draft.keeps[start_ms]
    draft.writes.flush()
    return draft


def apply_draft(store: Store, draft: Draft, commits: int = 0) -> Index:
    """Write a draft's ledgers, then record them and the directory in one transaction; return the new index.

    The store is open for writing; ``commits``: the number of transactions that the caller committed since the draft.
    Raises StalePlan if there were any others, DiskFull.
    """
    with write_ledgers(store, ledgers_of(draft)) if draft.writes else nullcontext() as written:
        index = written_index(draft, () if written is None else written.ledgers)

        def work(txn: Txn) -> None:
            if txn.id - 1 != draft.txn_id + commits:
                raise StalePlan("the store changed while the index was built", hint="run the same command again")
            if written is not None:
                written.index(txn)
            put_index(txn, index)

        store.write(work)
    return index


def ledgers_of(draft: Draft) -> Iterator[tuple[LedgerSpec, Iterator[bytes]]]:
    """Yield (spec, entries) of the ledgers that a draft writes, one per partition, in time order.

    The entries of a ledger must be consumed before the next ledger is requested.
    """
    for _, pieces in groupby(draft.writes.pieces(), key=lambda piece: piece[0]):
        entries = (entry for _, rows in pieces for entry, _ in iter_encoded(rows, draft.index.rules.tick_ms))
        yield LedgerSpec(_CLAIMS), entries


def written_index(draft: Draft, ledgers: Sequence[WrittenLedger]) -> Index:
    """Return the draft's index with the partitions in ``ledgers``, which were written for ``draft.writes`` in time order."""
    partitions = dict(draft.keeps)
    for (start_ms, messages), ledger in zip(sorted(draft.writes.counts.items()), ledgers, strict=True):
        kept = partitions.get(start_ms)
        new = (ledger.ledger_id, messages, ledger.size_bytes)
        before = () if kept is None else kept.ledgers
        partitions[start_ms] = Partition(start_ms, draft.index.rules.granularity_ms, (*before, new))
    return replace(draft.index, partitions=tuple(partitions[start_ms] for start_ms in sorted(partitions)))


def result_of(draft: Draft, index: Index) -> BuildResult:
    """Return the result of a build; ``index``: from ``apply_draft``, or the draft's in a dry run."""
    messages = len(draft.writes) + sum(part.messages for part in draft.keeps.values())
    return BuildResult(
        str(index.topic),
        index.subscription,
        index.cursor,
        messages,
        draft.added,
        draft.removed,
        len(draft.keeps.keys() | draft.writes.counts.keys()),
        len(draft.writes.counts),
        draft.dropped,
        index.bytes,
        draft.scan.entries,
        draft.scan.missing,
        draft.scan.unreadable,
    )


def build_indexes(
    store: Store,
    engine: Engine | None,
    chosen: Sequence[WantedIndex],
    now_ms: int,
    each: Callable[..., Iterator[Any]],  # Any: the result of ``work``
    *,
    rebuild: bool,
    dry_run: bool,
) -> Iterator[BuildResult]:
    """Build or update indexes: entries for several are read together, then each is written in its own transaction.

    ``each(items, work, alone=…)`` yields the results of ``work``, and continues after the error of an item unless ``alone``.
    """
    alone = len(chosen) == 1
    for turn in iter_turns(chosen, lambda wanted: wanted.entries):
        commits = 0

        def write(draft: Draft) -> BuildResult:
            nonlocal commits
            index = draft.index if dry_run else apply_draft(store, draft, commits)
            commits += not dry_run
            return result_of(draft, index)

        with open_runs() as file:
            with open_reader(store, engine) as reader:
                draft = partial(draft_index, reader, now_ms=now_ms, file=file, rebuild=rebuild)
                drafts = list(each(turn, draft, alone=alone))
                read_drafts(drafts)
                drafts = list(each(drafts, finish_draft, alone=alone))
            yield from each(drafts, write, alone=alone)


Drafts = Sequence[tuple[Index, Draft]]


def plan_split(store: Store, txn: Txn, namespace: NamespaceName, rules: IndexRules, now_ms: int) -> Plan | WritingPlan:
    """Plan enabling delayed delivery with the widths ``rules`` and splitting wider partitions, as one change.

    Raises InvalidValue.
    """
    enabling = plan_enable(txn, namespace, rules, now_ms, split=True)
    if next(iter_wide(txn, namespace, rules), None) is None:
        return enabling

    def draft(opened: Store, finish: Callable[[Drafts, Plan], ChangeReport]) -> tuple[ChangeReport, ...]:
        with open_runs() as file:
            with open_reader(opened) as reader:
                plan = plan_enable(reader.txn, namespace, rules, now_ms, split=True)
                indexes = list(iter_wide(reader.txn, namespace, rules))
                drafts = [(index, draft_split(reader, index, rules, file)) for index in indexes]
            split = tuple(split_of(*one) for one in drafts)
            parts = tuple(replace(part, split=split) for part in plan.parts if isinstance(part, DelayedPart))
            return (finish(drafts, replace(plan, parts=parts)),)

    return WritingPlan(
        enabling.kind,
        txn.id,
        lambda: draft(store, lambda _, plan: plan.preview()),
        lambda opened: draft(opened, lambda drafts, plan: apply_split(opened, drafts, plan, now_ms)),
    )


def draft_split(reader: EntryReader, index: Index, rules: IndexRules, file: RunFile) -> Draft:
    """Return the draft of an index whose partitions are at most as wide as ``rules`` say.

    ``file`` holds the rows that exceed memory. Raises IndexCorrupt, DiskFull.
    """
    source = PartitionSource(reader, index)
    draft = Draft(replace(index, rules=rules), DelayScan(reader), reader.txn.id, SortedRuns(file, rules), source=source)
    for partition in index.partitions:
        if partition.width_ms <= rules.granularity_ms:
            draft.keeps[partition.start_ms] = partition
            continue
        for rows in source.read(partition):
            draft.writes.add(rows)
    draft.writes.flush()
    return draft


def split_of(index: Index, draft: Draft) -> SplitIndex:
    """Return the number of partitions of an index before and after a split, for a report."""
    after = len(draft.keeps.keys() | draft.writes.counts.keys())
    return SplitIndex(str(index.topic), index.subscription, index.messages, len(index.partitions), after)


def apply_split(store: Store, drafts: Drafts, plan: Plan, now_ms: int) -> ChangeReport:
    """Write the ledgers of the drafts, then apply the plan and their directories in one transaction; return the report.

    Undoing the change restores the old directories: their ledgers stay. Raises StalePlan, DiskFull.
    """
    with write_ledgers(store, (ledger for _, draft in drafts for ledger in ledgers_of(draft))) as written:
        ledgers = iter(written.ledgers)
        steps = []
        with store.read() as txn:
            for index, draft in drafts:
                new = written_index(draft, list(islice(ledgers, len(draft.writes.counts))))
                key = index_key(index.topic, index.subscription)
                steps.append(Step("delayed", key, txn.get("delayed", key), encode_index(new)))
        return apply_written(written, replace(plan, steps=(*plan.steps, *steps)), now_ms)
