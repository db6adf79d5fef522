"""The change that a compaction is: the ``__compaction`` cursor and its property move to a new ledger, the old one is deleted.

Upstream moves both with one acknowledgement and then deletes the old ledger (``CompactedTopicImpl``, ``AbstractTwoPhaseCompactor``).
Here all of it is one transaction; the old ledger's entries stay where they are, so that undo brings its metadata back.
"""

from __future__ import annotations

from store.changes.plan import Plan, Step, delete_step, put_value_step
from store.changes.report import ChangePart, CompactionDetails
from store.codec.cursor import CursorInfo, encode_cursor_info
from store.codec.ledgermetadata import ledger_path
from store.db.environment import Txn
from store.db.owners import find_owners
from store.db.tree import find_node
from store.frozen import frozen
from store.model.cursors import COMPACTION_CURSOR, Cursor
from store.model.extent import Extent
from store.model.references import COMPACTED_LEDGER
from store.model.topics import Topic
from store.names import Position


@frozen
class LedgerSwap:
    """A new compacted ledger for a topic. ``ledger_id`` None: of a dry run. ``extent``: what it holds."""

    topic: Topic
    cursor: Cursor | None
    horizon: Position
    ledger_id: int | None
    old_ledger_id: int | None
    extent: Extent
    details: CompactionDetails
    warnings: tuple[str, ...] = ()


def plan_swap(txn: Txn, command: str, swap: LedgerSwap, new_ledger: tuple[Step, ...], now_ms: int) -> Plan:
    """Return the plan of SWAP; NEW_LEDGER: the steps that create the new ledger's metadata. A dry run has no steps."""
    part = swap_part(swap)
    if swap.ledger_id is None:
        return Plan(command, txn.id, (), (part,), warnings=swap.warnings)
    steps = [*new_ledger, _cursor_step(txn, swap, now_ms)]
    old = swap.old_ledger_id
    warnings = swap.warnings
    if old is not None and find_node(txn, ledger_path(old)) is not None:
        others = [owner for owner in find_owners(txn, old) if (owner.kind, owner.topic) != _owner(swap.topic)]
        if others:
            warnings += (f"ledger {old} stays: {others[0].kind} of {others[0].topic} references it too",)
        else:
            steps.append(delete_step(txn, ledger_path(old)))
    return Plan(command, txn.id, tuple(steps), (part,), warnings=warnings)


def _owner(topic: Topic) -> tuple[str, str]:
    return "compacted", str(topic.name)


def swap_part(swap: LedgerSwap) -> ChangePart:
    """Return what to report of SWAP."""
    mark_delete = None if swap.cursor is None else str(swap.cursor.mark_delete)
    return ChangePart(
        topic=str(swap.topic.name),
        subscription=COMPACTION_CURSOR,
        before={"markDeletePosition": mark_delete, "compactedLedger": swap.old_ledger_id},
        after={"markDeletePosition": str(swap.horizon), "compactedLedger": swap.ledger_id},
        extent=swap.extent,
        compaction=swap.details,
    )


def _cursor_step(txn: Txn, swap: LedgerSwap, now_ms: int) -> Step:
    """Acknowledge everything up to the horizon, with the property: what the broker's cumulative acknowledgement leaves."""
    path = swap.topic.name.cursor_path(COMPACTION_CURSOR)
    node = find_node(txn, path)
    properties = {} if swap.cursor is None else dict(swap.cursor.state.properties)
    assert swap.ledger_id is not None
    properties[COMPACTED_LEDGER] = swap.ledger_id
    info = CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=swap.horizon,
        properties=properties,
        cursor_properties={} if swap.cursor is None else swap.cursor.info.cursor_properties,
        last_active_ms=now_ms if swap.cursor is None else swap.cursor.info.last_active_ms,
    )
    return put_value_step(txn, path, encode_cursor_info(info, b"" if node is None else node.value), now_ms)
