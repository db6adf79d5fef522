"""What ``pulsar-managed-ledger-admin`` (4.0.8) changes: the list of a topic's ledgers, and the mark-delete of a cursor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from store.changes.cursors import CursorMove, plan_moves
from store.changes.ledger_list import put_managed_ledger
from store.changes.plan import ChangePart, Plan
from store.changes.resets import check_position
from store.db.environment import Txn
from store.errors import LedgerNotFound
from store.model.cursors import read_cursor
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.names import Position, TopicName


def plan_forget_ledgers(txn: Txn, name: TopicName, ledger_ids: Collection[int], now_ms: int) -> Plan:
    """Plan the list of the topic's ledgers without LEDGER_IDS; the ledgers and what cursors say of them stay.

    Raises TopicNotFound, and LedgerNotFound for an id that is not listed.
    """
    topic = read_topic(txn, name)
    before = topic.ids
    for ledger_id in ledger_ids:
        if ledger_id not in before:
            listed = ", ".join(map(str, before)) or "none"
            raise LedgerNotFound(
                f"{name} has no ledger {ledger_id}", hint=f"its ledgers: {listed}", topic=str(name), ledgerId=ledger_id
            )
    managed = topic.managed
    left = tuple(ledger for ledger in managed.ledgers if ledger.ledger_id not in ledger_ids)
    step = put_managed_ledger(txn, name, replace(managed, ledgers=left), now_ms)
    after = [ledger.ledger_id for ledger in left]
    part = ChangePart(topic=str(name), before={"ledgers": list(before)}, after={"ledgers": after})
    return Plan("managed-ledger delete-managed-ledger-ids", txn.id, (step,), (part,))


def plan_mark_delete(
    reader: EntryReader, name: TopicName, cursor: str, position: Position, now_ms: int, *, force: bool = False
) -> Plan:
    """Plan the cursor's mark-delete at POSITION, as typed; what was acknowledged one by one stays acknowledged.

    Upstream's script writes it into ManagedCursorInfo, where no broker looks while the position is in a cursor ledger; here the
    whole state moves into ManagedCursorInfo then. Raises SubscriptionNotFound, LedgerNotFound and EntryNotFound, and unless FORCE
    Refused for a cursor that a broker keeps for itself.
    """
    topic = read_topic(reader.txn, name)
    found = read_cursor(reader.txn, reader, topic, cursor)
    check_position(topic, position, "")
    ledger_id = found.info.cursors_ledger_id
    said = f"the position was in the cursor ledger {ledger_id}, where pulsar-managed-ledger-admin would have left it"
    move = CursorMove(
        topic,
        found,
        replace(found.state, mark_delete=position),
        warnings=(said,) if ledger_id >= 0 else (),
        force=force,
    )
    return plan_moves(reader, "managed-ledger update-mark-delete-cursor", [move], now_ms)
