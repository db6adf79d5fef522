"""The change that a compaction is: the ``__compaction`` cursor and its property move to a new ledger, the old one is deleted. And the
change that gives a topic a compacted ledger back that it names no more.

Upstream moves both with one acknowledgement and then deletes the old ledger (``CompactedTopicImpl``, ``AbstractTwoPhaseCompactor``).
Here all of it is one transaction; the old ledger's entries stay where they are, so that undo brings its metadata back.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.changes.plan import ChangePart, CompactionDetails, Plan, Step, delete_step, put_value_step
from store.codec.cursor import CursorInfo, encode_cursor_info
from store.codec.ledgermetadata import ledger_path
from store.compaction.detached import read_detached
from store.compaction.view import CompactedView, find_compaction_cursor
from store.db.environment import Txn
from store.db.owners import find_owners
from store.db.tree import find_node
from store.errors import Refused
from store.frozen import frozen
from store.model.cursors import COMPACTION_CURSOR, Cursor
from store.model.extent import Extent
from store.model.reader import EntryReader
from store.model.references import COMPACTED_LEDGER
from store.model.topics import Topic, read_topic
from store.names import Position, TopicName


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
    steps = [*new_ledger, _cursor_step(txn, swap.topic, swap.cursor, swap.horizon, swap.ledger_id, now_ms)]
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


def plan_attach(reader: EntryReader, name: TopicName, ledger_id: int, now_ms: int) -> Plan:
    """Plan that topic NAME has its compacted view in ledger LEDGER_ID again, which nothing references.

    Raises TopicNotFound, LedgerNotFound, MetadataCorrupt, EntryCorrupt, and Refused where readers would not get all of it, or where the
    topic has another view.
    """
    txn = reader.txn
    topic = read_topic(txn, name)
    cursor = find_compaction_cursor(reader, topic)
    named = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    if named not in (None, ledger_id) and find_node(txn, ledger_path(named)) is not None:
        raise Refused(
            f"{name} has a compacted view in ledger {named}: ledger {ledger_id} does not replace it",
            hint=f"see both: pulsar-admin ledgers info {named} {ledger_id}",
            topic=str(name),
            ledgerId=ledger_id,
        )
    before = {"markDeletePosition": None if cursor is None else str(cursor.mark_delete), "compactedLedger": named}
    if named == ledger_id:
        part = ChangePart(topic=str(name), subscription=COMPACTION_CURSOR, before=before, after=before)
        return Plan("compaction attach", txn.id, (), (part,), untouched=frozenset((0,)))
    view = read_detached(reader, topic, ledger_id)
    part = ChangePart(
        topic=str(name),
        subscription=COMPACTION_CURSOR,
        before=before,
        after={"markDeletePosition": str(view.horizon), "compactedLedger": ledger_id},
        warnings=tuple(_attach_warnings(txn, topic, view)),
    )
    step = _cursor_step(txn, topic, cursor, view.horizon, ledger_id, now_ms)
    return Plan("compaction attach", txn.id, (step,), (part,))


def _attach_warnings(txn: Txn, topic: Topic, view: CompactedView) -> Iterator[str]:
    if topic.ids and view.horizon.ledger_id < topic.ids[0]:
        yield (
            f"what the topic had between {view.horizon} and {topic.at_rank(0)} is gone: a key that was changed or deleted there has its"
            f" value of {view.horizon} again"
        )
    ledger, own = (find_node(txn, path) for path in (ledger_path(view.ledger_id), topic.name.path))
    if ledger is not None and own is not None and ledger.stat.created_ms < own.stat.created_ms:
        yield f"ledger {view.ledger_id} is older than the topic's node: it may be of an earlier topic of that name"


def _cursor_step(txn: Txn, topic: Topic, cursor: Cursor | None, horizon: Position, ledger_id: int, now_ms: int) -> Step:
    """Acknowledge everything up to HORIZON, with the property: what the broker's cumulative acknowledgement leaves."""
    path = topic.name.cursor_path(COMPACTION_CURSOR)
    node = find_node(txn, path)
    properties = {} if cursor is None else dict(cursor.state.properties)
    properties[COMPACTED_LEDGER] = ledger_id
    info = CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=horizon,
        properties=properties,
        cursor_properties={} if cursor is None else cursor.info.cursor_properties,
        last_active_ms=now_ms if cursor is None else cursor.info.last_active_ms,
    )
    return put_value_step(txn, path, encode_cursor_info(info, b"" if node is None else node.value), now_ms)
