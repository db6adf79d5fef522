"""Ending topics: terminate, trim, truncate and delete, with everything that a broker removes besides the topic's node
(pulsar.md §1.9).

Upstream: ``ManagedLedgerImpl.asyncTerminate``, ``internalTrimLedgers``, ``asyncTruncate``, ``PersistentTopic.delete``,
``PersistentTopicsBase.internalDeletePartitionedTopic`` (Pulsar 4.0.8). A deleted ledger loses its metadata; its
entries stay in the bookies' files until they are garbage-collected, so that undo restores everything as long as
nothing was exported.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import (
    CursorMove,
    check_ending,
    cleared,
    end_warnings,
    find_unseen_end,
    plan_moves,
)
from pulsar_admin.store.changes.log_writer import last_broker_entry, put_managed_ledger
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    CursorPart,
    DeletedPart,
    Plan,
    WritingPlan,
    delete_step,
)
from pulsar_admin.store.changes.resources import NodeChange, check_tenant_deletable, plan_nodes
from pulsar_admin.store.changes.resources import plan_delete_cluster as plan_delete_cluster
from pulsar_admin.store.changes.subscriptions import own_ledgers
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.compaction.reading import find_dropped_keys
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import OwnerKind, find_owners
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.errors import Corrupt, NamespaceNotFound, Refused, StoreError, TopicNotFound, Unsupported
from pulsar_admin.store.facts.backlogs import extent_of_messages
from pulsar_admin.store.model import resources
from pulsar_admin.store.model.compacted_view import find_compacted_view
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    Cursor,
    Extent,
    is_own,
    iter_cursor_names,
    pending_intervals,
    read_cursor,
    read_cursors,
)
from pulsar_admin.store.model.nodes import iter_other_ledgers, other_path
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import (
    COMPACTED_LEDGER,
    Topic,
    TopicLedger,
    check_partitioned,
    existing_partitions,
    expand_topic,
    iter_partitioned,
    iter_topics,
    list_partitions,
    read_partitioned,
    read_topic,
)
from pulsar_admin.store.names import PERSISTENT, SCALABLE, NamespaceName, Position, TopicName, decode_name, shell_word
from pulsar_admin.store.policies.retention import trimmable
from pulsar_admin.store.wording import counted, listed, plural

_INDEX = "index"
_KEYS = 5
"""Keys that a warning names."""
_FORGET = "to let its subscription forget its transactions, delete it with --force"


# -- terminate --------------------------------------------------------------------------------------------------------


_TERMINATE = ChangeKind("topics terminate", "terminate {place}")
_TERMINATE_PARTITIONED = ChangeKind("topics partitioned-terminate", _TERMINATE.words)
_TRUNCATE = ChangeKind("topics truncate", "truncate {place}")


def plan_terminate(reader: EntryReader, name: TopicName, partitioned: bool, now_ms: int) -> Plan:
    """Plan terminating a topic, or all partitions, so that nothing more can be published; raises TopicNotFound, Refused."""
    each: Iterable[TopicName] = (name,)
    if partitioned:
        each = existing_partitions(reader.txn, check_partitioned(reader.txn, name))
    steps, parts = [], []
    for one in each:
        topic = read_topic(reader.txn, one)
        check_ending(one, "terminate", _FORGET)
        end = _terminal_position(topic)
        if end_unknown := find_unseen_end(reader.txn, topic):
            raise end_unknown
        before = topic.managed.terminated
        if before is None:
            managed = replace(topic.managed, terminated=end, properties=_properties_now(reader, topic))
            steps.append(put_managed_ledger(reader.txn, one, managed, now_ms))
        parts.append(
            ChangePart(
                topic=str(one),
                before={"terminatedPosition": None if before is None else str(before)},
                after={"terminatedPosition": str(end)},
            )
        )
    kind = _TERMINATE_PARTITIONED if partitioned else _TERMINATE
    return Plan(kind, reader.txn.id, tuple(steps), tuple(parts))


def _terminal_position(topic: Topic) -> Position:
    """Return the position at which a topic is terminated, or would be; raises Refused for a topic that no broker has opened."""
    if not topic.ledgers:
        raise Refused(
            f"{topic.name} has no ledger yet, so it cannot be terminated",
            hint=f"delete it with: pulsar-admin topics delete {shell_word(topic.name)}",
            topic=str(topic.name),
        )
    return topic.last_confirmed


def _properties_now(reader: EntryReader, topic: Topic) -> dict[str, str]:
    """Return the topic's properties as a broker writes them now: its index interceptor adds the last index."""
    properties = dict(topic.managed.properties)
    broker = last_broker_entry(reader, topic) if _INDEX in properties else None
    return properties if broker is None or broker.index is None else {**properties, _INDEX: str(broker.index)}


# -- trim and truncate ------------------------------------------------------------------------------------------------


def plan_trim(reader: EntryReader, name: TopicName, now_ms: int) -> Plan:
    """Plan deleting the ledgers that no subscription needs and retention no longer keeps; raises TopicNotFound."""
    topics = [read_topic(reader.txn, part) for part in expand_topic(reader.txn, name)]
    cuts = [_cut(reader, topic, trimmable(reader, topic, now_ms), now_ms) for topic in topics]
    steps = tuple(step for cut, _ in cuts for step in cut)
    return Plan(ChangeKind("topics trim-topic", "trim {place}"), reader.txn.id, steps, tuple(part for _, part in cuts))


def plan_truncate(reader: EntryReader, name: TopicName, now_ms: int) -> Plan:
    """Plan clearing every cursor and deleting all ledgers but the last, regardless of retention.

    Raises TopicNotFound, Refused. A compacted topic loses its view, as on a broker: a cleared backlog has no
    properties (``ManagedCursorImpl.asyncClearBacklog``, tried on 4.0.8 and 4.2.4), so nothing references the compacted
    ledger. Properties of other cursors stay, because a running broker writes them again.
    """
    steps: list[Step] = []
    parts: list[ChangePart] = []
    for one in expand_topic(reader.txn, name):
        topic = read_topic(reader.txn, one)
        check_ending(one, "truncate", _FORGET)
        cursors = read_cursors(reader.txn, reader, topic).values()
        moves = [_cleared(reader, topic, cursor) for cursor in cursors]
        moved = plan_moves(reader, _TRUNCATE, moves, now_ms)
        cut, part = _cut(reader, topic, topic.ledgers[:-1], now_ms)
        steps += [*moved.steps, *cut]
        # The ledgers that a broker could delete after these moves are deleted here, and ``part`` counts them.
        parts += [part, *(replace(one, deletable=None) for one in moved.parts if isinstance(one, CursorPart))]
    return Plan(_TRUNCATE, reader.txn.id, tuple(steps), tuple(parts))


def _cleared(reader: EntryReader, topic: Topic, cursor: Cursor) -> CursorMove:
    state = cleared(topic, cursor.state)
    if cursor.name != COMPACTION_CURSOR or COMPACTED_LEDGER not in state.properties:
        return CursorMove(topic, cursor, state, as_broker=True)
    properties = {key: value for key, value in state.properties.items() if key != COMPACTED_LEDGER}
    ledger_id = state.properties[COMPACTED_LEDGER]
    return CursorMove(
        topic,
        cursor,
        replace(state, properties=properties),
        warnings=(_dropped_view(reader, topic, ledger_id),),
        as_broker=True,
    )


def _dropped_view(reader: EntryReader, topic: Topic, ledger_id: int) -> str:
    """Return the warning about what readers lose with the compacted view in ``ledger_id``."""
    text = f"the compacted view is dropped, as a broker does: its ledger {ledger_id} stays in BookKeeper without any reference"
    try:
        view = find_compacted_view(reader, topic)
        dropped = (
            None if view is None else find_dropped_keys(reader, topic, view, topic.ranks[max(len(topic.ids) - 1, 0)])
        )
    except StoreError as error:
        return f"{text}; its keys cannot be read: {error.message}"
    if dropped is None:
        return f"{text}; see its keys first with: pulsar-admin compaction read {shell_word(topic.name)}"
    keys = [
        f"{counted(len(lost), 'key')} ({listed(map(repr, lost), _KEYS)}) {plural(len(lost), 'is', 'are')} {where}"
        for lost, where in ((dropped.of_view, "only in that ledger"), (dropped.gone, "no longer in any ledger"))
        if lost
    ]
    return "; ".join((text, *keys))


def _cut(
    reader: EntryReader, topic: Topic, gone: tuple[TopicLedger, ...], now_ms: int
) -> tuple[tuple[Step, ...], ChangePart]:
    """Return steps and report of removing ``gone``, a topic's first ledgers; a shadow topic's ledgers stay, as its
    source owns them."""
    gone = () if topic.is_shadow else gone
    ids = [ledger.ledger_id for ledger in gone]
    kept = topic.ids[len(ids) :]
    extent = extent_of_messages(reader, topic, ((0, topic.ranks[len(ids)]),), at_ends=True) if ids else Extent()
    part = DeletedPart(
        topic=str(topic.name),
        before={"ledgers": topic.ids},
        after={"ledgers": kept},
        extent=extent,
        unreferenced_ledgers=tuple(ids),
    )
    if not ids:
        return (), part
    infos = topic.managed.ledgers[len(ids) :]
    managed = replace(topic.managed, ledgers=infos, properties=_properties_now(reader, topic))
    step = put_managed_ledger(reader.txn, topic.name, managed, now_ms)
    return (step, *_ledger_steps(reader.txn, ids, {str(topic.name)})), part


# -- delete -----------------------------------------------------------------------------------------------------------


def check_deletable(txn: Txn, name: TopicName, *, partitioned: bool, force: bool) -> TopicName:
    """Return the topic's name if it may be deleted; a ``partitioned`` topic is not checked here but by
    ``partitions_to_delete``.

    Raises TopicNotFound, and Refused for a partitioned topic. Unless ``force``, also raises MetadataCorrupt, and
    Refused for a transaction log, which a broker deletes together with its topic.
    """
    if partitioned:
        return name
    if name.domain == SCALABLE:
        raise Refused(
            f"{name} is a scalable topic",
            hint=f"delete it with its segments: pulsar-admin scalable-topics delete {shell_word(name)}",
            topic=str(name),
        )
    if force and find_node(txn, name.path) is not None:
        return name
    if find_node(txn, name.path) is None and read_partitioned(txn, name).partitions:
        raise Refused(
            f"{name} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic.",
            hint=f"type: pulsar-admin topics delete-partitioned-topic {shell_word(name)}",
            topic=str(name),
        )
    existing = _read_listed(txn, name).name
    check_ending(
        name, "delete by itself", "add --force to delete it anyway, for a plan file to the command that writes it"
    )
    return existing


def partitions_to_delete(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return the existing partitions of a topic; raises TopicNotFound, and Refused for a topic without partitions."""
    if not read_partitioned(txn, name).partitions:
        if find_node(txn, name.path) is None:
            raise TopicNotFound(f"Topic {name} not found.", topic=str(name))
        raise Refused(
            f"{name} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete.",
            hint=f"type: pulsar-admin topics delete {shell_word(name)}",
            topic=str(name),
        )
    return existing_partitions(txn, name)


def plan_delete_topics(
    reader: EntryReader,
    names: Sequence[TopicName],
    now_ms: int,
    interceptors: tuple[str, ...] | None,
    *,
    partitioned: bool,
    force: bool,
) -> Plan | WritingPlan:
    """Plan deleting topics that ``check_deletable`` accepted; with ``partitioned``, partitioned topics and their
    partitions.

    ``interceptors`` and ``force`` are described at ``forget_policies``. Raises TopicNotFound, Refused,
    MetadataCorrupt.
    """
    from pulsar_admin.store.changes.topic_policies import forget_policies

    kind, gone = ChangeKind("topics delete", "delete {place}"), list(names)
    if partitioned:
        kind = ChangeKind("topics delete-partitioned-topic", "delete partitioned topic {first}")
        gone = [one for name in names for one in partitions_to_delete(reader.txn, name)]
    bases = [name for name in names if not name.is_partition]
    plan = plan_delete(reader, kind, gone, bases, now_ms, force=force)
    whole = [base for base in bases if not _staying(reader.txn, base, gone)]
    return forget_policies(reader.txn, plan, whole, now_ms, interceptors, force=force)


def _staying(txn: Txn, base: TopicName, deleted: Sequence[TopicName]) -> list[TopicName]:
    """Return the topic ``base`` and its partitions, as far as they exist and are not in ``deleted``.

    A topic and partitions of the same name can exist side by side; they share one schema and one set of policies.
    """
    there = (one for one in (base, *list_partitions(txn, base)) if find_node(txn, one.path) is not None)
    return [one for one in there if one not in deleted]


def plan_delete(
    reader: EntryReader,
    kind: ChangeKind,
    names: Iterable[TopicName],
    bases: Iterable[TopicName],
    now_ms: int,
    *,
    force: bool = False,
    whole_topic: bool = False,
) -> Plan:
    """Plan deleting topics, and the partition records and schemas of ``bases`` (names without a partition number).

    With ``force``, unreadable nodes are deleted as well; the ledgers that they list stay. ``whole_topic``: the topics are all segments of a
    scalable topic, which is deleted with them.
    """
    txn = reader.txn
    listed = list(_with_pending_acks(txn, names))
    owners = {str(name) for name in (*listed, *bases)}
    steps: list[Step] = []
    ledgers: list[int] = []
    parts, records = [], []
    warnings: list[str] = []
    for name in listed:
        own, removed, part = _deleted(reader, name, force=force, whole_topic=whole_topic)
        steps += removed
        ledgers += own
        parts.append(part)
    for base in bases:
        staying = _staying(txn, base, listed)
        other = "" if whole_topic else other_path(txn, base)
        known = () if staying or other else _schema_ledgers(txn, base, force=force)
        schema = known or ()
        ledgers += schema
        if known is None:
            warnings.append(f"the schema of {base} cannot be read, its ledgers stay: see pulsar-admin ledgers orphans")
        if (other or staying) and find_node(txn, base.schema_path) is not None:
            which = f"{other}, which a newer Pulsar wrote," if other else str(staying[0])
            warnings.append(f"the schema of {base} stays: {which} has the same")
        record = () if staying and base in listed else (base.partitioned_path,)
        going = record if other or staying else (base.partitioned_path, base.schema_path)
        paths = [path for path in going if find_node(txn, path) is not None]
        steps += [delete_step(txn, path) for path in paths]
        shown = None if known is None else list(known)
        before: dict[str, object] = {"partitions": read_partitioned(txn, base).partitions, "schemaLedgers": shown}
        if base in listed:
            part = parts[place := listed.index(base)]
            before = {**(part.before or {}), "schemaLedgers": shown}
            parts[place] = replace(
                part,
                before=before,
                unreferenced_ledgers=(*dict.fromkeys((*(part.unreferenced_ledgers or ()), *schema)),),
            )
        else:
            records.append(DeletedPart(topic=str(base), before=before, unreferenced_ledgers=schema))
    kept = {ledger_id for ledger_id in ledgers if _is_of_others(txn, ledger_id, owners)}
    steps += _ledger_steps(txn, ledgers, owners)
    parts = [*records, *(_without(part, kept) for part in parts)]
    return Plan(kind, txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))


def _without(part: ChangePart, kept: set[int]) -> ChangePart:
    """Return ``part`` without the ledgers in ``kept``, and without an extent if no ledger is left."""
    listed = part.unreferenced_ledgers or ()
    left = tuple(ledger_id for ledger_id in listed if ledger_id not in kept)
    if left == listed:
        return part
    return replace(part, unreferenced_ledgers=left, extent=part.extent if left else None)


def _with_pending_acks(txn: Txn, names: Iterable[TopicName]) -> dict[TopicName, None]:
    """Return each topic once, followed by the pending-ack logs of its subscriptions, which a broker deletes with it."""
    listed = dict.fromkeys(names)
    logs = (log for name in listed for cursor in iter_cursor_names(txn, name) for log in name.pending_acks(cursor))
    return listed | dict.fromkeys(log for log in logs if find_node(txn, log.path) is not None)


def _read_listed(txn: Txn, name: TopicName) -> Topic:
    """Return the topic; raises as ``read_topic``, with how to delete one whose list of ledgers cannot be read."""
    try:
        return read_topic(txn, name)
    except Corrupt as error:
        forced = f"pulsar-admin topics delete {shell_word(name)} --force" if name.domain == PERSISTENT else "--force"
        hint = f"to delete it without the ledgers that it lists: {forced}"
        raise type(error)(error.message, hint=hint, **error.context) from error


def _deleted(
    reader: EntryReader, name: TopicName, *, force: bool, whole_topic: bool = False
) -> tuple[list[int], list[Step], ChangePart]:
    """Return the ledgers, the steps and the report of deleting a topic's node and the nodes of its cursors."""
    txn = reader.txn
    cursors = sorted(iter_cursor_names(txn, name))
    paths = (name.path, *map(name.cursor_path, cursors))
    steps = [delete_step(txn, path, whole_topic=whole_topic) for path in paths]
    try:
        topic = _read_listed(txn, name)
    except Corrupt as error:
        if not force:
            raise
        said = f"its list of ledgers cannot be read, they stay: see pulsar-admin ledgers orphans ({error.message})"
        return [], steps, ChangePart(topic=str(name), before={"subscriptions": cursors}, warnings=(said,))
    ledgers = list(topic.ids)
    backlogs: dict[str, int | None] = {}
    for cursor in cursors:
        is_shown = not is_own(cursor) and not name.is_system
        try:
            deleted = read_cursor(txn, reader, topic, cursor)
        except (Corrupt, Unsupported):  # what it names is unknown and stays; `ledgers orphans` lists it
            if is_shown:
                backlogs[cursor] = None
            continue
        ledgers += own_ledgers(deleted)
        pending = pending_intervals(topic, deleted.state)
        if pending and is_shown:
            left = extent_of_messages(reader, topic, pending, at_ends=True)
            backlogs[cursor] = None if left.uncounted_entries else left.messages
    part = DeletedPart(
        topic=str(name),
        before={
            "subscriptions": cursors,
            "ledgers": topic.ids,
            "backlogMessages": backlogs,
        },
        extent=extent_of_messages(reader, topic, ((0, topic.number_of_entries),), at_ends=True),
        unreferenced_ledgers=tuple(ledgers),
        warnings=end_warnings(txn, topic, "is deleted too"),
    )
    return ledgers, steps, part


def _schema_ledgers(txn: Txn, base: TopicName, *, force: bool) -> tuple[int, ...] | None:
    """Return the ledgers of a schema; with ``force``, None if its locator cannot be read."""
    node = find_node(txn, base.schema_path)
    try:
        return () if node is None else decode_schema_locator(node.value, node.path).ledger_ids
    except Corrupt as error:
        if not force:
            error.change_hint("to delete it without the ledgers of its schema: --force")
            raise
        return None


def _is_of_others(txn: Txn, ledger_id: int, owners: set[str]) -> bool:
    """Return whether a topic other than ``owners`` references the ledger, as the source of a shadow topic does."""
    return any(one.kind is not OwnerKind.SCHEMA and one.topic not in owners for one in find_owners(txn, ledger_id))


def _ledger_steps(txn: Txn, ledger_ids: Iterable[int], owners: set[str]) -> Iterator[Step]:
    """Yield the steps that delete the metadata of ledgers, except those that topics other than ``owners`` reference."""
    for ledger_id in dict.fromkeys(ledger_ids):
        if not _is_of_others(txn, ledger_id, owners) and find_node(txn, ledger_path(ledger_id)) is not None:
            yield delete_step(txn, ledger_path(ledger_id))


# -- deleting ----------------------------------------------------------------------------------------------------------
# Deleting namespaces and tenants, with the nodes that a broker removes beside their own.
#
# Upstream: ``NamespacesBase.internalDeleteNamespaceAsync``, ``TenantsBase`` and ``CmdClusters.Delete`` (Pulsar 4.0.8). Quotas of bundles
# stay, as there. Entries stay in the bookies' files until these collect their garbage.


def plan_delete_namespace(reader: EntryReader, namespace: NamespaceName, force: bool, now_ms: int) -> Plan:
    """Plan deleting a namespace, with ``force`` also its topics; raises NamespaceNotFound, Refused."""
    _check_namespace(reader.txn, namespace)
    if not force:
        records = iter_nodes(reader.txn, f"/admin/partitioned-topics/{namespace}/")
        # Brokers delete a namespace that has only system topics without force (``hasNonSystemTopic``).
        topics = [str(topic) for topic in iter_topics(reader.txn, namespace) if not topic.is_system]
        partitioned = [decode_name(node.path.rpartition("/")[2]) for node in records]
        left = topics + [name for name in partitioned if not TopicName(namespace, name).is_system]
        if left:
            raise Refused(
                "Cannot delete non empty namespace",
                hint=f"it has {listed(left, 3)}; --force deletes them as well",
                namespace=str(namespace),
            )
    kind = ChangeKind("namespaces delete", "delete namespace {first}")
    return _plan_namespaces(reader, kind, [namespace], now_ms)


def plan_delete_tenant(reader: EntryReader, tenant: str, force: bool, now_ms: int) -> Plan:
    """Plan deleting a tenant, with ``force`` also its namespaces and their topics; raises NamespaceNotFound, Refused."""
    kind = ChangeKind("tenants delete", "delete {first}")
    return _plan_tenants(reader, kind, [tenant], now_ms, force=force)


def plan_delete_all(reader: EntryReader, cluster: str, now_ms: int) -> Plan:
    """Plan deleting a cluster and all tenants, namespaces and topics; raises ResourceNotFound, Refused."""
    own = plan_delete_cluster(reader.txn, cluster, now_ms)
    data = _plan_tenants(reader, own.kind, resources.list_tenants(reader.txn), now_ms, force=True)
    return replace(data, steps=(*data.steps, *own.steps), parts=(*own.parts, *data.parts))


def _plan_tenants(reader: EntryReader, kind: ChangeKind, tenants: Iterable[str], now_ms: int, *, force: bool) -> Plan:
    txn, names = reader.txn, list(tenants)
    namespaces = [one for tenant in names for one in check_tenant_deletable(txn, tenant, force=force)]
    for namespace in namespaces:
        if resources.find_json(txn, namespace.policies_path) is not None:
            _check_namespace(txn, namespace)
    data = _plan_namespaces(reader, kind, namespaces, now_ms)
    changes = [NodeChange(f"tenant {tenant}", resources.tenant_path(tenant), None) for tenant in names]
    own = plan_nodes(txn, kind, changes, now_ms)
    return replace(data, steps=(*data.steps, *own.steps), parts=(*own.parts, *data.parts))


def _plan_namespaces(reader: EntryReader, kind: ChangeKind, namespaces: Sequence[NamespaceName], now_ms: int) -> Plan:
    txn = reader.txn
    for namespace in namespaces:
        _check_other_ledgers(txn, namespace)
    topics = [topic for namespace in namespaces for topic in iter_topics(txn, namespace)]
    bases = [base for namespace in namespaces for base in _bases(txn, namespace)]
    plan = plan_delete(reader, kind, topics, bases, now_ms)
    # The node of a partitioned topic went with its topic: a second step would expect the value from before the first.
    gone = {step.key for step in plan.steps}
    steps = [step for namespace in namespaces for step in _own_nodes(txn, namespace) if step.key not in gone]
    parts = [_part(txn, namespace, topics) for namespace in namespaces]
    return replace(plan, steps=(*plan.steps, *steps), parts=(*parts, *plan.parts))


def _bases(txn: Txn, namespace: NamespaceName) -> list[TopicName]:
    """Return the topics of a namespace, without partition numbers, that have partitions or a schema."""
    schemas = (TopicName(namespace, decode_name(name)) for name in iter_children(txn, f"/schemas/{namespace}"))
    return list(dict.fromkeys([*iter_partitioned(txn, namespace), *schemas]))


def _own_nodes(txn: Txn, namespace: NamespaceName) -> Iterable[Step]:
    below = (f"/admin/partitioned-topics/{namespace}/", f"{resources.bundle_data_path(namespace)}/")
    paths = [node.path for prefix in below for node in iter_nodes(txn, prefix)]
    own = (namespace.policies_path, resources.local_policies_path(namespace))
    steps = (delete_step(txn, path) for path in (*own, *paths))
    return [step for step in steps if step.before is not None]


def _part(txn: Txn, namespace: NamespaceName, topics: Sequence[TopicName]) -> ChangePart:
    policies = resources.find_json(txn, namespace.policies_path) or {}
    before = {
        "replication_clusters": policies.get("replication_clusters"),
        "topics": sum(topic.namespace == namespace for topic in topics),
    }
    return ChangePart(namespace=str(namespace), before=before)


def _check_other_ledgers(txn: Txn, namespace: NamespaceName) -> None:
    """Raise Refused if the namespace has managed ledgers of a newer Pulsar, which may be referenced in places unknown here."""
    others = [str(name) for name in iter_other_ledgers(txn, namespace)]
    if others:
        raise Refused(
            f"{namespace} has {counted(len(others), 'managed ledger')} of scalable topics or of a newer Pulsar: {listed(others, 3)}",
            hint=f"delete scalable topics first: pulsar-admin scalable-topics list {shell_word(namespace)}",
            namespace=str(namespace),
        )


def _check_namespace(txn: Txn, namespace: NamespaceName) -> None:
    policies = resources.find_json(txn, namespace.policies_path)
    if policies is None:
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.", namespace=str(namespace))
    clusters, own = policies.get("replication_clusters") or [], resources.current_cluster(txn)
    if len(clusters) > 1:
        raise Refused(
            f"Cannot delete the global namespace {namespace}. There are still more than one replication clusters configured.",
            hint=f"keep one with: pulsar-admin namespaces set-clusters {shell_word(namespace)} --clusters CLUSTER",
        )
    if clusters and own is not None and clusters != [own]:
        raise Refused(
            (f"{namespace} belongs to cluster {clusters[0]}: its own brokers delete it"), namespace=str(namespace)
        )
