"""The list of a topic's ledgers as it is changed: what nobody here knows of ManagedLedgerInfo stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from store.changes.plan import Step, put_value_step
from store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from store.db.environment import Txn
from store.db.tree import find_node
from store.errors import Refused
from store.model.topics import Topic, read_topic
from store.names import TopicName


def put_managed_ledger(txn: Txn, name: TopicName, managed: ManagedLedger, now_ms: int) -> Step:
    """Return the step that writes MANAGED as the topic's ManagedLedgerInfo."""
    node = find_node(txn, name.path)
    value = encode_managed_ledger(managed, b"" if node is None else node.value)
    return put_value_step(txn, name.path, value, now_ms)


def append_ledgers(
    txn: Txn, name: TopicName, infos: Sequence[LedgerInfo], properties: Mapping[str, str], now_ms: int
) -> Step:
    """Return the step that lists INFOS, at least one, behind the topic's ledgers, PROPERTIES added; raises Refused."""
    there = find_node(txn, name.path) is not None
    managed = closed_ledgers(read_topic(txn, name), now_ms) if there else ManagedLedger()
    if managed.ledgers and managed.ledgers[-1].ledger_id >= infos[0].ledger_id:
        raise Refused(
            f"{name} ends with ledger {managed.ledgers[-1].ledger_id}: ledger {infos[0].ledger_id} cannot come behind it",
            hint="let the ledgers get new ids: leave --keep-ledger-ids away",
        )
    more = {**managed.properties, **properties}
    return put_managed_ledger(txn, name, replace(managed, ledgers=(*managed.ledgers, *infos), properties=more), now_ms)


def closed_ledgers(topic: Topic, now_ms: int) -> ManagedLedger:
    """Return the ledger list of TOPIC with its last ledger closed: a broker looks for the end of the last one only."""
    if not topic.ledgers or not topic.ledgers[-1].is_open:
        return topic.managed
    last = topic.ledgers[-1]
    info = last.info._replace(entries=last.entries, size_bytes=last.size_bytes, timestamp_ms=now_ms)
    return replace(topic.managed, ledgers=(*topic.managed.ledgers[:-1], info))
