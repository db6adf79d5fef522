"""Ledgers of no known topic: each group of them becomes a topic of its own in a namespace where no broker deletes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from store.changes.cursors import info_of_state
from store.changes.plan import Step, put_value_step
from store.changes.report import ChangePart
from store.codec.claims import topic_claims
from store.codec.cursor import CursorState, encode_cursor_info
from store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from store.codec.policies import encode_json_object
from store.db.tree import find_node, tree_key
from store.errors import Refused
from store.model.ledgers import find_metadata
from store.model.resources import TENANT, tenant_path
from store.names import NamespaceName, Position, parse_topic
from store.recovery.chains import Group
from store.recovery.from_ledgers import Sources, cluster_of, default_policies
from store.recovery.holding import HOLDING
from store.recovery.making import MadeLedger, make_ledger
from store.recovery.naming import LOST_AND_FOUND, Naming, name_of
from store.wording import counted, plural

SUBSCRIPTION = HOLDING
"""At the beginning of each topic, so that nothing is trimmed, nor the topic deleted as inactive."""


@dataclass(slots=True)
class LostAndFound:
    """What is made for groups of no topic."""

    steps: list[Step] = field(default_factory=list)
    parts: list[ChangePart] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ledger_ids: list[int] = field(default_factory=list)


Names = Mapping[Group, Naming]


def plan_lost_and_found(sources: Sources, groups: Sequence[Group], newest: int, names: Names) -> LostAndFound:
    """Plan a topic for the ledgers above NEWEST of each of GROUPS, with one subscription at its beginning."""
    found = LostAndFound()
    entries = ledgers = 0
    for group in groups:
        made = _made(sources, found, group, newest, names)
        if made:
            _make_topic(sources, found, group, made, names)
            found.ledger_ids += [one.ledger_id for one in made]
            if group not in names:
                ledgers += len(made)
                entries += sum(one.entries for one in made)
    topics = [parse_topic(part.topic) for part in found.parts if part.topic]
    for namespace in sorted({one.namespace for one in topics}, key=str):
        _make_namespace(sources, found, namespace)
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


def _made(sources: Sources, found: LostAndFound, group: Group, newest: int, names: Names) -> list[MadeLedger]:
    custom = topic_claims(name_of(group, names))
    made = []
    sibling = find_metadata(sources.reader.txn, newest) if newest >= 0 else None
    for ledger_id in group.ledger_ids:
        if ledger_id > newest:
            try:
                made.append(make_ledger(sources.reader, ledger_id, custom, sibling))
            except Refused as error:
                found.warnings.append(error.message)
    return made


def _make_topic(sources: Sources, found: LostAndFound, group: Group, made: Sequence[MadeLedger], names: Names) -> None:
    name = name_of(group, names)
    txn, now_ms = sources.reader.txn, sources.now_ms
    closed = [LedgerInfo(one.ledger_id, one.entries, one.metadata.length, now_ms) for one in made[:-1]]
    managed = ManagedLedger((*closed, LedgerInfo(made[-1].ledger_id)))
    cursor = info_of_state(CursorState(Position(made[0].ledger_id, -1)), {})
    values = {
        name.path: encode_managed_ledger(managed),
        name.cursor_path(SUBSCRIPTION): encode_cursor_info(cursor),
        **{ledger_path(one.ledger_id): encode_ledger_metadata(one.metadata) for one in made},
    }
    found.steps += [put_value_step(txn, path, value, now_ms) for path, value in values.items()]
    after: dict[str, object] = {"ledgers": [one.ledger_id for one in made], "entries": sum(one.entries for one in made)}
    if group in names:
        after["witnesses"] = list(names[group].witnesses)
    warnings = tuple(text for one in made for text in one.warnings)
    found.parts.append(ChangePart(topic=str(name), after=after, warnings=warnings))


def _make_namespace(sources: Sources, found: LostAndFound, namespace: NamespaceName) -> None:
    txn = sources.reader.txn
    cluster = cluster_of(sources)
    tenant = TENANT.replace(None, {"adminRoles": [], "allowedClusters": [cluster]})
    for path, value in (
        (tenant_path(namespace.tenant), tenant),
        (namespace.policies_path, default_policies(cluster)),
    ):
        if find_node(txn, path) is None and all(step.key != tree_key(path) for step in found.steps):
            found.steps.append(put_value_step(txn, path, encode_json_object(value), sources.now_ms))
