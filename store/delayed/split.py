"""Cutting the partitions of existing indexes narrower, in the change that makes the granularity shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from store.changes.log_writer import apply_written, write_ledgers
from store.changes.plan import Plan, Step
from store.changes.report import ChangeReport, SplitIndex
from store.db.delayed import Index, encode_index, index_key
from store.db.delayed_rules import IndexRules
from store.db.environment import Store
from store.delayed.backlog import DelayScan
from store.delayed.build import Draft, ledgers_of, written_index
from store.delayed.partitions import PartitionSource
from store.delayed.runs import RunFile, SortedRuns
from store.model.ledgers import EntryReader


def draft_split(reader: EntryReader, index: Index, rules: IndexRules, file: RunFile) -> Draft:
    """Return INDEX with its wide partitions cut by RULES; FILE takes the rows that memory does not. Raises IndexCorrupt, DiskFull."""
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
    """Return what a split does to INDEX."""
    after = len(draft.keeps.keys() | draft.writes.counts.keys())
    return SplitIndex(str(index.topic), index.subscription, index.messages, len(index.partitions), after)


def apply_split(store: Store, drafts: Sequence[tuple[Index, Draft]], plan: Plan, now_ms: int) -> ChangeReport:
    """Write the ledgers of DRAFTS, then apply PLAN and their directories in one transaction; return the report.

    Undoing the change brings the old directories back: their ledgers stay. Raises StalePlan, DiskFull.
    """
    written = write_ledgers(store, (ledger for _, draft in drafts for ledger in ledgers_of(draft)))
    ledgers = iter(written.ledgers)
    steps = []
    with store.read() as txn:
        for index, draft in drafts:
            new = written_index(draft, list(islice(ledgers, len(draft.writes.counts))))
            key = index_key(index.topic, index.subscription)
            steps.append(Step("delayed", key, txn.get("delayed", key), encode_index(new)))
    return apply_written(written, replace(plan, steps=(*plan.steps, *steps)), now_ms)
