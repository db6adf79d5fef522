"""Level B: the metadata is older than the bookies, and is rolled forward over their newer ledgers.

Ledgers that are younger than every listed one join the topic whose messages continue in them, by two witnesses. The others become
lost-and-found topics, because bookies would delete unlisted ledgers (``ScanAndCompareGarbageCollector``, BookKeeper 4.17).

A cursor ledger that nothing references begins with its subscription's position at that moment, the first entry that
``ManagedCursorImpl.createNewMetadataLedger`` writes (Pulsar 4.0.8). The first witness is that its positions are in ledgers of one topic,
the second that only one subscription of that topic was there.

Every younger ledger gets metadata. A schema ledger belongs to its topic if its entries list the versions before it, as
``BookkeeperSchemaStorage`` writes them, or if the topic's messages use its version (Pulsar 4.0.8).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.ledger_references import forgotten_state
from pulsar_admin.store.changes.plan import ChangePart, Plan
from pulsar_admin.store.codec.claims import APPLICATION, compacted_claims, schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, decode_cursor_ledger, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.policies import encode_json_object
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, read_node, tree_key
from pulsar_admin.store.errors import MetadataCorrupt, Refused, StoreError, TopicNotFound
from pulsar_admin.store.facts.indexes import find_collected
from pulsar_admin.store.model.coverage import read_disks, read_held, unseen_places
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    Cursor,
    iter_cursor_names,
    read_cursor,
    read_cursor_ledger,
)
from pulsar_admin.store.model.ledgers import (
    find_metadata,
    find_times,
    iter_entry_ids,
    iter_indexed_ids,
    sorted_ledger_ids,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import BUCKET_PREFIX
from pulsar_admin.store.model.resources import TENANT, tenant_path
from pulsar_admin.store.model.topics import (
    COMPACTED_LEDGER,
    Topic,
    TopicLedger,
    iter_topics,
    partition_count,
    read_topic,
)
from pulsar_admin.store.names import Position, TopicName, parse_topic
from pulsar_admin.store.recovery.chains import (
    LOST_AND_FOUND,
    Chains,
    GroupName,
    LedgerGroup,
    find_chains,
    find_names,
    name_of,
)
from pulsar_admin.store.recovery.closing import MadeLedger, close_ledger, find_readable_end, fit_ensembles, make_ledger
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR, MESSAGES, SCHEMA, LedgerEvidence, read_evidence
from pulsar_admin.store.recovery.from_ledgers import (
    HOLDING,
    RECOVER,
    LedgerSurvey,
    Remade,
    Sources,
    cluster_of,
    default_policies,
    made_locator,
    newer_index,
    newest_known,
)
from pulsar_admin.store.wording import counted, listed, plural


class Rolled(Remade):
    """The metadata rolled forward. ``joined``, ``entries``: ledgers that topics gained, and their entries."""

    joined: int = 0
    entries: int = 0
    gone: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    """Ledgers of topics, including those that they gained."""
    tied: dict[int, Mapping[str, bytes]] = field(default_factory=dict)
    """Other younger ledgers whose owner is known, and what their metadata says about it."""

    def put(self, path: str, value: bytes) -> None:
        """Write a value to the node at this path, unless it has that value."""
        node = find_node(self.txn, path)
        if node is None or node.value != value:
            Remade.put(self, path, value)  # super() would look for the class that slots replaced


class _World(Struct, frozen=True):
    """The evidence of all entries by ledger, the chains of ledgers, and the newest ledger that the metadata knows."""

    evidence: Mapping[int, LedgerEvidence]
    chains: Chains
    survey: LedgerSurvey
    newest: int

    def joins(self, ledger_id: int) -> list[str]:
        """Return the evidence that joined a ledger to an earlier one."""
        said = [text for join in self.chains.joins if join.next_id == ledger_id for text in join.witnesses]
        return said or ["its own metadata names the topic, and it is newer than the last listed one"]


def plan_rolling(sources: Sources, survey: LedgerSurvey) -> Plan:
    """Plan to bring the metadata up to date with the bookies, without steps if it is. Raises Refused,
    MetadataCorrupt."""
    rolled = Rolled(sources)
    world = _read_world(sources, survey)
    topics = {str(group.topic): group for group in world.chains.groups if group.topic}
    for name in iter_topics(rolled.txn):
        group = topics.get(str(name))
        steps, parts, kept, gone = len(rolled.steps), len(rolled.parts), len(rolled.kept), len(rolled.gone)
        try:
            _roll_topic(rolled, world, name, () if group is None else group.ledger_ids)
        except (MetadataCorrupt, TopicNotFound) as error:
            rolled.steps.cut(steps)  # all of a topic, or nothing
            rolled.parts.cut(parts)
            del rolled.kept[kept:], rolled.gone[gone:]
            _pass_over(survey, name, error)
    strangers = [
        group
        for group in world.chains.groups
        if not group.topic and any(one > world.newest for one in group.ledger_ids)
    ]
    names = _read_names(rolled, world) if strangers else {}
    lost = plan_lost_and_found(sources, strangers, world.newest, names)
    rolled.steps.extend(lost.steps)
    rolled.parts.extend(lost.parts)
    rolled.kept += lost.kept
    rolled.warnings += lost.warnings
    _roll_others(rolled, world, names)
    if not rolled.parts:  # cursors alone whose ledgers are as they should be
        return Plan(RECOVER, rolled.txn.id, (), ())
    return Plan(RECOVER, rolled.txn.id, rolled.steps, rolled.parts, warnings=tuple(_warnings(rolled)))


def _pass_over(survey: LedgerSurvey, name: TopicName, error: StoreError) -> None:
    """Record why a topic is skipped; not if its node is missing, which ``MetadataCondition.headless`` reports."""
    if not isinstance(error, TopicNotFound):
        survey.passed_over[name.path] = error.message


def _read_world(sources: Sources, survey: LedgerSurvey) -> _World:
    txn = sources.reader.txn
    known: dict[int, str] = {}
    for name in iter_topics(txn):
        try:
            ids = read_topic(txn, name).ids
        except (MetadataCorrupt, TopicNotFound) as error:
            _pass_over(survey, name, error)
            continue
        # Only ledgers after the listed ones are new; older ones that the list lacks were trimmed.
        unlisted = (one for one in survey.data.get(name, ()) if not ids or one > ids[-1])
        known |= dict.fromkeys((*ids, *unlisted), str(name))
    readable = [one for one in iter_indexed_ids(txn) if ledger_path(one) not in survey.passed_over]
    evidence = {one.ledger_id: one for one in read_evidence(sources.reader, readable)}
    chains = find_chains(evidence.values(), known, sources.cluster or "")
    return _World(evidence, chains, survey, newest_known(txn))


def _read_names(rolled: Rolled, world: _World) -> dict[LedgerGroup, GroupName]:
    """Return the names, by two witnesses, of groups of messages whose topics are younger than the metadata."""
    named = find_names(rolled.sources.reader, world.evidence.values(), world.chains)
    return {
        group: naming
        for group, naming in named.items()
        if group.kind == MESSAGES
        and not group.topic
        and find_node(rolled.txn, naming.topic.path) is None
        and _is_told_of(rolled.txn, naming.topic)
    }


def _is_told_of(txn: Txn, name: TopicName) -> bool:
    """Whether the metadata of partitions allows a topic of this name."""
    index = name.partition_index
    try:
        count = partition_count(txn, name.base)
    except MetadataCorrupt:
        return False
    return index < count if index >= 0 else count == 0


def _roll_others(rolled: Rolled, world: _World, names: Mapping[LedgerGroup, GroupName]) -> None:
    """Give metadata to the younger ledgers that joined no topic, and an owner to those for which two witnesses agree."""
    had = {*rolled.kept, *sorted_ledger_ids(rolled.txn)}
    young = [
        one for ledger_id, one in sorted(world.evidence.items()) if ledger_id > world.newest and ledger_id not in had
    ]
    _tie_schemas(rolled, young, _used_versions(rolled.txn, world, names))
    _close_others(rolled, young)


# -- topics -----------------------------------------------------------------------------------------------------------


def _roll_topic(rolled: Rolled, world: _World, name: TopicName, ids: Iterable[int]) -> None:
    topic = read_topic(rolled.txn, name)
    last = topic.ids[-1] if topic.ids else -1
    young = [one for one in ids if one > last]  # a broker trims before the last one only, so these are not deleted ones
    if topic.managed.terminated is not None and young:
        rolled.warnings.append(
            f"{name} is terminated: ledgers {listed(sorted(young))}, which seem to continue it, stay separate"
        )
        young = []
    gone = {one.ledger_id for one in topic.ledgers if _is_gone(rolled.txn, one)}
    listed_metadata = (find_metadata(rolled.txn, ledger_id) for ledger_id in sorted(topic.ids, reverse=True))
    sibling = next((metadata for metadata in listed_metadata if metadata is not None), None)
    made: list[MadeLedger] = []
    for ledger_id in young:
        try:
            made.append(make_ledger(rolled.sources.reader, ledger_id, topic_claims(topic.name), sibling))
        except Refused as error:
            rolled.warnings.append(error.message)
            continue
        rolled.put(ledger_path(ledger_id), encode_ledger_metadata(made[-1].metadata))
    after = _rolled_topic(rolled, world, topic, gone, made)
    for one in after.ledgers:
        if one.ledger_id not in young:
            _mend_ledger(rolled, one, is_last=one.ledger_id == after.ids[-1])
    if after.managed != topic.managed:
        value = encode_managed_ledger(after.managed, read_node(rolled.txn, name.path).value)
        rolled.put(name.path, value)
        rolled.parts.append(_topic_part(world, topic, after, made, gone))
    rolled.joined += len(made)
    rolled.entries += sum(one.entries for one in made)
    rolled.gone += sorted(gone)
    rolled.kept += after.ids
    _roll_cursors(rolled, world, topic, after, gone)


def _is_gone(txn: Txn, ledger: TopicLedger) -> bool:
    """Whether a ledger was deleted since: all of its bookies are imported, and none has an entry of it."""
    metadata = find_metadata(txn, ledger.ledger_id)
    if ledger.info.offloaded or metadata is None or find_times(txn, ledger.ledger_id) is not None:
        return False
    had = metadata.state is LedgerState.CLOSED and metadata.last_entry_id >= 0
    members = {bookie for segment in metadata.segments for bookie in segment.members}
    return had and members.isdisjoint(unseen_places(txn))


def _rolled_topic(rolled: Rolled, world: _World, topic: Topic, gone: Collection[int], made: list[MadeLedger]) -> Topic:
    """Return a topic without its deleted ledgers and with the younger ones; if others follow its open ledger, that is
    closed."""
    ledgers = []
    for one in topic.ledgers:
        if one.ledger_id in gone:
            continue
        if one.is_open and made:
            end, _ = find_readable_end(rolled.sources.reader, one.ledger_id) if _has_entries(rolled, one) else (-1, 0)
            size = rolled.sources.reader.read(one.ledger_id, end).length if end >= 0 else 0
            closed_ms = _closed_ms(rolled, world, one.ledger_id)
            info = replace(one.info, entries=end + 1, size_bytes=size, timestamp_ms=closed_ms)
            one = TopicLedger(info, end + 1, size, False)
            if not one.entries:
                continue
        ledgers.append(one)
    for younger in made:
        is_last = younger is made[-1]
        closed_ms = 0 if is_last else _closed_ms(rolled, world, younger.ledger_id)
        info = LedgerInfo(younger.ledger_id, timestamp_ms=0)
        if not is_last:
            info = LedgerInfo(younger.ledger_id, younger.entries, younger.metadata.length, closed_ms)
        ledgers.append(TopicLedger(info, younger.entries, younger.metadata.length, is_last))
    infos = tuple(one.info for one in ledgers)
    properties = topic.managed.properties
    if made:
        index = next((of.index for one in reversed(ledgers[:-1]) if (of := world.evidence.get(one.ledger_id))), None)
        properties = {**properties, **newer_index(properties.get("index", ""), None if index is None else index[2])}
    managed = ManagedLedger(infos, topic.managed.terminated, properties)
    return Topic(topic.name, topic.stat, managed, tuple(ledgers))


def _has_entries(rolled: Rolled, ledger: TopicLedger) -> bool:
    return find_times(rolled.txn, ledger.ledger_id) is not None


def _closed_ms(rolled: Rolled, world: _World, ledger_id: int) -> int:
    """Return when a ledger was closed: the broker's time of its last entry, else now. Retention counts from there, so a
    producer's clock is not believed."""
    evidence = world.evidence.get(ledger_id)
    now_ms = rolled.sources.now_ms
    return now_ms if evidence is None or evidence.broker_ms is None else min(evidence.broker_ms[1], now_ms)


def _mend_ledger(rolled: Rolled, ledger: TopicLedger, *, is_last: bool) -> None:
    """Close a ledger's metadata unless it is the topic's last, and name the bookies that have its entries now."""
    metadata = find_metadata(rolled.txn, ledger.ledger_id)
    if metadata is None or not _has_entries(rolled, ledger):
        return
    held = read_held(rolled.txn, ledger.ledger_id, read_disks(rolled.txn))
    after = metadata
    if metadata.state is not LedgerState.CLOSED and not is_last:
        after = replace(after, state=LedgerState.CLOSED, last_entry_id=ledger.entries - 1, length=ledger.size_bytes)
    members = {bookie for segment in metadata.segments for bookie in segment.members}
    if held and "" not in held and not held.keys() <= members and ledger.entries:
        write_quorum, segments, _ = fit_ensembles(ledger.ledger_id, held, ledger.entries - 1, metadata)
        if (write_quorum, len(segments[0].members)) == (metadata.write_quorum, metadata.ensemble_size):
            after = replace(after, segments=segments)
    if after != metadata:
        path = ledger_path(ledger.ledger_id)
        rolled.put(path, encode_ledger_metadata(after, read_node(rolled.txn, path).value))


def _topic_part(world: _World, topic: Topic, after: Topic, made: list[MadeLedger], gone: Collection[int]) -> ChangePart:
    shown: dict[str, Any] = {"ledgers": after.ids, "entries": after.number_of_entries}  # Any: JSON
    if made:
        shown["witnesses"] = {str(one.ledger_id): world.joins(one.ledger_id) for one in made}
    warnings = [text for one in made for text in one.warnings]
    if gone:
        warnings.append(f"deleted since, as no bookie has them: ledgers {listed(sorted(gone))}")
    return ChangePart(
        topic=str(topic.name),
        before={"ledgers": topic.ids, "entries": topic.number_of_entries},
        after=shown,
        warnings=tuple(warnings),
    )


# -- cursors ----------------------------------------------------------------------------------------------------------


def _roll_cursors(rolled: Rolled, world: _World, topic: Topic, after: Topic, gone: Collection[int]) -> None:
    """Write each cursor's newest state into its node: the cursor ledger that the node names may be deleted by now."""
    reader = rolled.sources.reader
    cursors = {name: read_cursor(rolled.txn, reader, topic, name) for name in iter_cursor_names(rolled.txn, topic.name)}
    states = {name: _newest_state(rolled, world, cursor) for name, cursor in cursors.items()}
    young = (one for one in world.evidence.values() if one.ledger_id > world.newest)
    unnamed = read_unnamed(reader, after, young)
    followed = follow(after, states, unnamed) if cursors else {}
    compaction = newest_compaction(after, unnamed, world.evidence)
    if compaction is not None:
        followed[COMPACTION_CURSOR] = compaction
        rolled.tied[compaction.compacted] = compacted_claims(topic.name, compaction.state.mark_delete)
        if COMPACTION_CURSOR not in cursors:
            rolled.put(
                topic.name.cursor_path(COMPACTION_CURSOR), encode_cursor_info(info_of_state(compaction.state, {}))
            )
            shown = {**state_json(after, compaction.state), "witnesses": list(compaction.witnesses)}
            rolled.parts.append(ChangePart(topic=str(topic.name), subscription=COMPACTION_CURSOR, after=shown))
    for one in followed.values():  # its state is in the node of the subscription now
        rolled.tied |= {ledger_id: {} for ledger_id in one.ledger_ids}
    for name, cursor in sorted(cursors.items()):
        at = followed.get(name)
        state = forgotten_state(after, states[name] if at is None else at.state, gone)
        compacted = state.properties.get(COMPACTED_LEDGER)
        if compacted is not None and find_times(rolled.txn, compacted) is None and not _is_empty(rolled.txn, compacted):
            state = CursorState(after.first_position)  # its compacted ledger was deleted since: it is compacted again
        kept = {key: value for key, value in cursor.info.cursor_properties.items() if not _is_lost(rolled, key, value)}
        if state == cursor.state and not cursor.info.is_in_ledger and kept == cursor.info.cursor_properties:
            continue
        info = info_of_state(state, kept, cursor.info.last_active_ms)
        path = topic.name.cursor_path(name)
        rolled.put(path, encode_cursor_info(info, read_node(rolled.txn, path).value))
        if state != cursor.state or at is not None:
            shown = state_json(after, state)
            if at is not None:
                shown["witnesses"] = list(at.witnesses)
            before = state_json(topic, cursor.state)
            rolled.parts.append(ChangePart(topic=str(topic.name), subscription=cursor.name, before=before, after=shown))


def _newest_state(rolled: Rolled, world: _World, cursor: Cursor) -> CursorState:
    """Return a cursor's state from the ledger that its node names, or from a younger ledger whose own metadata names the cursor."""
    named = world.survey.cursors.get(cursor.topic, {}).get(cursor.name, ())
    for ledger_id in reversed(named):
        # Ledger ids ascend, so a larger id is newer than the node. With -1 the node has the state, and nothing dates it.
        if cursor.info.is_in_ledger and ledger_id > cursor.info.cursors_ledger_id:
            state, _ = read_cursor_ledger(rolled.txn, rolled.sources.reader, ledger_id)
            if state is not None:
                return state
    return cursor.recoverable or cursor.state


def _is_empty(txn: Txn, ledger_id: int) -> bool:
    metadata = find_metadata(txn, ledger_id)
    return metadata is not None and metadata.state is LedgerState.CLOSED and metadata.last_entry_id < 0


def _is_lost(rolled: Rolled, key: str, value: str) -> bool:
    """Whether a cursor's property names a bucket of delayed messages that was deleted since."""
    ledger_id = parse_integer(value) if key.startswith(BUCKET_PREFIX) else None
    return ledger_id is not None and find_times(rolled.txn, ledger_id) is None


# -- what to know -----------------------------------------------------------------------------------------------------


def _warnings(rolled: Rolled) -> Iterator[str]:
    if rolled.joined:
        yield (
            f"{counted(rolled.joined, 'ledger')} of {counted(rolled.entries, 'entry')} "
            f"{plural(rolled.joined, 'continues', 'continue')} topics of this metadata. Later acknowledgements are "
            "restored if a cursor ledger has them; other messages are redelivered"
        )
        yield (
            "ledgers deleted after this metadata was written are also restored if bookies still have their entries; topics,"
            " subscriptions and policies that were deleted or changed later are as before"
        )
    if rolled.gone:
        gone = len(rolled.gone)
        yield f"{counted(gone, 'ledger')} that topics listed {plural(gone, 'was', 'were')} deleted since: {listed(sorted(rolled.gone))}"
    collected = find_collected(rolled.txn, rolled.kept)
    if collected:
        yield (
            f"{counted(len(collected), 'ledger')} {plural(len(collected), 'is', 'are')} in entry logs but in no "
            f"bookie's index, as after a garbage collection: {listed(sorted(collected))}. Before bookies start, "
            "rebuild their index: pulsar-admin store salvage ID=DIR,DIR"
        )
    yield from rolled.warnings


# -- cursor ledgers that nothing names --------------------------------------------------------------------------------


class Unnamed(Struct, frozen=True):
    """A cursor ledger that nothing names: the states in its first and its last entry."""

    ledger_id: int
    first: CursorState
    last: CursorState


class FollowedCursor(Struct, frozen=True):
    """A subscription's newest state, and the cursor ledgers that lead to it. ``compacted``: compacted ledger, or −1."""

    state: CursorState
    ledger_ids: tuple[int, ...]
    compacted: int = -1

    @property
    def witnesses(self) -> tuple[str, ...]:
        if self.compacted >= 0:
            return (
                f"cursor ledger {self.ledger_ids[-1]} names compacted ledger {self.compacted}, and only positions of "
                "this topic",
                f"compacted ledger {self.compacted} has only messages of this topic",
            )
        return tuple(
            f"cursor ledger {ledger_id} begins at a position that only this subscription had, and names only this topic"
            for ledger_id in self.ledger_ids
        )


def read_unnamed(reader: EntryReader, topic: Topic, evidence: Iterable[LedgerEvidence]) -> list[Unnamed]:
    """Return, by id, the cursor ledgers whose positions are all in this topic."""
    there = set(topic.ids)
    unnamed = []
    for one in sorted(evidence, key=lambda each: each.ledger_id):
        if one.kind == CURSOR and one.points and one.points.keys() <= there:
            first, last = None, read_cursor_ledger(reader.txn, reader, one.ledger_id)[0]
            for entry_id in islice(iter_entry_ids(reader.txn, one.ledger_id), 1):
                with suppress(StoreError):
                    payload = reader.read(one.ledger_id, entry_id).payload
                    first = decode_cursor_ledger([payload], f"cursor ledger {one.ledger_id}:{entry_id}")
            if first is not None and last is not None:
                unnamed.append(Unnamed(one.ledger_id, first, last))
    return unnamed


def follow(topic: Topic, states: Mapping[str, CursorState], ledgers: Sequence[Unnamed]) -> dict[str, FollowedCursor]:
    """Return name → where each subscription of a topic continued in these cursor ledgers, judged by its last known
    position.

    A ledger that begins at a position of two subscriptions, and two ledgers that begin at the position of one, count
    for none.
    """
    now = {name: FollowedCursor(state, ()) for name, state in states.items()}
    left = list(ledgers)
    while True:
        pairs = [(name, one) for one in left for name, at in now.items() if _is_same(at.state, one.first)]
        names, ids = [name for name, _ in pairs], [one.ledger_id for _, one in pairs]
        sure = [
            (name, one)
            for name, one in pairs
            if names.count(name) == 1 and ids.count(one.ledger_id) == 1 and _is_distinct(topic, one.first)
        ]
        if not sure:
            return {name: at for name, at in now.items() if at.ledger_ids}
        for name, one in sure:
            now[name] = FollowedCursor(one.last, (*now[name].ledger_ids, one.ledger_id))
            left.remove(one)


def newest_compaction(
    topic: Topic, ledgers: Sequence[Unnamed], evidence: Mapping[int, LedgerEvidence]
) -> FollowedCursor | None:
    """Return the newest compaction of a topic that a cursor ledger and a compacted ledger both assign to this topic alone."""
    there = set(topic.ids)
    compactions = []
    for one in ledgers:
        compacted = evidence.get(one.last.properties.get(COMPACTED_LEDGER, -1))
        if compacted is None or compacted.kind != COMPACTED or not compacted.is_whole:
            continue
        points = compacted.points.keys()
        # What was trimmed before has no entries any more; a ledger of another topic has some.
        if points & there and not (points - there) & evidence.keys():
            compactions.append(FollowedCursor(one.last, (one.ledger_id,), compacted.ledger_id))
    return max(compactions, key=lambda one: one.ledger_ids, default=None)


def _is_same(a: CursorState, b: CursorState) -> bool:
    return (a.mark_delete, a.ranges, dict(a.properties)) == (b.mark_delete, b.ranges, dict(b.properties))


def _is_distinct(topic: Topic, state: CursorState) -> bool:
    """Whether a position identifies its subscription: a new subscription would begin at an end of the topic."""
    return bool(state.ranges) or 0 < topic.place(state.mark_delete) < topic.number_of_entries


# -- younger ledgers of no known topic --------------------------------------------------------------------------------


def plan_lost_and_found(
    sources: Sources, groups: Sequence[LedgerGroup], newest: int, names: Mapping[LedgerGroup, GroupName]
) -> Rolled:
    """Plan a topic for the ledgers above ``newest`` of each group, with one subscription at its beginning."""
    work = Rolled(sources)
    entries = ledgers = 0
    for group in groups:
        made = _made(work, group, newest, names)
        if made:
            _make_topic(work, group, made, names)
            work.kept += [one.ledger_id for one in made]
            if group not in names:
                ledgers += len(made)
                entries += sum(one.entries for one in made)
    topics = [parse_topic(part.topic) for part in work.parts if part.topic]
    for namespace in sorted({one.namespace for one in topics}, key=str):
        cluster = cluster_of(work.sources)
        tenant = TENANT.replace(None, {"adminRoles": [], "allowedClusters": [cluster]})
        for path, value in (
            (tenant_path(namespace.tenant), tenant),
            (namespace.policies_path, default_policies(cluster)),
        ):
            if find_node(work.txn, path) is None and all(step.key != tree_key(path) for step in work.steps):
                work.put(path, encode_json_object(value))
    lost = sum(one.namespace == LOST_AND_FOUND for one in topics)
    if lost < len(topics):
        work.warnings.append(
            f"{counted(len(topics) - lost, 'topic')} of no node {plural(len(topics) - lost, 'has', 'have')} the name that entries say, and"
            f" a subscription {HOLDING} that keeps the messages: make yours, then remove it"
        )
    if lost:
        work.warnings.append(
            f"{counted(ledgers, 'ledger')} of {counted(entries, 'entry')} {plural(ledgers, 'is', 'are')} of no topic of this metadata, or"
            f" one witness alone says of which: see {counted(lost, 'topic')} of {LOST_AND_FOUND}"
        )
    return work


def _made(work: Rolled, group: LedgerGroup, newest: int, names: Mapping[LedgerGroup, GroupName]) -> list[MadeLedger]:
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
    work: Rolled, group: LedgerGroup, made: Sequence[MadeLedger], names: Mapping[LedgerGroup, GroupName]
) -> None:
    name = name_of(group, names)
    now_ms = work.sources.now_ms
    closed = [LedgerInfo(one.ledger_id, one.entries, one.metadata.length, now_ms) for one in made[:-1]]
    managed = ManagedLedger((*closed, LedgerInfo(made[-1].ledger_id)))
    cursor = info_of_state(CursorState(Position(made[0].ledger_id, -1)), {})
    values = {
        name.path: encode_managed_ledger(managed),
        name.cursor_path(HOLDING): encode_cursor_info(cursor),
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


def _tie_schemas(rolled: Rolled, young: Iterable[LedgerEvidence], used: Mapping[TopicName, int]) -> None:
    """Write the locators of schemas that younger ledgers continue.

    ``used``: topic → highest schema version that its messages use, −1 for none.
    """
    by_topic: dict[TopicName, list[LedgerEvidence]] = defaultdict(list)
    for one in young:
        for schema_id in one.topics if one.kind == SCHEMA and len(one.topics) == 1 else ():
            with suppress(StoreError):
                by_topic[parse_topic(f"persistent://{schema_id}")].append(one)
    for name, ledgers in sorted(by_topic.items(), key=lambda item: str(item[0])):
        if name in used:
            _tie_schema(rolled, name, ledgers, used[name])


def _tie_schema(rolled: Rolled, name: TopicName, ledgers: Iterable[LedgerEvidence], used: int) -> None:
    reader = rolled.sources.reader
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
    locator = made_locator(reader, ids, before) if ids else None
    if locator is None or (not before and used < locator.versions[0].number) or locator.value == before:
        return
    second = (
        "its entries list versions of this metadata"
        if before
        else f"messages of the topic use version {min(used, locator.versions[-1].number)}"
    )
    rolled.put(name.schema_path, locator.value)
    rolled.tied |= {one: schema_claims(name) for one in ids}
    shown = [
        {"version": one.number, "ledger": one.ledger_id} for one in locator.versions if one.ledger_id not in listed
    ]
    after = {"schemaVersions": shown, "witnesses": ["its entries name the topic", second]}
    rolled.parts.append(ChangePart(topic=str(name), after=after, warnings=tuple(locator.warnings)))


def _used_versions(txn: Txn, world: _World, names: Mapping[LedgerGroup, GroupName]) -> dict[TopicName, int]:
    """Return base topic → highest schema version that its messages use; ``names``: names of groups without a known
    topic."""
    used = {name.base: -1 for name in iter_topics(txn)}
    for group in world.chains.groups:
        if group.kind == MESSAGES and (group.topic or group in names):
            base = (parse_topic(group.topic) if group.topic else names[group].topic).base
            most = max(world.evidence[one].schema_version for one in group.ledger_ids)
            used[base] = max(used.get(base, -1), most)
    return used


def _close_others(rolled: Rolled, young: Iterable[LedgerEvidence]) -> None:
    """Give metadata to each remaining younger ledger; those without an owner are listed with their kind."""
    loose: Counter[str] = Counter()
    lost: list[int] = []
    for one in young:
        claims = rolled.tied.get(one.ledger_id)
        try:
            closed = close_ledger(rolled.sources.reader, one.ledger_id, {**APPLICATION, **(claims or {})})
        except Refused as error:
            rolled.warnings.append(error.message)
            continue
        rolled.put(ledger_path(one.ledger_id), encode_ledger_metadata(closed.metadata))
        lost += [one.ledger_id] if closed.missing else []
        if claims is None:
            loose[one.kind] += 1
            after = {"kind": one.kind, "entries": one.entries, "witness": "nothing says whose it is"}
            rolled.parts.append(ChangePart(resource=f"ledger {one.ledger_id}", after=after))
    rolled.warnings += _warnings_of_others(loose, lost)


def _warnings_of_others(loose: Counter[str], lost: list[int]) -> Iterator[str]:
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
