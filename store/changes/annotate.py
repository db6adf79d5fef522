"""``store annotate``: publish times of ledgers (PIP-345) into their topics' metadata, as a change."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_admin.store.changes.plan import ChangePart, Plan, Step, put_value_step
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.model.publish_times import BEGIN, Form, annotated_value
from pulsar_admin.store.names import TopicName


def plan_annotate(txn: Txn, names: Iterable[TopicName], form: Form, now_ms: int) -> Plan:
    """Plan writing begin and end publish time in FORM on every closed ledger of the topics NAMES whose entries are all here.

    Raises MetadataCorrupt, IndexCorrupt.
    """
    steps: list[Step] = []
    parts: list[ChangePart] = []
    untouched: set[int] = set()
    for name in names:
        node = find_node(txn, name.path)
        if node is None:  # subscriptions alone are left of it: there is no list to write to
            continue
        value = annotated_value(txn, node.path, node.value, form)
        before, after = (decode_managed_ledger(one, node.path).ledgers for one in (node.value, value))
        changed = [info for info, old in zip(after, before, strict=True) if info != old]
        if changed:
            steps.append(put_value_step(txn, name.path, value, now_ms))
        else:
            untouched.add(len(parts))
        parts.append(
            ChangePart(
                topic=str(name),
                form=form,
                before={"annotatedLedgers": _count(before, form)},
                after={"annotatedLedgers": _count(after, form)},
                annotated=tuple(info.ledger_id for info in changed),
            )
        )
    return Plan("store annotate", txn.id, tuple(steps), tuple(parts), untouched=frozenset(untouched))


def _count(infos: Iterable[LedgerInfo], form: Form) -> int:
    return sum(
        (info.begin_publish_ms is not None) if form == "fields" else (BEGIN in info.properties) for info in infos
    )
