"""Ledgers of no known topic: each group of them becomes a topic of its own in a namespace where no broker deletes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import field

from pulsar_admin.store.changes.cursors import info_of_state
from pulsar_admin.store.changes.plan import ChangePart
from pulsar_admin.store.codec.claims import topic_claims
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.policies import encode_json_object
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.resources import TENANT, tenant_path
from pulsar_admin.store.names import NamespaceName, Position, parse_topic
from pulsar_admin.store.recovery.chains import LOST_AND_FOUND, Group, Naming, name_of
from pulsar_admin.store.recovery.closing import MadeLedger, make_ledger
from pulsar_admin.store.recovery.from_ledgers import Remade, Sources, cluster_of, default_policies
from pulsar_admin.store.recovery.keepalive_cursor import HOLDING
from pulsar_admin.store.wording import counted, plural

SUBSCRIPTION = HOLDING
"""At the beginning of each topic, so that nothing is trimmed, nor the topic deleted as inactive."""


class LostAndFound(Remade):
    """What is made for groups of no topic."""

    ledger_ids: list[int] = field(default_factory=list)


Names = Mapping[Group, Naming]


def plan_lost_and_found(sources: Sources, groups: Sequence[Group], newest: int, names: Names) -> LostAndFound:
    """Plan a topic for the ledgers above NEWEST of each of GROUPS, with one subscription at its beginning."""
    found = LostAndFound(sources)
    entries = ledgers = 0
    for group in groups:
        made = _made(found, group, newest, names)
        if made:
            _make_topic(found, group, made, names)
            found.ledger_ids += [one.ledger_id for one in made]
            if group not in names:
                ledgers += len(made)
                entries += sum(one.entries for one in made)
    topics = [parse_topic(part.topic) for part in found.parts if part.topic]
    for namespace in sorted({one.namespace for one in topics}, key=str):
        _make_namespace(found, namespace)
    lost = sum(one.namespace == LOST_AND_FOUND for one in topics)
    if lost < len(topics):
        found.warnings.append(
            f"{counted(len(topics) - lost, 'topic')} of no node {plural(len(topics) - lost, 'has', 'have')} the name that entries say, and"
            f" a subscription {SUBSCRIPTION} that keeps the messages: make yours, then remove it"
        )
    if lost:
        found.warnings.append(
            f"{counted(ledgers, 'ledger')} of {counted(entries, 'entry')} {plural(ledgers, 'is', 'are')} of no topic of this metadata, or"
            f" one witness alone says of which: see {counted(lost, 'topic')} of {LOST_AND_FOUND}"
        )
    return found


def _made(found: LostAndFound, group: Group, newest: int, names: Names) -> list[MadeLedger]:
    custom = topic_claims(name_of(group, names))
    made = []
    sibling = find_metadata(found.txn, newest) if newest >= 0 else None
    for ledger_id in group.ledger_ids:
        if ledger_id > newest:
            try:
                made.append(make_ledger(found.sources.reader, ledger_id, custom, sibling))
            except Refused as error:
                found.warnings.append(error.message)
    return made


def _make_topic(found: LostAndFound, group: Group, made: Sequence[MadeLedger], names: Names) -> None:
    name = name_of(group, names)
    now_ms = found.sources.now_ms
    closed = [LedgerInfo(one.ledger_id, one.entries, one.metadata.length, now_ms) for one in made[:-1]]
    managed = ManagedLedger((*closed, LedgerInfo(made[-1].ledger_id)))
    cursor = info_of_state(CursorState(Position(made[0].ledger_id, -1)), {})
    values = {
        name.path: encode_managed_ledger(managed),
        name.cursor_path(SUBSCRIPTION): encode_cursor_info(cursor),
        **{ledger_path(one.ledger_id): encode_ledger_metadata(one.metadata) for one in made},
    }
    for path, value in values.items():
        found.put(path, value)
    after: dict[str, object] = {"ledgers": [one.ledger_id for one in made], "entries": sum(one.entries for one in made)}
    if group in names:
        after["witnesses"] = list(names[group].witnesses)
    warnings = tuple(text for one in made for text in one.warnings)
    found.parts.append(ChangePart(topic=str(name), after=after, warnings=warnings))


def _make_namespace(found: LostAndFound, namespace: NamespaceName) -> None:
    cluster = cluster_of(found.sources)
    tenant = TENANT.replace(None, {"adminRoles": [], "allowedClusters": [cluster]})
    for path, value in (
        (tenant_path(namespace.tenant), tenant),
        (namespace.policies_path, default_policies(cluster)),
    ):
        if find_node(found.txn, path) is None and all(step.key != tree_key(path) for step in found.steps):
            found.put(path, encode_json_object(value))
