"""Cutting the partitions of existing indexes narrower, in the change that makes the granularity shrink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeReport, Plan, SplitIndex, Step, WritingPlan
from pulsar_admin.store.changes.policies import plan_enable
from pulsar_admin.store.db.delayed import Index, encode_index, index_key, iter_wide
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.delayed.backlog import DelayScan
from pulsar_admin.store.delayed.build import Draft, ledgers_of, written_index
from pulsar_admin.store.delayed.partitions import PartitionSource
from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.names import NamespaceName
from pulsar_admin.store.scan.integer_rows import RunFile

Drafts = Sequence[tuple[Index, Draft]]
COMMAND = "namespaces enable-delayed-message"


def plan_split(store: Store, namespace: NamespaceName, rules: IndexRules, txn_id: int, now_ms: int) -> WritingPlan:
    """Plan enabling NAMESPACE by RULES and cutting the partitions that are wider, as one change on transaction TXN_ID."""

    def draft(opened: Store, finish: Callable[[Drafts, Plan], ChangeReport]) -> tuple[ChangeReport, ...]:
        with open_runs() as file:
            with open_reader(opened) as reader:
                plan = plan_enable(reader.txn, namespace, rules, now_ms, split=True)
                indexes = list(iter_wide(reader.txn, namespace, rules))
                drafts = [(index, draft_split(reader, index, rules, file)) for index in indexes]
            part = replace(plan.parts[0], split=tuple(split_of(*one) for one in drafts))
            return (finish(drafts, replace(plan, parts=(part,))),)

    return WritingPlan(
        COMMAND,
        txn_id,
        lambda: draft(store, lambda _, plan: plan.preview()),
        lambda opened: draft(opened, lambda drafts, plan: apply_split(opened, drafts, plan, now_ms)),
    )


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


def apply_split(store: Store, drafts: Drafts, plan: Plan, now_ms: int) -> ChangeReport:
    """Write the ledgers of DRAFTS, then apply PLAN and their directories in one transaction; return the report.

    Undoing the change brings the old directories back: their ledgers stay. Raises StalePlan, DiskFull.
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
