"""Topics and ledgers that the metadata does not list, because they were deleted or are younger, and their recovery.

Two witnesses join two ledgers, otherwise they stay apart (``store.recovery.chains``); nameless groups become topics of
``lost-and-found/ledgers``, where no broker deletes anything. Every younger ledger gets metadata, because a bookie deletes the entries of a
ledger without any (``ScanAndCompareGarbageCollector``, BookKeeper 4.17). A schema ledger belongs to its topic if its entries list the
versions before it, as ``BookkeeperSchemaStorage`` writes them, or if the topic's messages use its version (Pulsar 4.0.8).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import field

from pulsar_admin.store.changes.cursors import info_of_state
from pulsar_admin.store.changes.plan import ChangePart
from pulsar_admin.store.codec.claims import APPLICATION, schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.policies import encode_json_object
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import MetadataCorrupt, Refused, StoreError, TopicNotFound
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_indexed_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import TENANT, tenant_path
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import Position, TopicName, parse_topic, topic_of_path
from pulsar_admin.store.recovery import from_ledgers
from pulsar_admin.store.recovery.chains import (
    LOST_AND_FOUND,
    Chains,
    GroupName,
    LedgerGroup,
    find_chains,
    find_names,
    name_of,
)
from pulsar_admin.store.recovery.closing import MadeLedger, close_ledger, make_ledger
from pulsar_admin.store.recovery.deleted_nodes import Fate, Listing, Past, find_deletion
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR, MESSAGES, SCHEMA, LedgerEvidence, read_evidence
from pulsar_admin.store.recovery.ledgers import iter_deleted_ids
from pulsar_admin.store.wording import Answer, counted, listed, plural


class GoneTopic(Answer, frozen=True):
    """A topic and the ledgers that it no longer lists. ``deleted_ms``: None if it was not deleted, or the time is unknown.

    ``recreated_ms``: when the topic that now has its name was created, None without such a topic. ``here``: how many of those ledgers have
    entries here and are unreferenced; ``entries``: how many entries these have.
    """

    topic: TopicName
    deleted_ms: int | None
    ledgers: int
    here: int
    entries: int
    recreated_ms: int | None = None


def is_topic_node(path: str, value: bytes) -> bool:
    """Filter for ``store.recovery.deleted_nodes.read_past``: keep only history records of managed-ledger (topic) nodes."""
    return topic_of_path(path) is not None


def iter_gone(txn: Txn, past: Past) -> Iterator[GoneTopic]:
    """Yield every deleted topic of the history by name, and existing topics with unlisted ledgers that can be recovered."""
    for name in sorted(past.listed):
        deletion = find_deletion(past, name)
        unlisted = [ledger_id for ledger_id, listing in past.listed[name].items() if listing.gone_ms is not None]
        # What something else references is not this topic's to restore, though its entries are on disk.
        here = [times for one in unlisted if not find_owners(txn, one) and (times := find_times(txn, one)) is not None]
        if here or deletion is not None:
            entries = sum(times.sums.entries for times in here)
            deleted_ms = None if deletion is None else deletion.gone_ms or None
            node = None if deleted_ms is None else find_node(txn, name.path)
            recreated_ms = None if node is None else node.stat.created_ms
            yield GoneTopic(name, deleted_ms, len(unlisted), len(here), entries, recreated_ms)


# -- deleted ones, by their entries -----------------------------------------------------------------------------------


def read_past_by_evidence(reader: EntryReader) -> Past:
    """Return what entries say of deleted ledgers; every entry's head is read. Subscriptions are not known. Raises Refused."""
    txn = reader.txn
    known: dict[int, str] = {}
    for name in iter_topics(txn):
        with suppress(
            TopicNotFound, MetadataCorrupt
        ):  # its node is gone, or cannot be decoded: no list says what it has
            known |= dict.fromkeys(read_topic(txn, name).ids, str(name))
    evidence = {one.ledger_id: one for one in read_evidence(reader, [*iter_indexed_ids(txn)])}
    chains = find_chains(evidence.values(), known)
    names = find_names(reader, evidence.values(), chains)
    deleted = set(iter_deleted_ids(txn))
    past = Past()
    for group in chains.groups:
        mine = [one for one in group.ledger_ids if one in deleted]
        if mine:
            topic = name_of(group, names)
            node = find_node(txn, topic.path)
            past.fates[topic.path] = Fate(b"", 0, 0) if node is None else Fate(node.value, 0)
            custom = {**APPLICATION, **topic_claims(topic)}
            for ledger_id in mine:
                published = evidence[ledger_id].publish_ms
                info = LedgerInfo(ledger_id, timestamp_ms=0 if published is None else published[1])
                past.listed.setdefault(topic, {})[ledger_id] = Listing(info, 0)
                value = encode_ledger_metadata(close_ledger(reader, ledger_id, custom).metadata)
                past.fates[ledger_path(ledger_id)] = Fate(value, 0, 0)
            past.witnesses[topic] = _witnesses(chains, names.get(group), mine)
    return past


def _witnesses(chains: Chains, naming: GroupName | None, ledgers: list[int]) -> list[str]:
    """Return the evidence that these ledgers belong together and to the topic."""
    named = [] if naming is None else [f"its name: {'; '.join(naming.witnesses)}"]
    return named + [
        f"ledgers {join.ledger_id} and {join.next_id} belong together: {'; '.join(join.witnesses)}"
        for join in chains.joins
        if join.ledger_id in ledgers or join.next_id in ledgers
    ]


# -- younger ledgers of no known topic --------------------------------------------------------------------------------


class LostAndFound(from_ledgers.Remade):
    """The metadata planned for groups that belong to no topic."""

    ledger_ids: list[int] = field(default_factory=list)


def plan_lost_and_found(
    sources: from_ledgers.Sources, groups: Sequence[LedgerGroup], newest: int, names: Mapping[LedgerGroup, GroupName]
) -> LostAndFound:
    """Plan a topic for the ledgers above ``newest`` of each group, with one subscription at its beginning."""
    work = LostAndFound(sources)
    entries = ledgers = 0
    for group in groups:
        made = _made(work, group, newest, names)
        if made:
            _make_topic(work, group, made, names)
            work.ledger_ids += [one.ledger_id for one in made]
            if group not in names:
                ledgers += len(made)
                entries += sum(one.entries for one in made)
    topics = [parse_topic(part.topic) for part in work.parts if part.topic]
    for namespace in sorted({one.namespace for one in topics}, key=str):
        cluster = from_ledgers.cluster_of(work.sources)
        tenant = TENANT.replace(None, {"adminRoles": [], "allowedClusters": [cluster]})
        for path, value in (
            (tenant_path(namespace.tenant), tenant),
            (namespace.policies_path, from_ledgers.default_policies(cluster)),
        ):
            if find_node(work.txn, path) is None and all(step.key != tree_key(path) for step in work.steps):
                work.put(path, encode_json_object(value))
    lost = sum(one.namespace == LOST_AND_FOUND for one in topics)
    if lost < len(topics):
        work.warnings.append(
            f"{counted(len(topics) - lost, 'topic')} of no node {plural(len(topics) - lost, 'has', 'have')} the name that entries say, and"
            f" a subscription {from_ledgers.HOLDING} that keeps the messages: make yours, then remove it"
        )
    if lost:
        work.warnings.append(
            f"{counted(ledgers, 'ledger')} of {counted(entries, 'entry')} {plural(ledgers, 'is', 'are')} of no topic of this metadata, or"
            f" one witness alone says of which: see {counted(lost, 'topic')} of {LOST_AND_FOUND}"
        )
    return work


def _made(
    work: LostAndFound, group: LedgerGroup, newest: int, names: Mapping[LedgerGroup, GroupName]
) -> list[MadeLedger]:
    custom = topic_claims(name_of(group, names))
    made = []
    sibling = find_metadata(work.txn, newest)
    for ledger_id in group.ledger_ids:
        if ledger_id > newest:
            try:
                made.append(make_ledger(work.sources.reader, ledger_id, custom, sibling))
            except Refused as error:
                work.warnings.append(error.message)
    return made


def _make_topic(
    work: LostAndFound, group: LedgerGroup, made: Sequence[MadeLedger], names: Mapping[LedgerGroup, GroupName]
) -> None:
    name = name_of(group, names)
    now_ms = work.sources.now_ms
    closed = [LedgerInfo(one.ledger_id, one.entries, one.metadata.length, now_ms) for one in made[:-1]]
    managed = ManagedLedger((*closed, LedgerInfo(made[-1].ledger_id)))
    cursor = info_of_state(CursorState(Position(made[0].ledger_id, -1)), {})
    values = {
        name.path: encode_managed_ledger(managed),
        name.cursor_path(from_ledgers.HOLDING): encode_cursor_info(cursor),
        **{ledger_path(one.ledger_id): encode_ledger_metadata(one.metadata) for one in made},
    }
    for path, value in values.items():
        work.put(path, value)
    after: dict[str, object] = {"ledgers": [one.ledger_id for one in made], "entries": sum(one.entries for one in made)}
    if group in names:
        after["witnesses"] = list(names[group].witnesses)
    warnings = tuple(text for one in made for text in one.warnings)
    work.parts.append(ChangePart(topic=str(name), after=after, warnings=warnings))


# -- younger ledgers that are no topic's messages ---------------------------------------------------------------------


class Younger(from_ledgers.Remade):
    """The metadata planned for younger ledgers that continue no topic. ``tied``: ledger → the owner in its metadata."""

    tied: dict[int, Mapping[str, bytes]] = field(default_factory=dict)


# -- schemas ----------------------------------------------------------------------------------------------------------


def tie_schemas(younger: Younger, young: Iterable[LedgerEvidence], used: Mapping[TopicName, int]) -> None:
    """Write the locators of schemas that younger ledgers continue. ``used``: topic → highest version that its messages use, −1 for none."""
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
    locator = from_ledgers.made_locator(reader, ids, before) if ids else None
    if locator is None or (not before and used < locator.versions[0].number) or locator.value == before:
        return
    second = (
        "its entries list versions of this metadata"
        if before
        else f"messages of the topic use version {min(used, locator.versions[-1].number)}"
    )
    younger.put(name.schema_path, locator.value)
    younger.tied |= {one: schema_claims(name) for one in ids}
    shown = [
        {"version": one.number, "ledger": one.ledger_id} for one in locator.versions if one.ledger_id not in listed
    ]
    after = {"schemaVersions": shown, "witnesses": ["its entries name the topic", second]}
    younger.parts.append(ChangePart(topic=str(name), after=after, warnings=tuple(locator.warnings)))


def used_versions(
    topics: Iterable[TopicName], chains: Chains, evidence: Mapping[int, LedgerEvidence], names: Mapping[str, TopicName]
) -> dict[TopicName, int]:
    """Return base topic → highest schema version that its messages use. ``names``: names of groups without a known
    topic, by their first ledger."""
    used = {name.base: -1 for name in topics}
    for group in chains.groups:
        name = parse_topic(group.topic) if group.topic else names.get(str(group.ledger_ids[0]))
        if name is not None and group.kind == MESSAGES:
            most = max(evidence[one].schema_version for one in group.ledger_ids)
            used[name.base] = max(used.get(name.base, -1), most)
    return used


# -- all others -------------------------------------------------------------------------------------------------------


def close_others(younger: Younger, young: Iterable[LedgerEvidence]) -> None:
    """Give metadata to each remaining younger ledger; those without an owner are listed with their kind."""
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
            " deletes them, but their owners are unknown. Once all is well, list them with: pulsar-admin ledgers orphans"
        )
    if loose[SCHEMA] or loose[COMPACTED]:
        yield (
            f"{counted(loose[SCHEMA], 'ledger')} of schema versions and {counted(loose[COMPACTED], 'compaction')} since this metadata was"
            " written are not attached: consumers cannot look such versions up, and topics are compacted again"
        )
    if loose[CURSOR]:
        yield f"{counted(loose[CURSOR], 'cursor ledger')} written later may hold acknowledgements that are not restored"
    if lost:
        yield (
            f"entries of {counted(len(lost), 'ledger')} are lost in part ({listed(lost)}); ledgers forget lets a "
            "broker continue after them. See: pulsar-admin ledgers missing"
        )
