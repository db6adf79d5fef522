"""Changing nodes that hold one JSON object each: what is made, replaced or deleted, as one plan."""

from __future__ import annotations

from collections.abc import Sequence

from store.changes.plan import ChangePart, Plan, Step, delete_step, put_value_step
from store.codec.policies import JsonObject, encode_json_object
from store.db.environment import Txn
from store.frozen import frozen
from store.model.resources import find_json


@frozen
class NodeChange:
    """What a node becomes; ``after`` None: it is deleted. ``resource``: its name in reports, such as ``tenant acme``."""

    resource: str
    path: str
    after: JsonObject | None


def plan_node(txn: Txn, command: str, change: NodeChange, now_ms: int) -> Plan:
    """Plan one CHANGE; raises MetadataCorrupt."""
    return plan_nodes(txn, command, [change], now_ms)


def plan_nodes(
    txn: Txn, command: str, changes: Sequence[NodeChange], now_ms: int, warnings: Sequence[str] = ()
) -> Plan:
    """Plan CHANGES together; raises MetadataCorrupt."""
    steps: list[Step] = []
    parts = []
    for change in changes:
        before = find_json(txn, change.path)
        parts.append(ChangePart(resource=change.resource, before=before, after=change.after))
        if before == change.after:
            continue
        if change.after is None:
            steps.append(delete_step(txn, change.path))
        else:
            steps.append(put_value_step(txn, change.path, encode_json_object(change.after), now_ms))
    return Plan(command, txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))
