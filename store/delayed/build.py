"""Building the index of a topic and subscription: on from where it stands, in one transaction a subscription.

What is read: entries that wait and are not covered yet (behind the index cursor, or given back by a reset). What leaves: entries that
are covered and no longer wait. Ledgers are written first; then one transaction makes them known together with the directory and
the index cursor, so a process killed at any instant leaves the index as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedger, write_ledgers
from pulsar_admin.store.changes.policies import find_rules
from pulsar_admin.store.codec.claims import COMPONENT
from pulsar_admin.store.db.delayed import Index, Partition, find_index, put_index
from pulsar_admin.store.db.delayed_entries import iter_encoded
from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES, IndexRules
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.delayed.backlog import DelayScan, intervals_of, is_within, read_delayed
from pulsar_admin.store.delayed.partitions import PartitionSource
from pulsar_admin.store.delayed.runs import SortedRuns
from pulsar_admin.store.errors import StalePlan
from pulsar_admin.store.model.cursors import Cursor, Intervals, parts_of, pending_intervals, read_cursor, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.scan.integer_rows import RunFile

_CLAIMS = {COMPONENT: b"delayed-message-index"}
LEDGERS_MAX = 4
"""Ledgers of a partition before they are written as one."""
TURN_ENTRIES = 1 << 24


class BuildResult(Struct, frozen=True):
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


class Draft(Struct):
    """A new state of an index before it is written. ``writes``: what goes into new ledgers, one a partition.

    ``keeps``: partitions that stay as they are; those that also have new rows get one more ledger. ``source``: the old index.
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
    """Return the widths that count for TOPIC: its namespace's, else the defaults."""
    return find_rules(txn, topic.name.namespace) or DEFAULT_RULES


class Wanted(Struct, frozen=True):
    """A subscription whose index is to be built; ``entries`` and ``bytes`` of the topic: what reading it takes at most."""

    topic: TopicName
    subscription: str
    entries: int = 0
    bytes: int = 0

    @staticmethod
    def of(topic: Topic, cursor: Cursor) -> Wanted:
        """Return the subscription of CURSOR."""
        return Wanted(topic.name, cursor.name, topic.number_of_entries, topic.total_size_bytes)


def iter_turns(chosen: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """Yield those that are read together: a killed build loses the reading of one turn, and so much lies in a temporary file."""
    turn: list[Wanted] = []
    for wanted in chosen:
        if turn and sum(one.entries for one in turn) + wanted.entries > TURN_ENTRIES:
            yield turn
            turn = []
        turn.append(wanted)
    if turn:
        yield turn


def draft_index(reader: EntryReader, wanted: Wanted, now_ms: int, file: RunFile, *, rebuild: bool = False) -> Draft:
    """Return what the index becomes but for the entries that are to be read: ``read_drafts`` and ``finish_draft`` do that.

    FILE takes the rows that memory does not; REBUILD looks at nothing of the old index. Raises TopicNotFound, SubscriptionNotFound,
    IndexCorrupt, Unsupported, DiskFull.
    """
    topic = read_topic(reader.txn, wanted.topic)
    cursor = read_cursor(reader.txn, reader, topic, wanted.subscription)
    old = None if rebuild else find_index(reader.txn, topic.name, cursor.name)
    rules = rules_of(reader.txn, topic)
    if old is not None and rules.tick_ms < old.rules.tick_ms:
        old = None  # its times are rounded down too far; the entries have them whole
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
    """Read the entries that DRAFTS lack; with an engine those of all of them together. Raises DiskFull."""
    of_scan = {id(draft.scan): draft for draft in drafts}
    for scan, rows in read_delayed([draft.scan for draft in drafts]):
        draft = of_scan[id(scan)]
        draft.added += len(rows)
        draft.writes.add(rows)


def _take_over(draft: Draft, source: PartitionSource, old: Index, topic: Topic, pending: Intervals) -> None:
    """Keep the old partitions; those that lost messages, or are wider than partitions are now, are written anew."""
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
    """Put partitions that would get too many ledgers together; the reader is not needed any more. Raises IndexCorrupt."""
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
    """Write DRAFT's ledgers, then make them and the directory known in one transaction; return the new index.

    STORE is open for writing; COMMITS: transactions that the caller committed since the draft was made. Raises StalePlan when
    there were others, DiskFull.
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
    """Yield the ledgers that DRAFT writes, a partition each, in time order; take the entries of one before the next."""
    for _, pieces in groupby(draft.writes.pieces(), key=lambda piece: piece[0]):
        entries = (entry for _, rows in pieces for entry, _ in iter_encoded(rows, draft.index.rules.tick_ms))
        yield LedgerSpec(_CLAIMS), entries


def written_index(draft: Draft, ledgers: Sequence[WrittenLedger]) -> Index:
    """Return the index of DRAFT, whose ledgers were written as LEDGERS."""
    partitions = dict(draft.keeps)
    for (start_ms, messages), ledger in zip(sorted(draft.writes.counts.items()), ledgers, strict=True):
        kept = partitions.get(start_ms)
        new = (ledger.ledger_id, messages, ledger.size_bytes)
        before = () if kept is None else kept.ledgers
        partitions[start_ms] = Partition(start_ms, draft.index.rules.granularity_ms, (*before, new))
    return replace(draft.index, partitions=tuple(partitions[start_ms] for start_ms in sorted(partitions)))


def result_of(draft: Draft, index: Index) -> BuildResult:
    """Return what the build of DRAFT did; INDEX: what ``apply_draft`` gave, or the draft's of a dry run."""
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
