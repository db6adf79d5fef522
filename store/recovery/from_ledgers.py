"""Level A: ``/ledgers`` exists, and ``/managed-ledgers``, ``/schemas`` or ``/admin`` are rebuilt from the ledgers' custom metadata.

Upstream: ``LedgerMetadataUtils`` writes the custom metadata; ``ManagedLedgerImpl.initialize``, ``ManagedCursorImpl.recover`` and
``BookkeeperSchemaStorage`` read the rebuilt nodes (Pulsar 4.0.8). Existing nodes are not changed. An earlier state of the same
metadata, if there is one, fills in facts that no ledger records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.ledger_metadata import LedgerEnd
from pulsar_admin.store.changes.packed import Packed
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, put_value_step
from pulsar_admin.store.changes.resources import new_policies
from pulsar_admin.store.codec.claims import (
    BUCKET_CURSOR,
    BUCKET_KEY,
    BUCKET_TOPIC,
    COMPACTED_COMPONENT,
    COMPACTED_TO,
    COMPACTED_TOPIC,
    COMPONENT,
    CURSOR_KEY,
    SCHEMA_KEY,
    TOPIC_KEY,
)
from pulsar_admin.store.codec.compactedentry import decode_original_id
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.codec.policies import PartitionedTopic, encode_json_object, encode_partitioned_topic
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_nodes, read_node
from pulsar_admin.store.errors import EntryCorrupt, InvalidValue, MetadataCorrupt, Refused, StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model import resources
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    LOG_CURSOR,
    PENDING_ACK_CURSOR,
    iter_cursor_names,
    read_cursor,
    read_cursor_ledger,
)
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import BUCKET_PREFIX
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, TopicLedger, partition_count, read_topic
from pulsar_admin.store.names import (
    MANAGED_LEDGERS,
    PENDING_ACK_SUFFIX,
    TRANSACTION_LOG_PREFIX,
    NamespaceName,
    Position,
    TopicName,
    parse_topic,
    shell_word,
    topic_of_path,
)
from pulsar_admin.store.recovery.deleted_nodes import PastCursor
from pulsar_admin.store.recovery.evidence import iter_schema_entries
from pulsar_admin.store.wording import counted, plural

RECOVER = ChangeKind("store recover", "rebuild lost metadata")
HOLDING = "recovered"
"""The subscription that retains a topic's messages if none is known: brokers delete messages that no subscription
needs."""
_INDEX = "index"
_PARTITIONED = "/admin/partitioned-topics/"


class Sources(Struct, frozen=True):
    """The inputs of a rebuild of metadata: the store itself, optionally an ``earlier`` state, and the name of the ``cluster``."""

    reader: EntryReader
    now_ms: int
    earlier: EntryReader | None = None
    cluster: str | None = None

    def earlier_value(self, path: str) -> bytes | None:
        """Return the value of a node in the earlier metadata."""
        node = None if self.earlier is None else find_node(self.earlier.txn, path)
        return None if node is None else node.value


class Remade(Struct):
    """The nodes rebuilt so far."""

    sources: Sources
    steps: Packed[Step] = field(default_factory=lambda: Packed(Step))
    parts: Packed[ChangePart] = field(default_factory=lambda: Packed(ChangePart))
    warnings: list[str] = field(default_factory=list)

    @property
    def txn(self) -> Txn:
        return self.sources.reader.txn

    def put(self, path: str, value: bytes) -> None:
        """Write a value to the node at this path."""
        self.steps.append(put_value_step(self.txn, path, value, self.sources.now_ms))


# -- what ledgers say of themselves -----------------------------------------------------------------------------------


class CompactedClaim(NamedTuple):
    """A compacted ledger, and the last position of its topic that it covers."""

    ledger_id: int
    horizon: Position


class BucketClaim(NamedTuple):
    """A bucket of delayed messages: its ledger, and the cursor's property that names it."""

    ledger_id: int
    key: str


class LedgerSurvey(Struct):
    """Ledgers by the role that their custom metadata gives them, ids ascending; ``silent``: those without a known
    role."""

    data: dict[TopicName, list[int]] = field(default_factory=dict)
    cursors: dict[TopicName, dict[str, list[int]]] = field(default_factory=dict)
    schemas: dict[TopicName, list[int]] = field(default_factory=dict)
    compacted: dict[TopicName, list[CompactedClaim]] = field(default_factory=dict)
    buckets: dict[TopicName, dict[str, list[BucketClaim]]] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """Nodes that cannot be decoded: path → why. They are not rebuilt, and nothing that they name is changed."""
    left_out: list[str] = field(default_factory=list)
    """Sentences about lost metadata that is not rebuilt."""
    closed: dict[int, LedgerEnd] = field(default_factory=dict)
    """Planned ends of ledgers without metadata in the store, if they are not the last imported entry."""

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Record the role that a ledger's custom metadata gives it."""
        try:
            told = self._add(ledger_id, metadata.custom)
        except (EntryCorrupt, InvalidValue, ValueError):  # an invalid name or position
            told = False
        if not told:
            self.silent.append(ledger_id)

    def _add(self, ledger_id: int, claims: Mapping[str, bytes]) -> bool:
        if claims.get(COMPONENT) == COMPACTED_COMPONENT:
            to = decode_original_id(claims.get(COMPACTED_TO, b""), f"ledger {ledger_id}, {COMPACTED_TO}")
            claim = CompactedClaim(ledger_id, to)
            self.compacted.setdefault(_topic(claims, COMPACTED_TOPIC), []).append(claim)
        elif BUCKET_KEY in claims:
            buckets = self.buckets.setdefault(_topic(claims, BUCKET_TOPIC), {})
            claim_of = BucketClaim(ledger_id, claims[BUCKET_KEY].decode())
            buckets.setdefault(claims[BUCKET_CURSOR].decode(), []).append(claim_of)
        elif SCHEMA_KEY in claims:
            name = parse_topic(f"persistent://{claims[SCHEMA_KEY].decode()}")
            self.schemas.setdefault(name, []).append(ledger_id)
        elif TOPIC_KEY in claims:
            name = topic_of_path(f"{MANAGED_LEDGERS}/{claims[TOPIC_KEY].decode()}") or parse_topic("")
            if CURSOR_KEY in claims:
                self.cursors.setdefault(name, {}).setdefault(claims[CURSOR_KEY].decode(), []).append(ledger_id)
            else:
                self.data.setdefault(name, []).append(ledger_id)
        else:
            return False
        return True


def _topic(claims: Mapping[str, bytes], key: str) -> TopicName:
    return parse_topic(claims.get(key, b"").decode())


def read_survey(txn: Txn) -> LedgerSurvey:
    """Return the owner and role that each ledger's metadata names; ledgers that cannot be decoded are skipped."""
    survey = LedgerSurvey()
    for ledger_id in sorted_ledger_ids(txn):
        try:
            metadata = find_metadata(txn, ledger_id)
        except MetadataCorrupt as error:
            survey.passed_over[ledger_path(ledger_id)] = error.message
            continue
        if metadata is not None:
            survey.add(ledger_id, metadata)
    return survey


def newest_known(txn: Txn) -> int:
    """Return the largest ledger id that the metadata gave; where it does not say, the largest that it lists, -1 without any."""
    next_id = UnlistedLedgers(txn).next_ledger_id
    listed = sorted_ledger_ids(txn)
    newest = listed[-1] if len(listed) else -1
    return newest if isinstance(next_id, Unknown) else next_id - 1


# -- created nodes ----------------------------------------------------------------------------------------------------


class _Made(Remade):
    """What ``plan_from_ledgers`` rebuilt so far; ``survey``: the ledgers' custom metadata.

    ``shown`` returns the report's part about a topic; ``bare``: topics without a known subscription; ``defaults``:
    whether a namespace has a broker's default policies.
    """

    survey: LedgerSurvey = field(default_factory=LedgerSurvey)
    shown: Callable[[ChangePart], ChangePart] = lambda part: part
    topics: set[TopicName] = field(default_factory=set)
    bare: int = 0
    defaults: bool = False


def plan_from_ledgers(
    sources: Sources,
    survey: LedgerSurvey,
    steps: Packed[Step] | None = None,
    shown: Callable[[ChangePart], ChangePart] = lambda part: part,
) -> Plan:
    """Plan the missing nodes of topics, cursors, schemas, partitions, namespaces and tenants; raises Refused, MetadataCorrupt.

    They are appended to ``steps``; ``shown`` returns the report's part about a topic.
    """
    made = _Made(sources, survey=survey, steps=Packed(Step) if steps is None else steps, shown=shown)
    for name in sorted(survey.data):
        if find_node(made.txn, name.path) is None:
            planned, told = len(made.steps), len(made.parts)
            try:
                _make_topic(made, name)
            except MetadataCorrupt as error:
                made.steps.cut(planned)  # all of a topic, or nothing
                made.parts.cut(told)
                made.topics.discard(name)
                survey.passed_over[name.path] = error.message
    _make_partitioned(made)
    for name in sorted(survey.schemas):
        if find_node(made.txn, name.schema_path) is None:
            _make_schema(made, name)
    _make_namespaces(made)
    return Plan(RECOVER, made.txn.id, made.steps, made.parts, warnings=tuple(_warnings(made)))


# -- topics -----------------------------------------------------------------------------------------------------------


def _make_topic(made: _Made, name: TopicName) -> None:
    sources, survey = made.sources, made.survey
    ledgers = list(_ledgers(made.txn, survey, survey.data[name]))
    before = sources.earlier_value(name.path)
    managed, lost = _managed(sources, name, ledgers)
    topic = Topic(name, NodeStat(0, 0, sources.now_ms, sources.now_ms, False), managed, tuple(ledgers))
    made.topics.add(name)
    made.put(name.path, encode_managed_ledger(managed, before or b""))
    for ledger in ledgers[:-1]:
        # No broker closed a ledger that others follow: it ends where a client's recovery would find its end.
        stored = read_ledger(made.txn, ledger.ledger_id)
        if stored.metadata is not None and stored.metadata.state is not LedgerState.CLOSED:
            path = ledger_path(ledger.ledger_id)
            closed = replace(
                stored.metadata, state=LedgerState.CLOSED, last_entry_id=stored.last_entry_id, length=stored.size_bytes
            )
            made.put(path, encode_ledger_metadata(closed, read_node(made.txn, path).value))
    after: dict[str, Any] = {  # Any: JSON
        "ledgers": topic.ids,
        "entries": topic.number_of_entries,
        "witness": f"custom metadata of {counted(len(survey.data[name]), 'ledger')}",
    }
    made.parts.append(made.shown(ChangePart(topic=str(name), after=after, warnings=tuple(lost))))
    for cursor in _cursors(sources, survey, topic):
        made.bare += cursor.name == HOLDING
        made.put(name.cursor_path(cursor.name), cursor.value)
        shown = {**state_json(topic, cursor.state), "witness": cursor.witness}
        made.parts.append(ChangePart(topic=str(name), subscription=cursor.name, after=shown))


def _ledgers(txn: Txn, survey: LedgerSurvey, ids: Sequence[int]) -> Iterator[TopicLedger]:
    """Yield the ledgers of a topic as its list names them: those that are empty only at the end, where a broker writes."""
    for ledger_id in ids:
        ledger = read_ledger(txn, ledger_id)
        planned = survey.closed.get(ledger_id)
        # The index also has the entries after a gap: a list that counts them differs from the ledger's metadata.
        entries = ledger.entries if planned is None else planned.last_entry_id + 1
        size_bytes = ledger.size_bytes if planned is None else planned.length
        if ledger_id == ids[-1]:
            yield TopicLedger(LedgerInfo(ledger_id), entries, size_bytes, True)
        elif entries:
            # A ledger was closed when its metadata was written, or without that when its last message was; never at 0, which means open.
            node = find_node(txn, ledger_path(ledger.ledger_id))
            if node is not None:
                closed_ms = node.stat.modified_ms
            else:
                closed_ms = max(ledger.sums.end_publish_ms or 1, 1) if ledger.sums is not None else 1
            info = LedgerInfo(ledger_id, entries, size_bytes, closed_ms)
            yield TopicLedger(info, entries, size_bytes, False)


def _managed(sources: Sources, name: TopicName, ledgers: list[TopicLedger]) -> tuple[ManagedLedger, list[str]]:
    """Return the ManagedLedgerInfo of a topic, and sentences about the parts that could not be found."""
    infos = tuple(ledger.info for ledger in ledgers)
    if sources.earlier is not None and find_node(sources.earlier.txn, name.path) is not None:
        was = read_topic(sources.earlier.txn, name).managed
        known = {info.ledger_id: info for info in was.ledgers}
        ids = {info.ledger_id for info in infos}
        offloaded = [info for info in was.ledgers if info.bookkeeper_deleted and info.ledger_id not in ids]
        kept = [_with_context(info, known.get(info.ledger_id)) for info in infos]
        index = _last_index(sources.reader, ledgers[:-1])
        properties = {**was.properties, **newer_index(was.properties.get(_INDEX, ""), index)}
        listed = tuple(sorted([*offloaded, *kept]))
        return ManagedLedger(listed, was.terminated, properties), []
    index = _last_index(sources.reader, ledgers[:-1])
    if index is not None:
        return ManagedLedger(infos, None, {_INDEX: str(index)}), []
    lost = []
    if len(ledgers) == 1 and not ledgers[0].entries and not name.is_system:
        lost.append("the last index of its messages is in no ledger: a broker that writes indexes starts again at 0")
    return ManagedLedger(infos), lost


def newer_index(was: str, index: int | None) -> dict[str, str]:
    """Return the index property with the larger index: the stored one may be ahead, for messages that were being
    written."""
    ahead = int(was) if was.lstrip("-").isdigit() else -1
    return {} if index is None or ahead > index else {_INDEX: str(index)}


def _with_context(info: LedgerInfo, was: LedgerInfo | None) -> LedgerInfo:
    """Return a ledger's ``LedgerInfo`` with the fields that only the earlier list has, such as its offloading."""
    if was is None:
        return info
    return replace(
        info,
        offloaded=was.offloaded,
        offload_uuid=was.offload_uuid,
        properties=was.properties,
        bookkeeper_deleted=was.bookkeeper_deleted,
        timestamp_ms=info.timestamp_ms and (was.timestamp_ms or info.timestamp_ms),
    )


def _last_index(reader: EntryReader, closed: Iterable[TopicLedger]) -> int | None:
    """Return the broker index of the last entry of closed ledgers, None if entries carry none."""
    for ledger in reversed(list(closed)):
        if ledger.entries:
            return index_of(reader, ledger.ledger_id, ledger.entries - 1)
    return None


def index_of(reader: EntryReader, ledger_id: int, entry_id: int) -> int | None:
    """Return the broker's index of an entry, None where it has none or cannot be read."""
    try:
        header = decode_message_entry(reader.read(ledger_id, entry_id).payload, f"{ledger_id}:{entry_id}")
    except StoreError:
        return None
    return None if header.broker is None else header.broker.index


# -- cursors ----------------------------------------------------------------------------------------------------------


class _Cursor(Struct, frozen=True):
    name: str
    state: CursorState
    value: bytes
    witness: str


def _cursors(sources: Sources, survey: LedgerSurvey, topic: Topic) -> list[_Cursor]:
    """Return the lost cursors of a topic: from its cursor ledgers, its compacted ledger, and an earlier state of the metadata."""
    ledgers = survey.cursors.get(topic.name, {})
    names = {*ledgers}
    if sources.earlier is not None:
        names.update(iter_cursor_names(sources.earlier.txn, topic.name))
    if topic.name in survey.compacted:
        names.add(COMPACTION_CURSOR)
    there = set(iter_cursor_names(sources.reader.txn, topic.name))  # their nodes outlived the topic's own
    told = (_cursor(sources, survey, topic, name) for name in sorted(names - there))
    cursors = [one for one in told if one is not None]
    known = sources.earlier_value(topic.name.path) is not None
    name = None if known else _holding_name(topic, {*there, *(one.name for one in cursors)})
    if name is not None:
        state = CursorState(topic.first_position)
        value = encode_cursor_info(info_of_state(state, {}))
        cursors.append(_Cursor(name, state, value, "none: at the beginning, so that brokers keep the messages"))
    return cursors


def _holding_name(topic: Topic, names: set[str]) -> str | None:
    """Return the subscription that a topic needs besides the named cursors, or None if its data is kept without one.

    Upstream, Pulsar 4.0.8: ``ManagedLedgerImpl.internalTrimLedgers`` deletes all but the last ledger of a topic without
    cursors once retention has passed, and ``PersistentTopic.checkGC`` deletes a topic without subscriptions. For the
    broker's own topics it is the cursor that their readers create, at the beginning, as the readers do.
    """
    local = topic.name.base.local_name
    own = COMPACTION_CURSOR if topic.name.is_system else None
    if local.endswith(PENDING_ACK_SUFFIX):
        own = PENDING_ACK_CURSOR
    elif local.startswith(TRANSACTION_LOG_PREFIX):
        own = LOG_CURSOR
    if own is not None:
        return None if own in names else own
    return HOLDING if topic.number_of_entries and not names - {COMPACTION_CURSOR} else None


def _cursor(sources: Sources, survey: LedgerSurvey, topic: Topic, name: str) -> _Cursor | None:
    ids = survey.cursors.get(topic.name, {}).get(name, [])
    earlier = _earlier_cursor(sources, topic.name, name)
    # Newest first: a damaged last ledger must not hide the state in the one before it.
    for ledger_id in reversed(ids):
        if (
            earlier is not None
            and not earlier.info.is_in_ledger
            and sources.earlier_value(ledger_path(ledger_id)) is not None
        ):
            break  # left over: what was written into the cursor's node since says more
        state, _ = read_cursor_ledger(sources.reader.txn, sources.reader, ledger_id)
        if state is not None:
            # The earlier properties, and the buckets of delayed messages that claim to be of the cursor.
            buckets = {claim.key: str(claim.ledger_id) for claim in survey.buckets.get(topic.name, {}).get(name, ())}
            kept = {} if earlier is None else dict(earlier.info.cursor_properties)
            properties = {**{key: value for key, value in kept.items() if not key.startswith(BUCKET_PREFIX)}, **buckets}
            info = replace(info_of_state(state, properties), cursors_ledger_id=ledger_id)
            value = encode_cursor_info(info, earlier.value if earlier else b"")
            return _Cursor(name, state, value, f"cursor ledger {ledger_id}")
    if earlier is not None:
        return _Cursor(name, earlier.state, earlier.value, "the earlier state")
    if name == COMPACTION_CURSOR and topic.name in survey.compacted:
        claim = survey.compacted[topic.name][-1]
        state = CursorState(claim.horizon, properties={COMPACTED_LEDGER: claim.ledger_id})
        value = encode_cursor_info(info_of_state(state, {}))
        return _Cursor(name, state, value, f"compacted ledger {claim.ledger_id}")
    return None


def _earlier_cursor(sources: Sources, topic: TopicName, name: str) -> PastCursor | None:
    """Return a cursor from the earlier metadata; a state in a cursor ledger is read from the imported entries."""
    if sources.earlier is None or find_node(sources.earlier.txn, topic.cursor_path(name)) is None:
        return None
    txn = sources.earlier.txn
    earlier = read_cursor(txn, sources.earlier, read_topic(txn, topic), name)
    state = earlier.state
    if earlier.info.is_in_ledger:
        here, _ = read_cursor_ledger(sources.reader.txn, sources.reader, earlier.info.cursors_ledger_id)
        state = here or state
    node = read_node(txn, topic.cursor_path(name))
    value = encode_cursor_info(
        info_of_state(state, earlier.info.cursor_properties, earlier.info.last_active_ms), node.value
    )
    return PastCursor(earlier.info, state, value)


# -- partitions, schemas ----------------------------------------------------------------------------------------------


def _make_partitioned(made: _Made) -> None:
    """Create the records of partitioned topics if all of them are lost, and the partitions that never had a ledger."""
    txn = made.txn
    gone = not any(node.value for node in iter_nodes(txn, _PARTITIONED))
    counts: dict[TopicName, int] = {}
    for name in made.survey.data:
        if name.is_partition:
            counts[name.base] = max(counts.get(name.base, 0), name.partition_index + 1)
    for base, count in sorted(counts.items()):
        stored = partition_count(txn, base)
        if not stored and gone:
            sources = made.sources
            before = sources.earlier_value(base.partitioned_path)
            was = 0 if sources.earlier is None else partition_count(sources.earlier.txn, base)
            record = PartitionedTopic(max(count, was))
            value = before if before and was >= count else encode_partitioned_topic(record, before or b"")
            made.put(base.partitioned_path, value)
            witness = "the earlier state" if was >= count else "names of partitions: there may have been more"
            made.parts.append(ChangePart(topic=str(base), after={"partitions": record.partitions, "witness": witness}))
        for part in map(base.partition, range(max(stored, count) if stored or gone else 0)):
            if part not in made.topics and find_node(txn, part.path) is None:
                made.put(part.path, b"")
                made.parts.append(
                    ChangePart(topic=str(part), after={"ledgers": [], "witness": f"partitions of {base}"})
                )


def _make_schema(made: _Made, name: TopicName) -> None:
    sources, ids = made.sources, made.survey.schemas[name]
    there = find_node(made.txn, name.path) is not None or partition_count(made.txn, name) > 0
    if not there and not any(one.base == name for one in made.survey.data):
        made.warnings.append(
            f"the schema of {name} in {_ledger_names(ids)} is not restored: nothing else names that topic"
        )
        return
    locator = made_locator(sources.reader, ids, sources.earlier_value(name.schema_path))
    if locator is None:
        made.warnings.append(f"no schema of {name} can be read from {_ledger_names(ids)}")
        return
    made.put(name.schema_path, locator.value)
    shown = [{"version": version.number, "ledger": version.ledger_id} for version in locator.versions]
    after = {"schemaVersions": shown, "witness": "schema ledgers"}
    made.parts.append(ChangePart(topic=str(name), after=after, warnings=tuple(locator.warnings)))


def _ledger_names(ids: Sequence[int]) -> str:
    return f"{plural(len(ids), 'ledger')} {', '.join(map(str, ids))}"


# -- tenants and namespaces -------------------------------------------------------------------------------------------


def _make_namespaces(made: _Made) -> None:
    txn = made.txn
    earlier = made.sources.earlier
    if earlier is not None and not any(node.value for node in iter_nodes(txn, resources.TENANTS_PATH + "/")):
        # All of /admin but the partitioned topics, which ledgers tell more exactly.
        known = _admin_keys(made)
        nodes = [node for node in iter_nodes(earlier.txn, "/admin/") if node.path.encode() not in known]
        for node in nodes:
            if find_node(txn, node.path) is None:
                made.put(node.path, node.value)
        if nodes:
            shown = {"nodes": len(nodes), "witness": "the earlier state"}
            made.parts.append(ChangePart(resource="/admin", after=shown))
    copied = _admin_keys(made)
    spaces = sorted({name.namespace for name in made.survey.data if not name.namespace.cluster}, key=str)
    bare = [one for one in spaces if _is_missing(txn, one.policies_path, copied)]
    tenants = dict.fromkeys(one.tenant for one in spaces)
    poor = [one for one in tenants if _is_missing(txn, resources.tenant_path(one), copied)]
    if not bare and not poor:
        return
    cluster = find_cluster(made.sources)
    if cluster is None:
        made.survey.left_out.append(
            f"not restored: the policies of {counted(len(bare), 'namespace')} and {counted(len(poor), 'tenant')}, "
            "because the cluster's name was lost with /admin, and brokers serve no namespace without policies. Use `clusterName`"
            " from broker.conf: pulsar-admin store recover --level A --cluster NAME"
        )
        return
    for tenant in poor:
        value = resources.TENANT.replace(None, {"adminRoles": [], "allowedClusters": [cluster]})
        path = resources.tenant_path(tenant)
        before = made.sources.earlier_value(path)
        made.put(path, before or encode_json_object(value))
        after = {**value, "witness": "defaults"} if not before else {"witness": "the earlier state"}
        made.parts.append(ChangePart(resource=f"tenant {tenant}", after=after))
    for namespace in bare:
        _make_policies(made, namespace, cluster)


def _admin_keys(made: _Made) -> set[bytes]:
    return {step.key for step in made.steps if step.key.startswith(b"/admin/")}


def _is_missing(txn: Txn, path: str, copied: set[bytes]) -> bool:
    node = find_node(txn, path)
    return (node is None or not node.value) and path.encode() not in copied


def find_cluster(sources: Sources) -> str | None:
    """Return the cluster's name, None where nothing says it."""
    txn = sources.reader.txn
    clusters = resources.list_clusters(txn)
    return sources.cluster or resources.current_cluster(txn) or (clusters[0] if len(clusters) == 1 else None)


def cluster_of(sources: Sources) -> str:
    """Return the cluster's name; raises Refused if nothing says it."""
    cluster = find_cluster(sources)
    if cluster is None:
        raise Refused(
            "the name of the cluster was lost with /admin, and the policies of namespaces need it",
            hint="use `clusterName` from broker.conf: pulsar-admin store recover --cluster NAME",
        )
    return cluster


def _make_policies(made: _Made, namespace: NamespaceName, cluster: str) -> None:
    before = made.sources.earlier_value(namespace.policies_path)
    if before:
        made.put(namespace.policies_path, before)
        made.parts.append(ChangePart(namespace=str(namespace), after={"witness": "the earlier state"}))
        return
    made.put(namespace.policies_path, encode_json_object(default_policies(cluster)))
    made.defaults = True
    after = {
        "replication_clusters": [cluster],
        "numBundles": resources.DEFAULT_BUNDLES,
        "retention": _KEPT,
        "witness": "defaults",
    }
    made.parts.append(ChangePart(namespace=str(namespace), after=after))


_KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
"""Retains everything: brokers delete ledgers that no subscription needs, and topics without subscriptions."""


def default_policies(cluster: str) -> dict[str, Any]:  # Any: JSON
    """Return policies for a namespace whose own are lost; they retain every message."""
    given = {
        "replication_clusters": [cluster],
        "bundles": resources.bundles_of(resources.DEFAULT_BUNDLES),
        "retention_policies": _KEPT,
    }
    return new_policies(given)


# -- what does not come back ------------------------------------------------------------------------------------------


def _warnings(made: _Made) -> Iterator[str]:
    yield from made.warnings
    if made.bare and made.sources.earlier is None:
        yield (
            f"no subscription of {counted(made.bare, 'topic')} is known: one that never acknowledged, or that was closed cleanly, is in no"
            f" ledger. An earlier state of the metadata knows them (--earlier STORE). Without it, {HOLDING!r} is created at the beginning"
            f" and keeps the messages: create yours, then remove it with: pulsar-admin topics unsubscribe TOPIC -s {shell_word(HOLDING)}"
        )
    if made.topics and made.sources.earlier is None:
        yield "properties of topics and subscriptions, terminated topics and ledgers in tiered storage are in no ledger's metadata"
    if made.defaults:
        yield (
            "policies, permissions and roles are in no ledger: namespaces and tenants have a broker's defaults and keep all messages: set"
            " them again"
        )
    if made.survey.silent:
        yield f"{counted(len(made.survey.silent), 'ledger')} of the metadata do not belong to Pulsar and stay unchanged"


# -- the versions of a topic's schema, from its schema ledgers --------------------------------------------------------


class SchemaPlace(Struct, frozen=True):
    """A version of a schema, and the entry that stores it."""

    number: int
    position: Position
    hash: bytes

    @property
    def ledger_id(self) -> int:
        return self.position.ledger_id


class MadeLocator(Struct):
    """A rebuilt locator, as a value to store."""

    value: bytes
    versions: list[SchemaPlace]
    warnings: list[str] = field(default_factory=list)


def made_locator(reader: EntryReader, ledger_ids: Sequence[int], before: bytes | None) -> MadeLocator | None:
    """Return the locator of the schema versions in these ledgers and of those known ``before``; None if there are none.

    An entry lists the versions before it: if a version has several entries, the one that another entry lists counts. If
    none is listed, as after two registrations at once, the one in the first ledger counts.
    """
    places: dict[int, list[SchemaPlace]] = {}
    listed: dict[int, SchemaPlace] = {}
    for position, entry in iter_schema_entries(reader, ledger_ids):
        # An entry's number is one more than those of the versions it lists; the first one lists itself, at −1:−1.
        earlier = [item for item in entry.index if item.position.ledger_id >= 0]
        number = max((item.version for item in earlier), default=-1) + 1
        digest = b"" if entry.deleted else sha256(entry.definition).digest()
        places.setdefault(number, []).append(SchemaPlace(number, position, digest))
        for item in earlier:
            listed[item.version] = SchemaPlace(item.version, item.position, item.hash)
    if before:
        locator = decode_schema_locator(before, "the earlier locator")
        listed |= {item.version: SchemaPlace(item.version, item.position, item.hash) for item in locator.index}
    versions = [listed.get(number) or places[number][0] for number in sorted({*places, *listed})]
    if not versions:
        return None
    index = tuple(IndexEntry(one.number, one.position, one.hash) for one in versions)
    value = encode_schema_locator(SchemaLocator(index[-1], index), before or b"")
    doubts = []
    for number, same in places.items():
        if number not in listed and len({one.hash for one in same}) > 1:
            ledgers = ", ".join(str(one.ledger_id) for one in same)
            doubts.append(f"version {number} is in ledgers {ledgers} with different definitions: the first is used")
    return MadeLocator(value, versions, doubts)
