"""Younger ledgers than any listed that go on with no topic's messages: schemas, compacted ledgers, cursors, buckets, logs.

Each gets metadata, since a bookie deletes the entries of one that has none (``ScanAndCompareGarbageCollector``, BookKeeper 4.17). A
schema ledger is its topic's where its entries list versions of then, as ``BookkeeperSchemaStorage`` writes them, or the topic's messages
use its version (Pulsar 4.0.8).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import field

from pulsar_admin.store.changes.plan import ChangePart
from pulsar_admin.store.codec.claims import APPLICATION, schema_claims
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.recovery.chains import Chains
from pulsar_admin.store.recovery.closing import close_ledger
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR, MESSAGES, SCHEMA, LedgerEvidence
from pulsar_admin.store.recovery.from_ledgers import Remade
from pulsar_admin.store.recovery.schemas import made_locator
from pulsar_admin.store.wording import counted, listed, plural


class Younger(Remade):
    """What is made for ledgers that go on with no topic's messages. ``tied``: ledger → what its metadata says that it belongs to."""

    tied: dict[int, Mapping[str, bytes]] = field(default_factory=dict)


# -- schemas ----------------------------------------------------------------------------------------------------------


def tie_schemas(younger: Younger, young: Iterable[LedgerEvidence], used: Mapping[TopicName, int]) -> None:
    """Write the locators of schemas that YOUNG ledgers go on with. USED: topic → highest version that its messages use, −1 none."""
    by_topic: dict[TopicName, list[LedgerEvidence]] = defaultdict(list)
    for one in young:
        for schema_id in one.topics if one.kind == SCHEMA and len(one.topics) == 1 else ():
            try:
                by_topic[parse_topic(f"persistent://{schema_id}")].append(one)
            except StoreError:
                continue
    for name, ledgers in sorted(by_topic.items(), key=lambda item: str(item[0])):
        if name in used:
            _tie_schema(younger, name, ledgers, used[name])


def _tie_schema(younger: Younger, name: TopicName, ledgers: Iterable[LedgerEvidence], used: int) -> None:
    reader = younger.sources.reader
    node = find_node(reader.txn, name.schema_path)
    before = None if node is None else node.value
    listed: set[int] = set()
    if before:
        try:
            listed = {item.position.ledger_id for item in decode_schema_locator(before, name.schema_path).index}
        except StoreError:
            return
        ledgers = [one for one in ledgers if listed & one.points.keys()]
    ids = sorted(one.ledger_id for one in ledgers)
    found = made_locator(reader, ids, before) if ids else None
    if found is None or (not before and used < found.versions[0].number) or found.value == before:
        return
    second = (
        "its entries list versions of this metadata"
        if before
        else f"messages of the topic use version {min(used, found.versions[-1].number)}"
    )
    younger.put(name.schema_path, found.value)
    younger.tied |= {one: schema_claims(name) for one in ids}
    shown = [{"version": one.number, "ledger": one.ledger_id} for one in found.versions if one.ledger_id not in listed]
    after = {"schemaVersions": shown, "witnesses": ["its entries name the topic", second]}
    younger.parts.append(ChangePart(topic=str(name), after=after, warnings=tuple(found.warnings)))


def used_versions(
    topics: Iterable[TopicName], chains: Chains, evidence: Mapping[int, LedgerEvidence], names: Mapping[str, TopicName]
) -> dict[TopicName, int]:
    """Return base topic → highest schema version that its messages use. NAMES: of groups of no known topic, by their first ledger."""
    used = {name.base: -1 for name in topics}
    for group in chains.groups:
        name = parse_topic(group.topic) if group.topic else names.get(str(group.ledger_ids[0]))
        if name is not None and group.kind == MESSAGES:
            most = max(evidence[one].schema_version for one in group.ledger_ids)
            used[name.base] = max(used.get(name.base, -1), most)
    return used


# -- all others -------------------------------------------------------------------------------------------------------


def close_others(younger: Younger, young: Iterable[LedgerEvidence]) -> None:
    """Give each of YOUNG metadata; what is tied to nothing is listed with its kind."""
    loose: Counter[str] = Counter()
    lost: list[int] = []
    for one in young:
        claims = younger.tied.get(one.ledger_id)
        try:
            closed = close_ledger(younger.sources.reader, one.ledger_id, {**APPLICATION, **(claims or {})})
        except Refused as error:
            younger.warnings.append(error.message)
            continue
        younger.put(ledger_path(one.ledger_id), encode_ledger_metadata(closed.metadata))
        lost += [one.ledger_id] if closed.missing else []
        if claims is None:
            loose[one.kind] += 1
            after = {"kind": one.kind, "entries": one.entries, "witness": "nothing says whose it is"}
            younger.parts.append(ChangePart(resource=f"ledger {one.ledger_id}", after=after))
    younger.warnings += _warnings(loose, lost)


def _warnings(loose: Counter[str], lost: list[int]) -> Iterator[str]:
    if loose:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(loose.items()))
        yield (
            f"{counted(loose.total(), 'younger ledger')} ({kinds}) {plural(loose.total(), 'has', 'have')} metadata so that no bookie"
            " deletes them, and nothing says whose they are. When all is well they are found with: pulsar-admin ledgers orphans"
        )
    if loose[SCHEMA] or loose[COMPACTED]:
        yield (
            f"{counted(loose[SCHEMA], 'ledger')} of schema versions and {counted(loose[COMPACTED], 'compaction')} since this metadata was"
            " written are not attached: consumers cannot look such versions up, and topics are compacted again"
        )
    if loose[CURSOR]:
        yield f"{counted(loose[CURSOR], 'cursor ledger')} since may hold acknowledgements that are not taken over"
    if lost:
        yield (
            f"entries of {counted(len(lost), 'ledger')} are lost in part ({listed(lost)}); ledgers forget lets a broker go on after them."
            " See: pulsar-admin ledgers missing"
        )
