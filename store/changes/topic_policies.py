"""Setting the policies of topics: an event per topic is appended to its namespace's ``__change_events``, as a broker does.

Upstream: ``SystemTopicBasedTopicPoliciesService.sendTopicPolicyEventInternal`` (Pulsar 4.0.8). ``__change_events`` is
created with its schema if it does not exist. In a store with nodes below ``/admin/topic-policies`` and no events, the
node is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import (
    LedgerSpec,
    WrittenLedger,
    WrittenLedgers,
    append_ledgers,
    append_payload,
    apply_written,
    last_broker_entry,
    recover_chain,
    write_ledgers,
)
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    ChangeReport,
    Plan,
    PolicyPart,
    WritingPlan,
    WrittenEvent,
    check_transaction,
    delete_step,
    put_value_step,
)
from pulsar_admin.store.changes.policies import PolicyJob, conflict_warnings, unknown_cluster
from pulsar_admin.store.codec import policies, policyevent
from pulsar_admin.store.codec.claims import schema_claims, topic_claims
from pulsar_admin.store.codec.interceptors import open_chain, parse_interceptors
from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.codec.schema import (
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    encode_schema_entry,
    encode_schema_locator,
)
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import MetadataCorrupt, Refused
from pulsar_admin.store.model.cursors import Extent
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.schemas import find_locator, find_schema
from pulsar_admin.store.model.topics import expand_topic, partition_count, read_topic
from pulsar_admin.store.names import EVENTS, NamespaceName, Position, TopicName, TopicSelection, encode_name, java_hash
from pulsar_admin.store.policies.events import find_policy_events
from pulsar_admin.store.policies.in_force import find_delivery, find_message_ttl, find_quotas, iter_stored
from pulsar_admin.store.policies.rules import Scope
from pulsar_admin.store.policies.values import find_cluster, read_namespace_json, topics_with_policies

if TYPE_CHECKING:
    from pulsar_admin.store.scan.payloads import Payload

PRODUCER = "pulsar-admin-toolkit"
_AVRO = 5
_SCHEMA_PROPERTIES = {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"}
"""What a broker keeps with the schema: settings of its AVRO writer."""
_NODES = ("/admin/topic-policies/local", "/admin/topic-policies/global")


class TopicChange(Struct, frozen=True):
    """One topic's policies before and after. ``events``: the topic that the event is appended to; None if a node is written.

    ``deletes``: whether all policies are deleted.
    """

    topic: TopicName
    before: policies.JsonObject
    after: policies.JsonObject
    events: TopicName | None
    replicate_to: tuple[str, ...] | None
    warnings: tuple[str, ...] = ()
    deletes: bool = False

    @property
    def changes(self) -> bool:
        """Whether any policy differs."""
        return _set(self.before) != _set(self.after)

    @property
    def is_global(self) -> bool:
        """Whether these are the policies of all clusters."""
        return bool(self.after.get("isGlobal"))

    def part(self, job: PolicyJob, position: Position | None = None, size_bytes: int = 0) -> ChangePart:
        """Return the report of this change; ``position`` and ``size_bytes``: of the event, once written."""
        return PolicyPart(
            topic=str(self.topic),
            before=job.shown(self.before),
            after=job.shown(self.after),
            event=WrittenEvent(None if self.events is None else str(self.events), position),
            extent=None if position is None else Extent(1, 1, size_bytes),
            warnings=self.warnings,
        )


def _set(fields: policies.JsonObject) -> policies.JsonObject:
    return {key: value for key, value in fields.items() if value is not None}


def _read_changes(txn: Txn, names: Iterable[TopicName], job: PolicyJob) -> list[TopicChange]:
    """Return the change that ``job`` makes to each topic; partitions count as their one topic.

    Raises TopicNotFound, MetadataCorrupt, Refused, InvalidValue.
    """
    return [_read_change(txn, name, job) for name in sorted({name.base for name in names})]


def _read_change(txn: Txn, name: TopicName, job: PolicyJob) -> TopicChange:
    expand_topic(txn, name)
    events = find_policy_events(txn, name.namespace)
    target: TopicName | None = None
    clusters: tuple[str, ...] | None = None
    if events is None and next(iter_children(txn, _NODES[False]), None) is not None:
        node = find_node(txn, _node_path(name, job.is_global))
        before = {} if node is None else policies.decode_json_object(node.value, node.path)
    else:
        kept = {} if events is None else events.global_ if job.is_global else events.local
        before = dict(kept.get(name, policyevent.NEW_POLICIES))
        target = _event_topic(txn, name, job.is_global)
        if not job.is_global:
            clusters = (None if events is None else events.replicate_to) or (_local_cluster(txn, name.namespace),)
    before = {**before, "isGlobal": job.is_global}
    above = read_namespace_json(txn, name.namespace)
    cluster = find_cluster(txn, name.namespace) or ""
    after = job.changed(Scope(job.group, txn, name.namespace, cluster, before, above))
    return TopicChange(name, before, after, target, clusters, _conflicts(txn, name, before, after))


def _conflicts(txn: Txn, name: TopicName, fields: policies.JsonObject, changed: policies.JsonObject) -> tuple[str, ...]:
    """Return warnings about policies that will be in force and drop delayed messages before they are due."""
    before, after = (policies.decode_topic_policies(found, f"topic policies of {name}") for found in (fields, changed))
    if before == after:
        return ()
    in_force = find_delivery(txn, name)
    delivery = after.delayed_delivery or (None if in_force is None else in_force.delivery)
    if delivery is None or not delivery.active:
        return ()
    seconds = after.message_ttl_seconds
    if seconds is None and seconds == before.message_ttl_seconds:
        ttl = find_message_ttl(txn, name)
        seconds = None if ttl is None else ttl.seconds
    quotas = {kind: found.quota for kind, found in find_quotas(txn, name).items() if kind not in before.backlog_quotas}
    return conflict_warnings(
        policies.Policies(message_ttl_seconds=seconds, backlog_quotas={**quotas, **after.backlog_quotas})
    )


def _event_topic(txn: Txn, name: TopicName, is_global: bool) -> TopicName:
    """Return the topic or partition that receives the topic's policy events; raises Refused if it takes no more entries."""
    events = TopicName(name.namespace, EVENTS)
    partitions = partition_count(txn, events)
    target = (
        events.partition(java_hash(policyevent.event_key(name, is_global=is_global)) % partitions)
        if partitions
        else events
    )
    node = find_node(txn, target.path)
    if node is not None and read_topic(txn, target).managed.terminated is not None:
        raise Refused(f"{target} is terminated: no policy can be added to it", topic=str(target))
    return target


def _local_cluster(txn: Txn, namespace: NamespaceName) -> str:
    """Return the cluster of the store's data; local policies name it, so that they are not replicated to other clusters."""
    cluster = find_cluster(txn, namespace)
    if cluster is None:
        raise unknown_cluster(namespace)
    return cluster


def _node_path(name: TopicName, is_global: bool) -> str:
    return f"{_NODES[is_global]}/{name.namespace}/persistent/{encode_name(name.local_name)}"


# -- writing ----------------------------------------------------------------------------------------------------------


def plan_changes(
    txn: Txn, selection: TopicSelection, job: PolicyJob, interceptors: tuple[str, ...] | None, now_ms: int
) -> Plan | WritingPlan:
    """Plan a policy job on the selected topics as one change; raises as ``_read_changes``.

    ``interceptors`` are described at ``apply_changes``.
    """
    names = topics_with_policies(txn, selection)
    changes = _read_changes(txn, names, job)
    plan = Plan(job.kind, txn.id, (), tuple(change.part(job) for change in changes))
    if not any(change.changes for change in changes):
        return plan

    def make(store: Store) -> tuple[ChangeReport, ...]:
        report = apply_changes(store, names, job, now_ms, interceptors)
        return (plan.unchanged() if report is None else report,)

    return WritingPlan(job.kind, txn.id, lambda: (plan.preview(),), make)


def apply_changes(
    store: Store, names: Iterable[TopicName], job: PolicyJob, now_ms: int, interceptors: tuple[str, ...] | None = None
) -> ChangeReport | None:
    """Apply a policy job on topics as one change and return its report, None if nothing changes.

    ``store`` is open for writing. ``interceptors``: those of the broker that will read the events; None: those that
    wrote the last event. Raises as ``_read_changes``, EntryCorrupt for an invalid schema, StalePlan, DiskFull.
    """
    with open_reader(store) as reader:
        changes = [change for change in _read_changes(reader.txn, names, job) if change.changes]
        if not changes:
            return None
        batches = [_batch(reader, *group, now_ms, interceptors) for group in _by_events(changes)]
    # The ledgers are written outside a transaction, as this may take long; nobody else can write to this store meanwhile.
    with write_ledgers(store, [ledger for batch in batches for ledger in batch.ledgers()]) as written:
        with store.read() as txn:
            plan = _plan(txn, written, changes, batches, job, now_ms)
        return apply_written(written, plan, now_ms)


class _Batch(Struct, frozen=True):
    """The events to append to one topic. ``schema``: the definition to register, None if the topic has one.

    ``properties``: the properties of ManagedLedgerInfo that the interceptors maintain.
    """

    events: TopicName
    changes: list[TopicChange]
    payloads: list[bytes]
    schema: bytes | None
    properties: dict[str, str]
    now_ms: int

    def ledgers(self) -> Iterator[tuple[LedgerSpec, list[Payload]]]:
        """Yield the ledgers to write: the one of the events, and one for the schema if it is to be registered."""
        yield LedgerSpec(topic_claims(self.events)), list(self.payloads)
        if self.schema is not None:
            entry = SchemaEntry(
                self.events.schema_id,
                "",
                _AVRO,
                self.schema,
                self.now_ms,
                False,
                _SCHEMA_PROPERTIES,
                (IndexEntry(0, Position(-1, -1), hashlib.sha256(self.schema).digest()),),
            )
            yield LedgerSpec(schema_claims(self.events)), [encode_schema_entry(entry)]


def _by_events(changes: list[TopicChange]) -> Iterator[tuple[TopicName, list[TopicChange]]]:
    """Yield (events topic, the changes whose events are appended to it)."""
    pairs = [(change.events, change) for change in changes if change.events is not None]
    for events, group in groupby(sorted(pairs, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        yield events, [change for _, change in group]


def _batch(
    reader: EntryReader,
    events: TopicName,
    changes: list[TopicChange],
    now_ms: int,
    interceptors: tuple[str, ...] | None,
) -> _Batch:
    locator = find_locator(reader.txn, events)
    newest = find_schema(reader, events, None)
    version = 0 if locator is None else locator.newest.version
    schema = policyevent.AvroSchema(
        policyevent.builtin_schema() if newest is None else newest.definition, version.to_bytes(8, "big", signed=True)
    )
    payloads = [_message(change, schema, number, now_ms) for number, change in enumerate(changes)]
    chain = open_chain(_interceptors(reader, events) if interceptors is None else interceptors)
    if chain:
        recover_chain(reader, events, chain)
        payloads = [append_payload(payload, chain, now_ms) for payload in payloads]
    new_schema = policyevent.builtin_schema() if locator is None else None
    return _Batch(events, changes, payloads, new_schema, chain.properties(), now_ms)


def _message(change: TopicChange, schema: policyevent.AvroSchema, sequence_id: int, now_ms: int) -> bytes:
    action = policyevent.DELETE if change.deletes else policyevent.UPDATE
    event = policyevent.PolicyEvent(change.topic, action, change.after, change.replicate_to)
    return policyevent.encode_event_entry(event, schema, producer=PRODUCER, sequence_id=sequence_id, publish_ms=now_ms)


def _interceptors(reader: EntryReader, events: TopicName) -> tuple[str, ...]:
    """Return the interceptors that wrote the last event: indexes must continue after it, as a broker expects."""
    if find_node(reader.txn, events.path) is None:
        return ()
    broker = last_broker_entry(reader, read_topic(reader.txn, events))
    if broker is None:
        return ()
    present = (broker.timestamp_ms is not None, broker.index is not None)
    return tuple(name for name, there in zip(parse_interceptors("timestamp,index"), present, strict=True) if there)


# -- topics that go ----------------------------------------------------------------------------------------------------


def forget_policies(
    txn: Txn,
    plan: Plan,
    names: Iterable[TopicName],
    now_ms: int,
    interceptors: tuple[str, ...] | None,
    *,
    force: bool = False,
) -> Plan | WritingPlan:
    """Return ``plan``, which deletes topics, extended by the removal of their policies as a broker does it.

    Nodes are deleted, and events without a value are written.

    ``interceptors`` are described at ``apply_changes``. With ``force``, unreadable policies stay. Raises
    MetadataCorrupt, Refused.
    """
    listed = sorted({name for name in names if not name.is_partition})
    try:
        changes = [change for name in listed for change in _forgotten(txn, name)]
    except MetadataCorrupt as error:
        if not force:
            raise
        changes, plan = [], replace(plan, warnings=(*plan.warnings, f"policies stay as they are: {error.message}"))
    paths = [_node_path(name, is_global) for name in listed for is_global in (False, True)]
    steps = tuple(delete_step(txn, path) for path in paths if find_node(txn, path) is not None)
    events = {str(change.topic): str(change.events) for change in changes}
    parts = tuple(
        replace(part, before={**(part.before or {}), "policiesIn": events[part.topic]})
        if part.topic in events
        else part
        for part in plan.parts
    )
    plan = replace(plan, steps=(*plan.steps, *steps), parts=parts)
    if not changes:
        return plan

    def make(store: Store) -> tuple[ChangeReport, ...]:
        with open_reader(store) as reader:
            check_transaction(plan.txn_id, reader.txn.id)
            batches = [_batch(reader, *group, now_ms, interceptors) for group in _by_events(changes)]
        with write_ledgers(store, [ledger for batch in batches for ledger in batch.ledgers()]) as written:
            with store.read() as current:
                added = [*written.steps(current, now_ms)]
                for _, _, more in _batch_steps(current, written, batches):
                    added += more
            return (apply_written(written, replace(plan, steps=(*plan.steps, *added)), now_ms),)

    return WritingPlan(plan.kind, plan.txn_id, lambda: (plan.preview(),), make)


_DELETE = ChangeKind("topicPolicies delete", "delete the policies of {place}")


def plan_delete(
    txn: Txn, selection: TopicSelection, interceptors: tuple[str, ...] | None, now_ms: int
) -> Plan | WritingPlan:
    """Plan deleting all policies, local and global, of the selected topics, including deleted topics given by name.

    Raises as ``forget_policies``.
    """
    names = selection.topics or topics_with_policies(txn, selection)
    parts = []
    for name in sorted({name.base for name in names}):
        own = {source: _set(fields) for source, fields in iter_stored(txn, name)}
        parts.append(ChangePart(topic=str(name), before=own, after={}))
    return forget_policies(txn, Plan(_DELETE, txn.id, (), tuple(parts)), names, now_ms, interceptors)


def _forgotten(txn: Txn, name: TopicName) -> Iterator[TopicChange]:
    """Yield the changes whose events delete a topic's local and global policies; none if events do not have any."""
    events = find_policy_events(txn, name.namespace)
    if events is None or (name not in events.local and name not in events.global_):
        return
    # Events of local policies name their own cluster, so that replicators do not carry them to others; global ones name none.
    clusters = events.replicate_to or (_local_cluster(txn, name.namespace),)
    for is_global, kept in enumerate((events.local, events.global_)):
        target, scope = _event_topic(txn, name, bool(is_global)), {"isGlobal": bool(is_global)}
        yield TopicChange(name, dict(kept.get(name, {})), scope, target, None if is_global else clusters, deletes=True)


# -- the change -------------------------------------------------------------------------------------------------------


def _plan(
    txn: Txn, written: WrittenLedgers, changes: list[TopicChange], batches: list[_Batch], job: PolicyJob, now_ms: int
) -> Plan:
    steps = list(written.steps(txn, now_ms))
    parts: list[ChangePart] = []
    for batch, ledger_id, more in _batch_steps(txn, written, batches):
        steps += more
        for number, (change, payload) in enumerate(zip(batch.changes, batch.payloads, strict=True)):
            parts.append(change.part(job, Position(ledger_id, number), len(payload)))
    for change in changes:
        if change.events is None:
            steps.append(_node_step(txn, change, now_ms))
            parts.append(change.part(job))
    return Plan(job.kind, txn.id, tuple(steps), tuple(parts))


def _batch_steps(txn: Txn, written: WrittenLedgers, batches: list[_Batch]) -> Iterator[tuple[_Batch, int, list[Step]]]:
    """Yield (batch, ledger id of its events, steps that add its ledgers to the topic's list and the schema locator)."""
    rest = iter(written.ledgers)
    for batch in batches:
        ledger = next(rest)
        steps = [_topic_step(txn, batch, ledger)]
        if batch.schema is not None:
            steps.append(_schema_step(txn, batch, next(rest)))
        yield batch, ledger.ledger_id, steps


def _topic_step(txn: Txn, batch: _Batch, ledger: WrittenLedger) -> Step:
    info = LedgerInfo(ledger.ledger_id, ledger.entries, ledger.size_bytes, timestamp_ms=batch.now_ms)
    return append_ledgers(txn, batch.events, [info], batch.properties, batch.now_ms)


def _schema_step(txn: Txn, batch: _Batch, ledger: WrittenLedger) -> Step:
    assert batch.schema is not None
    entry = IndexEntry(0, Position(ledger.ledger_id, 0), hashlib.sha256(batch.schema).digest())
    return put_value_step(
        txn, batch.events.schema_path, encode_schema_locator(SchemaLocator(entry, (entry,))), batch.now_ms
    )


def _node_step(txn: Txn, change: TopicChange, now_ms: int) -> Step:
    kept = {key: value for key, value in _set(change.after).items() if key != "isGlobal"}  # the path says it
    return put_value_step(txn, _node_path(change.topic, change.is_global), policies.encode_json_object(kept), now_ms)
